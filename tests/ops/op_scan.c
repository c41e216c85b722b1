/* scan against prefixes in long double, and exact ones of integers: the reference by itself in buffers of exactly its size, then every backend
 * that this machine has, on all its paths. KS_CASES, KS_SEED: how many random cases, and which. KS_HUGE: also tensors of over 2^31 elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/op_harness.h"
#include "ops/op_values.h"
#include "cpu/reference.h"
#include "ops/scan.h"

extern const ks_op ks_op_scan, ks_op_reduce;

enum { ARENA_BYTES = 192 << 20 };
#include "ops/op_backends.h"

static const ks_dtype dtypes[] = {KS_FP32,  KS_FP16,  KS_BF16, KS_FP64,   KS_INT32,  KS_UINT8,
                                  KS_INT64, KS_INT16, KS_INT8, KS_UINT16, KS_UINT32, KS_UINT64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* --- specs ------------------------------------------------------------------------------------------------------------ */

static ks_spec spec_of(ks_dtype dtype, ks_scan_op op, int rank, const int64_t *dims)
{
    ks_spec spec;
    ks_spec_init(&spec, &ks_op_scan);
    spec.in[0] = (ks_tensor){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) spec.in[0].dims[i] = dims[i];
    spec.params[KS_SCAN_OP].i = op;
    return spec;
}

static ks_spec cube_of(ks_dtype dtype, ks_scan_op op, int64_t outer, int64_t length, int64_t inner)
{
    ks_spec spec = spec_of(dtype, op, 3, (const int64_t[]){outer, length, inner});
    spec.params[KS_SCAN_AXIS].i = 1;
    return spec;
}

static void describe(const ks_spec *spec, const char *who)
{
    char dims[KS_RANK_MAX * 21];
    ks_dims_text(&spec->in[0], dims, sizeof dims);
    print_error("%s: %s [%s] op %d axis %d exclusive %d reverse %d\n", who, ks_dtype_name(spec->in[0].dtype), dims,
                (int)spec->params[KS_SCAN_OP].i, (int)spec->params[KS_SCAN_AXIS].i,
                (int)spec->params[KS_SCAN_EXCLUSIVE].i, (int)spec->params[KS_SCAN_REVERSE].i);
}

static bool is_float(ks_dtype dtype)
{
    return ks_dtype_kind(dtype) == KS_KIND_FLOAT;
}

/* --- integers: exact -------------------------------------------------------------------------------------------------- */

/* In 64 bits, as its datatype extends it. */
static uint64_t whole_of(ks_dtype dtype, const void *data, int64_t i)
{
    const size_t size = ks_dtype_size(dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const char *)data + (size_t)i * size, size);
    if (ks_dtype_kind(dtype) == KS_KIND_INT && size < 8 && bits >> (8 * size - 1)) bits |= UINT64_MAX << 8 * size;
    return bits;
}

static uint64_t whole_none(const ks_scan_shape *s)
{
    const int bits = 8 * (int)ks_dtype_size(s->dtype);
    const bool is_signed = ks_dtype_kind(s->dtype) == KS_KIND_INT;
    const uint64_t greatest = UINT64_MAX >> (64 - bits + is_signed);
    switch (s->op) {
    case KS_SCAN_SUM:
        return 0;
    case KS_SCAN_PROD:
        return 1;
    case KS_SCAN_MAX:
        return is_signed ? ~greatest : 0;
    default:
        return greatest;
    }
}

static uint64_t whole_join(const ks_scan_shape *s, uint64_t a, uint64_t b)
{
    const bool less = ks_dtype_kind(s->dtype) == KS_KIND_INT ? (int64_t)a < (int64_t)b : a < b;
    switch (s->op) {
    case KS_SCAN_SUM:
        return a + b;
    case KS_SCAN_PROD:
        return a * b;
    case KS_SCAN_MAX:
        return less ? b : a;
    default:
        return less ? a : b;
    }
}

/* --- floats: within bounds -------------------------------------------------------------------------------------------- */

/* What is in front of a place, and what its bound is made of. */
typedef struct prefix {
    long double value; /* logsumexp: the reference; sum: of e^(x - reference) */
    long double sum;
    long double sizes;         /* sum: of |x| */
    double power, least, most; /* prod: of 2, of the finite factors so far; in its course */
    int64_t count;
} prefix;

