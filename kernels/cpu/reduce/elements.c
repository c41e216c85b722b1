/* Reductions of every datatype: running results side by side in double or int64_t, one line of the axis after the
 * other folded into them. */
#include "cpu/reduce/elements.h"
#include "cpu/convert.h"
#include "cpu/simd.h"

#include <math.h>
#include <string.h>

enum {
    NARROW = 256,    /* several short lines of an axis go into so many lanes at once */
    SHORT_ROW = 192, /* shorter rows are worked on side by side, as columns */
    ROWS = 256       /* so many of them */
};

/* --- folding: running results, lane by lane -------------------------------------------------------------------------- */

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
FOLD(magnitude_real, d, double, best + fabs(x))
FOLD(power_real, d, double, best + pow(fabs(x), w->power))
FOLD(most_real, d, double, fabs(x) > best || x != x ? fabs(x) : best)
FOLD(least_real, d, double, fabs(x) < best || x != x ? fabs(x) : best)
FOLD(sum_int, i, int64_t, (int64_t)((uint64_t)best + (uint64_t)x))
FOLD(prod_int, i, int64_t, (int64_t)((uint64_t)best *(uint64_t)x))
FOLD(square_int, i, int64_t, (int64_t)((uint64_t)best + (uint64_t)x * (uint64_t)x))
FOLD(max_int, i, int64_t, x > best ? x : best)
FOLD(min_int, i, int64_t, x < best ? x : best)

#define FOLD_COUNT(name, field)                                                                                        \
    KS_CLONES static void name(work *restrict w, const number *in, int count, int64_t step)                            \
    {                                                                                                                  \
        (void)step;                                                                                                    \
        for (int i = 0; i < count; i++) w->best.i[i] += in[i].field != 0;                                              \
    }
FOLD_COUNT(count_real, d)
FOLD_COUNT(count_int, i)

/* Welford's: best is the mean so far, more the sum of squared deviations from it. */
KS_CLONES static void moments(work *restrict w, const number *in, int count, int64_t step)
{
    (void)step;
    for (int i = 0; i < count; i++) {
        const double x = in[i].d, n = w->e[i] + 1, apart = x - w->best.d[i], mean = w->best.d[i] + apart / n;
        w->more.d[i] += apart * (x - mean);
        w->best.d[i] = mean;
        w->e[i] = n;
    }
}

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
 * new term is what has to be scaled down, in double, because a rising row scales it down at each step. */

static inline __attribute__((always_inline)) void logsumexp_add(work *restrict w, int i, double x, double e)
{
    const double best = w->best.d[i], sum = w->more.d[i];
    w->more.d[i] = x > best ? sum * e + 1 : sum + e;
    w->best.d[i] = x > best ? x : best;
}

/* Equal infinities have the distance 0: by masks, so that no branch keeps the loop from being vectorised. */
KS_CLONES static void logsumexp(work *restrict w, const number *in, int count, int64_t step)
{
    (void)step;
    for (int i = 0; i < count; i++) {
        const double x = in[i].d, best = w->best.d[i], apart = -fabs(x - best) * KS_LOG2_E;
        int64_t bits;
        memcpy(&bits, &apart, sizeof bits);
        bits &= -(int64_t)(x != best);
        double distance;
        memcpy(&distance, &bits, sizeof distance);
        w->e[i] = ks_exp2_double_inline(distance);
    }
    for (int i = 0; i < count; i++) logsumexp_add(w, i, in[i].d, w->e[i]);
}

/* --- joining: lanes [count, 2 * count) into [0, count) --- */

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

static void join_moments(work *w, int count)
{
    for (int i = 0; i < count; i++) {
        const double a = w->e[i], b = w->e[i + count], n = a + b, apart = w->best.d[i + count] - w->best.d[i];
        if (b == 0) continue;
        w->more.d[i] += w->more.d[i + count] + apart * apart * (a * b / n);
        w->best.d[i] += apart * (b / n);
        w->e[i] = n;
    }
}

/* --- the reference --------------------------------------------------------------------------------------------------- */

typedef struct job {
    int op;
    bool real, ordered; /* double or int64_t; UINT64 as ordered int64_t */
    bool direct;        /* elements need no conversion */
    ks_dtype in_dtype, out_dtype;
    const void *in;
    void *out;
    ks_walk walk;
    load_fn *load;
    fold_fn *fold;
    double divisor, ddof, power;
    work *w;
} job;

