/* The device's clock (%globaltimer) on the host's scale, so that a kernel's stamps split a launch into its phases.
 *
 * A launch called at host time L and seen done at host time D stamps start S and end E with L <= host(S) and
 * host(E) <= D. So each launch bounds offset = host - device from both sides, at no cost:  L - S <= offset <= D - E.
 * The bounds are kept per lane, drift apart by KS_DRIFT_PPM between samples, and every sample tightens them. A launch
 * on mapped slots bounds the offset from below by one launch delay (4-6 us), which is `lead`, measured at open by
 * probes; so the offset is taken as low + lead, never above high. Large copies bound it loosely; where no tight sample
 * came for 0.5 s, a lane that has just become free enqueues a one-thread probe and reads its stamp at its next launch:
 * nothing waits for it. Accuracy: 2-3 us after a tight sample, plus the clock's own tick (up to 1 us) and KS_DRIFT_PPM
 * since. */
#include "cuda/backend/internal.h"

enum { KS_DRIFT_PPM = 20, KS_PROBES = 24, KS_PROBE_EVERY_NS = 500000000, KS_FLAG_NS = 700 };

/* One thread: the stamp and the flag of a launch that does nothing. */
__global__ void clock_probe_kernel(ks_completion *completion, uint32_t sequence)
{
    completion->start_ns = ks_globaltimer();
    __threadfence_system();
    *(volatile uint64_t *)&completion->sequence = sequence;
}

void ks_cuda_clock_sample(ks_cuda_clock *clock, int64_t now, int64_t low, int64_t high)
{
    const int64_t drift = (now - clock->at_ns) / 1000 * KS_DRIFT_PPM / 1000;
    clock->low -= drift;
    if (clock->high < INT64_MAX - drift) clock->high += drift;
    if (low > clock->low) clock->low = low;
    if (high < clock->high) clock->high = high;
    if (clock->low >
        clock->high) { /* the clocks drift faster than assumed, or one was set: believe the newest sample */
        clock->low = low;
        clock->high = high < low ? low : high;
    }
    clock->at_ns = now;
}

static int64_t clock_host(const ks_cuda_clock *clock, uint64_t device_ns)
{
    const int64_t likely = clock->low + clock->lead;
    return (int64_t)device_ns + (likely < clock->high ? likely : clock->high);
}

/* Spins, at open only. */
static ks_status clock_probe(ks_device *device, ks_lane *lane, ks_error *error)
{
    ks_completion *completion = &lane->shared->probe;
    const uint32_t sequence = ++lane->probe_sequence;
    const int64_t launched = ks_cuda_now_ns();
    clock_probe_kernel<<<1, 1, 0, lane->stream>>>(&lane->shared_device->probe, sequence);
    KS_TRY_SOFT(error, cudaGetLastError());
    while (__atomic_load_n(&completion->sequence, __ATOMIC_ACQUIRE) != sequence) {
        if (ks_cuda_now_ns() - launched < KS_LATE_NS) continue;
        KS_TRY_SOFT(error, cudaStreamSynchronize(lane->stream));
        if (__atomic_load_n(&completion->sequence, __ATOMIC_ACQUIRE) == sequence) break;
        return ks_fail(error, KS_DEVICE, "%s: a kernel ended and its mark in mapped memory did not arrive",
                       device->info.name);
    }
    const int64_t seen = ks_cuda_now_ns();
    ks_cuda_clock_sample(&lane->clock, seen, launched - (int64_t)completion->start_ns,
                         seen - (int64_t)completion->start_ns);
    return KS_OK;
}

/* The first bounds of every lane opened later, and the launch delay. */
ks_status ks_cuda_clock_start(ks_device *device, ks_lane *lane, ks_error *error)
{
    for (int i = 0; i < KS_PROBES; i++) {
        if (i == KS_PROBES / 2) /* the first ones load and warm the driver */
            lane->clock = (ks_cuda_clock){
                .low = INT64_MIN / 2, .high = INT64_MAX, .lead = 0, .at_ns = ks_cuda_now_ns(), .tight_ns = 0};
        const ks_status status = clock_probe(device, lane, error);
        if (status) return status;
    }
    const int64_t width = lane->clock.high - lane->clock.low;
    lane->clock.lead = width > KS_FLAG_NS ? width - KS_FLAG_NS : 0;
    lane->clock.tight_ns = ks_cuda_now_ns();
    device->clock = lane->clock;
    return KS_OK;
}

/* A lane that has just become free; no caller waits for the stamp. A failure shows at the next launch. */
void ks_cuda_clock_probe_later(ks_lane *lane, int64_t now)
{
    if (lane->probe_ns || now - lane->clock.tight_ns < KS_PROBE_EVERY_NS) return;
    lane->probe_ns = ks_cuda_now_ns();
    clock_probe_kernel<<<1, 1, 0, lane->stream>>>(&lane->shared_device->probe, ++lane->probe_sequence);
    if (cudaGetLastError() != cudaSuccess) lane->probe_ns = 0;
    lane->clock.tight_ns = now;
}

/* Reads a probe's stamp before the lane's next launch; one that has not come yet is read later. */
void ks_cuda_clock_probe_read(ks_lane *lane)
{
    const ks_completion *completion = &lane->shared->probe;
    if (!lane->probe_ns || __atomic_load_n(&completion->sequence, __ATOMIC_ACQUIRE) != lane->probe_sequence) return;
    ks_cuda_clock_sample(&lane->clock, ks_cuda_now_ns(), lane->probe_ns - (int64_t)completion->start_ns, INT64_MAX);
    lane->probe_ns = 0;
}

static int64_t between(int64_t value, int64_t most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

/* Splits launch .. done; the three parts add up exactly whatever the clocks say. */
void ks_cuda_clock_phases(ks_lane *lane, const ks_completion *completion, int64_t done, ks_batch *batch)
{
    const int64_t total = done - lane->launch_ns;
    ks_cuda_clock_sample(&lane->clock, done, lane->launch_ns - (int64_t)completion->start_ns,
                         done - (int64_t)completion->end_ns);
    const int64_t start = clock_host(&lane->clock, completion->start_ns),
                  end = clock_host(&lane->clock, completion->end_ns);
    batch->h2d_ns = between(start - lane->launch_ns, total);
    batch->compute_ns = between(end - start, total - batch->h2d_ns);
    batch->d2h_ns = total - batch->h2d_ns - batch->compute_ns;
}
