/* Prefixes on the CPU: the reference. Everything is joined in double or in 64-bit integers and rounded once.
 *
 * Owns     nothing; up to LANES elements, as numbers, and the prefixes so far lie in the caller's scratch.
 * Threads  any; all memory is the caller's.
 *
 * Neighbouring chains are taken side by side, a step at a time, in vector code; where few lie side by side a chain is taken by itself, LANES
 * elements at a time, of which each quarter is scanned beside the others, so that four sums are under way, and then gets what is before it. */
#include "cpu/convert.h"
#include "cpu/reduce/elements.h"
#include "cpu/reference.h"
#include "cpu/simd.h"
#include "ops/scan.h"

#include <float.h>
#include <math.h>

extern const ks_cpu_op ks_scan_cpu;

enum { SIDE_BY_SIDE = 24 /* chains, at least, that are taken together */ };

/* --- loops ------------------------------------------------------------------------------------------------------------ */

/* NAME_columns: w->x becomes the next prefix of each of `count` chains, whose prefixes so far are w->best. NAME_chain: x becomes the
 * prefixes of n elements of one chain behind `before`; returns the last one. */
#define SCAN(name, field, type, none, join)                                                                            \
    KS_CLONES static void name##_columns(work *restrict w, int count, bool exclusive)                                  \
    {                                                                                                                  \
        for (int i = 0; i < count; i++) {                                                                              \
            const type before = w->best.field[i], after = join(before, w->x.field[i]);                                 \
            w->best.field[i] = after;                                                                                  \
            w->x.field[i] = exclusive ? before : after;                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    KS_CLONES static void name##_behind(type *restrict x, int n, type before)                                          \
    {                                                                                                                  \
        for (int i = 0; i < n; i++) x[i] = join(before, x[i]);                                                         \
    }                                                                                                                  \
    static number name##_chain(number *all, int n, number before)                                                      \
    {                                                                                                                  \
        type *x = &all->field, sum = before.field, second = none, third = none, fourth = none;                         \
        const int quarter = n / 4;                                                                                     \
        for (int i = 0; i < quarter; i++) {                                                                            \
            x[i] = sum = join(sum, x[i]);                                                                              \
            x[quarter + i] = second = join(second, x[quarter + i]);                                                    \
            x[2 * quarter + i] = third = join(third, x[2 * quarter + i]);                                              \
            x[3 * quarter + i] = fourth = join(fourth, x[3 * quarter + i]);                                            \
        }                                                                                                              \
        for (int part = 1; part < 4; part++) {                                                                         \
            const type mine = part == 1 ? second : part == 2 ? third : fourth;                                         \
            name##_behind(x + part * quarter, quarter, sum);                                                           \
            sum = join(sum, mine);                                                                                     \
        }                                                                                                              \
        for (int i = 4 * quarter; i < n; i++) x[i] = sum = join(sum, x[i]);                                            \
        return (number){.field = sum};                                                                                 \
    }

#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define ADD_WRAPPING(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define MULTIPLY_WRAPPING(a, b) ((int64_t)((uint64_t)(a) * (uint64_t)(b)))
/* The earlier one of equals, and NaN once there is one. */
#define GREATER(a, b) (!((b) <= (a)) && (a) == (a) ? (b) : (a))
#define LESS(a, b) (!((b) >= (a)) && (a) == (a) ? (b) : (a))
#define GREATER_WHOLE(a, b) ((b) > (a) ? (b) : (a))
#define LESS_WHOLE(a, b) ((b) < (a) ? (b) : (a))

SCAN(sum_real, d, double, 0, ADD)
SCAN(prod_real, d, double, 1, MULTIPLY)
SCAN(max_real, d, double, -(double)INFINITY, GREATER)
SCAN(min_real, d, double, (double)INFINITY, LESS)
SCAN(sum_whole, i, int64_t, 0, ADD_WRAPPING)
SCAN(prod_whole, i, int64_t, 1, MULTIPLY_WRAPPING)
SCAN(max_whole, i, int64_t, INT64_MIN, GREATER_WHOLE)
SCAN(min_whole, i, int64_t, INT64_MAX, LESS_WHOLE)

/* sum: of e^(x - reference); the reference is finite, so that inf - inf never happens. */
static double logsumexp_take(double x, double *reference, double *sum)
{
    if (x > *reference) {
        const double next = x < DBL_MAX ? x : DBL_MAX;
        *sum *= exp(*reference - next);
        *reference = next;
    }
    *sum += exp(x - *reference);
    return *reference + log(*sum);
}

/* w->best: references; w->more: sums; w->e: prefixes so far. */
static void logsumexp_columns(work *restrict w, int count, bool exclusive)
{
    for (int i = 0; i < count; i++) {
        const double before = w->e[i];
        w->e[i] = logsumexp_take(w->x.d[i], &w->best.d[i], &w->more.d[i]);
        w->x.d[i] = exclusive ? before : w->e[i];
    }
}

/* --- a scan ----------------------------------------------------------------------------------------------------------- */

typedef void columns_fn(work *restrict w, int count, bool exclusive);
typedef number chain_fn(number *all, int n, number before);

typedef struct task {
    ks_scan_shape s;
    bool real, ordered; /* numbers are doubles; UINT64 in the order of INT64 */
    load_fn *load;
    columns_fn *columns;
    chain_fn *chain; /* NULL: logsumexp's, which is columns of one */
    number none;     /* the identity */
    const void *in;
    void *out;
    work *w;
} task;

/* Of max and min: the least value of the datatype, or the greatest. */
static int64_t whole_end(ks_dtype dtype, bool least)
{
    const int bits = 8 * (int)ks_dtype_size(dtype);
    if (bits == 64) return least ? INT64_MIN : INT64_MAX; /* of UINT64 in the order of INT64, too */
    if (ks_dtype_kind(dtype) == KS_KIND_UINT) return least ? 0 : ((int64_t)1 << bits) - 1;
    return least ? -((int64_t)1 << (bits - 1)) : ((int64_t)1 << (bits - 1)) - 1;
}

static void choose_loops(task *t)
{
    switch (t->s.op) {
    case KS_SCAN_SUM:
        t->columns = t->real ? sum_real_columns : sum_whole_columns;
        t->chain = t->real ? sum_real_chain : sum_whole_chain;
        break;
    case KS_SCAN_PROD:
        t->columns = t->real ? prod_real_columns : prod_whole_columns;
        t->chain = t->real ? prod_real_chain : prod_whole_chain;
        t->none = t->real ? (number){.d = 1} : (number){.i = 1};
        break;
    case KS_SCAN_MAX:
        t->columns = t->real ? max_real_columns : max_whole_columns;
        t->chain = t->real ? max_real_chain : max_whole_chain;
        t->none = t->real ? (number){.d = -(double)INFINITY} : (number){.i = whole_end(t->s.dtype, true)};
        break;
    case KS_SCAN_MIN:
        t->columns = t->real ? min_real_columns : min_whole_columns;
        t->chain = t->real ? min_real_chain : min_whole_chain;
        t->none = t->real ? (number){.d = (double)INFINITY} : (number){.i = whole_end(t->s.dtype, false)};
        break;
    default:
        t->columns = logsumexp_columns;
        t->none.d = -DBL_MAX;
    }
}

static task task_of(const ks_spec *spec, const void *in, void *out, work *w)
{
    task t = {.s = ks_scan_shape_of(spec), .in = in, .out = out, .w = w};
    const bool extreme = t.s.op == KS_SCAN_MAX || t.s.op == KS_SCAN_MIN;
    t.real = ks_dtype_kind(t.s.dtype) == KS_KIND_FLOAT || t.s.op == KS_SCAN_LOGSUMEXP;
    t.ordered = t.s.dtype == KS_UINT64 && extreme;
    t.load = ks_reduce_loader(t.s.dtype, t.real, t.ordered);
    choose_loops(&t);
    return t;
}

#define STORE(type, expression)                                                                                        \
    for (int i = 0; i < count; i++) ((type *)t->out)[at + i * stride] = (type)(expression);                            \
    break

static void store_halves(const task *t, int64_t at, int64_t stride, int count)
{
    uint16_t *out = (uint16_t *)t->out + at, *to = stride == 1 ? out : t->w->raw;
    (t->s.out_dtype == KS_FP16 ? ks_doubles_to_fp16 : ks_doubles_to_bf16)(t->w->x.d, to, (size_t)count);
    if (stride == 1) return;
    for (int i = 0; i < count; i++) out[i * stride] = to[i];
}

/* w->x, rounded once, to places `stride` apart, the first of which is `at`. */
static void store(const task *t, int64_t at, int64_t stride, int count)
{
    const work *w = t->w;
    switch (t->s.out_dtype) {
    case KS_FP16:
    case KS_BF16:
        store_halves(t, at, stride, count);
        break;
    case KS_FP32:
        STORE(float, w->x.d[i]);
    case KS_FP64:
        STORE(double, w->x.d[i]);
    case KS_UINT64:
        STORE(uint64_t, ORDERED((uint64_t)w->x.i[i]));
    case KS_INT64:
        STORE(int64_t, w->x.i[i]);
    case KS_INT32:
    case KS_UINT32:
        STORE(uint32_t, w->x.i[i]);
    case KS_INT16:
    case KS_UINT16:
        STORE(uint16_t, w->x.i[i]);
    default:
        STORE(uint8_t, w->x.i[i]);
    }
}

static void start_columns(const task *t, int count)
{
    for (int c = 0; c < count; c++) {
        t->w->best.i[c] = t->none.i;
        t->w->more.d[c] = 0;
        t->w->e[c] = -(double)INFINITY;
    }
}

/* `count` chains side by side, from the place of the first one's first element. */
static void scan_columns(const task *t, int64_t first, int count)
{
    const ks_scan_shape *s = &t->s;
    start_columns(t, count);
    for (int64_t i = 0; i < s->length; i++) {
        const int64_t at = first + (s->reverse ? s->length - 1 - i : i) * s->inner;
        t->load(t->in, at, 1, count, t->w);
        t->columns(t->w, count, s->exclusive);
        store(t, at, 1, count);
    }
}

/* Prefixes of the next n elements of the chain, in w->x. */
static void scan_block(const task *t, int n, number *before)
{
    number *x = (number *)(void *)&t->w->x;
    if (!t->chain) { /* the state of a chain is the first column's */
        for (int i = 0; i < n; i++) {
            const double prefix = t->w->e[0];
            t->w->e[0] = logsumexp_take(x[i].d, &t->w->best.d[0], &t->w->more.d[0]);
            x[i].d = t->s.exclusive ? prefix : t->w->e[0];
        }
        return;
    }
    const number first = *before;
    *before = t->chain(x, n, first);
    if (!t->s.exclusive) return;
    memmove(x + 1, x, (size_t)(n - 1) * sizeof *x);
    x[0] = first;
}

static void scan_chain(const task *t, int64_t first)
{
    const ks_scan_shape *s = &t->s;
    const int64_t stride = s->reverse ? -s->inner : s->inner,
                  start = s->reverse ? first + (s->length - 1) * s->inner : first;
    number before = t->none;
    start_columns(t, 1);
    for (int64_t i = 0; i < s->length; i += LANES) {
        const int n = s->length - i < LANES ? (int)(s->length - i) : LANES;
        t->load(t->in, start + i * stride, stride, n, t->w);
        scan_block(t, n, &before);
        store(t, start + i * stride, stride, n);
    }
}

/* ks_cpu_fn */
static void scan_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    const task t = task_of(spec, in[0], out[0], scratch);
    const ks_scan_shape *s = &t.s;
    if (ks_tensor_count(&spec->out[0]) == 0) return;
    for (int64_t o = 0; o < s->outer; o++) {
        const int64_t first = o * s->length * s->inner;
        if (s->inner < SIDE_BY_SIDE)
            for (int64_t c = 0; c < s->inner; c++) scan_chain(&t, first + c);
        else
            for (int64_t c = 0; c < s->inner; c += LANES)
                scan_columns(&t, first + c, s->inner - c < LANES ? (int)(s->inner - c) : LANES);
    }
}

static size_t scan_scratch(const ks_spec *spec)
{
    (void)spec;
    return sizeof(work);
}

const ks_cpu_op ks_scan_cpu = {.reference = scan_reference, .scratch_bytes = scan_scratch};
