/* Softmax on the CPU: the reference.
 *
 * Numbers  FP32, FP16 and BF16 compute in float and sum in double; FP64 is double throughout. z - max z is taken as
 *          scale * (x - x of the maximum), so that a large scale does not round first and cannot overflow.
 * Threads  any; all memory is the caller's. */
#include "cpu/softmax/softmax.h"
#include "cpu/reference.h"
#include "cpu/simd.h"

#include <math.h>

/* ks_cpu_fn */
static void softmax_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    const ks_tensor *x = &spec->in[0];
    const int axis = (int)spec->params[KS_SOFTMAX_AXIS].i;
    const ks_softmax_shape shape = {.outer = ks_dims_product(x->dims, 0, axis),
                                    .length = x->dims[axis],
                                    .inner = ks_dims_product(x->dims, axis + 1, x->rank)};
    if (ks_tensor_count(x) == 0) return;
    if (ks_softmax_selects(spec)) {
        ks_softmax_masked(spec, &shape, in, out[0], scratch);
        return;
    }
    const double scale = spec->params[KS_SOFTMAX_SCALE].d;
    const ks_softmax_rule r = {.dtype = x->dtype,
                               .log = spec->params[KS_SOFTMAX_LOG].i != 0,
                               .half = scale < 0 ? -0.5f : 0.5f,
                               .twice_scale = (float)(2 * fabs(scale)),
                               .factor = (float)(2 * fabs(scale) * KS_LOG2_E),
                               .scale = fabs(scale)};
    if (x->dtype == KS_FP64)
        ks_softmax_double(&r, &shape, in[0], out[0], scratch);
    else
        ks_softmax_floats(&r, &shape, in[0], out[0], scratch);
}

static size_t softmax_scratch(const ks_spec *spec)
{
    if (ks_softmax_selects(spec)) return ks_softmax_masked_scratch();
    return spec->in[0].dtype == KS_FP64 ? ks_softmax_double_scratch() : ks_softmax_floats_scratch();
}

const ks_cpu_op ks_softmax_cpu = {.reference = softmax_reference, .scratch_bytes = softmax_scratch};
