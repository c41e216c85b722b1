/* What plan.cu chooses and attention.cu launches: an algorithm of a plan. */
#ifndef KS_ATTENTION_PLAN_H
#define KS_ATTENTION_PLAN_H

#include "cuda/attention/common.cuh"
#include "cuda/op.h"

/* Splits and blocks are fixed by the shape of one batch, so that its bits follow from it alone; the rest changes none. */
struct attention_algorithm {
    int64_t part, units, grid; /* units: of a launch */
    int64_t together;          /* likewise, whose tiles are mixed */
    int32_t splits, tile, columns, stages, shared_bytes;
    bool apart, wgmma, joins; /* joins: no launch of its own merges splits */
};
static_assert(sizeof(attention_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

enum {
    ATTENTION_STATIC_BYTES = 1 << 10
}; /* of shared memory, what a kernel and the system have besides the dynamic part */

struct attention_launch {
    attention_algorithm c;
    attention_shape a;
    attention_maps maps; /* of wgmma */
    ks_site site;
    int bucket;
    cudaStream_t stream;
};

/* ks_cuda_plan_fn */
ks_status attention_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
attention_launch attention_launch_of(const ks_spec *spec, const attention_algorithm &c);

/* fp32.cu, fp16.cu and bf16.cu, which build side by side: elements of those datatypes. */
cudaError_t attention_go_fp32(const attention_launch &go);
cudaError_t attention_go_fp16(const attention_launch &go);
cudaError_t attention_go_bf16(const attention_launch &go);
cudaError_t attention_merge_fp32(const attention_launch &go);
cudaError_t attention_merge_fp16(const attention_launch &go);
cudaError_t attention_merge_bf16(const attention_launch &go);
/* Their kernels may take so much shared memory. */
cudaError_t attention_allow_fp32(int shared_bytes);
cudaError_t attention_allow_fp16(int shared_bytes);
cudaError_t attention_allow_bf16(int shared_bytes);

#endif
