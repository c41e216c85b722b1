/* The kernel of small products of 8 bits: operands come from memory straight to the registers that multiply them, in a few hundred
 * instructions. Code that runs once costs the time in which it is fetched, so a product of some microseconds is its instructions.
 *
 * A CTA has eight warps: PARTS of them share a slab of 16 rows by 32 columns, each with every PARTS-th chunk of 64 values of K, and there are
 * 8 / PARTS slabs below each other. Of a chunk a lane has 16 neighbouring values of K of two rows of A and of four columns of B, and as both have the
 * same ones, those are multiplied. Column 4 g + j of the slab is column g of the instruction's j-th eight, so that where B lies across K a lane's
 * four columns are one word, and its outputs are neighbours.
 *
 * Shapes   A along K; B along or across it; rows may start on any byte.
 * Order    of a sum: the chunks of a part, then the parts; within a chunk FP8's are added 16 at a time: of each 16 neighbours four. */
#ifndef KS_MATMUL_NARROW_DIRECT_CUH
#define KS_MATMUL_NARROW_DIRECT_CUH

#include "cuda/matmul/narrow/tile.cuh"

enum {
    NARROW_DIRECT_WARPS = 8,
    NARROW_DIRECT_THREADS = NARROW_DIRECT_WARPS * KS_WARP,
    NARROW_DIRECT_ROWS = 16, /* of a slab */
    NARROW_DIRECT_COLUMNS = 32,
    NARROW_DIRECT_DEPTH = 64, /* values of K of a chunk */
    NARROW_DIRECT_PITCH = NARROW_DIRECT_COLUMNS + 4
};

/* What a lane has of a chunk: 16 values of K of A's rows g and g + 8, and of four columns. */
struct narrow_direct_values {
    uint4 a[2], b[NARROW_DIRECT_COLUMNS / 8];
};

/* 16 values of K of so many rows; all are there, and where they start anywhere four bytes behind them. */
template <int ROWS>
__device__ __forceinline__ void narrow_direct_rows(const unsigned char *const (&at)[ROWS], int k, bool whole,
                                                   uint4 (&to)[ROWS])
{
    if (whole) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) to[i] = *(const uint4 *)(const void *)(at[i] + k);
        return;
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const unsigned skip = (unsigned)(uintptr_t)(at[i] + k) % 4;
        const uint32_t *const from = (const uint32_t *)(const void *)(at[i] + k - skip);
        const uint32_t w[5] = {from[0], from[1], from[2], from[3], from[4]};
        to[i] = make_uint4(__funnelshift_r(w[0], w[1], 8 * skip), __funnelshift_r(w[1], w[2], 8 * skip),
                           __funnelshift_r(w[2], w[3], 8 * skip), __funnelshift_r(w[3], w[4], 8 * skip));
    }
}

