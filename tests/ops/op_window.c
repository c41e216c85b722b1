/* Windows against an index formula: each element of the output says which one of the input it is; and against float64 loops, as
 * convolutions and box sums. The reference by itself, then every backend that this machine has, on all its paths. KS_CASES, KS_SEED: how
 * many random cases, and which. KS_HUGE: also a tensor of over 2^31 bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <cmocka.h>

#include "ops/op_harness.h"
#include "ops/op_values.h"
#include "cpu/reference.h"
#include "ops/layout.h"
#include "ops/matmul.h"
#include "ops/window/window.h"

extern const ks_op ks_op_window, ks_op_layout, ks_op_matmul;

enum { ARENA_BYTES = 64 << 20, SPATIAL = KS_WINDOWS_SPATIAL_MAX };
#include "ops/op_backends.h"

/* --- cases ------------------------------------------------------------------------------------------------------------ */

/* What was asked for, as the formula reads it; the spec says it in any of the ways that a request may. */
typedef struct window_case {
    ks_spec spec;
    int spatial, lead; /* axes */
    bool first;        /* channels first */
    int64_t size[SPATIAL], stride[SPATIAL], dilation[SPATIAL], before[SPATIAL], after[SPATIAL];
    uint64_t fill; /* the bits of an element */
    void *in;
} window_case;

static int64_t below(int64_t bound)
{
    return (int64_t)(values_next() % (uint64_t)bound);
}

static void set_list(window_case *c, int param, int count, const int64_t *values)
{
    ks_integers *list = ks_spec_list(&c->spec, param);
    *list = (ks_integers){.count = count};
    memcpy(list->value, values, (size_t)count * sizeof *values);
}

/* dims: leading, then spatial ones and channels in the order of the layout. */
static window_case new_case(ks_dtype dtype, bool first, int spatial, int rank, const int64_t *dims)
{
    window_case c = {.spatial = spatial, .lead = rank - spatial - 1, .first = first};
    ks_spec_init(&c.spec, &ks_op_window);
    c.spec.in[0] = (ks_tensor){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) c.spec.in[0].dims[i] = dims[i];
    for (int i = 0; i < spatial; i++) c.size[i] = c.stride[i] = c.dilation[i] = 1;
    c.spec.params[KS_WINDOWS_LAYOUT].i = first ? KS_WINDOWS_NCHW : KS_WINDOWS_NHWC;
    return c;
}

static int axis_of(const window_case *c, int spatial)
{
    return c->lead + spatial + c->first;
}

static int64_t channels_of(const window_case *c)
{
    return c->spec.in[0].dims[c->first ? c->lead : c->lead + c->spatial];
}

/* Every list in full. */
static void say(window_case *c)
{
    int64_t pad[2 * SPATIAL];
    for (int i = 0; i < c->spatial; i++) {
        pad[i] = c->before[i];
        pad[c->spatial + i] = c->after[i];
    }
    set_list(c, KS_WINDOWS_SIZE, c->spatial, c->size);
    set_list(c, KS_WINDOWS_STRIDE, c->spatial, c->stride);
    set_list(c, KS_WINDOWS_DILATION, c->spatial, c->dilation);
    set_list(c, KS_WINDOWS_PAD, 2 * c->spatial, pad);
}

static void describe(const window_case *c, const char *who, int64_t at)
{
    char dims[200];
    ks_dims_text(&c->spec.in[0], dims, sizeof dims);
    print_error("%s: %s [%s] %s", who, ks_dtype_name(c->spec.in[0].dtype), dims, c->first ? "nchw" : "nhwc");
    for (int i = 0; i < c->spatial; i++)
        print_error(" (size %" PRId64 " stride %" PRId64 " dilation %" PRId64 " pad %" PRId64 " %" PRId64 ")",
                    c->size[i], c->stride[i], c->dilation[i], c->before[i], c->after[i]);
    print_error(", element %" PRId64 "\n", at);
}

