/* matmul against sums in FP64, in long double where the data are FP64: the reference, oneDNN's version and every backend,
 * over random shapes.
 *
 * KS_CUBLASLT=auto tries cuBLASLt's kernels as well. KS_SEED repeats a run, KS_CASES sets how many random shapes; below
 * QUICK_CASES every problem runs one way, drawn, not all of them (a sanitizer makes each launch a hundred times slower), as
 * those with large outputs always do, and of the tables a share is drawn that grows with KS_CASES.
 * KS_HUGE: also over 2^31 outputs. KS_ONLY: the one test of that name.
 *
 * Bounds: P is the sum of |a||b| of one output, u the unit roundoff of what sums are kept in; a sum may be off by
 * 2 sqrt(K) u P (twice that for 16-bit inputs, whose sums the tensor cores truncate, and for WIDE data, where one early
 * term can make every later rounding a full one), and then by the one rounding to the output's datatype. For few K that
 * is more than the hard bound of one u P per addition, which then holds. TF32 rounds every factor: one more 2^-10 P. A
 * bias adds its own magnitude to P, an activation its slope (below 1.2) and a few roundings of its argument; of 16 bits gelu
 * and silu 2^-12 of their value, a sixteenth of BF16's rounding and half of FP16's: kernels take their quick formulas there (unary.cuh).
 * A residual is added before the one rounding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/convert.h"
#include "cpu/onednn.h"
#include "ops/op_harness.h"
#include "cpu/reference.h"
#include "ops/matmul.h"

extern const ks_op ks_op_matmul;

enum { TRANSPOSE_A, TRANSPOSE_B, ALPHA, ACTIVATION, PRECISION };
enum { NONE, RELU, GELU, SILU, ACTIVATIONS };
enum { RESIDUAL = KS_MATMUL_RESIDUAL };
enum {
    QUICK_CASES = 10,
    CHECKS_MAX = 20000,
    CHECKED_TERMS = 1 << 18,
    ARENA_BYTES = 96 << 20,
    CASES = 300,
    GUARD = 64,
    MANY_PRODUCTS = 1 << 21,
    LARGE_BYTES = 4 << 20
};

typedef enum fill { UNIFORM, POSITIVE, WIDE, SPECIAL, WHOLE, FILLS } fill;

typedef struct truth {
    double sum, magnitude; /* alpha * sum of a b + bias, |alpha| * sum of |a||b| + |bias| */
    double active, value;  /* the activation of sum; with the residual */
    int64_t at, k;
} truth;

typedef struct problem {
    ks_spec spec;
    fill fill;
    void *in[KS_INPUTS_MAX];
    double *wide[2]; /* the operands again, each matrix as rows along K: those of A, the columns of B */
    truth *truths;   /* of all outputs, or of so many random ones as checks_most says */
    int64_t truths_count;
} problem;

static uint64_t state;
static op_harness *harnesses[2];

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545F4914F6CDD1Du;
}

static int64_t below(int64_t end)
{
    return (int64_t)(draw() >> 33) % end;
}

static double uniform(void)
{
    return (double)(draw() >> 11) * 0x1p-52 - 1.0; /* [-1, 1) */
}

/* --- elements -------------------------------------------------------------------------------------------------------- */

static double get(const void *data, ks_dtype dtype, int64_t at)
{
    switch (dtype) {
    case KS_FP16:
        return (double)ks_fp16_to_float(((const uint16_t *)data)[at]);
    case KS_BF16:
        return (double)ks_bf16_to_float(((const uint16_t *)data)[at]);
    case KS_FP32:
        return (double)((const float *)data)[at];
    default:
        return ((const double *)data)[at];
    }
}

static void put(void *data, ks_dtype dtype, int64_t at, double value)
{
    switch (dtype) {
    case KS_FP16:
        ((uint16_t *)data)[at] = ks_double_to_fp16(value);
        break;
    case KS_BF16:
        ((uint16_t *)data)[at] = ks_double_to_bf16(value);
        break;
    case KS_FP32:
        ((float *)data)[at] = (float)value;
        break;
    default:
        ((double *)data)[at] = value;
        break;
    }
}

static double make_value(fill how, ks_dtype dtype)
{
    switch (how) {
    case POSITIVE:
        return uniform() * 0.5 + 1.0;
    case WIDE:
        return ldexp(uniform(), (int)below(dtype == KS_FP16 ? 9 : 41) - (dtype == KS_FP16 ? 6 : 20));
    case SPECIAL:
        switch (below(60)) {
        case 0:
            return NAN;
        case 1:
            return below(2) ? INFINITY : -INFINITY;
        case 2:
            return below(2) ? 0.0 : -0.0;
        case 3:
            return dtype == KS_FP16 ? 0x1p-24 : 0x1p-130; /* subnormal */
        default:
            return uniform();
        }
    case WHOLE:
        return (double)(below(7) - 3); /* sums stay below 2^24: every order of adding gives the same bits */
    default:
        return uniform();
    }
}

/* --- problems -------------------------------------------------------------------------------------------------------- */

static void set_shape(ks_spec *spec, ks_dtype dtype, const int64_t (*dims)[KS_RANK_MAX], const int *ranks)
{
    ks_spec_init(spec, &ks_op_matmul);
    for (int i = 0; i < 2; i++) {
        spec->in[i].dtype = dtype;
        spec->in[i].rank = ranks[i];
        memcpy(spec->in[i].dims, dims[i], (size_t)ranks[i] * sizeof dims[i][0]);
    }
}

/* A third input: a value for each column. */
static void add_bias(ks_spec *spec)
{
    const ks_tensor *b = &spec->in[1];
    spec->given |= 4;
    spec->in[2].dtype = b->dtype;
    spec->in[2].rank = 1;
    spec->in[2].dims[0] = b->dims[b->rank - (spec->params[TRANSPOSE_B].i ? 2 : 1)];
}

/* A sixth input: a value for each output. */
static void add_residual(ks_spec *spec)
{
    ks_spec alone = *spec;
    ks_error error;
    alone.given = 3;
    for (int i = 0; i < 2; i++) assert_int_equal(ks_tensor_measure(&alone.in[i], "in", &error), KS_OK);
    assert_int_equal(ks_op_matmul.resolve(&alone, &error), KS_OK);
    spec->given |= 1u << RESIDUAL;
    spec->in[RESIDUAL] = alone.out[0];
}

static void spec_2d(ks_spec *spec, ks_dtype dtype, int64_t m, int64_t n, int64_t k, bool ta, bool tb)
{
    const int64_t dims[2][KS_RANK_MAX] = {{ta ? k : m, ta ? m : k}, {tb ? n : k, tb ? k : n}};
    set_shape(spec, dtype, dims, (const int[]){2, 2});
    spec->params[TRANSPOSE_A].i = ta;
    spec->params[TRANSPOSE_B].i = tb;
}

