/* Attention of FP32 by FP32 arithmetic: a CTA has a tile of a unit's rows, and a split's keys go past them, a block at a time. Keys and values
 * have one place each: values come while scores are multiplied, the next block's keys while values are.
 *
 *   EACH     rows of a thread, 1, 2 or 4: a tile has 16 EACH
 *   COLUMNS  room for the elements of a row
 *
 * Threads  128. A warp has 4 EACH rows of its own. Of a thread: row i is the warp's row 4 i + lane / 8; scores are those of every eighth key,
 *          sums those of four columns of each 32; so reads of memory that is shared meet no bank twice, and eight threads have a row.
 * Memory   dynamic: what is known of the rows, the rows, a block of keys, a block of values, weights of HELD keys for each warp.
 * Bits     a score's terms come in the order of the elements, a row's in the order of the keys, its weights are added in an order that does not
 *          hang on EACH: nor do its bits. */
#ifndef KS_ATTENTION_FLOATS_CUH
#define KS_ATTENTION_FLOATS_CUH

#include "cuda/attention/common.cuh"
#include "cuda/common/ptx_mma.cuh"

enum {
    ATTENTION_THREADS = 128,
    ATTENTION_WARPS = ATTENTION_THREADS / KS_WARP,
    ATTENTION_SHARERS = 8, /* threads of a row */
    ATTENTION_GROUPS = KS_WARP / ATTENTION_SHARERS,
    ATTENTION_ROWS = ATTENTION_WARPS * ATTENTION_GROUPS, /* of a tile, for each of a thread */
    ATTENTION_FLOATS_MOST = 4 * ATTENTION_ROWS,          /* rows of a tile */
    ATTENTION_HELD = 32                                  /* keys whose weights are in memory at a time */
};

/* Of a block: heads above 128 leave no room for more. */
__host__ __device__ constexpr int attention_floats_keys(int columns)
{
    return columns <= 128 ? 64 : 32;
}

/* Elements from row to row of queries and keys: eight rows read at once meet no bank twice. */
__host__ __device__ constexpr int attention_pitch(int columns)
{
    return columns + 4;
}

__host__ __device__ constexpr int attention_floats_bytes(int tile, int columns)
{
    const int keys = attention_floats_keys(columns);
    return tile * (int)sizeof(attention_row) + (int)sizeof(float) * ((tile + keys) * attention_pitch(columns) +
                                                                     keys * columns + (int)ATTENTION_HELD * tile);
}

/* CTAs that an SM is to have: by the registers of scores and sums, and where an SM has 228 KiB of memory. */
__host__ __device__ constexpr int attention_floats_ctas(int each, int columns)
{
    const int memory = (228 << 10) / (attention_floats_bytes(each * (int)ATTENTION_ROWS, columns) + (1 << 10));
    const int registers = each * columns <= 128 && each < 4 ? 4 : each * columns <= 256 ? 3 : 2;
    return memory < registers ? memory : registers;
}

template <int EACH>
struct alignas(EACH * sizeof(float)) attention_some {
    float of[EACH];
};

/* --- a tile's memory, and the copies to it --------------------------------------------------------------------------- */

template <int EACH, int COLUMNS>
struct attention_floats_tile {
    static constexpr int ROWS = ATTENTION_ROWS * EACH, KEYS = attention_floats_keys(COLUMNS),
                         PITCH = attention_pitch(COLUMNS);
    const attention_shape &a;
    const ks_job_sides &job;
    attention_row *rows;
    float *queries, *keys, *values, *weights; /* weights: the warp's */
    const float *key, *value;                 /* of the unit */
    int64_t length;                           /* keys of the batch */

