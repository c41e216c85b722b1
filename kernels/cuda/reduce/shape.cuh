/* What reduce.cu and its kernels agree on: a reduction with its neighbouring axes merged, how its work is cut, and how a
 * kernel finds its elements. */
#ifndef KS_REDUCE_SHAPE_CUH
#define KS_REDUCE_SHAPE_CUH

#include "cuda/common/divide.cuh"
#include "cuda/common/launch.cuh"
#include "ops/reduce.h"

/* Words: the counters of a row that is cut are a ticket, in the place of a message, and a message of each part. */
enum { REDUCE_MESSAGE = 4 };

/* Vectors of a thread that has all of them in flight. */
enum { REDUCE_ONCE_LOADS = 4 };

/* Vectors of a thread of in_vector, in flight at once. */
enum { REDUCE_IN_VECTOR_LOADS = 4 };

/* First pieces of segments that a thread looks at side by side; pieces of lines, whose elements lie apart. */
enum { REDUCE_SEGMENT_OWN = 4, REDUCE_SEGMENT_OWN_LINES = 2 };

/* Planes whose places a CTA works out at a time. */
enum { REDUCE_PLANES_AHEAD = 128 };

/* Parts that a CTA joins before the last one of all joins what it left; parts for each group of threads that are joined all at once. */
enum { REDUCE_JOIN = 16, REDUCE_JOIN_MOST = 32 };

/* Kept and reduced axes take turns once neighbours are merged, so either sort has at most this many. */
enum { REDUCE_AXES = KS_RANK_MAX / 2 };

/* multiplier, shift: n / extent == (n * multiplier >> 64) >> shift for n below 2^63; multiplier 0: extent is 1. */
typedef struct reduce_axis {
    int64_t extent, stride;
    uint64_t multiplier;
    int shift;
} reduce_axis;

/* Outermost first; never empty. */
typedef struct reduce_list {
    int count;
    reduce_axis at[REDUCE_AXES];
} reduce_list;

/* By value as a kernel's second argument; lengths, strides and offsets in elements where nothing else is said. What the
 * fields mean to each kernel stands in its file: rows.cuh, slab.cuh, columns.cuh, planes.cuh,
 * bands.cuh. */
typedef struct reduce_shape {
    size_t offset;          /* of the input in its side, bytes */
    int64_t results, depth; /* products of the extents kept and reduced */
    int64_t inner;          /* results side by side in memory */
    int64_t vectors;        /* rows of whole vectors: of a row; else 0 */
    int64_t share;          /* of an item: vectors of a row, or steps along the axis */
    uint32_t items;         /* pieces of work: CTAs (rows: groups of threads) take one after the other */
    uint32_t parts;         /* items of a result (a tile of results); more than one: the last one joins them */
    int width, rows;        /* threads side by side, and groups of them in a CTA */
    uint32_t tiles;         /* bands, and columns off the vectors: of a line of `inner`; else 0 */
    uint32_t slots;         /* runs: vectors set aside for each; bands: those of a result */
    int64_t steps;          /* bands: along the list; planes: the planes of a line */
    int64_t plane;          /* planes: elements of one */
    int classes;            /* planes: so many on, a plane is shifted against the vectors as before */
    reduce_list kept, reduced;
} reduce_shape;

/* Of memory's 32-bit words: an element of 8 bytes takes both, smaller ones repeat in each. */
typedef struct reduce_words {
    uint32_t even, odd;
} reduce_words;

/* What the op's functor is given. */
typedef struct reduce_rule {
    reduce_words
        flip;    /* exclusive-or for each element, so that the wanted order is that of floats or unsigned integers */
    double bias; /* of integers as numbers: what the flip of a sign bit has added */
    uint64_t excess; /* the bias of all elements of a result */
    double count;
    bool mean;
} reduce_rule;

/* What the functors of sums.cuh and moments.cuh are given besides. */
typedef struct reduce_extra {
    double ddof, power;
    bool root, all; /* std is the root of var; all, not any */
} reduce_extra;

