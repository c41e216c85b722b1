/* Reductions on the GPU, over any set of axes:
 *
 *   rows     the reduced axis is contiguous, of floats: 16-byte vectors, a lane group, a warp or a CTA per row
 *   strided  everything else: threads of a CTA along the results, which lie side by side, and along the axis
 *
 * Either cuts the axis into parts where there are too few results to fill the chip; a second kernel then joins the
 * parts in their order. What is accumulated, and how, stands in reduce_ops.cuh. */
#include "launch.cuh"
#include "reduce_ops.cuh"

#include <string.h>

enum { OP, AXIS };
enum { SUM, MEAN, MAX, MIN, PROD, ARGMAX, ARGMIN, L2NORM, LOGSUMEXP };
static constexpr int THREADS = 256, LOADS = 4, PARTS_MAX = 512;

struct reduce_dims {
    int count;
    int64_t extent[KS_RANK_MAX], stride[KS_RANK_MAX];
};

/* Axes of one sort that follow each other are one; those of extent 1 are none. Outermost first. */
struct reduce_shape {
    reduce_dims kept, reduced;
    int64_t results, depth; /* products of their extents */
    size_t offset;          /* of the input in its side, bytes */
};

struct reduce_choice {
    int16_t vectors; /* rows in vectors; else strided */
    int16_t width;   /* rows: threads of a row; strided: threads along the results */
    int32_t threads, grid, parts, finish_grid;
};
static_assert(sizeof(reduce_choice) <= KS_CHOICE_BYTES, "a plan remembers the choice");

__device__ __forceinline__ int64_t reduce_offset(const reduce_dims &d, int64_t n)
{
    if (d.count == 1) return n * d.stride[0];
    int64_t offset = 0;
    for (int i = d.count - 1; i >= 0; i--) {
        offset += n % d.extent[i] * d.stride[i];
        n /= d.extent[i];
    }
    return offset;
}

/* --- sources: where elements come from ------------------------------------------------------------------------------- */

template <class T>
struct reduce_floats {
    typedef typename ks_element<T>::math W;
    static __device__ __forceinline__ W get(const void *in, int64_t i, int)
    {
        return ks_math(((const T *)in)[i]);
    }
};

/* Integers of every size by one kernel: the datatype is asked at each load, the same way by all threads. */
template <class To>
struct reduce_integers {
    typedef To W;
    static __device__ __forceinline__ To get(const void *in, int64_t i, int dtype)
    {
        switch (dtype) {
        case KS_INT8:
            return (To)((const int8_t *)in)[i];
        case KS_INT16:
            return (To)((const int16_t *)in)[i];
        case KS_INT32:
            return (To)((const int32_t *)in)[i];
        case KS_INT64:
            return (To)((const int64_t *)in)[i];
        case KS_UINT8:
            return (To)((const uint8_t *)in)[i];
        case KS_UINT16:
            return (To)((const uint16_t *)in)[i];
        case KS_UINT32:
            return (To)((const uint32_t *)in)[i];
        default:
            return (To)((const uint64_t *)in)[i];
        }
    }
};

/* --- kernels --------------------------------------------------------------------------------------------------------- */

template <class T, class Op>
__global__ void __launch_bounds__(THREADS, 2) reduce_rows(ks_site site, reduce_shape s, Op op, int width, int parts)
{
    typedef typename ks_element<T>::math W;
    typedef typename Op::State State;
    constexpr int E = ks_vector<T>::length;
    __shared__ State shared[KS_WARPS_MAX];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    State *partial = (State *)ks_workspace(site);
    const int lane = threadIdx.x % width, together = blockDim.x / width;

    for (int64_t first = (int64_t)blockIdx.x * together; first < s.results * parts;
         first += (int64_t)gridDim.x * together) {
        const int64_t item = first + threadIdx.x / width, row = item / parts, part = item % parts;
        const bool live = row < s.results; /* the others still take part in shuffles */
        const ks_row r = ks_row_at<T>(live ? row : 0, s.depth);
        const int64_t share = (r.vectors + parts - 1) / parts, begin = part * share;
        const int64_t end = live ? min(begin + share, r.vectors) : 0;
        State state = op.none();
#pragma unroll 4
        for (int64_t i = begin + lane; i < end; i += width) {
            const ks_vector<T> v = ks_load_vector<T>(job.in + s.offset, r.first + i);
            W x[E];
#pragma unroll
            for (int e = 0; e < E; e++) x[e] = ks_math(v.element[e]);
            const int64_t at = i * E - r.skip;
            op.template take<E>(state, x, ks_vector_mask<E>(at, s.depth), at, 1);
        }
        state = ks_width_reduce(state, width, shared, op);
        if (lane == 0 && live) {
            if (parts == 1)
                op.store(state, job.out, row);
            else
                partial[item] = state;
        }
    }
    if (parts == 1) ks_leave(site);
}

