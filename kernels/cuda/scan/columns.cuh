/* The kernel of many neighbouring prefixes: a thread goes along the axis with one of them, SCAN_RUN steps at a time, all of which (a third of
 * those of 8 bytes) it has asked for before it looks at the first. Neighbouring threads have neighbouring prefixes, so each step of a warp is
 * one stretch of memory; nothing passes through shared memory, and no thread waits for another. */
#ifndef KS_SCAN_COLUMNS_CUH
#define KS_SCAN_COLUMNS_CUH

#include "cuda/scan/ops.cuh"

/* CTAs of an SM that the registers have to suffice for. */
template <class Op>
constexpr int scan_column_ctas()
{
    return sizeof(typename Op::Slot) == 8 ? 2 : 3;
}

/* Up to SCAN_RUN steps of a prefix: n of them from element `at` on. before: in front of them, and behind them afterwards. */
template <class Op>
__device__ __forceinline__ void scan_column_run(const scan_shape &s, const ks_job_sides &job, int64_t at, int n,
                                                typename Op::State &before)
{
    typedef typename Op::Source Source;
    typename Op::Slot x[SCAN_RUN];
    const int64_t step = s.reverse ? -s.inner : s.inner;
    Source::reads(s.rule, [&](auto *kind) {
        typedef std::remove_pointer_t<decltype(kind)> Element;
        constexpr int LOADS = sizeof(typename Op::Slot) == 8 ? SCAN_RUN / 3 : SCAN_RUN; /* in flight */
        const Element *from = ks_one_address((const Element *)(job.in + s.in) + at);
#pragma unroll
        for (int first = 0; first < SCAN_RUN; first += LOADS) {
            Element raw[LOADS];
#pragma unroll
            for (int i = 0; i < LOADS; i++) {
                if (first + i < n) raw[i] = __ldg(from);
                from = ks_one_address(from + step);
            }
#pragma unroll
            for (int i = 0; i < LOADS; i++) x[first + i] = first + i < n ? Source::get(raw[i], s.rule) : Op::absent();
        }
    });
    const typename Op::State whole = Op::total(x);
    Op::finish(x, before, s.exclusive);
    before = Op::join(before, whole);
    Source::writes(s.rule, [&](auto *kind) {
        typedef std::remove_pointer_t<decltype(kind)> Element;
        const Element *to = ks_one_address((const Element *)(job.out + s.out) + at);
#pragma unroll
        for (int i = 0; i < SCAN_RUN; i++) {
            if (i < n) *const_cast<Element *>(to) = Source::template put<Element>(x[i], s.rule);
            to = ks_one_address(to + step);
        }
    });
}

template <class Op>
__global__ void __launch_bounds__(SCAN_COLUMN_THREADS, scan_column_ctas<Op>())
    scan_column(ks_site site, const __grid_constant__ scan_shape s)
{
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
#pragma unroll 1
    for (int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; column < s.chains;
         column += (int64_t)gridDim.x * blockDim.x) {
        const int64_t line = column / s.inner, first = line * s.length * s.inner + column - line * s.inner;
        typename Op::State before = Op::none();
#pragma unroll 1
        for (int64_t passed = 0; passed < s.length; passed += s.run)
            scan_column_run<Op>(s, job, first + (s.reverse ? s.length - 1 - passed : passed) * s.inner,
                                (int)min((int64_t)s.run, s.length - passed), before);
    }
    ks_leave(site);
}

#endif
