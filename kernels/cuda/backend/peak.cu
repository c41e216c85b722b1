/* What arithmetic a device can do at best: a product that keeps all SMs busy for about a millisecond, by the kernel that
 * prepare would pick, as a trial on a lane of its own. */
#include "cuda/backend/internal.h"

enum { PEAK_SIZE = 4096, PEAK_RUNS = 4, PEAK_TRIALS = 3 };

static ks_status peak_spec(ks_dtype dtype, ks_spec *spec, ks_error *error)
{
    const ks_op *op = ks_op_find("matmul", strlen("matmul"));
    if (!op) return ks_fail(error, KS_CONFIG, "no operation matmul to measure with");
    if (!(ks_op_dtypes(op, 0) & KS_DTYPE_BIT(dtype)))
        return ks_fail(error, KS_DATATYPE, "no product of %s to measure with", ks_dtype_name(dtype));
    ks_spec_init(spec, op);
    for (int i = 0; i < 2; i++) {
        spec->in[i].dtype = dtype;
        spec->in[i].rank = 2;
        spec->in[i].dims[0] = spec->in[i].dims[1] = PEAK_SIZE;
        const ks_status status = ks_tensor_measure(&spec->in[i], op->inputs[i].name, error);
        if (status) return status;
        spec->given |= (uint16_t)(1u << i);
    }
    ks_spec_layout(spec);
    return op->resolve(spec, error);
}

/* The lane's large arena takes the operands: a lane other than a shard's first has none of its own. */
static ks_status peak_plan(ks_lane *lane, ks_plan *plan, ks_error *error)
{
    const ks_chip *chip = &lane->device->chip;
    ks_cuda_plan chosen;
    void *memory = NULL;
    memset(&chosen, 0, sizeof chosen);
    const ks_status status = ks_cuda_op_of(plan->spec.op)->plan(chip, &plan->spec, &chosen, error);
    if (status) return status;
    plan->in_bytes = ks_spec_in_bytes(&plan->spec);
    plan->out_bytes = ks_spec_out_bytes(&plan->spec);
    plan->workspace_bytes = ks_align(chosen.workspace_bytes);
    plan->counters = chosen.counters;
    plan->large = true;
    plan->kernel_info = chosen.kernel_info;
    memcpy(plan->algorithm, chosen.algorithm, sizeof plan->algorithm);
    const size_t bytes = plan->in_bytes + plan->out_bytes + 8 * SLOT_ALIGNMENT + 2 * SLOT_PAD;
    KS_TRY_SOFT(error, cudaMalloc(&memory, bytes));
    lane->large = (unsigned char *)memory;
    lane->large_bytes = bytes;
    KS_TRY(lane->device, error, cudaMemsetAsync(memory, 0, bytes, lane->stream));
    return KS_OK;
}

/* The fastest of a few trials. */
static ks_status peak_run(ks_lane *lane, ks_plan *plan, int64_t *best_ns, ks_error *error)
{
    for (int i = 0; i < PEAK_TRIALS; i++) {
        ks_batch batch;
        memset(&batch, 0, sizeof batch);
        batch.plan = plan;
        batch.trial = PEAK_RUNS;
        const ks_status status = ks_cuda_trial_launch(lane, &batch, error);
        if (status) return status;
        KS_TRY(lane->device, error, cudaStreamSynchronize(lane->stream));
        ks_cuda_trial_finish(lane, &batch);
        if (batch.kernel_ns > 0 && batch.kernel_ns < *best_ns) *best_ns = batch.kernel_ns;
    }
    return KS_OK;
}

ks_status ks_cuda_peak(ks_device *device, ks_dtype dtype, ks_peak *out, ks_error *error)
{
    ks_plan *plan = (ks_plan *)calloc(1, sizeof *plan);
    ks_lane *lane = NULL;
    int64_t best_ns = INT64_MAX;
    if (!plan) return ks_fail(error, KS_MEMORY, "no memory for a plan");
    ks_status status = peak_spec(dtype, &plan->spec, error);
    if (!status) status = ks_cuda_lane_open(device, 1, -1, &lane, error);
    if (!status) status = peak_plan(lane, plan, error);
    if (!status) status = peak_run(lane, plan, &best_ns, error);
    if (!status && best_ns < INT64_MAX) {
        out->tflops = plan->spec.flops / (double)best_ns / 1e3;
        snprintf(out->source, sizeof out->source, "%s product of size %d, best of %d", ks_dtype_name(dtype), PEAK_SIZE,
                 PEAK_TRIALS);
    }
    if (lane && lane->large && !ks_cuda_failed(device)) cudaFree(lane->large); /* which waits for its last use */
    ks_cuda_lane_close(&lane);
    free(plan);
    return status;
}
