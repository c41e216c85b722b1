/* FP16 and BF16 by wgmma on sm_90a: one thread fills a ring by bulk tensor copies, warpgroups of 64 rows each multiply.
 *
 * Both operands lie in shared memory as the copies leave them, in rows of 128 bytes whose 16-byte chunks are swizzled; either
 * may be stored along K or across it. A CTA walks over units, and its copies run ahead into the next unit while the sums of
 * the last one are stored. Units that share a tile (slices of K) meet as all others do (matmul_finish.cuh).
 *
 * Source   the pipeline follows pranjalssh/fast.cu, "Outperforming cuBLAS on H100", 2024; descriptors PTX ISA 8.0, 9.7.15. */
#ifndef KS_MATMUL_WGMMA_CUH
#define KS_MATMUL_WGMMA_CUH

#include "matmul_finish.cuh"
#include "matmul_table.cuh"

/* WARPGROUPS x 64 rows; STAGES of 64 values of K. */
template <typename T, int WARPGROUPS_, int N_, int STAGES_, int CTAS_>
struct mm_wgmma_tile {
    typedef T element;
    static constexpr int WARPGROUPS = WARPGROUPS_, M = 64 * WARPGROUPS, N = N_, STAGES = STAGES_, CTAS = CTAS_;
    static constexpr int DEPTH = 64, PLANES = 1, SUM_PITCH = N + 8, THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int A_BYTES = M * 128, B_BYTES = N * 128, STAGE = A_BYTES + B_BYTES;
    /* Each warp turns its sums around in 16 rows of 32, to store whole sectors. */
    static constexpr int TURN_PITCH = 32 + 4, TURN_BYTES = 16 * TURN_PITCH * 4;
    static constexpr int SHARED = 1024 + STAGES * STAGE + WARPGROUPS * 4 * TURN_BYTES;
    static constexpr bool SPLITS = M * SUM_PITCH * 4 <= STAGES * STAGE && N < 256;
    static constexpr int SUMS = N / 2; /* of a thread */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ __forceinline__ void mm_barrier_init(unsigned barrier, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void mm_barrier_arrive(unsigned barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void mm_barrier_expect(unsigned barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mm_barrier_wait(unsigned barrier, unsigned parity)
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

__device__ __forceinline__ void mm_bulk_load(unsigned to, const CUtensorMap *map, unsigned barrier, int x, int y, int z)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
            "r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

/* 64 values of K of ACROSS rows (columns), as one box, or as boxes of 64 across where rows lie across K. */
template <int ACROSS, bool K_CONTIGUOUS>
__device__ __forceinline__ void mm_wgmma_load(unsigned to, const CUtensorMap *map, unsigned barrier, int across, int k,
                                              int matrix)
{
    if constexpr (K_CONTIGUOUS) {
        mm_bulk_load(to, map, barrier, k, across, matrix);
    } else {
#pragma unroll
        for (int i = 0; i < ACROSS; i += 64) mm_bulk_load(to + i * 128, map, barrier, across + i, k, matrix);
    }
}

/* Shared-memory matrix descriptor, 128-byte swizzle. Along K: groups of 8 rows are 1024 bytes apart. Across: groups of 8
 * values of K are, and blocks of 64 across are 8192 apart. */
template <bool K_CONTIGUOUS>
__device__ __forceinline__ uint64_t mm_descriptor(unsigned at)
{
    const uint64_t leading = K_CONTIGUOUS ? 1 : 8192 >> 4, stride = 1024 >> 4;
    return (uint64_t)((at & 0x3FFFF) >> 4) | leading << 16 | stride << 32 | (uint64_t)1 << 62;
}

/* From one 16 of K to the next. */
template <bool K_CONTIGUOUS>
constexpr unsigned mm_descriptor_step = K_CONTIGUOUS ? 32 : 2048;

#define MM_D8(b)                                                                                                       \
    "+f"(d[b]), "+f"(d[b + 1]), "+f"(d[b + 2]), "+f"(d[b + 3]), "+f"(d[b + 4]), "+f"(d[b + 5]), "+f"(d[b + 6]),        \
        "+f"(d[b + 7])
#define MM_D32(b) MM_D8(b), MM_D8(b + 8), MM_D8(b + 16), MM_D8(b + 24)
#define MM_R0                                                                                                          \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"  \
    "30,%31"
#define MM_R1                                                                                                          \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59," \
    "%60,%61,%62,%63"
#define MM_R2                                                                                                          \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91," \
    "%92,%93,%94,%95"
#define MM_R3                                                                                                          \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%" \
    "119,%120,%121,%122,%123,%124,%125,%126,%127"
#define MM_SUMS_64 MM_D32(0)
#define MM_SUMS_128 MM_D32(0), MM_D32(32)
#define MM_SUMS_256 MM_D32(0), MM_D32(32), MM_D32(64), MM_D32(96)
#define MM_WGMMA(shape, type, registers, sums, a, b, turn_a, turn_b)                                                   \
    asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" registers "}, %" a ", %" b           \
                 ", 1, 1, 1, %" turn_a ", %" turn_b ";"                                                                \
                 : sums                                                                                                \
                 : "l"(da), "l"(db), "n"(!A_K), "n"(!B_K))

/* d += 64 x 16 of A times 16 x N of B. */
template <typename T, int N, bool A_K, bool B_K>
__device__ __forceinline__ void mm_wgmma(float (&d)[N / 2], uint64_t da, uint64_t db)
{
    constexpr bool HALF = sizeof(T) == 2 && !std::is_same_v<T, __nv_bfloat16>;
    if constexpr (N == 64) {
        if constexpr (HALF)
            MM_WGMMA("m64n64k16", "f16", MM_R0, MM_SUMS_64, "32", "33", "34", "35");
        else
            MM_WGMMA("m64n64k16", "bf16", MM_R0, MM_SUMS_64, "32", "33", "34", "35");
    } else if constexpr (N == 128) {
        if constexpr (HALF)
            MM_WGMMA("m64n128k16", "f16", MM_R0 "," MM_R1, MM_SUMS_128, "64", "65", "66", "67");
        else
            MM_WGMMA("m64n128k16", "bf16", MM_R0 "," MM_R1, MM_SUMS_128, "64", "65", "66", "67");
    } else if constexpr (N == 256) {
        if constexpr (HALF)
            MM_WGMMA("m64n256k16", "f16", MM_R0 "," MM_R1 "," MM_R2 "," MM_R3, MM_SUMS_256, "128", "129", "130", "131");
        else
            MM_WGMMA("m64n256k16", "bf16", MM_R0 "," MM_R1 "," MM_R2 "," MM_R3, MM_SUMS_256, "128", "129", "130",
                     "131");
    }
}

/* One warpgroup's 64 rows of a unit: sum is complete when it returns. Stages are counted over all units. */
template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_wgmma_unit(float (&sum)[TILE::SUMS], unsigned ring, unsigned full, unsigned empty,
                                              int warpgroup, int steps, unsigned *stage, unsigned *parity)
{
#pragma unroll
    for (int i = 0; i < TILE::SUMS; i++) sum[i] = 0;
    unsigned before = 0;
    for (int step = 0; step < steps; step++) {
        mm_barrier_wait(full + *stage * 8, *parity);
        const unsigned a = ring + *stage * TILE::STAGE + warpgroup * 8192,
                       b = ring + *stage * TILE::STAGE + TILE::A_BYTES;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < 4; k++)
            mm_wgmma<typename TILE::element, TILE::N, A_K, B_K>(sum,
                                                                mm_descriptor<A_K>(a + k * mm_descriptor_step<A_K>),
                                                                mm_descriptor<B_K>(b + k * mm_descriptor_step<B_K>));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        /* The stage before is free once its products are done; this one's still run. */
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (step > 0 && threadIdx.x % 32 == 0) mm_barrier_arrive(empty + before * 8);
        before = *stage;
        if (++*stage == TILE::STAGES) *stage = 0, *parity ^= 1;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (steps > 0 && threadIdx.x % 32 == 0) mm_barrier_arrive(empty + before * 8);
}

/* Straight from registers, 32 columns of a warp at a time. */
template <typename TILE>
__device__ __forceinline__ void mm_wgmma_store(const mm_args &args, const mm_unit &unit, const ks_entry &job,
                                               const float (&sum)[TILE::SUMS], float *turn)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const mm_out<typename TILE::element> out = mm_out_at<typename TILE::element, TILE>(args, unit, job);
    turn += warp * (TILE::TURN_BYTES / 4);
#pragma unroll
    for (int j = 0; j < TILE::N / 32; j++) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i++)
            *(float2 *)(turn + (lane / 4 + i % 2 * 8) * TILE::TURN_PITCH + i / 2 * 8 + lane % 4 * 2) =
                make_float2(sum[j * 16 + i / 2 * 4 + i % 2 * 2], sum[j * 16 + i / 2 * 4 + i % 2 * 2 + 1]);
        __syncwarp();
#pragma unroll 1
        for (int i = 0; i < 4; i++) {
            const int row = args.turned ? lane % 16 : i * 4 + lane / 8,
                      column = (args.turned ? i * 2 + lane / 16 : lane % 8) * 4;
            mm_store_four(args, out, warp * 16 + row, j * 32 + column,
                          *(const mm_four<float> *)(turn + row * TILE::TURN_PITCH + column));
        }
    }
}

