/* What no other kernel of map does: a datatype beside that of the operands, or FP8, in any broadcast. A thread takes single elements, which
 * lie side by side across the warp; which datatypes they have decides a branch for each. */
#include "cuda/map/convert.cuh"

__device__ __forceinline__ uint64_t elements_read(const unsigned char *at, int size)
{
    switch (size) {
    case 1:
        return *at;
    case 2:
        return *(const uint16_t *)at;
    case 4:
        return *(const uint32_t *)at;
    default:
        return *(const uint64_t *)at;
    }
}

__device__ __forceinline__ void elements_write(unsigned char *at, int size, uint64_t bits)
{
    switch (size) {
    case 1:
        *at = (unsigned char)bits;
        break;
    case 2:
        *(uint16_t *)at = (uint16_t)bits;
        break;
    case 4:
        *(uint32_t *)at = (uint32_t)bits;
        break;
    default:
        *(uint64_t *)at = bits;
        break;
    }
}

__device__ __forceinline__ int elements_size(int dtype)
{
    switch (dtype) {
    case KS_BOOL:
    case KS_UINT8:
    case KS_INT8:
    case KS_FP8E4M3:
    case KS_FP8E5M2:
        return 1;
    case KS_UINT16:
    case KS_INT16:
    case KS_FP16:
    case KS_BF16:
        return 2;
    case KS_UINT32:
    case KS_INT32:
    case KS_FP32:
        return 4;
    default:
        return 8;
    }
}

/* x becomes the result; a truth is 0 or 1. */
template <class M>
__device__ __forceinline__ void elements_compute(const map_shape &s, bool condition, M (&x)[1], const M (&y)[1],
                                                 const M (&z)[1])
{
    constexpr bool WHOLE = (M)1 / 2 == (M)0;
    const map_given<M> given = map_given_of<M>(s.numbers);
    const int function = s.function;
    if (function == KS_MAP_WHERE) {
        x[0] = condition ? y[0] : z[0];
    } else if (function >= KS_MAP_EQ && function <= KS_MAP_GE) {
        uint32_t truth[1];
        if constexpr (WHOLE)
            map_truths_whole(function, x, y, given.flip, truth);
        else
            map_truths(function, x, y, truth);
        x[0] = (M)truth[0];
    } else if (function == KS_MAP_FMA) {
        if constexpr (WHOLE)
            x[0] = x[0] * y[0] + z[0];
        else
            x[0] = fma(x[0], y[0], z[0]);
    } else if (s.operands == 2) {
        if constexpr (WHOLE)
            map_two_whole(function, x, y, given);
        else
            map_two_real(function, x, y, given);
    } else if constexpr (WHOLE) {
        map_one_whole<M>(function, x, given);
    } else {
        map_one_real<M>(function, x, given);
    }
}

/* Of an operand as the kernel computes. */
template <class M>
__device__ __forceinline__ M elements_value(const map_shape &s, int k, uint64_t bits)
{
    const uint64_t one[1] = {bits};
    M x[1];
    if (s.operand[k].kind == MAP_SCALAR) return map_given_of<M>(s.numbers).a;
    map_widen(one, s.operand[k].dtype, x);
    return x[0];
}

template <class M>
__global__ void __launch_bounds__(MAP_THREADS) map_elements(ks_site site, const __grid_constant__ map_shape s)
{
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    ks_await(site);
    const int64_t first = (int64_t)blockIdx.x * (MAP_ELEMENTS_AHEAD * blockDim.x) + threadIdx.x;
    uint64_t r[KS_MAP_OPERANDS][MAP_ELEMENTS_AHEAD];
#pragma unroll
    for (int k = 0; k < KS_MAP_OPERANDS; k++) {
        const map_operand &operand = s.operand[k];
        const int size = elements_size(operand.dtype);
#pragma unroll
        for (int u = 0; u < MAP_ELEMENTS_AHEAD; u++) {
            const int64_t element = first + (int64_t)u * blockDim.x;
            r[k][u] = 0;
            if (k >= s.operands || element >= s.count || operand.kind == MAP_SCALAR) continue;
            const int64_t at = operand.kind == MAP_FLAT ? element : map_offset(s, operand, element);
            r[k][u] = elements_read(job.in + operand.offset + at * size, size);
        }
    }
    ks_start(site);
    const int out_size = elements_size(s.to);
#pragma unroll 1
    for (int u = 0; u < MAP_ELEMENTS_AHEAD; u++) {
        const int64_t element = first + (int64_t)u * blockDim.x;
        if (element >= s.count) break;
        M x[1] = {elements_value<M>(s, 0, r[0][0])}, y[1] = {elements_value<M>(s, 1, r[1][0])},
          z[1] = {elements_value<M>(s, 2, r[2][0])};
        uint64_t bits[1];
        elements_compute(s, r[0][0] != 0, x, y, z);
        map_narrow(x, s.from, s.numbers.flip, s.to, bits);
        elements_write(job.out + element * out_size, out_size, bits[0]);
#pragma unroll
        for (int k = 0; k < KS_MAP_OPERANDS; k++)
#pragma unroll
            for (int v = 0; v + 1 < MAP_ELEMENTS_AHEAD; v++) r[k][v] = r[k][v + 1];
    }
    ks_leave(site);
}

cudaError_t map_launch_elements(const map_launch &l)
{
    if (l.work.math == KS_MAP_FLOAT) return map_start(map_elements<float>, l, l.shape);
    if (l.work.math == KS_MAP_DOUBLE) return map_start(map_elements<double>, l, l.shape);
    return map_start(map_elements<uint64_t>, l, l.shape);
}
