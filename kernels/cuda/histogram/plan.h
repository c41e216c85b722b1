/* What plan.cu chooses and histogram.cu launches. */
#ifndef KS_HISTOGRAM_PLAN_H
#define KS_HISTOGRAM_PLAN_H

#include "cuda/histogram/shape.cuh"
#include "cuda/op.h"

/* What a plan remembers. No bit of an answer follows from it. */
struct histogram_algorithm {
    bool shared; /* counters in shared memory; else in the output */
    bool meets;  /* parts are a cluster */
    int16_t threads;
    int32_t copies, parts, grid;
    int64_t part;
};
static_assert(sizeof(histogram_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

struct histogram_launch {
    histogram_algorithm c;
    histogram_shape s;
    ks_dtype dtype;
    ks_site site;
    int bucket;
    cudaStream_t stream;
    size_t shared_bytes; /* dynamic */
};

/* ks_cuda_plan_fn */
ks_status histogram_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
histogram_launch histogram_launch_of(const ks_spec *spec, const histogram_algorithm &c);

/* count.cu: the kernel that counts. */
cudaError_t histogram_count(const histogram_launch &go);
/* Its kernels may take so much shared memory. */
cudaError_t histogram_allow(int shared_bytes);

#endif
