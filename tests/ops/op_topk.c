/* topk against a sort of each row: the reference by itself in buffers of exactly its size, then every backend that this machine has, on
 * all its paths. The answer is unique, so all of it is compared bit by bit. KS_CASES, KS_SEED: how many random cases, and which.
 * KS_HUGE: also tensors of over 2^31 elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/op_harness.h"
#include "ops/op_values.h"
#include "cpu/reference.h"
#include "ops/topk/topk.h"

extern const ks_op ks_op_topk;

enum { ARENA_BYTES = 96 << 20 };
#include "ops/op_backends.h"

static const ks_dtype dtypes[] = {KS_FP32,  KS_FP16,  KS_BF16, KS_FP64,   KS_INT32,  KS_UINT8,
                                  KS_INT64, KS_INT16, KS_INT8, KS_UINT16, KS_UINT32, KS_UINT64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* --- specs ------------------------------------------------------------------------------------------------------------ */

static ks_spec spec_of(ks_dtype dtype, int rank, const int64_t *dims, int k)
{
    ks_spec spec;
    ks_spec_init(&spec, &ks_op_topk);
    spec.in[0] = (ks_tensor){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) spec.in[0].dims[i] = dims[i];
    spec.params[KS_TOPK_K].i = k;
    return spec;
}

static ks_spec rows_of(ks_dtype dtype, int64_t rows, int64_t length, int k)
{
    return spec_of(dtype, 2, (const int64_t[]){rows, length}, k);
}

static void describe(const ks_spec *spec, const char *who)
{
    char dims[KS_RANK_MAX * 21];
    ks_dims_text(&spec->in[0], dims, sizeof dims);
    print_error("%s: %s [%s] k %d axis %d largest %d index %d\n", who, ks_dtype_name(spec->in[0].dtype), dims,
                (int)spec->params[KS_TOPK_K].i, (int)spec->params[KS_TOPK_AXIS].i, (int)spec->params[KS_TOPK_LARGEST].i,
                (int)spec->params[KS_TOPK_INDEX_DATATYPE].i);
}

/* --- what is right ---------------------------------------------------------------------------------------------------- */

typedef struct element {
    long double value;
    int64_t index;
} element;

