#include "http.h"

#include <assert.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "conns.h"
#include "log.h"
#include "pages.h"
#include "reply.h"

enum {
    POOL_BYTES = 65536, /* of a connection: cleared after every request, so larger is slower */
    EVENTS = 128,       /* taken from the outer epoll at once */
    SPARE = 16,         /* connections beside this shard's even share */
    ADMIN_CONNECTIONS = 64,
    CHUNK_CALLS = 65536, /* pieces of a body that may come without being worth 4 KiB each */
    CHUNK_BYTES = 4096
};
static const uint64_t swallow_bytes = 1 << 20; /* of a refused body: read and dropped, so that the connection stays */
static const int64_t walk_ns = 50000000, nudge_ns = 20000000, spin_ns = 50000;
static const uint64_t library_key = UINT64_MAX, wake_key = UINT64_MAX - 1;

struct ks_http {
    ks_daemon *daemon;
    ks_engine *engine; /* NULL: the second listener */
    ks_shard_metrics *metrics;
    ks_infers *infers;
    struct MHD_Daemon *library;
    int epoll, wake_fd;
    ks_conns conns;
    ks_gate_rules rules;
    int64_t now_ns, walked_ns;
    int in_flight;
    bool unfinished; /* the library has something to do without a new event */
    bool draining;
    ks_status refusing; /* KS_OK, or what every new inference request gets */
};

/* --- one request: head -------------------------------------------------------------------------------------------- */

/* Comes with the request line, before the library decodes or cuts it: the raw target, and the time of the first byte.
 */
static void *on_target(void *context, const char *target, struct MHD_Connection *mhd)
{
    ks_http *http = context;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    ks_conn *conn = info ? info->socket_context : NULL;
    if (conn == NULL) return NULL;
    conn->first_ns = ks_now_ns();
    conn->target_length = strnlen(target, http->rules.max_uri + 1);
    size_t kept = conn->target_length <= http->rules.max_uri ? conn->target_length : http->rules.max_uri;
    memcpy(conn->target, target, kept);
    conn->target[kept] = '\0';
    conn->stage = KS_AT_HEAD;
    conn->since_ns = conn->first_ns;
    conn->fault = KS_OK;
    conn->received = conn->callbacks = conn->answer_bytes = 0;
    conn->code = 0;
    return conn;
}

/* The target is ours to read, in its raw form. */
static size_t keep_escapes(void *context, struct MHD_Connection *mhd, char *text)
{
    (void)context;
    (void)mhd;
    return strlen(text);
}

static enum MHD_Result take_field(void *context, enum MHD_ValueKind kind, const char *name, size_t name_length,
                                  const char *value, size_t value_length)
{
    (void)kind;
    ks_head_add(context, name, name_length, value, value_length);
    return MHD_YES;
}

static ks_status judge(ks_http *http, ks_conn *conn, const char *method, const char *version)
{
    ks_head_init(&conn->head, conn->target, conn->target_length, version);
    MHD_get_connection_values_n(conn->mhd, MHD_HEADER_KIND, take_field, &conn->head);
    conn->route = (ks_route){.handler = KS_HANDLER_other, .query = ""};
    ks_status status = ks_gate_wire(&http->rules, &conn->head, &conn->error);
    if (status != KS_OK) return status;
    ks_status found = ks_route_find(method, conn->target, http->engine == NULL, &conn->route, &conn->error);
    ks_error refused;
    http->rules.tokens = atomic_load_explicit(&http->daemon->tokens, memory_order_acquire);
    status =
        ks_gate_access(&http->rules, &conn->head, conn->loopback, conn->route.open, conn->route.authorized, &refused);
    if (status != KS_OK) {
        conn->error = refused;
        return status;
    }
    return found != KS_OK ? found : ks_gate_body(&http->rules, &conn->head, &conn->error);
}

