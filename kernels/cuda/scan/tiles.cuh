/* The kernels of scan. A tile is read from memory in the order of its bytes, lies in shared memory as numbers, is scanned there by runs, a
 * thread's each, and is written likewise.
 *
 *   scan_warp    chains that fit into a warp's tile, several of them where they are short and their elements follow each other; or longer ones,
 *                tile by tile, where chains are so many that each warp of the chip has one: none waits for another
 *   scan_block   longer ones, a CTA's tile after the other: all of one chain by one CTA, or, where chains are few, any tile by any CTA, which
 *                then looks back (carry.cuh)
 *
 * Shapes   any. Elements are read once and written once.
 * Threads  SCAN_THREADS; shared memory: as many slots as tiles have elements. */
#ifndef KS_SCAN_TILES_CUH
#define KS_SCAN_TILES_CUH

#include "cuda/scan/carry.cuh"

/* CTAs of an SM that the registers have to suffice for. */
template <class Op>
constexpr int scan_ctas_sm()
{
    return sizeof(typename Op::State) == 16 || !std::is_same_v<typename Op::Slot, float> ? 2 : 3;
}

/* The elements of a tile that a thread moves between memory and shared memory: `count` of them. */
struct scan_part {
    int64_t at, at_step; /* elements from the tensor's start */
    int seat, seat_step; /* slots, but for padding */
    int count;
    /* Without the first `less` of them. */
    __device__ __forceinline__ scan_part behind(int less) const
    {
        return {at + less * at_step, at_step, seat + less * seat_step, seat_step, max(count - less, 0)};
    }
};

/* The slot of a seat, behind the padding of the chains in front of its own. */
__device__ __forceinline__ int scan_padded(const scan_shape &s, int seat)
{
    return s.padding ? seat + (int)((uint32_t)seat * s.inverse >> 20) * s.padding : seat;
}

/* How many of k, k + step, k + 2 step ... are below the end. */
__device__ __forceinline__ int scan_count(int k, int step, int end)
{
    return k < end ? (end - k + step - 1) / step : 0;
}

/* Addresses go from one element to the next; what they are computed from is taken anew (ks_anew), for kept from the load to the store they
 * would take more registers than the elements. */
template <class Op>
__device__ __forceinline__ void scan_load(const scan_shape &s, const void *in, scan_part part, typename Op::Slot *slots)
{
    typedef typename Op::Source Source;
    Source::reads(s.rule, [&](auto *kind) {
        typedef std::remove_pointer_t<decltype(kind)> Element;
        constexpr int LOADS = sizeof(typename Op::Slot) == 8 ? SCAN_RUN / 3 : SCAN_RUN; /* in flight */
        const Element *from = ks_one_address((const Element *)in + part.at);
        int seat = part.seat;
#pragma unroll
        for (int first = 0; first < SCAN_RUN; first += LOADS) {
            Element raw[LOADS];
#pragma unroll
            for (int i = 0; i < LOADS; i++) {
                if (first + i < part.count) raw[i] = __ldg(from);
                from = ks_one_address(from + part.at_step);
            }
#pragma unroll
            for (int i = 0; i < LOADS; i++) {
                if (first + i < part.count) slots[scan_padded(s, seat)] = Source::get(raw[i], s.rule);
                seat += part.seat_step;
            }
        }
    });
}

template <class Op>
__device__ __forceinline__ void scan_store(const scan_shape &s, const typename Op::Slot *slots, scan_part part,
                                           void *out)
{
    typedef typename Op::Source Source;
    ks_anew((uint32_t &)part.seat);
    ks_anew((uint32_t &)part.count);
    Source::writes(s.rule, [&](auto *kind) {
        typedef std::remove_pointer_t<decltype(kind)> Element;
        Element *to = const_cast<Element *>(ks_one_address((const Element *)out + part.at));
        int seat = part.seat;
#pragma unroll
        for (int i = 0; i < SCAN_RUN; i++) {
            if (i < part.count) *to = Source::template put<Element>(slots[scan_padded(s, seat)], s.rule);
            to = const_cast<Element *>(ks_one_address((const Element *)to + part.at_step));
            seat += part.seat_step;
        }
    });
}

