/* Attention of FP16 and BF16 where a key head has up to 16 rows (decode): each of the four warps has all of them and a quarter of a block's
 * keys, and a ring of its own that brings these. Warps meet where a part of the keys ends, and are merged there in their order.
 *
 *   piece  a part of a unit's keys: split s of unit u is piece u * splits + s
 *   run    the pieces of one unit that a CTA has. A CTA's pieces are neighbours, so that its rows, its query and where its keys lie change with
 *          the run alone, and its copies go on into the next piece, and the next run, while it ends one
 *
 * Threads  128.
 * Memory   dynamic: queries of a.stages runs, then a.stages stages, each of four quarters: 16 keys, their values. */
#ifndef KS_ATTENTION_APART_CUH
#define KS_ATTENTION_APART_CUH

#include "cuda/attention/halves.cuh"
#include "cuda/attention/merge.cuh"

/* Floats from row to row of what a warp leaves: its sums, its pair of largest score and sum, and room by which rows meet no bank twice. */
__host__ __device__ constexpr int attention_left_stride(int columns)
{
    return columns + 8;
}

/* A warp's quarter of a stage: its keys and their values; in their place, when they have been read, what it leaves of 16 rows. */
__host__ __device__ __forceinline__ int attention_quarter_bytes(int depth, int value_depth, int columns)
{
    const int left = (int)ATTENTION_M * attention_left_stride(columns) * (int)sizeof(float),
              quarter = attention_stage_bytes(depth, value_depth) / (int)ATTENTION_MMA_WARPS;
    return left > quarter ? left : quarter;
}

/* Rows of the query that memory has room for: eight more that are not there may be the same ones. */
__host__ __device__ __forceinline__ int attention_apart_rows(int64_t rows)
{
    return rows <= 8 ? 8 : (int)ATTENTION_M;
}

/* --- runs ------------------------------------------------------------------------------------------------------------ */

/* CTA i's pieces are [begin(i), begin(i + 1)). */
__device__ __forceinline__ int64_t attention_begin_of(const attention_shape &a, int64_t cta)
{
    return cta * a.each + min(cta, a.more);
}
__device__ __forceinline__ int64_t attention_cta_of(const attention_shape &a, int64_t piece)
{
    const int64_t more = a.more * (a.each + 1);
    return piece < more ? piece / (a.each + 1) : a.more + (piece - more) / a.each;
}

/* How many CTAs have pieces of a unit. */
__device__ __forceinline__ uint32_t attention_sharers(const attention_shape &a, int64_t unit)
{
    const int64_t first = (unit - a.unit) * a.splits;
    return (uint32_t)(attention_cta_of(a, first + a.splits - 1) - attention_cta_of(a, first) + 1);
}

struct attention_run {
    attention_item w;          /* split: the first piece's; first, end: of all its pieces */
    int behind;                /* the split behind the last piece's */
    ks_attention_range common; /* keys that each row takes */
};

/* From piece `at` on; the CTA's last one is in front of `stop`. */
__device__ __forceinline__ attention_run attention_run_of(const ks_site &site, const attention_shape &a,
                                                          const ks_job_sides &job, int64_t at, int64_t stop)
{
    attention_run r;
    attention_item &w = r.w;
    const int64_t unit = attention_over<uint32_t>(at, a.splits); /* the planner sees to 32 bits */
    w.split = (int)(at - unit * a.splits);
    r.behind = (int)min((int64_t)a.splits, w.split + (stop - at));
    w.unit = a.unit + unit;
    w.batch = attention_over<uint32_t>(w.unit, a.s.kv_heads);
    w.kv_head = w.unit - w.batch * a.s.kv_heads;
    w.row = 0;
    w.keys = attention_keys(site, a, job, w.batch);
    const ks_attention_range low = attention_range(a.s, 0, w.keys),
                             high = attention_range(a.s, a.s.queries - 1, w.keys);
    r.common.first = high.first;
    r.common.end = low.end;
    w.first = max(low.first / ATTENTION_BLOCK * ATTENTION_BLOCK, w.split * a.part);
    w.end = min(high.end, r.behind * a.part);
    return r;
}

/* --- a warp's ring --------------------------------------------------------------------------------------------------- */