static ks_status begin_inference(ks_http *http, ks_conn *conn)
{
    const ks_head *head = &conn->head;
    if (http->refusing != KS_OK) return ks_fail(&conn->error, http->refusing, "%s", ks_reply_sentence(http->refusing));
    const char *accept = head->known[KS_KNOWN_ACCEPT];
    bool known = head->encoding == KS_BODY_PLAIN && !head->chunked;
    const ks_oip_head words = {.model = conn->route.model,
                               .query = conn->route.query,
                               .header_length = head->known[KS_KNOWN_HEADER_LENGTH],
                               .content_length = !known                     ? -1
                                                 : head->content_length < 0 ? 0
                                                                            : head->content_length,
                               .accept_json = accept && strstr(accept, "application/json")};
    return ks_infer_begin(http->infers, &words, head->encoding, conn->first_ns, conn, &conn->infer, &conn->error);
}

/* Whether a refusal is sent at once, which closes the connection: where the client waits for leave to send, where the
 * connection ends anyway, or where the body is too long to be dropped. Else it follows the body. */
static bool refuses_early(const ks_http *http, const ks_conn *conn)
{
    const ks_head *head = &conn->head;
    if (head->expects || ks_status_closes(conn->fault)) return true;
    uint64_t limit = swallow_bytes + (conn->fault == KS_BODY_SIZE ? http->rules.max_body : 0);
    return head->content_length > 0 && (uint64_t)head->content_length > limit;
}

static bool closing(const ks_http *http, const ks_conn *conn)
{
    int64_t most = http->daemon->config->max_requests;
    return http->draining || (most > 0 && conn->requests >= most) ||
           (http->engine && atomic_load_explicit(&http->daemon->state, memory_order_relaxed) == KS_STATE_DRAINING);
}

/* --- one request: answer ------------------------------------------------------------------------------------------ */

static enum MHD_Result queue(ks_http *http, ks_conn *conn, int code, struct MHD_Response *response, uint64_t bytes)
{
    if (response == NULL) return MHD_NO;
    const char *id = ks_reply_request_id(&conn->head);
    if (id) MHD_add_response_header(response, "X-Request-Id", id);
    if (closing(http, conn) || ks_status_closes(conn->fault)) MHD_add_response_header(response, "Connection", "close");
    enum MHD_Result result = MHD_queue_response(conn->mhd, (unsigned)code, response);
    MHD_destroy_response(response);
    conn->stage = KS_AT_SEND;
    conn->since_ns = http->now_ns;
    conn->answer_bytes = bytes;
    conn->code = code;
    return result;
}

static struct MHD_Response *response_of(ks_text *text, uint64_t *bytes)
{
    size_t length = 0;
    char *body = ks_text_take(text, &length);
    if (body == NULL) return NULL;
    *bytes = length;
    struct MHD_Response *response = MHD_create_response_from_buffer(length, body, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) free(body);
    return response;
}

static enum MHD_Result answer_fault(ks_http *http, ks_conn *conn)
{
    uint64_t bytes = 0;
    ks_text text;
    ks_metrics_rejected(http->metrics, conn->fault);
    if (conn->fault == KS_CANCELLED) return MHD_NO;
    ks_text_init(&text, KS_ERROR_TEXT * 8);
    ks_oip_error(&text, conn->error.text);
    struct MHD_Response *response = response_of(&text, &bytes);
    if (response == NULL) return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "application/json");
    MHD_add_response_header(response, "Kernserve-Error", ks_status_code(conn->fault));
    if (ks_status_retries(conn->fault)) MHD_add_response_header(response, "Retry-After", "1");
    if (conn->route.allow) MHD_add_response_header(response, "Allow", conn->route.allow);
    if (conn->fault == KS_ENCODING) MHD_add_response_header(response, "Accept-Encoding", "gzip, deflate");
    if (conn->fault == KS_UNAUTHORIZED)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer realm=\"kernserve\"");
    return queue(http, conn, ks_status_http(conn->fault), response, bytes);
}