/* A thread's run in shared memory: n steps, the first at a seat, the others `step` on. */
struct scan_run {
    int seat, step, n;

    template <class Op>
    __device__ __forceinline__ void take(const typename Op::Slot *slots, typename Op::Slot (&x)[SCAN_RUN]) const
    {
        int again = seat;
        ks_anew((uint32_t &)again);
        const typename Op::Slot *at = slots + again;
#pragma unroll
        for (int i = 0; i < SCAN_RUN; i++) {
            x[i] = i < n ? *at : Op::absent();
            at += step;
        }
    }
    template <class Op>
    __device__ __forceinline__ typename Op::State total(const typename Op::Slot *slots) const
    {
        if constexpr (Op::SERIAL) {
            return Op::total(slots + seat, step, n);
        } else {
            typename Op::Slot x[SCAN_RUN];
            take<Op>(slots, x);
            return Op::total(x);
        }
    }
    /* The elements are taken again: kept meanwhile, they would have the registers of what comes between. */
    template <class Op>
    __device__ __forceinline__ void finish(typename Op::Slot *slots, typename Op::State before, bool exclusive) const
    {
        if constexpr (Op::SERIAL) {
            Op::finish(slots + seat, step, n, before, exclusive);
        } else {
            typename Op::Slot x[SCAN_RUN];
            take<Op>(slots, x);
            Op::finish(x, before, exclusive);
            int again = seat;
            ks_anew((uint32_t &)again);
            typename Op::Slot *at = slots + again;
#pragma unroll
            for (int i = 0; i < SCAN_RUN; i++) {
                if (i < n) *at = x[i];
                at += step;
            }
        }
    }
};

/* --- warps ------------------------------------------------------------------------------------------------------------ */

/* Chains of a warp: from which one on, and how many. */
struct scan_share {
    int64_t first;
    int chains, band, columns; /* band: the first of their columns, of all of a line's */
};

template <class Op>
__device__ __forceinline__ scan_part scan_warp_part(const scan_shape &s, const scan_share &share, int64_t tile,
                                                    int steps)
{
    const int lane_id = threadIdx.x % KS_WARP;
    const int64_t first = s.reverse ? s.length - tile * s.depth - steps : tile * s.depth;
    scan_part part;
    part.at = (share.first / s.bands * s.length + first) * s.inner + share.band + lane_id;
    part.at_step = s.bands == 1 ? KS_WARP : s.inner;
    part.seat = lane_id;
    part.seat_step = s.bands == 1 ? KS_WARP : s.columns;
    part.count = s.bands == 1              ? scan_count(lane_id, KS_WARP, share.chains * steps * s.columns)
                 : lane_id < share.columns ? steps
                                           : 0;
    return part;
}

/* Tile number `tile` of a warp's chains. carry: in front of it, and behind it afterwards. totals: room for a state of each lane. */
template <class Op>
__device__ __forceinline__ void scan_warp_tile(const scan_shape &s, const ks_job_sides &job, const scan_share &share,
                                               int32_t tile, typename Op::State *totals, typename Op::State &carry)
{
    typedef typename Op::State State;
    const int lane_id = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP;
    typename Op::Slot *const slots = (typename Op::Slot *)ks_dynamic + warp * scan_warp_slots(s);
    const int steps = (int)min((int64_t)s.depth, s.length - (int64_t)tile * s.depth), elements = steps * s.columns;
    const scan_part part = scan_warp_part<Op>(s, share, tile, steps);
    scan_load<Op>(s, job.in + s.in, part, slots);
    if constexpr (Op::SERIAL)
        if (s.run > SCAN_RUN) scan_load<Op>(s, job.in + s.in, part.behind(SCAN_RUN), slots);
    __syncwarp();

    const int number = lane_id / s.columns, column = lane_id - number * s.columns;
    const int chain = number / s.group, place = number - chain * s.group, begin = place * s.run;
    scan_run run;
    run.step = s.reverse ? -s.columns : s.columns;
    run.seat = chain * (elements + s.padding) + (s.reverse ? steps - 1 - begin : begin) * s.columns + column;
    run.n = chain < share.chains && column < share.columns ? max(0, min(steps - begin, s.run)) : 0;
    const State whole = scan_runs<Op>(run.template total<Op>(slots), place, s.group, s.columns);
    State before = scan_from_below(whole, s.columns);
    if (place == 0) before = Op::none();
    if (tile) before = place ? Op::join(carry, before) : carry;
    if (place == s.group - 1 && chain == 0) totals[column] = whole; /* several tiles are of one chain */
    run.template finish<Op>(slots, before, s.exclusive);
    __syncwarp();
    if (tile + 1 < s.tiles) carry = tile ? Op::join(carry, totals[column]) : totals[column];
    scan_store<Op>(s, slots, part, job.out + s.out);
    if constexpr (Op::SERIAL)
        if (s.run > SCAN_RUN) scan_store<Op>(s, slots, part.behind(SCAN_RUN), job.out + s.out);
    __syncwarp();
}

