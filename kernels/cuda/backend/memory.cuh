/* Client memory: pages of a shared mapping, pinned, and other processes' device memory, opened by CUDA IPC. Nothing here is
 * touched by the host; launches copy from and to it, or memory_copy does. Threads: any. */
#ifndef KS_BACKEND_CUDA_MEMORY_CUH
#define KS_BACKEND_CUDA_MEMORY_CUH

#include "backend_cuda_device.cuh"

/* Whatever the code says: if the context is lost, the next launch will tell. */
static ks_status memory_refused(cudaError_t code, const char *call, ks_error *error)
{
    say(code, call, error);
    if (error) error->status = KS_WINDOW;
    return KS_WINDOW;
}

/* backend.memory_pin */
static ks_status memory_pin(ks_device *device, void *memory, size_t bytes, ks_error *error)
{
    KS_TRY(device, error, use_device(device));
    const cudaError_t code = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
    return code == cudaSuccess ? KS_OK : memory_refused(code, "cudaHostRegister", error);
}

/* backend.memory_unpin */
static void memory_unpin(ks_device *device, void *memory)
{
    if (use_device(device) == cudaSuccess) cudaHostUnregister(memory);
    cudaGetLastError();
}

/* The size of the allocation that an address lies in: the driver knows it, the runtime does not tell. */
static bool allocation_holds(void *memory, size_t bytes)
{
    typedef int get_range_fn(unsigned long long *base, size_t *size, unsigned long long address);
    void *found = NULL;
    unsigned long long base = 0;
    size_t size = 0;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &found, 3020, cudaEnableDefault, &result) !=
            cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
        return false;
    const unsigned long long address = (unsigned long long)(uintptr_t)memory;
    if (((get_range_fn *)found)(&base, &size, address) != 0) return false;
    return bytes <= size - (address - base);
}

/* backend.memory_import. The device is asked for by its index in the client's eyes, which sees the same devices. */
static ks_status memory_import(ks_device *device, const unsigned char *handle, int device_index, size_t bytes,
                               void **out, ks_error *error)
{
    cudaIpcMemHandle_t read;
    static_assert(sizeof read == KS_HANDLE_BYTES, "a handle is what the protocol carries");
    memcpy(&read, handle, sizeof read);
    if (device_index != device->info.index)
        return ks_fail(error, KS_WINDOW, "device %d is not served here, %d is", device_index, device->info.index);
    KS_TRY(device, error, use_device(device));
    const cudaError_t code = cudaIpcOpenMemHandle(out, read, cudaIpcMemLazyEnablePeerAccess);
    if (code != cudaSuccess) return memory_refused(code, "cudaIpcOpenMemHandle", error);
    if (allocation_holds(*out, bytes)) return KS_OK;
    cudaIpcCloseMemHandle(*out);
    cudaGetLastError();
    return ks_fail(error, KS_WINDOW, "the allocation has fewer than %zu bytes", bytes);
}

/* backend.memory_leave */
static void memory_leave(ks_device *device, void *memory)
{
    if (use_device(device) == cudaSuccess) cudaIpcCloseMemHandle(memory);
    cudaGetLastError();
}

/* backend.memory_copy. cudaMemcpy alone may return while what came from unpinned host memory is still on its way. */
static ks_status memory_copy(ks_device *device, void *to, const void *from, size_t bytes, ks_error *error)
{
    KS_TRY(device, error, use_device(device));
    KS_TRY(device, error, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cudaStreamPerThread));
    KS_TRY(device, error, cudaStreamSynchronize(cudaStreamPerThread));
    return KS_OK;
}

#endif
