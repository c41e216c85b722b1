/* Softmax on the GPU. By where a row's bytes lie, and how many there are:
 *
 *   held     the axis is contiguous, a row fits the registers of a few threads, a warp or a CTA: one reading, one
 * writing split    longer rows, or few of them: statistics of parts of rows, then the values; two kernels columns  the
 * axis is not contiguous: threads along what is; one kernel, two readings slices   the same with the axis cut into
 * parts, where columns alone would leave the chip idle; two kernels
 *
 * Rows are read in 16-byte vectors of their aligned superset. Numbers as in softmax.c: exp2((x/2 - max/2) * 2 scale
 * log2 e). */
#include "launch.cuh"
#include "warp.cuh"

#include <math.h>
#include <string.h>

enum softmax_kind { HELD, SPLIT, COLUMNS, SLICES };
enum { AXIS, LOG, SCALE };
static constexpr int THREADS = 256, HELD_VECTORS = 8, WIDE_VECTORS = 4, PARTS_MAX = THREADS, COLUMN_LOADS = 4;

struct softmax_shape {
    int64_t rows, length, inner; /* rows: of the outer dimensions only where inner > 1 */
    size_t offset;               /* of the input in its side, bytes */
    double half, factor, twice_scale;
    int log;
};

struct softmax_choice {
    int16_t kind, vectors, width, threads;
    int32_t grid, parts;
};
static_assert(sizeof(softmax_choice) <= KS_CHOICE_BYTES, "a plan remembers the choice");

/* What turns an element into a result. */
template <class M>
struct softmax_finish {
    M reference, tail, factor, twice_scale;
    int log;

    __device__ __forceinline__ softmax_finish(const softmax_shape &s, M h, double sum)
        : reference(ks_reference(h)), factor((M)s.factor), twice_scale((M)s.twice_scale), log(s.log)
    {
        /* A row with an infinite maximum has no probabilities. */
        tail = isinf(h) ? (M)NAN : (M)(log ? ::log(sum) : 1.0 / sum);
    }
    __device__ __forceinline__ M operator()(M h) const
    {
        const M d = h - reference;
        return log ? d * twice_scale - tail : ks_exp2(d * factor) * tail;
    }
};

/* --- held
 * ---------------------------------------------------------------------------------------------------------------- */

struct ks_maxes {
    template <class M>
    __device__ __forceinline__ M operator()(M a, M b) const
    {
        return ks_max(a, b);
    }
};

/* `width` threads (a power of two up to 32, or the CTA) keep a row as V vectors each. */
template <class T, int V>
__global__ void __launch_bounds__(V > WIDE_VECTORS ? THREADS : 1024)
    softmax_held(ks_site site, softmax_shape s, int width)
{
    typedef typename ks_element<T>::math M;
    constexpr int E = ks_vector<T>::length;
    __shared__ double shared[KS_WARPS_MAX];
    if (blockIdx.y >= site.block->count) return;
    ks_enter(site);
    const ks_entry job = site.block->entry[blockIdx.y];
    const void *in = job.in + s.offset;
    const int lane = threadIdx.x % width, together = blockDim.x / width;
    const M half = (M)s.half, factor = (M)s.factor;

    for (int64_t first = (int64_t)blockIdx.x * together; first < s.rows; first += (int64_t)gridDim.x * together) {
        const int64_t row = first + threadIdx.x / width;
        ks_row r = ks_row_at<T>(row, s.length);
        if (row >= s.rows) r.vectors = 0; /* such threads still take part in shuffles and barriers */
        ks_vector<T> x[V];
#pragma unroll
        for (int v = 0; v < V; v++)
            if (lane + v * width < r.vectors) x[v] = ks_load_vector<T>(in, r.first + lane + v * width);

        M h = -(M)INFINITY;
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int at = (lane + v * width) * E - r.skip;
#pragma unroll
            for (int e = 0; e < E; e++)
                if (at + e >= 0 && at + e < s.length && r.vectors) h = ks_max(h, ks_math(x[v].element[e]) * half);
        }
        h = ks_width_reduce(h, width, (M *)shared, ks_maxes());

        const M reference = ks_reference(h);
        M sum = 0;
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int at = (lane + v * width) * E - r.skip;
            M leaf = 0;
#pragma unroll
            for (int e = 0; e < E; e++)
                if (at + e >= 0 && at + e < s.length && r.vectors)
                    leaf += ks_exp2((ks_math(x[v].element[e]) * half - reference) * factor);
            sum += leaf;
        }
        const softmax_finish<M> finish(s, h, ks_width_reduce((double)sum, width, shared, ks_adds()));
