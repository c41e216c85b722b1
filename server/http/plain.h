/* What plain.c (a request from its head to its response) and plain_io.c (bytes that take more than one look, or more than
 * one call) share. Nothing outside of these includes it. */
#ifndef KS_HTTP_PLAIN_H
#define KS_HTTP_PLAIN_H
#include "http/chunked.h"
#include "http/http_parts.h"

/* A head that is recognised costs 200 instructions in place of 6 for each of its bytes. Of 2 KiB, where a token and tracing fields fit,
 * the kept ones take 2.0 KiB of a connection's resident 8.2 more than those of 1 KiB would. */
enum {
    KS_HEAD_KEPT = 2048,                        /* a head up to that length is recognised when it comes again */
    KS_WHOLE_MAX = KS_HEAD_KEPT + 16384 + 2048, /* of a request that is taken up in the look at its head */
    KS_HEAD_SPARE = 1024, /* method, version, white space: what a head may have beside its target and its fields */
    KS_CHUNK_MIN = 16 << 10,
    KS_CHUNK_MAX = 512 << 10, /* of a body: stays in a core's own cache until it has been copied to its place */
    KS_SEND_MAX = 512 << 10,  /* of a response, in one call */
    KS_CHUNK_MAX_LATENCY_MODE = 128 << 10, /* of either, beside small requests */
    KS_CONTINUE = 25                       /* bytes of 100 Continue */
};

/* One connection's memory. */
typedef struct ks_plain_conn {
    size_t kept;                                    /* length of the head that lies in the next two; 0: none */
    char head[KS_HEAD_KEPT], strings[KS_HEAD_KEPT]; /* as it came; cut into strings */
    char *long_head; /* a longer one, cut into strings, until its request is over, or a part of one; NULL: none */
    size_t
        part; /* bytes of a head that has no end yet, taken from the socket: in head, or in long_head; kept is 0 then */
    size_t looks;       /* at parts of a head that were left in the socket */
    size_t part_room;   /* of long_head then */
    size_t head_length; /* of the request, in the socket: with empty lines in front of it, without the part */
    size_t head_left;   /* how much of that lies there yet */
    size_t unread;      /* bytes of the request, head and body, to be taken from the socket yet; SIZE_MAX: not known */
    bool whole;         /* all of the request lies in the socket until its response has left */
    unsigned interim;   /* bytes of 100 Continue that are to be sent yet */
    ks_chunked chunks;  /* the framing of its body, where it is chunked */
    size_t chunk;       /* how much of a body is looked at at once */
    /* the response: */
    char response_head[KS_CONTINUE +
                       KS_RESPONSE_HEAD_MAX];       /* behind the rest of 100 Continue, where a part of it has left */
    char *long_response_head;                       /* one that has no room there; NULL: none */
    size_t response_head_length, body_length, sent; /* sent: of both */
    const char *body;                               /* NULL: the source's */
    char *owned;                                    /* the same, to be freed */
    ks_response_source source;                      /* whose bytes it has: ended when they have left */
    bool last;                                      /* the connection ends with it */
    bool client_ends;                               /* the client asked for that, and sends nothing more */
    /* the line of those that have bytes to move: */
    bool io_queued;
    ks_conn *next;
} ks_plain_conn;

struct ks_plain {
    ks_plain_conn *conns; /* by the connection's index */
    ks_conn *first, *last;
    size_t head_most; /* that a head may have */
    size_t look_most; /* that is looked at to find one: at least that, and KS_WHOLE_MAX */
    char peeked[2 * KS_HEAD_KEPT + KS_CHUNK_MAX + 1];
};

static inline ks_plain_conn *ks_plain_conn_of(const ks_conn *conn)
{
    return &conn->http->plain->conns[conn->index];
}

/* --- plain.c --- */

void ks_plain_end_body(ks_http *http, ks_conn *conn);
/* The response has left, or never will. */
void ks_plain_finish(ks_http *http, ks_conn *conn, bool delivered);
void ks_plain_hang_up(ks_http *http, ks_conn *conn);
/* Until ks_infers_woken names the connection: the time does not count as the client's. */
void ks_plain_pause(ks_conn *conn);
/* Responds although more of the request is to come, and ends the connection then. */
void ks_plain_cut(ks_http *http, ks_conn *conn);

/* --- plain_io.c --- */

/* Whether what it does next is to move bytes. */
bool ks_io_is_next(const ks_conn *conn);
/* Its bytes may be moved: in this turn, or in one of the next. */
void ks_io_queue_join(ks_http *http, ks_conn *conn);
void ks_io_queue_leave(ks_http *http, ks_conn *conn);

/* Behind the last response: what still comes is dropped until the client ends, or a second has passed. To close with bytes unread,
 * or in front of bytes that are still to come, would take the response back: a client that has not asked for the end may have sent
 * its next request meanwhile. */
void ks_io_linger(ks_http *http, ks_conn *conn);

typedef enum ks_move {
    KS_MOVED,
    KS_STUCK, /* until an event */
    KS_OVER   /* the connection has no more of these, or has ended */
} ks_move;

/* Puts the rest of a 100 Continue of which a part has been sent there, in front of which nothing may come. Returns its length. */
size_t ks_io_interim_rest(ks_plain_conn *t, char out[KS_CONTINUE]);
/* Of a response. */
ks_move ks_io_send(ks_http *http, ks_conn *conn);

/* More of its next request is to come, of which something is there. */
void ks_io_wait_for_head(const ks_http *http, ks_conn *conn);
/* Of one of several workers: whether the n bytes of a part of a head stay in the socket, as they do of a head in few pieces, which may be
 * another worker's. */
bool ks_io_leave_part(const ks_http *http, ks_conn *conn, size_t n);

/* n bytes that are known to be there, from looking at them, however few a call gives. flags: MSG_TRUNC throws them away. False: the
 * connection is to end. */
bool ks_io_take(int fd, char *to, size_t n, int flags);
#endif
