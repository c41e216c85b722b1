/* Softmax along an axis that is not contiguous: threads along what is, and down the axis.
 *
 * A tile is `lanes` packs of the columns that follow each other, of one outer dimension or of several, and as long as the
 * axis. A pack is a vector where columns come in whole vectors, else an element.
 *
 *   column_block_registers  the registers of a CTA hold a tile
 *   column_multiblock_smem  longer ones: CTAs that stay, each with a tile after the other, or its part of it down the axis in a
 *                           CTA group as in row_multiblock_registers.cuh. The tile is in shared memory, and what has been
 *                           written makes room for the next one; what does not fit is read twice */
#ifndef KS_SOFTMAX_COLUMNS_CUH
#define KS_SOFTMAX_COLUMNS_CUH

#include "cuda/softmax/row_multiblock_registers.cuh"

#include <type_traits>

static constexpr int MANY_PACKS = 16;          /* the most vectors that a thread holds of a tile */
static constexpr int COLUMN_CLUSTER_PACKS = 4; /* vectors that a thread of column_cluster takes at a time */

/* What counts the packs of a tensor: vectors where they are fewer than 2^32, since 64 bits cost registers. */
template <int E>
using softmax_index = std::conditional_t<E == 1, int64_t, uint32_t>;

/* What a thread has of a tile, from `begin` to `end` of the axis: packs at base + v * stride, count of them. */
template <class Index>
struct softmax_strip {
    Index begin, packs, stride;
    int lanes, used, mine; /* used: the most packs of any thread; mine: of this one where it has a column */

    __device__ __forceinline__ softmax_strip(Index across, int width, int64_t from, int64_t to,
                                             unsigned threads = blockDim.x)
        : begin((Index)from), packs(across), lanes(width)
    {
        const int down = threadIdx.x / lanes, step = threads / lanes, rows = (int)max(to - from, (int64_t)0);
        stride = step * packs;
        used = (rows + step - 1) / step;
        mine = down < step ? (max(rows - down, 0) + step - 1) / step : 0;
    }
    __device__ __forceinline__ Index base(const softmax_shape &s, Index tile) const
    {
        const Index column = tile * lanes + threadIdx.x % lanes, outer = column / packs;
        return (outer * (Index)s.length + begin + threadIdx.x / lanes) * packs + (column - outer * packs);
    }
    __device__ __forceinline__ int count(const softmax_shape &s, Index tile) const
    {
        return (int64_t)tile * lanes + threadIdx.x % lanes < s.outer * packs ? mine : 0;
    }
    __device__ __forceinline__ void place(const softmax_shape &s, Index tile, Index *first, int *packs_there) const
    {
        *first = base(s, tile);
        *packs_there = count(s, tile);
    }
};

/* The pairs of a tile in shared memory: one for each column from each group of threads. Threads of a warp that stand
 * above each other join by shuffles, and the warp is the group; else each row of threads is one. */
template <class M>
struct softmax_tile {
    softmax_pair<M> *group, *whole; /* [groups][pitch], [columns]: column e * lanes + lane is element e of a pack */
    int lanes, groups, pitch, columns;

    static __host__ __device__ __forceinline__ bool narrow(int lanes)
    {
        return lanes < KS_WARP && KS_WARP % lanes == 0;
    }
    static __host__ __device__ __forceinline__ int groups_of(int threads, int lanes)
    {
        return narrow(lanes) ? threads / KS_WARP : threads / lanes;
    }
    static size_t bytes(int threads, int lanes, int E)
    {
        return (size_t)(groups_of(threads, lanes) * (lanes * E + 8) + lanes * E) * sizeof(softmax_pair<M>);
    }
    __device__ __forceinline__ softmax_tile(void *memory, int width, int E, unsigned threads = blockDim.x)
        : group((softmax_pair<M> *)memory), lanes(width), groups(groups_of(threads, width)), pitch(width * E + 8),
          columns(width * E)
    {
        whole = group + groups * pitch;
    }
    /* The pairs of this thread's group. */
    __device__ __forceinline__ softmax_pair<M> *mine() const
    {
        return group + threadIdx.x / (narrow(lanes) ? (int)KS_WARP : lanes) * pitch;
    }
    /* Writes the pair of element e of this thread's pack for its group. */
    __device__ __forceinline__ void publish(int e, softmax_pair<M> mine) const
    {
        const bool first = narrow(lanes) ? (int)threadIdx.x % KS_WARP < lanes : (int)threadIdx.x / lanes < groups;
        if (first) this->mine()[e * lanes + threadIdx.x % lanes] = mine;
    }
    /* The greatest of each element, and each sum, over the threads that join by shuffles. */
    template <class T, int E>
    __device__ __forceinline__ void over_lanes(softmax_pack<T, E> &most) const
    {
        if (!narrow(lanes)) return;
#pragma unroll 1
        for (int distance = lanes; distance < KS_WARP; distance *= 2) {
            softmax_pack<T, E> other;
#pragma unroll
            for (int w = 0; w < (int)(sizeof other.part / sizeof other.part[0]); w++)
                other.part[w] = (decltype(other.part[w] + 0u))ks_shuffle((uint32_t)most.part[w], distance);
            most = softmax_greater(most, other);
        }
    }
    template <int E>
    __device__ __forceinline__ void over_lanes(M (&sum)[E]) const
    {
        if (!narrow(lanes)) return;
#pragma unroll 1
        for (int distance = lanes; distance < KS_WARP; distance *= 2)
#pragma unroll
            for (int e = 0; e < E; e++) sum[e] += ks_shuffle(sum[e], distance);
    }
};