    __device__ __forceinline__ attention_floats_tile(const attention_shape &shape, const ks_job_sides &sides)
        : a(shape), job(sides), rows((attention_row *)ks_dynamic), key(NULL), value(NULL), length(0)
    {
        queries = (float *)(rows + ROWS);
        keys = queries + ROWS * PITCH;
        values = keys + KEYS * PITCH;
        weights = values + KEYS * COLUMNS + threadIdx.x / KS_WARP * ATTENTION_HELD * ATTENTION_GROUPS * EACH;
    }
    __device__ __forceinline__ void open(const attention_item &w)
    {
        key = (const float *)(job.in + a.key) + w.batch * a.s.key.batch + w.kv_head * a.s.key.head;
        value = (const float *)(job.in + a.value) + w.batch * a.s.value.batch + w.kv_head * a.s.value.head;
        length = w.keys;
    }
    /* A thread's part of a row; zeros for a row that is not there, and up to a whole vector. */
    __device__ __forceinline__ void ask(float *to, const float *from, int depth, bool there) const
    {
        const unsigned place = mm_shared_address(to);
#pragma unroll 1
        for (int c = threadIdx.x % ATTENTION_SHARERS * 4; c < depth; c += ATTENTION_SHARERS * 4) {
            if (a.vectors) {
                mm_copy_async(place + c * 4, from + c, there);
                continue;
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const bool inside = there && c + e < depth;
                mm_copy_element<4>(place + (c + e) * 4, inside ? from + c + e : from, inside);
            }
        }
    }
    /* The tile's rows of the query, which lie where their heads lie. */
    __device__ __forceinline__ void ask_rows(const attention_item &w) const
    {
        const float *const query = (const float *)(job.in + a.query) + w.batch * a.s.query.batch;
#pragma unroll 1
        for (int i = threadIdx.x / ATTENTION_SHARERS; i < ROWS; i += ATTENTION_ROWS) {
            const attention_row &r = rows[i];
            ask(queries + i * PITCH, query + r.head * a.s.query.head + r.query * a.s.query.row, a.s.depth, r.there);
        }
    }
    __device__ __forceinline__ void ask_block(float *to, int pitch, const float *from, int64_t stride, int depth,
                                              int64_t first) const
    {
#pragma unroll 1
        for (int i = threadIdx.x / ATTENTION_SHARERS; i < KEYS; i += ATTENTION_ROWS) {
            const bool there = first + i < length;
            ask(to + i * pitch, there ? from + (first + i) * stride : from, depth, there);
        }
    }
    __device__ __forceinline__ void ask_keys(int64_t first) const
    {
        ask_block(keys, PITCH, key, a.s.key.row, a.s.depth, first);
        mm_copy_commit();
    }
    __device__ __forceinline__ void ask_values(int64_t first) const
    {
        ask_block(values, COLUMNS, value, a.s.value.row, a.s.value_depth, first);
        mm_copy_commit();
    }
    /* Whether a value is not finite, of those that the thread has brought. */
    __device__ __forceinline__ bool find_broken() const
    {
        bool broken = false;
#pragma unroll 1
        for (int i = threadIdx.x / ATTENTION_SHARERS; i < KEYS; i += ATTENTION_ROWS)
#pragma unroll 1
            for (int c = threadIdx.x % ATTENTION_SHARERS * 4; c < a.s.value_depth; c += ATTENTION_SHARERS * 4) {
                const float4 v = *(const float4 *)(values + i * COLUMNS + c);
                broken |= !(isfinite(v.x) && isfinite(v.y) && isfinite(v.z) && isfinite(v.w));
            }
        return broken;
    }
    /* Rows of the calling thread. */
    __device__ __forceinline__ int row_of(int i) const
    {
        const int warp = threadIdx.x / KS_WARP, group = threadIdx.x % KS_WARP / ATTENTION_SHARERS;
        return (warp * EACH + i) * ATTENTION_GROUPS + group;
    }
    /* Behind the last key that one of the warp's rows takes; 0: none. */
    __device__ __forceinline__ int64_t end_of_warp() const
    {
        int64_t end = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const attention_row &r = rows[row_of(i)];
            if (r.there) end = max(end, r.range.end);
        }
#pragma unroll
        for (int distance = ATTENTION_SHARERS; distance < KS_WARP; distance *= 2)
            end = max(end, ks_shuffle(end, distance));
        return end;
    }
};

/* --- a thread's rows ------------------------------------------------------------------------------------------------- */

