/* Products of 8 bits on the GPU: what matmul.cu asks for where the operands are INT8 or FP8. */
#ifndef KS_MATMUL_NARROW_H
#define KS_MATMUL_NARROW_H

#include "cuda/op.h"
#include "ops/matmul.h"

enum { NARROW_DEPTH = 64 /* values of K of a stage */, NARROW_PITCH = NARROW_DEPTH + 16 /* bytes of a row of it */ };

/* How an operand lies: along K or across it in steps of 16 or 4 bytes, else in any way. */
typedef enum narrow_layout { NARROW_ALONG, NARROW_ACROSS, NARROW_ANY } narrow_layout;

/* What a plan remembers; marked as none of the tables' kernels. The bits of an FP8 product follow from the slices. */
struct narrow_algorithm {
    uint8_t mark, wide; /* wide: tiles of 128 x 128; else 64 x 64 */
    int16_t splits;     /* slices of K, which a second launch adds in order */
    int32_t grid;
    int64_t slice; /* values of K */
};

/* An operand, as rows that are multiplied along K. */
struct narrow_operand {
    uint64_t at;              /* bytes from a job's `in` side */
    int64_t rows, row, along; /* rows; elements from row to row, and from one value of K to the next */
    int64_t step[KS_MATMUL_BATCH_RANK];
    int64_t matrix;  /* elements from one matrix to the next */
    uint64_t scales; /* bytes from the `in` side */
    int32_t layout;
    bool scaled, each, e5m2; /* INPUT3 or INPUT4 is there, with a scale for each row; FP8E5M2 */
};

/* By value to each kernel. */
struct narrow_args {
    narrow_operand a, b;
    int64_t k, slice, batch, tiles_m, tiles_n;
    int64_t batch_dims[KS_MATMUL_BATCH_RANK];
    int64_t counts[2]; /* of scales */
    uint64_t bias, c;
    int32_t batch_rank, splits, activation, out;
    float alpha;
    bool biased;
};

/* ks_cuda_plan_fn, ks_cuda_launch_fn */
ks_status narrow_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
ks_status narrow_launch(const ks_spec *spec, const void *algorithm, ks_site site, int bucket, cudaStream_t stream,
                        ks_error *error);

#endif
