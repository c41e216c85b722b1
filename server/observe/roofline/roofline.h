/* How far work is from what its device can do at best: the roofline of a plan. Pure arithmetic; any thread. */
#ifndef KS_ROOFLINE_H
#define KS_ROOFLINE_H
#include <stdbool.h>
#include <stddef.h>

/* What a device can do at best. source: how it was measured; NULL: not known, and the value is 0. */
typedef struct ks_ceiling {
    double value;
    const char *source;
} ks_ceiling;

typedef struct ks_ceilings {
    ks_ceiling copy_gbs, read_gbs; /* of the memory that kernels work on, beyond its caches */
    ks_ceiling h2d_gbs, d2h_gbs;   /* of the link */
    ks_ceiling launch_us;
    ks_ceiling tflops;  /* of the work's datatype */
    double cache_bytes; /* that may be found in caches when work begins */
} ks_ceilings;

/* A job's share of a plan. */
typedef struct ks_work {
    double in_bytes, out_bytes, flops;
    bool link; /* kernels reach its memory over the link */
} ks_work;

#define KS_BOUND_TABLE(X) X(LAUNCH, "launch") X(MEMORY, "memory") X(LINK, "link") X(COMPUTE, "compute")
typedef enum ks_bound {
    KS_BOUND_UNKNOWN,
#define X(name, word) KS_BOUND_##name,
    KS_BOUND_TABLE(X)
#undef X
} ks_bound;
const char *ks_bound_name(ks_bound bound); /* NULL: unknown */

typedef struct ks_roofline {
    double us;      /* the largest of the lower bounds of memory, link and compute that are known; 0: none is */
    ks_bound bound; /* which one that is, or a launch that takes longer than all of them */
} ks_roofline;

ks_roofline ks_roofline_of(const ks_work *work, const ks_ceilings *ceilings);
#endif
