/* Sums of FP16 and BF16 by tensor cores: a warp has 32 rows of the matrix, as two blocks of 16, and the products of TILES x 8 queries with them.
 *
 * Bits     16 elements of K are added at a time, from the first on: whatever the number of queries, and wherever a row lies. Columns
 *          beyond the group's queries repeat the last one. */
#ifndef KS_SEARCH_HALVES_CUH
#define KS_SEARCH_HALVES_CUH

#include "cuda/search/common.cuh"

template <class T>
__device__ __forceinline__ float2 search_two(uint32_t word);
template <>
__device__ __forceinline__ float2 search_two<__half>(uint32_t word)
{
    return make_float2(__half2float(__ushort_as_half((unsigned short)word)),
                       __half2float(__ushort_as_half((unsigned short)(word >> 16))));
}
template <>
__device__ __forceinline__ float2 search_two<__nv_bfloat16>(uint32_t word)
{
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000u));
}

template <class T, int TILES, bool NORMS>
struct search_halves {
    typedef T element;
    static constexpr int ROWS = 4, COLUMNS = 2 * TILES, QUERIES = 8 * TILES, BLOCKS = 2;
    static constexpr int STAGES = search_stages(false, QUERIES);
    static constexpr int K = 16, STEPS = SEARCH_CHUNK / 2 / K;

    float sum[BLOCKS][TILES][4];
    float square[ROWS];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int i = 0; i < 4; i++) sum[b][t][i] = 0;
#pragma unroll
        for (int r = 0; r < ROWS; r++) square[r] = 0;
    }
    __device__ __forceinline__ static int row_of(int r)
    {
        return r * 8 + threadIdx.x % KS_WARP / 4;
    }
    __device__ __forceinline__ static int query_of(int c)
    {
        return c / 2 * 8 + threadIdx.x % 4 * 2 + c % 2;
    }
    __device__ __forceinline__ float sum_of(int r, int c) const
    {
        return sum[r / 2][c / 2][r % 2 * 2 + c % 2];
    }
    __device__ __forceinline__ float square_of(int r) const
    {
        return square[r];
    }
    /* Of a fragment: words 0 and 2 are of the block's row lane / 4, words 1 and 3 of the one 8 further on. */
    __device__ __forceinline__ void add_squares(int block, const uint32_t (&a)[4])
    {
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const float2 two = search_two<T>(a[w]);
            float &to = square[2 * block + w % 2];
            to = fmaf(two.x, two.x, to);
            to = fmaf(two.y, two.y, to);
        }
    }
    /* One step with two tiles, or with the one there is. */
    __device__ __forceinline__ void multiply(const uint32_t (&a)[BLOCKS][4], const uint32_t (&b)[4], int tile)
    {
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) {
            mm_mma(T(), sum[i][tile], a[i], b[0], b[1]);
            if (TILES > 1) mm_mma(T(), sum[i][tile + (TILES > 1)], a[i], b[2], b[3]);
        }
    }
    /* With the first USED tiles. */
    template <int USED>
    __device__ __forceinline__ void add_tiles(const unsigned char *stage, const unsigned char *queries,
                                              int64_t query_bytes, int count, int steps)
    {
        const int lane_id = threadIdx.x % KS_WARP, row = lane_id % 16;
        const unsigned a_at = mm_shared_address(stage) + row * SEARCH_CHUNK;
        const unsigned b_at = mm_shared_address(queries) + lane_id / 8 % 2 * 16;
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            uint32_t a[BLOCKS][4];
            if (k >= steps) break;
#pragma unroll
            for (int i = 0; i < BLOCKS; i++) {
                mm_ldmatrix<false>(a[i], a_at + i * 16 * SEARCH_CHUNK + ((2 * k + lane_id / 16) ^ row % 8) * 16);
                if (NORMS) add_squares(i, a[i]);
            }
#pragma unroll
            for (int t = 0; t < USED; t += 2) {
                uint32_t b[4];
                const int query = min(t * 8 + lane_id % 8 + lane_id / 16 * 8, count - 1);
                mm_ldmatrix<false>(b, b_at + (unsigned)(query * query_bytes) + k * K * 2);
                multiply(a, b, t);
            }
        }
    }
    /* Groups of one size have 33 to 48 queries where there are 65 to 96. */
    __device__ __forceinline__ void add(const unsigned char *stage, const unsigned char *queries, int64_t query_bytes,
                                        int count, int steps)
    {
        constexpr int FEWER = TILES == 8 ? 6 : TILES;
        if (FEWER < TILES && count <= 8 * FEWER)
            add_tiles<FEWER>(stage, queries, query_bytes, count, steps);
        else
            add_tiles<TILES>(stage, queries, query_bytes, count, steps);
    }
    /* Four lanes have the squares of a row. */
    __device__ __forceinline__ void end()
    {
        if constexpr (NORMS) {
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int distance = 1; distance < 4; distance *= 2) square[r] += ks_shuffle(square[r], distance);
        }
    }
    __device__ __forceinline__ static float score(ks_search_metric metric, float sum, float square, float query)
    {
        if (!NORMS) return sum;
        if (metric == KS_SEARCH_COSINE) return sum * (square == 0 ? 0 : query / sqrtf(square));
        const float distance = fmaf(-2.0f, sum, query + square);
        return distance < 0 ? 0 : -distance;
    }
};

#endif
