/* Softmax of rows over several CTAs: parts of rows come through a pipeline in shared memory. While some stages wait for the
 * CTA group's pair of their row, others are being filled.
 *
 * Each thread copies and reads its own packs only, so that nothing but a row's pair needs a barrier. */
#ifndef KS_SOFTMAX_ROW_MULTIBLOCK_PIPELINED_CUH
#define KS_SOFTMAX_ROW_MULTIBLOCK_PIPELINED_CUH

#include "cuda/softmax/row_block_registers.cuh"
#include "cuda/softmax/cta_group.cuh"

enum {
    ROW_PIPELINE_CONSUMERS = 512, /* threads, at most; two more warps exchange pairs */
    ROW_PIPELINE_SLOTS = 10,      /* of a message: a CTA that sums a row has the pair of BEHIND + 1 rows ago */
    ROW_PIPELINE_SPANS = 16,
    ROW_PIPELINE_READS = 5 /* a CTA group is seldom larger than so many warps */
};

/* PACKS of a consumer thread in a row, which arrive in CHUNKS; STAGES that are being filled or wait for their pair; the results
 * of a row are written BEHIND rows later. */
template <int PACKS_, int STAGES_, int BEHIND_, int CHUNKS_>
struct row_pipeline {
    static constexpr int PACKS = PACKS_, STAGES = STAGES_, BEHIND = BEHIND_, CHUNKS = CHUNKS_, AHEAD = STAGES - BEHIND,
                         CHUNK = PACKS / CHUNKS;
    static_assert(2 * (BEHIND + 1) <= ROW_PIPELINE_SLOTS && STAGES + BEHIND < ROW_PIPELINE_SPANS && PACKS % CHUNKS == 0,
                  "nothing is lost before its use");
};
typedef row_pipeline<4, 6, 4, 1> row_pipeline_short;  /* while the pairs of some rows are on their way others come */
typedef row_pipeline<12, 2, 1, 4> row_pipeline_long;  /* two rows */
typedef row_pipeline<24, 1, 0, 8> row_pipeline_whole; /* one row: what is written makes room for the next one */

/* Waits for all groups of copies but the last ones; their number is known when this is compiled. */
__device__ __forceinline__ void softmax_copy_wait_but(int groups)
{
    switch (groups) {
    case 0:
        return ks_copy_wait_but<0>();
    case 1:
        return ks_copy_wait_but<1>();
    case 2:
        return ks_copy_wait_but<2>();
    case 3:
        return ks_copy_wait_but<3>();
    case 4:
        return ks_copy_wait_but<4>();
    case 5:
        return ks_copy_wait_but<5>();
    case 6:
        return ks_copy_wait_but<6>();
    default:
        return ks_copy_wait_but<7>();
    }
}

/* The pair of a row, joined by a warp from the messages of all CTAs; a thread reads several of them at once. */
template <class M>
__device__ __forceinline__ softmax_pair<M> softmax_join_messages(const softmax_cta_group_of<ROW_PIPELINE_SLOTS> &group,
                                                                 int r, int parts, const softmax_rule<M> &rule)
{
    const int lane_id = threadIdx.x % KS_WARP;
    softmax_pair<M> whole = softmax_none<M>();
#pragma unroll 1
    for (int first = lane_id; first < parts; first += ROW_PIPELINE_READS * (int)KS_WARP) {
        ks_message early[ROW_PIPELINE_READS];
#pragma unroll
        for (int j = 0; j < ROW_PIPELINE_READS; j++)
            if (first + j * KS_WARP < parts) early[j] = group.read((uint32_t)r, first + j * KS_WARP);
#pragma unroll
        for (int j = 0; j < ROW_PIPELINE_READS; j++)
            if (first + j * KS_WARP < parts)
                whole =
                    softmax_both(whole, group.template consume<M>((uint32_t)r, first + j * KS_WARP, early[j]), rule);
    }
    return softmax_settle(softmax_join(whole, KS_WARP, rule), rule);
}

/* The pair of a warp's packs of row r, which come by chunks. */
template <class P, class M, class T, class Stage>
__device__ __forceinline__ softmax_pair<M> softmax_row_pipeline_sum(const softmax_span<T> &span, int r, int threads,
                                                                    float sign, const softmax_rule<M> &rule,
                                                                    Stage stage)
{
    M h = -(M)INFINITY;
    double sum = 0;
#pragma unroll
    for (int c = 0; c < P::CHUNKS; c++) {
        softmax_pack<T, softmax_span<T>::E> x[P::CHUNK], most;
        if (r < P::BEHIND)
            softmax_copy_wait_but(P::AHEAD * P::CHUNKS + P::CHUNKS - 1 - c);
        else
            softmax_copy_wait_but((P::AHEAD - 1) * P::CHUNKS + P::CHUNKS - 1 - c);
#pragma unroll
        for (int v = 0; v < P::CHUNK; v++) x[v].word = *stage(r, c * P::CHUNK + v);
        span.clean(x, c * P::CHUNK * threads + threadIdx.x, threads, sign);
        most = x[0];
#pragma unroll
        for (int v = 1; v < P::CHUNK; v++) most = softmax_greater(most, x[v]);
        M whole = softmax_half(most);
        if constexpr (P::CHUNKS == 1)
            whole = ks_subwarp_reduce(whole, KS_WARP, softmax_maxes());
        else
            whole = ks_max(h, whole);
        M leaf = 0;
#pragma unroll
        for (int v = 0; v < P::CHUNK; v++) leaf += softmax_sum<false>(x[v], ks_reference(whole), rule);
        if constexpr (P::CHUNKS == 1) return {whole, ks_subwarp_reduce(leaf, KS_WARP, ks_adds())};
        sum = sum * (double)softmax_weight(h, whole, rule) + (double)leaf;
        h = whole;
    }
    return softmax_join({h, (M)sum}, KS_WARP, rule);
}

