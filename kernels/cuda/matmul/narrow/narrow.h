/* Products of 8 bits on the GPU: what matmul.cu asks for where the operands are INT8 or FP8. */
#ifndef KS_MATMUL_NARROW_H
#define KS_MATMUL_NARROW_H

#include "cuda/op.h"
#include "ops/matmul.h"

enum { NARROW_DEPTH = 64 /* values of K of a stage */, NARROW_PITCH = NARROW_DEPTH + 16 /* bytes of a row of it */ };

/* How an operand lies: along K in steps of 16 bytes, across it, else in any way. */
typedef enum narrow_layout { NARROW_ALONG, NARROW_ACROSS, NARROW_ANY } narrow_layout;

/* What a plan remembers; marked as none of the tables' kernels. The bits of an FP8 product follow from the slices, and from what multiplies. */
struct narrow_algorithm {
    uint8_t mark, wide; /* wide: tiles of 128 x 128; else 64 x 64 */
    int16_t splits;     /* slices of K, which a second launch adds in order */
    int32_t grid;
    int64_t slice;  /* values of K */
    int32_t wgmma;  /* 0: another kernel; else a row of wgmma.cu, plus 1 */
    int32_t strip;  /* 0, or the rows of strip.cuh's kernel */
    int32_t direct; /* 0, or the warps that share a slab of direct.cuh's kernel; all 0: tile.cuh's */
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
    bool words;              /* across K: four rows from a fourth one on are an aligned word */
};

/* By value to each kernel. */
struct narrow_args {
    narrow_operand a, b;
    int64_t k, slice, batch, tiles_m, tiles_n;
    int64_t line; /* elements from one row of the output to the next */
    int64_t batch_dims[KS_MATMUL_BATCH_RANK];
    int64_t counts[2]; /* of scales */
    uint64_t bias, c;
    int32_t batch_rank, splits, activation, out;
    float alpha;
    bool biased;
    bool first, same_b; /* of the blocks that a product is done in; its columns of B are those of the one before */
};

/* An operand that is packed (pack.cuh); no CTAs: it is not. */
struct narrow_pack_part {
    narrow_operand operand;
    uint64_t to;   /* bytes from the workspace */
    int64_t pitch; /* bytes of a packed row */
    int64_t step;  /* bytes from one matrix to the next, as it lies */
    int64_t tiles_rows, tiles_k;
    unsigned ctas;
    bool wide, widens; /* 16 rows start on 16 bytes; FP8 becomes FP16 */
};
struct narrow_packing {
    narrow_pack_part part[2];
    int64_t k;
    bool first; /* of the launches: it stamps the start */
};

enum { NARROW_WAYS_MOST = 8 };
/* The plans that do a product, by rising predicted time but for one that shares launches, which is the first; one at least. Returns how many. */
int narrow_candidates(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, int most);
/* As ks_cuda_launch_fn. */
cudaError_t narrow_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, const ks_site &site,
                          int bucket, cudaStream_t stream);

/* strip.cu. Slices of K, and the predicted time; 0: it cannot. */
double narrow_strip_choose(const ks_chip *chip, const ks_spec *spec, const narrow_args &args, narrow_algorithm *out);
void narrow_strip_plan(const ks_spec *spec, const narrow_args &args, const narrow_algorithm &c, ks_cuda_plan *out);
cudaError_t narrow_strip_launch(const ks_spec *spec, const narrow_args &args, const narrow_algorithm &c,
                                const ks_site &site, cudaStream_t stream);

/* direct.cu. The warps that share a slab, and the predicted time; 0: it cannot. */
double narrow_direct_choose(const ks_chip *chip, const ks_spec *spec, const narrow_args &args, narrow_algorithm *out);
void narrow_direct_plan(const ks_spec *spec, const narrow_args &args, const narrow_algorithm &c, ks_cuda_plan *out);
cudaError_t narrow_direct_launch(const ks_spec *spec, const narrow_args &args, const narrow_algorithm &c,
                                 const ks_site &site, int bucket, cudaStream_t stream);

enum { NARROW_WGMMA_ROWS = 5 };
/* wgmma.cu. A row's best slices of K, and their predicted time; 0: it cannot. */
double narrow_wgmma_choose(const ks_chip *chip, const ks_spec *spec, const narrow_args &args, int row,
                           narrow_algorithm *out);
/* Name, threads, shared memory, workspace. */
void narrow_wgmma_plan(const ks_chip *chip, const ks_spec *spec, const narrow_args &args, const narrow_algorithm &c,
                       ks_cuda_plan *out);
cudaError_t narrow_wgmma_launch(const ks_chip *chip, const ks_spec *spec, const narrow_args &args,
                                const narrow_algorithm &c, const ks_site &site, cudaStream_t stream);
/* Shared memory beyond 48 KiB; for matmul's setup. */
cudaError_t narrow_wgmma_allow(ks_chip *chip);
cudaError_t narrow_strip_allow(ks_chip *chip);

#endif
