/* ks_backend_cuda: open, close, and the table. This folder alone has streams, pinned memory, graphs and completion flags.
 *
 * Owns       the CUDA context's things: pinned chunks (slots), streams, device memory, graphs, mapped flag lines.
 * Interface  ks_backend_cuda (include/kernserve/backend.h); ops come in through ops.def and cuda/common/launch.cuh.
 * Threads    as backend.h says. After open no call waits for the whole device: that breaks other threads' captures.
 * Faults     a code that is not known to leave the context whole marks the device as lost, for good; from then on
 *            nothing is launched and nothing is freed, because both may block for ever. */
#include "cuda/backend/chain.h"
#include "cuda/backend/internal.h"
#include "cuda/matmul/cublaslt.cuh"
#include "kernserve/backends.h"

/* The driver's release ("580.65.06") where the kernel reports it, else the CUDA version that it serves. */
static void read_driver(char *out, size_t cap)
{
    FILE *file = fopen("/sys/module/nvidia/version", "re");
    const bool read = file && fgets(out, (int)cap, file);
    if (file) fclose(file);
    if (read) {
        out[strcspn(out, "\n")] = 0;
        return;
    }
    int version = 0;
    cudaDriverGetVersion(&version);
    snprintf(out, cap, "CUDA %d.%d", version / 1000, version % 1000 / 10);
}

static void write_uuid(const unsigned char *b, char *out, size_t cap)
{
    snprintf(out, cap, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
             b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

enum { CHAIN_ROWS = 4 }; /* of a chain's job that may be joined, as on the CPU: of more it has not been measured */

static ks_status read_device(ks_device *device, int index, ks_error *error)
{
    struct cudaDeviceProp has;
    KS_TRY_SOFT(error, cudaGetDeviceProperties(&has, index));
    ks_device_info *info = &device->info;
    info->backend = "cuda";
    snprintf(info->name, sizeof info->name, "%.*s", (int)sizeof info->name - 1, has.name);
    write_uuid((const unsigned char *)has.uuid.bytes, info->uuid, sizeof info->uuid);
    read_driver(info->driver, sizeof info->driver);
    info->capability = has.major * 10 + has.minor;
    info->index = index;
    info->gpu = info->polled = info->pins_memory = info->linked = true;
    info->work_max = 1e13;
    info->chain_rows = CHAIN_ROWS;
    info->memory_bytes = has.totalGlobalMem;
    device->chip.capability = info->capability;
    device->chip.sms = has.multiProcessorCount;
    device->chip.threads_sm = has.maxThreadsPerMultiProcessor;
    device->chip.registers_sm = has.regsPerMultiprocessor;
    device->chip.ctas_sm = has.maxBlocksPerMultiProcessor;
    device->chip.shared_sm = has.sharedMemPerMultiprocessor;
    device->chip.shared_reserved = has.reservedSharedMemPerBlock;
    device->chip.shared_optin = has.sharedMemPerBlockOptin;
    device->chip.l2_bytes = (size_t)has.l2CacheSize;
    device->chip.workspace_bytes = device->limits.workspace_bytes;
    if (!has.canMapHostMemory) return ks_fail(error, KS_DEVICE, "%s cannot map host memory", info->name);
    return KS_OK;
}

/* What proves that the device works: a kernel ran and its mark arrived. Then the clock, the border and the rate of copies.
 */
static ks_status try_device(ks_device *device, int index, ks_error *error)
{
    ks_lane *lane = NULL;
    KS_TRY_SOFT(error, cudaInitDevice(index, cudaDeviceScheduleSpin | cudaDeviceMapHost, cudaInitDeviceFlagsAreValid));
    ks_status status = read_device(device, index, error);
    if (status) return status;
    KS_TRY_SOFT(error, ks_cuda_use(device));
    /* Not lane 0: that one would take the large arena. */
    status = ks_cuda_lane_open(device, 1, -1, &lane, error);
    if (status) return status;
    status = ks_cuda_clock_start(device, lane, error);
    for (int i = 0; !status && ks_cuda_ops[i]; i++) status = ks_cuda_ops[i]->setup(&device->chip, error);
    if (!status && device->limits.cublaslt)
        (void)ks_cublaslt_open(device->limits.cublaslt, device->info.library, sizeof device->info.library);
    if (!status) status = ks_cuda_border_find(device, lane, error);
    if (!status) ks_cuda_measure_copy(device, lane);
    ks_cuda_lane_close(&lane);
    if (!status) status = ks_cuda_pool_open(device, error);
    return status;
}

/* The driver reads these once, before its first call: as many hardware queues as there are lanes of a shard (streams
 * that share one wait for each other), and all kernels loaded at start instead of within the first request. With cuBLASLt in
 * the process they come one by one: the library, half a gigabyte of them, would be loaded whole, too. */
static void set_environment(const ks_limits *limits)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("CUDA_MODULE_LOADING", limits->cublaslt ? "LAZY" : "EAGER", 0);
}

static void close_device(ks_device **taken);

static ks_status new_device(const ks_limits *limits, ks_device **out, ks_error *error)
{
    ks_device *device = (ks_device *)calloc(1, sizeof *device);
    if (!device) return ks_fail(error, KS_MEMORY, "no memory for the record of a device");
    device->limits = *limits;
    device->large_fits = limits->large_bytes > limits->lane_bytes ? limits->large_bytes : 0;
    device->model_fits = limits->model_bytes;
    pthread_mutex_init(&device->arena_lock, NULL);
    pthread_mutex_init(&device->pool_lock, NULL);
    *out = device;
    return KS_OK;
}

/* backend.open */
static ks_status open_device(const ks_limits *limits, ks_device **out, ks_error *error)
{
    int count = 0;
    set_environment(limits);
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess) {
        ks_cuda_say(code, "cudaGetDeviceCount", error);
        if (error) error->status = KS_DEVICE;
        return KS_DEVICE;
    }
    if (limits->device_index >= count || count == 0)
        return ks_fail(error, KS_DEVICE, "device %d asked for, this host has %d", limits->device_index, count);
    const int first = limits->device_index < 0 ? 0 : limits->device_index;
    const int last = limits->device_index < 0 ? count - 1 : limits->device_index;
    ks_status status = KS_DEVICE;
    for (int index = first; index <= last; index++) {
        ks_device *device = NULL;
        status = new_device(limits, &device, error);
        if (status) return status;
        status = try_device(device, index, error);
        if (!status) {
            *out = device;
            return KS_OK;
        }
        close_device(&device);
    }
    return status;
}