/* Resolved, with memory for its input, full of any bits. */
static void open_case(window_case *c)
{
    ks_error error = {0};
    if (ks_op_window.resolve(&c->spec, &error) != KS_OK) {
        describe(c, "resolve", -1);
        fail_msg("%s", error.text);
    }
    ks_spec_layout(&c->spec);
    const size_t bytes = c->spec.in[0].size_bytes;
    c->in = malloc(bytes + 8);
    assert_non_null(c->in);
    for (size_t at = 0; at < bytes + 8; at += 8) {
        const uint64_t word = values_next();
        memcpy((char *)c->in + at, &word, bytes + 8 - at < 8 ? bytes + 8 - at : 8);
    }
}

static void close_case(window_case *c)
{
    free(c->in);
}

/* --- what is right ---------------------------------------------------------------------------------------------------- */

/* Where output element `at` comes from; -1: it is the value. */
static int64_t source_of(const window_case *c, int64_t at)
{
    const ks_tensor *in = &c->spec.in[0], *out = &c->spec.out[0];
    const int64_t channels = channels_of(c), channel = at % channels;
    int64_t tap[SPATIAL], index[KS_RANK_MAX] = {0}, from = 0;
    at /= channels;
    for (int i = c->spatial - 1; i >= 0; i--) {
        tap[i] = at % c->size[i];
        at /= c->size[i];
    }
    for (int i = c->spatial - 1; i >= 0; i--) {
        const int64_t place = at % out->dims[c->lead + i] * c->stride[i] + tap[i] * c->dilation[i] - c->before[i];
        at /= out->dims[c->lead + i];
        if (place < 0 || place >= in->dims[axis_of(c, i)]) return -1;
        index[axis_of(c, i)] = place;
    }
    for (int i = c->lead - 1; i >= 0; i--) {
        index[i] = at % in->dims[i];
        at /= in->dims[i];
    }
    index[c->first ? c->lead : c->lead + c->spatial] = channel;
    for (int i = 0; i < in->rank; i++) from = from * in->dims[i] + index[i];
    return from;
}

/* At most so many elements, the last one among them. */
static void check(const window_case *c, const void *out, const char *who, int64_t most)
{
    const int64_t count = ks_tensor_count(&c->spec.out[0]);
    const size_t size = ks_dtype_size(c->spec.in[0].dtype);
    for (int64_t i = 0; i < count && i < most; i++) {
        const int64_t at = count <= most ? i : i ? below(count) : count - 1, from = source_of(c, at);
        const void *want = from < 0 ? (const void *)&c->fill : (const char *)c->in + (size_t)from * size;
        if (memcmp((const char *)out + (size_t)at * size, want, size) == 0) continue;
        describe(c, who, at);
        fail_msg("it is not element %" PRId64 " of the input (-1: the value)", from);
    }
}

/* The extents of the answer, by the definition and not by the rules. */
static void check_shape(const window_case *c)
{
    const ks_tensor *in = &c->spec.in[0], *out = &c->spec.out[0];
    int64_t row = channels_of(c);
    assert_int_equal(out->rank, in->rank);
    for (int i = 0; i < c->lead; i++) assert_int_equal(out->dims[i], in->dims[i]);
    for (int i = 0; i < c->spatial; i++) {
        int64_t windows = 0;
        const int64_t end = in->dims[axis_of(c, i)] + c->after[i];
        for (int64_t at = -c->before[i]; at + (c->size[i] - 1) * c->dilation[i] < end; at += c->stride[i]) windows++;
        assert_int_equal(out->dims[c->lead + i], windows);
        row *= c->size[i];
    }
    assert_int_equal(out->dims[c->lead + c->spatial], row);
}

/* --- runs ------------------------------------------------------------------------------------------------------------- */

static void reference(const ks_spec *spec, const void *in, void *out)
{
    const void *inputs[KS_INPUTS_MAX] = {in};
    void *outputs[KS_OUTPUTS_MAX] = {out}, *scratch = malloc(ks_cpu_scratch_bytes(spec) + 1);
    assert_non_null(scratch);
    ks_cpu_reference(spec, inputs, outputs, scratch);
    free(scratch);
}

static void run_on(int b, const window_case *c, void *out)
{
    const void *inputs[KS_INPUTS_MAX] = {c->in};
    ks_error error;
    if (op_run(b, &c->spec, inputs, out, values_below(4) == 0, &error) == KS_OK) return;
    describe(c, b ? "cuda" : "cpu", -1);
    fail_msg("%s", error.text);
}

