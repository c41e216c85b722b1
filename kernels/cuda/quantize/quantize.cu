/* quantize on the GPU: instances of its kernels by datatype, and its launches. */
#include "cuda/quantize/scale.cuh"

/* --- launches by datatype -------------------------------------------------------------------------------------------- */

template <class T>
static cudaError_t apply_as(const quantize_launch &go)
{
    switch (go.c.index) {
    case QUANTIZE_BY_TENSOR:
        return quantize_start(go, quantize_apply<T, QUANTIZE_BY_TENSOR>, go.c.grid, go.c.threads);
    case QUANTIZE_BY_ROW:
        return quantize_start(go, quantize_apply<T, QUANTIZE_BY_ROW>, go.c.grid, go.c.threads);
    case QUANTIZE_BY_COLUMN:
        return quantize_start(go, quantize_apply<T, QUANTIZE_BY_COLUMN>, go.c.grid, go.c.threads);
    case QUANTIZE_BY_ANY_ROW:
        return quantize_start(go, quantize_apply<T, QUANTIZE_BY_ANY_ROW>, go.c.grid, go.c.threads);
    default:
        return quantize_start(go, quantize_apply<T, QUANTIZE_BY_ANY_COLUMN>, go.c.grid, go.c.threads);
    }
}

static int grid_for(int64_t items)
{
    const int64_t most = KS_GRID_MAX;
    return (int)(items < 1 ? 1 : items < most ? items : most);
}

/* The magnitudes in front of the scales. */
template <class T>
static cudaError_t measure_as(const quantize_launch &go)
{
    constexpr int E = ks_vector<T>::length;
    if (go.c.family == QUANTIZE_TENSOR) return quantize_start(go, quantize_amax<T>, go.c.parts, QUANTIZE_THREADS);
    const int64_t folds = (go.s.scales + QUANTIZE_THREADS - 1) / QUANTIZE_THREADS;
    if (go.c.family == QUANTIZE_LONG) {
        const cudaError_t status =
            quantize_start(go, quantize_amax_rows<T>, grid_for(go.s.rows * go.s.parts), QUANTIZE_THREADS);
        return status == cudaSuccess ? quantize_start(go, quantize_fold, grid_for(folds), QUANTIZE_THREADS) : status;
    }
    const bool whole = go.s.columns % E == 0;
    const int64_t wide = KS_WARP * (whole ? E : 1), items = (go.s.columns + wide - 1) / wide * go.s.parts;
    const cudaError_t status = quantize_start(go, whole ? quantize_amax_columns<T, E> : quantize_amax_columns<T, 1>,
                                              grid_for(items), QUANTIZE_THREADS);
    if (status != cudaSuccess) return status;
    return quantize_start(go, quantize_fold, grid_for(folds), QUANTIZE_THREADS);
}

template <class T>
static cudaError_t go_as(const quantize_launch &go)
{
    if (go.c.family == QUANTIZE_ROWS) return quantize_start(go, quantize_rows<T>, go.c.grid, go.c.threads);
    const cudaError_t status = go.c.family == QUANTIZE_GIVEN ? cudaSuccess : measure_as<T>(go);
    return status == cudaSuccess ? apply_as<T>(go) : status;
}

/* --- the op's side --------------------------------------------------------------------------------------------------- */

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    (void)chip;
    const quantize_launch go = quantize_launch_of(spec, algorithm, site, bucket, stream);
    const cudaError_t status = go.s.from == KS_FP32   ? go_as<float>(go)
                               : go.s.from == KS_FP16 ? go_as<__half>(go)
                                                      : go_as<__nv_bfloat16>(go);
    return quantize_launched(spec, status, error);
}

extern const ks_cuda_op ks_quantize_cuda;
const ks_cuda_op ks_quantize_cuda = {.setup = quantize_setup,
                                     .plan = quantize_plan,
                                     .launch = cuda_launch,
                                     .join = NULL,
                                     .candidates = NULL,
                                     .adopt = NULL,
                                     .revision = NULL,
                                     .starts_anywhere = NULL};
