/* Reductions of FP32, FP16 and BF16 at the speed of memory: the walk along contiguous rows, or along columns.
 *
 * Numbers  sums, squares and products are kept in double; extremes in float, which holds them. logsumexp keeps a
 *          reference and the sum of exp relative to it; the reference follows the maximum only when that has run away,
 *          so that a slowly rising row does not round its sum again with every element. */
#include "cpu/reduce/floats.h"
#include "cpu/convert.h"
#include "cpu/simd.h"

#include <float.h>
#include <math.h>

enum {
    FEW_COLUMNS = 16, /* fewer are left to ks_reduce_lanes, which takes several lines as one */
    SHORT_ROW = 12    /* shorter rows too, which it works on as columns */
};

typedef struct job {
    int op;
    ks_dtype dtype;
    bool columns;
    const void *in;
    void *out;
    ks_walk walk;
    ks_fold_fn *fold;
    double divisor, ddof;
    work *w;
} job;

static void start(const job *j, int count)
{
    const bool low = j->op == MIN || j->op == ARGMIN;
    const float best = j->op == LOGSUMEXP ? -FLT_MAX : low ? INFINITY : -INFINITY;
    for (int i = 0; i < count; i++) {
        j->w->sum[i] = j->op == PROD;
        j->w->apart[i] = 0;
        j->w->best[i] = best;
        j->w->at[i] = 0;
        j->w->line[i] = 0;
    }
}

/* Whatever is not -inf left at least 1 in the sum; +inf left e^88 in it. */
static double log_of(float reference, double sum)
{
    if (sum < 0.5) return -(double)INFINITY;
    if (reference == FLT_MAX && sum > 0x1p120) return (double)INFINITY;
    return (double)reference + log(sum);
}

KS_CLONES static void over(double *sum, int count, double divisor)
{
    for (int i = 0; i < count; i++) sum[i] /= divisor;
}

/* The sums become results. */
static void make_values(const job *j, int count)
{
    work *w = j->w;
    const double freedom = j->divisor - j->ddof;
    switch (j->op) {
    case MAX:
    case MIN:
        for (int i = 0; i < count; i++) w->sum[i] = (double)w->best[i];
        break;
    case MEAN:
        over(w->sum, count, j->divisor);
        break;
    case L2NORM:
        for (int i = 0; i < count; i++) w->sum[i] = sqrt(w->sum[i]);
        break;
    case LOGSUM:
        for (int i = 0; i < count; i++) w->sum[i] = log(w->sum[i]);
        break;
    case LOGSUMEXP:
        for (int i = 0; i < count; i++) w->sum[i] = log_of(w->best[i], w->sum[i]);
        break;
    case VAR:
    case STD:
        for (int i = 0; i < count; i++) w->sum[i] = freedom > 0 ? w->apart[i] / freedom : (double)NAN;
        for (int i = 0; i < count && j->op == STD; i++) w->sum[i] = sqrt(w->sum[i]);
        break;
    default:
        break;
    }
}

static void finish(const job *j, int64_t at, int count)
{
    const work *w = j->w;
    switch (j->op) {
    case ARGMAX:
    case ARGMIN:
        for (int i = 0; i < count; i++) ((int64_t *)j->out)[at + i] = j->columns ? w->line[i] : w->at[i];
        break;
    case COUNT_NONZERO:
        for (int i = 0; i < count; i++) ((int64_t *)j->out)[at + i] = (int64_t)w->sum[i];
        break;
    case ANY:
        for (int i = 0; i < count; i++) ((uint8_t *)j->out)[at + i] = w->sum[i] > 0;
        break;
    case ALL:
        for (int i = 0; i < count; i++) ((uint8_t *)j->out)[at + i] = w->sum[i] == j->divisor;
        break;
    default:
        make_values(j, count);
        ks_reduce_store_reals(j->dtype, j->out, at, w->sum, count);
        break;
    }
}

