/* A client sends what it has, cut as it was drawn, up to so many requests ahead of the responses; reads at its own pace; and leaves in its
 * own way: when it has all, or amid it.
 *
 * Checked    responses come in order, one for each request, whole, with the status and the values that the request must get; the
 *            connection ends only where it may.
 * Interface  clients.h. */
#include "sim/clients.h"

#include <string.h>

#include "sim/bed.h"
#include "sim/device.h"
#include "sim/responses.h"
#include "sim/sim.h"
#include "sim/sockets.h"
#include "sim/world.h"

enum { REQUESTS_MAX = 8, READ_MAX = 65536, SEGMENTS_MAX = 500 };

typedef struct client {
    sim_bytes out, in; /* all that it sends; what came and is no whole response yet */
    sim_request requests[REQUESTS_MAX];
    bool done[REQUESTS_MAX];    /* it had its own status */
    int count, answered, ahead; /* requests; so many may be sent beside the one that is waited for */
    size_t sent;
    size_t segment, read;     /* at most at once */
    int64_t pace_ns, rest_ns; /* between two segments at most; before it reads what has come */
    size_t quits_at;          /* bytes after which it resets the connection; SIZE_MAX: it does not */
    size_t stops_at;          /* or sends no more, and waits */
    bool half_closes;         /* ends its side behind the last request */
    bool asked;               /* 100 Continue came for the request that waits */
    bool connected, fin, over;
    bool ends; /* a response said that the connection ends */
    int64_t next_ns, send_ns;
    bool was_dead; /* the daemon knew of a sticky fault when the request that is waited for began */
} client;

static client clients[SIM_LINKS];
static int clients_count;

static int index_of(const client *c)
{
    return (int)(c - clients);
}

static bool is_rough(const client *c)
{
    return c->quits_at != SIZE_MAX || c->stops_at != SIZE_MAX;
}

/* Perhaps more than the daemon waits for. */
static bool is_slow(const client *c)
{
    return c->pace_ns > SIM_MS || c->rest_ns > SIM_MS;
}

static void draw_client(client *c)
{
    memset(c, 0, sizeof *c);
    c->count = (int)sim_skewed(1, REQUESTS_MAX);
    sim_tensor tensor = {.client = index_of(c), .last = -1};
    for (int i = 0; i < c->count; i++) {
        sim_request_draw(&c->out, &c->requests[i], i, &tensor);
        sim_event_text("a request", c->out.bytes + c->requests[i].at, c->requests[i].head_end - c->requests[i].at);
    }
    sim_give(tensor.values);
    c->ahead = sim_one_in(2) ? (int)sim_between(0, 3) : 0;
    c->segment = sim_one_in(3) ? (size_t)sim_skewed(1, 300) : (size_t)sim_skewed(1000, 100000);
    if (c->segment < c->out.n / SEGMENTS_MAX) c->segment = c->out.n / SEGMENTS_MAX;
    c->read = sim_one_in(4) ? (size_t)sim_skewed(64, 2000) : READ_MAX;
    c->pace_ns = sim_skewed(SIM_US, !sim.calm && sim_one_in(8) ? 50 * SIM_MS : SIM_MS);
    c->rest_ns = sim_skewed(SIM_US, !sim.calm && sim_one_in(8) ? 50 * SIM_MS : SIM_MS);
    c->quits_at = c->stops_at = SIZE_MAX;
    if (!sim.calm && sim_one_in(6)) c->quits_at = sim_draw(c->out.n + 1);
    if (!sim.calm && sim_one_in(12)) c->stops_at = sim_draw(c->out.n);
    c->half_closes = sim_one_in(6);
    /* One that comes late finds a shard that has tested its device again meanwhile. */
    c->next_ns =
        sim_world_now_ns() + (sim_one_in(60) ? sim_between(25 * SIM_S, 40 * SIM_S) : sim_skewed(SIM_US, 20 * SIM_MS));
}

void sim_clients_begin(void)
{
    clients_count = sim.clients;
    for (int i = 0; i < clients_count; i++) draw_client(&clients[i]);
}

/* --- what comes --------------------------------------------------------------------------------------------------- */

/* What its tensor should be follows from a request that has failed. */
static bool is_open(const client *c, const sim_request *request)
{
    return request->needs >= 0 && !c->done[request->needs];
}

/* Where something is wrong with the host, the time or the client, not with the request. */
static bool may_get(const client *c, const sim_request *request, int status)
{
    if (sim.calm) return false;
    if (status == 503) return true;
    if (is_open(c, request) && (status == 404 || status / 100 == 2)) return true;
    if (status == 507) return request->stores;
    if (status == 408) return c->stops_at != SIZE_MAX || sim.jumps || is_slow(c);
    if (status == 504) return request->inference;
    return status == 500 && request->inference && sim.failing;
}

static void check_response(client *c, const sim_response *response)
{
    const sim_request *request = &c->requests[c->answered];
    sim_event("response", index_of(c), response->status);
    sim_check(c->sent > request->at, "a response to nothing", index_of(c), response->status);
    if (request->ready && c->was_dead) sim_check(response->status != 200, "ready behind a sticky fault", 0, 0);
    if (response->status != request->status)
        sim_check(may_get(c, request, response->status), "a request gets another status", response->status,
                  request->status);
    if (request->inference && c->was_dead) sim_check(response->status != 200, "200 behind a sticky fault", 0, 0);
    if (response->status == 200 && !is_open(c, request)) sim_response_check_body(response, request);
    c->done[c->answered] = response->status == request->status && !is_open(c, request);
    if (request->closes && response->status == request->status)
        sim_check(response->closes, "the connection must end with this response", response->status, 0);
    c->ends = response->closes;
    c->answered++;
    c->asked = false;
}