/* The pairs of each column, get(group, column), joined by some threads of the CTA; one of them takes the result. */
template <class M, class Get, class Take>
__device__ __forceinline__ void softmax_join_columns(int groups, int columns, const softmax_rule<M> &rule, Get get,
                                                     Take take)
{
    int width = 1;
    while (width < KS_WARP && width < groups && 2 * width * columns <= (int)blockDim.x) width *= 2;
    const int first = threadIdx.x & (width - 1), together = blockDim.x / width;
#pragma unroll 1
    for (int round = 0; round < columns; round += together) {
        const int column = round + threadIdx.x / width;
        const int end = column < columns ? groups : 0; /* the others still take part in shuffles */
        softmax_pair<M> whole = softmax_none<M>();
#pragma unroll 1
        for (int g = first; g < end; g += width) whole = softmax_both(whole, get(g, column), rule);
        whole = softmax_join(whole, width, rule);
        if (first == 0 && column < columns) take(column, whole);
    }
}

/* The results of V packs of a thread. KEPT: the packs hold the terms, or distances, that the thread's group has published. */
template <bool KEPT, class T, int E, int V, class M>
__device__ __forceinline__ void softmax_column_values(softmax_pack<T, E> (&x)[V], const softmax_tile<M> &tile,
                                                      const softmax_rule<M> &rule)
{
    constexpr int STEP = softmax_pack<T, E>::STEP;
    const int lane_id = threadIdx.x % tile.lanes;
    const softmax_pair<M> *const whole = tile.whole + lane_id, *const mine = tile.mine() + lane_id;
#pragma unroll
    for (int e = 0; e < E; e += STEP) {
        if constexpr (KEPT) {
            const softmax_epilogue<M> epilogue(whole[e * tile.lanes], mine[e * tile.lanes].h, rule);
#pragma unroll
            for (int v = 0; v < V; v++) x[v].element[e] = fma(x[v].element[e], epilogue.a, epilogue.b);
        } else {
            const softmax_epilogue<M> epilogue[2] = {{whole[e * tile.lanes], rule},
                                                     {whole[(e + STEP - 1) * tile.lanes], rule}};
#pragma unroll
            for (int v = 0; v < V; v++) {
                M y[STEP];
#pragma unroll
                for (int i = 0; i < STEP; i++)
                    y[i] = epilogue[i](rule.distance(x[v].get(e + i), epilogue[i].reference), rule);
                x[v].put(e, y);
            }
        }
    }
}

/* The pairs of the thread's packs, published for its group; the packs keep what they can. */
template <bool KEEP, class T, int E, int V, class M>
__device__ __forceinline__ void softmax_column_publish(softmax_pack<T, E> (&x)[V], const softmax_tile<M> &tile,
                                                       const softmax_rule<M> &rule)
{
    softmax_pack<T, E> most = x[0];
#pragma unroll
    for (int v = 1; v < V; v++) most = softmax_greater(most, x[v]);
    tile.over_lanes(most);
    M sum[E];
#pragma unroll
    for (int e = 0; e < E; e++) {
        const M reference = ks_reference(most.get(e) * (M)0.5);
        M part[2] = {0, 0}; /* more at a time spill */
#pragma unroll
        for (int v = 0; v < V; v++) {
            const M d = rule.distance(x[v].get(e), reference), term = rule.term(d);
            part[v % 2] += term;
            if constexpr (KEEP) x[v].element[e] = rule.log ? d : term;
        }
        sum[e] = part[0] + part[1];
        if constexpr (sizeof(T) == 2 && E > 1) {
#pragma unroll
            for (int v = 0; v < V; v++) ks_anew(x[v].part[e / 2]);
        }
    }
    tile.over_lanes(sum);
#pragma unroll
    for (int e = 0; e < E; e++) tile.publish(e, {most.get(e) * (M)0.5, sum[e]});
}