/* The rule, word for word; of the smallest the values the other way round. */
static int in_order(const element *a, const element *b, bool largest)
{
    const bool a_nan = isnan(a->value), b_nan = isnan(b->value);
    if (a_nan != b_nan) return a_nan == largest ? -1 : 1;
    if (!a_nan && a->value != b->value) return (a->value > b->value) == largest ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static int largest_first(const void *a, const void *b)
{
    return in_order(a, b, true);
}

static int smallest_first(const void *a, const void *b)
{
    return in_order(a, b, false);
}

/* One row's answer, sorted from all of it. */
static void check_row(const ks_spec *spec, const void *in, const unsigned char *out, const char *who, int64_t row)
{
    const ks_topk_shape s = ks_topk_shape_of(spec);
    const size_t size = ks_dtype_size(s.dtype);
    const int64_t outer = row / s.inner, column = row % s.inner;
    const unsigned char *values = out + spec->out[0].offset, *indices = out + spec->out[1].offset;
    element *all = malloc((size_t)s.length * sizeof *all);
    assert_non_null(all);
    for (int64_t i = 0; i < s.length; i++)
        all[i] = (element){values_get(s.dtype, in, (outer * s.length + i) * s.inner + column), i};
    qsort(all, (size_t)s.length, sizeof *all, s.largest ? largest_first : smallest_first);
    for (int j = 0; j < s.k; j++) {
        const int64_t at = (outer * s.k + j) * s.inner + column;
        const int64_t from = (outer * s.length + all[j].index) * s.inner + column;
        const int64_t index = s.index_dtype == KS_INT64 ? ((const int64_t *)(const void *)indices)[at]
                                                        : ((const int32_t *)(const void *)indices)[at];
        if (index == all[j].index &&
            memcmp(values + (size_t)at * size, (const char *)in + (size_t)from * size, size) == 0)
            continue;
        describe(spec, who);
        fail_msg("row %lld place %d: index %lld, expected %lld of value %Lg; value %Lg", (long long)row, j,
                 (long long)index, (long long)all[j].index, all[j].value, values_get(s.dtype, values, at));
    }
    free(all);
}

static void check(const ks_spec *spec, const void *in, const void *out, const char *who, int64_t most)
{
    const int64_t rows = ks_topk_shape_of(spec).rows;
    for (int64_t i = 0; i < rows && i < most; i++)
        check_row(spec, in, out, who, rows <= most ? i : i ? (int64_t)(values_next() % (uint64_t)rows) : rows - 1);
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
    if (ks_op_topk.resolve(spec, &error) != KS_OK) {
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

static void *filled(const ks_spec *spec, values_kind kind)
{
    const ks_tensor *x = &spec->in[0];
    void *in = malloc(x->size_bytes + 1);
    assert_non_null(in);
    values_fill(x->dtype, in, ks_tensor_count(x), kind, x->dims[x->rank - 1] ? x->dims[x->rank - 1] : 1);
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

static int drawn_k(int64_t extent)
{
    const int64_t most = extent < KS_TOPK_MOST ? extent : KS_TOPK_MOST;
    const int64_t small = most < 64 ? most : 64;
    return (int)(values_below(8) == 0 ? most : 1 + values_below((int)(values_below(3) ? small : most)));
}

static void draw_parameters(ks_spec *spec)
{
    const int rank = spec->in[0].rank, axis = values_below(2) ? rank - 1 : values_below(rank);
    spec->params[KS_TOPK_AXIS].i = values_below(2) ? axis : axis - rank;
    spec->params[KS_TOPK_LARGEST].i = values_below(3) != 0;
    spec->params[KS_TOPK_SORTED].i = values_below(2);
    spec->params[KS_TOPK_INDEX_DATATYPE].i = values_below(2);
    spec->params[KS_TOPK_K].i = spec->in[0].dims[axis] ? drawn_k(spec->in[0].dims[axis]) : 1;
}

static void random_shapes_and_parameters(void **state)
{
    (void)state;
    const int cases = values_cases(400);
    for (int i = 0; i < cases;) {
        ks_tensor shape = {0};
        values_shape(&shape, 5, values_most());
        ks_spec spec = spec_of(dtypes[values_below(DTYPES)], shape.rank, shape.dims, 1);
        draw_parameters(&spec);
        ks_spec copy = spec;
        ks_error error = {0};
        if (ks_op_topk.resolve(&copy, &error) == KS_EMPTY) continue;
        try_kind(&spec, (values_kind)values_below(VALUES_KINDS), 300);
        i++;
    }
    printf("%d random cases\n", cases);
}

/* Where the CUDA planner goes over from one kernel to another, and where a chunk, a digit or a power of two ends. */
static void borders_of_rows(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1,    2,    31,   32,   33,    63,    64,    65,    127,  128,  129,
                                      255,  257,  511,  512,  513,   1023,  1024,  1025,  2047, 2048, 2049,
                                      4095, 4097, 8191, 8193, 16383, 16385, 20000, 33000, 65537};
    static const int ks[] = {1, 2, 10, 31, 32, 33, 50, 64, 65, 128, 255, 257, 1000, 1024, 1025, 2047, 2048};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int t = 0; t < 4; t++) {
            const int64_t k = t == 3 ? lengths[n] : ks[values_below(sizeof ks / sizeof *ks)];
            const int64_t most = lengths[n] < KS_TOPK_MOST ? lengths[n] : KS_TOPK_MOST;
            const int64_t rows = values_below(2) ? 1 + values_below(3) : 1 + 20000 / lengths[n];
            ks_spec spec = rows_of(dtypes[values_below(DTYPES)], rows, lengths[n], (int)(k < most ? k : most));
            spec.params[KS_TOPK_LARGEST].i = values_below(2);
            try_kind(&spec, (values_kind)values_below(VALUES_KINDS), 40);
        }
}

/* Each kernel of the CUDA planner, in as little work as reaches it on a chip of any size: for sanitizers. */
static void each_kernel(void **state)
{
    (void)state;
    static const struct {
        ks_dtype dtype;
        int64_t dims[3];
        int axis, k;
    } table[] = {{KS_FP32, {1, 3, 100}, 2, 10},   {KS_FP64, {1, 5, 70}, 2, 70},     {KS_BF16, {1, 900, 300}, 2, 7},
                 {KS_FP32, {1, 3, 3000}, 2, 50},  {KS_FP16, {1, 2, 5003}, 2, 600},  {KS_UINT8, {1, 3, 1500}, 2, 33},
                 {KS_FP32, {1, 1, 70001}, 2, 10}, {KS_FP64, {1, 1, 30000}, 2, 300}, {KS_INT16, {1, 1, 50000}, 2, 2048},
                 {KS_FP32, {2, 700, 3}, 1, 20},   {KS_INT64, {1, 9000, 2}, 1, 5},   {KS_BF16, {3, 40, 17}, 1, 40}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        ks_spec spec = spec_of(table[n].dtype, 3, table[n].dims, table[n].k);
        spec.params[KS_TOPK_AXIS].i = table[n].axis;
        try_kind(&spec, VALUES_NORMAL, INT64_MAX);
    }
}

/* The shapes of the benches, on a GPU alone. */
static void rows_of_the_whole_chip(void **state)
{
    (void)state;
    static const struct {
        ks_dtype dtype;
        int64_t rows, length;
        int k;
    } table[] = {{KS_FP32, 1, 128256, 50},   {KS_FP32, 64, 128256, 50}, {KS_FP32, 64, 131072, 256},
                 {KS_FP32, 1, 1 << 20, 10},  {KS_BF16, 64, 128256, 50}, {KS_FP32, 1, 1 << 20, 2048},
                 {KS_FP32, 4096, 1000, 100}, {KS_BF16, 1, 3000001, 64}};
    if (!harnesses[1] || strcmp(ks_backend_cuda->name, "cuda") != 0) skip();
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        ks_spec spec = rows_of(table[n].dtype, table[n].rows, table[n].length, table[n].k);
        try_kind(&spec, VALUES_NORMAL, 6);
    }
}

/* --- orders ----------------------------------------------------------------------------------------------------------- */

static void put(const ks_spec *spec, void *in, int64_t i, int64_t value)
{
    const ks_dtype dtype = spec->in[0].dtype;
    if (ks_dtype_kind(dtype) == KS_KIND_FLOAT)
        values_put(dtype, in, i, (double)value);
    else
        memcpy((char *)in + (size_t)i * ks_dtype_size(dtype), &value, ks_dtype_size(dtype));
}

/* Rising, falling, all equal, two values, the largest there is: where thresholds help least, or ties decide. */
static void ordered_rows(void **state)
{
    (void)state;
    static const int64_t lengths[] = {100, 1000, 3000, 9001, 40000};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int order = 0; order < 6; order++) {
            const int64_t length = lengths[n];
            ks_spec spec = rows_of(dtypes[values_below(DTYPES)], 2, length, drawn_k(length));
            spec.params[KS_TOPK_LARGEST].i = values_below(2);
            resolve(&spec);
            void *in = filled(&spec, VALUES_NORMAL);
            for (int64_t i = 0; i < 2 * length; i++) {
                const int64_t at = i % length;
                put(&spec, in, i,
                    order == 0   ? at
                    : order == 1 ? length - at
                    : order == 2 ? 7
                    : order == 3 ? values_below(2)
                    : order == 4 ? -1
                                 : at % 3);
            }
            try_values(&spec, in, INT64_MAX);
            free(in);
        }
}

