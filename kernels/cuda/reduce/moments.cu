/* Variances on the GPU: of floats in every way, of integers as numbers element by element. */
#include "cuda/reduce/moments.cuh"

#include "cuda/reduce/launch.cuh"

template <class T>
static cudaError_t of_floats(const reduce_launch &l)
{
    return reduce_start_any<reduce_moments<reduce_floats<T>>>(l);
}

template <class T>
static cudaError_t of_integers(const reduce_launch &l)
{
    return reduce_start_single<reduce_moments<reduce_numbers<T, double>>>(l);
}

cudaError_t reduce_launch_moments(const reduce_launch &l)
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
