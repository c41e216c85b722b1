/* What map.cu and its kernels agree on: where operands lie, and how a kernel finds an operand's element.
 *
 * Kernels work on vectors of the output: as many elements as are 16 bytes of the widest datatype. An operand's elements for one
 * of them are
 *   flat    where the output's are
 *   row     side by side along the innermost axis, and aligned
 *   splat   one element
 *   gather  each somewhere: the innermost axis is not whole vectors
 *   scalar  the parameter a */
#ifndef KS_MAP_SHAPE_CUH
#define KS_MAP_SHAPE_CUH

#include "cuda/common/launch.cuh"
#include "ops/map.h"

enum { MAP_FLAT, MAP_ROW, MAP_SPLAT, MAP_GATHER, MAP_SCALAR };
enum { MAP_THREADS = 256 };

/* In flight in a thread: vectors of an only operand, of each of several, and single elements. */
enum { MAP_ONE_VECTORS = 4, MAP_MORE_VECTORS = 2, MAP_ELEMENTS_AHEAD = 4 };

/* a and b as the kernel computes: float, double, or the bits of an integer. flip: of integers with a sign the sign bit, so that
 * their order is that of unsigned ones after an exclusive-or with it; else 0. */
typedef struct map_numbers {
    double a, b;
    uint64_t whole_a, whole_b, flip;
} map_numbers;

/* By value: what is read of a larger one is fetched line by line. */
typedef struct map_flat_shape {
    size_t offset[2]; /* of the operands in the side, bytes */
    int64_t count, vectors;
    int32_t function, rounds; /* rounds: vectors of a thread */
    bool truths;              /* bytes of BOOL are made 0 and 1 first */
    map_numbers numbers;
} map_flat_shape;

/* n / extent == (n * multiplier >> 64) >> shift for n below 2^63, and (n * narrow >> 32) >> shift below 2^31; multipliers of 0: extent is
 * 1. */
typedef struct map_axis {
    int64_t extent;
    uint64_t multiplier;
    uint32_t narrow;
    int32_t shift;
} map_axis;

typedef struct map_operand {
    size_t offset;
    int32_t kind, dtype;
    int64_t stride[KS_RANK_MAX]; /* elements, by axis; 0: repeats */
} map_operand;

/* Axes outermost first. What every launch looks at stands in front. */
typedef struct map_shape {
    int64_t count, vectors;
    int32_t axes, function, rounds;
    bool truths, narrow;        /* narrow: indices of elements are below 2^31 */
    int32_t operands, from, to; /* elements.cu and cast.cu: how many, their datatype, and the output's */
    map_numbers numbers;
    map_operand operand[KS_MAP_OPERANDS];
    map_axis axis[KS_RANK_MAX];
} map_shape;

/* Which kernel. VECTORS_FLAT and VECTORS: one datatype in and out, or BOOL out. */
enum { MAP_VECTORS_FLAT, MAP_VECTORS, MAP_SELECT, MAP_CAST, MAP_ELEMENTS };

/* What a plan remembers: nothing of it hangs on the number of elements, so that rows of a large request are like the whole. */
typedef struct map_algorithm {
    int32_t kernel;
} map_algorithm;
static_assert(sizeof(map_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

/* All that a launch needs; the launchers of each datatype stand in files of their own, which build side by side. */
typedef struct map_launch {
    int kernel;
    ks_map_work work;
    map_shape shape;
    ks_site site;
    uint32_t grid;
    int threads, bucket;
    cudaStream_t stream;
} map_launch;

cudaError_t map_launch_half(const map_launch &l);
cudaError_t map_launch_bfloat16(const map_launch &l);
cudaError_t map_launch_float(const map_launch &l);
cudaError_t map_launch_double(const map_launch &l);
cudaError_t map_launch_integer(const map_launch &l, size_t element_bytes);
cudaError_t map_launch_select(const map_launch &l, size_t element_bytes);
cudaError_t map_launch_cast(const map_launch &l);
cudaError_t map_launch_elements(const map_launch &l);

/* An axis, and how an operand lies for vectors of so many elements. */
map_axis map_axis_of(int64_t extent);
map_operand map_operand_of(const ks_map_shape *shape, int k, const ks_tensor *in, int elements);

/* Vectors that a thread of a cast keeps in flight. */
int map_cast_rounds(size_t from_bytes, size_t to_bytes);

#ifdef __CUDACC__

static inline map_flat_shape map_flat_shape_of(const map_shape &s)
{
    map_flat_shape f = {};
    for (int k = 0; k < 2; k++) f.offset[k] = s.operand[k].offset;
    f.count = s.count;
    f.vectors = s.vectors;
    f.function = s.function;
    f.rounds = s.rounds;
    f.truths = s.truths;
    f.numbers = s.numbers;
    return f;
}

template <class Kernel, class Shape>
static cudaError_t map_start(Kernel kernel, const map_launch &l, const Shape &shape)
{
    return ks_launch(kernel, dim3(l.grid, (unsigned)l.bucket), l.threads, 0, false, l.stream, l.site, shape);
}

__device__ __forceinline__ int64_t map_quotient(int64_t n, const map_axis &axis)
{
    return axis.multiplier ? (int64_t)(__umul64hi((uint64_t)n, axis.multiplier) >> axis.shift) : n;
}
__device__ __forceinline__ uint32_t map_quotient(uint32_t n, const map_axis &axis)
{
    return axis.narrow ? __umulhi(n, axis.narrow) >> axis.shift : n;
}

/* The operand's first element of the n-th row: of the n-th combination of all axes but the innermost. Index: int64_t, or uint32_t where
 * indices are narrow. */
template <class Index, class Shape>
__device__ __forceinline__ Index map_row_offset(const Shape &s, const map_operand &operand, Index n)
{
    Index offset = 0;
#pragma unroll 1
    for (int d = s.axes - 2; d >= 0; d--) {
        const Index rest = map_quotient(n, s.axis[d]);
        offset += (n - rest * (Index)s.axis[d].extent) * (Index)operand.stride[d];
        n = rest;
    }
    return offset;
}

/* Where an element of the output lies: its row, and its place in that. */
struct map_place {
    int64_t row, column;
};

template <class Shape>
__device__ __forceinline__ map_place map_place_of(const Shape &s, int64_t element)
{
    const map_axis &inner = s.axis[s.axes - 1];
    const int64_t row = map_quotient(element, inner);
    return map_place{row, element - row * inner.extent};
}

/* The operand's element for one of the output. */
template <class Index, class Shape>
__device__ __forceinline__ Index map_offset_as(const Shape &s, const map_operand &operand, Index element)
{
    const map_axis &inner = s.axis[s.axes - 1];
    const Index row = map_quotient(element, inner), column = element - row * (Index)inner.extent;
    return map_row_offset(s, operand, row) + column * (Index)operand.stride[s.axes - 1];
}

template <class Shape>
__device__ __forceinline__ int64_t map_offset(const Shape &s, const map_operand &operand, int64_t element)
{
    return s.narrow ? (int64_t)map_offset_as(s, operand, (uint32_t)element) : map_offset_as(s, operand, element);
}

#endif
#endif
