/* What every backend knows of histogram: the places of its parameters, a resolved one as rows, and where its bins begin. */
#ifndef KS_OPS_HISTOGRAM_H
#define KS_OPS_HISTOGRAM_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KS_HISTOGRAM_BINS,
    KS_HISTOGRAM_MIN,
    KS_HISTOGRAM_MAX,
    KS_HISTOGRAM_AXIS,
    KS_HISTOGRAM_EDGES,
    KS_HISTOGRAM_PARAMS
};
enum { KS_HISTOGRAM_BINS_MOST = 1 << 20 };

/* `rows` runs of `length` elements, one behind the other; the bins of row r are those from r * bins on of OUTPUT0. */
typedef struct ks_histogram_shape {
    int64_t rows, length;
    int bins;
    bool ranged;     /* bins lie between min and max; else an integer is the number of its bin */
    double min, max; /* ranged */
    bool edges;
    ks_dtype dtype;
} ks_histogram_shape;

/* The spec is resolved. */
ks_histogram_shape ks_histogram_shape_of(const ks_spec *spec);
/* (max - min) / bins */
double ks_histogram_width(const ks_histogram_shape *shape);

#ifdef __cplusplus
}
#endif
#endif