/* `lines` runs of `count` elements, *pitch apart, as floats: where they lie, or in the panel, which changes *pitch. */
static const float *fetch(const job *j, int64_t from, int64_t *pitch, int lines, int count)
{
    if (j->dtype == KS_FP32) return (const float *)j->in + from;
    const uint16_t *raw = (const uint16_t *)j->in + from;
    const bool together = *pitch == count;
    for (int l = 0; l < (together ? 1 : lines); l++)
        (j->dtype == KS_FP16 ? ks_fp16_to_floats : ks_bf16_to_floats)(raw + l * *pitch, j->w->panel + l * count,
                                                                      (size_t)count * (together ? lines : 1));
    *pitch = count;
    return j->w->panel;
}

/* The lines that come next, because the hardware does not look beyond a page and these are short. */
static void prefetch(const job *j, int64_t from, int lines, int count)
{
    const int64_t size = (int64_t)ks_dtype_size(j->dtype), step = 64 / size;
    for (int l = 0; l < lines; l++, from += j->walk.depth.stride)
        for (int64_t i = 0; i < count; i += step) __builtin_prefetch((const char *)j->in + (from + i) * size);
}

/* `results` neighbours, the first from the element `base`; `across`: lines (of columns) or elements (of rows) a time. */
static void reduce_block(const job *j, int64_t base, int64_t at, int results, int64_t across)
{
    const ks_walk *walk = &j->walk;
    const int64_t rest = ks_walk_combinations(&walk->rest);
    start(j, results);
    for (int64_t n = 0; n < rest; n++) {
        const int64_t begin = base + ks_walk_offset(&walk->rest, n);
        for (int64_t d = 0; d < walk->depth.extent; d += across) {
            const int64_t left = walk->depth.extent - d;
            const int part = (int)(left < across ? left : across);
            int64_t pitch = j->columns ? walk->depth.stride : walk->lanes.stride;
            const int lines = j->columns ? part : results, count = j->columns ? results : part;
            if (j->columns && left >= across + LINES)
                prefetch(j, begin + (d + LINES) * walk->depth.stride, LINES, count);
            const float *x = fetch(j, begin + d * walk->depth.stride, &pitch, lines, count);
            j->fold(j->w, x, pitch, lines, count, n * walk->depth.extent + d);
        }
    }
    finish(j, at, results);
}

/* How many neighbours go together: columns as many as there is room for, rows as many as the panel holds. */
static int64_t block_of(const job *j)
{
    if (j->columns) return RESULTS;
    const int64_t rows = PANEL / j->walk.depth.extent;
    return rows < 1 ? 1 : rows;
}

bool ks_reduce_floats(const ks_spec *spec, const void *in, void *out, void *scratch)
{
    const uint32_t taken = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16);
    if (!(taken & KS_DTYPE_BIT(spec->in[0].dtype)) || ks_tensor_count(&spec->in[0]) == 0) return false;
    job j = {.op = ks_reduce_function(spec),
             .dtype = spec->in[0].dtype,
             .in = in,
             .out = out,
             .ddof = spec->params[DDOF].d,
             .w = scratch};
    j.walk = ks_walk_plan(spec, INT64_MAX);
    const ks_dimension lanes = j.walk.lanes, depth = j.walk.depth;
    j.columns = lanes.stride == 1 && lanes.extent > 1;
    if (j.columns ? lanes.extent < FEW_COLUMNS || depth.extent > INT32_MAX : depth.extent < SHORT_ROW) return false;
    j.fold = ks_reduce_fold(j.op, j.columns);
    if (!j.fold) return false;
    const int64_t kept = ks_walk_combinations(&j.walk.kept), block = block_of(&j);
    j.divisor = (double)(ks_walk_combinations(&j.walk.rest) * depth.extent);
    for (int64_t n = 0; n < kept; n++) {
        const int64_t base = ks_walk_offset(&j.walk.kept, n);
        for (int64_t c = 0; c < lanes.extent; c += block) {
            const int64_t left = lanes.extent - c;
            reduce_block(&j, base + c * lanes.stride, n * lanes.extent + c, (int)(left < block ? left : block),
                         j.columns ? LINES : PANEL);
        }
    }
    return true;
}

size_t ks_reduce_floats_scratch(void)
{
    return sizeof(work);
}