/* As many as there are, and zeros; nothing behind the row's end is read. */
template <int ROWS>
__device__ __forceinline__ void narrow_direct_ends(const unsigned char *const (&at)[ROWS], int k, int end,
                                                   uint4 (&to)[ROWS])
{
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        uint32_t words[4] = {};
        if (k < end) narrow_read_words(at[i] + k, min(end - k, 16), at[i] + end, words);
        to[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

/* 16 words of four columns that lie across K, from one for each value of K: four at a time become four values of K of a column. */
__device__ __forceinline__ void narrow_direct_turn(uint32_t (&words)[16], uint4 (&to)[4])
{
#pragma unroll
    for (int q = 0; q < 4; q++) {
        uint4 x = make_uint4(words[4 * q], words[4 * q + 1], words[4 * q + 2], words[4 * q + 3]);
        narrow_transpose(x);
        words[4 * q] = x.x, words[4 * q + 1] = x.y, words[4 * q + 2] = x.z, words[4 * q + 3] = x.w;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) to[j] = make_uint4(words[j], words[4 + j], words[8 + j], words[12 + j]);
}

/* Four columns from one on, across K. */
__device__ __forceinline__ void narrow_direct_across(const narrow_operand &o, const unsigned char *matrix,
                                                     int64_t column, int k, int end, uint4 (&to)[4])
{
    uint32_t words[16];
    const unsigned char *const from = matrix + column + k * o.along;
    const bool fits = k + 16 <= end && column < o.rows;
    if (__builtin_expect(fits && o.words, 1)) {
#pragma unroll
        for (int i = 0; i < 16; i++) words[i] = *(const uint32_t *)(const void *)(from + i * o.along);
    } else if (fits && from + 15 * o.along + 8 <= matrix + (end - 1) * o.along + o.rows) {
#pragma unroll
        for (int i = 0; i < 16; i++) words[i] = narrow_read_word(from + i * o.along);
    } else {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint4 x = narrow_read_at(o, matrix, column, k + 4 * q, end);
            words[4 * q] = x.x, words[4 * q + 1] = x.y, words[4 * q + 2] = x.z, words[4 * q + 3] = x.w;
        }
    }
    narrow_direct_turn(words, to);
}

/* Where a lane's rows and columns lie; one beyond the operand is its last one. */
template <bool ACROSS>
struct narrow_direct_lane {
    const unsigned char *a[2], *b[4];
    int64_t column;
    int need; /* values of K from a lane's first one on, with which it has all that a read takes */

    __device__ __forceinline__ narrow_direct_lane(const narrow_args &args, const unsigned char *of_a,
                                                  const unsigned char *of_b, int64_t i0, int64_t j0)
    {
        const int g = (int)threadIdx.x % KS_WARP / 4;
        const int64_t row = i0 + g, last_a = args.a.rows - 1, last_b = args.b.rows - 1;
        a[0] = of_a + min(row, last_a) * args.a.row;
        a[1] = of_a + min(row + 8, last_a) * args.a.row;
        column = j0 + 4 * g;
        /* A row's four bytes behind its end are the next one's. */
        const bool spare_a = args.a.layout == NARROW_ALONG || row + 8 < last_a;
        const bool spare_b = ACROSS || args.b.layout == NARROW_ALONG || column + 3 < last_b;
        need = spare_a && spare_b ? 16 : 20;
        b[0] = ACROSS ? of_b : of_b + min(column, last_b) * args.b.row;
        if constexpr (!ACROSS) {
#pragma unroll
            for (int j = 1; j < 4; j++) b[j] = column + j <= last_b ? b[j - 1] + args.b.row : b[j - 1];
        }
    }

    __device__ __forceinline__ void read(const narrow_args &args, int chunk, narrow_direct_values *to) const
    {
        const int k = chunk * NARROW_DIRECT_DEPTH + (int)threadIdx.x % 4 * 16, end = (int)args.k;
        if constexpr (ACROSS) narrow_direct_across(args.b, b[0], column, k, end, to->b);
        if (__builtin_expect(k + need <= end, 1)) {
            narrow_direct_rows(a, k, args.a.layout == NARROW_ALONG, to->a);
            if constexpr (!ACROSS) narrow_direct_rows(b, k, args.b.layout == NARROW_ALONG, to->b);
        } else {
            narrow_direct_ends(a, k, end, to->a);
            if constexpr (!ACROSS) narrow_direct_ends(b, k, end, to->b);
        }
    }
};

template <class S>
__device__ __forceinline__ void narrow_direct_multiply(const narrow_args &args, const narrow_direct_values &of,
                                                       S (&c)[1][4][4])
{
    const uint32_t x[2][4] = {{of.a[0].x, of.a[0].y, of.a[0].z, of.a[0].w},
                              {of.a[1].x, of.a[1].y, of.a[1].z, of.a[1].w}};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t a[1][4] = {{x[0][2 * half], x[1][2 * half], x[0][2 * half + 1], x[1][2 * half + 1]}};
        uint32_t b[4][2];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            b[j][0] = half ? of.b[j].z : of.b[j].x;
            b[j][1] = half ? of.b[j].w : of.b[j].y;
        }
        narrow_multiply(c, a, b, args.a.e5m2, args.b.e5m2);
    }
}

