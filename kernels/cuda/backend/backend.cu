/* ks_backend_cuda: the only file with streams, pinned memory, graphs and completion flags.
 *
 * Owns       the CUDA context's things: pinned chunks (slots), streams, device memory, graphs, mapped flag lines.
 * Interface  ks_backend_cuda (include/kernserve/backend.h); ops come in through ops.def and launch.cuh.
 * Parts      backend_cuda_*.cuh, all of this translation unit: device (errors), clock (stamps), slots (pinned chunks),
 *            memory (of clients), graphs (record, capture), lanes, stream (areas, rings), staged, trial (of a plan), launch (the
 *            ways of a batch), border (mapped or copies), floors (for --self-test).
 * Threads    as backend.h says. After open no call waits for the whole device: that breaks other threads' captures.
 * Faults     a code that is not known to leave the context whole marks the device as lost, for good; from then on
 *            nothing is launched and nothing is freed, because both may block for ever. */
#include "backend_cuda_floors.cuh"
#include "backend_cuda_memory.cuh"
#include "cublaslt.cuh"
#include "matmul_plan.h"

/* A job's in + out side on one lane; beyond it the plan is large. The workspace has memory of its own. */
static ks_status prepare_sizes(ks_device *device, ks_plan *plan, ks_error *error)
{
    const ks_spec *spec = &plan->spec;
    const ks_tensor *last = &spec->in[spec->inputs - 1];
    if (!plan->in_bytes) plan->in_bytes = last->offset + last->size_bytes;
    if (!plan->out_bytes) plan->out_bytes = spec->out.size_bytes;
    if (plan->in_bytes > SIZE_MAX / 4 || plan->out_bytes > SIZE_MAX / 4)
        return ks_fail(error, KS_WORK, "%s: %zu + %zu bytes exceed the address space", spec->op->name, plan->in_bytes,
                       plan->out_bytes);
    const size_t bytes = plan->in_bytes + plan->out_bytes;
    plan->large = bytes > device->limits.lane_bytes;
    const size_t arena = __atomic_load_n(&device->large_fits, __ATOMIC_ACQUIRE);
    const size_t fits = arena > device->pool_bytes ? arena : device->pool_bytes;
    if (plan->large && bytes > fits)
        return ks_fail(error, KS_WORK, "%s: %zu bytes of inputs and output, the device holds %zu of one request",
                       spec->op->name, bytes, fits > device->limits.lane_bytes ? fits : device->limits.lane_bytes);
    return KS_OK;
}

/* Equal choices are the same kernel with the same threads and parts (FNV-1a). */
static uint64_t hash_choice(const unsigned char *choice)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (int i = 0; i < KS_CHOICE_BYTES; i++) hash = (hash ^ choice[i]) * 0x100000001B3u;
    return hash;
}

/* Everything that prepare sets but the sizes, which are settled. */
static ks_status use_choice(ks_device *device, ks_plan *plan, const ks_cuda_plan *chosen, ks_error *error)
{
    plan->workspace_bytes = ks_align(chosen->workspace_bytes);
    if (plan->workspace_bytes > device->chip.workspace_bytes)
        return ks_fail(error, KS_WORK, "%s: %zu bytes of workspace, a lane has %zu", plan->spec.op->name,
                       plan->workspace_bytes, device->chip.workspace_bytes);
    memcpy(plan->choice, chosen->choice, sizeof plan->choice);
    plan->rows_like = hash_choice(plan->choice);
    plan->counters = chosen->counters;
    plan->unstamped = chosen->unstamped;
    plan->pick = chosen->pick;
    plan->mapped = chosen->once && !plan->large && plan->in_bytes + plan->out_bytes <= KS_MAPPED_MOST &&
                   plan->in_bytes + plan->out_bytes <= device->info.mapped_max &&
                   !__atomic_load_n(&device->pageable, __ATOMIC_ACQUIRE);
    plan->graphs = !plan->large;
    int most = chosen->batch_max < 1 ? 1 : chosen->batch_max > KS_BATCH_MAX ? (int)KS_BATCH_MAX : chosen->batch_max;
    /* A bucket is a power of two, and each job of it has its own part of the workspace. */
    while (most > 1 && (plan->workspace_bytes > device->chip.workspace_bytes / ((size_t)1 << ks_bucket(most)) ||
                        plan->counters > (size_t)KS_COUNTERS_MAX >> ks_bucket(most)))
        most /= 2;
    plan->batch_max = plan->mapped ? most : 1;
    return KS_OK;
}

