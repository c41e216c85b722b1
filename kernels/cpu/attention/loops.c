/* The loops of attention on the CPU.
 *
 * Owns     nothing.
 * Interface loops.h.
 * Threads  any.
 * Limits   a sum's terms come in one order whatever the number of rows beside it, so that a row has the bits that it has alone. */
#include "cpu/attention/loops.h"
#include "cpu/unary.h"

#include <float.h>
#include <stddef.h>

enum { TILE = 4 }; /* rows whose sums are in registers */

/* Sums of `rows` rows from r on by `vectors` vectors from column j on; both are constants where it is inlined. */
KS_INLINE void tile(const ks_attention_product *p, int r, int j, int rows, int vectors)
{
    const ptrdiff_t columns = p->columns, pitch = p->a_pitch, depth = p->depth; /* no sign to extend in the loop */
    const float *const a = p->a + r * pitch, *b = p->b + j;
    float *const c = p->c + r * columns + j;
    ks_wide sum[TILE][2];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) sum[i][v] = (ks_wide){0};
    for (ptrdiff_t l = 0; l < depth; l++, b += columns) {
        ks_wide line[2];
        for (int v = 0; v < vectors; v++) line[v] = KS_WIDE_AT(b + v * KS_WIDE);
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < vectors; v++) sum[i][v] += a[i * pitch + l] * line[v];
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) *(ks_wide *)(c + i * columns + v * KS_WIDE) = sum[i][v];
}

KS_INLINE void all_rows(const ks_attention_product *p, int j, int vectors)
{
    int r = 0;
    for (; r + TILE <= p->rows; r += TILE) tile(p, r, j, TILE, vectors);
    for (; r < p->rows; r++) tile(p, r, j, 1, vectors);
}

KS_CLONES void ks_attention_multiply(const ks_attention_product *p)
{
    int j = 0;
    for (; j + 2 * KS_WIDE <= p->columns; j += 2 * KS_WIDE) all_rows(p, j, 2);
    if (j < p->columns) all_rows(p, j, 1);
}

/* Four rows of four: a load and a store for each, instead of four of single values. */
typedef float four __attribute__((vector_size(16), aligned(4)));

KS_INLINE void transpose_fours(const float *from, int depth, float *to)
{
    const four a = *(const four *)from, b = *(const four *)(from + depth), c = *(const four *)(from + 2 * depth),
               d = *(const four *)(from + 3 * depth);
    const four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5),
               ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(four *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(four *)(to + KS_ATTENTION_KEYS) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *(four *)(to + 2 * KS_ATTENTION_KEYS) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
    *(four *)(to + 3 * KS_ATTENTION_KEYS) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
}

KS_CLONES void ks_attention_transpose(const float *from, int depth, float *to)
{
    int j = 0;
    for (; j + 4 <= depth; j += 4)
        for (int i = 0; i < KS_ATTENTION_KEYS; i += 4)
            transpose_fours(from + i * depth + j, depth, to + j * KS_ATTENTION_KEYS + i);
    for (; j < depth; j++)
        for (int i = 0; i < KS_ATTENTION_KEYS; i++) to[j * KS_ATTENTION_KEYS + i] = from[i * depth + j];
}

KS_CLONES float ks_attention_scores(const ks_attention_rule *rule, const unsigned char *taken, float *row)
{
    ks_wide most = KS_SPREAD(-(float)INFINITY);
    for (int j = 0; j < KS_ATTENTION_KEYS; j += KS_WIDE) {
        ks_wide z = KS_WIDE_AT(row + j) * rule->scale;
        ks_wide_mask there;
        if (rule->softcap > 0) z = ks_wide_tanh(z / rule->softcap) * rule->softcap;
        if (rule->added) z += KS_WIDE_AT(rule->added + j);
        for (int i = 0; i < KS_WIDE; i++) there[i] = -(int32_t)taken[j + i];
        z = ks_wide_choose(there, z, KS_SPREAD(-(float)INFINITY));
        most = ks_wide_max(z, most);
        *(ks_wide *)(row + j) = z;
    }
    float best = most[0];
    for (int i = 1; i < KS_WIDE; i++) best = most[i] > best ? most[i] : best;
    return best;
}

KS_CLONES double ks_attention_weights(float reference, float *row)
{
    ks_wide sum = {0};
    double total = 0;
    for (int j = 0; j < KS_ATTENTION_KEYS; j += KS_WIDE) {
        const ks_wide weight = ks_wide_exp2((KS_WIDE_AT(row + j) - reference) * (float)KS_LOG2_E);
        *(ks_wide *)(row + j) = weight;
        sum += weight;
    }
    for (int i = 0; i < KS_WIDE; i++) total += (double)sum[i];
    return total;
}

KS_CLONES bool ks_attention_cleanse(float *values, int count)
{
    int found = 0;
    for (int i = 0; i < count; i++) found |= !(fabsf(values[i]) <= FLT_MAX);
    if (!found) return false;
    for (int i = 0; i < count; i++) values[i] = fabsf(values[i]) <= FLT_MAX ? values[i] : 0;
    return true;
}

KS_CLONES void ks_attention_add(const float *part, int count, double *sums)
{
    for (int i = 0; i < count; i++) sums[i] += (double)part[i];
}

KS_CLONES void ks_attention_divide(const double *sums, double by, int count, double *to)
{
    for (int i = 0; i < count; i++) to[i] = sums[i] / by + 0.0; /* never -0 */
}

KS_CLONES void ks_attention_round(const double *values, int count, float *to)
{
    for (int i = 0; i < count; i++) to[i] = (float)values[i];
}
