/* search of FP32: its stream's instances. */
#include "cuda/search/floats.cuh"
#include "cuda/search/launch.cuh"

template <ks_search_metric METRIC>
static cudaError_t go_metric(const search_launch &go)
{
    switch (go.c.queries) {
    case 1:
        return search_go<search_floats<1, METRIC>>(go);
    case 4:
        return search_go<search_floats<4, METRIC>>(go);
    case 8:
        return search_go<search_floats_wide<8, METRIC>>(go);
    default:
        return search_go<search_floats_wide<32, METRIC>>(go);
    }
}

template <ks_search_metric METRIC>
static cudaError_t allow_metric(int shared_bytes)
{
    cudaError_t status = search_allow<search_floats<1, METRIC>>(shared_bytes);
    if (status == cudaSuccess) status = search_allow<search_floats<4, METRIC>>(shared_bytes);
    if (status == cudaSuccess) status = search_allow<search_floats_wide<8, METRIC>>(shared_bytes);
    return status == cudaSuccess ? search_allow<search_floats_wide<32, METRIC>>(shared_bytes) : status;
}

cudaError_t search_go_fp32(const search_launch &go)
{
    switch (go.s.metric) {
    case KS_SEARCH_L2:
        return go_metric<KS_SEARCH_L2>(go);
    case KS_SEARCH_COSINE:
        return go_metric<KS_SEARCH_COSINE>(go);
    default:
        return go_metric<KS_SEARCH_DOT>(go);
    }
}

cudaError_t search_allow_fp32(int shared_bytes)
{
    cudaError_t status = allow_metric<KS_SEARCH_DOT>(shared_bytes);
    if (status == cudaSuccess) status = allow_metric<KS_SEARCH_L2>(shared_bytes);
    return status == cudaSuccess ? allow_metric<KS_SEARCH_COSINE>(shared_bytes) : status;
}
