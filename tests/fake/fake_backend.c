#include "fake/fake_backend.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

struct ks_device {
    const ks_backend *base;
    ks_device *inner;
    size_t lane_bytes;
    alignas(64) unsigned char state[];
};

struct ks_lane {
    ks_device *device;
    ks_lane *inner;
    int index;
    alignas(64) unsigned char state[];
};

static struct {
    const ks_backend *base;
    fake_overrides overrides;
    ks_backend merged;
} fake;

void *fake_device_state(const ks_device *device)
{
    return ((ks_device *)device)->state;
}

void *fake_lane_state(const ks_lane *lane)
{
    return ((ks_lane *)lane)->state;
}

ks_device *fake_lane_device(const ks_lane *lane)
{
    return lane->device;
}

int fake_lane_index(const ks_lane *lane)
{
    return lane->index;
}

static void *cleared(size_t bytes)
{
    void *memory = aligned_alloc(64, ks_align(bytes));
    if (memory) memset(memory, 0, bytes);
    return memory;
}

/* --- the base's, passed on ------------------------------------------------------------------------------------------- */

static ks_status base_open(const ks_limits *limits, ks_device **out, ks_error *error)
{
    ks_device *device = cleared(sizeof *device + fake.overrides.device_bytes);
    if (!device) return ks_fail(error, KS_MEMORY, "no memory for a fake device");
    device->base = fake.base;
    device->lane_bytes = fake.overrides.lane_bytes;
    const ks_status status = device->base->open(limits, &device->inner, error);
    if (status == KS_OK)
        *out = device;
    else
        free(device);
    return status;
}

static void base_close(ks_device **device)
{
    if (!*device) return;
    (*device)->base->close(&(*device)->inner);
    free(*device);
    *device = NULL;
}

static void base_info(const ks_device *device, ks_device_info *out)
{
    device->base->info(device->inner, out);
}

static ks_status base_slot_init(ks_device *device, size_t in_bytes, size_t out_bytes, bool pinned, ks_slot *slot,
                                ks_error *error)
{
    return device->base->slot_init(device->inner, in_bytes, out_bytes, pinned, slot, error);
}

static void base_slot_fini(ks_device *device, ks_slot *slot)
{
    device->base->slot_fini(device->inner, slot);
}

static ks_status base_lane_open(ks_device *device, int index, int wake_fd, ks_lane **out, ks_error *error)
{
    ks_lane *lane = cleared(sizeof *lane + device->lane_bytes);
    if (!lane) return ks_fail(error, KS_MEMORY, "no memory for a fake lane");
    lane->device = device;
    lane->index = index;
    const ks_status status = device->base->lane_open(device->inner, index, wake_fd, &lane->inner, error);
    if (status == KS_OK)
        *out = lane;
    else
        free(lane);
    return status;
}

static void base_lane_close(ks_lane **lane)
{
    if (!*lane) return;
    (*lane)->device->base->lane_close(&(*lane)->inner);
    free(*lane);
    *lane = NULL;
}

static ks_status base_prepare(ks_device *device, ks_plan *plan, ks_error *error)
{
    return device->base->prepare(device->inner, plan, error);
}

static ks_status base_capture(ks_lane *lane, ks_plan *plan, int bucket, ks_error *error)
{
    return lane->device->base->capture(lane->inner, plan, bucket, error);
}

static void base_forget(ks_lane *lane, ks_plan *plan)
{
    lane->device->base->forget(lane->inner, plan);
}

static ks_status base_launch(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    return lane->device->base->launch(lane->inner, batch, error);
}

static ks_poll base_poll(ks_lane *lane, ks_error *error)
{
    return lane->device->base->poll(lane->inner, error);
}

static bool base_goes_on(ks_lane *lane, int64_t stall_ns)
{
    return lane->device->base->goes_on(lane->inner, stall_ns);
}

static bool base_failed(const ks_device *device)
{
    return device->base->failed(device->inner);
}

static ks_status base_reserve(ks_device *device, uint64_t bytes, uint64_t *limit, ks_error *error)
{
    return device->base->resident->reserve(device->inner, bytes, limit, error);
}

