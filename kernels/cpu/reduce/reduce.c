/* Reductions on the CPU: the reference. Everything is accumulated in double or in 64-bit integers and rounded once. A segment is a
 * reduction of its own, so that its bits are those that it has alone.
 * Threads  any; all memory is the caller's. */
#include "cpu/reduce/reduce.h"
#include "cpu/reference.h"
#include "ops/spec/places.h"

static void reduce_whole(const ks_spec *spec, const void *in, void *out, void *scratch)
{
    if (!ks_reduce_floats(spec, in, out, scratch)) ks_reduce_lanes(spec, in, out, scratch);
}

/* The work of one segment, but for its length: lines along axis 0. */
static ks_spec spec_of_segment(const ks_spec *spec, int64_t inner)
{
    ks_spec one;
    ks_spec_copy(&one, spec);
    one.given = 1u << KS_REDUCE_X;
    one.params[AXIS].axes = (ks_axes){.count = 1};
    one.in[KS_REDUCE_X] = (ks_tensor){.dtype = spec->in[KS_REDUCE_X].dtype, .rank = 2, .dims = {0, inner}};
    one.out[0] = (ks_tensor){.dtype = spec->out[0].dtype, .rank = 1, .dims = {inner}};
    return one;
}

static void reduce_segments(const ks_spec *spec, const void *const *in, void *out, void *scratch)
{
    const ks_segments s = ks_reduce_segments_of(spec);
    const ks_dtype offsets = spec->in[KS_REDUCE_SEGMENTS].dtype;
    const bool places =
        spec->out[0].dtype == KS_INT64 && (spec->params[OP].i == ARGMAX || spec->params[OP].i == ARGMIN);
    const size_t line = (size_t)s.inner * ks_dtype_size(spec->in[KS_REDUCE_X].dtype);
    const size_t results = (size_t)s.inner * ks_dtype_size(spec->out[0].dtype);
    ks_spec one = spec_of_segment(spec, s.inner);
    char *to = out;
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < s.count; i++, to += results) {
            const int64_t begin = ks_places_value(offsets, in[KS_REDUCE_SEGMENTS], i);
            one.in[KS_REDUCE_X].dims[0] = ks_places_value(offsets, in[KS_REDUCE_SEGMENTS], i + 1) - begin;
            reduce_whole(&one, (const char *)in[KS_REDUCE_X] + (size_t)(o * s.extent + begin) * line, to, scratch);
            for (int64_t c = 0; places && c < s.inner; c++) ((int64_t *)(void *)to)[c] += begin;
        }
}

/* ks_cpu_fn */
static void reduce_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    if (ks_tensor_count(&spec->out[0]) == 0) return;
    if (ks_reduce_has_segments(spec))
        reduce_segments(spec, in, out[0], scratch);
    else
        reduce_whole(spec, in[0], out[0], scratch);
}

static size_t reduce_scratch(const ks_spec *spec)
{
    (void)spec;
    const size_t lanes = ks_reduce_lanes_scratch(), floats = ks_reduce_floats_scratch();
    return lanes > floats ? lanes : floats;
}

const ks_cpu_op ks_reduce_cpu = {.reference = reduce_reference, .scratch_bytes = reduce_scratch};