/* A thread's packs to its places in a tile: `count` of them, from `base` on. */
template <class T, int E, int V, class Index>
__device__ __forceinline__ void softmax_column_store(const softmax_pack<T, E> (&x)[V],
                                                     typename softmax_pack<T, E>::Word *out, Index base, Index stride,
                                                     int count)
{
#pragma unroll
    for (int v = 0; v < V; v++)
        if (v < count) out[base + v * stride] = x[v].word;
}

/* The most threads of a CTA that holds a tile, and CTAs of so many that an SM gets. */
template <class T, int E, int V>
constexpr int column_block_threads = sizeof(T) == 2 && E *V == 64 ? 256 : GROUP_CTA_THREADS;
template <class T, int E, int V>
constexpr int column_block_ctas = sizeof(T) == 8 || E *V * sizeof(T) == 256 ? 1
                                  : sizeof(T) == 2 && E *V == 64            ? 4
                                                                            : 2;

/* A tile for each CTA, V packs of it in each thread. */
template <class T, int E, int V>
__global__ void __launch_bounds__(column_block_threads<T, E, V>, column_block_ctas<T, E, V>)
    softmax_column_block_registers(ks_site site, softmax_shape s, int lanes)
{
    typedef typename ks_element<T>::math M;
    typedef typename softmax_pack<T, E>::Word Word;
    typedef softmax_index<E> Index;
    constexpr bool KEEP = softmax_keeps<T>;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<M> rule(s);
    const softmax_strip<Index> strip((Index)(s.inner / E), lanes, 0, s.length);
    const softmax_tile<M> tile(ks_dynamic, lanes, E);
    const Index base = strip.base(s, blockIdx.x);
    const int count = strip.count(s, blockIdx.x);
    const Word *const in = (const Word *)(job.in + s.offset);
    softmax_pack<T, E> x[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (v < count)
            x[v].word = __ldg(in + (base + v * strip.stride));
        else
            softmax_blank(x[v], 0);
    }
    softmax_apply_sign(x, s.sign, [&](int v) { return v < count; });
    softmax_column_publish<KEEP>(x, tile, rule);
    __syncthreads();
    softmax_join_columns(
        tile.groups, tile.columns, rule, [&](int g, int column) { return tile.group[g * tile.pitch + column]; },
        [&](int column, softmax_pair<M> n) { tile.whole[column] = softmax_settle(n, rule); });
    __syncthreads();
    softmax_column_values<KEEP>(x, tile, rule);
    softmax_column_store(x, (Word *)job.out, base, strip.stride, count);
    ks_leave(site);
}

/* What a thread does with its packs of a tile, V at a time from pack c on; the first ones are kept in shared memory. */
template <class T, int E, int V, class Index = int64_t>
struct softmax_column_part {
    typedef T Element;
    typedef typename softmax_pack<T, E>::Word Word;
    static constexpr int PACKS = V;
    static constexpr bool COPIES = sizeof(Word) >= 4; /* what cp.async takes */
    const Word *in;
    Word *keep;
    Index stride; /* of packs */
    int threads;
    float sign;
    Index base; /* of the tile */
    int count;  /* packs in it */

