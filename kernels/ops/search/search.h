/* What every backend knows of search: the places of its parameters, a resolved one in numbers, and the order of scores. */
#ifndef KS_OPS_SEARCH_H
#define KS_OPS_SEARCH_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_SEARCH_K, KS_SEARCH_METRIC, KS_SEARCH_PARAMS };
enum { KS_SEARCH_MOST = 1024 }; /* k */
/* INPUT2, INPUT3 */
enum { KS_SEARCH_BIAS = 2, KS_SEARCH_MASK };

typedef enum ks_search_metric { KS_SEARCH_DOT, KS_SEARCH_L2, KS_SEARCH_COSINE } ks_search_metric;

/* Query i begins at element i * query_pitch of INPUT0, row j of the matrix at element j * pitch of INPUT1. */
typedef struct ks_search_shape {
    int64_t queries, rows, depth, query_pitch, pitch;
    int k;
    ks_search_metric metric;
    ks_dtype dtype;
    bool biased, masked;
} ks_search_shape;

/* The spec is resolved. */
ks_search_shape ks_search_shape_of(const ks_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
