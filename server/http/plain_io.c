/* The plain way's bodies and responses that are not moved at once: piece by piece, by turns.
 *
 * Body     looked at in its socket, copied to its place, and only as much taken from the socket as the engine had room for:
 *          nothing needs to be kept here, and a client that is quicker than the device fills its socket. To receive it
 *          straight into the ring is slower: the kernel's stores would go through the caches.
 * Answer   sent from where it lies: a slot, a chunk of the ring, a text.
 * Line     of the connections that have bytes to move, first come, first served, a chunk each. A turn moves chunks for as long
 *          as bytes of large requests may move in it, and one at least; a connection with more waits at the end of the queue. So small
 *          requests never wait for a large one, however long; and while there are some, turns and chunks are short.
 * Threads  the loop's own. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "http/plain.h"

/* That a chunk of a body may take: alone, and beside small requests. */
static const int64_t chunk_ns = 100000, chunk_beside_ns = 25000;

/* --- the line ----------------------------------------------------------------------------------------------------- */

void ks_io_queue_join(ks_http *http, ks_conn *conn)
{
    ks_plain *plain = http->plain;
    ks_plain_conn *t = ks_plain_conn_of(conn);
    if (t->io_queued) return;
    t->io_queued = true;
    t->next = NULL;
    *(plain->first ? &ks_plain_conn_of(plain->last)->next : &plain->first) = conn;
    plain->last = conn;
    http->io_queued++;
}

void ks_io_queue_leave(ks_http *http, ks_conn *conn)
{
    ks_plain *plain = http->plain;
    ks_plain_conn *t = ks_plain_conn_of(conn);
    if (!t->io_queued) return;
    ks_conn *before = NULL, *one = plain->first;
    while (one != conn) {
        before = one;
        one = ks_plain_conn_of(one)->next;
    }
    *(before ? &ks_plain_conn_of(before)->next : &plain->first) = t->next;
    if (plain->last == conn) plain->last = before;
    t->io_queued = false;
    http->io_queued--;
}

/* --- bytes that come ---------------------------------------------------------------------------------------------- */

static ks_move give_up(ks_http *http, ks_conn *conn)
{
    ks_plain_finish(http, conn, false);
    ks_plain_hang_up(http, conn);
    return KS_OVER;
}

bool ks_io_take(int fd, char *to, size_t n, int flags)
{
    while (n > 0) {
        const ssize_t taken = TEMP_FAILURE_RETRY(recv(fd, to, n, MSG_DONTWAIT | flags));
        if (taken <= 0) return false;
        if (!(flags & MSG_TRUNC)) to += taken;
        n -= (size_t)taken;
    }
    return true;
}

static bool drop(ks_http *http, ks_conn *conn, size_t n)
{
    if (ks_plain_conn_of(conn)->unread != SIZE_MAX) ks_plain_conn_of(conn)->unread -= n;
    return ks_io_take(conn->fd, http->plain->peeked, n, MSG_TRUNC);
}

/* What the engine did not take is looked at again: no more of it than is likely to be taken. And words take far longer to read
 * than bytes to copy: no more of them than keep the turn for a moment. */
static void fit_chunk(const ks_http *http, ks_plain_conn *t, size_t offered, size_t taken, int64_t took_ns)
{
    const bool beside = ks_turn_in_latency_mode(http), slow = took_ns > (beside ? chunk_beside_ns : chunk_ns);
    t->chunk = taken < offered ? taken : ks_least_size(slow ? t->chunk / 2 : 2 * t->chunk, KS_CHUNK_MAX);
    if (beside) t->chunk = ks_least_size(t->chunk, KS_CHUNK_MAX_LATENCY_MODE);
    if (t->chunk < KS_CHUNK_MIN) t->chunk = KS_CHUNK_MIN;
}

static const char interim_text[] = "HTTP/1.1 100 Continue\r\n\r\n";
_Static_assert(sizeof interim_text - 1 == KS_CONTINUE, "the length of 100 Continue");

size_t ks_io_interim_rest(ks_plain_conn *t, char out[KS_CONTINUE])
{
    const size_t rest = t->interim < KS_CONTINUE ? t->interim : 0;
    memcpy(out, interim_text + KS_CONTINUE - rest, rest);
    t->interim = 0;
    return rest;
}

