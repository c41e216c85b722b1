/* Sums of FP32: a lane has a row, and the products of QUERIES queries with it.
 *
 * Bits     each sum adds the products of a chunk one after the other, and the chunks likewise: whatever the number of queries. */
#ifndef KS_SEARCH_FLOATS_CUH
#define KS_SEARCH_FLOATS_CUH

#include "cuda/search/common.cuh"

template <int QUERIES_, ks_search_metric METRIC>
struct search_floats {
    typedef float element;
    static constexpr int ROWS = 1, COLUMNS = QUERIES_, QUERIES = QUERIES_;
    static constexpr int STAGES = search_stages(true, QUERIES);
    static constexpr int VECTORS = SEARCH_CHUNK / 16;

    float sum[QUERIES], square;

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int q = 0; q < QUERIES; q++) sum[q] = 0;
        square = 0;
    }
    /* Row r of the thread's, among the warp's; column c's query. */
    __device__ __forceinline__ static int row_of(int)
    {
        return threadIdx.x % KS_WARP;
    }
    __device__ __forceinline__ static int query_of(int c)
    {
        return c;
    }
    __device__ __forceinline__ float sum_of(int, int c) const
    {
        return sum[c];
    }
    __device__ __forceinline__ float square_of(int) const
    {
        return square;
    }
    __device__ __forceinline__ static void add_one(float &part, float x, float q)
    {
        const float d = METRIC == KS_SEARCH_L2 ? x - q : q;
        part = fmaf(METRIC == KS_SEARCH_L2 ? d : x, d, part);
    }
    /* queries: of the chunk; steps: whether there is more of it does not matter here, zeros add nothing. */
    __device__ __forceinline__ void add(const unsigned char *stage, const unsigned char *queries, int64_t query_bytes,
                                        int count, int)
    {
        const int row = threadIdx.x % KS_WARP;
        float4 x[VECTORS];
#pragma unroll
        for (int v = 0; v < VECTORS; v++) x[v] = *(const float4 *)(stage + row * SEARCH_CHUNK + (v ^ row % 8) * 16);
        if (METRIC == KS_SEARCH_COSINE) {
            float part = 0;
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
                part = fmaf(x[v].x, x[v].x, part);
                part = fmaf(x[v].y, x[v].y, part);
                part = fmaf(x[v].z, x[v].z, part);
                part = fmaf(x[v].w, x[v].w, part);
            }
            square += part;
        }
#pragma unroll
        for (int q = 0; q < QUERIES; q++) {
            float part = 0;
            if (q >= count) continue;
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
                const float4 y = *(const float4 *)(queries + q * query_bytes + v * 16);
                add_one(part, x[v].x, y.x);
                add_one(part, x[v].y, y.y);
                add_one(part, x[v].z, y.z);
                add_one(part, x[v].w, y.w);
            }
            sum[q] += part;
        }
    }
    __device__ __forceinline__ void end()
    {
    }
    /* A distance is summed as one; a square belongs to the row alone. */
    __device__ __forceinline__ static float score(ks_search_metric, float sum, float square, float query)
    {
        if (METRIC == KS_SEARCH_L2) return -sum;
        if (METRIC == KS_SEARCH_COSINE) return sum * (square == 0 ? 0 : query / sqrtf(square));
        return sum;
    }
};

#endif
