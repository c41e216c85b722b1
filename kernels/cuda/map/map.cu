/* map on the GPU: which kernel, and how the work is cut; then the launch.
 *
 *   vectors   operands of one datatype, the output of the same or BOOL: by vectors of 16 bytes; flat, or broadcast
 *   select    where, by the size of the elements
 *   cast      from one datatype to another
 *   elements  all else, element by element: an output of another datatype, FP8, integers through functions of real numbers */
#include "cuda/op.h"
#include "cuda/map/shape.cuh"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    AGAIN_MAX = 32 << 10, /* bytes that a launch on mapped slots may read over the link once more */
    CTAS_ENOUGH = 10      /* of an SM: threads have no more vectors than it takes to stay below that */
};

static int64_t quotient_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* --- choosing -------------------------------------------------------------------------------------------------------- */

/* The work, how its operands lie, and by which kernel. */
typedef struct map_plan {
    ks_map_work work;
    ks_map_shape shape;
    int kernel;
    bool flat; /* every operand lies as the output does */
} map_plan;

static int kernel_of(const ks_map_work *w, bool flat)
{
    const bool is_fp8 = w->dtype == KS_FP8E4M3 || w->dtype == KS_FP8E5M2;
    if (w->function == KS_MAP_CAST) return MAP_CAST;
    if (w->function == KS_MAP_WHERE) return w->out == w->dtype ? MAP_SELECT : MAP_ELEMENTS;
    if (w->out != (w->truth ? KS_BOOL : w->dtype) || is_fp8) return MAP_ELEMENTS;
    if (w->math == KS_MAP_DOUBLE && w->dtype != KS_FP64) return MAP_ELEMENTS;
    return flat && w->operands < 3 ? MAP_VECTORS_FLAT : MAP_VECTORS;
}

/* A copy is one of integers, whatever the elements mean. */
static void copy_bits(ks_map_work *w)
{
    static const ks_dtype of_size[] = {KS_UINT8, KS_UINT16, KS_UINT32, KS_UINT64};
    if (w->function != KS_MAP_CAST || w->dtype != w->out || w->dtype == KS_BOOL) return;
    w->dtype = w->out = of_size[__builtin_ctzll(ks_dtype_size(w->dtype))];
    w->math = KS_MAP_INTEGER;
}

static map_plan plan_of(const ks_spec *spec)
{
    map_plan p = {};
    p.work = ks_map_work_of(spec);
    p.shape = ks_map_shape_of(spec, &p.work);
    copy_bits(&p.work);
    p.flat = true;
    for (int k = 0; k < p.work.operands; k++) p.flat = p.flat && p.shape.flat[k];
    p.kernel = kernel_of(&p.work, p.flat);
    return p;
}

/* Elements of a vector. */
static int elements_of(const map_plan *p)
{
    const int in = (int)ks_dtype_size(p->work.dtype), out = (int)ks_dtype_size(p->work.out);
    if (p->kernel == MAP_ELEMENTS) return 1;
    return 16 / (p->kernel == MAP_CAST && out > in ? out : in);
}

/* Vectors that a thread may have. */
static int rounds_of(const map_plan *p)
{
    if (p->kernel == MAP_ELEMENTS) return MAP_ELEMENTS_AHEAD;
    if (p->kernel == MAP_CAST) return map_cast_rounds(ks_dtype_size(p->work.dtype), ks_dtype_size(p->work.out));
    return p->work.operands == 1 ? MAP_ONE_VECTORS : MAP_MORE_VECTORS;
}

/* Little work is spread over all SMs, a vector a thread: a thread computes its vectors one after the other. */
static void cut(const ks_chip *chip, const map_plan *p, map_launch *l)
{
    const int most = rounds_of(p);
    const int64_t vectors = quotient_up(p->shape.count, elements_of(p)), ctas = quotient_up(vectors, MAP_THREADS);
    int rounds = p->kernel == MAP_ELEMENTS ? most : 1;
    while (rounds < most && quotient_up(ctas, rounds) > (int64_t)chip->sms * CTAS_ENOUGH) rounds++;
    l->shape.vectors = vectors;
    l->shape.rounds = rounds;
    l->threads = vectors < MAP_THREADS ? (int)quotient_up(vectors, 32) * 32 : MAP_THREADS;
    l->grid = (uint32_t)quotient_up(vectors, (int64_t)l->threads * l->shape.rounds);
}