/* The rest of 100 Continue. */
static ks_move send_interim(ks_http *http, ks_conn *conn)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    const char *const rest = interim_text + KS_CONTINUE - t->interim;
    const ssize_t n = TEMP_FAILURE_RETRY(send(conn->fd, rest, t->interim, MSG_NOSIGNAL | MSG_DONTWAIT));
    if (n < 0 && errno == EAGAIN) return KS_STUCK;
    if (n < 0) return give_up(http, conn);
    t->interim -= (unsigned)n;
    return KS_MOVED;
}

/* n bytes of a chunked body, framing and data; sets *taken to how many of them are done with. false: its framing is
 * malformed. */
static bool take_chunks(ks_http *http, ks_conn *conn, const char *bytes, size_t n, size_t *taken)
{
    ks_chunked *chunks = &ks_plain_conn_of(conn)->chunks;
    *taken = 0;
    while (*taken < n && !ks_chunked_over(chunks) && !conn->cut) {
        ks_error error;
        size_t used = 0;
        const ks_status status = ks_chunked_read(chunks, bytes + *taken, n - *taken, &used, &error);
        *taken += used;
        if (status != KS_OK && conn->fault == KS_OK) conn->error = error;
        if (status != KS_OK && conn->fault == KS_OK) conn->fault = status;
        if (status != KS_OK) return false;
        ks_request_announce(http, conn, ks_chunked_data(chunks));
        if (conn->cut) break;
        const size_t there = ks_least_size(n - *taken, ks_chunked_data(chunks));
        if (there == 0) continue;
        conn->chunks = chunks->count;
        const size_t went = ks_request_body(http, conn, bytes + *taken, there);
        ks_chunked_took(chunks, went);
        *taken += went;
        if (went < there) break;
    }
    return true;
}

/* n bytes of a body, framing or not; sets *taken to how many of them are done with. false: it must be refused now. */
static bool take(ks_http *http, ks_conn *conn, const char *bytes, size_t n, size_t *taken)
{
    *taken = 0;
    if (conn->head.chunked) return take_chunks(http, conn, bytes, n, taken) && !conn->cut;
    if (n > 0) *taken = ks_request_body(http, conn, bytes, n);
    return !conn->cut;
}

/* Bytes of the body that may still come, framing and all. */
static size_t body_left(const ks_conn *conn)
{
    if (conn->head.chunked) return ks_chunked_over(&ks_plain_conn_of(conn)->chunks) ? 0 : SIZE_MAX;
    return (size_t)conn->head.content_length - conn->received;
}

static ks_move read_chunk(ks_http *http, ks_conn *conn)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    if (t->interim > 0) return send_interim(http, conn);
    /* And a byte behind the request, which shows that there is another one. */
    const size_t most = t->head_left + ks_least_size(body_left(conn), t->chunk) + 1;
    const ssize_t n = TEMP_FAILURE_RETRY(recv(conn->fd, http->plain->peeked, most, MSG_PEEK | MSG_DONTWAIT));
    if (n < 0 && errno == EAGAIN) return KS_STUCK;
    if (n <= 0) return give_up(http, conn);
    const size_t heads = ks_least_size((size_t)n, t->head_left),
                 offered = ks_least_size((size_t)n - heads, body_left(conn));
    const int64_t begun_ns = ks_now_ns();
    size_t taken = 0;
    const bool good = take(http, conn, http->plain->peeked + heads, offered, &taken);
    if (!drop(http, conn, heads + taken)) return give_up(http, conn);
    t->head_left -= heads;
    if (!good) {
        ks_plain_cut(http, conn);
        return KS_OVER;
    }
    fit_chunk(http, t, offered, taken, ks_now_ns() - begun_ns);
    if (body_left(conn) == 0) {
        t->unread = 0;
        conn->more |= (size_t)n > heads + taken;
        ks_plain_end_body(http, conn);
        return KS_OVER;
    }
    if (taken == offered || !ks_request_waits(conn)) return KS_MOVED;
    ks_plain_pause(conn);
    return KS_STUCK;
}

/* Behind a response that came before the request's end, until the client has sent all of it or has seen the response: to close
 * before would take the response back. */
