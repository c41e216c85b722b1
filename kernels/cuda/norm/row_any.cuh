/* Norm of any rows: of any length and alignment, of groups of channels, with operands and results of any datatypes.
 *
 *   row_any       a row for a warp or for a CTA; it is held in registers, or read once for each of sum, squares and values
 *   piece_sums,   rows cut into pieces, a CTA each: the pieces' means and squares go through the workspace, and a second launch joins
 *   piece_values  them and writes the values
 *
 * Numbers  all sums in double, element by element: squares of FP32 cannot leave its range, so no row is taken again. */
#ifndef KS_NORM_ROW_ANY_CUH
#define KS_NORM_ROW_ANY_CUH

#include "cuda/norm/row_block.cuh"

static constexpr int NORM_HELD = 8; /* packs of a thread */

/* Elements of x's datatype T, or FP32. */
template <class T>
__device__ __forceinline__ typename ks_element<T>::math norm_value(const unsigned char *data, int dtype, int64_t i)
{
    typedef typename ks_element<T>::math M;
    if (dtype == KS_FP32) return (M)__ldg((const float *)data + i);
    return (M)ks_math(((const T *)data)[i]);
}

template <class M>
__device__ __forceinline__ void norm_put(unsigned char *data, int dtype, int64_t i, M y)
{
    switch (dtype) {
    case KS_FP16:
        ((__half *)data)[i] = ks_round<__half, M>(y);
        break;
    case KS_BF16:
        ((__nv_bfloat16 *)data)[i] = ks_round<__nv_bfloat16, M>(y);
        break;
    case KS_FP32:
        ((float *)data)[i] = (float)y;
        break;
    default:
        ((double *)data)[i] = (double)y;
        break;
    }
}

/* E elements of a row, a vector or one. */
template <class T, int E>
struct norm_cursor {
    typedef typename ks_element<T>::math M;
    const norm_shape &s;
    const ks_job_sides &job;
    int64_t row, weights; /* weights: the place of the row's first weight */

    __device__ __forceinline__ norm_cursor(const norm_shape &shape, const ks_job_sides &sides, int64_t at)
        : s(shape), job(sides), row(at), weights(shape.groups == 1 ? 0 : at % shape.groups * shape.channels)
    {
    }
    __device__ __forceinline__ void load(M (&sum)[E], int input, int64_t at) const
    {
        if constexpr (E > 1) {
            norm_pack<T, E> x;
            x.load(job.in + s.in[input], at / E);
            norm_widen(sum, x);
        } else {
            sum[0] = ks_math(((const T *)(job.in + s.in[input]))[at]);
        }
    }
    /* s from the row's element i on. */
    __device__ __forceinline__ void take(M (&sum)[E], int64_t i) const
    {
        const int64_t at = row * s.length + i;
        load(sum, 0, at);
        if (s.pre_bias) {
            const int64_t first = s.last == s.length ? i : at % s.last;
#pragma unroll
            for (int e = 0; e < E; e++) sum[e] += norm_value<T>(job.in + s.in[4], s.dtype[4], first + e);
        }
        if (s.residual) {
            M more[E];
            load(more, 3, at);
#pragma unroll
            for (int e = 0; e < E; e++) sum[e] += more[e];
        }
    }
    __device__ __forceinline__ void keep(const M (&sum)[E], int64_t i) const
    {
        const int64_t at = row * s.length + i;
        if constexpr (E > 1) {
            norm_pack<T, E> x;
            x.put(sum);
            x.store(job.out + s.sum, at / E);
        } else {
            ((T *)(job.out + s.sum))[at] = ks_round<T, M>(sum[0]);
        }
    }
    __device__ __forceinline__ void values(M (&y)[E], int64_t i, const norm_rule<M> &rule) const
    {
        const int64_t first =
            weights + (s.inner == 1 ? i : (int64_t)(__umul64hi((uint64_t)i, s.inner_multiplier) >> s.inner_shift));
#pragma unroll
        for (int e = 0; e < E; e++) y[e] = rule.template distance<norm_low<T>>(y[e]) * rule.factor;
        if (s.weight || s.bias) {
#pragma unroll
            for (int e = 0; e < E; e++) {
                const int64_t at = first + (s.inner == 1 ? e : 0); /* a vector lies within a channel */
                const M weight = s.weight ? norm_value<T>(job.in + s.in[1], s.dtype[1], at) : (M)1;
                const M bias = s.bias ? norm_value<T>(job.in + s.in[2], s.dtype[2], at) : (M)0;
                y[e] = fma(y[e], weight, bias);
            }
        }
    }
    __device__ __forceinline__ void store(M (&y)[E], int64_t i) const
    {
        const int64_t at = row * s.length + i;
        if (s.out_dtype == s.dtype[0]) {
            ks_activate<T>(y, s.activation);
            if constexpr (E > 1) {
                norm_pack<T, E> x;
                x.put(y);
                x.store(job.out + s.out, at / E);
                return;
            }
        } else {
            ks_activate<M>(y, s.activation);
        }
#pragma unroll
        for (int e = 0; e < E; e++) norm_put(job.out + s.out, s.out_dtype, at + e, y[e]);
    }
};