/* Resolves, fills, runs, compares: everywhere and all of it, or on a GPU alone and some elements. */
static void try_on(window_case *c, bool gpu_only)
{
    enum { SOME = 4000 };
    open_case(c);
    check_shape(c);
    const size_t bytes = ks_spec_out_bytes(&c->spec);
    void *out = malloc(bytes + 1);
    assert_non_null(out);
    if (!gpu_only) {
        memset(out, 0xFF, bytes + 1);
        reference(&c->spec, c->in, out);
        check(c, out, "reference", INT64_MAX);
        assert_int_equal(((unsigned char *)out)[bytes], 0xFF);
    }
    for (int b = gpu_only; b < 2; b++) {
        if (!harnesses[b]) continue;
        run_on(b, c, out);
        check(c, out, b ? "cuda" : "cpu", gpu_only ? SOME : INT64_MAX);
    }
    free(out);
    close_case(c);
}

/* --- random cases ----------------------------------------------------------------------------------------------------- */

static int64_t pick(const int64_t *from, int count, int64_t most)
{
    const int64_t value = from[values_below(count)];
    return value <= most ? value : 1 + below(most);
}
#define PICK(most, ...) pick((const int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / 8, most)

/* A number that is the same for all axes may be said once, and 1 not at all. */
static void shorten(window_case *c, int param)
{
    ks_integers *list = ks_spec_list(&c->spec, param);
    bool alike = true;
    for (int i = 1; i < list->count; i++) alike = alike && list->value[i] == list->value[0];
    if (!alike || values_below(2)) return;
    *list = (ks_integers){.count = list->value[0] == 1 && values_below(2) ? -1 : 1, .value = {list->value[0]}};
}

/* So that there are as many windows as strides fit; of an odd number of elements more stand at the end, or in front. */
static void pad_alike(window_case *c, bool lower)
{
    for (int i = 0; i < c->spatial; i++) {
        const int64_t n = c->spec.in[0].dims[axis_of(c, i)], windows = (n + c->stride[i] - 1) / c->stride[i];
        const int64_t reach = (windows - 1) * c->stride[i] + (c->size[i] - 1) * c->dilation[i] + 1;
        const int64_t more = reach > n ? reach - n : 0;
        c->before[i] = lower ? (more + 1) / 2 : more / 2;
        c->after[i] = more - c->before[i];
    }
    c->spec.params[KS_WINDOWS_AUTO_PAD].i = lower ? KS_WINDOWS_SAME_LOWER : KS_WINDOWS_SAME_UPPER;
    *ks_spec_list(&c->spec, KS_WINDOWS_PAD) = (ks_integers){.count = -1};
}

static void draw_pad(window_case *c)
{
    bool alike = true, none = true;
    if (values_below(4) == 0) {
        pad_alike(c, values_below(2));
        return;
    }
    ks_integers *list = ks_spec_list(&c->spec, KS_WINDOWS_PAD);
    for (int i = 0; i < c->spatial; i++) {
        alike = alike && c->before[i] == c->after[i];
        none = none && c->before[i] == 0 && c->after[i] == 0;
    }
    if (none && values_below(2)) list->count = -1;
    if (alike && values_below(2) && list->count > 0) {
        *list = (ks_integers){.count = c->spatial};
        memcpy(list->value, c->before, (size_t)c->spatial * sizeof *c->before);
    }
}

static void draw_fill(window_case *c)
{
    static const double values[] = {0, 1.5, -0.25, 96};
    const ks_dtype dtype = c->spec.in[0].dtype;
    double value = values[values_below(4)];
    if (dtype == KS_FP8E4M3 || dtype == KS_FP8E5M2) return;
    if (ks_dtype_kind(dtype) == KS_KIND_FLOAT) {
        if (values_below(5) == 0) value = values_below(2) ? (double)INFINITY : (double)-INFINITY;
        values_put(dtype, &c->fill, 0, value);
    } else {
        const int64_t whole = dtype == KS_BOOL                                         ? values_below(2)
                              : ks_dtype_kind(dtype) == KS_KIND_INT && values_below(2) ? -1 - values_below(128)
                                                                                       : values_below(128);
        c->fill = (uint64_t)whole;
        value = (double)whole;
    }
    c->spec.params[KS_WINDOWS_VALUE].d = value;
}

