/* What is measured at open and for --self-test: the border between mapped slots and copies, the rate of copies, and the device
 * limits. */
#include "cuda/backend/internal.h"

/* --- the border --------------------------------------------------------------------------------------------------------
 *
 * Between mapped slots and copies, measured at open through the real thing: a lane, a slot, a plan, its graph. One size
 * after the other, from small to large, both ways; the border is the largest size at which mapped slots are not slower.
 * One request at a time: under load batches move the border up, so this errs towards copies. About 50 ms. */

enum { KS_BORDER_RUNS = 31, KS_BORDER_WARM = 4, KS_BORDER_COLS = 1024 };
static const size_t KS_BORDER_LEAST = 8 << 10, KS_BORDER_MOST = 2 << 20; /* bytes, in + out */
static const size_t KS_BORDER_GUESS = 64 << 10;     /* where the op does not work on mapped slots */
static const int64_t BORDER_TIME_NS = 400000000;    /* then the border found so far holds */
static const int64_t BORDER_STALL_NS = 30000000000; /* a first launch under a checking tool takes seconds */

static const int64_t BORDER_GAP_NS = 100000000; /* between two looks: more of it was a pause of the process */

/* A wait by looks. Only time in which the looks went on is the device's. */
typedef struct border_wait {
    int64_t seen_ns, waited_ns;
} border_wait;

static bool border_stalls(border_wait *wait)
{
    const int64_t now = ks_cuda_now_ns(), gap_ns = now - wait->seen_ns;
    wait->seen_ns = now;
    wait->waited_ns += gap_ns < BORDER_GAP_NS ? gap_ns : BORDER_GAP_NS;
    return wait->waited_ns > BORDER_STALL_NS;
}

