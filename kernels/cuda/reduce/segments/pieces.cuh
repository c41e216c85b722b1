/* Pieces of segments, and how CTAs find them.
 *
 * A segment is cut into pieces of 2^shift elements (columns: lines) from its own start, and how many threads take a piece follows from its
 * length: so its bits do not depend on its neighbours, nor on where it begins. Pieces are joined in a fixed order.
 *
 * Work is found without a pass over the lengths. The first pieces are numbered as their segments. Piece j > 0 of segment s, which begins at b,
 * has slot (b >> shift) + j - 1 of its part: no two have the same, since a segment of n elements moves b >> shift on by n >> shift at least,
 * and has at most as many such pieces. A warp's search in the offsets finds the segment of a slot; of slots there are few, and those that are
 * left out have no work. Of segments with several pieces 2 * (b >> shift) + j is the place of a state in the workspace, and at most one of
 * them begins in a block of 2^shift elements.
 *
 * Offsets that are out of bounds are found by the threads that look at them, lead to no address, and leave a status word. */
#ifndef KS_REDUCE_PIECES_CUH
#define KS_REDUCE_PIECES_CUH

#include "cuda/reduce/take.cuh"

enum {
    REDUCE_SEGMENT_THREADS = 256,
    REDUCE_SEGMENT_WARPS = REDUCE_SEGMENT_THREADS / KS_WARP,
    REDUCE_SEGMENT_ROUND = REDUCE_SEGMENT_THREADS * REDUCE_SEGMENT_OWN, /* first pieces, at most */
    REDUCE_SEGMENT_LEVELS = 4
};

/* A piece of a segment. All along the axis but for result and state. */
struct reduce_piece {
    int64_t begin, whole; /* of the segment: first element, and how many */
    int64_t from;         /* of the piece, from there */
    int64_t result;       /* the segment's number among all of them */
    int64_t state;        /* of a segment with several: the piece's place in the workspace, lines of states; else -1 */
    int64_t part;
    int length; /* -1: there is none */
};

__device__ __forceinline__ reduce_piece reduce_no_piece()
{
    return {0, 0, 0, 0, -1, 0, -1};
}

__device__ __forceinline__ int64_t reduce_segment_offset(const reduce_segments &s, const unsigned char *offsets,
                                                         int64_t i)
{
    const unsigned char *const at = offsets + (i << (s.wide ? 3 : 2)); /* one address, in registers that are few */
    return s.wide ? __ldg((const long long *)at) : (int64_t)__ldg((const int *)at);
}

/* A segment's offsets against each other, and the first of all; of one that an op of nothing cannot take its segment. */
__device__ __forceinline__ void reduce_check_segment(const ks_site &site, const reduce_segments &s, int64_t segment,
                                                     int64_t begin, int64_t end)
{
    if (segment == 0 && begin != 0) ks_refuse(site, KS_REDUCE_SEGMENTS, 0);
    if (end < begin || end > s.extent || (segment + 1 == s.count && end != s.extent))
        ks_refuse(site, KS_REDUCE_SEGMENTS, segment + 1);
    else if (s.needs && end == begin)
        ks_refuse(site, KS_REDUCE_SEGMENTS, s.count + segment + 1);
}

/* The last segment that begins in block `wanted` of 2^shift elements or before it, as far as offsets rise; by a warp whose threads want the same,
 * 32 places at a time. */
__device__ __forceinline__ int64_t reduce_find_segment(const reduce_segments &s, const unsigned char *offsets,
                                                       int64_t wanted)
{
    const int lane_id = (int)threadIdx.x % KS_WARP;
    int64_t low = 0, high = s.count - 1;
    while (low < high) {
        const int64_t step = (high - low + KS_WARP - 1) / KS_WARP, middle = low + (lane_id + 1) * step;
        bool reached = false;
        if (middle <= high) {
            const int64_t at = min(max(reduce_segment_offset(s, offsets, middle), (int64_t)0), s.extent);
            reached = at >> s.shift <= wanted;
        }
        low += __popc(__ballot_sync(0xFFFFFFFFu, reached)) * step;
        high = min(high, low + step - 1);
    }
    return low;
}

/* Of the segment from begin to end, with all of its elements, and the length of its first piece. */
__device__ __forceinline__ reduce_piece reduce_segment_of(const reduce_segments &s, int64_t number, int64_t part,
                                                          int64_t begin, int64_t end)
{
    const int64_t most = (int64_t)1 << s.shift;
    const bool good = begin >= 0 && begin <= end && end <= s.extent;
    reduce_piece p = {begin, good ? end - begin : -1, 0, number, -1, part, -1};
    p.length = (int)min(p.whole, most);
    if (p.whole > most) p.state = part * s.states + 2 * (begin >> s.shift);
    return p;
}