static prefix prefix_none(ks_scan_op op)
{
    const long double none = op == KS_SCAN_PROD                             ? 1
                             : op == KS_SCAN_MAX || op == KS_SCAN_LOGSUMEXP ? -(long double)INFINITY
                             : op == KS_SCAN_MIN                            ? (long double)INFINITY
                                                                            : 0;
    return (prefix){.value = none};
}

static void take_logsumexp(prefix *p, long double x)
{
    if (isnan(x)) {
        p->sum = x;
        return;
    }
    if (x > p->value) {
        p->sum = isinf(x) && x > 0 ? p->sum * 0 + 1
                 : isinf(p->value) ? p->sum * 0 + 1
                                   : p->sum * expl(p->value - x) + 1;
        p->value = x;
    } else if (!isinf(p->value)) {
        p->sum += expl(x - p->value);
    }
}

static void take(ks_scan_op op, prefix *p, long double x)
{
    p->count++;
    switch (op) {
    case KS_SCAN_SUM:
        p->value += x;
        p->sizes += fabsl(x);
        break;
    case KS_SCAN_PROD:
        p->value *= x;
        if (x != 0 && isfinite(x)) p->power += (double)log2l(fabsl(x));
        p->least = fmin(p->least, p->power);
        p->most = fmax(p->most, p->power);
        break;
    case KS_SCAN_MAX:
        if (x > p->value || isnan(x)) p->value = isnan(p->value) ? p->value : x;
        break;
    case KS_SCAN_MIN:
        if (x < p->value || isnan(x)) p->value = isnan(p->value) ? p->value : x;
        break;
    default:
        take_logsumexp(p, x);
    }
}

static long double prefix_value(ks_scan_op op, const prefix *p)
{
    if (op != KS_SCAN_LOGSUMEXP) return p->value;
    return isnan(p->sum) ? p->sum : isinf(p->value) ? p->value : p->value + logl(p->sum);
}

/* How far an answer of the datatype may be from the prefix. */
static long double bound_of(const ks_scan_shape *s, const prefix *p, long double want)
{
    const bool wide = ks_dtype_size(s->dtype) == 8 || !is_float(s->dtype);
    const long double slow = (long double)(64 + p->count) * 0x1p-53L, rounding = 1.01L * values_roundoff(s->out_dtype);
    long double bound = rounding * fabsl(want) + values_floor(s->out_dtype);
    if (s->op == KS_SCAN_MAX || s->op == KS_SCAN_MIN) return 0;
    if (s->op == KS_SCAN_SUM) bound += p->sizes * (slow + (wide ? 0 : 8 * 0x1p-24L));
    if (s->op == KS_SCAN_PROD)
        bound += fabsl(want) * ((long double)(p->count + 64) * 0x1p-53L + (s->dtype == KS_FP32 || wide ? 0 : 0x1p-24L));
    if (s->op == KS_SCAN_LOGSUMEXP) {
        const long double size = fabsl(want) > 1 ? fabsl(want) : 1;
        bound += wide ? size * 0x1p-45L + slow : size * 4 * 0x1p-24L + 0x1p-21L; /* slow: sums of the reference, too */
    }
    return bound;
}

/* A product of parts is what it is only while none of them leaves FP64. */
static bool is_certain(const ks_scan_shape *s, const prefix *p)
{
    return s->op != KS_SCAN_PROD || p->most - p->least < 1000;
}

static bool agrees(const ks_scan_shape *s, const prefix *p, long double got)
{
    const long double want = prefix_value(s->op, p);
    if (!is_certain(s, p)) return true;
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (isinf(want)) return got == want;
    const long double bound = bound_of(s, p, want);
    if (isinf(got)) return (got > 0) == (want > 0) && fabsl(want) + bound >= values_limit(s->out_dtype);
    return fabsl(got - want) <= bound;
}

/* --- a chain ---------------------------------------------------------------------------------------------------------- */

static void fail_at(const ks_spec *spec, const char *who, int64_t chain, int64_t i, long double got, long double want)
{
    describe(spec, who);
    fail_msg("chain %lld element %lld: %.20Lg, expected %.20Lg", (long long)chain, (long long)i, got, want);
}

