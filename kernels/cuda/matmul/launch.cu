/* The launch of a candidate: tensor maps, the launch that packs operands before it, clusters. */
#include "cuda/matmul/candidates.h"
#include "cuda/matmul/pack.cuh"

/* One operand as a tensor map sees it; parts: CTAs that each copy a part of its tile. */
typedef struct mm_mapped {
    const mm_operand *operand;
    bool along_k;
    mm_int across;
    int tile, parts;
} mm_mapped;

static CUtensorMapDataType type_of(int table)
{
    switch (table) {
    case MM_FP16:
        return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case MM_BF16:
        return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case MM_TF32:
        return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    default:
        return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    }
}

static CUtensorMapSwizzle swizzle_of(int row_bytes)
{
    return row_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
           : row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
           : row_bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                             : CU_TENSOR_MAP_SWIZZLE_NONE;
}

/* What the L2 cache fetches besides: whole lines of rows that begin at lines. Of other rows that would be bytes of the next row, too. */
static CUtensorMapL2promotion promotion_of(cuuint64_t pitch)
{
    return pitch % 256 == 0   ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
           : pitch % 128 == 0 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                              : CU_TENSOR_MAP_L2_PROMOTION_NONE;
}

/* The operand as rows of 128 bytes of a stage, or fewer of a narrow tile: a box of `tile` rows along K, or of `depth` rows
 * of K across it, and of either the part that one of `parts` CTAs copies. A copy for TF32 rounds to the nearest, ties to
 * even, at no cost; the products themselves would cut. */
static bool make_map(const mm_problem *p, int table, int depth, const unsigned char *in, const mm_mapped *m,
                     CUtensorMap *map)
{
    const mm_operand *o = m->operand;
    const int size = p->element_bytes, width = m->along_k ? 128 / size : mm_box_columns(m->tile, size);
    const cuuint64_t inner = (cuuint64_t)(m->along_k ? p->shape.k : m->across);
    const cuuint64_t rows = (cuuint64_t)(m->along_k ? m->across : p->shape.k), row_bytes = ks_align(inner * size);
    /* A single row or matrix has no distance to the next. */
    const cuuint64_t pitch = o->pitch ? (cuuint64_t)o->pitch * size : row_bytes;
    const cuuint64_t dims[3] = {inner, rows, o->step[0] ? (cuuint64_t)p->shape.batch : 1};
    const cuuint64_t strides[2] = {pitch, o->step[0] ? (cuuint64_t)o->step[0] * size : pitch};
    const cuuint32_t box[3] = {(cuuint32_t)width, (cuuint32_t)((m->along_k ? m->tile : depth) / m->parts), 1};
    const cuuint32_t steps[3] = {1, 1, 1};
    return p->chip->encode_tiled(map, type_of(table), 3, (void *)((uintptr_t)in + o->at), dims, strides, box, steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(width * size), promotion_of(pitch),
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static bool make_maps(const mm_problem *p, int table, const mm_fit *fit, const unsigned char *in, mm_maps *maps)
{
    const mm_kernel *kernel = &fit->kernel;
    const mm_args *args = &fit->args;
    const mm_mapped a = {&args->a, fit->layout.a_k, args->m, kernel->m / kernel->by_m, kernel->by_n},
                    b = {&args->b, fit->layout.b_k, args->n, kernel->n / kernel->by_n, kernel->by_m};
    return (kernel->odd || make_map(p, table, kernel->depth, in, &a, &maps->a)) &&
           make_map(p, table, kernel->depth, in, &b, &maps->b);
}

/* The launch that packs; behind it the operands are found in the workspace. */
static cudaError_t launch_pack(const mm_problem *p, mm_fit *fit, const ks_site &site, cudaStream_t stream)
{
    const size_t first = mm_partial_bytes(p, fit);
    unsigned chunks = 0;
    for (int i = 0; i < 2; i++) {
        mm_pack_part *part = &fit->layout.pack.part[i];
        if (part->chunks == 0) continue;
        part->to += first;
        (i == fit->args.swap_ab ? fit->args.a : fit->args.b).at =
            (size_t)((uintptr_t)site.workspace + part->to - (uintptr_t)site.only.in);
        chunks += part->chunks;
    }
    const unsigned each = MM_PACK_THREADS * MM_PACK_EACH;
    return ks_launch(mm_pack_kernel, dim3((chunks + each - 1) / each), MM_PACK_THREADS, 0, false, stream, site,
                     fit->layout.pack);
}

cudaError_t mm_find_early(ks_chip *chip)
{
    cudaFuncAttributes attributes;
    const cudaError_t code = cudaFuncGetAttributes(&attributes, (const void *)mm_pack_kernel);
    if (code == cudaSuccess) chip->launches_early = chip->capability >= 90 && attributes.ptxVersion >= 90;
    return code;
}

ks_status mm_launch(const mm_problem *p, const ks_matmul_candidate *candidate, const ks_site *site, int bucket,
                    cudaStream_t stream, ks_error *error)
{
    mm_fit fit = mm_fit_to(p, candidate);
    mm_maps maps = {};
    cudaError_t code = candidate->packed ? launch_pack(p, &fit, *site, stream) : cudaSuccess;
    if (ks_noting) {
        *ks_noting = {mm_function(&fit.kernel), fit.kernel.threads, (size_t)fit.kernel.shared_bytes};
        return KS_OK;
    }
    if (fit.kernel.tma && !make_maps(p, candidate->table, &fit, site->only.in, &maps))
        return ks_fail(error, KS_DEVICE, "matmul: the driver makes no tensor map");
    void *arguments[] = {(void *)(uintptr_t)site, &fit.args, &maps};
    cudaLaunchAttribute attributes[3] = {};
    cudaLaunchConfig_t config = {};
    const unsigned together = fit.args.cluster * mm_peers(&fit.kernel);
    if (together > 1) {
        cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
        attribute->id = cudaLaunchAttributeClusterDimension;
        attribute->val.clusterDim.x = together;
        attribute->val.clusterDim.y = attribute->val.clusterDim.z = 1;
    }
    /* Threads that copy odd rows wait for a chain's step alone, kernels of many small matrices never. */
    if (site->steps & KS_STEP_WAITS || (site->behind && !fit.kernel.odd && !fit.kernel.matrices))
        fit.args.packed = !candidate->packed && p->spec->in[mm_fixed_input(&fit.kernel, candidate)].fixed
                              ? MM_PACKED_INPUT0
                              : MM_PACKED;
    config.numAttrs =
        ks_launch_attributes(*site, fit.args.packed && p->chip->launches_early, attributes, config.numAttrs);
    const mm_int planned = candidate->joined ? mm_grid(p, &fit) : candidate->grid;
    const mm_int grid = planned < 1 ? 1 : planned; /* an empty output raises the flag too */
    config.gridDim = dim3((unsigned)grid, (unsigned)bucket, 1);
    config.blockDim = dim3((unsigned)fit.kernel.threads, 1, 1);
    config.dynamicSmemBytes = (size_t)fit.kernel.shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    if (code == cudaSuccess) code = cudaLaunchKernelExC(&config, mm_function(&fit.kernel), arguments);
    const cudaError_t last = cudaGetLastError();
    if (code == cudaSuccess) code = last;
    if (code == cudaSuccess) return KS_OK;
    return ks_fail(error, KS_DEVICE, "matmul: launch failed: %s (%d)", cudaGetErrorString(code), (int)code);
}
