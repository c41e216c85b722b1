/* The functions of map on the GPU, of N elements at once: the function is the same for all threads, so there is one branch for N elements.
 *
 * Floats and doubles: those of common/unary.cuh where it has them; with QUICK its versions for results of 16 bits. Integers stand in
 * unsigned words, zero-extended; what of the result goes beyond their datatype is cut off by the store. */
#ifndef KS_MAP_FUNCTIONS_CUH
#define KS_MAP_FUNCTIONS_CUH

#include "cuda/common/unary.cuh"
#include "cuda/map/shape.cuh"
#include "cuda/map/turns.cuh"

/* What is computed with: M is float, double, uint32_t or uint64_t. */
template <class M>
struct map_given {
    M a, b, flip;
};

template <class M>
__device__ __forceinline__ map_given<M> map_given_of(const map_numbers &n)
{
    if constexpr ((M)1 / 2 != (M)0)
        return map_given<M>{(M)n.a, (M)n.b, (M)0};
    else
        return map_given<M>{(M)n.whole_a, (M)n.whole_b, (M)n.flip};
}

/* --- real numbers ------------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float map_rsqrt(float x)
{
    return rsqrtf(x);
}
__device__ __forceinline__ double map_rsqrt(double x)
{
    return rsqrt(x);
}

__device__ __forceinline__ float map_abs(float x)
{
    return __uint_as_float(__float_as_uint(x) & 0x7FFFFFFFu);
}
__device__ __forceinline__ double map_abs(double x)
{
    return __longlong_as_double(__double_as_longlong(x) & 0x7FFFFFFFFFFFFFFFll);
}

/* Without a branch; of NaN NaN. */
template <class M>
__device__ __forceinline__ M map_sign(M x)
{
    const M sign = (M)(x > (M)0) - (M)(x < (M)0);
    return x != x ? x : sign;
}

template <class M>
__device__ __forceinline__ M map_softplus(M x)
{
    return (x > (M)0 ? x : (M)0) + log1p(exp(-map_abs(x)));
}

template <class M>
__device__ __forceinline__ M map_elu(M x, M a)
{
    return x > (M)0 ? x : a * expm1(x);
}

template <bool QUICK, class M>
__device__ __forceinline__ M map_exp(M x)
{
    if constexpr (QUICK)
        return exp2f(x * 1.44269504f); /* 16 bits have subnormals below 2^-126 */
    else
        return exp(x);
}

template <bool QUICK, class M>
__device__ __forceinline__ M map_sigmoid(M x)
{
    if constexpr (QUICK)
        return ks_sigmoid_quick(x);
    else
        return ks_sigmoid(x);
}

/* --- one operand --------------------------------------------------------------------------------------------------------- */

#define MAP_EACH(expression)                                                                                           \
    _Pragma("unroll") for (int i = 0; i < N; i++)                                                                      \
    {                                                                                                                  \
        const M v = x[i];                                                                                              \
        x[i] = (expression);                                                                                           \
    }                                                                                                                  \
    break

/* T: what the results are rounded to. */
template <class T, int N, class M>
__device__ __forceinline__ void map_activate(int function, M (&x)[N])
{
    ks_activate<T>(x, function == KS_MAP_RELU        ? KS_ACTIVATION_RELU
                      : function == KS_MAP_GELU      ? KS_ACTIVATION_GELU
                      : function == KS_MAP_GELU_TANH ? KS_ACTIVATION_GELU_TANH
                                                     : KS_ACTIVATION_SILU);
}

template <class T, int N, class M>
__device__ __forceinline__ void map_one_real(int function, M (&x)[N], const map_given<M> &given)
{
    constexpr bool QUICK = sizeof(T) < sizeof(M);
    const M a = given.a, b = given.b;
    switch (function) {
    case KS_MAP_RELU:
    case KS_MAP_GELU:
    case KS_MAP_GELU_TANH:
    case KS_MAP_SILU:
        map_activate<T>(function, x);
        break;
    case KS_MAP_ABS:
        MAP_EACH(map_abs(v));
    case KS_MAP_NEG:
        MAP_EACH(-v);
    case KS_MAP_SIGN:
        MAP_EACH(map_sign(v));
    case KS_MAP_EXP:
        MAP_EACH((map_exp<QUICK>(v)));
    case KS_MAP_LOG:
        MAP_EACH(log(v));
    case KS_MAP_SQRT:
        MAP_EACH(sqrt(v));
    case KS_MAP_RSQRT:
        MAP_EACH(map_rsqrt(v));
    case KS_MAP_RECIPROCAL:
        MAP_EACH((M)1 / v);
    case KS_MAP_SQUARE:
        MAP_EACH(v * v);
    case KS_MAP_FLOOR:
        MAP_EACH(floor(v));
    case KS_MAP_CEIL:
        MAP_EACH(ceil(v));
    case KS_MAP_ROUND:
        MAP_EACH(rint(v));
    case KS_MAP_SIN:
        MAP_EACH(map_sin(v));
    case KS_MAP_COS:
        MAP_EACH(map_cos(v));
    case KS_MAP_TANH:
        MAP_EACH(tanh(v));
    case KS_MAP_ERF:
        MAP_EACH(erf(v));
    case KS_MAP_SIGMOID:
        MAP_EACH((map_sigmoid<QUICK>(v)));
    case KS_MAP_SOFTPLUS:
        MAP_EACH(map_softplus(v));
    case KS_MAP_ELU:
        MAP_EACH(map_elu(v, a));
    case KS_MAP_LEAKY_RELU:
        MAP_EACH((v < (M)0 ? a * v : v));
    case KS_MAP_CLAMP:
        MAP_EACH((v < a ? a : v > b ? b : v));
    case KS_MAP_LINEAR:
        MAP_EACH(fma(a, v, b));
    default:
        break;
    }
}

