/* Up to 8 rows: everything is the time to read B once. A (or B, turned, when the columns are few) is staged in shared
 * memory in the precision of the sums; B streams past the CTA in 16-byte loads where its rows allow, in neighbouring
 * elements where they do not.
 *
 * B's columns contiguous in K (K_CONTIGUOUS): a warp owns MM_SKINNY_COLUMNS columns and its lanes share K. Else a lane
 * owns V columns and the warps share K. Either way sums meet in a fixed order. */
#ifndef KS_MATMUL_SKINNY_CUH
#define KS_MATMUL_SKINNY_CUH

#include "matmul_common.cuh"

enum { MM_SKINNY_MAX = 8, MM_SKINNY_THREADS = 256, MM_SKINNY_WARPS = 8, MM_SKINNY_COLUMNS = 4, MM_SKINNY_DEPTH = 512 };

template <typename T>
__host__ __device__ constexpr int mm_skinny_vector()
{
    return 16 / (int)sizeof(T);
}

/* Columns of one unit. */
__host__ __device__ constexpr int mm_skinny_tile(int element_bytes, bool k_contiguous)
{
    return k_contiguous ? MM_SKINNY_WARPS * MM_SKINNY_COLUMNS : 32 * (16 / element_bytes);
}

template <typename T>
struct alignas(16) mm_vector {
    T value[16 / sizeof(T)];
};

/* Rows [0, MR) of A, values [k, k + MM_SKINNY_DEPTH) of K; zeros outside. */
template <typename T, int MR>
__device__ __forceinline__ void mm_skinny_stage(typename mm_sum<T>::type (&to)[MR][MM_SKINNY_DEPTH], const T *a,
                                                const mm_args &args, mm_int k, mm_int k_end)
{
    for (int at = threadIdx.x; at < MR * MM_SKINNY_DEPTH; at += MM_SKINNY_THREADS) {
        /* Neighbouring threads walk A's contiguous dimension. */
        const int i = args.a_col == 1 ? at / MM_SKINNY_DEPTH : at % MR,
                  l = args.a_col == 1 ? at % MM_SKINNY_DEPTH : at / MR;
        const bool inside = i < args.m && k + l < k_end;
        to[i][l] = inside ? mm_widen(a[i * args.a_row + (k + l) * args.a_col]) : 0;
    }
}

template <typename T>
__device__ __forceinline__ void mm_skinny_store(const ks_site &site, const mm_args &args, const mm_unit &unit,
                                                unsigned char *out, int i, mm_int j, typename mm_sum<T>::type sum)
{
    typedef typename mm_sum<T>::type S;
    if (i >= args.m || j >= args.n) return;
    const mm_int place = i * args.c_row + j * args.c_col;
    if (args.slices > 1)
        mm_plane<S>(site, args, unit)[place] = sum;
    else
        ((T *)(out + args.c_at))[unit.batch * args.m * args.n + place] = mm_finish<T>(sum, args.alpha);
}

/* V values along B's contiguous dimension, `spread` elements apart (1: one 16-byte load); zeros from `count` on. */
template <typename T>
__device__ __forceinline__ void mm_skinny_read(typename mm_sum<T>::type (&to)[16 / sizeof(T)], const T *from,
                                               mm_int count, int spread)
{
    constexpr int V = mm_skinny_vector<T>();
    if (spread == 1 && count >= V) {
        const mm_vector<T> line = *(const mm_vector<T> *)from;
#pragma unroll
        for (int v = 0; v < V; v++) to[v] = mm_widen(line.value[v]);
        return;
    }
#pragma unroll
    for (int v = 0; v < V; v++) to[v] = v * spread < count ? mm_widen(from[v * spread]) : 0;
}

