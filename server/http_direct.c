/* The direct way: a small inference request that lies in its socket as a whole is read and answered without the library, which
 * takes 16 allocations for it, clears the connection's memory twice, and looks at each connection that waits in every run.
 *
 * A new connection begins here. Its bytes are looked at where they lie, and taken only behind the answer to a whole request. So
 * whatever is not of the plainest form (plain_head.h), or long, or refused by its head, is still whole in the socket when the
 * library is given the connection, for good, and answers it as ever. What comes in pieces waits here for a moment.
 *
 * One request of a connection is worked on at a time, in the stages of conns.h:
 *   IDLE, HEAD  nothing of a request there; a part of one
 *   BODY        begun: its body goes to the engine
 *   WAIT        for the work
 *   SEND        the socket is full: the rest of the answer follows when it has room
 * Interface  http_parts.h. Threads  the loop's own. */
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

#include "clock.h"
#include "http_parts.h"
#include "oip.h"
#include "plain_head.h"
#include "reply.h"

/* An answer is at most some tens of times as long as the body (INT8, whose INT64 results are asked for as JSON text): far less
 * than what is sent in blocks. */
enum { HEAD_MOST = 1024, BODY_MOST = 16384 + 2048, REPLY_MOST = 2048 };
static const int64_t patience_ns = 10000000; /* with a request that comes in pieces */

/* One connection's memory. */
typedef struct talk {
    size_t head_length;                     /* of the last request; 0: none that was read */
    size_t unread;                          /* bytes of the one that is worked on, which still lie in the socket */
    char head[HEAD_MOST], words[HEAD_MOST]; /* as it came; cut into strings */
    /* the answer: */
    char reply[REPLY_MOST];
    size_t reply_length, body_length, sent; /* sent: of both */
    const char *body;
    char *owned;     /* the body, if it is a text of its own */
    ks_infer *infer; /* whose answer it is, to be told when it has been sent; NULL: a fault's */
    bool last;       /* the connection ends with it */
} talk;

struct ks_direct {
    talk *talks; /* by the connection's index */
    time_t dated;
    char date[40];
    char peeked[HEAD_MOST + BODY_MOST];
};

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

static talk *talk_of(const ks_conn *conn)
{
    return &conn->http->direct->talks[conn->index];
}

