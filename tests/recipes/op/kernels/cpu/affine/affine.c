/* Affine on the CPU: the reference.
 * Threads  any; all memory is the caller's. */
#include "cpu/reference.h"

#include <math.h>

extern const ks_cpu_op ks_affine_cpu;

/* ks_cpu_fn */
static void affine_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    const int64_t count = ks_tensor_count(&spec->in[0]);
    const float scale = (float)spec->params[0].d, shift = (float)spec->params[1].d;
    const float *x = in[0];
    float *y = out[0];
    (void)scratch;
    for (int64_t i = 0; i < count; i++) y[i] = fmaf(scale, x[i], shift);
}

const ks_cpu_op ks_affine_cpu = {.reference = affine_reference};
