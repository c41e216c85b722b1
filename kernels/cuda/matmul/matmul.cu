/* Matmul on CUDA: the op's side of the backend (ks_matmul_cuda): setup, plans, algorithms for a tuner, the tables' revision.
 *
 * Bits     depend on the candidate alone: no atomics on values, every sum's order is fixed.
 * Threads  any; a chip is constant after setup. */
#include "cuda/matmul/candidates.h"
#include "cuda/matmul/cublaslt.cuh"
#include "cuda/matmul/narrow/narrow.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* --- plans ----------------------------------------------------------------------------------------------------------- */

/* One tile per matrix, and no matrix shared: every input byte is then read once. */
static bool reads_once(const mm_problem *p, const mm_args *args)
{
    if (args->tiles_m * args->tiles_n > 1) return false;
    for (int d = 0; d < p->shape.batch_rank; d++)
        if (p->shape.a_step[d] == 0 || p->shape.b_step[d] == 0) return false;
    return true;
}

void ks_matmul_candidate_plan(const ks_chip *chip, const ks_spec *spec, const ks_matmul_candidate *candidate,
                              ks_cuda_plan *out)
{
    const mm_problem p = mm_problem_of(chip, spec);
    const mm_fit fit = mm_fit_to(&p, candidate);
    const mm_int grid = mm_grid(&p, &fit);
    memset(out, 0, sizeof *out);
    out->once = reads_once(&p, &fit.args) && grid <= KS_GRID_MAX && !fit.kernel.tma && !candidate->packed;
    out->batch_max = out->once ? KS_BATCH_MAX : 1;
    out->early = !candidate->packed && !fit.kernel.matrices;
    if (mm_is_past_shared(&fit.kernel)) /* by loads of what never changes */
        out->early_fixed = (uint16_t)(1u << mm_fixed_input(&fit.kernel, candidate));
    out->workspace_bytes = mm_workspace_bytes(&p, &fit);
    out->counters = mm_counters(&p, &fit);
    out->kernel_info.grid = grid;
    out->kernel_info.threads = fit.kernel.threads;
    out->kernel_info.cluster = (int)fit.args.cluster;
    out->kernel_info.shared_bytes = (size_t)fit.kernel.shared_bytes;
    char slices[24] = ""; /* clusters of a tile, CTAs of a cluster */
    if (fit.args.splits * fit.args.cluster > 1)
        snprintf(slices, sizeof slices, ", %ux%u slices", fit.args.splits, fit.args.cluster);
    snprintf(out->kernel_info.kernel, sizeof out->kernel_info.kernel, "matmul<%s, %s%s%s>%s",
             mm_tables[candidate->table]->name, fit.kernel.name, candidate->swap_ab ? " swap_ab" : "",
             candidate->packed ? " packed" : "", slices);
    static_assert(sizeof *candidate <= sizeof out->algorithm, "a plan has no room for the candidate");
    memcpy(out->algorithm, candidate, sizeof *candidate);
}

void ks_matmul_join_plan(const ks_chip *chip, const ks_spec *spec, const ks_matmul_family *family, ks_cuda_plan *out)
{
    ks_matmul_candidate_plan(chip, spec, &family->most, out);
    mm_join_needs(chip, spec, family, &out->workspace_bytes, &out->counters);
    static_assert(sizeof *family <= sizeof out->algorithm, "a plan has no room for a family");
    memset(out->algorithm, 0, sizeof out->algorithm);
    memcpy(out->algorithm, family, sizeof *family);
}

/* Bytes, in and out together, up to which a plan rather shares its launches: a kernel that reads each byte once works on
 * mapped slots, all requests of a turn in one launch, which gains more than any kernel can. */
enum { MM_SHARED_MOST = 64 << 10 };

