/* Several of map's functions in one pass on the GPU: each input is read once, values between the functions stay on the SM, and the last
 * result is written. Of BOOL, FP8, FP16, BF16 and FP32, all of which a float holds.
 *
 * A thread has eight elements of the output at a time, as floats. The functions are a list that all threads go through: what one computes is a
 * branch of the whole grid, taken once for eight elements. The last result stays where it is for the next function; what others read lies in
 * the thread's file of up to six registers, in shared memory, which no other thread reads. Each result is rounded to its datatype before the
 * next function reads it, and code stands behind a branch, so that no compiler makes one operation of two functions: bits are those of map's
 * own kernels, but for which ones a NaN has.
 *
 * Loads of all inputs are asked for before the first one is looked at. */
#include "cuda/map/convert.cuh"
#include "cuda/map/vectors.cuh"
#include "cuda/op.h"
#include "ops/map/maps.h"

#include <stdio.h>
#include <string.h>

enum {
    ELEMENTS = 8,     /* of a vector of the output */
    VECTORS_MOST = 4, /* of a thread */
    CTAS_SM = 4       /* up to so many, each thread has one vector */
};

/* As the kernel computes it. */
typedef struct maps_function {
    float a, b;
    uint8_t function, operands, out, to;
    int8_t from[KS_MAP_OPERANDS]; /* registers; -1: a */
    bool truth, quick;            /* quick: for results of 16 bits, as map's kernels have it */
    /* where and cast, whose result has its operands' datatype already: rounding would end FP8E5M2's infinities. */
    bool hands_on;
    bool goes_on, kept; /* from[0] is the result in front; the result is read but by the next function's from[0] */
} maps_function;

typedef struct maps_shape {
    map_operand operand[KS_MAPS_INPUTS];
    map_axis axis[KS_RANK_MAX];
    maps_function function[KS_MAPS_MAX];
    int64_t count, vectors;
    int32_t axes, rounds, inputs, functions;
    uint8_t size[KS_MAPS_INPUTS]; /* bytes of an element */
    uint8_t out_size;
    bool narrow; /* indices of elements are below 2^31 */
} maps_shape;

/* --- operands ------------------------------------------------------------------------------------------------------------- */

/* Eight elements of an input as they lie in memory. */
template <int BYTES>
__device__ __forceinline__ void maps_load_as(const maps_shape &s, const map_operand &operand, const unsigned char *in,
                                             int64_t vector, uint32_t (&raw)[ELEMENTS])
{
    constexpr int N = BYTES == 4 ? 4 : 8, WORDS = N * BYTES / 4; /* of a load */
    const int64_t element = vector * ELEMENTS;
    const int64_t first = operand.kind == MAP_FLAT ? element : map_offset(s, operand, element);
#pragma unroll
    for (int piece = 0; piece < ELEMENTS / N; piece++) {
        map_raw r = {};
        if (operand.kind == MAP_GATHER) {
            r = map_gather<BYTES, N>(s, operand, in, element + piece * N);
        } else if (operand.kind == MAP_SPLAT) {
            r = map_read<BYTES>(in + first * BYTES);
            map_spread<BYTES>(&r);
        } else {
            r = map_read<N * BYTES>(in + (first + piece * N) * BYTES);
        }
#pragma unroll
        for (int w = 0; w < WORDS; w++) raw[piece * 4 + w] = r.word[w];
    }
}

__device__ __forceinline__ void maps_load(const maps_shape &s, int k, const unsigned char *side, int64_t vector,
                                          uint32_t (&raw)[ELEMENTS])
{
    const map_operand &operand = s.operand[k];
    const unsigned char *in = side + operand.offset;
    if (s.size[k] == 4)
        maps_load_as<4>(s, operand, in, vector, raw);
    else if (s.size[k] == 2)
        maps_load_as<2>(s, operand, in, vector, raw);
    else
        maps_load_as<1>(s, operand, in, vector, raw);
}

#define MAPS_EACH(expression)                                                                                          \
    _Pragma("unroll") for (int i = 0; i < ELEMENTS; i++) x[i] = (expression);                                          \
    break

__device__ __forceinline__ uint32_t maps_byte(const uint32_t (&raw)[ELEMENTS], int i)
{
    return raw[i / 4] >> 8 * (i % 4) & 0xFF;
}

