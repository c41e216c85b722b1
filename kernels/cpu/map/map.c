/* map on the CPU: the reference.
 *
 * The output is worked on in blocks. Of an operand that lies as the output does, and whose datatype is computed in, a block is where it
 * lies; else its elements are brought side by side and converted. So the plain functions touch each byte once.
 * Threads  any; all memory is the caller's. */
#include "cpu/map/map.h"
#include "cpu/reference.h"
#include "cpu/simd.h"

#include <string.h>

typedef unsigned char wide_block[KS_MAP_BLOCK * 8]; /* elements of any datatype */

/* The caller's scratch. */
typedef struct work {
    wide_block gathered[KS_MAP_OPERANDS], converted[KS_MAP_OPERANDS], result;
    ks_map_middle middle;
} work;

typedef struct job {
    ks_map_work what;
    ks_map_shape shape;
    const unsigned char *in[KS_MAP_OPERANDS]; /* NULL: the scalar, which lies in `converted` for good */
    size_t size[KS_MAP_OPERANDS];             /* of an element in memory */
    ks_dtype math;                            /* what the function is given and gives: a datatype */
    ks_dtype given;                           /* what it gives; BOOL where it is true or false */
    work *w;
} job;

/* --- operands -------------------------------------------------------------------------------------------------------- */

#define FILL(type)                                                                                                     \
    {                                                                                                                  \
        type value;                                                                                                    \
        memcpy(&value, from, sizeof value);                                                                            \
        for (int64_t i = 0; i < count; i++) ((type *)to)[i] = value;                                                   \
    }                                                                                                                  \
    break

/* One element `count` times. */
static void fill(const unsigned char *from, size_t size, int64_t count, void *to)
{
    switch (size) {
    case 1:
        memset(to, *from, (size_t)count);
        break;
    case 2:
        FILL(uint16_t);
    case 4:
        FILL(uint32_t);
    default:
        FILL(uint64_t);
    }
}

/* Where the row that index n of the outer axes stands for begins, in elements of the operand. */
static int64_t row_offset(const ks_map_shape *s, int k, int64_t n)
{
    int64_t offset = 0;
    for (int d = s->rank - 2; d >= 0; d--) {
        offset += n % s->dims[d] * s->stride[k][d];
        n /= s->dims[d];
    }
    return offset;
}

/* The operand's elements of the output's [at, at + count), side by side. */
static void gather(const job *j, int k, int64_t at, int64_t count, unsigned char *to)
{
    const ks_map_shape *s = &j->shape;
    const int64_t inner = s->dims[s->rank - 1], step = s->stride[k][s->rank - 1];
    const size_t size = j->size[k];
    int64_t row = at / inner, column = at % inner;
    for (int64_t left = count; left > 0; row++, column = 0) {
        const int64_t some = left < inner - column ? left : inner - column;
        const unsigned char *from = j->in[k] + (size_t)(row_offset(s, k, row) + column * step) * size;
        if (step)
            memcpy(to, from, (size_t)some * size);
        else
            fill(from, size, some, to);
        to += (size_t)some * size;
        left -= some;
    }
}

/* As the function takes it; where's condition as it is. */
static const void *operand(const job *j, int k, int64_t at, int64_t count)
{
    work *w = j->w;
    if (!j->in[k]) return w->converted[k];
    const unsigned char *raw = j->in[k] + (size_t)at * j->size[k];
    if (!j->shape.flat[k]) {
        gather(j, k, at, count, w->gathered[k]);
        raw = w->gathered[k];
    }
    const bool condition = j->what.function == KS_MAP_WHERE && k == 0;
    if (condition || (j->math == j->what.dtype && j->math != KS_BOOL)) return raw;
    ks_map_cast(j->what.dtype, j->math, raw, w->converted[k], (size_t)count, &w->middle);
    return w->converted[k];
}

