/* Elements by an index each, as take_along_axis: a thread collects 16 bytes of the output. */
#ifndef KS_GATHER_ELEMENTS_CUH
#define KS_GATHER_ELEMENTS_CUH

#include "cuda/gather/slices.cuh"

/* items: elements of the output; per: inner; part: count. */
template <class W>
__global__ void __launch_bounds__(GATHER_THREADS, sizeof(W) == 1 ? 2 : 4) gather_elements(ks_site site, gather_args a)
{
    constexpr int P = ks_word_pack<W>::LENGTH;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const W *table = (const W *)(job.in + a.table);
    const unsigned char *indices = job.in + a.indices;
    const int64_t packs = (a.items + P - 1) / P, threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < packs; at += threads) {
        ks_word_pack<W> pack;
        int64_t index[P];
#pragma unroll
        for (int i = 0; i < P; i++)
            index[i] = at * P + i < a.items ? gather_number(indices, a.wide_indices, at * P + i) : 0;
        int64_t row = a.per.of(at * P), column = at * P - row * a.inner;
        int64_t part = a.part.of(row), slice = row - part * a.count;
#pragma unroll
        for (int i = 0; i < P; i++) {
            if (at * P + i >= a.items) continue;
            const int64_t source = gather_resolve(site, a, index[i], at * P + i);
            if (source >= 0) pack.word[i] = __ldg(table + (part * a.extent + source) * a.inner + column);
            if (++column < a.inner) continue;
            column = 0;
            if (++slice < a.count) continue;
            slice = 0;
            part++;
        }
        pack.store(job.out + a.out, at, a.items);
    }
    ks_leave<true>(site);
}

#endif