/* By value as a second argument of the kernels of segments/segments.cuh. */
typedef struct reduce_segments {
    size_t offset, offsets; /* of x and the offsets in their side, bytes */
    int64_t outer, extent, inner, count;
    int64_t slots, states,
        blocks; /* of a part: places of pieces behind a first one, lines of states in the workspace, blocks of 2^shift elements */
    int64_t tiles;                              /* of a line: of `width` columns */
    int64_t items;                              /* segments or blocks of all parts, times tiles; */
    int64_t later_items;                        /* slots, likewise */
    int64_t rounds, later;                      /* that CTAs go through: of slots the first `later` */
    ks_divider of_part, of_tile;                /* by count; by tiles */
    int shift, width, together, later_together; /* together: items that a CTA takes in one go */
    bool wide, needs, joins; /* offsets are INT64; no segment may be empty; pieces are joined by a launch of its own */
} reduce_segments;

enum {
    REDUCE_ROWS,
    REDUCE_RUNS,
    REDUCE_SLAB,
    REDUCE_COLUMNS,
    REDUCE_ELEMENTS,
    REDUCE_BANDS,
    REDUCE_ONCE,
    REDUCE_PLANES,
    REDUCE_IN_VECTOR,
    REDUCE_SEGMENT_ROWS,
    REDUCE_SEGMENT_COLUMNS
};

/* What a plan remembers. */
typedef struct reduce_algorithm {
    int64_t share;
    uint32_t grid, parts;
    int16_t kernel, threads, width;
    int32_t shared_bytes;
} reduce_algorithm;
static_assert(sizeof(reduce_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

/* Steps of a band whose places a CTA works out at a time: rounds of 8 of each group of threads. */
__host__ __device__ inline int reduce_band_steps(int rows)
{
    return 8 * rows * (rows < 64 ? 64 / rows : 1);
}

/* Counters of a result (a tile of results) whose parts are joined by reduce_last(), at most: of all, and of each REDUCE_JOIN parts. */
__host__ __device__ inline uint32_t reduce_join_counters(uint32_t parts)
{
    return parts > REDUCE_JOIN_MOST ? 1 + (parts + REDUCE_JOIN - 1) / REDUCE_JOIN : 1;
}

/* All that a launch needs; the launchers of each datatype stand in files of their own, which build side by side. */
typedef struct reduce_launch {
    reduce_shape shape;
    reduce_segments segments, joined; /* of the launch that reads x, and of the one behind it */
    uint32_t joined_grid;
    reduce_algorithm algorithm;
    reduce_rule rule;
    reduce_extra extra;
    ks_site site;
    int op, bucket; /* op: as ks_reduce_function has it */
    ks_dtype dtype;
    cudaStream_t stream;
} reduce_launch;

cudaError_t reduce_launch_float(const reduce_launch &l);
cudaError_t reduce_launch_half(const reduce_launch &l);
cudaError_t reduce_launch_bfloat16(const reduce_launch &l);
cudaError_t reduce_launch_double(const reduce_launch &l);
cudaError_t reduce_launch_integer(const reduce_launch &l, size_t element_bytes);
/* Of every datatype. */
cudaError_t reduce_launch_moments(const reduce_launch &l);
cudaError_t reduce_launch_norms(const reduce_launch &l);
cudaError_t reduce_launch_counts(const reduce_launch &l);

#ifdef __CUDACC__

__device__ __forceinline__ int64_t reduce_quotient(int64_t n, const reduce_axis &axis)
{
    return axis.multiplier ? (int64_t)(__umul64hi((uint64_t)n, axis.multiplier) >> axis.shift) : n;
}

/* Of the n-th combination. */
__device__ __forceinline__ int64_t reduce_offset(const reduce_list &list, int64_t n)
{
    int64_t offset = 0;
    for (int i = list.count - 1; i > 0; i--) {
        const int64_t rest = reduce_quotient(n, list.at[i]);
        offset += (n - rest * list.at[i].extent) * list.at[i].stride;
        n = rest;
    }
    return offset + n * list.at[0].stride;
}

#endif
#endif
