/* The output from its begin to its end, 16 bytes of a thread: where words come from is found by divisions. */
#ifndef KS_WINDOW_PACKS_CUH
#define KS_WINDOW_PACKS_CUH

#include "cuda/common/pack.cuh"
#include "cuda/window/common.cuh"

/* Word 0 of a tap in the input, and which of the tap's words it is about; outside: the tap is the value. */
struct window_tap {
    int64_t from, inner;
    bool outside;
};

/* The rest of n by what d divides by; n becomes the quotient. */
__device__ __forceinline__ int64_t window_rest(const ks_divider &d, int64_t *n)
{
    const int64_t left = d.of(*n), rest = *n - left * d.by;
    *n = left;
    return rest;
}

__device__ __forceinline__ window_tap window_find(const window_args &a, int64_t item)
{
    window_tap tap;
    tap.inner = window_rest(a.inner, &item);
    const int64_t tap_x = window_rest(a.x.taps, &item), tap_y = window_rest(a.y.taps, &item);
    const int64_t x = window_place(a.x, window_rest(a.x.windows, &item), tap_x);
    const int64_t y = window_place(a.y, window_rest(a.y.windows, &item), tap_y);
    tap.outside = !window_inside(a.x, x) || !window_inside(a.y, y);
    tap.from = item * a.lead_from + y * a.y.from + x * a.x.from;
    return tap;
}

template <class W>
__device__ __forceinline__ W window_read(const window_args &a, const W *in, const window_tap &tap)
{
    return tap.outside ? *(const W *)&a.fill : __ldg(in + tap.from + tap.inner * a.word_from);
}

template <class W>
__global__ void __launch_bounds__(WINDOW_THREADS) window_packs(ks_site site, window_args a)
{
    constexpr int P = ks_word_pack<W>::LENGTH, FLIGHT = P < 4 ? 4 / P : 1;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const W *in = (const W *)(job.in + a.in);
    const int64_t packs = (a.items + P - 1) / P, threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; first < packs; first += FLIGHT * threads) {
        ks_word_pack<W> moved[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            const int64_t item = (first + k * threads) * P;
            if (item >= a.items) continue;
            window_tap tap = window_find(a, item);
#pragma unroll
            for (int i = 0; i < P; i++) {
                if (item + i < a.items) moved[k].word[i] = window_read(a, in, tap);
                if (++tap.inner == a.inner.by && i + 1 < P && item + i + 1 < a.items)
                    tap = window_find(a, item + i + 1);
            }
        }
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) moved[k].store(job.out + a.out, first + k * threads, a.items);
    }
    ks_leave(site);
}

#endif
