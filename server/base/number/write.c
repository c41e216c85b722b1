/* Elements to text: whole numbers here, FP32 in singles.c, FP64 in floats.c. */
#include <assert.h>

#include "base/number/digits.h"
#include "ops/numbers/fp8.h"

KS_INLINE char *whole_element(char *out, const char *at, size_t size, ks_kind kind)
{
    if (kind == KS_KIND_BOOL) return *at ? ks_put_word(out, "true", 4) : ks_put_word(out, "false", 5);
    uint64_t bits = 0;
    memcpy(&bits, at, size);
    if (kind == KS_KIND_UINT) return ks_put_unsigned(out, bits);
    const size_t unused = 64 - 8 * size;
    const int64_t value = (int64_t)(bits << unused) >> unused;
    *out = '-';
    return ks_put_unsigned(out + (value < 0), value < 0 ? -(uint64_t)value : (uint64_t)value);
}

/* size and kind are constants where it is called, so that each datatype has a loop of its own. */
KS_INLINE size_t wholes(const char *at, size_t n, size_t size, ks_kind kind, char *out)
{
    char *p = out;
    for (size_t i = 0; i < n; i++, at += size) {
        *p = ',';
        p = whole_element(p + (i > 0), at, size, kind);
    }
    return (size_t)(p - out);
}

/* FP8, as the FP32 of the same value. */
static size_t bytes(const unsigned char *at, size_t n, ks_fp8_layout form, char *out, int *non_finite)
{
    enum { BLOCK = 64 };
    float block[BLOCK];
    char *p = out;
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t count = n - i < BLOCK ? n - i : BLOCK;
        for (size_t j = 0; j < count; j++) block[j] = ks_fp8_to_float(form, at[i + j]);
        *p = ',';
        p += i > 0;
        p += ks_singles_write(block, count, p, non_finite);
    }
    return (size_t)(p - out);
}

size_t ks_numbers_write(const void *elements, size_t n, ks_dtype dtype, char *out, int *non_finite)
{
    switch (dtype) {
#define X(name, size, kind)                                                                                            \
    case KS_##name:                                                                                                    \
        if (kind == KS_KIND_FLOAT || kind == KS_KIND_BYTES) break;                                                     \
        return wholes(elements, n, size, kind, out);
        KS_DTYPE_TABLE(X)
#undef X
    default:
        break;
    }
    if (dtype == KS_FP32) return ks_singles_write(elements, n, out, non_finite);
    if (ks_is_fp8(dtype)) return bytes(elements, n, ks_fp8_layout_of(dtype), out, non_finite);
    assert(dtype == KS_FP64 && "FP16, BF16 and BYTES are refused before anything is printed");
    return ks_doubles_write(elements, n, out, non_finite);
}

size_t ks_number_write(const void *element, ks_dtype dtype, char *out)
{
    int ignored = 0;
    return ks_numbers_write(element, 1, dtype, out, &ignored);
}

size_t ks_double_write(double value, char *out)
{
    return ks_number_write(&value, KS_FP64, out);
}