/* --- the shape ------------------------------------------------------------------------------------------------------- */

map_axis map_axis_of(int64_t extent)
{
    map_axis axis = {};
    axis.extent = extent;
    if (extent < 2) return axis;
    while ((int64_t)1 << axis.shift < extent) axis.shift++;
    axis.shift--;
    const unsigned __int128 power = (unsigned __int128)1 << (64 + axis.shift);
    axis.multiplier = (uint64_t)((power + (uint64_t)extent - 1) / (uint64_t)extent);
    if (extent <= INT32_MAX)
        axis.narrow = (uint32_t)((((uint64_t)1 << (32 + axis.shift)) + (uint64_t)extent - 1) / (uint64_t)extent);
    return axis;
}

map_operand map_operand_of(const ks_map_shape *s, int k, const ks_tensor *in, int elements)
{
    const int last = s->rank - 1;
    map_operand operand = {};
    operand.offset = in->offset;
    operand.dtype = in->dtype;
    bool repeats = true;
    for (int d = 0; d < s->rank; d++) {
        operand.stride[d] = s->stride[k][d];
        repeats = repeats && s->stride[k][d] == 0;
    }
    const bool whole = s->dims[last] % elements == 0;
    operand.kind = s->flat[k]           ? MAP_FLAT
                   : repeats            ? MAP_SPLAT
                   : !whole             ? MAP_GATHER
                   : s->stride[k][last] ? MAP_ROW
                                        : MAP_SPLAT;
    return operand;
}

static map_operand operand_of(const ks_spec *spec, const map_plan *p, int k)
{
    const int input = p->work.input[k];
    map_operand operand = {};
    operand.kind = MAP_SCALAR;
    operand.dtype = p->work.dtype;
    if (input < 0) return operand;
    operand = map_operand_of(&p->shape, k, &spec->in[input], elements_of(p));
    if (p->kernel == MAP_CAST) operand.dtype = p->work.dtype;
    return operand;
}

/* The bits of a whole number, as many as the datatype has. */
static uint64_t bits_of(double value, int width)
{
    const uint64_t bits = (uint64_t)(int64_t)value;
    return width == 64 ? bits : bits & (((uint64_t)1 << width) - 1);
}

/* An open side of clamp is the datatype's own end. */
static map_numbers numbers_of(const ks_map_work *w)
{
    const int width = 8 * (int)ks_dtype_size(w->dtype);
    map_numbers n = {};
    n.a = w->a;
    n.b = w->b;
    if (w->math != KS_MAP_INTEGER) return n;
    if (ks_dtype_kind(w->dtype) == KS_KIND_INT) n.flip = (uint64_t)1 << (width - 1);
    const uint64_t all = width == 64 ? ~(uint64_t)0 : ((uint64_t)1 << width) - 1;
    n.whole_a = isinf(w->a) ? n.flip : bits_of(w->a, width);
    n.whole_b = isinf(w->b) ? all ^ n.flip : bits_of(w->b, width);
    return n;
}

static map_shape shape_of(const ks_spec *spec, const map_plan *p)
{
    map_shape s = {};
    s.count = p->shape.count;
    s.axes = p->shape.rank;
    for (int d = 0; d < s.axes; d++) s.axis[d] = map_axis_of(p->shape.dims[d]);
    s.function = p->work.function;
    s.operands = p->work.operands;
    for (int k = 0; k < s.operands; k++) s.operand[k] = operand_of(spec, p, k);
    s.truths = p->work.dtype == KS_BOOL;
    s.narrow = s.count <= INT32_MAX;
    s.from = p->work.dtype;
    s.to = p->work.out;
    s.numbers = numbers_of(&p->work);
    return s;
}

/* --- planning -------------------------------------------------------------------------------------------------------- */

