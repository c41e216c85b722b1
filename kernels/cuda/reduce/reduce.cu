/* Reductions on the GPU: the launch of the kernel that plan.cu has chosen, and the choice of those of segments. */
#include "cuda/reduce/plan.h"

#include <string.h>

/* ks_cuda_setup_fn: no kernel here needs more shared memory than every CTA has. */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    (void)chip, (void)error;
    return KS_OK;
}

/* --- segments -------------------------------------------------------------------------------------------------------- */

enum {
    SEGMENT_SHIFT = 13, /* elements of a piece; */
    SEGMENT_LINES = 9,  /* lines of one, and more where there are more columns than SEGMENT_COLUMNS */
    SEGMENT_COLUMNS = 1024,
    SEGMENT_LINES_MOST = 15, /* below NUMBERED */
    SEGMENT_CTAS = 8,        /* of an SM, that a grid has at most; */
    SEGMENT_RESIDENT = 3,    /* that are there at once */
    SEGMENT_THREADS = 256,
    SEGMENT_WIDTH = 32,     /* columns side by side, at most */
    SEGMENT_WARPS = 8,      /* of a CTA, each of which looks for a slot or a block of a round */
    MAPPED_AGAIN = 64 << 10 /* bytes that may be read more than once over the link */
};

/* The least power of 2 that leaves no more rounds than keep `ctas` of each SM busy, up to `most`. */
static int items_together(const ks_chip *chip, int64_t items, int ctas, int most)
{
    int together = 1;
    while (together < most && items > 2 * (int64_t)together * chip->sms * ctas) together *= 2;
    return together;
}

/* How a segment is cut follows from `inner` alone, and so do its bits. */
static reduce_segments reduce_segments_of(const ks_chip *chip, const ks_spec *spec, bool joined)
{
    const ks_segments of = ks_reduce_segments_of(spec);
    reduce_segments s = {};
    s.offset = spec->in[KS_REDUCE_X].offset;
    s.offsets = spec->in[KS_REDUCE_SEGMENTS].offset;
    s.outer = of.outer;
    s.extent = of.extent;
    s.inner = of.inner;
    s.count = of.count;
    s.shift = SEGMENT_SHIFT;
    if (of.inner > 1) s.shift = SEGMENT_LINES;
    for (int64_t n = of.inner; n > SEGMENT_COLUMNS && s.shift < SEGMENT_LINES_MOST; n /= 2) s.shift++;
    s.wide = spec->in[KS_REDUCE_SEGMENTS].dtype == KS_INT64;
    s.needs = ks_reduce_needs_elements(spec);
    s.joins = of.extent > (int64_t)1 << s.shift;
    s.blocks = (of.extent >> s.shift) + 1;
    s.slots = s.joins ? of.extent >> s.shift : 0;
    s.states = 2 * s.blocks;
    s.width = (int)power_up(within(of.inner, 1, SEGMENT_WIDTH));
    s.tiles = quotient_up(of.inner, s.width);
    s.of_part = ks_divider_of(s.count);
    s.of_tile = ks_divider_of(s.tiles);
    s.items = s.outer * (joined ? s.blocks : s.count) * s.tiles;
    if (joined) {
        s.together = items_together(chip, s.items, SEGMENT_CTAS, SEGMENT_WARPS);
    } else {
        const int own = of.inner > 1 ? (int)REDUCE_SEGMENT_OWN_LINES : (int)REDUCE_SEGMENT_OWN;
        s.together = items_together(chip, s.items, SEGMENT_RESIDENT, SEGMENT_THREADS / s.width * own);
        s.later_items = s.outer * s.slots * s.tiles;
        s.later_together = items_together(chip, s.later_items, SEGMENT_RESIDENT, SEGMENT_WARPS);
        s.later = quotient_up(s.later_items, s.later_together);
    }
    s.rounds = s.later + quotient_up(s.items, s.together);
    return s;
}

static uint32_t reduce_segments_grid(const ks_chip *chip, const reduce_segments *s)
{
    return (uint32_t)within(s->rounds, 1, 2 * (int64_t)chip->sms * SEGMENT_CTAS);
}