/* backend.prepare */
static ks_status prepare(ks_device *device, ks_plan *plan, ks_error *error)
{
    const ks_cuda_op *op = cuda_op(plan->spec.op);
    if (!op) return ks_fail(error, KS_WORK, "%s has no kernels", plan->spec.op->name);
    ks_cuda_plan chosen;
    memset(&chosen, 0, sizeof chosen);
    ks_status status = op->plan(&device->chip, &plan->spec, &chosen, error);
    if (!status) status = prepare_sizes(device, plan, error);
    return status ? status : use_choice(device, plan, &chosen, error);
}

/* --- ways ------------------------------------------------------------------------------------------------------------ */

/* tuning.revision */
static void revision(const ks_device *device, char *out, size_t cap)
{
    (void)device;
    snprintf(out, cap, "cuBLASLt %d; kernels %016llx", ks_cublaslt_version(), (unsigned long long)ks_matmul_revision());
}

static bool is_matmul(const ks_plan *plan)
{
    return strcmp(plan->spec.op->name, "matmul") == 0;
}

/* The plan as the way makes it, on the path that it has. One that works on mapped slots, with others in one launch, never
 * gives that up: requests that share a launch gain more than a kernel can. One that copies goes on to copy, whether or not
 * the way's kernel could do without: the border is measured at each start, and what was chosen at one must fit the next. */
static ks_status try_way(ks_device *device, const ks_plan *plan, const ks_way *way, ks_plan *out, ks_error *error)
{
    ks_cuda_plan chosen;
    *out = *plan;
    if (!is_matmul(plan)) return ks_fail(error, KS_CONFIG, "%s has one way", plan->spec.op->name);
    ks_status status = ks_matmul_way_plan(&device->chip, &plan->spec, way, &chosen, error);
    if (!status) status = use_choice(device, out, &chosen, error);
    if (!plan->mapped) {
        out->mapped = false;
        out->batch_max = 1;
    } else if (!status && (!out->mapped || out->batch_max != plan->batch_max)) {
        return ks_fail(error, KS_CONFIG, "%s meets the device in another way", way->kernel);
    }
    return status;
}

/* tuning.list */
static int list_ways(ks_device *device, const ks_plan *plan, ks_way *out, int most)
{
    ks_plan tried;
    ks_error ignored;
    if (!is_matmul(plan) || use_device(device) != cudaSuccess) return 0;
    const int all = ks_matmul_ways(&device->chip, &plan->spec, out, most);
    int count = 0;
    for (int i = 0; i < all; i++)
        if (try_way(device, plan, &out[i], &tried, &ignored) == KS_OK) out[count++] = out[i];
    return count;
}

/* tuning.adopt */
static ks_status adopt_way(ks_device *device, ks_plan *plan, const ks_way *way, ks_error *error)
{
    ks_plan made;
    KS_TRY(device, error, use_device(device));
    const ks_status status = try_way(device, plan, way, &made, error);
    if (!status) *plan = made;
    return status;
}

static const ks_tuning tuning = {.revision = revision, .list = list_ways, .adopt = adopt_way};

/* --- open ------------------------------------------------------------------------------------------------------------
 */

/* The driver's release ("580.65.06") where the kernel tells, else the CUDA version that it serves. */
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
    info->memory_bytes = has.totalGlobalMem;
    device->chip.capability = info->capability;
    device->chip.sms = has.multiProcessorCount;
    device->chip.threads_sm = has.maxThreadsPerMultiProcessor;
    device->chip.shared_sm = has.sharedMemPerMultiprocessor;
    device->chip.shared_optin = has.sharedMemPerBlockOptin;
    device->chip.l2_bytes = (size_t)has.l2CacheSize;
    device->chip.workspace_bytes = device->limits.workspace_bytes;
    if (!has.canMapHostMemory) return ks_fail(error, KS_DEVICE, "%s cannot map host memory", info->name);
    return KS_OK;
}