__device__ __forceinline__ void maps_widen(const uint32_t (&raw)[ELEMENTS], int dtype, float (&x)[ELEMENTS])
{
    switch (dtype) {
    case KS_BOOL:
        MAPS_EACH((float)(maps_byte(raw, i) != 0));
    case KS_FP8E4M3:
        MAPS_EACH(ks_of_e4m3(maps_byte(raw, i)));
    case KS_FP8E5M2:
        MAPS_EACH(ks_of_e5m2(maps_byte(raw, i)));
    case KS_FP16:
        MAPS_EACH(ks_math_of<__half>(raw[i / 2], i % 2));
    case KS_BF16:
        MAPS_EACH(ks_math_of<__nv_bfloat16>(raw[i / 2], i % 2));
    default:
        MAPS_EACH(__uint_as_float(raw[i]));
    }
}

/* --- registers ------------------------------------------------------------------------------------------------------------ */

/* A thread's registers lie in shared memory, where a number that is no constant finds one; each is two vectors of four floats, side by side
 * across the threads. */
struct maps_file {
    float4 *own;

    __device__ __forceinline__ void put(int to, const float (&x)[ELEMENTS]) const
    {
        own[2 * to * blockDim.x] = float4{x[0], x[1], x[2], x[3]};
        own[(2 * to + 1) * blockDim.x] = float4{x[4], x[5], x[6], x[7]};
    }

    /* from -1: a, eight times */
    __device__ __forceinline__ void get(int from, float a, float (&x)[ELEMENTS]) const
    {
        float4 low = {a, a, a, a}, high = low;
        if (from >= 0) {
            low = own[2 * from * blockDim.x];
            high = own[(2 * from + 1) * blockDim.x];
        }
        x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
        x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
    }
};

/* --- functions ------------------------------------------------------------------------------------------------------------ */

/* The functions that have another form for results of 16 bits. */
__device__ __forceinline__ void maps_quick(int function, float (&x)[ELEMENTS])
{
    switch (function) {
    case KS_MAP_EXP:
        MAPS_EACH((map_exp<true>(x[i])));
    case KS_MAP_SIGMOID:
        MAPS_EACH((map_sigmoid<true>(x[i])));
    default:
        map_activate<__half>(function, x);
    }
}

/* Of two or three operands, x among them. */
__device__ __forceinline__ void maps_join(const maps_function &f, const maps_file &file, float (&x)[ELEMENTS])
{
    const map_given<float> given = {f.a, f.b, 0};
    float y[ELEMENTS];
    file.get(f.from[1], f.a, y);
    if (f.operands == 3) {
        float z[ELEMENTS];
        file.get(f.from[2], f.a, z);
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++)
            x[i] = f.function == KS_MAP_WHERE ? (x[i] != 0 ? y[i] : z[i]) : fmaf(x[i], y[i], z[i]);
    } else if (f.truth) {
        uint32_t truth[ELEMENTS];
        map_truths(f.function, x, y, truth);
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++) x[i] = (float)truth[i];
    } else {
        map_two_real(f.function, x, y, given);
    }
}

/* x becomes the result. */
__device__ __forceinline__ void maps_compute(const maps_function &f, const maps_file &file, float (&x)[ELEMENTS])
{
    const map_given<float> given = {f.a, f.b, 0};
    if (!f.goes_on) file.get(f.from[0], f.a, x);
    if (f.operands > 1)
        maps_join(f, file, x);
    else if (f.quick)
        maps_quick(f.function, x);
    else
        map_one_real<float>(f.function, x, given); /* of a cast: nothing */
}

/* To the datatype and back. */
__device__ __forceinline__ void maps_round(int dtype, float (&x)[ELEMENTS])
{
    switch (dtype) {
    case KS_BOOL:
        MAPS_EACH((float)(x[i] != 0));
    case KS_FP8E4M3:
        MAPS_EACH((ks_of_e4m3(ks_to_fp8<3, 7>(x[i], 448.0f))));
    case KS_FP8E5M2:
        MAPS_EACH((ks_of_e5m2(ks_to_fp8<2, 15>(x[i], 57344.0f))));
    case KS_FP16:
        MAPS_EACH(ks_math_of<__half>(map_bits_of(ks_round<__half>(x[i])), 0));
    case KS_BF16:
        MAPS_EACH(ks_math_of<__nv_bfloat16>(map_bits_of(ks_round<__nv_bfloat16>(x[i])), 0));
    default:
        break;
    }
}

/* --- the output ----------------------------------------------------------------------------------------------------------- */