static enum MHD_Result answer_page(ks_http *http, ks_conn *conn)
{
    enum { PAGE_MAX = 16 << 20 };
    const char *type = "";
    uint64_t bytes = 0;
    ks_text text;
    ks_text_init(&text, PAGE_MAX);
    int code = ks_page_make(http->daemon, &conn->route, conn->head.known[KS_KNOWN_ACCEPT], &text, &type);
    struct MHD_Response *response = response_of(&text, &bytes);
    if (response == NULL) {
        conn->fault = ks_fail(&conn->error, KS_MEMORY, "no memory for the page");
        return answer_fault(http, conn);
    }
    MHD_add_response_header(response, "Content-Type", type);
    if (code == 503) MHD_add_response_header(response, "Retry-After", "1");
    return queue(http, conn, code, response, bytes);
}

/* MHD_ContentReaderFreeCallback: the last byte of an answer has been handed to the kernel, or never will be. */
static void on_sent(void *context)
{
    ks_infer_sent(context);
}

static void add_answer_fields(struct MHD_Response *response, const ks_answer *answer, const char *timing)
{
    char number[24];
    MHD_add_response_header(response, "Content-Type", answer->content_type);
    if (answer->header_length >= 0)
        MHD_add_response_header(response, "Inference-Header-Content-Length",
                                ks_reply_number(number, answer->header_length));
    if (answer->datatype) {
        MHD_add_response_header(response, "Kernserve-Shape", answer->shape);
        MHD_add_response_header(response, "Kernserve-Datatype", answer->datatype);
    }
    if (timing[0]) MHD_add_response_header(response, "Server-Timing", timing);
}

static enum MHD_Result answer_inference(ks_http *http, ks_conn *conn)
{
    ks_answer answer = {0};
    char timing[KS_TIMING_MAX];
    conn->fault = ks_infer_answer(conn->infer, &answer, timing, &conn->error);
    if (conn->fault != KS_OK) return answer_fault(http, conn);
    /* The library asks for a buffer that it may change, and changes none. */
    char *body = (char *)(uintptr_t)answer.body;
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback_cls(answer.length, body, on_sent, conn->infer);
    if (response == NULL) {
        ks_infer_sent(conn->infer);
        return MHD_NO;
    }
    add_answer_fields(response, &answer, timing);
    return queue(http, conn, 200, response, answer.length);
}

/* Past the library, which takes no answer amid a body: straight to the socket. Nothing else has been sent of this
 * request; what still comes is read and dropped for a while, so that the client sees the answer and no reset. */
static void cut(ks_http *http, ks_conn *conn)
{
    ks_text text;
    size_t length = 0;
    ks_metrics_rejected(http->metrics, conn->fault);
    ks_text_init(&text, KS_ERROR_TEXT * 8);
    ks_reply_raw(&text, conn->fault, MHD_get_reason_phrase_for((unsigned)ks_status_http(conn->fault)),
                 conn->error.text);
    char *bytes = ks_text_take(&text, &length);
    if (bytes && send(conn->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)length)
        conn->code = ks_status_http(conn->fault);
    free(bytes);
    shutdown(conn->fd, SHUT_WR);
    conn->stage = KS_AT_CUT;
    conn->since_ns = http->now_ns;
    if (conn->infer) ks_infer_abort(conn->infer, conn->fault, conn->error.text);
}

/* --- one request: life -------------------------------------------------------------------------------------------- */

static enum MHD_Result first_call(ks_http *http, ks_conn *conn, const char *method, const char *version)
{
    conn->stage = KS_AT_BODY;
    conn->counted = true;
    conn->requests++;
    http->in_flight++;
    conn->method = ks_method_of(method);
    conn->fault = judge(http, conn, method, version);
    if (conn->fault == KS_OK && http->draining)
        conn->fault = ks_fail(&conn->error, KS_DRAINING, "%s", ks_reply_sentence(KS_DRAINING));
    if (conn->fault == KS_OK && conn->route.id == KS_ROUTE_INFER) conn->fault = begin_inference(http, conn);
    if (conn->fault != KS_OK && refuses_early(http, conn)) return answer_fault(http, conn);
    return MHD_YES;
}

