/* The plain transport: reads every head of either listener, strictly (plain_head.h), and serves all of HTTP/1.1, without the library,
 * which takes 16 allocations for a request, clears the connection's memory twice, looks at each connection that waits in every
 * run, and copies what it sends.
 *
 * A connection's bytes are looked at where they lie. A head that is malformed, or too long, is answered here, and ends the
 * connection. A part of a head is taken from the socket and kept until the rest has come: left there, it would fill the
 * socket's buffer with the overhead of small packets, or keep the sender's window shut.
 * An HTTP/1.0 request whose head lies whole in the socket, in a form that cannot be read in two ways, is the library's, which is
 * given the connection for this one request: so it never reads a byte of a head that has not been checked. Others are served here.
 * A request that lies in its socket as a whole is taken from there only behind its response. The bodies of others, and long
 * responses, are moved in chunks (plain_io.c).
 *
 * One request of a connection is worked on at a time, in the states of conns.h:
 *   IDLE, HEAD  nothing of a request there; a part of its head
 *   BODY        begun: its body goes to the engine
 *   WAIT        for the work
 *   SEND        the rest of the response follows in a later turn, or when the socket has room
 *   CUT         answered, and never to be taken up again: what still comes is dropped
 * Interface  http_parts.h, plain.h, transport.h. Threads  the loop's own. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/plain.h"
#include "http/plain_head.h"

static const uint32_t watched = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;

ks_plain *ks_plain_open(const ks_check_rules *rules, int capacity)
{
    ks_plain *plain = calloc(1, sizeof *plain);
    if (plain) plain->conns = calloc((size_t)capacity, sizeof *plain->conns);
    if (plain == NULL || plain->conns == NULL) {
        ks_plain_close(&plain);
        return NULL;
    }
    plain->head_most = rules->max_uri + rules->max_header + KS_HEAD_SPARE;
    plain->look_most = plain->head_most > KS_WHOLE_MAX ? plain->head_most : KS_WHOLE_MAX;
    assert(plain->look_most <= sizeof plain->peeked);
    return plain;
}

void ks_plain_close(ks_plain **pointer)
{
    if (*pointer) free((*pointer)->conns);
    free(*pointer);
    *pointer = NULL;
}

static void drop_head(ks_plain_conn *t)
{
    free(t->long_head);
    t->long_head = NULL;
    t->part = 0;
}

void ks_plain_hang_up(ks_http *http, ks_conn *conn)
{
    const int fd = conn->fd;
    ks_io_queue_leave(http, conn);
    drop_head(ks_plain_conn_of(conn));
    conn->transport = NULL;
    ks_http_forget(http, conn);
    close(fd);
}

/* Nothing is known of what its client sends. */
static void adopt(ks_conn *conn)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    t->kept = t->unread = t->part = 0;
    t->io_queued = t->last = false;
    t->chunk = KS_CHUNK_MIN;
    conn->transport = &ks_plain_transport;
}

void ks_plain_take(ks_http *http, ks_conn *conn)
{
    const int on = 1;
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* which a UNIX socket does not have, nor need */
    adopt(conn);
    if (!ks_conns_watch(&http->conns, conn, watched)) ks_plain_hang_up(http, conn);
}

/* Nothing of the next request has been taken from the socket. */
static void pass_on(ks_http *http, ks_conn *conn, ks_count reason)
{
    ks_io_queue_leave(http, conn);
    drop_head(ks_plain_conn_of(conn));
    conn->transport = &ks_library_transport;
    conn->more = false;
    if (conn->state != KS_AT_IDLE) conn->since_ns = http->now_ns;
    ks_conn_enter(conn, KS_AT_IDLE);
    ks_metrics_add(http->metrics, reason, 1);
    ks_conns_watch(&http->conns, conn, EPOLLRDHUP | EPOLLET);
    ks_library_take(http, conn);
}

/* --- the head ----------------------------------------------------------------------------------------------------- */

