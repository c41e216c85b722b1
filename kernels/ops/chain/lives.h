/* Memory that a program's steps write, or write in parts: when it is in use, and where in the arena it lies then. */
#ifndef KS_OPS_LIVES_H
#define KS_OPS_LIVES_H
#include "kernserve/chain.h"

typedef struct ks_life {
    size_t bytes, offset; /* offset: in the arena, or in the whole */
    int first, last;      /* steps; last: that reads it */
    int output;           /* of the chain, whose memory it is; -1: the arena's, or the whole's */
    int whole;            /* the life, with a higher number, of which it is a part; -1: none */
} ks_life;

/* Sets the offsets of those that lie in the arena; *arena_bytes: all that they take. KS_MEMORY. */
ks_status ks_lives_place(ks_life *life, int lives, size_t *arena_bytes, ks_error *error);
#endif
