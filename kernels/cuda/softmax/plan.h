/* What softmax.cu launches, and what plan.cu chooses: an algorithm of a plan. Shapes come by softmax_shape_of alone. */
#ifndef KS_SOFTMAX_PLAN_H
#define KS_SOFTMAX_PLAN_H
#include "cuda/op.h"
#include "cuda/softmax/common.cuh"

enum softmax_kind {
    ROW_ELEMENTS,
    ROW_SUBWARP,
    ROW_IN_VECTOR,
    ROW_WARP_UNALIGNED,
    ROWS_SMEM,
    ROW_BLOCK_REGISTERS,
    ROW_MULTIBLOCK_PIPELINED,
    ROW_MULTIBLOCK_REGISTERS,
    ROW_GRID,
    COLUMN_BLOCK_REGISTERS,
    COLUMN_CLUSTER,
    COLUMN_MULTIBLOCK_PIPELINED,
    COLUMN_MULTIBLOCK_SMEM
};
enum {
    IN_VECTOR_VECTORS = 4, /* of a thread of row_in_vector */
    STATIC_BYTES =
        2 << 10, /* at least what a kernel of CTA groups has besides, with what the system takes of each CTA */
    ROW_PIPELINE_STATIC = 6 << 10 /* the same of row_multiblock_pipelined */
};

struct softmax_algorithm {
    int8_t kind, packs, rows; /* packs in a thread, rows of a thread: template choices */
    int8_t shift;             /* threads of a row, their logarithm */
    int8_t pack;              /* elements of a pack */
    int8_t beyond;            /* column_multiblock_smem: a part is larger than what is kept */
    int16_t threads, lanes, parts, kept;
    int32_t blocks, shared;
    int64_t grid, share;
};
static_assert(sizeof(softmax_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

softmax_shape softmax_shape_of(const ks_spec *spec);
/* ks_cuda_plan_fn */
ks_status softmax_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
#endif