/* Windows that fit, of any kind; the answer has some hundred thousand elements at most. */
static window_case draw_case(void)
{
    const int spatial = 1 + values_below(SPATIAL), lead = values_below(3) ? values_below(2) : values_below(8 - spatial);
    const bool first = values_below(2);
    int64_t dims[KS_RANK_MAX], left = values_most() * 2;
    for (int i = 0; i < lead; i++) left /= dims[i] = PICK(3, 1, 2, 3);
    if (left < 1) left = 1;
    const int channels = first ? lead : lead + spatial;
    left /= dims[channels] = PICK(left, 1, 1, 2, 3, 4, 5, 8, 16, 17, 20, 33, 64, 65, 130, 256);
    for (int i = 0; i < spatial; i++)
        left /= dims[lead + i + first] = PICK(left > 0 ? left : 1, 1, 2, 3, 5, 7, 8, 14, 28, 33, 100, 130, 224, 500);
    window_case c = new_case((ks_dtype)values_below(KS_BYTES), first, spatial, lead + spatial + 1, dims);
    for (int i = 0; i < spatial; i++) {
        const int64_t n = dims[axis_of(&c, i)];
        if (values_below(2)) c.before[i] = below(4);
        c.after[i] = values_below(2) ? c.before[i] : below(4);
        if (values_below(20) == 0) c.before[i] = n + below(6); /* windows of nothing but padding */
        c.dilation[i] = values_below(3) ? 1 : 1 + below(4);
        const int64_t most = (n + c.before[i] + c.after[i] - 1) / c.dilation[i] + 1;
        c.size[i] = PICK(most, 1, 2, 3, 3, 5, 7, 8, 16);
        c.stride[i] = values_below(2)   ? 1
                      : values_below(4) ? 1 + below(4)
                      : values_below(2) ? c.size[i]
                                        : 1 + below(n + 5);
    }
    if (lead + 1 > 0 && values_below(50) == 0) c.spec.in[0].dims[values_below(lead + 1) < lead ? 0 : channels] = 0;
    say(&c);
    draw_pad(&c);
    shorten(&c, KS_WINDOWS_STRIDE);
    shorten(&c, KS_WINDOWS_DILATION);
    draw_fill(&c);
    return c;
}

/* Few of some thousand draws have more than a harness holds of one request. */
static bool fits(const window_case *c)
{
    ks_spec spec = c->spec;
    if (ks_op_window.resolve(&spec, NULL) != KS_OK) return true; /* the run says why */
    ks_spec_layout(&spec);
    return ks_spec_in_bytes(&spec) + ks_spec_out_bytes(&spec) <= ARENA_BYTES / 8;
}

static void random_shapes_and_parameters(void **state)
{
    (void)state;
    const int cases = values_cases(600);
    for (int i = 0; i < cases;) {
        window_case c = draw_case();
        if (!fits(&c)) continue;
        try_on(&c, false);
        i++;
    }
    printf("%d random cases\n", cases);
}

typedef struct shape {
    bool first;
    int spatial, rank;
    int64_t dims[5], size[SPATIAL], stride[SPATIAL], dilation[SPATIAL], pad[SPATIAL];
} shape;

static void try_shape(const shape *s, ks_dtype dtype, bool gpu_only)
{
    window_case c = new_case(dtype, s->first, s->spatial, s->rank, s->dims);
    memcpy(c.size, s->size, sizeof c.size);
    memcpy(c.stride, s->stride, sizeof c.stride);
    memcpy(c.dilation, s->dilation, sizeof c.dilation);
    memcpy(c.before, s->pad, sizeof c.before);
    memcpy(c.after, s->pad, sizeof c.after);
    say(&c);
    draw_fill(&c);
    try_on(&c, gpu_only);
}