#pragma unroll
        for (int v = 0; v < V; v++) {
            if (lane + v * width >= r.vectors) continue;
#pragma unroll
            for (int e = 0; e < E; e++) x[v].element[e] = ks_round<T, M>(finish(ks_math(x[v].element[e]) * half));
            ks_store_vector<T>(job.out, r.first + lane + v * width, x[v], (int64_t)(lane + v * width) * E - r.skip,
                               s.length);
        }
    }
    ks_leave(site);
}

/* --- split
 * ---------------------------------------------------------------------------------------------------------------- */

/* Part p of a row: vectors [begin, end) of it. */
template <class T>
__device__ __forceinline__ void softmax_part(const softmax_shape &s, int parts, int part, const ks_row &r,
                                             int64_t *begin, int64_t *end)
{
    const int64_t share = (r.vectors + parts - 1) / parts;
    *begin = min((int64_t)part * share, r.vectors);
    *end = min(*begin + share, r.vectors);
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2) softmax_split_statistics(ks_site site, softmax_shape s, int parts)
{
    typedef typename ks_element<T>::math M;
    constexpr int E = ks_vector<T>::length;
    __shared__ ks_normaliser<M> shared[KS_WARPS_MAX];
    if (blockIdx.y >= site.block->count) return;
    ks_enter(site);
    const void *in = site.block->entry[blockIdx.y].in + s.offset;
    ks_normaliser<M> *partial = (ks_normaliser<M> *)(site.workspace + blockIdx.y * site.workspace_stride);
    const M half = (M)s.half, factor = (M)s.factor;

    for (int64_t item = blockIdx.x; item < s.rows * parts; item += gridDim.x) {
        const ks_row r = ks_row_at<T>(item / parts, s.length);
        int64_t begin, end;
        softmax_part<T>(s, parts, (int)(item % parts), r, &begin, &end);
        ks_normaliser<M> n = ks_nothing<M>();
#pragma unroll 4
        for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
            const ks_vector<T> x = ks_load_vector<T>(in, r.first + i);
            M h[E];
#pragma unroll
            for (int e = 0; e < E; e++) h[e] = ks_math(x.element[e]) * half;
            ks_normaliser_take<E>(n, h, ks_vector_mask<E>(i * E - r.skip, s.length), factor);
        }
        ks_joins<M> joins = {factor};
        n = ks_block_reduce(n, shared, joins);
        if (threadIdx.x == 0) partial[item] = n;
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2) softmax_split_values(ks_site site, softmax_shape s, int parts)
{
    typedef typename ks_element<T>::math M;
    constexpr int E = ks_vector<T>::length;
    __shared__ ks_normaliser<M> shared[KS_WARPS_MAX];
    if (blockIdx.y >= site.block->count) return;
    const ks_entry job = site.block->entry[blockIdx.y];
    const ks_normaliser<M> *partial = (const ks_normaliser<M> *)(site.workspace + blockIdx.y * site.workspace_stride);
    const M half = (M)s.half;

    for (int64_t item = blockIdx.x; item < s.rows * parts; item += gridDim.x) {
        const int64_t row = item / parts;
        const ks_row r = ks_row_at<T>(row, s.length);
        int64_t begin, end;
        softmax_part<T>(s, parts, (int)(item % parts), r, &begin, &end);
        const ks_joins<M> joins = {(M)s.factor};
        ks_normaliser<M> n = (int)threadIdx.x < parts ? partial[row * parts + threadIdx.x] : ks_nothing<M>();
        n = ks_block_reduce(n, shared, joins);
        const softmax_finish<M> finish(s, n.h, n.sum);
#pragma unroll 4
        for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
            ks_vector<T> x = ks_load_vector<T>(job.in + s.offset, r.first + i);
#pragma unroll
            for (int e = 0; e < E; e++) x.element[e] = ks_round<T, M>(finish(ks_math(x.element[e]) * half));
            ks_store_vector<T>(job.out, r.first + i, x, i * E - r.skip, s.length);
        }
    }
    ks_leave(site);
}

