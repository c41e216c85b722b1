/* What the files of this room share: http.c (the library's side), http_request.c (one request, as far as it needs no
 * library) and http_turn.c (the loop around all of them). Nothing outside of these includes it. */
#ifndef KS_HTTP_PARTS_H
#define KS_HTTP_PARTS_H
#include <sys/epoll.h>

#include "conns.h"
#include "http.h"

enum { KS_EVENTS = 128 }; /* taken from the outer epoll at once */

#define KS_LIBRARY_KEY UINT64_MAX
#define KS_WAKE_KEY (UINT64_MAX - 1)

struct MHD_Daemon;

struct ks_http {
    ks_daemon *daemon;
    ks_engine *engine; /* NULL: the second listener */
    ks_shard_metrics *metrics;
    ks_infers *infers;
    struct MHD_Daemon *library;
    int epoll, wake_fd;
    ks_conns conns;
    ks_gate_rules rules;
    uint64_t numbers; /* for request ids */
    int64_t now_ns;   /* the last look at the clock in this turn */
    int64_t walked_ns;
    int in_flight;
    int going_on;    /* connections whose piece of a body is taken up again in the next turn */
    bool unfinished; /* the library has something to do without a new event */
    bool draining;
    ks_status refusing; /* KS_OK, or what every new inference request gets */
    struct epoll_event events[KS_EVENTS];
};

/* --- http_request.c --- */

/* The head is complete: the route, or why it is refused. */
ks_status ks_request_judge(ks_http *http, ks_conn *conn, const char *method);
/* Makes ready for the body of an inference or a control request. */
ks_status ks_request_begin(ks_http *http, ks_conn *conn);
/* Whether a refusal is sent before the body has come, which ends the connection. */
bool ks_request_refuses_early(const ks_http *http, const ks_conn *conn);
/* Whether its answer is the last one of the connection. */
bool ks_request_is_last(const ks_http *http, const ks_conn *conn);
/* A piece of the body. Returns how much of it was taken. */
size_t ks_request_take(ks_http *http, ks_conn *conn, const char *bytes, size_t n);
/* Amid a body: where this host has no room or no time for the request any more and much is still to come, the client is
 * told now. */
void ks_request_check(ks_http *http, ks_conn *conn);
/* Answers past the library, which takes no answer amid a body. */
void ks_request_cut(ks_http *http, ks_conn *conn);
/* The request is over; delivered: the library handed its answer to the kernel. */
void ks_request_count(ks_http *http, ks_conn *conn, bool delivered);

/* --- http_turn.c --- */

bool ks_turn_watch(ks_http *http, int fd, uint64_t key);

/* --- http.c, for the others --- */

void ks_library_run(ks_http *http);
int64_t ks_library_wait_ns(const ks_http *http); /* until it wants to run without an event; INT64_MAX: never */
void ks_library_resume(ks_conn *conn);           /* if it is suspended or paused */
#endif
