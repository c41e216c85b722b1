/* What plan.cu chooses and norm.cu launches: an algorithm of a plan. */
#ifndef KS_NORM_PLAN_H
#define KS_NORM_PLAN_H

#include "cuda/norm/common.cuh"
#include "cuda/op.h"
#include "ops/norm.h"

enum norm_family { NORM_ROW_SUBWARP, NORM_ROW_BLOCK, NORM_ROW_SHIFTED, NORM_ROW_ANY, NORM_PIECES };

/* Bits of a row follow from it and the datatypes; how many CTAs there are is settled at the launch, by norm_launch_of. */
struct norm_algorithm {
    int8_t family, packs, rows; /* packs in a thread, rows of a thread: template choices */
    int8_t shift;               /* row_subwarp: threads of a row, their logarithm */
    int8_t cluster;             /* CTAs of a row */
    int8_t mixed;               /* weight, bias and pre_bias are FP32, x is not */
    int8_t vector, held;        /* row_any, pieces: elements come in vectors; a row stays in registers */
    int8_t ctas;                /* on an SM */
    int16_t threads, width;     /* row_any: threads of a row */
    int32_t share, pieces;      /* packs of a CTA; pieces of a row */
    int32_t pipeline_bytes;     /* row_block, row_shifted: of shared memory; 0: none */
    int64_t piece;              /* elements */
};
static_assert(sizeof(norm_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

/* A launch. */
struct norm_launch {
    norm_algorithm c;
    norm_shape s;
    ks_dtype dtype;
    int64_t grid;
    int stages; /* 0: rows go straight to the registers */
    size_t shared_bytes;
    ks_site site;
    int bucket;
    cudaStream_t stream;
};

norm_shape norm_shape_of(const ks_spec *spec);
/* Of an algorithm: as many CTAs as the rows need and the chip holds. */
norm_launch norm_launch_of(const ks_chip *chip, const ks_spec *spec, const norm_algorithm &c);
/* ks_cuda_plan_fn */
ks_status norm_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);

/* norm.cu */
cudaError_t norm_go(const norm_launch &go);
/* fp16.cu and so on, which build side by side: x of that datatype. */
cudaError_t norm_go_fp16(const norm_launch &go);
cudaError_t norm_go_bf16(const norm_launch &go);
cudaError_t norm_go_fp32(const norm_launch &go);
cudaError_t norm_go_fp64(const norm_launch &go);
/* Kernels of rows in a pipeline may take so much shared memory. */
cudaError_t norm_allow_fp16(int shared_bytes);
cudaError_t norm_allow_bf16(int shared_bytes);
cudaError_t norm_allow_fp32(int shared_bytes);
cudaError_t norm_allow_fp64(int shared_bytes);

#endif