template <typename TILE>
__device__ __forceinline__ void mm_wgmma_spill(const float (&sum)[TILE::SUMS], float *planes)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *to = planes + (warp * 16 + lane / 4) * TILE::SUM_PITCH + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < TILE::SUMS / 2; i++)
        *(float2 *)(to + i % 2 * 8 * TILE::SUM_PITCH + i / 2 * 8) = make_float2(sum[2 * i], sum[2 * i + 1]);
}
#endif

/* Device memory only: the maps hold addresses. Empty where the code is not made for sm_90a (mm_wgmma_ready). */
template <typename TILE, bool A_K, bool B_K>
__global__ void __launch_bounds__(TILE::THREADS, TILE::CTAS)
    mm_wgmma_kernel(ks_site site, const __grid_constant__ mm_args args, const __grid_constant__ mm_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char mm_wgmma_shared[];
    __shared__ uint64_t barriers[2 * TILE::STAGES];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    const unsigned at = mm_shared_address(mm_wgmma_shared), ring = (at + 1023) & ~1023u;
    float *planes = (float *)(mm_wgmma_shared + (ring - at)), *turn = planes + TILE::STAGES * TILE::STAGE / 4;
    const unsigned full = mm_shared_address(barriers), empty = full + TILE::STAGES * 8;
    const unsigned units = args.tiles_m * args.tiles_n * args.matrices * args.cluster * args.groups;
    const bool alone = args.cluster * args.groups == 1;
    if (threadIdx.x == 0) {
        for (int i = 0; i < TILE::STAGES; i++) {
            mm_barrier_init(full + i * 8, 1);
            mm_barrier_init(empty + i * 8, TILE::WARPGROUPS * 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async;" ::: "memory");
    }
    __syncthreads();
    const int warpgroup = threadIdx.x / 128;
    unsigned stage = 0, parity = 0;
    if (warpgroup == TILE::WARPGROUPS) {
        if constexpr (!TILE::SPLITS) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x % 128 == 0) {
            for (unsigned index = blockIdx.x; index < units; index += gridDim.x) {
                const mm_unit unit = mm_unit_at(args, index);
                const int row0 = (int)unit.row * TILE::M, column0 = (int)unit.column * TILE::N;
                const int a_matrix = args.a.step[0] ? (int)unit.batch : 0,
                          b_matrix = args.b.step[0] ? (int)unit.batch : 0;
                for (mm_int k = unit.k_begin; k < unit.k_end; k += TILE::DEPTH) {
                    mm_barrier_wait(empty + stage * 8, parity ^ 1);
                    mm_barrier_expect(full + stage * 8, TILE::STAGE);
                    const unsigned to = ring + stage * TILE::STAGE;
                    mm_wgmma_load<TILE::M, A_K>(to, &maps.a, full + stage * 8, row0, (int)k, a_matrix);
                    mm_wgmma_load<TILE::N, B_K>(to + TILE::A_BYTES, &maps.b, full + stage * 8, column0, (int)k,
                                                b_matrix);
                    if (++stage == TILE::STAGES) stage = 0, parity ^= 1;
                }
            }
        }
    } else {
        if constexpr (!TILE::SPLITS) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float sum[TILE::SUMS];
        for (unsigned index = blockIdx.x; index < units; index += gridDim.x) {
            const mm_unit unit = mm_unit_at(args, index);
            const int steps = (int)((unit.k_end - unit.k_begin + TILE::DEPTH - 1) / TILE::DEPTH);
            mm_wgmma_unit<TILE, A_K, B_K>(sum, ring, full, empty, warpgroup, steps, &stage, &parity);
            if (alone) mm_wgmma_store<TILE>(args, unit, job, sum, turn);
        }
        if constexpr (TILE::SPLITS) {
            if (!alone) {
                /* All warps have left the ring before the sums go there. */
                asm volatile("bar.sync 1, %0;" ::"n"(TILE::WARPGROUPS * 128) : "memory");
                mm_wgmma_spill<TILE>(sum, planes);
            }
        }
        if (alone) ks_leave(site);
    }
    if constexpr (TILE::SPLITS) {
        if (!alone) {
            mm_finish<typename TILE::element, TILE>(site, args, mm_unit_at(args, blockIdx.x), job, planes);
            ks_leave(site);
        }
    }
#endif
}

template <typename TILE, bool A_K, bool B_K>
static mm_kernel mm_wgmma_entry(const char *name, mm_pace pace)
{
    return {name,        (const void *)mm_wgmma_kernel<TILE, A_K, B_K>,
            TILE::M,     TILE::N,
            TILE::DEPTH, TILE::THREADS,
            TILE::CTAS,  TILE::SHARED,
            pace,        true,
            TILE::SPLITS};
}

template <typename TILE>
static mm_kernel mm_wgmma(const char *name, mm_pace pace, bool a_k, bool b_k)
{
    return a_k   ? b_k ? mm_wgmma_entry<TILE, true, true>(name, pace) : mm_wgmma_entry<TILE, true, false>(name, pace)
             : b_k ? mm_wgmma_entry<TILE, false, true>(name, pace)
                 : mm_wgmma_entry<TILE, false, false>(name, pace);
}

#endif