static void read_responses(client *c)
{
    sim_response response;
    size_t at = 0;
    while (at < c->in.n) {
        sim_event_text("a response", c->in.bytes + at, c->in.n - at < 400 ? c->in.n - at : 400);
        sim_check(!c->ends, "bytes behind the last response", index_of(c), (int64_t)(c->in.n - at));
        sim_check(c->answered < c->count, "more responses than requests", index_of(c), c->count);
        if (!sim_response_read(c->in.bytes + at, c->in.n - at, &response)) break;
        at += response.size;
        if (response.status >= 200)
            check_response(c, &response);
        else
            c->asked = true;
    }
    memmove(c->in.bytes, c->in.bytes + at, c->in.n - at);
    c->in.n -= at;
}

static bool take(client *c)
{
    char bytes[READ_MAX];
    const size_t n = sim_peer_get(index_of(c), bytes, c->read);
    if (n == 0) return false;
    sim_put(&c->in, bytes, n);
    read_responses(c);
    return true;
}

/* --- what goes ---------------------------------------------------------------------------------------------------- */

/* Up to where it may send now. */
static size_t may_send(const client *c)
{
    size_t to = c->out.n;
    const int last = c->answered + c->ahead;
    if (last < c->count) to = c->requests[last].end;
    for (int i = c->answered; i < c->count && i <= last; i++)
        if (c->requests[i].waits && c->sent <= c->requests[i].head_end) {
            if (i > c->answered || !c->asked) to = c->requests[i].head_end < to ? c->requests[i].head_end : to;
            break;
        }
    if (c->quits_at < to) to = c->quits_at;
    return c->stops_at < to ? c->stops_at : to;
}

static void leave(client *c, bool reset)
{
    if (reset)
        sim_peer_reset(index_of(c));
    else
        sim_peer_fin(index_of(c));
    c->over = true;
    c->next_ns = SIM_NEVER;
    sim_event(reset ? "leaves with a reset" : "leaves", index_of(c), c->answered);
}

static void send_some(client *c)
{
    const int64_t now_ns = sim_world_now_ns();
    const size_t to = may_send(c), left = to > c->sent ? to - c->sent : 0;
    if (left == 0 || c->ends || now_ns < c->send_ns) return;
    const size_t n = 1 + sim_draw(left < c->segment ? left : c->segment);
    for (int i = c->answered; i < c->count && c->requests[i].at <= c->sent; i++)
        if (c->sent == c->requests[i].at && i == c->answered) c->was_dead = sim_device_is_lost() || sim_bed_failed();
    c->sent += sim_peer_put(index_of(c), c->out.bytes + c->sent, n);
    c->send_ns = now_ns + sim_skewed(SIM_US, c->pace_ns);
}

/* --- how it ends -------------------------------------------------------------------------------------------------- */

/* The daemon has ended the connection. */
static void check_end(client *c)
{
    const bool all = c->answered == c->count;
    if (all || c->ends || is_rough(c) || is_slow(c)) return;
    if (sim_memory_failures() > 0 || sim_bed_drains() || sim.jumps) return;
    sim_wrong(sim_peer_was_reset(index_of(c)) ? "a connection is reset" : "a connection ends without a response",
              index_of(c), c->answered);
}

static bool has_ended(client *c)
{
    if (!sim_peer_over(index_of(c))) return false;
    check_end(c);
    if (c->in.n > 0 && sim.calm) sim_wrong("a response is cut", index_of(c), (int64_t)c->in.n);
    leave(c, false);
    return true;
}

static void act(client *c)
{
    if (!c->connected) {
        c->connected = true;
        sim_bed_accept(sim_connect(index_of(c), (size_t)sim_skewed(2048, 1 << 18), (size_t)sim_skewed(2048, 1 << 18)));
    }
    const bool more = take(c);
    if (c->answered == c->count && !more) {
        leave(c, sim_one_in(4));
        return;
    }
    if (has_ended(c)) return;
    send_some(c);
    if (c->sent >= c->quits_at) {
        leave(c, true);
        return;
    }
    if (c->half_closes && !c->fin && c->sent == c->out.n) {
        sim_peer_fin(index_of(c));
        c->fin = true;
    }
    const bool sends = may_send(c) > c->sent && !c->ends;
    c->next_ns = more ? sim_world_now_ns() + c->rest_ns : sends ? c->send_ns + 1 : SIM_NEVER;
}

void sim_client_look(int i)
{
    client *c = &clients[i];
    const int64_t at_ns = sim_world_now_ns() + c->rest_ns;
    if (c->connected && !c->over && at_ns < c->next_ns) c->next_ns = at_ns;
}

void sim_clients_turn(void)
{
    for (int i = 0; i < clients_count; i++) {
        client *c = &clients[i];
        if (c->over || c->next_ns > sim_world_now_ns()) continue;
        if (c->connected || sim_bed_accepts())
            act(c);
        else
            leave(c, false);
    }
}

int64_t sim_clients_next_ns(void)
{
    int64_t next_ns = SIM_NEVER;
    for (int i = 0; i < clients_count; i++)
        if (!clients[i].over && clients[i].next_ns < next_ns) next_ns = clients[i].next_ns;
    return next_ns;
}

bool sim_clients_over(void)
{
    for (int i = 0; i < clients_count; i++)
        if (!clients[i].over) return false;
    return true;
}

static void end(client *c)
{
    while (c->connected && !c->over && take(c)) continue;
    if (c->connected && !c->over) check_end(c);
    for (int i = 0; i < c->count; i++) sim_request_fini(&c->requests[i]);
    sim_give(c->out.bytes);
    sim_give(c->in.bytes);
}

void sim_clients_end(void)
{
    for (int i = 0; i < clients_count; i++) end(&clients[i]);
    clients_count = 0;
}
