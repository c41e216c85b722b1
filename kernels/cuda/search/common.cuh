/* What search's kernels share: the shape, scores as items, and the ring that rows of the matrix come through.
 *
 * Item     a score's key above the complement of its row, as in topk: all of a query differ, the larger one comes first, 0 is none. A key
 *          orders as the answer does; NaN has 0, so -0 must be +0 before. */
#ifndef KS_SEARCH_COMMON_CUH
#define KS_SEARCH_COMMON_CUH

#include "cuda/common/launch.cuh"
#include "cuda/common/ptx_mma.cuh"
#include "cuda/common/warp.cuh"
#include "ops/search/search.h"

enum {
    SEARCH_THREADS_MOST = 256,
    SEARCH_ROWS = 32,   /* of the matrix that a warp takes at a time */
    SEARCH_CHUNK = 128, /* bytes of each that come together */
    SEARCH_STAGE = SEARCH_ROWS * SEARCH_CHUNK,
    SEARCH_PAD = 16, /* bytes behind a query in shared memory: neighbours lie in other banks */
    SEARCH_MERGE_THREADS = 256,
    SEARCH_MERGE_SLACK = 1024,    /* items kept before they are pruned, where k is small */
    SEARCH_SHARING_PARTS = 256,   /* at most, that share thresholds */
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

/* By value to each kernel. Offsets are bytes from a job's sides. */
struct search_shape {
    int64_t queries, rows, depth; /* as ks_search_shape has them */
    int64_t query_pitch, pitch;
    uint64_t query, matrix, bias, mask, scores, indices;
    int64_t part;         /* rows of a part */
    int32_t parts, group; /* parts of the matrix; queries that share a pass over it */
    int32_t chunks;       /* of a row */
    int32_t places;       /* items of a query in a CTA */
    int32_t k;
    int32_t own_rank, shared_rank; /* search_share; 0: parts share nothing */
    ks_search_metric metric;
    bool biased, masked, aligned; /* aligned: rows start on 16 bytes, and hold zeros to the next of them */
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

/* --- the ring -------------------------------------------------------------------------------------------------------- */

/* A warp's own: STAGES chunks of SEARCH_ROWS rows. Vector v of row r lies in place v ^ r % 8 of the row's, so that threads that read one
 * vector of eight rows meet no bank twice. T: an element. */
template <class T, int STAGES>
struct search_ring {
    static constexpr int EACH = SEARCH_STAGE / 16 / KS_WARP;
    static constexpr int VECTOR = 16 / (int)sizeof(T), LENGTH = SEARCH_CHUNK / (int)sizeof(T);
    static constexpr int ROW_STEP = KS_WARP / (SEARCH_CHUNK / 16);

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
    /* Plain loads: rows that start anywhere. */
    __device__ __forceinline__ void copy_elements(unsigned char *to, const T *from, int left) const
    {
        alignas(16) T vector[VECTOR];
#pragma unroll
        for (int e = 0; e < VECTOR; e++) vector[e] = e < left ? from[e] : T(0.0f);
        *(uint4 *)to = *(const uint4 *)vector;
    }
    /* Asks for the next chunk; behind the end of the part for nothing. */
    __device__ __forceinline__ void ask()
    {
        const int lane_id = threadIdx.x % KS_WARP, vector = lane_id % (SEARCH_CHUNK / 16);
        const int first = lane_id / (SEARCH_CHUNK / 16);
        if (row < end) {
            unsigned char *const stage = stages + put * SEARCH_STAGE;
            const int64_t element = (int64_t)chunk * LENGTH + vector * VECTOR;
            const T *from = matrix + (row + first) * s.pitch + element;
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const int r = first + i * ROW_STEP;
                unsigned char *const to = stage + r * SEARCH_CHUNK + (vector ^ r % 8) * 16;
                const bool inside = row + r < end && element < s.depth;
                if (s.aligned)
                    mm_copy_async(mm_shared_address(to), inside ? from : matrix, inside);
                else
                    copy_elements(to, from, inside ? (int)min((int64_t)VECTOR, s.depth - element) : 0);
                from += ROW_STEP * s.pitch;
            }
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
#pragma unroll
        for (int i = 0; i < STAGES - 1; i++) ask();
    }
    /* The next chunk is there; the one before has been read. */
    __device__ __forceinline__ const unsigned char *take()
    {
        mm_copy_wait<STAGES - 2>();
        __syncwarp();
        ask();
        const unsigned char *const stage = stages + taken * SEARCH_STAGE;
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