/* Element offset of the matrix of operand i that output matrix `index` uses: NumPy's rule, read off the dims directly.
 */
static int64_t matrix_at(const ks_spec *spec, int i, int64_t index)
{
    const ks_tensor *in = &spec->in[i], *out = &spec->out[0];
    int64_t at = 0, step = in->dims[in->rank - 1] * in->dims[in->rank - 2];
    for (int d = 0; d < out->rank - 2; d++) {
        const int64_t out_dim = out->dims[out->rank - 3 - d], digit = index % out_dim;
        index /= out_dim;
        if (d >= in->rank - 2) continue;
        const int64_t dim = in->dims[in->rank - 3 - d];
        if (dim > 1) at += digit * step;
        step *= dim;
    }
    return at;
}

static long double activate(int64_t activation, long double x)
{
    switch (activation) {
    case RELU:
        return x < 0 ? 0 : x;
    case GELU:
        return x * 0.5L * (1 + erfl(x * sqrtl(0.5L)));
    case SILU:
        return x / (1 + expl(-x));
    default:
        return x;
    }
}

/* Operand i; rows: of A, or columns of B. */
static void widen(problem *p, int i, int64_t rows, int64_t k)
{
    const ks_tensor *in = &p->spec.in[i];
    const bool along_k = (bool)p->spec.params[i == 0 ? TRANSPOSE_A : TRANSPOSE_B].i == (i == 1);
    const int64_t count = ks_tensor_count(in), each = rows * k;
    double *to = p->wide[i] = malloc((size_t)(count + 1) * sizeof *to);
    assert_non_null(to);
    for (int64_t at = 0; at < count; at++) {
        const int64_t place = at % each, row = along_k ? place / k : place % rows;
        to[along_k ? at : at - place + row * k + place / rows] = get(p->in[i], in->dtype, at);
    }
}

/* Sums side by side, so that none waits for the one before it. Products of narrower elements than FP64 are exact in it,
 * and sums of them in it much closer than any bound; a magnitude needs no more. */
enum { LANES = 8 };

static double sum_of(const double *x, const double *y, int64_t k, double *magnitude)
{
    double s[LANES] = {0}, a[LANES] = {0};
    for (int64_t l = 0; l + LANES <= k; l += LANES)
#pragma GCC unroll 8
        for (int v = 0; v < LANES; v++) {
            const double product = x[l + v] * y[l + v];
            s[v] += product;
            a[v] += fabs(product);
        }
    for (int64_t l = k / LANES * LANES; l < k; l++) {
        s[0] += x[l] * y[l];
        a[0] += fabs(x[l] * y[l]);
    }
    for (int v = 1; v < LANES; v++) s[0] += s[v], a[0] += a[v];
    *magnitude = a[0];
    return s[0];
}

static long double long_sum_of(const double *x, const double *y, int64_t k)
{
    long double even = 0, odd = 0;
    for (int64_t l = 0; l + 2 <= k; l += 2) {
        even += (long double)x[l] * (long double)y[l];
        odd += (long double)x[l + 1] * (long double)y[l + 1];
    }
    return even + odd + (k % 2 ? (long double)x[k - 1] * (long double)y[k - 1] : 0);
}

static truth true_value(const problem *p, int64_t at)
{
    const ks_spec *spec = &p->spec;
    const ks_tensor *a = &spec->in[0];
    const int64_t m = spec->out[0].dims[spec->out[0].rank - 2], n = spec->out[0].dims[spec->out[0].rank - 1];
    const int64_t k = a->dims[a->rank - 1 - spec->params[TRANSPOSE_A].i], i = at / n % m, j = at % n;
    const double *x = p->wide[0] + matrix_at(spec, 0, at / (m * n)) + i * k;
    const double *y = p->wide[1] + matrix_at(spec, 1, at / (m * n)) + j * k;
    double magnitude;
    long double sum = sum_of(x, y, k, &magnitude);
    if (a->dtype == KS_FP64) sum = long_sum_of(x, y, k);
    const double alpha = k == 0 ? 1.0 : spec->params[ALPHA].d;
    const double bias = ks_has_input(spec, 2) ? get(p->in[2], spec->in[2].dtype, j) : 0;
    sum = sum * alpha + bias;
    const long double active = activate(spec->params[ACTIVATION].i, sum);
    const double residual = ks_has_input(spec, RESIDUAL) ? get(p->in[RESIDUAL], spec->in[RESIDUAL].dtype, at) : 0;
    return (truth){
        (double)sum, magnitude * fabs(alpha) + fabs(bias), (double)active, (double)(active + residual), at, k};
}

/* The sums of the truths are nearly all of this test's time on a CPU, whose loops have no tiles that could go wrong. */
static int64_t checks_most(const problem *p)
{
    const ks_tensor *a = &p->spec.in[0];
    const int64_t k = a->dims[a->rank - 1 - p->spec.params[TRANSPOSE_A].i];
    if (harnesses[1] || k * CHECKS_MAX <= CHECKED_TERMS) return CHECKS_MAX;
    return CHECKED_TERMS / k + 16;
}

static void begin(problem *p)
{
    ks_error error;
    for (int i = ks_next_input(&p->spec, -1); i >= 0; i = ks_next_input(&p->spec, i))
        assert_int_equal(ks_tensor_measure(&p->spec.in[i], "in", &error), KS_OK);
    if (p->spec.op->resolve(&p->spec, &error) != KS_OK) fail_msg("resolve: %s", error.text);
    (void)ks_spec_layout(&p->spec);
    for (int i = ks_next_input(&p->spec, -1); i >= 0; i = ks_next_input(&p->spec, i)) {
        const ks_tensor *in = &p->spec.in[i];
        p->in[i] = malloc(in->size_bytes + 1); /* no padding: reads beyond the end show under a sanitizer */
        assert_non_null(p->in[i]);
        const int64_t count = ks_tensor_count(in);
        for (int64_t at = 0; at < count; at++) put(p->in[i], in->dtype, at, make_value(p->fill, in->dtype));
    }
    const ks_tensor *a = &p->spec.in[0], *c = &p->spec.out[0];
    const int64_t k = a->dims[a->rank - 1 - p->spec.params[TRANSPOSE_A].i];
    for (int i = 0; i < 2; i++) widen(p, i, c->dims[c->rank - 2 + i], k);
    const int64_t count = ks_tensor_count(c), most = checks_most(p);
    p->truths_count = count > most ? most : count;
    p->truths = calloc((size_t)p->truths_count + 1, sizeof *p->truths);
    assert_non_null(p->truths);
    for (int64_t t = 0; t < p->truths_count; t++)
        p->truths[t] = true_value(p, count <= most ? t
                                     : t < 16      ? count - 1 - t /* the very end too */
                                                   : (int64_t)(draw() >> 1) % count);
}

