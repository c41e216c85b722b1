/* Norms on the CPU: the reference.
 *
 * Numbers  FP32, FP16 and BF16 compute in float, and sum in double; FP64 is double throughout.
 * Threads  any; all memory is the caller's. */
#include "cpu/norm/norm.h"
#include "cpu/reference.h"

extern const ks_cpu_op ks_norm_cpu;

/* ks_cpu_fn */
static void norm_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    ks_norm_task task = {.shape = ks_norm_shape_of(spec), .out = out[0], .out_dtype = spec->out[0].dtype, .sum = NULL};
    if (spec->outputs > 1) task.sum = out[1];
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        task.in[i] = (ks_norm_operand){in[i], spec->in[i].dtype};
    if (spec->in[KS_NORM_X].dtype == KS_FP64)
        ks_norm_double(&task);
    else
        ks_norm_floats(&task, scratch);
}

static size_t norm_scratch(const ks_spec *spec)
{
    const ks_norm_shape shape = ks_norm_shape_of(spec);
    return spec->in[KS_NORM_X].dtype == KS_FP64 ? 0 : ks_norm_floats_scratch(&shape);
}

const ks_cpu_op ks_norm_cpu = {.reference = norm_reference, .scratch_bytes = norm_scratch};