/* Empty lines in front of a request are none of it (RFC 9112 2.2). */
static size_t empty_lines(const char *bytes, size_t n)
{
    size_t at = 0;
    while (at + 1 < n && bytes[at] == '\r' && bytes[at + 1] == '\n') at += 2;
    return at;
}

/* A head of which head_most bytes have come, and no end. No method that a request may have fills a line. */
static ks_status too_long(const ks_http *http, ks_conn *conn, const char *bytes)
{
    if (memchr(bytes, ' ', http->rules.max_uri) == NULL)
        return ks_fail(&conn->error, KS_REQUEST_LINE, "the request line is not METHOD TARGET HTTP/1.1");
    if (memchr(bytes, '\r', http->rules.max_uri + KS_HEAD_SPARE) == NULL)
        return ks_fail(&conn->error, KS_URI, "request target is longer than %zu bytes", http->rules.max_uri);
    return ks_fail(&conn->error, KS_HEADERS, "header fields have more than the %zu bytes that are accepted",
                   http->rules.max_header);
}

/* Memory for a head of that length, which its request keeps. */
static char *place_head(ks_plain_conn *t, const char *bytes, size_t length)
{
    t->kept = 0;
    if (length > KS_HEAD_KEPT) {
        free(t->long_head);
        t->long_head = malloc(length);
        if (t->long_head) memcpy(t->long_head, bytes, length);
        return t->long_head;
    }
    memcpy(t->head, bytes, length);
    memcpy(t->strings, bytes, length);
    return t->strings;
}

/* Of a head that is refused before its end is known: the method, which says how it is counted, and whether a body may follow the
 * refusal's head. */
static void name_method(ks_conn *conn, const char *bytes, size_t n)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    const size_t length = ks_plain_method(bytes, n);
    ks_head_init(&conn->head, "", 0, "HTTP/1.1");
    conn->head.method = "";
    if (length == 0 || length >= sizeof t->strings) return;
    memcpy(t->strings, bytes, length);
    t->strings[length] = '\0';
    conn->head.method = t->strings;
}

/* Of n bytes. LATER: the head is not complete; KNOWN: it is, and conn->head is theirs, or *read says what is wrong with it. */
typedef enum verdict { KNOWN, LATER } verdict;

/* What is found does not depend on how much has come behind: no more than the longest head is looked at. */
static verdict read_head(ks_http *http, ks_conn *conn, size_t n, ks_status *read)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    const size_t empty = empty_lines(http->plain->peeked, n);
    const char *const bytes = http->plain->peeked + empty;
    n = n - empty < http->plain->head_most ? n - empty : http->plain->head_most;
    const size_t length = ks_plain_head_length(bytes, n, read, &conn->error);
    if (length == 0 && *read == KS_OK && n < http->plain->head_most) return LATER;
    if (length == 0 && *read == KS_OK) *read = too_long(http, conn, bytes);
    t->kept = 0;
    t->head_length = length > 0 ? empty + length - t->part : 0;
    if (length == 0) name_method(conn, bytes, n);
    if (*read != KS_OK) return KNOWN;
    char *const strings = place_head(t, bytes, length);
    if (strings == NULL) {
        name_method(conn, bytes, n);
        *read = ks_fail(&conn->error, KS_MEMORY, "no memory for the head");
        return KNOWN;
    }
    *read = ks_plain_head(strings, length, &conn->head, &conn->error);
    if (*read != KS_OK) return KNOWN;
    ks_request_target(http, conn, conn->head.target);
    if (strings == t->strings && empty == 0) t->kept = length;
    return KNOWN;
}

/* Most clients send the same head with each request. */
static verdict know_head(ks_http *http, ks_conn *conn, size_t n, ks_status *read)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    *read = KS_OK;
    if (t->kept > 0 && n >= t->kept && memcmp(t->head, http->plain->peeked, t->kept) == 0) {
        t->head_length = t->kept;
        return KNOWN;
    }
    return read_head(http, conn, n, read);
}

/* Whether the library serves the request. Its head is checked first: what is wrong with it is reported here. White space around values is
 * what the library reads in its own way. */