template <class M>
__device__ __forceinline__ bool map_negative(M x, M flip)
{
    return (x ^ flip) < flip;
}

template <class M>
__device__ __forceinline__ M map_least(M x, M y, M flip)
{
    return (x ^ flip) < (y ^ flip) ? x : y;
}

template <class M>
__device__ __forceinline__ M map_most(M x, M y, M flip)
{
    return (x ^ flip) < (y ^ flip) ? y : x;
}

template <class T, int N, class M>
__device__ __forceinline__ void map_one_whole(int function, M (&x)[N], const map_given<M> &given)
{
    const M a = given.a, b = given.b, flip = given.flip;
    switch (function) {
    case KS_MAP_ABS:
        MAP_EACH((map_negative(v, flip) ? (M)0 - v : v));
    case KS_MAP_NEG:
        MAP_EACH((M)0 - v);
    case KS_MAP_SIGN:
        MAP_EACH((map_negative(v, flip) ? ~(M)0 : (M)(v != 0)));
    case KS_MAP_SQUARE:
        MAP_EACH(v * v);
    case KS_MAP_RELU:
        MAP_EACH((map_negative(v, flip) ? (M)0 : v));
    case KS_MAP_CLAMP:
        MAP_EACH(map_most(map_least(v, b, flip), a, flip));
    case KS_MAP_LINEAR:
        MAP_EACH(a * v + b);
    case KS_MAP_NOT:
        MAP_EACH(~v);
    default:
        break;
    }
}

#undef MAP_EACH

/* --- two ------------------------------------------------------------------------------------------------------------------ */

#define MAP_EACH(expression)                                                                                           \
    _Pragma("unroll") for (int i = 0; i < N; i++)                                                                      \
    {                                                                                                                  \
        const M v = x[i], w = y[i];                                                                                    \
        x[i] = (expression);                                                                                           \
    }                                                                                                                  \
    break

/* Of x and y into x. */
template <int N, class M>
__device__ __forceinline__ void map_two_real(int function, M (&x)[N], const M (&y)[N], const map_given<M> &given)
{
    const M a = given.a;
    switch (function) {
    case KS_MAP_ADD:
        MAP_EACH(v + w);
    case KS_MAP_SUB:
        MAP_EACH(v - w);
    case KS_MAP_MUL:
        MAP_EACH(v * w);
    case KS_MAP_DIV:
        MAP_EACH(v / w);
    case KS_MAP_MIN:
        MAP_EACH((v < w || v != v ? v : w));
    case KS_MAP_MAX:
        MAP_EACH((v > w || v != v ? v : w));
    case KS_MAP_POW:
        MAP_EACH(pow(v, w));
    default:
        MAP_EACH(fma(a, v, w));
    }
}

/* A negative exponent leaves what is not below 1: of 1 and -1, which has all bits of the datatype. */
template <class M>
__device__ __forceinline__ M map_power(M base, M exponent, M flip)
{
    const M all = flip | (flip - 1);
    if (map_negative(exponent, flip)) return base == 1 || base == all ? (exponent & 1 ? base : (M)1) : (M)0;
    M result = 1;
#pragma unroll 1
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) result *= base;
        base *= base;
    }
    return result;
}

template <int N, class M>
__device__ __forceinline__ void map_two_whole(int function, M (&x)[N], const M (&y)[N], const map_given<M> &given)
{
    const M a = given.a, flip = given.flip;
    switch (function) {
    case KS_MAP_ADD:
        MAP_EACH(v + w);
    case KS_MAP_SUB:
        MAP_EACH(v - w);
    case KS_MAP_MUL:
        MAP_EACH(v * w);
    case KS_MAP_MIN:
        MAP_EACH(map_least(v, w, flip));
    case KS_MAP_MAX:
        MAP_EACH(map_most(v, w, flip));
    case KS_MAP_AND:
        MAP_EACH(v & w);
    case KS_MAP_OR:
        MAP_EACH(v | w);
    case KS_MAP_XOR:
        MAP_EACH(v ^ w);
    case KS_MAP_POW:
        MAP_EACH(map_power(v, w, flip));
    default:
        MAP_EACH(a * v + w);
    }
}

#undef MAP_EACH

/* --- truths --------------------------------------------------------------------------------------------------------------- */

#define MAP_EACH(expression)                                                                                           \
    _Pragma("unroll") for (int i = 0; i < N; i++)                                                                      \
    {                                                                                                                  \
        const M v = x[i], w = y[i];                                                                                    \
        truth[i] = (expression);                                                                                       \
    }                                                                                                                  \
    break

template <int N, class M>
__device__ __forceinline__ void map_truths(int function, const M (&x)[N], const M (&y)[N], uint32_t (&truth)[N])
{
    switch (function) {
    case KS_MAP_EQ:
        MAP_EACH(v == w);
    case KS_MAP_NE:
        MAP_EACH(v != w);
    case KS_MAP_LT:
        MAP_EACH(v < w);
    case KS_MAP_LE:
        MAP_EACH(v <= w);
    case KS_MAP_GT:
        MAP_EACH(v > w);
    default:
        MAP_EACH(v >= w);
    }
}

#undef MAP_EACH

/* Of integers by the order of their bits with `flip` changed, as whole functions have it. */
template <int N, class M>
__device__ __forceinline__ void map_truths_whole(int function, const M (&x)[N], const M (&y)[N], M flip,
                                                 uint32_t (&truth)[N])
{
    M v[N], w[N];
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = x[i] ^ flip, w[i] = y[i] ^ flip;
    map_truths(function, v, w, truth);
}

#endif