static int compare_times(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Softmax over rows of KS_BORDER_COLS FP32 values that moves `bytes` in all. */
static ks_status border_spec(size_t bytes, ks_spec *spec, ks_error *error)
{
    const ks_op *op = ks_op_find("softmax", strlen("softmax"));
    if (!op) return ks_fail(error, KS_CONFIG, "no operation softmax to measure with");
    ks_spec_init(spec, op);
    spec->in[0].dtype = KS_FP32;
    spec->in[0].rank = 2;
    spec->in[0].dims[0] = (int64_t)(bytes / 2 / sizeof(float) / KS_BORDER_COLS);
    spec->in[0].dims[1] = KS_BORDER_COLS;
    const ks_status status = ks_tensor_measure(&spec->in[0], "INPUT0", error);
    if (status) return status;
    ks_spec_layout(spec);
    return op->resolve(spec, error);
}

static ks_status border_run(ks_lane *lane, ks_plan *plan, ks_slot *slot, int64_t *out_ns, ks_error *error)
{
    ks_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.plan = plan;
    batch.count = 1;
    batch.slots[0] = slot;
    const int64_t begin = ks_cuda_now_ns();
    const ks_status status = ks_cuda_launch(lane, &batch, error);
    if (status) return status;
    ks_poll poll;
    while ((poll = ks_cuda_poll(lane, error)) == KS_RUNNING) {
        if (ks_cuda_now_ns() - begin > BORDER_STALL_NS)
            return ks_fail(error, KS_DEVICE, "a launch did not end in 30 s");
    }
    *out_ns = ks_cuda_now_ns() - begin;
    return poll == KS_DONE ? KS_OK : KS_DEVICE;
}

/* The median of one path, as a captured graph. */
static ks_status border_time(ks_lane *lane, ks_plan *plan, ks_slot *slot, bool mapped, int64_t *out_ns, ks_error *error)
{
    int64_t times[KS_BORDER_RUNS];
    plan->mapped = mapped;
    ks_status status = border_run(lane, plan, slot, &times[0], error); /* kernels may come late, but not in a capture */
    if (!status) status = ks_cuda_capture(lane, plan, 0, error);
    for (int i = -KS_BORDER_WARM; !status && i < KS_BORDER_RUNS; i++)
        status = border_run(lane, plan, slot, &times[i < 0 ? 0 : i], error);
    ks_cuda_forget(lane, plan);
    if (status) return status;
    qsort(times, KS_BORDER_RUNS, sizeof times[0], compare_times);
    *out_ns = times[KS_BORDER_RUNS / 2];
    return KS_OK;
}

/* What one size takes, either way. */
typedef struct border_times {
    bool able; /* the op may work on mapped slots at this size, and the lane's memory holds it for copies */
    int64_t mapped_ns, copies_ns;
} border_times;

static ks_status border_size(ks_lane *lane, ks_slot *slot, size_t bytes, border_times *out, ks_error *error)
{
    ks_plan plan;
    memset(&plan, 0, sizeof plan);
    ks_status status = border_spec(bytes, &plan.spec, error);
    if (status) return status;
    status = ks_cuda_prepare(lane->device, &plan, error);
    if (status == KS_WORK) return KS_OK; /* limits too tight for this size: the border lies below it */
    if (status) return status;
    out->able = plan.mapped && !plan.large;
    if (!out->able) return KS_OK;
    status = border_time(lane, &plan, slot, true, &out->mapped_ns, error);
    if (!status) status = border_time(lane, &plan, slot, false, &out->copies_ns, error);
    return status;
}

static ks_status border_measure(ks_device *device, ks_lane *lane, ks_slot *slot, ks_error *error)
{
    const int64_t begin = ks_cuda_now_ns();
    size_t border = 0;
    int slower = 0;
    bool any = false;
    for (size_t bytes = KS_BORDER_LEAST; bytes <= KS_BORDER_MOST && slower < 2; bytes *= 2) {
        border_times times = {};
        device->info.mapped_max = SIZE_MAX;
        const ks_status status = border_size(lane, slot, bytes, &times, error);
        if (status) return status;
        if (!times.able || ks_cuda_now_ns() - begin > BORDER_TIME_NS) break;
        any = true;
        if (times.mapped_ns <= times.copies_ns) border = bytes;
        slower = times.mapped_ns <= times.copies_ns ? 0 : slower + 1; /* one slower size may be noise, two are not */
    }
    device->info.mapped_max = any ? border : KS_BORDER_GUESS;
    return KS_OK;
}

/* device->info.mapped_max from the limits, or measured. Without pinned memory nothing is mapped. */
ks_status ks_cuda_border_find(ks_device *device, ks_lane *lane, ks_error *error)
{
    device->info.mapped_max = device->limits.mapped_max;
    if (device->limits.mapped_max != SIZE_MAX) return KS_OK;
    ks_slot slot;
    memset(&slot, 0, sizeof slot);
    ks_status status = ks_cuda_slot_init(device, KS_BORDER_MOST / 2, KS_BORDER_MOST / 2, true, &slot, error);
    if (status) return status;
    if (slot.pinned)
        status = border_measure(device, lane, &slot, error);
    else
        device->info.mapped_max = 0;
    ks_cuda_slot_fini(device, &slot);
    return status;
}

/* --- the rate of copies ------------------------------------------------------------------------------------------------ */

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
void ks_cuda_measure_copy(ks_device *device, ks_lane *lane)
{
    void *memory = NULL;
    cudaEvent_t begin = NULL, end = NULL;
    size_t bytes = 256 << 20;
    while (bytes >= 2 * device->chip.l2_bytes && cudaMalloc(&memory, 2 * bytes) != cudaSuccess) bytes /= 2;
    if (memory && cudaMemsetAsync(memory, 1, bytes, lane->stream) == cudaSuccess &&
        cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess)
        device->copy_gbs = copy_rate((unsigned char *)memory, bytes, begin, end, lane->stream);
    device->copied_bytes = bytes;
    if (begin) cudaEventDestroy(begin);
    if (end) cudaEventDestroy(end);
    cudaFree(memory);
    cudaGetLastError(); /* no memory for it is no fault; a lost context shows in what follows */
}

/* --- device limits ------------------------------------------------------------------------------------------------------
 *
 * The best times of a launch and of the link, for --self-test: what no design on this device can go below. The kernel and
 * the graphs are as small as can be, streams and memory are of their own, and nothing waits for the whole device. */

enum { FLOOR_THREADS = 1024, FLOOR_WARM = 100, FLOOR_RUNS = 1000, FLOOR_COPIES = 5, FLOOR_COPY_RUNS = 5 };
static const size_t FLOOR_COPY_BYTES = 64 << 20;

/* Mapped; each word that is polled has its own cache lines. */
typedef struct ks_probe_words {
    float in[FLOOR_THREADS], out[FLOOR_THREADS];
    alignas(128) uint32_t flag;
    alignas(128) uint32_t sequence;
} ks_probe_words;

typedef struct ks_probe_memory {
    ks_probe_words *words, *words_device;
    unsigned char *host, *memory; /* two copies' worth each, pinned and the device's */
    cudaStream_t in, out;
    cudaEvent_t event;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
} ks_probe_memory;

/* A row of 4 KiB from and to host memory, and the flag that says so. */
__global__ void ks_cuda_probe_row(ks_probe_words *words)
{
    words->out[threadIdx.x] = 2 * words->in[threadIdx.x];
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) *(volatile uint32_t *)&words->flag = *(volatile uint32_t *)&words->sequence;
}