static bool is_for_library(const ks_http *http, ks_conn *conn, ks_count *reason)
{
    if (!conn->head.http10 && !ks_http_prefers_library) return false;
    if (conn->head.spaced || ks_plain_conn_of(conn)->part > 0) return false;
    *reason = conn->head.http10 ? KS_COUNT_handover_http10 : KS_COUNT_handover_test;
    return ks_check_head(&http->rules, &conn->head, &conn->error) == KS_OK && ks_request_absolute(conn) == KS_OK;
}

/* --- a part of a head --------------------------------------------------------------------------------------------- */

static char *part_of(ks_plain_conn *t)
{
    return t->long_head ? t->long_head : t->head;
}

/* Keeps n bytes, of which the first ones are the part that is kept already. */
static bool keep_part(ks_plain_conn *t, const char *bytes, size_t n)
{
    enum { STEP = 4096 };
    t->kept = 0;
    if (n > KS_HEAD_KEPT && (t->long_head == NULL || n > t->part_room)) {
        const size_t room = (n + STEP - 1) / STEP * STEP;
        free(t->long_head);
        t->part = 0;
        t->long_head = malloc(room);
        if (t->long_head == NULL) return false;
        t->part_room = room;
    }
    memcpy(part_of(t) + t->part, bytes + t->part, n - t->part);
    t->part = n;
    return true;
}

/* --- the response --------------------------------------------------------------------------------------------------- */

void ks_plain_pause(ks_conn *conn)
{
    if (conn->paused_ns == 0) conn->paused_ns = conn->http->now_ns;
}

static void end_pause(ks_conn *conn)
{
    if (conn->paused_ns) conn->since_ns += conn->http->now_ns - conn->paused_ns;
    conn->paused_ns = 0;
}

bool ks_plain_linger(ks_http *http, ks_conn *conn)
{
    const int fd = fcntl(conn->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return false;
    adopt(conn);
    if (ks_conns_move(&http->conns, conn, fd, watched))
        ks_io_linger(http, conn);
    else
        ks_plain_hang_up(http, conn);
    return true;
}

/* Of a whole request. Only behind its response: the client need not wait for that. */
static void take_whole(ks_http *http, ks_plain_conn *t, int fd)
{
    t->last |= !ks_io_take(fd, http->plain->peeked, t->unread, MSG_TRUNC);
    t->unread = 0;
}

void ks_plain_finish(ks_http *http, ks_conn *conn, bool delivered)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    ks_response_source sent = t->source;
    t->source = (ks_response_source){NULL, NULL};
    if (t->whole) take_whole(http, t, conn->fd);
    ks_request_sent(http, conn, delivered);
    ks_source_end(&sent);
    free(t->owned);
    free(t->long_response_head);
    t->owned = t->long_response_head = NULL;
    drop_head(t);
    conn->paused_ns = 0;
    http->plain_waits |= conn->more;
    if (!t->last || !delivered) return;
    if (t->unread == 0 && !conn->more && t->client_ends) {
        ks_plain_hang_up(http, conn);
        return;
    }
    ks_io_linger(http, conn);
}

/* ks_transport.drop */
static void drop_plain(ks_http *http, ks_conn *conn)
{
    ks_plain_finish(http, conn, false);
    ks_plain_hang_up(http, conn);
}

/* ks_transport.send */
static void send_plain(ks_http *http, ks_conn *conn, ks_response *response)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    response->last |= !t->whole && t->unread > 0;
    t->last = response->last;
    t->client_ends = conn->head.closes || conn->head.http10;
    t->body = ks_source_has_bytes(&response->source) ? NULL : response->body;
    t->owned = response->owned;
    t->source = response->source;
    t->body_length = response->bodiless ? 0 : response->length;
    t->sent = 0;
    if (response->head_more) t->long_response_head = malloc(KS_CONTINUE + KS_RESPONSE_HEAD_MAX + response->head_more);
    if (response->head_more && !t->long_response_head) {
        drop_plain(http, conn);
        return;
    }
    char *const head = t->long_response_head ? t->long_response_head : t->response_head;
    const size_t interim = ks_io_interim_rest(t, head);
    t->response_head_length = interim + ks_response_head(response, &http->date, head + interim);
    if (t->body_length > KS_WHOLE_MAX || ks_io_send(http, conn) == KS_MOVED) ks_io_queue_join(http, conn);
}