/* Each way of the CUDA planner, in as little work as reaches it on a chip of any size: for sanitizers. */
static void each_kernel(void **state)
{
    (void)state;
    static const ks_dtype sizes[] = {KS_INT8, KS_BF16, KS_FP32, KS_INT64};
    static const shape table[] = {{false, 1, 3, {2, 50, 16}, {5}, {1}, {1}, {0}},
                                  {false, 1, 3, {2, 51, 3}, {5}, {2}, {1}, {0}},
                                  {false, 1, 2, {64, 7}, {3}, {3}, {2}, {2}},
                                  {false, 2, 4, {2, 9, 11, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                  {false, 2, 4, {1, 9, 11, 3}, {3, 2}, {2, 1}, {1, 2}, {0, 0}},
                                  {true, 1, 3, {2, 70, 200}, {5}, {1}, {1}, {0}},
                                  {true, 1, 3, {2, 70, 200}, {5}, {2}, {3}, {4}},
                                  {true, 1, 3, {1, 33, 300}, {100}, {1}, {2}, {0}},
                                  {true, 1, 3, {1, 20, 400}, {2}, {30}, {1}, {0}},
                                  {true, 2, 4, {2, 40, 9, 12}, {3, 3}, {2, 1}, {1, 1}, {1, 1}},
                                  {true, 2, 4, {1, 3, 12, 12}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                  {true, 2, 4, {2, 64, 7, 7}, {7, 7}, {1, 1}, {1, 1}, {0, 0}}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        for (int size = 0; size < 4; size++) try_shape(&table[n], sizes[size], false);
}

/* What is too much for a quick test of the reference, and needs many CTAs. */
static void windows_of_the_whole_chip(void **state)
{
    (void)state;
    static const shape table[] = {{false, 2, 4, {8, 56, 56, 64}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                  {true, 2, 4, {8, 64, 56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                  {true, 1, 3, {4, 256, 512}, {5}, {1}, {1}, {0}},
                                  {false, 2, 4, {4, 224, 224, 3}, {7, 7}, {2, 2}, {1, 1}, {3, 3}}};
    if (!harnesses[1] || strcmp(ks_backend_cuda->name, "cuda") != 0) {
        printf("skip: no chip of that size\n");
        skip();
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) try_shape(&table[i], i % 2 ? KS_BF16 : KS_FP16, true);
}

/* --- identities ------------------------------------------------------------------------------------------------------- */

static void put_normals(const ks_tensor *tensor, void *to)
{
    for (int64_t i = 0; i < ks_tensor_count(tensor); i++) ((float *)to)[i] = (float)values_normal();
}

/* A window's row times a weight, and as a sum over taps and channels: [taps * C, O]. */
static void compare_products(const window_case *c, const float *rows, const float *weight, int64_t outs)
{
    const ks_tensor *out = &c->spec.out[0];
    const int64_t depth = out->dims[out->rank - 1], count = ks_tensor_count(out) / depth;
    ks_spec product;
    ks_spec_init(&product, &ks_op_matmul);
    product.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {count, depth}};
    product.in[1] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {depth, outs}};
    assert_int_equal(ks_op_matmul.resolve(&product, NULL), KS_OK);
    float *got = malloc((size_t)(count * outs) * sizeof *got);
    const void *inputs[KS_INPUTS_MAX] = {rows, weight};
    void *outputs[KS_OUTPUTS_MAX] = {got}, *scratch = malloc(ks_cpu_scratch_bytes(&product) + 1);
    assert_true(got && scratch);
    ks_cpu_reference(&product, inputs, outputs, scratch);
    for (int64_t w = 0; w < count; w++)
        for (int64_t o = 0; o < outs; o++) {
            double want = 0, size = 0;
            for (int64_t k = 0; k < depth; k++) {
                const int64_t from = source_of(c, w * depth + k);
                const double x = from < 0 ? 0 : (double)((const float *)c->in)[from];
                want += x * (double)weight[k * outs + o];
                size += fabs(x * (double)weight[k * outs + o]);
            }
            if (fabs((double)got[w * outs + o] - want) <= 1e-6 * size + 1e-30) continue;
            describe(c, "convolution", w * depth);
            fail_msg("channel %" PRId64 " is %g, and not %g", o, (double)got[w * outs + o], want);
        }
    free(got);
    free(scratch);
}

/* By a product with the rows; weights of ones are box sums. */
static void convolutions(void **state)
{
    (void)state;
    static const shape table[] = {{false, 1, 3, {2, 30, 6}, {5}, {1}, {1}, {0}},
                                  {true, 1, 3, {2, 6, 30}, {3}, {2}, {2}, {1}},
                                  {false, 2, 4, {1, 9, 10, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                  {true, 2, 4, {2, 4, 9, 8}, {3, 2}, {2, 1}, {1, 2}, {1, 0}}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        const shape *s = &table[n];
        window_case c = new_case(KS_FP32, s->first, s->spatial, s->rank, s->dims);
        memcpy(c.size, s->size, sizeof c.size);
        memcpy(c.stride, s->stride, sizeof c.stride);
        memcpy(c.dilation, s->dilation, sizeof c.dilation);
        memcpy(c.before, s->pad, sizeof c.before);
        memcpy(c.after, s->pad, sizeof c.after);
        say(&c);
        open_case(&c);
        put_normals(&c.spec.in[0], c.in);
        const int64_t depth = c.spec.out[0].dims[c.spec.out[0].rank - 1];
        float *rows = malloc(c.spec.out[0].size_bytes), *weight = malloc((size_t)(depth * 4) * sizeof *weight);
        assert_true(rows && weight);
        reference(&c.spec, c.in, rows);
        for (int64_t i = 0; i < depth * 4; i++) weight[i] = n % 2 ? 1 : (float)values_normal();
        compare_products(&c, rows, weight, 4);
        free(rows);
        free(weight);
        close_case(&c);
    }
}

/* Windows of one element are a slice. */
static void one_tap_is_a_slice(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        const int64_t dims[] = {1 + below(3), 1 + below(20), 1 + below(20), 1 + below(9)};
        window_case c = new_case((ks_dtype)values_below(KS_BYTES), false, 2, 4, dims);
        ks_spec slice;
        ks_spec_init(&slice, &ks_op_layout);
        for (int i = 0; i < 2; i++) c.stride[i] = 1 + below(5);
        say(&c);
        open_case(&c);
        slice.in[0] = c.spec.in[0];
        slice.params[KS_LAYOUT_OP].i = KS_LAYOUT_SLICE;
        *ks_spec_list(&slice, KS_LAYOUT_STEPS) = (ks_integers){.count = 4, .value = {1, c.stride[0], c.stride[1], 1}};
        assert_int_equal(ks_op_layout.resolve(&slice, NULL), KS_OK);
        assert_int_equal(slice.out[0].size_bytes, c.spec.out[0].size_bytes);
        void *windows = malloc(slice.out[0].size_bytes), *sliced = malloc(slice.out[0].size_bytes);
        assert_true(windows && sliced);
        reference(&c.spec, c.in, windows);
        reference(&slice, c.in, sliced);
        assert_memory_equal(windows, sliced, slice.out[0].size_bytes);
        free(windows);
        free(sliced);
        close_case(&c);
    }
}

/* --- rules ------------------------------------------------------------------------------------------------------------ */

static void expect_refused(window_case c, ks_status status, const char *part)
{
    ks_error error = {0};
    const ks_status got = ks_op_window.resolve(&c.spec, &error);
    if (got != status || !strstr(error.text, part))
        fail_msg("%s \"%s\", expected %s with \"%s\"", ks_status_name(got), error.text, ks_status_name(status), part);
}

/* Of [2,5,6,4], size 3,3, and one list more. */
static window_case with_list(int param, int count, const int64_t *values)
{
    window_case c = new_case(KS_FP32, false, 2, 4, (const int64_t[]){2, 5, 6, 4});
    set_list(&c, KS_WINDOWS_SIZE, 2, (const int64_t[]){3, 3});
    set_list(&c, param, count, values);
    return c;
}
#define WITH(param, ...)                                                                                               \
    with_list(KS_WINDOWS_##param, sizeof((int64_t[]){__VA_ARGS__}) / 8, (const int64_t[]){__VA_ARGS__})

static void refusals(void **state)
{
    (void)state;
    expect_refused(WITH(SIZE, 1, 1, 1), KS_PARAMETER, "'size' has 3 numbers, takes 1 or 2");
    expect_refused(WITH(SIZE, 3, 0), KS_PARAMETER, "'size' has 0 for spatial axis 1: it takes 1 and more");
    expect_refused(WITH(SIZE, 6, 3), KS_SHAPE,
                   "a window takes 6 elements of spatial axis 0, which has 5, with padding 5");
    expect_refused(WITH(SIZE, INT64_MAX, 3), KS_SHAPE, "a window takes 9223372036854775807 elements");
    expect_refused(WITH(STRIDE, 1, 0), KS_PARAMETER, "'stride' has 0 for spatial axis 1");
    expect_refused(WITH(STRIDE, 1, 1, 1), KS_PARAMETER, "'stride' has 3 numbers, 'size' has 2");
    expect_refused(WITH(DILATION, -1), KS_PARAMETER, "'dilation' has -1 for spatial axis 0");
    expect_refused(WITH(DILATION, 3, 1), KS_SHAPE, "a window takes 7 elements of spatial axis 0, which has 5");
    expect_refused(WITH(DILATION, INT64_MAX, 1), KS_SHAPE, "3 taps by 9223372036854775807 reach further than any axis");
    expect_refused(WITH(PAD, 1, 1, 1), KS_PARAMETER, "'pad' has 3 numbers, takes 2 or 4");
    expect_refused(WITH(PAD, 1, -1), KS_PARAMETER, "'pad' has -1: it takes 0 and more");
    expect_refused(WITH(PAD, 0, INT64_MAX), KS_SHAPE, "spatial axis 1 becomes longer than");
    expect_refused(WITH(PAD, 0, 0, 0, INT64_MAX - 6), KS_SHAPE, "OUTPUT0");
    window_case c = WITH(PAD, 1, 1);
    c.spec.params[KS_WINDOWS_AUTO_PAD].i = KS_WINDOWS_SAME_UPPER;
    expect_refused(c, KS_PARAMETER, "'pad' and 'auto_pad' are given");
    c = WITH(SIZE, 3, 3);
    c.spec.in[0].rank = 2;
    expect_refused(c, KS_SHAPE, "INPUT0 has rank 2, windows of 2 axes take 3 to 8");
    ks_spec_list(&c.spec, KS_WINDOWS_SIZE)->count = -1;
    expect_refused(c, KS_PARAMETER, "parameter 'size' is needed");
    c = WITH(SIZE, 3, 3);
    c.spec.in[0].dtype = KS_BYTES;
    expect_refused(c, KS_DATATYPE, "INPUT0 has datatype BYTES");
    c = WITH(PAD, 1, 1);
    c.spec.in[0].dtype = KS_INT8;
    c.spec.params[KS_WINDOWS_VALUE].d = 128;
    expect_refused(c, KS_PARAMETER, "'value' is 128, which INT8 does not hold");
    c = WITH(SIZE, 3, 3);
    c.spec.in[0].dims[1] = 0;
    c.spec.params[KS_WINDOWS_AUTO_PAD].i = KS_WINDOWS_SAME_LOWER;
    expect_refused(c, KS_SHAPE, "a window takes 3 elements of spatial axis 0, which has 0");
}

/* Once more, as row blocks are; and one of the rows that the rule names has what it has in the whole. */
static void rows_stand_alone(void **state)
{
    (void)state;
    int cut = 0;
    for (int round = 0; round < 400; round++) {
        window_case c = draw_case();
        open_case(&c);
        ks_spec again = c.spec;
        assert_int_equal(ks_op_window.resolve(&again, NULL), KS_OK);
        assert_true(ks_spec_same(&again, &c.spec));
        assert_int_equal(ks_op_window.rows(&c.spec).dims, c.lead);
        if (c.lead > 0 && c.spec.in[0].dims[0] > 1 && c.spec.out[0].size_bytes > 0) {
            const int64_t n = c.spec.in[0].dims[0], row = below(n);
            const size_t out_row = c.spec.out[0].size_bytes / (size_t)n, in_row = c.spec.in[0].size_bytes / (size_t)n;
            void *whole = malloc(c.spec.out[0].size_bytes), *one = malloc(out_row);
            assert_true(whole && one);
            reference(&c.spec, c.in, whole);
            again.in[0].dims[0] = 1;
            assert_int_equal(ks_op_window.resolve(&again, NULL), KS_OK);
            assert_int_equal(again.out[0].size_bytes, out_row);
            reference(&again, (char *)c.in + (size_t)row * in_row, one);
            assert_memory_equal(one, (char *)whole + (size_t)row * out_row, out_row);
            free(whole);
            free(one);
            cut++;
        }
        close_case(&c);
    }
    assert_true(cut > 20);
}

/* What a chain takes for the same bytes is the same bytes. */
static void what_moves_nothing(void **state)
{
    (void)state;
    size_t offset = 1;
    int same = 0;
    for (int round = 0; round < 4000; round++) {
        window_case c = draw_case();
        open_case(&c);
        if (ks_op_window.is_view(&c.spec, &offset)) {
            assert_int_equal(offset, 0);
            assert_int_equal(c.spec.out[0].size_bytes, c.spec.in[0].size_bytes);
            check(&c, c.in, "nothing", INT64_MAX);
            same++;
        }
        close_case(&c);
    }
    assert_true(same > 20);
    window_case c = new_case(KS_FP32, false, 1, 3, (const int64_t[]){4, 12, 5});
    c.size[0] = c.stride[0] = 3;
    say(&c);
    assert_int_equal(ks_op_window.resolve(&c.spec, NULL), KS_OK);
    assert_true(ks_op_window.is_view(&c.spec, &offset)); /* patches side by side */
    c = new_case(KS_FP32, false, 2, 4, (const int64_t[]){3, 4, 6, 5});
    c.size[0] = c.stride[0] = c.size[1] = c.stride[1] = 2;
    say(&c);
    assert_int_equal(ks_op_window.resolve(&c.spec, NULL), KS_OK);
    assert_false(ks_op_window.is_view(&c.spec, &offset)); /* between the rows of a patch are those of others */
}

/* Memory moves the elements under windows in segments of 64 bytes, and never more than there are. */
static void bytes_that_are_read(void **state)
{
    (void)state;
    window_case c = new_case(KS_FP32, false, 1, 3, (const int64_t[]){2, 100, 32});
    c.size[0] = 3;
    say(&c);
    assert_int_equal(ks_op_window.resolve(&c.spec, NULL), KS_OK);
    assert_int_equal(ks_spec_read_bytes(&c.spec), 25600);
    c.size[0] = 1;
    c.stride[0] = 10;
    say(&c);
    assert_int_equal(ks_op_window.resolve(&c.spec, NULL), KS_OK);
    assert_int_equal(ks_spec_read_bytes(&c.spec), 2560);
}

/* Offsets beyond 2^31 elements and bytes: some elements anywhere, the last one among them. */
static void over_two_to_the_31(void **state)
{
    (void)state;
    if (!getenv("KS_HUGE")) {
        printf("skip: KS_HUGE is not set, no tensor of over 2^31 elements\n");
        skip();
    }
    window_case c = new_case(KS_UINT8, true, 1, 3, (const int64_t[]){1, 300, 2000003});
    c.size[0] = 4;
    say(&c);
    open_case(&c);
    const size_t bytes = c.spec.out[0].size_bytes;
    const void *inputs[KS_INPUTS_MAX] = {c.in};
    void *out = malloc(bytes);
    if (!out) fail_msg("no memory for %zu bytes", bytes);
    for (int b = 0; b < 2; b++) {
        ks_error error = {0};
        if (!op_harness_once(b ? ks_backend_cuda : ks_backend_cpu, 2 * bytes, &c.spec, inputs, out, &error)) continue;
        if (error.status != KS_OK) fail_msg("%s", error.text);
        check(&c, out, b ? "cuda" : "cpu", 100000);
    }
    free(out);
    close_case(&c);
}

int main(void)
{
    values_seed();
    if (getenv("KS_ONLY")) cmocka_set_test_filter(getenv("KS_ONLY")); /* of those names: "each_*" */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes_and_parameters),
        cmocka_unit_test(each_kernel),
        cmocka_unit_test(windows_of_the_whole_chip),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(one_tap_is_a_slice),
        cmocka_unit_test(refusals),
        cmocka_unit_test(rows_stand_alone),
        cmocka_unit_test(what_moves_nothing),
        cmocka_unit_test(bytes_that_are_read),
        cmocka_unit_test(over_two_to_the_31),
    };
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
