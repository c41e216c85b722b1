/* The floors of a launch and of the link, for --self-test: what no design on this device can go below. The kernel and
 * the graphs are as small as can be, streams and memory are of their own, and nothing waits for the whole device. */
#ifndef KS_BACKEND_CUDA_FLOORS_CUH
#define KS_BACKEND_CUDA_FLOORS_CUH

#include "backend_cuda_border.cuh"

enum { FLOOR_THREADS = 1024, FLOOR_WARM = 100, FLOOR_RUNS = 1000, FLOOR_COPIES = 5, FLOOR_COPY_RUNS = 5 };
static const size_t FLOOR_COPY_BYTES = 64 << 20;

/* Mapped; each word that somebody spins on has its own cache lines. */
typedef struct ks_floor_words {
    float in[FLOOR_THREADS], out[FLOOR_THREADS];
    alignas(128) uint32_t flag;
    alignas(128) uint32_t sequence;
} ks_floor_words;

typedef struct ks_floor_room {
    ks_floor_words *words, *words_device;
    unsigned char *host, *memory; /* two copies' worth each, pinned and the device's */
    cudaStream_t in, out;
    cudaEvent_t event;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
} ks_floor_room;

/* A row of 4 KiB from and to host memory, and the flag that says so. */
__global__ void ks_cuda_floor_row(ks_floor_words *words)
{
    words->out[threadIdx.x] = 2 * words->in[threadIdx.x];
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) *(volatile uint32_t *)&words->flag = *(volatile uint32_t *)&words->sequence;
}

static ks_status floor_open(ks_device *device, ks_floor_room *room, ks_error *error)
{
    void *memory = NULL;
    KS_TRY(device, error, use_device(device));
    KS_TRY(device, error, cudaHostAlloc(&memory, sizeof *room->words, cudaHostAllocMapped));
    room->words = (ks_floor_words *)memory;
    memset(memory, 0, sizeof *room->words);
    KS_TRY(device, error, cudaHostGetDevicePointer(&memory, room->words, 0));
    room->words_device = (ks_floor_words *)memory;
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

static void floor_graph_drop(ks_floor_room *room)
{
    if (room->ready) cudaGraphExecDestroy(room->ready);
    if (room->graph) cudaGraphDestroy(room->graph);
    room->ready = NULL;
    room->graph = NULL;
}

/* A lost context may block for ever in any call: its things stay where they are. */
static void floor_close(const ks_device *device, ks_floor_room *room)
{
    if (device_failed(device)) return;
    floor_graph_drop(room);
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
static ks_status floor_graph(ks_device *device, ks_floor_room *room, bool row, ks_error *error)
{
    cudaGraphNode_t node;
    floor_graph_drop(room);
    KS_TRY(device, error, cudaGraphCreate(&room->graph, 0));
    if (row) {
        void *arguments[] = {&room->words_device};
        struct cudaKernelNodeParams params = {};
        params.func = (void *)ks_cuda_floor_row;
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
static ks_status floor_turn(ks_device *device, ks_floor_room *room, bool row, ks_error *error)
{
    const uint32_t sequence = ++room->words->sequence;
    border_wait wait = {now_ns(), 0};
    KS_TRY(device, error, cudaGraphLaunch(room->ready, room->in));
    if (!row) KS_TRY(device, error, cudaEventRecord(room->event, room->in));
    for (;;) {
        const cudaError_t code = row ? cudaSuccess : quiet(cudaEventQuery(room->event));
        if (code != cudaSuccess && code != cudaErrorNotReady) return judge(device, code, "cudaEventQuery", error);
        if (row ? __atomic_load_n(&room->words->flag, __ATOMIC_ACQUIRE) == sequence : code == cudaSuccess) return KS_OK;
        if (border_stalls(&wait)) return ks_fail(error, KS_DEVICE, "a graph did not end in 30 s");
    }
}

static ks_status floor_latency(ks_device *device, ks_floor_room *room, bool row, double *us, ks_error *error)
{
    int64_t times[FLOOR_RUNS];
    ks_status status = floor_graph(device, room, row, error);
    for (int i = -FLOOR_WARM; !status && i < FLOOR_RUNS; i++) {
        const int64_t begin = now_ns();
        status = floor_turn(device, room, row, error);
        times[i < 0 ? 0 : i] = now_ns() - begin;
    }
    if (status) return status;
    qsort(times, FLOOR_RUNS, sizeof times[0], compare_times);
    *us = (double)times[FLOOR_RUNS / 2] / 1e3;
    return KS_OK;
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

static ks_status floor_copies(ks_device *device, ks_floor_room *room, bool in, bool out, double *gbs, ks_error *error)
{
    int64_t times[FLOOR_COPY_RUNS];
    for (int i = -1; i < FLOOR_COPY_RUNS; i++) { /* the first one warms */
        const int64_t begin = now_ns();
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
        times[i < 0 ? 0 : i] = now_ns() - begin;
    }
    qsort(times, FLOOR_COPY_RUNS, sizeof times[0], compare_times);
    *gbs = (double)(FLOOR_COPY_BYTES * FLOOR_COPIES) / (double)times[FLOOR_COPY_RUNS / 2];
    return KS_OK;
}

/* backend.floors */
static ks_status floors(ks_device *device, ks_floors *out, ks_error *error)
{
    ks_floor_room room;
    memset(&room, 0, sizeof room);
    ks_status status = floor_open(device, &room, error);
    if (!status) status = floor_latency(device, &room, false, &out->graph_empty_us, error);
    if (!status) status = floor_latency(device, &room, true, &out->graph_flag_us, error);
    if (!status) status = floor_copies(device, &room, true, false, &out->h2d_gbs, error);
    if (!status) status = floor_copies(device, &room, false, true, &out->d2h_gbs, error);
    if (!status) status = floor_copies(device, &room, true, true, &out->both_gbs, error);
    floor_close(device, &room);
    return status;
}

#endif
