/* Rows that a launch has in flight all at once: a thread asks for all of its vectors, and there is no loop. Code that runs
 * once costs the time in which it is fetched, so this kernel is short.
 *
 * A CTA takes a row, or a part of one: shape.share vectors of it. The CTA that begins last in a row joins its parts, in
 * their order: all others have begun and do not wait. */
#ifndef KS_REDUCE_ONCE_CUH
#define KS_REDUCE_ONCE_CUH

#include "cuda/reduce/take.cuh"

/* By value: what is read of a larger one is fetched line by line. */
struct reduce_once_shape {
    size_t offset;
    uint32_t depth, share, parts, reciprocal; /* of parts, times 2^32: for more than one */
};

/* CTAs that an SM's registers have to hold: a launch has up to five an SM (ONCE_VECTORS), and CTAs that wait until others have ended
 * take the time of a second round. Three for ops that shift or are heavy have not been timed. */
template <class Op, bool CUT>
constexpr int reduce_once_ctas = sizeof(typename Op::Source::W) > 4               ? 1
                                 : CUT && !reduce_shifts<Op> && !reduce_heavy<Op> ? 3
                                                                                  : 2;

/* CUT: into parts. */
template <class Op, bool CUT>
__global__ void __launch_bounds__(512, reduce_once_ctas<Op, CUT>)
    reduce_once(ks_site site, const __grid_constant__ reduce_once_shape s, Op op)
{
    typedef typename Op::Source::T T;
    typedef typename Op::State State;
    constexpr int E = ks_vector<T>::length, V = REDUCE_ONCE_LOADS;
    __shared__ State shared[KS_WARPS_MAX];
    __shared__ bool last;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    const uint32_t row = CUT ? (uint32_t)((uint64_t)blockIdx.x * s.reciprocal >> 32) : blockIdx.x;
    const uint32_t part = CUT ? blockIdx.x - row * s.parts : 0, begin = part * s.share;
    const uint32_t start = row * s.depth, skip = start % E;
    const int count = min((int)((skip + s.depth + E - 1) / E) - (int)begin, (int)s.share);
    const uint4 *in = ks_one_address((const uint4 *)(job.in + s.offset) + start / E + begin + threadIdx.x);
    typename Op::Acc acc[1] = {reduce_begin(op, (const T *)(job.in + s.offset) + start)};
    const ks_vector<T> missing = reduce_missing(op, acc);
    ks_vector<T> v[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
        v[i] = missing;
        if ((int)(i * blockDim.x + threadIdx.x) < count) v[i] = reduce_load<T>(in + i * blockDim.x);
    }
    uint32_t *ticket = NULL;
    uint32_t drawn = 0;
    if (CUT) {
        ticket = ks_counters(site) + row * (REDUCE_MESSAGE * (s.parts + 1));
        if (threadIdx.x == 0) drawn = atomicAdd(ticket, 1u);
    }
    ks_start(site);
    if (s.depth % E != 0) {
        const int head = part == 0 ? (int)skip : 0, end = (int)(skip + s.depth - begin * E);
#pragma unroll
        for (int i = 0; i < V; i++) {
            const int at = (i * blockDim.x + threadIdx.x) * E;
            if (at < head || at + E > end) reduce_trim(v[i], head - at, end - at, missing);
        }
    }
    reduce_take<Op, V>(op, acc, v, 0);
    State state = op.finish(acc[0], (int)threadIdx.x < count, [&](int n) {
        const int64_t place = (int64_t)(begin + n / E * blockDim.x + threadIdx.x) * E + n % E - skip;
        return max(place, (int64_t)0);
    });
    state = reduce_across(op, state, blockDim.x, shared);
    bool done = threadIdx.x == 0;
    if (CUT) {
        ks_message *messages = (ks_message *)ticket + 1;
        if (threadIdx.x == 0) {
            last = drawn == s.parts - 1;
            reduce_message<State>(state).send(messages + part);
        }
        __syncthreads();
        if (last) {
            state = op.none();
            for (uint32_t p = threadIdx.x; p < s.parts; p += blockDim.x)
                state = op.join(state, reduce_message<State>::receive(messages + p));
            __syncthreads(); /* those that have waited for different times go on together */
            state = reduce_across(op, state, blockDim.x, shared);
            if (threadIdx.x == 0) *ticket = 0;
        }
        done = done && last;
    }
    if (done) ((typename Op::Out *)job.out)[row] = op.result(state);
    ks_leave(site);
}

#endif