template <class Source, class Op>
__global__ void __launch_bounds__(THREADS, 2) reduce_strided(ks_site site, reduce_shape s, Op op, int width, int parts)
{
    typedef typename Source::W W;
    typedef typename Op::State State;
    __shared__ State shared[THREADS];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    const void *in = job.in + s.offset;
    State *partial = (State *)ks_workspace(site);
    const int64_t tiles = (s.results + width - 1) / width, share = (s.depth + parts - 1) / parts;
    const int step = blockDim.x / width;

    for (int64_t item = blockIdx.x; item < tiles * parts; item += gridDim.x) {
        const int64_t result = item / parts * width + threadIdx.x % width, part = item % parts;
        const bool live = result < s.results;
        const int64_t base = live ? reduce_offset(s.kept, result) : 0,
                      end = live ? min((part + 1) * share, s.depth) : 0;
        State state = op.none();
        for (int64_t d = part * share + threadIdx.x / width; d < end; d += (int64_t)LOADS * step) {
            W x[LOADS];
            unsigned mask = 0;
#pragma unroll
            for (int i = 0; i < LOADS; i++) {
                const int64_t at = d + (int64_t)i * step;
                x[i] = 0;
                if (at >= end) continue;
                x[i] = Source::get(in, base + reduce_offset(s.reduced, at), op.rule.in_dtype);
                mask |= 1u << i;
            }
            op.template take<LOADS>(state, x, mask, d, step);
        }
        shared[threadIdx.x] = state;
        __syncthreads();
        for (int half = blockDim.x / 2; half >= width; half /= 2) {
            if ((int)threadIdx.x < half) shared[threadIdx.x] = op(shared[threadIdx.x], shared[threadIdx.x + half]);
            __syncthreads();
        }
        if ((int)threadIdx.x < width && live) {
            if (parts == 1)
                op.store(shared[threadIdx.x], job.out, result);
            else
                partial[result * parts + part] = shared[threadIdx.x];
        }
        __syncthreads();
    }
    if (parts == 1) ks_leave(site);
}

/* A warp per result joins its parts: lane by lane in their order, then the lanes by a tree. */
template <class Op>
__global__ void __launch_bounds__(THREADS, 2) reduce_finish(ks_site site, int64_t results, Op op, int parts)
{
    typedef typename Op::State State;
    ks_entry job;
    if (!ks_enter_again(site, &job)) return;
    const State *partial = (const State *)ks_workspace(site);
    const int warps = THREADS / KS_WARP, lane = threadIdx.x % KS_WARP;
    for (int64_t result = (int64_t)blockIdx.x * warps + threadIdx.x / KS_WARP; result < results;
         result += (int64_t)gridDim.x * warps) {
        State state = op.none();
        for (int part = lane; part < parts; part += KS_WARP) state = op(state, partial[result * parts + part]);
        state = ks_group_reduce(state, KS_WARP, op);
        if (lane == 0) op.store(state, job.out, result);
    }
    ks_leave(site);
}

/* --- choosing -------------------------------------------------------------------------------------------------------- */

static reduce_shape shape_of(const ks_spec *spec)
{
    const ks_tensor *in = &spec->in[0];
    const ks_axes *axes = &spec->params[AXIS].axes;
    unsigned set = axes->count < 0 ? (1u << in->rank) - 1 : 0;
    for (int i = 0; i < axes->count; i++) set |= 1u << axes->axis[i];
    reduce_shape s = {};
    s.offset = in->offset;
    s.results = s.depth = 1;
    int64_t stride = ks_tensor_count(in);
    const reduce_dims *last = NULL;
    for (int i = 0; i < in->rank; i++) {
        const int64_t extent = in->dims[i];
        if (extent == 1) continue;
        const bool reduced = set >> i & 1;
        reduce_dims *list = reduced ? &s.reduced : &s.kept;
        (reduced ? s.depth : s.results) *= extent;
        stride = extent ? stride / extent : 0;
        if (list != last) list->extent[list->count++] = 1;
        list->extent[list->count - 1] *= extent;
        list->stride[list->count - 1] = stride;
        last = list;
    }
    return s;
}