template <int EACH, int COLUMNS>
struct attention_floats_rows {
    typedef attention_floats_tile<EACH, COLUMNS> tile;
    static constexpr int FOURS = COLUMNS / 32, SCORES = tile::KEYS / ATTENTION_SHARERS;
    float sum[EACH][COLUMNS / 8];
    float score[EACH][SCORES];
    float most[EACH], total[EACH]; /* total: of this thread's keys; its row's other threads have the rest */

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; c++) sum[i][c] = 0;
            most[i] = -INFINITY;
            total[i] = 0;
        }
    }
    /* With the first SOME of the thread's keys. */
    template <int SOME>
    __device__ __forceinline__ void multiply(const tile &t)
    {
        const float *const query = t.queries + t.row_of(0) * tile::PITCH, *const key = t.keys + threadIdx.x %
                                                                                                    ATTENTION_SHARERS *
                                                                                                    tile::PITCH;
        const int depth = t.a.s.depth;
#pragma unroll 2
        for (int d = 0; d < depth; d += 4) {
            float4 q[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) q[i] = *(const float4 *)(query + i * ATTENTION_GROUPS * tile::PITCH + d);
#pragma unroll
            for (int j = 0; j < SOME; j++) {
                const float4 k = *(const float4 *)(key + j * ATTENTION_SHARERS * tile::PITCH + d);
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    score[i][j] = fmaf(q[i].x, k.x, score[i][j]);
                    score[i][j] = fmaf(q[i].y, k.y, score[i][j]);
                    score[i][j] = fmaf(q[i].z, k.z, score[i][j]);
                    score[i][j] = fmaf(q[i].w, k.w, score[i][j]);
                }
            }
        }
    }
    /* count: keys in front of the last one that a row of the warp takes. */
    __device__ __forceinline__ void multiply(const tile &t, int count)
    {
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < SCORES; j++) score[i][j] = 0;
        if (count > tile::KEYS / 2)
            multiply<SCORES>(t);
        else
            multiply<SCORES / 2>(t);
    }
    /* Products become scores, where each row takes each key and there is no softcap; */
    __device__ __forceinline__ void scale(float by)
    {
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < SCORES; j++) score[i][j] *= by;
    }
    /* where causal, window and lengths alone leave keys out; */
    __device__ __forceinline__ void limit(const tile &t, float by, int64_t first)
    {
        const int own = threadIdx.x % ATTENTION_SHARERS;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const ks_attention_range range = t.rows[t.row_of(i)].range;
            const int from = (int)min(max(range.first - first, (int64_t)0), (int64_t)tile::KEYS),
                      end = (int)min(max(range.end - first, (int64_t)0), (int64_t)tile::KEYS);
#pragma unroll
            for (int j = 0; j < SCORES; j++) {
                const int key = own + j * ATTENTION_SHARERS;
                score[i][j] = key >= from && key < end ? score[i][j] * by : -INFINITY;
            }
        }
    }
    /* else. */
    __device__ __forceinline__ void select(const tile &t, int64_t first)
    {
        const int64_t own = first + threadIdx.x % ATTENTION_SHARERS;
        if (!t.a.s.masked && t.a.s.softcap == 0) {
            limit(t, (float)t.a.s.scale, first);
            return;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const attention_row r = t.rows[t.row_of(i)];
#pragma unroll
            for (int j = 0; j < SCORES; j++) {
                bool taken;
                score[i][j] = attention_score<float>(t.a, t.job, r, own + j * ATTENTION_SHARERS, score[i][j], &taken);
            }
        }
    }
    /* Scores become weights. */
    __device__ __forceinline__ void weigh()
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            float here = most[i], added = 0;
#pragma unroll
            for (int j = 0; j < SCORES; j++) here = fmaxf(here, score[i][j]);
#pragma unroll
            for (int distance = 1; distance < ATTENTION_SHARERS; distance *= 2)
                here = fmaxf(here, ks_shuffle(here, distance));
            const float reference = attention_reference(here), weight = attention_weight(most[i], here);
