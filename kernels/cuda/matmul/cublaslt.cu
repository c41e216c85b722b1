#include "cuda/matmul/cublaslt.cuh"

#include <stdio.h>
#include <string.h>

#if __has_include(<cublasLt.h>)

#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>

/* Each function that is used, by its name in the library and its type in the header. */
#define FUNCTIONS(X)                                                                                                   \
    X(GetVersion)                                                                                                      \
    X(Create)                                                                                                          \
    X(Matmul)                                                                                                          \
    X(MatmulDescInit_internal)                                                                                         \
    X(MatmulDescSetAttribute)                                                                                          \
    X(MatrixLayoutInit_internal)                                                                                       \
    X(MatrixLayoutSetAttribute)                                                                                        \
    X(MatmulPreferenceInit_internal)                                                                                   \
    X(MatmulPreferenceSetAttribute)                                                                                    \
    X(MatmulAlgoGetHeuristic)                                                                                          \
    X(MatmulAlgoCheck)                                                                                                 \
    X(MatmulAlgoCapGetAttribute)                                                                                       \
    X(MatmulAlgoConfigGetAttribute)

static struct {
#define X(name) decltype(&cublasLt##name) name;
    FUNCTIONS(X)
#undef X
} lt;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of opening */
static bool asked;
static char answer[160];
static int version; /* fixed after open; 0: not open */
static cublasLtHandle_t handle;

static const uint32_t REDUCTIONS = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
static const char soname[] = "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR);
static const char folder[] = "/usr/local/cuda/lib64/"; /* where the toolkit lies, if the loader does not look there */

/* --- opening -------------------------------------------------------------------------------------------------------- */

static void *open_file(const char *file)
{
    if (strcmp(file, "auto") != 0) return dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    if (library) return library;
    char path[sizeof folder + sizeof soname];
    snprintf(path, sizeof path, "%s%s", folder, soname);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen(soname, RTLD_NOW | RTLD_LOCAL); /* for dlerror's sentence */
    return library;
}

