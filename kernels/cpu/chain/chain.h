/* Chains on the CPU: a job's steps one behind the other, by oneDNN where it takes one, else by the reference.
 *
 * Memory   arena: values between steps; scratch: what the hungriest step needs.
 * Threads  a lane's; all memory is the caller's. */
#ifndef KS_CPU_CHAIN_H
#define KS_CPU_CHAIN_H

#include "kernserve/chain.h"

/* Tensors of a chain lie on cache lines, and maps of any datatypes are one pass. */
extern const ks_chain_means ks_cpu_chain_means;
/* Of the arena, with the readable bytes behind it; 0: there are no values between steps. */
size_t ks_cpu_chain_arena_bytes(const ks_program *program);
/* Chooses for each step. Returns the bytes of scratch. */
size_t ks_cpu_chain_prepare(ks_program *program);
/* What a run leaves beside its outputs. */
typedef struct ks_cpu_chain_note {
    int64_t *step_ns;  /* what each step took; NULL: not asked for */
    ks_bad_value *bad; /* of a run that is false */
} ks_cpu_chain_note;

typedef struct ks_cpu_chain_memory {
    unsigned char *arena;
    void *scratch;
} ks_cpu_chain_memory;

/* in, out: of the chain. false: values of a step that decide are out of bounds, and it and those behind it have not run. */
bool ks_cpu_chain_run(const ks_program *program, const void *const *in, void *const *out,
                      const ks_cpu_chain_memory *own, const ks_cpu_chain_note *note);

/* --- what rows.c shares ------------------------------------------------------------------------------------------- */

/* The tensors of a launch: addresses of the chain's own, and of its arena. */
typedef struct ks_cpu_chain_tensors {
    const void *const *in;
    void *const *out;
    unsigned char *arena;
} ks_cpu_chain_tensors;

/* Where a step reads and writes; what it does not have is left as it is. */
void ks_cpu_step_tensors(const ks_step *step, const ks_cpu_chain_tensors *m, const void **in, void **out);
/* Does the steps in their order, and notes what each took. false, as ks_cpu_chain_run: a step was. */
typedef bool ks_cpu_step_fn(void *context, const ks_step *step);
bool ks_cpu_chain_walk(const ks_program *program, ks_cpu_step_fn *run, void *context, int64_t *step_ns);

#endif
