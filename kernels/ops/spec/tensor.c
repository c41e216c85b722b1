#include "kernserve/tensor.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name;
    size_t name_length, size;
    ks_kind kind;
} dtypes[KS_DTYPE_COUNT] = {
#define X(name, size, kind) {#name, sizeof #name - 1, size, kind},
    KS_DTYPE_TABLE(X)
#undef X
};

size_t ks_dtype_size(ks_dtype dtype)
{
    return dtypes[dtype].size;
}

ks_kind ks_dtype_kind(ks_dtype dtype)
{
    return dtypes[dtype].kind;
}

const char *ks_dtype_name(ks_dtype dtype)
{
    return dtypes[dtype].name;
}

bool ks_dtype_find(const char *name, size_t length, ks_dtype *out)
{
    for (int i = 0; i < KS_DTYPE_COUNT; i++) {
        if (dtypes[i].name_length == length && memcmp(dtypes[i].name, name, length) == 0) {
            *out = (ks_dtype)i;
            return true;
        }
    }
    return false;
}

int64_t ks_dims_product(const int64_t *dims, int from, int to)
{
    int64_t product = 1;
    for (int i = from; i < to; i++) product *= dims[i];
    return product;
}

int64_t ks_tensor_count(const ks_tensor *tensor)
{
    return ks_dims_product(tensor->dims, 0, tensor->rank);
}

ks_status ks_tensor_measure(ks_tensor *tensor, const char *what, ks_error *error)
{
    /* A zero makes the tensor empty whatever its other dimensions are, but those must not overflow either: later code
     * multiplies parts of a shape. */
    int64_t product = 1, count = 1;
    for (int i = 0; i < tensor->rank; i++) {
        const int64_t dim = tensor->dims[i];
        if (dim < 0)
            return ks_fail(error, KS_SHAPE, "Unable to parse 'shape': %s has the negative dimension %" PRId64, what,
                           dim);
        if (__builtin_mul_overflow(product, dim > 0 ? dim : 1, &product))
            return ks_fail(error, KS_SHAPE, "shape of %s causes total element count to exceed maximum size of %" PRId64,
                           what, INT64_MAX);
        if (dim == 0) count = 0;
    }
    int64_t bytes;
    if (__builtin_mul_overflow(product, (int64_t)ks_dtype_size(tensor->dtype), &bytes))
        return ks_fail(error, KS_SHAPE, "byte size overflow for %s '%s'",
                       strncmp(what, "OUTPUT", 6) == 0 ? "output" : "input", what);
    tensor->size_bytes = count == 0 ? 0 : (size_t)bytes;
    return KS_OK;
}

size_t ks_align(size_t bytes)
{
    if (bytes > SIZE_MAX - KS_ALIGNMENT) return SIZE_MAX / KS_ALIGNMENT * KS_ALIGNMENT;
    return (bytes + KS_ALIGNMENT - 1) / KS_ALIGNMENT * KS_ALIGNMENT;
}

size_t ks_dims_text(const ks_tensor *tensor, char *out, size_t cap)
{
    size_t length = 0;
    for (int i = 0; i < tensor->rank; i++) {
        char digits[20];
        size_t n = 0;
        for (uint64_t left = (uint64_t)tensor->dims[i]; n == 0 || left > 0; left /= 10)
            digits[n++] = (char)('0' + left % 10);
        if (i > 0 && length + 1 < cap) out[length++] = ',';
        while (n > 0 && length + 1 < cap) out[length++] = digits[--n];
    }
    if (cap > 0) out[length] = 0;
    return length;
}
