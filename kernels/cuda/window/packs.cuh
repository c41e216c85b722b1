/* The output from its begin to its end, 16 bytes of a thread: where words come from is found by divisions. */
#ifndef KS_WINDOW_PACKS_CUH
#define KS_WINDOW_PACKS_CUH

#include "cuda/common/pack.cuh"
#include "cuda/window/common.cuh"

/* Packs of 16 bytes that a thread reads before it writes the first: four, where each is a word; else the words of one. */
__host__ __device__ constexpr int window_flight(int word)
{
    return word == 16 ? 4 : word == 8 ? 2 : 1;
}

/* Word 0 of a tap in the input, and which of the tap's words it is about; outside: the tap is the value, and `from` says nothing. */
template <class I>
struct window_tap {
    I from, inner;
    bool outside;
};

/* The rest of n by what d divides by; n becomes the quotient. */
template <class D, class I>
__device__ __forceinline__ I window_rest(const D &d, I *n)
{
    const I left = d.of(*n), rest = *n - left * d.by;
    *n = left;
    return rest;
}

template <class I>
__device__ __forceinline__ window_tap<I> window_find(const window_args<I> &a, I item)
{
    typedef typename window_index<I>::bits B; /* of places outside the sum may wrap */
    window_tap<I> tap;
    tap.inner = window_rest(a.inner, &item);
    const I tap_x = window_rest(a.x.taps, &item), tap_y = window_rest(a.y.taps, &item);
    const I x = window_place(a.x, window_rest(a.x.windows, &item), tap_x);
    const I y = window_place(a.y, window_rest(a.y.windows, &item), tap_y);
    tap.outside = !window_inside(a.x, x) || !window_inside(a.y, y);
    tap.from = (I)((B)item * (B)a.lead_from + (B)y * (B)a.y.from + (B)x * (B)a.x.from);
    return tap;
}

template <class W, class I>
__device__ __forceinline__ W window_read(const window_args<I> &a, const W *in, const window_tap<I> &tap)
{
    return tap.outside ? *(const W *)&a.fill : __ldg(in + (tap.from + tap.inner * a.word_from));
}

template <class W, class I>
__global__ void __launch_bounds__(WINDOW_THREADS) window_packs(ks_site site, const __grid_constant__ window_args<I> a)
{
    constexpr int P = ks_word_pack<W>::LENGTH, FLIGHT = window_flight((int)sizeof(W));
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const W *in = (const W *)(job.in + a.in);
    const I packs = (a.items + P - 1) / P, round = FLIGHT * (I)gridDim.x * (I)blockDim.x;
    for (I first = (I)blockIdx.x * a.cta + (I)threadIdx.x; first < packs; first += round) {
        ks_word_pack<W> moved[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            const I item = (first + k * a.step) * P;
            if (item >= a.items) continue;
            window_tap<I> tap = window_find(a, item);
#pragma unroll
            for (int i = 0; i < P; i++) {
                if (item + i < a.items) moved[k].word[i] = window_read(a, in, tap);
                if (++tap.inner == a.inner.by && i + 1 < P && item + i + 1 < a.items)
                    tap = window_find(a, item + (I)(i + 1));
            }
        }
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) moved[k].store(job.out + a.out, first + k * a.step, a.items);
    }
    ks_leave(site);
}

#endif
