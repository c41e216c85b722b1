/* The kernel of products of 8 bits: a tile of the output by a CTA, the operands stage by stage through shared memory, in which both lie along
 * K. INT8 sums are exact, in INT32. FP8 becomes FP16, which holds it exactly, so the products are exact, and the sums are those of FP16's
 * products.
 *
 * Shapes   any sizes, strides and batches: an operand that lies along K is copied 16 bytes at a time, or by words where its rows start
 *          anywhere, one that lies across it is transposed in blocks of 4 x 4 on the way, read by words as well, and all others byte by byte.
 * Order    of a sum: that of K, 16 values of FP8 at a time, or 32 of INT8; slices of K are added by narrow_add in their order. */
#ifndef KS_MATMUL_NARROW_TILE_CUH
#define KS_MATMUL_NARROW_TILE_CUH

#include "cuda/common/fp8.cuh"
#include "cuda/common/ptx_mma.cuh"
#include "cuda/matmul/epilogue.cuh"
#include "cuda/matmul/narrow/narrow.h"
#include "ops/spec/places.h"

/* --- from memory to shared memory ------------------------------------------------------------------------------------ */

/* Unit u of a stage: 16 values of K of a row, or, across, 4 of 4 rows. Neighbours of a warp share 32-byte segments. */
struct narrow_unit {
    int row, k;
};

__device__ __forceinline__ narrow_unit narrow_unit_of(int layout, int u)
{
    if (layout != NARROW_ACROSS) return {u / 4, u % 4 * 16};
    return {(u / 128 * 8 + u % 8) * 4, (u / 8 % 16) * 4};
}

__device__ __forceinline__ uint32_t narrow_byte(const unsigned char *at, bool there)
{
    return there ? *at : 0;
}

/* So many bytes, up to 16, from any address on, and zeros behind them: by words of memory, which lie in the operand but for the last,
 * whose bytes beyond `last` are not read. */
__device__ __forceinline__ void narrow_read_words(const unsigned char *at, int count, const unsigned char *last,
                                                  uint32_t (&words)[4])
{
    const int skip = (int)((uintptr_t)at % 4), ends = skip + count;
    const unsigned char *const from = at - skip;
    uint32_t read[5] = {};
#pragma unroll
    for (int i = 0; i < 5; i++)
        if (4 * i < ends && from + 4 * i + 4 <= last) read[i] = *(const uint32_t *)(const void *)(from + 4 * i);
    if (from + (ends + 3) / 4 * 4 > last) {
        uint32_t tail = 0;
#pragma unroll 1
        for (int b = ends - 1; b >= (ends - 1) / 4 * 4; b--) tail = tail << 8 | from[b];
#pragma unroll
        for (int i = 0; i < 5; i++)
            if (i == (ends - 1) / 4) read[i] = tail;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int there = count - 4 * i;
        words[i] = __funnelshift_r(read[i], read[i + 1], 8 * skip);
        if (there < 4) words[i] &= there > 0 ? (1u << 8 * there) - 1 : 0;
    }
}

/* Four bytes from any address on, by two words of memory. */
__device__ __forceinline__ uint32_t narrow_read_word(const unsigned char *at)
{
    const int skip = (int)((uintptr_t)at % 4);
    const uint32_t *const from = (const uint32_t *)(const void *)(at - skip);
    return __funnelshift_r(from[0], from[1], 8 * skip);
}