template <class Op>
__global__ void __launch_bounds__(SCAN_THREADS, scan_ctas_sm<Op>())
    scan_warp(ks_site site, const __grid_constant__ scan_shape s)
{
    __shared__ typename Op::State totals[SCAN_WARPS][KS_WARP];
    const int warp = threadIdx.x / KS_WARP;
    const int64_t items = (s.chains + s.each - 1) / s.each;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
#pragma unroll 1
    for (int64_t item = (int64_t)blockIdx.x * SCAN_WARPS + warp; item < items;
         item += (int64_t)gridDim.x * SCAN_WARPS) {
        scan_share share;
        share.first = item * s.each;
        share.chains = (int)min((int64_t)s.each, s.chains - share.first);
        share.band = (int)(share.first % s.bands) * s.columns;
        share.columns = (int)min((int64_t)s.columns, s.inner - share.band);
        typename Op::State carry = Op::none();
#pragma unroll 1
        for (int32_t tile = 0; tile < s.tiles; tile++) scan_warp_tile<Op>(s, job, share, tile, totals[warp], carry);
    }
    ks_leave(site);
}

/* --- CTAs ------------------------------------------------------------------------------------------------------------- */

/* A CTA's shared memory beside its slots. */
template <class Op>
struct scan_state {
    typename Op::State totals[SCAN_WARPS][KS_WARP]; /* of each warp's runs, by column */
    typename Op::State carry[KS_WARP];              /* in front of the tile */
    uint32_t item;
};

template <class Op>
__device__ __forceinline__ scan_part scan_block_part(const scan_shape &s, int64_t chain, int64_t tile, int steps)
{
    const int lane_id = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP;
    const int64_t line = chain / s.bands, skipped = tile * s.depth;
    const int64_t first = s.reverse ? s.length - skipped - steps : skipped;
    const int64_t band = (chain - line * s.bands) * s.columns;
    scan_part part;
    part.at = (line * s.length + first) * s.inner + band;
    if (s.bands == 1) {
        part.seat = threadIdx.x;
        part.at += part.seat;
        part.at_step = part.seat_step = SCAN_THREADS;
        part.count = scan_count(part.seat, SCAN_THREADS, steps * s.columns);
    } else {
        part.at += warp * s.inner + lane_id;
        part.at_step = SCAN_WARPS * s.inner;
        part.seat = warp * s.columns + lane_id;
        part.seat_step = SCAN_WARPS * s.columns;
        part.count = lane_id < min((int64_t)s.columns, s.inner - band) ? scan_count(warp, SCAN_WARPS, steps) : 0;
    }
    return part;
}

/* The state in front of tile number `tile` of the launch, from those of other CTAs, to state.carry. The last warp, which knows the tile's sum. */
template <class Op>
__device__ __forceinline__ void scan_fetch_carry(const scan_shape &s, const ks_site &site, scan_state<Op> &state,
                                                 int64_t chain, int32_t tile, const typename Op::State &mine)
{
    typedef typename Op::State State;
    const scan_lane lane(s);
    const int64_t place = chain * s.columns + lane.column;
    const State start =
        s.begins ? Op::none() : scan_read((const State *)(const void *)(ks_workspace(site) + s.from) + place);
    const State carry = scan_look_back<Op>(scan_table<State>(s, site, chain), lane, tile, mine, start);
    if (!lane.owner) return;
    state.carry[lane.column] = carry;
    if (s.continues && tile == s.tiles - 1)
        ((State *)(void *)(ks_workspace(site) + s.to))[place] = Op::join(carry, mine);
}

