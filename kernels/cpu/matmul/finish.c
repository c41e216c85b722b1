/* What stands behind a product of oneDNN's: bias, activation and residual, a row at a time while it is in the cache.
 *
 * Interface finish.h
 * Numbers   the sum with the bias is rounded to FP32, then the activation is that of cpu/unary.h, and the residual is added to
 *           its result: the bits of `map` asked by itself.
 * Threads   any: no memory. */
#include "cpu/matmul/finish.h"
#include "cpu/unary.h"

KS_CLONES static void add(const float *restrict from, float *restrict row, size_t count)
{
    for (size_t i = 0; i < count; i++) row[i] += from[i];
}

/* Sixteen at once; the last ones in a vector that zeros fill up. */
#define ACTIVATE(name, function)                                                                                       \
    KS_CLONES static void name(float *row, size_t count)                                                               \
    {                                                                                                                  \
        size_t i = 0;                                                                                                  \
        for (; i + KS_WIDE <= count; i += KS_WIDE) *(ks_wide *)(row + i) = function(KS_WIDE_AT(row + i));              \
        if (i == count) return;                                                                                        \
        float last[KS_WIDE] = {0};                                                                                     \
        memcpy(last, row + i, (count - i) * sizeof *row);                                                              \
        *(ks_wide *)last = function(KS_WIDE_AT(last));                                                                 \
        memcpy(row + i, last, (count - i) * sizeof *row);                                                              \
    }
ACTIVATE(relu, ks_wide_relu)
ACTIVATE(gelu, ks_wide_gelu)
ACTIVATE(silu, ks_wide_silu)

void ks_matmul_finish(const ks_matmul_shape *s, const float *bias, const float *residual, float *out)
{
    static void (*const activate[])(float *, size_t) = {
        [KS_MATMUL_NONE] = NULL, [KS_MATMUL_RELU] = relu, [KS_MATMUL_GELU] = gelu, [KS_MATMUL_SILU] = silu};
    const size_t columns = (size_t)s->n;
    if (!s->biased && !activate[s->activation] && !s->residual) return;
    for (int64_t row = 0; row < s->batch * s->m; row++, out += columns) {
        if (s->biased) add(bias, out, columns);
        if (activate[s->activation]) activate[s->activation](out, columns);
        if (s->residual) add(residual + (size_t)row * columns, out, columns);
    }
}
