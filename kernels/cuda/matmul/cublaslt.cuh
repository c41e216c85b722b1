/* cuBLASLt's kernels for a matmul: the one door to the library, which is opened at run time.
 *
 * Which     products that it computes as ours are documented: sums in FP32 (FP64 for FP64), tensor cores for FP32 only
 *           where TF32 was asked for, partial sums kept in that precision and added in a fixed order, one rounding; at
 *           most one batch dimension, which may be broadcast. No activation: its relu does not promise to keep NaN,
 *           its gelu is the one with tanh. No bias of 16-bit types, before which it may round.
 * How       row-major C = A B is its column-major C^T = B^T A^T, so operands are swapped and nothing is copied.
 * Failures  whatever status a call returns: the algorithm is not listed, is refused, or its launch says KS_DEVICE; the
 *           caller has kernels of its own. A build without the library's headers, and a host without the library, list
 *           nothing.
 * Threads   any; one handle for all, fixed after open, kept until the process ends. */
#ifndef KS_CUBLASLT_CUH
#define KS_CUBLASLT_CUH

#include <cuda_runtime.h>

#include "kernserve/backend.h"
#include "ops/matmul.h"

/* Where one job lies: its sides, to which the spec's offsets are added, and its workspace. */
typedef struct ks_cublaslt_job {
    const unsigned char *in;
    unsigned char *out;
    void *workspace;
} ks_cublaslt_job;

/* One of its algorithms for one problem; plain bytes, good for the same version of the library. */
typedef struct ks_cublaslt_algorithm {
    uint64_t workspace_bytes;
    uint64_t algorithm[8]; /* cublasLtMatmulAlgo_t */
} ks_cublaslt_algorithm;

/* The current device's, the first time; later calls only report. file: "auto", by the name that the toolkit of this build
 * knows it by. *what: such as "cuBLASLt 13.1.0", or why there is none. */
bool ks_cublaslt_open(const char *file, char *what, size_t cap);
int ks_cublaslt_version(void); /* such as 130100; 0: it is not open */

/* By the library's own guess of their speed, the fastest first; at most `most`. workspace_bytes: that an algorithm may need.
 */
int ks_cublaslt_list(const ks_spec *spec, const ks_matmul_shape *s, size_t workspace_bytes, ks_cublaslt_algorithm *out,
                     int most);
/* Whether bytes of any origin are such an algorithm, here and now. */
bool ks_cublaslt_check(const ks_spec *spec, const ks_matmul_shape *s, size_t workspace_bytes,
                       const ks_cublaslt_algorithm *algorithm);
void ks_cublaslt_name(const ks_cublaslt_algorithm *algorithm, char *out, size_t cap);
/* Allocates nothing; may be captured. */
ks_status ks_cublaslt_launch(const ks_spec *spec, const ks_matmul_shape *s, const ks_cublaslt_algorithm *algorithm,
                             const ks_cublaslt_job *job, cudaStream_t stream, ks_error *error);

#endif
