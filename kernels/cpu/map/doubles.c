/* map of FP64, and of integers through functions of real numbers: the C library's functions, one after the other. */
#include "cpu/map/map.h"
#include "cpu/simd.h"
#include "cpu/unary.h"

/* --- one operand -------------------------------------------------------------------------------------------------------- */

static double sign_of(double x)
{
    return x != x ? x : (double)((x > 0) - (x < 0));
}

static double rsqrt(double x)
{
    return 1 / sqrt(x);
}

static double softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

/* The functions without a and b that are a call; NULL: another one. */
static double (*function_of(ks_map_function function))(double)
{
    switch (function) {
    case KS_MAP_SIGN:
        return sign_of;
    case KS_MAP_EXP:
        return exp;
    case KS_MAP_LOG:
        return log;
    case KS_MAP_RSQRT:
        return rsqrt;
    case KS_MAP_SIN:
        return sin;
    case KS_MAP_COS:
        return cos;
    case KS_MAP_TANH:
        return tanh;
    case KS_MAP_ERF:
        return erf;
    case KS_MAP_SOFTPLUS:
        return softplus;
    default:
        return NULL;
    }
}

static ks_activation activation_of(ks_map_function function)
{
    switch (function) {
    case KS_MAP_RELU:
        return KS_ACTIVATION_RELU;
    case KS_MAP_GELU:
        return KS_ACTIVATION_GELU;
    case KS_MAP_GELU_TANH:
        return KS_ACTIVATION_GELU_TANH;
    case KS_MAP_SILU:
        return KS_ACTIVATION_SILU;
    default:
        return KS_ACTIVATION_NONE;
    }
}

#define EACH(expression)                                                                                               \
    for (size_t i = 0; i < count; i++) {                                                                               \
        const double x = in[i];                                                                                        \
        out[i] = (expression);                                                                                         \
    }                                                                                                                  \
    break

/* What needs no call. */
KS_CLONES static void apply_plain(const ks_map_work *work, const double *restrict in, double *restrict out,
                                  size_t count)
{
    const double a = work->a, b = work->b;
    switch (work->function) {
    case KS_MAP_ABS:
        EACH(fabs(x));
    case KS_MAP_NEG:
        EACH(-x);
    case KS_MAP_SQRT:
        EACH(sqrt(x));
    case KS_MAP_RECIPROCAL:
        EACH(1 / x);
    case KS_MAP_SQUARE:
        EACH(x * x);
    case KS_MAP_FLOOR:
        EACH(floor(x));
    case KS_MAP_CEIL:
        EACH(ceil(x));
    case KS_MAP_ROUND:
        EACH(rint(x));
    case KS_MAP_SIGMOID:
        EACH(1 / (1 + exp(-x)));
    case KS_MAP_ELU:
        EACH(x > 0 ? x : a * expm1(x));
    case KS_MAP_LEAKY_RELU:
        EACH(x < 0 ? a * x : x);
    case KS_MAP_CLAMP:
        EACH(x < a ? a : x > b ? b : x);
    default:
        EACH(fma(a, x, b));
    }
}

static void apply_one(const ks_map_work *work, const double *in, double *out, size_t count)
{
    double (*const function)(double) = function_of(work->function);
    const ks_activation activation = activation_of(work->function);
    if (activation != KS_ACTIVATION_NONE)
        for (size_t i = 0; i < count; i++) out[i] = ks_double_activate(in[i], activation);
    else if (function)
        for (size_t i = 0; i < count; i++) out[i] = function(in[i]);
    else
        apply_plain(work, in, out, count);
}

/* --- two and three ------------------------------------------------------------------------------------------------------- */

#define PAIRS(expression)                                                                                              \
    for (size_t i = 0; i < count; i++) {                                                                               \
        const double x = left[i], y = right[i];                                                                        \
        out[i] = (expression);                                                                                         \
    }                                                                                                                  \
    break

KS_CLONES static void apply_two(const ks_map_work *work, const double *restrict left, const double *restrict right,
                                double *restrict out, size_t count)
{
    switch (work->function) {
    case KS_MAP_ADD:
        PAIRS(x + y);
    case KS_MAP_SUB:
        PAIRS(x - y);
    case KS_MAP_MUL:
        PAIRS(x * y);
    case KS_MAP_DIV:
        PAIRS(x / y);
    case KS_MAP_MIN:
        PAIRS(x < y || x != x ? x : y);
    case KS_MAP_MAX:
        PAIRS(x > y || x != x ? x : y);
    case KS_MAP_POW:
        PAIRS(pow(x, y));
    default:
        PAIRS(fma(work->a, x, y));
    }
}

KS_CLONES static void apply_truth(ks_map_function function, const double *restrict left, const double *restrict right,
                                  uint8_t *restrict out, size_t count)
{
    switch (function) {
    case KS_MAP_EQ:
        PAIRS(x == y);
    case KS_MAP_NE:
        PAIRS(x != y);
    case KS_MAP_LT:
        PAIRS(x < y);
    case KS_MAP_LE:
        PAIRS(x <= y);
    case KS_MAP_GT:
        PAIRS(x > y);
    default:
        PAIRS(x >= y);
    }
}

static void apply_fma(const double *x, const double *y, const double *z, double *out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = fma(x[i], y[i], z[i]);
}

/* ks_map_apply_fn */
void ks_map_doubles(const ks_map_work *work, const void *const in[KS_MAP_OPERANDS], void *out, size_t count)
{
    if (work->truth)
        apply_truth(work->function, in[0], in[1], out, count);
    else if (work->operands == 1)
        apply_one(work, in[0], out, count);
    else if (work->operands == 2)
        apply_two(work, in[0], in[1], out, count);
    else
        apply_fma(in[0], in[1], in[2], out, count);
}