static void check_chain(const ks_spec *spec, const void *in, const void *out, const char *who, int64_t chain)
{
    const ks_scan_shape s = ks_scan_shape_of(spec);
    const int64_t first = chain / s.inner * s.length * s.inner + chain % s.inner;
    const bool whole = !is_float(s.dtype) && s.op != KS_SCAN_LOGSUMEXP;
    prefix p = prefix_none(s.op);
    uint64_t sum = whole ? whole_none(&s) : 0;
    for (int64_t i = 0; i < s.length; i++) {
        const int64_t at = first + (s.reverse ? s.length - 1 - i : i) * s.inner;
        const prefix front = p;
        const uint64_t in_front = sum;
        if (whole)
            sum = whole_join(&s, sum, whole_of(s.dtype, in, at));
        else
            take(s.op, &p, values_get(s.dtype, in, at));
        if (whole) {
            const uint64_t got = whole_of(s.out_dtype, out, at), want = s.exclusive ? in_front : sum;
            if (got != want) fail_at(spec, who, chain, i, (long double)(int64_t)got, (long double)(int64_t)want);
        } else {
            const prefix *want = s.exclusive ? &front : &p;
            const long double got = values_get(s.out_dtype, out, at);
            if (!agrees(&s, want, got)) fail_at(spec, who, chain, i, got, prefix_value(s.op, want));
        }
    }
}

static void check(const ks_spec *spec, const void *in, const void *out, const char *who, int64_t most)
{
    const ks_scan_shape s = ks_scan_shape_of(spec);
    const int64_t chains = s.outer * s.inner;
    for (int64_t i = 0; i < chains && i < most; i++)
        check_chain(spec, in, out, who,
                    chains <= most ? i
                    : i            ? (int64_t)(values_next() % (uint64_t)chains)
                                   : chains - 1);
}

/* --- runs ------------------------------------------------------------------------------------------------------------- */

static void run_backend(int b, const ks_spec *spec, const void *in, void *out)
{
    ks_error error;
    if (op_run(b, spec, &in, out, values_below(4) == 0, &error) == KS_OK) return;
    describe(spec, b ? "cuda" : "cpu");
    fail_msg("%s", error.text);
}

static void resolve(ks_spec *spec)
{
    ks_error error = {0};
    if (ks_op_scan.resolve(spec, &error) != KS_OK) {
        describe(spec, "resolve");
        fail_msg("%s", error.text);
    }
    ks_spec_layout(spec);
}

/* Runs and compares everywhere. */
static void try_values(const ks_spec *spec, const void *in, int64_t most)
{
    void *out = malloc(ks_spec_out_bytes(spec) + 1);
    assert_non_null(out);
    op_reference(spec, &in, out);
    check(spec, in, out, "reference", most);
    for (int b = 0; b < 2; b++) {
        if (!harnesses[b]) continue;
        run_backend(b, spec, in, out);
        check(spec, in, out, b ? "cuda" : "cpu", most);
    }
    free(out);
}

/* Factors near 1, so that products stay in FP64. */
static void fill_factors(ks_dtype dtype, void *data, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values_put(dtype, data, i, (values_below(9) ? 1 : -1) * exp2(values_normal() / (values_below(50) ? 16 : 1)));
}

static void *filled(const ks_spec *spec, values_kind kind)
{
    const ks_tensor *x = &spec->in[0];
    void *in = malloc(x->size_bytes + 1);
    assert_non_null(in);
    values_fill(x->dtype, in, ks_tensor_count(x), kind, x->dims[x->rank - 1] ? x->dims[x->rank - 1] : 1);
    if (spec->params[KS_SCAN_OP].i == KS_SCAN_PROD && is_float(x->dtype) && kind < VALUES_FINITE)
        fill_factors(x->dtype, in, ks_tensor_count(x));
    return in;
}

static void try_kind(ks_spec *spec, values_kind kind, int64_t most)
{
    resolve(spec);
    void *in = filled(spec, kind);
    try_values(spec, in, most);
    free(in);
}

/* --- random cases ----------------------------------------------------------------------------------------------------- */

static void draw_parameters(ks_spec *spec)
{
    const int rank = spec->in[0].rank, axis = values_below(2) ? rank - 1 : values_below(rank);
    spec->params[KS_SCAN_AXIS].i = values_below(2) ? axis : axis - rank;
    spec->params[KS_SCAN_EXCLUSIVE].i = values_below(2);
    spec->params[KS_SCAN_REVERSE].i = values_below(2);
}

