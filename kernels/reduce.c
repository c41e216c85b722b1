/* Reductions over one axis, a list of axes or all: descriptor, rules, and the reference on the CPU.
 *
 * Values   sums and products of integers wrap in INT64; means of integers, and their l2norm and logsumexp, are FP64.
 * max and min give NaN where there is one; argmax and argmin the first NaN, else the first extremum. Of nothing: sum 0,
 *          prod 1, l2norm 0, logsumexp -inf, the others KS_EMPTY.
 * Numbers  everything is accumulated in double or in 64-bit integers and rounded once.
 * Threads  any; all memory is the caller's. */
#include "kernserve/op.h"
#include "convert.h"
#include "vectorise.h"

#include <inttypes.h>
#include <math.h>

enum { OP, AXIS, KEEPDIMS };
enum { SUM, MEAN, MAX, MIN, PROD, ARGMAX, ARGMIN, L2NORM, LOGSUMEXP, OPS };
enum {
    FLOATS = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) | KS_DTYPE_BIT(KS_FP64),
    INTEGERS = KS_DTYPE_BIT(KS_INT8) | KS_DTYPE_BIT(KS_INT16) | KS_DTYPE_BIT(KS_INT32) | KS_DTYPE_BIT(KS_INT64) |
               KS_DTYPE_BIT(KS_UINT8) | KS_DTYPE_BIT(KS_UINT16) | KS_DTYPE_BIT(KS_UINT32) | KS_DTYPE_BIT(KS_UINT64)
};
enum {
    LANES = 1024,    /* most running results side by side */
    NARROW = 256,    /* several short lines of an axis go into so many lanes at once */
    SHORT_ROW = 192, /* shorter rows are worked on side by side, as columns */
    ROWS = 256       /* so many of them */
};

extern const ks_op ks_op_reduce;

static const char *const op_names[] = {"sum",    "mean",   "max",    "min",       "prod",
                                       "argmax", "argmin", "l2norm", "logsumexp", NULL};

/* --- rules
 * ------------------------------------------------------------------------------------------------------------- */