static fold_fn *choose_fold(int op, bool real)
{
    switch (op) {
    case VAR:
    case STD:
        return moments;
    case ANY:
    case ALL:
    case COUNT_NONZERO:
    case NORM_ZERO:
        return real ? count_real : count_int;
    case SUMSQ:
        return real ? square_real : square_int;
    case L1NORM:
        return magnitude_real;
    case NORM:
        return power_real;
    case NORM_MOST:
        return most_real;
    case NORM_LEAST:
        return least_real;
    case LOGSUM:
        return sum_real;
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
        return logsumexp;
    }
}

/* Of integers by their 64 bits; all else in double. */
static bool stays_integer(int op)
{
    static const unsigned ops = 1u << SUM | 1u << PROD | 1u << SUMSQ | 1u << MAX | 1u << MIN | 1u << ARGMAX |
                                1u << ARGMIN | 1u << ANY | 1u << ALL | 1u << COUNT_NONZERO | 1u << NORM_ZERO;
    return ops >> op & 1;
}

static job plan_job(const ks_spec *spec, const void *in, void *out, void *scratch)
{
    const ks_dtype dtype = spec->in[0].dtype;
    job j = {.op = ks_reduce_function(spec),
             .in_dtype = dtype,
             .out_dtype = spec->out[0].dtype,
             .in = in,
             .out = out,
             .ddof = spec->params[DDOF].d,
             .power = spec->params[POWER].d,
             .w = scratch};
    const bool arg = j.op == ARGMAX || j.op == ARGMIN;
    j.real = ks_dtype_kind(dtype) == KS_KIND_FLOAT || !stays_integer(j.op);
    j.ordered = dtype == KS_UINT64 && !j.real && (arg || j.op == MAX || j.op == MIN);
    j.direct = !j.ordered && (dtype == KS_FP64 || (!j.real && (dtype == KS_INT64 || dtype == KS_UINT64)));
    j.walk = ks_walk_plan(spec, SHORT_ROW);
    j.load = ks_reduce_loader(dtype, j.real, j.ordered);
    j.fold = choose_fold(j.op, j.real);
    j.divisor = (double)(ks_walk_combinations(&j.walk.rest) * j.walk.depth.extent);
    return j;
}

static void start_lanes(const job *j, int count)
{
    number first = {.i = 0};
    if (j->op == MAX) first = j->real ? (number){.d = -INFINITY} : (number){.i = INT64_MIN};
    if (j->op == MIN) first = j->real ? (number){.d = INFINITY} : (number){.i = INT64_MAX};
    if (j->op == PROD) first = j->real ? (number){.d = 1} : (number){.i = 1};
    if (j->op == LOGSUMEXP) first.d = -INFINITY;
    if (j->op == NORM_LEAST) first.d = INFINITY;
    if (j->op == VAR || j->op == STD) memset(j->w->e, 0, (size_t)count * sizeof *j->w->e);
    j->w->power = j->power;
    for (int i = 0; i < count; i++) {
        j->w->best.i[i] = first.i;
        j->w->more.i[i] = 0;
    }
}

/* What adds up two running results is no fold of elements where these are squares, say. */
static fold_fn *choose_join(const job *j)
{
    switch (j->op) {
    case L2NORM:
    case NORM:
        return sum_real;
    case SUMSQ:
        return j->real ? sum_real : sum_int;
    case ANY:
    case ALL:
    case COUNT_NONZERO:
    case NORM_ZERO:
        return sum_int;
    default:
        return j->fold;
    }
}

static void join_lanes(const job *j, int count)
{
    const bool arg = j->op == ARGMAX || j->op == ARGMIN;
    if (arg)
        join_arg(j->w, count, j->real, j->op == ARGMAX);
    else if (j->op == LOGSUMEXP)
        join_logsumexp(j->w, count);
    else if (j->op == VAR || j->op == STD)
        join_moments(j->w, count);
    else
        choose_join(j)(j->w, (const number *)&j->w->best + count, count, 0);
}

