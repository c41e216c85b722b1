/* As ptx_mma.cuh, what sm_90a alone has: mbarriers, TMA copies, wgmma.
 *
 * Source   wgmma's operands and registers: PTX ISA 8.0, 9.7.15. */
#ifndef KS_MATMUL_PTX_SM90_CUH
#define KS_MATMUL_PTX_SM90_CUH

#include "cuda/common/ptx_mma.cuh"

#include <cuda.h>
#include <type_traits>

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* --- barriers -------------------------------------------------------------------------------------------------------- */

/* A barrier in shared memory goes on to its next phase when `count` threads have arrived and all bytes that they
 * expected have come. What was written before an arrival, and the bytes, are seen behind a wait for the end of the
 * phase; phases differ by their parity. */
__device__ __forceinline__ void mm_mbarrier_init(unsigned barrier, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void mm_mbarrier_arrive(unsigned barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void mm_mbarrier_expect(unsigned barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mm_mbarrier_wait(unsigned barrier, unsigned parity)
{
    asm volatile("{\n\t"
                 ".reg .pred done;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@done bra over;\n\t"
                 "bra again;\n\t"
                 "over:\n\t"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* When this thread's copies by mm_copy_async() are there; the barrier's count has it. */
__device__ __forceinline__ void mm_mbarrier_arrive_copied(unsigned barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Copies, and the cluster behind its next barrier, find the mbarriers that this thread has made. Of the CTA's shared
 * memory alone: a fence for all memory waits for all of it. */
__device__ __forceinline__ void mm_mbarrier_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}

/* What CTAs of the cluster have sent is seen. */
__device__ __forceinline__ void mm_mbarrier_wait_peers(unsigned barrier, unsigned parity)
{
    asm volatile("{\n\t"
                 ".reg .pred done;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
                 "@done bra over;\n\t"
                 "bra again;\n\t"
                 "over:\n\t"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* At the same place's barrier in CTA `rank` of the cluster. */
__device__ __forceinline__ void mm_mbarrier_arrive_at(unsigned barrier, unsigned rank)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(mm_peer_address(barrier, rank)) : "memory");
}

/* --- copies past the registers --------------------------------------------------------------------------------------- */

/* The map comes into its cache. */
__device__ __forceinline__ void mm_map_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* The map's box from x, y, z on, x along its rows, to the same place of all CTAs in `peers`, each of whose barriers
 * counts the bytes; 0: to this CTA alone. */
__device__ __forceinline__ void mm_tma_load(unsigned to, const CUtensorMap *map, unsigned barrier, int x, int y, int z,
                                            unsigned peers)
{
    if (peers == 0)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
                     "%5}], [%2];" ::"r"(to),
                     "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                     : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
            "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
            "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"((uint16_t)peers)
            : "memory");
}

/* As mm_tma_load() for this CTA alone, of a map with four axes. */
struct mm_corner {
    int x, y, z, w;
};
__device__ __forceinline__ void mm_tma_load_4(unsigned to, const CUtensorMap *map, unsigned barrier, mm_corner from)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
                 "%6}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(from.x), "r"(from.y), "r"(from.z), "r"(from.w)
                 : "memory");
}

/* What this thread has written to shared memory is seen by products and copies that are asked for behind the next barrier. */
__device__ __forceinline__ void mm_shared_publish()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Four neighbours to a peer's address; 16 bytes of that peer's barrier. */
__device__ __forceinline__ void mm_send(unsigned to, unsigned barrier, const float *four)
{
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
        "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3]), "r"(barrier)
        : "memory");
}

/* --- a warp and a warpgroup ------------------------------------------------------------------------------------------ */

/* Two blocks to shared memory, of which the lanes have what mm_ldmatrix() would give them; lanes 0 to 15 say where the
 * rows are. */
template <bool TRANSPOSE>
__device__ __forceinline__ void mm_stmatrix(unsigned to, uint32_t first, uint32_t second)
{
    if constexpr (TRANSPOSE)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(first), "r"(second)
                     : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(first), "r"(second)
                     : "memory");
}

/* A warpgroup keeps LEFT registers a thread; one that takes waits until there are COUNT. */
template <int LEFT>
__device__ __forceinline__ void mm_registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LEFT));
}
template <int COUNT>
__device__ __forceinline__ void mm_registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* --- wgmma ----------------------------------------------------------------------------------------------------------- */

