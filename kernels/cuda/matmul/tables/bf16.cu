#include "cuda/matmul/tables/half.cuh"

const mm_table mm_table_bf16 = mm_table_of("BF16", mm_half_rows<__nv_bfloat16>);
