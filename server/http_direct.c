/* The direct way: an inference request of the plainest form is read and answered without the library, which takes 16 allocations
 * for it, clears the connection's memory twice, looks at each connection that waits in every run, and copies what it sends.
 *
 * A new connection begins here. Its bytes are looked at where they lie; whatever is not of the plainest form (plain_head.h), or
 * asks for something else, or is refused by its head, is still whole in the socket when the library is given the connection, for
 * good, and answers it as ever. A head that comes in pieces waits here for a moment.
 * A request that lies in its socket as a whole is taken from there only behind its answer. The bodies of others, and long
 * answers, are moved in pieces (http_pieces.c).
 *
 * One request of a connection is worked on at a time, in the stages of conns.h:
 *   IDLE, HEAD  nothing of a request there; a part of its head
 *   BODY        begun: its body goes to the engine
 *   WAIT        for the work
 *   SEND        the rest of the answer follows in a later turn, or when the socket has room
 *   CUT         answered, and never to be taken up again: what still comes is dropped
 * Interface  http_parts.h, http_direct.h. Threads  the loop's own. */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "http_direct.h"
#include "oip.h"
#include "plain_head.h"
#include "reply.h"

static const int64_t patience_ns = 10000000; /* with a head that comes in pieces */

ks_direct *ks_direct_open(int capacity)
{
    ks_direct *direct = calloc(1, sizeof *direct);
    if (direct) direct->talks = calloc((size_t)capacity, sizeof *direct->talks);
    if (direct && direct->talks) return direct;
    ks_direct_close(&direct);
    return NULL;
}

void ks_direct_close(ks_direct **pointer)
{
    if (*pointer) free((*pointer)->talks);
    free(*pointer);
    *pointer = NULL;
}