#pragma unroll
            for (int j = 0; j < SCORES; j++) {
                score[i][j] = ks_exp2((score[i][j] - reference) * ATTENTION_LOG2_E);
                added += score[i][j];
            }
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; c++) sum[i][c] *= weight;
            total[i] = fmaf(total[i], weight, added);
            most[i] = here;
        }
    }
    /* Of HELD keys from key `from` of the block on. */
    __device__ __forceinline__ void put_weights(const tile &t, int from) const
    {
        const int lane_id = threadIdx.x % KS_WARP;
#pragma unroll
        for (int j = 0; j < ATTENTION_HELD / ATTENTION_SHARERS; j++) {
            attention_some<EACH> some;
#pragma unroll
            for (int i = 0; i < EACH; i++) some.of[i] = score[i][from / ATTENTION_SHARERS + j];
            const int key = j * ATTENTION_SHARERS + lane_id % ATTENTION_SHARERS;
            ((attention_some<EACH> *)t.weights)[key * ATTENTION_GROUPS + lane_id / ATTENTION_SHARERS] = some;
        }
    }
    __device__ __forceinline__ void add(int i, float weight, const float4 (&v)[FOURS])
    {
#pragma unroll
        for (int f = 0; f < FOURS; f++) {
            sum[i][f * 4] = fmaf(weight, v[f].x, sum[i][f * 4]);
            sum[i][f * 4 + 1] = fmaf(weight, v[f].y, sum[i][f * 4 + 1]);
            sum[i][f * 4 + 2] = fmaf(weight, v[f].z, sum[i][f * 4 + 2]);
            sum[i][f * 4 + 3] = fmaf(weight, v[f].w, sum[i][f * 4 + 3]);
        }
    }
    __device__ __forceinline__ attention_some<EACH> load(const tile &t, int from, int key, float4 (&v)[FOURS]) const
    {
        const int lane_id = threadIdx.x % KS_WARP;
        const float *const at = t.values + (from + key) * COLUMNS + lane_id % ATTENTION_SHARERS * 4;
#pragma unroll
        for (int f = 0; f < FOURS; f++) v[f] = *(const float4 *)(at + f * 32);
        return ((const attention_some<EACH> *)t.weights)[key * ATTENTION_GROUPS + lane_id / ATTENTION_SHARERS];
    }
    /* Of `count` of those keys, and up to three behind them, whose weights are 0. */
    __device__ __forceinline__ void add_values(const tile &t, int from, int count)
    {
#pragma unroll 1
        for (int key = 0; key < count; key += 4)
#pragma unroll
            for (int k = key; k < key + 4; k++) {
                float4 v[FOURS];
                const attention_some<EACH> weight = load(t, from, k, v);
#pragma unroll
                for (int i = 0; i < EACH; i++) add(i, weight.of[i], v);
            }
    }
    /* As add_values(), where values that are not finite only reach rows that take their keys. first: the block's first key. */
    __device__ __forceinline__ void add_broken_values(const tile &t, int from, int count, int64_t first)
    {
#pragma unroll 1
        for (int key = 0; key < count; key++) {
            float4 v[FOURS];
            const attention_some<EACH> weight = load(t, from, key, v);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                bool taken;
                attention_score<float>(t.a, t.job, t.rows[t.row_of(i)], first + from + key, 0, &taken);
                if (taken) add(i, weight.of[i], v);
            }
        }
    }
    /* A block's values, by its weights. */
    __device__ __forceinline__ void add_block(const tile &t, int64_t first, int count, bool broken)
    {
#pragma unroll
        for (int from = 0; from < tile::KEYS; from += ATTENTION_HELD) {
            if (from >= count) break;
            const int here = min(count - from, (int)ATTENTION_HELD);
            __syncwarp(); /* weights that were there have been read */
            put_weights(t, from);
            __syncwarp();
            if (broken)
                add_broken_values(t, from, here, first);
            else
                add_values(t, from, here);
        }
    }
    __device__ __forceinline__ void end()
    {
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int distance = 1; distance < ATTENTION_SHARERS; distance *= 2)
                total[i] += ks_shuffle(total[i], distance);
    }
};

/* --- what a row becomes ---------------------------------------------------------------------------------------------- */

