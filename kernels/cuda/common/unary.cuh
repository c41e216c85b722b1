/* The unary functions of ops/numbers/unary.h on the GPU. Operations are named one by one where a compiler might contract them, so that the same
 * function has the same bits in every kernel.
 *
 *   ks_NAME(x)        of a float or a double, as exact as the datatype
 *   ks_NAME_quick(x)  of a float whose result is rounded to 16 bits: without a branch, in at most 12 instructions, two of which go to
 *                     the unit for exponentials and reciprocals
 *   ks_activate<T>    the one of both that fits results of type T
 */
#ifndef KS_UNARY_CUH
#define KS_UNARY_CUH

#include "cuda/common/warp.cuh"
#include "ops/numbers/unary.h"

/* --- as exact as the datatype ---------------------------------------------------------------------------------------- */

template <class M>
__device__ __forceinline__ M ks_relu(M x)
{
    return x < (M)0 ? (M)0 : x;
}

template <class M>
__device__ __forceinline__ M ks_gelu(M x)
{
    return (M)0.5 * x * ((M)1 + erf(x * (M)0.70710678118654752440));
}

template <class M>
__device__ __forceinline__ M ks_gelu_tanh(M x)
{
    const M cube = x * x * (M)0.044715;
    return (M)0.5 * x * ((M)1 + tanh((M)0.79788456080286535588 * fma(cube, x, x)));
}

template <class M>
__device__ __forceinline__ M ks_sigmoid(M x)
{
    return (M)1 / ((M)1 + exp(-x));
}

template <class M>
__device__ __forceinline__ M ks_silu(M x)
{
    return x / ((M)1 + exp(-x));
}

/* --- for results of 16 bits ------------------------------------------------------------------------------------------ */

/* 1 / (1 + 2^t), with 0 at infinity. */
__device__ __forceinline__ float ks_logistic_quick(float t)
{
    return ks_reciprocal_quick(1.0f + ks_exp2_quick(t));
}

__device__ __forceinline__ float ks_sigmoid_quick(float x)
{
    return ks_logistic_quick(x * -1.44269504f);
}

__device__ __forceinline__ float ks_silu_quick(float x)
{
    return x * ks_sigmoid_quick(x);
}

/* (1 + tanh u) / 2 = 1 / (1 + exp(-2 u)). */
__device__ __forceinline__ float ks_gelu_tanh_quick(float x)
{
    return x * ks_logistic_quick(x * fmaf(x * x, -0.10294324f, -2.30220819f));
}

/* The logarithm of the odds of the normal distribution is x times a polynomial of x^2, fitted so that the largest share of 2^-12 |y| +
 * 2^-22 |x| is 0.61. It goes on rising where the fit ends, at 5.3. */
__device__ __forceinline__ float ks_gelu_quick(float x)
{
    const float t = x * x;
    float p = fmaf(t, -1.63995144e-06f, 4.71426984e-05f);
    p = fmaf(t, p, 0.000695447827f);
    p = fmaf(t, p, -0.106195319f);
    p = fmaf(t, p, -2.30129848f);
    return x * ks_logistic_quick(x * p);
}

/* --- by name --------------------------------------------------------------------------------------------------------- */

/* Of N values on their way to results of type T. The activation is the same for all threads: one branch for N values. */
template <class T, int N, class M>
__device__ __forceinline__ void ks_activate(M (&x)[N], int activation)
{
    constexpr bool QUICK = sizeof(T) < sizeof(M);
    switch (activation) {
    case KS_ACTIVATION_NONE:
        break;
    case KS_ACTIVATION_RELU:
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = ks_relu(x[i]);
        break;
    case KS_ACTIVATION_GELU:
#pragma unroll
        for (int i = 0; i < N; i++) {
            if constexpr (QUICK)
                x[i] = ks_gelu_quick(x[i]);
            else
                x[i] = ks_gelu(x[i]);
        }
        break;
    case KS_ACTIVATION_GELU_TANH:
#pragma unroll
        for (int i = 0; i < N; i++) {
            if constexpr (QUICK)
                x[i] = ks_gelu_tanh_quick(x[i]);
            else
                x[i] = ks_gelu_tanh(x[i]);
        }
        break;
    default:
#pragma unroll
        for (int i = 0; i < N; i++) {
            if constexpr (QUICK)
                x[i] = ks_silu_quick(x[i]);
            else
                x[i] = ks_silu(x[i]);
        }
        break;
    }
}

#endif