/* The candidates in the order in which they are tried: the model's, but where launches may be shared the first that can. */
static int order_candidates(const ks_chip *chip, const ks_spec *spec, ks_matmul_candidate *out, int most)
{
    ks_matmul_candidate all[KS_MATMUL_CANDIDATES], first;
    ks_cuda_plan plan;
    size_t bytes = spec->out[0].size_bytes;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) bytes += spec->in[i].size_bytes;
    const bool shares = bytes <= MM_SHARED_MOST && !ks_spec_fixed(spec); /* which has no mapped slots */
    const int count = ks_matmul_candidates(chip, spec, all, shares ? (int)KS_MATMUL_CANDIDATES : most);
    for (int i = 0; i < count && shares; i++) {
        ks_matmul_candidate_plan(chip, spec, &all[i], &plan);
        if (!plan.once) continue;
        first = all[i];
        memmove(all + 1, all, (size_t)i * sizeof first);
        all[0] = first;
        break;
    }
    const int found = count < most ? count : most;
    memcpy(out, all, (size_t)found * sizeof *all);
    return found;
}

static bool is_narrow(const ks_spec *spec)
{
    return ks_dtype_size(spec->in[0].dtype) == 1;
}

/* ks_cuda_plan_fn */
static ks_status cuda_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    ks_matmul_candidate best;
    if (is_narrow(spec)) {
        narrow_candidates(chip, spec, out, 1);
        return KS_OK;
    }
    if (order_candidates(chip, spec, &best, 1) == 0)
        return ks_fail(error, KS_WORK, "matmul: more than %d tiles, or than %d values of K to a slice",
                       (int)MM_GRID_MOST, (int)MM_SLICE_MOST);
    ks_matmul_candidate_plan(chip, spec, &best, out);
    return KS_OK;
}

/* ks_cuda_plan_fn */
static ks_status cuda_join(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    ks_matmul_family family;
    if (!ks_matmul_join(chip, spec, &family))
        return ks_fail(error, KS_WORK, "matmul: no kernel serves each number of rows");
    ks_matmul_join_plan(chip, spec, &family, out);
    return KS_OK;
}

/* --- algorithms ------------------------------------------------------------------------------------------------------ */

/* A plan's choice where cuBLASLt does it. */
typedef struct mm_library_algorithm {
    ks_matmul_candidate mark;
    ks_cublaslt_algorithm algorithm;
} mm_library_algorithm;
static_assert(sizeof(mm_library_algorithm) <= KS_ALGORITHM_BYTES, "a plan has no room for cuBLASLt's choice");

enum { MM_OWN_ALGORITHMS = 16 }; /* that are tried: the rest of the 256 is further back in the model's order */

static void library_plan(const ks_cublaslt_algorithm *algorithm, ks_cuda_plan *out)
{
    mm_library_algorithm library;
    memset(&library, 0, sizeof library);
    library.mark.table = KS_MATMUL_LIBRARY;
    library.algorithm = *algorithm;
    memset(out, 0, sizeof *out);
    out->batch_max = 1; /* a graph's addresses are frozen, and the library reads no job table */
    out->workspace_bytes = (size_t)algorithm->workspace_bytes;
    out->unstamped = true;
    ks_cublaslt_name(algorithm, out->kernel_info.kernel, sizeof out->kernel_info.kernel);
    memcpy(out->algorithm, &library, sizeof library);
}

static void algorithm_of(const ks_cuda_plan *plan, ks_algorithm *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->kernel, plan->kernel_info.kernel, sizeof out->kernel);
    memcpy(out->algorithm, plan->algorithm, sizeof out->algorithm);
}

static int cuda_candidates(const ks_chip *chip, const ks_spec *spec, ks_algorithm *out, int most)
{
    ks_matmul_candidate own[MM_OWN_ALGORITHMS];
    ks_cublaslt_algorithm library[KS_CANDIDATES_MAX];
    ks_cuda_plan plan;
    ks_matmul_shape shape;
    int count = 0;
    if (is_narrow(spec)) {
        ks_cuda_plan narrow[NARROW_WAYS_MOST];
        for (const int ways = narrow_candidates(chip, spec, narrow, most < NARROW_WAYS_MOST ? most : NARROW_WAYS_MOST);
             count < ways; count++)
            algorithm_of(&narrow[count], &out[count]);
        return count;
    }
    ks_matmul_shape_of(spec, &shape);
    const int owns = order_candidates(chip, spec, own, most < (int)MM_OWN_ALGORITHMS ? most : (int)MM_OWN_ALGORITHMS);
    for (; count < owns; count++) {
        ks_matmul_candidate_plan(chip, spec, &own[count], &plan);
        algorithm_of(&plan, &out[count]);
    }
    const int room = most - owns < (int)KS_CANDIDATES_MAX ? most - owns : (int)KS_CANDIDATES_MAX;
    const int found = ks_cublaslt_list(spec, &shape, chip->workspace_bytes, library, room);
    for (int i = 0; i < found; i++) {
        library_plan(&library[i], &plan);
        algorithm_of(&plan, &out[count++]);
    }
    return count;
}

