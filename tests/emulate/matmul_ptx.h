/* cuda/common/ptx_mma.cuh and ptx_sm90.cuh in C++: stands in their place. */
#ifndef KS_MATMUL_PTX_CUH
#define KS_MATMUL_PTX_CUH
#define KS_MATMUL_PTX_SM90_CUH

#include "ptx.h"
#include "tensor.h"

static inline unsigned mm_shared_address(const void *at)
{
    return emulate_address(at);
}
static inline void mm_keep(unsigned &)
{
}
static inline void mm_keep(const unsigned char *&)
{
}
template <int NUMBER, int THREADS>
static inline void mm_barrier_sync()
{
    emulate_meet(NUMBER, THREADS, true);
}
template <int NUMBER, int THREADS>
static inline void mm_barrier_join()
{
    emulate_meet(NUMBER, THREADS, false);
}

static inline void mm_barrier_sync_at(int number, int threads)
{
    emulate_meet(number, threads, true);
}
static inline void mm_barrier_join_at(int number, int threads)
{
    emulate_meet(number, threads, false);
}
template <int NUMBER, int THREADS>
static inline bool mm_barrier_any(bool mine)
{
    static thread_local bool any; /* a CTA's threads are fibers of one thread */
    emulate_meet(NUMBER, THREADS, true);
    any = false;
    emulate_meet(NUMBER, THREADS, true);
    any = any || mine;
    emulate_meet(NUMBER, THREADS, true);
    return any;
}

/* --- copies past the registers --------------------------------------------------------------------------------------- */

static inline void mm_copy_async(unsigned to, const void *from, bool inside)
{
    emulate_copy(emulate_at(to), inside ? from : NULL, 16);
}
template <int BYTES>
static inline void mm_copy_element(unsigned to, const void *from, bool inside)
{
    emulate_copy(emulate_at(to), inside ? from : NULL, BYTES);
}
static inline void mm_copy_commit()
{
    emulate_copy_group();
}
template <int PENDING>
static inline void mm_copy_wait()
{
    emulate_copy_wait_but(PENDING);
}

/* --- reads ----------------------------------------------------------------------------------------------------------- */

template <typename V>
static inline V mm_load_once(const void *at)
{
    if ((uintptr_t)at % sizeof(V)) emulate_fault("a load from an odd address");
    return *(const V *)at;
}
template <typename V>
static inline V mm_load_near(const void *at)
{
    return mm_load_once<V>(at);
}
static inline uint32_t mm_shared_read(unsigned from)
{
    uint32_t word;
    memcpy(&word, emulate_at(from), sizeof word);
    return word;
}
static inline void mm_shared_read(uint32_t &first, uint32_t &second, unsigned from)
{
    first = mm_shared_read(from);
    second = mm_shared_read(from + 4);
}

static inline uint16_t mm_shared_read_16(unsigned from)
{
    uint16_t half;
    memcpy(&half, emulate_at(from), sizeof half);
    return half;
}

/* --- fragments ------------------------------------------------------------------------------------------------------- */

template <bool TRANSPOSE>
static inline void mm_ldmatrix(uint32_t (&to)[4], unsigned at)
{
    emulate_load_blocks(to, at, TRANSPOSE);
}
static inline uint32_t mm_transpose_block(uint32_t two)
{
    return emulate_transpose_block(two);
}
static inline uint32_t mm_round_tf32(float x)
{
    const uint32_t word = __float_as_uint(x);
    if (isnan(x)) return 0x7FFFFFFF;
    return isinf(x) ? word : (word + 0x1000) & 0xFFFFE000u;
}

template <typename T>
static constexpr emulate_type emulate_type_of = std::is_same_v<T, float>    ? EMULATE_TF32
                                                : std::is_same_v<T, __half> ? EMULATE_FP16
                                                                            : EMULATE_BF16;
template <typename T>
static inline void mm_mma(T, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    emulate_mma(emulate_type_of<T>, c, a, b0, b1);
}

/* Two bytes as FP16, which has every product of them; sums of 32 are exact in FP32. */
static inline uint32_t emulate_int8_halves(uint32_t word)
{
    const __half low = __float2half_rn((float)(int8_t)word), high = __float2half_rn((float)(int8_t)(word >> 8));
    return (uint32_t)__half_as_ushort(high) << 16 | __half_as_ushort(low);
}
static inline void mm_mma_s8(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    float sums[4] = {};
    for (int half = 0; half < 2; half++) {
        const uint32_t first = a[2 * half], second = a[2 * half + 1], b = half ? b1 : b0;
        const uint32_t fragment[4] = {emulate_int8_halves(first), emulate_int8_halves(second),
                                      emulate_int8_halves(first >> 16), emulate_int8_halves(second >> 16)};
        emulate_mma(EMULATE_FP16, sums, fragment, emulate_int8_halves(b), emulate_int8_halves(b >> 16));
    }
    for (int i = 0; i < 4; i++) c[i] += (int32_t)sums[i];
}

/* --- clusters -------------------------------------------------------------------------------------------------------- */

