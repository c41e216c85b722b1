/* The first k of many items by a CTA: what exceeds a threshold comes into shared memory; when that is full, all but the best k are dropped,
 * and the worst of them is the new threshold. Of random elements some k ln(n / k) come in.
 *
 * Sources  elements of a part of a row, in memory (topk_elements), or items that CTAs have left (topk_candidates): a chunk of each, as many
 *          from each thread, is loaded while the one before is looked at.
 * Threads  the CTA, whole warps; all of it calls each function here. */
#ifndef KS_TOPK_SELECT_CUH
#define KS_TOPK_SELECT_CUH

#include "cuda/topk/sort.cuh"

/* --- dropping -------------------------------------------------------------------------------------------------------- */

/* The digit that the wanted one of the counted items has, from the largest on; a warp. Leaves the bins zero. */
template <class Item>
__device__ __forceinline__ void topk_find_digit(topk_state<Item> &state, uint32_t wanted)
{
    constexpr int EACH = TOPK_BINS / KS_WARP;
    const uint32_t lane_id = threadIdx.x, first = TOPK_BINS - 1 - lane_id * EACH;
    uint32_t bin[EACH], all = 0, before = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        bin[i] = state.bins[first - i];
        state.bins[first - i] = 0;
        all += bin[i];
    }
    const uint32_t mine = all;
#pragma unroll
    for (int distance = 1; distance < KS_WARP; distance *= 2) {
        const uint32_t other = ks_shuffle(all, distance);
        before += lane_id & (uint32_t)distance ? other : 0;
        all += other;
    }
    if (before >= wanted || before + mine < wanted) return;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (before < wanted && before + bin[i] >= wanted) {
            state.digit = first - i;
            state.above = before;
            state.equal = bin[i];
        }
        before += bin[i];
    }
}

/* Puts the best k of `count` items, at most TOPK_FEW, in falling order: each item's place is the number of those above it, which several
 * threads count together where there are as many. */
template <class Item>
__device__ __forceinline__ void topk_rank(topk_state<Item> &state, Item *items, uint32_t count, uint32_t k)
{
    uint32_t together = 1;
    while (together < KS_WARP / 4 && 2 * together * count <= blockDim.x) together *= 2;
    const uint32_t at = threadIdx.x / together;
    const Item item = at < count ? items[at] : 0;
    uint32_t above = 0;
    if (at - (threadIdx.x % KS_WARP) / together < count) /* the warp's first item */
#pragma unroll 4
        for (uint32_t i = threadIdx.x % together; i < count; i += together) above += items[i] > item;
    for (uint32_t distance = 1; distance < together; distance *= 2) above += ks_shuffle(above, (int)distance);
    __syncthreads();
    if (at < count && above < k && threadIdx.x % together == 0) {
        items[above] = item;
        if (above == k - 1) {
            state.threshold = item;
            state.count = k;
        }
    }
    __syncthreads();
}

/* Keeps the best k of `count` items, by radix selection: digits from the top until the ones to keep have one beginning. top: bits of an
 * item that may be set. */
template <class Item>
__device__ __forceinline__ void topk_prune(topk_state<Item> &state, Item *items, uint32_t count, uint32_t k, int top)
{
    if (count <= TOPK_FEW) {
        topk_rank(state, items, count, k);
        return;
    }
    Item begins = 0, mask = 0;
    uint32_t wanted = k;
    for (int shift = top - 8; shift >= 0; shift -= 8) {
        for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
            const Item item = items[i];
            if ((item & mask) == begins) atomicAdd(&state.bins[(uint32_t)(item >> shift) & (TOPK_BINS - 1)], 1u);
        }
        __syncthreads();
        if (threadIdx.x < KS_WARP) topk_find_digit(state, wanted);
        __syncthreads();
        begins |= (Item)state.digit << shift;
        mask |= (Item)(TOPK_BINS - 1) << shift;
        wanted -= state.above;
        if (state.equal == wanted) break;
    }
    __syncthreads(); /* all have read what the state is about to lose */
    if (threadIdx.x == 0) {
        state.count = 0;
        state.threshold = begins;
    }
    for (uint32_t first = 0; first < count; first += blockDim.x) { /* places that are written have been read */
        const Item item = first + threadIdx.x < count ? items[first + threadIdx.x] : 0;
        __syncthreads();
        const bool stays = item && (item & mask) >= begins;
        const topk_room room = topk_claim(stays, &state.count);
        if (stays) items[room.at] = item;
    }
    __syncthreads();
}