/* Of values that the datatype holds: an infinity of FP8E5M2 was handed on. */
__device__ __forceinline__ void maps_store(const maps_shape &s, int dtype, const float (&x)[ELEMENTS],
                                           unsigned char *out, int64_t vector)
{
    uint64_t bits[ELEMENTS];
    map_raw r[2] = {};
    map_narrow_real(x, dtype, bits);
    if (dtype == KS_FP8E5M2) {
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++)
            if (fabsf(x[i]) > 57344.0f) bits[i] = (x[i] < 0 ? 0x80u : 0u) | 0x7Cu;
    }
    if (s.out_size == 4) {
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++) r[i / 4].word[i % 4] = (uint32_t)bits[i];
        map_store<4, 4>(out, 2 * vector, s.count, r[0]);
        if (vector * ELEMENTS + 4 < s.count) map_store<4, 4>(out, 2 * vector + 1, s.count, r[1]);
    } else if (s.out_size == 2) {
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++) r[0].word[i / 2] |= (uint32_t)bits[i] << 16 * (i % 2);
        map_store<2, ELEMENTS>(out, vector, s.count, r[0]);
    } else {
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++) r[0].word[i / 4] |= (uint32_t)bits[i] << 8 * (i % 4);
        map_store<1, ELEMENTS>(out, vector, s.count, r[0]);
    }
}

__device__ __forceinline__ void maps_vector(const maps_shape &s, const ks_job_sides &job, int64_t vector)
{
    const maps_file file = {(float4 *)ks_dynamic + threadIdx.x};
    float x[ELEMENTS] = {};
    uint32_t raw[KS_MAPS_INPUTS][ELEMENTS];
#pragma unroll
    for (int k = 0; k < KS_MAPS_INPUTS; k++)
        if (k < s.inputs) maps_load(s, k, job.in, vector, raw[k]);
#pragma unroll
    for (int k = 0; k < KS_MAPS_INPUTS; k++) {
        if (k >= s.inputs) continue;
        maps_widen(raw[k], s.operand[k].dtype, x);
        file.put(k, x);
    }
#pragma unroll 1
    for (int i = 0; i < s.functions; i++) {
        const maps_function f = s.function[i];
        maps_compute(f, file, x);
        if (!f.hands_on) maps_round(f.out, x);
        if (f.kept) file.put(f.to, x);
    }
    maps_store(s, s.function[s.functions - 1].out, x, job.out, vector);
}

__global__ void __launch_bounds__(MAP_THREADS, 3) maps_kernel(ks_site site, const __grid_constant__ maps_shape s)
{
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const int64_t first = (int64_t)blockIdx.x * s.rounds * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (int u = 0; u < s.rounds; u++) {
        const int64_t vector = first + (int64_t)u * blockDim.x;
        if (vector >= s.vectors) break;
        maps_vector(s, job, vector);
    }
    ks_leave(site);
}

/* --- choosing -------------------------------------------------------------------------------------------------------------- */

/* Of BOOL, whose values are 0 and 1 here, what bits do is done by numbers. */
static void name_function(const ks_map_work *w, maps_function *f)
{
    f->function = (uint8_t)w->function;
    f->truth = w->truth;
    if (w->function == KS_MAP_AND) f->function = KS_MAP_MIN;
    if (w->function == KS_MAP_OR) f->function = KS_MAP_MAX;
    if (w->function != KS_MAP_XOR) return;
    f->function = KS_MAP_NE;
    f->truth = true;
}

static maps_function function_of(const ks_maps_function *given)
{
    const ks_map_work *w = &given->work;
    const bool half = (w->dtype == KS_FP16 || w->dtype == KS_BF16) && w->out == w->dtype;
    maps_function f = {};
    name_function(w, &f);
    f.a = (float)w->a;
    f.b = (float)w->b;
    f.operands = (uint8_t)w->operands;
    f.out = (uint8_t)w->out;
    f.hands_on = (w->function == KS_MAP_WHERE || w->function == KS_MAP_CAST) && w->dtype == w->out;
    f.to = (uint8_t)given->to;
    for (int k = 0; k < KS_MAP_OPERANDS; k++) f.from[k] = (int8_t)given->from[k];
    f.quick = half && (w->function == KS_MAP_EXP || w->function == KS_MAP_SIGMOID || w->function == KS_MAP_GELU ||
                       w->function == KS_MAP_GELU_TANH || w->function == KS_MAP_SILU);
    return f;
}

static int64_t quotient_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Little work is spread over all SMs, a vector a thread. */
static uint32_t cut(const ks_chip *chip, int64_t count, int *threads, int *rounds)
{
    const int64_t vectors = quotient_up(count, ELEMENTS);
    *rounds = vectors <= (int64_t)chip->sms * CTAS_SM * MAP_THREADS ? 1 : (int)VECTORS_MOST;
    *threads = vectors < MAP_THREADS ? (int)quotient_up(vectors, 32) * 32 : (int)MAP_THREADS;
    return (uint32_t)quotient_up(vectors, (int64_t)*threads * *rounds);
}

