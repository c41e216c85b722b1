/* Chains on the CPU: a job's steps one behind the other, by oneDNN where it takes one, else by the reference.
 *
 * Memory   scratch: the arena, then what the hungriest step needs.
 * Threads  a lane's; all memory is the caller's. */
#ifndef KS_CPU_CHAIN_H
#define KS_CPU_CHAIN_H

#include "kernserve/chain.h"

/* Chooses for each step. Returns the bytes of scratch. */
size_t ks_cpu_chain_prepare(ks_program *program);
/* in, out: of the chain. step_ns, or NULL: what each step took. */
void ks_cpu_chain_run(const ks_program *program, const void *const *in, void *const *out, void *scratch,
                      int64_t *step_ns);

#endif