/* ks_transport.cut */
void ks_plain_cut(ks_http *http, ks_conn *conn)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    t->whole = false;
    t->unread = SIZE_MAX;
    if (conn->state == KS_AT_IDLE || conn->state == KS_AT_HEAD) {
        const ks_status late = conn->fault;
        name_method(conn, part_of(t), t->part);
        t->kept = t->part = 0;
        ks_request_open(http, conn);
        ks_request_head(http, conn, late);
    }
    ks_request_abort(conn, conn->fault, conn->error.text);
    conn->cut = false;
    ks_request_respond(http, conn);
}

/* --- the body ----------------------------------------------------------------------------------------------------- */

/* Of a request that is complete, or refused. */
static void respond(ks_http *http, ks_conn *conn)
{
    if (ks_request_done(conn) && !ks_request_respond(http, conn)) http->plain_waits = true;
}

void ks_plain_end_body(ks_http *http, ks_conn *conn)
{
    if (ks_request_end(http, conn))
        respond(http, conn);
    else
        http->plain_waits = true;
}

/* bytes: all of the body. */
static void feed(ks_http *http, ks_conn *conn, const char *bytes)
{
    const size_t left = ks_plain_conn_of(conn)->unread - ks_plain_conn_of(conn)->head_length - conn->received;
    const size_t taken = left > 0 ? ks_request_body(http, conn, bytes + conn->received, left) : 0;
    if (taken == left)
        ks_plain_end_body(http, conn);
    else if (ks_request_waits(conn))
        ks_plain_pause(conn);
    else
        http->plain_waits = true;
}

/* Not all of it is there: a client that is refused before the body's end gets that response now, one that waits for leave to send it
 * gets that. */
static void begin_chunks(ks_http *http, ks_conn *conn, ks_next next)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    if (http->infers) ks_infers_run(http->infers); /* what is fed from now on comes behind a pause */
    if (conn->head.chunked) ks_chunked_init(&t->chunks, http->rules.max_header, http->rules.max_fields);
    if (next == KS_NEXT_RESPOND) {
        respond(http, conn);
        return;
    }
    if (conn->head.expects) t->interim = KS_CONTINUE;
    ks_io_queue_join(http, conn);
}

/* The head is complete, n bytes of the request or more are in the socket, and seen. read: as in ks_request_head. */
static void begin(ks_http *http, ks_conn *conn, size_t n, ks_status read)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    const char *const seen = http->plain->peeked + t->part;
    t->part = 0;
    if (http->infers) ks_infers_run(http->infers);
    ks_request_open(http, conn);
    t->interim = 0;
    const ks_next next = ks_request_head(http, conn, read);
    t->head_left = t->head_length;
    t->unread = t->head_length + (conn->head.content_length > 0 ? (size_t)conn->head.content_length : 0);
    if (conn->head.chunked) t->unread = SIZE_MAX;
    t->whole = n >= t->unread;
    /* There is another one, or the end, of which no event will tell again. */
    conn->more = n > t->unread || conn->fin_ns;
    if (conn->cut)
        ks_plain_cut(http, conn);
    else if (t->whole)
        feed(http, conn, seen + t->head_length);
    else
        begin_chunks(http, conn, next);
}

static ssize_t peek(const ks_http *http, const ks_conn *conn)
{
    const ssize_t n = TEMP_FAILURE_RETRY(recv(conn->fd, http->plain->peeked, KS_WHOLE_MAX, MSG_PEEK | MSG_DONTWAIT));
    if (n < KS_WHOLE_MAX || http->plain->look_most == KS_WHOLE_MAX) return n;
    return TEMP_FAILURE_RETRY(recv(conn->fd, http->plain->peeked, http->plain->look_most, MSG_PEEK | MSG_DONTWAIT));
}