static inline unsigned mm_draw(uint32_t *counter)
{
    return atomicAdd(counter, 1u);
}
static inline unsigned mm_cluster_rank()
{
    return emulate_rank();
}
static inline void mm_cluster_arrive()
{
    emulate_cluster_arrive();
}
static inline void mm_cluster_arrive_relaxed()
{
    emulate_cluster_arrive();
}
static inline void mm_cluster_wait()
{
    emulate_cluster_wait();
}
static inline unsigned mm_peer_address(unsigned at, unsigned rank)
{
    return emulate_peer_address(at, rank);
}
template <typename S>
static inline void mm_peer_load(S (&to)[4], unsigned from)
{
    memcpy(to, emulate_at(from), sizeof to);
}
static inline void mm_peer_load(float &first, float &second, unsigned from)
{
    memcpy(&first, emulate_at(from), sizeof first);
    memcpy(&second, emulate_at(from + sizeof first), sizeof second);
}
template <typename S>
static inline void mm_peer_store(unsigned to, S x)
{
    memcpy(emulate_at(to), &x, sizeof x);
}

/* --- barriers -------------------------------------------------------------------------------------------------------- */

static inline void mm_mbarrier_init(unsigned barrier, unsigned count)
{
    emulate_mbarrier_init(barrier, (int)count);
}
static inline void mm_mbarrier_arrive(unsigned barrier)
{
    emulate_mbarrier_arrive(barrier, 0);
}
static inline void mm_mbarrier_expect(unsigned barrier, unsigned bytes)
{
    emulate_mbarrier_arrive(barrier, (int)bytes);
}
static inline void mm_mbarrier_wait(unsigned barrier, unsigned parity)
{
    emulate_mbarrier_wait(barrier, parity);
}
static inline void mm_mbarrier_publish()
{
}
static inline void mm_mbarrier_wait_peers(unsigned barrier, unsigned parity)
{
    emulate_mbarrier_wait(barrier, parity);
}
static inline void mm_mbarrier_arrive_at(unsigned barrier, unsigned rank)
{
    emulate_mbarrier_arrive(emulate_peer_address(barrier, rank), 0);
}

static inline void mm_mbarrier_arrive_copied(unsigned barrier)
{
    emulate_behind_copies([=] { emulate_mbarrier_arrive(barrier, 0); });
}

static inline void mm_map_prefetch(const CUtensorMap *)
{
}
static inline void mm_tma_load(unsigned to, const CUtensorMap *map, unsigned barrier, int x, int y, int z,
                               unsigned peers)
{
    emulate_tma_load(to, map, barrier, {x, y, z, 0}, peers);
}
typedef emulate_corner mm_corner;
static inline void mm_tma_load_4(unsigned to, const CUtensorMap *map, unsigned barrier, mm_corner from)
{
    emulate_tma_load(to, map, barrier, from, 0);
}
static inline void mm_shared_publish()
{
}
static inline void mm_send(unsigned to, unsigned barrier, const float *four)
{
    emulate_send(to, barrier, four);
}

/* --- a warpgroup ----------------------------------------------------------------------------------------------------- */

template <bool TRANSPOSE>
static inline void mm_stmatrix(unsigned to, uint32_t first, uint32_t second)
{
    emulate_store_blocks(to, first, second, TRANSPOSE);
}
template <int LEFT>
static inline void mm_registers_give()
{
}
template <int COUNT>
static inline void mm_registers_take()
{
}

static inline void mm_wgmma_fence()
{
}
static inline void mm_wgmma_commit()
{
    emulate_product_group();
}
template <int PENDING>
static inline void mm_wgmma_wait()
{
    emulate_product_wait_but(PENDING);
}
template <typename T, int N, bool A_K, bool B_K>
static inline void mm_wgmma(float (&d)[N / 2], uint64_t da, uint64_t db)
{
    emulate_wgmma(emulate_type_of<T>, d, N, {da, A_K}, NULL, {db, B_K});
}
template <int N>
static inline void mm_wgmma_int8(int32_t (&d)[N / 2], uint64_t da, uint64_t db)
{
    emulate_wgmma_8_bits({EMULATE_INT8, EMULATE_INT8}, d, N, da, db, false);
}
template <bool A_E5M2, bool B_E5M2, bool FIRST, int N>
static inline void mm_wgmma_fp8(float (&d)[N / 2], uint64_t da, uint64_t db)
{
    emulate_wgmma_8_bits({A_E5M2 ? EMULATE_E5M2 : EMULATE_E4M3, B_E5M2 ? EMULATE_E5M2 : EMULATE_E4M3}, d, N, da, db,
                         FIRST);
}
template <int COUNT>
static inline void mm_wgmma_settle(float (&)[COUNT])
{
}
template <int COUNT>
static inline void mm_wgmma_settle(int32_t (&)[COUNT])
{
}
template <typename T, int N>
static inline void mm_wgmma_first(float (&d)[N / 2], uint64_t da, uint64_t db)
{
    for (float &sum : d) sum = 0;
    emulate_wgmma(emulate_type_of<T>, d, N, {da, true}, NULL, {db, true});
}
template <typename T, int N>
static inline void mm_wgmma_fed_across(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t db)
{
    emulate_wgmma(emulate_type_of<T>, d, N, {}, a, {db, false});
}
template <int N>
static inline void mm_wgmma_tf32(float (&d)[N / 2], uint64_t da, uint64_t db)
{
    emulate_wgmma(EMULATE_TF32, d, N, {da, true}, NULL, {db, true});
}
template <typename T, int N>
static inline void mm_wgmma_fed(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t db)
{
    emulate_wgmma(emulate_type_of<T>, d, N, {}, a, {db, true});
}

#endif