static void end(problem *p)
{
    for (int i = ks_next_input(&p->spec, -1); i >= 0; i = ks_next_input(&p->spec, i)) free(p->in[i]);
    for (int i = 0; i < 2; i++) free(p->wide[i]);
    free(p->truths);
}

static double bound(const problem *p, truth t)
{
    static const double largest[] = {
        [KS_FP16] = 65504, [KS_BF16] = 0x1.FEp127, [KS_FP32] = FLT_MAX, [KS_FP64] = DBL_MAX};
    static const double unit[] = {[KS_FP16] = 0x1p-11, [KS_BF16] = 0x1p-8, [KS_FP32] = 0x1p-24, [KS_FP64] = 0x1p-53};
    static const double floors[] = {
        [KS_FP16] = 0x1p-25, [KS_BF16] = 0x1p-134, [KS_FP32] = 0x1p-149, [KS_FP64] = 0x1p-1074};
    const ks_dtype dtype = p->spec.out[0].dtype;
    const bool narrow = dtype == KS_FP16 || dtype == KS_BF16, tf32 = p->spec.params[PRECISION].i;
    const double sums = narrow ? 0x1p-23 : unit[dtype], k = (double)t.k, alpha = fabs(p->spec.params[ALPHA].d);
    /* Tensor cores cut what does not fit into a sum, 16 terms at a time: of terms with one sign that adds up. */
    const double cut = narrow || tf32 ? k / 16 : 0, growth = fmin(k, (p->fill == WIDE ? 4 : 2) * sqrt(k) + cut) + 2;
    /* The floors also cover products that are subnormal in FP32, or lost by TF32, which alpha then makes larger. */
    double most =
        growth * sums * t.magnitude + (dtype == KS_FP64 ? 0 : k * (tf32 ? 0x1p-126 : 0x1p-149) * fmax(1, alpha));
    if (tf32) most += 0x1p-10 * t.magnitude;
    if (p->spec.params[ACTIVATION].i != NONE) most = 1.2 * most + 8 * sums * fabs(t.sum);
    if (narrow && p->spec.params[ACTIVATION].i >= GELU) most += 0x1p-12 * fabs(t.active);
    if (ks_has_input(&p->spec, RESIDUAL)) /* the truth is rounded to FP64, too */
        most += sums * (fabs(t.active) + (dtype == KS_FP64 ? 2 : 1) * fabs(t.value));
    most += (narrow ? unit[dtype] * fabs(t.value) : 0) + floors[dtype];
    return fmax(fabs(t.sum), fabs(t.value)) + most > largest[dtype] ? INFINITY : most;
}

static void check(const problem *p, const void *out, const char *who)
{
    const ks_dtype dtype = p->spec.out[0].dtype;
    for (int64_t c = 0; c < p->truths_count; c++) {
        const truth t = p->truths[c];
        const int64_t at = t.at;
        const double got = get(out, dtype, at);
        bool right;
        if (!isfinite(t.value)) {
            right = isnan(t.value) ? isnan(got) : got == t.value;
        } else if (p->fill == WHOLE && p->spec.params[ACTIVATION].i <= RELU) {
            unsigned char want[8];
            put(want, dtype, 0, t.value);
            right = got == get(want, dtype, 0);
        } else {
            const double most = bound(p, t);
            /* Where FP32 may overflow on the way, so may what follows it. */
            right = fabs(got - t.value) <= most || (isinf(most) && (got == copysign(INFINITY, t.sum) || isnan(got)));
        }
        if (right) continue;
        char a[128], b[128];
        (void)ks_dims_text(&p->spec.in[0], a, sizeof a);
        (void)ks_dims_text(&p->spec.in[1], b, sizeof b);
        fail_msg("%s: %s [%s]%s x [%s]%s alpha %g bias %d residual %d activation %d precision %d fill %d: output %lld "
                 "is %.17g, must be "
                 "%.17g +- %.3g",
                 who, ks_dtype_name(dtype), a, p->spec.params[TRANSPOSE_A].i ? "^T" : "", b,
                 p->spec.params[TRANSPOSE_B].i ? "^T" : "", p->spec.params[ALPHA].d, ks_has_input(&p->spec, 2),
                 ks_has_input(&p->spec, RESIDUAL), (int)p->spec.params[ACTIVATION].i, (int)p->spec.params[PRECISION].i,
                 (int)p->fill, (long long)at, got, t.value, bound(p, t));
    }
}

/* --- who computes ---------------------------------------------------------------------------------------------------- */

static void run_reference(const problem *p)
{
    const size_t bytes = p->spec.out[0].size_bytes;
    unsigned char *out = malloc(bytes + GUARD);
    void *scratch = malloc(ks_cpu_scratch_bytes(&p->spec));
    assert_non_null(out);
    assert_non_null(scratch);
    memset(out, 0xFF, bytes + GUARD);
    ks_cpu_reference(&p->spec, (const void *const *)p->in, (void *const[]){out}, scratch);
    for (size_t i = 0; i < GUARD; i++) assert_int_equal(out[bytes + i], 0xFF);
    check(p, out, "reference");
    free(scratch);
    free(out);
}

/* Returns whether oneDNN takes it. */
static bool run_onednn(const problem *p)
{
    if (!ks_onednn_takes(&p->spec)) return false;
    const size_t bytes = p->spec.out[0].size_bytes;
    unsigned char *out = malloc(bytes + GUARD);
    assert_non_null(out);
    memset(out, 0xFF, bytes + GUARD);
    assert_true(ks_onednn_run(&p->spec, (const void *const *)p->in, out));
    for (size_t i = 0; i < GUARD; i++) assert_int_equal(out[bytes + i], 0xFF);
    check(p, out, "oneDNN");
    free(out);
    return true;
}

/* One way to have it computed. Compared with *first where that is something, else with the truth. */
static void run_algorithm(op_harness *harness, const problem *p, const char *who, op_path path, int copies,
                          bool captured, unsigned char **first)
{
    ks_error error = {.text = ""};
    const size_t bytes = p->spec.out[0].size_bytes;
    unsigned char *out = malloc(bytes + 1);
    assert_non_null(out);
    const ks_status status =
        op_harness_run(harness, &p->spec, (const void *const *)p->in, out, path, copies, captured, &error);
    if (status != KS_OK) fail_msg("%s path %d copies %d captured %d: %s", who, (int)path, copies, captured, error.text);
    if (!*first) {
        check(p, out, who);
        *first = out;
        return;
    }
    if (memcmp(*first, out, bytes) != 0)
        fail_msg("%s path %d copies %d captured %d: other bits than a single planned launch", who, (int)path, copies,
                 captured);
    free(out);
}

