/* Chains on the GPU: what their steps need of a lane, and how they are enqueued. */
#ifndef KS_CUDA_BACKEND_CHAIN_H
#define KS_CUDA_BACKEND_CHAIN_H

#include "cuda/backend/internal.h"
#include "kernserve/chain.h"

/* cuBLASLt counts on KS_ALIGNMENT. */
extern const ks_chain_means ks_cuda_chain_means;
/* Of the lane's model arena, with the readable bytes behind it; 0: its program has no values between steps. */
size_t ks_cuda_chain_arena_bytes(const ks_program *program);
/* Plans each step, and fills the chain's own plan. KS_WORK: a step, or the arena, does not fit the device; of a family's plan
 * (ks_plan.join_rows): its rows are not joined. */
ks_status ks_cuda_chain_plan(ks_device *device, ks_plan *plan, ks_cuda_plan *out, ks_error *error);
/* Enqueues all steps. spec: the plan's, or the same with its tensors elsewhere; fixed ones lie where they are; of a family's plan one of
 * ks_cuda_chain_spec_of. */
ks_status ks_cuda_chain_record(ks_lane *lane, const ks_plan *plan, const ks_spec *spec, const ks_site *site,
                               ks_error *error);
/* Where a step of a launch on that site of the lane reads an input, as long as no other launch has used it. */
const unsigned char *ks_cuda_chain_input(const ks_lane *lane, const ks_spec *spec, const ks_site *site,
                                         const ks_step *step, int input);
/* --- chain_rows.cu: a family's plan ---- */

/* A launch of jobs that have so many rows does so many. */
int ks_cuda_chain_rows(const ks_plan *plan, int rows);
/* The spec of such a launch: its tensors lie where the plan's do. */
void ks_cuda_chain_spec_of(const ks_plan *plan, int rows, ks_spec *out);
/* Plans a step with an op. KS_WORK: its rows are not joined. */
ks_status ks_cuda_chain_join_step(const ks_chip *chip, ks_step *step, int family_rows, ks_cuda_plan *chosen,
                                  ks_error *error);
bool ks_cuda_chain_has_products(const ks_program *program); /* of rows: what makes joining worth while */
/* What the step does of such a launch; of other plans its spec. room: memory for it. */
const ks_spec *ks_cuda_chain_step_spec(const ks_plan *plan, const ks_step *step, int rows, ks_spec *room);

/* --- chain.cu ---- */

/* Whether the launch behind the last step, which waits, may begin while that runs: then site.steps says so. */
bool ks_cuda_chain_lets(const ks_lane *lane, const ks_program *program);
/* The lane's batch is done: what each step took, where that was asked for. */
void ks_cuda_chain_times(const ks_lane *lane, ks_batch *batch);

#endif