static ks_status check_input(ks_tensor *in, ks_error *error)
{
    if (!((FLOATS | INTEGERS) & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE,
                       "reduce: INPUT0 has datatype %s, takes FP16 to FP64, BF16, INT8 to INT64 or UINT8 to UINT64",
                       ks_dtype_name(in->dtype));
    if (in->rank < 1 || in->rank > KS_RANK_MAX)
        return ks_fail(error, KS_SHAPE, "reduce: INPUT0 has rank %d, takes 1 to %d", in->rank, KS_RANK_MAX);
    return ks_tensor_measure(in, "INPUT0", error);
}

/* Sorted, from 0, each once, unused places 0. "All" is spelled out, but for arg, where it means the flat index. */
static ks_status resolve_axes(int rank, int op, ks_axes *axes, ks_error *error)
{
    const bool arg = op == ARGMAX || op == ARGMIN;
    unsigned set = 0;
    if (axes->count == -1) {
        set = (1u << rank) - 1;
    } else if (axes->count < 1 || axes->count > KS_RANK_MAX) {
        return ks_fail(error, KS_AXIS, "reduce: axis lists %d axes, takes 1 to %d", axes->count, KS_RANK_MAX);
    } else if (arg && axes->count > 1) {
        return ks_fail(error, KS_AXIS, "reduce: %s takes one axis or \"all\", axis lists %d", op_names[op],
                       axes->count);
    }
    for (int i = 0; i < axes->count; i++) {
        const int axis = axes->axis[i];
        if (axis < -rank || axis >= rank)
            return ks_fail(error, KS_AXIS, "reduce: axis %d is outside [%d, %d) of INPUT0's rank", axis, -rank, rank);
        const unsigned bit = 1u << (axis < 0 ? axis + rank : axis);
        if (set & bit) return ks_fail(error, KS_AXIS, "reduce: axis %d is listed twice", axis);
        set |= bit;
    }
    const bool flat = arg && axes->count == -1 && rank > 1;
    memset(axes, 0, sizeof *axes);
    for (int i = 0; i < rank && !flat; i++)
        if (set >> i & 1) axes->axis[axes->count++] = (int8_t)i;
    if (flat) axes->count = -1;
    return KS_OK;
}

static unsigned axes_set(const ks_spec *spec)
{
    const ks_axes *axes = &spec->params[AXIS].axes;
    unsigned set = axes->count < 0 ? (1u << spec->in[0].rank) - 1 : 0;
    for (int i = 0; i < axes->count; i++) set |= 1u << axes->axis[i];
    return set;
}

static ks_dtype out_dtype(int op, ks_dtype in)
{
    if (op == ARGMAX || op == ARGMIN) return KS_INT64;
    if (op == MAX || op == MIN || FLOATS & KS_DTYPE_BIT(in)) return in;
    return op == SUM || op == PROD ? KS_INT64 : KS_FP64;
}

/* ks_resolve_fn */
static ks_status reduce_resolve(ks_spec *spec, ks_error *error)
{
    ks_tensor *in = &spec->in[0];
    ks_status status = check_input(in, error);
    if (status != KS_OK) return status;
    const int op = (int)spec->params[OP].i;
    if (op < 0 || op >= OPS) return ks_fail(error, KS_PARAMETER, "reduce: op %d is not one of %d", op, OPS);
    status = resolve_axes(in->rank, op, &spec->params[AXIS].axes, error);
    if (status != KS_OK) return status;

    const unsigned set = axes_set(spec);
    const bool keep = spec->params[KEEPDIMS].i != 0;
    ks_tensor out = {.dtype = out_dtype(op, in->dtype)};
    int64_t extent = 1;
    for (int i = 0; i < in->rank; i++) {
        const bool reduced = set >> i & 1;
        if (reduced) extent *= in->dims[i];
        if (!reduced || keep) out.dims[out.rank++] = reduced ? 1 : in->dims[i];
    }
    if (extent == 0 && op != SUM && op != PROD && op != L2NORM && op != LOGSUMEXP)
        return ks_fail(error, KS_EMPTY, "reduce: %s of nothing: INPUT0 has 0 elements along axis", op_names[op]);
    status = ks_tensor_measure(&out, "OUTPUT0", error);
    if (status != KS_OK) return status;
    spec->out = out;
    spec->flops = (double)ks_tensor_count(in) * (op == LOGSUMEXP ? 10 : op == L2NORM ? 2 : 1);
    return KS_OK;
}

/* --- the walk: any set of axes as lines of one axis ------------------------------------------------------------------
 */

typedef struct dimension {
    int64_t extent, stride;
} dimension;

typedef struct dimensions {
    int count;
    dimension at[KS_RANK_MAX];
} dimensions;

/* A reduction, merged: for every combination of `kept`, and for `lanes` results that lie side by side, `depth` elements
 * at each combination of `rest`. */
typedef struct walk {
    dimensions kept, rest;
    dimension lanes, depth;
} walk;

/* Neighbouring axes of one sort are one dimension; axes of extent 1 are none. Outermost first. */
static void merge_axes(const ks_tensor *in, unsigned set, dimensions *kept, dimensions *reduced)
{
    int64_t stride = ks_tensor_count(in);
    dimensions *last = NULL;
    *kept = *reduced = (dimensions){0};
    for (int i = 0; i < in->rank; i++) {
        const int64_t extent = in->dims[i];
        if (extent == 1) continue;
        stride = extent ? stride / extent : 0;
        dimensions *list = set >> i & 1 ? reduced : kept;
        if (list != last) list->at[list->count++] = (dimension){.extent = 1};
        dimension *merged = &list->at[list->count - 1];
        *merged = (dimension){merged->extent * extent, stride};
        last = list;
    }
}

static dimension take_last(dimensions *list, dimension otherwise)
{
    return list->count ? list->at[--list->count] : otherwise;
}

static walk plan_walk(const ks_spec *spec)
{
    walk w;
    merge_axes(&spec->in[0], axes_set(spec), &w.kept, &w.rest);
    w.depth = take_last(&w.rest, (dimension){1, 1});
    w.lanes = (dimension){1, 1};
    const dimension *inner = w.kept.count ? &w.kept.at[w.kept.count - 1] : NULL;
    const bool columns = inner && inner->stride == 1;
    if (columns || (inner && w.depth.extent < SHORT_ROW)) w.lanes = take_last(&w.kept, w.lanes);
    return w;
}

/* The offset of the n-th combination. */
static int64_t offset_of(const dimensions *list, int64_t n)
{
    int64_t offset = 0;
    for (int i = list->count - 1; i >= 0; i--) {
        offset += n % list->at[i].extent * list->at[i].stride;
        n /= list->at[i].extent;
    }
    return offset;
}

static int64_t combinations(const dimensions *list)
{
    int64_t n = 1;
    for (int i = 0; i < list->count; i++) n *= list->at[i].extent;
    return n;
}

/* --- elements as double or int64_t
 * -------------------------------------------------------------------------------------- */

typedef union number {
    double d;
    int64_t i;
} number;

/* The caller's scratch: the running results (and where arg found them, or logsumexp's sums), and a line of elements. */
typedef struct work {
    union {
        double d[LANES];
        int64_t i[LANES];
    } best, more, x;
    float single[LANES];
    uint16_t raw[LANES];
} work;

#define LOADER(name, in_type, out_type, out_array, expression)                                                         \
    KS_CLONES static void name(const void *in, int64_t at, int64_t stride, int count, work *restrict w)                \
    {                                                                                                                  \
        const in_type *x = (const in_type *)in + at;                                                                   \
        if (stride == 1)                                                                                               \
            for (int i = 0; i < count; i++) w->out_array[i] = (out_type)(expression(x[i]));                            \
        else                                                                                                           \
            for (int i = 0; i < count; i++) w->out_array[i] = (out_type)(expression(x[i * stride]));                   \
    }
#define ORDERED(value) ((value) ^ ((uint64_t)1 << 63)) /* UINT64 in the order of INT64 */
LOADER(load_raw, uint16_t, uint16_t, raw, )
LOADER(load_fp32, float, double, x.d, )
LOADER(load_fp64, double, double, x.d, )
LOADER(load_double_int8, int8_t, double, x.d, )
LOADER(load_double_int16, int16_t, double, x.d, )
LOADER(load_double_int32, int32_t, double, x.d, )
LOADER(load_double_int64, int64_t, double, x.d, )
LOADER(load_double_uint8, uint8_t, double, x.d, )
LOADER(load_double_uint16, uint16_t, double, x.d, )
LOADER(load_double_uint32, uint32_t, double, x.d, )
LOADER(load_double_uint64, uint64_t, double, x.d, )
LOADER(load_int8, int8_t, int64_t, x.i, )
LOADER(load_int16, int16_t, int64_t, x.i, )
LOADER(load_int32, int32_t, int64_t, x.i, )
LOADER(load_int64, int64_t, int64_t, x.i, )
LOADER(load_uint8, uint8_t, int64_t, x.i, )
LOADER(load_uint16, uint16_t, int64_t, x.i, )
LOADER(load_uint32, uint32_t, int64_t, x.i, )
LOADER(load_ordered, uint64_t, int64_t, x.i, ORDERED)

KS_CLONES static void widen(const float *x, double *restrict out, int count)
{
    for (int i = 0; i < count; i++) out[i] = (double)x[i];
}

static void load_half(const void *in, int64_t at, int64_t stride, int count, work *w,
                      void (*convert)(const uint16_t *, float *, size_t))
{
    const uint16_t *raw = (const uint16_t *)in + at;
    if (stride != 1) {
        load_raw(in, at, stride, count, w);
        raw = w->raw;
    }
    convert(raw, w->single, (size_t)count);
    widen(w->single, w->x.d, count);
}

static void load_fp16(const void *in, int64_t at, int64_t stride, int count, work *restrict w)
{
    load_half(in, at, stride, count, w, ks_fp16_to_floats);
}

static void load_bf16(const void *in, int64_t at, int64_t stride, int count, work *restrict w)
{
    load_half(in, at, stride, count, w, ks_bf16_to_floats);
}

typedef void load_fn(const void *in, int64_t at, int64_t stride, int count, work *restrict w);

/* As double where that is what the result is made of, else as int64_t. */
static load_fn *choose_load(ks_dtype dtype, bool real, bool ordered)
{
    switch (dtype) {
    case KS_FP16:
        return load_fp16;
    case KS_BF16:
        return load_bf16;
    case KS_FP32:
        return load_fp32;
    case KS_FP64:
        return load_fp64;
    case KS_INT8:
        return real ? load_double_int8 : load_int8;
    case KS_INT16:
        return real ? load_double_int16 : load_int16;
    case KS_INT32:
        return real ? load_double_int32 : load_int32;
    case KS_INT64:
        return real ? load_double_int64 : load_int64;
    case KS_UINT8:
        return real ? load_double_uint8 : load_uint8;
    case KS_UINT16:
        return real ? load_double_uint16 : load_uint16;
    case KS_UINT32:
        return real ? load_double_uint32 : load_uint32;
    default:
        return real ? load_double_uint64 : ordered ? load_ordered : load_int64;
    }
}

/* --- folding: running results, lane by lane
 * ---------------------------------------------------------------------------- */

/* Takes x[0..count) into w->best[0..count) (and w->more). `step` counts the lines, for arg. The same function joins two
 * halves of the lanes, where x are running results themselves; fold_more then brings their second halves. */
typedef void fold_fn(work *restrict w, const number *x, int count, int64_t step);

#define FOLD(name, field, type, statement)                                                                             \
    KS_CLONES static void name(work *restrict w, const number *in, int count, int64_t step)                            \
    {                                                                                                                  \
        (void)step;                                                                                                    \
        for (int i = 0; i < count; i++) {                                                                              \
            const type x = in[i].field, best = w->best.field[i];                                                       \
            w->best.field[i] = (statement);                                                                            \
        }                                                                                                              \
    }
/* NaN is taken by the comparison with itself, and then never given up. */
FOLD(sum_real, d, double, best + x)
FOLD(square_real, d, double, best + x * x)
FOLD(prod_real, d, double, best *x)
FOLD(max_real, d, double, x > best || x != x ? x : best)
FOLD(min_real, d, double, x < best || x != x ? x : best)
FOLD(sum_int, i, int64_t, (int64_t)((uint64_t)best + (uint64_t)x))
FOLD(prod_int, i, int64_t, (int64_t)((uint64_t)best *(uint64_t)x))
FOLD(max_int, i, int64_t, x > best ? x : best)
FOLD(min_int, i, int64_t, x < best ? x : best)

/* Replaces FOLD for arg: w->more says in which line the best was. The first NaN stays. */
#define FOLD_ARG(name, field, type, better)                                                                            \
    KS_CLONES static void name(work *restrict w, const number *in, int count, int64_t step)                            \
    {                                                                                                                  \
        for (int i = 0; i < count; i++) {                                                                              \
            const type x = in[i].field, best = w->best.field[i];                                                       \
            const int64_t take = -(int64_t)(better);                                                                   \
            w->best.field[i] = (better) ? x : best;                                                                    \
            w->more.i[i] = (step & take) | (w->more.i[i] & ~take);                                                     \
        }                                                                                                              \
    }
FOLD_ARG(argmax_real, d, double, (x > best) | ((x != x) & (best == best)))
FOLD_ARG(argmin_real, d, double, (x < best) | ((x != x) & (best == best)))
FOLD_ARG(argmax_int, i, int64_t, x > best)
FOLD_ARG(argmin_int, i, int64_t, x < best)

/* Best is the largest so far, more the sum of exp relative to it. One exponential an element: either the old sum or the
 * new term is what has to be scaled down. Equal infinities have the distance 0. */
#define BEYOND 1e300

static inline __attribute__((always_inline)) void logsumexp_add(work *restrict w, int i, double x, double e)
{
    const double best = w->best.d[i], sum = w->more.d[i];
    w->more.d[i] = x > best ? sum * e + 1 : sum + e;
    w->best.d[i] = x > best ? x : best;
}

/* For what came from float: with BEYOND in the place of infinity, which no float reaches and which rounds back to it,
 * no distance is inf - inf, and no case needs a branch, which would keep the loop from being vectorised. */
KS_CLONES static void logsumexp_fast(work *restrict w, const number *in, int count, int64_t step)
{
    (void)step;
    for (int i = 0; i < count; i++) {
        const double x = in[i].d > BEYOND ? BEYOND : in[i].d;
        w->single[i] = ks_exp_inline(-(float)fabs(w->best.d[i] - x));
    }
    for (int i = 0; i < count; i++) logsumexp_add(w, i, in[i].d > BEYOND ? BEYOND : in[i].d, (double)w->single[i]);
}

static void logsumexp_exact(work *restrict w, const number *in, int count, int64_t step)
{
    (void)step;
    for (int i = 0; i < count; i++) {
        const double x = in[i].d, best = w->best.d[i];
        logsumexp_add(w, i, x, x == best ? 1 : exp(-fabs(x - best)));
    }
}

/* --- joining: lanes [count, 2 * count) into [0, count)
 * ------------------------------------------------------------------- */

static bool arg_precedes(const work *w, int a, int b, bool real, bool largest)
{
    bool better, equal;
    if (real) {
        const double x = w->best.d[a], y = w->best.d[b];
        better = (largest ? x > y : x < y) || (isnan(x) && !isnan(y));
        equal = x == y || (isnan(x) && isnan(y));
    } else {
        better = largest ? w->best.i[a] > w->best.i[b] : w->best.i[a] < w->best.i[b];
        equal = w->best.i[a] == w->best.i[b];
    }
    return better || (equal && w->more.i[a] < w->more.i[b]);
}

static void join_arg(work *w, int count, bool real, bool largest)
{
    for (int i = 0; i < count; i++) {
        if (!arg_precedes(w, i + count, i, real, largest)) continue;
        w->best.i[i] = w->best.i[i + count]; /* the bits, whatever they mean */
        w->more.i[i] = w->more.i[i + count];
    }
}

static void join_logsumexp(work *w, int count)
{
    for (int i = 0; i < count; i++) {
        const double a = w->best.d[i], b = w->best.d[i + count], e = a == b ? 1 : exp(-fabs(a - b));
        w->more.d[i] = w->more.d[i] * (b > a ? e : 1) + w->more.d[i + count] * (b > a ? 1 : e);
        w->best.d[i] = b > a ? b : a;
    }
}

/* --- the reference
 * --------------------------------------------------------------------------------------------------------- */

typedef struct job {
    int op;
    bool real, ordered; /* double or int64_t; UINT64 as ordered int64_t */
    bool direct;        /* elements need no conversion */
    ks_dtype in_dtype, out_dtype;
    const void *in;
    void *out;
    walk walk;
    load_fn *load;
    fold_fn *fold;
    double divisor;
    work *w;
} job;

static fold_fn *choose_fold(int op, bool real, bool exact)
{
    switch (op) {
    case SUM:
    case MEAN:
        return real ? sum_real : sum_int;
    case MAX:
        return real ? max_real : max_int;
    case MIN:
        return real ? min_real : min_int;
    case PROD:
        return real ? prod_real : prod_int;
    case ARGMAX:
        return real ? argmax_real : argmax_int;
    case ARGMIN:
        return real ? argmin_real : argmin_int;
    case L2NORM:
        return square_real;
    default:
        return exact ? logsumexp_exact : logsumexp_fast;
    }
}

static job plan_job(const ks_spec *spec, const void *in, void *out, void *scratch)
{
    const ks_dtype dtype = spec->in[0].dtype;
    job j = {.op = (int)spec->params[OP].i,
             .in_dtype = dtype,
             .out_dtype = spec->out.dtype,
             .in = in,
             .out = out,
             .w = scratch};
    const bool arg = j.op == ARGMAX || j.op == ARGMIN, integer = (INTEGERS & KS_DTYPE_BIT(dtype)) != 0;
    j.real = !integer || j.op == MEAN || j.op == L2NORM || j.op == LOGSUMEXP;
    j.ordered = dtype == KS_UINT64 && !j.real && (arg || j.op == MAX || j.op == MIN);
    j.direct = !j.ordered && (dtype == KS_FP64 || (!j.real && (dtype == KS_INT64 || dtype == KS_UINT64)));
    j.walk = plan_walk(spec);
    j.load = choose_load(dtype, j.real, j.ordered);
    j.fold = choose_fold(j.op, j.real, integer || dtype == KS_FP64);
    j.divisor = (double)(combinations(&j.walk.rest) * j.walk.depth.extent);
    return j;
}

static void start_lanes(const job *j, int count)
{
    number first = {.i = 0};
    if (j->op == MAX) first = j->real ? (number){.d = -INFINITY} : (number){.i = INT64_MIN};
    if (j->op == MIN) first = j->real ? (number){.d = INFINITY} : (number){.i = INT64_MAX};
    if (j->op == PROD) first = j->real ? (number){.d = 1} : (number){.i = 1};
    if (j->op == LOGSUMEXP) first.d = j->fold == logsumexp_fast ? -BEYOND : -INFINITY;
    for (int i = 0; i < count; i++) {
        j->w->best.i[i] = first.i;
        j->w->more.i[i] = 0;
    }
}

static void join_lanes(const job *j, int count)
{
    const bool arg = j->op == ARGMAX || j->op == ARGMIN;
    if (arg)
        join_arg(j->w, count, j->real, j->op == ARGMAX);
    else if (j->op == LOGSUMEXP)
        join_logsumexp(j->w, count);
    else
        (j->op == L2NORM ? sum_real : j->fold)(j->w, (const number *)&j->w->best + count, count, 0);
}

static void store_real(const job *j, int64_t at, double value)
{
    switch (j->out_dtype) {
    case KS_FP16:
        ((uint16_t *)j->out)[at] = ks_double_to_fp16(value);
        break;
    case KS_BF16:
        ((uint16_t *)j->out)[at] = ks_double_to_bf16(value);
        break;
    case KS_FP32:
        ((float *)j->out)[at] = (float)value;
        break;
    default:
        ((double *)j->out)[at] = value;
        break;
    }
}

static void store_int(const job *j, int64_t at, int64_t value)
{
    switch (ks_dtype_size(j->out_dtype)) { /* a maximum fits the datatype that it came from */
    case 1:
        ((uint8_t *)j->out)[at] = (uint8_t)value;
        break;
    case 2:
        ((uint16_t *)j->out)[at] = (uint16_t)value;
        break;
    case 4:
        ((uint32_t *)j->out)[at] = (uint32_t)value;
        break;
    default:
        ((uint64_t *)j->out)[at] = j->ordered ? ORDERED((uint64_t)value) : (uint64_t)value;
        break;
    }
}

static void store_lanes(const job *j, int64_t at, int count)
{
    const work *w = j->w;
    for (int i = 0; i < count; i++) {
        const double best = w->best.d[i];
        switch (j->op) {
        case ARGMAX:
        case ARGMIN:
            ((int64_t *)j->out)[at + i] = w->more.i[i];
            break;
        case MEAN:
            store_real(j, at + i, best / j->divisor);
            break;
        case L2NORM:
            store_real(j, at + i, sqrt(best));
            break;
        case LOGSUMEXP:
            store_real(j, at + i, best + log(w->more.d[i]));
            break;
        default:
            if (j->real)
                store_real(j, at + i, best);
            else
                store_int(j, at + i, w->best.i[i]);
        }
    }
}

/* How many lines of the axis go into the lanes at once: many where one is narrow and they follow each other in memory,
 * a power of two, so that halving joins them. */
static int lines_at_once(const job *j, int count)
{
    const walk *w = &j->walk;
    const bool costly = j->op == LOGSUMEXP || j->op == ARGMAX || j->op == ARGMIN; /* to join */
    const int most = costly ? NARROW / 8 : NARROW;
    if (w->lanes.stride != 1 || count != w->lanes.extent || w->depth.stride != count) return 1;
    int lines = 1;
    while (2 * lines * count <= most && 2 * lines <= w->depth.extent) lines *= 2;
    return lines;
}

/* `count` results that lie side by side, from the element `base` of the first. */
static void reduce_lanes(const job *j, int64_t base, int64_t at, int count)
{
    const walk *shape = &j->walk;
    work *w = j->w;
    const int lines = lines_at_once(j, count);
    const bool arg = j->op == ARGMAX || j->op == ARGMIN;
    const int64_t rest = combinations(&shape->rest), stride = shape->lanes.stride;
    start_lanes(j, count * lines);
    for (int64_t n = 0; n < rest; n++) {
        const int64_t start = base + offset_of(&shape->rest, n);
        for (int64_t d = 0, step = 0; d < shape->depth.extent; d += lines, step++) {
            const int64_t left = shape->depth.extent - d, from = start + d * shape->depth.stride;
            const int elements = count * (int)(left < lines ? left : lines);
            const number *x = (const number *)&w->x;
            if (j->direct && stride == 1)
                x = (const number *)j->in + from;
            else
                j->load(j->in, from, stride, elements, w);
            if (arg && step == 0) memcpy(&w->best, x, (size_t)elements * sizeof *x); /* no value stands for "none" */
            j->fold(w, x, elements, step);
        }
    }
    if (arg)
        for (int i = 0; i < count * lines; i++) w->more.i[i] = w->more.i[i] * lines + i / count;
    for (int half = lines / 2; half > 0; half /= 2) join_lanes(j, half * count);
    store_lanes(j, at, count);
}

/* ks_cpu_fn */
static void reduce_reference(const ks_spec *spec, const void *const *in, void *out, void *scratch)
{
    if (ks_tensor_count(&spec->out) == 0) return;
    const job j = plan_job(spec, in[0], out, scratch);
    const dimension lanes = j.walk.lanes;
    const int64_t kept = combinations(&j.walk.kept), block = lanes.stride == 1 ? LANES : ROWS;
    for (int64_t n = 0; n < kept; n++) {
        const int64_t base = offset_of(&j.walk.kept, n);
        for (int64_t c = 0; c < lanes.extent; c += block) {
            const int64_t left = lanes.extent - c;
            reduce_lanes(&j, base + c * lanes.stride, n * lanes.extent + c, (int)(left < block ? left : block));
        }
    }
}

static size_t reduce_scratch(const ks_spec *spec)
{
    (void)spec;
    return sizeof(work);
}

/* ks_sample_fn */
static void reduce_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_reduce);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 1000}};
}