/* Which of its values a function leaves where it has them. */
static void note_readers(maps_shape *s, int index)
{
    maps_function *f = &s->function[index];
    f->goes_on = index > 0 && f->from[0] == s->function[index - 1].to;
    f->kept = false;
    for (int i = index + 1; i < s->functions && !f->kept; i++) {
        const maps_function *reader = &s->function[i];
        for (int k = 0; k < reader->operands; k++)
            f->kept = f->kept || (reader->from[k] == f->to && !(k == 0 && i == index + 1));
        if (reader->to == f->to) break;
    }
}

/* Bytes of shared memory of a CTA: registers up to the last one. */
static size_t file_bytes(const ks_spec *spec, int threads)
{
    int last = 0;
    for (int k = ks_next_input(spec, -1); k >= 0; k = ks_next_input(spec, k)) last = k > last ? k : last;
    for (int i = 0; i < ks_maps_count(spec); i++) {
        const int to = ks_maps_read(spec, i).to;
        last = to > last ? to : last;
    }
    return (size_t)(last + 1) * ELEMENTS * sizeof(float) * (size_t)threads;
}

static maps_shape shape_of(const ks_spec *spec, int rounds)
{
    const ks_map_shape lies = ks_maps_shape_of(spec);
    maps_shape s = {};
    s.count = lies.count;
    s.vectors = quotient_up(lies.count, ELEMENTS);
    s.axes = lies.rank;
    s.narrow = s.count <= INT32_MAX;
    s.rounds = rounds;
    s.out_size = (uint8_t)ks_dtype_size(spec->out[0].dtype);
    for (int d = 0; d < s.axes; d++) s.axis[d] = map_axis_of(lies.dims[d]);
    for (int k = ks_next_input(spec, -1); k >= 0; k = ks_next_input(spec, k)) {
        s.operand[k] = map_operand_of(&lies, k, &spec->in[k], ELEMENTS);
        s.size[k] = (uint8_t)ks_dtype_size(spec->in[k].dtype);
        s.inputs = k + 1;
    }
    s.functions = ks_maps_count(spec);
    for (int i = 0; i < s.functions; i++) {
        const ks_maps_function function = ks_maps_read(spec, i);
        s.function[i] = function_of(&function);
    }
    for (int i = 0; i < s.functions; i++) note_readers(&s, i);
    return s;
}

/* --- planning and launching --------------------------------------------------------------------------------------------------- */

/* ks_cuda_setup_fn: the kernel needs no more shared memory than every CTA has. */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    (void)chip, (void)error;
    return KS_OK;
}

/* ks_cuda_plan_fn: on device memory, as a chain's steps are. */
static ks_status cuda_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    const int64_t count = ks_tensor_count(&spec->out[0]), most = (int64_t)INT32_MAX * MAP_THREADS * ELEMENTS;
    int threads, rounds;
    if (count > most)
        return ks_fail(error, KS_WORK, "maps: %lld elements, takes %lld", (long long)count, (long long)most);
    out->kernel_info.grid = cut(chip, count, &threads, &rounds);
    out->kernel_info.threads = threads;
    out->kernel_info.cluster = 1;
    out->kernel_info.shared_bytes = file_bytes(spec, threads);
    out->batch_max = 1;
    snprintf(out->kernel_info.kernel, sizeof out->kernel_info.kernel, "maps<%d functions to %s>", ks_maps_count(spec),
             ks_dtype_name(spec->out[0].dtype));
    return KS_OK;
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    int threads, rounds;
    const uint32_t grid = cut(chip, ks_tensor_count(&spec->out[0]), &threads, &rounds);
    const maps_shape shape = shape_of(spec, rounds);
    const cudaError_t status = ks_launch(maps_kernel, dim3(grid, (unsigned)bucket), threads, file_bytes(spec, threads),
                                         false, stream, site, shape);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "maps: launch failed: %s", cudaGetErrorString(status));
}

extern const ks_cuda_op ks_maps_cuda;
const ks_cuda_op ks_maps_cuda = {.setup = cuda_setup,
                                 .plan = cuda_plan,
                                 .launch = cuda_launch,
                                 .join = NULL,
                                 .candidates = NULL,
                                 .adopt = NULL,
                                 .revision = NULL,
                                 .starts_anywhere = NULL};
