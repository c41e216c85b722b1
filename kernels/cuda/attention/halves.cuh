/* Attention of FP16 and BF16 by tensor cores (mma.sync): blocks of KEYS keys come through a ring and go past a CTA's rows.
 *
 *   rows   a warp has 16 of the CTA's 64 rows, and all keys of a block
 *   apart  all warps have the same 16 rows, and each a quarter of a block's keys: they are merged in order at the end
 *
 * Threads  128.
 * Memory   dynamic: the rows of the query, then a.stages stages, each a block of keys and of values.
 * Numbers  products and sums FP32; weights are rounded to the values' datatype, their sum is of the weights before. */
#ifndef KS_ATTENTION_HALVES_CUH
#define KS_ATTENTION_HALVES_CUH

#include "cuda/attention/broken.cuh"
#include "cuda/attention/common.cuh"
#include "cuda/attention/merge.cuh"

enum {
    ATTENTION_MMA_THREADS = 128,
    ATTENTION_MMA_WARPS = ATTENTION_MMA_THREADS / KS_WARP,
    ATTENTION_BLOCK = 64, /* keys */
    ATTENTION_M = 16      /* rows of a warp */
};

/* Bytes from row to row in shared memory: an odd number of 16 bytes, so that eight rows meet no bank twice. */
__host__ __device__ __forceinline__ int attention_row_bytes(int depth)
{
    return (depth + 15) / 16 * 32 + 16;
}

__host__ __device__ __forceinline__ int attention_stage_bytes(int depth, int value_depth)
{
    return (int)ATTENTION_BLOCK * (attention_row_bytes(depth) + attention_row_bytes(value_depth));
}

/* Where the warps that are apart meet, in the place of a block: sums, then pairs of largest score and sum. */
__host__ __device__ __forceinline__ int attention_apart_bytes(int depth, int value_depth, int columns)
{
    const int parts = (int)ATTENTION_MMA_WARPS * (int)ATTENTION_M * (columns + 2) * (int)sizeof(float),
              block = attention_stage_bytes(depth, value_depth);
    return parts > block ? parts : block;
}

/* Rows of the query that memory has room for where warps are apart: eight more that are not there may be the same ones. */
__host__ __device__ __forceinline__ int attention_apart_rows(int64_t rows)
{
    return rows <= 8 ? 8 : (int)ATTENTION_M;
}

/* A vector of 8 elements of a row, of which the first `left` are there. */
template <class T>
__device__ __forceinline__ void attention_copy(bool vectors, unsigned char *to, const T *from, int left)
{
    if (vectors) {
        mm_copy_async(mm_shared_address(to), from, left > 0);
        return;
    }
    alignas(16) T eight[8];
#pragma unroll
    for (int e = 0; e < 8; e++) eight[e] = e < left ? from[e] : T(0.0f);
    *(uint4 *)to = *(const uint4 *)eight;
}

/* ATTENTION_BLOCK rows; what is behind the first `count` of them, and behind `depth`, is 0. */
template <class T, int DEPTH>
__device__ __forceinline__ void attention_ask_rows(const attention_shape &a, const T *from, int64_t stride, int count,
                                                   int depth, unsigned char *to)
{
    constexpr int UNROLLED = DEPTH ? 4 : 1; /* more spill */
    const int vectors = (depth + 15) / 16 * 2, bytes = attention_row_bytes(depth);
#pragma unroll UNROLLED
    for (int n = 0; n < ATTENTION_BLOCK * vectors / ATTENTION_MMA_THREADS; n++) { /* vectors are even */
        const int i = n * ATTENTION_MMA_THREADS + threadIdx.x, row = i / vectors, vector = i - row * vectors;
        const bool there = row < count;
        attention_copy(DEPTH || a.vectors, to + row * bytes + vector * 16,
                       there && vector * 8 < depth ? from + row * stride + vector * 8 : from,
                       there ? depth - vector * 8 : 0);
    }
}