/* The warp's 16 rows of a block that begins at `from`; what is behind the block's first `count` rows, and behind `depth`, is 0. */
template <class T, int DEPTH>
__device__ __forceinline__ void attention_ask_quarter(const attention_shape &a, const T *from, int64_t stride,
                                                      int count, int depth, unsigned char *to)
{
    const int lane_id = threadIdx.x % KS_WARP, first = threadIdx.x / KS_WARP * ATTENTION_M,
              bytes = attention_row_bytes(depth);
    if constexpr (DEPTH != 0) {
        constexpr int VECTORS = DEPTH / 8, ROWS = KS_WARP / VECTORS; /* rows: at a time */
        const int row = lane_id / VECTORS, vector = lane_id % VECTORS;
        const unsigned place = mm_shared_address(to) + row * bytes + vector * 16;
        const T *at = from + (first + row) * stride + vector * 8;
        if (count == ATTENTION_BLOCK) {
#pragma unroll
            for (int n = 0; n < ATTENTION_M; n += ROWS, at += ROWS * stride) mm_copy_async(place + n * bytes, at, true);
        } else {
#pragma unroll
            for (int n = 0; n < ATTENTION_M; n += ROWS, at += ROWS * stride) {
                const bool there = first + row + n < count;
                mm_copy_async(place + n * bytes, there ? at : from, there);
            }
        }
        return;
    }
    const int vectors = (depth + 15) / 16 * 2;
    const attention_rows_of row_of(vectors);
#pragma unroll 1
    for (int n = 0; n < ATTENTION_M * vectors / KS_WARP; n++) { /* vectors are even */
        const int i = n * KS_WARP + lane_id, row = row_of(i), vector = i - row * vectors;
        const bool there = first + row < count;
        attention_copy(a.vectors, to + row * bytes + vector * 16,
                       there && vector * 8 < depth ? from + (first + row) * stride + vector * 8 : from,
                       there ? depth - vector * 8 : 0);
    }
}

/* Quarters of the CTA's blocks, in order; up to a.stages of them are under way. Warps wait for each other at their pieces' ends, so none
 * asks for a query in the place of one that another still needs. */
template <class T, int DEPTH, int COLUMNS>
struct attention_quarters {
    const ks_site &site;
    const attention_shape &a;
    const ks_job_sides &job;
    const T *key, *value; /* of the block that is asked for next */
    unsigned char *queries, *memory;
    int64_t next, stop;                /* pieces whose runs are not asked for */
    int blocks, last;                  /* of the run, that are left; keys of the last one */
    int place, query_put, query_taken; /* place: the stage that is taken and given next */

    __device__ __forceinline__ attention_quarters(const ks_site &where, const attention_shape &shape,
                                                  const ks_job_sides &sides, int64_t piece, int64_t behind)
        : site(where), a(shape), job(sides), queries((unsigned char *)ks_dynamic), next(piece), stop(behind), blocks(0),
          place(0), query_put(0), query_taken(0)
    {
        memory = queries + query_bytes() * a.stages;
    }
    __device__ __forceinline__ int depth() const
    {
        return DEPTH ? DEPTH : a.s.depth;
    }
    __device__ __forceinline__ int value_depth() const
    {
        return DEPTH ? DEPTH : a.s.value_depth;
    }
    __device__ __forceinline__ int query_bytes() const
    {
        return attention_apart_rows(a.rows) * attention_row_bytes(depth());
    }
    __device__ __forceinline__ int quarter_bytes() const
    {
        return attention_quarter_bytes(depth(), value_depth(), COLUMNS);
    }
    /* The first warp's quarter. */
    __device__ __forceinline__ unsigned char *stage(int number) const
    {
        return memory + number * (int)ATTENTION_MMA_WARPS * quarter_bytes();
    }
    __device__ __forceinline__ unsigned char *quarter(int number) const
    {
        return stage(number) + threadIdx.x / KS_WARP * quarter_bytes();
    }
    __device__ __forceinline__ int behind(int number) const
    {
        return number + 1 == a.stages ? 0 : number + 1;
    }
    __device__ __forceinline__ void open(const attention_run &run)
    {
        const attention_item &w = run.w;
        next += run.behind - w.split;
        blocks = (int)((w.end - w.first + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK);
        if (blocks <= 0) return;
        key = (const T *)(job.in + a.key) + w.batch * a.s.key.batch + w.kv_head * a.s.key.head + w.first * a.s.key.row;
        value = (const T *)(job.in + a.value) + w.batch * a.s.value.batch + w.kv_head * a.s.value.head +
                w.first * a.s.value.row;
        last = (int)min((int64_t)ATTENTION_BLOCK, w.keys - w.first - (int64_t)(blocks - 1) * ATTENTION_BLOCK);
        attention_ask_query<T, uint32_t>(a, job, w, attention_apart_rows(a.rows), depth(),
                                         queries + query_put * query_bytes());
        query_put = behind(query_put);
    }
    __device__ __forceinline__ void ask(int to)
    {
#pragma unroll 1
        while (blocks <= 0 && next < stop) open(attention_run_of(site, a, job, next, stop));
        if (blocks > 0) {
            unsigned char *const own = quarter(to);
            const int count = blocks > 1 ? (int)ATTENTION_BLOCK : last;
            attention_ask_quarter<T, DEPTH>(a, key, a.s.key.row, count, depth(), own);
            attention_ask_quarter<T, DEPTH>(a, value, a.s.value.row, count, value_depth(),
                                            own + ATTENTION_M * attention_row_bytes(depth()));
            key += ATTENTION_BLOCK * a.s.key.row;
            value += ATTENTION_BLOCK * a.s.value.row;
            blocks--;
        }
        mm_copy_commit();
    }
    __device__ __forceinline__ void begin()
    {
#pragma unroll 1
        for (int i = 0; i < a.stages; i++) ask(i);
    }
    /* Of the run whose first block is taken next; it stays until its last block is given. */
    __device__ __forceinline__ const unsigned char *take_query()
    {
        const unsigned char *const query = queries + query_taken * query_bytes();
        query_taken = behind(query_taken);
        return query;
    }
    /* The warp's quarter of the next block is there. fresh: the run's first one, with which the query comes, of which all warps bring some. */
    __device__ __forceinline__ unsigned char *take(bool fresh) const
    {
        attention_wait_stages(a.stages);
        if (fresh)
            __syncthreads();
        else
            __syncwarp();
        return quarter(place);
    }
    /* The warp has read what it took last: another one comes in its place. */
    __device__ __forceinline__ void give()
    {
        __syncwarp();
        ask(place);
        place = behind(place);
    }
};

/* --- where a piece ends ---------------------------------------------------------------------------------------------- */

/* What the warp has of the rows that are there, in its quarter, which it has read. */
template <class T, int COLUMNS, int KEYS>
__device__ __forceinline__ void attention_leave(const attention_warp<T, COLUMNS, KEYS> &of, int rows, float *quarter)
{
    const int lane_id = threadIdx.x % KS_WARP;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float *const to = quarter + (lane_id / 4 + 8 * h) * attention_left_stride(COLUMNS);
        if (lane_id / 4 + 8 * h >= rows) continue;
#pragma unroll
        for (int f = 0; f < COLUMNS / 8; f++)
            *(float2 *)(to + f * 8 + lane_id % 4 * 2) = make_float2(of.sum[f][2 * h], of.sum[f][2 * h + 1]);
        if (lane_id % 4 == 0) *(float2 *)(to + COLUMNS) = make_float2(of.most[h], of.total[h]);
    }
}

