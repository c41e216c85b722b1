/* The bare batched GPU server: softmax of one row of FP32 by the fewest steps known. Bodies are copied into mapped host
 * memory, all requests of a loop's turn go out in one launch that reads and writes there, and a flag for each says when
 * it is done (bare_loop.h has the HTTP half). A row above 64 KiB is shared by blocks, in two launches. No parser, no plan,
 * no limit, no clock: the yardstick of bench_http.sh.
 *
 * Usage    bare_gpu PORT BODY_BYTES [THREADS]   BODY_BYTES: of the row, a multiple of 16 up to 1 MiB
 * Threads  each loop has its own memory and streams
 * Limits   64 MiB of input for each thread: so many connections of large rows, or the server ends */
#include "bare_loop.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    VECTORS = 16,
    ROW_MAX = THREADS * VECTORS * 16, /* bytes of a row that one block holds */
    PART_VECTORS = 4,                 /* of a thread, where a row has several blocks */
    PARTS = 64,                       /* of a row, at most */
    BODY_MAX = PARTS * THREADS * PART_VECTORS * 16,
    MEMORY = 64 << 20,
    STREAMS = 8
};

/* The slots of a launch travel with its parameters: a list in host memory would be one more read across the link. */
struct batch {
    uint16_t slots[BARE_BATCH];
};

struct gpu {
    size_t body;
    unsigned slots;
    float *in, *out;     /* a row for each slot, mapped */
    uint32_t *flags;     /* mapped; a slot's is 1 when its answer lies in out */
    float *copy;         /* of large rows, on the device */
    float2 *parts;       /* PARTS of each large row: maximum, and sum beside it */
    unsigned *left_over; /* of each large row: blocks that have written, 0 between launches */
    cudaStream_t streams[STREAMS];
    batch taken;
    unsigned count, turn;
};

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return;
    fprintf(stderr, "bare_gpu: %s: %s\n", what, cudaGetErrorString(error));
    exit(71);
}

__device__ static float larger(float a, float b)
{
    return fmaxf(a, b);
}

__device__ static float sum(float a, float b)
{
    return a + b;
}

/* The value of all threads of the block, in each of them. Once for each fold: nothing guards its memory afterwards. */
template <float (*fold)(float, float)>
__device__ static float across(float value)
{
    __shared__ float warps[WARPS];
    for (int lanes = 16; lanes; lanes >>= 1) value = fold(value, __shfl_xor_sync(~0u, value, lanes));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[threadIdx.x % WARPS];
    for (int lanes = WARPS / 2; lanes; lanes >>= 1) value = fold(value, __shfl_xor_sync(~0u, value, lanes));
    return value;
}

/* A block is a row, read once and kept in registers. PER: vectors of four that a thread holds. */
template <int PER>
__global__ static void __launch_bounds__(THREADS)
    rows(const float4 *in, float4 *out, volatile uint32_t *flags, unsigned vectors, batch taken)
{
    const unsigned slot = taken.slots[blockIdx.x];
    float4 v[PER];
    float most = -INFINITY, total = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const unsigned at = threadIdx.x + i * THREADS;
        v[i] = at < vectors ? in[(size_t)slot * vectors + at] : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
        most = fmaxf(most, fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w)));
    }
    most = across<larger>(most);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        v[i] = make_float4(__expf(v[i].x - most), __expf(v[i].y - most), __expf(v[i].z - most), __expf(v[i].w - most));
        total += v[i].x + v[i].y + v[i].z + v[i].w;
    }
    const float scale = 1 / across<sum>(total);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const unsigned at = threadIdx.x + i * THREADS;
        if (at < vectors)
            out[(size_t)slot * vectors + at] =
                make_float4(v[i].x * scale, v[i].y * scale, v[i].z * scale, v[i].w * scale);
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) flags[slot] = 1;
}

/* A row of several blocks: it is read across the link once, and what each block found is left for all. */
__global__ static void __launch_bounds__(THREADS)
    first_look(const float4 *in, float4 *copy, float2 *parts, unsigned vectors, batch taken)
{
    const unsigned slot = taken.slots[blockIdx.y];
    float4 v[PART_VECTORS];
    float most = -INFINITY, total = 0;
#pragma unroll
    for (int i = 0; i < PART_VECTORS; i++) {
        const unsigned at = (blockIdx.x * PART_VECTORS + i) * THREADS + threadIdx.x;
        v[i] = at < vectors ? in[(size_t)slot * vectors + at] : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
        if (at < vectors) copy[(size_t)slot * vectors + at] = v[i];
        most = fmaxf(most, fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w)));
    }
    most = across<larger>(most);
#pragma unroll
    for (int i = 0; i < PART_VECTORS; i++)
        total += __expf(v[i].x - most) + __expf(v[i].y - most) + __expf(v[i].z - most) + __expf(v[i].w - most);
    total = across<sum>(total);
    if (threadIdx.x == 0) parts[slot * PARTS + blockIdx.x] = make_float2(most, total);
}

