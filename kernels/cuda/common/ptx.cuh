/* Instructions that CUDA C++ has no name for, a function each: all inline assembly but that of matmul (ptx_mma.cuh).
 * tests/emulate/ptx.h says the same in C++, for machines without a GPU. */
#ifndef KS_PTX_CUH
#define KS_PTX_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* Nanoseconds, of one clock for the whole device. */
__device__ __forceinline__ uint64_t ks_globaltimer()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* The address stays in one piece: put together anew for each load it costs more than the arithmetic. */
template <class P>
__device__ __forceinline__ const P *ks_one_address(const P *at)
{
    asm("" : "+l"(at));
    return at;
}

/* The line in which the address lies comes to the L1 cache. */
enum { KS_L1_LINE = 128 };
__device__ __forceinline__ void ks_prefetch(const void *at)
{
    asm volatile("prefetch.global.L1 [%0];" ::"l"(at));
}

/* What was computed of the word is not kept in registers for its next use. */
__device__ __forceinline__ void ks_anew(uint32_t &word)
{
    asm("" : "+r"(word));
}

/* Likewise, in each round of a loop that the word does not change in: else what is computed of it moves in front of the loop. */
__device__ __forceinline__ void ks_anew_each_round(uint32_t &word)
{
    asm volatile("" : "+r"(word));
}

/* --- launches that overlap: nothing on chips before sm_90 ------------------------------------------------------------- */

/* Once all CTAs have said so, or ended, a launch behind this one that was made with leave to do so begins. */
__device__ __forceinline__ void ks_launch_next()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* For the end of the launch before this one, and all that it wrote. */
__device__ __forceinline__ void ks_launch_wait()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* A vector of memory that the launch before this one may write: loaded behind ks_launch_wait(), where a load of what never changes, as
 * __ldg() is, might be moved in front of it. */
__device__ __forceinline__ uint4 ks_load_made(const uint4 *at)
{
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}

/* --- arithmetic ------------------------------------------------------------------------------------------------------ */

/* Within 2 ulp as exp2f(), but what is below 2^-126 is 0. */
__device__ __forceinline__ float ks_exp2_quick(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1/x within 2 ulp, for x that is finite and not subnormal; double: to 20 bits. */
__device__ __forceinline__ float ks_reciprocal_quick(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ double ks_reciprocal_quick(double x)
{
    double y;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
    return y;
}

/* 1/sqrt(x) within 2 ulp, for x that is not subnormal; infinite of 0. */
__device__ __forceinline__ float ks_rsqrt_quick(float x)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* NaN where one of them is. */
__device__ __forceinline__ float ks_max_nan(float a, float b)
{
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}

/* To INT8, to nearest even, saturating, as the last 8 bits; NaN is 0. */
__device__ __forceinline__ uint32_t ks_to_int8(float x)
{
    int32_t code;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(code) : "f"(x));
    return (uint32_t)code & 0xFF;
}

#if __CUDA_ARCH__ >= 890
/* Two in FP8, the first one low: rounded to nearest even, saturating; NaN stays. */
__device__ __forceinline__ uint32_t ks_pack_e4m3(float low, float high)
{
    uint16_t two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(high), "f"(low));
    return two;
}
/* Two of the low 16 bits as FP16. */
__device__ __forceinline__ uint32_t ks_unpack_e4m3(uint32_t two)
{
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)two));
    return halves;
}
__device__ __forceinline__ uint32_t ks_pack_e5m2(float low, float high)
{
    uint16_t two;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(high), "f"(low));
    return two;
}
#endif

/* --- two 16-bit elements of type T in a word, the first one low ------------------------------------------------------ */

/* Each rounds once, to nearest even. */
template <class T>
__device__ __forceinline__ uint32_t ks_round_two(float low, float high);
template <>
__device__ __forceinline__ uint32_t ks_round_two<__half>(float low, float high)
{
    uint32_t two;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}
template <>
__device__ __forceinline__ uint32_t ks_round_two<__nv_bfloat16>(float low, float high)
{
    uint32_t two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}

