/* Softmax of rows over several CTAs: pieces of rows come through a ring in shared memory. While some wait until the team
 * has told a row's pair, others are under way.
 *
 * Each thread copies and reads its own packs only, so that nothing but a row's pair needs a barrier. */
#ifndef KS_SOFTMAX_RING_CUH
#define KS_SOFTMAX_RING_CUH

#include "cuda/softmax/block_registers.cuh"
#include "cuda/softmax/cta_group.cuh"

enum {
    RING_WORKERS = 512, /* at most; two more warps tell pairs */
    RING_PACKS = 4,     /* of a worker in a row's piece */
    RING_SLOTS = 6,     /* for pieces that are under way, or wait for their pair */
    RING_BEHIND = 4,    /* rows later the results of one are written */
    RING_TURNS = 10,    /* places of a record: who sums a row has the pair of RING_BEHIND + 1 rows ago */
    RING_SPANS = 16,
    RING_READS = 5 /* a team is seldom larger than so many warps */
};

/* A row for each team of `parts` CTAs at a time, `share` vectors each. Workers sum a row's terms as it arrives, and write
 * its results some rows later; telling the team's pairs is the business of two more warps. No barrier holds the workers'
 * warps together. */
template <class T>
__global__ void __launch_bounds__(RING_WORKERS + 2 * KS_WARP, 1)
    softmax_ring(ks_site site, softmax_shape s, int parts, int64_t share)
{
    typedef typename ks_element<T>::math M;
    typedef softmax_span<T> Span;
    constexpr int V = RING_PACKS, SLOTS = RING_SLOTS, BEHIND = RING_BEHIND, AHEAD = SLOTS - BEHIND, TURNS = RING_TURNS;
    static_assert(2 * (BEHIND + 1) <= TURNS && SLOTS + BEHIND < RING_SPANS, "nothing is lost before its use");
    __shared__ softmax_pair<M> cells[TURNS][RING_WORKERS / (int)KS_WARP], wholes[TURNS];
    __shared__ uint64_t summed[TURNS], told[TURNS];
    __shared__ uint32_t drawn;
    __shared__ softmax_team_of<TURNS> team;
    __shared__ Span spans[RING_SPANS];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<M> rule(s);
    const int threads = blockDim.x - 2 * KS_WARP, warps = threads / KS_WARP;
    const int lane = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP;
    if (threadIdx.x == 0) {
        team.open(site, parts, 1);
        for (int i = 0; i < TURNS; i++) {
            ks_gate_open(&summed[i], warps);
            ks_gate_open(&told[i], 1);
        }
    }
    __syncthreads();
    const int rows = (int)((s.outer - team.team + team.teams - 1) / team.teams);
    const auto prepare = [&](int r) {
        if (r < rows) spans[r % RING_SPANS] = Span(s, job, team.team + (int64_t)r * team.teams, share, team.me);
    };
    if (threadIdx.x < SLOTS) prepare(threadIdx.x);
    __syncthreads();
    if (warp == warps) {
#pragma unroll 1
        for (int r = 0; r < rows; r++) { /* the CTA's pair */
            ks_gate_wait(&summed[r % TURNS], r / TURNS & 1);
            const softmax_pair<M> mine =
                softmax_join(lane < warps ? cells[r % TURNS][lane] : softmax_none<M>(), KS_WARP, rule);
            if (lane == 0) team.post((uint32_t)r, team.me, mine.h, mine.sum);
        }
    } else if (warp > warps) {
#pragma unroll 1
        for (int r = 0; r < rows; r++) { /* the row's: a lane reads several records at once */
            softmax_pair<M> whole = softmax_none<M>();
#pragma unroll 1
            for (int first = lane; first < parts; first += RING_READS * (int)KS_WARP) {
                ks_record early[RING_READS];
#pragma unroll
                for (int j = 0; j < RING_READS; j++)
                    if (first + j * KS_WARP < parts) early[j] = team.read((uint32_t)r, first + j * KS_WARP);
#pragma unroll
                for (int j = 0; j < RING_READS; j++)
                    if (first + j * KS_WARP < parts)
                        whole = softmax_both(whole, team.template wait<M>((uint32_t)r, first + j * KS_WARP, early[j]),
                                             rule);
            }
            whole = softmax_settle(softmax_join(whole, KS_WARP, rule), rule);
            if (lane == 0) {
                wholes[r % TURNS] = whole;
                prepare(r + SLOTS);
                ks_gate_arrive(&told[r % TURNS]);
            }
        }
        const uint32_t ticket = team.draw(lane == 0);
        if (lane == 0) drawn = ticket;
    } else {
        const auto slot = [&](int r, int v) { return ks_dynamic + (r % SLOTS * V + v) * threads + threadIdx.x; };
        const auto fetch = [&](int r) {
            if (r < rows) {
                const Span &span = spans[r % RING_SPANS];
#pragma unroll
                for (int v = 0; v < V; v++) {
                    const int i = v * threads + threadIdx.x;
                    if (i < span.count) ks_copy_async(slot(r, v), &span.in[i]);
                }
            }
            ks_copy_group();
        };
#pragma unroll 1
        for (int r = 0; r < AHEAD; r++) fetch(r);
#pragma unroll 1
        for (int r = 0; r < rows + BEHIND; r++) {
            const int q = r - BEHIND;
            if (r < rows) {
                softmax_pack<T, Span::E> x[V];
                ks_copy_wait_but<AHEAD - 1>();
#pragma unroll
                for (int v = 0; v < V; v++) x[v].word = *slot(r, v);
                spans[r % RING_SPANS].clean(x, threadIdx.x, threads, s.sign);
                softmax_pack<T, Span::E> most = x[0];
#pragma unroll
                for (int v = 1; v < V; v++) most = softmax_greater(most, x[v]);
                const M h = ks_group_reduce(softmax_half(most), KS_WARP, softmax_maxes());
                M sum = 0;
#pragma unroll
                for (int v = 0; v < V; v++) sum += softmax_sum<false>(x[v], ks_reference(h), rule);
                sum = ks_group_reduce(sum, KS_WARP, ks_adds());
                __syncwarp(); /* the lanes are done with what was told before */
                if (lane == 0) {
                    cells[r % TURNS][warp] = {h, sum};
                    ks_gate_arrive(&summed[r % TURNS]);
                }
            }
            if (q >= 0) {
                ks_gate_wait(&told[q % TURNS], q / TURNS & 1);
                const Span &span = spans[q % RING_SPANS];
                const softmax_finish<M> finish(wholes[q % TURNS], rule);
#pragma unroll
                for (int v = 0; v < V; v++) {
                    softmax_pack<T, Span::E> x[1];
                    x[0].word = *slot(q, v);
                    softmax_turn(x, s.sign);
                    softmax_values<false>(x[0], finish, rule);
                    span.store(x[0], v * threads + threadIdx.x);
                }
            }
            fetch(r + AHEAD);
        }
    }
    __syncthreads();
    team.leave(drawn);
    ks_leave(site);
}

#endif
