/* Places of attention's inputs and parameters in ks_spec, and a resolved one in numbers, for every backend. */
#ifndef KS_OPS_ATTENTION_H
#define KS_OPS_ATTENTION_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KS_ATTENTION_QUERY,
    KS_ATTENTION_KEY,
    KS_ATTENTION_VALUE,
    KS_ATTENTION_MASK,
    KS_ATTENTION_LENGTHS,
    KS_ATTENTION_INPUTS
};
enum {
    KS_ATTENTION_SCALE,
    KS_ATTENTION_CAUSAL,
    KS_ATTENTION_WINDOW,
    KS_ATTENTION_SOFTCAP,
    KS_ATTENTION_LAYOUT,
    KS_ATTENTION_MASKED_ROWS,
    KS_ATTENTION_LSE,
    KS_ATTENTION_PARAMS
};
typedef enum ks_attention_causal {
    KS_ATTENTION_ALL,
    KS_ATTENTION_TOP_LEFT,
    KS_ATTENTION_BOTTOM_RIGHT
} ks_attention_causal;
enum { KS_ATTENTION_DEPTH_MOST = 256 };

/* Elements from one to the next. */
typedef struct ks_attention_strides {
    int64_t batch, head, row;
} ks_attention_strides;

/* Query head h attends to key head h / group. The value of row i of head h of batch b begins at element b * out.batch + h * out.head + i *
 * out.row. */
typedef struct ks_attention_shape {
    int64_t batches, heads, kv_heads, group, queries, keys;
    int depth, value_depth;
    ks_attention_strides query, key, value, out;
    ks_attention_strides mask; /* 0: one for all; keys lie side by side */
    int64_t window;            /* keys in front of a row's last one; -1: all */
    double scale, softcap;     /* softcap 0: none */
    ks_attention_causal causal;
    ks_dtype dtype, mask_dtype;
    bool masked, limited; /* by INPUT3, INPUT4 */
    bool wide;            /* lengths are INT64, not INT32 */
    bool nan_rows, lse;   /* nan_rows: a row that attends to nothing is NaN, not 0 */
} ks_attention_shape;

/* The spec is resolved. */
ks_attention_shape ks_attention_shape_of(const ks_spec *spec);

/* The keys [first, end) that causal, window and the batch's own number of keys leave to a row. */
typedef struct ks_attention_range {
    int64_t first, end;
} ks_attention_range;

static inline ks_attention_range ks_attention_range_of(const ks_attention_shape *s, int64_t row, int64_t keys)
{
    const int64_t corner = s->causal == KS_ATTENTION_BOTTOM_RIGHT ? keys - s->queries : 0;
    const int64_t own = s->causal == KS_ATTENTION_ALL ? keys : row + 1 + corner;
    const int64_t end = own < 0 ? 0 : own < keys ? own : keys;
    const int64_t first = s->window < 0 || own - 1 < s->window ? 0 : own - 1 - s->window;
    return (ks_attention_range){first < end ? first : end, end};
}

#ifdef __cplusplus
}
#endif
#endif