    /* Starts copies of a tile at `at`, of which the thread has `packs`. */
    __device__ __forceinline__ void fetch(Index at, int packs, int c) const
    {
        const Word *from = in + at + c * stride;
#pragma unroll
        for (int v = 0; v < V; v++, from += stride)
            if constexpr (COPIES)
                if (c + v < packs) ks_copy_async(&keep[(c + v) * threads], from);
    }
    __device__ __forceinline__ void read(softmax_pack<T, E> (&x)[V], int c) const
    {
        const Word *from = in + base + c * stride;
#pragma unroll
        for (int v = 0; v < V; v++, from += stride) {
            if (c + v < count)
                x[v].word = __ldg(from);
            else
                softmax_blank(x[v], 0);
        }
    }
    __device__ __forceinline__ void apply_sign(softmax_pack<T, E> (&x)[V], int c) const
    {
        softmax_apply_sign(x, sign, [&](int v) { return c + v < count; });
    }
    /* Packs that are not kept. */
    __device__ __forceinline__ void load(softmax_pack<T, E> (&x)[V], int c) const
    {
        read(x, c);
        apply_sign(x, c);
    }
    __device__ __forceinline__ void load_kept(softmax_pack<T, E> (&x)[V], int c) const
    {
#pragma unroll
        for (int v = 0; v < V; v++) {
            if (c + v < count)
                x[v].word = keep[(c + v) * threads];
            else
                softmax_blank(x[v], 0);
        }
        apply_sign(x, c);
    }
    /* The same for the first time: where nothing could be copied, they are kept from now on. */
    __device__ __forceinline__ void load_first(softmax_pack<T, E> (&x)[V], int c) const
    {
        if constexpr (COPIES) {
            load_kept(x, c);
        } else {
            read(x, c);
#pragma unroll
            for (int v = 0; v < V; v++) keep[(c + v) * threads] = x[v].word;
            apply_sign(x, c);
        }
    }
    __device__ __forceinline__ void store(const softmax_pack<T, E> (&x)[V], Word *out, int c) const
    {
        Word *to = out + base + c * stride;
#pragma unroll
        for (int v = 0; v < V; v++, to += stride)
            if (c + v < count) *to = x[v].word;
    }
};

/* The pairs (h, sum) of the packs that are not kept, from `kept` to `used`, of one thread. */
template <class T, int E, int V, class M>
__device__ __forceinline__ void softmax_column_beyond(const softmax_column_part<T, E, V> &part, int kept, int used,
                                                      const softmax_rule<M> &rule, M (&h)[E], double (&sum)[E])
{
#pragma unroll
    for (int e = 0; e < E; e++) {
        h[e] = -(M)INFINITY;
        sum[e] = 0;
    }
#pragma unroll 1
    for (int c = kept; c < used; c += V) {
        softmax_pack<T, E> x[V];
        part.load(x, c);
        softmax_pack<T, E> top = x[0];
#pragma unroll
        for (int v = 1; v < V; v++) top = softmax_greater(top, x[v]);
#pragma unroll
        for (int e = 0; e < E; e++) {
            const M whole = ks_max(h[e], top.get(e) * (M)0.5);
            M term[V];
#pragma unroll
            for (int v = 0; v < V; v++) term[v] = rule.term(rule.distance(x[v].get(e), ks_reference(whole)));
            sum[e] = sum[e] * (double)softmax_weight(h[e], whole, rule) + (double)ks_tree(term);
            h[e] = whole;
        }
    }
}

/* The pairs of the `held` packs that are kept, of the threads that join by shuffles. */
template <class Part, int E, class M>
__device__ __forceinline__ void softmax_column_held(const Part &part, int held, const softmax_tile<M> &tile,
                                                    const softmax_rule<M> &rule, M (&h)[E], M (&sum)[E])
{
    constexpr int V = Part::PACKS;
    softmax_pack<typename Part::Element, E> x[V], most;
    softmax_blank(most, 0);
#pragma unroll 1
    for (int c = 0; c < held; c += V) {
        part.load_first(x, c);
#pragma unroll
        for (int v = 0; v < V; v++) most = softmax_greater(most, x[v]);
    }
    tile.over_lanes(most);
#pragma unroll
    for (int e = 0; e < E; e++) {
        h[e] = most.get(e) * (M)0.5;
        sum[e] = 0;
    }
#pragma unroll 1
    for (int c = 0; c < held; c += V) {
        part.load_kept(x, c);
#pragma unroll
        for (int e = 0; e < E; e++) {
            M term[V];
#pragma unroll
            for (int v = 0; v < V; v++) term[v] = rule.term(rule.distance(x[v].get(e), ks_reference(h[e])));
            sum[e] += ks_tree(term);
        }
    }
    tile.over_lanes(sum);
}

/* A tile for each CTA group of `parts` CTAs at a time, `share` of the axis each; kept: packs of a thread in shared memory, a
 * multiple of V. BEYOND: the part may have more. Groups of several CTAs draw their tiles: neighbours share lines of memory where rows do not start
 * on them, and groups that took every groups-th tile drifted apart until such a line was read twice. */