static ks_status probe_open(ks_device *device, ks_probe_memory *room, ks_error *error)
{
    void *memory = NULL;
    KS_TRY(device, error, ks_cuda_use(device));
    KS_TRY(device, error, cudaHostAlloc(&memory, sizeof *room->words, cudaHostAllocMapped));
    room->words = (ks_probe_words *)memory;
    memset(memory, 0, sizeof *room->words);
    KS_TRY(device, error, cudaHostGetDevicePointer(&memory, room->words, 0));
    room->words_device = (ks_probe_words *)memory;
    KS_TRY(device, error, cudaHostAlloc(&memory, 2 * FLOOR_COPY_BYTES, cudaHostAllocDefault));
    room->host = (unsigned char *)memory;
    memset(memory, 1, 2 * FLOOR_COPY_BYTES);
    KS_TRY(device, error, cudaMalloc(&memory, 2 * FLOOR_COPY_BYTES));
    room->memory = (unsigned char *)memory;
    KS_TRY(device, error, cudaStreamCreateWithFlags(&room->in, cudaStreamNonBlocking));
    KS_TRY(device, error, cudaStreamCreateWithFlags(&room->out, cudaStreamNonBlocking));
    KS_TRY(device, error, cudaEventCreateWithFlags(&room->event, cudaEventDisableTiming));
    return KS_OK;
}

static void probe_graph_drop(ks_probe_memory *room)
{
    if (room->ready) cudaGraphExecDestroy(room->ready);
    if (room->graph) cudaGraphDestroy(room->graph);
    room->ready = NULL;
    room->graph = NULL;
}