void ks_direct_take(ks_http *http, ks_conn *conn)
{
    const int on = 1;
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* which a UNIX socket does not have, nor need */
    talk_of(conn)->head_length = 0;
    conn->direct = ks_conns_watch(&http->conns, conn, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    if (!conn->direct) ks_library_take(http, conn);
}

/* Nothing of the next request has been taken from the socket. */
static void pass_on(ks_http *http, ks_conn *conn)
{
    conn->direct = conn->more = false;
    if (conn->stage != KS_AT_IDLE) conn->since_ns = http->now_ns;
    conn->stage = KS_AT_IDLE;
    ks_conns_watch(&http->conns, conn, EPOLLRDHUP | EPOLLET);
    ks_library_take(http, conn);
}

/* --- the head ----------------------------------------------------------------------------------------------------- */

typedef enum verdict { TAKE, LATER, PASS } verdict;

/* Of n bytes. TAKE: conn->head is theirs. Most clients send the same head with each request. */
static verdict know_head(ks_http *http, ks_conn *conn, size_t n)
{
    talk *t = talk_of(conn);
    const char *const bytes = http->direct->peeked;
    if (t->head_length > 0 && n >= t->head_length && memcmp(t->head, bytes, t->head_length) == 0) return TAKE;
    t->head_length = 0;
    const char *const end = memmem(bytes, n < HEAD_MOST ? n : HEAD_MOST, "\r\n\r\n", 4);
    if (end == NULL) return n < HEAD_MOST ? LATER : PASS;
    const size_t length = (size_t)(end + 4 - bytes);
    memcpy(t->head, bytes, length);
    memcpy(t->words, bytes, length);
    if (!ks_plain_head(t->words, length, &conn->head)) return PASS;
    ks_request_target(http, conn, conn->head.target);
    t->head_length = length;
    return TAKE;
}

/* Whether the whole of an inference request is there that can only end in an answer of bounded length. */
static verdict look(ks_http *http, ks_conn *conn, size_t n)
{
    const verdict known = know_head(http, conn, n);
    if (known != TAKE) return known;
    if (ks_request_judge(http, conn, "POST") != KS_OK) return PASS;
    const ks_head *head = &conn->head;
    const ks_model *model = conn->route.model;
    if (conn->route.id != KS_ROUTE_INFER || model->compat || model->op->inputs > 1) return PASS;
    if (head->chunked || head->expects || head->encoding != KS_BODY_PLAIN || head->content_length <= 0 ||
        head->content_length > BODY_MOST)
        return PASS;
    return n < talk_of(conn)->head_length + (size_t)head->content_length ? LATER : TAKE;
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

static void hang_up(ks_http *http, ks_conn *conn)
{
    const int fd = conn->fd;
    conn->direct = false;
    ks_http_forget(http, conn);
    close(fd);
}

/* The answer has left, or never will. Only now are the request's bytes taken from the socket: the client need not wait for
 * that. */
static void finish(ks_http *http, ks_conn *conn, bool delivered)
{
    talk *t = talk_of(conn);
    ks_infer *sent = t->infer;
    t->infer = NULL;
    const ssize_t taken = recv(conn->fd, http->direct->peeked, t->unread, MSG_DONTWAIT | MSG_TRUNC);
    t->last |= taken != (ssize_t)t->unread;
    t->unread = 0;
    ks_request_end(http, conn, delivered);
    if (sent) ks_infer_sent(sent);
    free(t->owned);
    t->owned = NULL;
    http->direct_waits |= conn->more;
    if (t->last && delivered) hang_up(http, conn);
}

static void send_rest(ks_http *http, ks_conn *conn)
{
    talk *t = talk_of(conn);
    const size_t whole = t->reply_length + t->body_length;
    while (t->sent < whole) {
        const size_t head_left = t->sent < t->reply_length ? t->reply_length - t->sent : 0;
        const size_t body_at = head_left ? 0 : t->sent - t->reply_length;
        struct iovec parts[2] = {{t->reply + t->reply_length - head_left, head_left},
                                 {(char *)(uintptr_t)t->body + body_at, t->body_length - body_at}};
        const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        const ssize_t n = sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) {
            finish(http, conn, false);
            pass_on(http, conn); /* and it sees why */
            return;
        }
        t->sent += (size_t)n;
    }
    finish(http, conn, true);
}

static void put(talk *t, const char *text)
{
    const size_t n = strlen(text);
    assert(t->reply_length + n < REPLY_MOST);
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

static void put_head(ks_http *http, talk *t, int code, const ks_fields *fields)
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
    talk *t = talk_of(conn);
    t->last = ks_request_is_last(http, conn);
    ks_request_common_fields(conn, t->last, fields);
    t->body = body;
    t->body_length = length;
    t->sent = 0;
    put_head(http, t, code, fields);
    conn->stage = KS_AT_SEND;
    conn->since_ns = http->now_ns;
    conn->answer_bytes = length;
    conn->code = code;
    send_rest(http, conn);
}

static void reply_fault(ks_http *http, ks_conn *conn)
{
    talk *t = talk_of(conn);
    ks_metrics_rejected(http->metrics, conn->fault);
    ks_text text;
    size_t length = 0;
    ks_text_init(&text, KS_ERROR_TEXT * 8);
    ks_oip_error(&text, conn->error.text);
    t->owned = ks_text_take(&text, &length);
    if (conn->fault == KS_CANCELLED || t->owned == NULL) {
        finish(http, conn, false);
        hang_up(http, conn);
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
    talk_of(conn)->infer = conn->infer;
    ks_request_answer_fields(&answer, timing, &fields);
    reply(http, conn, 200, &fields, answer.body, answer.length);
}

/* --- the body ----------------------------------------------------------------------------------------------------- */

static void end_body(ks_http *http, ks_conn *conn)
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
        end_body(http, conn);
    else
        http->direct_waits |= !ks_infer_waits(conn->infer);
}

static void begin(ks_http *http, ks_conn *conn, size_t n)
{
    talk *t = talk_of(conn);
    t->unread = t->head_length + (size_t)conn->head.content_length;
    ks_infers_run(http->infers);
    ks_request_open(http, conn);
    conn->stage = KS_AT_BODY;
    conn->counted = true;
    conn->requests++;
    http->in_flight++;
    conn->more = n > t->unread;
    ks_identity_read(&conn->identity, &conn->head, &http->numbers);
    conn->fault = ks_request_begin(http, conn);
    feed(http, conn, http->direct->peeked + t->head_length);
}

static ssize_t peek(const ks_http *http, const ks_conn *conn)
{
    return recv(conn->fd, http->direct->peeked, sizeof http->direct->peeked, MSG_PEEK | MSG_DONTWAIT);
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

void ks_direct_go(ks_http *http, ks_conn *conn)
{
    if (conn->stage == KS_AT_BODY && conn->received < (uint64_t)conn->head.content_length) {
        const ssize_t n = peek(http, conn);
        if (n >= (ssize_t)talk_of(conn)->unread) feed(http, conn, http->direct->peeked + talk_of(conn)->head_length);
    } else if (conn->stage == KS_AT_BODY) {
        end_body(http, conn);
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
    if (events & (EPOLLHUP | EPOLLERR)) {
        if (!rests(conn)) finish(http, conn, false);
        pass_on(http, conn);
        return;
    }
    if (conn->stage == KS_AT_SEND) send_rest(http, conn);
    if (!conn->direct || !(events & EPOLLIN)) return;
    const bool now = rests(conn);
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
        } else if (conn->direct && conn->infer && !ks_infer_waits(conn->infer)) {
            ks_direct_go(http, conn);
        }
    }
}

void ks_direct_walk(ks_http *http, ks_conn *conn)
{
    if (conn->stage == KS_AT_HEAD && http->now_ns - conn->since_ns > patience_ns) pass_on(http, conn);
    if (conn->direct && conn->stage == KS_AT_IDLE && http->now_ns - conn->since_ns > http->daemon->config->idle_timeout)
        shutdown(conn->fd, SHUT_RDWR); /* which is an event */
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
        if (!rests(conn)) finish(http, conn, false);
        hang_up(http, conn);
    }
}
