/* What attention's kernels share: the shape, how rows are counted, which keys they take, and what a row becomes.
 *
 * Row      the rows of a key head are those of its query heads, one head after the other: row r is query r % queries of head r / queries of the
 *          group. A unit is a batch's key head.
 * Bits     blocks begin at multiples of their keys, splits at multiples of a.part: a row's values follow from the row alone. What a row does not
 *          take adds zeros, and a sum that came to -0 is written as +0. */
#ifndef KS_ATTENTION_COMMON_CUH
#define KS_ATTENTION_COMMON_CUH

#include "cuda/common/launch.cuh"
#include "cuda/common/warp.cuh"
#include "ops/attention/attention.h"

#include <cuda.h>

/* By value to each kernel. Offsets are bytes from a job's sides. */
struct attention_shape {
    ks_attention_shape s;
    uint64_t query, key, value, mask, lengths, out, lse;
    int64_t unit, units;      /* the first one of the launch, and how many */
    int64_t rows, tiles;      /* of a unit */
    int64_t part;             /* keys of a split, a multiple of a block's */
    int64_t each, more;       /* apart: pieces of a CTA, and how many CTAs have one more */
    int32_t splits, stages;   /* stages: of the ring */
    int64_t heads, head_rows; /* wgmma: of a unit, whose tiles end with each */
    int64_t together;         /* wgmma: units whose tiles are mixed, the longest first */
    bool vectors;             /* rows of query, key and value start on 16 bytes and are whole vectors of 16 */
    bool joins;               /* the last CTA of a unit merges its splits */
    bool starts, ends;        /* of a request's launches the first, the last */
};

/* By value to the kernels that copy by tensor maps, which hold addresses. */
struct attention_maps {
    CUtensorMap key, value;
};

static const float ATTENTION_LOG2_E = 1.4426950408889634f;

/* --- which keys ------------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ int64_t attention_keys(const ks_site &site, const attention_shape &a,
                                                  const ks_job_sides &job, int64_t batch)
{
    if (!a.s.limited) return a.s.keys;
    const int64_t own = a.s.wide ? (int64_t)((const long long *)(job.in + a.lengths))[batch]
                                 : (int64_t)((const int *)(job.in + a.lengths))[batch];
    if (own >= 0 && own <= a.s.keys) return own;
    if (threadIdx.x == 0) ks_refuse(site, KS_ATTENTION_LENGTHS, batch);
    return 0;
}

/* a / b and what is left, where both are INDEX's: of 64 bits they are calls. */
template <class INDEX>
__device__ __forceinline__ int64_t attention_over(int64_t a, int64_t b)
{
    return (int64_t)((INDEX)a / (INDEX)b);
}
template <class INDEX>
__device__ __forceinline__ int64_t attention_rest(int64_t a, int64_t b)
{
    return (int64_t)((INDEX)a % (INDEX)b);
}

/* As ks_attention_range_of(). */
__device__ __forceinline__ ks_attention_range attention_range(const ks_attention_shape &s, int64_t query, int64_t keys)
{
    const int64_t corner = s.causal == KS_ATTENTION_BOTTOM_RIGHT ? keys - s.queries : 0;
    const int64_t own = s.causal == KS_ATTENTION_ALL ? keys : query + 1 + corner, end = min(max(own, (int64_t)0), keys);
    const int64_t first = s.window < 0 || own - 1 < s.window ? 0 : own - 1 - s.window;
    ks_attention_range range;
    range.first = min(first, end);
    range.end = end;
    return range;
}

/* What any of the rows [first, first + count) takes. */
template <class INDEX>
__device__ __forceinline__ ks_attention_range attention_span(const ks_attention_shape &s, int64_t first, int count,
                                                             int64_t keys)
{
    const int64_t head = attention_over<INDEX>(first, s.queries), query = first - head * s.queries,
                  last = query + count - 1;
    const bool one_head = last < s.queries;
    ks_attention_range span = attention_range(s, one_head ? query : 0, keys);
    span.end = attention_range(s, one_head ? last : s.queries - 1, keys).end;
    return span;
}

/* What each of them takes. */
template <class INDEX>
__device__ __forceinline__ ks_attention_range attention_common(const ks_attention_shape &s, int64_t first, int count,
                                                               int64_t keys)
{
    const int64_t query = first - attention_over<INDEX>(first, s.queries) * s.queries, last = query + count - 1;
    const bool one_head = last < s.queries;
    ks_attention_range common = attention_range(s, one_head ? last : s.queries - 1, keys);
    common.end = attention_range(s, one_head ? query : 0, keys).end;
    return common;
}

/* A row: where it lies, and what it takes. */
struct attention_row {
    int64_t number, head, query; /* of the unit; of the batch; of the head */
    ks_attention_range range;
    int64_t mask; /* the first element */
    bool there;
};