/* k items in falling order. */
template <class Item>
__device__ __forceinline__ void topk_order(topk_state<Item> &state, Item *items, uint32_t k)
{
    if (k <= TOPK_FEW) {
        topk_rank(state, items, k, k);
        return;
    }
    uint32_t places = 2 * TOPK_FEW;
    while (places < k) places *= 2;
    for (uint32_t i = k + threadIdx.x; i < places; i += blockDim.x) items[i] = 0;
    __syncthreads();
    switch (places / blockDim.x) { /* 256 to 2,048 by 128 or 256 threads */
    case 1:
        return topk_sort_held<1>(items);
    case 2:
        return topk_sort_held<2>(items);
    case 4:
        return topk_sort_held<4>(items);
    case 8:
        return topk_sort_held<8>(items);
    default: /* more of them would have more registers than there are */
        topk_sort(items, places, threadIdx.x, blockDim.x);
        __syncthreads();
    }
}

/* --- elements -------------------------------------------------------------------------------------------------------- */

/* Passes by each element that exceeds the threshold, and may pass others. */
template <class T>
struct topk_filter {
    typedef typename T::key key;
    typename T::number least, factor;
    key least_key, flip;

    __device__ __forceinline__ topk_filter(const topk_shape &s, topk_item<T> threshold)
        : least(0), factor(s.largest ? 1 : -1), least_key(0), flip((key)s.flip)
    {
        const key at = (key)(threshold >> topk_shift<topk_item<T>>);
        const bool open =
            (threshold & (((topk_item<T>)1 << topk_shift<topk_item<T>>)-1)) == 0; /* its key passes, too */
        if constexpr (!T::is_float) {
            least_key = open || at == T::all ? at : at + 1;
        } else {
            const typename T::number here = value(at), below = value(at - 1);
            least = !open                     ? here
                    : at == 0                 ? value(0) /* NaN, to which no element compares */
                    : here == 0 && below == 0 ? value(at - 2)
                                              : below;
        }
    }
    /* factor times the element of that key. */
    __device__ __forceinline__ static typename T::number value(key k)
    {
        return topk_number<T>((k & T::sign ? k ^ T::sign : ~k) & T::all);
    }
    __device__ __forceinline__ bool passes(typename T::word element) const
    {
        if constexpr (T::is_float)
            return !(topk_number<T>(element) * factor <= least);
        else
            return ((key)element ^ flip) >= least_key;
    }
};

/* One element, in the place of a vector. */
template <class Word>
struct topk_one {
    static constexpr int length = 1;
    Word element[1];
};

template <class T, bool STRIDED>
struct topk_elements {
    typedef typename T::word word;
    typedef topk_item<T> item;
    typedef std::conditional_t<STRIDED, topk_one<word>, ks_vector<word>> vector;
    static constexpr int EACH = sizeof(word) == 8 ? 8 : 16; /* elements of a thread in a chunk */
    static constexpr int LENGTH = vector::length, VECTORS = EACH / LENGTH;
    static constexpr bool RISING = true; /* of equal keys, the first that comes is the best */
    struct chunk {
        vector v[VECTORS];
    };

    const topk_shape &s;
    const vector *data; /* of the row: its aligned superset, or its first element */
    int64_t begin, end; /* of the part, in vectors */
    int skip;           /* elements in front of the row */