static int cases(void)
{
    const char *text = getenv("KS_CASES");
    return text ? atoi(text) : CASES;
}

/* Below QUICK_CASES, where it is the number of runs that takes the time: with n cases a table's row is drawn n times in cases_of_all. */
static bool is_left_out(int cases_of_all)
{
    return cases() < QUICK_CASES && cases() < cases_of_all && below(cases_of_all) >= cases();
}

/* With rows of its operands apart, where their rows would be packed else; by kernels that may be others. */
static void run_apart(op_harness *harness, const problem *p, int last)
{
    unsigned char *first = NULL;
    if (!p->spec.op->pitch(&p->spec.in[0]) && !p->spec.op->pitch(&p->spec.in[1])) return;
    op_harness_fix(harness, OP_HARNESS_PITCHED | (1 + (unsigned)below(3)));
    run_algorithm(harness, p, "with rows apart", (op_path)below(last + 1), below(2) ? 1 : 3, below(2), &first);
    op_harness_fix(harness, 0);
    free(first);
}

static void run_backend(op_harness *harness, const problem *p, const ks_backend *backend)
{
    const bool cuda = backend == ks_backend_cuda; /* the CPU copies nothing and captures nothing */
    const int last = cuda ? OP_PATH_MAPPED : OP_PATH_PLANNED;
    unsigned char *first = NULL;
    /* Of a large output the copies and comparisons, not the kernels, would be nearly all of this test's time. */
    if (cases() < QUICK_CASES || p->spec.out[0].size_bytes > (size_t)LARGE_BYTES) {
        run_algorithm(harness, p, backend->name, (op_path)below(last + 1), below(2) ? 1 : 3, below(2), &first);
        free(first);
        run_apart(harness, p, last);
        return;
    }
    for (int path = OP_PATH_PLANNED; path <= last; path++)
        for (int captured = 0; captured < (cuda ? 2 : 1); captured++)
            for (int copies = 1; copies <= 3; copies += 2)
                run_algorithm(harness, p, backend->name, (op_path)path, copies, captured, &first);
    free(first);
    first = NULL; /* fixed inputs may have another kernel */
    op_harness_fix(harness, (1 + (unsigned)below(7)) | (unsigned)below(2) << RESIDUAL);
    run_algorithm(harness, p, "with fixed inputs", (op_path)below(last + 1), below(2) ? 1 : 3, below(2), &first);
    op_harness_fix(harness, 0);
    free(first);
    run_apart(harness, p, last);
}

static void run_everywhere(const problem *p)
{
    run_reference(p);
    (void)run_onednn(p);
    if (harnesses[0]) run_backend(harnesses[0], p, ks_backend_cpu);
    if (harnesses[1]) run_backend(harnesses[1], p, ks_backend_cuda);
}

/* --- tests ----------------------------------------------------------------------------------------------------------- */

static const ks_dtype dtypes[] = {KS_FP32, KS_FP16, KS_BF16, KS_FP64};

static int64_t draw_size(void)
{
    static const int64_t sizes[] = {1,  1,  2,  3,  4,  5,  7,  8,  9,  13,  15,  16,  17,
                                    24, 31, 32, 33, 47, 63, 64, 65, 96, 101, 127, 128, 129};
    return sizes[below((int64_t)(sizeof sizes / sizeof *sizes))];
}

static void draw_problem(problem *p)
{
    static const double alphas[] = {1.0, 1.0, -0.5, 0.1, 3700.0, 0.0};
    int64_t m = draw_size(), n = draw_size(), k = draw_size(), many = 0;
    switch (below(12)) {
    case 0:
        k = 1000 + below(3000); /* long sums; slices on a GPU */
        break;
    case 1:
        n = 200 + below(900);
        break;
    case 2:
        m = 200 + below(500);
        break;
    case 3:
        k = 0;
        break;
    case 4: /* batches of small matrices, all rows in whole vectors */
        m = 8 * (1 + below(16)), n = 8 * (1 + below(16)), k = 8 * (1 + below(16));
        if (below(3) == 0) m = n = k = below(2) ? 16 : 32; /* which have kernels of their own */
        many = 1 + below(1 + MANY_PRODUCTS / (m * n * k));
        break;
    }
    const bool ta = below(2), tb = below(2);
    int64_t dims[2][KS_RANK_MAX] = {{0}};
    int ranks[2];
    const int batch_rank = many ? 1 + (int)below(3) : below(3) ? 0 : (int)below(7);
    int64_t batch[KS_RANK_MAX], total = 1;
    for (int d = 0; d < batch_rank; d++) total *= batch[d] = d == 0 && many ? many : total > 12 ? 1 : 1 + below(4);
    for (int i = 0; i < 2; i++) {
        const int missing =
            below(3) ? 0 : (int)below(batch_rank + 1); /* leading dimensions that only the other one has */
        ranks[i] = batch_rank - missing + 2;
        for (int d = missing; d < batch_rank; d++) dims[i][d - missing] = below(3) ? batch[d] : 1;
    }
    dims[0][ranks[0] - 2] = ta ? k : m;
    dims[0][ranks[0] - 1] = ta ? m : k;
    dims[1][ranks[1] - 2] = tb ? n : k;
    dims[1][ranks[1] - 1] = tb ? k : n;
    set_shape(&p->spec, dtypes[below(4)], (const int64_t(*)[KS_RANK_MAX])dims, ranks);
    p->fill = (fill)below(FILLS);
    p->spec.params[TRANSPOSE_A].i = ta;
    p->spec.params[TRANSPOSE_B].i = tb;
    p->spec.params[ALPHA].d = p->fill == WHOLE ? (below(2) ? 1.0 : -0.5) : alphas[below(6)];
    p->spec.params[ACTIVATION].i = below(2) ? NONE : below(ACTIVATIONS);
    p->spec.params[PRECISION].i = p->spec.in[0].dtype == KS_FP32 && below(3) == 0;
    if (below(2)) add_bias(&p->spec);
    if (below(2)) add_residual(&p->spec);
}

static void random_shapes(void **unused)
{
    (void)unused;
    const int count = cases();
    for (int c = 0; c < count; c++) {
        problem p = {.fill = UNIFORM};
        draw_problem(&p);
        begin(&p);
        run_everywhere(&p);
        end(&p);
    }
    printf("%d random cases\n", count);
}

/* Every kernel of the GPU's planner: all transposes, large tiles, slices, few rows, few columns; whole numbers find a
 * misplaced element anywhere. */
