/* What bench_ops and compare_torch.py time: every row in FP32 and BF16, all listed ops over its shape. First the
 * shapes of the measured libraries, so that figures can be laid side by side; then others, spread over the regimes. */
#ifndef KS_OPS_ROWS_H
#define KS_OPS_ROWS_H

static const char *const ops_dtypes[] = {"FP32", "BF16"};

static const struct {
    const char *ops, *first, *second, *axis;
} ops_table[] = {
    {"softmax", "1x1024", 0, "-1"},
    {"softmax", "64x1024", 0, "-1"},
    {"softmax", "1024x1024", 0, "-1"},
    {"softmax", "8192x1024", 0, "-1"},
    {"softmax", "8192x4096", 0, "-1"},
    {"softmax", "4096x32768", 0, "-1"},
    {"softmax", "256x131072", 0, "-1"},
    {"softmax", "16x1048576", 0, "-1"},
    {"softmax", "65536x128", 0, "-1"},
    {"softmax", "1048576x32", 0, "-1"},
    {"sum max argmax logsumexp", "1x1024", 0, "-1"},
    {"sum max argmax logsumexp", "1x1048576", 0, "-1"},
    {"sum max argmax logsumexp", "1x268435456", 0, "-1"},
    {"sum max argmax logsumexp", "8192x4096", 0, "-1"},
    {"sum max argmax logsumexp", "4096x32768", 0, "-1"},
    {"sum max argmax logsumexp", "1048576x32", 0, "-1"},
    {"sum max argmax logsumexp", "8192x8192", 0, "0"},
    {"sum max argmax logsumexp", "32x1048576", 0, "0"},
    /* short and odd rows */
    {"softmax", "100000x100", 0, "-1"},
    {"softmax", "1000000x7", 0, "-1"},
    {"softmax", "131072x257", 0, "-1"},
    {"softmax", "16384x1023", 0, "-1"},
    {"softmax", "2000000x2", 0, "-1"},
    {"softmax", "2048x6144", 0, "-1"},
    {"sum argmax logsumexp", "100000x100", 0, "-1"},
    {"sum max", "1000000x7", 0, "-1"},
    {"mean max", "1000003x33", 0, "-1"},
    {"mean logsumexp", "65536x256", 0, "-1"},
    {"mean max", "16384x1023", 0, "-1"},
    /* rows as long as a vocabulary */
    {"softmax", "64x50257", 0, "-1"},
    {"softmax", "512x32000", 0, "-1"},
    {"softmax", "1x128256", 0, "-1"},
    {"argmax logsumexp", "64x50257", 0, "-1"},
    {"mean argmax logsumexp", "512x32000", 0, "-1"},
    {"argmax logsumexp", "1x128256", 0, "-1"},
    /* few rows, one row, and scalars */
    {"softmax", "5x1000003", 0, "-1"},
    {"sum logsumexp", "5x1000003", 0, "-1"},
    {"softmax", "1x16777216", 0, "-1"},
    {"softmax", "1x268435456", 0, "-1"},
    {"sum max", "16777216", 0, "0"},
    {"mean argmax", "67108864", 0, "0"},
    {"argmax", "1048577", 0, "0"},
    /* attention */
    {"softmax", "8x12x1024x1024", 0, "-1"},
    /* leading axes */
    {"softmax", "8192x8192", 0, "0"},
    {"softmax", "1024x65536", 0, "0"},
    {"softmax", "50257x64", 0, "0"},
    {"sum argmax", "1024x65536", 0, "0"},
    {"sum max", "1000000x16", 0, "0"},
    {"mean", "262144x100", 0, "0"},
    {"logsumexp", "50257x64", 0, "0"},
    {"mean", "7x1000x1000", 0, "0"},
    /* middle axes, the inner extent large and small */
    {"softmax", "64x256x512", 0, "1"},
    {"softmax", "128x1000x33", 0, "1"},
    {"softmax", "4096x64x3", 0, "1"},
    {"sum argmax logsumexp", "64x256x512", 0, "1"},
    {"sum max", "16x4096x1024", 0, "1"},
    {"sum argmax", "128x1000x33", 0, "1"},
    {"mean logsumexp", "4096x64x3", 0, "1"},
    /* several axes */
    {"mean max", "64x256x56x56", 0, "0,2,3"},
    {"mean", "256x7x7x512", 0, "1,2"},
    {"sum max", "40x40x40x40x40", 0, "0,2,4"},
    /* norms with weight, and what a layer does before and behind them: as ops_rows.c says */
    {"layer_norm rms_norm bias_layer_gelu add_rms_norm", "1x4096", 0, "-1"},
    {"layer_norm rms_norm bias_layer_gelu add_rms_norm", "2048x4096", 0, "-1"},
    {"layer_norm rms_norm bias_layer_gelu add_rms_norm", "1024x12288", 0, "-1"},
    {"layer_norm rms_norm bias_layer_gelu add_rms_norm", "16384x4096", 0, "-1"},
    {"layer_norm rms_norm bias_layer_gelu add_rms_norm", "131072x128", 0, "-1"},
    {"layer_norm", "32768x1024", 0, "-1"},
    {"layer_norm", "512x32000", 0, "-1"},
    {"rms_norm", "64x131072", 0, "-1"},
    {"layer_norm", "16384x1023", 0, "-1"},
    {"layer_norm", "5x1000003", 0, "-1"},
    /* weak regimes: lists that leave interleaved kept axes */
    {"sum max", "100x100x100x100", 0, "0,2"},
    {"sum logsumexp", "97x101x103x99", 0, "0,2"},
    {"mean", "60x33x200x128", 0, "0,2"},
    /* tiny ones */
    {"softmax", "100x7", 0, "-1"},
    {"softmax", "1000x31", 0, "-1"},
    {"softmax", "300x3", 0, "-1"},
    {"sum max", "60", 0, "0"},
    {"sum", "50x20", 0, "-1"},
    /* columns of some hundred rows */
    {"sum argmax", "300x100000", 0, "0"},
    {"mean logsumexp", "500x131072", 0, "0"},
    /* softmax along long columns */
    {"softmax", "5000x5000", 0, "0"},
    {"softmax", "4096x16384", 0, "0"},
    {"softmax", "4x3000x3000", 0, "1"},
    {"softmax", "12000x6000", 0, "0"},
    /* rows of columns that are whole vectors but not whole lines of memory */
    {"sum max logsumexp", "8200x8200", 0, "0"},
    {"sum", "20000x3000", 0, "0"},
    {"softmax", "5000x50008", 0, "0"},
    {"softmax", "1000x40008", 0, "0"},
    /* rows of a part of a vector, and few huge rows */
    {"sum max argmax logsumexp", "16777216x4", 0, "-1"},
    {"softmax", "16777216x4", 0, "-1"},
    {"softmax", "8x3000000", 0, "-1"},
    {"softmax", "4x6000000", 0, "-1"},
    /* selected elements: the columns up to the row's */
    {"softmax softmax_causal", "64x16x256x256", 0, "-1"},
    {"softmax softmax_causal", "16x2048x2048", 0, "-1"},
    {"softmax softmax_causal", "4x8192x8192", 0, "-1"},
    /* beside sum: the same bytes, another arithmetic */
    {"sum var any all count_nonzero l1norm", "8192x4096", 0, "-1"},
    {"sum var any count_nonzero", "1x268435456", 0, "-1"},
    {"sum var any", "8192x8192", 0, "0"},
    {"sum var std", "64x256x512", 0, "1"},
    {"sum var", "100x100x100x100", 0, "0,2"},
    {"var any", "1048576x32", 0, "-1"},
    {"var any", "1x1024", 0, "-1"},
    /* topk: k by the name */
    {"topk_50", "1x128256", 0, "-1"},
    {"topk_50", "64x128256", 0, "-1"},
    {"topk_256", "64x131072", 0, "-1"},
    {"topk_10 topk_2048", "1x1048576", 0, "-1"},
    {"topk_10", "65536x128", 0, "-1"},
    {"topk_10 topk_50", "8192x4096", 0, "-1"},
    {"topk_50 topk_2048", "512x32003", 0, "-1"},
    {"topk_10", "1x268435456", 0, "-1"},
    {"topk_10", "4096x8192", 0, "0"},
    {"topk_50", "64x1000x33", 0, "1"},
    /* scan */
    {"cumsum cummax", "268435456", 0, "0"},
    {"cumsum cummax logcumsumexp", "8192x8192", 0, "-1"},
    {"cumsum logcumsumexp", "8192x8192", 0, "0"},
    {"cumsum", "1048576x2", 0, "0"},
    {"cumsum", "1x1024", 0, "-1"},
    {"cumsum", "1x1048576", 0, "-1"},
    {"cumsum", "64x128256", 0, "-1"},
    {"cumsum", "131072x128", 0, "-1"},
    {"cumsum", "1000000x7", 0, "-1"},
    {"cumsum", "300x100000", 0, "0"},
    {"cumsum", "64x256x512", 0, "1"},
    {"cumsum", "128x1000x33", 0, "1"},
    {"cumsum", "5x1000003", 0, "-1"},
    /* histogram, from -4 to 4 */
    {"histc_256", "268435456", 0, "0"},
    {"histc_256 histc_10000", "67108864", 0, "0"},
    {"histc_256", "1048576", 0, "0"},
    {"histc_256", "1024", 0, "0"},
    /* by index: a table, indices */
    {"embedding", "50257x1024", "64", "0"},
    {"embedding", "50257x1024", "8192", "0"},
    {"embedding", "50257x4096", "16384", "0"},
    {"embedding index_select", "200000x256", "262144", "0"},
    {"embedding", "1000000x64", "1000000", "0"},
    {"embedding", "1000000x33", "500000", "0"},
    {"embedding", "1000000x4", "4000000", "0"},
    {"index_select", "16777216", "16777216", "0"},
    {"index_select", "64x4096x256", "2048", "1"},
    {"index_select", "16384x4096", "2048", "1"},
    {"take_along", "8192x4096", "8192x1024", "1"},
    {"take_along", "8192x1024", "4096x1024", "0"},
    {"embedding_bag", "200000x128", "262144", "0"},
    {"embedding_bag", "50257x1024", "65536", "0"},
    {"embedding_bag", "1000000x16", "1048576", "0"},
    /* to INT8 by scales that are computed */
    {"quantize_tensor quantize_row quantize_column", "16384x4096", 0, 0},
    {"quantize_tensor quantize_row quantize_column", "4096x4096", 0, 0},
    {"quantize_tensor quantize_row quantize_column", "64x4096", 0, 0},
    {"quantize_row quantize_column", "16384x4095", 0, 0},
    {"quantize_row", "131072x128", 0, 0},
    {"quantize_row", "64x1048576", 0, 0},
    {"matmul", "1x4096", "4096x4096", 0},
    {"matmul", "8x4096", "4096x4096", 0},
    {"matmul", "16x4096", "4096x4096", 0},
    {"matmul", "64x4096", "4096x4096", 0},
    {"matmul", "128x128", "128x128", 0},
    {"matmul", "256x256", "256x256", 0},
    {"matmul", "512x512", "512x512", 0},
    {"matmul", "1024x1024", "1024x1024", 0},
    {"matmul", "2048x2048", "2048x2048", 0},
    {"matmul", "4096x4096", "4096x4096", 0},
    {"matmul", "8192x8192", "8192x8192", 0},
    {"matmul", "64x65536", "65536x64", 0},
    {"matmul", "1000x1000", "1000x1000", 0},
    {"matmul", "127x1023", "1023x4095", 0},
};

