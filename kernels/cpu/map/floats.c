/* map of FP32, and of what is computed in it. What one instruction does is left to the compiler's vector code; the functions that other
 * ops have, too, are those of cpu/unary.h, sixteen floats at once; others are computed in double (curves.h), pow by the C library. */
#include "cpu/map/curves.h"
#include "cpu/map/map.h"
#include "cpu/unary.h"

/* --- loops ------------------------------------------------------------------------------------------------------------- */

#define ONE(name, expression)                                                                                          \
    KS_CLONES static void name(const float *restrict in, float *restrict out, size_t count)                            \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            const float x = in[i];                                                                                     \
            out[i] = (float)(expression);                                                                              \
        }                                                                                                              \
    }
ONE(one_abs, fabsf(x))
ONE(one_neg, -x)
ONE(one_sign, x != x ? x : (float)((x > 0) - (x < 0)))
ONE(one_log, curve_log(x))
ONE(one_sqrt, sqrtf(x))
ONE(one_rsqrt, 1 / sqrt((double)x))
ONE(one_reciprocal, 1 / x)
ONE(one_square, x *x)
ONE(one_floor, floorf(x))
ONE(one_ceil, ceilf(x))
ONE(one_round, rintf(x))
ONE(one_sin, curve_sin(x, 0))
ONE(one_cos, curve_sin(x, 1))
ONE(one_sigmoid, curve_sigmoid(x))
ONE(one_softplus, curve_softplus(x))

/* Sixteen at once; the last ones in a vector that zeros fill up. */
#define WIDE(name, function)                                                                                           \
    KS_CLONES static void name(const float *restrict in, float *restrict out, size_t count)                            \
    {                                                                                                                  \
        size_t i = 0;                                                                                                  \
        for (; i + KS_WIDE <= count; i += KS_WIDE) *(ks_wide *)(out + i) = function(KS_WIDE_AT(in + i));               \
        if (i == count) return;                                                                                        \
        float last[KS_WIDE] = {0};                                                                                     \
        memcpy(last, in + i, (count - i) * sizeof *in);                                                                \
        *(ks_wide *)last = function(KS_WIDE_AT(last));                                                                 \
        memcpy(out + i, last, (count - i) * sizeof *out);                                                              \
    }
WIDE(wide_exp, ks_wide_exp)
WIDE(wide_tanh, ks_wide_tanh)
WIDE(wide_erf, ks_wide_erf)
WIDE(wide_relu, ks_wide_relu)
WIDE(wide_gelu, ks_wide_gelu)
WIDE(wide_gelu_tanh, ks_wide_gelu_tanh)
WIDE(wide_silu, ks_wide_silu)

/* Of one operand, with a and b. */
#define GIVEN(name, expression)                                                                                        \
    KS_CLONES static void name(const float *restrict in, float *restrict out, size_t count, float a, float b)          \
    {                                                                                                                  \
        (void)b;                                                                                                       \
        for (size_t i = 0; i < count; i++) {                                                                           \
            const float x = in[i];                                                                                     \
            out[i] = (float)(expression);                                                                              \
        }                                                                                                              \
    }
GIVEN(given_elu, curve_choose(x > 0, x, a *curve_expm1(x)))
GIVEN(given_leaky_relu, x < 0 ? a * x : x)
GIVEN(given_clamp, x<a ? a : x> b ? b : x)
GIVEN(given_linear, curve_fma(a, x, b))

#define TWO(name, expression)                                                                                          \
    KS_CLONES static void name(const float *restrict left, const float *restrict right, float *restrict out,           \
                               size_t count, float a)                                                                  \
    {                                                                                                                  \
        (void)a;                                                                                                       \
        for (size_t i = 0; i < count; i++) {                                                                           \
            const float x = left[i], y = right[i];                                                                     \
            out[i] = (float)(expression);                                                                              \
        }                                                                                                              \
    }
TWO(two_add, x + y)
TWO(two_sub, x - y)
TWO(two_mul, x *y)
TWO(two_div, x / y)
TWO(two_min, x < y || x != x ? x : y)
TWO(two_max, x > y || x != x ? x : y)
TWO(two_pow, pow((double)x, (double)y))
TWO(two_axpy, curve_fma(a, x, y))

#define TRUTH(name, expression)                                                                                        \
    KS_CLONES static void name(const float *restrict left, const float *restrict right, uint8_t *restrict out,         \
                               size_t count)                                                                           \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            const float x = left[i], y = right[i];                                                                     \
            out[i] = (expression);                                                                                     \
        }                                                                                                              \
    }
TRUTH(truth_eq, x == y)
TRUTH(truth_ne, x != y)
TRUTH(truth_lt, x < y)
TRUTH(truth_le, x <= y)
TRUTH(truth_gt, x > y)
TRUTH(truth_ge, x >= y)

#if defined(__x86_64__)
/* By the processor's own, which rounds once as well: no name of KS_CLONES has it. */
__attribute__((target("avx2,fma"))) static void fused_fma(const float *restrict x, const float *restrict y,
                                                          const float *restrict z, float *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = __builtin_fmaf(x[i], y[i], z[i]);
}
#endif

