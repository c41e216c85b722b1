/* Matmul on CUDA: which kernel, which tile, how many slices of K; then the launch.
 *
 * Ways     skinny (matmul_skinny.cuh) for up to 8 rows or columns; tensor cores (matmul_mma.cuh) for FP16 and BF16;
 * fused multiply-adds (matmul_simt.cuh) for FP32 and FP64. Where the tiles are too few for the chip and K is long, K is
 * cut into slices: FP32 (FP64) partial sums in the workspace, added by mm_combine in the slices' order. Bits     depend
 * on the plan alone: no atomics on values, every sum's order is fixed. Threads  any; everything here is constant after
 * setup. */
#include "matmul_mma.cuh"
#include "matmul_simt.cuh"
#include "matmul_skinny.cuh"

#include <stddef.h>
#include <string.h>

enum mm_way { MM_SMALL, MM_LARGE, MM_SKINNY, MM_WAYS };

enum {
    MM_SLICE_MIN = 256, /* values of K that are worth a slice */
    MM_SLICE_STEP = 64, /* slices start on multiples: whole vectors and whole stages */
    MM_SLICES_MAX = 128,
    MM_COMBINE_THREADS = 256
};

typedef struct mm_choice {
    uint8_t way;    /* mm_way */
    uint8_t turned; /* skinny: the transposed product is computed, with the operands' roles swapped */
    uint8_t rows;   /* skinny: 1, 4 or 8 */
    int32_t slices;
    int64_t k_slice;
} mm_choice;
static_assert(sizeof(mm_choice) <= KS_CHOICE_BYTES, "a plan has no room for the choice");

typedef void (*mm_function)(ks_site, mm_args);

typedef struct mm_kernel {
    mm_function function;
    int threads;
    int shared_bytes; /* dynamic */
    int tile_m, tile_n;
} mm_kernel;

/* --- the kernels by what they are made for --------------------------------------------------------------------------- */

/* All partial sums of an output, in the slices' order. */
template <typename T>
__global__ void __launch_bounds__(MM_COMBINE_THREADS) mm_combine(ks_site site, const __grid_constant__ mm_args args)
{
    typedef typename mm_sum<T>::type S;
    ks_entry job;
    if (!ks_enter_again(site, &job)) return;
    const mm_int count = args.batch * args.m * args.n;
    const S *partial = (const S *)ks_workspace(site);
    T *c = (T *)(job.out + args.c_at);
    for (mm_int at = (mm_int)blockIdx.x * MM_COMBINE_THREADS + threadIdx.x; at < count;
         at += (mm_int)gridDim.x * MM_COMBINE_THREADS) {
        double sum = 0;
#pragma unroll 4
        for (int slice = 0; slice < args.slices; slice++) sum += (double)partial[slice * count + at];
        c[at] = mm_narrow<T>(args.alpha * sum);
    }
    ks_leave(site);
}

template <typename T, typename TILE>
static mm_kernel mma_kernel(bool ta, bool tb)
{
    static const mm_function functions[] = {mm_mma_kernel<T, TILE, false, false>, mm_mma_kernel<T, TILE, false, true>,
                                            mm_mma_kernel<T, TILE, true, false>, mm_mma_kernel<T, TILE, true, true>};
    static const int shared[] = {mm_mma_shared_bytes<TILE, false, false>(), mm_mma_shared_bytes<TILE, false, true>(),
                                 mm_mma_shared_bytes<TILE, true, false>(), mm_mma_shared_bytes<TILE, true, true>()};
    const int at = 2 * ta + tb;
    return {functions[at], TILE::THREADS, shared[at], TILE::M, TILE::N};
}

template <typename TILE>
static mm_kernel simt_kernel(bool ta, bool tb)
{
    static const mm_function functions[] = {mm_simt_kernel<TILE, false, false>, mm_simt_kernel<TILE, false, true>,
                                            mm_simt_kernel<TILE, true, false>, mm_simt_kernel<TILE, true, true>};
    return {functions[2 * ta + tb], TILE::THREADS, TILE::SHARED, TILE::M, TILE::N};
}

