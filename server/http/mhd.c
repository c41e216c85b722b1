/* The library's transport: one request's life, by libmicrohttpd's callbacks in their order. It is given a connection whose next
 * request's head has been checked by the plain reader and lies whole in the socket, for that request alone: its response ends the
 * connection. A connection with TLS is the library's from its handshake to its end, on a daemon of its own (http->tls); its heads
 * pass the same checks once the library has read them.
 *
 *   on_target     the request line has come
 *   first_call    the head is complete: checked, begun, or refused at once
 *   take, end     the body's chunks; then the work goes to the engine, or a page is made
 *   wait_on       once a turn until the work is done, suspended if that takes long
 *   queue         the response, one buffer
 *   on_completed  the only place where a request's resources go back */
#include <assert.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/http_parts.h"
#include "base/log.h"
#include "base/util.h"
#include "http/tls/tls.h"

enum {
    /* A connection's memory, which the library clears after every request. Measured on two cores, loopback, CPU a
     * request (16, 32, 64 KiB): 1 KiB bodies 9.0, 9.7, 10.2 us; 64 KiB bodies 43.8, 30.0, 33.2 us; 1 MiB bodies 904,
     * 581, 534 us, because the body comes in chunks of half or all of it. Above 32 KiB each new connection also pays
     * an mmap and its page faults. */
    POOL_BYTES = 32768,
    BLOCK_BYTES = 65536, /* of long texts and large responses, in a run of the library */
    SPARE = 16           /* connections beside this shard's even share, and those that the library has yet to close */
};
static const int64_t spin_ns = 50000;

/* --- one request: head -------------------------------------------------------------------------------------------- */

/* Comes with the request line, before the library decodes or cuts it: the raw target, the time of the first byte. */
static void *on_target(void *context, const char *target, struct MHD_Connection *mhd)
{
    ks_http *http = context;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    ks_conn *conn = info ? info->socket_context : NULL;
    if (conn == NULL) return NULL;
    ks_request_open(http, conn);
    ks_request_target(http, conn, target);
    return conn;
}

/* The target is ours to read, in its raw form. */
static size_t keep_escapes(void *context, struct MHD_Connection *mhd, char *text)
{
    (void)context;
    (void)mhd;
    return strlen(text);
}

/* libmicrohttpd 0.9.75 appends a folded line to the field's name, not to its value: "Content-Lengt: 4", folded "h", is a
 * length then that no proxy in front has seen. It moves the name for that, so that its value no longer lies behind it. */
static bool is_folded(const char *name, size_t name_length, const char *value)
{
    const char *behind = name + name_length + 1;
    while (behind < value && (*behind == ' ' || *behind == '\t')) behind++;
    return behind != value;
}

static enum MHD_Result take_field(void *context, enum MHD_ValueKind kind, const char *name, size_t name_length,
                                  const char *value, size_t value_length)
{
    (void)kind;
    ks_head *head = context;
    head->folded |= value && is_folded(name, name_length, value);
    if (value) {
        /* The library leaves white space behind a value, in memory of the connection's own. */
        value_length = ks_head_trim(value, value_length);
        ((char *)(uintptr_t)value)[value_length] = '\0';
    }
    ks_head_add(head, name, name_length, value, value_length);
    return MHD_YES;
}

/* --- one request: response ------------------------------------------------------------------------------------------ */

/* Until ks_infers_woken names the request: the time does not count as the client's. */
static void pause_library(ks_conn *conn)
{
    MHD_suspend_connection(conn->mhd);
    conn->suspended = true;
    conn->paused_ns = conn->http->now_ns;
}

/* MHD_ContentReaderFreeCallback: the last byte of a response has been handed to the kernel, or never will be. */
static void on_sent(void *context)
{
    ks_infer_sent(context);
}

/* How many bytes of a response there are for the library; 0: none yet. */
static ssize_t give(ks_conn *conn, int64_t size)
{
    if (size > 0) return (ssize_t)size;
    if (size < 0 || conn->http->refusing != KS_OK) return MHD_CONTENT_READER_END_WITH_ERROR;
    pause_library(conn);
    return 0;
}

/* MHD_ContentReaderCallback */
static ssize_t read_response(void *context, uint64_t at, char *out, size_t most)
{
    return give(ks_infer_client(context), ks_infer_read(context, at, out, most));
}