static ks_status cuda_adopt(const ks_chip *chip, const ks_spec *spec, const ks_algorithm *algorithm, ks_cuda_plan *out,
                            ks_error *error)
{
    ks_matmul_candidate own[KS_MATMUL_CANDIDATES];
    ks_matmul_shape shape;
    mm_library_algorithm library;
    if (is_narrow(spec)) {
        ks_cuda_plan narrow[NARROW_WAYS_MOST];
        const int ways = narrow_candidates(chip, spec, narrow, NARROW_WAYS_MOST);
        for (int i = 0; i < ways; i++) {
            if (memcmp(narrow[i].algorithm, algorithm->algorithm, sizeof(narrow_algorithm)) != 0) continue;
            *out = narrow[i];
            return KS_OK;
        }
        return ks_fail(error, KS_CONFIG, "matmul: no such kernel for these shapes");
    }
    ks_matmul_shape_of(spec, &shape);
    memcpy(&library, algorithm->algorithm, sizeof library);
    if (library.mark.table == KS_MATMUL_LIBRARY) {
        if (!ks_cublaslt_check(spec, &shape, chip->workspace_bytes, &library.algorithm))
            return ks_fail(error, KS_CONFIG, "matmul: no such algorithm of cuBLASLt for these shapes");
        library_plan(&library.algorithm, out);
        return KS_OK;
    }
    const int owns = ks_matmul_candidates(chip, spec, own, KS_MATMUL_CANDIDATES);
    for (int i = 0; i < owns; i++) {
        if (memcmp(&own[i], algorithm->algorithm, sizeof own[i]) != 0) continue;
        ks_matmul_candidate_plan(chip, spec, &own[i], out);
        return KS_OK;
    }
    return ks_fail(error, KS_CONFIG, "matmul: no such kernel for these shapes");
}

/* FNV-1a over what the tables say of their kernels. */
static uint64_t cuda_revision(void)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (int table = 0; table < MM_TABLES; table++)
        for (int row = 0; row < mm_tables[table]->count; row++) {
            char text[128];
            const mm_kernel *kernel = &mm_tables[table]->rows[row].layout[1][1];
            snprintf(text, sizeof text, "%d %s %d %d %d %d %d %d", table, kernel->name, kernel->m, kernel->n,
                     kernel->depth, kernel->threads, kernel->ctas, kernel->shared_bytes);
            for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001B3u;
        }
    return hash;
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    mm_library_algorithm library;
    ks_matmul_family family;
    if (is_narrow(spec)) {
        const cudaError_t code = narrow_launch(chip, spec, algorithm, site, bucket, stream);
        return code == cudaSuccess ? KS_OK
                                   : ks_fail(error, KS_DEVICE, "matmul: launch failed: %s", cudaGetErrorString(code));
    }
    memcpy(&library, algorithm, sizeof library);
    memcpy(&family, algorithm, sizeof family);
    const mm_problem p = mm_problem_of(chip, spec);
    if (library.mark.joined) library.mark = ks_matmul_join_candidate(&family, spec->in[0].dims[0]);
    if (library.mark.table != KS_MATMUL_LIBRARY) return mm_launch(&p, &library.mark, &site, bucket, stream, error);
    const ks_cublaslt_job job = {site.only.in, site.only.out, site.workspace};
    return ks_cublaslt_launch(spec, &p.shape, &library.algorithm, &job, stream, error);
}

/* --- setup ----------------------------------------------------------------------------------------------------------- */

