/* Layout against an index formula: each element of the output says which one of the input it is. The reference by itself, then every backend
 * that this machine has, on all its paths. KS_CASES, KS_SEED: how many random cases, and which. KS_HUGE: also tensors of over 2^31 bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <float.h>
#include <cmocka.h>

#include "ops/op_harness.h"
#include "ops/op_values.h"
#include "cpu/reference.h"
#include "ops/layout.h"

extern const ks_op ks_op_layout;

enum { ARENA_BYTES = 64 << 20 };
#include "ops/op_backends.h"

/* --- cases ------------------------------------------------------------------------------------------------------------ */

/* What was asked for, as the formula reads it; the spec says it in any of the ways that a request may. */
typedef struct layout_case {
    ks_spec spec;
    ks_layout_op op;
    int64_t axes[KS_RANK_MAX];                       /* transpose */
    int64_t start[KS_RANK_MAX], step[KS_RANK_MAX];   /* slice */
    int64_t before[KS_RANK_MAX], after[KS_RANK_MAX]; /* pad */
    ks_layout_mode mode;
    uint64_t fill; /* the bits of an element */
    int axis;      /* concat, split */
    int64_t part;  /* split: elements in front of it along the axis */
    void *in[KS_INPUTS_MAX];
} layout_case;

static int64_t below(int64_t bound)
{
    return (int64_t)(values_next() % (uint64_t)bound);
}

static void set_input(ks_spec *spec, int input, ks_dtype dtype, int rank, const int64_t *dims)
{
    spec->in[input] = (ks_tensor){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) spec->in[input].dims[i] = dims[i];
    spec->given |= (uint16_t)(1u << input);
}

static layout_case new_case(ks_layout_op op, ks_dtype dtype, int rank, const int64_t *dims)
{
    layout_case c = {.op = op};
    ks_spec_init(&c.spec, &ks_op_layout);
    set_input(&c.spec, 0, dtype, rank, dims);
    c.spec.params[KS_LAYOUT_OP].i = op;
    return c;
}

static void set_list(layout_case *c, int param, const int64_t *values)
{
    ks_integers *list = ks_spec_list(&c->spec, param);
    *list = (ks_integers){.count = c->spec.in[0].rank};
    memcpy(list->value, values, (size_t)list->count * sizeof *values);
}

static void list_text(const ks_integers *list, char out[200])
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < list->count; i++) n += (size_t)sprintf(out + n, "%s%" PRId64, i ? "," : "", list->value[i]);
    if (list->count < 0) strcpy(out, "none");
}

static void describe(const layout_case *c, const char *who, int64_t at)
{
    char dims[200], text[200];
    ks_dims_text(&c->spec.in[0], dims, sizeof dims);
    print_error("%s: %s %s [%s] given %x axis %d mode %d", who, ks_op_layout.params[0].choices[c->op],
                ks_dtype_name(c->spec.in[0].dtype), dims, c->spec.given, c->axis, (int)c->mode);
    for (int i = 0; i < KS_LAYOUT_PARAMS; i++) {
        if (ks_op_layout.params[i].kind != KS_PARAM_LIST) continue;
        list_text(ks_list_of(&c->spec, i), text);
        print_error(" %s %s", ks_op_layout.params[i].name, text);
    }
    print_error(", element %" PRId64 "\n", at);
}

/* Resolved, with memory for its inputs, full of any bits. */
static void open_case(layout_case *c)
{
    ks_error error = {0};
    if (ks_op_layout.resolve(&c->spec, &error) != KS_OK) {
        describe(c, "resolve", -1);
        fail_msg("%s", error.text);
    }
    ks_spec_layout(&c->spec);
    for (int i = ks_next_input(&c->spec, -1); i >= 0; i = ks_next_input(&c->spec, i)) {
        const size_t bytes = c->spec.in[i].size_bytes;
        c->in[i] = malloc(bytes + 8);
        assert_non_null(c->in[i]);
        for (size_t at = 0; at < bytes + 8; at += 8) {
            const uint64_t word = values_next();
            memcpy((char *)c->in[i] + at, &word, bytes + 8 - at < 8 ? bytes + 8 - at : 8);
        }
    }
}

static void close_case(layout_case *c)
{
    for (int i = 0; i < KS_INPUTS_MAX; i++) free(c->in[i]);
}

/* --- what is right ---------------------------------------------------------------------------------------------------- */

/* Of a padded axis the index that lies at i; -1: the value does. */
static int64_t padded_index(const layout_case *c, int axis, int64_t i)
{
    const int64_t n = c->spec.in[0].dims[axis];
    i -= c->before[axis];
    if (i >= 0 && i < n) return i;
    if (c->mode == KS_LAYOUT_EDGE) return i < 0 ? 0 : n - 1;
    if (c->mode == KS_LAYOUT_REFLECT) return i < 0 ? -i : 2 * (n - 1) - i;
    return -1;
}

/* Where output element `at` comes from: input and element; false: it is the value. */
static bool source_of(const layout_case *c, int64_t at, int *input, int64_t *from)
{
    const ks_tensor *in = &c->spec.in[0], *out = &c->spec.out[0];
    int64_t index[KS_RANK_MAX] = {0}, source[KS_RANK_MAX] = {0};
    *input = 0;
    *from = at;
    if (c->op == KS_LAYOUT_RESHAPE) return true;
    for (int i = out->rank - 1; i >= 0; i--) {
        index[i] = at % out->dims[i];
        at /= out->dims[i];
    }
    if (c->op == KS_LAYOUT_EXPAND) {
        const int more = out->rank - in->rank;
        for (int i = 0; i < in->rank; i++) source[i] = in->dims[i] == 1 ? 0 : index[i + more];
    }
    for (int i = 0; i < out->rank && c->op != KS_LAYOUT_EXPAND; i++) {
        if (c->op == KS_LAYOUT_TRANSPOSE)
            source[c->axes[i]] = index[i];
        else if (c->op == KS_LAYOUT_SLICE)
            source[i] = c->start[i] + index[i] * c->step[i];
        else if (c->op == KS_LAYOUT_PAD)
            source[i] = padded_index(c, i, index[i]);
        else if (c->op == KS_LAYOUT_TILE)
            source[i] = index[i] % in->dims[i];
        else if (c->op == KS_LAYOUT_SPLIT)
            source[i] = index[i] + (i == c->axis ? c->part : 0);
        else
            source[i] = index[i];
        if (source[i] < 0) return false;
    }
    if (c->op == KS_LAYOUT_CONCAT)
        for (; source[c->axis] >= c->spec.in[*input].dims[c->axis]; *input = ks_next_input(&c->spec, *input))
            source[c->axis] -= c->spec.in[*input].dims[c->axis];
    *from = 0;
    for (int i = 0; i < in->rank; i++) *from = *from * c->spec.in[*input].dims[i] + source[i];
    return true;
}

