/* Gather on the CPU: the reference. Slices and elements are moved here, bags in bags.c.
 *
 * Limits   an index that is out of bounds reads nothing, and its place in the output is 0: the backend has refused it before, or
 *          memory that others write to has changed since.
 * Threads  any; all memory is the caller's. */
#include "cpu/gather/gather.h"

#include <string.h>

#include "cpu/reference.h"
#include "ops/spec/places.h"

extern const ks_cpu_op ks_gather_cpu;

enum { AHEAD = 8, LINE_BYTES = 64, LINES_MOST = 4 }; /* slices asked for ahead; of each at most so many lines */

static int64_t slice_at(const ks_gather_task *t, int64_t i)
{
    return ks_gather_slice(ks_places_value(t->index_dtype, t->indices, i), t->shape.extent, t->shape.mode);
}

static void ask_for(const ks_gather_task *t, const unsigned char *part, int64_t i)
{
    if (i >= t->shape.count) return;
    const int64_t slice = slice_at(t, i);
    if (slice < 0) return;
    const unsigned char *at = part + (size_t)slice * t->shape.slice_bytes;
    for (size_t line = 0; line < LINES_MOST && line * LINE_BYTES < t->shape.slice_bytes; line++)
        __builtin_prefetch(at + line * LINE_BYTES);
}

static void move_slices(const ks_gather_task *t, const unsigned char *part, unsigned char *out)
{
    const size_t bytes = t->shape.slice_bytes;
    for (int64_t i = 0; i < t->shape.count; i++, out += bytes) {
        const int64_t slice = slice_at(t, i);
        ask_for(t, part, i + AHEAD);
        if (slice >= 0)
            memcpy(out, part + (size_t)slice * bytes, bytes);
        else
            memset(out, 0, bytes);
    }
}

/* Slices of one word, and elements: inner is then their distance along the axis, and each has an index of its own. */
#define MOVE_WORDS(name, type)                                                                                         \
    static void move_##name(const ks_gather_task *t, const unsigned char *part, unsigned char *out, int64_t at)        \
    {                                                                                                                  \
        const bool elements = t->shape.kind == KS_GATHER_ELEMENTS;                                                     \
        const int64_t inner = elements ? t->shape.inner : 1;                                                           \
        const type *from = (const type *)(const void *)part;                                                           \
        type *to = (type *)(void *)out;                                                                                \
        for (int64_t i = 0; i < t->shape.count; i++)                                                                   \
            for (int64_t j = 0; j < inner; j++) {                                                                      \
                const int64_t slice = slice_at(t, at + i * inner + j);                                                 \
                to[i * inner + j] = slice < 0 ? 0 : from[slice * inner + j];                                           \
            }                                                                                                          \
    }
MOVE_WORDS(1, uint8_t)
MOVE_WORDS(2, uint16_t)
MOVE_WORDS(4, uint32_t)
MOVE_WORDS(8, uint64_t)

/* Part o of the table to its part of the output. at: of its indices the first one. */
static void move_part(const ks_gather_task *t, int64_t o)
{
    const ks_gather_shape *s = &t->shape;
    const bool elements = s->kind == KS_GATHER_ELEMENTS;
    const unsigned char *part = t->table + (size_t)(o * s->extent) * s->slice_bytes;
    unsigned char *out = t->out + (size_t)(o * s->count) * s->slice_bytes;
    const int64_t at = elements ? o * s->count * s->inner : 0;
    switch (elements ? ks_dtype_size(t->dtype) : s->slice_bytes) {
    case 1:
        move_1(t, part, out, at);
        break;
    case 2:
        move_2(t, part, out, at);
        break;
    case 4:
        move_4(t, part, out, at);
        break;
    case 8:
        move_8(t, part, out, at);
        break;
    default:
        move_slices(t, part, out);
        break;
    }
}

/* ks_cpu_fn */
static void gather_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const ks_gather_task task = {.shape = ks_gather_shape_of(spec),
                                 .dtype = spec->in[KS_GATHER_TABLE].dtype,
                                 .index_dtype = spec->in[KS_GATHER_INDICES].dtype,
                                 .table = in[KS_GATHER_TABLE],
                                 .indices = in[KS_GATHER_INDICES],
                                 .out = out[0],
                                 .offsets = in[KS_GATHER_OFFSETS],
                                 .weights = in[KS_GATHER_WEIGHTS],
                                 .offset_dtype = spec->in[KS_GATHER_OFFSETS].dtype,
                                 .weight_dtype = spec->in[KS_GATHER_WEIGHTS].dtype};
    if (spec->out[0].size_bytes == 0) return;
    if (task.shape.bags >= 0)
        ks_gather_bags(&task);
    else
        for (int64_t o = 0; o < task.shape.outer; o++) move_part(&task, o);
}

const ks_cpu_op ks_gather_cpu = {.reference = gather_reference};