void ks_reduce_store_reals(ks_dtype dtype, void *out, int64_t at, const double *values, int count)
{
    switch (dtype) {
    case KS_FP16:
        ks_doubles_to_fp16(values, (uint16_t *)out + at, (size_t)count);
        break;
    case KS_BF16:
        ks_doubles_to_bf16(values, (uint16_t *)out + at, (size_t)count);
        break;
    case KS_FP32:
        for (int i = 0; i < count; i++) ((float *)out)[at + i] = (float)values[i];
        break;
    default:
        memcpy((double *)out + at, values, (size_t)count * sizeof *values);
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

/* Lane i's result where it is a floating-point number. */
static double real_of(const job *j, int i)
{
    const work *w = j->w;
    const double best = w->best.d[i], freedom = j->divisor - j->ddof;
    switch (j->op) {
    case MEAN:
        return best / j->divisor;
    case L2NORM:
        return sqrt(best);
    case LOGSUMEXP:
        return best + log(w->more.d[i]);
    case LOGSUM:
        return log(best);
    case NORM:
        return pow(best, 1 / j->power);
    case NORM_ZERO:
        return (double)w->best.i[i];
    case VAR:
        return freedom > 0 ? w->more.d[i] / freedom : (double)NAN;
    case STD:
        return freedom > 0 ? sqrt(w->more.d[i] / freedom) : (double)NAN;
    default:
        return best;
    }
}

static void store_lanes(const job *j, int64_t at, int count)
{
    work *w = j->w;
    const bool whole = j->op == ARGMAX || j->op == ARGMIN || j->op == ANY || j->op == ALL || j->out_dtype == KS_INT64 ||
                       !(j->real || j->op == NORM_ZERO);
    if (!whole) {
        for (int i = 0; i < count; i++) w->x.d[i] = real_of(j, i);
        ks_reduce_store_reals(j->out_dtype, j->out, at, w->x.d, count);
        return;
    }
    for (int i = 0; i < count; i++) {
        if (j->op == ARGMAX || j->op == ARGMIN)
            ((int64_t *)j->out)[at + i] = w->more.i[i];
        else if (j->op == ANY)
            ((uint8_t *)j->out)[at + i] = w->best.i[i] > 0;
        else if (j->op == ALL)
            ((uint8_t *)j->out)[at + i] = (double)w->best.i[i] == j->divisor;
        else
            store_int(j, at + i, w->best.i[i]);
    }
}

/* How many lines of the axis go into the lanes at once: many where one is narrow and they follow each other in memory,
 * a power of two, so that halving joins them. */
static int lines_at_once(const job *j, int count)
{
    const ks_walk *w = &j->walk;
    const bool costly = j->op == LOGSUMEXP || j->op == ARGMAX || j->op == ARGMIN || j->fold == moments; /* to join */
    const int most = costly ? NARROW / 8 : NARROW;
    if (w->lanes.stride != 1 || count != w->lanes.extent || w->depth.stride != count) return 1;
    int lines = 1;
    while (2 * lines * count <= most && 2 * lines <= w->depth.extent) lines *= 2;
    return lines;
}

/* `count` results that lie side by side, from the element `base` of the first. */
static void reduce_lanes(const job *j, int64_t base, int64_t at, int count)
{
    const ks_walk *shape = &j->walk;
    work *w = j->w;
    const int lines = lines_at_once(j, count);
    const bool arg = j->op == ARGMAX || j->op == ARGMIN;
    const int64_t rest = ks_walk_combinations(&shape->rest), stride = shape->lanes.stride;
    start_lanes(j, count * lines);
    for (int64_t n = 0; n < rest; n++) {
        const int64_t start = base + ks_walk_offset(&shape->rest, n);
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

void ks_reduce_lanes(const ks_spec *spec, const void *in, void *out, void *scratch)
{
    const job j = plan_job(spec, in, out, scratch);
    const ks_dimension lanes = j.walk.lanes;
    const int64_t kept = ks_walk_combinations(&j.walk.kept), block = lanes.stride == 1 ? LANES : ROWS;
    for (int64_t n = 0; n < kept; n++) {
        const int64_t base = ks_walk_offset(&j.walk.kept, n);
        for (int64_t c = 0; c < lanes.extent; c += block) {
            const int64_t left = lanes.extent - c;
            reduce_lanes(&j, base + c * lanes.stride, n * lanes.extent + c, (int)(left < block ? left : block));
        }
    }
}

size_t ks_reduce_lanes_scratch(void)
{
    return sizeof(work);
}