/* A download's; never called of a HEAD. */
static ssize_t read_download(void *context, uint64_t at, char *out, size_t most)
{
    return give(ks_transfer_client(context), ks_download_read(context, at, out, most));
}

static void on_downloaded(void *context)
{
    ks_source_end(&(ks_response_source){.download = context});
}

/* Of an inference. One buffer, head and body in one chunk; or a long text in blocks, because the kernel would take 4 MiB of it at
 * once and keep the shard for longer than a millisecond; or what comes from the device while it is sent. */
static struct MHD_Response *response_from(const ks_response *response)
{
    ks_infer *infer = response->source.infer;
    if (ks_infer_is_remote(infer) || response->length > KS_LONG_TEXT)
        return MHD_create_response_from_callback(response->length, BLOCK_BYTES, read_response, infer, on_sent);
    /* The library asks for a buffer that it may change, and changes none. */
    char *body = (char *)(uintptr_t)response->body;
    return MHD_create_response_from_buffer_with_free_callback_cls(response->length, body, on_sent, infer);
}

static struct MHD_Response *response_of(const ks_response *response)
{
    ks_transfer *download = response->source.download;
    if (response->source.infer) return response_from(response);
    if (download || (!response->owned && response->length > 0))
        return MHD_create_response_from_callback(response->length, BLOCK_BYTES, read_download, download,
                                                 download ? on_downloaded : NULL);
    return MHD_create_response_from_buffer(response->length, response->owned, MHD_RESPMEM_MUST_FREE);
}

/* ks_transport.send: only from within a call of the library's. */
static void send_library(ks_http *http, ks_conn *conn, ks_response *response)
{
    struct MHD_Response *made = response_of(response);
    (void)http;
    if (made == NULL) {
        ks_response_fini(response);
        return;
    }
    for (int i = 0; i < response->fields.count; i++)
        MHD_add_response_header(made, response->fields.at[i].name, response->fields.at[i].value);
    if (response->last) MHD_add_response_header(made, "Connection", "close");
    conn->lingers = response->last && !conn->head.closes && !conn->head.http10;
    conn->queued = MHD_queue_response(conn->mhd, (unsigned)response->code, made) == MHD_YES;
    MHD_destroy_response(made);
}

/* ks_transport.drop: the library's next answer from us ends the connection. */
static void drop_library(ks_http *http, ks_conn *conn)
{
    (void)http;
    conn->queued = false;
}

/* GnuTLS's; NULL: the library does not know the connection yet. */
static void *session_of(const ks_conn *conn)
{
    const union MHD_ConnectionInfo *info =
        conn->mhd ? MHD_get_connection_info(conn->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION) : NULL;
    return info ? info->tls_session : NULL;
}