/* The tile's rows of the query, which lie where their heads lie. */
template <class T>
__device__ __forceinline__ void attention_ask_query(const attention_shape &a, const ks_job_sides &job,
                                                    const attention_item &w, int rows, int depth, unsigned char *to)
{
    const int vectors = (depth + 15) / 16 * 2, bytes = attention_row_bytes(depth);
    for (int i = threadIdx.x; i < rows * vectors; i += ATTENTION_MMA_THREADS) {
        const int row = i / vectors, vector = i - row * vectors;
        const attention_row r = attention_row_of(a, w.batch, w.kv_head, w.row + row, w.keys);
        const T *const from = (const T *)(job.in + a.query) + w.batch * a.s.query.batch + r.head * a.s.query.head +
                              r.query * a.s.query.row;
        const int left = r.there ? depth - vector * 8 : 0;
        attention_copy(a.vectors, to + row * bytes + vector * 16, left > 0 ? from + vector * 8 : from, left);
    }
}

/* What a warp has: 16 rows by COLUMNS sums, and its weights of KEYS keys. */
template <class T, int COLUMNS, int KEYS>
struct attention_warp {
    static constexpr int TILES = KEYS / 8, FOURS = COLUMNS / 8;
    float sum[FOURS][4];
    float score[TILES][4];
    float most[2], total[2]; /* of rows lane / 4 and lane / 4 + 8 */
    uint32_t taken;          /* of the scores, a bit each */

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int f = 0; f < FOURS; f++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[f][e] = 0;
        most[0] = most[1] = -INFINITY;
        total[0] = total[1] = 0;
    }
    /* STEPS: of 16 elements, that are unrolled. held: rows of the query in memory, 16 or 8. */
    template <int STEPS>
    __device__ __forceinline__ void multiply(const unsigned char *query, int held, const unsigned char *keys, int depth)
    {
        const int lane_id = threadIdx.x % KS_WARP, bytes = attention_row_bytes(depth);
        const unsigned a_at = mm_shared_address(query) + lane_id % held * bytes + lane_id / 16 * 16;
        const unsigned b_at = mm_shared_address(keys) + (lane_id % 8 + lane_id / 16 * 8) * bytes + lane_id / 8 % 2 * 16;
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int e = 0; e < 4; e++) score[t][e] = 0;
#pragma unroll STEPS
        for (int k = 0; k < depth; k += 16) {
            uint32_t q[4];
            mm_ldmatrix<false>(q, a_at + k * 2);
#pragma unroll
            for (int t = 0; t < TILES; t += 2) {
                uint32_t b[4];
                mm_ldmatrix<false>(b, b_at + t * 8 * bytes + k * 2);
                mm_mma(T(), score[t], q, b[0], b[1]);
                mm_mma(T(), score[t + 1], q, b[2], b[3]);
            }
        }
    }
    /* Products become scores; whether each row takes each key. first: the first key's number. */
    __device__ __forceinline__ bool select(const attention_shape &a, const ks_job_sides &job,
                                           const attention_row (&r)[2], int64_t first)
    {
        const int lane_id = threadIdx.x % KS_WARP;
        bool all = !a.s.masked;
#pragma unroll
        for (int h = 0; h < 2; h++) /* a row that is not there may take all, as nothing becomes of it */
            all = all && (!r[h].there || (r[h].range.first <= first && r[h].range.end >= first + KEYS));
        all = !__any_sync(0xFFFFFFFFu, !all);
        taken = 0xFFFFFFFFu;
        if (all && a.s.softcap == 0) {
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int e = 0; e < 4; e++) score[t][e] *= (float)a.s.scale;
            return true;
        }
        taken = 0;
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                bool takes;
                score[t][e] =
                    attention_score<T>(a, job, r[e / 2], first + t * 8 + lane_id % 4 * 2 + e % 2, score[t][e], &takes);
                taken |= (uint32_t)takes << (t * 4 + e);
            }
        return all;
    }
    __device__ __forceinline__ void weigh()
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float here = most[h], added = 0;
#pragma unroll
            for (int t = 0; t < TILES; t++) here = fmaxf(here, fmaxf(score[t][2 * h], score[t][2 * h + 1]));
#pragma unroll
            for (int distance = 1; distance < 4; distance *= 2) here = fmaxf(here, ks_shuffle(here, distance));
            const float reference = attention_reference(here), weight = attention_weight(most[h], here);
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) {
                    score[t][e] = ks_exp2_quick((score[t][e] - reference) * ATTENTION_LOG2_E);
                    added += score[t][e];
                }
