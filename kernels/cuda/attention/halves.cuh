/* Attention of FP16 and BF16 by tensor cores (mma.sync): blocks of ATTENTION_BLOCK keys come through a ring and go past a CTA's rows, of which
 * a warp has 16. What a warp does with its rows and keys is here for apart.cuh, too, where warps share rows and not keys.
 *
 * Threads  128.
 * Memory   dynamic: the rows of the query, then a.stages stages, each a block of keys and of values.
 * Numbers  products and sums FP32; weights are rounded to the values' datatype, their sum is of the weights before. */
#ifndef KS_ATTENTION_HALVES_CUH
#define KS_ATTENTION_HALVES_CUH

#include "cuda/attention/broken.cuh"
#include "cuda/attention/common.cuh"

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

/* i / vectors without a division, for i below ATTENTION_BLOCK * 32 and rows of up to 32 vectors: what the factor is too large by, below
 * `vectors` times 2^-16, adds less than what is missing to the next row. */
struct attention_rows_of {
    unsigned by;
    __device__ __forceinline__ explicit attention_rows_of(int vectors) : by(65535u / (unsigned)vectors + 1)
    {
    }
    __device__ __forceinline__ int operator()(int i) const
    {
        return (int)((unsigned)i * by >> 16);
    }
};

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
    const attention_rows_of row_of(vectors);
#pragma unroll UNROLLED
    for (int n = 0; n < ATTENTION_BLOCK * vectors / ATTENTION_MMA_THREADS; n++) { /* vectors are even */
        const int i = n * ATTENTION_MMA_THREADS + threadIdx.x, row = DEPTH ? i / vectors : row_of(i),
                  vector = i - row * vectors;
        const bool there = row < count;
        attention_copy(DEPTH || a.vectors, to + row * bytes + vector * 16,
                       there && vector * 8 < depth ? from + row * stride + vector * 8 : from,
                       there ? depth - vector * 8 : 0);
    }
}

/* For the oldest of as many copies as a ring has stages. */
__device__ __forceinline__ void attention_wait_stages(int stages)
{
    if (stages > 3)
        mm_copy_wait<3>();
    else if (stages == 3)
        mm_copy_wait<2>();
    else if (stages == 2)
        mm_copy_wait<1>();
    else
        mm_copy_wait<0>();
}