template <int EACH, int COLUMNS>
__device__ __forceinline__ void attention_put_floats(const ks_site &site, const attention_floats_tile<EACH, COLUMNS> &t,
                                                     const attention_item &w,
                                                     const attention_floats_rows<EACH, COLUMNS> &of)
{
    const attention_shape &a = t.a;
    const int mine = threadIdx.x % ATTENTION_SHARERS;
    const bool whole = a.splits == 1;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const attention_row &r = t.rows[t.row_of(i)];
        const float most = of.most[i], total = of.total[i];
        if (!r.there) continue;
        float *const part = whole ? NULL : attention_part(a, site, w.unit, r.number);
        float *const to = whole ? attention_out<float>(a, t.job, w.batch, r)
                                : part + 2 * a.splits + (int64_t)w.split * a.s.value_depth;
        if (mine == 0 && whole) attention_put_lse(a, t.job, w.batch, r, most, total);
        if (mine == 0 && !whole) part[2 * w.split] = most;
        if (mine == 1 && !whole) part[2 * w.split + 1] = total;
#pragma unroll
        for (int c = 0; c < COLUMNS / 8; c += 4) {
            const int column = c * 8 + mine * 4;
            float four[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                four[e] = whole ? attention_value(a, most, total, of.sum[i][c + e]) : of.sum[i][c + e];
            if (whole && a.vectors && column < a.s.value_depth) {
                *(float4 *)(to + column) = make_float4(four[0], four[1], four[2], four[3]);
                continue;
            }
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (column + e < a.s.value_depth) to[column + e] = four[e];
        }
    }
}

/* --- the kernel ------------------------------------------------------------------------------------------------------ */

template <int EACH, int COLUMNS>
__global__ void __launch_bounds__(ATTENTION_THREADS, attention_floats_ctas(EACH, COLUMNS))
    attention_floats(ks_site site, const __grid_constant__ attention_shape a)
{
    typedef attention_floats_tile<EACH, COLUMNS> tile;
    constexpr int ROWS = tile::ROWS, KEYS = tile::KEYS;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    if (a.starts) ks_start(site);
    __shared__ attention_item item; /* for the tile's end: of which registers have no room */
    tile t(a, job);
#pragma unroll 1
    for (int64_t at = blockIdx.x; at < a.units * a.tiles * a.splits; at += gridDim.x) {
        const attention_item w = attention_item_of(site, a, job, at, ROWS, KEYS);
        const ks_attention_range common =
            attention_common<int64_t>(a.s, w.row, (int)min((int64_t)ROWS, a.rows - w.row), w.keys);
        attention_floats_rows<EACH, COLUMNS> mine;
        mine.clear();
        t.open(w);
        __syncthreads(); /* what was there of the tile before has been read */
        if (threadIdx.x < ROWS)
            t.rows[threadIdx.x] = attention_row_of(a, w.batch, w.kv_head, w.row + threadIdx.x, w.keys);
        if (threadIdx.x == 0) item = w;
        __syncthreads();
        if (w.first < w.end) {
            t.ask_rows(w);
            t.ask_keys(w.first);
            t.ask_values(w.first);
        }
        const int64_t end = min(t.end_of_warp(), w.end);
#pragma unroll 1
        for (int64_t first = w.first; first < w.end; first += KEYS) {
            const int count = (int)min(max(end - first, (int64_t)0), (int64_t)KEYS);
            const bool all = !a.s.masked && common.first <= first && common.end >= first + KEYS;
            if (first == w.first) /* all but the first values */
                mm_copy_wait<1>();
            else
                mm_copy_wait<0>();
            __syncthreads(); /* the keys are there, and the values before have been read */
            if (first > w.first) t.ask_values(first);
            if (count > 0) {
                mine.multiply(t, count);
                if (all && a.s.softcap == 0)
                    mine.scale((float)a.s.scale);
                else
                    mine.select(t, first);
                mine.weigh();
            }
            mm_copy_wait<0>();
            const bool broken = __syncthreads_or(!all && t.find_broken()) != 0; /* the keys have been read */
            if (first + KEYS < w.end) t.ask_keys(first + KEYS);
            if (count > 0) mine.add_block(t, first, count, broken);
        }
        mine.end();
        attention_put_floats(site, t, item, mine);
    }
    if (a.ends) ks_leave<true>(site);
}

#endif