static void every_regime(void **unused)
{
    (void)unused;
    /* The quick ones reach every kernel, edge and number of slices' cause with the fewest CTAs and the shortest K; the
     * others repeat them at other sizes. */
    static const int64_t shapes[][3] = {{1, 257, 70},   {8, 513, 520},  {257, 1, 70},   {300, 4, 515},  {129, 127, 40},
                                        {33, 65, 515},  {68, 132, 100}, {64, 64, 5000}, {33, 65, 4099}, {1, 300, 4096},
                                        {300, 4, 1027}, {520, 7, 96},   {5, 1000, 512}, {129, 127, 96}, {1, 512, 4096}};
    enum { QUICK_SHAPES = 7 };
    static const int64_t large[][3] = {{1537, 1665, 37}, {2047, 2049, 40}, {1536, 1664, 72}};
    const bool quick = cases() < QUICK_CASES;
    const size_t few = quick ? QUICK_SHAPES : sizeof shapes / sizeof *shapes;
    const size_t many = quick ? 1 : sizeof large / sizeof *large, all = harnesses[1] ? few + many : few;
    for (size_t s = 0; s < all; s++)
        for (int algorithm = 0; algorithm < 20; algorithm++) {
            if (is_left_out(8)) continue;
            const int64_t *size = s < few ? shapes[s] : large[s - few];
            problem p = {.fill = algorithm < 8 && s < few ? UNIFORM : WHOLE};
            spec_2d(&p.spec, dtypes[algorithm / 4 % 4], size[0], size[1], size[2], algorithm & 1, algorithm & 2);
            p.spec.params[PRECISION].i = algorithm >= 16;
            /* The plain formulas of the large ones would be most of this test's time on a CPU. */
            p.spec.params[ACTIVATION].i = ((int64_t)s + algorithm) % (s < few ? ACTIVATIONS : GELU);
            if ((s + (size_t)algorithm) % 3 == 0) add_bias(&p.spec);
            if ((s + (size_t)algorithm) / 2 % 2) add_residual(&p.spec);
            begin(&p);
            run_everywhere(&p);
            end(&p);
        }
}

/* All that a tuner may choose from: right, the same bits at each run, captured or not, inputs fixed or not, and timed by a
 * trial. */
static void run_candidates(op_harness *harness, const problem *p, const ks_backend *backend)
{
    const op_path path = backend == ks_backend_cuda ? OP_PATH_COPIES : OP_PATH_PLANNED;
    const int candidates = op_harness_candidates(harness, &p->spec, path);
    char who[64];
    const bool quick = cases() < QUICK_CASES;
    const int step = quick ? 1 + candidates / 3 : 1;
    for (int algorithm = quick ? (int)below(step) : 0; algorithm < candidates; algorithm += step) {
        unsigned char *first = NULL;
        ks_error error = {.text = ""};
        int64_t run_ns = 0;
        op_harness_choose(harness, algorithm);
        snprintf(who, sizeof who, "%s, way %d of %d", backend->name, algorithm, candidates);
        const int last = quick ? (int)below(2) : 1;
        for (int captured = quick ? last : 0; captured <= last; captured++)
            run_algorithm(harness, p, who, path, 1, captured, &first);
        op_harness_fix(harness, (1 + (unsigned)below(7)) | (unsigned)below(2) << RESIDUAL);
        run_algorithm(harness, p, who, path, 1, below(2), &first);
        op_harness_fix(harness, 0);
        if (algorithm % (5 * step) == 0 && op_harness_trial(harness, &p->spec, path, 3, &run_ns, &error) != KS_OK)
            fail_msg("%s: a trial: %s", who, error.text);
        if (algorithm % (5 * step) == 0 && run_ns <= 0) fail_msg("%s: a trial of %lld ns", who, (long long)run_ns);
        free(first);
    }
    op_harness_choose(harness, -1);
}

/* Few matrices do, though they are for many: each of the kernels is among the ways. Sizes that fill the tile, that end
 * within it, and that go over several stages; the last CTA has groups without a matrix. B is at times the same for all. */
static void every_algorithm_of_small_matrices(void **unused)
{
    (void)unused;
    static const int64_t shapes[][4] = {{9, 16, 16, 16}, {9, 12, 8, 24},  {7, 32, 32, 32},  {7, 20, 28, 40},
                                        {3, 64, 64, 64}, {3, 61, 36, 72}, {3, 100, 72, 40}, {40, 128, 128, 128}};
    enum { QUICK_SHAPES = 7 };
    const bool quick = cases() < QUICK_CASES;
    const size_t count = quick || !harnesses[1] ? QUICK_SHAPES : sizeof shapes / sizeof *shapes;
    for (size_t s = 0; s < count; s++)
        for (int algorithm = 0; algorithm < 20; algorithm++) {
            if (is_left_out(24)) continue;
            const int64_t *size = shapes[s];
            const bool ta = algorithm & 1, tb = algorithm & 2;
            const bool plain = (s / 2 + (size_t)algorithm / 4) % 2 == 0, shared = (s + (size_t)algorithm) % 3 == 0;
            const int64_t dims[2][KS_RANK_MAX] = {
                {size[0], ta ? size[3] : size[1], ta ? size[1] : size[3]},
                {shared ? 1 : size[0], tb ? size[2] : size[3], tb ? size[3] : size[2]}};
            problem p = {.fill = WHOLE};
            set_shape(&p.spec, dtypes[algorithm / 4 % 4], dims, (const int[]){3, 3});
            p.spec.params[TRANSPOSE_A].i = ta;
            p.spec.params[TRANSPOSE_B].i = tb;
            p.spec.params[PRECISION].i = algorithm >= 16;
            p.spec.params[ACTIVATION].i = plain ? NONE : ((int64_t)s + algorithm) % ACTIVATIONS;
            if (!plain && !shared) add_bias(&p.spec);
            if (!plain && algorithm % 4 / 2) add_residual(&p.spec);
            begin(&p);
            run_everywhere(&p);
            if (harnesses[1]) run_candidates(harnesses[1], &p, ks_backend_cuda);
            end(&p);
        }
}

/* size: matrices, M, K and N. */
static void set_batch(ks_spec *spec, ks_dtype dtype, const int64_t *size)
{
    const int64_t dims[2][KS_RANK_MAX] = {{size[0], size[1], size[2]}, {size[0], size[2], size[3]}};
    set_shape(spec, dtype, dims, (const int[]){3, 3});
}

/* Requests for small matrices share launches, whatever kernel would be faster for one alone. */
static void small_matrices_share_launches(void **unused)
{
    (void)unused;
    static const int64_t shapes[][4] = {{1, 32, 32, 32}, {1, 64, 64, 64}, {1, 17, 100, 33}, {1, 1, 200, 16},
                                        {1, 8, 512, 8},  {4, 32, 32, 16}, {20, 16, 16, 16}, {3, 20, 28, 40}};
    if (!harnesses[1]) skip();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int d = 0; d < 5; d++) {
            problem p = {.fill = WHOLE};
            set_batch(&p.spec, dtypes[d % 4], shapes[s]);
            p.spec.params[PRECISION].i = d == 4;
            begin(&p);
            const size_t bytes = p.spec.in[0].size_bytes + p.spec.in[1].size_bytes + p.spec.out[0].size_bytes;
            const int jobs = bytes > 64 << 10 ? 2 : op_harness_batch(harnesses[1], &p.spec, OP_PATH_MAPPED);
            end(&p);
            if (jobs < 2) fail_msg("shape %zu, datatype %d: a launch has %d jobs", s, d, jobs);
        }
}

