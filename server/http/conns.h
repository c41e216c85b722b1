/* The connections of one ks_http: a fixed table, what state each is in and since when, which client has gone, which is late.
 * Knows sockets, not libmicrohttpd.
 *
 * A descriptor's number is used again as soon as it is closed, within one batch of events even; so an event carries the
 * connection's index and generation, and one of a former life is dropped.
 * Threads  the loop's own, but for the count of open ones, which anyone may read. */
#ifndef KS_CONNS_H
#define KS_CONNS_H
#include <assert.h>
#include <stdatomic.h>

#include "http/addresses.h"
#include "api/compat.h"
#include "api/control.h"
#include "base/head.h"
#include "http/http.h"
#include "http/log/socket_name.h"
#include "request/infer.h"
#include "api/changes/change.h"
#include "api/routes.h"
#include "api/models/models.h"
#include "api/tensors/tensors.h"

struct MHD_Connection;
struct ks_transport;

typedef enum ks_conn_state {
    KS_AT_IDLE, /* nothing of a request known */
    KS_AT_HEAD, /* the request line has come */
    KS_AT_BODY, /* the head has been checked */
    KS_AT_WAIT, /* the body is complete, the work is not */
    KS_AT_SEND, /* the response is queued */
    KS_AT_CUT   /* answered; what still comes of the request is dropped */
} ks_conn_state;

enum { KS_CONN_MAGIC = 0x6b73636e };

typedef struct ks_conn {
    uint32_t magic, index, generation;
    int fd;
    ks_http *http;
    const struct ks_transport *transport; /* moves its bytes; NULL: none does yet */
    struct MHD_Connection *mhd;           /* NULL: not known to the library */
    bool loopback, half_closed, gone, suspended;
    bool tls;        /* the library's from the first byte to the last */
    bool is_peer;    /* another worker asks, or this one's thread of changes, */
    uint32_t change; /* about that change; 0: none */
    bool more;       /* see plain.c: its socket is to be read again */
    bool goes_on;    /* a chunk of its body was taken in part, and comes again */
    bool queued;     /* the library has its response */
    bool cut;        /* its fault is to be sent although more of the request is still to come */
    bool lingers;    /* the library's: what comes behind its last response is to be dropped for a while */
    ks_conn_state state;
    int64_t since_ns;  /* in this state */
    int64_t paused_ns; /* since when a large request waits for us amid its body or response; 0: it does not */
    int64_t fin_ns;    /* when the end of what the client sends was seen; 0: not yet */
    int64_t probed_ns; /* the last ks_conn_probe that wrote */
    int64_t requests;
    int active_at; /* place in the table of open ones */
    ks_address *address;
    /* eviction.c: */
    struct ks_conn *older, *newer; /* in the list of connections that rest */
    struct ks_rest *rest;          /* which one; NULL: none */
    int64_t rests_ns;              /* since when it rests: since it was accepted, or its last request was over */
    int64_t begun_ns;              /* when a look found a part of its next request; 0: none since it rests */
    struct ks_conn *next_free;
    /* the request: */
    int64_t first_ns;
    char *target;          /* raw; max_uri + 1 bytes; of an absolute one: the path, then the authority */
    size_t target_length;  /* as sent */
    const char *authority; /* of an absolute target; else NULL */
    ks_head head;
    bool routed; /* route is that of method and target, as it is now */
    ks_route route;
    bool places_seen; /* it stores no output, and its names of tensors were all looked at: no two workers have them */
    uint64_t models_epoch;      /* of the models that route knows */
    const ks_model *used_model; /* that the request has counted its use of; NULL: none */
    ks_method method;
    bool counted; /* in flight */
    ks_identity identity;
    ks_infer *infer;
    ks_compat_job *compat;   /* the body of a request to a compatibility model */
    ks_tensor_call *tensors; /* a request of /v2/tensors */
    ks_model_call *models;   /* a request that loads, unloads or reads a model */
    ks_change_call *changes; /* in the place of both: one that all workers make */
    ks_control *control;     /* the words of a control request, while they come */
    ks_status fault;
    ks_error error;
    uint64_t received, response_bytes;
    uint64_t chunks; /* of a chunked body */
    int code;
    const char *tls_version; /* static; NULL: no TLS, or no request yet */
    /* where there is an access log: */
    char remote[KS_SOCKET_NAME_MAX];    /* of its client; "": not known */
    char bearer[KS_TOKEN_NAME_MAX + 1]; /* the name of the request's token, or "" */
} ks_conn;

