/* An operation for tests of what stands above the operations, with every border in use: five inputs, three of which may be left
 * out, of several datatypes, one of them small; sixteen parameters; two outputs, or one where the last parameter is not 0.
 *
 *   OUTPUT0[r][c] = INPUT0[r][c] * INPUT1[c] + INPUT2[0] + sum over i of (i + 1) * p_i, or 0 where INPUT3[r][c] is false
 *   OUTPUT1[r]    = how many of OUTPUT0[r] are above INPUT4[0]
 *
 * Of another datatype than FP32 OUTPUT0 is INPUT0's bytes, and OUTPUT1 0. */
#ifndef KS_OP_WIDE_H
#define KS_OP_WIDE_H
#include <string.h>

#include "cpu/reference.h"

enum { WIDE_X, WIDE_WEIGHT, WIDE_BIAS, WIDE_MASK, WIDE_LIMIT, WIDE_INPUTS };
enum { WIDE_ONE_OUTPUT = KS_PARAMS_MAX - 1 };

static const ks_op op_wide;

static ks_status wide_check(ks_spec *spec, ks_error *error)
{
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        const ks_input *row = &spec->op->inputs[i];
        if (!(ks_op_dtypes(spec->op, i) & KS_DTYPE_BIT(spec->in[i].dtype)))
            return ks_fail(error, KS_DATATYPE, "wide: %s has datatype %s", row->name, ks_dtype_name(spec->in[i].dtype));
        if (spec->in[i].rank < row->rank_min || spec->in[i].rank > row->rank_max)
            return ks_fail(error, KS_SHAPE, "wide: %s has rank %d", row->name, spec->in[i].rank);
        const ks_status status = ks_tensor_measure(&spec->in[i], row->name, error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

static ks_status wide_resolve(ks_spec *spec, ks_error *error)
{
    const ks_status status = wide_check(spec, error);
    if (status != KS_OK) return status;
    const ks_tensor *x = &spec->in[WIDE_X];
    const int64_t columns = x->dims[1];
    if (ks_has_input(spec, WIDE_WEIGHT) && spec->in[WIDE_WEIGHT].dims[0] != columns)
        return ks_fail(error, KS_SHAPE, "wide: INPUT1 has not INPUT0's columns");
    if (ks_has_input(spec, WIDE_MASK) && memcmp(spec->in[WIDE_MASK].dims, x->dims, sizeof x->dims) != 0)
        return ks_fail(error, KS_SHAPE, "wide: INPUT3 has not INPUT0's shape");
    if ((ks_has_input(spec, WIDE_BIAS) && spec->in[WIDE_BIAS].dims[0] < 1) || spec->in[WIDE_LIMIT].dims[0] < 1)
        return ks_fail(error, KS_SHAPE, "wide: INPUT2 and INPUT4 are at least one number");
    spec->outputs = spec->params[WIDE_ONE_OUTPUT].i ? 1 : 2;
    spec->out[0] =
        (ks_tensor){.dtype = x->dtype, .rank = 2, .dims = {x->dims[0], columns}, .size_bytes = x->size_bytes};
    spec->out[1] = (ks_tensor){
        .dtype = KS_INT64, .rank = 1, .dims = {x->dims[0]}, .size_bytes = (size_t)x->dims[0] * sizeof(int64_t)};
    spec->flops = 4.0 * (double)ks_tensor_count(x);
    return KS_OK;
}

static float wide_element(const ks_spec *spec, const void *const *in, int64_t i, int64_t column)
{
    const unsigned char *mask = in[WIDE_MASK];
    const float *weight = in[WIDE_WEIGHT], *bias = in[WIDE_BIAS];
    float y = ((const float *)in[WIDE_X])[i] * (weight ? weight[column] : 1) + (bias ? bias[0] : 0);
    for (int p = 0; p < KS_PARAMS_MAX; p++) y += (float)((p + 1) * spec->params[p].i);
    return mask && !mask[i] ? 0 : y;
}

static void wide_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const ks_tensor *x = &spec->in[WIDE_X];
    const bool numbers = x->dtype == KS_FP32;
    int64_t *above = spec->outputs > 1 ? out[1] : NULL;
    if (!numbers) memcpy(out[0], in[WIDE_X], x->size_bytes);
    for (int64_t r = 0; r < x->dims[0]; r++) {
        int64_t count = 0;
        for (int64_t c = 0; c < x->dims[1] && numbers; c++) {
            const int64_t i = r * x->dims[1] + c;
            const float y = wide_element(spec, in, i, c);
            ((float *)out[0])[i] = y;
            count += y > (float)*(const int32_t *)in[WIDE_LIMIT];
        }
        if (above) above[r] = count;
    }
}

static const ks_cpu_op wide_cpu = {.reference = wide_reference};

static ks_rows wide_rows(const ks_spec *spec)
{
    (void)spec;
    return (ks_rows){.dims = 1, .cut = 1u << WIDE_X | 1u << WIDE_MASK, .out = 3};
}

#define WIDE_DTYPES                                                                                                    \
    (KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_FP8E4M3) | KS_DTYPE_BIT(KS_FP8E5M2) |             \
     KS_DTYPE_BIT(KS_BOOL) | KS_DTYPE_BIT(KS_UINT8))
#define WIDE_PARAM(text)                                                                                               \
    {                                                                                                                  \
        .name = text, .kind = KS_PARAM_INT, .status = KS_PARAMETER                                                     \
    }

static const ks_op op_wide = {
    .name = "wide",
    .inputs_count = WIDE_INPUTS,
    .inputs = {{.name = "INPUT0", .role = "x", .dtypes = WIDE_DTYPES, .rank_min = 2, .rank_max = 2},
               {.name = "INPUT1", .role = "weight", .rank_min = 1, .rank_max = 1, .optional = true, .small = true},
               {.name = "INPUT2",
                .role = "bias",
                .dtypes = KS_DTYPE_BIT(KS_FP32),
                .rank_min = 1,
                .rank_max = 1,
                .optional = true,
                .small = true},
               {.name = "INPUT3",
                .role = "mask",
                .dtypes = KS_DTYPE_BIT(KS_BOOL),
                .rank_min = 2,
                .rank_max = 2,
                .optional = true},
               {.name = "INPUT4",
                .role = "limit",
                .dtypes = KS_DTYPE_BIT(KS_INT32),
                .rank_min = 1,
                .rank_max = 1,
                .small = true}},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = KS_PARAMS_MAX,
    .params = {WIDE_PARAM("p0"), WIDE_PARAM("p1"), WIDE_PARAM("p2"), WIDE_PARAM("p3"), WIDE_PARAM("p4"),
               WIDE_PARAM("p5"), WIDE_PARAM("p6"), WIDE_PARAM("p7"), WIDE_PARAM("p8"), WIDE_PARAM("p9"),
               WIDE_PARAM("p10"), WIDE_PARAM("p11"), WIDE_PARAM("p12"), WIDE_PARAM("p13"), WIDE_PARAM("p14"),
               WIDE_PARAM("p15")},
    .resolve = wide_resolve,
    .rows = wide_rows,
};
#endif
