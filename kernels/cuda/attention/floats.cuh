/* Attention of FP32 by FP32 arithmetic: a CTA has ROWS rows of a unit, and a split's keys go past them, KEYS at a time.
 *
 * Threads  128. Eight threads share a row: of a block's keys each has every eighth score, of the output four columns of each 32.
 * Memory   dynamic: the rows, a block of keys, a block of values, the block's weights, all FP32.
 * Bits     a score's terms come in the order of the elements, a row's in the order of the keys. */
#ifndef KS_ATTENTION_FLOATS_CUH
#define KS_ATTENTION_FLOATS_CUH

#include "cuda/attention/common.cuh"

enum {
    ATTENTION_THREADS = 128,
    ATTENTION_ROWS = 16,
    ATTENTION_KEYS = 32,
    ATTENTION_SHARERS = 8,
    ATTENTION_WEIGHTS = 36
};

/* Elements from row to row in shared memory: eight rows read at once meet no bank twice. */
__host__ __device__ __forceinline__ int attention_pitch(int depth)
{
    return (depth + 31) / 32 * 32 + 4;
}

__host__ __device__ __forceinline__ int attention_floats_bytes(int depth, int columns)
{
    return (((int)ATTENTION_ROWS + (int)ATTENTION_KEYS) * attention_pitch(depth) + (int)ATTENTION_KEYS * columns +
            (int)ATTENTION_ROWS * (int)ATTENTION_WEIGHTS) *
           (int)sizeof(float);
}

/* Of a block of keys or values: where it begins, and how it lies in shared memory. */
struct attention_block {
    const float *from;
    int64_t stride;
    int count, depth, columns,
        pitch; /* rows and elements that are there; elements of a row here, zeros behind; from row to row here */
};

/* ATTENTION_KEYS rows. Whether an element is not finite. */
__device__ __forceinline__ bool attention_load(bool whole, const attention_block &b, float *to)
{
    bool broken = false;
    const int vectors = b.columns / 4;
    for (int i = threadIdx.x; i < ATTENTION_KEYS * vectors; i += ATTENTION_THREADS) {
        const int row = i / vectors, column = (i - row * vectors) * 4;
        const float *const at = b.from + row * b.stride + column;
        float4 four = make_float4(0, 0, 0, 0);
        if (row < b.count && column < b.depth) {
            if (whole) {
                four = *(const float4 *)at;
            } else {
                four.x = at[0];
                if (column + 1 < b.depth) four.y = at[1];
                if (column + 2 < b.depth) four.z = at[2];
                if (column + 3 < b.depth) four.w = at[3];
            }
        }
        broken |= !(isfinite(four.x) && isfinite(four.y) && isfinite(four.z) && isfinite(four.w));
        *(float4 *)(to + row * b.pitch + column) = four;
    }
    return broken;
}

/* The tile's rows of the query, which lie where their heads lie. */
__device__ __forceinline__ void attention_load_rows(const attention_shape &a, const ks_job_sides &job,
                                                    const attention_item &w, float *to)
{
    const int columns = (a.s.depth + 3) / 4 * 4, pitch = attention_pitch(a.s.depth);
    for (int i = threadIdx.x; i < ATTENTION_ROWS * columns; i += ATTENTION_THREADS) {
        const int row = i / columns, column = i - row * columns;
        const attention_row r = attention_row_of(a, w.batch, w.kv_head, w.row + row, w.keys);
        const float *const from = (const float *)(job.in + a.query) + w.batch * a.s.query.batch +
                                  r.head * a.s.query.head + r.query * a.s.query.row;
        to[row * pitch + column] = r.there && column < a.s.depth ? from[column] : 0;
    }
}