/* A choice by trial must fit the next start, at which the measured border may be another: what a plan that copies can
 * choose from is the same at every border. */
static void candidates_do_not_depend_on_the_border(void **unused)
{
    (void)unused;
    static const int64_t shapes[][4] = {{8, 32, 32, 32}, {20, 32, 32, 16}, {2, 96, 64, 100}, {1, 100, 300, 33}};
    if (!harnesses[1]) skip();
    int compared = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int d = 0; d < 4; d++) {
            problem p = {.fill = WHOLE};
            set_batch(&p.spec, dtypes[d], shapes[s]);
            begin(&p);
            const bool copies = op_harness_batch(harnesses[1], &p.spec, OP_PATH_MAPPED) == 1;
            const int below = op_harness_candidates(harnesses[1], &p.spec, OP_PATH_COPIES);
            const int above = op_harness_candidates(harnesses[1], &p.spec, OP_PATH_MAPPED);
            end(&p);
            if (copies && below != above)
                fail_msg("shape %zu, datatype %d: %d ways below the border, %d above", s, d, below, above);
            compared += copies && above > 1;
        }
    assert_true(compared > 0);
}

static void every_algorithm_of_random_shapes(void **unused)
{
    (void)unused;
    const int count = 1 + cases() / 16;
    for (int c = 0; c < count; c++) {
        problem p = {.fill = UNIFORM};
        draw_problem(&p);
        begin(&p);
        if (harnesses[0]) run_candidates(harnesses[0], &p, ks_backend_cpu);
        if (harnesses[1]) run_candidates(harnesses[1], &p, ks_backend_cuda);
        end(&p);
    }
}

/* One matrix of the first shape, two of the second, and so on. */
static void every_algorithm_of(const int64_t (*shapes)[3], size_t count)
{
    for (size_t s = 0; s < count; s++)
        for (int algorithm = 0; algorithm < 20; algorithm++) {
            if (is_left_out(24)) continue;
            const int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2], batch = 1 + (int64_t)s % 2;
            const bool ta = algorithm & 1, tb = algorithm & 2;
            const int64_t dims[2][KS_RANK_MAX] = {{batch, ta ? k : m, ta ? m : k}, {batch, tb ? n : k, tb ? k : n}};
            problem p = {.fill = (fill)((s + (size_t)algorithm) % FILLS)};
            set_shape(&p.spec, dtypes[algorithm / 4 % 4], dims, (const int[]){3, 3});
            p.spec.params[TRANSPOSE_A].i = ta;
            p.spec.params[TRANSPOSE_B].i = tb;
            p.spec.params[PRECISION].i = algorithm >= 16;
            p.spec.params[ACTIVATION].i = ((int64_t)s + algorithm) % GELU;
            if ((s + (size_t)algorithm) % 3 == 0) add_bias(&p.spec);
            if ((s + (size_t)algorithm) / 2 % 2) add_residual(&p.spec);
            begin(&p);
            run_everywhere(&p);
            if (harnesses[1]) run_candidates(harnesses[1], &p, ks_backend_cuda);
            end(&p);
        }
}

/* The skinny kernels want B in whole vectors, which random shapes seldom are: edges of their strips, values of K behind the
 * last whole block, slices that are short or empty, few columns as few rows, two matrices. */
static void every_algorithm_of_few_rows(void **unused)
{
    (void)unused;
    static const int64_t shapes[][3] = {{1, 72, 8},      {1, 264, 4104}, {16, 136, 1048}, {3, 200, 517},
                                        {200, 7, 520},   {9, 64, 2056},  {72, 1, 1032},   {5, 1032, 70},
                                        {13, 4104, 264}, {6, 4104, 136}, {1, 1021, 261}};
    every_algorithm_of(shapes, sizeof shapes / sizeof *shapes);
}

/* Rows of one operand or both that start anywhere: they are packed, or shifted as they are read; tiles that end within a
 * vector, a last stage with one value of K, slices. */
static void every_algorithm_of_odd_rows(void **unused)
{
    (void)unused;
    static const int64_t shapes[][3] = {{64, 517, 1025}, {33, 777, 2049}, {130, 259, 131}, {257, 65, 515},
                                        {66, 1001, 64},  {66, 1000, 191}, {129, 191, 66}};
    every_algorithm_of(shapes, sizeof shapes / sizeof *shapes);
}

static void empty_sizes(void **unused)
{
    (void)unused;
    static const int64_t shapes[][3] = {{3, 5, 0}, {1, 100, 0}, {200, 300, 0}, {0, 4, 7}, {4, 0, 7}, {0, 0, 0}};
    static const unsigned char zeros[200 * 300 * 8];
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int algorithm = 0; algorithm < 16; algorithm++) {
            problem p = {.fill = UNIFORM};
            spec_2d(&p.spec, dtypes[algorithm / 4], shapes[s][0], shapes[s][1], shapes[s][2], algorithm & 1,
                    algorithm & 2);
            p.spec.params[ALPHA].d = -1.0; /* -1 times nothing is still +0 */
            begin(&p);
            unsigned char *out = malloc(p.spec.out[0].size_bytes + 1);
            void *scratch = malloc(ks_cpu_scratch_bytes(&p.spec));
            memset(out, 0xFF, p.spec.out[0].size_bytes);
            ks_cpu_reference(&p.spec, (const void *const *)p.in, (void *const[]){out}, scratch);
            assert_memory_equal(out, zeros, p.spec.out[0].size_bytes);
            for (int b = 0; b < 2; b++) {
                if (!harnesses[b]) continue;
                ks_error error = {.text = ""};
                memset(out, 0xFF, p.spec.out[0].size_bytes);
                if (op_harness_run(harnesses[b], &p.spec, (const void *const *)p.in, out, OP_PATH_PLANNED, 1, false,
                                   &error) != KS_OK)
                    fail_msg("%s", error.text);
                assert_memory_equal(out, zeros, p.spec.out[0].size_bytes);
            }
            free(scratch);
            free(out);
            end(&p);
        }
}

