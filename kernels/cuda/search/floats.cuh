/* Sums of FP32: a lane has a row, and the products of QUERIES queries with it; or, of more queries, four rows and a quarter of the queries.
 *
 * Bits     each sum adds the products of a chunk one after the other, and the chunks likewise: whatever the number of queries. */
#ifndef KS_SEARCH_FLOATS_CUH
#define KS_SEARCH_FLOATS_CUH

#include "cuda/search/common.cuh"

template <ks_search_metric METRIC>
__device__ __forceinline__ void search_add_products(float &part, const float4 &x, const float4 &q)
{
    constexpr bool L2 = METRIC == KS_SEARCH_L2;
    const float4 d = L2 ? make_float4(x.x - q.x, x.y - q.y, x.z - q.z, x.w - q.w) : q;
    part = fmaf(L2 ? d.x : x.x, d.x, part);
    part = fmaf(L2 ? d.y : x.y, d.y, part);
    part = fmaf(L2 ? d.z : x.z, d.z, part);
    part = fmaf(L2 ? d.w : x.w, d.w, part);
}

__device__ __forceinline__ void search_add_squares(float &part, const float4 &x)
{
    part = fmaf(x.x, x.x, part);
    part = fmaf(x.y, x.y, part);
    part = fmaf(x.z, x.z, part);
    part = fmaf(x.w, x.w, part);
}

/* A distance is summed as one; a square belongs to the row alone. */
template <ks_search_metric METRIC>
__device__ __forceinline__ float search_floats_score(float sum, float square, float query)
{
    if (METRIC == KS_SEARCH_L2) return -sum;
    if (METRIC == KS_SEARCH_COSINE) return sum * (square == 0 ? 0 : query / sqrtf(square));
    return sum;
}

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
            for (int v = 0; v < VECTORS; v++) search_add_squares(part, x[v]);
            square += part;
        }
#pragma unroll
        for (int q = 0; q < QUERIES; q++) {
            float part = 0;
            if (q >= count) continue;
#pragma unroll
            for (int v = 0; v < VECTORS; v++)
                search_add_products<METRIC>(part, x[v], *(const float4 *)(queries + q * query_bytes + v * 16));
            sum[q] += part;
        }
    }
    __device__ __forceinline__ void end()
    {
    }
    __device__ __forceinline__ static float score(ks_search_metric, float sum, float square, float query)
    {
        return search_floats_score<METRIC>(sum, square, query);
    }
};

/* A vector that a lane reads of shared memory serves four rows, or all of the lane's queries: what a lane with one row reads for each
 * product of four would take four times as long as the products. Columns beyond the group's queries repeat the last one. */
template <int QUERIES_, ks_search_metric METRIC>
struct search_floats_wide {
    typedef float element;
    static constexpr int ROWS = 4, COLUMNS = QUERIES_ / 4, QUERIES = QUERIES_;
    static constexpr int STAGES = search_stages(true, QUERIES);

    float sum[ROWS][COLUMNS], square[ROWS];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            square[r] = 0;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) sum[r][c] = 0;
        }
    }
    /* Lanes that read a vector at a time have eight rows that follow one another, and four queries likewise. */
    __device__ __forceinline__ static int row_of(int r)
    {
        return r * 8 + threadIdx.x % KS_WARP / 4;
    }
    __device__ __forceinline__ static int query_of(int c)
    {
        return c * 4 + threadIdx.x % 4;
    }
    __device__ __forceinline__ float sum_of(int r, int c) const
    {
        return sum[r][c];
    }
    __device__ __forceinline__ float square_of(int r) const
    {
        return square[r];
    }
    /* Of the first USED columns. */
    template <int USED>
    __device__ __forceinline__ void add_columns(const unsigned char *stage, const unsigned char *queries,
                                                int64_t query_bytes, int count, int vectors)
    {
        const int first = threadIdx.x % KS_WARP / 4;
        const unsigned char *const rows = stage + first * SEARCH_CHUNK;
        float part[ROWS][USED] = {}, squares[ROWS] = {};
        uint32_t at[USED];
#pragma unroll
        for (int c = 0; c < USED; c++) at[c] = (uint32_t)min(query_of(c), count - 1) * (uint32_t)query_bytes;
#pragma unroll 2
        for (int v = 0; v < vectors; v++) {
            float4 x[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) x[r] = *(const float4 *)(rows + r * 8 * SEARCH_CHUNK + (v ^ first) * 16);
#pragma unroll
            for (int c = 0; c < USED; c++) {
                const float4 y = *(const float4 *)(queries + at[c] + v * 16);
#pragma unroll
                for (int r = 0; r < ROWS; r++) search_add_products<METRIC>(part[r][c], x[r], y);
            }
#pragma unroll
            for (int r = 0; r < ROWS && METRIC == KS_SEARCH_COSINE; r++) search_add_squares(squares[r], x[r]);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            square[r] += squares[r];
#pragma unroll
            for (int c = 0; c < USED; c++) sum[r][c] += part[r][c];
        }
    }
    __device__ __forceinline__ void add(const unsigned char *stage, const unsigned char *queries, int64_t query_bytes,
                                        int count, int steps)
    {
        constexpr int MOST = (COLUMNS * 3 + 3) / 4;
        if (count <= COLUMNS / 2 * 4)
            add_columns<COLUMNS / 2>(stage, queries, query_bytes, count, 2 * steps);
        else if (count <= MOST * 4)
            add_columns<MOST>(stage, queries, query_bytes, count, 2 * steps);
        else
            add_columns<COLUMNS>(stage, queries, query_bytes, count, 2 * steps);
    }
    __device__ __forceinline__ void end()
    {
    }
    __device__ __forceinline__ static float score(ks_search_metric, float sum, float square, float query)
    {
        return search_floats_score<METRIC>(sum, square, query);
    }
};

#endif