/* Products are under way in groups, each ended by a commit. From the fence before a group to the wait for it, for all
 * groups but the last PENDING ones, no code touches its sums, or A where it comes from registers. */
__device__ __forceinline__ void mm_wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void mm_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING>
__device__ __forceinline__ void mm_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

#define MM_D4(b) "+f"(d[b]), "+f"(d[b + 1]), "+f"(d[b + 2]), "+f"(d[b + 3])
#define MM_D8(b) MM_D4(b), MM_D4(b + 4)
#define MM_D16(b) MM_D8(b), MM_D8(b + 8)
#define MM_D32(b) MM_D16(b), MM_D16(b + 16)
#define MM_R4 "%0,%1,%2,%3"
#define MM_R8 MM_R4 ",%4,%5,%6,%7"
#define MM_R16 MM_R8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define MM_R32 MM_R16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define MM_R64                                                                                                         \
    MM_R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57," \
           "%58,%59,%60,%61,%62,%63"
#define MM_R48 MM_R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define MM_R96                                                                                                         \
    MM_R64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89," \
           "%90,%91,%92,%93,%94,%95"
#define MM_R128                                                                                                        \
    MM_R96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,"    \
           "%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define MM_WGMMA_OF(shape, type, registers, a, b, trans_a, trans_b, ...)                                               \
    asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" registers "}, %" a ", %" b           \
                 ", 1, 1, 1, %" trans_a ", %" trans_b ";"                                                              \
                 : __VA_ARGS__                                                                                         \
                 : "l"(da), "l"(db), "n"(!A_K), "n"(!B_K))
#define MM_WGMMA(shape, registers, a, b, trans_a, trans_b, ...)                                                        \
    if constexpr (std::is_same_v<T, __half>)                                                                           \
        MM_WGMMA_OF(shape, "f16", registers, a, b, trans_a, trans_b, __VA_ARGS__);                                     \
    else                                                                                                               \
        MM_WGMMA_OF(shape, "bf16", registers, a, b, trans_a, trans_b, __VA_ARGS__)
#define MM_SUMS_4 MM_D4(0)
#define MM_SUMS_8 MM_D8(0)
#define MM_SUMS_16 MM_D16(0)
#define MM_SUMS_32 MM_D32(0)
#define MM_SUMS_48 MM_D32(0), MM_D16(32)
#define MM_SUMS_64 MM_D32(0), MM_D32(32)
#define MM_SUMS_96 MM_D32(0), MM_D32(32), MM_D32(64)
#define MM_SUMS_128 MM_D32(0), MM_D32(32), MM_D32(64), MM_D32(96)

/* d += 64 x 16 of A times 16 x N of B. */
template <typename T, int N, bool A_K, bool B_K>
__device__ __forceinline__ void mm_wgmma(float (&d)[N / 2], uint64_t da, uint64_t db)
{
    if constexpr (N == 8) {
        MM_WGMMA("m64n8k16", MM_R4, "4", "5", "6", "7", MM_SUMS_4);
    } else if constexpr (N == 16) {
        MM_WGMMA("m64n16k16", MM_R8, "8", "9", "10", "11", MM_SUMS_8);
    } else if constexpr (N == 32) {
        MM_WGMMA("m64n32k16", MM_R16, "16", "17", "18", "19", MM_SUMS_16);
    } else if constexpr (N == 64) {
        MM_WGMMA("m64n64k16", MM_R32, "32", "33", "34", "35", MM_SUMS_32);
    } else if constexpr (N == 96) {
        MM_WGMMA("m64n96k16", MM_R48, "48", "49", "50", "51", MM_SUMS_48);
    } else if constexpr (N == 128) {
        MM_WGMMA("m64n128k16", MM_R64, "64", "65", "66", "67", MM_SUMS_64);
    } else if constexpr (N == 192) {
        MM_WGMMA("m64n192k16", MM_R96, "96", "97", "98", "99", MM_SUMS_96);
    } else if constexpr (N == 256) {
        MM_WGMMA("m64n256k16", MM_R128, "128", "129", "130", "131", MM_SUMS_128);
    }
}