/* Offsets beyond 2^31 elements and 2^32 bytes in the output. */
static void over_two_to_the_31(void **unused)
{
    (void)unused;
    if (!getenv("KS_HUGE")) {
        print_message("skip: KS_HUGE is not set, no output of over 2^31 elements\n");
        skip();
    }
    problem p = {.fill = WHOLE};
    spec_2d(&p.spec, KS_FP16, 46351, 46339, 3, false, true);
    begin(&p);
    for (int b = 0; b < 2; b++) {
        if (!harnesses[b]) continue;
        const ks_backend *backend = b ? ks_backend_cuda : ks_backend_cpu;
        op_harness *harness = op_harness_open(backend, p.spec.out[0].size_bytes + (64 << 20));
        unsigned char *out = NULL;
        if (harness) run_algorithm(harness, &p, backend->name, OP_PATH_PLANNED, 1, false, &out);
        free(out);
        op_harness_close(&harness);
    }
    end(&p);
}

static void output_shapes(void **unused)
{
    (void)unused;
    ks_spec spec;
    ks_error error;
    set_shape(&spec, KS_FP32, (const int64_t[2][KS_RANK_MAX]){{7, 1, 2, 3}, {5, 3, 4}}, (const int[]){4, 3});
    assert_int_equal(ks_op_matmul.resolve(&spec, &error), KS_OK);
    assert_int_equal(spec.out[0].rank, 4);
    assert_memory_equal(spec.out[0].dims, ((const int64_t[]){7, 5, 2, 4}), 4 * sizeof(int64_t));
    assert_int_equal(spec.out[0].size_bytes, 7 * 5 * 2 * 4 * 4);
    assert_true(spec.flops == 2.0 * 7 * 5 * 2 * 4 * 3);
    set_shape(&spec, KS_BF16, (const int64_t[2][KS_RANK_MAX]){{1, 2, 3}, {0, 3, 4}}, (const int[]){3, 3});
    assert_int_equal(ks_op_matmul.resolve(&spec, &error), KS_OK);
    assert_int_equal(spec.out[0].dims[0], 0);
    assert_int_equal(spec.out[0].size_bytes, 0);
    assert_int_equal(ks_op_matmul.presets_count, 1);
    assert_string_equal(ks_op_matmul.presets[0].suffix, "tb");
}

static void refusals(void **unused)
{
    (void)unused;
    static const struct {
        const char *says[3];
        ks_dtype dtype[2];
        int rank[2];
        int64_t dims[2][KS_RANK_MAX];
        int ta, tb;
        double alpha;
        ks_status status;
    } bad[] = {
        {{"INPUT0", "FP32", "FP16"}, {KS_FP32, KS_FP16}, {2, 2}, {{2, 3}, {3, 4}}, 0, 0, 1, KS_DATATYPE},
        {{"INPUT0", "INT32", "FP16"}, {KS_INT32, KS_INT32}, {2, 2}, {{2, 3}, {3, 4}}, 0, 0, 1, KS_DATATYPE},
        {{"INPUT1", "BYTES", "FP32"}, {KS_FP32, KS_BYTES}, {2, 2}, {{2, 3}, {3, 4}}, 0, 0, 1, KS_DATATYPE},
        {{"INPUT0", "INPUT1", "rank 1"}, {KS_FP32, KS_FP32}, {1, 2}, {{3}, {3, 4}}, 0, 0, 1, KS_SHAPE},
        {{"INPUT1", "rank 1", "2 to 8"}, {KS_FP32, KS_FP32}, {2, 1}, {{2, 3}, {3}}, 0, 0, 1, KS_SHAPE},
        {{"INPUT0", "rank 0", "INPUT1"}, {KS_FP32, KS_FP32}, {0, 2}, {{0}, {3, 4}}, 0, 0, 1, KS_SHAPE},
        {{"INPUT0", " 30 ", " 31 "}, {KS_FP32, KS_FP32}, {2, 2}, {{2, 30}, {31, 4}}, 0, 0, 1, KS_SHAPE},
        {{"INPUT0", " 2 ", " 3 "}, {KS_FP32, KS_FP32}, {2, 2}, {{2, 3}, {3, 4}}, 1, 0, 1, KS_SHAPE},
        {{"INPUT1", " 3 ", " 4 "}, {KS_FP32, KS_FP32}, {2, 2}, {{2, 3}, {3, 4}}, 0, 1, 1, KS_SHAPE},
        {{"INPUT1", " 5 ", " 6 "}, {KS_FP64, KS_FP64}, {3, 3}, {{5, 2, 3}, {6, 3, 4}}, 0, 0, 1, KS_SHAPE},
        {{"INPUT1", " 0 ", " 6 "}, {KS_FP64, KS_FP64}, {3, 3}, {{0, 2, 3}, {6, 3, 4}}, 0, 0, 1, KS_SHAPE},
        {{"OUTPUT0", "", ""}, {KS_FP32, KS_FP32}, {2, 2}, {{1LL << 40, 1}, {1, 1LL << 40}}, 0, 0, 1, KS_SHAPE},
        {{"INPUT0", "-3", ""}, {KS_FP32, KS_FP32}, {2, 2}, {{2, -3}, {-3, 4}}, 1, 0, 1, KS_SHAPE},
        {{"alpha", "finite", "inf"}, {KS_FP32, KS_FP32}, {2, 2}, {{2, 3}, {3, 4}}, 0, 0, HUGE_VAL, KS_PARAMETER},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ks_spec spec;
        ks_error error = {.text = ""};
        set_shape(&spec, KS_FP32, bad[i].dims, bad[i].rank);
        spec.in[0].dtype = bad[i].dtype[0];
        spec.in[1].dtype = bad[i].dtype[1];
        spec.params[TRANSPOSE_A].i = bad[i].ta;
        spec.params[TRANSPOSE_B].i = bad[i].tb;
        spec.params[ALPHA].d = bad[i].alpha;
        assert_int_equal(ks_op_matmul.resolve(&spec, &error), bad[i].status);
        assert_int_equal(error.status, bad[i].status);
        for (int w = 0; w < 3; w++)
            if (!strstr(error.text, bad[i].says[w]))
                fail_msg("case %zu: \"%s\" lacks \"%s\"", i, error.text, bad[i].says[w]);
    }
}