static void random_shapes_and_parameters(void **state)
{
    (void)state;
    const int cases = values_cases(400);
    for (int i = 0; i < cases; i++) {
        ks_tensor shape = {0};
        values_shape(&shape, 5, values_most());
        ks_spec spec =
            spec_of(dtypes[values_below(DTYPES)], (ks_scan_op)values_below(KS_SCAN_OPS), shape.rank, shape.dims);
        draw_parameters(&spec);
        try_kind(&spec, (values_kind)values_below(VALUES_KINDS), 300);
    }
    printf("%d random cases\n", cases);
}

/* Around the ends of runs, of a warp's and a CTA's tile, and of a group of tiles; as rows, and as columns of every width that matters. */
static void borders_of_tiles(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1,   2,   3,   4,    5,    14,   15,   16,   17,   29,   30,
                                      31,  32,  33,  119,  120,  121,  225,  239,  240,  241,  449,
                                      479, 480, 481, 1023, 1921, 3839, 3840, 3841, 7681, 16385},
                         inners[] = {1, 1, 1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 97, 127, 128, 130};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int t = 0; t < 5; t++) {
            const int64_t inner = inners[values_below(sizeof inners / sizeof *inners)];
            const int64_t outer = values_below(2) ? 1 + values_below(3) : 1 + 9000 / (lengths[n] * inner);
            ks_spec spec =
                cube_of(dtypes[values_below(DTYPES)], (ks_scan_op)values_below(KS_SCAN_OPS), outer, lengths[n], inner);
            spec.params[KS_SCAN_EXCLUSIVE].i = values_below(2);
            spec.params[KS_SCAN_REVERSE].i = values_below(2);
            try_kind(&spec, (values_kind)values_below(VALUES_KINDS), 40);
        }
}

/* Each kernel of the CUDA planner, for each operation and source, in as little work as reaches it on a chip of any size: for sanitizers. */
static void each_kernel(void **state)
{
    (void)state;
    static const int64_t cubes[][3] = {{70, 9, 1}, {5, 40, 3}, {2, 7, 70}, {2, 5000, 1}, {1, 300, 40}, {600, 500, 1}};
    for (size_t n = 0; n < sizeof cubes / sizeof *cubes; n++)
        for (int op = 0; op < KS_SCAN_OPS; op++)
            for (int d = 0; d < 6; d++) {
                ks_spec spec = cube_of(dtypes[d], (ks_scan_op)op, cubes[n][0], cubes[n][1], cubes[n][2]);
                if (n == 5 && d != op) continue; /* enough chains that each CTA has its own on any chip */
                spec.params[KS_SCAN_EXCLUSIVE].i = d % 2;
                spec.params[KS_SCAN_REVERSE].i = d / 2 % 2;
                try_kind(&spec, VALUES_NORMAL, 50);
            }
}

/* A chain of more tiles than a group of groups has, and than a launch of a small chip; many of one group. */
static void many_tiles(void **state)
{
    (void)state;
    static const struct {
        ks_dtype dtype;
        ks_scan_op op;
        int64_t outer, length, inner;
    } table[] = {{KS_INT8, KS_SCAN_SUM, 1, 4100000, 1},      {KS_FP32, KS_SCAN_SUM, 1, 1500000, 1},
                 {KS_FP32, KS_SCAN_SUM, 1, 30000, 32},       {KS_BF16, KS_SCAN_MAX, 2, 400001, 1},
                 {KS_FP64, KS_SCAN_SUM, 1, 90000, 7},        {KS_UINT16, KS_SCAN_PROD, 3, 70000, 2},
                 {KS_FP32, KS_SCAN_LOGSUMEXP, 1, 300000, 1}, {KS_FP16, KS_SCAN_SUM, 1, 4097, 200}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        ks_spec spec = cube_of(table[n].dtype, table[n].op, table[n].outer, table[n].length, table[n].inner);
        spec.params[KS_SCAN_EXCLUSIVE].i = values_below(2);
        spec.params[KS_SCAN_REVERSE].i = values_below(2);
        try_kind(&spec, VALUES_NORMAL, 40);
    }
}

/* Few rows that CTAs share: one tile of each CTA, several of them, and ends of rows anywhere in them; and rows of each CTA's own. On a chip of one
 * SM (KS_EMULATED_SMS) the slots of messages are used again. */