/* Tile number `tile` of the launch. */
template <class Op>
__device__ __forceinline__ void scan_block_tile(const scan_shape &s, const ks_site &site, const ks_job_sides &job,
                                                scan_state<Op> &state, int64_t chain, int32_t tile)
{
    typedef typename Op::State State;
    typename Op::Slot *const slots = (typename Op::Slot *)ks_dynamic;
    const int lane_id = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP;
    const int64_t number = s.first_tile + tile;
    const int steps = (int)min((int64_t)s.depth, s.length - number * s.depth);
    const scan_part part = scan_block_part<Op>(s, chain, number, steps);
    scan_load<Op>(s, job.in + s.in, part, slots);
    __syncthreads();

    const int place = lane_id / s.columns, column = lane_id - place * s.columns;
    const int begin = (warp * s.runs + place) * s.run;
    scan_run run;
    run.step = s.reverse ? -s.columns : s.columns;
    run.seat = (s.reverse ? steps - 1 - begin : begin) * s.columns + column;
    run.n = place < s.runs ? max(0, min(steps - begin, s.run)) : 0;
    const State whole = scan_runs<Op>(run.template total<Op>(slots), place, s.runs, s.columns);
    const State before = scan_from_below(whole, s.columns);
    if (place == s.runs - 1) state.totals[warp][column] = whole;
    __syncthreads();
    State front = Op::none();
#pragma unroll 1
    for (int w = 0; w < warp; w++) front = Op::join(front, state.totals[w][column]);
    const State mine = Op::join(front, state.totals[warp][column]); /* in the last warp: of the tile */
    if (s.carries) {
        if (warp == SCAN_WARPS - 1) scan_fetch_carry<Op>(s, site, state, chain, tile, mine);
        __syncthreads();
    }
    front = Op::join(state.carry[column], front);
    if (place) front = Op::join(front, before);
    run.template finish<Op>(slots, front, s.exclusive);
    __syncthreads();
    scan_store<Op>(s, slots, part, job.out + s.out);
    if (!s.carries && warp == SCAN_WARPS - 1 && place == s.runs - 1)
        state.carry[column] = Op::join(state.carry[column], mine);
    __syncthreads();
}

/* The next tile of any chain that no CTA has begun; at the end the last CTA to come makes the counters zero: where each draws one, the one that
 * has drawn the last tile. */
template <class Op>
__device__ __forceinline__ bool scan_next(const scan_shape &s, const ks_site &site, scan_state<Op> &state)
{
    uint32_t *const head = ks_counters(site);
    if (threadIdx.x == 0) {
        const uint32_t item = atomicAdd(head, 1u);
        if (s.one_each && item == s.items - 1) head[0] = 0;
        state.item = item;
    }
    __syncthreads();
    if (state.item < s.items) return true;
    if (threadIdx.x == 0 && atomicAdd(head + 1, 1u) == gridDim.x - 1) head[0] = head[1] = 0;
    return false;
}

template <class Op>
__global__ void __launch_bounds__(SCAN_THREADS, scan_ctas_sm<Op>())
    scan_block(ks_site site, const __grid_constant__ scan_shape s)
{
    __shared__ scan_state<Op> state;
    ks_job_sides job;
    if (!(s.begins ? ks_enter(site, &job) : ks_enter_again(site, &job))) return;
    if (s.carries) {
#pragma unroll 1
        while (scan_next<Op>(s, site, state)) {
            const uint32_t tile =
                state.item / (uint32_t)s.chains; /* the first ones of all chains, then the second ones */
            scan_block_tile<Op>(s, site, job, state, state.item - tile * (uint32_t)s.chains, (int32_t)tile);
            if (s.one_each) break;
        }
    } else {
#pragma unroll 1
        for (int64_t chain = blockIdx.x; chain < s.chains; chain += gridDim.x) {
            if (threadIdx.x < KS_WARP) state.carry[threadIdx.x] = Op::none();
#pragma unroll 1
            for (int32_t tile = 0; tile < s.tiles; tile++) scan_block_tile<Op>(s, site, job, state, chain, tile);
        }
    }
    if (!s.continues) ks_leave(site);
}

#endif