template <typename T>
static mm_kernel skinny_kernel(int rows, bool k_contiguous)
{
    static const mm_function functions[] = {mm_skinny_kernel<T, 1, false>, mm_skinny_kernel<T, 1, true>,
                                            mm_skinny_kernel<T, 4, false>, mm_skinny_kernel<T, 4, true>,
                                            mm_skinny_kernel<T, 8, false>, mm_skinny_kernel<T, 8, true>};
    const int at = (rows == 1 ? 0 : rows == 4 ? 2 : 4) + k_contiguous;
    return {functions[at], MM_SKINNY_THREADS, 0, MM_SKINNY_MAX, mm_skinny_tile((int)sizeof(T), k_contiguous)};
}

/* ta, tb: for skinny ways tb alone counts, and says that the streamed operand's columns are contiguous. */
static mm_kernel kernel_for(ks_dtype dtype, const mm_choice *choice, bool ta, bool tb)
{
    const bool large = choice->way == MM_LARGE, skinny = choice->way == MM_SKINNY;
    switch (dtype) {
    case KS_FP16:
        if (skinny) return skinny_kernel<__half>(choice->rows, tb);
        return large ? mma_kernel<__half, mm_mma_large>(ta, tb) : mma_kernel<__half, mm_mma_small>(ta, tb);
    case KS_BF16:
        if (skinny) return skinny_kernel<__nv_bfloat16>(choice->rows, tb);
        return large ? mma_kernel<__nv_bfloat16, mm_mma_large>(ta, tb)
                     : mma_kernel<__nv_bfloat16, mm_mma_small>(ta, tb);
    case KS_FP32:
        if (skinny) return skinny_kernel<float>(choice->rows, tb);
        return large ? simt_kernel<mm_float_large>(ta, tb) : simt_kernel<mm_float_small>(ta, tb);
    default:
        if (skinny) return skinny_kernel<double>(choice->rows, tb);
        return simt_kernel<mm_double_tile>(ta, tb);
    }
}

static mm_function combine_for(ks_dtype dtype)
{
    switch (dtype) {
    case KS_FP16:
        return mm_combine<__half>;
    case KS_BF16:
        return mm_combine<__nv_bfloat16>;
    case KS_FP32:
        return mm_combine<float>;
    default:
        return mm_combine<double>;
    }
}

/* --- arguments ------------------------------------------------------------------------------------------------------- */

static int row_alignment(mm_int pitch, const int64_t *steps, int rank, int element_bytes)
{
    mm_int together = pitch;
    for (int d = 0; d < rank; d++) together |= steps[d];
    const mm_int bytes = together * element_bytes;
    return bytes % 16 == 0 ? 16 : bytes % 4 == 0 ? 4 : element_bytes;
}

static void set_operand(mm_args *args, bool second, size_t at, mm_int row, mm_int column, const int64_t *steps,
                        int element_bytes)
{
    mm_int *to = second ? args->b_step : args->a_step;
    for (int d = 0; d < args->batch_rank; d++) to[d] = steps[d];
    /* One of both strides is 1; the other one is the distance of the rows that lie in memory. */
    const mm_int pitch = row == 1 ? column : row;
    const int vector = row_alignment(pitch, steps, args->batch_rank, element_bytes);
    if (second) {
        args->b_at = at;
        args->b_row = row;
        args->b_col = column;
        args->b_vector = vector;
    } else {
        args->a_at = at;
        args->a_row = row;
        args->a_col = column;
        args->a_vector = vector;
    }
}

static mm_int tiles_of(mm_int size, int tile)
{
    return (size + tile - 1) / tile;
}