/* A row for each CTA group of `parts` CTAs at a time, `share` vectors each. Consumer warps sum a row's terms as it arrives, and
 * write its results some rows later; two more warps publish the CTA's pair and combine those of the CTA group. No barrier holds
 * the consumer warps together. P: a row_pipeline. */
template <class T, class P>
__global__ void __launch_bounds__(ROW_PIPELINE_CONSUMERS + 2 * KS_WARP, 1)
    softmax_row_multiblock_pipelined(ks_site site, softmax_shape s, int parts, int64_t share)
{
    typedef typename ks_element<T>::math M;
    typedef softmax_span<T> Span;
    constexpr int STAGES = P::STAGES, BEHIND = P::BEHIND, AHEAD = P::AHEAD, SLOTS = ROW_PIPELINE_SLOTS;
    __shared__ softmax_pair<M> cells[SLOTS][ROW_PIPELINE_CONSUMERS / (int)KS_WARP], wholes[SLOTS];
    __shared__ uint64_t summed[SLOTS], combined[SLOTS];
    __shared__ uint32_t drawn;
    __shared__ softmax_cta_group_of<SLOTS> group;
    __shared__ Span spans[ROW_PIPELINE_SPANS];
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<M> rule(s);
    const int threads = blockDim.x - 2 * KS_WARP, warps = threads / KS_WARP;
    const int lane_id = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP;
    if (threadIdx.x == 0) {
        group.open(site, parts, 1);
        for (int i = 0; i < SLOTS; i++) {
            ks_mbarrier_init(&summed[i], warps);
            ks_mbarrier_init(&combined[i], 1);
        }
    }
    __syncthreads();
    const int rows = (int)((s.outer - group.index + group.groups - 1) / group.groups);
    const auto prepare = [&](int r) {
        if (r < rows)
            spans[r % ROW_PIPELINE_SPANS] = Span(s, job, group.index + (int64_t)r * group.groups, share, group.rank);
    };
    if (threadIdx.x < STAGES) prepare(threadIdx.x);
    __syncthreads();
    if (warp == warps) {
#pragma unroll 1
        for (int r = 0; r < rows; r++) { /* the CTA's pair */
            ks_mbarrier_wait(&summed[r % SLOTS], r / SLOTS & 1);
            const softmax_pair<M> mine =
                softmax_join(lane_id < warps ? cells[r % SLOTS][lane_id] : softmax_none<M>(), KS_WARP, rule);
            if (lane_id == 0) group.publish((uint32_t)r, group.rank, mine.h, mine.sum);
        }
    } else if (warp > warps) {
#pragma unroll 1
        for (int r = 0; r < rows; r++) { /* the row's */
            const softmax_pair<M> whole = softmax_join_messages<M>(group, r, parts, rule);
            if (lane_id == 0) {
                wholes[r % SLOTS] = whole;
                prepare(r + STAGES);
                ks_mbarrier_arrive(&combined[r % SLOTS]);
            }
        }
        const uint32_t ticket = group.draw(lane_id == 0);
        if (lane_id == 0) drawn = ticket;
    } else {
        const auto stage = [&](int r, int v) {
            return ks_dynamic + (r % STAGES * P::PACKS + v) * threads + threadIdx.x;
        };
        const auto fetch_pack = [&](int r, int v) {
            const int i = v * threads + threadIdx.x;
            const Span &span = spans[r % ROW_PIPELINE_SPANS];
            if (r < rows && i < span.count) ks_copy_async(stage(r, v), &span.in[i]);
        };
        const auto fetch = [&](int r) {
#pragma unroll
            for (int v = 0; v < P::PACKS; v++) {
                fetch_pack(r, v);
                if ((v + 1) % P::CHUNK == 0) ks_copy_group();
            }
        };
#pragma unroll 1
        for (int r = 0; r < AHEAD; r++) fetch(r);
#pragma unroll 1
        for (int r = 0; r < rows + BEHIND; r++) {
            const int q = r - BEHIND;
            if (q < 0) fetch(r + AHEAD); /* its stage is empty yet */
            if (r < rows) {
                const softmax_pair<M> mine =
                    softmax_row_pipeline_sum<P, M>(spans[r % ROW_PIPELINE_SPANS], r, threads, s.sign, rule, stage);
                __syncwarp(); /* the warp has read the row's pair */
                if (lane_id == 0) {
                    cells[r % SLOTS][warp] = mine;
                    ks_mbarrier_arrive(&summed[r % SLOTS]);
                }
            }
            if (q < 0) continue;
            ks_mbarrier_wait(&combined[q % SLOTS], q / SLOTS & 1);
            const Span &span = spans[q % ROW_PIPELINE_SPANS];
            const softmax_epilogue<M> epilogue(wholes[q % SLOTS], rule);
#pragma unroll
            for (int v = 0; v < P::PACKS; v++) {
                softmax_pack<T, Span::E> x[1];
                x[0].word = *stage(q, v);
                softmax_apply_sign(x, s.sign);
                softmax_values<false>(x[0], epilogue, rule);
                fetch_pack(r + AHEAD, v); /* what lay there is in registers */
                span.store(x[0], v * threads + threadIdx.x);
                if ((v + 1) % P::CHUNK == 0) ks_copy_group();
            }
        }
    }
    __syncthreads();
    group.leave(drawn);
    ks_leave(site);
}

#endif