template <class T, int E, int V, bool BEYOND>
__global__ void __launch_bounds__(GROUP_CTA_THREADS, sizeof(T) == 8 || BEYOND ? 1 : 2)
    softmax_column_multiblock_smem(ks_site site, softmax_shape s, int lanes, int parts, int64_t share, int kept)
{
    typedef typename ks_element<T>::math M;
    typedef typename softmax_pack<T, E>::Word Word;
    __shared__ softmax_cta_group cta_group;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<M> rule(s);
    __shared__ uint32_t drawn_tile;
    if (threadIdx.x == 0) cta_group.open(site, parts, lanes * E, parts > 1);
    __syncthreads();
    const int threads = blockDim.x;
    const bool hears = threadIdx.x == blockDim.x - 1;
    const softmax_tile<M> tile((Word *)ks_dynamic + kept * threads, lanes, E);
    const int64_t begin = cta_group.rank * share, end = min(begin + share, s.length);
    const int64_t tiles = (s.outer * (s.inner / E) + lanes - 1) / lanes;
    const bool draws = parts > 1 && tiles > cta_group.groups;
    const softmax_strip<int64_t> strip(s.inner / E, lanes, begin, end);
    const int held = min(strip.used, kept);
    Word *const out = (Word *)job.out;
    softmax_column_part<T, E, V> part = {(const Word *)(job.in + s.offset), (Word *)ks_dynamic + threadIdx.x,
                                         strip.stride, threads, s.sign};
    int64_t at = cta_group.index;
    strip.place(s, at, &part.base, &part.count);
#pragma unroll 1
    for (int c = 0; c < held; c += V) part.fetch(part.base, part.count, c);
    uint32_t drawn = 0;
    bool more = true;
#pragma unroll 1
    for (uint32_t r = 0; more; r++) {
        uint32_t item = 0;
        if (draws && hears && cta_group.rank == 0) item = cta_group.draw_item((uint32_t)tiles);
        M h[E], sum[E], h_beyond[E];
        double sum_beyond[E];
        if constexpr (BEYOND) softmax_column_beyond(part, kept, strip.used, rule, h_beyond, sum_beyond);
        ks_copy_wait();
        softmax_column_held(part, held, tile, rule, h, sum);
        if (draws && hears && cta_group.rank == 0) cta_group.publish(r, parts * tile.columns, item, 0);
#pragma unroll
        for (int e = 0; e < E; e++) {
            softmax_pair<M> mine = {h[e], sum[e]};
            if constexpr (BEYOND) {
                softmax_pair<M> other = {h_beyond[e], (M)sum_beyond[e]};
                if (tile.narrow(lanes))
                    for (int distance = lanes; distance < KS_WARP; distance *= 2)
                        other =
                            softmax_both(other, {ks_shuffle(other.h, distance), ks_shuffle(other.sum, distance)}, rule);
                mine = softmax_both(mine, other, rule);
            }
            tile.publish(e, mine);
        }
        __syncthreads();
        const auto of_group = [&](int g, int column) { return tile.group[g * tile.pitch + column]; };
        const auto settle = [&](int column, softmax_pair<M> n) { tile.whole[column] = softmax_settle(n, rule); };
        if (parts == 1) {
            softmax_join_columns(tile.groups, tile.columns, rule, of_group, settle);
        } else {
            softmax_join_columns(tile.groups, tile.columns, rule, of_group, [&](int column, softmax_pair<M> n) {
                cta_group.publish(r, cta_group.rank * tile.columns + column, n.h, n.sum);
            });
            if (draws && hears) drawn_tile = (uint32_t)cta_group.consume<double>(r, parts * tile.columns).h;
            softmax_join_columns(
                parts, tile.columns, rule,
                [&](int p, int column) { return cta_group.consume<M>(r, p * tile.columns + column); }, settle);
        }
        __syncthreads();
        const int64_t behind = draws ? (int64_t)drawn_tile : at + cta_group.groups;
        more = behind < tiles;
        if (!more && parts > 1) drawn = cta_group.draw();
        if (more) at = behind;
        int64_t next;
        int next_count;
        strip.place(s, at, &next, &next_count);
        softmax_pack<T, E> x[V];
        if constexpr (BEYOND) {
#pragma unroll 1
            for (int c = kept + (strip.used - kept + V - 1) / V * V - V; c >= kept; c -= V) { /* the last bytes first */
                part.load(x, c);
                softmax_column_values<false>(x, tile, rule);
                part.store(x, out, c);
            }
        }
#pragma unroll 1
        for (int c = 0; c < held; c += V) {
            part.load_kept(x, c);
            softmax_column_values<false>(x, tile, rule);
            if (more) part.fetch(next, next_count, c); /* what lay there is in registers */
            part.store(x, out, c);
        }
        part.base = next;
        part.count = next_count;
    }
    if (parts > 1) cta_group.leave(drawn);
    ks_leave(site);
}

#endif
