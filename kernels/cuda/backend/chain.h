/* Chains on the GPU: what their steps need of a lane, and how they are enqueued. */
#ifndef KS_CUDA_BACKEND_CHAIN_H
#define KS_CUDA_BACKEND_CHAIN_H

#include "cuda/backend/internal.h"
#include "kernserve/chain.h"

/* Of the lane's model arena, with the readable bytes behind it; 0: its program has no values between steps. */
size_t ks_cuda_chain_arena_bytes(const ks_program *program);
/* Plans each step, and fills the chain's own plan. KS_WORK: a step, or the arena, does not fit the device. */
ks_status ks_cuda_chain_plan(ks_device *device, ks_plan *plan, ks_cuda_plan *out, ks_error *error);
/* Enqueues all steps. spec: the plan's, or the same with its tensors elsewhere; fixed ones lie where they are. */
ks_status ks_cuda_chain_record(ks_lane *lane, const ks_plan *plan, const ks_spec *spec, const ks_site *site,
                               ks_error *error);
/* Where a step of a launch on that site of the lane reads an input, as long as no other launch has used it. */
const unsigned char *ks_cuda_chain_input(const ks_lane *lane, const ks_spec *spec, const ks_site *site,
                                         const ks_step *step, int input);
/* The lane's batch is done: what each step took, where that was asked for. */
void ks_cuda_chain_times(const ks_lane *lane, ks_batch *batch);

#endif