__global__ static void __launch_bounds__(THREADS)
    second_look(const float4 *copy, const float2 *parts, float4 *out, volatile uint32_t *flags, unsigned *left_over,
                unsigned vectors, batch taken)
{
    const unsigned slot = taken.slots[blockIdx.y];
    float most = -INFINITY, total = 0;
    for (unsigned p = 0; p < gridDim.x; p++) most = fmaxf(most, parts[slot * PARTS + p].x);
    for (unsigned p = 0; p < gridDim.x; p++)
        total += __expf(parts[slot * PARTS + p].x - most) * parts[slot * PARTS + p].y;
    const float scale = 1 / total;
#pragma unroll
    for (int i = 0; i < PART_VECTORS; i++) {
        const unsigned at = (blockIdx.x * PART_VECTORS + i) * THREADS + threadIdx.x;
        if (at >= vectors) continue;
        const float4 v = copy[(size_t)slot * vectors + at];
        out[(size_t)slot * vectors + at] = make_float4(__expf(v.x - most) * scale, __expf(v.y - most) * scale,
                                                       __expf(v.z - most) * scale, __expf(v.w - most) * scale);
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x > 0 || atomicAdd(&left_over[slot], 1u) + 1 < gridDim.x) return;
    left_over[slot] = 0;
    __threadfence_system();
    flags[slot] = 1;
}

static void *gpu_open(size_t body)
{
    gpu *g = static_cast<gpu *>(calloc(1, sizeof *g));
    if (!g) check(cudaErrorMemoryAllocation, "memory of a thread");
    g->body = body;
    g->slots = static_cast<unsigned>(std::min<size_t>(BARE_SLOTS, MEMORY / body));
    check(cudaSetDevice(0), "device");
    check(cudaHostAlloc(&g->in, g->slots * body, cudaHostAllocMapped), "input");
    check(cudaHostAlloc(&g->out, g->slots * body, cudaHostAllocMapped), "output");
    check(cudaHostAlloc(&g->flags, g->slots * sizeof *g->flags, cudaHostAllocMapped), "flags");
    if (body > ROW_MAX) {
        check(cudaMalloc(&g->copy, g->slots * body), "copies");
        check(cudaMalloc(&g->parts, g->slots * PARTS * sizeof *g->parts), "parts");
        check(cudaMalloc(&g->left_over, g->slots * sizeof *g->left_over), "counters");
        check(cudaMemset(g->left_over, 0, g->slots * sizeof *g->left_over), "counters");
    }
    for (cudaStream_t &stream : g->streams) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    return g;
}

static void gpu_take(void *state, unsigned slot, const char *bytes)
{
    gpu *g = static_cast<gpu *>(state);
    if (slot >= g->slots) check(cudaErrorMemoryAllocation, "more connections than 64 MiB have rows");
    memcpy(reinterpret_cast<char *>(g->in) + slot * g->body, bytes, g->body);
    g->flags[slot] = 0;
    g->taken.slots[g->count++] = static_cast<uint16_t>(slot);
}

static void gpu_go(void *state)
{
    gpu *g = static_cast<gpu *>(state);
    const unsigned vectors = static_cast<unsigned>(g->body / sizeof(float4));
    const cudaStream_t stream = g->streams[g->turn++ % STREAMS];
    const auto in = reinterpret_cast<const float4 *>(g->in);
    const auto out = reinterpret_cast<float4 *>(g->out), copy = reinterpret_cast<float4 *>(g->copy);
    if (g->body > ROW_MAX) {
        const dim3 grid((vectors + THREADS * PART_VECTORS - 1) / (THREADS * PART_VECTORS), g->count);
        first_look<<<grid, THREADS, 0, stream>>>(in, copy, g->parts, vectors, g->taken);
        second_look<<<grid, THREADS, 0, stream>>>(copy, g->parts, out, g->flags, g->left_over, vectors, g->taken);
    } else {
        const auto kernel = vectors <= THREADS ? rows<1> : vectors <= 4 * THREADS ? rows<4> : rows<VECTORS>;
        kernel<<<g->count, THREADS, 0, stream>>>(in, out, g->flags, vectors, g->taken);
    }
    check(cudaGetLastError(), "launch");
    g->count = 0;
}

static const char *gpu_done(void *state, unsigned slot)
{
    const gpu *g = static_cast<const gpu *>(state);
    if (!__atomic_load_n(&g->flags[slot], __ATOMIC_ACQUIRE)) return nullptr;
    return reinterpret_cast<const char *>(g->out) + slot * g->body;
}

int main(int argc, char **argv)
{
    const size_t body = argc > 2 ? strtoul(argv[2], nullptr, 10) : 0;
    const int threads = argc > 3 ? atoi(argv[3]) : 1;
    if (!body || body % sizeof(float4) || body > BODY_MAX || threads < 1) {
        fprintf(stderr, "usage: bare_gpu PORT BODY_BYTES [THREADS]\n");
        return 64;
    }
    const bare_work work = {.open = gpu_open, .take = gpu_take, .go = gpu_go, .done = gpu_done};
    return bare_serve(static_cast<unsigned short>(atoi(argv[1])), static_cast<unsigned>(threads), body, body, &work);
}