static mm_args arguments(const ks_spec *spec, const ks_matmul_shape *s, const mm_choice *choice)
{
    const int element_bytes = (int)ks_dtype_size(spec->out.dtype);
    mm_args args = {};
    args.c_at = spec->out.offset;
    args.k = s->k;
    args.batch = s->batch;
    args.batch_rank = s->batch_rank;
    for (int d = 0; d < s->batch_rank; d++) args.batch_dims[d] = s->batch_dims[d];
    args.slices = choice->slices;
    args.k_slice = choice->k_slice;
    args.alpha = s->k == 0 ? 1.0 : s->alpha; /* a sum of nothing is +0, whatever alpha's sign */
    if (choice->turned) {
        args.m = s->n;
        args.n = s->m;
        args.c_row = 1;
        args.c_col = s->n;
        set_operand(&args, false, spec->in[1].offset, s->b_col, s->b_row, s->b_step, element_bytes);
        set_operand(&args, true, spec->in[0].offset, s->a_col, s->a_row, s->a_step, element_bytes);
    } else {
        args.m = s->m;
        args.n = s->n;
        args.c_row = s->n;
        args.c_col = 1;
        set_operand(&args, false, spec->in[0].offset, s->a_row, s->a_col, s->a_step, element_bytes);
        set_operand(&args, true, spec->in[1].offset, s->b_row, s->b_col, s->b_step, element_bytes);
    }
    return args;
}

/* The kernel, and the args' tiles and units that follow from it. */
static mm_kernel fit(const ks_spec *spec, const ks_matmul_shape *s, const mm_choice *choice, mm_args *args)
{
    *args = arguments(spec, s, choice);
    const bool streamed = choice->turned ? !s->transpose_a : s->transpose_b;
    const mm_kernel kernel =
        kernel_for(spec->out.dtype, choice, s->transpose_a, choice->way == MM_SKINNY ? streamed : s->transpose_b);
    args->tiles_m = tiles_of(args->m, kernel.tile_m);
    args->tiles_n = tiles_of(args->n, kernel.tile_n);
    args->units = args->batch * args->tiles_m * args->tiles_n * args->slices;
    return kernel;
}

/* --- choosing -------------------------------------------------------------------------------------------------------- */

static void choose_way(const ks_chip *chip, const ks_spec *spec, const ks_matmul_shape *s, mm_choice *choice)
{
    const mm_int few = s->m < s->n ? s->m : s->n, many = s->m < s->n ? s->n : s->m;
    if (few <= MM_SKINNY_MAX && many > mm_mma_small::N) {
        choice->way = MM_SKINNY;
        choice->turned = s->m > s->n;
        choice->rows = few <= 1 ? 1 : few <= 4 ? 4 : 8;
        return;
    }
    choice->way = MM_LARGE;
    const mm_kernel large = kernel_for(spec->out.dtype, choice, s->transpose_a, s->transpose_b);
    const mm_int tiles = s->batch * tiles_of(s->m, large.tile_m) * tiles_of(s->n, large.tile_n);
    if (tiles < chip->sms || (size_t)large.shared_bytes > chip->shared_optin) choice->way = MM_SMALL;
}

static size_t partial_bytes(const ks_spec *spec)
{
    return (size_t)ks_tensor_count(&spec->out) * (spec->out.dtype == KS_FP64 ? sizeof(double) : sizeof(float));
}

static void choose_slices(const ks_chip *chip, const ks_spec *spec, const ks_matmul_shape *s, mm_int units,
                          mm_choice *choice)
{
    mm_int slices = units > 0 && units < chip->sms ? 2 * (mm_int)chip->sms / units : 1;
    if (slices > s->k / MM_SLICE_MIN) slices = s->k / MM_SLICE_MIN;
    if (slices > MM_SLICES_MAX) slices = MM_SLICES_MAX;
    const size_t plane = partial_bytes(spec), room = chip->workspace_bytes / KS_ALIGNMENT * KS_ALIGNMENT;
    if (slices > 1 && (size_t)slices > room / plane) slices = (mm_int)(room / plane);
    if (slices <= 1) return;
    choice->k_slice = (tiles_of(s->k, (int)slices) + MM_SLICE_STEP - 1) / MM_SLICE_STEP * MM_SLICE_STEP;
    choice->slices = (int32_t)((s->k + choice->k_slice - 1) / choice->k_slice);
}

/* One tile per matrix, and no matrix shared: every input byte is then read once. */
static bool reads_once(const mm_choice *choice, const mm_args *args)
{
    if (choice->way == MM_SKINNY || args->tiles_m * args->tiles_n > 1) return false;
    for (int d = 0; d < args->batch_rank; d++)
        if (args->a_step[d] == 0 || args->b_step[d] == 0) return false;
    return true;
}

