/* The kernel of few long rows of floats. CTA number b of G has tiles b, b + G, b + 2 G ... of all rows one behind the other, and while it works
 * on one of them the next one comes into shared memory, 16 bytes at a time, as it lies in memory.
 *
 * What is in front of a tile is joined from what was in front of the CTA's tile before it, that tile, and the G - 1 tiles between, of each of
 * which there is a message as soon as its elements are there: no tile waits for the prefix of another one. What is joined with what follows
 * from the grid, so no bit follows from when messages came. A row of each CTA's own (not s.carries) needs no message.
 *
 * Messages  of tile t in slot t mod 3 G, and with a bit that turns each time. A CTA leaves that of t when it has seen all up to t - G - 1, so
 *           tiles up to t - 2 G - 1 have all that they read: what is overwritten, that of t - 3 G, was for tiles up to t - 2 G - 1.
 *           The counters' first word is drawn from when a CTA has seen its last message; the last CTA clears all.
 * Threads   SCAN_ROW_THREADS at most, of CTAs that all run at a time.
 * Errors    a wrong grid never ends: the launch is cooperative, which refuses it. */
#ifndef KS_SCAN_ROWS_CUH
#define KS_SCAN_ROWS_CUH

#include "cuda/scan/ops.cuh"

/* Threads of a CTA, at most, and CTAs of an SM that the registers have to suffice for. */
template <class Op>
constexpr int scan_row_threads()
{
    return sizeof(typename Op::Slot) == 8 ? SCAN_ROW_WIDE_THREADS : SCAN_ROW_THREADS;
}
template <class Op>
constexpr int scan_row_ctas()
{
    return sizeof(typename Op::Slot) == 8 ? SCAN_ROW_WIDE_CTAS : SCAN_ROW_CTAS;
}

/* --- messages --------------------------------------------------------------------------------------------------------- */

/* A state, and behind it a mark that is not 0. */
template <class State>
__device__ __forceinline__ ks_message scan_message(const State &state, uint32_t mark)
{
    ks_message r = {0, mark};
    static_assert(sizeof(State) <= sizeof r.first, "beside the mark");
    memcpy(&r.first, &state, sizeof state);
    return r;
}
__device__ __forceinline__ ks_message scan_message(const scan_exponentials<float> &state, uint32_t mark)
{
    return {(uint64_t)__double_as_longlong(state.sum), (uint64_t)__float_as_uint(state.reference) << 32 | mark};
}
template <class State>
__device__ __forceinline__ void scan_unpack(const ks_message &r, State *state)
{
    memcpy(state, &r.first, sizeof *state);
}
__device__ __forceinline__ void scan_unpack(const ks_message &r, scan_exponentials<float> *state)
{
    *state = {__uint_as_float((uint32_t)(r.second >> 32)), __longlong_as_double((long long)r.first)};
}

/* The messages of a job. */
struct scan_mail {
    uint32_t *ticket;
    ks_message *slots;
    uint32_t grid;

    __device__ __forceinline__ explicit scan_mail(const ks_site &site)
        : ticket(ks_counters(site)), slots((ks_message *)(void *)(ks_counters(site) + SCAN_MAIL_HEAD)), grid(gridDim.x)
    {
    }
    __device__ __forceinline__ ks_message *slot(uint32_t round, uint32_t cta) const
    {
        return slots + round % SCAN_MAIL_ROUNDS * grid + cta;
    }
    static __device__ __forceinline__ uint32_t mark(uint32_t round)
    {
        return 2 | (round / SCAN_MAIL_ROUNDS & 1);
    }
    template <class State>
    __device__ __forceinline__ void publish(uint32_t round, const State &state) const
    {
        ks_write_relaxed(slot(round, blockIdx.x), scan_message(state, mark(round)));
    }
    template <class State>
    __device__ __forceinline__ State consume(uint32_t round, uint32_t cta) const
    {
        State state;
        ks_message r;
        do {
            r = ks_read_relaxed(slot(round, cta));
        } while ((uint32_t)r.second != mark(round));
        scan_unpack(r, &state);
        return state;
    }
    /* Of the last CTA to have drawn. */
    __device__ __forceinline__ void leave(uint32_t drawn) const
    {
        if (!__syncthreads_or(threadIdx.x == 0 && drawn == grid - 1)) return;
        for (uint32_t i = threadIdx.x; i < SCAN_MAIL_ROUNDS * grid; i += blockDim.x) slots[i] = {0, 0};
        if (threadIdx.x == 0) *ticket = 0;
    }
};

/* --- tiles ------------------------------------------------------------------------------------------------------------ */

/* Which tile a CTA has, the how manieth of its own. */
struct scan_turn {
    uint32_t item, chain;
    uint32_t tile; /* of the chain */
    uint32_t round;