    __device__ __forceinline__ topk_elements(const topk_shape &shape, const ks_job_sides &job, int64_t row,
                                             int64_t part)
        : s(shape), skip(0)
    {
        const word *in = (const word *)(job.in + s.in);
        int64_t vectors = s.length;
        if constexpr (STRIDED) {
            const int64_t outer = row / s.inner;
            data = (const vector *)(in + outer * s.length * s.inner + (row - outer * s.inner));
        } else {
            const ks_row at = ks_row_at<word>(row, s.length);
            data = (const vector *)in + at.first;
            vectors = at.vectors;
            skip = at.skip;
        }
        begin = part * s.part;
        end = min(begin + s.part, vectors);
    }
    __device__ __forceinline__ int64_t chunks() const
    {
        return (end - begin + VECTORS * (int)blockDim.x - 1) / (VECTORS * (int)blockDim.x);
    }
    __device__ __forceinline__ int64_t place(int64_t c, int v) const
    {
        return begin + (c * VECTORS + v) * (int64_t)blockDim.x + threadIdx.x;
    }
    __device__ __forceinline__ void load_vector(vector &to, int64_t at) const
    {
        if constexpr (STRIDED)
            to.element[0] = ((const word *)data)[at * s.inner];
        else
            to.raw = ((const uint4 *)data)[at];
    }
    __device__ __forceinline__ void load(chunk &to, int64_t c) const
    {
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const int64_t at = place(c, v);
            if (at < end) load_vector(to.v[v], at);
        }
    }
    __device__ __forceinline__ bool valid(int64_t c, int v, int e) const
    {
        const int64_t at = place(c, v), index = at * LENGTH + e - skip;
        return at < end && index >= 0 && index < s.length;
    }
    __device__ __forceinline__ item item_of(const chunk &from, int64_t c, int v, int e) const
    {
        if (!valid(c, v, e)) return 0;
        return topk_item_of<T>(topk_key_of<T>(from.v[v].element[e], (typename T::key)s.flip),
                               place(c, v) * LENGTH + e - skip);
    }
    /* Of the chunk's elements, one bit each. */
    __device__ __forceinline__ uint32_t passing(const chunk &from, int64_t c, item threshold) const
    {
        const topk_filter<T> filter(s, threshold);
        uint32_t hits = 0;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            if (place(c, v) >= end) continue;
#pragma unroll
            for (int e = 0; e < LENGTH; e++) hits |= (uint32_t)filter.passes(from.v[v].element[e]) << (v * LENGTH + e);
        }
        return hits;
    }
    /* A threshold from the first chunk, if k is small: of each warp's lanes, by the best of each, the one so far down that all warps
     * together have k elements that are as good. */
    __device__ __forceinline__ void bound(const chunk &from, int k, topk_state<item> &state) const
    {
        const int warps = (int)blockDim.x / KS_WARP, lanes = (k + warps - 1) / warps, lane_id = threadIdx.x % KS_WARP;
        if (lanes > KS_WARP) return;
        typename T::key best = 0;
        int rank = 0;
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
#pragma unroll
            for (int e = 0; e < LENGTH; e++) {
                const typename T::key key = topk_key_of<T>(from.v[v].element[e], (typename T::key)s.flip);
                if (valid(0, v, e) && key > best) best = key;
            }
#pragma unroll
        for (int other = 1; other < KS_WARP; other++) {
            const typename T::key theirs = ks_shuffle(best, other);
            rank += theirs > best || (theirs == best && (lane_id ^ other) < lane_id);
        }
        if (rank == lanes - 1) state.bests[threadIdx.x / KS_WARP] = best;
        __syncthreads();
        uint64_t least = state.bests[0];
        for (int w = 1; w < warps; w++) least = min(least, state.bests[w]);
        if (threadIdx.x == 0) state.threshold = (item)least << topk_shift<item>;
        __syncthreads();
    }
};

/* --- items ----------------------------------------------------------------------------------------------------------- */

template <class Item>
struct topk_candidates {
    typedef Item item;
    static constexpr int EACH = TOPK_CANDIDATES, LENGTH = 1, VECTORS = EACH;
    static constexpr bool RISING = false;
    struct chunk {
        Item v[EACH];
    };

    const Item *data; /* written by other CTAs of this launch */
    int64_t count;

