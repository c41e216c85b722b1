/* sumsq, l1norm, logsum and norm on the GPU: of floats in every way, of integers as numbers element by element, and so are powers, whose
 * logarithms and exponentials are what takes the time. */
#include "cuda/reduce/sums.cuh"

#include "cuda/reduce/launch.cuh"

template <class T>
static cudaError_t of_floats(const reduce_launch &l)
{
    typedef reduce_floats<T> Source;
    switch (l.op) {
    case SUMSQ:
        return reduce_start_any<reduce_terms<Source, REDUCE_SQUARE>>(l);
    case L1NORM:
        return reduce_start_any<reduce_terms<Source, REDUCE_MAGNITUDE>>(l);
    case LOGSUM:
        return reduce_start_any<reduce_terms<Source, REDUCE_PLAIN>>(l);
    case NORM_MOST:
        return reduce_start_any<reduce_magnitude<Source, false>>(l);
    case NORM_LEAST:
        return reduce_start_any<reduce_magnitude<Source, true>>(l);
    default:
        return reduce_start_single<reduce_terms<Source, REDUCE_POWER>>(l);
    }
}

template <class T>
static cudaError_t of_integers(const reduce_launch &l)
{
    typedef reduce_numbers<T, double> Reals;
    switch (l.op) {
    case SUMSQ:
        return reduce_start_single<reduce_terms<reduce_numbers<T, uint64_t>, REDUCE_SQUARE>>(l);
    case L1NORM:
        return reduce_start_single<reduce_terms<Reals, REDUCE_MAGNITUDE>>(l);
    case LOGSUM:
        return reduce_start_single<reduce_terms<Reals, REDUCE_PLAIN>>(l);
    case NORM_MOST:
        return reduce_start_single<reduce_magnitude<Reals, false>>(l);
    case NORM_LEAST:
        return reduce_start_single<reduce_magnitude<Reals, true>>(l);
    default:
        return reduce_start_single<reduce_terms<Reals, REDUCE_POWER>>(l);
    }
}

cudaError_t reduce_launch_norms(const reduce_launch &l)
{
    if (l.dtype == KS_FP16) return of_floats<__half>(l);
    if (l.dtype == KS_BF16) return of_floats<__nv_bfloat16>(l);
    if (l.dtype == KS_FP32) return of_floats<float>(l);
    if (l.dtype == KS_FP64) return of_floats<double>(l);
    switch (ks_dtype_size(l.dtype)) {
    case 1:
        return of_integers<uint8_t>(l);
    case 2:
        return of_integers<uint16_t>(l);
    case 4:
        return of_integers<uint32_t>(l);
    default:
        return of_integers<uint64_t>(l);
    }
}
