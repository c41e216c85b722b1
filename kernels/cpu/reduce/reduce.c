/* Reductions on the CPU: the reference. Everything is accumulated in double or in 64-bit integers and rounded once.
 * Threads  any; all memory is the caller's. */
#include "cpu/reduce/reduce.h"
#include "cpu/reference.h"

/* ks_cpu_fn */
static void reduce_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    if (ks_tensor_count(&spec->out[0]) == 0) return;
    if (!ks_reduce_floats(spec, in[0], out[0], scratch)) ks_reduce_lanes(spec, in[0], out[0], scratch);
}

static size_t reduce_scratch(const ks_spec *spec)
{
    (void)spec;
    const size_t lanes = ks_reduce_lanes_scratch(), floats = ks_reduce_floats_scratch();
    return lanes > floats ? lanes : floats;
}

const ks_cpu_op ks_reduce_cpu = {.reference = reduce_reference, .scratch_bytes = reduce_scratch};