    __device__ __forceinline__ explicit scan_turn(const scan_shape &s) : item(blockIdx.x), tile(0), round(0)
    {
        find(s);
    }
    __device__ __forceinline__ void find(const scan_shape &s)
    {
        chain = s.carries ? item / (uint32_t)s.tiles : item;
        if (s.carries) tile = item - chain * (uint32_t)s.tiles;
    }
    __device__ __forceinline__ bool is_there(const scan_shape &s) const
    {
        return chain < (uint64_t)s.chains;
    }
    __device__ __forceinline__ void advance(const scan_shape &s)
    {
        round++;
        if (!s.carries && ++tile < (uint32_t)s.tiles) return;
        if (!s.carries) tile = 0;
        item += gridDim.x;
        find(s);
    }
};

/* Where a tile lies: from an element of the tensor on, in whole vectors, of which the first `skip` elements are of others. */
template <class T>
struct scan_span {
    static constexpr int E = ks_vector<T>::length;
    int64_t vector;
    int skip, steps;

    __device__ __forceinline__ scan_span(const scan_shape &s, const scan_turn &turn)
    {
        const int64_t passed = (int64_t)turn.tile * s.depth;
        steps = (int)min((int64_t)s.depth, s.length - passed);
        const int64_t at = (int64_t)turn.chain * s.length + (s.reverse ? s.length - passed - steps : passed);
        vector = at / E;
        skip = (int)(at - vector * E);
    }
    __device__ __forceinline__ int vectors() const
    {
        return (skip + steps + E - 1) / E;
    }
    __device__ __forceinline__ void load(const void *in, uint4 *stage) const
    {
        const uint4 *const from = (const uint4 *)in + vector;
        const int count = vectors();
        for (int v = threadIdx.x; v < count; v += blockDim.x) ks_copy_async(stage + v, from + v);
    }
    __device__ __forceinline__ void store(const uint4 *stage, void *out) const
    {
        const int count = vectors();
        for (int v = threadIdx.x; v < count; v += blockDim.x) {
            ks_vector<T> mine;
            mine.raw = stage[v];
            ks_store_vector(out, vector + v, mine, (int64_t)v * E - skip, steps);
        }
    }
};

/* A thread's elements of a tile in shared memory: n of them, each `step` behind the one in front. */
template <class T>
struct scan_stretch {
    int seat, step, n;

    __device__ __forceinline__ scan_stretch(const scan_shape &s, const scan_span<T> &span)
    {
        const int begin = (int)threadIdx.x * s.run;
        step = s.reverse ? -1 : 1;
        seat = span.skip + (s.reverse ? span.steps - 1 - begin : begin);
        n = max(0, min(span.steps - begin, s.run));
    }
    template <class Op>
    __device__ __forceinline__ void take(const T *stage, const scan_rule &rule, typename Op::Slot (&x)[SCAN_RUN]) const
    {
        const T *at = stage + seat;
#pragma unroll
        for (int i = 0; i < SCAN_RUN; i++) {
            x[i] = i < n ? Op::Source::get(*at, rule) : Op::absent();
            at += step;
        }
    }
    template <class Op>
    __device__ __forceinline__ void put(T *stage, const scan_rule &rule, const typename Op::Slot (&x)[SCAN_RUN]) const
    {
        T *at = stage + seat;
#pragma unroll
        for (int i = 0; i < SCAN_RUN; i++) {
            if (i < n) *at = Op::Source::template put<T>(x[i], rule);
            at += step;
        }
    }
};

/* A CTA's shared memory beside its stages: states of its warps. */
template <class Op>
struct scan_row_state {
    typename Op::State totals[SCAN_ROW_WARPS], fronts[SCAN_ROW_WARPS];
};

/* The states of `count` warps, joined in their order: in lane i of the first i + 1. */
template <class Op>
__device__ __forceinline__ typename Op::State scan_warps(const typename Op::State *states, int count)
{
    const int lane_id = threadIdx.x % KS_WARP;
    return scan_runs<Op>(lane_id < count ? states[lane_id] : Op::none(), lane_id, KS_WARP, 1);
}

/* A thread's share of the messages between the CTA's tile before this one and this one, those of this chain. They are as many as there are other
 * CTAs, less those that come later in the first round; `each` of them are a thread's, one behind the other. */
