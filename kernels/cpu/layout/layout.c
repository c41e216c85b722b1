/* Layout on the CPU: the reference. Boxes are copied by runs, or else by blocks whose lines stay in the cache on both sides.
 *
 * Owns     nothing.
 * Threads  any; all memory is the caller's. */
#include "ops/layout.h"

#include <string.h>

#include "cpu/fill.h"
#include "cpu/reference.h"

extern const ks_cpu_op ks_layout_cpu;

/* --- boxes ------------------------------------------------------------------------------------------------------------ */

/* Two axes of a box, in elements: `rows` of `columns`. */
typedef struct plane {
    int64_t rows, columns, row_from, row_to, from, to;
} plane;

enum { ACROSS_LEAST = 16 }; /* elements along either axis that are worth a block */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Lines across: each is read along its own direction into a block, and written from there along the other's. Backwards is
 * a loop of its own, whose stride the compiler knows. */
#define MOVE(name, type, block)                                                                                        \
    static void cross_##name(const plane *p, const type *from, type *to, int64_t height, int64_t width)                \
    {                                                                                                                  \
        __attribute__((uninitialized)) type lines[block][block];                                                       \
        for (int64_t j = 0; j < width; j++) memcpy(lines[j], from + j * p->from, (size_t)height * sizeof(type));       \
        for (int64_t i = 0; i < height; i++)                                                                           \
            _Pragma("GCC unroll 8") for (int64_t j = 0; j < width; j++) to[i * p->row_to + j] = lines[j][i];           \
    }                                                                                                                  \
    static void reverse_##name(const type *from, type *to, int64_t count)                                              \
    {                                                                                                                  \
        for (int64_t i = 0; i < count; i++) to[i] = from[-i];                                                          \
    }                                                                                                                  \
    static void move_##name(const plane *p, const void *from, void *to)                                                \
    {                                                                                                                  \
        const bool across = p->row_from == 1 && p->to == 1 && p->rows >= ACROSS_LEAST && p->columns >= ACROSS_LEAST,   \
                   backwards = p->from == -1 && p->to == 1;                                                            \
        const type *x = from;                                                                                          \
        type *y = to;                                                                                                  \
        if (across) {                                                                                                  \
            for (int64_t r = 0; r < p->rows; r += (block))                                                             \
                for (int64_t c = 0; c < p->columns; c += (block))                                                      \
                    cross_##name(p, x + r + c * p->from, y + r * p->row_to + c, least(p->rows - r, block),             \
                                 least(p->columns - c, block));                                                        \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t r = 0; r < p->rows; r++, x += p->row_from, y += p->row_to) {                                      \
            if (backwards)                                                                                             \
                reverse_##name(x, y, p->columns);                                                                      \
            else                                                                                                       \
                for (int64_t c = 0; c < p->columns; c++) y[c * p->to] = x[c * p->from];                                \
        }                                                                                                              \
    }
MOVE(1, uint8_t, 64)
MOVE(2, uint16_t, 64)
MOVE(4, uint32_t, 32)
MOVE(8, uint64_t, 32)

typedef struct task {
    ks_layout_copy copy;
    size_t size; /* of an element */
    plane plane; /* its last two axes */
} task;

static void move_plane(const task *t, const unsigned char *from, unsigned char *to)
{
    const plane *p = &t->plane;
    if (p->from == 1 && p->to == 1) {
        for (int64_t r = 0; r < p->rows; r++)
            memcpy(to + r * p->row_to * (int64_t)t->size, from + r * p->row_from * (int64_t)t->size,
                   (size_t)p->columns * t->size);
        return;
    }
    switch (t->size) {
    case 1:
        move_1(p, from, to);
        break;
    case 2:
        move_2(p, from, to);
        break;
    case 4:
        move_4(p, from, to);
        break;
    default:
        move_8(p, from, to);
        break;
    }
}

/* All indices of the axes from `axis` on; at most KS_RANK_MAX deep. */
static void move_axes(const task *t, int axis, const unsigned char *from, unsigned char *to)
{
    const ks_layout_copy *copy = &t->copy;
    if (axis >= copy->rank - 2) {
        move_plane(t, from, to);
        return;
    }
    for (int64_t i = 0; i < copy->extent[axis]; i++)
        move_axes(t, axis + 1, from + i * copy->from[axis] * (int64_t)t->size,
                  to + i * copy->to[axis] * (int64_t)t->size);
}

/* Where the output's lines are not the input's, the axis along which the input's lie stands beside the last one. */
static void choose_plane(task *t)
{
    ks_layout_copy *copy = &t->copy;
    const int last = copy->rank - 1;
    int beside = last - 1;
    if (copy->from[last] != 1)
        for (int i = 0; i < last; i++)
            if (copy->from[i] == 1) beside = i;
    if (beside < 0) {
        t->plane = (plane){1, copy->extent[0], 0, 0, copy->from[0], copy->to[0]};
        return;
    }
    t->plane = (plane){copy->extent[beside], copy->extent[last], copy->from[beside],
                       copy->to[beside],     copy->from[last],   copy->to[last]};
    for (int i = beside; i < last - 1; i++) {
        copy->extent[i] = copy->extent[i + 1];
        copy->from[i] = copy->from[i + 1];
        copy->to[i] = copy->to[i + 1];
    }
}

