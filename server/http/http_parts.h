/* What the files of this folder share: request.c (the sequence of a request), plain.c and plain_io.c (the plain
 * transport), mhd.c (the library's) and turn.c (the loop around all of them). Nothing outside of this folder includes it. */
#ifndef KS_HTTP_PARTS_H
#define KS_HTTP_PARTS_H
#include <sys/epoll.h>

#include "http/conns.h"
#include "http/http.h"
#include "http/transport.h"
#include "observe/access_log.h"

enum { KS_EVENTS = 128 }; /* taken from the outer epoll at once */

#define KS_LIBRARY_KEY UINT64_MAX
#define KS_WAKE_KEY (UINT64_MAX - 1)

struct MHD_Daemon;
typedef struct ks_plain ks_plain;

struct ks_http {
    const ks_config *config;
    ks_engine *engine; /* NULL: the second listener */
    ks_shard_metrics *metrics;
    ks_api_view *api;
    ks_token_store *token_store;
    ks_connections *connections; /* of the daemon, as the listener counts them */
    ks_infers *infers;
    struct MHD_Daemon *library;
    struct MHD_Daemon *tls; /* the library's, for connections with TLS; NULL: there are none */
    int epoll, wake_fd;
    ks_conns conns;
    ks_check_rules rules;
    ks_tokens *tokens; /* what rules.tokens points to: this reader's reference */
    uint64_t numbers;  /* for request ids */
    int shard;         /* -1: the second listener */
    bool logs_access;
    ks_access_rules access;
    int64_t now_ns;         /* the last look at the clock in this turn */
    int64_t moves_until_ns; /* bytes of large requests move in this turn until then */
    int64_t small_ns;       /* when a small request was over for the last time */
    int64_t walked_ns;
    int64_t
        waited_ns; /* ks_thread_waited_ns at the last walk beside bodies or responses under way; 0: there were none */
    int in_flight;
    int loading;     /* requests that wait for the thread that loads models, or for other workers */
    int voting;      /* of these, those that look again soon: nothing wakes them */
    int going_on;    /* connections whose chunk of a body is taken up again in the next turn */
    bool unfinished; /* the library has something to do without a new event */
    bool resumed;    /* and a connection that was resumed since its last run */
    bool draining;
    ks_plain *plain;
    ks_date date;
    bool plain_waits;   /* a connection of it has something to do without a new event */
    int io_queued;      /* connections of it that have bytes to move */
    ks_status refusing; /* KS_OK, or what every new inference request gets */
    struct epoll_event events[KS_EVENTS];
};

/* --- request.c: the sequence; transports call it in this order --- */

typedef enum ks_next {
    KS_NEXT_BODY,   /* the body is wanted */
    KS_NEXT_DROP,   /* refused: the body is read, and dropped by ks_request_body */
    KS_NEXT_RESPOND /* refused: now, if the body has not come yet */
} ks_next;

/* The first byte of a request has come. */
void ks_request_open(ks_http *http, ks_conn *conn);
/* Its target, raw and terminated. */
void ks_request_target(const ks_http *http, ks_conn *conn, const char *target);
/* conn->head is complete. read: KS_OK, or what is wrong with its form, for which conn->error has the words. */
ks_next ks_request_head(ks_http *http, ks_conn *conn, ks_status read);
/* Bytes of the body. Returns how many of them were taken: the rest comes again. Where it sets conn->cut, the transport's cut
 * is next. */
size_t ks_request_body(ks_http *http, ks_conn *conn, const char *bytes, size_t n);
/* Of a body without a length: n more bytes of it will come at least. Where that is too much whatever they are, the response is due now:
 * sets conn->cut. */
void ks_request_announce(const ks_http *http, ks_conn *conn, uint64_t n);
/* Amid a body: where this host has no room or no time for the request any more and much is still to come, the response is
 * due now: sets conn->cut. */
