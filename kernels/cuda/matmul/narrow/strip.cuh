/* Products of 8 bits of few rows, for which INPUT1 is read once at memory speed: a CTA has a strip of columns and a slice of K, whose steps its
 * warps take in turns. INPUT1's bytes go from memory straight into the registers that multiply them, as the operand of 16 rows of mma.sync:
 * any order of columns, and of values of K, will do there, as long as INPUT0's are taken in the same one.
 *
 * Shapes   up to 32 rows along K, or more by CTAs beside each other, which read the same of INPUT1 at the same time; K a multiple of a step. INPUT1 along K: strips of 64 columns, a lane has 16 values of K of two of each 16
 *          columns. Across it: strips of 128, a lane has 16 columns at 8 values of K, transposed in registers.
 * Order    of a sum: a warp's steps in order, then the warps in order, then the slices, which the last of their CTAs to end adds. */
#ifndef KS_MATMUL_NARROW_STRIP_CUH
#define KS_MATMUL_NARROW_STRIP_CUH

#include "cuda/matmul/narrow/tile.cuh"

/* ROWS: 8, 16 or 32 of INPUT0. */
template <class S_, int ROWS_, bool ALONG_>
struct narrow_strip_tile {
    typedef S_ S;
    static constexpr int ROWS = ROWS_, COLUMNS = ALONG_ ? 64 : 128, STEP = ALONG_ ? 64 : 32; /* STEP: values of K */
    static constexpr bool ALONG = ALONG_;
    static constexpr int WARPS = 8, THREADS = WARPS * KS_WARP, AHEAD = 2; /* AHEAD: steps under way */
    static constexpr int MT = COLUMNS / 16, NT = ROWS / 8, SUMS = MT * NT * 4, PITCH = KS_WARP + 1;
    static constexpr int SHARED = WARPS * SUMS * PITCH * 4;
};

/* What a lane has of a step. */
template <class TILE>
struct narrow_strip_step {
    uint4 b[8];
    uint32_t a[TILE::NT][TILE::ALONG ? 4 : 2];
};

/* Where a CTA's rows and columns begin. */
struct narrow_strip_corner {
    const unsigned char *a, *b; /* the operands */
    int64_t row, column;
};

template <class TILE>
__device__ __forceinline__ void narrow_strip_read(const narrow_args &args, const narrow_strip_corner &from, int64_t k,
                                                  narrow_strip_step<TILE> &to)
{
    const int lane = threadIdx.x % KS_WARP, group = lane / 4, four = lane % 4;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int64_t column = from.column + (TILE::ALONG ? i * 8 + group : group * 16);
        const int64_t at = TILE::ALONG ? column * args.b.row + k + four * 16
                                       : column + (k + i / 4 * 16 + four * 4 + i % 4) * args.b.along;
        to.b[i] = column < args.b.rows ? mm_load_once<uint4>(from.b + at) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int n = 0; n < TILE::NT; n++) {
        const int64_t row = from.row + n * 8 + group;
        const unsigned char *const at = from.a + row * args.a.row + k;
        const bool inside = row < args.a.rows;
        if constexpr (TILE::ALONG) {
            const uint4 x = inside ? mm_load_near<uint4>(at + four * 16) : make_uint4(0, 0, 0, 0);
            to.a[n][0] = x.x, to.a[n][1] = x.y, to.a[n][2] = x.z, to.a[n][3] = x.w;
        } else {
            to.a[n][0] = inside ? mm_load_near<uint32_t>(at + four * 4) : 0;
            to.a[n][1] = inside ? mm_load_near<uint32_t>(at + 16 + four * 4) : 0;
        }
    }
}

__device__ __forceinline__ uint32_t narrow_word(const uint4 &x, int i)
{
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

/* The other way round than in tile.cuh: INPUT1 has the 16 rows, so its datatype is the first one's. */
template <class TILE, class S>
__device__ __forceinline__ void narrow_strip_multiply(const narrow_args &args, const narrow_strip_step<TILE> &step,
                                                      S (&sum)[TILE::MT][TILE::NT][4])
{
    if constexpr (TILE::ALONG) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t x[TILE::MT][4], y[TILE::NT][2];
#pragma unroll
            for (int m = 0; m < TILE::MT; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) x[m][i] = narrow_word(step.b[m * 2 + i % 2], half * 2 + i / 2);
#pragma unroll
            for (int n = 0; n < TILE::NT; n++) y[n][0] = step.a[n][half * 2], y[n][1] = step.a[n][half * 2 + 1];
            narrow_multiply(sum, x, y, args.b.e5m2, args.a.e5m2);
        }
    } else {
        /* Two blocks of 16 columns at a time, whose registers are then free. */
#pragma unroll
        for (int word = 0; word < 4; word++) {
            uint32_t x[2][4];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint4 *const b = step.b + half * 4;
                uint4 four = make_uint4(narrow_word(b[0], word), narrow_word(b[1], word), narrow_word(b[2], word),
                                        narrow_word(b[3], word));
                narrow_transpose(four);
                x[0][half * 2] = four.x, x[0][half * 2 + 1] = four.y;
                x[1][half * 2] = four.z, x[1][half * 2 + 1] = four.w;
            }
            narrow_multiply(*(S(*)[2][TILE::NT][4])(void *)sum[word * 2], x, step.a, args.b.e5m2, args.a.e5m2);
        }
    }
}