    __device__ __forceinline__ int64_t chunks() const
    {
        return (count + EACH * (int)blockDim.x - 1) / (EACH * (int)blockDim.x);
    }
    __device__ __forceinline__ void load(chunk &to, int64_t c) const
    {
#pragma unroll
        for (int v = 0; v < EACH; v++) {
            const int64_t at = (c * EACH + v) * (int64_t)blockDim.x + threadIdx.x;
            to.v[v] = 0;
            if (at >= count) continue;
            if constexpr (sizeof(Item) == 8) {
                to.v[v] = ks_read_relaxed((const uint64_t *)data + at);
            } else {
                const ks_message m = ks_read_relaxed((const ks_message *)(const void *)data + at);
                to.v[v] = (Item)m.second << 64 | m.first;
            }
        }
    }
    __device__ __forceinline__ Item item_of(const chunk &from, int64_t, int v, int) const
    {
        return from.v[v];
    }
    __device__ __forceinline__ uint32_t passing(const chunk &from, int64_t, Item threshold) const
    {
        uint32_t hits = 0;
#pragma unroll
        for (int v = 0; v < EACH; v++) hits |= (uint32_t)(from.v[v] > threshold) << v;
        return hits;
    }
    __device__ __forceinline__ void bound(const chunk &, int, topk_state<Item> &) const
    {
    }
};

template <class Item>
__device__ __forceinline__ void topk_leave(Item *to, Item item)
{
    if constexpr (sizeof(Item) == 8)
        ks_write_relaxed((uint64_t *)to, item);
    else
        ks_write_relaxed((ks_message *)(void *)to, ks_message{(uint64_t)item, (uint64_t)(item >> 64)});
}

/* --- both ------------------------------------------------------------------------------------------------------------ */

/* A chunk's items that exceed the threshold, behind those that there are. The end of the warp's, or 0. */
template <class Source>
__device__ __forceinline__ uint32_t topk_take(const Source &source, const typename Source::chunk &from, int64_t c,
                                              topk_state<typename Source::item> &state, typename Source::item *items)
{
    const typename Source::item threshold = state.threshold;
    uint32_t hits = source.passing(from, c, threshold);
    if (!__any_sync(0xFFFFFFFFu, hits != 0)) return 0;
    uint32_t count = 0;
#pragma unroll
    for (int v = 0; v < Source::VECTORS; v++)
#pragma unroll
        for (int e = 0; e < Source::LENGTH; e++) {
            const uint32_t bit = 1u << (v * Source::LENGTH + e);
            if (!(hits & bit)) continue;
            if (source.item_of(from, c, v, e) > threshold)
                count++;
            else
                hits &= ~bit;
        }
    const topk_room room = topk_claim(count, &state.count);
    uint32_t at = room.at;
#pragma unroll
    for (int v = 0; v < Source::VECTORS; v++)
#pragma unroll
        for (int e = 0; e < Source::LENGTH; e++)
            if (hits >> (v * Source::LENGTH + e) & 1) items[at++] = source.item_of(from, c, v, e);
    return room.end;
}

/* Whether k elements with the largest key there is are found: of those behind them none is better. */
template <class Item>
__device__ __forceinline__ bool topk_is_last(Item threshold, int top)
{
    const Item below = ((Item)1 << topk_shift<Item>)-1, key = threshold >> topk_shift<Item>;
    return (threshold & below) != 0 && key == (below >> (2 * topk_shift<Item> - top));
}

/* The best k of a source, or all of them where they are fewer: how many they are. start: what does not exceed it is not among the row's best
 * k; 0 where nothing is known. items: room for slack and a chunk. top: bits of an item that may be set. */
template <class Source>
__device__ __forceinline__ uint32_t topk_select(const Source &source, const topk_shape &s, int top,
                                                topk_state<typename Source::item> &state, typename Source::item *items,
                                                typename Source::item start = 0)
{
    typedef typename Source::item item;
    const int64_t chunks = source.chunks();
    __syncthreads(); /* what was in the state has been read */
    if (threadIdx.x == 0) {
        state.count = 0;
        state.threshold = start;
    }
    __syncthreads();
    typename Source::chunk next;
    source.load(next, 0);
    if (chunks > 0 && start == 0) source.bound(next, s.k, state);
#pragma unroll 1
    for (int64_t c = 0; c < chunks; c++) {
        const typename Source::chunk now = next;
        if (c + 1 < chunks) source.load(next, c + 1);
        const uint32_t end = topk_take(source, now, c, state, items);
        const bool full = __syncthreads_or(end > s.slack);
        if (!full && c + 1 < chunks) continue;
        const uint32_t count = state.count; /* more than k where it is full */
        if (count <= (uint32_t)s.k) continue;
        topk_prune(state, items, count, (uint32_t)s.k, top);
        if (Source::RISING && topk_is_last<item>(state.threshold, top)) break;
    }
    return state.count;
}

#endif
