/* Softmax on the GPU: which of the kernels of softmax_rows.cuh and softmax_columns.cuh, with how many threads and CTAs;
 * then the launch. Numbers as in softmax.c: exp2((x/2 - max/2) * 2 scale log2 e). */
#include "softmax_columns.cuh"
#include "softmax_rows.cuh"

#include <stdio.h>
#include <string.h>

enum softmax_kind { HELD, SPLIT, COLUMNS, SLICES };
enum { AXIS, LOG, SCALE };

struct softmax_choice {
    int16_t kind, vectors, width, threads;
    int32_t grid, parts;
};
static_assert(sizeof(softmax_choice) <= KS_CHOICE_BYTES, "a plan remembers the choice");

/* --- choosing -------------------------------------------------------------------------------------------------------- */

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
    static const char *const names[] = {"held", "split", "columns", "slices"};
    snprintf(out->pick.kernel, sizeof out->pick.kernel, "softmax_%s<%s>", names[c.kind],
             ks_dtype_name(spec->in[0].dtype));
    out->pick.grid = c.grid;
    out->pick.threads = c.kind == HELD ? c.threads : THREADS;
    out->pick.cluster = 1;
    memcpy(out->choice, &c, sizeof c);
    return KS_OK;
}

/* --- launching ------------------------------------------------------------------------------------------------------- */

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