static enum MHD_Result take_chunk(ks_http *http, ks_conn *conn, const char *bytes, size_t n)
{
    uint64_t most = conn->infer ? http->rules.max_body : 0;
    if (conn->stage == KS_AT_CUT) return MHD_YES;
    conn->received += n;
    conn->callbacks++;
    if (conn->fault == KS_OK && conn->callbacks > CHUNK_CALLS + conn->received / CHUNK_BYTES) {
        conn->fault = ks_fail(&conn->error, KS_CHUNKS, "request body comes in more than %d tiny chunks", CHUNK_CALLS);
        cut(http, conn);
        return MHD_YES;
    }
    if (conn->infer && conn->fault == KS_OK && conn->received > most)
        conn->fault = ks_fail(&conn->error, KS_BODY_SIZE, "request body has more than %llu bytes (--max-body)",
                              (unsigned long long)most);
    if (conn->received > most + swallow_bytes && conn->head.content_length < 0) {
        if (conn->fault == KS_OK)
            conn->fault = ks_fail(&conn->error, KS_BODY_SIZE, "request body is too large for this path");
        cut(http, conn);
        return MHD_YES;
    }
    if (conn->infer && conn->fault == KS_OK) ks_infer_feed(conn->infer, bytes, n);
    return MHD_YES;
}

/* The body is complete. Work goes to the engine and the answer comes at the next call at the earliest: one turn later
 * the library has seen that there is nothing to read, so that a suspension costs no system call and a client that has
 * closed its sending side still gets its answer. */
static enum MHD_Result end_body(ks_http *http, ks_conn *conn)
{
    if (conn->fault != KS_OK) return answer_fault(http, conn);
    if (conn->infer == NULL) return answer_page(http, conn);
    ks_infer_end(conn->infer);
    if (ks_infer_fault(conn->infer) != KS_OK) return answer_inference(http, conn);
    conn->stage = KS_AT_WAIT;
    conn->since_ns = ks_now_ns();
    return MHD_YES;
}

static enum MHD_Result wait_on(ks_http *http, ks_conn *conn)
{
    if (ks_infer_done(conn->infer)) return answer_inference(http, conn);
    /* Short work on a device that is polled: one more turn is cheaper than a suspension. */
    if (ks_engine_polls(http->engine) && http->now_ns - conn->since_ns < spin_ns) return MHD_YES;
    MHD_suspend_connection(conn->mhd);
    conn->suspended = true;
    return MHD_YES;
}

/* MHD_AccessHandlerCallback */
static enum MHD_Result on_request(void *context, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *bytes, size_t *size, void **request)
{
    ks_http *http = context;
    ks_conn *conn = *request;
    (void)url;
    if (conn == NULL) return MHD_NO;
    assert(conn->magic == KS_CONN_MAGIC && conn->mhd == mhd);
    size_t n = *size;
    *size = 0;
    switch (conn->stage) {
    case KS_AT_HEAD:
        return first_call(http, conn, method, version);
    case KS_AT_BODY:
        return n ? take_chunk(http, conn, bytes, n) : end_body(http, conn);
    case KS_AT_WAIT:
        return wait_on(http, conn);
    case KS_AT_CUT:
        return n ? MHD_YES : MHD_NO;
    case KS_AT_IDLE:
    case KS_AT_SEND:
        break;
    }
    return MHD_NO;
}