#define MM_I4(b) "+r"(d[b]), "+r"(d[b + 1]), "+r"(d[b + 2]), "+r"(d[b + 3])
#define MM_I8(b) MM_I4(b), MM_I4(b + 4)
#define MM_I16(b) MM_I8(b), MM_I8(b + 8)
#define MM_I32(b) MM_I16(b), MM_I16(b + 16)
#define MM_INT8(n, registers, a, b, ...)                                                                               \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k32.s32.s8.s8 {" registers "}, %" a ", %" b ", 1;"             \
                 : __VA_ARGS__                                                                                         \
                 : "l"(da), "l"(db))

/* d += 64 x 32 of A times 32 x N of B, INT8 along K in both: exact. */
template <int N>
__device__ __forceinline__ void mm_wgmma_int8(int32_t (&d)[N / 2], uint64_t da, uint64_t db)
{
    static_assert(N == 64 || N == 128 || N == 256, "as the tiles of 8 bits are");
    if constexpr (N == 64) {
        MM_INT8("64", MM_R32, "32", "33", MM_I32(0));
    } else if constexpr (N == 128) {
        MM_INT8("128", MM_R64, "64", "65", MM_I32(0), MM_I32(32));
    } else {
        MM_INT8("256", MM_R128, "128", "129", MM_I32(0), MM_I32(32), MM_I32(64), MM_I32(96));
    }
}

#define MM_FP8_OF(n, types, registers, a, b, adds, ...)                                                                \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k32.f32." types " {" registers "}, %" a ", %" b ", %" adds     \
                 ", 1, 1;"                                                                                             \
                 : __VA_ARGS__                                                                                         \
                 : "l"(da), "l"(db), "n"(!FIRST))
#define MM_FP8(n, registers, a, b, adds, ...)                                                                          \
    if constexpr (A_E5M2)                                                                                              \
        MM_FP8_OF(n, "e5m2.e4m3", registers, a, b, adds, __VA_ARGS__);                                                 \
    else if constexpr (B_E5M2)                                                                                         \
        MM_FP8_OF(n, "e4m3.e5m2", registers, a, b, adds, __VA_ARGS__);                                                 \
    else                                                                                                               \
        MM_FP8_OF(n, "e4m3.e4m3", registers, a, b, adds, __VA_ARGS__)

/* The same of FP8, E5M2 where it says so, else E4M3; FIRST: what was in d does not count. */
template <bool A_E5M2, bool B_E5M2, bool FIRST, int N>
__device__ __forceinline__ void mm_wgmma_fp8(float (&d)[N / 2], uint64_t da, uint64_t db)
{
    static_assert(N == 64 || N == 128, "as the tiles of FP8 are");
    static_assert(!A_E5M2 || !B_E5M2, "not both");
    if constexpr (N == 64) {
        MM_FP8("64", MM_R32, "32", "33", "34", MM_SUMS_32);
    } else {
        MM_FP8("128", MM_R64, "64", "65", "66", MM_SUMS_64);
    }
}

/* The sums are not touched in front of here, nor what was computed of them behind. */
template <int COUNT>
__device__ __forceinline__ void mm_wgmma_settle(float (&d)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int COUNT>
__device__ __forceinline__ void mm_wgmma_settle(int32_t (&d)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(d[i])::"memory");
}

#define MM_FIRST_OF(shape, type, registers, a, b, ...)                                                                 \
    asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" registers "}, %" a ", %" b           \
                 ", 0, 1, 1, 0, 0;"                                                                                    \
                 : __VA_ARGS__                                                                                         \
                 : "l"(da), "l"(db))

#define MM_FIRST(shape, ...)                                                                                           \
    if constexpr (std::is_same_v<T, __half>)                                                                           \
        MM_FIRST_OF(shape, "f16", __VA_ARGS__);                                                                        \
    else                                                                                                               \
        MM_FIRST_OF(shape, "bf16", __VA_ARGS__)

/* d = 64 x 16 of A times 16 x N of B, both stored along K: what was in d does not count. */
template <typename T, int N>
__device__ __forceinline__ void mm_wgmma_first(float (&d)[N / 2], uint64_t da, uint64_t db)
{
    static_assert(N == 64 || N == 128, "as attention's blocks are");
    if constexpr (N == 64) {
        MM_FIRST("m64n64k16", MM_R32, "32", "33", MM_SUMS_32);
    } else {
        MM_FIRST("m64n128k16", MM_R64, "64", "65", MM_SUMS_64);
    }
}

