/* What the kernels of all ways do with vectors and states: load, order and take elements; join threads and CTAs. */
#ifndef KS_REDUCE_TAKE_CUH
#define KS_REDUCE_TAKE_CUH

#include "cuda/reduce/ops.cuh"

#include <type_traits>

/* --- vectors --------------------------------------------------------------------------------------------------------- */

/* Elements that are added in FP32 at the most: five steps of a tree. */
enum { REDUCE_LEAF = 32 };

/* Vectors that a thread has in flight, and how many of them make a leaf. */
template <class T>
struct reduce_loads {
    static constexpr int length = ks_vector<T>::length;
    static constexpr int count = length == 4 || length == 8 ? 8 : 4;
    static constexpr int leaf = length * count <= REDUCE_LEAF ? count : REDUCE_LEAF / length;
};

/* Of memory that no CTA writes. */
template <class T>
__device__ __forceinline__ ks_vector<T> reduce_load(const uint4 *at)
{
    ks_vector<T> v;
    v.raw = __ldg(at);
    return v;
}

template <class Op>
__device__ __forceinline__ void reduce_order_words(const Op &op, uint4 *v)
{
    typedef typename Op::Source Source;
    if (!Op::ORDERS) return;
    const reduce_words &flip = op.rule.flip;
    *v = make_uint4(Source::order(v->x, flip.even), Source::order(v->y, flip.odd), Source::order(v->z, flip.even),
                    Source::order(v->w, flip.odd));
}

template <class Op>
__device__ __forceinline__ typename Op::Source::W reduce_get(const Op &op, typename Op::Source::T x)
{
    typedef typename Op::Source Source;
    if (!Op::ORDERS) return Source::get(x, op.rule);
    union {
        typename Source::T element;
        uint32_t word[2];
    } u;
    u.word[0] = u.word[1] = 0;
    u.element = x;
    u.word[0] = Source::order(u.word[0], op.rule.flip.even);
    if (sizeof x == 8) u.word[1] = Source::order(u.word[1], op.rule.flip.odd);
    return Source::get(u.element, op.rule);
}

/* A vector of memory that is absent once it is ordered. */
template <class Op>
__device__ __forceinline__ ks_vector<typename Op::Source::T> reduce_missing(const Op &op)
{
    typedef typename Op::Source Source;
    ks_vector<typename Source::T> v;
#pragma unroll
    for (int e = 0; e < v.length; e++) v.element[e] = Source::put(Op::absent());
    if (!Op::ORDERS) return v;
    const reduce_words &flip = op.rule.flip;
    v.raw = make_uint4(v.raw.x ^ flip.even, v.raw.y ^ flip.odd, v.raw.z ^ flip.even, v.raw.w ^ flip.odd);
    return v;
}

/* The accumulator of a result whose first element stands there. */
template <class Op>
__device__ __forceinline__ typename Op::Acc reduce_begin(const Op &op, const typename Op::Source::T *first)
{
    if constexpr (reduce_shifts<Op>)
        return op.start_at(reduce_get(op, *first));
    else
        return op.start();
}

/* What is missing for these accumulators: of one result, or of one for each element of a vector. */
template <class Op, int R, int C>
__device__ __forceinline__ ks_vector<typename Op::Source::T> reduce_missing(const Op &op,
                                                                            const typename Op::Acc (&acc)[R][C])
{
    if constexpr (reduce_shifts<Op>) {
        ks_vector<typename Op::Source::T> v;
#pragma unroll
        for (int e = 0; e < v.length; e++) v.element[e] = Op::Source::put(op.element(acc[e / C % R][e % C]));
        return v;
    } else {
        return reduce_missing(op);
    }
}

template <class Op>
__device__ __forceinline__ ks_vector<typename Op::Source::T> reduce_missing(const Op &op,
                                                                            const typename Op::Acc (&acc)[1])
{
    const typename Op::Acc one[1][1] = {{acc[0]}};
    return reduce_missing<Op, 1, 1>(op, one);
}

template <class Op>
__device__ __forceinline__ typename Op::Source::W reduce_absent(const Op &op, const typename Op::Acc &acc)
{
    if constexpr (reduce_shifts<Op>)
        return op.element(acc);
    else
        return op.absent();
}

/* Only elements [from, to) stay. */
template <class T>
__device__ __forceinline__ void reduce_trim(ks_vector<T> &v, int from, int to, const ks_vector<T> &missing)
{
#pragma unroll
    for (int e = 0; e < v.length; e++)
        if (e < from || e >= to) v.element[e] = missing.element[e];
}

