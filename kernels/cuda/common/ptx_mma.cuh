/* Instructions that CUDA C++ has no name for, a function each: with ptx.cuh and ptx_sm90.cuh all inline assembly
 * of the matmul kernels. Nothing here knows a kernel's types: tests/emulate/matmul_ptx.h says the same in C++.
 *
 * Addresses in shared memory are those of its own window, of 32 bits. */
#ifndef KS_MATMUL_PTX_CUH
#define KS_MATMUL_PTX_CUH

#include "cuda/common/ptx.cuh"

__device__ __forceinline__ unsigned mm_shared_address(const void *at)
{
    return (unsigned)__cvta_generic_to_shared(at);
}

/* The word stays in a register: it is not worked out anew for each use. */
__device__ __forceinline__ void mm_keep(unsigned &word)
{
    asm("" : "+r"(word));
}
__device__ __forceinline__ void mm_keep(const unsigned char *&at)
{
    asm("" : "+l"(at));
}

/* THREADS of a CTA, whole warps, synchronise at its named barrier NUMBER, 1 to 15; join: arrive without waiting. */
template <int NUMBER, int THREADS>
__device__ __forceinline__ void mm_barrier_sync()
{
    asm volatile("bar.sync %0, %1;" ::"n"(NUMBER), "n"(THREADS) : "memory");
}
template <int NUMBER, int THREADS>
__device__ __forceinline__ void mm_barrier_join()
{
    asm volatile("bar.arrive %0, %1;" ::"n"(NUMBER), "n"(THREADS) : "memory");
}

/* The same, with a number that the code computes. */
__device__ __forceinline__ void mm_barrier_sync_at(int number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ __forceinline__ void mm_barrier_join_at(int number, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
/* Whether any of them says so. */
template <int NUMBER, int THREADS>
__device__ __forceinline__ bool mm_barrier_any(bool mine)
{
    int any;
    asm volatile("{\n\t"
                 ".reg .pred mine, any;\n\t"
                 "setp.ne.s32 mine, %1, 0;\n\t"
                 "bar.red.or.pred any, %2, %3, mine;\n\t"
                 "selp.s32 %0, 1, 0, any;\n\t"
                 "}"
                 : "=r"(any)
                 : "r"((int)mine), "n"(NUMBER), "n"(THREADS)
                 : "memory");
    return any != 0;
}

/* --- copies past the registers --------------------------------------------------------------------------------------- */

/* 16 bytes; zeros, and nothing is read, where `inside` is false. */
__device__ __forceinline__ void mm_copy_async(unsigned to, const void *from, bool inside)
{
    asm volatile("{\n\t"
                 ".reg .pred outside;\n\t"
                 "setp.eq.u32 outside, %2, 0;\n\t"
                 "cp.async.cg.shared.global [%0], [%1], 16, outside;\n\t"
                 "}" ::"r"(to),
                 "l"(from), "r"((int)inside)
                 : "memory");
}

/* 4 or 8 bytes, likewise. */
template <int BYTES>
__device__ __forceinline__ void mm_copy_element(unsigned to, const void *from, bool inside)
{
    asm volatile("{\n\t"
                 ".reg .pred outside;\n\t"
                 "setp.eq.u32 outside, %2, 0;\n\t"
                 "cp.async.ca.shared.global [%0], [%1], %3, outside;\n\t"
                 "}" ::"r"(to),
                 "l"(from), "r"((int)inside), "n"(BYTES)
                 : "memory");
}

/* What a thread asked for since the last one is a group, which may be empty. */
__device__ __forceinline__ void mm_copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* For all of the thread's groups but the last PENDING ones. */
template <int PENDING>
__device__ __forceinline__ void mm_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* --- reads ----------------------------------------------------------------------------------------------------------- */

/* Global memory that is not written meanwhile, 2, 4 or 16 bytes. Past the L1 cache: it is not read again. */
template <typename V>
__device__ __forceinline__ V mm_load_once(const void *at)
{
    V v;
    if constexpr (sizeof(V) == 16) {
        uint4 &bits = *(uint4 *)&v;
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                     : "l"(at));
    } else if constexpr (sizeof(V) == 4) {
        asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(*(uint32_t *)&v) : "l"(at));
    } else {
        asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(*(uint16_t *)&v) : "l"(at));
    }
    return v;
}

