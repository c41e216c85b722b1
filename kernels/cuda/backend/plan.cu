/* prepare: what an op's planner has chosen becomes the plan's; and the algorithms that a plan may have instead (ks_tuning). */
#include "cuda/backend/chain.h"
#include "cuda/backend/internal.h"

#include "cuda/matmul/cublaslt.cuh"

/* A job's in + out side on one lane; beyond it the plan is large. The workspace has memory of its own. */
static ks_status prepare_sizes(ks_device *device, ks_plan *plan, ks_error *error)
{
    const ks_spec *spec = &plan->spec;
    if (!plan->in_bytes) plan->in_bytes = ks_spec_in_bytes(spec);
    if (!plan->out_bytes) plan->out_bytes = ks_spec_out_bytes(spec);
    if (plan->in_bytes > SIZE_MAX / 4 || plan->out_bytes > SIZE_MAX / 4)
        return ks_fail(error, KS_WORK, "%s: %zu + %zu bytes exceed the address space", spec->op->name, plan->in_bytes,
                       plan->out_bytes);
    const size_t bytes = plan->in_bytes + plan->out_bytes;
    plan->large = bytes > device->limits.lane_bytes;
    const size_t arena = __atomic_load_n(&device->large_fits, __ATOMIC_ACQUIRE);
    const size_t fits = arena > device->pool_bytes ? arena : device->pool_bytes;
    if (plan->large && bytes > fits)
        return ks_fail(error, KS_WORK, "%s: %zu bytes of inputs and output, the device holds %zu of one request",
                       spec->op->name, bytes, fits > device->limits.lane_bytes ? fits : device->limits.lane_bytes);
    return KS_OK;
}

/* Equal choices are the same kernel with the same threads and parts (FNV-1a). */
static uint64_t hash_algorithm(const unsigned char *algorithm)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (int i = 0; i < KS_ALGORITHM_BYTES; i++) hash = (hash ^ algorithm[i]) * 0x100000001B3u;
    return hash;
}

/* Small enough for kernels that read and write its slot. */
static bool fits_mapped(const ks_device *device, const ks_plan *plan)
{
    const size_t bytes = plan->in_bytes + plan->out_bytes;
    return !plan->large && bytes <= KS_MAPPED_MOST && bytes <= device->info.mapped_max &&
           !__atomic_load_n(&device->pageable, __ATOMIC_ACQUIRE);
}

/* Everything that prepare sets but the sizes, which are settled. */
static ks_status use_algorithm(ks_device *device, ks_plan *plan, const ks_cuda_plan *chosen, ks_error *error)
{
    plan->workspace_bytes = ks_align(chosen->workspace_bytes);
    if (plan->workspace_bytes > device->chip.workspace_bytes)
        return ks_fail(error, KS_WORK, "%s: %zu bytes of workspace, a lane has %zu", plan->spec.op->name,
                       plan->workspace_bytes, device->chip.workspace_bytes);
    memcpy(plan->algorithm, chosen->algorithm, sizeof plan->algorithm);
    plan->rows_like = hash_algorithm(plan->algorithm);
    plan->counters = chosen->counters;
    plan->unstamped = chosen->unstamped;
    plan->kernel_info = chosen->kernel_info;
    /* A job table has the sides of a job, and a fixed input beside others has its own place. */
    const bool apart = plan->spec.given != 1 && ks_spec_fixed(&plan->spec);
    plan->mapped = chosen->once && !apart && fits_mapped(device, plan);
    plan->graphs = !plan->large;
    int most = chosen->batch_max < 1 ? 1 : chosen->batch_max > KS_BATCH_MAX ? (int)KS_BATCH_MAX : chosen->batch_max;
    /* A bucket is a power of two, and each job of it has its own part of the workspace. */
    while (most > 1 && (plan->workspace_bytes > device->chip.workspace_bytes / ((size_t)1 << ks_bucket(most)) ||
                        plan->counters > (size_t)KS_COUNTERS_MAX >> ks_bucket(most)))
        most /= 2;
    plan->batch_max = plan->mapped ? most : 1;
    return KS_OK;
}

static bool end_join(const ks_device *device, ks_plan *plan, bool joins)
{
    if (!joins) {
        plan->join_rows = 0;
        return false;
    }
    /* Rows that the device does not see in their slots go alone, by copies. */
    plan->mapped = plan->graphs = !__atomic_load_n(&device->pageable, __ATOMIC_ACQUIRE);
    plan->batch_max = plan->mapped ? (int)KS_BATCH_MAX : 1;
    return true;
}

/* A family's plan. false: the device does not join it, and it is a plan of its spec as any other. */
static bool prepare_join(ks_device *device, const ks_cuda_op *op, ks_plan *plan)
{
    ks_cuda_plan chosen;
    ks_error ignored;
    memset(&chosen, 0, sizeof chosen);
    const bool joins = op->join && op->join(&device->chip, &plan->spec, &chosen, &ignored) == KS_OK &&
                       prepare_sizes(device, plan, &ignored) == KS_OK && !plan->large &&
                       use_algorithm(device, plan, &chosen, &ignored) == KS_OK;
    return end_join(device, plan, joins);
}