/* The first wgmma kernel of the tables has code only where the build made it for sm_90a: then it has shared memory, for its
 * mbarriers. */
static cudaError_t find_tma(ks_chip *chip)
{
    const mm_table *table = mm_tables[MM_FP16];
    chip->encode_tiled = NULL;
    int row = 0;
    while (row < table->count && !table->rows[row].layout[1][1].tma) row++;
    if (chip->capability != 90 || row == table->count) return cudaSuccess;
    cudaFuncAttributes attributes;
    const cudaError_t code = cudaFuncGetAttributes(&attributes, mm_function(&table->rows[row].layout[1][1]));
    if (code != cudaSuccess || attributes.sharedSizeBytes == 0) return code;
    cudaDriverEntryPointQueryResult found;
    return cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&chip->encode_tiled, 12000,
                                            cudaEnableDefault, &found);
}

/* Asked of the kernel that leaves the least of an SM's shared memory to a second CTA. */
static cudaError_t count_clusters(ks_chip *chip)
{
    chip->clusters[0] = chip->sms;
    if (chip->capability < 90) return cudaSuccess;
    const mm_table *table = mm_tables[MM_FP32];
    mm_kernel kernel = {};
    for (int row = 0; row < table->count; row++) {
        const mm_kernel *other = &table->rows[row].layout[1][1];
        if (mm_function(other) && other->split_k && other->shared_bytes > kernel.shared_bytes &&
            (size_t)other->shared_bytes <= chip->shared_optin)
            kernel = *other;
    }
    for (int i = 1; i < 4; i++) {
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = 1u << i;
        attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(1024, 1, 1);
        config.blockDim = dim3((unsigned)kernel.threads, 1, 1);
        config.dynamicSmemBytes = (size_t)kernel.shared_bytes;
        config.attrs = &attribute;
        config.numAttrs = 1;
        const cudaError_t code = cudaOccupancyMaxActiveClusters(&chip->clusters[i], mm_function(&kernel), &config);
        if (code != cudaSuccess) return code;
        if (chip->clusters[i] < 1) chip->clusters[i] = 1;
    }
    return cudaSuccess;
}

/* Shared memory beyond 48 KiB. What the chip has not got is never a candidate on it. */
static cudaError_t allow(const ks_chip *chip, const mm_kernel *kernel)
{
    if (!mm_function(kernel) || (size_t)kernel->shared_bytes > chip->shared_optin) return cudaSuccess;
    return cudaFuncSetAttribute(mm_function(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kernel->skinny ? (int)chip->shared_optin : kernel->shared_bytes);
}

static cudaError_t allow_all(ks_chip *chip)
{
    cudaError_t code = cudaSuccess;
    for (int table = 0; table < MM_TABLES; table++)
        for (int row = 0; row < mm_tables[table]->count; row++)
            for (int layout = 0; layout < 4 && code == cudaSuccess; layout++)
                code = allow(chip, &mm_tables[table]->rows[row].layout[layout / 2][layout % 2]);
    return code;
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    static const struct {
        cudaError_t (*step)(ks_chip *chip);
        const char *what;
    } steps[] = {{find_tma, "tensor maps"},
                 {allow_all, "shared memory"},
                 {narrow_wgmma_allow, "shared memory"},
                 {narrow_strip_allow, "shared memory"},
                 {mm_find_early, "attributes"},
                 {count_clusters, "clusters"}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const cudaError_t code = steps[i].step(chip);
        if (code != cudaSuccess)
            return ks_fail(error, KS_DEVICE, "matmul: %s: %s (%d)", steps[i].what, cudaGetErrorString(code), (int)code);
    }
    return KS_OK;
}

extern const ks_cuda_op ks_matmul_cuda;
const ks_cuda_op ks_matmul_cuda = {.setup = cuda_setup,
                                   .plan = cuda_plan,
                                   .launch = cuda_launch,
                                   .join = cuda_join,
                                   .candidates = cuda_candidates,
                                   .adopt = cuda_adopt,
                                   .revision = cuda_revision,
                                   .starts_anywhere = NULL};
