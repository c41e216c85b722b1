/* Softmax of rows too long for a CTA: teams of CTAs that stay, a row after the other.
 *
 *   stream  pieces of rows come through a ring in shared memory: while some wait until the team has told a row's pair,
 *           others are under way
 *   huge    one row over the whole grid: a CTA keeps of its part what fits into shared memory and reads the rest twice,
 *           the last bytes first, which still lie in the L2 cache
 *
 * Each thread copies and reads its own packs only, so that nothing but a row's pair needs a barrier. */
#ifndef KS_SOFTMAX_STREAM_CUH
#define KS_SOFTMAX_STREAM_CUH

#include "softmax_held.cuh"
#include "softmax_team.cuh"

static constexpr int STREAM_THREADS = 512, HUGE_PACKS = 8; /* of huge, and of columns */

/* The row's pair from those of the team's CTAs, in their order; the CTA calls it whole. warps: a pair of each. */
template <class M>
__device__ __forceinline__ softmax_pair<M> softmax_team_pair(softmax_pair<M> mine, softmax_pair<M> *warps,
                                                             const softmax_team &team, uint32_t round,
                                                             const softmax_rule<M> &rule)
{
    const int lane = threadIdx.x % KS_WARP, first = threadIdx.x - lane, groups = (team.members + KS_WARP - 1) / KS_WARP;
    if (threadIdx.x == 0) team.post(round, team.me, mine.h, mine.sum);
    if (first < team.members) {
        mine = softmax_none<M>();
        if ((int)threadIdx.x < team.members) mine = team.wait<M>(round, threadIdx.x);
        mine = softmax_join(mine, KS_WARP, rule);
        if (lane == 0) warps[first / KS_WARP] = mine;
    }
    __syncthreads();
    if (groups == 1) return warps[0];
    return softmax_join(lane < groups ? warps[lane] : softmax_none<M>(), KS_WARP, rule);
}

/* How stream's CTAs work. packs: of a worker in a row's piece. slots: for pieces that are under way or wait for their pair,
 * for which they have time until `behind` rows later. ctas: of an SM; with FP64, which takes more registers, fewer. */
struct stream_form {
    int workers, packs, slots, behind, ctas;
    constexpr int of_sm(size_t size) const
    {
        return size == 8 && ctas > 2 ? 2 : ctas;
    }
};
static constexpr stream_form STREAM_FORMS[] = {{256, 4, 4, 2, 3}, {512, 4, 6, 3, 1}, {512, 8, 3, 1, 1}};

enum {
    STREAM_TURNS = 4, /* rows that a team may be at */
    STREAM_READS = 5, /* a team is seldom larger than so many warps */
    STREAM_SPANS = 16
};

/* A row for each team of `parts` CTAs at a time, `share` vectors each. Workers sum a row's terms as it arrives, and write
 * its results some rows later; telling the team's pairs is the business of two more warps. No barrier holds the workers'
 * warps together. */
