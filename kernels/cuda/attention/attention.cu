/* attention on the GPU: the launches that plan.cu has chosen, and what is set once for a device. */
#include "cuda/attention/plan.h"
#include "cuda/attention/wgmma.cuh"

#include <string.h>

static cudaError_t go_by_datatype(const attention_launch &go)
{
    switch (go.a.s.dtype) {
    case KS_FP16:
        return attention_go_fp16(go);
    case KS_BF16:
        return attention_go_bf16(go);
    default:
        return attention_go_fp32(go);
    }
}

static cudaError_t merge_by_datatype(const attention_launch &go)
{
    switch (go.a.s.dtype) {
    case KS_FP16:
        return attention_merge_fp16(go);
    case KS_BF16:
        return attention_merge_bf16(go);
    default:
        return attention_merge_fp32(go);
    }
}

/* Keys or values as {columns, rows, heads, batches}, in boxes of 64 columns; what is behind the ends is read as 0. */
static bool make_map(const ks_chip *chip, const attention_launch &go, uint64_t offset, const ks_attention_strides &by,
                     int columns, CUtensorMap *map)
{
    const ks_attention_shape &s = go.a.s;
    const cuuint64_t dims[4] = {(cuuint64_t)columns, (cuuint64_t)s.keys, (cuuint64_t)s.kv_heads, (cuuint64_t)s.batches};
    const cuuint64_t row = (cuuint64_t)by.row * 2;
    /* A single head or batch has no distance to the next. */
    const cuuint64_t strides[3] = {row, s.kv_heads > 1 ? (cuuint64_t)by.head * 2 : row,
                                   s.batches > 1 ? (cuuint64_t)by.batch * 2 : row};
    const cuuint32_t box[4] = {64, (cuuint32_t)attention_wgmma_keys(go.c.columns), 1, 1}, steps[4] = {1, 1, 1, 1};
    return chip->encode_tiled(map,
                              s.dtype == KS_FP16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                              4, (void *)((uintptr_t)go.site.only.in + offset), dims, strides, box, steps,
                              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                              row % 256 == 0 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static bool make_maps(const ks_chip *chip, attention_launch *go)
{
    const attention_shape &a = go->a;
    return make_map(chip, *go, a.key, a.s.key, a.s.depth, &go->maps.key) &&
           make_map(chip, *go, a.value, a.s.value, a.s.value_depth, &go->maps.value);
}

/* Some units: one kernel, or where keys are split two. */
static cudaError_t go_units(attention_launch &go, int64_t first, int64_t all)
{
    attention_shape &a = go.a;
    const bool split = a.splits > 1 && !a.joins;
    a.unit = first;
    a.units = first + go.c.units < all ? go.c.units : all - first;
    const int64_t pieces = a.units * a.tiles * a.splits;
    a.each = pieces / go.c.grid;
    a.more = pieces % go.c.grid;
    a.starts = first == 0;
    const bool last = first + go.c.units >= all;
    a.ends = last && !split;
    const cudaError_t status = go_by_datatype(go);
    if (status != cudaSuccess || !split || ks_noting) return status;
    a.starts = false;
    a.ends = last;
    return merge_by_datatype(go);
}

/* ks_cuda_launch_fn. As many units at a time as the workspace has room for. */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    attention_algorithm c;
    memcpy(&c, algorithm, sizeof c);
    attention_launch go = attention_launch_of(spec, c);
    go.site = site;
    go.bucket = bucket;
    go.stream = stream;
    if (c.wgmma && !ks_noting && !make_maps(chip, &go))
        return ks_fail(error, KS_DEVICE, "attention: the driver makes no tensor map");
    const int64_t all = go.a.s.batches * go.a.s.kv_heads;
    cudaError_t status = cudaSuccess;
    int64_t first = 0;
    do {
        status = go_units(go, first, all);
        first += c.units;
    } while (status == cudaSuccess && first < all && !ks_noting);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "attention: launch failed: %s", cudaGetErrorString(status));
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    const int bytes = (int)chip->shared_optin - (int)ATTENTION_STATIC_BYTES;
    cudaError_t status = attention_allow_fp32(bytes);
    if (status == cudaSuccess) status = attention_allow_fp16(bytes);
    if (status == cudaSuccess) status = attention_allow_bf16(bytes);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError();
    return ks_fail(error, KS_DEVICE, "attention: cannot set its kernels' shared memory: %s",
                   cudaGetErrorString(status));
}

extern const ks_cuda_op ks_attention_cuda;
const ks_cuda_op ks_attention_cuda = {.setup = cuda_setup,
                                      .plan = attention_plan,
                                      .launch = cuda_launch,
                                      .join = NULL,
                                      .candidates = NULL,
                                      .adopt = NULL,
                                      .revision = NULL,
                                      .starts_anywhere = NULL};
