/* Contents of resident tensors in device memory (ks_resident in backend.h): areas of one reserved range.
 *
 * The record of an area is a device buffer's, so that a ring copies to it and from it; it has no event, as a content is complete before a
 * launch can name it.     Threads  any. */
#include "cuda/backend/internal.h"

static const uint64_t KEPT_MOST = 256 << 20; /* of pages that are not in use */

/* ks_resident.reserve. What contents take beside their bytes, KS_PAD and up to KS_ALIGNMENT each, has a sixteenth and a page. */
static ks_status reserve(ks_device *device, uint64_t bytes, uint64_t *limit, ks_error *error)
{
    size_t left = 0, whole = 0;
    KS_TRY(device, error, ks_cuda_use(device));
    KS_TRY(device, error, cudaMemGetInfo(&left, &whole));
    if (bytes == 0) bytes = left / 8;
    if (bytes > whole)
        return ks_fail(error, KS_CONFIG, "resident-bytes: %llu bytes, the device has %zu", (unsigned long long)bytes,
                       whole);
    uint64_t held = bytes + bytes / 16 + KS_RESERVE_PAGE_BYTES;
    const uint64_t wanted = held;
    const ks_status status = ks_cuda_reserve_open(device, &held, KS_RESERVE_PAGE_BYTES, &device->resident, error);
    if (status) return status;
    *limit = device->resident_bytes = held == wanted ? bytes : held / 17 * 16;
    return KS_OK;
}

static ks_status full(size_t bytes, ks_error *error)
{
    return ks_fail(error, KS_RESIDENT_FULL, "no device memory is free for %zu bytes that stay", bytes);
}

/* ks_resident.take */
static ks_status take(ks_device *device, size_t bytes, ks_slot *out, ks_error *error)
{
    bool fresh = false;
    if (bytes > device->resident_bytes) return full(bytes, error);
    ks_device_buffer *record = (ks_device_buffer *)calloc(1, sizeof *record);
    if (!record) return ks_fail(error, KS_MEMORY, "no memory for the record of %zu bytes that stay", bytes);
    record->bytes = bytes + KS_PAD;
    unsigned char *memory = ks_cuda_reserve_take(&device->resident, record->bytes, &fresh);
    ks_status status = memory ? KS_OK : full(bytes, error);
    if (!status && !fresh) status = ks_cuda_clear(device, memory, record->bytes, error);
    if (status) {
        if (memory) ks_cuda_reserve_give(&device->resident, memory, record->bytes);
        free(record);
        return status;
    }
    memset(out, 0, sizeof *out);
    out->memory = record;
    out->in_device = out->out_device = memory;
    out->in_cap = out->out_cap = bytes;
    out->size_class = -1;
    return KS_OK;
}

/* ks_resident.give */
static void give(ks_device *device, ks_slot *slot)
{
    ks_device_buffer *record = (ks_device_buffer *)slot->memory;
    ks_cuda_reserve_give(&device->resident, (const unsigned char *)slot->in_device, record->bytes);
    free(record);
    memset(slot, 0, sizeof *slot);
}

/* ks_resident.pack */
static ks_status pack(ks_device *device, const ks_slot *from, const ks_slot *to, const ks_row_copy *rows,
                      ks_error *error)
{
    const size_t first = (size_t)rows->first;
    if (ks_cuda_failed(device)) return ks_fail(error, KS_DEVICE, "the device is lost");
    KS_TRY(device, error, ks_cuda_use(device));
    KS_TRY(device, error,
           cudaMemcpy2DAsync((unsigned char *)to->in_device + first * rows->pitch_bytes, rows->pitch_bytes,
                             (const unsigned char *)from->in_device + first * rows->row_bytes, rows->row_bytes,
                             rows->row_bytes, (size_t)rows->count, cudaMemcpyDeviceToDevice, cudaStreamPerThread));
    KS_TRY(device, error, cudaStreamSynchronize(cudaStreamPerThread));
    return KS_OK;
}

/* ks_resident.trim. Everything that is mapped when it is needed: the pool, the lanes' workspaces and large arenas rest, too. */
static void trim(ks_device *device)
{
    const uint64_t kept = device->resident_bytes / 16;
    if (ks_cuda_failed(device)) return;
    if (device->resident.range) ks_cuda_reserve_trim(&device->resident, kept < KEPT_MOST ? kept : KEPT_MOST);
    ks_cuda_reserve_rest(&device->resident);
    ks_cuda_reserve_rest(&device->pool);
    ks_cuda_lanes_rest(device);
}

/* ks_resident.held */
static uint64_t held(ks_device *device)
{
    return ks_cuda_reserve_held(&device->resident);
}

const ks_resident ks_cuda_resident = {
    .reserve = reserve, .take = take, .give = give, .pack = pack, .trim = trim, .held = held};