/* A thread's part of a row: COLUMNS / 8 sums. */
template <int COLUMNS>
struct attention_sums {
    static constexpr int FOURS = COLUMNS / 32;
    float4 of[FOURS];
    float most, sum;
    float *weights; /* of the row, in shared memory */

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int f = 0; f < FOURS; f++) of[f] = make_float4(0, 0, 0, 0);
        most = -INFINITY;
        sum = 0;
    }
    __device__ __forceinline__ void scale(float by)
    {
#pragma unroll
        for (int f = 0; f < FOURS; f++) {
            of[f].x *= by;
            of[f].y *= by;
            of[f].z *= by;
            of[f].w *= by;
        }
    }
    __device__ __forceinline__ void add(float weight, const float *values)
    {
#pragma unroll
        for (int f = 0; f < FOURS; f++) {
            const float4 v = *(const float4 *)(values + f * 32);
            of[f].x = fmaf(weight, v.x, of[f].x);
            of[f].y = fmaf(weight, v.y, of[f].y);
            of[f].z = fmaf(weight, v.z, of[f].z);
            of[f].w = fmaf(weight, v.w, of[f].w);
        }
    }
};

/* Every eighth product of a row with a block's keys. */
__device__ __forceinline__ void attention_products(const float *query, const float *keys, int depth, int pitch,
                                                   float (&product)[4])
{
#pragma unroll
    for (int j = 0; j < 4; j++) product[j] = 0;
    for (int d = 0; d < depth; d += 4) {
        const float4 q = *(const float4 *)(query + d);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float4 k = *(const float4 *)(keys + j * ATTENTION_SHARERS * pitch + d);
            product[j] = fmaf(q.x, k.x, product[j]);
            product[j] = fmaf(q.y, k.y, product[j]);
            product[j] = fmaf(q.z, k.z, product[j]);
            product[j] = fmaf(q.w, k.w, product[j]);
        }
    }
}

/* Scores become weights in shared memory. The keys that the row takes, a bit each. */
template <int COLUMNS>
__device__ __forceinline__ uint32_t attention_weigh(const attention_shape &a, const ks_job_sides &job,
                                                    const attention_row &r, int64_t first, float (&product)[4],
                                                    attention_sums<COLUMNS> &sums)
{
    const int mine = threadIdx.x % ATTENTION_SHARERS, group = threadIdx.x % KS_WARP / ATTENTION_SHARERS;
    float most = -INFINITY, total = 0;
    uint32_t word = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        bool taken;
        product[j] = attention_score<float>(a, job, r, first + j * ATTENTION_SHARERS + mine, product[j], &taken);
        word |= (__ballot_sync(0xFFFFFFFFu, taken) >> group * ATTENTION_SHARERS & 0xFF) << j * ATTENTION_SHARERS;
        most = fmaxf(most, product[j]);
    }
#pragma unroll
    for (int distance = 1; distance < ATTENTION_SHARERS; distance *= 2) most = fmaxf(most, ks_shuffle(most, distance));
    most = fmaxf(most, sums.most);
    const float reference = attention_reference(most), weight = attention_weight(sums.most, most);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float e = ks_exp2((product[j] - reference) * ATTENTION_LOG2_E);
        sums.weights[j * ATTENTION_SHARERS + mine] = e;
        total += e;
    }
#pragma unroll
    for (int distance = 1; distance < ATTENTION_SHARERS; distance *= 2) total += ks_shuffle(total, distance);
    sums.sum = fmaf(sums.sum, weight, total);
    sums.most = most;
    if (weight != 1) sums.scale(weight);
    return word;
}

/* Values that are not finite only reach rows that take their keys. */
template <int COLUMNS>
__device__ __forceinline__ void attention_add_values(const float *values, uint32_t taken, bool broken,
                                                     attention_sums<COLUMNS> &sums)
{
#pragma unroll 4
    for (int j = 0; j < ATTENTION_KEYS; j++)
        if (!broken || taken >> j & 1) sums.add(sums.weights[j], values + j * COLUMNS);
}

