/* The matrix once past a group of queries: each CTA takes a part of its rows, and leaves the best k of it for each query in the
 * workspace. No score is written to memory.
 *
 * Shapes   groups of up to SUMS::QUERIES queries, which lie in shared memory; rows of the matrix come by rings of their warps'.
 * Threads  whole warps, up to SEARCH_THREADS_MOST.
 * Memory   dynamic: s.places items for each query, a ring for each warp, the group's queries.
 * Bits     a score follows from its query and row alone (SUMS), and the order is total. */
#ifndef KS_SEARCH_STREAM_CUH
#define KS_SEARCH_STREAM_CUH

#include "cuda/search/select.cuh"

/* Elements of a group's queries, zeros behind each, by the vectors that their bytes lie in: several loads of a thread are under way at a
 * time. from: the group's first query. */
__device__ __forceinline__ void search_load_queries(const search_shape &s, const unsigned char *from, int size,
                                                    int queries, unsigned char *to)
{
    const uint32_t vectors = (uint32_t)s.chunks * (SEARCH_CHUNK / 16), all = queries * vectors;
    const int64_t bytes = s.depth * size, pitch = s.query_pitch * size;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < all; i += blockDim.x) {
        const uint32_t query = i / vectors, v = i - query * vectors;
        const unsigned char *const begin = from + query * pitch, *const end = begin + bytes;
        const unsigned by = (unsigned)(uintptr_t)begin & 15;
        const unsigned char *const low = begin - by + v * 16;
        const uint4 none = make_uint4(0, 0, 0, 0);
        const uint4 vector = ks_cut<2>(low < end ? *(const uint4 *)low : none,
                                       by && low + 16 < end ? *(const uint4 *)(low + 16) : none, by);
        *(uint4 *)(to + query * search_query_bytes(s.chunks) + v * 16) = search_cut(vector, bytes - v * 16);
    }
}

/* Their norms, each by a warp. */
template <class T>
__device__ __forceinline__ void search_find_norms(const search_shape &s, search_state &state, int queries,
                                                  const unsigned char *from)
{
    const int lane_id = threadIdx.x % KS_WARP, warps = blockDim.x / KS_WARP;
    for (int q = threadIdx.x / KS_WARP; q < queries; q += warps) {
        const T *const query = (const T *)(from + q * search_query_bytes(s.chunks));
        float square = 0;
        for (int64_t i = lane_id; i < s.depth; i += KS_WARP) {
            const float x = ks_math(query[i]);
            square = fmaf(x, x, square);
        }
#pragma unroll
        for (int distance = 1; distance < KS_WARP; distance *= 2) square += ks_shuffle(square, distance);
        if (lane_id == 0) state.norm[q] = s.metric != KS_SEARCH_COSINE ? square : square == 0 ? 0 : 1 / sqrtf(square);
    }
}

/* A warp's 32 rows, from `row` on, with all queries. */
template <class SUMS>
__device__ __forceinline__ void search_add_rows(const search_shape &s,
                                                search_ring<typename SUMS::element, SUMS::STAGES> &ring, int64_t row,
                                                const unsigned char *queries, int count, SUMS &sums)
{
    constexpr int LENGTH = SEARCH_CHUNK / (int)sizeof(typename SUMS::element),
                  STEP = 32 / (int)sizeof(typename SUMS::element);
    const int64_t bytes = search_query_bytes(s.chunks);
#pragma unroll 1
    for (int c = 0; c < s.chunks; c++) {
        const int64_t left = s.depth - (int64_t)c * LENGTH;
        const unsigned char *const stage = ring.take(row, c);
        sums.add(stage, queries + (int64_t)c * SEARCH_CHUNK, bytes, count,
                 left >= LENGTH ? LENGTH / STEP : ((int)left + STEP - 1) / STEP);
    }
    sums.end();
}

/* A group's pass over a part: its first query. */
struct search_pass {
    unsigned char *workspace;
    int64_t first, part;
};

