/* What the softmax kernels share: the shape they get, and how an element becomes a result. */
#ifndef KS_SOFTMAX_COMMON_CUH
#define KS_SOFTMAX_COMMON_CUH

#include "launch.cuh"
#include "warp.cuh"

#include <math.h>

static constexpr int THREADS = 256, HELD_VECTORS = 8, WIDE_VECTORS = 4, PARTS_MAX = THREADS, COLUMN_LOADS = 4;

struct softmax_shape {
    int64_t rows, length, inner; /* rows: of the outer dimensions only where inner > 1 */
    size_t offset;               /* of the input in its side, bytes */
    double half, factor, twice_scale;
    int log;
};

/* What turns an element into a result. */
template <class M>
struct softmax_finish {
    M reference, tail, factor, twice_scale;
    int log;

    __device__ __forceinline__ softmax_finish(const softmax_shape &s, M h, double sum)
        : reference(ks_reference(h)), factor((M)s.factor), twice_scale((M)s.twice_scale), log(s.log)
    {
        /* A row with an infinite maximum has no probabilities. */
        tail = isinf(h) ? (M)NAN : (M)(log ? ::log(sum) : 1.0 / sum);
    }
    __device__ __forceinline__ M operator()(M h) const
    {
        const M d = h - reference;
        return log ? d * twice_scale - tail : ks_exp2(d * factor) * tail;
    }
};

#endif