/* Products of 8 bits: int8 of INT8 to INT32, fp8 to BF16 by a scale for each operand, fast by FP8's own instruction; tb: INPUT1 along K, as
 * cuBLASLt wants it. */
static const struct {
    const char *ops, *dtype, *first, *second;
} ops_narrow_table[] = {
    {"int8_mm int8_mm_tb", "INT8", "16x4096", "4096x4096"},
    {"int8_mm int8_mm_tb", "INT8", "64x4096", "4096x4096"},
    {"int8_mm", "INT8", "128x14336", "14336x4096"},
    {"int8_mm_tb", "INT8", "128x14336", "4096x14336"}, /* INPUT1 as [N,K] */
    {"int8_mm int8_mm_tb", "INT8", "1024x1024", "1024x1024"},
    {"int8_mm int8_mm_tb", "INT8", "4096x4096", "4096x4096"},
    {"int8_mm_tb", "INT8", "8192x8192", "8192x8192"},
    {"int8_mm_tb", "INT8", "4096x7168", "2048x7168"},
    {"int8_mm", "INT8", "1000x1003", "1003x999"},
    {"fp8_mm fp8_mm_tb", "FP8E4M3", "1x4096", "4096x4096"},
    {"fp8_mm fp8_mm_tb", "FP8E4M3", "16x4096", "4096x4096"},
    {"fp8_mm_tb fp8_fast_tb", "FP8E4M3", "64x4096", "4096x4096"},
    {"fp8_mm_tb fp8_fast_tb", "FP8E4M3", "128x14336", "4096x14336"},
    {"fp8_mm_tb fp8_fast_tb", "FP8E4M3", "1024x1024", "1024x1024"},
    {"fp8_mm fp8_mm_tb fp8_fast fp8_fast_tb", "FP8E4M3", "4096x4096", "4096x4096"},
    {"fp8_fast_tb", "FP8E4M3", "8192x8192", "8192x8192"},
    {"fp8_mm_tb fp8_fast_tb", "FP8E4M3", "4096x7168", "2048x7168"},
};

