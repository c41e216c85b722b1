/* From a choice to a kernel: included by the file of each datatype. */
#ifndef KS_REDUCE_LAUNCH_CUH
#define KS_REDUCE_LAUNCH_CUH

#include "cuda/reduce/bands.cuh"
#include "cuda/reduce/columns.cuh"
#include "cuda/reduce/in_vector.cuh"
#include "cuda/reduce/once.cuh"
#include "cuda/reduce/planes.cuh"
#include "cuda/reduce/rows.cuh"
#include "cuda/reduce/segments/segments.cuh"
#include "cuda/reduce/slab.cuh"

/* Where an op has more than its rule: ddof, p. */
template <class Op>
static auto reduce_add_extra(Op &op, const reduce_launch &l, int) -> decltype((void)op.extra)
{
    op.extra = l.extra;
}

template <class Op>
static void reduce_add_extra(Op &, const reduce_launch &, long)
{
}

template <class Op>
static Op reduce_op(const reduce_launch &l)
{
    Op op;
    op.rule = l.rule;
    reduce_add_extra(op, l, 0);
    return op;
}

template <class Op>
static cudaError_t reduce_start(void (*kernel)(ks_site, reduce_shape, Op), const reduce_launch &l)
{
    const dim3 grid(l.algorithm.grid, (unsigned)l.bucket);
    return ks_launch(kernel, grid, l.algorithm.threads, l.algorithm.shared_bytes, false, l.stream, l.site, l.shape,
                     reduce_op<Op>(l));
}

template <class Op>
static cudaError_t reduce_start_once(const reduce_launch &l)
{
    const uint32_t parts = l.shape.parts;
    const reduce_once_shape s = {l.shape.offset, (uint32_t)l.shape.depth, (uint32_t)l.shape.share, parts,
                                 (uint32_t)((((uint64_t)1 << 32) + parts - 1) / parts)};
    const dim3 grid(l.algorithm.grid, (unsigned)l.bucket);
    return ks_launch(parts > 1 ? reduce_once<Op, true> : reduce_once<Op, false>, grid, l.algorithm.threads, 0, false,
                     l.stream, l.site, s, reduce_op<Op>(l));
}

template <class Op, int DEPTH>
static cudaError_t reduce_start_in_vector_of(const reduce_launch &l)
{
    if constexpr (DEPTH <= ks_vector<typename Op::Source::T>::length)
        return reduce_start<Op>(reduce_in_vector<Op, DEPTH>, l);
    return cudaErrorInvalidValue; /* never chosen: no vector holds such a row */
}

template <class Op>
static cudaError_t reduce_start_in_vector(const reduce_launch &l)
{
    return l.shape.depth == 2   ? reduce_start_in_vector_of<Op, 2>(l)
           : l.shape.depth == 4 ? reduce_start_in_vector_of<Op, 4>(l)
           : l.shape.depth == 8 ? reduce_start_in_vector_of<Op, 8>(l)
                                : reduce_start_in_vector_of<Op, 16>(l);
}

template <class Op>
static cudaError_t reduce_start_segments(const reduce_launch &l)
{
    const bool rows = l.algorithm.kernel == REDUCE_SEGMENT_ROWS;
    const cudaError_t status = ks_launch(rows ? reduce_segment_rows<Op> : reduce_segment_columns<Op>,
                                         dim3(l.algorithm.grid, (unsigned)l.bucket), REDUCE_SEGMENT_THREADS, 0, false,
                                         l.stream, l.site, l.segments, reduce_op<Op>(l));
    if (status != cudaSuccess || !l.segments.joins) return status;
    return ks_launch(reduce_segment_join<Op>, dim3(l.joined_grid, (unsigned)l.bucket), REDUCE_SEGMENT_THREADS, 0, false,
                     l.stream, l.site, l.joined, reduce_op<Op>(l));
}

/* What can be done element by element only. */
template <class Op>
static cudaError_t reduce_start_single(const reduce_launch &l)
{
    if (l.algorithm.kernel >= REDUCE_SEGMENT_ROWS) return reduce_start_segments<Op>(l);
    if (l.algorithm.kernel == REDUCE_SLAB) return reduce_start<Op>(reduce_slab<Op>, l);
    return l.shape.reduced.count > 1 ? reduce_start<Op>(reduce_columns<Op, 1, true>, l)
                                     : reduce_start<Op>(reduce_columns<Op, 1, false>, l);
}

template <class Op>
static cudaError_t reduce_start_any(const reduce_launch &l)
{
    constexpr int E = ks_vector<typename Op::Source::T>::length;
    switch (l.algorithm.kernel) {
    case REDUCE_ROWS:
        return reduce_start<Op>(reduce_rows<Op, false>, l);
    case REDUCE_ONCE:
        return reduce_start_once<Op>(l);
    case REDUCE_RUNS:
        if constexpr (!Op::PLACES) return reduce_start<Op>(reduce_rows<Op, true>, l);
        return cudaErrorInvalidValue; /* never chosen: arg has one axis, or all of them, which are contiguous */
    case REDUCE_BANDS:
        if constexpr (!Op::PLACES) return reduce_start<Op>(reduce_bands<Op>, l);
        return cudaErrorInvalidValue; /* likewise */
    case REDUCE_COLUMNS:
        if (l.shape.reduced.count == 1) return reduce_start<Op>(reduce_columns<Op, E, false>, l);
        if constexpr (!Op::PLACES) return reduce_start<Op>(reduce_columns<Op, E, true>, l);
        return cudaErrorInvalidValue; /* likewise */
    case REDUCE_PLANES:
        return reduce_start<Op>(reduce_planes<Op>, l);
    case REDUCE_IN_VECTOR:
        return reduce_start_in_vector<Op>(l);
    default:
        return reduce_start_single<Op>(l);
    }
}

template <class T, class Arg>
static cudaError_t reduce_start_floats(const reduce_launch &l)
{
    typedef reduce_floats<T> Source;
    switch (l.op) {
    case SUM:
    case MEAN:
        return reduce_start_any<reduce_sum<Source, false>>(l);
    case L2NORM:
        return reduce_start_any<reduce_sum<Source, true>>(l);
    case MAX:
    case MIN:
        return reduce_start_any<reduce_extreme<Source>>(l);
    case PROD:
        return reduce_start_any<reduce_prod<Source>>(l);
    case LOGSUMEXP:
        return reduce_start_any<reduce_logsumexp<Source>>(l);
    default:
        return reduce_start_any<Arg>(l);
    }
}

#endif
