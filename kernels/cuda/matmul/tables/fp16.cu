#include "cuda/matmul/tables/half.cuh"

const mm_table mm_table_fp16 = mm_table_of("FP16", mm_half_rows<__half>);