/* search: k by the name, queries and matrix. */
static const struct {
    const char *op, *dtype, *queries, *matrix;
} ops_search_table[] = {
    {"search_10", "FP32", "1x128", "1000000x128"},    {"search_10", "FP32", "1x128", "10000x128"},
    {"search_10", "FP32", "10x128", "1000000x128"},   {"search_10", "FP32", "64x128", "1000000x128"},
    {"search_10", "FP16", "1x768", "1000000x768"},    {"search_10", "FP16", "64x768", "1000000x768"},
    {"search_10", "FP16", "1x768", "10000000x768"},   {"search_10", "FP16", "64x768", "10000000x768"},
    {"search_128", "FP16", "10x32", "1000000x32"},    {"search_128", "BF16", "16x384", "1000000x384"},
    {"search_10", "BF16", "200x1024", "500000x1024"}, {"search_10", "FP16", "1x100", "1000003x100"},
};

/* Bits that are moved, and lists that say where rows end: the operation, its inputs, and its parameters. */
static const struct {
    const char *op, *dtype, *first, *second, *parameters;
} ops_moved_table[] = {
    {"transpose", "BF16", "8192x8192", 0, "axes=1,0"},
    {"transpose", "FP32", "8192x4096", 0, "axes=1,0"},
    {"transpose", "INT8", "16384x8192", 0, "axes=1,0"},
    {"transpose", "BF16", "5001x13001", 0, "axes=1,0"},
    {"transpose", "BF16", "32x512x16x128", 0, "axes=0,2,1,3"},
    {"transpose", "FP16", "64x56x56x128", 0, "axes=0,3,1,2"},
    {"transpose", "BF16", "128x128", 0, "axes=1,0"},
    {"slice", "BF16", "16384x8192", 0, "starts=0,1000 sizes=16384,4096"},
    {"slice", "FP32", "16384x4096", 0, "steps=1,2"},
    {"slice", "FP32", "16384x4096", 0, "steps=-1,1"},
    {"pad", "BF16", "64x128x56x56", 0, "before=0,0,1,1 after=0,0,1,1"},
    {"pad", "FP32", "16384x4000", 0, "before=0,0 after=0,96"},
    {"concat", "BF16", "16384x4096", "16384x4096", "axis=1"},
    {"concat", "BF16", "16384x1001", "16384x2001", "axis=1"},
    {"concat", "FP32", "64x64", "64x64", "axis=1"},
    {"window", "BF16", "64x512x256", 0, "size=5"},
    {"window", "FP16", "32x56x56x64", 0, "size=3,3 pad=1,1"},
    {"window", "FP32", "32x112x112x16", 0, "size=3,3 stride=2,2"},
    {"softmax_lengths", "BF16", "32x16x512x512", "32", "axis=-1"},
    {"softmax_lengths", "FP32", "8192x4096", "8192", "axis=-1"},
    {"softmax_lengths", "BF16", "64x1000", "64", "axis=-1"},
    {"sum_segments", "FP32", "1000000x64", "10001", "axis=0"},
    {"sum_segments", "BF16", "33554432", "100001", "axis=0"},
    {"sum_segments", "FP32", "65536x1024", "513", "axis=0"},
};

