/* HTTP, the only room that knows libmicrohttpd: routes, gate, chunks in, responses out. One ks_http per shard (with an engine)
 * and one for the second listener (without). Its functions belong to the thread that runs its turns. */
#ifndef KS_HTTP_H
#define KS_HTTP_H
#include "api/view.h"
#include "base/tokens.h"
#include "http/addresses.h"
#include "request/infer.h"

enum { KS_ADMIN_CONNECTIONS = 64 }; /* of the second listener */

typedef struct ks_http ks_http;

/* An accepted connection on its way to a table. */
typedef struct ks_arrival {
    int fd;
    bool loopback;
    bool tls;
    bool replaces;       /* all places are taken: another connection gives way for it */
    bool is_peer;        /* a worker's, and not a client's, */
    uint32_t change;     /* about that change (observe/workers/ballot.h); 0: none */
    ks_address *address; /* its client's, or NULL; given back with the connection */
} ks_arrival;

/* What a reader of HTTP needs. All that it points to outlives it. */
typedef struct ks_http_options {
    ks_request_options
        request; /* engine NULL: the second listener (metrics, health, status only); count: set by ks_http_open */
    ks_api_view *api;
    ks_token_store *tokens;      /* SIGHUP may replace them: followed for each request */
    ks_connections *connections; /* those open are counted there; any thread */
    int wake_fd;                 /* written to end an epoll wait */
    int shard;                   /* whose reader it is; -1: the second listener's */
    bool tls;                    /* connections with TLS may come; ks_tls_publish_take has their certificate */
} ks_http_options;

ks_status ks_http_open(const ks_http_options *options, ks_http **out, ks_error *error);
void ks_http_close(ks_http **http); /* after drain: no request suspended */
/* Takes an accepted socket; closes it where it cannot. */
void ks_http_add(ks_http *http, const ks_arrival *arrival);
/* Closes up to n connections that rest, for others; returns how many. They are gone, or will be in the next turn. */
int ks_http_make_room(ks_http *http, int n);
int ks_http_room_most(const ks_http *http);  /* that it may be asked for in a turn */
bool ks_http_has_place(const ks_http *http); /* for one more */
/* Which of its connections would give way, as ks_eviction_rank; any thread. */
int64_t ks_http_yields(const ks_http *http);
/* One turn: waits at most timeout_ns (less while something is unfinished; 0: polls), reads, answers. true: something happened. */
bool ks_http_turn(ks_http *http, int64_t timeout_ns);
/* Responses of finished jobs (a list by ->next) are queued and sent. */
void ks_http_resume(ks_http *http, ks_job *done);
void ks_http_drain(ks_http *http);                  /* from now on: 503 draining, Connection: close */
void ks_http_fail(ks_http *http, ks_status status); /* whatever is suspended or waiting is answered with status */
int ks_http_in_flight(const ks_http *http);         /* requests begun and not completed */
int ks_http_connections(const ks_http *http);
#endif