KS_CLONES static void three_fma(const float *restrict x, const float *restrict y, const float *restrict z,
                                float *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = curve_fma(x[i], y[i], z[i]);
}

/* --- sin and cos of large numbers ------------------------------------------------------------------------------------- */

/* Beyond what is reduced without loss the C library is asked. */
static void turn(void (*loop)(const float *restrict, float *restrict, size_t), double (*each)(double), const float *in,
                 float *out, size_t count)
{
    const float most = (float)CURVE_TURNS_MOST;
    loop(in, out, count);
    for (size_t i = 0; i < count; i++)
        if (fabsf(in[i]) > most) out[i] = (float)each(in[i]);
}

/* --- by name ------------------------------------------------------------------------------------------------------------ */

/* a and b as the datatypes of the operands are computed. */
static void apply_one(const ks_map_work *work, const float *in, float *out, size_t count)
{
    const float a = (float)work->a, b = (float)work->b;
    switch (work->function) {
    case KS_MAP_ABS:
        return one_abs(in, out, count);
    case KS_MAP_NEG:
        return one_neg(in, out, count);
    case KS_MAP_SIGN:
        return one_sign(in, out, count);
    case KS_MAP_EXP:
        return wide_exp(in, out, count);
    case KS_MAP_LOG:
        return one_log(in, out, count);
    case KS_MAP_SQRT:
        return one_sqrt(in, out, count);
    case KS_MAP_RSQRT:
        return one_rsqrt(in, out, count);
    case KS_MAP_RECIPROCAL:
        return one_reciprocal(in, out, count);
    case KS_MAP_SQUARE:
        return one_square(in, out, count);
    case KS_MAP_FLOOR:
        return one_floor(in, out, count);
    case KS_MAP_CEIL:
        return one_ceil(in, out, count);
    case KS_MAP_ROUND:
        return one_round(in, out, count);
    case KS_MAP_SIN:
        return turn(one_sin, sin, in, out, count);
    case KS_MAP_COS:
        return turn(one_cos, cos, in, out, count);
    case KS_MAP_TANH:
        return wide_tanh(in, out, count);
    case KS_MAP_ERF:
        return wide_erf(in, out, count);
    case KS_MAP_SIGMOID:
        return one_sigmoid(in, out, count);
    case KS_MAP_RELU:
        return wide_relu(in, out, count);
    case KS_MAP_GELU:
        return wide_gelu(in, out, count);
    case KS_MAP_GELU_TANH:
        return wide_gelu_tanh(in, out, count);
    case KS_MAP_SILU:
        return wide_silu(in, out, count);
    case KS_MAP_SOFTPLUS:
        return one_softplus(in, out, count);
    case KS_MAP_ELU:
        return given_elu(in, out, count, a, b);
    case KS_MAP_LEAKY_RELU:
        return given_leaky_relu(in, out, count, a, b);
    case KS_MAP_CLAMP:
        return given_clamp(in, out, count, a, b);
    default:
        return given_linear(in, out, count, a, b);
    }
}

static void apply_truth(ks_map_function function, const float *x, const float *y, uint8_t *out, size_t count)
{
    switch (function) {
    case KS_MAP_EQ:
        return truth_eq(x, y, out, count);
    case KS_MAP_NE:
        return truth_ne(x, y, out, count);
    case KS_MAP_LT:
        return truth_lt(x, y, out, count);
    case KS_MAP_LE:
        return truth_le(x, y, out, count);
    case KS_MAP_GT:
        return truth_gt(x, y, out, count);
    default:
        return truth_ge(x, y, out, count);
    }
}

static void apply_two(ks_map_function function, float a, const float *x, const float *y, float *out, size_t count)
{
    switch (function) {
    case KS_MAP_ADD:
        return two_add(x, y, out, count, a);
    case KS_MAP_SUB:
        return two_sub(x, y, out, count, a);
    case KS_MAP_MUL:
        return two_mul(x, y, out, count, a);
    case KS_MAP_DIV:
        return two_div(x, y, out, count, a);
    case KS_MAP_MIN:
        return two_min(x, y, out, count, a);
    case KS_MAP_MAX:
        return two_max(x, y, out, count, a);
    case KS_MAP_POW:
        return two_pow(x, y, out, count, a);
    default:
        return two_axpy(x, y, out, count, a);
    }
}

static void apply_three(const float *x, const float *y, const float *z, float *out, size_t count)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        fused_fma(x, y, z, out, count);
        return;
    }
#endif
    three_fma(x, y, z, out, count);
}

/* ks_map_apply_fn */
void ks_map_floats(const ks_map_work *work, const void *const in[KS_MAP_OPERANDS], void *out, size_t count)
{
    if (work->truth)
        apply_truth(work->function, in[0], in[1], out, count);
    else if (work->operands == 1)
        apply_one(work, in[0], out, count);
    else if (work->operands == 2)
        apply_two(work->function, (float)work->a, in[0], in[1], out, count);
    else
        apply_three(in[0], in[1], in[2], out, count);
}
