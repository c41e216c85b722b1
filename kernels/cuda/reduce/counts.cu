/* any, all and count_nonzero on the GPU: integers by their bits, whatever their sign. What is a count as a number, the norm of p = 0, goes
 * element by element. */
#include "cuda/reduce/sums.cuh"

#include "cuda/reduce/launch.cuh"

template <class Source>
static cudaError_t start_counts(const reduce_launch &l)
{
    switch (l.op) {
    case COUNT_NONZERO:
        return reduce_start_any<reduce_nonzero<Source, REDUCE_COUNT>>(l);
    case NORM_ZERO:
        return reduce_start_single<reduce_nonzero<Source, REDUCE_NUMBER>>(l);
    default:
        return reduce_start_any<reduce_nonzero<Source, REDUCE_TRUTH>>(l);
    }
}

cudaError_t reduce_launch_counts(const reduce_launch &l)
{
    if (l.dtype == KS_FP16) return start_counts<reduce_floats<__half>>(l);
    if (l.dtype == KS_BF16) return start_counts<reduce_floats<__nv_bfloat16>>(l);
    if (l.dtype == KS_FP32) return start_counts<reduce_floats<float>>(l);
    if (l.dtype == KS_FP64) return start_counts<reduce_floats<double>>(l);
    switch (ks_dtype_size(l.dtype)) {
    case 1:
        return start_counts<reduce_unsigned<uint8_t, uint32_t, uint32_t>>(l);
    case 2:
        return start_counts<reduce_unsigned<uint16_t, uint32_t, uint32_t>>(l);
    case 4:
        return start_counts<reduce_unsigned<uint32_t, uint32_t, uint64_t>>(l);
    default:
        return start_counts<reduce_unsigned<uint64_t, uint64_t, uint64_t>>(l);
    }
}