static ks_status base_take(ks_device *device, size_t bytes, ks_slot *out, ks_error *error)
{
    return device->base->resident->take(device->inner, bytes, out, error);
}

static void base_give(ks_device *device, ks_slot *memory)
{
    device->base->resident->give(device->inner, memory);
}

static void base_trim(ks_device *device)
{
    device->base->resident->trim(device->inner);
}

static uint64_t base_held(ks_device *device)
{
    return device->base->resident->held(device->inner);
}

static const ks_resident base_resident = {
    .reserve = base_reserve, .take = base_take, .give = base_give, .trim = base_trim, .held = base_held};

static ks_status base_buffer_init(ks_device *device, size_t in_bytes, size_t out_bytes, ks_slot *device_buffer,
                                  ks_error *error)
{
    return device->base->large->buffer_init(device->inner, in_bytes, out_bytes, device_buffer, error);
}

static void base_buffer_fini(ks_device *device, ks_slot *device_buffer)
{
    device->base->large->buffer_fini(device->inner, device_buffer);
}

static ks_status base_ring_open(ks_device *device, int buffers, size_t buffer_bytes, ks_ring **out,
                                unsigned char **memory, ks_error *error)
{
    return device->base->large->ring_open(device->inner, buffers, buffer_bytes, out, memory, error);
}

/* A ring is the base's own. */
static void base_ring_close(ks_ring **ring)
{
    fake.base->large->ring_close(ring);
}

static ks_status base_copy_in(ks_ring *ring, int buffer, const ks_slot *device_buffer, size_t offset, size_t bytes,
                              ks_error *error)
{
    return fake.base->large->copy_in(ring, buffer, device_buffer, offset, bytes, error);
}

static ks_status base_copy_out(ks_ring *ring, int buffer, const ks_slot *device_buffer, size_t offset, size_t bytes,
                               ks_error *error)
{
    return fake.base->large->copy_out(ring, buffer, device_buffer, offset, bytes, error);
}

static ks_poll base_copy_poll(ks_ring *ring, int buffer, ks_error *error)
{
    return fake.base->large->copy_poll(ring, buffer, error);
}

static const ks_large base_large = {.buffer_init = base_buffer_init,
                                    .buffer_fini = base_buffer_fini,
                                    .ring_open = base_ring_open,
                                    .ring_close = base_ring_close,
                                    .copy_in = base_copy_in,
                                    .copy_out = base_copy_out,
                                    .copy_poll = base_copy_poll};

static const ks_backend passed_on = {
    .open = base_open,
    .close = base_close,
    .info = base_info,
    .slot_init = base_slot_init,
    .slot_fini = base_slot_fini,
    .lane_open = base_lane_open,
    .lane_close = base_lane_close,
    .prepare = base_prepare,
    .capture = base_capture,
    .forget = base_forget,
    .launch = base_launch,
    .poll = base_poll,
    .goes_on = base_goes_on,
    .failed = base_failed,
    .large = &base_large,
    .resident = &base_resident,
};
const ks_backend *const fake_base = &passed_on;

/* --- the overrides ---------------------------------------------------------------------------------------------------- */

const ks_backend *fake_backend(const ks_backend *base, const fake_overrides *overrides)
{
    const ks_backend *calls = &overrides->calls;
    fake.base = base;
    fake.overrides = *overrides;
    fake.merged = *calls;
#define PASS_ON(call)                                                                                                  \
    if (!calls->call) fake.merged.call = passed_on.call
    if (!calls->name) fake.merged.name = base->name; /* callers tell devices apart by it */
    PASS_ON(open);
    PASS_ON(close);
    PASS_ON(info);
    PASS_ON(slot_init);
    PASS_ON(slot_fini);
    PASS_ON(lane_open);
    PASS_ON(lane_close);
    PASS_ON(prepare);
    PASS_ON(capture);
    PASS_ON(forget);
    PASS_ON(launch);
    PASS_ON(poll);
    PASS_ON(failed);
#undef PASS_ON
    return &fake.merged;
}