/* The scalar of a function of two operands, as often as a block has elements. */
static void spread_scalar(const job *j, int k)
{
    unsigned char one[8];
    ks_map_cast(KS_FP64, j->math, &j->what.a, one, 1, &j->w->middle);
    fill(one, ks_dtype_size(j->math), KS_MAP_BLOCK, j->w->converted[k]);
}

/* --- the reference --------------------------------------------------------------------------------------------------- */

/* Copies and choices are of bytes: they take elements as they are. */
static ks_dtype math_dtype(const ks_map_work *what)
{
    if (what->function == KS_MAP_CAST || what->function == KS_MAP_WHERE) return what->dtype;
    return what->math == KS_MAP_FLOAT ? KS_FP32 : what->math == KS_MAP_DOUBLE ? KS_FP64 : what->dtype;
}

static void apply(const job *j, const void *const in[KS_MAP_OPERANDS], void *out, size_t count)
{
    if (j->what.function == KS_MAP_WHERE)
        ks_map_select(ks_dtype_size(j->math), in, out, count);
    else if (j->what.math == KS_MAP_FLOAT)
        ks_map_floats(&j->what, in, out, count);
    else if (j->what.math == KS_MAP_DOUBLE)
        ks_map_doubles(&j->what, in, out, count);
    else
        ks_map_integers(&j->what, in, out, count);
}

static void one_block(const job *j, int64_t at, int64_t count, void *out)
{
    const void *in[KS_MAP_OPERANDS] = {NULL};
    for (int k = 0; k < j->what.operands; k++) in[k] = operand(j, k, at, count);
    if (j->what.function == KS_MAP_CAST) {
        ks_map_cast(j->math, j->what.out, in[0], out, (size_t)count, &j->w->middle);
    } else if (j->given == j->what.out) {
        apply(j, in, out, (size_t)count);
    } else {
        apply(j, in, j->w->result, (size_t)count);
        ks_map_cast(j->given, j->what.out, j->w->result, out, (size_t)count, &j->w->middle);
    }
}

/* ks_cpu_fn */
static void map_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    job j = {.what = ks_map_work_of(spec), .w = scratch};
    j.shape = ks_map_shape_of(spec, &j.what);
    j.math = math_dtype(&j.what);
    j.given = j.what.truth ? KS_BOOL : j.math;
    for (int k = 0; k < j.what.operands; k++) {
        const int input = j.what.input[k];
        if (input < 0) {
            spread_scalar(&j, k);
            continue;
        }
        j.in[k] = in[input];
        j.size[k] = ks_dtype_size(spec->in[input].dtype);
    }
    const size_t out_size = ks_dtype_size(j.what.out);
    for (int64_t at = 0; at < j.shape.count; at += KS_MAP_BLOCK) {
        const int64_t left = j.shape.count - at;
        one_block(&j, at, left < KS_MAP_BLOCK ? left : KS_MAP_BLOCK, (char *)out[0] + (size_t)at * out_size);
    }
}

static size_t map_scratch(const ks_spec *spec)
{
    (void)spec;
    return sizeof(work);
}

const ks_cpu_op ks_map_cpu = {.reference = map_reference, .scratch_bytes = map_scratch};

/* --- where ----------------------------------------------------------------------------------------------------------- */

#define SELECT(type)                                                                                                   \
    KS_CLONES static void select_##type(const uint8_t *restrict which, const type *restrict y, const type *restrict z, \
                                        type *restrict out, size_t count)                                              \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) out[i] = which[i] ? y[i] : z[i];                                            \
    }
SELECT(uint8_t)
SELECT(uint16_t)
SELECT(uint32_t)
SELECT(uint64_t)

void ks_map_select(size_t size, const void *const in[KS_MAP_OPERANDS], void *out, size_t count)
{
    switch (size) {
    case 1:
        select_uint8_t(in[0], in[1], in[2], out, count);
        break;
    case 2:
        select_uint16_t(in[0], in[1], in[2], out, count);
        break;
    case 4:
        select_uint32_t(in[0], in[1], in[2], out, count);
        break;
    default:
        select_uint64_t(in[0], in[1], in[2], out, count);
        break;
    }
}