static void copy_box(const ks_spec *spec, int input, const unsigned char *from, unsigned char *to)
{
    task t = {.copy = ks_layout_copy_of(spec, input), .size = ks_dtype_size(spec->in[0].dtype)};
    if (spec->in[input].size_bytes == 0) return;
    choose_plane(&t);
    move_axes(&t, 0, from + t.copy.from_start * (int64_t)t.size, to + t.copy.to_start * (int64_t)t.size);
}

/* --- padding ---------------------------------------------------------------------------------------------------------- */

typedef struct padding {
    ks_layout_pad pad;
    size_t size, in_bytes[KS_RANK_MAX], out_bytes[KS_RANK_MAX]; /* of an element; of an index of each axis */
    int64_t out_count[KS_RANK_MAX];                             /* elements of one */
} padding;

/* What lies `away` indices outside, in front of the axis or behind it, of an axis that is written at out. */
static void pad_index(const padding *p, int axis, unsigned char *out, bool behind, int64_t away)
{
    const int64_t first = p->pad.before[axis], last = first + p->pad.extent[axis] - 1;
    const int64_t at = behind ? last + away : first - away;
    const int64_t inward = p->pad.mode == KS_LAYOUT_REFLECT ? away : 0;
    const size_t bytes = p->out_bytes[axis];
    if (p->pad.mode == KS_LAYOUT_CONSTANT)
        ks_cpu_fill(out + (size_t)at * bytes, p->size, p->pad.fill, p->out_count[axis]);
    else
        memcpy(out + (size_t)at * bytes, out + (size_t)(behind ? last - inward : first + inward) * bytes, bytes);
}

/* The last axis of many rows, whose border is constant: each is a few moves, so none of them is a call where it can be helped. */
#define PAD_ROWS(name, type)                                                                                           \
    static void name(const padding *p, const unsigned char *in, unsigned char *out, int64_t rows)                      \
    {                                                                                                                  \
        const int last = p->pad.rank - 1;                                                                              \
        const int64_t before = p->pad.before[last], extent = p->pad.extent[last], after = p->pad.after[last];          \
        const type *from = (const type *)(const void *)in;                                                             \
        type *to = (type *)(void *)out, fill;                                                                          \
        fill = (type)p->pad.fill;                                                                                      \
        for (int64_t r = 0; r < rows; r++, from += extent, to += before + extent + after) {                            \
            for (int64_t i = 0; i < before; i++) to[i] = fill;                                                         \
            if (extent > FEW)                                                                                          \
                memcpy(to + before, from, (size_t)extent * sizeof *to);                                                \
            else                                                                                                       \
                for (int64_t i = 0; i < extent; i++) to[before + i] = from[i];                                         \
            for (int64_t i = 0; i < after; i++) to[before + extent + i] = fill;                                        \
        }                                                                                                              \
    }
enum { FEW = 16 /* elements that a loop moves sooner than a call */ };
PAD_ROWS(pad_rows_1, uint8_t)
PAD_ROWS(pad_rows_2, uint16_t)
PAD_ROWS(pad_rows_4, uint32_t)
PAD_ROWS(pad_rows_8, uint64_t)

static void pad_rows(const padding *p, const unsigned char *in, unsigned char *out, int64_t rows)
{
    (p->size == 1 ? pad_rows_1 : p->size == 2 ? pad_rows_2 : p->size == 4 ? pad_rows_4 : pad_rows_8)(p, in, out, rows);
}

/* The axes from `axis` on, at one index of those in front; at most KS_RANK_MAX deep. */
static void pad_axes(const padding *p, int axis, const unsigned char *in, unsigned char *out)
{
    const ks_layout_pad *pad = &p->pad;
    unsigned char *const first = out + (size_t)pad->before[axis] * p->out_bytes[axis];
    if (axis == pad->rank - 2 && pad->mode == KS_LAYOUT_CONSTANT)
        pad_rows(p, in, first, pad->extent[axis]);
    else if (axis == pad->rank - 1)
        memcpy(first, in, (size_t)pad->extent[axis] * p->size);
    else
        for (int64_t i = 0; i < pad->extent[axis]; i++)
            pad_axes(p, axis + 1, in + (size_t)i * p->in_bytes[axis], first + (size_t)i * p->out_bytes[axis]);
    for (int64_t i = 1; i <= pad->before[axis]; i++) pad_index(p, axis, out, false, i);
    for (int64_t i = 1; i <= pad->after[axis]; i++) pad_index(p, axis, out, true, i);
}

static void pad_all(const ks_spec *spec, const unsigned char *in, unsigned char *out)
{
    padding p = {.pad = ks_layout_pad_of(spec), .size = ks_dtype_size(spec->in[0].dtype)};
    size_t in_bytes = p.size;
    int64_t out_count = 1;
    for (int axis = p.pad.rank - 1; axis >= 0; axis--) {
        p.in_bytes[axis] = in_bytes;
        p.out_count[axis] = out_count;
        p.out_bytes[axis] = (size_t)out_count * p.size;
        in_bytes *= (size_t)p.pad.extent[axis];
        out_count *= p.pad.before[axis] + p.pad.extent[axis] + p.pad.after[axis];
    }
    if (in_bytes == 0)
        ks_cpu_fill(out, p.size, p.pad.fill, out_count);
    else
        pad_axes(&p, 0, in, out);
}

/* ks_cpu_fn */
static void layout_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    if (spec->out[0].size_bytes == 0) return;
    if (spec->params[KS_LAYOUT_OP].i == KS_LAYOUT_PAD)
        pad_all(spec, in[0], out[0]);
    else
        for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) copy_box(spec, i, in[i], out[0]);
}

const ks_cpu_op ks_layout_cpu = {.reference = layout_reference};
