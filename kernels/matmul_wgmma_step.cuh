/* One wgmma instruction: where its operands lie in shared memory, and the instruction for each width of B.
 *
 * TF32     has no descriptor for an operand that is stored across K. A comes from registers there, which read it from
 *          shared memory as it lies; B is always stored along K.
 * Source   descriptors PTX ISA 8.0, 9.7.15. */
#ifndef KS_MATMUL_WGMMA_STEP_CUH
#define KS_MATMUL_WGMMA_STEP_CUH

#include "matmul_common.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Shared-memory matrix descriptor: rows of 128 bytes, or of ACROSS values of 2, that are swizzled as wide as they are.
 * Along K: groups of 8 rows are 1024 bytes apart. Across: groups of 8 values of K are 8 rows apart, and blocks of 64 across
 * are 8192. Rows of 16 bytes have no swizzle, and there the first distance is K's. */
template <int ACROSS, bool K_CONTIGUOUS>
__device__ __forceinline__ uint64_t mm_descriptor(unsigned at)
{
    constexpr bool NARROW = !K_CONTIGUOUS && ACROSS < 64;
    constexpr uint64_t ROW = NARROW ? ACROSS * 2 : 128, SWIZZLE = ROW == 128 ? 1 : ROW == 64 ? 2 : ROW == 32 ? 3 : 0;
    constexpr uint64_t LEADING = K_CONTIGUOUS ? 1 : ROW == 128 ? 8192 >> 4 : 8 * ROW >> 4, STRIDE = 8 * ROW >> 4;
    return (uint64_t)((at & 0x3FFFF) >> 4) | LEADING << 16 | STRIDE << 32 | SWIZZLE << 62;
}

/* From one instruction's 32 bytes of K to the next. */
template <int ACROSS, bool K_CONTIGUOUS>
constexpr unsigned mm_descriptor_step = K_CONTIGUOUS  ? 32
                                        : ACROSS < 64 ? 32 * ACROSS
                                                      : 2048;

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
#define MM_R128                                                                                                        \
    MM_R64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89," \
           "%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"      \
           "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define MM_WGMMA_OF(shape, type, registers, a, b, turn_a, turn_b, ...)                                                 \
    asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" registers "}, %" a ", %" b           \
                 ", 1, 1, 1, %" turn_a ", %" turn_b ";"                                                                \
                 : __VA_ARGS__                                                                                         \
                 : "l"(da), "l"(db), "n"(!A_K), "n"(!B_K))
#define MM_WGMMA(shape, registers, a, b, turn_a, turn_b, ...)                                                          \
    if constexpr (std::is_same_v<T, __half>)                                                                           \
        MM_WGMMA_OF(shape, "f16", registers, a, b, turn_a, turn_b, __VA_ARGS__);                                       \
    else                                                                                                               \
        MM_WGMMA_OF(shape, "bf16", registers, a, b, turn_a, turn_b, __VA_ARGS__)
#define MM_SUMS_4 MM_D4(0)
#define MM_SUMS_8 MM_D8(0)
#define MM_SUMS_16 MM_D16(0)
#define MM_SUMS_32 MM_D32(0)
#define MM_SUMS_64 MM_D32(0), MM_D32(32)
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
    } else if constexpr (N == 128) {
        MM_WGMMA("m64n128k16", MM_R64, "64", "65", "66", "67", MM_SUMS_64);
    } else if constexpr (N == 256) {
        MM_WGMMA("m64n256k16", MM_R128, "128", "129", "130", "131", MM_SUMS_128);
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
    } else if constexpr (N == 256) {
        MM_TF32("m64n256k8", MM_R128, "128", "129", MM_SUMS_128);
    }
}

#define MM_FED_OF(shape, types, turn_b, registers, a0, a1, a2, a3, b, ...)                                             \
    asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." types " {" registers "}, {%" a0 ", %" a1 ", %" a2       \
                 ", %" a3 "}, %" b ", 1, 1, 1" turn_b ";"                                                              \
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
    } else if constexpr (N == 256) {
        MM_FED("256", MM_R128, "128", "129", "130", "131", "132", MM_SUMS_128);
    }
}

/* The first of the two rows of a warpgroup's 64 whose sums a thread has; the second is 8 further. From registers A's rows
 * may come in any order: there the second is the next one, and a thread reads both at once; the four pairs of half a warp,
 * at four values of K, come from 32 banks. */
template <bool FED>
__device__ __forceinline__ int mm_wgmma_row()
{
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    if constexpr (FED)
        return warp / 2 * 32 + warp % 2 * 8 + lane / 16 * 4 + lane / 8 % 2 * 16 + lane / 4 % 2 * 2;
    else
        return warp * 16 + lane / 4;
}

/* A stage of 64 columns at `a`, stored across K in rows of 128 bytes, for the four instructions that multiply them. */
__device__ __forceinline__ void mm_wgmma_feed(uint32_t (&to)[4][4], unsigned a)
{
    const int row = mm_wgmma_row<true>(), k = threadIdx.x % 4;
    const unsigned first = a + row / 32 * 4096 + k * 128 + ((row % 32 / 4) ^ k) * 16 + row % 4 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const unsigned from = (first ^ half * 64) + half * 512 + i * 1024;
            asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                         : "=r"(to[i][half * 2]), "=r"(to[i][half * 2 + 1])
                         : "r"(from)
                         : "memory");
        }
}

#endif
#endif