/* What a unit at (row, k) holds; zeros where K has ended. Rows beyond the operand hold what lies there, or zeros: no output is made of them. */
__device__ __forceinline__ uint4 narrow_read_at(const narrow_operand &o, const unsigned char *matrix, int64_t row,
                                                int64_t k, int64_t end)
{
    uint32_t words[4] = {};
    if (row >= o.rows || k >= end) return make_uint4(0, 0, 0, 0);
    const unsigned char *const at = matrix + row * o.row + k * o.along;
    const bool across = o.layout == NARROW_ACROSS;
    if (o.along == 1) {
        if (o.layout == NARROW_ALONG && k + 16 <= end) return *(const uint4 *)(const void *)at;
        narrow_read_words(at, (int)min(end - k, (int64_t)16), matrix + (o.rows - 1) * o.row + end, words);
    } else if (across && o.words) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (k + i < end) words[i] = *(const uint32_t *)(const void *)(at + i * o.along);
    } else if (across && at + min(end - 1 - k, (int64_t)3) * o.along + 8 <= matrix + (end - 1) * o.along + o.rows) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (k + i < end) words[i] = narrow_read_word(at + i * o.along);
    } else {
        const int64_t outer = across ? o.along : 4 * o.along, inner = across ? 1 : o.along;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const bool there = across ? k + i < end && row + j < o.rows : k + 4 * i + j < end;
                words[i] |= narrow_byte(at + i * outer + j * inner, there) << 8 * j;
            }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ uint4 narrow_read(const narrow_operand &o, const unsigned char *matrix, int64_t row0,
                                             int64_t k0, int64_t end, int u)
{
    const narrow_unit unit = narrow_unit_of(o.layout, u);
    return narrow_read_at(o, matrix, row0 + unit.row, k0 + unit.k, end);
}

/* Four rows of four bytes become four columns. */
__device__ __forceinline__ void narrow_transpose(uint4 &x)
{
    const uint32_t low01 = __byte_perm(x.x, x.y, 0x5140), high01 = __byte_perm(x.x, x.y, 0x7362);
    const uint32_t low23 = __byte_perm(x.z, x.w, 0x5140), high23 = __byte_perm(x.z, x.w, 0x7362);
    x.x = __byte_perm(low01, low23, 0x5410);
    x.y = __byte_perm(low01, low23, 0x7632);
    x.z = __byte_perm(high01, high23, 0x5410);
    x.w = __byte_perm(high01, high23, 0x7632);
}

__device__ __forceinline__ void narrow_keep(const narrow_operand &o, unsigned char *stage, uint4 x, int u)
{
    const narrow_unit unit = narrow_unit_of(o.layout, u);
    unsigned char *const at = stage + unit.row * NARROW_PITCH + unit.k;
    if (o.layout != NARROW_ACROSS) {
        *(uint4 *)(void *)at = x;
        return;
    }
    narrow_transpose(x);
    *(uint32_t *)(void *)at = x.x;
    *(uint32_t *)(void *)(at + NARROW_PITCH) = x.y;
    *(uint32_t *)(void *)(at + 2 * NARROW_PITCH) = x.z;
    *(uint32_t *)(void *)(at + 3 * NARROW_PITCH) = x.w;
}

/* --- products -------------------------------------------------------------------------------------------------------- */

/* Bytes 0 and 1, 2 and 3 of a word of FP8 as FP16. */
__device__ __forceinline__ void narrow_halves(uint32_t word, bool e5m2, uint32_t &low, uint32_t &high)
{
    if (e5m2) {
        low = __byte_perm(word, 0, 0x1404);
        high = __byte_perm(word, 0, 0x3424);
    } else {
        low = ks_of_e4m3_pair(word);
        high = ks_of_e4m3_pair(word >> 16);
    }
}

/* 32 values of K. A word holds four of one row, in the places that the instruction for INT8 wants; of FP8 the first two and the last two are
 * taken for values of K that are 8 apart, alike in both operands. */
template <int MT, int NT>
__device__ __forceinline__ void narrow_multiply(int32_t (&c)[MT][NT][4], const uint32_t (&a)[MT][4],
                                                const uint32_t (&b)[NT][2], bool, bool)
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++) mm_mma_s8(c[i][j], a[i], b[j][0], b[j][1]);
}

template <int MT, int NT>
__device__ __forceinline__ void narrow_multiply(float (&c)[MT][NT][4], const uint32_t (&a)[MT][4],
                                                const uint32_t (&b)[NT][2], bool a_e5m2, bool b_e5m2)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t x[MT][4], y[NT][2];
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) narrow_halves(a[i][2 * half + r], a_e5m2, x[i][r], x[i][r + 2]);
#pragma unroll
        for (int j = 0; j < NT; j++) narrow_halves(b[j][half], b_e5m2, y[j][0], y[j][1]);
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int j = 0; j < NT; j++) mm_mma(__half(), c[i][j], x[i], y[j][0], y[j][1]);
    }
}

/* --- the end of a sum ------------------------------------------------------------------------------------------------ */