/* Bytes that are read more than once, as far as a cache does not keep them. */
static int64_t read_again(const ks_spec *spec, const map_plan *p)
{
    int64_t bytes = 0;
    unsigned seen = 0;
    for (int k = 0; k < p->work.operands; k++) {
        const int input = p->work.input[k];
        if (input < 0) continue;
        const int64_t size = (int64_t)ks_dtype_size(spec->in[input].dtype);
        bytes += p->shape.count * size - (seen >> input & 1 ? 0 : (int64_t)spec->in[input].size_bytes);
        seen |= 1u << input;
    }
    return bytes;
}

/* ks_cuda_setup_fn: no kernel here needs more shared memory than every CTA has. */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    (void)chip, (void)error;
    return KS_OK;
}

static void describe(const ks_spec *spec, const map_plan *p, const map_launch *l, ks_kernel_info *kernel_info)
{
    static const char *const kernels[] = {"vectors", "vectors", "select", "cast", "elements"};
    const ks_param *op = &spec->op->params[KS_MAP_OP];
    snprintf(kernel_info->kernel, sizeof kernel_info->kernel, "map_%s<%s, %s%s%s%s>", kernels[p->kernel],
             op->choices[spec->params[KS_MAP_OP].i], ks_dtype_name(spec->in[p->work.function == KS_MAP_WHERE].dtype),
             p->kernel >= MAP_CAST ? " to " : "", p->kernel >= MAP_CAST ? ks_dtype_name(spec->out[0].dtype) : "",
             p->kernel == MAP_VECTORS_FLAT || p->flat ? "" : ", broadcast");
    kernel_info->grid = l->grid;
    kernel_info->threads = l->threads;
    kernel_info->cluster = 1;
    kernel_info->shared_bytes = 0;
}

/* ks_cuda_plan_fn */
static ks_status cuda_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    const map_plan p = plan_of(spec);
    map_launch l = {};
    const int64_t most = (int64_t)INT32_MAX * MAP_THREADS;
    if (quotient_up(p.shape.count, elements_of(&p)) > most)
        return ks_fail(error, KS_WORK, "map: %lld elements, takes %lld", (long long)p.shape.count,
                       (long long)most * elements_of(&p));
    cut(chip, &p, &l);
    out->once = read_again(spec, &p) <= AGAIN_MAX;
    out->batch_max = KS_BATCH_MAX;
    out->early = true;
    describe(spec, &p, &l, &out->kernel_info);
    const map_algorithm algorithm = {p.kernel};
    memcpy(out->algorithm, &algorithm, sizeof algorithm);
    return KS_OK;
}

/* --- launching ------------------------------------------------------------------------------------------------------- */

static cudaError_t launch_vectors(const map_launch &l)
{
    switch (l.work.dtype) {
    case KS_FP16:
        return map_launch_half(l);
    case KS_BF16:
        return map_launch_bfloat16(l);
    case KS_FP32:
        return map_launch_float(l);
    case KS_FP64:
        return map_launch_double(l);
    default:
        return map_launch_integer(l, ks_dtype_size(l.work.dtype));
    }
}

static cudaError_t launch_kernel(const map_launch &l)
{
    switch (l.kernel) {
    case MAP_SELECT:
        return map_launch_select(l, ks_dtype_size(l.work.dtype));
    case MAP_CAST:
        return map_launch_cast(l);
    case MAP_ELEMENTS:
        return map_launch_elements(l);
    default:
        return launch_vectors(l);
    }
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    const map_plan p = plan_of(spec);
    map_launch l = {};
    l.kernel = p.kernel;
    l.work = p.work;
    l.shape = shape_of(spec, &p);
    l.site = site;
    l.bucket = bucket;
    l.stream = stream;
    cut(chip, &p, &l);
    const cudaError_t status = launch_kernel(l);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "map: launch failed: %s", cudaGetErrorString(status));
}

extern const ks_cuda_op ks_map_cuda;
const ks_cuda_op ks_map_cuda = {.setup = cuda_setup,
                                .plan = cuda_plan,
                                .launch = cuda_launch,
                                .join = NULL,
                                .candidates = NULL,
                                .adopt = NULL,
                                .revision = NULL,
                                .starts_anywhere = NULL};