#pragma unroll
            for (int f = 0; f < FOURS; f++) {
                sum[f][2 * h] *= weight;
                sum[f][2 * h + 1] *= weight;
            }
            total[h] = fmaf(total[h], weight, added); /* of this thread's keys: its row's other threads have the rest */
            most[h] = here;
        }
    }
    __device__ __forceinline__ void load_values(const unsigned char *values, int bytes, int key, int column,
                                                uint32_t (&b)[4]) const
    {
        const int lane_id = threadIdx.x % KS_WARP;
        mm_ldmatrix<true>(b,
                          mm_shared_address(values) + (key + lane_id % 16) * bytes + (column + lane_id / 16 * 8) * 2);
    }
    /* Of 16 keys, from tile t on. */
    __device__ __forceinline__ void weights_of(int t, uint32_t (&w)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            w[i] = ks_round_two<T>(score[t + i / 2][i % 2 * 2], score[t + i / 2][i % 2 * 2 + 1]);
    }
    __device__ __forceinline__ void taken_of(int t, uint32_t (&w)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t two = taken >> ((t + i / 2) * 4 + i % 2 * 2);
            w[i] = ks_round_two<T>(two & 1 ? 1.0f : 0.0f, two & 2 ? 1.0f : 0.0f);
        }
    }
    __device__ __forceinline__ void add_values(const unsigned char *values, int depth)
    {
        const int bytes = attention_row_bytes(depth);
#pragma unroll
        for (int t = 0; t < TILES; t += 2) {
            uint32_t w[4];
            weights_of(t, w);
#pragma unroll
            for (int f = 0; f < FOURS; f += 2) {
                uint32_t b[4];
                if (f * 8 >= depth) break;
                load_values(values, bytes, t * 8, f * 8, b);
                mm_mma(T(), sum[f], w, b[0], b[1]);
                mm_mma(T(), sum[f + 1], w, b[2], b[3]);
            }
        }
    }
    /* Whether a value of the warp's keys is not finite. */
    __device__ __forceinline__ bool find_broken(const unsigned char *values, int depth) const
    {
        const int bytes = attention_row_bytes(depth), vectors = (depth + 15) / 16 * 2;
        uint32_t found = 0;
        for (int i = threadIdx.x % KS_WARP; i < KEYS * vectors; i += KS_WARP) {
            const uint4 eight = *(const uint4 *)(values + i / vectors * bytes + i % vectors * 16);
            found |= attention_broken<T>(eight.x) | attention_broken<T>(eight.y) | attention_broken<T>(eight.z) |
                     attention_broken<T>(eight.w);
        }
        return __any_sync(0xFFFFFFFFu, found != 0);
    }
    /* As add_values(), where values that are not finite only reach rows that take their keys. */
    __device__ __forceinline__ void add_broken_values(const unsigned char *values, int depth)
    {
        const int bytes = attention_row_bytes(depth);
#pragma unroll
        for (int t = 0; t < TILES; t += 2) {
            uint32_t w[4], takes[4];
            weights_of(t, w);
            taken_of(t, takes);
#pragma unroll
            for (int f = 0; f < FOURS; f += 2) {
                uint32_t b[4], whole[4];
                if (f * 8 >= depth) break;
                load_values(values, bytes, t * 8, f * 8, b);
#pragma unroll
                for (int i = 0; i < 4; i++) whole[i] = b[i] & ~attention_broken<T>(b[i]);
                mm_mma(T(), sum[f], w, whole[0], whole[1]);
                mm_mma(T(), sum[f + 1], w, whole[2], whole[3]);
#pragma unroll 1
                for (int kind = 0; kind < 3; kind++) attention_taint<T>(takes, b, sum[f], kind);
            }
        }
    }
    __device__ __forceinline__ void end()
    {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int distance = 1; distance < 4; distance *= 2) total[h] += ks_shuffle(total[h], distance);
    }
};

/* --- what a row becomes ---------------------------------------------------------------------------------------------- */

/* The row's largest score and sum, by one thread; a value, by the thread that has it. */
template <class T>
struct attention_writer {
    const attention_shape &a;
    const ks_job_sides &job;
    const attention_item &w;
    const attention_row &r;
    float *part; /* NULL: the row is whole */
    float most, total;
    T *out;

