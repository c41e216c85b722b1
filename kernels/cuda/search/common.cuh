/* What search's kernels share: the shape, scores as items, and the ring that rows of the matrix come through.
 *
 * Passes   where a threshold pays, the first rows of each part leave all their items, and the k-th best of these is the threshold of the
 *          rows behind them. A matrix of few rows has first rows only.
 * Item     a score's key above the complement of its row, as in topk: all of a query differ, the larger one comes first, 0 is none. A key
 *          orders as the answer does; NaN has 0, so -0 must be +0 before. */
#ifndef KS_SEARCH_COMMON_CUH
#define KS_SEARCH_COMMON_CUH

#include "cuda/common/cut.cuh"
#include "cuda/common/launch.cuh"
#include "cuda/common/ptx_mma.cuh"
#include "cuda/common/warp.cuh"
#include "ops/search/search.h"

enum {
    SEARCH_THREADS_MOST = 256,
    SEARCH_ROWS = 32,   /* of the matrix that a warp takes at a time */
    SEARCH_CHUNK = 128, /* bytes of each that come together */
    SEARCH_STAGE = SEARCH_ROWS * SEARCH_CHUNK,
    SEARCH_BEHIND = SEARCH_ROWS * 16, /* of a stage: the vector behind each chunk, of rows that start anywhere */
    SEARCH_PAD = 16,                  /* bytes behind a query in shared memory: neighbours lie in other banks */
    SEARCH_MERGE_THREADS = 512,
    SEARCH_MERGE_SLACK = 1024,    /* items kept before they are pruned, where k is small */
    SEARCH_STATIC_BYTES = 4 << 10 /* of shared memory, at least what a kernel and the system have besides */
};

/* Of a ring whose warp multiplies with so many queries. */
constexpr int search_stages(bool floats, int queries)
{
    return queries > (floats ? 4 : 16) ? 3 : 6;
}

/* Items that a merge keeps before it prunes them. */
constexpr int search_merge_slack(int k)
{
    return k * 3 / 2 > SEARCH_MERGE_SLACK ? k * 3 / 2 : SEARCH_MERGE_SLACK;
}

/* Of a warp's ring, a stage's. */
__host__ __device__ __forceinline__ int search_stage_bytes(bool aligned)
{
    return aligned ? (int)SEARCH_STAGE : (int)SEARCH_STAGE + (int)SEARCH_BEHIND;
}

/* By value to each kernel. Offsets are bytes from a job's sides, or from the workspace. */
struct search_shape {
    int64_t queries, rows, depth; /* as ks_search_shape has them */
    int64_t query_pitch, pitch;
    uint64_t query, matrix, bias, mask, scores, indices;
    int64_t part;         /* rows of a part */
    int64_t first;        /* of them, from the part's first one on, that leave all their items; 0: none */
    int64_t left;         /* items of a query that parts leave, and before them the k best of the first rows */
    uint64_t firsts;      /* in the workspace: items of the first rows, `first` of each part of each query; */
    uint64_t bounds;      /* their k-th best item, of each query; */
    uint64_t counts;      /* how many items are left */
    int32_t parts, group; /* parts of the matrix; queries that share a pass over it */
    int32_t chunks;       /* of a row */
    int32_t places;       /* items of a query in a CTA */
    int32_t k, leave;     /* leave: items of a query that a part leaves, at most */
    ks_search_metric metric;
    bool biased, masked, aligned; /* aligned: rows start on 16 bytes, and hold zeros to the next of them */
    bool leaves_all;              /* the launch takes the first rows, */
    bool bounded;                 /* or those behind them, and finds thresholds */
};

/* --- items ----------------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ uint64_t search_item(float score, int64_t row)
{
    const uint32_t bits = __float_as_uint(score);
    const uint32_t key = score != score ? 0 : bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
    return (uint64_t)key << 32 | (uint32_t) ~(uint32_t)row;
}

__device__ __forceinline__ float search_score(uint64_t item)
{
    const uint32_t key = (uint32_t)(item >> 32);
    return __uint_as_float(key == 0 ? 0x7FC00000u : key >> 31 ? key ^ 0x80000000u : ~key);
}

/* --- a query in shared memory ---------------------------------------------------------------------------------------- */

/* Bytes from one to the next: whole chunks, zeros behind the last element. */
__host__ __device__ __forceinline__ int64_t search_query_bytes(int64_t chunks)
{
    return chunks * SEARCH_CHUNK + SEARCH_PAD;
}

/* --- vectors of rows that start anywhere ------------------------------------------------------------------------------ */