/* What the warps have left in the ring's stage becomes the rows of a split, merged in the order of the warps. */
template <class T, int COLUMNS, class RING>
__device__ __forceinline__ void attention_merge_warps(const RING &ring, const attention_item &w, int split)
{
    const attention_shape &a = ring.a;
    const unsigned char *const stage = ring.stage(ring.place);
    const int quarter_bytes = ring.quarter_bytes();
    enum { WARPS = ATTENTION_MMA_WARPS };
    const int lane_id = threadIdx.x % KS_WARP;
#pragma unroll 1
    for (int at = threadIdx.x / KS_WARP; at < (int)a.rows; at += WARPS) {
        const attention_row r = attention_row_of<uint32_t>(a, w.batch, w.kv_head, at, w.keys);
        const unsigned char *const row = stage + at * attention_left_stride(COLUMNS) * (int)sizeof(float);
        float most = -INFINITY, total = 0, weight[WARPS];
        float2 pair[WARPS];
#pragma unroll
        for (int i = 0; i < WARPS; i++) {
            pair[i] = ((const float2 *)(row + i * quarter_bytes))[COLUMNS / 2];
            most = fmaxf(most, pair[i].x);
        }
#pragma unroll
        for (int i = 0; i < WARPS; i++) {
            weight[i] = attention_weight(pair[i].x, most);
            total = fmaf(pair[i].y, weight[i], total);
        }
        attention_writer<T> to(a, ring.job, w, r, most, total);
        to.open(ring.site, split);
        if (lane_id == 0) to.put_sums();
#pragma unroll
        for (int column = lane_id; column - lane_id < COLUMNS; column += KS_WARP) { /* behind the depth in vain */
            float value = 0;
#pragma unroll
            for (int i = 0; i < WARPS; i++)
                value = fmaf(((const float *)(row + i * quarter_bytes))[column], weight[i], value);
            to.put(column, value);
        }
    }
}

