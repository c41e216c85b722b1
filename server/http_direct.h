/* What http_direct.c (a request from its head to its answer) and http_pieces.c (bytes that take more than one look, or more than
 * one call) share. Nothing outside of these includes it. */
#ifndef KS_HTTP_DIRECT_H
#define KS_HTTP_DIRECT_H
#include <time.h>

#include "http_parts.h"

enum {
    KS_HEAD_MOST = 1024,
    KS_WHOLE_MOST = KS_HEAD_MOST + 16384 + 2048, /* of a request that is taken up in the look at its head */
    KS_PIECE_LEAST = 16 << 10,
    KS_PIECE_MOST = 512 << 10,  /* of a body: stays in a core's own cache until it has been copied to its place */
    KS_SEND_MOST = 512 << 10,   /* of an answer, in one call */
    KS_BESIDE_MOST = 128 << 10, /* of either, beside small requests */
    KS_REPLY_MOST = 2048
};

/* One connection's memory. */
typedef struct ks_talk {
    size_t head_length;                           /* of the last request; 0: none that was read */
    char head[KS_HEAD_MOST], words[KS_HEAD_MOST]; /* as it came; cut into strings */
    bool whole;                                   /* all of the request lies in the socket until its answer has left */
    size_t unread;                                /* bytes of the request, to be taken from the socket yet */
    size_t piece;                                 /* how much of a body is looked at at once */
    /* the answer: */
    char reply[KS_REPLY_MOST];
    size_t reply_length, body_length, sent; /* sent: of both */
    const char *body;                       /* of a fault's */
    char *owned;                            /* the same, to be freed */
    ks_infer *infer;                        /* whose answer it is, to be told when it has been sent; NULL: a fault's */
    bool last;                              /* the connection ends with it */
    /* the line of those that have bytes to move: */
    bool lined;
    ks_conn *next;
} ks_talk;

struct ks_direct {
    ks_talk *talks; /* by the connection's index */
    time_t dated;
    char date[40];
    ks_conn *first, *last;
    char peeked[KS_HEAD_MOST + KS_PIECE_MOST + 1];
};

static inline ks_talk *ks_talk_of(const ks_conn *conn)
{
    return &conn->http->direct->talks[conn->index];
}

/* --- http_direct.c --- */

void ks_direct_end_body(ks_http *http, ks_conn *conn);
/* The answer has left, or never will. */
void ks_direct_finish(ks_http *http, ks_conn *conn, bool delivered);
void ks_direct_hang_up(ks_http *http, ks_conn *conn);
/* Until ks_infers_woken names the connection: the time does not count as the client's. */
void ks_direct_pause(ks_conn *conn);

/* --- http_pieces.c --- */

/* Whether what it does next is to move bytes. */
bool ks_pieces_are_next(const ks_conn *conn);
/* Its bytes may be moved: in this turn, or in one of the next. */
void ks_pieces_join(ks_http *http, ks_conn *conn);
void ks_pieces_leave(ks_http *http, ks_conn *conn);

typedef enum ks_move {
    KS_MOVED,
    KS_STUCK, /* until an event */
    KS_OVER   /* the connection has no more of these, or has ended */
} ks_move;

/* Of an answer. */
ks_move ks_pieces_send(ks_http *http, ks_conn *conn);
#endif