/* backend.close */
static void close_device(ks_device **taken)
{
    ks_device *device = *taken;
    *taken = NULL;
    if (!device) return;
    ks_cuda_slots_close(device);
    ks_cuda_pool_close(device);
    ks_cuda_reserve_close(&device->resident);
    pthread_mutex_destroy(&device->arena_lock);
    pthread_mutex_destroy(&device->pool_lock);
    free(device);
}

/* backend.info */
static void device_info(const ks_device *device, ks_device_info *out)
{
    *out = device->info;
}

static const ks_backend backend = {
    .name = "cuda",
    .open = open_device,
    .close = close_device,
    .info = device_info,
    .slot_init = ks_cuda_slot_init,
    .slot_fini = ks_cuda_slot_fini,
    .lane_open = ks_cuda_lane_open,
    .lane_close = ks_cuda_lane_close,
    .prepare = ks_cuda_prepare,
    .capture = ks_cuda_capture,
    .forget = ks_cuda_forget,
    .launch = ks_cuda_launch,
    .poll = ks_cuda_poll,
    .goes_on = NULL,
    .failed = ks_cuda_failed,
    .probe = &ks_cuda_probe,
    .tuning = &ks_cuda_tuning,
    .large = &ks_cuda_large,
    .client_memory = &ks_cuda_client_memory,
    .resident = &ks_cuda_resident,
    .chains = &ks_cuda_chain_means,
};

const ks_backend *const ks_backend_cuda = &backend;
