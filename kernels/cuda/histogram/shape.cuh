/* What the planner of histogram and its kernels agree on. */
#ifndef KS_HISTOGRAM_SHAPE_CUH
#define KS_HISTOGRAM_SHAPE_CUH

#include "cuda/common/launch.cuh"
#include "ops/histogram/histogram.h"

enum {
    HISTOGRAM_LOADS = 4,    /* vectors of a thread in flight */
    HISTOGRAM_COPIES = 512, /* bins, at most, of which warps have counters of their own */
    HISTOGRAM_CLUSTER = 8,  /* CTAs, at most, that meet */
    HISTOGRAM_SMALL = 8192, /* bins, at most, of CTAs that share an SM with others */
    HISTOGRAM_SUM_THREADS = 256
};

/* Of a bin: margins from here on say that FP32 decides nothing. Below it, what is near an edge is far from all others. */
static const float HISTOGRAM_MARGIN = 0.5f;

/* By value to each kernel. */
struct histogram_shape {
    int64_t rows, length;
    uint64_t in, counts, edges_at; /* bytes from a job's sides */
    int64_t part;                  /* vectors of a part of a row */
    int32_t parts, bins,
        copies; /* parts of a row, one for each CTA; copies of the counters in shared memory, a power of two */
    bool meets; /* the parts of a row are a cluster */
    bool
        exact; /* min, max and a bin's width are FP32's, and the width is a power of two: multiplying by its inverse loses nothing */
    bool ranged, edges;
    double min, max, width, scale; /* scale: bins over the range */
    float near_min, near_scale;    /* the same in FP32 */
    float margin;                  /* what is further from the next edge, in bins, is in the bin that FP32 says */
    uint64_t sign;                 /* the sign bit of signed integers */
};

#endif
