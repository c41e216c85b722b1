/* What the tests of quantize and dequantize share: specs, scales, runs on every backend, refusals. The includer has ARENA_BYTES and
 * op_backends.h before it. One thread. */
#ifndef KS_OP_QUANTIZE_H
#define KS_OP_QUANTIZE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/reference.h"
#include "ops/map_oracle.h"
#include "ops/op_harness.h"
#include "ops/quantize/quantize.h"

static inline ks_spec quantize_spec(const ks_op *op, ks_dtype dtype, int rank, const int64_t *dims, int to,
                                    ks_scale_per per, bool given)
{
    ks_spec spec;
    ks_spec_init(&spec, op);
    spec.in[0] = (ks_tensor){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) spec.in[0].dims[i] = dims[i];
    spec.params[KS_QUANTIZE_OUT_DATATYPE].i = to;
    spec.params[KS_QUANTIZE_SCALE_PER].i = per;
    spec.given = given ? 3 : 1;
    if (!given) return spec;
    spec.in[1] = (ks_tensor){.dtype = KS_FP32, .rank = 1, .dims = {1}};
    if (per == KS_SCALE_COLUMN) spec.in[1].dims[0] = dims[rank - 1];
    if (per != KS_SCALE_ROW) return spec;
    spec.in[1].rank = rank - 1;
    spec.in[1].dims[0] = 0;
    for (int i = 0; i < rank - 1; i++) spec.in[1].dims[i] = dims[i];
    return spec;
}

static inline void quantize_describe(const ks_spec *spec, const char *who)
{
    char dims[KS_RANK_MAX * 21];
    ks_dims_text(&spec->in[0], dims, sizeof dims);
    print_error("%s: %s %s [%s] to %s, scale_per %d, %s\n", who, spec->op->name, ks_dtype_name(spec->in[0].dtype), dims,
                ks_dtype_name(spec->out[0].dtype), (int)spec->params[KS_QUANTIZE_SCALE_PER].i,
                spec->given == 3 ? "given" : "computed");
}

static inline void quantize_resolve_spec(ks_spec *spec)
{
    ks_error error = {0};
    if (spec->op->resolve(spec, &error) != KS_OK) {
        quantize_describe(spec, "resolve");
        fail_msg("%s", error.text);
    }
    ks_spec_layout(spec);
}

static inline void *quantize_memory(size_t bytes)
{
    void *memory = malloc(bytes + 1);
    assert_non_null(memory);
    return memory;
}

/* Scales, among them now and then the least and the largest. */
static inline void quantize_fill_scales(float *scales, int64_t count)
{
    static const float ends[] = {0x1.000002p-126f, 0x1p-126f, 0x1p-60f, 0x1p60f, FLT_MAX, 1.0f, 0x1.fffffep-1f};
    for (int64_t i = 0; i < count; i++)
        scales[i] = values_below(8) ? (float)exp(2 * values_normal()) : ends[values_below(7)];
}

/* The number of the scale of element i. */
static inline int64_t quantize_scale_at(const ks_quantize_shape *s, int64_t i)
{
    return s->per == KS_SCALE_ROW ? i / s->columns : s->per == KS_SCALE_COLUMN ? i % s->columns : 0;
}

static inline ks_status quantize_run_backend(int b, const ks_spec *spec, const void *const *in, void *out,
                                             ks_error *error)
{
    return op_run(b, spec, in, out, (unsigned)values_below(4) & spec->given, error);
}

typedef void quantize_check_fn(const ks_spec *spec, const void *const *in, const void *out, const char *who);

/* Runs and compares everywhere. */
static inline void quantize_try(const ks_spec *spec, const void *const *in, quantize_check_fn *check)
{
    void *out = quantize_memory(ks_spec_out_bytes(spec));
    op_reference(spec, in, out);
    check(spec, in, out, "reference");
    for (int b = 0; b < 2; b++) {
        ks_error error = {0};
        if (!harnesses[b]) continue;
        if (quantize_run_backend(b, spec, in, out, &error) != KS_OK) {
            quantize_describe(spec, b ? "cuda" : "cpu");
            fail_msg("%s", error.text);
        }
        check(spec, in, out, b ? "cuda" : "cpu");
    }
    free(out);
}