/* Once per request whose request line was read, however it ended: the only place where its resources go back. */
static void on_completed(void *context, struct MHD_Connection *mhd, void **request,
                         enum MHD_RequestTerminationCode code)
{
    ks_http *http = context;
    ks_conn *conn = *request;
    (void)mhd;
    if (conn == NULL) return;
    *request = NULL;
    if (conn->counted) {
        http->in_flight--;
        conn->counted = false;
        ks_abort phase = conn->stage == KS_AT_BODY   ? KS_ABORT_RECEIVE
                         : conn->stage == KS_AT_WAIT ? KS_ABORT_COMPUTE
                                                     : KS_ABORT_SEND;
        if (conn->stage == KS_AT_BODY || conn->stage == KS_AT_WAIT ||
            (conn->stage == KS_AT_SEND && code != MHD_REQUEST_TERMINATED_COMPLETED_OK))
            ks_metrics_aborted(http->metrics, phase);
        if (conn->code)
            ks_metrics_http(http->metrics, conn->route.handler, conn->method, conn->code, conn->received,
                            conn->answer_bytes);
        if (conn->route.id == KS_ROUTE_INFER && conn->infer == NULL && conn->fault != KS_OK)
            ks_reply_count(http->metrics, &conn->route, conn->fault, http->now_ns - conn->first_ns);
    }
    ks_infer_leave(&conn->infer);
    conn->stage = KS_AT_IDLE;
    conn->since_ns = http->now_ns;
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static void forget(ks_http *http, ks_conn *conn)
{
    ks_conns_give(&http->conns, conn);
    ks_metrics_connections(http->metrics, -1);
    if (http->engine) atomic_fetch_sub(&http->daemon->connections, 1);
}

static void on_connection(void *context, struct MHD_Connection *mhd, void **socket,
                          enum MHD_ConnectionNotificationCode code)
{
    ks_http *http = context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        ks_conn *conn = info ? ks_conns_by_fd(&http->conns, info->connect_fd) : NULL;
        if (conn) conn->mhd = mhd;
        *socket = conn;
    } else if (*socket) {
        forget(http, *socket);
        *socket = NULL;
    }
}

void ks_http_add(ks_http *http, int fd, bool loopback)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    ks_conn *conn = ks_conns_take(&http->conns, fd, loopback, ks_now_ns());
    if (conn == NULL) {
        close(fd);
        if (http->engine) atomic_fetch_sub(&http->daemon->connections, 1);
        return;
    }
    ks_metrics_connections(http->metrics, 1);
    uint64_t key = ks_conns_key(conn);
    if (MHD_add_connection(http->library, fd, (const struct sockaddr *)&address, sizeof address) != MHD_YES) {
        /* The library has closed the socket, and told us so if it knew the connection. */
        conn = ks_conns_by_key(&http->conns, key);
        if (conn) forget(http, conn);
    }
    http->unfinished = true;
}

