/* Tensor cores and bulk copies of an emulated GPU: matrices of a warp and of a warpgroup, each lane with its part, as the PTX
 * ISA lays them out. */
#ifndef KS_EMULATE_TENSOR_H
#define KS_EMULATE_TENSOR_H

#include "cuda.h"

enum emulate_type { EMULATE_FP16, EMULATE_BF16, EMULATE_TF32, EMULATE_INT8, EMULATE_E4M3, EMULATE_E5M2 };

/* A warp's: */
void emulate_load_blocks(uint32_t *to, uint32_t row, bool transposed);                     /* ldmatrix of four */
void emulate_store_blocks(uint32_t row, uint32_t first, uint32_t second, bool transposed); /* stmatrix of two */
uint32_t emulate_transpose_block(uint32_t two);                                            /* movmatrix */
void emulate_mma(emulate_type type, float *c, const uint32_t *a, uint32_t b0, uint32_t b1);

/* A warpgroup's 64 rows times n columns of shared memory, 32 bytes of K: d is added to when the products are waited for.
 * b: a descriptor; along: rows lie along K. A likewise, or, where `fed` is not NULL, its four words from registers. */
struct emulate_operand {
    uint64_t descriptor;
    bool along;
};
void emulate_wgmma(emulate_type type, float *d, int n, emulate_operand a, const uint32_t *fed, emulate_operand b);
struct emulate_types {
    emulate_type a, b;
};
/* Likewise of 8 bits, both along K; the types may differ. INT8's sums are INT32. first: what was in d does not count. */
void emulate_wgmma_8_bits(emulate_types types, void *d, int n, uint64_t a, uint64_t b, bool first);

/* Of a map, from x, y, z, w on, to a place of each peer in the mask; 0: of this CTA. */
struct emulate_corner {
    int x, y, z, w;
};
void emulate_tma_load(uint32_t to, const CUtensorMap *map, uint32_t mbarrier, emulate_corner from, uint32_t peers);
/* 16 bytes to a peer. */
void emulate_send(uint32_t to, uint32_t mbarrier, const float *four);

#endif