/* The rule of a row with that mean and sum of squares about it. */
template <class T>
__device__ __forceinline__ norm_rule<typename ks_element<T>::math> norm_rule_of(const norm_shape &s, double mean,
                                                                                double squares)
{
    typedef typename ks_element<T>::math M;
    M scale = 1;
    double by = 1;
    const double squared = norm_divisor_squared(s, squares, 1);
    for (M next; (next = norm_next_scale<T>(squared * by * by, (M)mean, scale)) != 0; by = (double)scale) scale = next;
    norm_rule<M> rule(mean, scale);
    rule.factor = norm_factor(norm_divisor_squared(s, squares * (by * by), by), (M)0);
    return rule;
}

/* Over the threads of a row: a warp, or the CTA. */
__device__ __forceinline__ double norm_over(double mine, int width, norm_cells &cells, int &turn)
{
    return width == KS_WARP ? ks_subwarp_reduce(mine, KS_WARP, ks_adds()) : norm_over_cta(mine, cells, turn);
}

template <class T, int E, int HELD>
__global__ void __launch_bounds__(NORM_BLOCK_THREADS)
    norm_row_any(ks_site site, const __grid_constant__ norm_shape s, int width)
{
    typedef typename ks_element<T>::math M;
    __shared__ norm_cells cells;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const int lane_id = threadIdx.x % width, together = blockDim.x / width;
    int turn = 0;
#pragma unroll 1
    for (int64_t first = (int64_t)blockIdx.x * together; first < s.rows; first += (int64_t)gridDim.x * together) {
        const norm_cursor<T, E> cursor(s, job, first + threadIdx.x / width);
        const int64_t length = cursor.row < s.rows ? s.length : 0; /* without a row, they still take part in shuffles */
        M held[HELD ? HELD : 1][E];
        const auto each = [&](auto body) {
            if constexpr (HELD > 0) {
#pragma unroll
                for (int v = 0; v < HELD; v++) {
                    const int64_t i = (int64_t)(v * width + lane_id) * E;
                    if (i < length) body(i, held[v]);
                }
            } else {
                for (int64_t i = (int64_t)lane_id * E; i < length; i += (int64_t)width * E) {
                    cursor.take(held[0], i);
                    body(i, held[0]);
                }
            }
        };
        if constexpr (HELD > 0) each([&](int64_t i, M(&x)[E]) { cursor.take(x, i); });
        double mean = 0, squares = 0;
        if (s.centred || s.keeps_sum) {
            each([&](int64_t i, M(&x)[E]) {
                mean += norm_wide_sum(x);
                if (s.keeps_sum) cursor.keep(x, i);
            });
        }
        mean = s.centred ? norm_mean(s, norm_over(mean, width, cells, turn)) : 0;
        each([&](int64_t, M(&x)[E]) {
#pragma unroll
            for (int e = 0; e < E; e++) squares = fma((double)x[e] - mean, (double)x[e] - mean, squares);
        });
        const norm_rule<M> rule = norm_rule_of<T>(s, mean, norm_over(squares, width, cells, turn));
        each([&](int64_t i, M(&x)[E]) {
            cursor.values(x, i, rule);
            cursor.store(x, i);
        });
    }
    ks_leave(site);
}