/* The same, 4, 8 or 16 bytes; their neighbours are read soon. */
template <typename V>
__device__ __forceinline__ V mm_load_near(const void *at)
{
    V v;
    if constexpr (sizeof(V) == 16) {
        uint4 &bits = *(uint4 *)&v;
        asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                     : "l"(at));
    } else if constexpr (sizeof(V) == 8) {
        uint2 &bits = *(uint2 *)&v;
        asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(bits.x), "=r"(bits.y) : "l"(at));
    } else {
        asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(*(uint32_t *)&v) : "l"(at));
    }
    return v;
}

/* Shared memory: a word; two neighbours, which start on 8 bytes; half a word. */
__device__ __forceinline__ uint32_t mm_shared_read(unsigned from)
{
    uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
    return word;
}
__device__ __forceinline__ void mm_shared_read(uint32_t &first, uint32_t &second, unsigned from)
{
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "r"(from) : "memory");
}
__device__ __forceinline__ uint16_t mm_shared_read_16(unsigned from)
{
    uint16_t half;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(from) : "memory");
    return half;
}

/* --- fragments: a warp's, each lane with its part -------------------------------------------------------------------- */

/* Four blocks of 8 x 8 elements of 16 bits in shared memory; lanes 8 i to 8 i + 7 say where block i's rows are. Of each
 * a lane gets elements 2 (lane % 4) and the next one of row lane / 4; TRANSPOSE: of column lane / 4. */
template <bool TRANSPOSE>
__device__ __forceinline__ void mm_ldmatrix(uint32_t (&to)[4], unsigned at)
{
    if constexpr (TRANSPOSE)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
}

/* Such a block, of which a lane has two neighbours of row lane / 4, becomes the transposed one. */
__device__ __forceinline__ uint32_t mm_transpose_block(uint32_t two)
{
    uint32_t transposed;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(two));
    return transposed;
}

/* The nearest number of TF32, away from zero where two are as near. */
__device__ __forceinline__ uint32_t mm_round_tf32(float x)
{
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return rounded;
}

/* c += 16 x K of A times K x 8 of B; K is 32 bytes. The first argument only says the type, float for TF32. */
#define MM_MMA(shape, type)                                                                                            \
    asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "         \
                 "{%8,%9}, {%0,%1,%2,%3};"                                                                             \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
__device__ __forceinline__ void mm_mma(__half, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    MM_MMA("m16n8k16", "f16");
}
__device__ __forceinline__ void mm_mma(__nv_bfloat16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    MM_MMA("m16n8k16", "bf16");
}
__device__ __forceinline__ void mm_mma(float, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    MM_MMA("m16n8k8", "tf32");
}
#undef MM_MMA

/* Likewise of INT8, exact. */
__device__ __forceinline__ void mm_mma_s8(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* --- clusters, on sm_90 and later ----------------------------------------------------------------------- */

/* Draws a number, from 0 on: what this thread, and threads synchronised with it, wrote before is seen by a thread that draws a
 * later one, and by threads synchronised with that one. */
__device__ __forceinline__ unsigned mm_draw(uint32_t *counter)
{
    unsigned drawn;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(drawn) : "l"(counter) : "memory");
    return drawn;
}

/* This CTA's place in its cluster. */
__device__ __forceinline__ unsigned mm_cluster_rank()
{
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* All threads of the cluster synchronise: each arrives, then waits. What was written before an arrival is seen behind the wait;
 * the relaxed arrival orders no memory, and waits for no store. */
__device__ __forceinline__ void mm_cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void mm_cluster_arrive_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void mm_cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The same place in the shared memory of CTA `rank` of the cluster. */
__device__ __forceinline__ unsigned mm_peer_address(unsigned at, unsigned rank)
{
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    return there;
}

/* At a peer's address: four neighbours, which start on 16 bytes; two, on 8 bytes; one. */
__device__ __forceinline__ void mm_peer_load(float (&to)[4], unsigned from)
{
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ void mm_peer_load(double (&to)[4], unsigned from)
{
#pragma unroll
    for (int e = 0; e < 4; e += 2)
        asm volatile("ld.shared::cluster.v2.f64 {%0,%1}, [%2];"
                     : "=d"(to[e]), "=d"(to[e + 1])
                     : "r"(from + e * 8)
                     : "memory");
}
__device__ __forceinline__ void mm_peer_load(float &first, float &second, unsigned from)
{
    asm volatile("ld.shared::cluster.v2.f32 {%0,%1}, [%2];" : "=f"(first), "=f"(second) : "r"(from) : "memory");
}
__device__ __forceinline__ void mm_peer_store(unsigned to, float x)
{
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}
__device__ __forceinline__ void mm_peer_store(unsigned to, double x)
{
    asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(to), "d"(x) : "memory");
}

#endif
