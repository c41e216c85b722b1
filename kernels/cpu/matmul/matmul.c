/* Matmul on the CPU: the reference.
 *
 * Numbers  INT8 is exact: a leaf of 128 products fits FP32, the sum FP64; or all of it 32 bits (bytes.h).
 *          FP8, FP16 and BF16 are computed as FP32 and rounded once. FP32 sums run over KS_MATMUL_DEPTH values at a time and are
 *          collected in FP64, so the error does not grow with K beyond that. precision tf32 changes nothing here.
 * Threads  any; all memory is the caller's.
 * Source   the blocking follows Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication". */
#include "ops/matmul.h"
#include "cpu/convert.h"
#include "cpu/reference.h"

#include <string.h>

enum {
    KS_MATMUL_ROWS = 240,    /* of a block: a multiple of every tile's rows below */
    KS_MATMUL_COLUMNS = 512, /* of a block: a multiple of every tile's columns */
    KS_MATMUL_DEPTH = 128,   /* values summed in the element's own precision before they go to FP64 */
    KS_MATMUL_SKINNY = 4,    /* up to so many rows, packing INPUT1 costs more than it saves */
    KS_MATMUL_NARROW = 16,   /* up to so few columns, the transposed product wastes less of a tile */
    KS_MATMUL_STRIP = 1024,  /* columns of a skinny product done at once */
    KS_MATMUL_SCRATCH_ALIGNMENT = 64
};

/* One matrix: C may be swapped with its transpose, so it has strides too. */
typedef struct product {
    const unsigned char *a, *b;
    const unsigned char *bias;     /* NULL: none */
    const unsigned char *residual; /* NULL: none; as C lies, in its datatype */
    unsigned char *c;
    ks_dtype dtype, a_dtype, b_dtype, bias_dtype;
    const float *a_scale, *b_scale; /* NULL: none */
    bool a_scales, b_scales;        /* one for each row, for each column of the product as it was asked for */
    ks_matmul_activation activation;
    int64_t m, n, k, a_row, a_col, b_row, b_col, c_row, c_col;
    double alpha;
    bool turned;
} product;