/* Past the library. true: the kernel has all of it. */
static bool send_now(const ks_conn *conn, const struct iovec parts[2])
{
    if (conn->tls) {
        void *const session = session_of(conn);
        return session && ks_tls_send(session, parts[0].iov_base, parts[0].iov_len) &&
               ks_tls_send(session, parts[1].iov_base, parts[1].iov_len);
    }
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = 2};
    const ssize_t sent = TEMP_FAILURE_RETRY(sendmsg(conn->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
    return sent == (ssize_t)(parts[0].iov_len + parts[1].iov_len);
}

/* A request whose head does not come to its end, which only TLS leaves to the library: it counts like any other. */
static void begin_late(ks_http *http, ks_conn *conn)
{
    const ks_status late = conn->fault;
    ks_head_init(&conn->head, "", 0, "HTTP/1.1");
    conn->head.method = "";
    ks_request_head(http, conn, late);
}

/* ks_transport.cut: straight to the socket, because the library takes no response amid a body; nothing else has been sent of this
 * request. What still comes is read and dropped for a while, so that the client sees the response and no reset. */
static void cut_library(ks_http *http, ks_conn *conn)
{
    ks_response response = {.last = true};
    char head[KS_RESPONSE_HEAD_MAX];
    if (conn->state == KS_AT_HEAD) begin_late(http, conn);
    conn->cut = false;
    if (ks_request_make_fault(http, conn, &response)) {
        if (conn->counted) ks_fields_add(&response.fields, "X-Request-Id", conn->identity.request_id);
        const struct iovec parts[2] = {{head, ks_response_head(&response, &http->date, head)},
                                       {response.owned, (size_t)response.length}};
        if (send_now(conn, parts)) conn->code = response.code;
    }
    ks_response_fini(&response);
    shutdown(conn->fd, SHUT_WR);
    ks_conn_enter(conn, KS_AT_CUT);
    conn->since_ns = http->now_ns;
    ks_request_abort(conn, conn->fault, conn->error.text);
}

/* --- one request: life -------------------------------------------------------------------------------------------- */

/* Of a request that is done, or refused. */
static enum MHD_Result respond(ks_http *http, ks_conn *conn)
{
    conn->queued = false;
    if (!ks_request_respond(http, conn)) return MHD_YES; /* called again next turn */
    return conn->queued ? MHD_YES : MHD_NO;
}

static enum MHD_Result first_call(ks_http *http, ks_conn *conn, const char *method, const char *version)
{
    ks_head_init(&conn->head, conn->target, conn->target_length, version);
    conn->head.method = method;
    conn->head.absolute = conn->authority != NULL;
    if (conn->tls && !conn->tls_version) conn->tls_version = ks_tls_version(session_of(conn));
    MHD_get_connection_values_n(conn->mhd, MHD_HEADER_KIND, take_field, &conn->head);
    const ks_next next = ks_request_head(http, conn, KS_OK);
    conn->cut = false; /* a response now ends the connection anyway */
    return next == KS_NEXT_RESPOND ? respond(http, conn) : MHD_YES;
}

/* The body is complete. Work goes to the engine. What that has done at once is answered at once, and the library sends it in
 * the run that has read the request; else the response comes at the next call at the earliest: one turn later the library has
 * seen that there is nothing to read, so that a suspension costs no system call and a client that has closed its sending side
 * still gets its response. */
static enum MHD_Result end_body(ks_http *http, ks_conn *conn)
{
    if (!ks_request_end(http, conn)) return MHD_YES; /* called again next turn */
    return ks_request_done(conn) ? respond(http, conn) : MHD_YES;
}

static enum MHD_Result wait_on(ks_http *http, ks_conn *conn)
{
    if (ks_request_done(conn)) return respond(http, conn);
    /* Short work on a device that is polled: one more turn is cheaper than a suspension. */
    if (ks_engine_polls(http->engine) && http->now_ns - conn->since_ns < spin_ns) return MHD_YES;
    MHD_suspend_connection(conn->mhd);
    conn->suspended = true;
    return MHD_YES;
}

/* The library gives the rest of a chunk at once if more has come behind it, and else never: it is suspended until the
 * next turn. */
static void go_on(ks_http *http, ks_conn *conn)
{
    MHD_suspend_connection(conn->mhd);
    conn->suspended = conn->goes_on = true;
    http->going_on++;
}

/* n bytes of the body. */
static size_t take(ks_http *http, ks_conn *conn, const char *bytes, size_t n)
{
    conn->chunks += !conn->goes_on && conn->head.chunked;
    conn->goes_on = false;
    const size_t taken = ks_request_body(http, conn, bytes, n);
    if (conn->cut)
        cut_library(http, conn);
    else if (taken < n && ks_request_waits(conn))
        pause_library(conn);
    else if (taken < n)
        go_on(http, conn);
    return taken;
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
    switch (conn->state) {
    case KS_AT_HEAD:
        return first_call(http, conn, method, version);
    case KS_AT_BODY:
        if (n == 0) return end_body(http, conn);
        *size = n - take(http, conn, bytes, n);
        return MHD_YES;
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

/* Once per request whose request line was read, however it ended. */
static void on_completed(void *context, struct MHD_Connection *mhd, void **request,
                         enum MHD_RequestTerminationCode code)
{
    ks_http *http = context;
    ks_conn *conn = *request;
    (void)mhd;
    if (conn == NULL) return;
    *request = NULL;
    conn->lingers = conn->state == KS_AT_CUT || (conn->lingers && code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    ks_request_sent(http, conn, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
}

/* --- connections -------------------------------------------------------------------------------------------------- */

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
        /* The library closes its descriptor of the socket next. */
        ks_conn *conn = *socket;
        conn->mhd = NULL;
        if (!conn->lingers || !ks_plain_linger(http, conn)) ks_http_forget(http, conn);
        *socket = NULL;
    }
}

void ks_library_take(ks_http *http, ks_conn *conn)
{
    const struct sockaddr_in address = {.sin_family = AF_INET};
    const uint64_t key = ks_conns_key(conn);
    struct MHD_Daemon *const library = conn->tls ? http->tls : http->library;
    if (MHD_add_connection(library, conn->fd, (const struct sockaddr *)&address, sizeof address) != MHD_YES) {
        /* The library has closed the socket, and reported it if it knew the connection. */
        conn = ks_conns_by_key(&http->conns, key);
        if (conn) ks_http_forget(http, conn);
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

/* --- what turns ask of the library -------------------------------------------------------------------------------- */

void ks_library_run(ks_http *http)
{
    http->unfinished = http->resumed = false;
    if (http->infers) ks_infers_run(http->infers);
    /* Never with a timeout: within the library one can hang for ever while 128 sockets are ready at once. */
    MHD_run_wait(http->library, 0);
    if (http->tls) MHD_run_wait(http->tls, 0);
}

static int64_t wait_of(struct MHD_Daemon *library)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    if (MHD_get_timeout(library, &ms) != MHD_YES || ms > (MHD_UNSIGNED_LONG_LONG)(INT64_MAX / 1000000))
        return INT64_MAX;
    return (int64_t)ms * 1000000;
}

int64_t ks_library_wait_ns(const ks_http *http)
{
    const int64_t most_ns = wait_of(http->library);
    return http->tls ? ks_least(most_ns, wait_of(http->tls)) : most_ns;
}

void ks_library_resume(ks_conn *conn)
{
    if (!conn->suspended) return;
    conn->suspended = false;
    if (conn->paused_ns) conn->since_ns += conn->http->now_ns - conn->paused_ns;
    conn->paused_ns = 0;
    MHD_resume_connection(conn->mhd);
}

/* ks_transport.resume */
static void resume_library(ks_http *http, ks_conn *conn)
{
    if (conn->state == KS_AT_BODY) ks_request_check(conn);
    if (conn->cut) cut_library(http, conn);
    ks_library_resume(conn);
    http->resumed = true;
}

/* ks_transport.event: how the client leaves; the library sees the rest. */
static void on_library_event(ks_http *http, ks_conn *conn, uint32_t events)
{
    if (!(events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))) return; /* of before the library got it */
    /* Half a close says only that nothing more will be sent; a reset says that there is no client any more. */
    ks_conn_fin(conn, http->now_ns);
    ks_conns_hang_up(&http->conns, conn, events & (EPOLLHUP | EPOLLERR));
    if (conn->gone && conn->state == KS_AT_WAIT && conn->infer && ks_infer_cancel(conn->infer) && conn->suspended) {
        ks_library_resume(conn);
        http->unfinished = true;
    }
    if (conn->gone && conn->paused_ns) {
        if (conn->state == KS_AT_BODY) ks_request_abort(conn, KS_CANCELLED, "the client has gone");
        ks_library_resume(conn);
        http->unfinished = true;
    }
}

const ks_transport ks_library_transport = {.reader = KS_COUNT_reader_library,
                                           .send = send_library,
                                           .drop = drop_library,
                                           .cut = cut_library,
                                           .resume = resume_library,
                                           .event = on_library_event};

/* --- open and close ----------------------------------------------------------------------------------------------- */

static void fill_rules(ks_http *http)
{
    const ks_config *config = http->config;
    http->rules = (ks_check_rules){.max_uri = config->max_uri,
                                   .max_header = config->max_header,
                                   .max_fields = (int)config->max_fields,
                                   .max_body = config->max_body,
                                   .hosts = config->accept_host.item,
                                   .hosts_count = config->accept_host.count};
}

static unsigned library_timeout_s(const ks_config *config)
{
    int64_t most = config->idle_timeout;
    most = most > config->header_timeout ? most : config->header_timeout;
    most = most > config->body_timeout ? most : config->body_timeout;
    most = most > config->send_timeout ? most : config->send_timeout;
    return (unsigned)((most + 999999999) / 1000000000);
}

/* Head and parsed fields share the memory: a longer head than usual needs more of it. */
static size_t pool_bytes(const ks_config *config)
{
    const size_t needed = 2 * (size_t)config->max_header;
    return needed > POOL_BYTES ? needed : POOL_BYTES;
}

/* more: further options, ended by MHD_OPTION_END. */
static struct MHD_Daemon *start_library(ks_http *http, int capacity, unsigned flags, struct MHD_OptionItem *more)
{
    const size_t pool = pool_bytes(http->config);
    return MHD_start_daemon(
        flags | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        on_request, http, MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT, pool,
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, pool, MHD_OPTION_CONNECTION_TIMEOUT, library_timeout_s(http->config),
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)capacity + SPARE, MHD_OPTION_NOTIFY_COMPLETED, on_completed, http,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_URI_LOG_CALLBACK, on_target, http,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, more,
        MHD_OPTION_END);
}

static struct MHD_Daemon *start_tls(ks_http *http, int capacity)
{
    struct MHD_OptionItem more[] = {{MHD_OPTION_HTTPS_PRIORITIES, 0, (char *)(uintptr_t)http->config->tls_priorities},
                                    {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, (void *)(uintptr_t)ks_tls_retrieve()},
                                    {MHD_OPTION_END, 0, NULL}};
    return start_library(http, capacity, MHD_USE_TLS, more);
}

static bool watch_library(ks_http *http, struct MHD_Daemon *library)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(library, MHD_DAEMON_INFO_EPOLL_FD);
    return info && ks_turn_watch(http, info->epoll_fd, KS_LIBRARY_KEY);
}

static ks_status open_parts(ks_http *http, const ks_request_options *options, bool tls, ks_error *error)
{
    const int shards = http->api->shards > 0 ? http->api->shards : 1;
    const int places = http->engine ? (int)((http->config->connections + shards - 1) / shards) : KS_ADMIN_CONNECTIONS;
    const int capacity = places + SPARE;
    http->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (http->epoll < 0) return ks_fail(error, KS_SYSTEM, "cannot make an epoll descriptor");
    ks_status status = ks_conns_open(&http->conns, capacity, http->rules.max_uri, http->epoll, error);
    http->conns.address_share = (int)(http->engine ? http->config->connections : KS_ADMIN_CONNECTIONS) / 2;
    ks_request_options request = *options;
    request.count = capacity + SPARE;
    if (status == KS_OK && http->engine) status = ks_infers_open(&request, &http->infers, error);
    if (status != KS_OK) return status;
    if ((http->plain = ks_plain_open(&http->rules, capacity)) == NULL)
        return ks_fail(error, KS_MEMORY, "no memory for the heads of %d connections", capacity);
    struct MHD_OptionItem none = {MHD_OPTION_END, 0, NULL};
    http->library = start_library(http, capacity, 0, &none);
    http->tls = tls ? start_tls(http, capacity) : NULL;
    if (http->library == NULL || (tls && http->tls == NULL))
        return ks_fail(error, KS_SYSTEM, "libmicrohttpd does not start%s", tls ? " (with TLS)" : "");
    if (!watch_library(http, http->library) || (tls && !watch_library(http, http->tls)) ||
        !ks_turn_watch(http, http->wake_fd, KS_WAKE_KEY))
        return ks_fail(error, KS_SYSTEM, "cannot watch libmicrohttpd's descriptor");
    return KS_OK;
}

ks_status ks_http_open(const ks_http_options *options, ks_http **out, ks_error *error)
{
    ks_http *http = calloc(1, sizeof *http);
    if (http == NULL) return ks_fail(error, KS_MEMORY, "no memory for the HTTP engine");
    http->config = options->request.config;
    http->engine = options->request.engine;
    http->metrics = options->request.metrics;
    http->api = options->api;
    http->token_store = options->tokens;
    http->connections = options->connections;
    http->wake_fd = options->wake_fd;
    http->shard = options->shard;
    http->logs_access = http->config->access_log == KS_ACCESS_LOG_ON;
    http->access = (ks_access_rules){.least_ns = http->config->access_log_min,
                                     .sample = (uint64_t)http->config->access_log_sample};
    http->epoll = -1;
    http->numbers = ks_identity_seed();
    http->now_ns = http->walked_ns = ks_now_ns();
    fill_rules(http);
    ks_status status = open_parts(http, &options->request, options->tls, error);
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
    if (http->tls) MHD_stop_daemon(http->tls);
    if (http->plain) ks_plain_stop(http);
    ks_plain_close(&http->plain);
    ks_infers_close(&http->infers);
    ks_conns_close(&http->conns);
    ks_tokens_release(&http->tokens);
    if (http->epoll >= 0) close(http->epoll);
    free(http);
}