/* Bytes of the next request: puts the part that has been taken in front of them. */
static ssize_t peek_on(const ks_http *http, const ks_conn *conn)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    char *const peeked = http->plain->peeked;
    if (t->part == 0) return peek(http, conn);
    memcpy(peeked, part_of(t), t->part);
    return TEMP_FAILURE_RETRY(
        recv(conn->fd, peeked + t->part, http->plain->look_most - t->part, MSG_PEEK | MSG_DONTWAIT));
}

/* n bytes in the socket, the first of which, or all, are empty lines; those behind them go on with a head, or begin one. */
static void take_part(ks_http *http, ks_conn *conn, size_t n)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    char *const peeked = http->plain->peeked;
    const size_t there = t->part + n, empty = empty_lines(peeked, there);
    if (empty == 0 && ks_io_leave_part(http, conn, n)) return;
    if (!ks_io_take(conn->fd, peeked + t->part, n, 0)) {
        ks_plain_hang_up(http, conn);
        return;
    }
    if (empty > 0) t->part = 0;
    if (!keep_part(t, peeked + empty, there - empty)) {
        conn->fault = ks_fail(&conn->error, KS_MEMORY, "no memory for the head");
        ks_plain_cut(http, conn);
        return;
    }
    if (there == http->plain->look_most) /* no event comes for bytes that were not looked at */
        conn->more = http->plain_waits = true;
    else if (empty < there && conn->fin_ns)
        ks_plain_hang_up(http, conn);
    if (!ks_conn_is_plain(conn)) return;
    if (empty == there) ks_conn_enter(conn, KS_AT_IDLE);
    if (empty < there) ks_io_wait_for_head(http, conn);
}

/* To the worker whose request it is. Nothing of it has been taken from the socket, which leaves this epoll: a copy of its descriptor lives on.
 * n: bytes of it that are seen. Only of one of several workers, apart from what each request takes. */
static __attribute__((noinline)) bool hand_over(ks_http *http, ks_conn *conn, size_t n)
{
    const ks_plain_conn *t = ks_plain_conn_of(conn);
    const ks_hand_over *const other = &http->api->hand_over;
    conn->places_seen = false;
    if (t->part > 0) return false;
    const int row = ks_find_worker(http, conn, http->plain->peeked + t->head_length, n - t->head_length);
    if (row == KS_WORKER_LATER && n < http->plain->look_most) {
        ks_io_wait_for_head(http, conn);
        return true;
    }
    if (row < 0 || !other->give(other->context, row, conn->fd, http->engine == NULL, conn->loopback)) return false;
    ks_metrics_add(http->metrics, KS_COUNT_worker_handovers, 1);
    epoll_ctl(http->epoll, EPOLL_CTL_DEL, conn->fd, NULL);
    ks_plain_hang_up(http, conn);
    return true;
}

static void read_next(ks_http *http, ks_conn *conn)
{
    const ssize_t n = peek_on(http, conn);
    ks_status read;
    ks_count reason;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0)
        ks_plain_hang_up(http, conn);
    else if (know_head(http, conn, ks_plain_conn_of(conn)->part + (size_t)n, &read) == LATER)
        take_part(http, conn, (size_t)n);
    else if (http->api->workers && read == KS_OK && hand_over(http, conn, (size_t)n))
        return;
    else if (read == KS_OK && is_for_library(http, conn, &reason))
        pass_on(http, conn, reason);
    else
        begin(http, conn, (size_t)n, read);
}

/* --- what happens ------------------------------------------------------------------------------------------------- */