/* At most so many elements, the last one among them. */
static void check(const layout_case *c, const void *out, const char *who, int64_t most)
{
    const int64_t count = ks_tensor_count(&c->spec.out[0]);
    const size_t size = ks_dtype_size(c->spec.in[0].dtype);
    for (int64_t i = 0; i < count && i < most; i++) {
        const int64_t at = count <= most ? i : i ? below(count) : count - 1;
        int input;
        int64_t from;
        const bool moved = source_of(c, at, &input, &from);
        const void *want = moved ? (const char *)c->in[input] + (size_t)from * size : (const void *)&c->fill;
        if (memcmp((const char *)out + (size_t)at * size, want, size) == 0) continue;
        describe(c, who, at);
        if (!moved) fail_msg("it is not the value");
        fail_msg("it is not element %" PRId64 " of input %d", from, input);
    }
}

/* --- runs ------------------------------------------------------------------------------------------------------------- */

static void run_on(int b, const layout_case *c, void *out)
{
    ks_error error;
    if (op_run(b, &c->spec, (const void *const *)c->in, out, op_drawn_inputs(&c->spec), &error) == KS_OK) return;
    describe(c, b ? "cuda" : "cpu", -1);
    fail_msg("%s", error.text);
}

/* Resolves, fills, runs, compares: everywhere and all of it, or on a GPU alone and some elements. */
static void try_on(layout_case *c, bool gpu_only)
{
    enum { SOME = 4000 };
    open_case(c);
    const size_t bytes = ks_spec_out_bytes(&c->spec);
    void *out = malloc(bytes + 1), *outputs[KS_OUTPUTS_MAX] = {out};
    assert_non_null(out);
    if (!gpu_only) {
        memset(out, 0xFF, bytes + 1);
        ks_cpu_reference(&c->spec, (const void *const *)c->in, outputs, NULL);
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

/* No list where all of it is what nobody asks for; negative numbers for the same. */
static void draw_axes(layout_case *c)
{
    const int rank = c->spec.in[0].rank;
    int64_t asked[KS_RANK_MAX];
    bool reversed = true;
    for (int i = 0; i < rank; i++) c->axes[i] = i;
    for (int i = rank - 1; i > 0; i--) {
        const int j = values_below(i + 1);
        const int64_t axis = c->axes[i];
        c->axes[i] = c->axes[j];
        c->axes[j] = axis;
    }
    for (int i = 0; i < rank; i++) {
        reversed = reversed && c->axes[i] == rank - 1 - i;
        asked[i] = c->axes[i] - (values_below(4) ? 0 : rank);
    }
    if (!reversed || values_below(2)) set_list(c, KS_LAYOUT_AXES, asked);
}

/* An end that leaves so many elements: just behind the last one, or further on but in front of the next. */
static int64_t draw_end(int64_t extent, int64_t start, int64_t size, int64_t step)
{
    if (size == 0) return step > 0 ? below(start + 1) : start;
    const int64_t last = start + (size - 1) * step, more = below(llabs(step));
    int64_t end = step > 0 ? last + 1 + more : last - 1 - more;
    if (end > extent) end = extent;
    if (end < 0) return -extent - 1;
    return end < extent && values_below(3) == 0 ? end - extent : end;
}

/* Numbers of one axis alone, which lists of one number name by `axis`. */
static void draw_single_slice(layout_case *c)
{
    const ks_tensor *in = &c->spec.in[0];
    const int axis = values_below(in->rank);
    const int64_t n = in->dims[axis], size = below(n + 1), start = below(n - size + 1);
    const int other = values_below(2) ? KS_LAYOUT_SIZES : KS_LAYOUT_ENDS;
    for (int i = 0; i < in->rank; i++) c->step[i] = 1;
    c->start[axis] = start;
    c->spec.params[KS_LAYOUT_AXIS].i = axis - (values_below(2) ? in->rank : 0);
    *ks_spec_list(&c->spec, KS_LAYOUT_STARTS) = (ks_integers){.count = 1, .value = {start}};
    *ks_spec_list(&c->spec, other) =
        (ks_integers){.count = 1, .value = {other == KS_LAYOUT_SIZES ? size : start + size}};
}

static void draw_slice(layout_case *c)
{
    const ks_tensor *in = &c->spec.in[0];
    int64_t starts[KS_RANK_MAX], sizes[KS_RANK_MAX], ends[KS_RANK_MAX];
    if (in->rank > 0 && values_below(5) == 0) {
        draw_single_slice(c);
        return;
    }
    for (int i = 0; i < in->rank; i++) {
        const int64_t n = in->dims[i];
        const bool whole = n == 0 || values_below(3) == 0;
        c->step[i] = whole ? (values_below(4) ? 1 : -1) : 1 + below(values_below(2) ? 1 : 2 * n);
        c->start[i] = whole ? 0 : below(values_below(4) ? n : n + 1);
        if (!whole && values_below(3) == 0) c->step[i] = -c->step[i];
        if (whole && c->step[i] < 0 && n > 0) c->start[i] = n - 1;
        const int64_t walk = c->step[i] > 0 ? n - c->start[i] : c->start[i] + 1, width = llabs(c->step[i]);
        const int64_t rest = c->start[i] < n ? (walk + width - 1) / width : 0;
        sizes[i] = whole || values_below(2) ? -1 : below(rest + 1);
        if (sizes[i] < 0 && values_below(2)) sizes[i] = rest;
        ends[i] = draw_end(n, c->start[i], sizes[i] < 0 ? rest : sizes[i], c->step[i]);
        starts[i] = c->start[i] - (c->start[i] < n && values_below(3) == 0 ? n : 0);
    }
    set_list(c, KS_LAYOUT_STARTS, starts);
    if (values_below(2))
        set_list(c, KS_LAYOUT_SIZES, sizes);
    else
        set_list(c, KS_LAYOUT_ENDS, ends);
    set_list(c, KS_LAYOUT_STEPS, c->step);
}

/* Of half, quarter and eighth parts, which every float holds. */
static void draw_fill(layout_case *c)
{
    static const double values[] = {0, 1.5, -0.25, 96, -2.75};
    static const unsigned char e4m3[] = {0, 0x3C, 0xA8, 0x6C, 0xC3}, e5m2[] = {0, 0x3E, 0xB4, 0x56, 0xC1};
    const ks_dtype dtype = c->spec.in[0].dtype;
    const int which = values_below(dtype == KS_FP8E5M2 ? 4 : 5);
    double value = values[which];
    if (dtype == KS_FP8E4M3 || dtype == KS_FP8E5M2) {
        c->fill = dtype == KS_FP8E4M3 ? e4m3[which] : e5m2[which];
    } else if (ks_dtype_kind(dtype) == KS_KIND_FLOAT) {
        if (values_below(5) == 0) value = values_below(2) ? (double)INFINITY : (double)-INFINITY;
        values_put(dtype, &c->fill, 0, value);
    } else {
        const int64_t whole = dtype == KS_BOOL                                   ? values_below(2)
                              : ks_dtype_kind(dtype) == KS_KIND_INT && which > 2 ? -1 - values_below(128)
                                                                                 : values_below(128);
        c->fill = (uint64_t)whole;
        value = (double)whole;
    }
    c->spec.params[KS_LAYOUT_VALUE].d = value;
}

static void draw_pad(layout_case *c)
{
    const ks_tensor *in = &c->spec.in[0];
    bool before = false, after = false;
    c->mode = (ks_layout_mode)values_below(3);
    for (int i = 0; i < in->rank; i++) {
        const int64_t n = in->dims[i];
        int64_t most = c->mode == KS_LAYOUT_REFLECT ? n - 1 : c->mode == KS_LAYOUT_EDGE && n == 0 ? 0 : 9;
        if (most > 40) most = 40;
        c->before[i] = most > 0 && values_below(2) ? below(most + 1) : 0;
        c->after[i] = most > 0 && values_below(2) ? below(most + 1) : 0;
        before = before || c->before[i];
        after = after || c->after[i];
    }
    if (before || values_below(2)) set_list(c, KS_LAYOUT_BEFORE, c->before);
    if (after || values_below(2)) set_list(c, KS_LAYOUT_AFTER, c->after);
    c->spec.params[KS_LAYOUT_MODE].i = c->mode;
    if (c->mode == KS_LAYOUT_CONSTANT) draw_fill(c);
}

static void draw_concat(layout_case *c)
{
    const ks_tensor first = c->spec.in[0];
    const int count = values_below(2) ? 2 : 2 + values_below(KS_OP_INPUTS_MAX - 1);
    c->axis = values_below(first.rank);
    for (int i = 1; i < KS_OP_INPUTS_MAX; i++) {
        ks_tensor other = first;
        if (__builtin_popcount(c->spec.given) == count) break;
        if (KS_OP_INPUTS_MAX - i > count && values_below(4) == 0) continue; /* a gap */
        if (values_below(3)) other.dims[c->axis] = below(first.dims[c->axis] + 3);
        set_input(&c->spec, i, first.dtype, other.rank, other.dims);
    }
    c->spec.params[KS_LAYOUT_AXIS].i = c->axis - (values_below(2) ? first.rank : 0);
}

/* The factors of the dimensions in another order, some of them joined. */
static void draw_shape(layout_case *c)
{
    const ks_tensor *in = &c->spec.in[0];
    ks_integers *list = ks_spec_list(&c->spec, KS_LAYOUT_NEW_SHAPE);
    const int64_t count = ks_tensor_count(in);
    int64_t left = count;
    *list = (ks_integers){.count = 0};
    int i = 0;
    for (; i < in->rank && values_below(2); i++) { /* kept */
        list->value[list->count++] = values_below(2) || in->dims[i] == 0 ? 0 : in->dims[i];
        if (in->dims[i]) left /= in->dims[i];
    }
    if (count == 0) { /* the same, under another way to say it */
        for (; i < in->rank; i++) list->value[list->count++] = in->dims[i];
        return;
    }
    while (list->count < KS_RANK_MAX - 1 && values_below(3)) {
        int64_t factor = 1 + below(12);
        while (left % factor != 0) factor--;
        list->value[list->count++] = factor;
        left /= factor;
    }
    if (left > 1 || values_below(2)) list->value[list->count++] = values_below(2) ? -1 : left;
}

static void draw_split(layout_case *c)
{
    ks_tensor *in = &c->spec.in[0];
    const int64_t parts = 1 + below(5), part = below(parts);
    c->axis = values_below(in->rank);
    in->dims[c->axis] = (in->dims[c->axis] + parts - 1) / parts * parts;
    c->part = part * (in->dims[c->axis] / parts);
    c->spec.params[KS_LAYOUT_AXIS].i = c->axis - (values_below(2) ? in->rank : 0);
    c->spec.params[KS_LAYOUT_COUNT].i = parts;
    c->spec.params[KS_LAYOUT_PART].i = part - (values_below(2) ? parts : 0);
}

static void draw_expand(layout_case *c)
{
    ks_tensor *in = &c->spec.in[0];
    ks_integers *list = ks_spec_list(&c->spec, KS_LAYOUT_NEW_SHAPE);
    const int more = values_below(3) && in->rank < KS_RANK_MAX - 1 ? values_below(3) : 0;
    int64_t left = 1 + 200000 / (1 + ks_tensor_count(in));
    *list = (ks_integers){.count = in->rank + more};
    for (int i = 0; i < list->count; i++) {
        if (i >= more && values_below(3) == 0) in->dims[i - more] = 1;
        const int64_t extent = i < more ? 1 : in->dims[i - more];
        int64_t times = 1 + below(values_below(3) ? 7 : 40);
        if (times > left) times = 1;
        const bool kept = extent != 1 || (i >= more && values_below(4) == 0);
        list->value[i] = kept ? (values_below(2) && i >= more ? 0 : extent) : times;
        if (!kept) left /= times;
    }
}

static void draw_tile(layout_case *c)
{
    const ks_tensor *in = &c->spec.in[0];
    int64_t repeats[KS_RANK_MAX], left = 1 + 200000 / (1 + ks_tensor_count(in));
    for (int i = 0; i < in->rank; i++) {
        repeats[i] = values_below(2) ? 1 : values_below(30) ? 1 + below(6) : 0;
        if (repeats[i] > left) repeats[i] = 1;
        if (repeats[i]) left /= repeats[i];
    }
    if (in->rank > 0 && values_below(3) == 0) {
        c->spec.params[KS_LAYOUT_AXIS].i = values_below(in->rank) - in->rank;
        *ks_spec_list(&c->spec, KS_LAYOUT_REPEATS) = (ks_integers){.count = 1, .value = {repeats[0]}};
    } else {
        set_list(c, KS_LAYOUT_REPEATS, repeats);
    }
}

static layout_case draw_case(void)
{
    ks_tensor shape = {0};
    const ks_layout_op op = (ks_layout_op)values_below(KS_LAYOUT_OPS);
    values_shape(&shape, values_below(3) ? 4 : 7, values_most());
    if (op != KS_LAYOUT_CONCAT && op != KS_LAYOUT_SPLIT && values_below(40) == 0) shape.rank = 0;
    layout_case c = new_case(op, (ks_dtype)values_below(KS_BYTES), shape.rank, shape.dims);
    if (op == KS_LAYOUT_TRANSPOSE) draw_axes(&c);
    if (op == KS_LAYOUT_SLICE) draw_slice(&c);
    if (op == KS_LAYOUT_PAD) draw_pad(&c);
    if (op == KS_LAYOUT_CONCAT) draw_concat(&c);
    if (op == KS_LAYOUT_RESHAPE) draw_shape(&c);
    if (op == KS_LAYOUT_SPLIT) draw_split(&c);
    if (op == KS_LAYOUT_EXPAND) draw_expand(&c);
    if (op == KS_LAYOUT_TILE) draw_tile(&c);
    return c;
}

/* Few of some thousand draws have more than a harness holds of one request. */
static bool fits(const layout_case *c)
{
    ks_spec spec = c->spec;
    if (ks_op_layout.resolve(&spec, NULL) != KS_OK) return true; /* the run says why */
    ks_spec_layout(&spec);
    return ks_spec_in_bytes(&spec) + ks_spec_out_bytes(&spec) <= ARENA_BYTES;
}

static void random_shapes_and_parameters(void **state)
{
    (void)state;
    const int cases = values_cases(600);
    for (int i = 0; i < cases;) {
        layout_case c = draw_case();
        if (!fits(&c)) continue;
        try_on(&c, false);
        i++;
    }
    printf("%d random cases\n", cases);
}

/* Each way of the CUDA planner, in as little work as reaches it on a chip of any size: for sanitizers. */
static void each_kernel(void **state)
{
    (void)state;
    static const ks_dtype sizes[] = {KS_INT8, KS_BF16, KS_FP32, KS_INT64};
    static const struct {
        int rank;
        int64_t dims[4], axes[4];
    } table[] = {{2, {96, 200}, {1, 0}},
                 {2, {64, 128}, {1, 0}},
                 {2, {33, 7}, {1, 0}},
                 {3, {3, 70, 37}, {0, 2, 1}},
                 {3, {40, 3, 64}, {1, 0, 2}},
                 {3, {5, 40, 8}, {2, 1, 0}},
                 {4, {2, 3, 34, 48}, {0, 2, 3, 1}},
                 {4, {2, 34, 48, 3}, {0, 3, 1, 2}},
                 {4, {9, 2, 5, 16}, {2, 0, 1, 3}},
                 {4, {6, 5, 7, 9}, {3, 1, 2, 0}},
                 {2, {130, 700}, {1, 0}},
                 {2, {1, 300}, {1, 0}},
                 {3, {2, 130, 66}, {2, 0, 1}}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        for (int size = 0; size < 4; size++) {
            layout_case c = new_case(KS_LAYOUT_TRANSPOSE, sizes[size], table[n].rank, table[n].dims);
            memcpy(c.axes, table[n].axes, sizeof table[n].axes);
            set_list(&c, KS_LAYOUT_AXES, c.axes);
            try_on(&c, false);
            c = new_case(KS_LAYOUT_PAD, sizes[size], table[n].rank, table[n].dims);
            c.mode = (ks_layout_mode)(n % 3);
            for (int i = 0; i < table[n].rank; i++) {
                c.before[i] = table[n].dims[i] > 2 ? (int64_t)(n + (size_t)i) % 3 : 0;
                c.after[i] = table[n].dims[i] > 2 ? (int64_t)(n / 2) % 2 : 0;
            }
            set_list(&c, KS_LAYOUT_BEFORE, c.before);
            set_list(&c, KS_LAYOUT_AFTER, c.after);
            c.spec.params[KS_LAYOUT_MODE].i = c.mode;
            try_on(&c, false);
        }
    /* Lines that begin anywhere, of one input and of several, and some that are too short for it. */
    static const int64_t lines[][3] = {{9, 70, 3}, {5, 129, 33}, {1, 300, 77}, {40, 2, 1}, {7, 64, 64}, {3, 1, 200}};
    for (size_t n = 0; n < sizeof lines / sizeof *lines; n++)
        for (int size = 0; size < 4; size++) {
            layout_case c = new_case(KS_LAYOUT_CONCAT, sizes[size], 2, lines[n]);
            c.axis = 1;
            c.spec.params[KS_LAYOUT_AXIS].i = 1;
            for (int i = 1; i < 3; i++)
                set_input(&c.spec, i, sizes[size], 2,
                          (const int64_t[]){lines[n][0], i == 1 ? lines[n][2] : 1 + lines[n][1] / 2});
            try_on(&c, false);
            c = new_case(KS_LAYOUT_SLICE, sizes[size], 2, lines[n]);
            for (int i = 0; i < 2; i++) c.start[i] = lines[n][i] / 3, c.step[i] = 1;
            set_list(&c, KS_LAYOUT_STARTS, c.start);
            try_on(&c, false);
        }
}

/* Borders of lines that are long, and of some that are shorter than 16 bytes; of axes whose inner ones have none; by words of every size. */
static void borders_of_lines(void **state)
{
    (void)state;
    static const ks_dtype sizes[] = {KS_INT8, KS_BF16, KS_FP32, KS_INT64};
    static const struct {
        int64_t dims[3], before[3], after[3];
    } table[] = {
        {{2, 5, 144}, {1, 0, 9}, {0, 2, 9}},   {{3, 4, 333}, {0, 1, 1}, {2, 0, 0}}, {{2, 3, 200}, {0, 0, 0}, {0, 0, 5}},
        {{1, 2, 700}, {0, 1, 16}, {0, 0, 32}}, {{4, 33, 10}, {2, 3, 0}, {1, 0, 0}}, {{4, 20, 10}, {1, 2, 3}, {3, 1, 2}},
        {{3, 9, 3}, {1, 2, 1}, {0, 1, 2}},     {{5, 7, 2}, {0, 1, 1}, {0, 0, 0}},   {{2, 3, 64}, {1, 1, 8}, {1, 1, 8}},
        {{3, 6, 56}, {0, 1, 1}, {0, 1, 1}},    {{40, 1, 1}, {3, 0, 0}, {2, 0, 0}},  {{2, 2, 15}, {1, 0, 0}, {1, 1, 1}}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        for (int size = 0; size < 4; size++)
            for (int mode = 0; mode < 3; mode++) {
                layout_case c = new_case(KS_LAYOUT_PAD, sizes[size], 3, table[n].dims);
                c.mode = (ks_layout_mode)mode;
                for (int i = 0; i < 3; i++) {
                    const int64_t most = mode == KS_LAYOUT_REFLECT ? table[n].dims[i] - 1 : 64;
                    c.before[i] = table[n].before[i] < most ? table[n].before[i] : most;
                    c.after[i] = table[n].after[i] < most ? table[n].after[i] : most;
                }
                set_list(&c, KS_LAYOUT_BEFORE, c.before);
                set_list(&c, KS_LAYOUT_AFTER, c.after);
                c.spec.params[KS_LAYOUT_MODE].i = c.mode;
                if (mode == KS_LAYOUT_CONSTANT) draw_fill(&c);
                try_on(&c, false);
            }
}

/* What is too much for a quick test of the reference, and needs many CTAs. */
static void boxes_of_the_whole_chip(void **state)
{
    (void)state;
    static const struct {
        ks_dtype dtype;
        int rank;
        int64_t dims[4], axes[4];
    } table[] = {{KS_FP32, 2, {2500, 1800}, {1, 0}},           {KS_BF16, 2, {4096, 2048}, {1, 0}},
                 {KS_UINT8, 2, {5000, 2001}, {1, 0}},          {KS_FP64, 3, {30, 400, 100}, {0, 2, 1}},
                 {KS_BF16, 4, {4, 16, 512, 64}, {0, 2, 1, 3}}, {KS_FP16, 4, {8, 56, 56, 64}, {0, 3, 1, 2}}};
    if (!harnesses[1] || strcmp(ks_backend_cuda->name, "cuda") != 0) {
        printf("skip: no chip of that size\n");
        skip();
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        layout_case c = new_case(KS_LAYOUT_TRANSPOSE, table[i].dtype, table[i].rank, table[i].dims);
        memcpy(c.axes, table[i].axes, sizeof table[i].axes);
        set_list(&c, KS_LAYOUT_AXES, c.axes);
        try_on(&c, true);
    }
}

/* --- identities ------------------------------------------------------------------------------------------------------- */

static void run_list(ks_layout_op op, int param, const int64_t *list, const ks_tensor *in, const void *from, void *to,
                     ks_tensor *out)
{
    layout_case c = new_case(op, in->dtype, in->rank, in->dims);
    const void *inputs[KS_INPUTS_MAX] = {from};
    void *outputs[KS_OUTPUTS_MAX] = {to};
    set_list(&c, param, list);
    assert_int_equal(ks_op_layout.resolve(&c.spec, NULL), KS_OK);
    ks_cpu_reference(&c.spec, inputs, outputs, NULL);
    *out = c.spec.out[0];
}

static void a_transpose_and_its_inverse(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        ks_tensor shape = {0}, there, back;
        int64_t axes[KS_RANK_MAX], inverse[KS_RANK_MAX];
        values_shape(&shape, 6, 20000);
        layout_case c = new_case(KS_LAYOUT_TRANSPOSE, (ks_dtype)values_below(KS_BYTES), shape.rank, shape.dims);
        draw_axes(&c);
        memcpy(axes, c.axes, sizeof axes);
        for (int i = 0; i < shape.rank; i++) inverse[axes[i]] = i;
        open_case(&c);
        const size_t bytes = c.spec.in[0].size_bytes;
        void *first = malloc(bytes + 1), *second = malloc(bytes + 1);
        assert_true(first && second);
        run_list(KS_LAYOUT_TRANSPOSE, KS_LAYOUT_AXES, axes, &c.spec.in[0], c.in[0], first, &there);
        run_list(KS_LAYOUT_TRANSPOSE, KS_LAYOUT_AXES, inverse, &there, first, second, &back);
        assert_memory_equal(back.dims, c.spec.in[0].dims, sizeof back.dims);
        if (bytes) assert_memory_equal(second, c.in[0], bytes);
        free(first);
        free(second);
        close_case(&c);
    }
}

static void reversed_twice(void **state)
{
    (void)state;
    const int64_t dims[] = {7, 1, 33, 5}, steps[] = {-1, -1, -1, -1};
    ks_tensor out;
    layout_case c = new_case(KS_LAYOUT_RESHAPE, KS_UINT16, 4, dims);
    set_list(&c, KS_LAYOUT_NEW_SHAPE, dims);
    open_case(&c);
    const size_t bytes = c.spec.in[0].size_bytes;
    void *first = malloc(bytes), *second = malloc(bytes);
    assert_true(first && second);
    run_list(KS_LAYOUT_SLICE, KS_LAYOUT_STEPS, steps, &c.spec.in[0], c.in[0], first, &out);
    assert_memory_equal(first, (char *)c.in[0] + bytes - 2, 2);
    run_list(KS_LAYOUT_SLICE, KS_LAYOUT_STEPS, steps, &out, first, second, &out);
    assert_memory_equal(second, c.in[0], bytes);
    free(first);
    free(second);
    close_case(&c);
}

/* --- values ----------------------------------------------------------------------------------------------------------- */

/* Of FP8 the nearest of all codes, of two as near the even one. */
static uint64_t nearest_fp8(ks_dtype dtype, double value)
{
    const bool e4m3 = dtype == KS_FP8E4M3;
    const int mantissa = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15, last = e4m3 ? 0x7E : 0x7B;
    int best = 0;
    double least = INFINITY;
    for (int code = 0; code <= last; code++) {
        const int exponent = code >> mantissa, fraction = code & ((1 << mantissa) - 1);
        const double x = exponent ? ldexp(fraction + (1 << mantissa), exponent - bias - mantissa)
                                  : ldexp(fraction, 1 - bias - mantissa);
        const double apart = fabs(fabs(value) - x);
        if (apart < least || (apart == least && code % 2 == 0)) {
            best = code;
            least = apart;
        }
    }
    return (uint64_t)best | (signbit(value) ? 0x80 : 0);
}

/* What a value becomes in each float, random ones and those near the bounds. */
static void values_are_rounded(void **state)
{
    (void)state;
    static const ks_dtype floats[] = {KS_FP64, KS_FP32, KS_FP16, KS_BF16, KS_FP8E4M3, KS_FP8E5M2};
    static const double largest[] = {1.7e308, FLT_MAX, 65504, 0x1.FEp127, 448, 57344};
    for (int i = 0; i < 6; i++)
        for (int round = 0; round < 4000; round++) {
            const int kind = values_below(3);
            double value = kind == 0 ? ldexp(values_normal(), values_below(60) - 50) : values_normal();
            if (kind == 1) value = ldexp(values_unit(), values_below(24) - 148);
            if (round < 2) value = largest[i] * (round ? -1 : 1);
            if (fabs(value) > largest[i]) continue;
            layout_case c = new_case(KS_LAYOUT_PAD, floats[i], 1, (const int64_t[]){0});
            set_list(&c, KS_LAYOUT_AFTER, (const int64_t[]){3});
            c.spec.params[KS_LAYOUT_VALUE].d = value;
            if (i < 4)
                values_put(floats[i], &c.fill, 0, value);
            else
                c.fill = nearest_fp8(floats[i], value);
            open_case(&c);
            unsigned char out[24];
            void *outputs[KS_OUTPUTS_MAX] = {out};
            ks_cpu_reference(&c.spec, (const void *const *)c.in, outputs, NULL);
            check(&c, out, "value", INT64_MAX);
            close_case(&c);
        }
}

/* --- rules ------------------------------------------------------------------------------------------------------------ */

static void expect_refused(layout_case c, ks_status status, const char *part)
{
    ks_error error = {0};
    const ks_status got = ks_op_layout.resolve(&c.spec, &error);
    if (got != status || !strstr(error.text, part))
        fail_msg("%s \"%s\", expected %s with \"%s\"", ks_status_name(got), error.text, ks_status_name(status), part);
}

static layout_case with_list(ks_layout_op op, int param, int count, const int64_t *values)
{
    layout_case c = new_case(op, KS_FP32, 2, (const int64_t[]){5, 6});
    *ks_spec_list(&c.spec, param) = (ks_integers){.count = count};
    for (int i = 0; i < count; i++) ks_spec_list(&c.spec, param)->value[i] = values[i];
    return c;
}
#define WITH(op, param, ...)                                                                                           \
    with_list(KS_LAYOUT_##op, KS_LAYOUT_##param, sizeof((int64_t[]){__VA_ARGS__}) / 8, (const int64_t[]){__VA_ARGS__})

static void refusals_of_lists(void **state)
{
    (void)state;
    expect_refused(WITH(TRANSPOSE, AXES, 0), KS_AXIS, "'axes' has 1 numbers, INPUT0 has rank 2");
    expect_refused(WITH(TRANSPOSE, AXES, 1, 2), KS_AXIS, "'axes' holds 2, which is outside [-2, 2)");
    expect_refused(WITH(TRANSPOSE, AXES, 1, -1), KS_AXIS, "'axes' names axis 1 twice");
    expect_refused(WITH(TRANSPOSE, STARTS, 1, 1), KS_PARAMETER, "op 'transpose' does not take parameter 'starts'");
    expect_refused(WITH(SLICE, STARTS, 1, 1, 1), KS_PARAMETER, "'starts' has 3 numbers, INPUT0 has rank 2");
    expect_refused(WITH(SLICE, STARTS, 6, 0), KS_RANGE, "'starts' has 6 for axis 0: it is outside [-5, 5]");
    expect_refused(WITH(SLICE, STARTS, 0, INT64_MIN), KS_RANGE,
                   "'starts' has -9223372036854775808: no axis is so long");
    expect_refused(WITH(SLICE, SIZES, 5, 7), KS_RANGE, "7 elements from 0 by steps of 1 leave axis 1, which has 6");
    expect_refused(WITH(SLICE, SIZES, 5, INT64_MAX), KS_RANGE, "leave axis 1, which has 6");
    expect_refused(WITH(SLICE, SIZES, -2, 6), KS_PARAMETER, "'sizes' has -2 for axis 0: -1 takes the rest");
    expect_refused(WITH(SLICE, ENDS, 5, 7), KS_RANGE, "'ends' has 7 for axis 1: it is outside [-6, 6]");
    expect_refused(WITH(SLICE, ENDS, -6, 0), KS_RANGE, "'ends' has -6 for axis 0: it is outside [-5, 5]");
    expect_refused(WITH(SLICE, STEPS, 1, 0), KS_PARAMETER, "'steps' has 0 for axis 1");
    layout_case c = WITH(SLICE, ENDS, 1, 1);
    set_list(&c, KS_LAYOUT_SIZES, (const int64_t[]){1, 1});
    expect_refused(c, KS_PARAMETER, "op 'slice' takes 'sizes' or 'ends', and not both");
    c = WITH(SLICE, ENDS, 1);
    c.spec.params[KS_LAYOUT_AXIS].i = 2;
    expect_refused(c, KS_AXIS, "axis 2 is outside [-2, 2)");
    c = WITH(SLICE, STEPS, INT64_MIN, INT64_MAX);
    set_list(&c, KS_LAYOUT_SIZES, (const int64_t[]){2, 1});
    expect_refused(c, KS_RANGE, "2 elements from 4 by steps of -9223372036854775808 leave axis 0, which has 5");
    expect_refused(WITH(PAD, BEFORE, -1, 0), KS_PARAMETER, "'before' has -1 for axis 0: it takes 0 and more");
    expect_refused(WITH(PAD, AFTER, 0, INT64_MAX), KS_SHAPE, "axis 1 becomes longer than");
    c = WITH(PAD, AFTER, 5, 0);
    c.spec.params[KS_LAYOUT_MODE].i = KS_LAYOUT_REFLECT;
    expect_refused(c, KS_SHAPE, "'after' has 5 for axis 0, whose 5 elements reflect 4 at most");
    c.spec.params[KS_LAYOUT_MODE].i = KS_LAYOUT_EDGE;
    c.spec.in[0].dims[0] = 0;
    expect_refused(c, KS_EMPTY, "axis 0 has no element to pad with by 'edge'");
    expect_refused(WITH(RESHAPE, NEW_SHAPE, 5, 7), KS_SHAPE, "[5,6], 'new_shape' is [5,7]: the number of elements");
    expect_refused(WITH(RESHAPE, NEW_SHAPE, 4, -1), KS_SHAPE, "'new_shape' is [4,-1]: the rest is no whole number");
    expect_refused(WITH(RESHAPE, NEW_SHAPE, -1, -1), KS_SHAPE, "one dimension alone can take the rest");
    expect_refused(WITH(RESHAPE, NEW_SHAPE, -3, 2), KS_SHAPE, "a dimension is negative");
    expect_refused(WITH(RESHAPE, NEW_SHAPE, 5, 6, 0), KS_SHAPE, "0 keeps a dimension that is not there");
    expect_refused(WITH(RESHAPE, NEW_SHAPE, INT64_MAX, INT64_MAX), KS_SHAPE, "too many elements");
    expect_refused(new_case(KS_LAYOUT_RESHAPE, KS_FP32, 1, (const int64_t[]){4}), KS_PARAMETER, "needs parameter");
}

static void refusals_of_parts(void **state)
{
    (void)state;
    layout_case c = new_case(KS_LAYOUT_SPLIT, KS_FP32, 2, (const int64_t[]){5, 6});
    expect_refused(c, KS_SHAPE, "axis 0 has 5 elements, which are no 2 equal parts");
    c.spec.params[KS_LAYOUT_COUNT].i = 0;
    expect_refused(c, KS_PARAMETER, "'parts' is 0: it takes 1 and more");
    c.spec.params[KS_LAYOUT_COUNT].i = 5;
    c.spec.params[KS_LAYOUT_PART].i = 5;
    expect_refused(c, KS_RANGE, "'part' is 5: it is outside [-5, 5)");
    c.spec.params[KS_LAYOUT_AXIS].i = 2;
    expect_refused(c, KS_AXIS, "axis 2 is outside [-2, 2)");
    expect_refused(WITH(EXPAND, NEW_SHAPE, 6), KS_SHAPE, "'new_shape' is [6]: there are fewer dimensions");
    expect_refused(WITH(EXPAND, NEW_SHAPE, 5, 12), KS_SHAPE, "it does not broadcast");
    expect_refused(WITH(EXPAND, NEW_SHAPE, -1, 6), KS_SHAPE, "a dimension is negative");
    expect_refused(WITH(EXPAND, NEW_SHAPE, 0, 5, 6), KS_SHAPE, "0 keeps a dimension that is not there");
    expect_refused(new_case(KS_LAYOUT_EXPAND, KS_FP32, 1, (const int64_t[]){4}), KS_PARAMETER, "needs parameter");
    expect_refused(WITH(TILE, REPEATS, 1, -1), KS_PARAMETER, "'repeats' has -1 for axis 1: it takes 0 and more");
    expect_refused(WITH(TILE, REPEATS, 1, INT64_MAX), KS_SHAPE, "axis 1 becomes longer than");
    expect_refused(WITH(TILE, REPEATS, 1, 1, 1), KS_PARAMETER, "'repeats' has 3 numbers, INPUT0 has rank 2");
    expect_refused(WITH(TILE, STARTS, 1, 1), KS_PARAMETER, "op 'tile' does not take parameter 'starts'");
}

static void refusals_of_inputs(void **state)
{
    (void)state;
    static const int64_t dims[] = {5, 6, 7};
    layout_case c = new_case(KS_LAYOUT_CONCAT, KS_FP32, 2, dims);
    expect_refused(c, KS_NAME, "op 'concat' takes 2 to 8 inputs, has INPUT0 alone");
    set_input(&c.spec, 3, KS_FP16, 2, dims);
    expect_refused(c, KS_DATATYPE, "INPUT3 has datatype FP16, INPUT0 FP32");
    set_input(&c.spec, 3, KS_FP32, 2, dims + 1);
    expect_refused(c, KS_SHAPE, "INPUT3 has shape [6,7], INPUT0 [5,6]: they must be equal but along axis 0");
    set_input(&c.spec, 3, KS_FP32, 3, dims);
    expect_refused(c, KS_SHAPE, "INPUT3 has shape [5,6,7], INPUT0 [5,6]");
    c.spec.params[KS_LAYOUT_AXIS].i = -3;
    expect_refused(c, KS_AXIS, "axis -3 is outside [-2, 2) of INPUT0's rank");
    c.spec.params[KS_LAYOUT_OP].i = KS_LAYOUT_SLICE;
    expect_refused(c, KS_NAME, "op 'slice' takes INPUT0 alone, INPUT3 is for 'concat'");
    c = new_case(KS_LAYOUT_CONCAT, KS_FP32, 0, dims);
    expect_refused(c, KS_SHAPE, "INPUT0 has rank 0, op 'concat' takes 1 to 8");
    expect_refused(new_case(KS_LAYOUT_TRANSPOSE, KS_BYTES, 2, dims), KS_DATATYPE, "INPUT0 has datatype BYTES");
    c = new_case(KS_LAYOUT_TRANSPOSE, KS_FP32, 2, dims);
    c.spec.params[KS_LAYOUT_AXIS].i = 1;
    expect_refused(c, KS_PARAMETER, "op 'transpose' does not take parameter 'axis'");
}

static void refusals_of_values(void **state)
{
    (void)state;
    static const struct {
        ks_dtype dtype;
        double value;
        const char *part;
    } rows[] = {{KS_INT8, 128, "'value' is 128, which INT8 does not hold"},
                {KS_INT8, -129, "INT8"},
                {KS_UINT16, -1, "UINT16"},
                {KS_UINT16, 65536, "UINT16"},
                {KS_BOOL, 2, "BOOL"},
                {KS_INT32, 0.5, "'value' is 0.5, which INT32 does not hold"},
                {KS_INT64, 1e17, "INT64"},
                {KS_UINT64, INFINITY, "UINT64"},
                {KS_FP16, 65505, "FP16"},
                {KS_FP32, 1e39, "FP32"},
                {KS_FP8E4M3, 449, "FP8E4M3"},
                {KS_FP8E4M3, INFINITY, "FP8E4M3"},
                {KS_FP8E5M2, -57345, "FP8E5M2"},
                {KS_FP64, NAN, "FP64"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        layout_case c = new_case(KS_LAYOUT_PAD, rows[i].dtype, 1, (const int64_t[]){4});
        c.spec.params[KS_LAYOUT_VALUE].d = rows[i].value;
        expect_refused(c, KS_PARAMETER, rows[i].part);
    }
    layout_case c = new_case(KS_LAYOUT_PAD, KS_FP32, 1, (const int64_t[]){4});
    c.spec.params[KS_LAYOUT_VALUE].d = 1;
    c.spec.params[KS_LAYOUT_MODE].i = KS_LAYOUT_EDGE;
    expect_refused(c, KS_PARAMETER, "'value' is 1, mode 'edge' does not take it");
}

/* Once more, as row blocks are; and with fewer of the rows that the rule names, each has what it has in the whole. */
static void rows_stand_alone(void **state)
{
    (void)state;
    int cut = 0;
    for (int round = 0; round < 400; round++) {
        layout_case c = draw_case();
        open_case(&c);
        ks_spec again = c.spec;
        assert_int_equal(ks_op_layout.resolve(&again, NULL), KS_OK);
        assert_true(ks_spec_same(&again, &c.spec));
        const ks_rows rows = ks_op_layout.rows(&c.spec);
        if (rows.dims > 0 && c.spec.given == 1 && c.spec.in[0].dims[0] > 1 && ks_tensor_count(&c.spec.out[0]) > 0) {
            const int64_t n = c.spec.in[0].dims[0], row = below(n);
            const size_t out_row = c.spec.out[0].size_bytes / (size_t)n, in_row = c.spec.in[0].size_bytes / (size_t)n;
            void *whole = malloc(c.spec.out[0].size_bytes), *one = malloc(out_row), *outputs[KS_OUTPUTS_MAX] = {whole};
            assert_true(whole && one);
            ks_cpu_reference(&c.spec, (const void *const *)c.in, outputs, NULL);
            again.in[0].dims[0] = 1;
            assert_int_equal(ks_op_layout.resolve(&again, NULL), KS_OK);
            assert_int_equal(again.out[0].size_bytes, out_row);
            const void *inputs[KS_INPUTS_MAX] = {(char *)c.in[0] + (size_t)row * in_row};
            outputs[0] = one;
            ks_cpu_reference(&again, inputs, outputs, NULL);
            assert_memory_equal(one, (char *)whole + (size_t)row * out_row, out_row);
            free(whole);
            free(one);
            cut++;
        }
        close_case(&c);
    }
    assert_true(cut > 20);
}

/* Inputs one behind the other are what a concat gives. */
static void check_stack(const layout_case *c)
{
    unsigned char *whole = malloc(c->spec.out[0].size_bytes + 1);
    size_t at = 0;
    assert_non_null(whole);
    for (int i = ks_next_input(&c->spec, -1); i >= 0; i = ks_next_input(&c->spec, i)) {
        memcpy(whole + at, c->in[i], c->spec.in[i].size_bytes);
        at += c->spec.in[i].size_bytes;
    }
    assert_int_equal(at, c->spec.out[0].size_bytes);
    check(c, whole, "a stack", INT64_MAX);
    free(whole);
}

/* What a chain takes for the same bytes is the same bytes. */
static void what_moves_nothing(void **state)
{
    (void)state;
    int same = 0, parts = 0, stacks = 0;
    for (int round = 0; round < 6000; round++) {
        layout_case c = draw_case();
        size_t offset;
        open_case(&c);
        if (ks_op_layout.is_view(&c.spec, &offset)) {
            assert_true(offset + c.spec.out[0].size_bytes <= c.spec.in[0].size_bytes);
            check(&c, (const unsigned char *)c.in[0] + offset, "nothing", INT64_MAX);
            same += c.op != KS_LAYOUT_RESHAPE && c.spec.out[0].size_bytes == c.spec.in[0].size_bytes;
            parts += offset > 0;
        } else {
            assert_int_not_equal(c.op, KS_LAYOUT_RESHAPE);
        }
        if (ks_layout_is_stack(&c.spec)) {
            check_stack(&c);
            stacks++;
        }
        close_case(&c);
    }
    assert_true(same > 20 && parts > 20 && stacks > 20);
}

/* Lists that differ in their last number alone are different work. */
static void lists_are_compared_whole(void **state)
{
    (void)state;
    static const int64_t dims[] = {2, 2, 2, 2, 2, 2, 2, 2};
    layout_case a = new_case(KS_LAYOUT_PAD, KS_INT8, 8, dims), b = a;
    set_list(&a, KS_LAYOUT_AFTER, (const int64_t[]){0, 0, 0, 0, 0, 0, 0, 1});
    set_list(&b, KS_LAYOUT_AFTER, (const int64_t[]){0, 0, 0, 0, 0, 0, 0, 2});
    assert_int_equal(ks_op_layout.resolve(&a.spec, NULL), KS_OK);
    assert_int_equal(ks_op_layout.resolve(&b.spec, NULL), KS_OK);
    assert_false(ks_spec_same(&a.spec, &b.spec));
    ks_spec copy;
    memset(&copy, 0xA5, sizeof copy);
    ks_spec_copy(&copy, &a.spec);
    assert_true(ks_spec_same(&copy, &a.spec));
}

/* Offsets beyond 2^31 elements and bytes: some elements anywhere, the last one among them. */
static void over_two_to_the_31(void **state)
{
    (void)state;
    if (!getenv("KS_HUGE")) {
        printf("skip: KS_HUGE is not set, no tensor of over 2^31 elements\n");
        skip();
    }
    layout_case c = new_case(KS_LAYOUT_TRANSPOSE, KS_UINT8, 2, (const int64_t[]){((int64_t)1 << 21) + 3, 1024});
    c.axes[0] = 1;
    open_case(&c);
    const size_t bytes = c.spec.in[0].size_bytes;
    void *out = malloc(bytes);
    if (!out) fail_msg("no memory for %zu bytes", bytes);
    for (int b = 0; b < 2; b++) {
        ks_error error = {0};
        if (!op_harness_once(b ? ks_backend_cuda : ks_backend_cpu, 3 * bytes, &c.spec, (const void *const *)c.in, out,
                             &error))
            continue;
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
        cmocka_unit_test(borders_of_lines),
        cmocka_unit_test(boxes_of_the_whole_chip),
        cmocka_unit_test(a_transpose_and_its_inverse),
        cmocka_unit_test(reversed_twice),
        cmocka_unit_test(values_are_rounded),
        cmocka_unit_test(refusals_of_lists),
        cmocka_unit_test(refusals_of_parts),
        cmocka_unit_test(refusals_of_inputs),
        cmocka_unit_test(refusals_of_values),
        cmocka_unit_test(rows_stand_alone),
        cmocka_unit_test(what_moves_nothing),
        cmocka_unit_test(lists_are_compared_whole),
        cmocka_unit_test(over_two_to_the_31),
    };
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