/* Rows that are counted by digits before any element is kept: by one CTA or by several, along either axis; of values that are all in one digit,
 * in few, or in all of them. */
static void counted_rows(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 60000}, {2, 33000}, {3, 17001}, {40, 4500}, {7, 9001}};
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        for (int order = 0; order < 6; order++) {
            const int64_t rows = shapes[n][0], length = shapes[n][1];
            const bool across = values_below(4) == 0;
            const int64_t dims[] = {across ? length : rows, across ? rows : length};
            ks_spec spec = spec_of(dtypes[values_below(DTYPES)], 2, dims, 257 + values_below(KS_TOPK_MOST - 256));
            spec.params[KS_TOPK_AXIS].i = across ? 0 : 1;
            spec.params[KS_TOPK_LARGEST].i = values_below(2);
            resolve(&spec);
            void *in = filled(&spec, order == 0 ? VALUES_NORMAL : (values_kind)values_below(VALUES_KINDS));
            for (int64_t i = 0; order > 1 && i < rows * length; i++) {
                const int64_t at = across ? i / rows : i % length;
                put(&spec, in, i,
                    order == 2   ? 1
                    : order == 3 ? values_below(3)
                    : order == 4 ? at % 120
                                 : values_below(100) - 50);
            }
            try_values(&spec, in, 8);
            free(in);
        }
}

