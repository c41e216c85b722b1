/* What the files of this folder share: large.c (memory, waiting, turns), row_blocks.c (rows) and ring.c (pieces).
 * Nothing outside of these includes it. */
#ifndef KS_LARGE_PARTS_H
#define KS_LARGE_PARTS_H
#include "engine/engine_core.h"
#include "large/memory_rate.h"
#include "large/large.h"

enum {
    KS_RING_PIECES = 6,
    KS_RING_PIECE_BYTES = 2 << 20 /* some 40 us on the link, 400 us of a socket, three or four calls of the driver */
};

typedef enum ks_piece_state {
    KS_PIECE_FREE,
    KS_PIECE_FILLING,
    KS_PIECE_GOING,  /* to the device */
    KS_PIECE_COMING, /* from it */
    KS_PIECE_READY
} ks_piece_state;

typedef struct ks_piece {
    ks_piece_state state;
    ks_stream *owner; /* but of a free one */
    size_t offset, bytes;
    int64_t touched_ns;
    ks_turn_clock still; /* of a copy under way */
    bool read;           /* in part */
} ks_piece;

struct ks_streams {
    ks_engine *engine;
    const ks_large *large; /* NULL: areas are overflow slots, and there is no ring */
    ks_ring *ring;
    unsigned char *memory;
    size_t largest; /* side of the largest slot class */
    int64_t now_ns;
    ks_stream *first, *last; /* all that are not shut, in order of arrival */
    int waiting, open;
    size_t waiting_bytes; /* that those who wait want */
    ks_memory_rate rate;
    int paused[KS_PAUSES], leaving, under_way;
    ks_stream *events;
    ks_piece pieces[KS_RING_PIECES];
};

static inline bool ks_stream_has_area(const ks_stream *stream)
{
    return stream->area.memory != NULL;
}

/* --- large.c --- */

/* The next turn names it. */
void ks_stream_happen(ks_stream *stream);
void ks_stream_pause_at(ks_stream *stream, ks_stream_pause pause);
/* The first fault counts; returns status. */
ks_status ks_stream_fail(ks_stream *stream, const ks_error *error, ks_status status);

/* --- row_blocks.c --- */

/* Sizes, blocks and their plan. */
ks_status ks_stream_plan(ks_stream *stream, const ks_spec *spec, ks_error *error);
/* So many bytes of the in side are there, or on their way in front of any launch. */
void ks_stream_came(ks_stream *stream, size_t offset, size_t bytes);

/* --- ring.c --- */

/* As ks_stream_write, to an area. */
ks_status ks_ring_write(ks_stream *stream, size_t offset, const char *bytes, size_t n, size_t *taken);
void ks_ring_finish(ks_stream *stream); /* sends what has been written so far */
void ks_ring_look(ks_streams *streams); /* at the copies under way */
bool ks_ring_serves(ks_stream *stream); /* what it is paused for is there now: room, or data */
void ks_ring_leave(ks_stream *stream);  /* its pieces but for those under way are free */
#endif