ks_status reduce_plan_segments(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    const reduce_segments s = reduce_segments_of(chip, spec, false);
    const size_t item = ks_dtype_size(spec->in[KS_REDUCE_SEGMENTS].dtype);
    int searches = 2;
    while ((int64_t)1 << searches < s.count) searches++;
    reduce_algorithm c = {};
    c.kernel = s.inner == 1 ? REDUCE_SEGMENT_ROWS : REDUCE_SEGMENT_COLUMNS;
    c.width = (int16_t)s.width;
    c.threads = SEGMENT_THREADS;
    c.parts = 1;
    c.grid = reduce_segments_grid(chip, &s);
    if (c.grid > KS_GRID_MAX && ks_spec_read_bytes(spec) + ks_spec_written_bytes(spec) <= KS_MAPPED_MOST)
        c.grid = KS_GRID_MAX;
    const double looks = 4 * (double)s.items + (double)s.later_items * searches; /* at offsets */
    const double again = looks * (double)item + (double)spec->in[KS_REDUCE_X].size_bytes;
    out->once = again <= (double)MAPPED_AGAIN;
    const double bytes = s.joins ? (double)s.outer * (double)s.states * (double)s.inner * (double)STATE_BYTES : 0;
    if (bytes > (double)chip->workspace_bytes)
        return ks_fail(error, KS_WORK, "reduce: needs %.0f bytes of workspace, the device has %zu", bytes,
                       chip->workspace_bytes);
    out->workspace_bytes = ks_align((size_t)bytes);
    out->batch_max = KS_BATCH_MAX;
    if (s.joins) out->batch_max = (int)within((int64_t)(chip->workspace_bytes / out->workspace_bytes), 1, KS_BATCH_MAX);
    reduce_describe(spec, &c, &out->kernel_info);
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}

/* --- launching ------------------------------------------------------------------------------------------------------- */

static reduce_rule rule_of(const ks_spec *spec, int64_t depth)
{
    const ks_dtype dtype = spec->in[0].dtype;
    const int op = ks_reduce_function(spec), bits = 8 * (int)ks_dtype_size(dtype);
    const uint64_t top = (uint64_t)1 << (bits - 1), all = top | (top - 1);
    const bool lowest = op == MIN || op == ARGMIN, real = ks_dtype_kind(dtype) == KS_KIND_FLOAT;
    uint64_t flip = ks_dtype_kind(dtype) == KS_KIND_INT ? top : 0;
    reduce_rule rule = {};
    if (!real) rule.bias = (double)flip;
    rule.excess = flip * (uint64_t)depth;
    if (lowest) flip ^= real ? top : all;
    for (int filled = bits; filled < 64; filled *= 2) flip |= flip << filled;
    rule.flip = reduce_words{(uint32_t)flip, (uint32_t)(flip >> 32)};
    rule.count = (double)depth;
    rule.mean = op == MEAN;
    return rule;
}

static reduce_extra extra_of(const ks_spec *spec)
{
    const int op = ks_reduce_function(spec);
    reduce_extra extra = {};
    extra.ddof = spec->params[DDOF].d;
    extra.power = spec->params[POWER].d;
    extra.root = op == STD;
    extra.all = op == ALL;
    return extra;
}

static cudaError_t launch_by_datatype(const reduce_launch &l)
{
    switch (l.dtype) {
    case KS_FP16:
        return reduce_launch_half(l);
    case KS_BF16:
        return reduce_launch_bfloat16(l);
    case KS_FP32:
        return reduce_launch_float(l);
    case KS_FP64:
        return reduce_launch_double(l);
    default:
        return reduce_launch_integer(l, ks_dtype_size(l.dtype));
    }
}

static cudaError_t launch(const reduce_launch &l)
{
    switch (l.op) {
    case VAR:
    case STD:
        return reduce_launch_moments(l);
    case SUMSQ:
    case L1NORM:
    case LOGSUM:
    case NORM:
    case NORM_MOST:
    case NORM_LEAST:
        return reduce_launch_norms(l);
    case ANY:
    case ALL:
    case COUNT_NONZERO:
    case NORM_ZERO:
        return reduce_launch_counts(l);
    default:
        return launch_by_datatype(l);
    }
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    reduce_launch l = {};
    memcpy(&l.algorithm, algorithm, sizeof l.algorithm);
    if (ks_reduce_has_segments(spec)) {
        l.segments = reduce_segments_of(chip, spec, false);
        l.joined = reduce_segments_of(chip, spec, true);
        l.joined_grid = reduce_segments_grid(chip, &l.joined);
        l.rule = rule_of(spec, 1);
    } else {
        l.shape = reduce_shape_of(spec, &l.algorithm);
        l.rule = rule_of(spec, l.shape.depth);
    }
    l.extra = extra_of(spec);
    l.op = ks_reduce_function(spec);
    l.dtype = spec->in[0].dtype;
    l.site = site;
    l.bucket = bucket;
    l.stream = stream;
    const cudaError_t status = launch(l);
    if (status == cudaSuccess) return KS_OK;
    return ks_fail(error, KS_DEVICE, "reduce: launch failed: %s", cudaGetErrorString(status));
}

/* The place of an extreme is found in any order. */
static bool starts_anywhere(const ks_spec *spec, const void *)
{
    const int function = ks_reduce_function(spec);
    return function == ARGMAX || function == ARGMIN;
}

extern const ks_cuda_op ks_reduce_cuda;
const ks_cuda_op ks_reduce_cuda = {.setup = cuda_setup,
                                   .plan = reduce_plan,
                                   .launch = cuda_launch,
                                   .join = NULL,
                                   .candidates = NULL,
                                   .adopt = NULL,
                                   .revision = NULL,
                                   .starts_anywhere = starts_anywhere};