/* The best of a part for each query of a group, in its places of the workspace, or behind what others have left. */
__device__ __forceinline__ void search_leave_best(const search_shape &s, const search_state &state,
                                                  const uint64_t *items, int queries, search_pass pass)
{
    unsigned char *const workspace = pass.workspace;
    const int warps = blockDim.x / KS_WARP, lane_id = threadIdx.x % KS_WARP;
    for (int q = threadIdx.x / KS_WARP; q < queries; q += warps) {
        const uint32_t found = state.count[q], places = s.bounded ? found : (uint32_t)s.leave;
        uint64_t *to = (uint64_t *)workspace + (pass.first + q) * s.left + pass.part * s.leave;
        if (s.bounded) {
            uint32_t at = 0;
            if (lane_id == 0) at = atomicAdd((uint32_t *)(workspace + s.counts) + pass.first + q, found);
            to = (uint64_t *)workspace + (pass.first + q) * s.left + __shfl_sync(0xFFFFFFFFu, at, 0);
        }
        for (uint32_t j = lane_id; j < places; j += KS_WARP) to[j] = j < found ? items[(int64_t)q * s.places + j] : 0;
    }
}

template <class SUMS>
__global__ void __launch_bounds__(SEARCH_THREADS_MOST, 1)
    search_stream(ks_site site, const __grid_constant__ search_shape s)
{
    typedef typename SUMS::element T;
    __shared__ search_state state;
    const int warp = threadIdx.x / KS_WARP, warps = blockDim.x / KS_WARP, tile = warps * SEARCH_ROWS;
    const int ring_bytes = SUMS::STAGES * search_stage_bytes(s.aligned);
    ks_job_sides job;
    if (!(s.bounded ? ks_enter_again(site, &job) : ks_enter(site, &job))) return;
    unsigned char *const workspace = ks_workspace(site);
    const uint64_t *const bounds = s.bounded ? (const uint64_t *)(workspace + s.bounds) : NULL;
    uint64_t *const items = (uint64_t *)ks_dynamic;
    unsigned char *const rings = (unsigned char *)(items + (int64_t)s.group * s.places);
    unsigned char *const queries = rings + warps * ring_bytes;
    search_ring<T, SUMS::STAGES> ring(s, (const T *)(job.in + s.matrix), rings + warp * ring_bytes);
    const int64_t groups = (s.queries + s.group - 1) / s.group;
#pragma unroll 1
    for (int64_t at = blockIdx.x; at < groups * s.parts; at += gridDim.x) {
        const int64_t part = at / groups, first = (at - part * groups) * s.group;
        const int64_t begin = part * s.part + (s.bounded ? s.first : 0);
        const int64_t last = part * s.part + (s.leaves_all ? s.first : s.part), end = min(last, s.rows);
        const int count = (int)min((int64_t)s.group, s.queries - first);
        __syncthreads(); /* what was there of the group before has been read */
        ring.begin(begin + warp * SEARCH_ROWS, end, tile);
        search_open(state, count, bounds ? bounds + first : NULL);
        search_load_queries(s, job.in + s.query + first * s.query_pitch * (int64_t)sizeof(T), (int)sizeof(T), count,
                            queries);
        __syncthreads();
        if (s.metric != KS_SEARCH_DOT) search_find_norms<T>(s, state, count, queries);
        __syncthreads();
#pragma unroll 1
        for (int64_t row = begin + warp * SEARCH_ROWS;; row += tile) {
            if (s.leaves_all && row >= last) break;
            SUMS sums;
            sums.clear();
            if (row < end) search_add_rows(s, ring, row, queries, count, sums);
            const search_scores<SUMS> scores(sums, s, state, job, row, end);
            if (s.leaves_all)
                scores.leave((uint64_t *)(workspace + s.firsts) + (first * s.parts + part) * s.first, count,
                             row - begin);
            else if (search_keep(scores, state, items, count, row < end))
                break;
        }
        ring.finish();
        if (s.leaves_all) continue;
        search_drop_all(s, state, items, count, (uint32_t)s.k + 1);
        search_leave_best(s, state, items, count, {workspace, first, part});
    }
}

#endif