static void on_library_log(void *context, const char *format, va_list arguments)
{
    (void)context;
    char line[256];
    if (!ks_log_enabled(KS_LOG_DEBUG)) return;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    vsnprintf(line, sizeof line, format, arguments);
#pragma GCC diagnostic pop
    line[strcspn(line, "\r\n")] = '\0';
    KS_LOG(KS_LOG_DEBUG, "libmicrohttpd", KS_TEXT("says", line));
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

static void end_late(ks_http *http, ks_conn *conn, ks_late late)
{
    if (late == KS_LATE_CLOSE) {
        shutdown(conn->fd, SHUT_RDWR);
        return;
    }
    conn->fault = ks_fail(&conn->error, KS_SLOW, "the request came too slowly");
    cut(http, conn);
}

/* Deadlines: ours, because the library knows inactivity only, which one byte now and then never is. */
static void walk(ks_http *http)
{
    if (http->now_ns - http->walked_ns < walk_ns) return;
    http->walked_ns = http->now_ns;
    for (int i = 0; i < http->conns.active_count; i++) {
        ks_conn *conn = http->conns.active[i];
        ks_late late = ks_conn_late(conn, http->daemon->config, http->now_ns);
        if (late != KS_IN_TIME) end_late(http, conn, late);
    }
}

static void on_hang_up(ks_http *http, uint64_t key, uint32_t events)
{
    ks_conn *conn = ks_conns_by_key(&http->conns, key);
    if (conn == NULL) return;
    /* Half a close says only that nothing more will be sent; a reset says that nobody is there to be answered. */
    ks_conns_hang_up(&http->conns, conn, events & (EPOLLHUP | EPOLLERR));
    if (conn->gone && conn->stage == KS_AT_WAIT && ks_infer_cancel(conn->infer) && conn->suspended) {
        conn->suspended = false;
        MHD_resume_connection(conn->mhd);
        http->unfinished = true;
    }
}

static void clear_wake(ks_http *http)
{
    uint64_t count;
    ssize_t got = read(http->wake_fd, &count, sizeof count);
    (void)got; /* somebody else may have read it */
}

static int64_t wait_ns(ks_http *http, int64_t most_ns)
{
    MHD_UNSIGNED_LONG_LONG library_ms = 0;
    if (http->unfinished) return 0;
    bool limited = MHD_get_timeout(http->library, &library_ms) == MHD_YES;
    http->unfinished = limited && library_ms == 0;
    if (limited && (int64_t)library_ms < most_ns / 1000000) most_ns = (int64_t)library_ms * 1000000;
    if (http->conns.half_count > 0 && most_ns > nudge_ns) most_ns = nudge_ns;
    if (http->conns.active_count > 0 && most_ns > walk_ns) most_ns = walk_ns;
    return most_ns;
}

static void run_library(ks_http *http)
{
    http->unfinished = false;
    /* Never with a timeout: within the library one can hang for ever while 128 sockets are ready at once. */
    MHD_run_wait(http->library, 0);
}

/* The finer call only where it is needed: kernels before 5.11, and valgrind, do not have it. */
static int wait_events(int epoll, struct epoll_event *events, int64_t most_ns)
{
    if (most_ns > 0 && most_ns < 1000000) {
        struct timespec most = {.tv_nsec = most_ns};
        int count = epoll_pwait2(epoll, events, EVENTS, &most, NULL);
        if (count >= 0 || errno != ENOSYS) return count;
        most_ns = 0;
    }
    return epoll_wait(epoll, events, EVENTS, (int)((most_ns + 999999) / 1000000));
}

bool ks_http_turn(ks_http *http, int64_t timeout_ns)
{
    struct epoll_event events[EVENTS];
    int64_t most_ns = wait_ns(http, timeout_ns);
    int count = wait_events(http->epoll, events, most_ns);
    http->now_ns = ks_now_ns();
    bool ready = http->unfinished;
    for (int i = 0; i < count; i++) {
        if (events[i].data.u64 == library_key)
            ready = true;
        else if (events[i].data.u64 == wake_key)
            clear_wake(http);
    }
    if (ready) run_library(http);
    for (int i = 0; i < count; i++)
        if (events[i].data.u64 != library_key && events[i].data.u64 != wake_key)
            on_hang_up(http, events[i].data.u64, events[i].events);
    ks_conns_nudge(&http->conns);
    walk(http);
    return count > 0 || ready;
}

void ks_http_resume(ks_http *http, ks_job *done)
{
    bool any = false;
    while (done) {
        ks_job *next = done->next;
        ks_conn *conn = ks_infer_collected(done);
        if (conn && conn->suspended) {
            conn->suspended = false;
            MHD_resume_connection(conn->mhd);
        }
        any |= conn != NULL;
        done = next;
    }
    if (any) {
        http->now_ns = ks_now_ns();
        run_library(http);
    }
}

void ks_http_drain(ks_http *http)
{
    http->draining = true;
}

void ks_http_fail(ks_http *http, ks_status status)
{
    http->refusing = status;
    for (int i = 0; i < http->conns.active_count; i++) {
        ks_conn *conn = http->conns.active[i];
        if (conn->infer && (conn->stage == KS_AT_BODY || conn->stage == KS_AT_WAIT))
            ks_infer_abort(conn->infer, status, ks_reply_sentence(status));
        if (conn->suspended) {
            conn->suspended = false;
            MHD_resume_connection(conn->mhd);
        }
    }
    run_library(http);
}

int ks_http_in_flight(const ks_http *http)
{
    return http->in_flight;
}

int ks_http_connections(const ks_http *http)
{
    return atomic_load_explicit(&http->conns.open, memory_order_relaxed);
}

/* --- open and close ----------------------------------------------------------------------------------------------- */

static void fill_rules(ks_http *http)
{
    const ks_config *config = http->daemon->config;
    http->rules = (ks_gate_rules){.max_uri = config->max_uri,
                                  .max_header = config->max_header,
                                  .max_fields = (int)config->max_fields,
                                  .max_body = config->max_body,
                                  .hosts = config->host.item,
                                  .hosts_count = config->host.count};
}

static unsigned library_timeout_s(const ks_config *config)
{
    int64_t most = config->idle_timeout;
    most = most > config->header_timeout ? most : config->header_timeout;
    most = most > config->body_timeout ? most : config->body_timeout;
    most = most > config->send_timeout ? most : config->send_timeout;
    return (unsigned)((most + 999999999) / 1000000000);
}

static bool start_library(ks_http *http, int capacity)
{
    http->library = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        on_request, http, MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)POOL_BYTES, MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)POOL_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        library_timeout_s(http->daemon->config), MHD_OPTION_CONNECTION_LIMIT, (unsigned)capacity + SPARE,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
        MHD_OPTION_URI_LOG_CALLBACK, on_target, http, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    return http->library != NULL;
}

