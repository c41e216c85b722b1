/* What a plan's kernel leaves of an SM: the launch function says which kernel it would launch, the runtime how many of its CTAs an
 * SM holds. */
#include "cuda/backend/internal.h"
#include "cuda/occupancy.h"

ks_status ks_cuda_note(const ks_device *device, const ks_plan *plan, ks_launch_note *note, ks_error *error)
{
    ks_site site;
    memset(&site, 0, sizeof site);
    memset(note, 0, sizeof *note);
    ks_noting = note;
    const ks_status status =
        ks_cuda_op_of(plan->spec.op)->launch(&device->chip, &plan->spec, plan->algorithm, site, 1, NULL, error);
    ks_noting = NULL;
    return status;
}

/* Of a library's kernels nothing is known. What cannot be asked stays unknown. */
void ks_cuda_find_occupancy(ks_device *device, ks_plan *plan)
{
    const ks_chip *chip = &device->chip;
    ks_occupancy *occupancy = &plan->kernel_info.occupancy;
    ks_launch_note note;
    ks_error ignored;
    cudaFuncAttributes has;
    int ctas = 0;
    memset(occupancy, 0, sizeof *occupancy);
    if (plan->unstamped || plan->program || ks_cuda_use(device) != cudaSuccess ||
        ks_cuda_note(device, plan, &note, &ignored))
        return;
    if (!note.kernel || cudaFuncGetAttributes(&has, note.kernel) != cudaSuccess ||
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, note.kernel, note.threads, note.shared_bytes) !=
            cudaSuccess) {
        cudaGetLastError();
        return;
    }
    const ks_sm_limits sm = {.registers = chip->registers_sm,
                             .threads = chip->threads_sm,
                             .ctas = chip->ctas_sm,
                             .shared_bytes = chip->shared_sm,
                             .shared_reserved = chip->shared_reserved};
    occupancy->registers = has.numRegs;
    occupancy->static_shared_bytes = has.sharedSizeBytes;
    ks_occupancy_limit(&sm, note.threads, note.shared_bytes, occupancy);
    occupancy->ctas = ctas;
    occupancy->warps = ctas * ((note.threads + 31) / 32);
    occupancy->sms = chip->sms;
}
