/* The harnesses of an operation's test, one for each backend that this machine has, and runs in them. The includer has ARENA_BYTES and
 * cmocka.h before it. */
#ifndef KS_OP_BACKENDS_H
#define KS_OP_BACKENDS_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/reference.h"
#include "ops/op_harness.h"
#include "ops/op_values.h"

static op_harness *harnesses[2]; /* the CPU's; CUDA's, or NULL */

static int open_harnesses(void **state)
{
    (void)state;
    harnesses[0] = op_harness_open(ks_backend_cpu, ARENA_BYTES);
    harnesses[1] = ks_backend_cuda ? op_harness_open(ks_backend_cuda, ARENA_BYTES) : NULL;
    if (!harnesses[1]) printf("skip: no CUDA device, the CUDA kernels are not run\n");
    return harnesses[0] ? 0 : -1;
}

static int close_harnesses(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++)
        if (harnesses[b]) op_harness_close(&harnesses[b]);
    return 0;
}

/* out: the outputs at their offsets, 0xFF where nothing is written. */
static inline void op_reference(const ks_spec *spec, const void *const *in, void *out)
{
    void *outputs[KS_OUTPUTS_MAX] = {NULL}, *scratch = malloc(ks_cpu_scratch_bytes(spec) + 1);
    assert_non_null(scratch);
    memset(out, 0xFF, ks_spec_out_bytes(spec));
    for (int i = 0; i < spec->outputs; i++) outputs[i] = (unsigned char *)out + spec->out[i].offset;
    ks_cpu_reference(spec, in, outputs, scratch);
    free(scratch);
}

/* By a path, in so many copies, captured or not, as drawn. */
static inline ks_status op_run(int b, const ks_spec *spec, const void *const *in, void *out, unsigned fixed,
                               ks_error *error)
{
    const op_path path = (op_path)values_below(3);
    const int copies = values_below(3) ? 1 : 1 + values_below(9);
    *error = (ks_error){0};
    op_harness_fix(harnesses[b], fixed);
    const ks_status status = op_harness_run(harnesses[b], spec, in, out, path, copies, values_below(2), error);
    op_harness_fix(harnesses[b], 0);
    return status;
}

/* Some of the inputs that the spec has, now and then. */
static inline unsigned op_drawn_inputs(const ks_spec *spec)
{
    return values_below(4) == 0 ? (unsigned)values_next() & spec->given : 0;
}

#endif