    __device__ __forceinline__ attention_writer(const attention_shape &shape, const ks_job_sides &sides,
                                                const attention_item &item, const attention_row &of, float largest,
                                                float sum)
        : a(shape), job(sides), w(item), r(of), part(NULL), most(largest), total(sum), out(NULL)
    {
    }
    __device__ __forceinline__ void open(const ks_site &site)
    {
        if (!r.there) return;
        if (a.splits > 1)
            part = attention_part(a, site, w.unit, r.number);
        else
            out = attention_out<T>(a, job, w.batch, r);
    }
    __device__ __forceinline__ void put_sums() const
    {
        if (!r.there) return;
        if (part) {
            part[2 * w.split] = most;
            part[2 * w.split + 1] = total;
        } else {
            attention_put_lse(a, job, w.batch, r, most, total);
        }
    }
    __device__ __forceinline__ void put(int column, float value) const
    {
        if (!r.there || column >= a.s.value_depth) return;
        if (part)
            part[2 * a.splits + (int64_t)w.split * a.s.value_depth + column] = value;
        else
            out[column] = ks_round<T>(attention_value(a, most, total, value));
    }
};

template <class T, int COLUMNS, int KEYS>
__device__ __forceinline__ void attention_put_rows(const attention_shape &a, const ks_site &site,
                                                   const ks_job_sides &job, const attention_item &w, int64_t row,
                                                   const attention_warp<T, COLUMNS, KEYS> &of)
{
    const int lane_id = threadIdx.x % KS_WARP;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const attention_row r = attention_row_of(a, w.batch, w.kv_head, row + 8 * h, w.keys);
        attention_writer<T> to(a, job, w, r, of.most[h], of.total[h]);
        to.open(site);
        if (lane_id % 4 == 0) to.put_sums();
#pragma unroll
        for (int f = 0; f < COLUMNS / 8; f++)
#pragma unroll
            for (int e = 0; e < 2; e++) to.put(f * 8 + lane_id % 4 * 2 + e, of.sum[f][2 * h + e]);
    }
}

/* The warps' parts of 16 rows, merged in the order of the warps. memory: attention_apart_bytes, which nothing reads any more. */
template <class T, int COLUMNS, int KEYS>
__device__ __forceinline__ void attention_merge_warps(const attention_shape &a, const ks_site &site,
                                                      const ks_job_sides &job, const attention_item &w, float *memory,
                                                      const attention_warp<T, COLUMNS, KEYS> &of)
{
    const int lane_id = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP;
    float *const pairs = memory + ATTENTION_MMA_WARPS * ATTENTION_M * COLUMNS;
    const int rows = (int)min((int64_t)ATTENTION_M, a.rows - w.row);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (lane_id / 4 + 8 * h >= rows) continue;
        const int row = warp * ATTENTION_M + lane_id / 4 + 8 * h;
#pragma unroll
        for (int f = 0; f < COLUMNS / 8; f++)
            *(float2 *)(memory + row * COLUMNS + f * 8 + lane_id % 4 * 2) =
                make_float2(of.sum[f][2 * h], of.sum[f][2 * h + 1]);
        if (lane_id % 4 == 0) pairs[2 * row] = of.most[h];
        if (lane_id % 4 == 0) pairs[2 * row + 1] = of.total[h];
    }
    __syncthreads();
#pragma unroll 1
    for (int at = warp; at < rows; at += ATTENTION_MMA_WARPS) {
        const attention_row r = attention_row_of(a, w.batch, w.kv_head, w.row + at, w.keys);
        float most = -INFINITY, total = 0, weight[ATTENTION_MMA_WARPS];
#pragma unroll
        for (int i = 0; i < ATTENTION_MMA_WARPS; i++) most = fmaxf(most, pairs[2 * (i * ATTENTION_M + at)]);
#pragma unroll
        for (int i = 0; i < ATTENTION_MMA_WARPS; i++) {
            weight[i] = attention_weight(pairs[2 * (i * ATTENTION_M + at)], most);
            total = fmaf(pairs[2 * (i * ATTENTION_M + at) + 1], weight[i], total);
        }
        attention_writer<T> to(a, job, w, r, most, total);
        to.open(site);
        if (lane_id == 0) to.put_sums();
#pragma unroll 1
        for (int column = lane_id; column < a.s.value_depth; column += KS_WARP) {
            float value = 0;
#pragma unroll
            for (int i = 0; i < ATTENTION_MMA_WARPS; i++)
                value = fmaf(memory[(i * ATTENTION_M + at) * COLUMNS + column], weight[i], value);
            to.put(column, value);
        }
    }
}