static void many_rows_of_tiles(void **state)
{
    (void)state;
    static const ks_dtype floats[] = {KS_FP32, KS_BF16, KS_FP64, KS_FP16};
    static const int64_t rows[] = {1, 1, 2, 3, 4, 7};
    for (int n = 0; n < 40; n++) {
        const int64_t outer = rows[values_below(6)];
        const int64_t length = n % 4 ? 3841 + values_below(9000) : 20000 + values_below(60000);
        ks_spec spec = cube_of(floats[values_below(4)], (ks_scan_op)(n % KS_SCAN_OPS), outer, length, 1);
        spec.params[KS_SCAN_EXCLUSIVE].i = values_below(2);
        spec.params[KS_SCAN_REVERSE].i = values_below(2);
        try_kind(&spec, (values_kind)values_below(VALUES_KINDS), 60);
    }
}

/* Threads of a prefix each: short axes, and on a chip of one SM so many prefixes that their axes may have any length. */
static void many_columns(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 7, 15, 16, 29, 30, 31, 45, 46, 100},
                         inners[] = {32, 33, 63, 64, 129, 300, 1001};
    for (int n = 0; n < 60; n++) {
        const int64_t inner = inners[values_below(sizeof inners / sizeof *inners)];
        ks_spec spec = cube_of(dtypes[values_below(DTYPES)], (ks_scan_op)(n % KS_SCAN_OPS), 1 + values_below(5),
                               lengths[values_below(sizeof lengths / sizeof *lengths)], inner);
        spec.params[KS_SCAN_EXCLUSIVE].i = values_below(2);
        spec.params[KS_SCAN_REVERSE].i = values_below(2);
        try_kind(&spec, (values_kind)values_below(VALUES_KINDS), 60);
    }
}

/* Chains that are longer than a tile of a warp, in such numbers that on a chip of one SM (KS_EMULATED_SMS) each warp has its own. */
static void many_chains(void **state)
{
    (void)state;
    static const int64_t inners[] = {1, 1, 2, 3, 5, 17, 31, 32, 40, 129};
    for (int n = 0; n < 60; n++) {
        const int64_t inner = inners[values_below(sizeof inners / sizeof *inners)], length = 16 + values_below(2100);
        const int64_t outer = 1 + (32 + values_below(20)) / (1 + inner / 32);
        ks_spec spec =
            cube_of(dtypes[values_below(DTYPES)], (ks_scan_op)(n % KS_SCAN_OPS), outer, 1 + length / inner, inner);
        spec.params[KS_SCAN_EXCLUSIVE].i = values_below(2);
        spec.params[KS_SCAN_REVERSE].i = values_below(2);
        try_kind(&spec, (values_kind)values_below(VALUES_KINDS), 60);
    }
}

/* The shapes of the benches, on a GPU alone. */
static void tensors_of_the_whole_chip(void **state)
{
    (void)state;
    static const struct {
        ks_dtype dtype;
        int64_t outer, length, inner;
    } table[] = {{KS_FP32, 1, 8 << 20, 1}, {KS_FP32, 2048, 4096, 1}, {KS_FP32, 1, 2048, 2048},
                 {KS_FP32, 1, 1 << 20, 2}, {KS_BF16, 4096, 4096, 1}, {KS_INT32, 1, 4 << 20, 1},
                 {KS_FP16, 64, 1000, 33},  {KS_FP32, 131072, 64, 1}, {KS_FP32, 9001, 690, 1},
                 {KS_BF16, 1, 133, 92272}};
    if (!harnesses[1] || strcmp(ks_backend_cuda->name, "cuda") != 0) skip();
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        ks_spec spec = cube_of(table[n].dtype, KS_SCAN_SUM, table[n].outer, table[n].length, table[n].inner);
        try_kind(&spec, VALUES_NORMAL, 6);
    }
}

/* --- special values --------------------------------------------------------------------------------------------------- */

