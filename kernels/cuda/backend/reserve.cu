/* Reserved ranges of device memory: addresses for good, pages of memory behind them while something lies there.
 *
 * The driver's calls for it are got by name, as the runtime has none. Where it does not know them, or refuses them, the range is one
 * allocation, taken at once.
 * Threads   any: a lock for each range. Calls to the driver are made under it: some 50 us a page.
 * Limits    a range's own. What is mapped anew is cleared, here and not by promise. */
#include "cuda/backend/internal.h"

static bool find_call(const char *name, void *out)
{
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion(name, (void **)out, 10020, cudaEnableDefault, &found) == cudaSuccess &&
        found == cudaDriverEntryPointSuccess)
        return true;
    cudaGetLastError();
    return false;
}

/* false: this driver has not all of them. */
static bool find_calls(ks_mapping_calls *calls)
{
    return find_call("cuMemAddressReserve", &calls->reserve) && find_call("cuMemAddressFree", &calls->free) &&
           find_call("cuMemCreate", &calls->create) && find_call("cuMemRelease", &calls->release) &&
           find_call("cuMemMap", &calls->map) && find_call("cuMemUnmap", &calls->unmap) &&
           find_call("cuMemSetAccess", &calls->set_access);
}

/* --- pages ------------------------------------------------------------------------------------------------------------------ */

static CUdeviceptr address_of(const ks_reserve *reserve, size_t page)
{
    return (CUdeviceptr)(uintptr_t)(reserve->base + page * reserve->page_bytes);
}

/* Gives a page back. */
static void drop_page(ks_reserve *reserve, size_t page, bool mapped)
{
    if (mapped) reserve->calls.unmap(address_of(reserve, page), reserve->page_bytes);
    reserve->calls.release(reserve->pages[page]);
}

static bool add_page(ks_reserve *reserve, size_t page)
{
    CUmemAllocationProp has = {};
    CUmemGenericAllocationHandle handle;
    has.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    has.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    has.location.id = reserve->device->info.index;
    if (reserve->calls.create(&handle, reserve->page_bytes, &has, 0) != CUDA_SUCCESS) return false;
    reserve->pages[page] = handle;
    if (reserve->calls.map(address_of(reserve, page), reserve->page_bytes, 0, handle, 0) == CUDA_SUCCESS) return true;
    drop_page(reserve, page, false);
    return false;
}

static bool open_access(ks_reserve *reserve, size_t first, size_t pages)
{
    CUmemAccessDesc access = {};
    const size_t bytes = pages * reserve->page_bytes;
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = reserve->device->info.index;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return reserve->calls.set_access(address_of(reserve, first), bytes, &access, 1) == CUDA_SUCCESS &&
           ks_cuda_clear(reserve->device, reserve->base + first * reserve->page_bytes, bytes, NULL) == KS_OK;
}

/* ks_range_map_fn */
static bool map_pages(void *context, size_t first, size_t pages)
{
    ks_reserve *reserve = (ks_reserve *)context;
    if (reserve->whole) return true;
    size_t done = 0;
    if (ks_cuda_failed(reserve->device) || ks_cuda_use(reserve->device) != cudaSuccess) return false;
    while (done < pages && add_page(reserve, first + done)) done++;
    if (done == pages && open_access(reserve, first, pages)) return true;
    while (done > 0) drop_page(reserve, first + --done, true);
    return false;
}

/* ks_range_unmap_fn. A lost context's memory stays where it is: the driver may not come back. */
static void unmap_pages(void *context, size_t first, size_t pages)
{
    ks_reserve *reserve = (ks_reserve *)context;
    if (reserve->whole || ks_cuda_failed(reserve->device)) return;
    if (ks_cuda_use(reserve->device) != cudaSuccess) return;
    for (size_t i = 0; i < pages; i++) drop_page(reserve, first + i, true);
}

/* --- ranges ----------------------------------------------------------------------------------------------------------------- */

/* Synchronous: what comes next may be on any stream. */
ks_status ks_cuda_clear(ks_device *device, void *memory, size_t bytes, ks_error *error)
{
    KS_TRY(device, error, ks_cuda_use(device));
    KS_TRY(device, error, cudaMemsetAsync(memory, 0, bytes, cudaStreamPerThread));
    KS_TRY(device, error, cudaStreamSynchronize(cudaStreamPerThread));
    return KS_OK;
}

/* Addresses, and a page there to see that it works. */
static bool open_addresses(ks_reserve *reserve)
{
    CUdeviceptr base = 0;
    if (!find_calls(&reserve->calls)) return false;
    if (reserve->calls.reserve(&base, reserve->addresses, reserve->page_bytes, 0, 0) != CUDA_SUCCESS) return false;
    reserve->base = (unsigned char *)(uintptr_t)base;
    if (map_pages(reserve, 0, 1)) {
        unmap_pages(reserve, 0, 1);
        return true;
    }
    reserve->calls.free(base, reserve->addresses);
    reserve->base = NULL;
    return false;
}