static bool watch(int epoll, int fd, uint64_t key)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = key};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static ks_status open_parts(ks_http *http, ks_error *error)
{
    ks_daemon *daemon = http->daemon;
    int shards = daemon->shards > 0 ? daemon->shards : 1;
    int capacity =
        http->engine ? (int)((daemon->config->connections + shards - 1) / shards) + SPARE : ADMIN_CONNECTIONS;
    http->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (http->epoll < 0) return ks_fail(error, KS_SYSTEM, "cannot make an epoll descriptor");
    ks_status status = ks_conns_open(&http->conns, capacity, http->rules.max_uri, http->epoll, error);
    if (status == KS_OK && http->engine)
        status = ks_infers_open(daemon, http->engine, http->metrics, capacity + SPARE, &http->infers, error);
    if (status != KS_OK) return status;
    if (!start_library(http, capacity)) return ks_fail(error, KS_SYSTEM, "libmicrohttpd does not start");
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->library, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == NULL || !watch(http->epoll, info->epoll_fd, library_key) ||
        !watch(http->epoll, http->wake_fd, wake_key))
        return ks_fail(error, KS_SYSTEM, "cannot watch libmicrohttpd's descriptor");
    return KS_OK;
}

ks_status ks_http_open(ks_daemon *daemon, ks_engine *engine, ks_shard_metrics *metrics, int wake_fd, ks_http **out,
                       ks_error *error)
{
    ks_http *http = calloc(1, sizeof *http);
    if (http == NULL) return ks_fail(error, KS_MEMORY, "no memory for the HTTP engine");
    http->daemon = daemon;
    http->engine = engine;
    http->metrics = metrics;
    http->wake_fd = wake_fd;
    http->epoll = -1;
    http->now_ns = http->walked_ns = ks_now_ns();
    fill_rules(http);
    ks_status status = open_parts(http, error);
    if (status != KS_OK) ks_http_close(&http);
    *out = http;
    return status;
}

void ks_http_close(ks_http **pointer)
{
    ks_http *http = *pointer;
    *pointer = NULL;
    if (http == NULL) return;
    if (http->library) MHD_stop_daemon(http->library);
    ks_infers_close(&http->infers);
    ks_conns_close(&http->conns);
    if (http->epoll >= 0) close(http->epoll);
    free(http);
}