#define OP_PRESET(text, value_)                                                                                        \
    {                                                                                                                  \
        .suffix = text, .param = OP, .value = {.i = value_ }                                                           \
    }
static const ks_preset presets[] = {
    OP_PRESET("sum", SUM),
    OP_PRESET("mean", MEAN),
    OP_PRESET("max", MAX),
    OP_PRESET("min", MIN),
    OP_PRESET("prod", PROD),
    OP_PRESET("argmax", ARGMAX),
    OP_PRESET("argmin", ARGMIN),
    OP_PRESET("l2norm", L2NORM),
    OP_PRESET("logsumexp", LOGSUMEXP),
    {.suffix = "vec", .param = -1, .in_rank = 1, .out_rank = -1},
};

const ks_op ks_op_reduce = {
    .name = "reduce",
    .inputs = 1,
    .in_rank = 2,
    .out_rank = 1,
    .rank_min = 1,
    .rank_max = KS_RANK_MAX,
    .dtypes = FLOATS | INTEGERS,
    .params_count = 3,
    .params = {[OP] = {.name = "op",
                       .kind = KS_PARAM_CHOICE,
                       .preset = {.i = SUM},
                       .choices = op_names,
                       .status = KS_PARAMETER},
               [AXIS] = {.name = "axis",
                         .kind = KS_PARAM_AXES,
                         .preset = {.axes = {.count = 1, .axis = {-1}}},
                         .status = KS_AXIS},
               [KEEPDIMS] = {.name = "keepdims", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = reduce_resolve,
    .reference = reduce_reference,
    .scratch_bytes = reduce_scratch,
    .sample = reduce_sample,
};