/* attention: query, and key as the value is. */
static const struct {
    const char *op, *dtype, *query, *key;
} ops_attention_table[] = {
    /* decode: shared key heads */
    {"attention", "BF16", "1x32x1x128", "1x4x1024x128"},
    {"attention", "BF16", "1x32x1x128", "1x8x4096x128"},
    {"attention", "BF16", "8x32x1x128", "8x8x4096x128"},
    {"attention", "BF16", "32x32x1x128", "32x8x4096x128"},
    {"attention", "BF16", "1x32x1x128", "1x8x65536x128"},
    /* prefill: short, long, of other sizes */
    {"attention", "BF16", "4x16x128x64", "4x16x128x64"},
    {"attention", "BF16", "1x12x128x64", "1x12x128x64"},
    {"attention", "BF16", "1x8x197x64", "1x8x197x64"},
    {"attention", "BF16", "1x32x512x128", "1x32x512x128"},
    {"attention", "BF16", "2x8x1000x80", "2x8x1000x80"},
    {"attention", "BF16", "1x32x4096x128", "1x8x4096x128"},
    {"attn_causal", "BF16", "1x32x512x128", "1x32x512x128"},
    {"attn_causal", "BF16", "1x16x1024x64", "1x16x1024x64"},
    {"attn_causal", "BF16", "1x32x4096x128", "1x8x4096x128"},
    {"attn_causal", "BF16", "1x16x4096x256", "1x16x4096x256"},
    {"attention", "FP16", "1x8x1001x77", "1x8x1001x77"},
    {"attention", "FP32", "1x12x128x64", "1x12x128x64"},
    {"attn_causal", "FP32", "1x16x1024x64", "1x16x1024x64"},
};