/* A lost context may block for ever in any call: its things stay where they are. */
static void probe_close(const ks_device *device, ks_probe_memory *room)
{
    if (ks_cuda_failed(device)) return;
    probe_graph_drop(room);
    if (room->event) cudaEventDestroy(room->event);
    if (room->in) cudaStreamDestroy(room->in);
    if (room->out) cudaStreamDestroy(room->out);
    if (room->memory) cudaFree(room->memory);
    if (room->host) cudaFreeHost(room->host);
    if (room->words) cudaFreeHost(room->words);
    cudaGetLastError();
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

/* One node: the row, or nothing. */
static ks_status probe_graph(ks_device *device, ks_probe_memory *room, bool row, ks_error *error)
{
    cudaGraphNode_t node;
    probe_graph_drop(room);
    KS_TRY(device, error, cudaGraphCreate(&room->graph, 0));
    if (row) {
        void *arguments[] = {&room->words_device};
        struct cudaKernelNodeParams params = {};
        params.func = (void *)ks_cuda_probe_row;
        params.gridDim = dim3(1, 1, 1);
        params.blockDim = dim3(FLOOR_THREADS, 1, 1);
        params.kernelParams = arguments;
        KS_TRY(device, error, cudaGraphAddKernelNode(&node, room->graph, NULL, 0, &params));
    } else {
        KS_TRY(device, error, cudaGraphAddEmptyNode(&node, room->graph, NULL, 0));
    }
    KS_TRY(device, error, cudaGraphInstantiate(&room->ready, room->graph, 0));
    KS_TRY(device, error, cudaGraphUpload(room->ready, room->in));
    KS_TRY(device, error, cudaStreamSynchronize(room->in));
    return KS_OK;
}

/* Launched .. seen done: by the flag where the graph sets one, else by an event behind it. */
static ks_status probe_turn(ks_device *device, ks_probe_memory *room, bool row, ks_error *error)
{
    const uint32_t sequence = ++room->words->sequence;
    border_wait wait = {ks_cuda_now_ns(), 0};
    KS_TRY(device, error, cudaGraphLaunch(room->ready, room->in));
    if (!row) KS_TRY(device, error, cudaEventRecord(room->event, room->in));
    for (;;) {
        const cudaError_t code = row ? cudaSuccess : ks_cuda_quiet(cudaEventQuery(room->event));
        if (code != cudaSuccess && code != cudaErrorNotReady)
            return ks_cuda_fault(device, code, "cudaEventQuery", error);
        if (row ? __atomic_load_n(&room->words->flag, __ATOMIC_ACQUIRE) == sequence : code == cudaSuccess) return KS_OK;
        if (border_stalls(&wait)) return ks_fail(error, KS_DEVICE, "a graph did not end in 30 s");
    }
}

static ks_status probe_latency(ks_device *device, ks_probe_memory *room, bool row, double *us, ks_error *error)
{
    int64_t times[FLOOR_RUNS];
    ks_status status = probe_graph(device, room, row, error);
    for (int i = -FLOOR_WARM; !status && i < FLOOR_RUNS; i++) {
        const int64_t begin = ks_cuda_now_ns();
        status = probe_turn(device, room, row, error);
        times[i < 0 ? 0 : i] = ks_cuda_now_ns() - begin;
    }
    if (status) return status;
    qsort(times, FLOOR_RUNS, sizeof times[0], compare_times);
    *us = (double)times[FLOOR_RUNS / 2] / 1e3;
    return KS_OK;
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

static ks_status probe_copies(ks_device *device, ks_probe_memory *room, bool in, bool out, double *gbs, ks_error *error)
{
    int64_t times[FLOOR_COPY_RUNS];
    for (int i = -1; i < FLOOR_COPY_RUNS; i++) { /* the first one warms */
        const int64_t begin = ks_cuda_now_ns();
        for (int copy = 0; copy < FLOOR_COPIES; copy++) {
            if (in)
                KS_TRY(device, error,
                       cudaMemcpyAsync(room->memory, room->host, FLOOR_COPY_BYTES, cudaMemcpyHostToDevice, room->in));
            if (out)
                KS_TRY(device, error,
                       cudaMemcpyAsync(room->host + FLOOR_COPY_BYTES, room->memory + FLOOR_COPY_BYTES, FLOOR_COPY_BYTES,
                                       cudaMemcpyDeviceToHost, room->out));
        }
        KS_TRY(device, error, cudaStreamSynchronize(room->in));
        KS_TRY(device, error, cudaStreamSynchronize(room->out));
        times[i < 0 ? 0 : i] = ks_cuda_now_ns() - begin;
    }
    qsort(times, FLOOR_COPY_RUNS, sizeof times[0], compare_times);
    *gbs = (double)(FLOOR_COPY_BYTES * FLOOR_COPIES) / (double)times[FLOOR_COPY_RUNS / 2];
    return KS_OK;
}

/* probe.device limits */
static ks_status device_limits(ks_device *device, ks_device_limits *out, ks_error *error)
{
    ks_probe_memory room;
    memset(&room, 0, sizeof room);
    ks_status status = probe_open(device, &room, error);
    if (!status) status = probe_latency(device, &room, false, &out->graph_empty_us, error);
    if (!status) status = probe_latency(device, &room, true, &out->graph_flag_us, error);
    if (!status) status = probe_copies(device, &room, true, false, &out->h2d_gbs, error);
    if (!status) status = probe_copies(device, &room, false, true, &out->d2h_gbs, error);
    if (!status) status = probe_copies(device, &room, true, true, &out->both_gbs, error);
    probe_close(device, &room);
    return status;
}

/* probe.memory: what was measured at open. */
static ks_status memory_rates(ks_device *device, size_t most, ks_memory_rates *out, ks_error *error)
{
    (void)most;
    if (device->copy_gbs <= 0) return ks_fail(error, KS_MEMORY, "no device memory for a copy beyond the L2 cache");
    *out = {};
    out->copy_gbs = device->copy_gbs;
    snprintf(out->source, sizeof out->source, "device memory of %zu MiB, best of 2", device->copied_bytes >> 20);
    return KS_OK;
}

const ks_probe ks_cuda_probe = {.memory = memory_rates, .peak = ks_cuda_peak, .device_limits = device_limits};