static int grid_of(int64_t items)
{
    return (int)(items < 1 ? 1 : items < (int64_t)KS_GRID_MAX ? items : (int64_t)KS_GRID_MAX);
}

/* Parts of the axis so that there are CTAs for the chip twice, but each with something to do. */
static int parts_of(const ks_chip *chip, int64_t items, int64_t most)
{
    const int64_t wanted = (2 * (int64_t)chip->sms + items - 1) / (items ? items : 1);
    const int64_t parts = wanted < most ? wanted : most;
    return (int)(parts < 1 ? 1 : parts < PARTS_MAX ? parts : PARTS_MAX);
}

static reduce_choice choose(const ks_chip *chip, const reduce_shape &s, ks_dtype dtype)
{
    reduce_choice c = {};
    const int64_t element = (int64_t)ks_dtype_size(dtype), row_vectors = (s.depth * element + 15) / 16;
    const bool contiguous = s.kept.count <= 1 && s.reduced.count == 1 && s.reduced.stride[0] == 1;
    c.threads = THREADS;
    if (contiguous && ks_dtype_kind(dtype) == KS_KIND_FLOAT) {
        const bool many = s.results >= (int64_t)chip->sms * 32;
        c.vectors = 1;
        c.width = (int16_t)(row_vectors <= 32 ? 8 : row_vectors <= (many ? 512 : 64) ? 32 : THREADS);
        /* At least 16 KiB a part. */
        c.parts = c.width == THREADS ? parts_of(chip, s.results, row_vectors / 1024) : 1;
        if (c.width < THREADS && s.results * c.width <= 4 * 32) c.threads = 128;
        const int together = c.threads / c.width;
        c.grid = grid_of((s.results * c.parts + together - 1) / together);
    } else {
        const bool columns = s.kept.count > 0 && s.kept.stride[s.kept.count - 1] == 1;
        c.width = 1;
        while (columns && c.width < 32 && c.width < s.kept.extent[s.kept.count - 1]) c.width = (int16_t)(c.width * 2);
        while (c.threads > 32 && c.threads / c.width > s.depth) c.threads /= 2;
        const int64_t tiles = (s.results + c.width - 1) / c.width;
        c.parts = parts_of(chip, tiles, s.depth / (4 * LOADS * (c.threads / c.width)));
        c.grid = grid_of(tiles * c.parts);
    }
    c.finish_grid = grid_of((s.results + THREADS / 32 - 1) / (THREADS / 32));
    return c;
}

/* ks_cuda_setup_fn: no kernel here needs more shared memory than every CTA has. */
extern "C" ks_status ks_reduce_cuda_setup(const ks_chip *chip, ks_error *error)
{
    (void)chip, (void)error;
    return KS_OK;
}

/* ks_cuda_plan_fn */
extern "C" ks_status ks_reduce_cuda_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    const reduce_shape s = shape_of(spec);
    const reduce_choice c = choose(chip, s, spec->in[0].dtype);
    const size_t state = 16; /* the largest of them */
    out->once = true;
    out->workspace_bytes = c.parts > 1 ? ks_align((size_t)s.results * (size_t)c.parts * state) : 0;
    if (out->workspace_bytes > chip->workspace_bytes)
        return ks_fail(error, KS_WORK, "reduce: needs %zu bytes of workspace, the device has %zu", out->workspace_bytes,
                       chip->workspace_bytes);
    const size_t fit = c.parts > 1 ? chip->workspace_bytes / out->workspace_bytes : (size_t)KS_BATCH_MAX;
    out->batch_max = (int)(fit < (size_t)KS_BATCH_MAX ? fit : (size_t)KS_BATCH_MAX);
    memcpy(out->choice, &c, sizeof c);
    return KS_OK;
}

/* --- launching ------------------------------------------------------------------------------------------------------- */

/* What every launch needs. */
struct reduce_launch {
    reduce_shape shape;
    reduce_choice choice;
    reduce_rule rule;
    ks_site site;
    int op, bucket;
    cudaStream_t stream;
};