/* Vectors of one result, in its order; the first element is the thread's n-th. */
template <class Op, int U>
__device__ __forceinline__ void reduce_take(const Op &op, typename Op::Acc (&acc)[1],
                                            ks_vector<typename Op::Source::T> (&v)[U], int n)
{
    typedef typename Op::Source Source;
    constexpr int E = ks_vector<typename Source::T>::length;
    constexpr int G = U < reduce_loads<typename Source::T>::leaf ? U : reduce_loads<typename Source::T>::leaf;
#pragma unroll
    for (int u = 0; u < U; u += G) {
        typename Source::W x[1][G * E];
#pragma unroll
        for (int i = 0; i < G; i++) reduce_order_words(op, &v[u + i].raw);
#pragma unroll
        for (int i = 0; i < G * E; i++) x[0][i] = Source::get(v[u + i / E].element[i % E], op.rule);
        op.take(acc, x, n + u * E);
    }
}

/* --- states ---------------------------------------------------------------------------------------------------------- */

/* Over groups of `width` threads, part of a warp or whole warps; the first thread of each gets the result. Groups of more
 * than a warp: every thread of the CTA comes here, and `shared` is free again after a barrier. */
template <class Op>
__device__ __forceinline__ typename Op::State reduce_across(const Op &op, typename Op::State state, int width,
                                                            typename Op::State *shared)
{
    if (width < KS_WARP) return reduce_across_lanes(op, state, width);
    state = op.across(state, KS_WARP);
    if (width == KS_WARP) return state;
    const int lane_id = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP, warps = width / KS_WARP;
    if (lane_id == 0) shared[warp] = state;
    __syncthreads();
    if ((warp & (warps - 1)) != 0) return state;
    return op.across(lane_id < warps ? shared[warp + lane_id] : op.none(), warps);
}

/* A state on its way to another CTA of the launch: 16 bytes that are written at once, zero before and afterwards. So no
 * fence is needed. The top bit of the second half says that they have arrived: no state has it, for places and sums are not
 * negative, and a NaN's sign says nothing. */
template <class State>
struct reduce_message {
    union {
        State state;
        ks_message message;
    };
    __device__ __forceinline__ reduce_message()
    {
    }
    __device__ __forceinline__ reduce_message(const State &sent)
    {
        message = {0, 0};
        state = sent;
    }
    __device__ __forceinline__ void send(ks_message *to)
    {
        message.second |= (uint64_t)1 << 63;
        ks_write_relaxed(to, message);
    }
    static __device__ __forceinline__ State receive(ks_message *from)
    {
        reduce_message message;
        do message.message = ks_read_relaxed(from);
        while (!(message.message.second >> 63));
        message.message.second &= UINT64_MAX >> 1;
        *from = {0, 0};
        return message.state;
    }
};

/* What another CTA of this launch wrote: not from this SM's first cache. */
template <class State>
__device__ __forceinline__ State reduce_read(const State *partial)
{
    State state;
    if constexpr (sizeof(State) == 16)
        *(uint4 *)&state = __ldcg((const uint4 *)partial);
    else if constexpr (sizeof(State) == 8)
        *(uint2 *)&state = __ldcg((const uint2 *)partial);
    else
        *(uint32_t *)&state = __ldcg((const uint32_t *)partial);
    return state;
}

/* --- results --------------------------------------------------------------------------------------------------------- */

/* N results that are stored together, in words of up to 16 bytes. */
template <class Out, int N>
struct reduce_pack {
    static constexpr int BYTES = N * (int)sizeof(Out), WIDE = BYTES < 16 ? BYTES : 16;
    typedef std::conditional_t<WIDE == 1, uint8_t, std::conditional_t<WIDE == 2, uint16_t, uint32_t>> Narrow;
    typedef std::conditional_t<WIDE == 16, uint4, std::conditional_t<WIDE == 8, uint2, Narrow>> Word;
    union {
        Out one[N];
        Word raw[BYTES / WIDE];
    };
    __device__ __forceinline__ reduce_pack()
    {
    }
    /* The first `count` of them. */
    __device__ __forceinline__ void store(Out *to, int64_t count) const
    {
        if (count >= N) {
#pragma unroll
            for (int i = 0; i < BYTES / WIDE; i++) ((Word *)to)[i] = raw[i];
            return;
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < count) to[i] = one[i];
    }
};

#endif