static void refusals_of_the_epilogue(void **unused)
{
    (void)unused;
    static const struct {
        const char *says[3];
        ks_dtype dtype, bias_dtype;
        int rank;
        int64_t dims[2];
        int tf32;
        ks_status status;
    } bad[] = {
        {{"INPUT2", " 5 ", " 4 "}, KS_FP32, KS_FP32, 1, {5}, 0, KS_SHAPE},
        {{"INPUT2", "rank 2", "needs 1"}, KS_FP32, KS_FP32, 2, {1, 4}, 0, KS_SHAPE},
        {{"INPUT2", "rank 0", "needs 1"}, KS_FP32, KS_FP32, 0, {0}, 0, KS_SHAPE},
        {{"INPUT2", "FP16", "FP32"}, KS_FP32, KS_FP16, 1, {4}, 0, KS_DATATYPE},
        {{"INPUT2", "INT8", "FP32"}, KS_FP32, KS_INT8, 1, {4}, 0, KS_DATATYPE},
        {{"precision", "tf32", "BF16"}, KS_BF16, KS_BF16, 1, {4}, 1, KS_PARAMETER},
        {{"precision", "tf32", "FP64"}, KS_FP64, KS_FP64, 1, {4}, 1, KS_PARAMETER},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ks_spec spec;
        ks_error error = {.text = ""};
        spec_2d(&spec, bad[i].dtype, 2, 4, 3, false, false);
        add_bias(&spec);
        spec.in[2].dtype = bad[i].bias_dtype;
        spec.in[2].rank = bad[i].rank;
        memcpy(spec.in[2].dims, bad[i].dims, sizeof bad[i].dims);
        spec.params[PRECISION].i = bad[i].tf32;
        assert_int_equal(ks_op_matmul.resolve(&spec, &error), bad[i].status);
        for (int w = 0; w < 3; w++)
            if (!strstr(error.text, bad[i].says[w]))
                fail_msg("case %zu: \"%s\" lacks \"%s\"", i, error.text, bad[i].says[w]);
    }
}

static void refusals_of_residuals(void **unused)
{
    (void)unused;
    static const struct {
        const char *says[2];
        ks_dtype dtype;
        int rank;
        int64_t dims[KS_RANK_MAX];
        ks_status status;
    } bad[] = {{{"INPUT5 (residual) has shape [3,4]", "OUTPUT0 [2,4]"}, KS_FP32, 2, {3, 4}, KS_SHAPE},
               {{"[2,5]", "[2,4]"}, KS_FP32, 2, {2, 5}, KS_SHAPE},
               {{"[4]", "must be equal"}, KS_FP32, 1, {4}, KS_SHAPE},
               {{"[1,2,4]", "must be equal"}, KS_FP32, 3, {1, 2, 4}, KS_SHAPE},
               {{"INPUT5", "FP16"}, KS_FP16, 2, {2, 4}, KS_DATATYPE}};
    ks_spec spec;
    ks_error error = {.text = ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        spec_2d(&spec, KS_FP32, 2, 4, 3, false, false);
        add_residual(&spec);
        spec.in[RESIDUAL] = (ks_tensor){.dtype = bad[i].dtype, .rank = bad[i].rank};
        memcpy(spec.in[RESIDUAL].dims, bad[i].dims, sizeof bad[i].dims);
        assert_int_equal(ks_op_matmul.resolve(&spec, &error), bad[i].status);
        for (int w = 0; w < 2; w++)
            if (!strstr(error.text, bad[i].says[w]))
                fail_msg("case %zu: \"%s\" lacks \"%s\"", i, error.text, bad[i].says[w]);
    }
    spec_2d(&spec, KS_FP32, 2, 4, 3, false, false);
    add_residual(&spec);
    for (int i = 0; i < 2; i++) spec.in[i].dtype = KS_INT8;
    assert_int_equal(ks_op_matmul.resolve(&spec, &error), KS_DATATYPE);
    assert_non_null(strstr(error.text, "operands of 16 bits and more, INPUT0 has datatype INT8"));
}

/* --- oneDNN and threads ---------------------------------------------------------------------------------------------- */

static int thread_count(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return 0;
    while (readdir(tasks)) count++;
    closedir(tasks);
    return count;
}

typedef struct lane {
    const problem *problem;
    float *out;
    int threads; /* of the process, seen while running */
} lane;

static void *lane_main(void *argument)
{
    lane *l = argument;
    for (int i = 0; i < 20; i++)
        if (!ks_onednn_run(&l->problem->spec, (const void *const *)l->problem->in, l->out)) l->out[0] = NAN;
    l->threads = thread_count();
    return NULL;
}

/* Two threads on one spec: the same bits as alone, and no team behind either of them. */
static void onednn_from_two_threads(void **unused)
{
    (void)unused;
    problem p = {.fill = UNIFORM};
    spec_2d(&p.spec, KS_FP32, 192, 200, 300, false, true);
    begin(&p);
    if (!ks_onednn_takes(&p.spec)) {
        end(&p);
        skip();
    }
    const int threads_before = thread_count();
    float *alone = malloc(p.spec.out[0].size_bytes);
    assert_true(ks_onednn_run(&p.spec, (const void *const *)p.in, alone));
    lane lanes[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        lanes[i] = (lane){&p, malloc(p.spec.out[0].size_bytes), 0};
        assert_int_equal(pthread_create(&threads[i], NULL, lane_main, &lanes[i]), 0);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(lanes[i].out, alone, p.spec.out[0].size_bytes);
        assert_true(lanes[i].threads <= threads_before + 2);
        free(lanes[i].out);
    }
    assert_int_equal(thread_count(), threads_before);
    free(alone);
    end(&p);
}

static int open_harnesses(void **unused)
{
    (void)unused;
    harnesses[0] = op_harness_open(ks_backend_cpu, ARENA_BYTES);
    harnesses[1] = ks_backend_cuda ? op_harness_open(ks_backend_cuda, ARENA_BYTES) : NULL;
    if (!harnesses[1]) print_message("no CUDA device: the CPU alone\n");
    return harnesses[0] ? 0 : -1;
}

static int close_harnesses(void **unused)
{
    (void)unused;
    for (int b = 0; b < 2; b++) op_harness_close(&harnesses[b]);
    return 0;
}

int main(void)
{
    const char *text = getenv("KS_SEED");
    FILE *random = text ? NULL : fopen("/dev/urandom", "rb");
    if (random) {
        if (fread(&state, sizeof state, 1, random) != 1) state = 1;
        fclose(random);
    } else {
        state = text ? strtoull(text, NULL, 10) : 1;
    }
    if (state == 0) state = 1;
    print_message("KS_SEED=%llu\n", (unsigned long long)state);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(refusals_of_the_epilogue),
        cmocka_unit_test(refusals_of_residuals),
        cmocka_unit_test(output_shapes),
        cmocka_unit_test(empty_sizes),
        cmocka_unit_test(every_regime),
        cmocka_unit_test(every_algorithm_of_small_matrices),
        cmocka_unit_test(small_matrices_share_launches),
        cmocka_unit_test(candidates_do_not_depend_on_the_border),
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(every_algorithm_of_random_shapes),
        cmocka_unit_test(every_algorithm_of_few_rows),
        cmocka_unit_test(every_algorithm_of_odd_rows),
        cmocka_unit_test(onednn_from_two_threads),
        cmocka_unit_test(over_two_to_the_31),
    };
    cmocka_set_test_filter(getenv("KS_ONLY"));
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
