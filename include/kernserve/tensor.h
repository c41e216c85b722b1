/* Datatypes and tensor views. A ks_tensor never owns memory: it says where in a slot's side a tensor lies. */
#ifndef KERNSERVE_TENSOR_H
#define KERNSERVE_TENSOR_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include "kernserve/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, bytes per element, kind) ; names as in the Open Inference Protocol, and FP8 as safetensors and GPUs
 * have it; all little-endian, packed */
#define KS_DTYPE_TABLE(X)                                                                                              \
    X(BOOL, 1, KS_KIND_BOOL)                                                                                           \
    X(UINT8, 1, KS_KIND_UINT)                                                                                          \
    X(UINT16, 2, KS_KIND_UINT)                                                                                         \
    X(UINT32, 4, KS_KIND_UINT)                                                                                         \
    X(UINT64, 8, KS_KIND_UINT)                                                                                         \
    X(INT8, 1, KS_KIND_INT)                                                                                            \
    X(INT16, 2, KS_KIND_INT)                                                                                           \
    X(INT32, 4, KS_KIND_INT)                                                                                           \
    X(INT64, 8, KS_KIND_INT)                                                                                           \
    X(FP8E4M3, 1, KS_KIND_FLOAT)                                                                                       \
    X(FP8E5M2, 1, KS_KIND_FLOAT)                                                                                       \
    X(FP16, 2, KS_KIND_FLOAT)                                                                                          \
    X(BF16, 2, KS_KIND_FLOAT)                                                                                          \
    X(FP32, 4, KS_KIND_FLOAT)                                                                                          \
    X(FP64, 8, KS_KIND_FLOAT)                                                                                          \
    X(BYTES, 0, KS_KIND_BYTES)

typedef enum ks_kind { KS_KIND_BOOL, KS_KIND_UINT, KS_KIND_INT, KS_KIND_FLOAT, KS_KIND_BYTES } ks_kind;

typedef enum ks_dtype {
#define X(name, size, kind) KS_##name,
    KS_DTYPE_TABLE(X)
#undef X
        KS_DTYPE_COUNT
} ks_dtype;

#define KS_DTYPE_BIT(dtype) (1u << (dtype))

enum { KS_RANK_MAX = 8, KS_ALIGNMENT = 256 };

typedef struct ks_tensor {
    ks_dtype dtype;
    int rank;                  /* 0 (a scalar) .. KS_RANK_MAX */
    int64_t dims[KS_RANK_MAX]; /* row major; unused ones are 0 */
    size_t offset;             /* bytes from the start of the slot's side; a multiple of KS_ALIGNMENT */
    const void *fixed; /* or where it lies whatever the slot, as kernels see it: a resident tensor; NULL: in the slot */
    size_t size_bytes; /* product(dims) * element size */
    int64_t
        pitch; /* of a fixed one: elements from one row, of the last dimension, to the next, and zeros between; 0: as many as a row has */
} ks_tensor;

size_t ks_dtype_size(ks_dtype dtype);
ks_kind ks_dtype_kind(ks_dtype dtype);
const char *ks_dtype_name(ks_dtype dtype);
/* false where the exact, upper-case name is not in the table. name need not be terminated. */
bool ks_dtype_find(const char *name, size_t length, ks_dtype *out);

/* Product of dims[from..to); dims of a ks_tensor that passed ks_tensor_measure cannot overflow. Empty range: 1. */
int64_t ks_dims_product(const int64_t *dims, int from, int to);
int64_t ks_tensor_count(const ks_tensor *tensor);

/* Sets size_bytes from dtype and dims, checked. KS_SHAPE: a negative dimension, or the product of the dimensions or its
 * bytes exceed 2^63-1. `what` names the tensor in the sentence. */
ks_status ks_tensor_measure(ks_tensor *tensor, const char *what, ks_error *error);

/* Rounds up to KS_ALIGNMENT, saturating at SIZE_MAX rounded down. */
size_t ks_align(size_t bytes);

/* "2,3" into the caller's buffer (no brackets); returns the length. */
size_t ks_dims_text(const ks_tensor *tensor, char *out, size_t cap);

#ifdef __cplusplus
}
#endif
#endif