static ks_move drop_chunk(ks_http *http, ks_conn *conn)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    const size_t most = ks_least_size(t->unread, KS_CHUNK_MAX);
    const ssize_t n = TEMP_FAILURE_RETRY(recv(conn->fd, http->plain->peeked, most, MSG_DONTWAIT | MSG_TRUNC));
    if (n < 0 && errno == EAGAIN) return KS_STUCK;
    if (n > 0 && t->unread != SIZE_MAX) t->unread -= (size_t)n;
    return n > 0 && t->unread > 0 ? KS_MOVED : give_up(http, conn);
}

void ks_io_linger(ks_http *http, ks_conn *conn)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    t->unread = SIZE_MAX;
    t->whole = false; /* the end must not take so much at once */
    shutdown(conn->fd, SHUT_WR);
    ks_conn_enter(conn, KS_AT_CUT);
    ks_io_queue_join(http, conn);
}

/* --- bytes that leave --------------------------------------------------------------------------------------------- */

ks_move ks_io_send(ks_http *http, ks_conn *conn)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    const size_t head = t->sent < t->response_head_length ? t->response_head_length - t->sent : 0;
    const size_t at = head ? 0 : t->sent - t->response_head_length, left = t->body_length - at;
    const char *body = t->body ? t->body + at : NULL;
    int64_t there = (int64_t)left;
    if (ks_source_has_bytes(&t->source) && left > 0) there = ks_source_view(&t->source, at, &body);
    if (there < 0 || (left > 0 && there == 0 && http->refusing != KS_OK)) return give_up(http, conn);
    if (left > 0 && there == 0) {
        ks_plain_pause(conn);
        return KS_STUCK;
    }
    const size_t most = ks_turn_in_latency_mode(http) ? KS_CHUNK_MAX_LATENCY_MODE : KS_SEND_MAX;
    char *const heads = t->long_response_head ? t->long_response_head : t->response_head;
    struct iovec parts[2] = {{heads + t->response_head_length - head, head},
                             {(char *)(uintptr_t)body, ks_least_size((size_t)there, most)}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    const ssize_t n = TEMP_FAILURE_RETRY(sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
    if (n < 0 && errno == EAGAIN) return KS_STUCK;
    if (n < 0) return give_up(http, conn);
    t->sent += (size_t)n;
    if (ks_source_has_bytes(&t->source) && (size_t)n > head) ks_source_used(&t->source, at, (size_t)n - head);
    if (t->sent < t->response_head_length + t->body_length) return KS_MOVED;
    ks_plain_finish(http, conn, true);
    return KS_OVER;
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

bool ks_io_is_next(const ks_conn *conn)
{
    if (conn->state == KS_AT_BODY) return !ks_plain_conn_of(conn)->whole && body_left(conn) > 0;
    return conn->state == KS_AT_SEND || conn->state == KS_AT_CUT;
}

static ks_move move(ks_http *http, ks_conn *conn)
{
    if (!ks_io_is_next(conn)) return KS_OVER;
    if (conn->state == KS_AT_BODY) return read_chunk(http, conn);
    return conn->state == KS_AT_SEND ? ks_io_send(http, conn) : drop_chunk(http, conn);
}

void ks_io_queue_turn(ks_http *http)
{
    if (http->io_queued == 0) return;
    do {
        ks_conn *conn = http->plain->first;
        ks_io_queue_leave(http, conn);
        if (move(http, conn) == KS_MOVED) ks_io_queue_join(http, conn);
    } while (http->io_queued > 0 && ks_now_ns() < http->moves_until_ns);
}

/* --- heads ------------------------------------------------------------------------------------------------------- */

void ks_io_wait_for_head(const ks_http *http, ks_conn *conn)
{
    if (conn->state == KS_AT_HEAD) return;
    ks_conn_enter(conn, KS_AT_HEAD);
    conn->since_ns = http->now_ns;
}

bool ks_io_leave_part(const ks_http *http, ks_conn *conn, size_t n)
{
    enum { LOOKS = 8 };
    ks_plain_conn *t = ks_plain_conn_of(conn);
    if (conn->state != KS_AT_HEAD) t->looks = 0;
    if (!http->api->workers || t->part > 0 || conn->fin_ns || n >= http->plain->look_most || t->looks == LOOKS)
        return false;
    t->looks++;
    ks_io_wait_for_head(http, conn);
    return true;
}