/* A lane's sums to its warp's part of shared memory: of rows g and g + 8 columns 8 t to 8 t + 7. */
template <class S>
__device__ __forceinline__ void narrow_direct_hold(S *part, const S (&c)[1][4][4])
{
    const int lane = (int)threadIdx.x % KS_WARP;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            __align__(16)
                const S four[4] = {c[0][0][2 * r + e], c[0][1][2 * r + e], c[0][2][2 * r + e], c[0][3][2 * r + e]};
            S *const to = part + (lane / 4 + 8 * r) * NARROW_DIRECT_PITCH + lane % 4 * 8 + 4 * e;
            *(uint4 *)(void *)to = *(const uint4 *)(const void *)four;
        }
}

/* S: int32_t of INT8, float of FP8. share: 0 to 3; 1 << share warps have a slab. A CTA for each tile of all matrices, beside each other first. K is below
 * 2^30. */
template <class S, bool ACROSS>
__global__ void __launch_bounds__(NARROW_DIRECT_THREADS, 2)
    narrow_direct(ks_site site, const __grid_constant__ narrow_args args, int share)
{
    constexpr int ROWS = NARROW_DIRECT_ROWS, PITCH = NARROW_DIRECT_PITCH, FOURS = NARROW_DIRECT_COLUMNS / 4;
    __shared__ __align__(16) S held[NARROW_DIRECT_WARPS][ROWS * PITCH];
    const int parts = 1 << share, warp = (int)threadIdx.x / KS_WARP, slab = warp >> share, part = warp & (parts - 1);
    const int rows = NARROW_DIRECT_WARPS * ROWS >> share, chunks = ((int)args.k - 1) / NARROW_DIRECT_DEPTH + 1;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const unsigned across = (unsigned)args.tiles_n, down = (unsigned)args.tiles_m;
    const unsigned line = blockIdx.x / across, item = args.batch > 1 ? line / down : 0;
    const int64_t i0 = (int64_t)(line - item * down) * rows;
    const int64_t j0 = (int64_t)(blockIdx.x - line * across) * NARROW_DIRECT_COLUMNS;
    const narrow_place place = narrow_place_of(args, item);
    narrow_direct_values now, next = {};
    S c[1][4][4] = {};
    if (i0 + slab * ROWS < args.a.rows) {
        const narrow_direct_lane<ACROSS> lane(args, job.in + args.a.at + place.a, job.in + args.b.at + place.b,
                                              i0 + slab * ROWS, j0);
        int chunk = part;
        if (chunk < chunks) lane.read(args, chunk, &now);
#pragma unroll 1
        for (; chunk < chunks; chunk += parts) {
            if (chunk + parts < chunks) lane.read(args, chunk + parts, &next);
            narrow_direct_multiply(args, now, c);
            now = next;
        }
    }
    narrow_check(site, args, job, (int64_t)blockIdx.x * NARROW_DIRECT_THREADS + threadIdx.x,
                 (int64_t)gridDim.x * NARROW_DIRECT_THREADS);
    narrow_direct_hold(held[warp], c);
    narrow_ends<S> ends = narrow_ends_of<S>(site, args, job, place, 0);
    static_assert(NARROW_DIRECT_THREADS % FOURS == 0, "a thread has the same columns of all its rows");
    const int four = (int)threadIdx.x % FOURS * 4;
    if (args.out != KS_INT32 && j0 + four < args.b.rows) ends.columns = narrow_columns_of(args, ends.scales, j0 + four);
    __syncthreads();
#pragma unroll 1
    for (int at = (int)threadIdx.x; at < rows * FOURS; at += NARROW_DIRECT_THREADS) {
        const int row = at / FOURS, of = row / ROWS << share;
        if (i0 + row >= args.a.rows || j0 + four >= args.b.rows) continue;
        S sum[4] = {};
#pragma unroll 1
        for (int p = 0; p < parts; p++) {
            const uint4 x = *(const uint4 *)(const void *)&held[of + p][row % ROWS * PITCH + four];
            sum[0] += ((const S *)(const void *)&x)[0], sum[1] += ((const S *)(const void *)&x)[1];
            sum[2] += ((const S *)(const void *)&x)[2], sum[3] += ((const S *)(const void *)&x)[3];
        }
        narrow_end(args, ends, i0 + row, j0 + four, sum);
    }
    ks_leave<true>(site);
}

#endif