/* --- columns
 * -------------------------------------------------------------------------------------------------------------- */

/* A CTA's place: `width` threads along the columns, the others along the axis. */
struct softmax_place {
    int64_t base; /* element of this thread's column at the axis' start */
    int64_t begin, end;
    int down, step; /* this thread's row among the CTA's, and how many there are */
    bool live;      /* there is such a column */
};

__device__ __forceinline__ int64_t softmax_tiles(const softmax_shape &s, int width)
{
    return s.rows * ((s.inner + width - 1) / width);
}

__device__ __forceinline__ softmax_place softmax_at(const softmax_shape &s, int width, int64_t tile, int parts,
                                                    int part)
{
    const int64_t across = (s.inner + width - 1) / width, share = (s.length + parts - 1) / parts;
    const int64_t column = tile % across * width + threadIdx.x % width;
    softmax_place p;
    p.live = column < s.inner;
    p.base = tile / across * s.length * s.inner + column;
    p.begin = min(part * share, s.length);
    p.end = min(p.begin + share, s.length);
    p.down = threadIdx.x / width;
    p.step = blockDim.x / width;
    return p;
}

template <class T, class M = typename ks_element<T>::math>
__device__ __forceinline__ ks_normaliser<M> softmax_column_statistics(const softmax_shape &s, const T *in,
                                                                      const softmax_place &p)
{
    ks_normaliser<M> n = ks_nothing<M>();
    const M half = (M)s.half;
    for (int64_t d = p.begin + p.down; d < p.end && p.live; d += (int64_t)COLUMN_LOADS * p.step) {
        M h[COLUMN_LOADS];
        unsigned mask = 0;
#pragma unroll
        for (int i = 0; i < COLUMN_LOADS; i++) {
            const int64_t at = d + (int64_t)i * p.step;
            h[i] = 0;
            if (at >= p.end) continue;
            h[i] = ks_math(in[p.base + at * s.inner]) * half;
            mask |= 1u << i;
        }
        ks_normaliser_take<COLUMN_LOADS>(n, h, mask, (M)s.factor);
    }
    return n;
}

