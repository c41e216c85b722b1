/* where, on the GPU: elements by their size. The condition is a byte beside each. */
#include "cuda/map/vectors.cuh"

template <int BYTES>
__global__ void __launch_bounds__(MAP_THREADS) map_select(ks_site site, const __grid_constant__ map_shape s)
{
    constexpr int N = 16 / BYTES, V = MAP_MORE_VECTORS;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    ks_await(site);
    const int64_t first = (int64_t)blockIdx.x * s.rounds * blockDim.x + threadIdx.x;
    map_raw r[3][V];
    map_load<1, BYTES, N>(s, job.in, first, r);
    ks_start(site);
#pragma unroll 1
    for (int u = 0; u < s.rounds; u++) {
        const int64_t vector = first + (int64_t)u * blockDim.x;
        if (vector >= s.vectors) break;
        map_settle<1>(s, 0, &r[0][0]);
        map_settle<BYTES>(s, 1, &r[1][0]);
        map_settle<BYTES>(s, 2, &r[2][0]);
        map_raw mask;
#pragma unroll
        for (int w = 0; w < 4; w++) {
            constexpr int IN_WORD = BYTES < 4 ? 4 / BYTES : 1;
            mask.word[w] = 0;
#pragma unroll
            for (int i = 0; i < IN_WORD; i++) {
                const int element = BYTES == 8 ? w / 2 : w * IN_WORD + i;
                const uint32_t truth = r[0][0].word[element / 4] >> 8 * (element % 4) & 0xFF;
                const uint32_t ones = BYTES == 1 ? 0xFFu : BYTES == 2 ? 0xFFFFu : ~0u;
                mask.word[w] |= (truth ? ones : 0) << 8 * BYTES % 32 * i;
            }
            mask.word[w] = (r[1][0].word[w] & mask.word[w]) | (r[2][0].word[w] & ~mask.word[w]);
            if (BYTES == 1 && s.truths) mask.word[w] = map_truth_bytes(mask.word[w]);
        }
        map_store<BYTES, N>(job.out, vector, s.count, mask);
        map_advance(r);
    }
    ks_leave(site);
}

cudaError_t map_launch_select(const map_launch &l, size_t element_bytes)
{
    switch (element_bytes) {
    case 1:
        return map_start(map_select<1>, l, l.shape);
    case 2:
        return map_start(map_select<2>, l, l.shape);
    case 4:
        return map_start(map_select<4>, l, l.shape);
    default:
        return map_start(map_select<8>, l, l.shape);
    }
}
