/* kernels/ptx.cuh in C++: stands in its place. */
#ifndef KS_PTX_CUH
#define KS_PTX_CUH

#include "cuda_bf16.h"
#include "cuda_fp16.h"

static inline uint64_t ks_globaltimer()
{
    return 1;
}
template <class P>
static inline const P *ks_one_address(const P *at)
{
    return at;
}

static inline void ks_anew(uint32_t &)
{
}
static inline void ks_anew_each_round(uint32_t &)
{
}

enum { KS_L1_LINE = 128 };
static inline void ks_prefetch(const void *)
{
}

/* --- launches ------------------------------------------------------------------------------------------------------- */

static inline void ks_launch_next()
{
}
static inline void ks_launch_wait()
{
    emulate_launch_wait();
}

static inline uint4 ks_load_made(const uint4 *at)
{
    return *at;
}

/* --- arithmetic ------------------------------------------------------------------------------------------------------ */

static inline float emulate_flush(float x) /* .ftz: subnormals are 0 */
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}
static inline float ks_exp2_quick(float x)
{
    return emulate_flush(exp2f(emulate_flush(x)));
}
static inline uint32_t ks_to_int8(float x)
{
    return isnan(x) ? 0 : (uint32_t)(int32_t)rintf(x < -128 ? -128 : x > 127 ? 127 : x) & 0xFF;
}
static inline float ks_reciprocal_quick(float x)
{
    return emulate_flush(1 / emulate_flush(x));
}
static inline double ks_reciprocal_quick(double x)
{
    const uint64_t low = 0xFFFFFFFF; /* the instruction's result has 32 bits, and is flushed */
    const double y = emulate_bits<double>(emulate_bits<uint64_t>(1 / x) & ~low);
    return fabs(y) < 0x1p-1022 ? copysign(0, y) : y;
}
static inline float ks_rsqrt_quick(float x)
{
    return emulate_flush((float)(1 / sqrt((double)emulate_flush(x))));
}
static inline float ks_max_nan(float a, float b)
{
    return isnan(a) || isnan(b) ? NAN : fmaxf(a, b);
}

/* --- two 16-bit elements in a word ----------------------------------------------------------------------------------- */

template <class T>
union emulate_two {
    uint32_t word;
    T one[2];
};

static inline void emulate_round(float x, __half *to)
{
    *to = __float2half_rn(x);
}
static inline void emulate_round(float x, __nv_bfloat16 *to)
{
    *to = __float2bfloat16_rn(x);
}
template <class T>
static inline uint32_t ks_round_two(float low, float high)
{
    emulate_two<T> two;
    emulate_round(low, &two.one[0]);
    emulate_round(high, &two.one[1]);
    return two.word;
}
template <class T>
static inline uint32_t ks_max_two(uint32_t a, uint32_t b)
{
    emulate_two<T> x = {a}, y = {b};
    for (int i = 0; i < 2; i++) x.one[i] = __hmax(x.one[i], y.one[i]);
    return x.word;
}
template <class T>
static inline uint32_t ks_times_two(uint32_t a, uint32_t b)
{
    emulate_two<T> x = {a}, y = {b};
    for (int i = 0; i < 2; i++) x.one[i] = __hmul(x.one[i], y.one[i]);
    return x.word;
}
static inline uint32_t ks_signs(uint32_t pair)
{
    return (pair & 0x8000 ? 0xFFFFu : 0) | (pair >> 31 ? 0xFFFF0000u : 0);
}

/* --- a warp ---------------------------------------------------------------------------------------------------------- */

static inline uint32_t ks_warp_max(uint32_t mine)
{
    for (int distance = 16; distance > 0; distance /= 2) {
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, mine, distance);
        if (other > mine) mine = other;
    }
    return mine;
}
static inline uint32_t ks_warp_min(uint32_t mine)
{
    return ~ks_warp_max(~mine);
}

/* --- memory ---------------------------------------------------------------------------------------------------------- */

/* Copies arrive when they are waited for, as late as they may. */
template <class Word>
static inline void ks_copy_async(Word *shared, const Word *global)
{
    emulate_copy(shared, global, sizeof(Word));
}
static inline void ks_copy_wait()
{
    emulate_copy_wait();
}
static inline void ks_copy_group()
{
    emulate_copy_group();
}
template <int BUT>
static inline void ks_copy_wait_but()
{
    emulate_copy_wait_but(BUT);
}

struct emulate_mbarrier { /* in the words of an mbarrier */
    uint16_t missing, arrivals;
    uint32_t parity;
};
static inline void ks_mbarrier_init(uint64_t *mbarrier, uint32_t arrivals)
{
    const emulate_mbarrier g = {(uint16_t)arrivals, (uint16_t)arrivals, 0};
    memcpy(mbarrier, &g, sizeof g);
}
static inline void ks_mbarrier_arrive(uint64_t *mbarrier)
{
    emulate_mbarrier g;
    memcpy(&g, mbarrier, sizeof g);
    if (--g.missing == 0) g = {g.arrivals, g.arrivals, g.parity ^ 1};
    memcpy(mbarrier, &g, sizeof g);
}
static inline void ks_mbarrier_wait(uint64_t *mbarrier, uint32_t parity)
{
    emulate_until((const uint32_t *)(const void *)mbarrier + 1, ~0u, parity);
}

struct alignas(16) ks_message {
    uint64_t first, second;
};

static inline void ks_write_relaxed(uint64_t *at, uint64_t word)
{
    __atomic_store_n(at, word, __ATOMIC_SEQ_CST);
}
static inline uint64_t ks_read_relaxed(const uint64_t *at)
{
    emulate_turn();
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}
static inline void ks_write_relaxed(ks_message *at, ks_message r)
{
    emulate_at_once(at, &r, sizeof r);
}
static inline void ks_fence_system()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void ks_write_release(uint64_t *at, ks_message r)
{
    ks_write_relaxed((ks_message *)(void *)at, r);
}
static inline ks_message ks_read_relaxed(const ks_message *at)
{
    ks_message r;
    emulate_turn();
    emulate_at_once(&r, at, sizeof r);
    return r;
}

#endif
