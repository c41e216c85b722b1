/* What the planner of quantize and dequantize and their kernels agree on. */
#ifndef KS_QUANTIZE_PLAN_H
#define KS_QUANTIZE_PLAN_H

#include "cuda/common/divide.cuh"
#include "cuda/op.h"
#include "ops/quantize/quantize.h"

enum {
    QUANTIZE_THREADS = 256, /* of a CTA, but of one with a row of its own, which has at most the next number */
    QUANTIZE_ROW_THREADS = 512,
    QUANTIZE_FLIGHT = 4, /* vectors of a thread in flight */
    QUANTIZE_HELD = 4    /* vectors of a row that a thread keeps: it is read once */
};

/* How the scales come about. */
typedef enum quantize_family {
    QUANTIZE_ROWS,    /* of each row, by the threads that have it */
    QUANTIZE_LONG,    /* of each row in parts, then of them all */
    QUANTIZE_TENSOR,  /* of parts, then of them all */
    QUANTIZE_COLUMNS, /* of each column in parts of the rows, then of them all */
    QUANTIZE_GIVEN    /* they are INPUT1; also of dequantize */
} quantize_family;

/* Which scale an element has. */
typedef enum quantize_index {
    QUANTIZE_BY_TENSOR,
    QUANTIZE_BY_ROW,    /* a vector lies in one row */
    QUANTIZE_BY_COLUMN, /* likewise */
    QUANTIZE_BY_ANY_ROW,
    QUANTIZE_BY_ANY_COLUMN
} quantize_index;

/* By value to each kernel. */
struct quantize_shape {
    int64_t rows, columns, count, scales;
    uint64_t in, out, given_at, scales_at; /* bytes from a job's sides */
    int64_t part;                          /* of columns the rows, of a long row the vectors of a part */
    int32_t parts;                         /* of a tensor, of a column, of a long row */
    int32_t width;                         /* threads of a row */
    int32_t from, to;                      /* ks_dtype */
    float most;
    bool given;
    ks_divider by_columns;
};

/* What a plan remembers. No bit of an answer follows from it. */
struct quantize_algorithm {
    uint8_t family, index;
    int16_t threads, width;
    int32_t grid, parts;
    int64_t part;
};
static_assert(sizeof(quantize_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

struct quantize_launch {
    quantize_algorithm c;
    quantize_shape s;
    ks_site site;
    int bucket;
    cudaStream_t stream;
};

static inline cudaError_t quantize_start(const quantize_launch &go, void (*kernel)(ks_site, quantize_shape), int grid,
                                         int threads)
{
    return ks_launch(kernel, dim3((unsigned)grid, (unsigned)go.bucket), threads, 0, false, go.stream, go.site, go.s);
}

/* plan.cu. ks_cuda_setup_fn: no kernel here needs more shared memory than every CTA has. */
ks_status quantize_setup(ks_chip *chip, ks_error *error);
/* ks_cuda_plan_fn */
ks_status quantize_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
/* What a ks_cuda_launch_fn is given. */
quantize_launch quantize_launch_of(const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                                   cudaStream_t stream);
/* What a ks_cuda_launch_fn returns. */
ks_status quantize_launched(const ks_spec *spec, cudaError_t status, ks_error *error);

#endif