/* The greater of each; NaN is dropped. */
template <class T>
__device__ __forceinline__ uint32_t ks_max_two(uint32_t a, uint32_t b);
template <>
__device__ __forceinline__ uint32_t ks_max_two<__half>(uint32_t a, uint32_t b)
{
    uint32_t most;
    asm("max.f16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
    return most;
}
template <>
__device__ __forceinline__ uint32_t ks_max_two<__nv_bfloat16>(uint32_t a, uint32_t b)
{
    uint32_t most;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
    return most;
}

/* Each times that of another word. */
template <class T>
__device__ __forceinline__ uint32_t ks_times_two(uint32_t a, uint32_t b);
template <>
__device__ __forceinline__ uint32_t ks_times_two<__half>(uint32_t a, uint32_t b)
{
    uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}
template <>
__device__ __forceinline__ uint32_t ks_times_two<__nv_bfloat16>(uint32_t a, uint32_t b)
{
    uint32_t product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
    return product;
}

/* Of each half of a word: all ones where its first bit is set, else 0. */
__device__ __forceinline__ uint32_t ks_signs(uint32_t pair)
{
    uint32_t signs;
    asm("prmt.b32 %0, %1, 0, 0xBB99;" : "=r"(signs) : "r"(pair));
    return signs;
}

/* --- a warp ---------------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t ks_warp_max(uint32_t mine)
{
    return __reduce_max_sync(0xFFFFFFFFu, mine);
}
__device__ __forceinline__ uint32_t ks_warp_min(uint32_t mine)
{
    return __reduce_min_sync(0xFFFFFFFFu, mine);
}

/* --- memory ---------------------------------------------------------------------------------------------------------- */

/* 4, 8 or 16 bytes of global memory into shared memory, without a register between; the thread that asked waits for its
 * own: for all, or for all groups but the last BUT ones. A group ends at ks_copy_group(), and may be empty. */
template <class Word>
__device__ __forceinline__ void ks_copy_async(Word *shared, const Word *global)
{
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    if constexpr (sizeof(Word) == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(global) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                     :
                     : "r"(to), "l"(global), "n"(sizeof(Word))
                     : "memory");
}
__device__ __forceinline__ void ks_copy_wait()
{
    asm volatile("cp.async.wait_all;" : : : "memory");
}
__device__ __forceinline__ void ks_copy_group()
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}
template <int BUT>
__device__ __forceinline__ void ks_copy_wait_but()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(BUT) : "memory");
}

/* An mbarrier in shared memory, which so many arrivals pass on to its next phase. What was written before an arrival is seen
 * behind a wait for the end of its phase; phases differ by their parity. */
__device__ __forceinline__ void ks_mbarrier_init(uint64_t *mbarrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(mbarrier)), "r"(arrivals)
                 : "memory");
}
__device__ __forceinline__ void ks_mbarrier_arrive(uint64_t *mbarrier)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(mbarrier))
                 : "memory");
}
__device__ __forceinline__ void ks_mbarrier_wait(uint64_t *mbarrier, uint32_t parity)
{
    uint32_t passed;
    do {
#if __CUDA_ARCH__ >= 900 /* sleeps meanwhile */
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#else
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#endif
                     : "=r"(passed)
                     : "r"((uint32_t)__cvta_generic_to_shared(mbarrier)), "r"(parity)
                     : "memory");
    } while (!passed);
}

/* A message between CTAs of a launch: written and read at once, in no order with other memory. */
struct alignas(16) ks_message {
    uint64_t first, second;
};

__device__ __forceinline__ void ks_write_relaxed(uint64_t *at, uint64_t word)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(at), "l"(word) : "memory");
}
__device__ __forceinline__ uint64_t ks_read_relaxed(const uint64_t *at)
{
    uint64_t word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return word;
}
__device__ __forceinline__ void ks_write_relaxed(ks_message *at, ks_message r)
{
    asm volatile("{ .reg .b128 r; mov.b128 r, {%1, %2}; st.relaxed.gpu.global.b128 [%0], r; }"
                 :
                 : "l"(at), "l"(r.first), "l"(r.second)
                 : "memory");
}
/* Another CTA, or the host, that reads what this thread stores next sees what the thread has stored or seen before. */
__device__ __forceinline__ void ks_fence_system()
{
    asm volatile("fence.acq_rel.sys;" : : : "memory");
}

/* To the host as well, which sees by an acquire of the words what was visible to this thread. */
__device__ __forceinline__ void ks_write_release(uint64_t *at, ks_message r)
{
    asm volatile("{ .reg .b128 r; mov.b128 r, {%1, %2}; st.release.sys.global.b128 [%0], r; }"
                 :
                 : "l"(at), "l"(r.first), "l"(r.second)
                 : "memory");
}
__device__ __forceinline__ ks_message ks_read_relaxed(const ks_message *at)
{
    ks_message r;
    asm volatile("{ .reg .b128 r; ld.relaxed.gpu.global.b128 r, [%2]; mov.b128 {%0, %1}, r; }"
                 : "=l"(r.first), "=l"(r.second)
                 : "l"(at)
                 : "memory");
    return r;
}

#endif