/* NaN, infinities, zeros and the largest numbers anywhere: what follows them. */
static void special_values(void **state)
{
    (void)state;
    static const double values[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 6e4, -6e4, 1e-40};
    static const int64_t lengths[] = {12, 400, 4000, 20000};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int d = 0; d < 4; d++)
            for (int op = 0; op < KS_SCAN_OPS; op++) {
                ks_spec spec = cube_of(dtypes[d], (ks_scan_op)op, 3, lengths[n], 1 + values_below(2));
                spec.params[KS_SCAN_EXCLUSIVE].i = values_below(2);
                spec.params[KS_SCAN_REVERSE].i = values_below(2);
                resolve(&spec);
                void *in = filled(&spec, VALUES_NORMAL);
                const int64_t count = ks_tensor_count(&spec.in[0]);
                for (int k = 0; k < 9; k++)
                    values_put(dtypes[d], in, (int64_t)(values_next() % (uint64_t)count), values[values_below(8)]);
                try_values(&spec, in, INT64_MAX);
                free(in);
            }
}

/* Of logsumexp: an element of a chain that rises all along, falls, or is nothing but -inf; that is far from its neighbours, so that prefixes are
 * nothing beside their run's end; and that is as large as numbers are. */
static double course(int order, int64_t i, double largest)
{
    switch (order) {
    case 0:
        return (double)i / 100;
    case 1:
        return -(double)i / 7;
    case 2:
        return -(double)INFINITY;
    case 3:
        return (double)(i % 500);
    case 4:
        return (double)(i % 97) * 37 - 1000;
    case 5:
        return i % 30 == 29 ? 3000 : (double)(i % 7) * -150;
    default:
        return largest * (i < 4500 ? -1 : 1) * (double)(i % 3 + 1) / 3;
    }
}

static void rising_chains(void **state)
{
    (void)state;
    enum { ORDERS = 7 };
    for (int d = 0; d < 4; d++)
        for (int order = 0; order < ORDERS; order++) {
            ks_spec spec = cube_of(dtypes[d], KS_SCAN_LOGSUMEXP, 1, 9001, 1);
            spec.params[KS_SCAN_EXCLUSIVE].i = values_below(2);
            resolve(&spec);
            void *in = filled(&spec, VALUES_NORMAL);
            for (int64_t i = 0; i < 9001; i++)
                values_put(dtypes[d], in, i, course(order, i, (double)values_limit(dtypes[d])));
            try_values(&spec, in, INT64_MAX);
            free(in);
        }
}

/* --- identities ------------------------------------------------------------------------------------------------------- */

static void flip(void *to, const void *from, const ks_scan_shape *s, size_t size)
{
    for (int64_t o = 0; o < s->outer; o++)
        for (int64_t i = 0; i < s->length; i++)
            memcpy((char *)to + (size_t)((o * s->length + s->length - 1 - i) * s->inner) * size,
                   (const char *)from + (size_t)((o * s->length + i) * s->inner) * size, (size_t)s->inner * size);
}

/* reverse is flip, scan, flip: bit by bit. */
static void reverse_is_a_flip(void **state)
{
    (void)state;
    static const int64_t cubes[][3] = {{60, 11, 1}, {3, 300, 1}, {2, 9000, 1}, {2, 500, 5}, {1, 400, 70}};
    for (size_t n = 0; n < sizeof cubes / sizeof *cubes; n++)
        for (int op = 0; op < KS_SCAN_OPS; op++) {
            ks_spec forth =
                        cube_of(dtypes[values_below(DTYPES)], (ks_scan_op)op, cubes[n][0], cubes[n][1], cubes[n][2]),
                    back;
            forth.params[KS_SCAN_EXCLUSIVE].i = values_below(2);
            back = forth;
            back.params[KS_SCAN_REVERSE].i = 1;
            resolve(&forth);
            resolve(&back);
            const ks_scan_shape s = ks_scan_shape_of(&back);
            const size_t in_size = ks_dtype_size(s.dtype), out_size = ks_dtype_size(s.out_dtype);
            void *in = filled(&forth, VALUES_NORMAL), *flipped = malloc(forth.in[0].size_bytes);
            void *left = malloc(forth.out[0].size_bytes), *right = malloc(forth.out[0].size_bytes),
                 *turned = malloc(forth.out[0].size_bytes);
            flip(flipped, in, &s, in_size);
            for (int b = 0; b < 2; b++) {
                if (!harnesses[b]) continue;
                run_backend(b, &forth, flipped, left);
                run_backend(b, &back, in, right);
                flip(turned, left, &s, out_size);
                if (memcmp(turned, right, forth.out[0].size_bytes) != 0) {
                    describe(&back, b ? "cuda" : "cpu");
                    fail_msg("reverse is not flip, scan, flip");
                }
            }
            free(in);
            free(flipped);
            free(left);
            free(right);
            free(turned);
        }
}