/* All of it at once, or half, a quarter... of it. */
static ks_status open_whole(ks_reserve *reserve, uint64_t *limit, ks_error *error)
{
    ks_device *device = reserve->device;
    for (*limit = *limit / reserve->page_bytes * reserve->page_bytes; *limit > 0;
         *limit = *limit / 2 / reserve->page_bytes * reserve->page_bytes) {
        void *memory = NULL;
        const cudaError_t code = cudaMalloc(&memory, (size_t)*limit);
        if (code == cudaSuccess) {
            reserve->base = (unsigned char *)memory;
            reserve->addresses = (size_t)*limit;
            reserve->whole = true;
            return ks_cuda_clear(device, memory, (size_t)*limit, error);
        }
        if (!ks_cuda_recoverable(code)) return ks_cuda_fault(device, code, "cudaMalloc", error);
        cudaGetLastError();
    }
    return ks_fail(error, KS_MEMORY, "no device memory for a range that stays");
}

ks_status ks_cuda_reserve_open(ks_device *device, uint64_t *limit, size_t page_bytes, ks_reserve *reserve,
                               ks_error *error)
{
    ks_status status = KS_OK;
    reserve->device = device;
    reserve->page_bytes = page_bytes;
    reserve->addresses = (size_t)ks_range_addresses(*limit, page_bytes);
    reserve->pages = (CUmemGenericAllocationHandle *)calloc(reserve->addresses / page_bytes, sizeof *reserve->pages);
    if (!reserve->pages)
        return ks_fail(error, KS_MEMORY, "no memory for the record of %zu pages", reserve->addresses / page_bytes);
    if (!open_addresses(reserve)) status = open_whole(reserve, limit, error);
    if (!status)
        reserve->range = ks_range_open(reserve->addresses, *limit, page_bytes, map_pages, unmap_pages, reserve);
    if (!status && !reserve->range) status = ks_fail(error, KS_MEMORY, "no memory for the record of a range");
    pthread_mutex_init(&reserve->lock, NULL);
    if (status) ks_cuda_reserve_close(reserve);
    return status;
}

void ks_cuda_reserve_close(ks_reserve *reserve)
{
    if (!reserve->pages) return;
    ks_range_close(&reserve->range);
    if (reserve->base && !ks_cuda_failed(reserve->device)) {
        if (reserve->whole)
            cudaFree(reserve->base);
        else
            reserve->calls.free(address_of(reserve, 0), reserve->addresses);
    }
    pthread_mutex_destroy(&reserve->lock);
    free(reserve->pages);
    memset(reserve, 0, sizeof *reserve);
}

/* --- areas ------------------------------------------------------------------------------------------------------------------ */

unsigned char *ks_cuda_reserve_take(ks_reserve *reserve, size_t bytes, bool *fresh)
{
    uint64_t at = 0;
    pthread_mutex_lock(&reserve->lock);
    const bool taken = ks_range_take(reserve->range, bytes, &at, fresh);
    reserve->quiet_turns = 0;
    if (bytes > reserve->recent_bytes) reserve->recent_bytes = bytes;
    pthread_mutex_unlock(&reserve->lock);
    return taken ? reserve->base + at : NULL;
}

void ks_cuda_reserve_give(ks_reserve *reserve, const unsigned char *memory, size_t bytes)
{
    pthread_mutex_lock(&reserve->lock);
    ks_range_give(reserve->range, (uint64_t)(memory - reserve->base), bytes);
    pthread_mutex_unlock(&reserve->lock);
}

/* Some pages at a time: takes of requests wait for the lock. */
void ks_cuda_reserve_trim(ks_reserve *reserve, uint64_t kept_bytes)
{
    for (bool more = !reserve->whole; more;) {
        pthread_mutex_lock(&reserve->lock);
        more = ks_range_trim(reserve->range, (size_t)(kept_bytes / reserve->page_bytes), 4);
        pthread_mutex_unlock(&reserve->lock);
    }
}

void ks_cuda_reserve_rest(ks_reserve *reserve)
{
    if (!reserve->range) return;
    pthread_mutex_lock(&reserve->lock);
    const bool quiet = ++reserve->quiet_turns >= KS_RANGE_QUIET_TURNS;
    pthread_mutex_unlock(&reserve->lock);
    if (quiet) ks_cuda_reserve_trim(reserve, 0);
}

void ks_cuda_reserve_narrow(ks_reserve *reserve)
{
    if (!reserve->range) return;
    pthread_mutex_lock(&reserve->lock);
    const bool due = ++reserve->turns >= KS_RANGE_QUIET_TURNS;
    const size_t pages = (reserve->recent_bytes + reserve->page_bytes - 1) / reserve->page_bytes;
    if (due) {
        reserve->turns = 0;
        reserve->recent_bytes = 0;
    }
    pthread_mutex_unlock(&reserve->lock);
    if (due) ks_cuda_reserve_trim(reserve, pages * reserve->page_bytes);
}

uint64_t ks_cuda_reserve_held(ks_reserve *reserve)
{
    if (reserve->whole) return reserve->addresses;
    pthread_mutex_lock(&reserve->lock);
    const uint64_t bytes = ks_range_mapped_bytes(reserve->range);
    pthread_mutex_unlock(&reserve->lock);
    return bytes;
}