template <class Op>
__device__ __forceinline__ typename Op::State scan_between(const scan_turn &turn, const scan_mail &mail, uint32_t each)
{
    typename Op::State sum = Op::none();
    const uint32_t others = mail.grid - 1;
    for (uint32_t i = 0; i < each; i++) {
        const uint32_t k = threadIdx.x * each + i, behind = others - k; /* how far in front of this tile */
        if (k >= others || (turn.round == 0 && behind > blockIdx.x)) continue;
        const bool before = behind > blockIdx.x; /* of the round before */
        const uint32_t cta = before ? blockIdx.x + mail.grid - behind : blockIdx.x - behind;
        const typename Op::State state =
            mail.template consume<typename Op::State>(before ? turn.round - 1 : turn.round, cta);
        if (behind <= turn.tile) sum = Op::join(sum, state);
    }
    return sum;
}

/* What is in front of this tile; carry: behind the CTA's tile before. All threads. */
template <class Op>
__device__ __forceinline__ typename Op::State scan_row_front(const scan_turn &turn, const scan_mail &mail,
                                                             scan_row_state<Op> &state, const typename Op::State &carry)
{
    const uint32_t each = (mail.grid - 1 + blockDim.x - 1) / blockDim.x;
    const int lane_id = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP;
    const typename Op::State sum = scan_runs<Op>(scan_between<Op>(turn, mail, each), lane_id, KS_WARP, 1);
    if (lane_id == KS_WARP - 1) state.fronts[warp] = sum;
    __syncthreads();
    const typename Op::State between =
        scan_from_lane(scan_warps<Op>(state.fronts, (int)blockDim.x / KS_WARP), KS_WARP - 1);
    const bool same_chain = turn.tile >= mail.grid; /* as the CTA's tile before */
    return same_chain ? Op::join(carry, between) : between;
}

/* A tile in a stage becomes its prefixes. carry: behind the tile before, and behind this one afterwards. */
template <class Op>
__device__ __forceinline__ void scan_row_tile(const scan_shape &s, const scan_turn &turn, const scan_mail &mail,
                                              const scan_stretch<typename Op::Source::Element> &mine,
                                              scan_row_state<Op> &state, typename Op::State &carry)
{
    typedef typename Op::State State;
    typedef typename Op::Source::Element T;
    T *const stage = (T *)(void *)(ks_dynamic + turn.round % 2 * s.stage_vectors);
    const int lane_id = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP, warps = blockDim.x / KS_WARP;
    typename Op::Slot x[SCAN_RUN];
    mine.template take<Op>(stage, s.rule, x);
    const State whole = scan_runs<Op>(Op::total(x), lane_id, KS_WARP, 1);
    State before = scan_from_below(whole, 1);
    if (lane_id == KS_WARP - 1) state.totals[warp] = whole;
    __syncthreads();
    const State joined = scan_warps<Op>(state.totals, warps), tile = scan_from_lane(joined, warps - 1);
    State front = scan_from_lane(joined, max(warp - 1, 0));
    if (s.carries && threadIdx.x == 0) mail.publish(turn.round, tile);
    before = lane_id == 0 ? (warp ? front : Op::none()) : warp ? Op::join(front, before) : before;
    if (s.carries)
        carry = scan_row_front<Op>(turn, mail, state, carry);
    else if (turn.tile == 0)
        carry = Op::none();
    mine.template take<Op>(stage, s.rule, x); /* kept meanwhile, they would have the registers of what comes between */
    Op::finish(x, Op::join(carry, before), s.exclusive);
    mine.template put<Op>(stage, s.rule, x);
    carry = Op::join(carry, tile);
}

template <class Op>
__global__ void __launch_bounds__(scan_row_threads<Op>(), scan_row_ctas<Op>())
    scan_row(ks_site site, const __grid_constant__ scan_shape s)
{
    typedef typename Op::Source::Element T;
    __shared__ scan_row_state<Op> state;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const scan_mail mail(site);
    scan_turn next(s);
    typename Op::State carry = Op::none();
    uint32_t drawn = 0;
    scan_span<T>(s, next).load(job.in + s.in, ks_dynamic);
#pragma unroll 1
    while (next.is_there(s)) {
        scan_turn turn = next;
        next.advance(s);
        ks_copy_wait();
        __syncthreads(); /* the stage is there, and the other one has been stored */
        if (next.is_there(s)) scan_span<T>(s, next).load(job.in + s.in, ks_dynamic + next.round % 2 * s.stage_vectors);
        scan_row_tile<Op>(s, turn, mail, scan_stretch<T>(s, scan_span<T>(s, turn)), state, carry);
        if (s.carries && !next.is_there(s) && threadIdx.x == 0) drawn = atomicAdd(mail.ticket, 1u);
        __syncthreads();
        ks_anew(turn.tile); /* what was computed of it would take registers from the elements */
        scan_span<T>(s, turn).store(ks_dynamic + turn.round % 2 * s.stage_vectors, job.out + s.out);
    }
    if (s.carries) mail.leave(drawn);
    ks_leave(site);
}

#endif