/* The last prefix is what reduce gives, within both bounds; of integers, of max and of min exactly. */
static void last_is_reduce(void **state)
{
    (void)state;
    static const int reduce_ops[] = {
        [KS_SCAN_SUM] = 0, [KS_SCAN_PROD] = 4, [KS_SCAN_MAX] = 2, [KS_SCAN_MIN] = 3, [KS_SCAN_LOGSUMEXP] = 8};
    for (int d = 0; d < DTYPES; d++)
        for (int op = 0; op < KS_SCAN_OPS; op++) {
            enum { ROWS = 4 };
            const int64_t length = 1 + values_below(6000);
            ks_spec spec = cube_of(dtypes[d], (ks_scan_op)op, ROWS, length, 1), other;
            resolve(&spec);
            ks_spec_init(&other, &ks_op_reduce);
            other.in[0] = spec.in[0];
            other.params[0].i = reduce_ops[op];
            other.params[1].axes = (ks_axes){.count = 1, .axis = {1}};
            assert_int_equal(ks_op_reduce.resolve(&other, NULL), KS_OK);
            ks_spec_layout(&other);
            assert_int_equal(other.out[0].dtype, spec.out[0].dtype);
            void *in = filled(&spec, VALUES_NORMAL), *out = malloc(ks_spec_out_bytes(&spec));
            unsigned char wanted[ROWS * 8];
            op_reference(&other, (const void *const[]){in}, wanted);
            for (int b = 0; b < 2; b++) {
                if (!harnesses[b]) continue;
                run_backend(b, &spec, in, out);
                for (int64_t r = 0; r < ROWS; r++) {
                    const ks_dtype dtype = spec.out[0].dtype;
                    const long double got = values_get(dtype, out, r * length + length - 1),
                                      want = values_get(dtype, wanted, r);
                    long double allowed = is_float(dtype) && op != KS_SCAN_MAX && op != KS_SCAN_MIN
                                              ? 4 * values_roundoff(dtype) * (fabsl(want) + 1) +
                                                    0x1p-18L * (op != KS_SCAN_PROD) * sqrtl((long double)length)
                                              : 0;
                    if (op == KS_SCAN_PROD && is_float(dtype)) allowed += fabsl(want) * (long double)length * 0x1p-51L;
                    if (got != want && !(fabsl(got - want) <= allowed))
                        fail_at(&spec, b ? "cuda" : "cpu", r, length - 1, got, want);
                }
            }
            free(in);
            free(out);
        }
}

/* --- edges ------------------------------------------------------------------------------------------------------------ */

static void expect_refusal(ks_spec spec, ks_status want, const char *words)
{
    ks_error error = {0};
    assert_int_equal(ks_op_scan.resolve(&spec, &error), want);
    if (!strstr(error.text, words)) fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void refusals(void **state)
{
    (void)state;
    static const int64_t dims[9] = {2, 6, 4, 1, 1, 1, 1, 1, 1};
    expect_refusal(spec_of(KS_BOOL, KS_SCAN_SUM, 2, dims), KS_DATATYPE, "INPUT0 has datatype BOOL");
    expect_refusal(spec_of(KS_FP8E4M3, KS_SCAN_SUM, 2, dims), KS_DATATYPE, "INPUT0 has datatype FP8E4M3");
    expect_refusal(spec_of(KS_FP32, KS_SCAN_SUM, 0, dims), KS_SHAPE, "INPUT0 has rank 0, takes 1 to 8");
    expect_refusal(spec_of(KS_FP32, KS_SCAN_OPS, 2, dims), KS_PARAMETER, "op 5 is not one of 5");
    ks_spec spec = spec_of(KS_FP32, KS_SCAN_SUM, 2, dims);
    spec.params[KS_SCAN_AXIS].i = 2;
    expect_refusal(spec, KS_AXIS, "axis 2 is outside [-2, 2) of INPUT0's rank");
    spec.params[KS_SCAN_AXIS].i = -3;
    expect_refusal(spec, KS_AXIS, "axis -3 is outside [-2, 2)");
    /* INT64 of an INT8 tensor that is as large as there may be */
    spec = spec_of(KS_INT8, KS_SCAN_SUM, 1, (const int64_t[]){INT64_MAX});
    expect_refusal(spec, KS_SHAPE, "OUTPUT0");
}

static void empty_tensors(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{0, 4, 2}, {3, 0, 2}, {3, 4, 0}};
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        for (int d = 0; d < DTYPES; d++) {
            ks_spec spec = cube_of(dtypes[d], KS_SCAN_SUM, shapes[n][0], shapes[n][1], shapes[n][2]);
            try_kind(&spec, VALUES_NORMAL, 1);
            assert_int_equal(spec.out[0].size_bytes, 0);
        }
}