void ks_request_check(ks_conn *conn);
/* The body is complete. false: again in the next turn. */
bool ks_request_end(ks_http *http, ks_conn *conn);
/* Behind its end it may wait without an event for it: for the thread that loads models, other workers. */
bool ks_request_is_loading(const ks_conn *conn);
/* Behind its end: whether there is something to respond. */
bool ks_request_done(const ks_conn *conn);
/* Of a request that is done: makes the response, and the transport sends it. false: more of it in the next turn. */
bool ks_request_respond(ks_http *http, ks_conn *conn);
/* The response of a request's fault, counted; false: none can be made, or the client has gone. */
bool ks_request_make_fault(ks_http *http, const ks_conn *conn, ks_response *response);
/* Of bytes that ks_request_body did not take: not before ks_infers_woken names the connection. */
bool ks_request_waits(const ks_conn *conn);
/* Its work ends with this fault, unless it has one; the response follows. */
void ks_request_abort(ks_conn *conn, ks_status status, const char *sentence);
/* The request is over; delivered: its response has been handed to the kernel. */
void ks_request_sent(ks_http *http, ks_conn *conn, bool delivered);

/* --- turn.c --- */

bool ks_turn_watch(ks_http *http, int fd, uint64_t key);
/* Whether small requests came lately, which would wait behind what a turn moves of large ones. */
bool ks_turn_in_latency_mode(const ks_http *http);

/* --- plain.c --- */

ks_plain *ks_plain_open(const ks_check_rules *rules, int capacity); /* NULL: no memory */
void ks_plain_close(ks_plain **plain);
void ks_plain_take(ks_http *http, ks_conn *conn); /* a new connection */
/* One whose last response has left, and whose descriptor is about to be closed: it lingers by another one. false: there is none. */
bool ks_plain_linger(ks_http *http, ks_conn *conn);
static inline bool ks_conn_is_plain(const ks_conn *conn)
{
    return conn->transport == &ks_plain_transport;
}
void ks_plain_walk(ks_http *http, ks_conn *conn); /* of a plain connection */
/* Of all of them: what was left for this turn; requests that were aborted are answered; all are closed. */
void ks_plain_turn(ks_http *http);
void ks_plain_fail(ks_http *http);
void ks_plain_stop(ks_http *http);

/* --- plain_io.c --- */

/* Moves bytes of large requests, for a while. */
void ks_io_queue_turn(ks_http *http);

/* --- mhd.c, for the others --- */

/* From now on the connection is the library's, or closed. Its next request's head has been checked; nothing of it has been taken
 * from the socket. */
void ks_library_take(ks_http *http, ks_conn *conn);
/* The connection's descriptor is closed, or about to be. */
void ks_http_forget(ks_http *http, ks_conn *conn);

void ks_library_run(ks_http *http);
int64_t ks_library_wait_ns(const ks_http *http); /* until it wants to run without an event; INT64_MAX: never */
void ks_library_resume(ks_conn *conn);           /* if it is suspended or paused */

/* Whether the library is given each request that it may be given, not only those that need it: for tests, which put another
 * reader.c in the place of ours. */
extern const bool ks_http_prefers_library;

/* --- routing.c --- */

/* What is wrong with the parts of an absolute target, behind ks_request_target: KS_REQUEST_LINE. */
ks_status ks_request_absolute(ks_conn *conn);
/* Of an absolute target: its authority takes Host's place. The same errors. */
ks_status ks_take_authority(ks_conn *conn);
bool ks_is_connect(const ks_conn *conn);
ks_status ks_find_route(const ks_http *http, ks_conn *conn);
/* Behind the check of access, with what ks_find_route has said. */
ks_status ks_find_own_route(const ks_http *http, ks_conn *conn, ks_status found);
/* The row of the other worker whose request it is: by device=N, or by the tensors that it names. Its head has been read and is still in the
 * socket, as are n bytes of its body. -1: it is this one's; KS_WORKER_LATER: more of the body is to come, which has the names. */
enum { KS_WORKER_LATER = -2 };
int ks_find_worker(ks_http *http, ks_conn *conn, const char *body, size_t n);
/* Of a fault: a tensor that came to another worker amid the request is KS_UNAVAILABLE, not KS_PLACED. */
void ks_check_place(ks_conn *conn);
bool ks_is_one_of_several(const ks_http *http); /* workers */
/* The daemon ends, or this worker (of which the fault of a request may be the first sign), whose clients another one serves: a response is the
 * last one of its connection. */
bool ks_is_leaving(const ks_http *http, ks_status fault);
/* Of one of several: all of them are to make the change that the request asks this one for. */
bool ks_is_change_of_all(const ks_http *http, const ks_conn *conn);
/* What several workers refuse: what would change one of them alone (KS_UNSUPPORTED), and a device that is not this one's. device=N leaves the
 * query of an inference. */
ks_status ks_check_worker(const ks_http *http, ks_conn *conn);
#endif
