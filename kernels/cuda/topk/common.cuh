/* What topk's kernels share: elements as keys, keys with indices as items, and the ordering and output of items.
 *
 * Key      an element's bits as an unsigned integer that orders as the answer does: the best element has the largest key. NaN has all
 *          ones (least: the answer is of the smallest), -0 the key of +0.
 * Item     a key above the complement of its index: all items of a row differ, and the larger one comes first. 0 is no item.
 * Values   come from keys; those that a key does not tell, zeros and NaN, are read again. */
#ifndef KS_TOPK_COMMON_CUH
#define KS_TOPK_COMMON_CUH

#include "cuda/common/launch.cuh"
#include "cuda/common/warp.cuh"
#include "ops/topk/topk.h"

#include <type_traits>

enum {
    TOPK_THREADS_MOST = 256,
    TOPK_FEW = 128,       /* items that are ordered by comparing all with all; the threads of a CTA, at least */
    TOPK_BINS = 256,      /* of a digit of 8 bits */
    TOPK_DIGIT_BITS = 11, /* of a key's first digit, by which a whole row is counted (counted.cuh) */
    TOPK_DIGITS = 1 << TOPK_DIGIT_BITS,
    TOPK_CANDIDATES = 4, /* items that a thread takes at a time */
    TOPK_ROW_WARP = 512  /* elements of a row that one warp sorts, at most */
};

/* CTAs of TOPK_THREADS_MOST threads that an SM's registers hold. */
constexpr int topk_ctas_sm(bool strided, int bits)
{
    return strided || bits == 64 ? 2 : 3;
}

/* By value to each kernel. Offsets are bytes from a job's sides. */
struct topk_shape {
    int64_t rows, length, inner; /* as ks_topk_shape has them */
    uint64_t in, values, indices;
    uint64_t flip;        /* of the key's bits, last */
    int64_t part;         /* vectors of a part of a row, or elements where inner > 1 */
    uint64_t thresholds;  /* bytes of the workspace in front of the rows' thresholds */
    int32_t k, parts;     /* parts: of a row, one for each CTA */
    uint32_t slack;       /* items that a CTA may keep before it has to prune them */
    bool largest, narrow; /* narrow: indices are INT32 */
    bool counted;         /* a row's elements are counted by their first digits before any is kept */
};

/* --- elements -------------------------------------------------------------------------------------------------------- */

/* An element as its bits. EXPONENT: bits of a float's exponent; 0: an integer. */
template <class Word, int EXPONENT>
struct topk_type {
    typedef Word word;
    typedef std::conditional_t<sizeof(Word) == 8, uint64_t, uint32_t> key;
    typedef std::conditional_t<sizeof(Word) == 8, double, float> number;
    static constexpr bool is_float = EXPONENT > 0;
    static constexpr int bits = 8 * (int)sizeof(Word);
    static constexpr int exponent = EXPONENT;
    static constexpr key all = (key)(Word) ~(Word)0;
    static constexpr key sign = (key)1 << (bits - 1);
    static constexpr key infinity = (((key)1 << EXPONENT) - 1) << (bits - 1 - EXPONENT);
};
typedef topk_type<uint8_t, 0> topk_int8;
typedef topk_type<uint16_t, 0> topk_int16;
typedef topk_type<uint32_t, 0> topk_int32;
typedef topk_type<uint64_t, 0> topk_int64;
typedef topk_type<uint16_t, 5> topk_fp16;
typedef topk_type<uint16_t, 8> topk_bf16;
typedef topk_type<uint32_t, 8> topk_fp32;
typedef topk_type<uint64_t, 11> topk_fp64;

template <class T>
__device__ __forceinline__ typename T::number topk_number(typename T::key word)
{
    if constexpr (T::bits == 64)
        return __longlong_as_double((long long)word);
    else if constexpr (T::bits == 32)
        return __uint_as_float(word);
    else if constexpr (T::exponent == 8)
        return __uint_as_float(word << 16);
    else
        return __half2float(__ushort_as_half((unsigned short)word));
}

template <class T>
__device__ __forceinline__ typename T::key topk_key_of(typename T::word element, typename T::key flip)
{
    typedef typename T::key key;
    const key word = element;
    if constexpr (!T::is_float) {
        return word ^ flip;
    } else {
        const key size = word & ~T::sign;
        key k = word & T::sign ? ~word & T::all : word | T::sign;
        k = size == 0 ? T::sign : k;
        k = size > T::infinity ? T::all : k;
        return k ^ flip;
    }
}