static void go_on_with_body(ks_http *http, ks_conn *conn)
{
    ks_plain_conn *t = ks_plain_conn_of(conn);
    if (t->whole) {
        if (t->unread == t->head_length + conn->received)
            ks_plain_end_body(http, conn);
        else if (peek(http, conn) >= (ssize_t)t->unread)
            feed(http, conn, http->plain->peeked + t->head_length);
    } else if (!ks_io_is_next(conn)) {
        ks_plain_end_body(http, conn);
    } else {
        ks_request_check(conn);
        if (conn->cut)
            ks_plain_cut(http, conn);
        else
            ks_io_queue_join(http, conn);
    }
}

/* ks_transport.resume */
static void resume_plain(ks_http *http, ks_conn *conn)
{
    end_pause(conn);
    if (conn->state == KS_AT_BODY)
        go_on_with_body(http, conn);
    else if (conn->state == KS_AT_SEND)
        ks_io_queue_join(http, conn);
    else if (conn->state == KS_AT_WAIT)
        respond(http, conn);
}

static bool rests(const ks_conn *conn)
{
    return conn->state == KS_AT_IDLE || conn->state == KS_AT_HEAD;
}

/* ks_transport.event */
static void on_plain_event(ks_http *http, ks_conn *conn, uint32_t events)
{
    const bool now = rests(conn);
    if (events & EPOLLRDHUP) ks_conn_fin(conn, http->now_ns);
    if (conn->state == KS_AT_CUT && (events & (EPOLLHUP | EPOLLERR)) == EPOLLHUP) {
        /* Both sides have ended; what the client sent last is dropped first, as ever behind a cut. */
        ks_io_queue_join(http, conn);
        return;
    }
    if (events & (EPOLLHUP | EPOLLERR)) {
        if (!now) ks_plain_finish(http, conn, false);
        if (ks_conn_is_plain(conn)) ks_plain_hang_up(http, conn);
        return;
    }
    if (ks_io_is_next(conn) && conn->paused_ns == 0) ks_io_queue_join(http, conn);
    if (!(events & EPOLLIN)) return;
    if (now) read_next(http, conn);
    if (!ks_conn_is_plain(conn) || (now && !(events & EPOLLRDHUP))) return;
    /* Nothing else will tell of what has come meanwhile, or of the end that came with it. */
    conn->more = true;
    http->plain_waits |= rests(conn);
}

void ks_plain_turn(ks_http *http)
{
    http->plain_waits = false;
    for (int i = http->conns.active_count - 1; i >= 0; i--) {
        ks_conn *conn = http->conns.active[i];
        if (!ks_conn_is_plain(conn)) continue;
        if (conn->more && rests(conn)) {
            conn->more = false;
            read_next(http, conn);
        } else if ((conn->infer || conn->tensors || conn->models || conn->changes) && !ks_request_waits(conn) &&
                   !ks_io_is_next(conn)) {
            resume_plain(http, conn);
        }
    }
}

void ks_plain_walk(ks_http *http, ks_conn *conn)
{
    if (conn->state == KS_AT_IDLE && http->now_ns - conn->since_ns > http->config->idle_timeout)
        shutdown(conn->fd, SHUT_RDWR); /* which is an event */
    if (conn->state == KS_AT_CUT) ks_io_queue_join(http, conn);
}

void ks_plain_fail(ks_http *http)
{
    for (int i = http->conns.active_count - 1; i >= 0; i--)
        if (ks_conn_is_plain(http->conns.active[i])) resume_plain(http, http->conns.active[i]);
}

void ks_plain_stop(ks_http *http)
{
    for (int i = http->conns.active_count - 1; i >= 0; i--) {
        ks_conn *conn = http->conns.active[i];
        if (!ks_conn_is_plain(conn)) continue;
        if (!rests(conn)) ks_plain_finish(http, conn, false);
        if (ks_conn_is_plain(conn)) ks_plain_hang_up(http, conn);
    }
}

const ks_transport ks_plain_transport = {.reader = KS_COUNT_reader_plain,
                                         .send = send_plain,
                                         .drop = drop_plain,
                                         .cut = ks_plain_cut,
                                         .resume = resume_plain,
                                         .event = on_plain_event};