/* The same of a chain. */
static bool prepare_chain_join(ks_device *device, ks_plan *plan)
{
    ks_cuda_plan chosen;
    ks_error ignored;
    const bool joins = ks_cuda_chain_plan(device, plan, &chosen, &ignored) == KS_OK &&
                       prepare_sizes(device, plan, &ignored) == KS_OK && !plan->large &&
                       use_algorithm(device, plan, &chosen, &ignored) == KS_OK;
    return end_join(device, plan, joins);
}

/* Its jobs go alone; small ones are copied by kernels. */
static ks_status prepare_chain(ks_device *device, ks_plan *plan, ks_error *error)
{
    ks_cuda_plan chosen;
    ks_status status = ks_cuda_chain_plan(device, plan, &chosen, error);
    if (!status) status = prepare_sizes(device, plan, error);
    if (!status) status = use_algorithm(device, plan, &chosen, error);
    if (!status) plan->mapped = plan->moved = fits_mapped(device, plan);
    return status;
}

/* backend.prepare */
ks_status ks_cuda_prepare(ks_device *device, ks_plan *plan, ks_error *error)
{
    if (plan->program && plan->join_rows && prepare_chain_join(device, plan)) return KS_OK;
    if (plan->program) return prepare_chain(device, plan, error);
    const ks_cuda_op *op = ks_cuda_op_of(plan->spec.op);
    if (!op) return ks_fail(error, KS_WORK, "%s has no kernels", plan->spec.op->name);
    if (plan->join_rows && prepare_join(device, op, plan)) {
        ks_cuda_find_occupancy(device, plan);
        return KS_OK;
    }
    ks_cuda_plan chosen;
    memset(&chosen, 0, sizeof chosen);
    ks_status status = op->plan(&device->chip, &plan->spec, &chosen, error);
    if (!status) status = prepare_sizes(device, plan, error);
    if (!status) status = use_algorithm(device, plan, &chosen, error);
    if (!status) ks_cuda_find_occupancy(device, plan);
    return status;
}

/* --- algorithms ------------------------------------------------------------------------------------------------------------ */

/* tuning.revision */
static void revision(const ks_device *device, char *out, size_t cap)
{
    uint64_t kernels = 0;
    (void)device;
    for (int i = 0; ks_cuda_ops[i]; i++)
        if (ks_cuda_ops[i]->revision) kernels ^= ks_cuda_ops[i]->revision();
    snprintf(out, cap, "cuBLASLt %d; kernels %016llx", ks_cublaslt_version(), (unsigned long long)kernels);
}

/* The plan as the algorithm makes it, on the path that it has. One that works on mapped slots, with others in one launch, never
 * gives that up: requests that share a launch gain more than a kernel can. One that copies goes on to copy, whether or not
 * the algorithm's kernel could do without: the border is measured at each start, and what was chosen at one must fit the next. */
static ks_status try_algorithm(ks_device *device, const ks_plan *plan, const ks_algorithm *algorithm, ks_plan *out,
                               ks_error *error)
{
    ks_cuda_plan chosen;
    ks_plan_copy(out, plan);
    const ks_cuda_op *op = ks_cuda_op_of(plan->spec.op);
    if (!op || !op->adopt) return ks_fail(error, KS_CONFIG, "%s has one algorithm", plan->spec.op->name);
    ks_status status = op->adopt(&device->chip, &plan->spec, algorithm, &chosen, error);
    if (!status) status = use_algorithm(device, out, &chosen, error);
    if (!plan->mapped) {
        out->mapped = false;
        out->batch_max = 1;
    } else if (!status && (!out->mapped || out->batch_max != plan->batch_max)) {
        return ks_fail(error, KS_CONFIG, "%s takes another path to the device", algorithm->kernel);
    }
    return status;
}

/* tuning.list */
static int list_candidates(ks_device *device, const ks_plan *plan, ks_algorithm *out, int most)
{
    ks_plan tried;
    ks_error ignored;
    const ks_cuda_op *op = ks_cuda_op_of(plan->spec.op);
    if (!op || !op->candidates || ks_cuda_use(device) != cudaSuccess) return 0;
    const int all = op->candidates(&device->chip, &plan->spec, out, most);
    int count = 0;
    for (int i = 0; i < all; i++)
        if (try_algorithm(device, plan, &out[i], &tried, &ignored) == KS_OK) out[count++] = out[i];
    return count;
}

/* tuning.adopt */
static ks_status adopt_algorithm(ks_device *device, ks_plan *plan, const ks_algorithm *algorithm, ks_error *error)
{
    ks_plan made;
    KS_TRY(device, error, ks_cuda_use(device));
    const ks_status status = try_algorithm(device, plan, algorithm, &made, error);
    if (status) return status;
    *plan = made;
    ks_cuda_find_occupancy(device, plan);
    return KS_OK;
}

const ks_tuning ks_cuda_tuning = {.revision = revision, .list = list_candidates, .adopt = adopt_algorithm};