/* Of segment `number` of all parts. */
__device__ __forceinline__ reduce_piece reduce_first_piece(const reduce_segments &s, const unsigned char *offsets,
                                                           int64_t number)
{
    const int64_t part = s.outer == 1 ? 0 : s.of_part.of(number), segment = number - part * s.count;
    return reduce_segment_of(s, number, part, reduce_segment_offset(s, offsets, segment),
                             reduce_segment_offset(s, offsets, segment + 1));
}

/* The piece behind a first one that slot `number` of all parts has, for a warp whose threads want the same. */
__device__ __forceinline__ reduce_piece reduce_later_piece(const reduce_segments &s, const unsigned char *offsets,
                                                           int64_t number)
{
    const int64_t part = s.outer == 1 ? 0 : number / s.slots, slot = number - part * s.slots;
    reduce_piece p = reduce_first_piece(s, offsets, part * s.count + reduce_find_segment(s, offsets, slot));
    const int64_t piece = slot - (p.begin >> s.shift) + 1;
    p.from = piece << s.shift;
    p.length = -1;
    if (p.state < 0 || piece < 1 || p.from >= p.whole) return p;
    p.length = (int)min(p.whole - p.from, (int64_t)1 << s.shift);
    p.state += piece;
    return p;
}

/* --- rounds ---------------------------------------------------------------------------------------------------------- */

/* Of a round's pieces those that threads take together, by their lengths: the longer, the higher the level. */
struct reduce_lists {
    reduce_piece later[REDUCE_SEGMENT_WARPS];
    int counts[REDUCE_SEGMENT_LEVELS];
    uint16_t at[REDUCE_SEGMENT_LEVELS][REDUCE_SEGMENT_ROUND]; /* from the round's first item on */
};

/* Items of a CTA, from `first` on: slots, or first pieces. */
struct reduce_round {
    int64_t first;
    bool later;
    int bound[REDUCE_SEGMENT_LEVELS - 1]; /* elements or lines above which a piece is of the next level */
};

__device__ __forceinline__ void reduce_begin_round(const reduce_segments &s, int64_t i, reduce_round &round,
                                                   reduce_lists &lists)
{
    round.later = i < s.later;
    round.first = round.later ? i * s.later_together : (i - s.later) * s.together;
    if (threadIdx.x < REDUCE_SEGMENT_LEVELS) lists.counts[threadIdx.x] = 0;
    __syncthreads();
}

/* Of what segment or slot an item is: others of its tiles are beside it. */
__device__ __forceinline__ int64_t reduce_item_number(const reduce_segments &s, int64_t item)
{
    return s.tiles == 1 ? item : s.of_tile.of(item);
}

__device__ __forceinline__ void reduce_list_piece(const reduce_round &round, reduce_lists &lists, int length, int at)
{
    int level = 0;
#pragma unroll
    for (int i = 0; i < REDUCE_SEGMENT_LEVELS - 1; i++) level += length > round.bound[i];
    lists.at[level][atomicAdd(&lists.counts[level], 1)] = (uint16_t)at;
}

/* Each of some warps looks for the piece of a slot. */
__device__ __forceinline__ void reduce_list_later(const reduce_segments &s, const unsigned char *offsets,
                                                  const reduce_round &round, reduce_lists &lists)
{
    const int warp = (int)threadIdx.x / KS_WARP;
    if (warp >= s.later_together || round.first + warp >= s.later_items) return;
    const reduce_piece p = reduce_later_piece(s, offsets, reduce_item_number(s, round.first + warp));
    if (threadIdx.x % KS_WARP || p.length < 0) return;
    lists.later[warp] = p;
    reduce_list_piece(round, lists, p.length, warp);
}

/* An item of first pieces: its segment among all and its part, the segment's offsets as they are. */
struct reduce_place {
    int64_t number, part, tile, begin, end;
    bool there;
};

/* Of the round's item `at`; where there is none, of its first one. */
__device__ __forceinline__ reduce_place reduce_place_of(const reduce_segments &s, const unsigned char *offsets,
                                                        const reduce_round &round, int at)
{
    reduce_place p;
    p.there = at < s.together && round.first + at < s.items;
    const int64_t item = p.there ? round.first + at : round.first;
    p.number = reduce_item_number(s, item);
    p.tile = item - p.number * s.tiles;
    p.part = s.outer == 1 ? 0 : s.of_part.of(p.number);
    p.begin = reduce_segment_offset(s, offsets, p.number - p.part * s.count);
    p.end = reduce_segment_offset(s, offsets, p.number - p.part * s.count + 1);
    return p;
}

/* The item's piece. */
__device__ __forceinline__ reduce_piece reduce_listed_piece(const reduce_segments &s, const unsigned char *offsets,
                                                            const reduce_round &round, const reduce_lists &lists,
                                                            int at)
{
    if (round.later) return lists.later[at];
    return reduce_first_piece(s, offsets, reduce_item_number(s, round.first + at));
}

#endif
