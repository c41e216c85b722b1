/* What the files of this room share: http.c (the library's side), http_direct.c and http_pieces.c (plain requests
 * past the library), http_request.c (one request, as far as it needs no library) and http_turn.c (the loop around all of them). Nothing outside
 * of these includes it. */
#ifndef KS_HTTP_PARTS_H
#define KS_HTTP_PARTS_H
#include <sys/epoll.h>

#include "conns.h"
#include "http.h"

enum { KS_EVENTS = 128 }; /* taken from the outer epoll at once */

#define KS_LIBRARY_KEY UINT64_MAX
#define KS_WAKE_KEY (UINT64_MAX - 1)

struct MHD_Daemon;
typedef struct ks_direct ks_direct;

struct ks_http {
    ks_daemon *daemon;
    ks_engine *engine; /* NULL: the second listener */
    ks_shard_metrics *metrics;
    ks_infers *infers;
    struct MHD_Daemon *library;
    int epoll, wake_fd;
    ks_conns conns;
    ks_gate_rules rules;
    ks_tokens *tokens;      /* what rules.tokens points to: this reader's reference */
    uint64_t numbers;       /* for request ids */
    int64_t now_ns;         /* the last look at the clock in this turn */
    int64_t moves_until_ns; /* bytes of large requests move in this turn until then */
    int64_t small_ns;       /* when a small request was over for the last time */
    int64_t walked_ns;
    int in_flight;
    int going_on;    /* connections whose piece of a body is taken up again in the next turn */
    bool unfinished; /* the library has something to do without a new event */
    bool draining;
    ks_direct *direct;  /* NULL: the library has every connection */
    bool direct_waits;  /* a connection of it has something to do without a new event */
    int lined;          /* connections of it that have bytes to move */
    ks_status refusing; /* KS_OK, or what every new inference request gets */
    struct epoll_event events[KS_EVENTS];
};

/* --- http_request.c --- */

/* Fields of an answer; names and values are others' memory, but for the number. */
typedef struct ks_fields {
    int count;
    struct {
        const char *name, *value;
    } at[8];
    char number[24];
} ks_fields;

/* The first byte of a request has come. */
void ks_request_open(ks_http *http, ks_conn *conn);
/* Its target, raw and terminated. */
void ks_request_target(const ks_http *http, ks_conn *conn, const char *target);

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
/* The fields of an answer, those of a fault's, and those that both have. */
void ks_request_answer_fields(const ks_answer *answer, const char *timing, ks_fields *fields);
void ks_request_fault_fields(const ks_conn *conn, ks_fields *fields);
void ks_request_common_fields(const ks_conn *conn, bool last, ks_fields *fields);
/* The request is over; delivered: its answer has been handed to the kernel. */
void ks_request_end(ks_http *http, ks_conn *conn, bool delivered);

/* --- http_turn.c --- */

bool ks_turn_watch(ks_http *http, int fd, uint64_t key);
/* Whether small requests came lately, which would wait behind what a turn moves of large ones. */
bool ks_turn_has_company(const ks_http *http);

/* --- http_direct.c --- */

ks_direct *ks_direct_open(int capacity); /* NULL: no memory */
void ks_direct_close(ks_direct **direct);
void ks_direct_take(ks_http *http, ks_conn *conn); /* a new connection */
/* Of a direct connection: */
void ks_direct_event(ks_http *http, ks_conn *conn, uint32_t events);
void ks_direct_go(ks_http *http, ks_conn *conn); /* its work is done, or has room now */
void ks_direct_walk(ks_http *http, ks_conn *conn);
/* Of all of them: what was left for this turn; requests that were aborted are answered; all are closed. */
void ks_direct_turn(ks_http *http);
void ks_direct_fail(ks_http *http);
void ks_direct_stop(ks_http *http);

/* --- http_pieces.c --- */

/* Moves bytes of large requests, for a while. */
void ks_pieces_turn(ks_http *http);

/* --- http.c, for the others --- */

/* From now on the connection is the library's, or closed. */
void ks_library_take(ks_http *http, ks_conn *conn);
const char *ks_library_reason(int code);
/* The connection's descriptor is closed, or about to be. */
void ks_http_forget(ks_http *http, ks_conn *conn);

void ks_library_run(ks_http *http);
int64_t ks_library_wait_ns(const ks_http *http); /* until it wants to run without an event; INT64_MAX: never */
void ks_library_resume(ks_conn *conn);           /* if it is suspended or paused */
#endif