/* The element whose key that is. false: several elements have it. */
template <class T>
__device__ __forceinline__ bool topk_element_of(typename T::key key, typename T::key flip, typename T::word *element)
{
    const typename T::key k = key ^ flip;
    *element = (typename T::word)(!T::is_float ? k : k & T::sign ? k ^ T::sign : ~k);
    return !T::is_float || (k != T::sign && k != T::all);
}

/* --- items ----------------------------------------------------------------------------------------------------------- */

__extension__ typedef unsigned __int128 topk_wide;

template <class T>
using topk_item = std::conditional_t<sizeof(typename T::word) == 8, topk_wide, uint64_t>;

/* Of an item: the bits below its key. */
template <class Item>
constexpr int topk_shift = 4 * (int)sizeof(Item);

template <class Item>
__device__ __forceinline__ int64_t topk_index(Item item)
{
    if constexpr (sizeof(Item) == 8)
        return (int64_t)(uint32_t)~item;
    else
        return (int64_t)(uint64_t)~item;
}

template <class T>
__device__ __forceinline__ topk_item<T> topk_item_of(typename T::key key, int64_t index)
{
    if constexpr (T::bits == 64)
        return (topk_wide)key << 64 | ~(uint64_t)index;
    else
        return (uint64_t)key << 32 | (uint32_t) ~(uint32_t)index;
}

/* A CTA's shared memory beside its items. */
template <class Item>
struct topk_state {
    Item threshold; /* what does not exceed it is not among the first k */
    uint64_t bests[KS_WARPS_MAX];
    uint32_t bins[TOPK_BINS]; /* zero between digits */
    uint32_t count;           /* items */
    uint32_t digit, above, equal;
    uint32_t place; /* among a row's items that CTAs hand in */
    bool last;
};

/* Room for each lane's items behind those that there are: the first of the lane's places, and the end of the warp's. All lanes. */
struct topk_room {
    uint32_t at, end;
};
__device__ __forceinline__ topk_room topk_claim(uint32_t mine, uint32_t *count)
{
    const uint32_t lane_id = threadIdx.x % KS_WARP;
    uint32_t before = 0, all = mine, start = 0;
#pragma unroll
    for (int distance = 1; distance < KS_WARP; distance *= 2) {
        const uint32_t other = ks_shuffle(all, distance);
        before += lane_id & (uint32_t)distance ? other : 0;
        all += other;
    }
    if (lane_id == 0) start = atomicAdd(count, all);
    start = ks_warp_max(start);
    return {start + before, start + all};
}

/* Items in falling order: `places`, a power of two from 64 on. threads: a warp, or the CTA. A warp's pairs of neighbours no further apart
 * than its lanes lie in 64 places that no other warp touches. */
template <class Item>
__device__ __forceinline__ void topk_sort(Item *items, uint32_t places, uint32_t thread, uint32_t threads)
{
    for (uint32_t size = 2; size <= places; size *= 2)
        for (uint32_t stride = size / 2; stride > 0; stride /= 2) {
            for (uint32_t pair = thread; pair < places / 2; pair += threads) {
                const uint32_t i = 2 * pair - (pair & (stride - 1)), j = i + stride;
                const Item a = items[i], b = items[j];
                if ((a < b) == ((i & size) == 0)) {
                    items[i] = b;
                    items[j] = a;
                }
            }
            const uint32_t next = stride > 1 ? stride / 2 : size;
            if (threads > KS_WARP && (stride > KS_WARP || next > KS_WARP))
                __syncthreads();
            else
                __syncwarp();
        }
}

/* Place j of a row's answer. */
template <class T>
__device__ __forceinline__ void topk_write(const topk_shape &s, const ks_job_sides &job, int64_t row, int j,
                                           topk_item<T> item)
{
    typedef typename T::word word;
    const int64_t outer = row / s.inner, column = row - outer * s.inner, index = topk_index(item);
    const int64_t to = (outer * s.k + j) * s.inner + column;
    word element;
    if (!topk_element_of<T>((typename T::key)(item >> topk_shift<topk_item<T>>), (typename T::key)s.flip, &element))
        element = ((const word *)(job.in + s.in))[(outer * s.length + index) * s.inner + column];
    ((word *)(job.out + s.values))[to] = element;
    if (s.narrow)
        ((int32_t *)(job.out + s.indices))[to] = (int32_t)index;
    else
        ((int64_t *)(job.out + s.indices))[to] = index;
}

#endif
