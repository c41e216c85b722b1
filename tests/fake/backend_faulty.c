#include "fake/backend_faulty.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "fake/fake_backend.h"

/* What has become of a lane's batch. */
typedef struct lane_fault {
    ks_batch *batch;
    ks_fault_kind kind;
} lane_fault;

static struct {
    ks_fault_call call;
    int n;
    ks_fault_kind kind;
    const char *hold, *trap_at; /* NULL: none */
    void (*trap)(void);
    bool polled;
    _Atomic int calls[KS_FAULT_CALLS];
    _Atomic bool lost;
} faulty;

/* What this call has to do: its kind, or none. */
static ks_fault_kind next(ks_fault_call call)
{
    if (atomic_load(&faulty.lost)) return KS_FAULT_STICKY;
    const int n = atomic_fetch_add(&faulty.calls[call], 1) + 1;
    if (faulty.kind == KS_FAULT_NONE || call != faulty.call || n != faulty.n) return KS_FAULT_NONE;
    if (faulty.kind == KS_FAULT_STICKY) atomic_store(&faulty.lost, true);
    return faulty.kind;
}

static bool fails(ks_fault_call call, ks_status *status, ks_error *error)
{
    const ks_fault_kind kind = next(call);
    if (kind == KS_FAULT_OOM) *status = ks_fail(error, KS_MEMORY, "injected: out of memory");
    if (kind == KS_FAULT_STICKY) *status = ks_fail(error, KS_DEVICE, "injected: the device is lost");
    return kind == KS_FAULT_OOM || kind == KS_FAULT_STICKY;
}

static ks_status faulty_open(const ks_limits *limits, ks_device **out, ks_error *error)
{
    ks_status status;
    return fails(KS_FAULT_OPEN, &status, error) ? status : fake_base->open(limits, out, error);
}

static ks_status faulty_slot_init(ks_device *device, size_t in_bytes, size_t out_bytes, bool pinned, ks_slot *slot,
                                  ks_error *error)
{
    ks_status status;
    if (fails(KS_FAULT_SLOT_INIT, &status, error)) return status;
    return fake_base->slot_init(device, in_bytes, out_bytes, pinned, slot, error);
}

static ks_status faulty_lane_open(ks_device *device, int index, int wake_fd, ks_lane **out, ks_error *error)
{
    ks_status status;
    if (fails(KS_FAULT_LANE_OPEN, &status, error)) return status;
    return fake_base->lane_open(device, index, wake_fd, out, error);
}

static void faulty_info(const ks_device *device, ks_device_info *out)
{
    fake_base->info(device, out);
    out->polled |= faulty.polled;
}

static ks_status faulty_prepare(ks_device *device, ks_plan *plan, ks_error *error)
{
    ks_status status;
    return fails(KS_FAULT_PREPARE, &status, error) ? status : fake_base->prepare(device, plan, error);
}

static ks_status faulty_capture(ks_lane *lane, ks_plan *plan, int bucket, ks_error *error)
{
    ks_status status;
    return fails(KS_FAULT_CAPTURE, &status, error) ? status : fake_base->capture(lane, plan, bucket, error);
}

/* Of several workers one alone can take the file away. */
static bool is_trapped(void)
{
    return faulty.trap_at && access(faulty.trap_at, F_OK) == 0 && unlink(faulty.trap_at) == 0;
}

static ks_status faulty_launch(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    lane_fault *fault = fake_lane_state(lane);
    fault->batch = batch;
    fault->kind = next(KS_FAULT_LAUNCH);
    if (is_trapped()) {
        if (faulty.trap) {
            faulty.trap(); /* what follows fails by itself */
        } else {
            atomic_store(&faulty.lost, true);
            fault->kind = KS_FAULT_STICKY;
        }
    }
    if (fault->kind == KS_FAULT_OOM) return ks_fail(error, KS_MEMORY, "injected: out of memory");
    if (fault->kind == KS_FAULT_STICKY) return ks_fail(error, KS_DEVICE, "injected: the device is lost");
    if (fault->kind == KS_FAULT_HANG) return KS_OK; /* the base's lane never hears of it */
    return fake_base->launch(lane, batch, error);
}

static void spoil(const ks_batch *batch)
{
    for (int i = 0; i < batch->count; i++)
        for (size_t k = 0; k < batch->plan->out_bytes; k++) batch->slots[i]->out[k] ^= 0x55;
}

static bool is_held(void)
{
    return faulty.hold && access(faulty.hold, F_OK) == 0;
}

static ks_poll faulty_poll(ks_lane *lane, ks_error *error)
{
    lane_fault *fault = fake_lane_state(lane);
    if (fault->kind == KS_FAULT_HANG || is_held()) return KS_RUNNING;
    const ks_poll poll = fake_base->poll(lane, error);
    if (poll == KS_RUNNING) return poll;
    const ks_fault_kind kind = next(KS_FAULT_POLL);
    if (kind == KS_FAULT_GARBAGE || fault->kind == KS_FAULT_GARBAGE) spoil(fault->batch);
    if (kind == KS_FAULT_HANG) fault->kind = kind;
    if (kind == KS_FAULT_HANG) return KS_RUNNING;
    if (kind == KS_FAULT_OOM) ks_fail(error, KS_MEMORY, "injected: out of memory");
    if (kind == KS_FAULT_STICKY) ks_fail(error, KS_DEVICE, "injected: the device is lost");
    return kind == KS_FAULT_OOM || kind == KS_FAULT_STICKY ? KS_FAILED : poll;
}

static bool faulty_goes_on(ks_lane *lane, int64_t stall_ns)
{
    const lane_fault *fault = fake_lane_state(lane);
    return fault->kind != KS_FAULT_HANG && (is_held() || fake_base->goes_on(lane, stall_ns));
}

static bool faulty_failed(const ks_device *device)
{
    return atomic_load(&faulty.lost) || fake_base->failed(device);
}

const ks_backend *ks_faulty_backend(const ks_backend *inner)
{
    const fake_overrides overrides = {.calls = {.open = faulty_open,
                                                .info = faulty_info,
                                                .slot_init = faulty_slot_init,
                                                .lane_open = faulty_lane_open,
                                                .prepare = faulty_prepare,
                                                .capture = faulty_capture,
                                                .launch = faulty_launch,
                                                .poll = faulty_poll,
                                                .goes_on = inner->goes_on ? faulty_goes_on : NULL,
                                                .failed = faulty_failed,
                                                .large = inner->large ? fake_base->large : NULL,
                                                .resident = inner->resident ? fake_base->resident : NULL},
                                      .lane_bytes = sizeof(lane_fault)};
    memset(&faulty, 0, sizeof faulty);
    return fake_backend(inner, &overrides);
}

void ks_faulty_arm(ks_fault_call call, int n, ks_fault_kind kind)
{
    for (int i = 0; i < KS_FAULT_CALLS; i++) atomic_store(&faulty.calls[i], 0);
    faulty.call = call;
    faulty.n = n;
    faulty.kind = kind;
}

int ks_faulty_calls(ks_fault_call call)
{
    return faulty.calls[call];
}

void ks_faulty_polled(bool polled)
{
    faulty.polled = polled;
}

void ks_faulty_hold(const char *path)
{
    faulty.hold = path;
}

void ks_faulty_trap(const char *path, void (*trap)(void))
{
    faulty.trap_at = path;
    faulty.trap = trap;
}