/* map: the function, the operands' datatype and shapes, and what a cast makes of them. */
static const struct {
    const char *op, *dtype, *first, *second, *third, *to;
} ops_map_table[] = {
    {"gelu", "BF16", "1024", 0, 0, 0},
    {"gelu", "BF16", "1048576", 0, 0, 0},
    {"gelu", "BF16", "67108864", 0, 0, 0},
    {"add", "BF16", "1024", "1024", 0, 0},
    {"add", "BF16", "1048576", "1048576", 0, 0},
    {"add", "BF16", "67108864", "67108864", 0, 0},
    /* broadcast: along rows, along columns, off the vectors, in the middle */
    {"add", "BF16", "16384x4096", "4096", 0, 0},
    {"add", "FP32", "16384x2048", "16384x1", 0, 0},
    {"add", "BF16", "65536x1001", "1001", 0, 0},
    {"mul", "FP32", "64x256x56x56", "1x256x1x1", 0, 0},
    {"where", "BF16", "67108864", "67108864", "67108864", 0},
    {"where", "FP32", "16384x2048", "16384x2048", "1", 0},
    {"fma", "BF16", "16384x4096", "16384x4096", "4096", 0},
    {"lt", "FP32", "33554432", "33554432", 0, 0},
    {"cast", "FP32", "33554432", 0, 0, "BF16"},
    {"cast", "BF16", "67108864", 0, 0, "FP32"},
    {"cast", "FP32", "33554432", 0, 0, "INT8"},
    {"cast", "INT32", "33554432", 0, 0, "FP32"},
    {"cast", "BF16", "67108864", 0, 0, "FP8E4M3"},
    {"silu", "BF16", "67108864", 0, 0, 0},
    {"gelu_tanh", "BF16", "67108864", 0, 0, 0},
    {"tanh", "BF16", "67108864", 0, 0, 0},
    {"exp", "FP32", "33554432", 0, 0, 0},
    {"gelu", "FP32", "33554432", 0, 0, 0},
    {"relu", "FP16", "67108864", 0, 0, 0},
    {"add", "INT8", "67108864", "67108864", 0, 0},
    {"div", "BF16", "67108864", "67108864", 0, 0},
};
#endif