/* NaN of both signs and several payloads, infinities, both zeros, subnormals: bits are kept, and their order is the rule's. */
static void special_values(void **state)
{
    (void)state;
    static const uint64_t bits[4][9] = {
        {0x7FC00000, 0xFFC00001, 0x7F800001, 0x7F800000, 0xFF800000, 0, 0x80000000, 1, 0x80000001},
        {0x7E00, 0xFE01, 0x7C01, 0x7C00, 0xFC00, 0, 0x8000, 1, 0x8001},
        {0x7FC0, 0xFFC1, 0x7F81, 0x7F80, 0xFF80, 0, 0x8000, 1, 0x8001},
        {0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001, 0x7FF0000000000000, 0xFFF0000000000000, 0,
         0x8000000000000000, 1, 0x8000000000000001}};
    static const int64_t lengths[] = {20, 300, 2500, 50000};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int d = 0; d < 4; d++)
            for (int part = 0; part < 4; part++) {
                ks_spec spec = rows_of(dtypes[d], 3, lengths[n], drawn_k(lengths[n]));
                spec.params[KS_TOPK_LARGEST].i = values_below(2);
                resolve(&spec);
                void *in = filled(&spec, VALUES_NORMAL);
                const size_t size = ks_dtype_size(dtypes[d]);
                for (int64_t i = 0; i < 3 * lengths[n]; i++) /* all special, few, zeros alone, NaN alone */
                    if (part == 0 || part > 1 || values_below(100) == 0)
                        memcpy((char *)in + (size_t)i * size,
                               &bits[d][part == 2   ? 5 + values_below(2)
                                        : part == 3 ? values_below(3)
                                                    : values_below(9)],
                               size);
                try_values(&spec, in, INT64_MAX);
                free(in);
            }
}

/* --- identities ------------------------------------------------------------------------------------------------------- */

/* An axis and its transposed tensor; sorted or not; a smaller k is the beginning of a larger one. */
static void views_agree(void **state)
{
    (void)state;
    enum { ROWS = 13, LENGTH = 3001, MORE = 90, LESS = 17 };
    for (int d = 0; d < 4; d++) {
        ks_spec rows = rows_of(dtypes[d], ROWS, LENGTH, MORE), columns = rows_of(dtypes[d], LENGTH, ROWS, LESS);
        columns.params[KS_TOPK_AXIS].i = 0;
        columns.params[KS_TOPK_SORTED].i = 0;
        resolve(&rows);
        resolve(&columns);
        const size_t size = ks_dtype_size(dtypes[d]);
        unsigned char *in = filled(&rows, VALUES_WIDE), *turned = filled(&columns, VALUES_WIDE);
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t i = 0; i < LENGTH; i++)
                memcpy(turned + (size_t)(i * ROWS + r) * size, in + (size_t)(r * LENGTH + i) * size, size);
        unsigned char *left = malloc(ks_spec_out_bytes(&rows)), *right = malloc(ks_spec_out_bytes(&columns));
        for (int b = 0; b < 2; b++) {
            if (!harnesses[b]) continue;
            run_backend(b, &rows, in, left);
            run_backend(b, &columns, turned, right);
            for (int64_t r = 0; r < ROWS; r++)
                for (int64_t j = 0; j < LESS; j++)
                    assert_int_equal(((int64_t *)(void *)(left + rows.out[1].offset))[r * MORE + j],
                                     ((int64_t *)(void *)(right + columns.out[1].offset))[j * ROWS + r]);
        }
        free(left);
        free(right);
        free(in);
        free(turned);
    }
}

/* --- edges ------------------------------------------------------------------------------------------------------------ */

