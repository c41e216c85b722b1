/* map on the CPU: the reference.
 *
 * The output is worked on in blocks. Of an operand that lies as the output does, and whose datatype is computed in, a block is where it
 * lies; else its elements are brought side by side and converted. So the plain functions touch each byte once.
 * Threads  any; all memory is the caller's. */
#include "cpu/map/map.h"
#include "cpu/simd.h"

#include <string.h>

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

static void gather(const ks_map_shape *s, int k, const unsigned char *in, size_t size, const ks_map_range *range,
                   unsigned char *to)
{
    const int64_t inner = s->dims[s->rank - 1], step = s->stride[k][s->rank - 1];
    int64_t row = range->at / inner, column = range->at % inner;
    for (int64_t left = range->count; left > 0; row++, column = 0) {
        const int64_t some = left < inner - column ? left : inner - column;
        const unsigned char *from = in + (size_t)(row_offset(s, k, row) + column * step) * size;
        if (step)
            memcpy(to, from, (size_t)some * size);
        else
            fill(from, size, some, to);
        to += (size_t)some * size;
        left -= some;
    }
}

const void *ks_map_elements(const ks_map_shape *shape, int k, const void *in, size_t size, const ks_map_range *range,
                            void *to)
{
    if (shape->flat[k]) return (const unsigned char *)in + (size_t)range->at * size;
    gather(shape, k, in, size, range, to);
    return to;
}

/* --- a block --------------------------------------------------------------------------------------------------------- */

/* What the function is given and gives: a datatype. Copies and choices are of bytes: they take elements as they are. */
static ks_dtype math_dtype(const ks_map_work *what)
{
    if (what->function == KS_MAP_CAST || what->function == KS_MAP_WHERE) return what->dtype;
    return what->math == KS_MAP_FLOAT ? KS_FP32 : what->math == KS_MAP_DOUBLE ? KS_FP64 : what->dtype;
}

void ks_map_scalar(const ks_map_work *work, void *out, ks_map_middle *middle)
{
    unsigned char one[8];
    const ks_dtype math = math_dtype(work);
    ks_map_cast(KS_FP64, math, &work->a, one, 1, middle);
    fill(one, ks_dtype_size(math), KS_MAP_BLOCK, out);
}

static void apply(const ks_map_work *work, const void *const in[KS_MAP_OPERANDS], void *out, size_t count)
{
    if (work->function == KS_MAP_WHERE)
        ks_map_select(ks_dtype_size(work->dtype), in, out, count);
    else if (work->math == KS_MAP_FLOAT)
        ks_map_floats(work, in, out, count);
    else if (work->math == KS_MAP_DOUBLE)
        ks_map_doubles(work, in, out, count);
    else
        ks_map_integers(work, in, out, count);
}

void ks_map_block(const ks_map_work *work, const void *const in[KS_MAP_OPERANDS],
                  const void *const scalar[KS_MAP_OPERANDS], void *out, size_t count, ks_map_room *room)
{
    const ks_dtype math = math_dtype(work), given = work->truth ? KS_BOOL : math;
    const void *taken[KS_MAP_OPERANDS] = {NULL};
    if (ks_map_halves(work, in, out, count)) return;
    for (int k = 0; k < work->operands; k++) {
        const bool condition = work->function == KS_MAP_WHERE && k == 0;
        taken[k] = in[k] ? in[k] : scalar[k];
        if (!in[k] || condition || (math == work->dtype && math != KS_BOOL)) continue;
        ks_map_cast(work->dtype, math, in[k], room->converted[k], count, &room->middle);
        taken[k] = room->converted[k];
    }
    if (work->function == KS_MAP_CAST) {
        ks_map_cast(math, work->out, taken[0], out, count, &room->middle);
    } else if (given == work->out) {
        apply(work, taken, out, count);
    } else {
        apply(work, taken, room->result, count);
        ks_map_cast(given, work->out, room->result, out, count, &room->middle);
    }
}

/* --- the reference --------------------------------------------------------------------------------------------------- */

/* The caller's scratch. */
typedef struct work {
    ks_map_wide gathered[KS_MAP_OPERANDS], scalar;
    ks_map_room room;
} work;

/* ks_cpu_fn */
static void map_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    const ks_map_work what = ks_map_work_of(spec);
    const ks_map_shape shape = ks_map_shape_of(spec, &what);
    work *w = scratch;
    const void *scalar[KS_MAP_OPERANDS] = {NULL};
    for (int k = 0; k < what.operands; k++) {
        if (what.input[k] >= 0) continue;
        ks_map_scalar(&what, w->scalar, &w->room.middle);
        scalar[k] = w->scalar;
    }
    const size_t out_size = ks_dtype_size(what.out);
    for (int64_t at = 0; at < shape.count; at += KS_MAP_BLOCK) {
        const int64_t left = shape.count - at;
        const ks_map_range range = {at, left < KS_MAP_BLOCK ? left : KS_MAP_BLOCK};
        const void *some[KS_MAP_OPERANDS] = {NULL};
        for (int k = 0; k < what.operands; k++) {
            const int input = what.input[k];
            if (input >= 0)
                some[k] =
                    ks_map_elements(&shape, k, in[input], ks_dtype_size(spec->in[input].dtype), &range, w->gathered[k]);
        }
        ks_map_block(&what, some, scalar, (char *)out[0] + (size_t)at * out_size, (size_t)range.count, &w->room);
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