/* A piece's part of a row. */
struct norm_piece {
    int64_t row, begin, end;
    __device__ __forceinline__ norm_piece(const norm_shape &s, int64_t item, int pieces, int64_t size)
        : row(item / pieces), begin((item - row * pieces) * size), end(min(begin + size, s.length))
    {
    }
};

/* workspace: [rows][pieces] of mean and squares. */
template <class T, int E>
__global__ void __launch_bounds__(NORM_BLOCK_THREADS)
    norm_piece_sums(ks_site site, const __grid_constant__ norm_shape s, int pieces, int64_t size)
{
    typedef typename ks_element<T>::math M;
    __shared__ norm_cells cells;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    double *const to = (double *)ks_workspace(site);
    const int step = blockDim.x * E;
    int turn = 0;
#pragma unroll 1
    for (int64_t item = blockIdx.x; item < s.rows * pieces; item += gridDim.x) {
        const norm_piece piece(s, item, pieces, size);
        const norm_cursor<T, E> cursor(s, job, piece.row);
        double mean = 0, squares = 0;
        if (s.centred || s.keeps_sum) {
            for (int64_t i = piece.begin + threadIdx.x * E; i < piece.end; i += step) {
                M x[E];
                cursor.take(x, i);
                mean += norm_wide_sum(x);
                if (s.keeps_sum) cursor.keep(x, i);
            }
        }
        mean = s.centred ? norm_over_cta(mean, cells, turn) / (double)(piece.end - piece.begin) : 0;
        for (int64_t i = piece.begin + threadIdx.x * E; i < piece.end; i += step) {
            M x[E];
            cursor.take(x, i);
#pragma unroll
            for (int e = 0; e < E; e++) squares = fma((double)x[e] - mean, (double)x[e] - mean, squares);
        }
        squares = norm_over_cta(squares, cells, turn);
        if (threadIdx.x == 0) to[2 * item] = mean, to[2 * item + 1] = squares;
    }
}

template <class T, int E>
__global__ void __launch_bounds__(NORM_BLOCK_THREADS)
    norm_piece_values(ks_site site, const __grid_constant__ norm_shape s, int pieces, int64_t size)
{
    typedef typename ks_element<T>::math M;
    __shared__ norm_cells cells;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    const double *const sums = (const double *)ks_workspace(site);
    int turn = 0;
#pragma unroll 1
    for (int64_t item = blockIdx.x; item < s.rows * pieces; item += gridDim.x) {
        const norm_piece piece(s, item, pieces, size);
        const norm_cursor<T, E> cursor(s, job, piece.row);
        const double *const of = sums + 2 * piece.row * pieces;
        double mean = 0, squares = 0;
        for (int p = threadIdx.x; p < pieces && s.centred; p += blockDim.x)
            mean += of[2 * p] * (double)(min((p + 1) * size, s.length) - p * size);
        if (s.centred) mean = norm_mean(s, norm_over_cta(mean, cells, turn));
        for (int p = threadIdx.x; p < pieces; p += blockDim.x) {
            const double away = of[2 * p] - mean, count = (double)(min((p + 1) * size, s.length) - p * size);
            squares += of[2 * p + 1] + (s.centred ? count * away * away : 0);
        }
        const norm_rule<M> rule = norm_rule_of<T>(s, mean, norm_over_cta(squares, cells, turn));
        for (int64_t i = piece.begin + threadIdx.x * E; i < piece.end; i += blockDim.x * E) {
            M x[E];
            cursor.take(x, i);
            cursor.values(x, i, rule);
            cursor.store(x, i);
        }
    }
    ks_leave(site);
}

#endif