/* The vector's first bytes, an even number, and zeros behind them. */
__device__ __forceinline__ uint4 search_cut(uint4 vector, int64_t bytes)
{
    uint32_t w[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (bytes < 4 * i + 4) w[i] = bytes == 4 * i + 2 ? w[i] & 0xFFFF : 0;
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/* --- the ring -------------------------------------------------------------------------------------------------------- */

/* A warp's own: STAGES chunks of SEARCH_ROWS rows. Vector v of row r lies in place v ^ r % 8 of the row's, so that threads that read one
 * vector of eight rows meet no bank twice. T: an element.
 *
 * Rows that start anywhere come as the vectors that their bytes lie in, nine of a chunk, and are moved to where they belong when they have
 * come: copies of 16 bytes are under way all the same. */
template <class T, int STAGES>
struct search_ring {
    static constexpr int EACH = SEARCH_STAGE / 16 / KS_WARP, VECTORS = SEARCH_CHUNK / 16;
    static constexpr int VECTOR = 16 / (int)sizeof(T), LENGTH = SEARCH_CHUNK / (int)sizeof(T);
    static constexpr int ROW_STEP = KS_WARP / VECTORS;

    const search_shape &s;
    const T *matrix;
    unsigned char *stages;
    int64_t end;        /* of the part, in rows */
    int64_t row;        /* the first one of the chunk that is asked for next, */
    int32_t chunk;      /* and which of the row's */
    int32_t row_step;   /* rows from one of the warp's turns to the next */
    int32_t put, taken; /* stages */

    __device__ __forceinline__ search_ring(const search_shape &shape, const T *from, unsigned char *memory)
        : s(shape), matrix(from), stages(memory), put(0), taken(0)
    {
    }
    __device__ __forceinline__ static unsigned char *place(unsigned char *stage, int r, int vector)
    {
        return stage + r * SEARCH_CHUNK + (vector ^ r % 8) * 16;
    }
    /* The vectors behind the chunks of a stage. */
    __device__ __forceinline__ unsigned char *behind(int stage) const
    {
        return stages + STAGES * SEARCH_STAGE + stage * SEARCH_BEHIND;
    }
    /* A vector of those that a row's bytes lie in, `at` bytes behind the first; the row begins at byte `begin`. */
    __device__ __forceinline__ void copy_around(unsigned char *to, int64_t begin, int64_t at, bool is_row) const
    {
        const int64_t vector = (begin & ~(int64_t)15) + at;
        const bool inside = is_row && vector < begin + s.depth * (int64_t)sizeof(T);
        mm_copy_async(mm_shared_address(to), (const unsigned char *)matrix + (inside ? vector : 0), inside);
    }
    __device__ __forceinline__ void ask_anywhere(unsigned char *stage)
    {
        const int lane_id = threadIdx.x % KS_WARP, vector = lane_id % VECTORS, first = lane_id / VECTORS;
        const int64_t pitch = s.pitch * (int64_t)sizeof(T), at = (int64_t)chunk * SEARCH_CHUNK;
        int64_t begin = (row + first) * pitch;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int r = first + i * ROW_STEP;
            copy_around(place(stage, r, vector), begin, at + vector * 16, row + r < end);
            begin += ROW_STEP * pitch;
        }
        copy_around(behind(put) + lane_id * 16, (row + lane_id) * pitch, at + SEARCH_CHUNK, row + lane_id < end);
    }
    __device__ __forceinline__ void ask_aligned(unsigned char *stage)
    {
        const int lane_id = threadIdx.x % KS_WARP, vector = lane_id % VECTORS, first = lane_id / VECTORS;
        const int64_t element = (int64_t)chunk * LENGTH + vector * VECTOR;
        const T *from = matrix + (row + first) * s.pitch + element;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int r = first + i * ROW_STEP;
            const bool inside = row + r < end && element < s.depth;
            mm_copy_async(mm_shared_address(place(stage, r, vector)), inside ? from : matrix, inside);
            from += ROW_STEP * s.pitch;
        }
    }
    /* Asks for the next chunk; behind the end of the part for nothing. */
    __device__ __forceinline__ void ask()
    {
        if (row < end) {
            if (s.aligned)
                ask_aligned(stages + put * SEARCH_STAGE);
            else
                ask_anywhere(stages + put * SEARCH_STAGE);
            if (++chunk == s.chunks) {
                chunk = 0;
                row += row_step;
            }
        }
        mm_copy_commit();
        put = put + 1 == STAGES ? 0 : put + 1;
    }
    __device__ __forceinline__ void begin(int64_t first, int64_t last, int step)
    {
        row = first;
        end = last;
        chunk = 0;
        row_step = step;
#pragma unroll 1
        for (int i = 0; i < STAGES - 1; i++) ask();
    }
    /* Moves a stage's rows, of which the first one is given, to where vectors belong; behind the rows' ends come zeros. */
    __device__ __forceinline__ void align(unsigned char *stage, const unsigned char *next, int64_t of,
                                          int64_t bytes) const
    {
        const int lane_id = threadIdx.x % KS_WARP, vector = lane_id % VECTORS, first = lane_id / VECTORS;
        const unsigned pitch = (unsigned)(s.pitch * (int64_t)sizeof(T)) & 15;
        uint4 v[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int r = first + i * ROW_STEP;
            const uint4 low = *(const uint4 *)place(stage, r, vector);
            const uint4 high =
                *(const uint4 *)(vector + 1 == VECTORS ? next + r * 16 : place(stage, r, (vector + 1) % VECTORS));
            v[i] = ks_cut<(int)sizeof(T)>(low, high, ((unsigned)of + r) * pitch & 15);
            if (bytes < SEARCH_CHUNK) v[i] = search_cut(v[i], bytes - vector * 16);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < EACH; i++) *(uint4 *)place(stage, first + i * ROW_STEP, vector) = v[i];
        __syncwarp();
    }
    /* The next chunk is there, which is that one of those rows; the one before has been read. */
    __device__ __forceinline__ const unsigned char *take(int64_t of, int which)
    {
        mm_copy_wait<STAGES - 2>();
        __syncwarp();
        ask();
        unsigned char *const stage = stages + taken * SEARCH_STAGE;
        if (!s.aligned) align(stage, behind(taken), of, s.depth * (int64_t)sizeof(T) - (int64_t)which * SEARCH_CHUNK);
        taken = taken + 1 == STAGES ? 0 : taken + 1;
        return stage;
    }
    /* Nothing is under way any more. */
    __device__ __forceinline__ void finish()
    {
        mm_copy_wait<0>();
        __syncwarp();
        put = taken = 0;
    }
};

#endif