static void expect_refusal(ks_spec spec, ks_status want, const char *words)
{
    ks_error error = {0};
    assert_int_equal(ks_op_topk.resolve(&spec, &error), want);
    if (!strstr(error.text, words)) fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void refusals(void **state)
{
    (void)state;
    static const int64_t dims[9] = {2, 6, 4, 1, 1, 1, 1, 1, 1}, empty[] = {2, 0}, none[] = {0, 4},
                         huge[] = {(int64_t)1 << 31};
    ks_spec spec = spec_of(KS_BOOL, 2, dims, 1);
    expect_refusal(spec, KS_DATATYPE, "INPUT0 has datatype BOOL");
    expect_refusal(spec_of(KS_FP32, 0, dims, 1), KS_SHAPE, "INPUT0 has rank 0");
    expect_refusal(spec_of(KS_FP32, 2, dims, 0), KS_PARAMETER, "parameter 'k' is 0, takes 1 to 2048");
    expect_refusal(spec_of(KS_FP32, 2, dims, -3), KS_PARAMETER, "parameter 'k' is -3");
    expect_refusal(spec_of(KS_FP32, 2, dims, 2049), KS_PARAMETER, "parameter 'k' is 2049");
    expect_refusal(spec_of(KS_FP32, 2, dims, 7), KS_PARAMETER, "'k' is 7, INPUT0 has 6 elements along axis -1");
    expect_refusal(spec_of(KS_FP32, 2, empty, 1), KS_EMPTY, "0 elements along axis -1");
    spec = spec_of(KS_FP32, 2, dims, 1);
    spec.params[KS_TOPK_AXIS].i = 2;
    expect_refusal(spec, KS_AXIS, "axis 2 is outside [-2, 2)");
    spec = spec_of(KS_UINT8, 1, huge, 1);
    spec.params[KS_TOPK_INDEX_DATATYPE].i = 1;
    assert_int_equal(ks_op_topk.resolve(&spec, NULL), KS_OK);
    spec.in[0].dims[0]++;
    expect_refusal(spec, KS_PARAMETER, "'index_datatype' is INT32, INPUT0 has 2147483649 elements");
    spec = spec_of(KS_FP32, 2, none, 3); /* no rows: an empty answer */
    assert_int_equal(ks_op_topk.resolve(&spec, NULL), KS_OK);
    assert_int_equal(spec.out[0].size_bytes, 0);
}

static void equal_work_has_equal_keys(void **state)
{
    (void)state;
    ks_spec a = spec_of(KS_FP32, 3, (const int64_t[]){2, 3, 4}, 2), b = a;
    b.params[KS_TOPK_AXIS].i = 2;
    b.params[KS_TOPK_SORTED].i = 0;
    assert_int_equal(ks_op_topk.resolve(&a, NULL), KS_OK);
    assert_int_equal(ks_op_topk.resolve(&b, NULL), KS_OK);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(ks_op_topk.resolve(&b, NULL), KS_OK); /* once more, as row blocks are */
    assert_memory_equal(&a, &b, sizeof a);
    ks_op_topk.sample(&a);
    assert_int_equal(ks_op_topk.resolve(&a, NULL), KS_OK);
    assert_int_equal(a.outputs, 2);
    assert_int_equal(a.out[1].dtype, KS_INT64);
}

/* Offsets beyond 2^31 elements, and indices beyond 2^31: the largest lie at the end. */
static void over_two_to_the_31(void **state)
{
    (void)state;
    const int64_t length = ((int64_t)1 << 31) + 1001;
    if (!getenv("KS_HUGE")) {
        printf("skip: KS_HUGE is not set, no tensor of over 2^31 elements\n");
        skip();
    }
    for (int rows = 1; rows < 4; rows += 2) {
        ks_spec spec = rows_of(KS_UINT8, rows, rows == 1 ? length : length / 2, 4);
        resolve(&spec);
        const int64_t count = ks_tensor_count(&spec.in[0]);
        unsigned char *in = malloc(spec.in[0].size_bytes), *out = malloc(ks_spec_out_bytes(&spec));
        if (!in || !out) fail_msg("no memory for %zu bytes", spec.in[0].size_bytes);
        for (int64_t i = 0; i < count; i++) in[i] = (unsigned char)(i % 251);
        in[count - 1] = in[count - 7] = 255;
        for (int b = 0; b < 2; b++) {
            ks_error error = {0};
            if (!op_harness_once(b ? ks_backend_cuda : ks_backend_cpu, spec.in[0].size_bytes + (64 << 20), &spec,
                                 (const void *const[]){in}, out, &error))
                continue;
            if (error.status != KS_OK) fail_msg("%s", error.text);
            const int64_t *indices = (const int64_t *)(const void *)(out + spec.out[1].offset) + 4 * (rows - 1);
            const int64_t first = count - spec.in[0].dims[1]; /* of the last row */
            assert_int_equal(indices[0], count - 7 - first);
            assert_int_equal(indices[1], count - 1 - first);
            assert_int_equal(indices[2], (250 - first % 251 + 251) % 251);
            assert_int_equal(indices[3], indices[2] + 251);
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
        cmocka_unit_test(borders_of_rows),
        cmocka_unit_test(each_kernel),
        cmocka_unit_test(rows_of_the_whole_chip),
        cmocka_unit_test(ordered_rows),
        cmocka_unit_test(counted_rows),
        cmocka_unit_test(special_values),
        cmocka_unit_test(views_agree),
        cmocka_unit_test(refusals),
        cmocka_unit_test(equal_work_has_equal_keys),
        cmocka_unit_test(over_two_to_the_31),
    };
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
