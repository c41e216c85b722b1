/* Warp and block reductions, 16-byte elements of a row, and the (max, sum of exp) pairs that softmax and logsumexp
 * share. Every tree here has a fixed shape, so that equal input gives equal bits. */
#ifndef KS_WARP_CUH
#define KS_WARP_CUH

#include "cuda/common/ptx.cuh"

enum { KS_WARP = 32, KS_WARPS_MAX = 32 };

/* --- elements -------------------------------------------------------------------------------------------------------- */

/* T in memory, `math` in registers; a vector is 16 bytes. */
template <class T>
struct ks_element {
    typedef float math;
};
template <>
struct ks_element<double> {
    typedef double math;
};

__device__ __forceinline__ float ks_math(float x)
{
    return x;
}
__device__ __forceinline__ double ks_math(double x)
{
    return x;
}
__device__ __forceinline__ float ks_math(__half x)
{
    return __half2float(x);
}
__device__ __forceinline__ float ks_math(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

/* One of two 16-bit elements in a word, the first one low. */
template <class T>
__device__ __forceinline__ float ks_math_of(uint32_t two, int which);
template <>
__device__ __forceinline__ float ks_math_of<__half>(uint32_t two, int which)
{
    return __half2float(__ushort_as_half((unsigned short)(which ? two >> 16 : two)));
}
template <>
__device__ __forceinline__ float ks_math_of<__nv_bfloat16>(uint32_t two, int which)
{
    return __uint_as_float(which ? two & 0xffff0000 : two << 16);
}

/* Rounds once, to nearest even. */
template <class T, class M>
__device__ __forceinline__ T ks_round(M x)
{
    return (T)x;
}
template <>
__device__ __forceinline__ __half ks_round<__half, float>(float x)
{
    return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 ks_round<__nv_bfloat16, float>(float x)
{
    return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half ks_round<__half, double>(double x)
{
    return __double2half(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 ks_round<__nv_bfloat16, double>(double x)
{
    return __double2bfloat16(x);
}

template <class T>
struct ks_vector {
    static constexpr int length = 16 / (int)sizeof(T);
    union {
        uint4 raw;
        T element[length];
    };
    __device__ __forceinline__ ks_vector()
    {
    }
};

/* A row as vectors: those of the aligned superset of its bytes. Rows need not start on 16 bytes; buffers do, and are
 * readable a vector beyond their end. Element e of vector v is the row's element v * length + e - skip. */
struct ks_row {
    int64_t first; /* vector index of the row's first vector within its tensor */
    int64_t vectors;
    int skip; /* elements of the first vector that belong to the row before */
};

template <class T>
__device__ __forceinline__ ks_row ks_row_at(int64_t row, int64_t length)
{
    constexpr int E = ks_vector<T>::length;
    const int64_t start = row * length;
    ks_row r;
    r.first = start / E;
    r.skip = (int)(start % E);
    r.vectors = (r.skip + length + E - 1) / E;
    return r;
}

template <class T>
__device__ __forceinline__ ks_vector<T> ks_load_vector(const void *data, int64_t index)
{
    ks_vector<T> v;
    v.raw = ((const uint4 *)data)[index];
    return v;
}

/* Stores those elements of a vector that are the row's: whole where all are. at: the row's element that element 0 is.
 */
template <class T>
__device__ __forceinline__ void ks_store_vector(void *data, int64_t index, const ks_vector<T> &v, int64_t at,
                                                int64_t length)
{
    constexpr int E = ks_vector<T>::length;
    if (at >= 0 && at + E <= length) {
        ((uint4 *)data)[index] = v.raw;
        return;
    }
#pragma unroll
    for (int e = 0; e < E; e++)
        if (at + e >= 0 && at + e < length) ((T *)data)[index * E + e] = v.element[e];
}

/* --- trees ----------------------------------------------------------------------------------------------------------- */

/* The sum of a thread's N values, a power of two: halves upon each other. */
template <class S, int N>
__device__ __forceinline__ S ks_tree(const S (&x)[N])
{
    if constexpr (N == 1) {
        return x[0];
    } else {
        S half[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) half[i] = x[i] + x[i + N / 2];
        return ks_tree(half);
    }
}

__device__ __forceinline__ float ks_shuffle(float x, int distance)
{
    return __shfl_xor_sync(0xFFFFFFFFu, x, distance);
}
__device__ __forceinline__ double ks_shuffle(double x, int distance)
{
    return __shfl_xor_sync(0xFFFFFFFFu, x, distance);
}
__device__ __forceinline__ uint32_t ks_shuffle(uint32_t x, int distance)
{
    return __shfl_xor_sync(0xFFFFFFFFu, x, distance);
}
__device__ __forceinline__ uint64_t ks_shuffle(uint64_t x, int distance)
{
    return __shfl_xor_sync(0xFFFFFFFFu, (unsigned long long)x, distance);
}
__device__ __forceinline__ int64_t ks_shuffle(int64_t x, int distance)
{
    return (int64_t)ks_shuffle((uint64_t)x, distance);
}

/* join(a, b) over groups of `width` threads (a power of two, at most a warp; all 32 take part); each gets the result.
 */
template <class S, class Join>
__device__ __forceinline__ S ks_subwarp_reduce(S value, int width, Join join)
{
    for (int distance = width / 2; distance > 0; distance /= 2) value = join(value, ks_shuffle(value, distance));
    return value;
}

/* Over the CTA, which is whole warps; each thread gets the result. shared: room for a value of each warp. */
template <class S, class Join>
__device__ __forceinline__ S ks_block_reduce(S value, S *shared, Join join)
{
    const int warps = blockDim.x / KS_WARP;
    value = ks_subwarp_reduce(value, KS_WARP, join);
    if (warps == 1) return value;
    if (threadIdx.x % KS_WARP == 0) shared[threadIdx.x / KS_WARP] = value;
    __syncthreads();
    value = shared[0];
    for (int w = 1; w < warps; w++) value = join(value, shared[w]);
    __syncthreads();
    return value;
}

/* The same for groups of `width` threads: part of a warp, or the CTA. */
template <class S, class Join>
__device__ __forceinline__ S ks_width_reduce(S value, int width, S *shared, Join join)
{
    return width <= KS_WARP ? ks_subwarp_reduce(value, width, join) : ks_block_reduce(value, shared, join);
}

struct ks_adds {
    template <class S>
    __device__ __forceinline__ S operator()(S a, S b) const
    {
        return a + b;
    }
};

/* --- (max, sum of exp) ----------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float ks_exp2(float x)
{
    return exp2f(x);
}
__device__ __forceinline__ double ks_exp2(double x)
{
    return exp2(x);
}
__device__ __forceinline__ double ks_exp2_quick(double x)
{
    return exp2(x);
}
/* 1/x within 2 ulp, for x that is finite and not subnormal. */
__device__ __forceinline__ float ks_reciprocal(float x)
{
    return ks_reciprocal_quick(x);
}
__device__ __forceinline__ double ks_reciprocal(double x)
{
    double y = ks_reciprocal_quick(x); /* each step doubles its bits */
#pragma unroll
    for (int i = 0; i < 3; i++) y = fma(y, fma(-x, y, 1.0), y);
    return y;
}
__device__ __forceinline__ float ks_max(float a, float b)
{
    return fmaxf(a, b);
}
__device__ __forceinline__ double ks_max(double a, double b)
{
    return fmax(a, b);
}

__device__ __forceinline__ __half ks_max(__half a, __half b)
{
    return __hmax(a, b);
}
__device__ __forceinline__ __nv_bfloat16 ks_max(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __hmax(a, b);
}

/* a b + c d, not contracted, so that both sides of a shuffle get the same bits. */
__device__ __forceinline__ float ks_sum_of_products(float a, float b, float c, float d)
{
    return __fadd_rn(__fmul_rn(a, b), __fmul_rn(c, d));
}
__device__ __forceinline__ double ks_sum_of_products(double a, double b, double c, double d)
{
    return __dadd_rn(__dmul_rn(a, b), __dmul_rn(c, d));
}

/* Of numbers that may be NaN: then NaN. */
__device__ __forceinline__ double ks_max_nan(double a, double b)
{
    return a > b || isnan(a) ? a : b;
}
__device__ __forceinline__ uint32_t ks_max_nan(uint32_t a, uint32_t b)
{
    return max(a, b);
}
__device__ __forceinline__ uint64_t ks_max_nan(uint64_t a, uint64_t b)
{
    return max(a, b);
}

/* h: half of what is maximised; sum: of exp2((h' - h) * factor). Halves, because differences of finite halves are
 * finite. NaN is dropped by the maximum and stays in the sum. */
template <class M>
struct ks_normaliser {
    M h;
    double sum;
};

/* An infinite maximum is no reference: 0 keeps inf - inf out of the sums. */
template <class M>
__device__ __forceinline__ M ks_reference(M h)
{
    return isinf(h) ? (M)0 : h;
}

template <class M>
__device__ __forceinline__ ks_normaliser<M> ks_shuffle(ks_normaliser<M> a, int distance)
{
    ks_normaliser<M> b;
    b.h = ks_shuffle(a.h, distance);
    b.sum = ks_shuffle(a.sum, distance);
    return b;
}

/* The weight of a part whose maximum is h. A part without finite values has the sum 0, or NaN, at any weight. */
template <class M>
__device__ __forceinline__ M ks_weight(M h, M whole, M factor)
{
    return h == whole ? (M)1 : isinf(h) ? (M)0 : ks_exp2((h - whole) * factor);
}

template <class M>
struct ks_joins {
    M factor;
    __device__ __forceinline__ ks_normaliser<M> operator()(ks_normaliser<M> a, ks_normaliser<M> b) const
    {
        ks_normaliser<M> whole;
        whole.h = ks_max(a.h, b.h);
        /* Not contracted, so that a and b may change places: both sides of a shuffle get the same bits. */
        whole.sum = __dadd_rn(__dmul_rn(a.sum, (double)ks_weight(a.h, whole.h, factor)),
                              __dmul_rn(b.sum, (double)ks_weight(b.h, whole.h, factor)));
        return whole;
    }
};

template <class M>
__device__ __forceinline__ ks_normaliser<M> ks_nothing()
{
    ks_normaliser<M> none;
    none.h = -(M)INFINITY;
    none.sum = 0;
    return none;
}

/* Takes N values, of which the mask says which there are. One leaf in M, added to the sum in double. */
template <int N, class M>
__device__ __forceinline__ void ks_normaliser_take(ks_normaliser<M> &n, const M (&h)[N], unsigned mask, M factor)
{
    M most = n.h;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (mask >> i & 1) most = ks_max(most, h[i]);
    const M reference = ks_reference(most);
    M leaf = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (mask >> i & 1) leaf += ks_exp2((h[i] - reference) * factor);
    n.sum = n.sum * (double)ks_weight(n.h, most, factor) + (double)leaf;
    n.h = most;
}

#endif