template <class T, int FORM>
__global__ void __launch_bounds__(STREAM_FORMS[FORM].workers + 2 * KS_WARP, STREAM_FORMS[FORM].of_sm(sizeof(T)))
    softmax_stream(ks_site site, softmax_shape s, int parts, int64_t share)
{
    typedef typename ks_element<T>::math M;
    typedef softmax_span<T> Span;
    constexpr stream_form form = STREAM_FORMS[FORM];
    constexpr int V = form.packs, AHEAD = form.slots - form.behind, TURNS = STREAM_TURNS;
    static_assert(form.behind < TURNS && form.slots + form.behind < STREAM_SPANS, "nothing is lost before its use");
    __shared__ softmax_pair<M> cells[TURNS][KS_WARPS_MAX], wholes[TURNS];
    __shared__ uint64_t summed[TURNS], told[TURNS];
    __shared__ uint32_t drawn;
    __shared__ softmax_team_of<TURNS> team;
    __shared__ Span spans[STREAM_SPANS];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<M> rule(s);
    const int threads = blockDim.x - 2 * KS_WARP, warps = threads / KS_WARP;
    const int lane = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP;
    if (threadIdx.x == 0) {
        team.open(site, parts, 1);
        for (int i = 0; i < TURNS; i++) {
            ks_gate_open(&summed[i], warps);
            ks_gate_open(&told[i], 2);
        }
    }
    __syncthreads();
    const int rows = (int)((s.outer - team.team + team.teams - 1) / team.teams);
    const auto prepare = [&](int r) {
        if (r < rows) spans[r % STREAM_SPANS] = Span(s, job, team.team + (int64_t)r * team.teams, share, team.me);
    };
    if (threadIdx.x < form.slots) prepare(threadIdx.x);
    __syncthreads();
    if (warp == warps) {
#pragma unroll 1
        for (int r = 0; r < rows; r++) { /* the CTA's pair; two rows ago, all have read those of four rows ago */
            if (r >= 2) ks_gate_wait(&told[(r - 2) % TURNS], (r - 2) / TURNS & 1);
            ks_gate_wait(&summed[r % TURNS], r / TURNS & 1);
            const softmax_pair<M> mine =
                softmax_join(lane < warps ? cells[r % TURNS][lane] : softmax_none<M>(), KS_WARP, rule);
            __syncwarp();
            if (lane == 0) {
                team.post((uint32_t)r, team.me, mine.h, mine.sum);
                ks_gate_arrive(&told[r % TURNS]); /* the cells are read */
            }
        }
    } else if (warp > warps) {
#pragma unroll 1
        for (int r = 0; r < rows; r++) { /* the row's: a lane reads several records at once */
            softmax_pair<M> whole = softmax_none<M>();
#pragma unroll 1
            for (int first = lane; first < parts; first += STREAM_READS * KS_WARP) {
                ks_record early[STREAM_READS];
#pragma unroll
                for (int j = 0; j < STREAM_READS; j++)
                    if (first + j * KS_WARP < parts) early[j] = team.read((uint32_t)r, first + j * KS_WARP);
#pragma unroll
                for (int j = 0; j < STREAM_READS; j++)
                    if (first + j * KS_WARP < parts)
                        whole = softmax_both(whole, team.template wait<M>((uint32_t)r, first + j * KS_WARP, early[j]),
                                             rule);
            }
            whole = softmax_settle(softmax_join(whole, KS_WARP, rule), rule);
            if (lane == 0) {
                wholes[r % TURNS] = whole;
                prepare(r + form.slots);
                ks_gate_arrive(&told[r % TURNS]);
            }
        }
        const uint32_t ticket = team.draw(lane == 0);
        if (lane == 0) drawn = ticket;
    } else {
        const auto slot = [&](int r, int v) { return ks_dynamic + (r % form.slots * V + v) * threads + threadIdx.x; };
        const auto fetch = [&](int r) {
            if (r < rows) {
                const Span &span = spans[r % STREAM_SPANS];
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
        for (int r = 0; r < rows + form.behind; r++) {
            const int q = r - form.behind;
            if (r < rows) {
                softmax_pack<T, Span::E> x[V];
                ks_copy_wait_but<AHEAD - 1>();
#pragma unroll
                for (int v = 0; v < V; v++) x[v].word = *slot(r, v);
                spans[r % STREAM_SPANS].clean(x, threadIdx.x, threads, s.sign);
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
                const Span &span = spans[q % STREAM_SPANS];
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

/* A row for the whole grid at a time. kept: packs of each thread in shared memory, a multiple of HUGE_PACKS. */
template <class T>
__global__ void __launch_bounds__(STREAM_THREADS, 1)
    softmax_huge(ks_site site, softmax_shape s, int64_t share, int kept)
{
    typedef typename ks_element<T>::math M;
    typedef softmax_span<T> Span;
    constexpr int V = sizeof(T) == 8 ? HUGE_PACKS / 2 : HUGE_PACKS;
    uint4 *const keep = ks_dynamic;
    __shared__ softmax_pair<M> warps[KS_WARPS_MAX];
    __shared__ softmax_team team;
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<M> rule(s);
    if (threadIdx.x == 0) team.open(site, gridDim.x, 1);
    __syncthreads();
    const int threads = blockDim.x, step = V * threads, held = kept * threads;
    softmax_pack<T, Span::E> x[V];
    uint32_t drawn = 0;
#pragma unroll 1
    for (int64_t row = 0; row < s.outer; row++) {
        const Span span(s, job, row, share, team.me);
        for (int i = threadIdx.x; i < min(span.count, held); i += threads) ks_copy_async(&keep[i], &span.in[i]);
        M h = -(M)INFINITY;
        double sum = 0;
        const auto take = [&](int i) {
            span.clean(x, i, threads, s.sign);
            softmax_pack<T, Span::E> most = x[0];
#pragma unroll
            for (int v = 1; v < V; v++) most = softmax_greater(most, x[v]);
            const M whole = ks_max(h, softmax_half(most));
            M leaf = 0;
#pragma unroll
            for (int v = 0; v < V; v++) leaf += softmax_sum<false>(x[v], ks_reference(whole), rule);
            sum = sum * (double)softmax_weight(h, whole, rule) + (double)leaf;
            h = whole;
        };
#pragma unroll 1
        for (int i = held + threadIdx.x; i < span.count; i += step) {
#pragma unroll
            for (int v = 0; v < V; v++) span.load(x[v], i + v * threads);
            take(i);
        }
        ks_copy_wait();
#pragma unroll 1
        for (int i = threadIdx.x; i < min(span.count, held); i += step) {
#pragma unroll
            for (int v = 0; v < V; v++) x[v].word = keep[i + v * threads];
            take(i);
        }
        softmax_pair<M> whole = softmax_join({h, (M)sum}, KS_WARP, rule);
        if (threadIdx.x % KS_WARP == 0) warps[threadIdx.x / KS_WARP] = whole;
        __syncthreads();
        const int lane = threadIdx.x % KS_WARP;
        whole = softmax_join(lane < threads / KS_WARP ? warps[lane] : softmax_none<M>(), KS_WARP, rule);
        __syncthreads();
        whole = softmax_settle(softmax_team_pair(whole, warps, team, (uint32_t)row, rule), rule);
        if (row + 1 == s.outer) drawn = team.draw();
        const softmax_finish<M> finish(whole, rule);
        const auto give = [&](int i) {
            softmax_turn(x, s.sign);
#pragma unroll
            for (int v = 0; v < V; v++) {
                softmax_values<false>(x[v], finish, rule);
                span.store(x[v], i + v * threads);
            }
        };
        const int beyond = (max(span.count - held, 0) + step - 1) / step;
#pragma unroll 1
        for (int i = held + (beyond - 1) * step + threadIdx.x; i >= held; i -= step) {
#pragma unroll
            for (int v = 0; v < V; v++) span.load(x[v], i + v * threads);
            give(i);
        }
#pragma unroll 1
        for (int i = threadIdx.x; i < min(span.count, held); i += step) {
#pragma unroll
            for (int v = 0; v < V; v++) x[v].word = keep[i + v * threads];
            give(i);
        }
    }
    team.leave(drawn);
    ks_leave(site);
}

#endif