/* Where the matrices of an item of the batch lie. */
struct narrow_place {
    int64_t item, a, b; /* its number; elements */
};

__device__ __forceinline__ narrow_place narrow_place_of(const narrow_args &args, int64_t index)
{
    narrow_place place = {index, 0, 0};
    for (int d = args.batch_rank - 1; d >= 0; d--) {
        const int64_t next = index / args.batch_dims[d], at = index - next * args.batch_dims[d];
        place.a += at * args.a.step[d];
        place.b += at * args.b.step[d];
        index = next;
    }
    return place;
}

__device__ __forceinline__ float narrow_scale(const narrow_operand &o, const unsigned char *in, int64_t offset,
                                              int64_t row)
{
    if (!o.scaled) return 1;
    const float *const scales = (const float *)(const void *)(in + o.scales);
    return scales[o.each ? offset / o.matrix * o.rows + row : 0];
}

/* A bias of 0 changes nothing but the sign of a zero, so one that is not there is not added. */
__device__ __forceinline__ float narrow_scaled(const narrow_args &args, float sum, float scale_a, float scale_b,
                                               float bias)
{
    const float x = sum * scale_a * scale_b * args.alpha;
    return args.biased ? x + bias : x;
}

__device__ __forceinline__ void narrow_store_one(const narrow_args &args, unsigned char *c, int64_t at, float x)
{
    if (args.out == KS_FP32)
        ((float *)(void *)c)[at] = x;
    else if (args.out == KS_FP16)
        ((__half *)(void *)c)[at] = ks_round<__half>(x);
    else
        ((__nv_bfloat16 *)(void *)c)[at] = ks_round<__nv_bfloat16>(x);
}

/* Element (i, j) of a matrix, from its sum. */
template <class S>
__device__ __forceinline__ void narrow_store(const narrow_args &args, const ks_job_sides &job,
                                             const narrow_place &place, int64_t i, int64_t j, S sum)
{
    const int64_t at = (place.item * args.a.rows + i) * args.line + j;
    unsigned char *const c = job.out + args.c;
    if (args.out == KS_INT32) {
        ((int32_t *)(void *)c)[at] = (int32_t)sum;
        return;
    }
    const float x = mm_activate(narrow_scaled(args, (float)sum, narrow_scale(args.a, job.in, place.a, i),
                                              narrow_scale(args.b, job.in, place.b, j),
                                              args.biased ? ((const float *)(const void *)(job.in + args.bias))[j] : 0),
                                args.activation);
    narrow_store_one(args, c, at, x);
}

/* Four neighbours of a row. The copy is aligned, so that they are one vector, which the compiler otherwise does not see. */
template <typename T>
__device__ __forceinline__ void narrow_store_four(const narrow_args &args, T *line, int64_t column, const T (&x)[4])
{
    if (args.line % 4 == 0 && column + 4 <= args.b.rows) {
        __align__(16) const T four[4] = {x[0], x[1], x[2], x[3]};
        if constexpr (sizeof(T) == 4)
            *(uint4 *)(void *)(line + column) = *(const uint4 *)(const void *)four;
        else
            *(uint2 *)(void *)(line + column) = *(const uint2 *)(const void *)four;
        return;
    }
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (column + e < args.b.rows) line[column + e] = x[e];
}

/* What a matrix's outputs are made of besides their sums. */
struct narrow_scales {
    const float *a, *b, *bias; /* of the matrix; a scale for all has a step of 0 */
    int a_step, b_step;
};

__device__ __forceinline__ narrow_scales narrow_scales_of(const narrow_args &args, const ks_job_sides &job,
                                                          const narrow_place &place)
{
    const narrow_operand &a = args.a, &b = args.b;
    narrow_scales scales = {};
    if (a.scaled) scales.a = (const float *)(const void *)(job.in + a.scales);
    if (b.scaled) scales.b = (const float *)(const void *)(job.in + b.scales);
    if (a.each) scales.a += place.a / a.matrix * a.rows, scales.a_step = 1;
    if (b.each) scales.b += place.b / b.matrix * b.rows, scales.b_step = 1;
    scales.bias = (const float *)(const void *)(job.in + args.bias);
    return scales;
}