/* Where a warp leaves the sum of a strip's (row, column): its lane's number, and behind a pitch for the banks. */
template <class TILE>
__device__ __forceinline__ int narrow_strip_place(int row, int column)
{
    const int group = TILE::ALONG ? column % 8 : column / 16, second = TILE::ALONG ? column / 8 % 2 : column % 2,
              m = TILE::ALONG ? column / 16 : column % 16 / 2;
    return ((m * TILE::NT + row / 8) * 4 + second * 2 + row % 2) * TILE::PITCH + group * 4 + row % 8 / 2;
}

/* blockIdx.x: the slices of a strip's rows beside each other, then the strip's other rows. */
template <class TILE>
__global__ void __launch_bounds__(TILE::THREADS, 1) narrow_strip(ks_site site, const __grid_constant__ narrow_args args)
{
    typedef typename TILE::S S;
    constexpr int OUTPUTS = TILE::ROWS * TILE::COLUMNS;
    __shared__ int last;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const int warp = threadIdx.x / KS_WARP, lane = threadIdx.x % KS_WARP;
    const int64_t part = blockIdx.x / args.splits, split = blockIdx.x % args.splits, groups = args.tiles_m;
    const narrow_strip_corner from = {job.in + args.a.at, job.in + args.b.at, part % groups * TILE::ROWS,
                                      part / groups * TILE::COLUMNS};
    const int64_t begin = split * args.slice, end = min(args.k, begin + args.slice);
    narrow_strip_step<TILE> steps[TILE::AHEAD];
    S sum[TILE::MT][TILE::NT][4] = {};
    const int64_t mine = begin + warp * TILE::STEP, stride = TILE::WARPS * TILE::STEP;
#pragma unroll
    for (int i = 0; i < TILE::AHEAD; i++)
        if (mine + i * stride < end) narrow_strip_read<TILE>(args, from, mine + i * stride, steps[i]);
    narrow_check(site, args, job, (int64_t)blockIdx.x * TILE::THREADS + threadIdx.x,
                 (int64_t)gridDim.x * TILE::THREADS);
#pragma unroll 1
    for (int64_t k = mine; k < end; k += TILE::AHEAD * stride)
#pragma unroll
        for (int i = 0; i < TILE::AHEAD; i++) {
            if (k + i * stride >= end) break;
            narrow_strip_multiply<TILE>(args, steps[i], sum);
            const int64_t next = k + (i + TILE::AHEAD) * stride;
            if (next < end) narrow_strip_read<TILE>(args, from, next, steps[i]);
        }
    S *const held = (S *)(void *)ks_dynamic;
#pragma unroll
    for (int i = 0; i < TILE::SUMS; i++)
        held[(warp * TILE::SUMS + i) * TILE::PITCH + lane] = sum[i / (TILE::NT * 4)][i / 4 % TILE::NT][i % 4];
    __syncthreads();
    S *const sums = (S *)(void *)ks_workspace(site) + part * args.splits * OUTPUTS;
    const auto store = [&](int output, S x) {
        const int64_t row = from.row + output / TILE::COLUMNS, column = from.column + output % TILE::COLUMNS;
        if (row < args.a.rows && column < args.b.rows) narrow_store(args, job, narrow_place{0, 0, 0}, row, column, x);
    };
#pragma unroll 2
    for (int output = threadIdx.x; output < OUTPUTS; output += TILE::THREADS) {
        const S *const at = held + narrow_strip_place<TILE>(output / TILE::COLUMNS, output % TILE::COLUMNS);
        S x = 0;
#pragma unroll
        for (int w = 0; w < TILE::WARPS; w++) x += at[w * TILE::SUMS * TILE::PITCH];
        if (args.splits > 1)
            sums[split * OUTPUTS + output] = x;
        else
            store(output, x);
    }
    if (args.splits > 1) {
        uint32_t *const counter = ks_counters(site) + part;
        __syncthreads();
        if (threadIdx.x == 0) {
            last = mm_draw(counter) + 1 == (unsigned)args.splits;
            if (last) *counter = 0;
        }
        __syncthreads();
        if (last)
#pragma unroll 2
            for (int output = threadIdx.x; output < OUTPUTS; output += TILE::THREADS) {
                S x = 0;
#pragma unroll 4
                for (int p = 0; p < args.splits; p++) x += __ldcg(sums + p * OUTPUTS + output);
                store(output, x);
            }
    }
    ks_leave<true>(site);
}

#endif