static int64_t least(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static int64_t up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static void read_run_float(ks_dtype dtype, const unsigned char *from, int64_t at, int64_t count, float *to)
{
    if (dtype == KS_FP16)
        ks_fp16_to_floats((const uint16_t *)from + at, to, (size_t)count);
    else if (dtype == KS_BF16)
        ks_bf16_to_floats((const uint16_t *)from + at, to, (size_t)count);
    else if (dtype == KS_FP8E4M3)
        ks_fp8e4m3_to_floats(from + at, to, (size_t)count);
    else if (dtype == KS_FP8E5M2)
        ks_fp8e5m2_to_floats(from + at, to, (size_t)count);
    else if (dtype == KS_INT8)
        for (int64_t i = 0; i < count; i++) to[i] = (float)((const int8_t *)from)[at + i];
    else
        memcpy(to, (const float *)from + at, (size_t)count * sizeof *to);
}

static void read_run_double(ks_dtype dtype, const unsigned char *from, int64_t at, int64_t count, double *to)
{
    (void)dtype;
    memcpy(to, (const double *)from + at, (size_t)count * sizeof *to);
}

static double read_one(ks_dtype dtype, const unsigned char *from, int64_t at)
{
    if (dtype == KS_FP64) return ((const double *)from)[at];
    float value;
    read_run_float(dtype, from, at, 1, &value);
    return (double)value;
}

/* From sums to values that are ready to be rounded, in place. */
static void finish_run(const product *p, int64_t row, int64_t column, double *sum, int64_t count)
{
    if (p->alpha != 1.0)
        for (int64_t j = 0; j < count; j++) sum[j] *= p->alpha;
    if (p->a_scale || p->b_scale)
        for (int64_t j = 0; j < count; j++) {
            const int64_t i = p->turned ? column + j : row, of = p->turned ? row : column + j;
            if (p->a_scale) sum[j] *= (double)p->a_scale[p->a_scales ? i : 0];
            if (p->b_scale) sum[j] *= (double)p->b_scale[p->b_scales ? of : 0];
        }
    if (p->bias)
        for (int64_t j = 0; j < count; j++) sum[j] += read_one(p->bias_dtype, p->bias, p->turned ? row : column + j);
    if (p->activation != KS_MATMUL_NONE)
        for (int64_t j = 0; j < count; j++) sum[j] = ks_matmul_activate(p->activation, sum[j]);
    if (p->residual)
        for (int64_t j = 0; j < count; j++)
            sum[j] += read_one(p->dtype, p->residual, row * p->c_row + (column + j) * p->c_col);
}

static void store_halves(const product *p, int64_t at, int64_t step, const double *sum, int64_t count)
{
    uint16_t halves[KS_MATMUL_DEPTH], *out = (uint16_t *)p->c + at;
    for (int64_t j = 0; j < count; j += KS_MATMUL_DEPTH) {
        const int64_t some = least(KS_MATMUL_DEPTH, count - j);
        uint16_t *const to = step == 1 ? out + j : halves;
        (p->dtype == KS_FP16 ? ks_doubles_to_fp16 : ks_doubles_to_bf16)(sum + j, to, (size_t)some);
        for (int64_t i = 0; i < some && step != 1; i++) out[(j + i) * step] = halves[i];
    }
}

/* The only rounding to the output's datatype. */
static void store_run(const product *p, int64_t row, int64_t column, double *sum, int64_t count)
{
    const int64_t at = row * p->c_row + column * p->c_col, step = p->c_col;
    finish_run(p, row, column, sum, count);
    switch (p->dtype) {
    case KS_FP16:
    case KS_BF16:
        store_halves(p, at, step, sum, count);
        break;
    case KS_INT32:
        for (int64_t j = 0; j < count; j++) ((int32_t *)p->c)[at + j * step] = (int32_t)sum[j];
        break;
    case KS_FP32:
        for (int64_t j = 0; j < count; j++) ((float *)p->c)[at + j * step] = (float)sum[j];
        break;
    default:
        for (int64_t j = 0; j < count; j++) ((double *)p->c)[at + j * step] = sum[j];
        break;
    }
}

#define JOIN3_(a, b, c) a##_##b##_##c
#define JOIN3(a, b, c) JOIN3_(a, b, c)

/* The same code for each width of vectors; run picks the widest that this processor has. */
#define ISA plain
#define ISA_TARGET
#if defined(__x86_64__)
#define TILE_ROWS 2
#else
#define TILE_ROWS 6
#endif
#define TILE_VECTORS 1
#include "cpu/matmul/isa.h"

#if defined(__x86_64__)
#define ISA avx2
#define ISA_TARGET __attribute__((target("avx2,fma")))
#define TILE_ROWS 6
#define TILE_VECTORS 1
#include "cpu/matmul/isa.h"

#define ISA avx512
#define ISA_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma")))
#define TILE_ROWS 8
#define TILE_VECTORS 2
#include "cpu/matmul/isa.h"
#endif

#include "cpu/matmul/bytes.h"

typedef void run_fn(const product *p, unsigned char *scratch);

static run_fn *pick(ks_dtype dtype)
{
    const bool wide = dtype == KS_FP64;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
        return wide ? run_double_avx512 : run_float_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return wide ? run_double_avx2 : run_float_avx2;
#endif
    return wide ? run_double_plain : run_float_plain;
}

/* Few columns are few rows of the transposed product. Not of a skinny one, whose rows are to have the bits that each has alone. */
static bool turns(int64_t m, int64_t n)
{
    return n <= KS_MATMUL_NARROW && m > n && m > KS_MATMUL_SKINNY;
}

static size_t matmul_scratch_bytes(const ks_spec *spec)
{
    ks_matmul_shape s;
    ks_matmul_shape_of(spec, &s);
    const bool turned = turns(s.m, s.n);
    const int64_t m = turned ? s.n : s.m, n = turned ? s.m : s.n;
    const size_t real = spec->in[0].dtype == KS_FP64 ? sizeof(double) : sizeof(float);
    if (m <= KS_MATMUL_SKINNY)
        return KS_MATMUL_SCRATCH_ALIGNMENT + (size_t)KS_MATMUL_SKINNY * KS_MATMUL_STRIP * (sizeof(double) + real) +
               (size_t)(KS_MATMUL_SKINNY * KS_MATMUL_DEPTH + 4 * KS_MATMUL_STRIP) * real;
    /* Tiles are padded: rounding up to the least common multiple of their sizes holds for each of them. */
    const size_t rows = (size_t)up(least(m, KS_MATMUL_ROWS), 24), columns = (size_t)up(least(n, KS_MATMUL_COLUMNS), 32);
    return KS_MATMUL_SCRATCH_ALIGNMENT + rows * columns * sizeof(double) +
           (rows + columns + 1) * KS_MATMUL_DEPTH * real;
}

static void turn(product *p)
{
    const product old = *p;
    p->a = old.b;
    p->b = old.a;
    p->a_dtype = old.b_dtype;
    p->b_dtype = old.a_dtype;
    p->m = old.n;
    p->n = old.m;
    p->a_row = old.b_col;
    p->a_col = old.b_row;
    p->b_row = old.a_col;
    p->b_col = old.a_row;
    p->c_row = old.c_col;
    p->c_col = old.c_row;
    p->turned = true;
}

static const float *scales_of(const ks_spec *spec, const void *const *in, int input, int64_t at)
{
    return ks_has_input(spec, input) ? (const float *)in[input] + at : NULL;
}

/* ks_cpu_fn */
static void matmul_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    ks_matmul_shape s;
    ks_matmul_shape_of(spec, &s);
    if (spec->out[0].size_bytes == 0) return;
    unsigned char *aligned = scratch;
    aligned += -(uintptr_t)scratch % KS_MATMUL_SCRATCH_ALIGNMENT;
    const size_t size = ks_dtype_size(spec->in[0].dtype), out_size = ks_dtype_size(spec->out[0].dtype);
    run_fn *run = pick(spec->out[0].dtype);
    for (int64_t x = 0; x < s.batch; x++) {
        int64_t a, b;
        const size_t matrix = (size_t)x * (size_t)s.m * (size_t)s.n * out_size;
        ks_matmul_offsets(&s, x, &a, &b);
        product p = {
            .a = (const unsigned char *)in[0] + (size_t)a * size,
            .b = (const unsigned char *)in[1] + (size_t)b * size,
            .bias = s.biased ? in[2] : NULL,
            .residual = s.residual ? (const unsigned char *)in[KS_MATMUL_RESIDUAL] + matrix : NULL,
            .c = (unsigned char *)out[0] + matrix,
            .dtype = spec->out[0].dtype,
            .a_dtype = s.a_dtype,
            .b_dtype = s.b_dtype,
            .bias_dtype = spec->in[2].dtype,
            .a_scale = scales_of(spec, in, KS_MATMUL_SCALE_A, ks_matmul_scales_at(s.a_scales, a, s.a_matrix, s.m)),
            .b_scale = scales_of(spec, in, KS_MATMUL_SCALE_B, ks_matmul_scales_at(s.b_scales, b, s.b_matrix, s.n)),
            .a_scales = s.a_scales,
            .b_scales = s.b_scales,
            .activation = s.activation,
            .m = s.m,
            .n = s.n,
            .k = s.k,
            .a_row = s.a_row,
            .a_col = s.a_col,
            .b_row = s.b_row,
            .b_col = s.b_col,
            .c_row = s.n,
            .c_col = 1,
            .alpha = s.alpha};
        if (turns(p.m, p.n)) turn(&p);
#if defined(__x86_64__)
        if (p.a_dtype == KS_INT8 && p.b_dtype == KS_INT8 && p.m > KS_MATMUL_SKINNY && has_bytes()) run = run_bytes;
#endif
        run(&p, aligned);
    }
}

/* Skinny products sum each row by itself, and none of them turns. Rows of a residual are not put together. */
static int matmul_join_rows(const ks_spec *spec)
{
    return ks_has_input(spec, KS_MATMUL_RESIDUAL) ? 0 : KS_MATMUL_SKINNY;
}

const ks_cpu_op ks_matmul_cpu = {
    .reference = matmul_reference, .scratch_bytes = matmul_scratch_bytes, .join_rows = matmul_join_rows};