/* --- the kernel ------------------------------------------------------------------------------------------------------ */

/* Blocks of a CTA's work, in order; up to a.stages of them are under way. APART: behind the blocks of one piece come those of its next
 * one, and its query with them. */
template <class T, int DEPTH, int COLUMNS, bool APART>
struct attention_ring {
    const ks_site &site;
    const attention_shape &a;
    const ks_job_sides &job;
    const T *key, *value;
    unsigned char *queries, *memory;
    int64_t at;                        /* the piece that is asked for */
    int blocks, last;                  /* of it, that are left; keys of the last one */
    int place, query_put, query_taken; /* place: the stage that is taken and given next */

    __device__ __forceinline__ attention_ring(const ks_site &where, const attention_shape &shape,
                                              const ks_job_sides &sides, unsigned char *dynamic)
        : site(where), a(shape), job(sides), queries(dynamic), at(blockIdx.x), place(0), query_put(0), query_taken(0)
    {
        memory = queries + query_bytes() * (APART ? a.stages : 1);
    }
    __device__ __forceinline__ int depth() const
    {
        return DEPTH ? DEPTH : a.s.depth;
    }
    __device__ __forceinline__ int value_depth() const
    {
        return DEPTH ? DEPTH : a.s.value_depth;
    }
    __device__ __forceinline__ int held() const
    {
        return APART ? attention_apart_rows(a.rows) : (int)ATTENTION_M;
    }
    __device__ __forceinline__ int query_bytes() const
    {
        return (APART ? held() : (int)ATTENTION_M * (int)ATTENTION_MMA_WARPS) * attention_row_bytes(depth());
    }
    __device__ __forceinline__ int stage_bytes() const
    {
        return APART ? attention_apart_bytes(depth(), value_depth(), COLUMNS)
                     : attention_stage_bytes(depth(), value_depth());
    }
    __device__ __forceinline__ int behind(int place) const
    {
        return place + 1 == a.stages ? 0 : place + 1;
    }
    __device__ __forceinline__ void open(const attention_item &w)
    {
        key = (const T *)(job.in + a.key) + w.batch * a.s.key.batch + w.kv_head * a.s.key.head;
        value = (const T *)(job.in + a.value) + w.batch * a.s.value.batch + w.kv_head * a.s.value.head;
        key += w.first * a.s.key.row;
        value += w.first * a.s.value.row;
        blocks = (int)((w.end - w.first + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK);
        if (blocks <= 0) return;
        last = (int)min((int64_t)ATTENTION_BLOCK, w.keys - w.first - (int64_t)(blocks - 1) * ATTENTION_BLOCK);
        attention_ask_query<T>(a, job, w, query_bytes() / attention_row_bytes(depth()), depth(),
                               queries + query_put * query_bytes());
        if (APART) query_put = behind(query_put);
    }
    __device__ __forceinline__ void ask(int to)
    {
        while (APART && blocks <= 0 && at < a.units * a.tiles * a.splits) {
            at += gridDim.x;
            if (at < a.units * a.tiles * a.splits)
                open(attention_item_of(site, a, job, at, ATTENTION_M, ATTENTION_BLOCK));
        }
        if (blocks > 0) {
            unsigned char *const stage = memory + to * stage_bytes();
            const int count = blocks > 1 ? (int)ATTENTION_BLOCK : last;
            attention_ask_rows<T, DEPTH>(a, key, a.s.key.row, count, depth(), stage);
            attention_ask_rows<T, DEPTH>(a, value, a.s.value.row, count, value_depth(),
                                         stage + ATTENTION_BLOCK * attention_row_bytes(depth()));
            key += ATTENTION_BLOCK * a.s.key.row;
            value += ATTENTION_BLOCK * a.s.value.row;
            blocks--;
        }
        mm_copy_commit();
    }
    __device__ __forceinline__ void begin(const attention_item &w)
    {
        open(w);
        for (int i = 0; i < a.stages; i++) ask(i);
        place = 0;
    }
    /* Of the piece whose first block is taken next; it stays until its last block is given. */
    __device__ __forceinline__ const unsigned char *take_query()
    {
        const unsigned char *const query = queries + query_taken * query_bytes();
        if (APART) query_taken = behind(query_taken);
        return query;
    }
    /* The next block is there, and the query. */
    __device__ __forceinline__ unsigned char *take()
    {
        if (a.stages > 3)
            mm_copy_wait<3>();
        else if (a.stages == 3)
            mm_copy_wait<2>();
        else if (a.stages == 2)
            mm_copy_wait<1>();
        else
            mm_copy_wait<0>();
        __syncthreads();
        return memory + place * stage_bytes();
    }
    /* What was taken last has been read: another one comes in its place. */
    __device__ __forceinline__ void give()
    {
        __syncthreads();
        ask(place);
        place = behind(place);
    }
};

/* FULL: depth and value_depth are COLUMNS, and a.vectors is set: loops of a known length; of 256 that would spill. */
template <class T, int COLUMNS, bool APART, bool FULL>
__global__ void __launch_bounds__(ATTENTION_MMA_THREADS, APART &&COLUMNS <= 128 ? 3 : 1)
    attention_halves(ks_site site, const __grid_constant__ attention_shape a)
{
    constexpr int KEYS = APART ? ATTENTION_BLOCK / ATTENTION_MMA_WARPS : ATTENTION_BLOCK;
    constexpr int ROWS = APART ? ATTENTION_M : ATTENTION_M * ATTENTION_MMA_WARPS;
    constexpr int STEPS = FULL ? COLUMNS / 16 : 2;
    const int depth = FULL ? COLUMNS : a.s.depth, value_depth = FULL ? COLUMNS : a.s.value_depth;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    if (a.starts) ks_start(site);
    const int warp = threadIdx.x / KS_WARP, lane_id = threadIdx.x % KS_WARP;
    const int first_row = APART ? 0 : warp * ATTENTION_M, first_key = APART ? warp * KEYS : 0;
    __shared__ attention_item item; /* APART: of which registers have no room */
    attention_ring<T, FULL ? COLUMNS : 0, COLUMNS, APART> ring(site, a, job, (unsigned char *)ks_dynamic);
#pragma unroll 1
    for (int64_t at = blockIdx.x; at < a.units * a.tiles * a.splits; at += gridDim.x) {
        const attention_item w = attention_item_of(site, a, job, at, ROWS, ATTENTION_BLOCK);
        const int64_t row = w.row + first_row + lane_id / 4;
        const attention_row r[2] = {attention_row_of(a, w.batch, w.kv_head, row, w.keys),
                                    attention_row_of(a, w.batch, w.kv_head, row + 8, w.keys)};
        attention_warp<T, COLUMNS, KEYS> mine;
        mine.clear();
        if (APART && threadIdx.x == 0) item = w;
        if (!APART || at == blockIdx.x) {
            if (!APART) __syncthreads(); /* what was there of the tile before has been read */
            ring.begin(w);
        }
        const unsigned char *const query =
            w.first < w.end ? ring.take_query() + first_row * attention_row_bytes(depth) : NULL;
#pragma unroll 1
        for (int64_t first = w.first; first < w.end; first += ATTENTION_BLOCK) {
            unsigned char *const stage = ring.take();
            const unsigned char *const values =
                stage + ATTENTION_BLOCK * attention_row_bytes(depth) + first_key * attention_row_bytes(value_depth);
            mine.template multiply<STEPS>(query, ring.held(), stage + first_key * attention_row_bytes(depth), depth);
            const bool all = mine.select(a, job, r, first + first_key);
            mine.weigh();
            if (!all && mine.find_broken(values, value_depth))
                mine.add_broken_values(values, value_depth);
            else
                mine.add_values(values, value_depth);
            if (APART && first + ATTENTION_BLOCK >= w.end) {
                mine.end();
                __syncthreads(); /* the block has been read */
                attention_merge_warps(a, site, job, item, (float *)stage, mine);
            }
            ring.give();
        }
        if (APART) {
            if (w.first >= w.end) {
                __syncthreads();
                if (warp == 0) attention_put_rows(a, site, job, item, item.row + lane_id / 4, mine);
                __syncthreads();
            }
            if (a.joins) attention_merge_last<T>(site, a, job, item.unit);
            continue;
        }
        mine.end();
        mm_copy_wait<0>();
        uint32_t first_again = lane_id / 4;
        ks_anew(first_again); /* which row it is takes registers that the loop has not */
        const int64_t again = w.row + first_row + first_again;
        attention_put_rows(a, site, job, w, again, mine);
    }
    if (a.ends) ks_leave<true>(site);
}

#endif