template <int COLUMNS>
__device__ __forceinline__ void attention_put_row(const attention_shape &a, const ks_site &site,
                                                  const ks_job_sides &job, const attention_item &w,
                                                  const attention_row &r, const attention_sums<COLUMNS> &sums)
{
    const int mine = threadIdx.x % ATTENTION_SHARERS;
    const bool whole = a.splits == 1;
    float *const part = whole ? NULL : attention_part(a, site, w.unit, r.number);
    float *const to =
        whole ? attention_out<float>(a, job, w.batch, r) : part + 2 * a.splits + (int64_t)w.split * a.s.value_depth;
    if (!r.there) return;
    if (mine == 0 && whole) attention_put_lse(a, job, w.batch, r, sums.most, sums.sum);
    if (mine == 0 && !whole) part[2 * w.split] = sums.most;
    if (mine == 1 && !whole) part[2 * w.split + 1] = sums.sum;
#pragma unroll
    for (int f = 0; f < COLUMNS / 32; f++) {
        const float four[4] = {sums.of[f].x, sums.of[f].y, sums.of[f].z, sums.of[f].w};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int column = f * 32 + mine * 4 + e;
            if (column < a.s.value_depth)
                to[column] = whole ? attention_value(a, sums.most, sums.sum, four[e]) : four[e];
        }
    }
}

template <int COLUMNS>
__global__ void __launch_bounds__(ATTENTION_THREADS)
    attention_floats(ks_site site, const __grid_constant__ attention_shape a)
{
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    if (a.starts) ks_start(site);
    const int pitch = attention_pitch(a.s.depth), mine = threadIdx.x % ATTENTION_SHARERS,
              at_row = threadIdx.x / ATTENTION_SHARERS;
    float *const queries = (float *)ks_dynamic, *const keys = queries + ATTENTION_ROWS * pitch;
    float *const values = keys + ATTENTION_KEYS * pitch, *const weights = values + ATTENTION_KEYS * COLUMNS;
#pragma unroll 1
    for (int64_t at = blockIdx.x; at < a.units * a.tiles * a.splits; at += gridDim.x) {
        const attention_item w = attention_item_of(site, a, job, at, ATTENTION_ROWS, ATTENTION_KEYS);
        const attention_row r = attention_row_of(a, w.batch, w.kv_head, w.row + at_row, w.keys);
        const float *const key = (const float *)(job.in + a.key) + w.batch * a.s.key.batch + w.kv_head * a.s.key.head;
        const float *const value =
            (const float *)(job.in + a.value) + w.batch * a.s.value.batch + w.kv_head * a.s.value.head;
        attention_sums<COLUMNS> sums;
        sums.clear();
        sums.weights = weights + at_row * ATTENTION_WEIGHTS;
        __syncthreads(); /* what was there of the tile before has been read */
        attention_load_rows(a, job, w, queries);
#pragma unroll 1
        for (int64_t first = w.first; first < w.end; first += ATTENTION_KEYS) {
            const int count = (int)min((int64_t)ATTENTION_KEYS, w.keys - first);
            float product[4];
            __syncthreads();
            const attention_block k = {key + first * a.s.key.row, a.s.key.row, count, a.s.depth,
                                       (a.s.depth + 3) / 4 * 4,   pitch};
            const attention_block v = {
                value + first * a.s.value.row, a.s.value.row, count, a.s.value_depth, COLUMNS, COLUMNS};
            attention_load(a.vectors, k, keys);
            const bool mine_broken = attention_load(a.vectors, v, values);
            const bool broken = __syncthreads_or(mine_broken) != 0;
            attention_products(queries + at_row * pitch, keys + mine * pitch, a.s.depth, pitch, product);
            const uint32_t taken = attention_weigh(a, job, r, first, product, sums);
            __syncwarp();
            attention_add_values(values + mine * 4, taken, broken, sums);
        }
        attention_put_row(a, site, job, w, r, sums);
    }
    if (a.ends) ks_leave<true>(site);
}

#endif
