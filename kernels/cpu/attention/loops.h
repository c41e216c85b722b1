/* The loops of attention on the CPU: products of a few rows, and a row's weights. */
#ifndef KS_CPU_ATTENTION_LOOPS_H
#define KS_CPU_ATTENTION_LOOPS_H

#include <stdbool.h>

enum { KS_ATTENTION_KEYS = 64 }; /* of a block, and values of a row of scores */

/* c[r][j] = sum over l of a[r][l] * b[l][j], one after the other, in FP32. b and c have `columns`, a multiple of KS_WIDE, side by side. */
typedef struct ks_attention_product {
    const float *a, *b;
    float *c;
    int a_pitch; /* from row to row of a */
    int rows, columns, depth;
} ks_attention_product;

void ks_attention_multiply(const ks_attention_product *p);

/* to[j][i] = from[i][j] for KS_ATTENTION_KEYS rows of so many values. */
void ks_attention_transpose(const float *from, int depth, float *to);

typedef struct ks_attention_rule {
    float scale, softcap; /* softcap 0: none */
    const float *added;   /* of each key; NULL: none */
} ks_attention_rule;

/* A row of products becomes its scores, -inf where one is not taken. Their largest, NaN passed over. */
float ks_attention_scores(const ks_attention_rule *rule, const unsigned char *taken, float *row);
/* A row of scores becomes its weights, e^(score - reference). Their sum. */
double ks_attention_weights(float reference, float *row);

/* Values that are not finite become 0, where there are any, which is the result. */
bool ks_attention_cleanse(float *values, int count);

/* A block's sums are added to those of all blocks; they become means; means become floats. */
void ks_attention_add(const float *part, int count, double *sums);
void ks_attention_divide(const double *sums, double by, int count, double *to);
void ks_attention_round(const double *values, int count, float *to);

#endif