template <class INDEX = int64_t>
__device__ __forceinline__ attention_row attention_row_of(const attention_shape &a, int64_t batch, int64_t kv_head,
                                                          int64_t row, int64_t keys)
{
    const ks_attention_shape &s = a.s;
    attention_row r;
    r.there = row < a.rows;
    r.number = row;
    const int64_t at = r.there ? row : a.rows - 1, head = attention_over<INDEX>(at, s.queries);
    r.head = kv_head * s.group + head;
    r.query = at - head * s.queries;
    r.range = attention_range(s, r.query, keys);
    if (!r.there) r.range.end = r.range.first;
    r.mask = batch * s.mask.batch + r.head * s.mask.head + r.query * s.mask.row;
    return r;
}

/* A product becomes a score: -inf where the key is not taken. ROW: has an attention_row's range and mask. */
template <class T, class ROW>
__device__ __forceinline__ float attention_score(const attention_shape &a, const ks_job_sides &job, const ROW &r,
                                                 int64_t key, float product, bool *taken)
{
    float z = product * (float)a.s.scale;
    *taken = key >= r.range.first && key < r.range.end;
    if (a.s.softcap > 0) z = tanhf(z / (float)a.s.softcap) * (float)a.s.softcap;
    if (a.s.masked && *taken) {
        const unsigned char *const mask = job.in + a.mask;
        if (a.s.mask_dtype == KS_BOOL)
            *taken = mask[r.mask + key] != 0;
        else if (a.s.mask_dtype == KS_FP32)
            z += ((const float *)mask)[r.mask + key];
        else
            z += ks_math(((const T *)mask)[r.mask + key]);
    }
    return *taken ? z : -INFINITY;
}

/* --- online softmax -------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float attention_reference(float most)
{
    return most == -INFINITY ? 0 : most;
}

/* Of what was relative to `most`, now that `whole` is the largest. */
__device__ __forceinline__ float attention_weight(float most, float whole)
{
    return most == whole ? 1 : ks_exp2((most - whole) * ATTENTION_LOG2_E);
}

__device__ __forceinline__ bool attention_is_nothing(float most, float sum)
{
    return most == -INFINITY && sum == 0;
}

__device__ __forceinline__ float attention_value(const attention_shape &a, float most, float sum, float value)
{
    return attention_is_nothing(most, sum) ? (a.s.nan_rows ? NAN : 0) : value / sum + 0.0f;
}

__device__ __forceinline__ void attention_put_lse(const attention_shape &a, const ks_job_sides &job, int64_t batch,
                                                  const attention_row &r, float most, float sum)
{
    if (!a.s.lse) return;
    ((float *)(job.out + a.lse))[(batch * a.s.heads + r.head) * a.s.queries + r.query] =
        attention_is_nothing(most, sum) ? (a.s.nan_rows ? NAN : -INFINITY) : most + logf(sum);
}

template <class T>
__device__ __forceinline__ T *attention_out(const attention_shape &a, const ks_job_sides &job, int64_t batch,
                                            const attention_row &r)
{
    return (T *)(job.out + a.out) + batch * a.s.out.batch + r.head * a.s.out.head + r.query * a.s.out.row;
}

/* --- parts of a row in the workspace --------------------------------------------------------------------------------- */

/* Of each row of the launch's units: splits pairs (most, sum), then splits times value_depth sums. */
__device__ __forceinline__ float *attention_part(const attention_shape &a, const ks_site &site, int64_t unit,
                                                 int64_t row)
{
    return (float *)ks_workspace(site) + ((unit - a.unit) * a.rows + row) * a.splits * (2 + a.s.value_depth);
}

/* --- which piece of work --------------------------------------------------------------------------------------------- */

struct attention_item {
    int64_t unit, batch, kv_head, row, keys, first,
        end; /* the split's keys: [first, end), empty where no row takes any */
    int split;
};

/* tile: rows of a CTA; block: keys that come together. */
template <class INDEX = int64_t>
__device__ __forceinline__ attention_item attention_item_of(const ks_site &site, const attention_shape &a,
                                                            const ks_job_sides &job, int64_t at, int tile, int block)
{
    attention_item w;
    w.split = (int)attention_rest<INDEX>(at, a.splits);
    w.unit = a.unit + attention_over<INDEX>(attention_over<INDEX>(at, a.splits), a.tiles);
    w.row = (a.tiles - 1 - attention_rest<INDEX>(attention_over<INDEX>(at, a.splits), a.tiles)) *
            tile; /* of a causal head the long ones first */
    w.batch = attention_over<INDEX>(w.unit, a.s.kv_heads);
    w.kv_head = w.unit - w.batch * a.s.kv_heads;
    w.keys = attention_keys(site, a, job, w.batch);
    const ks_attention_range span = attention_span<INDEX>(a.s, w.row, (int)min((int64_t)tile, a.rows - w.row), w.keys);
    w.first = max(span.first / block * block, w.split * a.part);
    w.end = min(span.end, (w.split + 1) * a.part);
    return w;
}

#endif