/* A scale that is none at the first, a middle and the last place, with a worse one behind; and among jobs that go on. */
static inline void quantize_bad_scales(const ks_spec *spec, const void *in, quantize_check_fn *check)
{
    static const float bad[] = {0.0f, -0.0f, -1.5f, 0x1.fffffcp-127f, INFINITY, -INFINITY, NAN};
    const int64_t count = ks_tensor_count(&spec->in[1]);
    float *good = quantize_memory(spec->in[1].size_bytes), *scales = quantize_memory(spec->in[1].size_bytes);
    void *out = quantize_memory(ks_spec_out_bytes(spec));
    const void *const inputs[KS_INPUTS_MAX] = {in, scales}, *const others[KS_INPUTS_MAX] = {in, good};
    quantize_fill_scales(good, count);
    for (int n = 0; n < 3; n++) {
        ks_bad_value found, wanted = {.input = 1, .place = n == 0 ? 0 : n == 1 ? count / 2 : count - 1};
        ks_error text = {0};
        uint32_t bits;
        memcpy(scales, good, spec->in[1].size_bytes);
        scales[count - 1] = -7;
        scales[wanted.place] = bad[values_below(7)];
        memcpy(&bits, &scales[wanted.place], sizeof bits);
        wanted.value = (int32_t)bits;
        assert_true(spec->op->check(spec, inputs, &found));
        assert_int_equal(found.place, wanted.place);
        assert_int_equal(spec->op->refuse(spec, &wanted, &text), KS_RANGE);
        for (int b = 0; b < 2; b++) {
            ks_error error = {0};
            if (!harnesses[b]) continue;
            assert_int_equal(quantize_run_backend(b, spec, inputs, out, &error), KS_RANGE);
            assert_string_equal(error.text, text.text);
            op_harness_spoil(harnesses[b], inputs);
            const ks_status status =
                op_harness_run(harnesses[b], spec, others, out, (op_path)values_below(3), 8, values_below(2), &error);
            op_harness_spoil(harnesses[b], NULL);
            if (status != KS_OK) fail_msg("%s", error.text);
            check(spec, others, out, "beside refused ones");
        }
    }
    assert_false(spec->op->check(spec, others, &(ks_bad_value){0}));
    free(good);
    free(scales);
    free(out);
}

static inline void quantize_refusal(ks_spec spec, ks_status want, const char *words)
{
    ks_error error = {0};
    assert_int_equal(spec.op->resolve(&spec, &error), want);
    if (!strstr(error.text, words)) fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

/* Of both ops alike. */
static inline void quantize_refuse_scales(const ks_op *op, ks_dtype dtype)
{
    const int64_t dims[] = {2, 3, 4};
    ks_spec spec = quantize_spec(op, dtype, 3, dims, 0, KS_SCALE_TENSOR, true);
    char words[80];
    spec.in[1].dtype = KS_FP16;
    quantize_refusal(spec, KS_DATATYPE, "INPUT1 (scale) has datatype FP16, takes FP32");
    spec.in[1].dtype = KS_FP32;
    spec.in[1].dims[0] = 2;
    snprintf(words, sizeof words, "%s: INPUT1 (scale) has shape [2], takes [1] with scale_per tensor", op->name);
    quantize_refusal(spec, KS_SHAPE, words);
    spec.params[KS_QUANTIZE_SCALE_PER].i = KS_SCALE_ROW;
    quantize_refusal(spec, KS_SHAPE, "has shape [2], takes [2,3] with scale_per row");
    spec.params[KS_QUANTIZE_SCALE_PER].i = KS_SCALE_COLUMN;
    quantize_refusal(spec, KS_SHAPE, "has shape [2], takes [4] with scale_per column");
    spec.in[1].rank = 8;
    quantize_refusal(spec, KS_SHAPE, "INPUT1 (scale) has rank 8, takes 0 to 7");
    spec.in[0].rank = 0;
    quantize_refusal(spec, KS_SHAPE, "INPUT0 (x) has rank 0, takes 1 to 8");
    spec.in[0].dtype = KS_FP64;
    quantize_refusal(spec, KS_DATATYPE, "INPUT0 (x) has datatype FP64, takes ");
}

#endif
