/* What plan.cu chooses and search.cu launches: an algorithm of a plan. */
#ifndef KS_SEARCH_PLAN_H
#define KS_SEARCH_PLAN_H

#include "cuda/op.h"
#include "cuda/search/common.cuh"

/* No bit of an answer follows from it. */
struct search_algorithm {
    int16_t threads, queries; /* queries: that the instance is made for; the group may be smaller */
    int32_t group, parts, places;
    int32_t shared_bytes, merge_shared_bytes; /* dynamic */
    int64_t part, first, grid;                /* first: rows of each part that leave all their items */
};
static_assert(sizeof(search_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

struct search_launch {
    search_algorithm c;
    search_shape s;
    ks_dtype dtype;
    ks_site site;
    int bucket;
    cudaStream_t stream;
};

/* ks_cuda_plan_fn */
ks_status search_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
ks_status search_join(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
/* Of a spec that has been planned, or of a family's with fewer queries. */
search_algorithm search_algorithm_of(const ks_chip *chip, const ks_spec *spec);
search_launch search_launch_of(const ks_spec *spec, const search_algorithm &c);

/* fp32.cu, fp16.cu and bf16.cu, which build side by side: elements of those datatypes. */
cudaError_t search_go_fp32(const search_launch &go);
cudaError_t search_go_fp16(const search_launch &go);
cudaError_t search_go_bf16(const search_launch &go);
/* Their kernels may take so much shared memory. */
cudaError_t search_allow_fp32(int shared_bytes);
cudaError_t search_allow_fp16(int shared_bytes);
cudaError_t search_allow_bf16(int shared_bytes);

#endif