static void equal_work_has_equal_keys(void **state)
{
    (void)state;
    ks_spec a = spec_of(KS_FP32, KS_SCAN_MAX, 3, (const int64_t[]){2, 3, 4}), b = a;
    b.params[KS_SCAN_AXIS].i = 2;
    assert_int_equal(ks_op_scan.resolve(&a, NULL), KS_OK);
    assert_int_equal(ks_op_scan.resolve(&b, NULL), KS_OK);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(ks_op_scan.resolve(&b, NULL), KS_OK); /* once more, as row blocks are */
    assert_memory_equal(&a, &b, sizeof a);
    ks_op_scan.sample(&a);
    assert_int_equal(ks_op_scan.resolve(&a, NULL), KS_OK);
    assert_int_equal(a.outputs, 1);
}

/* Offsets beyond 2^31 elements, and several launches of one chain. */
static void over_two_to_the_31(void **state)
{
    (void)state;
    const int64_t length = ((int64_t)1 << 31) + 1001;
    if (!getenv("KS_HUGE")) {
        printf("skip: KS_HUGE is not set, no tensor of over 2^31 elements\n");
        skip();
    }
    for (int rows = 1; rows < 4; rows += 2) {
        ks_spec spec = spec_of(KS_UINT8, KS_SCAN_MAX, 2, (const int64_t[]){rows, rows == 1 ? length : length / 2});
        resolve(&spec);
        const int64_t count = ks_tensor_count(&spec.in[0]), row = spec.in[0].dims[1];
        unsigned char *in = malloc(spec.in[0].size_bytes), *out = malloc(ks_spec_out_bytes(&spec));
        if (!in || !out) fail_msg("no memory for %zu bytes", spec.in[0].size_bytes);
        for (int64_t i = 0; i < count; i++)
            in[i] = (unsigned char)(i % row * 255 / row + (i % row * 255 / row > 0 && i % 3 ? -1 : 0));
        for (int b = 0; b < 2; b++) {
            ks_error error = {0};
            if (!op_harness_once(b ? ks_backend_cuda : ks_backend_cpu, 2 * spec.in[0].size_bytes + (192 << 20), &spec,
                                 (const void *const[]){in}, out, &error))
                continue;
            if (error.status != KS_OK) fail_msg("%s", error.text);
            unsigned char most = 0;
            for (int64_t i = 0; i < count; i++) {
                most = i % row == 0 || in[i] > most ? in[i] : most;
                if (out[i] != most) fail_msg("element %lld: %d, expected %d", (long long)i, out[i], most);
            }
        }
        free(in);
        free(out);
    }
}

int main(void)
{
    values_seed();
    if (getenv("KS_ONLY")) cmocka_set_test_filter(getenv("KS_ONLY")); /* of those names: "each_*" */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes_and_parameters),
        cmocka_unit_test(borders_of_tiles),
        cmocka_unit_test(each_kernel),
        cmocka_unit_test(many_tiles),
        cmocka_unit_test(many_rows_of_tiles),
        cmocka_unit_test(many_columns),
        cmocka_unit_test(many_chains),
        cmocka_unit_test(tensors_of_the_whole_chip),
        cmocka_unit_test(special_values),
        cmocka_unit_test(rising_chains),
        cmocka_unit_test(reverse_is_a_flip),
        cmocka_unit_test(last_is_reduce),
        cmocka_unit_test(refusals),
        cmocka_unit_test(empty_tensors),
        cmocka_unit_test(equal_work_has_equal_keys),
        cmocka_unit_test(over_two_to_the_31),
    };
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