template <class Op>
static cudaError_t finish(const reduce_launch &l, Op op)
{
    cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess || l.choice.parts == 1) return status;
    const dim3 grid((unsigned)l.choice.finish_grid, (unsigned)l.bucket);
    reduce_finish<<<grid, THREADS, 0, l.stream>>>(l.site, l.shape.results, op, l.choice.parts);
    return cudaGetLastError();
}

template <class Source, class Op>
static cudaError_t launch_strided(const reduce_launch &l, Op op)
{
    static_assert(sizeof(typename Op::State) <= 16, "the workspace has 16 bytes a state");
    const dim3 grid((unsigned)l.choice.grid, (unsigned)l.bucket);
    reduce_strided<Source, Op>
        <<<grid, l.choice.threads, 0, l.stream>>>(l.site, l.shape, op, l.choice.width, l.choice.parts);
    return finish(l, op);
}

template <class T, class Op>
static cudaError_t launch_either(const reduce_launch &l, Op op)
{
    if (!l.choice.vectors) return launch_strided<reduce_floats<T>, Op>(l, op);
    const dim3 grid((unsigned)l.choice.grid, (unsigned)l.bucket);
    reduce_rows<T, Op><<<grid, l.choice.threads, 0, l.stream>>>(l.site, l.shape, op, l.choice.width, l.choice.parts);
    return finish(l, op);
}

template <class T>
static cudaError_t launch_floats(const reduce_launch &l)
{
    typedef typename ks_element<T>::math W;
    switch (l.op) {
    case SUM:
    case MEAN:
        return launch_either<T>(l, reduce_sum<W>{l.rule});
    case MAX:
    case MIN:
        return launch_either<T>(l, reduce_extreme<W>{l.rule});
    case PROD:
        return launch_either<T>(l, reduce_prod<W>{l.rule});
    case L2NORM:
        return launch_either<T>(l, reduce_squares<W>{l.rule});
    case LOGSUMEXP:
        return launch_either<T>(l, reduce_logsumexp<W>{l.rule});
    default:
        return launch_either<T>(l, reduce_arg<W>{l.rule});
    }
}

static cudaError_t launch_integers(const reduce_launch &l)
{
    switch (l.op) {
    case SUM:
        return launch_strided<reduce_integers<int64_t>>(l, reduce_sum<int64_t>{l.rule});
    case MEAN:
        return launch_strided<reduce_integers<double>>(l, reduce_sum<double>{l.rule});
    case MAX:
    case MIN:
        return launch_strided<reduce_integers<int64_t>>(l, reduce_extreme<int64_t>{l.rule});
    case PROD:
        return launch_strided<reduce_integers<int64_t>>(l, reduce_prod<int64_t>{l.rule});
    case L2NORM:
        return launch_strided<reduce_integers<double>>(l, reduce_squares<double>{l.rule});
    case LOGSUMEXP:
        return launch_strided<reduce_integers<double>>(l, reduce_logsumexp<double>{l.rule});
    default:
        return launch_strided<reduce_integers<int64_t>>(l, reduce_arg<int64_t>{l.rule});
    }
}

/* ks_cuda_launch_fn */
extern "C" ks_status ks_reduce_cuda_launch(const ks_spec *spec, const void *choice, ks_site site, int bucket,
                                           cudaStream_t stream, ks_error *error)
{
    reduce_launch l = {};
    l.shape = shape_of(spec);
    memcpy(&l.choice, choice, sizeof l.choice);
    l.op = (int)spec->params[OP].i;
    l.rule.divisor = l.op == MEAN ? (double)l.shape.depth : 1.0;
    l.rule.in_dtype = spec->in[0].dtype;
    l.rule.out_dtype = spec->out.dtype;
    l.rule.lowest = l.op == MIN || l.op == ARGMIN;
    l.site = site;
    l.bucket = bucket;
    l.stream = stream;
    cudaError_t status;
    switch (spec->in[0].dtype) {
    case KS_FP16:
        status = launch_floats<__half>(l);
        break;
    case KS_BF16:
        status = launch_floats<__nv_bfloat16>(l);
        break;
    case KS_FP32:
        status = launch_floats<float>(l);
        break;
    case KS_FP64:
        status = launch_floats<double>(l);
        break;
    default:
        status = launch_integers(l);
        break;
    }
    if (status == cudaSuccess) return KS_OK;
    return ks_fail(error, KS_DEVICE, "reduce: launch failed: %s", cudaGetErrorString(status));
}
