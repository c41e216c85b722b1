/* A library that takes cuBLASLt's place where no GPU is: what kernels/cublaslt.cu calls, on host memory and by plain
 * loops, in the real one's words (column-major matrices, transposes, batches with strides, bias along rows), so that
 * how a product is put into them can be checked. FAKE_LT makes one call misbehave: "version", "create", "heuristic" or
 * "matmul". */
#include <cublasLt.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace
{
enum { TYPE, ROWS, COLUMNS, LEADING, COUNT, STRIDE };    /* of a layout's data */
enum { COMPUTE, SCALE, TURN_A, TURN_B, EPILOGUE, BIAS }; /* of a product's */
enum { ID, FLAGS, REDUCTION, WORKSPACE };                /* of an algorithm's */

bool misbehaves(const char *what)
{
    const char *which = getenv("FAKE_LT");
    return which && strcmp(which, what) == 0;
}

/* The ones that the test asks for: right, then each with one fault. */
const uint64_t algorithms[][4] = {
    {1, CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F, 0, 0},
    {2, CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 4096},
    {3, CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F, 0, 0},
    {4, CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F, 0, 0},
    {5, CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA, CUBLASLT_REDUCTION_SCHEME_INPLACE, 0},
    {6, CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 0},
    {7, CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA, 0, 1 << 30},
};

template <typename T>
T at(const void *matrix, const cublasLtMatrixLayoutOpaque_t *layout, uint64_t turned, uint64_t batch, uint64_t row,
     uint64_t column)
{
    const uint64_t *l = layout->data;
    const uint64_t r = turned ? column : row, c = turned ? row : column;
    if (r >= l[ROWS] || c >= l[COLUMNS]) abort();
    return ((const T *)matrix)[batch * l[STRIDE] + c * l[LEADING] + r];
}

template <typename T>
void multiply(const uint64_t *op, T alpha, const void *a, const cublasLtMatrixLayoutOpaque_t *la, const void *b,
              const cublasLtMatrixLayoutOpaque_t *lb, void *d, const cublasLtMatrixLayoutOpaque_t *ld)
{
    const uint64_t depth = op[TURN_A] ? la->data[ROWS] : la->data[COLUMNS];
    for (uint64_t x = 0; x < ld->data[COUNT]; x++)
        for (uint64_t r = 0; r < ld->data[ROWS]; r++)
            for (uint64_t c = 0; c < ld->data[COLUMNS]; c++) {
                double sum = 0;
                for (uint64_t k = 0; k < depth; k++)
                    sum += (double)at<T>(a, la, op[TURN_A], x, r, k) * (double)at<T>(b, lb, op[TURN_B], x, k, c);
                T value = (T)(alpha * sum);
                if (op[EPILOGUE] == CUBLASLT_EPILOGUE_BIAS) value += ((const T *)op[BIAS])[r];
                ((T *)d)[x * ld->data[STRIDE] + c * ld->data[LEADING] + r] = value;
            }
}
} // namespace

extern "C" {
size_t cublasLtGetVersion()
{
    return misbehaves("version") ? 90000 : CUBLAS_VERSION;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    static int something;
    *handle = (cublasLtHandle_t)&something;
    return misbehaves("create") ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t op, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
    memset(op, 0, size);
    op->data[COMPUTE] = compute;
    op->data[SCALE] = scale;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t size)
{
    const int place = which == CUBLASLT_MATMUL_DESC_TRANSA     ? TURN_A
                      : which == CUBLASLT_MATMUL_DESC_TRANSB   ? TURN_B
                      : which == CUBLASLT_MATMUL_DESC_EPILOGUE ? EPILOGUE
                                                               : BIAS;
    if (size != (place == BIAS ? 8 : 4) || (place == BIAS && which != CUBLASLT_MATMUL_DESC_BIAS_POINTER))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&op->data[place], value, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t leading)
{
    memset(layout, 0, size);
    const uint64_t data[] = {(uint64_t)type, rows, columns, (uint64_t)leading, 1, 0};
    memcpy(layout->data, data, sizeof data);
    return leading < (int64_t)rows ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t size)
{
    const int place = which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? COUNT : STRIDE;
    if (size != (place == COUNT ? 4 : 8)) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&layout->data[place], value, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size)
{
    memset(preference, 0, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void *, size_t)
{
    return CUBLAS_STATUS_SUCCESS; /* a heuristic that does not listen: the caller must look itself */
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int most,
                                              cublasLtMatmulHeuristicResult_t *results, int *count)
{
    *count = 0;
    if (misbehaves("heuristic")) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (const uint64_t *algorithm : algorithms) {
        if (*count == most) break;
        cublasLtMatmulHeuristicResult_t *result = &results[(*count)++];
        memset(result, 0, sizeof *result);
        memcpy(result->algo.data, algorithm, sizeof algorithms[0]);
        result->workspaceSize = algorithm[WORKSPACE];
        result->state = CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulHeuristicResult_t *result)
{
    result->workspaceSize = algorithm->data[WORKSPACE];
    return algorithm->data[ID] >= 1 && algorithm->data[ID] <= 7 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                 cublasLtMatmulAlgoCapAttributes_t, void *out, size_t size,
                                                 size_t *written)
{
    memcpy(out, &algorithm->data[FLAGS], size);
    *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t which, void *out, size_t size,
                                                    size_t *written)
{
    const bool reduction = which == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME;
    memcpy(out, &algorithm->data[reduction ? REDUCTION : ID], size);
    *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t op, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                              const void *c, cublasLtMatrixLayout_t, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes, cudaStream_t)
{
    if (misbehaves("matmul") || c != d || bytes < algorithm->data[WORKSPACE] || (bytes && !workspace))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (op->data[SCALE] == CUDA_R_64F && *(const double *)beta == 0)
        multiply<double>(op->data, *(const double *)alpha, a, la, b, lb, d, ld);
    else if (op->data[SCALE] == CUDA_R_32F && *(const float *)beta == 0)
        multiply<float>(op->data, *(const float *)alpha, a, la, b, lb, d, ld);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}
}
