/* What happens to a CUDA call that fails: which codes leave the context whole, and what marks the device as lost. */
#include "cuda/backend/internal.h"

#include <time.h>

int64_t ks_cuda_now_ns()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The runtime's current device is per thread; any thread may come here first. */
cudaError_t ks_cuda_use(const ks_device *device)
{
    static __thread int current = -1;
    if (current == device->info.index) return cudaSuccess;
    const cudaError_t code = cudaSetDevice(device->info.index);
    if (code == cudaSuccess) current = device->info.index;
    return code;
}

/* Codes that leave the context whole. Whatever is not named here is fatal. */
bool ks_cuda_recoverable(cudaError_t code)
{
    if (code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread) return true;
    switch (code) {
    case cudaSuccess:
    case cudaErrorNotReady:
    case cudaErrorInvalidValue:
    case cudaErrorMemoryAllocation:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidSymbol:
    case cudaErrorInvalidHostPointer:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorCooperativeLaunchTooLarge:
    case cudaErrorNotSupported:
    case cudaErrorGraphExecUpdateFailure:
    case cudaErrorInvalidClusterSize:
        return true;
    default:
        return false;
    }
}

/* Says which call failed and how. Takes the runtime's pending error with it: an op's launcher reads that afterwards,
 * and must not find ours there. (A lost context reports again by itself.) */
ks_status ks_cuda_say(cudaError_t code, const char *call, ks_error *error)
{
    cudaGetLastError();
    return ks_fail(error, code == cudaErrorMemoryAllocation ? KS_MEMORY : KS_DEVICE, "%.*s: %s (CUDA error %d)",
                   (int)strcspn(call, "("), call, cudaGetErrorString(code), (int)code);
}

/* The same, and a fatal code marks the device as lost. */
ks_status ks_cuda_fault(ks_device *device, cudaError_t code, const char *call, ks_error *error)
{
    if (!ks_cuda_recoverable(code)) __atomic_store_n(&device->failed, true, __ATOMIC_RELEASE);
    return ks_cuda_say(code, call, error);
}

bool ks_cuda_failed(const ks_device *device)
{
    return __atomic_load_n(&device->failed, __ATOMIC_ACQUIRE);
}

/* Not ready is no error, yet the runtime remembers it as one: dropped here, for the same reason as in ks_cuda_say(). */
cudaError_t ks_cuda_quiet(cudaError_t code)
{
    if (code == cudaErrorNotReady) cudaGetLastError();
    return code;
}

/* After a failure that does not tell by itself (an op's launcher, a capture): has the context gone? */
void ks_cuda_ask_stream(ks_lane *lane)
{
    const cudaError_t code = ks_cuda_quiet(cudaStreamQuery(lane->stream));
    if (!ks_cuda_recoverable(code)) __atomic_store_n(&lane->device->failed, true, __ATOMIC_RELEASE);
}