/* ks_cuda_plan_fn */
extern "C" ks_status ks_matmul_cuda_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    (void)error;
    ks_matmul_shape shape;
    ks_matmul_shape_of(spec, &shape);
    mm_choice choice;
    memset(&choice, 0, sizeof choice);
    choice.slices = 1;
    choice.k_slice = shape.k;
    choose_way(chip, spec, &shape, &choice);
    mm_args args;
    (void)fit(spec, &shape, &choice, &args);
    choose_slices(chip, spec, &shape, args.units, &choice);

    out->once = reads_once(&choice, &args);
    out->batch_max = out->once ? KS_BATCH_MAX : 1;
    out->workspace_bytes = 0;
    if (choice.slices > 1) {
        out->workspace_bytes = ks_align((size_t)choice.slices * partial_bytes(spec));
        const size_t room = chip->workspace_bytes / out->workspace_bytes;
        if ((size_t)out->batch_max > room) out->batch_max = room > 1 ? (int)room : 1;
    }
    memset(out->choice, 0, sizeof out->choice);
    memcpy(out->choice, &choice, sizeof choice);
    return KS_OK;
}

/* --- launching ------------------------------------------------------------------------------------------------------- */

static dim3 grid_of(mm_int ctas, int bucket)
{
    const mm_int x = ctas < 1             ? 1
                     : ctas > KS_GRID_MAX ? (mm_int)KS_GRID_MAX
                                          : ctas; /* an empty output still raises the flag */
    return dim3((unsigned)x, (unsigned)bucket, 1);
}

static ks_status check_launch(ks_error *error)
{
    const cudaError_t code = cudaGetLastError();
    if (code == cudaSuccess) return KS_OK;
    return ks_fail(error, KS_DEVICE, "matmul: launch failed: %s (%d)", cudaGetErrorString(code), (int)code);
}

/* ks_cuda_launch_fn */
extern "C" ks_status ks_matmul_cuda_launch(const ks_spec *spec, const void *choice_bytes, ks_site site, int bucket,
                                           cudaStream_t stream, ks_error *error)
{
    mm_choice choice;
    memcpy(&choice, choice_bytes, sizeof choice);
    ks_matmul_shape shape;
    ks_matmul_shape_of(spec, &shape);
    mm_args args;
    const mm_kernel kernel = fit(spec, &shape, &choice, &args);
    kernel.function<<<grid_of(args.units, bucket), kernel.threads, (size_t)kernel.shared_bytes, stream>>>(site, args);
    const ks_status status = check_launch(error);
    if (status != KS_OK || choice.slices == 1) return status;

    const mm_int count = ks_tensor_count(&spec->out);
    const mm_function combine = combine_for(spec->out.dtype);
    combine<<<grid_of(tiles_of(count, MM_COMBINE_THREADS), bucket), MM_COMBINE_THREADS, 0, stream>>>(site, args);
    return check_launch(error);
}

static cudaError_t opt_in(const ks_chip *chip, ks_dtype dtype, const mm_choice *choice)
{
    for (int transposes = 0; transposes < 4; transposes++) {
        const mm_kernel kernel = kernel_for(dtype, choice, transposes / 2, transposes % 2);
        if ((size_t)kernel.shared_bytes > chip->shared_optin) continue; /* never chosen on this chip */
        const cudaError_t code = cudaFuncSetAttribute((const void *)kernel.function,
                                                      cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes);
        if (code != cudaSuccess) return code;
    }
    return cudaSuccess;
}

/* ks_cuda_setup_fn */
extern "C" ks_status ks_matmul_cuda_setup(const ks_chip *chip, ks_error *error)
{
    static const ks_dtype dtypes[] = {KS_FP16, KS_BF16, KS_FP32, KS_FP64};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        for (int way = MM_SMALL; way <= MM_LARGE; way++) {
            mm_choice choice;
            memset(&choice, 0, sizeof choice);
            choice.way = (uint8_t)way;
            const cudaError_t code = opt_in(chip, dtypes[i], &choice);
            if (code != cudaSuccess)
                return ks_fail(error, KS_DEVICE, "matmul: shared memory: %s (%d)", cudaGetErrorString(code), (int)code);
        }
    }
    return KS_OK;
}
