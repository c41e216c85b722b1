/* What plan.cu chooses and scan.cu launches. */
#ifndef KS_SCAN_PLAN_H
#define KS_SCAN_PLAN_H

#include "cuda/op.h"
#include "cuda/scan/shape.cuh"

enum scan_kind {
    SCAN_WARP,  /* scan_warp: tiles of a warp */
    SCAN_BLOCK, /* scan_block: of a CTA */
    SCAN_ROW,   /* scan_row */
    SCAN_COLUMN /* scan_column */
};

/* What a plan remembers. */
struct scan_algorithm {
    int8_t kind;    /* enum scan_kind */
    int8_t columns; /* of a tile */
    int8_t run;     /* steps of a thread */
    bool carries;   /* tiles of a chain at once, whose CTAs look back */
    int32_t threads;
    int32_t grid;
    int32_t tiles; /* of a chain in a launch, at most */
};
static_assert(sizeof(scan_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

struct scan_launch {
    scan_algorithm c;
    scan_shape s;
    ks_scan_op op;
    ks_dtype dtype;
    ks_site site;
    int bucket;
    cudaStream_t stream;
    int64_t tiles;       /* of a chain, in all launches */
    size_t shared_bytes; /* dynamic */
};

/* ks_cuda_plan_fn */
ks_status scan_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
scan_launch scan_launch_of(const ks_spec *spec, const scan_algorithm &c);

/* sum.cu, prod.cu, extreme.cu and logsumexp.cu, which build side by side. */
cudaError_t scan_go_sum(const scan_launch &go);
cudaError_t scan_go_prod(const scan_launch &go);
cudaError_t scan_go_extreme(const scan_launch &go);
cudaError_t scan_go_logsumexp(const scan_launch &go);

#endif
