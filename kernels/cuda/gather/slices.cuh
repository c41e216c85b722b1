/* Slices that are moved whole.
 *
 *   slice_warp   512 bytes of a slice for a warp
 *   slice_pack   16 bytes for a thread, of slices of whole packs
 *   slice_words  any other slices: words of their common divisor with 16 bytes; a thread collects 16 bytes of the output
 *
 * Each thread has several loads under way; a bad index gives zeros. */
#ifndef KS_GATHER_SLICES_CUH
#define KS_GATHER_SLICES_CUH

#include "cuda/common/pack.cuh"
#include "cuda/gather/common.cuh"

/* items: pieces of 32 packs, `pieces` of them a slice of `packs` packs. */
__global__ void __launch_bounds__(GATHER_THREADS) gather_slice_warp(ks_site site, gather_args a, int64_t packs)
{
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const uint4 *table = (const uint4 *)(job.in + a.table);
    uint4 *out = (uint4 *)(job.out + a.out);
    const int lane = (int)threadIdx.x % KS_WARP;
    const int64_t warps = (int64_t)gridDim.x * (blockDim.x / KS_WARP);
    const int64_t warp = (int64_t)blockIdx.x * (blockDim.x / KS_WARP) + threadIdx.x / KS_WARP;
    for (int64_t first = warp; first < a.items; first += GATHER_FLIGHT * warps) {
        uint4 moved[GATHER_FLIGHT];
        int64_t to[GATHER_FLIGHT];
#pragma unroll
        for (int k = 0; k < GATHER_FLIGHT; k++) {
            const int64_t item = first + k * warps;
            to[k] = -1;
            moved[k] = make_uint4(0, 0, 0, 0);
            if (item >= a.items) continue;
            const int64_t s = a.per.of(item), pack = (item - s * a.pieces) * KS_WARP + lane;
            const int64_t source = gather_source(site, a, job, s);
            if (pack >= packs) continue;
            to[k] = s * packs + pack;
            if (source >= 0) moved[k] = __ldg(table + source * packs + pack);
        }
#pragma unroll
        for (int k = 0; k < GATHER_FLIGHT; k++)
            if (to[k] >= 0) out[to[k]] = moved[k];
    }
    ks_leave<true>(site);
}

/* items: packs of the output, `pieces` of them a slice. */
__global__ void __launch_bounds__(GATHER_THREADS) gather_slice_pack(ks_site site, gather_args a)
{
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const uint4 *table = (const uint4 *)(job.in + a.table);
    uint4 *out = (uint4 *)(job.out + a.out);
    const int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; first < a.items;
         first += GATHER_FLIGHT * threads) {
        uint4 moved[GATHER_FLIGHT];
#pragma unroll
        for (int k = 0; k < GATHER_FLIGHT; k++) {
            const int64_t item = first + k * threads;
            moved[k] = make_uint4(0, 0, 0, 0);
            if (item >= a.items) continue;
            const int64_t s = a.per.of(item), source = gather_source(site, a, job, s);
            if (source >= 0) moved[k] = __ldg(table + source * a.pieces + (item - s * a.pieces));
        }
#pragma unroll
        for (int k = 0; k < GATHER_FLIGHT; k++)
            if (first + k * threads < a.items) out[first + k * threads] = moved[k];
    }
    ks_leave<true>(site);
}

/* Each slice is one word: all indices of a pack come first. */
template <class W>
__device__ __forceinline__ void gather_single(const ks_site &site, const gather_args &a, const ks_job_sides &job,
                                              const W *table, int64_t first, ks_word_pack<W> *pack)
{
    constexpr int P = ks_word_pack<W>::LENGTH;
    int64_t source[P];
#pragma unroll
    for (int i = 0; i < P; i++) source[i] = first + i < a.items ? gather_source(site, a, job, first + i) : -1;
#pragma unroll
    for (int i = 0; i < P; i++)
        if (source[i] >= 0) pack->word[i] = __ldg(table + source[i]);
}

/* items: words of the output, `pieces` of them a slice; SINGLE: one. */
template <class W, bool SINGLE>
__global__ void __launch_bounds__(GATHER_THREADS, sizeof(W) == 1 ? 2 : 4)
    gather_slice_words(ks_site site, gather_args a)
{
    constexpr int P = ks_word_pack<W>::LENGTH;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const W *table = (const W *)(job.in + a.table);
    const int64_t packs = (a.items + P - 1) / P, threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < packs; at += threads) {
        ks_word_pack<W> pack;
        if (SINGLE) {
            gather_single(site, a, job, table, at * P, &pack);
        } else {
            int64_t s = a.per.of(at * P), word = at * P - s * a.pieces, source = gather_source(site, a, job, s);
#pragma unroll
            for (int i = 0; i < P; i++) {
                if (source >= 0) pack.word[i] = __ldg(table + source * a.pieces + word);
                if (++word < a.pieces) continue;
                word = 0;
                source = at * P + i + 1 < a.items && i + 1 < P ? gather_source(site, a, job, ++s) : -1;
            }
        }
        pack.store(job.out + a.out, at, a.items);
    }
    ks_leave<true>(site);
}

#endif
