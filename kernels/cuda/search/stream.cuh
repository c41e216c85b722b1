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

/* Elements of a group's queries, zeros behind each; several loads of a thread are under way at a time. */
template <class T>
__device__ __forceinline__ void search_load_queries(const search_shape &s, const T *from, int queries,
                                                    unsigned char *to)
{
    const uint32_t places = (uint32_t)s.chunks * (SEARCH_CHUNK / (uint32_t)sizeof(T)), all = queries * places;
    const int64_t bytes = search_query_bytes(s.chunks);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < all; i += blockDim.x) {
        const uint32_t query = i / places, element = i - query * places;
        ((T *)(to + query * bytes))[element] = element < s.depth ? from[query * s.query_pitch + element] : T(0.0f);
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

/* A warp's 32 rows with all queries. */
template <class SUMS>
__device__ __forceinline__ void search_add_rows(const search_shape &s,
                                                search_ring<typename SUMS::element, SUMS::STAGES> &ring,
                                                const unsigned char *queries, int count, SUMS &sums)
{
    constexpr int LENGTH = SEARCH_CHUNK / (int)sizeof(typename SUMS::element),
                  STEP = 32 / (int)sizeof(typename SUMS::element);
    const int64_t bytes = search_query_bytes(s.chunks);
#pragma unroll 1
    for (int c = 0; c < s.chunks; c++) {
        const int64_t left = s.depth - (int64_t)c * LENGTH;
        const unsigned char *const stage = ring.take();
        sums.add(stage, queries + (int64_t)c * SEARCH_CHUNK, bytes, count,
                 left >= LENGTH ? LENGTH / STEP : ((int)left + STEP - 1) / STEP);
    }
    sums.end();
}

template <class SUMS>
__global__ void __launch_bounds__(SEARCH_THREADS_MOST, 1)
    search_stream(ks_site site, const __grid_constant__ search_shape s)
{
    typedef typename SUMS::element T;
    __shared__ search_state state;
    const int warp = threadIdx.x / KS_WARP, warps = blockDim.x / KS_WARP, tile = warps * SEARCH_ROWS;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    uint64_t *const items = (uint64_t *)ks_dynamic;
    unsigned char *const rings = (unsigned char *)(items + (int64_t)s.group * s.places);
    unsigned char *const queries = rings + warps * SUMS::STAGES * SEARCH_STAGE;
    search_ring<T, SUMS::STAGES> ring(s, (const T *)(job.in + s.matrix), rings + warp * SUMS::STAGES * SEARCH_STAGE);
    const int64_t groups = (s.queries + s.group - 1) / s.group;
#pragma unroll 1
    for (int64_t at = blockIdx.x; at < groups * s.parts; at += gridDim.x) {
        const int64_t part = at / groups, first = (at - part * groups) * s.group;
        const int64_t begin = part * s.part, end = min(begin + s.part, s.rows);
        const int count = (int)min((int64_t)s.group, s.queries - first);
        __syncthreads(); /* what was there of the group before has been read */
        ring.begin(begin + warp * SEARCH_ROWS, end, tile);
        search_open(state, count);
        search_load_queries(s, (const T *)(job.in + s.query) + first * s.query_pitch, count, queries);
        __syncthreads();
        if (s.metric != KS_SEARCH_DOT) search_find_norms<T>(s, state, count, queries);
        __syncthreads();
        int64_t share = tile; /* behind so many rows, then four times as many */
#pragma unroll 1
        for (int64_t row = begin; row < end; row += tile) {
            const int64_t mine = row + warp * SEARCH_ROWS;
            SUMS sums;
            sums.clear();
            if (mine < end) search_add_rows(s, ring, queries, count, sums);
            const search_scores<SUMS> scores(sums, s, state, job, mine, end);
            uint64_t waiting = scores.look(count);
            for (;;) {
                if (__any_sync(0xFFFFFFFFu, waiting != 0)) waiting = scores.put(state, items, waiting);
                if (!__syncthreads_or(waiting != 0)) break;
                search_drop_all(s, state, items, count, (uint32_t)s.places);
            }
            if (s.shared_rank == 0 || row - begin + tile != share || row + tile >= end) continue;
            search_share(s, state, items, count, ks_counters(site) + first * s.parts, part);
            share *= 4;
        }
        ring.finish();
        search_drop_all(s, state, items, count, (uint32_t)s.k + 1);
        uint64_t *const to = (uint64_t *)ks_workspace(site) + (first * s.parts + part) * s.k;
        for (int q = warp; q < count; q += warps)
            for (int j = threadIdx.x % KS_WARP; j < s.k; j += KS_WARP)
                to[(int64_t)q * s.parts * s.k + j] =
                    (uint32_t)j < state.count[q] ? items[(int64_t)q * s.places + j] : 0;
    }
}

#endif