/* The one place where a connection's state changes, but for ks_conns_take. A response of a fault may come before the head is there. */
static inline void ks_conn_enter(ks_conn *conn, ks_conn_state next)
{
    static const unsigned nexts[] = {
        [KS_AT_IDLE] = 1u << KS_AT_IDLE | 1u << KS_AT_HEAD | 1u << KS_AT_SEND | 1u << KS_AT_CUT,
        [KS_AT_HEAD] = 1u << KS_AT_IDLE | 1u << KS_AT_HEAD | 1u << KS_AT_BODY | 1u << KS_AT_SEND,
        [KS_AT_BODY] = 1u << KS_AT_IDLE | 1u << KS_AT_WAIT | 1u << KS_AT_SEND | 1u << KS_AT_CUT,
        [KS_AT_WAIT] = 1u << KS_AT_IDLE | 1u << KS_AT_SEND,
        [KS_AT_SEND] = 1u << KS_AT_IDLE,
        [KS_AT_CUT] = 1u << KS_AT_IDLE};
    assert(nexts[conn->state] >> next & 1);
    conn->state = next;
}

/* Connections that may rest, those that have rested longest first. One may be amid a request as well: it is put to the end
 * when that is over, and is dropped from the list by a look that comes before. */
typedef struct ks_rest {
    ks_conn *first, *last;
    int count;
} ks_rest;

typedef struct ks_conns {
    int capacity, active_count;
    int address_share; /* connections of one address, above which it gives way first */
    ks_rest fresh;     /* of which no request has been over */
    ks_rest kept;
    ks_conn *all, *free;
    ks_conn **active;
    int half_count;
    ks_conn **half; /* half-closed ones; may name ones that have ended since */
    char *targets;
    int epoll;
    _Atomic int open;
    _Atomic int64_t yields; /* ks_eviction_rank */
} ks_conns;

ks_status ks_conns_open(ks_conns *conns, int capacity, size_t max_uri, int epoll, ks_error *error);
void ks_conns_close(ks_conns *conns);
/* NULL: table full. The descriptor is watched for its peer's leaving. */
ks_conn *ks_conns_take(ks_conns *conns, const ks_arrival *arrival, int64_t now_ns);
void ks_conns_give(ks_conns *conns, ks_conn *conn);
/* Else than for its peer's leaving. */
bool ks_conns_watch(const ks_conns *conns, const ks_conn *conn, uint32_t events);
/* To another descriptor of its socket, which is watched from now on: the socket outlives the first one. false: it is not watched. */
bool ks_conns_move(const ks_conns *conns, ks_conn *conn, int fd, uint32_t events);
ks_conn *ks_conns_by_fd(ks_conns *conns, int fd); /* the newest first; NULL: none */
uint64_t ks_conns_key(const ks_conn *conn);
ks_conn *ks_conns_by_key(ks_conns *conns, uint64_t key); /* NULL: it has ended */
/* EPOLLRDHUP, EPOLLHUP or EPOLLERR came. */
void ks_conns_hang_up(ks_conns *conns, ks_conn *conn, bool gone);
/* The end of what the client sends has been seen. */
void ks_conn_fin(ks_conn *conn, int64_t now_ns);
/* Finds out whether a client that has ended its side, and whose request waits, still reads. An event brings the result. */
void ks_conn_probe(ks_conn *conn, const ks_config *config, int64_t now_ns);
/* Makes the library look at half-closed connections again: an edge that came with data is lost to it. */
void ks_conns_nudge(ks_conns *conns);

/* Its body is one of any size, for memory of tensors: its rate alone says whether it is late. */
bool ks_conn_uploads(const ks_conn *conn);
/* A connection is late: what to do. */
typedef enum ks_late { KS_IN_TIME, KS_LATE_CLOSE, KS_LATE_RESPOND } ks_late;
ks_late ks_conn_late(const ks_conn *conn, const ks_config *config, int64_t now_ns);
#endif
