/* What the planner of scan and its kernels agree on: chains, their tiles, and where the tiles' sums lie.
 *
 * Chain    `columns` neighbouring prefixes that go along the axis together: all of `inner`, or a band of it.
 * Tile     so many steps of a chain: in shared memory, a CTA's or a warp's.
 * Run      `run` steps of one column: a thread's. A warp has 32 / columns runs side by side, each of all columns.
 * Table    (tiles.cuh) of a chain whose tiles are worked on at once: the state of each column behind each tile, each SCAN_RADIX tiles and
 *          each SCAN_RADIX of these. It has tiles + groups(tiles) + groups(groups(tiles)) entries, in this order. */
#ifndef KS_SCAN_SHAPE_CUH
#define KS_SCAN_SHAPE_CUH

#include "cuda/common/launch.cuh"
#include "ops/scan.h"

enum {
    SCAN_THREADS = 256,
    SCAN_WARPS = SCAN_THREADS / 32,
    SCAN_RUN = 15,      /* steps of a run, at most; odd, so that threads' runs begin in different banks */
    SCAN_LONG_RUN = 21, /* where joins cost more than elements: of slots of 8 bytes, which 48 KB hold */
    SCAN_RADIX = 32,
    SCAN_ROW_THREADS = 512, /* rows.cuh: of a CTA at most, of which an SM's registers suffice for so many: */
    SCAN_ROW_CTAS = 2,
    SCAN_ROW_WARPS = SCAN_ROW_THREADS / 32,
    SCAN_ROW_WIDE_THREADS = 256, /* likewise, of slots of 8 bytes */
    SCAN_ROW_WIDE_CTAS = 3,
    SCAN_COLUMN_THREADS = 256,                             /* columns.cuh: likewise */
    SCAN_TILES_MOST = SCAN_RADIX * SCAN_RADIX * SCAN_RADIX /* of a chain in a launch */
};

/* What a functor has to know of integers, and of minima. */
struct scan_rule {
    uint64_t flip; /* of elements as unsigned integers, so that their order is theirs, or the reverse of it */
    uint64_t sign; /* the sign bit of signed integers */
    int32_t bytes; /* of an element */
    bool negated;  /* floats, likewise */
};

/* By value to each kernel. */
struct scan_shape {
    int64_t length, inner; /* as ks_scan_shape has them */
    uint64_t in, out;      /* bytes from a job's sides */
    int64_t chains;
    int32_t bands;         /* chains side by side */
    int32_t columns;       /* of a chain, at most 32 */
    int32_t runs;          /* of a warp */
    int32_t run;           /* steps */
    int32_t group;         /* warps: runs of a chain in a tile */
    int32_t each;          /* warps: chains of a tile */
    int32_t stage_vectors; /* rows: 16 bytes each, of shared memory for a tile */
    int32_t padding;       /* warps: slots between chains, so that they begin in different banks */
    uint32_t inverse;      /* warps: 2^20 over the elements of a chain, rounded up */
    int32_t depth;         /* steps of a tile */
    int32_t tiles;         /* of a chain in this launch */
    int64_t first_tile;    /* of this launch */
    uint64_t from,
        to; /* bytes of the workspace in front of the states that the launch before this one has left, and of this one's */
    bool carries;           /* tiles of a chain at once; else one behind the other */
    uint32_t items;         /* tiles at once: of all chains in this launch */
    bool one_each;          /* as many CTAs as tiles: each draws one, and waits for no second answer of the counter */
    bool begins, continues; /* the first launch; another one follows */
    bool exclusive, reverse;
    scan_rule rule;
};

/* Slots of a warp's tile. */
__host__ __device__ inline int32_t scan_warp_slots(const scan_shape &s)
{
    return 32 * s.run + s.each * s.padding;
}

__host__ __device__ inline int32_t scan_groups(int32_t tiles)
{
    return (tiles + SCAN_RADIX - 1) / SCAN_RADIX;
}

/* Entries of a chain's table. */
__host__ __device__ inline int32_t scan_entries(int32_t tiles)
{
    return tiles + scan_groups(tiles) + scan_groups(scan_groups(tiles));
}

/* Counters of a chain, in words: a flag of 64 bits for each entry, and how many of each group, of each group of groups and of these are done. */
__host__ __device__ inline int64_t scan_words(int32_t tiles)
{
    return 2 * (int64_t)scan_entries(tiles) + scan_entries(tiles) - tiles + 1;
}

/* Counters of a job in front of the chains': the next tile, and the CTAs that have found none. */
enum { SCAN_HEAD_WORDS = 2 };

/* Of a job of rows.cuh, in words: a ticket with what aligns messages, and a message's; and how many slots there are of each CTA's. */
enum { SCAN_MAIL_HEAD = 4, SCAN_MAIL_WORDS = 4, SCAN_MAIL_ROUNDS = 3 };

#endif
