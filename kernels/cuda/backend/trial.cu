/* A trial: a plan's kernels timed on a lane, without a request.
 *
 * The state is that of a copied request: its operands have just been written to where the lane's jobs lie, so what the
 * L2 cache holds, it holds. Uneven values, because the clock of a chip that multiplies zeros is another one. First the
 * kernels run once plainly, since what is loaded late must not be loaded within a capture; then as one graph of so
 * many runs, twice: the second is timed by events, the first keeps the device busy until the second is enqueued, so
 * that no gap counts. Whole trials are the tuner's to alternate. A library that fails here fails the trial: ours would
 * stand in for it in a request only. */
#include "cuda/backend/internal.h"

/* Numbers of either sign between 1/2 and 1, as 16-bit, 32-bit or 64-bit floating point. */
__global__ void ks_cuda_fill(unsigned char *out, size_t words, int dtype)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)(i >> 32);
        h = (h ^ h >> 16) * 0x85ebca6bu;
        h = (h ^ h >> 13) * 0xc2b2ae35u;
        uint32_t word = h;
        if (dtype == KS_FP16)
            word = (h & 0x83ff83ffu) | 0x38003800u;
        else if (dtype == KS_BF16)
            word = (h & 0x807f807fu) | 0x3f003f00u;
        else if (dtype == KS_FP32)
            word = (h & 0x807fffffu) | 0x3f000000u;
        else if (i & 1) /* the upper half of an FP64 */
            word = (h & 0x800fffffu) | 0x3fe00000u;
        ((uint32_t *)out)[i] = word;
    }
}

void ks_cuda_trial_drop(ks_lane *lane)
{
    if (lane->trial_exec) cudaGraphExecDestroy(lane->trial_exec);
    if (lane->trial_graph) cudaGraphDestroy(lane->trial_graph);
    lane->trial_exec = NULL;
    lane->trial_graph = NULL;
    cudaGetLastError();
}

static ks_status trial_once(ks_lane *lane, const ks_plan *plan, ks_error *error)
{
    return ks_cuda_op_of(plan->spec.op)
        ->launch(&lane->device->chip, &plan->spec, plan->algorithm, ks_cuda_site_of(lane, plan, KS_PATH_COPIES), 1,
                 lane->stream, error);
}

/* As graph_tape: whatever happens between, the capture is ended. */
static ks_status trial_tape(ks_lane *lane, const ks_batch *batch, ks_error *error)
{
    ks_status status = KS_OK;
    KS_TRY_SOFT(error, cudaStreamBeginCapture(lane->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < batch->trial && !status; i++) status = trial_once(lane, batch->plan, error);
    const cudaError_t code = cudaStreamEndCapture(lane->stream, &lane->trial_graph);
    if (status) {
        cudaGetLastError();
        return status;
    }
    KS_TRY_SOFT(error, code);
    KS_TRY_SOFT(error, cudaGraphInstantiate(&lane->trial_exec, lane->trial_graph, 0));
    KS_TRY_SOFT(error, cudaGraphUpload(lane->trial_exec, lane->stream));
    return KS_OK;
}

ks_status ks_cuda_trial_launch(ks_lane *lane, const ks_batch *batch, ks_error *error)
{
    const ks_plan *plan = batch->plan;
    const size_t words = ks_align(plan->in_bytes) / sizeof(uint32_t);
    for (int i = 0; i < 2; i++)
        if (!lane->trial_event[i]) KS_TRY_SOFT(error, cudaEventCreate(&lane->trial_event[i]));
    ks_cuda_fill<<<512, 256, 0, lane->stream>>>(ks_cuda_place_of(lane, plan).in, words, plan->spec.in[0].dtype);
    KS_TRY_SOFT(error, cudaGetLastError());
    ks_status status = trial_once(lane, plan, error);
    if (!status) status = trial_tape(lane, batch, error);
    if (status) return status;
    KS_TRY(lane->device, error, cudaGraphLaunch(lane->trial_exec, lane->stream));
    KS_TRY(lane->device, error, cudaEventRecord(lane->trial_event[0], lane->stream));
    KS_TRY(lane->device, error, cudaGraphLaunch(lane->trial_exec, lane->stream));
    KS_TRY(lane->device, error, cudaEventRecord(lane->trial_event[1], lane->stream));
    return KS_OK;
}

/* Done. A time that cannot be read is none. */
void ks_cuda_trial_finish(ks_lane *lane, ks_batch *batch)
{
    float ms = 0;
    if (cudaEventElapsedTime(&ms, lane->trial_event[0], lane->trial_event[1]) != cudaSuccess) ms = 0;
    batch->kernel_ns = (int64_t)((double)ms * 1e6 / batch->trial);
    ks_cuda_trial_drop(lane);
}