static ks_status setup_ops(ks_device *device, ks_error *error)
{
    for (int i = 0; i < KS_CUDA_OPS; i++) {
        if (strcmp(ks_ops[i]->name, cuda_ops[i].name) != 0)
            return ks_fail(error, KS_CONFIG, "operation %d is %s on the host, %s on the device", i, ks_ops[i]->name,
                           cuda_ops[i].name);
        const ks_status status = cuda_ops[i].setup(&device->chip, error);
        if (status) return status;
    }
    return KS_OK;
}

/* Copies from one half of the memory to the other, some between two events so that their start does not count; the best
 * of a few times. */
static double copy_rate(unsigned char *from, size_t bytes, cudaEvent_t begin, cudaEvent_t end, cudaStream_t stream)
{
    enum { RUNS = 3, COPIES = 4 }; /* the first run warms */
    double best = 0;
    for (int i = 0; i < RUNS; i++) {
        float ms = 0;
        cudaEventRecord(begin, stream);
        for (int c = 0; c < COPIES; c++) cudaMemcpyAsync(from + bytes, from, bytes, cudaMemcpyDeviceToDevice, stream);
        cudaEventRecord(end, stream);
        if (cudaGetLastError() != cudaSuccess || cudaEventSynchronize(end) != cudaSuccess ||
            cudaEventElapsedTime(&ms, begin, end) != cudaSuccess)
            return 0;
        const double gbs = 2.0 * (double)COPIES * (double)bytes / ms / 1e6;
        if (i > 0 && gbs > best) best = gbs;
    }
    return best;
}

/* Buffers that the L2 cache would hold say nothing about memory: where not even twice its size fits, the rate stays
 * unknown. About 3 ms. */
static void measure_copy(ks_device *device, ks_lane *lane)
{
    void *memory = NULL;
    cudaEvent_t begin = NULL, end = NULL;
    size_t bytes = 256 << 20;
    while (bytes >= 2 * device->chip.l2_bytes && cudaMalloc(&memory, 2 * bytes) != cudaSuccess) bytes /= 2;
    if (memory && cudaMemsetAsync(memory, 1, bytes, lane->stream) == cudaSuccess &&
        cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess)
        device->info.copy_gbs = copy_rate((unsigned char *)memory, bytes, begin, end, lane->stream);
    if (begin) cudaEventDestroy(begin);
    if (end) cudaEventDestroy(end);
    cudaFree(memory);
    cudaGetLastError(); /* no memory for it is no fault; a lost context shows in what follows */
}

/* What proves that the device works: a kernel ran and its mark arrived. Then the clock, the border and the rate of copies.
 */
static ks_status try_device(ks_device *device, int index, ks_error *error)
{
    ks_lane *lane = NULL;
    KS_TRY_SOFT(error, cudaInitDevice(index, cudaDeviceScheduleSpin | cudaDeviceMapHost, cudaInitDeviceFlagsAreValid));
    ks_status status = read_device(device, index, error);
    if (status) return status;
    KS_TRY_SOFT(error, use_device(device));
    /* Not lane 0: that one would take the large arena. */
    status = lane_open(device, 1, -1, &lane, error);
    if (status) return status;
    status = clock_start(device, lane, error);
    if (!status) status = setup_ops(device, error);
    if (!status && device->limits.cublaslt)
        (void)ks_cublaslt_open(device->limits.cublaslt, device->info.library, sizeof device->info.library);
    if (!status) status = border_find(device, lane, error);
    if (!status) measure_copy(device, lane);
    lane_close(&lane);
    if (!status) status = pool_open(device, error);
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
        say(code, "cudaGetDeviceCount", error);
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
    slots_close(device);
    pool_close(device);
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
    .slot_init = slot_init,
    .slot_fini = slot_fini,
    .lane_open = lane_open,
    .lane_close = lane_close,
    .prepare = prepare,
    .capture = capture,
    .forget = forget,
    .launch = launch,
    .poll = poll_lane,
    .goes_on = NULL,
    .failed = device_failed,
    .floors = floors,
    .tuning = &tuning,
    .streaming = &streaming,
    .memory_pin = memory_pin,
    .memory_unpin = memory_unpin,
    .memory_import = memory_import,
    .memory_leave = memory_leave,
    .memory_copy = memory_copy,
};

const ks_backend *const ks_backend_cuda = &backend;