/* Over the threads of one column: a tree in shared memory, which each thread reads the root of. */
template <class M>
__device__ __forceinline__ ks_normaliser<M> softmax_column_join(ks_normaliser<M> n, int width, M factor,
                                                                ks_normaliser<M> *shared)
{
    const ks_joins<M> joins = {factor};
    shared[threadIdx.x] = n;
    __syncthreads();
    for (int half = blockDim.x / 2; half >= width; half /= 2) {
        if ((int)threadIdx.x < half) shared[threadIdx.x] = joins(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    n = shared[threadIdx.x % width];
    __syncthreads();
    return n;
}

template <class T, class M = typename ks_element<T>::math>
__device__ __forceinline__ void softmax_column_values(const softmax_shape &s, const T *in, T *out,
                                                      const softmax_place &p, ks_normaliser<M> n)
{
    if (!p.live) return;
    const softmax_finish<M> finish(s, n.h, n.sum);
#pragma unroll 4
    for (int64_t d = p.begin + p.down; d < p.end; d += p.step) {
        const int64_t at = p.base + d * s.inner;
        out[at] = ks_round<T, M>(finish(ks_math(in[at]) * (M)s.half));
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2) softmax_columns(ks_site site, softmax_shape s, int width)
{
    typedef typename ks_element<T>::math M;
    __shared__ ks_normaliser<M> shared[THREADS];
    if (blockIdx.y >= site.block->count) return;
    ks_enter(site);
    const ks_entry job = site.block->entry[blockIdx.y];
    const T *in = (const T *)(job.in + s.offset);
    for (int64_t tile = blockIdx.x; tile < softmax_tiles(s, width); tile += gridDim.x) {
        const softmax_place p = softmax_at(s, width, tile, 1, 0);
        const ks_normaliser<M> n = softmax_column_join(softmax_column_statistics(s, in, p), width, (M)s.factor, shared);
        softmax_column_values(s, in, (T *)job.out, p, n);
    }
    ks_leave(site);
}

/* Partial results: [tile][part][column of the tile]. */
template <class T>
__global__ void __launch_bounds__(THREADS, 2)
    softmax_slice_statistics(ks_site site, softmax_shape s, int width, int parts)
{
    typedef typename ks_element<T>::math M;
    __shared__ ks_normaliser<M> shared[THREADS];
    if (blockIdx.y >= site.block->count) return;
    ks_enter(site);
    const T *in = (const T *)(site.block->entry[blockIdx.y].in + s.offset);
    ks_normaliser<M> *partial = (ks_normaliser<M> *)(site.workspace + blockIdx.y * site.workspace_stride);
    for (int64_t item = blockIdx.x; item < softmax_tiles(s, width) * parts; item += gridDim.x) {
        const softmax_place p = softmax_at(s, width, item / parts, parts, (int)(item % parts));
        const ks_normaliser<M> n = softmax_column_join(softmax_column_statistics(s, in, p), width, (M)s.factor, shared);
        if ((int)threadIdx.x < width) partial[item * width + threadIdx.x] = n;
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2) softmax_slice_values(ks_site site, softmax_shape s, int width, int parts)
{
    typedef typename ks_element<T>::math M;
    __shared__ ks_normaliser<M> shared[THREADS];
    if (blockIdx.y >= site.block->count) return;
    const ks_entry job = site.block->entry[blockIdx.y];
    const ks_normaliser<M> *partial = (const ks_normaliser<M> *)(site.workspace + blockIdx.y * site.workspace_stride);
    const ks_joins<M> joins = {(M)s.factor};
    for (int64_t item = blockIdx.x; item < softmax_tiles(s, width) * parts; item += gridDim.x) {
        const int64_t tile = item / parts;
        const softmax_place p = softmax_at(s, width, tile, parts, (int)(item % parts));
        ks_normaliser<M> n = ks_nothing<M>();
        for (int part = p.down; part < parts; part += p.step)
            n = joins(n, partial[(tile * parts + part) * width + threadIdx.x % width]);
        n = softmax_column_join(n, width, (M)s.factor, shared);
        softmax_column_values(s, (const T *)(job.in + s.offset), (T *)job.out, p, n);
    }
    ks_leave(site);
}

/* --- choosing
 * ------------------------------------------------------------------------------------------------------------- */

static softmax_shape shape_of(const ks_spec *spec)
{
    const ks_tensor *x = &spec->in[0];
    const int axis = (int)spec->params[AXIS].i;
    const double scale = spec->params[SCALE].d;
    softmax_shape s = {};
    s.length = x->dims[axis];
    s.inner = ks_dims_product(x->dims, axis + 1, x->rank);
    s.rows = ks_dims_product(x->dims, 0, axis);
    s.offset = x->offset;
    s.half = scale < 0 ? -0.5 : 0.5;
    s.twice_scale = 2 * fabs(scale);
    s.factor = s.twice_scale * 1.4426950408889634074;
    s.log = spec->params[LOG].i != 0;
    return s;
}

static int grid_of(int64_t items)
{
    return (int)(items < 1 ? 1 : items < (int64_t)KS_GRID_MAX ? items : (int64_t)KS_GRID_MAX);
}

/* Threads for a row of so many vectors: with rows enough for the whole chip as few as can hold it, else as many as have
 * something to hold, for the shortest time. 0: no CTA holds it. */
static int held_width(const ks_chip *chip, int64_t rows, int64_t vectors)
{
    static const int widths[] = {8, 32, 256, 1024};
    for (int i = 0; i < 4; i++) {
        const int width = widths[i];
        const bool many = rows * width >= (int64_t)chip->sms * 1024;
        const int64_t most = width == 1024 ? WIDE_VECTORS : many ? HELD_VECTORS : 2;
        if (vectors <= most * (width == 8 ? width / 2 : width)) return width;
    }
    return 0;
}

static void plan_rows(const ks_chip *chip, const softmax_shape &s, int64_t row_vectors, softmax_choice *c)
{
    const int width = held_width(chip, s.rows, row_vectors);
    const bool idle =
        s.rows * 4 < chip->sms && row_vectors > 4096; /* few rows: one CTA each would use little of the chip */
    if (width && !idle) {
        c->kind = HELD;
        c->width = (int16_t)width;
        c->vectors = 1;
        while ((int64_t)c->vectors * width < row_vectors) c->vectors = (int16_t)(c->vectors * 2);
        c->threads = (int16_t)(width > 32 ? width : s.rows * width >= 128 ? 128 : 32);
        const int together = c->threads / width;
        c->grid = grid_of((s.rows + together - 1) / together);
        return;
    }
    /* At least 16 KiB a part, and CTAs for the chip twice. */
    const int64_t wanted = (2 * (int64_t)chip->sms + s.rows - 1) / s.rows, most = (row_vectors + 1023) / 1024;
    c->kind = SPLIT;
    c->parts = (int32_t)(wanted < most ? wanted : most);
    c->parts = c->parts < 1 ? 1 : c->parts > PARTS_MAX ? PARTS_MAX : c->parts;
    c->grid = grid_of(s.rows * c->parts);
}

static void plan_columns(const ks_chip *chip, const softmax_shape &s, softmax_choice *c)
{
    c->width = 2;
    while (c->width < (int)KS_WARP && c->width < s.inner) c->width = (int16_t)(c->width * 2);
    const int64_t tiles = s.rows * ((s.inner + c->width - 1) / c->width), down = THREADS / c->width;
    const int64_t wanted = (2 * (int64_t)chip->sms + tiles - 1) / tiles, most = s.length / (4 * COLUMN_LOADS * down);
    const int64_t parts = wanted < most ? wanted : most;
    c->kind = parts > 1 ? SLICES : COLUMNS;
    c->parts = (int32_t)(parts > 1 ? parts < PARTS_MAX ? parts : PARTS_MAX : 1);
    c->grid = grid_of(tiles * c->parts);
}

/* ks_cuda_setup_fn: no kernel here needs more shared memory than every CTA has. */
extern "C" ks_status ks_softmax_cuda_setup(const ks_chip *chip, ks_error *error)
{
    (void)chip, (void)error;
    return KS_OK;
}

/* ks_cuda_plan_fn */
extern "C" ks_status ks_softmax_cuda_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    const softmax_shape s = shape_of(spec);
    const int64_t element = (int64_t)ks_dtype_size(spec->in[0].dtype), in_vector = 16 / element;
    softmax_choice c = {};
    if (ks_tensor_count(&spec->in[0]) == 0) {
        c.kind = HELD, c.vectors = 1, c.width = KS_WARP, c.threads = KS_WARP, c.grid = 1;
    } else if (s.inner == 1) {
        const bool aligned = s.length % in_vector == 0;
        plan_rows(chip, s, aligned ? s.length / in_vector : (s.length + 2 * in_vector - 2) / in_vector, &c);
    } else {
        plan_columns(chip, s, &c);
    }
    const int64_t pair = spec->in[0].dtype == KS_FP64 ? sizeof(ks_normaliser<double>) : sizeof(ks_normaliser<float>);
    const int64_t across = c.kind == SLICES ? (s.inner + c.width - 1) / c.width * c.width : 1;
    const bool parted = c.kind == SPLIT || c.kind == SLICES;
    out->workspace_bytes = parted ? ks_align((size_t)(s.rows * across * c.parts * pair)) : 0;
    if (out->workspace_bytes > chip->workspace_bytes)
        return ks_fail(error, KS_WORK, "softmax: needs %zu bytes of workspace, the device has %zu",
                       out->workspace_bytes, chip->workspace_bytes);
    out->once = c.kind == HELD;
    const size_t fit = parted ? chip->workspace_bytes / out->workspace_bytes : (size_t)KS_BATCH_MAX;
    out->batch_max = (int)(fit < (size_t)KS_BATCH_MAX ? fit : (size_t)KS_BATCH_MAX);
    memcpy(out->choice, &c, sizeof c);
    return KS_OK;
}

/* --- launching
 * ------------------------------------------------------------------------------------------------------------ */

template <class T>
static void launch_held(const softmax_shape &s, const softmax_choice &c, ks_site site, dim3 grid, cudaStream_t stream)
{
    switch (c.vectors) {
    case 1:
        softmax_held<T, 1><<<grid, c.threads, 0, stream>>>(site, s, c.width);
        break;
    case 2:
        softmax_held<T, 2><<<grid, c.threads, 0, stream>>>(site, s, c.width);
        break;
    case 4:
        softmax_held<T, 4><<<grid, c.threads, 0, stream>>>(site, s, c.width);
        break;
    default:
        softmax_held<T, HELD_VECTORS><<<grid, c.threads, 0, stream>>>(site, s, c.width);
        break;
    }
}

template <class T>
static cudaError_t launch_as(const softmax_shape &s, const softmax_choice &c, ks_site site, int bucket,
                             cudaStream_t stream)
{
    const dim3 grid((unsigned)c.grid, (unsigned)bucket);
    cudaError_t status = cudaSuccess;
    switch (c.kind) {
    case HELD:
        launch_held<T>(s, c, site, grid, stream);
        break;
    case SPLIT:
        softmax_split_statistics<T><<<grid, THREADS, 0, stream>>>(site, s, c.parts);
        status = cudaGetLastError();
        if (status == cudaSuccess) softmax_split_values<T><<<grid, THREADS, 0, stream>>>(site, s, c.parts);
        break;
    case COLUMNS:
        softmax_columns<T><<<grid, THREADS, 0, stream>>>(site, s, c.width);
        break;
    default:
        softmax_slice_statistics<T><<<grid, THREADS, 0, stream>>>(site, s, c.width, c.parts);
        status = cudaGetLastError();
        if (status == cudaSuccess) softmax_slice_values<T><<<grid, THREADS, 0, stream>>>(site, s, c.width, c.parts);
    }
    return status == cudaSuccess ? cudaGetLastError() : status;
}

/* ks_cuda_launch_fn */
extern "C" ks_status ks_softmax_cuda_launch(const ks_spec *spec, const void *choice, ks_site site, int bucket,
                                            cudaStream_t stream, ks_error *error)
{
    const softmax_shape s = shape_of(spec);
    softmax_choice c;
    memcpy(&c, choice, sizeof c);
    cudaError_t status;
    switch (spec->in[0].dtype) {
    case KS_FP16:
        status = launch_as<__half>(s, c, site, bucket, stream);
        break;
    case KS_BF16:
        status = launch_as<__nv_bfloat16>(s, c, site, bucket, stream);
        break;
    case KS_FP32:
        status = launch_as<float>(s, c, site, bucket, stream);
        break;
    default:
        status = launch_as<double>(s, c, site, bucket, stream);
        break;
    }
    if (status == cudaSuccess) return KS_OK;
    return ks_fail(error, KS_DEVICE, "softmax: launch failed: %s", cudaGetErrorString(status));
}
