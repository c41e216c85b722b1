/* What plan.cu chooses and topk.cu launches: an algorithm of a plan. */
#ifndef KS_TOPK_PLAN_H
#define KS_TOPK_PLAN_H

#include "cuda/op.h"
#include "cuda/topk/common.cuh"

enum topk_family { TOPK_WARP, TOPK_BLOCK };

/* No bit of an answer follows from it. */
struct topk_algorithm {
    int8_t family, strided;
    int8_t counted; /* row_block: rows are counted first; two launches where a row has several parts */
    int16_t threads;
    int32_t places;       /* row_warp: items of a warp */
    int32_t parts;        /* row_block: of a row */
    int32_t slack;        /* row_block: items that are kept before they are pruned */
    int32_t shared_bytes; /* dynamic */
    int64_t part;         /* row_block: vectors, or elements, of a part */
    int64_t grid;
};
static_assert(sizeof(topk_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

struct topk_launch {
    topk_algorithm c;
    topk_shape s;
    ks_dtype dtype;
    ks_site site;
    int bucket;
    cudaStream_t stream;
};

/* ks_cuda_plan_fn */
ks_status topk_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
topk_launch topk_launch_of(const ks_spec *spec, const topk_algorithm &c);

/* integers.cu, floats.cu and wide.cu, which build side by side: elements of those datatypes. */
cudaError_t topk_go_integers(const topk_launch &go); /* of 8, 16 and 32 bits */
cudaError_t topk_go_floats(const topk_launch &go);   /* of 16 and 32 bits */
cudaError_t topk_go_wide(const topk_launch &go);     /* of 64 bits */
/* Their kernels may take so much shared memory. */
cudaError_t topk_allow_integers(int shared_bytes);
cudaError_t topk_allow_floats(int shared_bytes);
cudaError_t topk_allow_wide(int shared_bytes);

#endif