void ks_direct_take(ks_http *http, ks_conn *conn)
{
    const int on = 1;
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* which a UNIX socket does not have, nor need */
    ks_talk_of(conn)->head_length = 0;
    ks_talk_of(conn)->lined = false;
    ks_talk_of(conn)->piece = KS_PIECE_LEAST;
    conn->direct = ks_conns_watch(&http->conns, conn, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    if (!conn->direct) ks_library_take(http, conn);
}

/* Nothing of the next request has been taken from the socket. */
static void pass_on(ks_http *http, ks_conn *conn)
{
    ks_pieces_leave(http, conn);
    conn->direct = conn->more = false;
    if (conn->stage != KS_AT_IDLE) conn->begun_ns = conn->since_ns; /* the library does not tell of a part of a head */
    if (conn->stage != KS_AT_IDLE) conn->since_ns = http->now_ns;
    conn->stage = KS_AT_IDLE;
    ks_conns_watch(&http->conns, conn, EPOLLRDHUP | EPOLLET);
    ks_library_take(http, conn);
}

/* --- the head ----------------------------------------------------------------------------------------------------- */

/* TAKE: an inference request of the plainest form; LATER: its head is not complete. */
typedef enum verdict { TAKE, LATER, PASS } verdict;

/* Of n bytes. TAKE: conn->head is theirs. Most clients send the same head with each request. */
static verdict know_head(ks_http *http, ks_conn *conn, size_t n)
{
    ks_talk *t = ks_talk_of(conn);
    const char *const bytes = http->direct->peeked;
    if (t->head_length > 0 && n >= t->head_length && memcmp(t->head, bytes, t->head_length) == 0) return TAKE;
    t->head_length = 0;
    const char *const end = memmem(bytes, n < KS_HEAD_MOST ? n : KS_HEAD_MOST, "\r\n\r\n", 4);
    if (end == NULL) return n < KS_HEAD_MOST ? LATER : PASS;
    const size_t length = (size_t)(end + 4 - bytes);
    memcpy(t->head, bytes, length);
    memcpy(t->words, bytes, length);
    if (!ks_plain_head(t->words, length, &conn->head)) return PASS;
    ks_request_target(http, conn, conn->head.target);
    t->head_length = length;
    return TAKE;
}

static verdict look(ks_http *http, ks_conn *conn, size_t n)
{
    const verdict known = know_head(http, conn, n);
    if (known != TAKE) return known;
    if (ks_request_judge(http, conn, "POST") != KS_OK) return PASS;
    const ks_head *head = &conn->head;
    const ks_model *model = conn->route.model;
    if (conn->route.id != KS_ROUTE_INFER || model->compat) return PASS;
    const bool plain = !head->chunked && !head->expects && head->encoding == KS_BODY_PLAIN;
    return plain && head->content_length > 0 ? TAKE : PASS;
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

void ks_direct_hang_up(ks_http *http, ks_conn *conn)
{
    const int fd = conn->fd;
    ks_pieces_leave(http, conn);
    conn->direct = false;
    ks_http_forget(http, conn);
    close(fd);
}

void ks_direct_pause(ks_conn *conn)
{
    if (conn->paused_ns == 0) conn->paused_ns = conn->http->now_ns;
}

static void end_pause(ks_conn *conn)
{
    if (conn->paused_ns) conn->since_ns += conn->http->now_ns - conn->paused_ns;
    conn->paused_ns = 0;
}

/* Of a whole request. Only behind its answer: the client need not wait for that. */
static void take_whole(ks_http *http, ks_talk *t, int fd)
{
    const ssize_t taken = TEMP_FAILURE_RETRY(recv(fd, http->direct->peeked, t->unread, MSG_DONTWAIT | MSG_TRUNC));
    t->last |= taken != (ssize_t)t->unread;
    t->unread = 0;
}

void ks_direct_finish(ks_http *http, ks_conn *conn, bool delivered)
{
    ks_talk *t = ks_talk_of(conn);
    ks_infer *sent = t->infer;
    t->infer = NULL;
    if (t->whole) take_whole(http, t, conn->fd);
    ks_request_end(http, conn, delivered);
    if (sent) ks_infer_sent(sent);
    free(t->owned);
    t->owned = NULL;
    conn->paused_ns = 0;
    http->direct_waits |= conn->more;
    if (!t->last || !delivered) return;
    if (t->unread == 0) {
        ks_direct_hang_up(http, conn);
        return;
    }
    shutdown(conn->fd, SHUT_WR);
    conn->stage = KS_AT_CUT;
    ks_pieces_join(http, conn);
}

static void put(ks_talk *t, const char *text)
{
    const size_t n = strlen(text);
    assert(t->reply_length + n < KS_REPLY_MOST);
    memcpy(t->reply + t->reply_length, text, n);
    t->reply_length += n;
}

/* As the library writes it, but that a second is put into words once. */
static const char *date_line(ks_direct *direct)
{
    const time_t now = time(NULL);
    struct tm day;
    if (now != direct->dated && gmtime_r(&now, &day)) {
        direct->dated = now;
        strftime(direct->date, sizeof direct->date, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &day);
    }
    return direct->date;
}

static void put_head(ks_http *http, ks_talk *t, int code, const ks_fields *fields)
{
    char number[24];
    t->reply_length = 0;
    put(t, "HTTP/1.1 ");
    put(t, ks_reply_number(number, code));
    put(t, " ");
    put(t, ks_library_reason(code));
    put(t, "\r\n");
    put(t, date_line(http->direct));
    for (int i = 0; i < fields->count; i++) {
        put(t, fields->at[i].name);
        put(t, ": ");
        put(t, fields->at[i].value);
        put(t, "\r\n");
    }
    put(t, "Content-Length: ");
    put(t, ks_reply_number(number, (int64_t)t->body_length));
    put(t, "\r\n\r\n");
}

static void reply(ks_http *http, ks_conn *conn, int code, ks_fields *fields, const char *body, size_t length)
{
    ks_talk *t = ks_talk_of(conn);
    t->last = ks_request_is_last(http, conn) || (!t->whole && t->unread > 0);
    ks_request_common_fields(conn, t->last, fields);
    t->body = body;
    t->body_length = length;
    t->sent = 0;
    put_head(http, t, code, fields);
    conn->stage = KS_AT_SEND;
    conn->since_ns = http->now_ns;
    conn->answer_bytes = length;
    conn->code = code;
    if (length > KS_WHOLE_MOST || ks_pieces_send(http, conn) == KS_MOVED) ks_pieces_join(http, conn);
}

static void reply_fault(ks_http *http, ks_conn *conn)
{
    ks_talk *t = ks_talk_of(conn);
    ks_metrics_rejected(http->metrics, conn->fault);
    ks_text text;
    size_t length = 0;
    ks_text_init(&text, KS_ERROR_TEXT * 8);
    ks_oip_error(&text, conn->error.text);
    t->owned = ks_text_take(&text, &length);
    if (conn->fault == KS_CANCELLED || t->owned == NULL) {
        ks_direct_finish(http, conn, false);
        ks_direct_hang_up(http, conn);
        return;
    }
    ks_fields fields;
    ks_request_fault_fields(conn, &fields);
    reply(http, conn, ks_status_http(conn->fault), &fields, t->owned, length);
}

static void reply_inference(ks_http *http, ks_conn *conn)
{
    ks_answer answer = {0};
    ks_fields fields;
    char timing[KS_TIMING_MAX];
    if (!ks_infer_write(conn->infer)) {
        http->direct_waits = true;
        return;
    }
    conn->fault =
        ks_infer_answer(conn->infer, conn->head.known[KS_KNOWN_ACCEPT_ENCODING], &answer, timing, &conn->error);
    if (conn->fault != KS_OK) {
        reply_fault(http, conn);
        return;
    }
    ks_talk_of(conn)->infer = conn->infer;
    ks_request_answer_fields(&answer, timing, &fields);
    reply(http, conn, 200, &fields, answer.body, answer.length);
}

/* --- the body ----------------------------------------------------------------------------------------------------- */

void ks_direct_end_body(ks_http *http, ks_conn *conn)
{
    if (conn->fault == KS_OK && !ks_infer_end(conn->infer)) {
        http->direct_waits = true;
        return;
    }
    conn->stage = KS_AT_WAIT;
    conn->since_ns = http->now_ns;
    ks_direct_go(http, conn);
}

/* bytes: all of the body. */
static void feed(ks_http *http, ks_conn *conn, const char *bytes)
{
    const size_t left = (size_t)conn->head.content_length - conn->received;
    const size_t taken = ks_request_take(http, conn, bytes + conn->received, left);
    if (taken == left)
        ks_direct_end_body(http, conn);
    else if (ks_infer_waits(conn->infer))
        ks_direct_pause(conn);
    else
        http->direct_waits = true;
}

/* Not all of it is there: who is refused before the body's end is told so now. */
static void begin_pieces(ks_http *http, ks_conn *conn)
{
    ks_infers_run(http->infers); /* what is fed from now on comes behind a pause */
    if (conn->fault != KS_OK && ks_request_refuses_early(http, conn))
        reply_fault(http, conn);
    else
        ks_pieces_join(http, conn);
}

static void begin(ks_http *http, ks_conn *conn, size_t n)
{
    ks_talk *t = ks_talk_of(conn);
    t->unread = t->head_length + (size_t)conn->head.content_length;
    t->whole = n >= t->unread;
    ks_infers_run(http->infers);
    ks_request_open(http, conn);
    conn->stage = KS_AT_BODY;
    conn->counted = true;
    conn->requests++;
    http->in_flight++;
    conn->more =
        n > t->unread || conn->fin_ns; /* there is another one, or the end, of which no event will tell again */
    ks_identity_read(&conn->identity, &conn->head, &http->numbers);
    conn->fault = ks_request_begin(http, conn);
    if (t->whole)
        feed(http, conn, http->direct->peeked + t->head_length);
    else
        begin_pieces(http, conn);
}

static ssize_t peek(const ks_http *http, const ks_conn *conn)
{
    return TEMP_FAILURE_RETRY(recv(conn->fd, http->direct->peeked, KS_WHOLE_MOST, MSG_PEEK | MSG_DONTWAIT));
}

static void read_next(ks_http *http, ks_conn *conn)
{
    const ssize_t n = peek(http, conn);
    if (n < 0 && errno == EAGAIN) return;
    const verdict found = n > 0 ? look(http, conn, (size_t)n) : PASS;
    if (found == TAKE) begin(http, conn, (size_t)n);
    if (found == PASS) pass_on(http, conn);
    if (found != LATER || conn->stage == KS_AT_HEAD) return;
    conn->stage = KS_AT_HEAD;
    conn->since_ns = http->now_ns;
}

/* --- what happens ------------------------------------------------------------------------------------------------- */

static void go_on_with_body(ks_http *http, ks_conn *conn)
{
    ks_talk *t = ks_talk_of(conn);
    if (conn->received == (uint64_t)conn->head.content_length) {
        ks_direct_end_body(http, conn);
    } else if (t->whole) {
        if (peek(http, conn) >= (ssize_t)t->unread) feed(http, conn, http->direct->peeked + t->head_length);
    } else {
        ks_request_check(http, conn);
        ks_pieces_join(http, conn);
    }
}

void ks_direct_go(ks_http *http, ks_conn *conn)
{
    end_pause(conn);
    if (conn->stage == KS_AT_BODY) {
        go_on_with_body(http, conn);
    } else if (conn->stage == KS_AT_SEND) {
        ks_pieces_join(http, conn);
    } else if (conn->stage == KS_AT_WAIT) {
        if (conn->fault != KS_OK)
            reply_fault(http, conn);
        else if (ks_infer_done(conn->infer))
            reply_inference(http, conn);
    }
}

static bool rests(const ks_conn *conn)
{
    return conn->stage == KS_AT_IDLE || conn->stage == KS_AT_HEAD;
}

void ks_direct_event(ks_http *http, ks_conn *conn, uint32_t events)
{
    const bool now = rests(conn);
    if (events & EPOLLRDHUP) ks_conn_fin(conn, http->now_ns);
    if (events & (EPOLLHUP | EPOLLERR)) {
        if (now) {
            pass_on(http, conn);
        } else {
            ks_direct_finish(http, conn, false);
            ks_direct_hang_up(http, conn);
        }
        return;
    }
    if (ks_pieces_are_next(conn) && conn->paused_ns == 0) ks_pieces_join(http, conn);
    if (!(events & EPOLLIN)) return;
    if (now) read_next(http, conn);
    if (!conn->direct || (now && !(events & EPOLLRDHUP))) return;
    /* Nothing else will tell of what has come meanwhile, or of the end that came with it. */
    conn->more = true;
    http->direct_waits |= rests(conn);
}

void ks_direct_turn(ks_http *http)
{
    http->direct_waits = false;
    for (int i = http->conns.active_count - 1; i >= 0; i--) {
        ks_conn *conn = http->conns.active[i];
        if (conn->direct && conn->more && rests(conn)) {
            conn->more = false;
            read_next(http, conn);
        } else if (conn->direct && conn->infer && !ks_infer_waits(conn->infer) && !ks_pieces_are_next(conn)) {
            ks_direct_go(http, conn);
        }
    }
}

void ks_direct_walk(ks_http *http, ks_conn *conn)
{
    if (conn->stage == KS_AT_HEAD && http->now_ns - conn->since_ns > patience_ns) pass_on(http, conn);
    if (conn->direct && conn->stage == KS_AT_IDLE && http->now_ns - conn->since_ns > http->daemon->config->idle_timeout)
        shutdown(conn->fd, SHUT_RDWR); /* which is an event */
    if (conn->direct && conn->stage == KS_AT_CUT) ks_pieces_join(http, conn);
}

void ks_direct_fail(ks_http *http)
{
    for (int i = http->conns.active_count - 1; i >= 0; i--)
        if (http->conns.active[i]->direct) ks_direct_go(http, http->conns.active[i]);
}

void ks_direct_stop(ks_http *http)
{
    for (int i = http->conns.active_count - 1; i >= 0; i--) {
        ks_conn *conn = http->conns.active[i];
        if (!conn->direct) continue;
        if (!rests(conn)) ks_direct_finish(http, conn, false);
        ks_direct_hang_up(http, conn);
    }
}
