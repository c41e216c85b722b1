#pragma once
/* The buffers that bench_ops and compare_cublaslt run a row on: as many sets, each an in side and then an out side, as are
 * together beyond the L2 cache. Inputs: uniform in [-1, 1). What fails ends the program, with one line. */
#include "ops_library.h"
#include "ops/gather.h"

#include <cuda_runtime.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        const cudaError_t code_ = (call);                                                                              \
        if (code_ != cudaSuccess) die(#call, cudaGetErrorString(code_));                                               \
    } while (0)

static const size_t SETS_BYTES = 300 << 20;
enum { SETS_LEAST = 4, SETS_MOST = 64 };
static const size_t SETS_ALONE = (size_t)4 << 30; /* bytes of a set that is beyond the caches by itself */

typedef struct sets {
    ops_work work;
    size_t bytes; /* of one */
    int count;
    unsigned char *memory;
} sets;

static cudaStream_t stream;
static cudaEvent_t begin, end;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
    exit(1);
}

/* Uniform in [-1, 1) from a hash of the index, in the datatype's own bits; integers 0 .. 255. */
__global__ void bench_fill(unsigned char *out, size_t count, int dtype, uint32_t seed)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u + seed;
        h = (h ^ h >> 16) * 0x85ebca6bu;
        h = (h ^ h >> 13) * 0xc2b2ae35u;
        const float value = (float)(h >> 8) * (2.0f / 16777216.0f) - 1.0f;
        const uint32_t bits = __float_as_uint(value);
        if (dtype == KS_FP32)
            ((float *)out)[i] = value;
        else if (dtype == KS_FP64)
            ((double *)out)[i] = value;
        else if (dtype == KS_BF16)
            ((uint16_t *)out)[i] = (uint16_t)(bits >> 16);
        else if (dtype == KS_FP16) /* truncated; magnitudes below 2^-14 become zero */
            ((uint16_t *)out)[i] =
                (uint16_t)(bits >> 16 & 0x8000) |
                ((bits & 0x7fffffff) < 0x38800000 ? 0 : (uint16_t)(((bits & 0x7fffffff) - 0x38000000) >> 13));
        else
            out[i] = (unsigned char)h;
    }
}

/* Numbers of INT64 that decide: indices of a table below `extent`, or, of several bags, offsets that are `step` apart. */
__global__ void bench_places(int64_t *out, size_t count, int64_t extent, int64_t step, uint32_t seed)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u + seed;
        h = (h ^ h >> 16) * 0x85ebca6bu;
        h = (h ^ h >> 13) * 0xc2b2ae35u;
        out[i] = step ? (int64_t)i * step : (int64_t)((h ^ h >> 16) % (uint64_t)extent);
    }
}

static void fill_input(const ks_spec *spec, int i, unsigned char *at, uint32_t seed)
{
    const ks_tensor *t = &spec->in[i];
    const size_t count = (size_t)ks_tensor_count(t);
    if (spec->op->decides >> i & 1) {
        const ks_gather_shape shape = ks_gather_shape_of(spec);
        const int64_t step = i == KS_GATHER_OFFSETS ? shape.count / shape.bags : 0;
        bench_places<<<528, 512, 0, stream>>>((int64_t *)(void *)at, count, shape.extent, step, seed);
    } else {
        bench_fill<<<528, 512, 0, stream>>>(at, count, t->dtype, seed);
    }
    CHECK(cudaGetLastError());
}

/* At most `most` of them. */
static void open_sets(sets *s, int most)
{
    const ks_spec *spec = &s->work.spec;
    s->bytes = s->work.in_bytes + s->work.out_bytes;
    const size_t wanted = SETS_BYTES / s->bytes + 1;
    s->count = wanted < SETS_LEAST ? (int)SETS_LEAST : wanted > SETS_MOST ? (int)SETS_MOST : (int)wanted;
    if (s->bytes > SETS_ALONE) s->count = 1;
    if (s->count > most) s->count = most;
    CHECK(cudaMalloc(&s->memory, s->bytes * (size_t)s->count));
    CHECK(cudaMemsetAsync(s->memory, 0, s->bytes * (size_t)s->count, stream));
    for (int at = 0; at < s->count; at++)
        for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
            fill_input(spec, i, s->memory + s->bytes * (size_t)at + spec->in[i].offset,
                       (uint32_t)(at * 7919 + i * 104729));
    CHECK(cudaStreamSynchronize(stream));
}
