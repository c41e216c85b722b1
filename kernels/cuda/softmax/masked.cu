/* The choice and the launch of the kernels of masked.cuh. */
#include "cuda/softmax/masked.cuh"

#include <stdio.h>
#include <string.h>

enum {
    MASKED_PACKS = 4,        /* vectors of a thread, at most */
    MASKED_FEW_THREADS = 64, /* of a CTA of short rows, where there are many: CTAs follow each other without gaps */
    MASKED_DEEP = 8,         /* elements of a thread of masked_any, about */
    MASKED_ACROSS = 32,      /* rows side by side, where they are columns */
    MAPPED_AGAIN = 64 << 10  /* bytes that may be read more than once over the link */
};

/* What a plan remembers: packs 0 for softmax_masked_any. */
struct softmax_masked_algorithm {
    int32_t packs, threads, shift, across;
    int64_t grid;
};
static_assert(sizeof(softmax_masked_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

static int64_t quotient_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int power_up(int64_t n)
{
    int power = 1;
    while (power < n) power *= 2;
    return power;
}

static softmax_shape shape_of(const ks_spec *spec)
{
    softmax_shape s = softmax_shape_of(spec);
    s.factor = 1.4426950408889634;
    s.twice_scale = s.sign = 1;
    return s;
}

static softmax_masked masked_of(const ks_spec *spec)
{
    const ks_tensor *mask = &spec->in[KS_SOFTMAX_MASK];
    softmax_masked q = {};
    q.selection = ks_softmax_selection_of(spec);
    q.scale = spec->params[KS_SOFTMAX_SCALE].d;
    q.out = spec->out[0].dtype;
    q.sharing = ks_divider_of(q.selection.sharing);
    q.square = ks_divider_of(q.selection.square);
    for (int i = 0; i < q.selection.steps; i++) q.extent[i] = ks_divider_of(q.selection.step[i].extent);
    if (ks_has_input(spec, KS_SOFTMAX_LENGTHS)) q.lengths_offset = spec->in[KS_SOFTMAX_LENGTHS].offset;
    if (!ks_has_input(spec, KS_SOFTMAX_MASK)) return q;
    q.mask_offset = mask->offset;
    q.mask = mask->dtype == KS_BOOL                        ? SOFTMAX_MASK_BOOL
             : mask->dtype == spec->in[KS_SOFTMAX_X].dtype ? SOFTMAX_MASK_SAME
                                                           : SOFTMAX_MASK_FLOAT;
    return q;
}

/* --- choosing -------------------------------------------------------------------------------------------------------- */

/* Packs and threads of a row follow from its length alone, and so do its bits. masked: there is a mask; many: more bytes than work on
 * mapped slots, where a CTA costs a ticket. */
static softmax_masked_algorithm choose_rows(const ks_chip *chip, const softmax_shape &s, int64_t vectors, bool masked,
                                            bool many)
{
    softmax_masked_algorithm c = {};
    if (vectors <= (int)MASKED_PACKS * (int)KS_WARP) {
        c.packs = vectors <= KS_WARP ? 1 : vectors <= 2 * KS_WARP ? 2 : MASKED_PACKS;
        const int width = power_up(quotient_up(vectors, c.packs));
        while (1 << c.shift < width) c.shift++;
        const int flight = softmax_masked_flight(c.packs, masked);
        const int64_t lanes = quotient_up(s.outer << c.shift, flight);
        c.threads = many ? (int)MASKED_FEW_THREADS : (int)SOFTMAX_MASKED_THREADS;
        while (c.threads > KS_WARP && lanes < (int64_t)chip->sms * c.threads) c.threads /= 2;
        c.grid = quotient_up(s.outer, (int64_t)(c.threads >> c.shift) * flight);
        return c;
    }
    c.packs = MASKED_PACKS; /* so that much is under way, in small CTAs */
    c.threads = (int32_t)(quotient_up(quotient_up(vectors, c.packs), KS_WARP) * KS_WARP);
    c.shift = -1; /* the CTA */
    c.grid = s.outer;
    return c;
}

static softmax_masked_algorithm choose_any(const softmax_shape &s)
{
    softmax_masked_algorithm c = {};
    const int64_t rows = s.outer * s.inner;
    const int width = power_up(quotient_up(s.length, MASKED_DEEP));
    c.threads = SOFTMAX_MASKED_THREADS;
    c.across = s.inner > 1                      ? power_up(s.inner < MASKED_ACROSS ? s.inner : (int64_t)MASKED_ACROSS)
               : width < SOFTMAX_MASKED_THREADS ? SOFTMAX_MASKED_THREADS / width
                                                : 1;
    c.grid = quotient_up(rows, c.across);
    return c;
}

/* Each row reads its length, and the mask where others have read it. */
static bool reads_once(const ks_spec *spec, const softmax_shape &s)
{
    if (ks_has_input(spec, KS_SOFTMAX_MASK) &&
        ks_tensor_count(&spec->in[KS_SOFTMAX_MASK]) != ks_tensor_count(&spec->in[KS_SOFTMAX_X]))
        return false;
    const ks_tensor *lengths = &spec->in[KS_SOFTMAX_LENGTHS];
    if (!ks_has_input(spec, KS_SOFTMAX_LENGTHS)) return true;
    return s.outer * (int64_t)ks_dtype_size(lengths->dtype) <= (int64_t)lengths->size_bytes + MAPPED_AGAIN;
}

ks_status softmax_masked_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *)
{
    const softmax_shape s = shape_of(spec);
    const ks_dtype dtype = spec->in[KS_SOFTMAX_X].dtype;
    const int length = 16 / (int)ks_dtype_size(dtype);
    const int64_t vectors = s.length / length;
    const bool rows = s.inner == 1 && s.length % length == 0 && spec->out[0].dtype == dtype &&
                      vectors <= (int)MASKED_PACKS * (int)SOFTMAX_MASKED_CTA;
    const bool masked = ks_has_input(spec, KS_SOFTMAX_MASK);
    const bool many = ks_spec_read_bytes(spec) + ks_spec_written_bytes(spec) > KS_MAPPED_MOST;
    softmax_masked_algorithm c = rows ? choose_rows(chip, s, vectors, masked, many) : choose_any(s);
    if (c.grid > INT32_MAX) c.grid = INT32_MAX;
    if (!many && c.grid > KS_GRID_MAX) c.grid = KS_GRID_MAX;
    if (c.grid < 1) c.grid = 1;
    out->once = rows && reads_once(spec, s);
    out->batch_max = KS_BATCH_MAX;
    snprintf(out->kernel_info.kernel, sizeof out->kernel_info.kernel, "softmax_masked_%s<%s, %d%s>",
             rows ? "rows" : "any", ks_dtype_name(dtype), rows ? c.packs : c.across,
             !rows          ? " rows"
             : c.shift >= 0 ? " in a subwarp"
                            : " in a CTA");
    out->kernel_info.grid = c.grid;
    out->kernel_info.threads = c.threads;
    out->kernel_info.cluster = 1;
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}

/* --- launching ------------------------------------------------------------------------------------------------------- */

struct masked_launch {
    softmax_masked_algorithm c;
    softmax_shape s;
    softmax_masked q;
    ks_site site;
    int bucket;
    cudaStream_t stream;

    cudaError_t operator()(void (*kernel)(ks_site, softmax_shape, softmax_masked, int), int last) const
    {
        return ks_launch(kernel, dim3((unsigned)c.grid, (unsigned)bucket), c.threads, 0, false, stream, site, s, q,
                         last);
    }
};

template <class T, bool MASKED>
static cudaError_t launch_rows(const masked_launch &go)
{
    if (go.c.shift < 0) return go(softmax_masked_rows<T, MASKED_PACKS, true, MASKED>, go.c.shift);
    return go.c.packs == 1   ? go(softmax_masked_rows<T, 1, false, MASKED>, go.c.shift)
           : go.c.packs == 2 ? go(softmax_masked_rows<T, 2, false, MASKED>, go.c.shift)
                             : go(softmax_masked_rows<T, MASKED_PACKS, false, MASKED>, go.c.shift);
}

template <class T>
static cudaError_t launch_as(const masked_launch &go)
{
    if (go.c.packs == 0) return go(softmax_masked_any<T>, go.c.across);
    return go.q.mask == SOFTMAX_NO_MASK ? launch_rows<T, false>(go) : launch_rows<T, true>(go);
}

cudaError_t softmax_masked_launch(const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                                  cudaStream_t stream)
{
    masked_launch go = {{}, shape_of(spec), masked_of(spec), site, bucket, stream};
    memcpy(&go.c, algorithm, sizeof go.c);
    switch (spec->in[KS_SOFTMAX_X].dtype) {
    case KS_FP16:
        return launch_as<__half>(go);
    case KS_BF16:
        return launch_as<__nv_bfloat16>(go);
    case KS_FP32:
        return launch_as<float>(go);
    default:
        return launch_as<double>(go);
    }
}