/* The tile's rows of the query, which lie where their heads lie: a row is eight threads', so that few look for where it lies. */
template <class T, class INDEX = int64_t>
__device__ __forceinline__ void attention_ask_query(const attention_shape &a, const ks_job_sides &job,
                                                    const attention_item &w, int rows, int depth, unsigned char *to)
{
    enum { SHARERS = 8 };
    const int vectors = (depth + 15) / 16 * 2, bytes = attention_row_bytes(depth);
    const T *const query = (const T *)(job.in + a.query) + w.batch * a.s.query.batch;
#pragma unroll 1
    for (int row = threadIdx.x / SHARERS; row < rows; row += ATTENTION_MMA_THREADS / SHARERS) {
        const attention_row r = attention_row_of<INDEX>(a, w.batch, w.kv_head, w.row + row, w.keys);
        const T *const from = query + r.head * a.s.query.head + r.query * a.s.query.row;
#pragma unroll 1
        for (int vector = threadIdx.x % SHARERS; vector < vectors; vector += SHARERS) {
            const int left = r.there ? depth - vector * 8 : 0;
            attention_copy(a.vectors, to + row * bytes + vector * 16, left > 0 ? from + vector * 8 : from, left);
        }
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
    /* Whether each row takes each key that is there: those behind `keys` are not. first: the first key's number. */
    __device__ __forceinline__ bool takes_all(const attention_shape &a, const attention_row (&r)[2], int64_t first,
                                              int64_t keys) const
    {
        const int64_t end = min(first + KEYS, keys);
        bool all = !a.s.masked;
#pragma unroll
        for (int h = 0; h < 2; h++) /* a row that is not there may take all, as nothing becomes of it */
            all = all && (!r[h].there || (r[h].range.first <= first && r[h].range.end >= end));
        return !__any_sync(0xFFFFFFFFu, !all);
    }
    /* Products become scores, where each row takes each key and there is no softcap; */
    __device__ __forceinline__ void scale(float by)
    {
        taken = 0xFFFFFFFFu;
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int e = 0; e < 4; e++) score[t][e] *= by;
    }
    /* where causal, window and lengths alone leave keys out; */
    __device__ __forceinline__ void limit(float by, const attention_row (&r)[2], int64_t first)
    {
        const int own = threadIdx.x % KS_WARP % 4 * 2;
        taken = 0;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int from = (int)min(max(r[h].range.first - first, (int64_t)0), (int64_t)KEYS),
                      end = (int)min(max(r[h].range.end - first, (int64_t)0), (int64_t)KEYS);
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) {
                    const int key = own + t * 8 + e % 2;
                    const bool takes = key >= from && key < end;
                    score[t][e] = takes ? score[t][e] * by : -INFINITY;
                    taken |= (uint32_t)takes << (t * 4 + e);
                }
        }
    }
    /* else. */
    __device__ __forceinline__ void select(const attention_shape &a, const ks_job_sides &job,
                                           const attention_row (&r)[2], int64_t first)
    {
        const int lane_id = threadIdx.x % KS_WARP;
        if (!a.s.masked && a.s.softcap == 0) {
            limit((float)a.s.scale, r, first);
            return;
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
    }
    /* both: rows behind the eighth are there; else what they weigh may be anything. */
    __device__ __forceinline__ void weigh(bool both)
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (h > 0 && !both) break;
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
        const attention_rows_of row_of(vectors);
        uint32_t found = 0;
#pragma unroll 4
        for (int n = 0; n < KEYS * vectors / KS_WARP; n++) { /* vectors are even */
            const int i = n * KS_WARP + threadIdx.x % KS_WARP, row = row_of(i), vector = i - row * vectors;
            const uint4 eight = *(const uint4 *)(values + row * bytes + vector * 16);
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

/* The row's largest score and sum, by one thread; a value, by the thread that has it. Values are multiplied by 1 / sum: a division for each is
 * most of what a CTA of one block does. */
template <class T>
struct attention_writer {
    const attention_shape &a;
    const ks_job_sides &job;
    const attention_row &r;
    int64_t unit, batch;
    int split;
    float *part, *values;          /* NULL: the row is whole */
    float most, total, each, none; /* each: 1 / total; none: what a row is that attends to nothing */
    bool nothing;
    T *out;

    __device__ __forceinline__ attention_writer(const attention_shape &shape, const ks_job_sides &sides,
                                                const attention_item &w, const attention_row &of, float largest,
                                                float sum)
        : a(shape), job(sides), r(of), unit(w.unit), batch(w.batch), split(0), part(NULL), values(NULL), most(largest),
          total(sum), each(1 / sum), none(shape.s.nan_rows ? NAN : 0), nothing(attention_is_nothing(largest, sum)),
          out(NULL)
    {
    }
    __device__ __forceinline__ void open(const ks_site &site, int of_keys)
    {
        split = of_keys;
        if (!r.there) return;
        if (a.splits > 1) {
            part = attention_part(a, site, unit, r.number);
            values = part + 2 * a.splits + (int64_t)split * a.s.value_depth;
        } else {
            out = attention_out<T>(a, job, batch, r);
        }
    }
    __device__ __forceinline__ void put_sums() const
    {
        if (!r.there) return;
        if (part) {
            part[2 * split] = most;
            part[2 * split + 1] = total;
        } else {
            attention_put_lse(a, job, batch, r, most, total);
        }
    }
    __device__ __forceinline__ void put(int column, float value) const
    {
        if (!r.there || column >= a.s.value_depth) return;
        if (part)
            values[column] = value;
        else
            out[column] = ks_round<T>(share(value));
    }
    __device__ __forceinline__ float share(float value) const
    {
        return nothing ? none : fmaf(value, each, 0.0f);
    }
    /* Of two columns, the first of them even. */
    __device__ __forceinline__ void put(int column, float first, float second) const
    {
        if (part || !a.vectors) {
            put(column, first);
            put(column + 1, second);
        } else if (r.there && column < a.s.value_depth) {
            *(uint32_t *)(out + column) = ks_round_two<T>(share(first), share(second));
        }
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
        to.open(site, w.split);
        if (lane_id % 4 == 0) to.put_sums();
#pragma unroll
        for (int f = 0; f < COLUMNS / 8; f++) to.put(f * 8 + lane_id % 4 * 2, of.sum[f][2 * h], of.sum[f][2 * h + 1]);
    }
}

/* --- the kernel ------------------------------------------------------------------------------------------------------ */

/* Blocks of a tile, in order; up to a.stages of them are under way. */
template <class T, int DEPTH>
struct attention_ring {
    const ks_site &site;
    const attention_shape &a;
    const ks_job_sides &job;
    const T *key, *value;
    unsigned char *query, *memory;
    int blocks, last; /* that are left; keys of the last one */
    int place;        /* the stage that is taken and given next */

    __device__ __forceinline__ attention_ring(const ks_site &where, const attention_shape &shape,
                                              const ks_job_sides &sides, unsigned char *dynamic)
        : site(where), a(shape), job(sides), query(dynamic), place(0)
    {
        memory = query + ATTENTION_M * ATTENTION_MMA_WARPS * attention_row_bytes(depth());
    }
    __device__ __forceinline__ int depth() const
    {
        return DEPTH ? DEPTH : a.s.depth;
    }
    __device__ __forceinline__ int value_depth() const
    {
        return DEPTH ? DEPTH : a.s.value_depth;
    }
    __device__ __forceinline__ int stage_bytes() const
    {
        return attention_stage_bytes(depth(), value_depth());
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
    }
    __device__ __forceinline__ void ask(int to)
    {
        if (blocks <= 0) return;
        unsigned char *const stage = memory + to * stage_bytes();
        const int count = blocks > 1 ? (int)ATTENTION_BLOCK : last;
        attention_ask_rows<T, DEPTH>(a, key, a.s.key.row, count, depth(), stage);
        attention_ask_rows<T, DEPTH>(a, value, a.s.value.row, count, value_depth(),
                                     stage + ATTENTION_BLOCK * attention_row_bytes(depth()));
        key += ATTENTION_BLOCK * a.s.key.row;
        value += ATTENTION_BLOCK * a.s.value.row;
        blocks--;
    }
    /* The query comes with the first block, and behind it, as it takes longer to find. */
    __device__ __forceinline__ void begin(const attention_item &w)
    {
        open(w);
        const bool some = blocks > 0;
#pragma unroll 1
        for (int i = 0; i < a.stages; i++) {
            ask(i);
            if (some && i == 0) attention_ask_query<T>(a, job, w, ATTENTION_M * ATTENTION_MMA_WARPS, depth(), query);
            mm_copy_commit();
        }
        place = 0;
    }
    /* The next block is there, and the query. */
    __device__ __forceinline__ unsigned char *take()
    {
        attention_wait_stages(a.stages);
        __syncthreads();
        return memory + place * stage_bytes();
    }
    /* What was taken last has been read: another one comes in its place. */
    __device__ __forceinline__ void give()
    {
        __syncthreads();
        ask(place);
        mm_copy_commit();
        place = place + 1 == a.stages ? 0 : place + 1;
    }
};

/* FULL: depth and value_depth are COLUMNS, and a.vectors is set: loops of a known length; of 256 that would spill. */
template <class T, int COLUMNS, bool FULL>
__global__ void __launch_bounds__(ATTENTION_MMA_THREADS, 1)
    attention_halves(ks_site site, const __grid_constant__ attention_shape a)
{
    constexpr int KEYS = ATTENTION_BLOCK, ROWS = ATTENTION_M * ATTENTION_MMA_WARPS;
    constexpr int STEPS = FULL ? COLUMNS / 16 : 2;
    const int depth = FULL ? COLUMNS : a.s.depth, value_depth = FULL ? COLUMNS : a.s.value_depth;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    if (a.starts) ks_start(site);
    const int lane_id = threadIdx.x % KS_WARP, first_row = threadIdx.x / KS_WARP * ATTENTION_M;
    attention_ring<T, FULL ? COLUMNS : 0> ring(site, a, job, (unsigned char *)ks_dynamic);
#pragma unroll 1
    for (int64_t at = blockIdx.x; at < a.units * a.tiles * a.splits; at += gridDim.x) {
        const attention_item w = attention_item_of(site, a, job, at, ROWS, ATTENTION_BLOCK);
        attention_warp<T, COLUMNS, KEYS> mine;
        mine.clear();
        __syncthreads(); /* what was there of the tile before has been read */
        ring.begin(w);
        const int64_t row = w.row + first_row + lane_id / 4; /* looked for while the first blocks come */
        const attention_row r[2] = {attention_row_of(a, w.batch, w.kv_head, row, w.keys),
                                    attention_row_of(a, w.batch, w.kv_head, row + 8, w.keys)};
        const unsigned char *const query = ring.query + first_row * attention_row_bytes(depth);
#pragma unroll 1
        for (int64_t first = w.first; first < w.end; first += ATTENTION_BLOCK) {
            unsigned char *const stage = ring.take();
            const unsigned char *const values = stage + ATTENTION_BLOCK * attention_row_bytes(depth);
            mine.template multiply<STEPS>(query, ATTENTION_M, stage, depth);
            const bool all = mine.takes_all(a, r, first, w.keys);
            if (all && first + KEYS <= w.keys && a.s.softcap == 0)
                mine.scale((float)a.s.scale);
            else
                mine.select(a, job, r, first);
            mine.weigh(true);
            if (!all && mine.find_broken(values, value_depth))
                mine.add_broken_values(values, value_depth);
            else
                mine.add_values(values, value_depth);
            ring.give();
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