template <typename T, int MR>
__device__ __forceinline__ void mm_skinny_along(const ks_site &site, const mm_args &args, const mm_unit &unit,
                                                const ks_entry &job,
                                                typename mm_sum<T>::type (&staged)[MR][MM_SKINNY_DEPTH])
{
    typedef typename mm_sum<T>::type S;
    constexpr int V = mm_skinny_vector<T>();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const T *a = (const T *)(job.in + args.a_at) + unit.a, *b = (const T *)(job.in + args.b_at) + unit.b;
    const mm_int column0 = (unit.column * MM_SKINNY_WARPS + warp) * MM_SKINNY_COLUMNS;
    const int spread = args.b_vector == 16 ? 1 : 32, first = args.b_vector == 16 ? lane * V : lane;
    S sum[MR][MM_SKINNY_COLUMNS] = {};
    for (mm_int k = unit.k_begin; k < unit.k_end; k += MM_SKINNY_DEPTH) {
        mm_skinny_stage<T, MR>(staged, a, args, k, unit.k_end);
        __syncthreads();
        const int depth = (int)min((mm_int)MM_SKINNY_DEPTH, unit.k_end - k);
        for (int l = 0; l < depth; l += 32 * V) {
            S x[MM_SKINNY_COLUMNS][V];
#pragma unroll
            for (int c = 0; c < MM_SKINNY_COLUMNS; c++) {
                const bool inside = column0 + c < args.n;
                mm_skinny_read<T>(x[c], inside ? b + (column0 + c) * args.b_col + k + l + first : b,
                                  inside ? depth - l - first : 0, spread);
            }
#pragma unroll
            for (int v = 0; v < V; v++) {
                const int at = l + first + v * spread; /* below MM_SKINNY_DEPTH: 32 * V divides it */
#pragma unroll
                for (int i = 0; i < MR; i++) {
                    const S y = staged[i][at];
#pragma unroll
                    for (int c = 0; c < MM_SKINNY_COLUMNS; c++) sum[i][c] = fma(y, x[c][v], sum[i][c]);
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < MR; i++)
#pragma unroll
        for (int c = 0; c < MM_SKINNY_COLUMNS; c++) {
#pragma unroll
            for (int step = 16; step > 0; step /= 2) sum[i][c] += __shfl_xor_sync(0xffffffffu, sum[i][c], step);
            if (lane == 0) mm_skinny_store<T>(site, args, unit, job.out, i, column0 + c, sum[i][c]);
        }
}

template <typename T, int MR>
__device__ __forceinline__ void mm_skinny_across(const ks_site &site, const mm_args &args, const mm_unit &unit,
                                                 const ks_entry &job,
                                                 typename mm_sum<T>::type (&staged)[MR][MM_SKINNY_DEPTH])
{
    typedef typename mm_sum<T>::type S;
    constexpr int V = mm_skinny_vector<T>(), UNROLL = 4;
    __shared__ S meet[MM_SKINNY_WARPS][32 * V];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const T *a = (const T *)(job.in + args.a_at) + unit.a, *b = (const T *)(job.in + args.b_at) + unit.b;
    const mm_int column0 = unit.column * 32 * V;
    const int spread = args.b_vector == 16 ? 1 : 32, first = args.b_vector == 16 ? lane * V : lane;
    const mm_int wide = args.n - column0 - first; /* columns from this lane's first on */
    const T *line = wide > 0 ? b + column0 + first : b;
    S sum[MR][V] = {};
    for (mm_int k = unit.k_begin; k < unit.k_end; k += MM_SKINNY_DEPTH) {
        mm_skinny_stage<T, MR>(staged, a, args, k, unit.k_end);
        __syncthreads();
        const int depth = (int)min((mm_int)MM_SKINNY_DEPTH, unit.k_end - k);
        for (int l0 = warp; l0 < depth; l0 += MM_SKINNY_WARPS * UNROLL) {
            S x[UNROLL][V];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                const int l = l0 + u * MM_SKINNY_WARPS;
                mm_skinny_read<T>(x[u], line + (l < depth ? (k + l) * args.b_row : 0), l < depth ? wide : 0, spread);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                const int l = l0 + u * MM_SKINNY_WARPS;
                if (l >= depth) break;
#pragma unroll
                for (int i = 0; i < MR; i++)
#pragma unroll
                    for (int v = 0; v < V; v++) sum[i][v] = fma(staged[i][l], x[u][v], sum[i][v]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < MR; i++) {
#pragma unroll
        for (int v = 0; v < V; v++) meet[warp][first + v * spread] = sum[i][v];
        __syncthreads();
        for (int j = threadIdx.x; j < 32 * V; j += MM_SKINNY_THREADS) {
            S total = 0;
#pragma unroll
            for (int w = 0; w < MM_SKINNY_WARPS; w++) total += meet[w][j];
            mm_skinny_store<T>(site, args, unit, job.out, i, column0 + j, total);
        }
        __syncthreads();
    }
}

template <typename T, int MR, bool K_CONTIGUOUS>
__global__ void __launch_bounds__(MM_SKINNY_THREADS)
    mm_skinny_kernel(ks_site site, const __grid_constant__ mm_args args)
{
    __shared__ typename mm_sum<T>::type staged[MR][MM_SKINNY_DEPTH];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    for (mm_int index = blockIdx.x; index < args.units; index += gridDim.x) {
        const mm_unit unit = mm_unit_at(args, index);
        if constexpr (K_CONTIGUOUS)
            mm_skinny_along<T, MR>(site, args, unit, job, staged);
        else
            mm_skinny_across<T, MR>(site, args, unit, job, staged);
    }
    if (args.slices == 1) ks_leave(site);
}

#endif