static bool find_functions(void *library)
{
#define X(name)                                                                                                        \
    *(void **)&lt.name = dlsym(library, "cublasLt" #name);                                                             \
    if (!lt.name) return false;
    FUNCTIONS(X)
#undef X
    return true;
}

static void open_library(const char *file)
{
    void *library = open_file(file);
    if (!library) {
        snprintf(answer, sizeof answer, "no cuBLASLt: %.140s", dlerror());
        return;
    }
    const int found = find_functions(library) ? (int)lt.GetVersion() : 0;
    if (found / 10000 != CUBLAS_VER_MAJOR) {
        snprintf(answer, sizeof answer, "no cuBLASLt: version %d, this build is for %d", found / 10000,
                 CUBLAS_VER_MAJOR);
        dlclose(library);
        return;
    }
    const cublasStatus_t status = lt.Create(&handle);
    cudaGetLastError();
    if (status != CUBLAS_STATUS_SUCCESS) {
        snprintf(answer, sizeof answer, "no cuBLASLt: cublasLtCreate says %d", (int)status);
        return;
    }
    version = found;
    snprintf(answer, sizeof answer, "cuBLASLt %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

bool ks_cublaslt_open(const char *file, char *what, size_t cap)
{
    pthread_mutex_lock(&lock);
    if (!asked) open_library(file);
    asked = true;
    snprintf(what, cap, "%s", answer);
    pthread_mutex_unlock(&lock);
    return version != 0;
}

int ks_cublaslt_version(void)
{
    return version;
}

/* --- a problem in its words ------------------------------------------------------------------------------------------ */

typedef struct problem {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t a, b, c; /* a is our INPUT1, b our INPUT0 */
    bool single;                          /* alpha and beta are FP32 */
} problem;

static cudaDataType_t type_of(ks_dtype dtype)
{
    return dtype == KS_FP16 ? CUDA_R_16F : dtype == KS_BF16 ? CUDA_R_16BF : dtype == KS_FP32 ? CUDA_R_32F : CUDA_R_64F;
}

static cublasComputeType_t compute_of(const ks_spec *spec, const ks_matmul_shape *s)
{
    if (spec->out[0].dtype == KS_FP64) return CUBLAS_COMPUTE_64F;
    return s->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/* alpha of 0 would skip the product, and with it every NaN. A sum of 16 bits with a bias is rounded before and after the
 * bias by some of its kernels: FP16 1031 for 1031.81 and 4116 for 4118.08, of 13.1.0. */
static bool fits(const ks_spec *spec, const ks_matmul_shape *s)
{
    const bool exact = spec->out[0].dtype == KS_FP64 || (double)(float)s->alpha == s->alpha;
    const bool narrow = spec->out[0].dtype == KS_FP16 || spec->out[0].dtype == KS_BF16;
    return version && s->m > 0 && s->n > 0 && s->k > 0 && s->batch > 0 && s->batch <= INT32_MAX && s->batch_rank <= 1 &&
           s->activation == KS_MATMUL_NONE && !s->residual && s->alpha != 0 && exact && !(narrow && s->biased);
}

/* Stored rows are columns to it: `inner` contiguous elements, from one to the next `pitch`. */
typedef struct stored {
    int64_t inner, rows, pitch, step;
} stored;

static bool lay_out(cublasLtMatrixLayoutOpaque_t *layout, cudaDataType_t type, const ks_matmul_shape *s, stored by)
{
    const int32_t count = (int32_t)s->batch;
    return lt.MatrixLayoutInit_internal(layout, sizeof *layout, type, (uint64_t)by.inner, (uint64_t)by.rows,
                                        by.pitch) == CUBLAS_STATUS_SUCCESS &&
           (count == 1 || (lt.MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                       sizeof count) == CUBLAS_STATUS_SUCCESS &&
                           lt.MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &by.step,
                                                       sizeof by.step) == CUBLAS_STATUS_SUCCESS));
}

template <typename T>
static bool set_op(problem *p, cublasLtMatmulDescAttributes_t attribute, T value)
{
    return lt.MatmulDescSetAttribute(&p->op, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
}

/* In place of the bias where nothing is launched: as aligned as every tensor. */
static const void *const SOMEWHERE = (const void *)(uintptr_t)KS_ALIGNMENT;

static bool describe(const ks_spec *spec, const ks_matmul_shape *s, const void *bias, problem *p)
{
    const cudaDataType_t type = type_of(spec->out[0].dtype);
    const int32_t as_stored = CUBLAS_OP_N, transposed = CUBLAS_OP_T;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    memset(p, 0, sizeof *p);
    p->single = spec->out[0].dtype != KS_FP64;
    return fits(spec, s) &&
           lt.MatmulDescInit_internal(&p->op, sizeof p->op, compute_of(spec, s), p->single ? CUDA_R_32F : CUDA_R_64F) ==
               CUBLAS_STATUS_SUCCESS &&
           set_op(p, CUBLASLT_MATMUL_DESC_TRANSA, s->transpose_b ? transposed : as_stored) &&
           set_op(p, CUBLASLT_MATMUL_DESC_TRANSB, s->transpose_a ? transposed : as_stored) &&
           (!s->biased || (set_op(p, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue) &&
                           set_op(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias))) &&
           lay_out(&p->a, type, s,
                   s->transpose_b ? stored{s->k, s->n, s->b_col, s->b_step[0]}
                                  : stored{s->n, s->k, s->b_row, s->b_step[0]}) &&
           lay_out(&p->b, type, s,
                   s->transpose_a ? stored{s->m, s->k, s->a_col, s->a_step[0]}
                                  : stored{s->k, s->m, s->a_row, s->a_step[0]}) &&
           lay_out(&p->c, type, s, {s->n, s->m, s->n, s->m * s->n});
}

/* --- which of its algorithms ---------------------------------------------------------------------------------------- */

template <typename T>
static T config_of(const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, T otherwise)
{
    T value;
    size_t written = 0;
    const cublasStatus_t status = lt.MatmulAlgoConfigGetAttribute(algorithm, attribute, &value, sizeof value, &written);
    return status == CUBLAS_STATUS_SUCCESS && written == sizeof value ? value : otherwise;
}

/* Sums as precise as documented, whatever the environment talks the library into. */
static bool precise(const ks_spec *spec, const ks_matmul_shape *s, const cublasLtMatmulAlgo_t *algorithm)
{
    uint64_t flags;
    size_t written = 0;
    const uint32_t reduction = config_of<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, ~0u);
    if (reduction & ~REDUCTIONS) return false;
    if (lt.MatmulAlgoCapGetAttribute(algorithm, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags, sizeof flags,
                                     &written) != CUBLAS_STATUS_SUCCESS ||
        written != sizeof flags)
        return false;
    if (flags & (CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F | CUBLASLT_NUMERICAL_IMPL_FLAGS_GAUSSIAN)) return false;
    const bool exact = spec->out[0].dtype == KS_FP32 && !s->tf32;
    return !exact || !(flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK);
}

static bool prefer(size_t workspace_bytes, cublasLtMatmulPreferenceOpaque_t *out)
{
    const uint64_t most = workspace_bytes;
    return lt.MatmulPreferenceInit_internal(out, sizeof *out) == CUBLAS_STATUS_SUCCESS &&
           lt.MatmulPreferenceSetAttribute(out, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most) ==
               CUBLAS_STATUS_SUCCESS &&
           lt.MatmulPreferenceSetAttribute(out, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &REDUCTIONS,
                                           sizeof REDUCTIONS) == CUBLAS_STATUS_SUCCESS;
}

/* Addresses are multiples of KS_ALIGNMENT, which is what the library takes for granted. */
static_assert(KS_ALIGNMENT == 256, "operands are aligned as cuBLASLt's preferences say unless set otherwise");
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(((ks_cublaslt_algorithm *)0)->algorithm),
              "its bytes are kept whole");

int ks_cublaslt_list(const ks_spec *spec, const ks_matmul_shape *s, size_t workspace_bytes, ks_cublaslt_algorithm *out,
                     int most)
{
    problem p;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[KS_CANDIDATES_MAX];
    int found = 0, count = 0;
    const int asked_for = most < (int)KS_CANDIDATES_MAX ? most : (int)KS_CANDIDATES_MAX;
    if (asked_for < 1 || !describe(spec, s, SOMEWHERE, &p) || !prefer(workspace_bytes, &preference)) return 0;
    if (lt.MatmulAlgoGetHeuristic(handle, &p.op, &p.a, &p.b, &p.c, &p.c, &preference, asked_for, results, &found) !=
        CUBLAS_STATUS_SUCCESS)
        found = 0;
    for (int i = 0; i < found; i++) {
        const cublasLtMatmulHeuristicResult_t *result = &results[i];
        if (result->state != CUBLAS_STATUS_SUCCESS || result->workspaceSize > workspace_bytes ||
            !precise(spec, s, &result->algo))
            continue;
        memset(&out[count], 0, sizeof out[count]);
        out[count].workspace_bytes = result->workspaceSize;
        memcpy(out[count].algorithm, &result->algo, sizeof result->algo);
        count++;
    }
    return count;
}

bool ks_cublaslt_check(const ks_spec *spec, const ks_matmul_shape *s, size_t workspace_bytes,
                       const ks_cublaslt_algorithm *chosen)
{
    problem p;
    cublasLtMatmulAlgo_t algorithm;
    cublasLtMatmulHeuristicResult_t result;
    memcpy(&algorithm, chosen->algorithm, sizeof algorithm);
    return describe(spec, s, SOMEWHERE, &p) && precise(spec, s, &algorithm) &&
           lt.MatmulAlgoCheck(handle, &p.op, &p.a, &p.b, &p.c, &p.c, &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= chosen->workspace_bytes && chosen->workspace_bytes <= workspace_bytes;
}

void ks_cublaslt_name(const ks_cublaslt_algorithm *chosen, char *out, size_t cap)
{
    cublasLtMatmulAlgo_t algorithm;
    memcpy(&algorithm, chosen->algorithm, sizeof algorithm);
    snprintf(out, cap, "cublasLt %d: tile %u, stages %u, %d slices, option %u",
             config_of<int32_t>(&algorithm, CUBLASLT_ALGO_CONFIG_ID, -1),
             config_of<uint32_t>(&algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, 0),
             config_of<uint32_t>(&algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID, 0),
             config_of<int32_t>(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 1),
             config_of<uint32_t>(&algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 0));
}

/* --- launching ------------------------------------------------------------------------------------------------------ */

ks_status ks_cublaslt_launch(const ks_spec *spec, const ks_matmul_shape *s, const ks_cublaslt_algorithm *chosen,
                             const ks_cublaslt_job *job, cudaStream_t stream, ks_error *error)
{
    problem p;
    cublasLtMatmulAlgo_t algorithm;
    const uintptr_t in = (uintptr_t)job->in; /* and offsets that may wrap */
    if (!describe(spec, s, (const void *)(in + spec->in[2].offset), &p))
        return ks_fail(error, KS_DEVICE, "matmul: cuBLASLt takes no such product");
    memcpy(&algorithm, chosen->algorithm, sizeof algorithm);
    const float alpha = (float)s->alpha, beta = 0;
    const double wide_alpha = s->alpha, wide_beta = 0;
    void *c = job->out + spec->out[0].offset;
    const cublasStatus_t status =
        lt.Matmul(handle, &p.op, p.single ? (const void *)&alpha : &wide_alpha, (const void *)(in + spec->in[1].offset),
                  &p.a, (const void *)(in + spec->in[0].offset), &p.b, p.single ? (const void *)&beta : &wide_beta, c,
                  &p.c, c, &p.c, &algorithm, job->workspace, chosen->workspace_bytes, stream);
    cudaGetLastError(); /* whatever the library left there: its status says it */
    if (status == CUBLAS_STATUS_SUCCESS) return KS_OK;
    return ks_fail(error, KS_DEVICE, "matmul: cublasLtMatmul says %d", (int)status);
}

#else

bool ks_cublaslt_open(const char *file, char *what, size_t cap)
{
    snprintf(what, cap, "no cuBLASLt in this build");
    return false;
}

int ks_cublaslt_version(void)
{
    return 0;
}

int ks_cublaslt_list(const ks_spec *spec, const ks_matmul_shape *s, size_t workspace_bytes, ks_cublaslt_algorithm *out,
                     int most)
{
    return 0;
}

bool ks_cublaslt_check(const ks_spec *spec, const ks_matmul_shape *s, size_t workspace_bytes,
                       const ks_cublaslt_algorithm *chosen)
{
    return false;
}

void ks_cublaslt_name(const ks_cublaslt_algorithm *chosen, char *out, size_t cap)
{
    snprintf(out, cap, "cublasLt");
}

ks_status ks_cublaslt_launch(const ks_spec *spec, const ks_matmul_shape *s, const ks_cublaslt_algorithm *chosen,
                             const ks_cublaslt_job *job, cudaStream_t stream, ks_error *error)
{
    return ks_fail(error, KS_DEVICE, "no cuBLASLt in this build");
}

#endif
