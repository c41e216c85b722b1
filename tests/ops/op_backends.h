/* The harnesses of an operation's test, one for each backend that this machine has. The includer has ARENA_BYTES before it. */
#ifndef KS_OP_BACKENDS_H
#define KS_OP_BACKENDS_H
#include <stdio.h>

#include "ops/op_harness.h"

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

#endif