/* mm_activate() of four, by code that is there once. */
__device__ __forceinline__ void narrow_activate(float (&x)[4], int activation)
{
    if (activation == KS_MATMUL_NONE) return;
#pragma unroll 1
    for (int e = 0; e < 4; e++) {
        const float y = mm_activate(x[0], activation);
        x[0] = x[1], x[1] = x[2], x[2] = x[3], x[3] = y;
    }
}

/* Where four neighbours of a row lie: elements from the matrix to the row, and to the first of them. */
struct narrow_four_place {
    int64_t line, column;
};

/* What four neighbours of a row are made of besides their sums and the row's scale. */
struct narrow_columns {
    float scale[4], bias[4];
};

/* Of columns from `column` on; those that are not there have the last one's. */
__device__ __forceinline__ narrow_columns narrow_columns_of(const narrow_args &args, const narrow_scales &scales,
                                                            int64_t column)
{
    narrow_columns columns;
    const int last = (int)min(args.b.rows - 1 - column, (int64_t)3);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        columns.scale[e] = scales.b ? __ldg(scales.b + (column + min(e, last)) * scales.b_step) : 1;
        columns.bias[e] = args.biased ? __ldg(scales.bias + column + min(e, last)) : 0;
    }
    return columns;
}

template <typename T>
__device__ __forceinline__ void narrow_store_rounded(const narrow_args &args, T *line, int64_t column,
                                                     const float (&x)[4])
{
    T out[4];
#pragma unroll
    for (int e = 0; e < 4; e++) out[e] = ks_round<T>(x[e]);
    narrow_store_four(args, line, column, out);
}

/* Four neighbours of a row of the matrix at c. */
template <typename S>
__device__ __forceinline__ void narrow_outputs(const narrow_args &args, const narrow_columns &columns, float scale_a,
                                               unsigned char *c, narrow_four_place at, const S (&sum)[4])
{
    float x[4];
#pragma unroll
    for (int e = 0; e < 4; e++) x[e] = narrow_scaled(args, (float)sum[e], scale_a, columns.scale[e], columns.bias[e]);
    narrow_activate(x, args.activation);
    if (args.out == KS_FP32)
        narrow_store_four(args, (float *)(void *)c + at.line, at.column, x);
    else if (args.out == KS_FP16)
        narrow_store_rounded(args, (__half *)(void *)c + at.line, at.column, x);
    else
        narrow_store_rounded(args, (__nv_bfloat16 *)(void *)c + at.line, at.column, x);
}

/* Where a matrix's sums go. */
template <class S>
struct narrow_ends {
    narrow_scales scales;
    narrow_columns columns; /* of a thread, which has the same ones of all its rows */
    unsigned char *c;       /* its outputs; NULL: */
    S *sums;                /* a slice's, to be added */
};

template <class S>
__device__ __forceinline__ narrow_ends<S> narrow_ends_of(const ks_site &site, const narrow_args &args,
                                                         const ks_job_sides &job, const narrow_place &place,
                                                         int64_t split)
{
    const int64_t matrix = args.a.rows * args.line; /* of slices a line is as long as a row of B's */
    narrow_ends<S> ends = {};
    if (args.splits > 1) {
        ends.sums = (S *)(void *)ks_workspace(site) + (split * args.batch + place.item) * matrix;
        return ends;
    }
    ends.scales = narrow_scales_of(args, job, place);
    ends.c = job.out + args.c + place.item * matrix * (args.out == KS_FP32 || args.out == KS_INT32 ? 4 : 2);
    return ends;
}

template <class S>
__device__ __forceinline__ void narrow_end(const narrow_args &args, const narrow_ends<S> &ends, int64_t row,
                                           int64_t column, const S (&sum)[4])
{
    const int64_t line = row * args.line;
    if (ends.sums)
        narrow_store_four(args, ends.sums + line, column, sum);
    else if (args.out == KS_INT32)
        narrow_store_four(args, (S *)(void *)ends.c + line, column, sum);
    else
        narrow_outputs(args, ends.columns, ends.scales.a ? __ldg(ends.scales.a + row * ends.scales.a_step) : 1, ends.c,
                       {line, column}, sum);
}

