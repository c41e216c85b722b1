/* Places of softmax's inputs and parameters in ks_spec, and what its rows are, for every backend. */
#ifndef KS_OPS_SOFTMAX_H
#define KS_OPS_SOFTMAX_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_SOFTMAX_X, KS_SOFTMAX_MASK, KS_SOFTMAX_LENGTHS, KS_SOFTMAX_INPUTS };
enum {
    KS_SOFTMAX_AXIS,
    KS_SOFTMAX_LOG,
    KS_SOFTMAX_SCALE,
    KS_SOFTMAX_CAUSAL,
    KS_SOFTMAX_MASKED_ROWS,
    KS_SOFTMAX_OUT_DATATYPE,
    KS_SOFTMAX_PARAMS
};
typedef enum ks_softmax_causal { KS_CAUSAL_NONE, KS_CAUSAL_TOP_LEFT, KS_CAUSAL_BOTTOM_RIGHT } ks_softmax_causal;

/* Of a tensor's dimensions but the axis, some that follow each other. */
typedef struct ks_softmax_step {
    int64_t extent, stride; /* stride: of the mask, elements; 0: it has one index for all */
} ks_softmax_step;

/* Which elements of its rows take part. A row is what the axis runs through; rows are counted over the other axes, in their order. */
typedef struct ks_softmax_selection {
    int steps; /* outermost first, at least one: from a row's number to the mask's offset */
    ks_softmax_step step[KS_RANK_MAX];
    int64_t along;  /* the mask's stride along the axis */
    int64_t square; /* causal: rows that begin at the corner again; else 0 */
    int64_t corner; /* causal: of row i of so many, the elements below i + 1 + corner take part */
    int64_t
        sharing; /* lengths: of so many rows, one after the other, the elements below one length take part; 0: there are none */
    bool wide; /* lengths are INT64, not INT32 */
    bool zero; /* a row without any is 0, not NaN */
} ks_softmax_selection;

/* Whether a resolved spec has anything of that: else it is softmax of whole rows, in x's datatype. */
bool ks_softmax_selects(const ks_spec *spec);
ks_softmax_selection ks_softmax_selection_of(const ks_spec *spec);

/* How many elements of a row of `length`, from the first one on, causal and its own length leave. own: of a row without one, length. */
static inline int64_t ks_softmax_limit(const ks_softmax_selection *s, int64_t row, int64_t length, int64_t own)
{
    const int64_t corner = s->square ? row % s->square + 1 + s->corner : length, limit = own < corner ? own : corner;
    return limit < 0 ? 0 : limit < length ? limit : length;
}

#ifdef __cplusplus
}
#endif
#endif