#define MM_TF32(shape, registers, a, b, ...)                                                                           \
    asm volatile("wgmma.mma_async.sync.aligned." shape ".f32.tf32.tf32 {" registers "}, %" a ", %" b ", 1, 1, 1;"      \
                 : __VA_ARGS__                                                                                         \
                 : "l"(da), "l"(db))

/* d += 64 x 8 of A times 8 x N of B, rows of both along K. */
template <int N>
__device__ __forceinline__ void mm_wgmma_tf32(float (&d)[N / 2], uint64_t da, uint64_t db)
{
    if constexpr (N == 16) {
        MM_TF32("m64n16k8", MM_R8, "8", "9", MM_SUMS_8);
    } else if constexpr (N == 32) {
        MM_TF32("m64n32k8", MM_R16, "16", "17", MM_SUMS_16);
    } else if constexpr (N == 64) {
        MM_TF32("m64n64k8", MM_R32, "32", "33", MM_SUMS_32);
    } else if constexpr (N == 128) {
        MM_TF32("m64n128k8", MM_R64, "64", "65", MM_SUMS_64);
    } else if constexpr (N == 192) {
        MM_TF32("m64n192k8", MM_R96, "96", "97", MM_SUMS_96);
    } else if constexpr (N == 256) {
        MM_TF32("m64n256k8", MM_R128, "128", "129", MM_SUMS_128);
    }
}

#define MM_FED_OF(shape, types, trans_b, registers, a0, a1, a2, a3, b, ...)                                            \
    asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." types " {" registers "}, {%" a0 ", %" a1 ", %" a2       \
                 ", %" a3 "}, %" b ", 1, 1, 1" trans_b ";"                                                             \
                 : __VA_ARGS__                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db))
#define MM_FED(n, ...)                                                                                                 \
    if constexpr (std::is_same_v<T, float>)                                                                            \
        MM_FED_OF("m64n" n "k8", "tf32.tf32", "", __VA_ARGS__);                                                        \
    else if constexpr (std::is_same_v<T, __half>)                                                                      \
        MM_FED_OF("m64n" n "k16", "f16.f16", ", 0", __VA_ARGS__);                                                      \
    else                                                                                                               \
        MM_FED_OF("m64n" n "k16", "bf16.bf16", ", 0", __VA_ARGS__)

/* 32 bytes of K: A's part comes from registers, B's rows lie along K. */
template <typename T, int N>
__device__ __forceinline__ void mm_wgmma_fed(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t db)
{
    if constexpr (N == 16) {
        MM_FED("16", MM_R8, "8", "9", "10", "11", "12", MM_SUMS_8);
    } else if constexpr (N == 32) {
        MM_FED("32", MM_R16, "16", "17", "18", "19", "20", MM_SUMS_16);
    } else if constexpr (N == 64) {
        MM_FED("64", MM_R32, "32", "33", "34", "35", "36", MM_SUMS_32);
    } else if constexpr (N == 128) {
        MM_FED("128", MM_R64, "64", "65", "66", "67", "68", MM_SUMS_64);
    } else if constexpr (N == 192) {
        MM_FED("192", MM_R96, "96", "97", "98", "99", "100", MM_SUMS_96);
    } else if constexpr (N == 256) {
        MM_FED("256", MM_R128, "128", "129", "130", "131", "132", MM_SUMS_128);
    }
}

#define MM_ACROSS(n, ...)                                                                                              \
    if constexpr (std::is_same_v<T, __half>)                                                                           \
        MM_FED_OF("m64n" n "k16", "f16.f16", ", 1", __VA_ARGS__);                                                      \
    else                                                                                                               \
        MM_FED_OF("m64n" n "k16", "bf16.bf16", ", 1", __VA_ARGS__)

/* The same of 16 bits, B's rows lie across K. */
template <typename T, int N>
__device__ __forceinline__ void mm_wgmma_fed_across(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t db)
{
    static_assert(N == 64 || N == 128 || N == 256, "as attention's heads are");
    if constexpr (N == 64) {
        MM_ACROSS("64", MM_R32, "32", "33", "34", "35", "36", MM_SUMS_32);
    } else if constexpr (N == 128) {
        MM_ACROSS("128", MM_R64, "64", "65", "66", "67", "68", MM_SUMS_64);
    } else {
        MM_ACROSS("256", MM_R128, "128", "129", "130", "131", "132", MM_SUMS_128);
    }
}

#endif
#endif