/* Scales that are none: thread `first` of `threads` takes its share. */
__device__ __forceinline__ void narrow_check(const ks_site &site, const narrow_args &args, const ks_job_sides &job,
                                             int64_t first, int64_t threads)
{
    for (int o = 0; o < 2; o++) {
        const narrow_operand &of = o ? args.b : args.a;
        if (!of.scaled) continue;
        const float *const scales = (const float *)(const void *)(job.in + of.scales);
        for (int64_t i = first; i < args.counts[o]; i += threads)
            if (!(scales[i] >= KS_SCALE_LEAST && scales[i] < INFINITY)) ks_refuse(site, KS_MATMUL_SCALE_A + o, i);
    }
}

/* --- kernels --------------------------------------------------------------------------------------------------------- */

/* S: int32_t of INT8, float of FP8. WARPS_M x WARPS_N warps have a part of the tile each. */
template <class S, int M, int N, int WARPS_M, int WARPS_N>
__global__ void __launch_bounds__(WARPS_M *WARPS_N *KS_WARP)
    narrow_tile(ks_site site, const __grid_constant__ narrow_args args)
{
    constexpr int THREADS = WARPS_M * WARPS_N * KS_WARP, MT = M / WARPS_M / 16, NT = N / WARPS_N / 8;
    static_assert(NT % 2 == 0, "blocks of columns are read two at a time");
    constexpr int UNITS_A = M * 4 / THREADS, UNITS_B = N * 4 / THREADS;
    /* Behind the products the sums take the place of the stages, so that neighbours are finished together by code that is there once: code
     * that runs once costs the time in which it is fetched. */
    constexpr int HELD_ROWS = 64, HELD_PITCH = N + 4;
    __shared__ __align__(16) unsigned char stages[2][(M + N) * NARROW_PITCH];
    S *const held = (S *)(void *)stages[0];
    static_assert(HELD_ROWS * HELD_PITCH * sizeof(S) <= sizeof stages, "the stages have room for the sums");
    static_assert(M / WARPS_M <= HELD_ROWS, "a warp's rows are held at once");
    const int warp = threadIdx.x / KS_WARP, lane = threadIdx.x % KS_WARP;
    const int row = warp / WARPS_N * (M / WARPS_M), column = warp % WARPS_N * (N / WARPS_N);
    /* Of blocks of 8 rows by 16 bytes: A's below each other first, B's beside each other first. */
    const unsigned from_a = (row + lane % 16) * NARROW_PITCH + lane / 16 * 16;
    const unsigned from_b = (M + column + lane / 16 * 8 + lane % 8) * NARROW_PITCH + lane / 8 % 2 * 16;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    if (args.splits == 1)
        narrow_check(site, args, job, (int64_t)blockIdx.x * THREADS + threadIdx.x, (int64_t)gridDim.x * THREADS);
    const int64_t tiles = args.tiles_m * args.tiles_n, all = tiles * args.batch * args.splits;
#pragma unroll 1
    for (int64_t index = blockIdx.x; index < all; index += gridDim.x) {
        const int64_t tile = index % tiles, split = index / tiles % args.splits, item = index / tiles / args.splits;
        const int64_t i0 = tile % args.tiles_m * M, j0 = tile / args.tiles_m * N;
        const int64_t begin = split * args.slice, end = min(args.k, begin + args.slice);
        const narrow_place place = narrow_place_of(args, item);
        const unsigned char *const a = job.in + args.a.at + place.a, *const b = job.in + args.b.at + place.b;
        uint4 next_a[UNITS_A], next_b[UNITS_B];
        S c[MT][NT][4] = {};
        const auto read = [&](int64_t k) {
#pragma unroll
            for (int u = 0; u < UNITS_A; u++) next_a[u] = narrow_read(args.a, a, i0, k, end, threadIdx.x + u * THREADS);
#pragma unroll
            for (int u = 0; u < UNITS_B; u++) next_b[u] = narrow_read(args.b, b, j0, k, end, threadIdx.x + u * THREADS);
        };
        const auto keep = [&](int stage) {
#pragma unroll
            for (int u = 0; u < UNITS_A; u++) narrow_keep(args.a, stages[stage], next_a[u], threadIdx.x + u * THREADS);
#pragma unroll
            for (int u = 0; u < UNITS_B; u++)
                narrow_keep(args.b, stages[stage] + M * NARROW_PITCH, next_b[u], threadIdx.x + u * THREADS);
        };
        /* A step of the loop reads a stage and multiplies the one before, so that the code of both is there once. */
        const int64_t steps = begin < end ? (end - begin + NARROW_DEPTH - 1) / NARROW_DEPTH : 0;
#pragma unroll 1
        for (int64_t step = 0; step <= steps; step++) {
            const unsigned char *const stage = stages[(step ^ 1) & 1];
            if (step < steps) read(begin + step * NARROW_DEPTH);
            if (step > 0) {
                const unsigned of_a = mm_shared_address(stage) + from_a, of_b = mm_shared_address(stage) + from_b;
#pragma unroll
                for (int at = 0; at < NARROW_DEPTH; at += 32) {
                    uint32_t x[MT][4], y[NT][2];
#pragma unroll
                    for (int i = 0; i < MT; i++) mm_ldmatrix<false>(x[i], of_a + i * 16 * NARROW_PITCH + at);
#pragma unroll
                    for (int j = 0; j < NT; j += 2) {
                        uint32_t two[4];
                        mm_ldmatrix<false>(two, of_b + j * 8 * NARROW_PITCH + at);
                        y[j][0] = two[0], y[j][1] = two[1], y[j + 1][0] = two[2], y[j + 1][1] = two[3];
                    }
                    narrow_multiply(c, x, y, args.a.e5m2, args.b.e5m2);
                }
            }
            if (step < steps) keep((int)(step & 1));
            __syncthreads();
        }
        narrow_ends<S> ends = narrow_ends_of<S>(site, args, job, place, split);
        static_assert(THREADS % (N / 4) == 0, "a thread has the same columns of all its rows");
        const int four = threadIdx.x % (N / 4) * 4;
        if (ends.c && args.out != KS_INT32 && j0 + four < args.b.rows)
            ends.columns = narrow_columns_of(args, ends.scales, j0 + four);
#pragma unroll 1
        for (int from = 0; from < M; from += HELD_ROWS) {
            if (row / HELD_ROWS * HELD_ROWS == from) {
                S *const to = held + (row - from + lane / 4) * HELD_PITCH + column + lane % 4 * 2;
#pragma unroll
                for (int i = 0; i < MT; i++)
#pragma unroll
                    for (int j = 0; j < NT; j++)
#pragma unroll
                        for (int r = 0; r < 4; r++) to[(16 * i + r / 2 * 8) * HELD_PITCH + 8 * j + r % 2] = c[i][j][r];
            }
            __syncthreads();
#pragma unroll 2
            for (int at = threadIdx.x; at < HELD_ROWS * N / 4; at += THREADS) {
                const int line = at / (N / 4);
                if (i0 + from + line >= args.a.rows || j0 + four >= args.b.rows) continue;
                S sum[4];
#pragma unroll
                for (int e = 0; e < 4; e++) sum[e] = held[line * HELD_PITCH + four + e];
                narrow_end(args, ends, i0 + from + line, j0 + four, sum);
            }
            __syncthreads();
        }
    }
    if (args.splits == 1) ks_leave<true>(site);
}

enum { NARROW_ADD_THREADS = 256 };

/* The slices of each sum, in their order. */
template <class S>
__global__ void __launch_bounds__(NARROW_ADD_THREADS) narrow_add(ks_site site, const __grid_constant__ narrow_args args)
{
    const S *const sums = (const S *)(const void *)ks_workspace(site);
    const int64_t matrix = args.a.rows * args.b.rows, all = matrix * args.batch;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    narrow_check(site, args, job, (int64_t)blockIdx.x * NARROW_ADD_THREADS + threadIdx.x,
                 (int64_t)gridDim.x * NARROW_ADD_THREADS);
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < all; at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t item = at / matrix, within = at - item * matrix, i = within / args.b.rows;
        S sum = 0;
#pragma unroll 4
        for (int p = 0; p < args.splits; p++) sum += sums[p * all + at];
        narrow_store(args, job, narrow_place_of(args, item), i, within - i * args.b.rows, sum);
    }
    ks_leave<true>(site);
}

#endif