/* No row takes a key of the piece. */
template <class T>
__device__ __forceinline__ void attention_put_nothing(const attention_shape &a, const ks_site &site,
                                                      const ks_job_sides &job, const attention_item &w, int split)
{
    const int lane_id = threadIdx.x % KS_WARP;
#pragma unroll 1
    for (int at = threadIdx.x / KS_WARP; at < (int)a.rows; at += ATTENTION_MMA_WARPS) {
        const attention_row r = attention_row_of<uint32_t>(a, w.batch, w.kv_head, at, w.keys);
        attention_writer<T> to(a, job, w, r, -INFINITY, 0);
        to.open(site, split);
        if (lane_id == 0) to.put_sums();
#pragma unroll 1
        for (int column = lane_id; column < a.s.value_depth; column += KS_WARP) to.put(column, 0);
    }
}

/* --- the kernel ------------------------------------------------------------------------------------------------------ */

/* FULL: as attention_halves() has it. a.tiles is 1, or 0 where there are no rows. */
template <class T, int COLUMNS, bool FULL>
__global__ void __launch_bounds__(ATTENTION_MMA_THREADS, COLUMNS <= 128 ? 3 : 1)
    attention_apart(ks_site site, const __grid_constant__ attention_shape a)
{
    constexpr int KEYS = ATTENTION_BLOCK / ATTENTION_MMA_WARPS, STEPS = FULL ? COLUMNS / 16 : 4;
    static_assert(KEYS == ATTENTION_M, "a warp's keys are copied as rows are");
    const int depth = FULL ? COLUMNS : a.s.depth, value_depth = FULL ? COLUMNS : a.s.value_depth;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    if (a.starts) ks_start(site);
    __shared__ attention_run run; /* of which registers have no room */
    __shared__ uint32_t sharers;  /* of the run's unit; the first thread's */
    const int lane_id = threadIdx.x % KS_WARP, first_key = threadIdx.x / KS_WARP * KEYS;
    const float scale = (float)a.s.scale;
    const int64_t stop = attention_begin_of(a, (int64_t)blockIdx.x + 1);
    int64_t at = attention_begin_of(a, blockIdx.x);
    attention_quarters<T, FULL ? COLUMNS : 0, COLUMNS> ring(site, a, job, at, stop);
    ring.begin();
#pragma unroll 1
    while (at < stop) {
        __syncthreads(); /* the run before has been read */
        if (threadIdx.x == 0) {
            run = attention_run_of(site, a, job, at, stop);
            if (a.joins) sharers = attention_sharers(a, run.w.unit);
        }
        __syncthreads();
        at += run.behind - run.w.split;
        bool fresh = true;
        const unsigned char *const query = run.w.first < run.w.end ? ring.take_query() : NULL;
#pragma unroll 1
        for (int split = run.w.split; split < run.behind; split++) {
            int64_t first = max(run.w.first, split * a.part);
            const int64_t end = min(run.w.end, (split + 1) * a.part);
            if (first >= end) attention_put_nothing<T>(a, site, job, run.w, split);
            attention_warp<T, COLUMNS, KEYS> mine;
            mine.clear();
#pragma unroll 1
            for (; first < end; first += ATTENTION_BLOCK) {
                unsigned char *const keys = ring.take(fresh), *const values = keys + KEYS * attention_row_bytes(depth);
                const int64_t own = first + first_key;
                const bool whole = own + KEYS <= run.w.keys; /* of what is not there no row takes any */
                const bool all =
                    !a.s.masked && run.common.first <= own && run.common.end >= (whole ? own + KEYS : run.w.keys);
                fresh = false;
                mine.template multiply<STEPS>(query, attention_apart_rows(a.rows), keys, depth);
                if (all && whole && a.s.softcap == 0) {
                    mine.scale(scale);
                } else {
                    const attention_row r[2] = {
                        attention_row_of<uint32_t>(a, run.w.batch, run.w.kv_head, lane_id / 4, run.w.keys),
                        attention_row_of<uint32_t>(a, run.w.batch, run.w.kv_head, lane_id / 4 + 8, run.w.keys)};
                    mine.select(a, job, r, own);
                }
                mine.weigh(a.rows > 8);
                if (!all && mine.find_broken(values, value_depth))
                    mine.add_broken_values(values, value_depth);
                else
                    mine.add_values(values, value_depth);
                if (first + ATTENTION_BLOCK >= end) {
                    mine.end();
                    __syncwarp(); /* the quarter has been read */
                    attention_leave(mine, (int)a.rows, (float *)keys);
                    __syncthreads();
                    attention_merge_warps<T, COLUMNS>(ring, run.w, split);
                    __syncthreads(); /* what the warps have left has been read */
                }
                ring.give();
            }
        }
        if (a.joins) attention_merge_last<T>(site, a, job, run.w.unit, sharers);
    }
    if (a.ends) ks_leave<true>(site);
}

#endif
