/* Reductions of integers on the GPU: kernels by the element's size, signed and unsigned ones by the same (ops.cuh).
 * What needs them as numbers (prod, l2norm, logsumexp, the mean of 64 bits) goes element by element, whatever the
 * axes. */
#include "cuda/reduce/launch.cuh"

template <class T, class W, class Leaf>
static cudaError_t reduce_start_integers(const reduce_launch &l)
{
    typedef reduce_unsigned<T, W, Leaf> Bits;
    typedef reduce_numbers<T, double> Reals;
    switch (l.op) {
    case MEAN:
        if constexpr (sizeof(T) == 8)
            return reduce_start_single<reduce_sum<Reals, false>>(l);
        else
            return reduce_start_any<reduce_sum<Bits, false>>(l);
    case SUM:
        return reduce_start_any<reduce_sum<Bits, false>>(l);
    case MAX:
    case MIN:
        return reduce_start_any<reduce_extreme<Bits>>(l);
    case PROD:
        return reduce_start_single<reduce_prod<reduce_numbers<T, uint64_t>>>(l);
    case L2NORM:
        return reduce_start_single<reduce_sum<Reals, true>>(l);
    case LOGSUMEXP:
        return reduce_start_single<reduce_logsumexp<Reals>>(l);
    default:
        if constexpr (sizeof(T) <= 2)
            return reduce_start_any<reduce_arg_small<Bits>>(l);
        else
            return reduce_start_any<reduce_arg<Bits>>(l);
    }
}

cudaError_t reduce_launch_integer(const reduce_launch &l, size_t element_bytes)
{
    switch (element_bytes) {
    case 1:
        return reduce_start_integers<uint8_t, uint32_t, uint32_t>(l);
    case 2:
        return reduce_start_integers<uint16_t, uint32_t, uint32_t>(l);
    case 4:
        return reduce_start_integers<uint32_t, uint32_t, uint64_t>(l);
    default:
        return reduce_start_integers<uint64_t, uint64_t, uint64_t>(l);
    }
}
