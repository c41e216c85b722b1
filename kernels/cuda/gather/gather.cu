/* Gather on the GPU: which kernel, with what launch parameters, and its launch.
 *
 *   slice_warp   slices of 512 bytes and more that warps fill well
 *   slice_pack   slices of whole packs of 16 bytes
 *   slice_words  other slices
 *   elements     kind 'elements'
 *   bags         by offsets
 *
 * How a bag is split follows from its columns alone, so its bits do not depend on the number of bags. */
#include "cuda/gather/bags.cuh"
#include "cuda/gather/elements.cuh"
#include "cuda/gather/slices.cuh"
#include "cuda/op.h"

#include <stdio.h>
#include <string.h>

enum gather_family { GATHER_SLICE_WARP, GATHER_SLICE_PACK, GATHER_SLICE_WORDS, GATHER_ELEMENTS, GATHER_BAGS };
enum {
    WARP_BYTES = 512,        /* of a slice, at least */
    WARP_WASTE = 8,          /* of its warps' threads one in so many may idle, at most */
    CTAS_SM = 8,             /* that a grid has at most */
    FEW_THREADS = 64,        /* of a CTA where not every SM would get one */
    MAPPED_AGAIN = 64 << 10, /* bytes that may be read more than once over the link */
    SEGMENT_BYTES = 64       /* that memory and link move at least */
};

/* What a slice's bits could follow from, so that parts of a table are like the whole; the grid is settled at the launch. */
struct gather_algorithm {
    int8_t family;
    int8_t word;   /* bytes: slice_words, elements; of bags columns of a thread */
    int8_t single; /* slice_words: a slice is one word */
    int8_t lanes;  /* bags */
};
static_assert(sizeof(gather_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

struct gather_launch {
    gather_algorithm c;
    gather_args a;
    ks_dtype dtype;
    int64_t packs; /* of a slice */
    int threads;
    int64_t grid;
    ks_site site;
    int bucket;
    cudaStream_t stream;
};

static int64_t over(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

/* --- what is launched ------------------------------------------------------------------------------------------------ */

static int word_bytes(size_t slice_bytes)
{
    const size_t word = slice_bytes & -slice_bytes;
    return word > 16 ? 16 : (int)word;
}

static gather_args args_of(const ks_spec *spec, const ks_gather_shape &s)
{
    gather_args a = {};
    a.table = spec->in[KS_GATHER_TABLE].offset;
    a.indices = spec->in[KS_GATHER_INDICES].offset;
    if (ks_has_input(spec, KS_GATHER_OFFSETS)) a.offsets = spec->in[KS_GATHER_OFFSETS].offset;
    if (ks_has_input(spec, KS_GATHER_WEIGHTS)) a.weights = spec->in[KS_GATHER_WEIGHTS].offset;
    a.out = spec->out[0].offset;
    a.outer = s.outer;
    a.extent = s.extent;
    a.count = s.count;
    a.inner = s.inner;
    a.bags = s.bags;
    a.mode = s.mode;
    a.op = s.op;
    a.wide_indices = spec->in[KS_GATHER_INDICES].dtype == KS_INT64;
    a.wide_offsets = ks_has_input(spec, KS_GATHER_OFFSETS) && spec->in[KS_GATHER_OFFSETS].dtype == KS_INT64;
    a.weighted = ks_has_input(spec, KS_GATHER_WEIGHTS);
    a.narrow_weights = a.weighted && spec->in[KS_GATHER_WEIGHTS].dtype == spec->in[KS_GATHER_TABLE].dtype;
    a.part = ks_divider_of(s.count);
    return a;
}

/* Items that a CTA takes in one go. */
static int64_t items_of_cta(const gather_algorithm &c, int threads)
{
    switch (c.family) {
    case GATHER_SLICE_WARP:
        return threads / KS_WARP;
    case GATHER_SLICE_PACK:
        return threads;
    case GATHER_BAGS:
        return threads / c.lanes;
    default:
        return (int64_t)threads * (16 / c.word);
    }
}

/* Bags differ in length, so as many CTAs as may be share them out. */
static void settle_grid(const ks_chip *chip, gather_launch *go)
{
    const bool bags = go->c.family == GATHER_BAGS;
    go->threads = GATHER_THREADS;
    if (!bags && over(go->a.items, items_of_cta(go->c, GATHER_THREADS)) < chip->sms) go->threads = FEW_THREADS;
    const int64_t ctas = over(go->a.items, items_of_cta(go->c, go->threads));
    const int64_t room = bags ? (int64_t)KS_GRID_MAX : (int64_t)chip->sms * CTAS_SM;
    go->grid = ctas < 1 ? 1 : ctas < room ? ctas : room;
}

static gather_launch launch_of(const ks_chip *chip, const ks_spec *spec, const gather_algorithm &c)
{
    const ks_gather_shape s = ks_gather_shape_of(spec);
    const int64_t slices = s.outer * s.count, bytes = (int64_t)s.slice_bytes;
    gather_launch go = {};
    go.c = c;
    go.a = args_of(spec, s);
    go.dtype = spec->in[KS_GATHER_TABLE].dtype;
    go.packs = bytes / 16;
    switch (c.family) {
    case GATHER_SLICE_WARP:
        go.a.pieces = over(go.packs, KS_WARP);
        go.a.items = slices * go.a.pieces;
        break;
    case GATHER_SLICE_PACK:
        go.a.pieces = go.packs;
        go.a.items = slices * go.packs;
        break;
    case GATHER_SLICE_WORDS:
        go.a.pieces = bytes / c.word;
        go.a.items = slices * go.a.pieces;
        break;
    case GATHER_ELEMENTS:
        go.a.pieces = s.inner;
        go.a.items = slices * s.inner;
        break;
    default:
        go.a.pieces = over(over(s.inner, c.word), c.lanes);
        go.a.items = s.bags * go.a.pieces;
        break;
    }
    go.a.per = ks_divider_of(go.a.pieces);
    settle_grid(chip, &go);
    return go;
}

template <class... Taken, class... Given>
static cudaError_t run(const gather_launch &go, size_t shared, void (*kernel)(ks_site, gather_args, Taken...),
                       const Given &...given)
{
    return ks_launch(kernel, dim3((unsigned)go.grid, (unsigned)go.bucket), go.threads, shared, false, go.stream,
                     go.site, go.a, given...);
}

template <class W>
static cudaError_t run_words(const gather_launch &go)
{
    if (go.c.family == GATHER_ELEMENTS) return run(go, 0, gather_elements<W>);
    return go.c.single ? run(go, 0, gather_slice_words<W, true>) : run(go, 0, gather_slice_words<W, false>);
}

template <class T, int E>
static cudaError_t run_bags_of(const gather_launch &go)
{
    const int lanes = go.c.lanes;
    return run(go, gather_bags_shared(lanes, E, (int)sizeof(T), go.a.weighted), gather_bags<T, E>, lanes);
}

template <class T>
static cudaError_t run_bags(const gather_launch &go)
{
    constexpr int E = 16 / (int)sizeof(T);
    if (go.c.word == E) return run_bags_of<T, E>(go);
    if constexpr (E > 2)
        if (go.c.word == E / 2) return run_bags_of<T, E / 2>(go);
    if constexpr (E > 4)
        if (go.c.word == E / 4) return run_bags_of<T, E / 4>(go);
    return run_bags_of<T, 1>(go);
}

static cudaError_t run_typed_bags(const gather_launch &go)
{
    switch (go.dtype) {
    case KS_FP16:
        return run_bags<__half>(go);
    case KS_BF16:
        return run_bags<__nv_bfloat16>(go);
    case KS_FP32:
        return run_bags<float>(go);
    default:
        return run_bags<double>(go);
    }
}

static cudaError_t go_on(const gather_launch &go)
{
    if (go.c.family == GATHER_BAGS) return run_typed_bags(go);
    if (go.c.family == GATHER_SLICE_WARP) return run(go, 0, gather_slice_warp, go.packs);
    if (go.c.family == GATHER_SLICE_PACK) return run(go, 0, gather_slice_pack);
    switch (go.c.word) {
    case 1:
        return run_words<uint8_t>(go);
    case 2:
        return run_words<uint16_t>(go);
    case 4:
        return run_words<uint32_t>(go);
    default:
        return run_words<unsigned long long>(go);
    }
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    gather_algorithm c;
    memcpy(&c, algorithm, sizeof c);
    gather_launch go = launch_of(chip, spec, c);
    go.site = site;
    go.bucket = bucket;
    go.stream = stream;
    const cudaError_t status = go_on(go);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "gather: launch failed: %s", cudaGetErrorString(status));
}

/* --- what is chosen -------------------------------------------------------------------------------------------------- */

/* Threads of a team: of a tile of columns, of which few shall be beyond the last one. */
static int bag_lanes(int64_t packs)
{
    int64_t best = GATHER_LANES;
    for (int64_t lanes = best / 2; lanes >= GATHER_LANES_LEAST; lanes /= 2)
        if (over(packs, lanes) * lanes * 4 <= over(packs, best) * best * 3) best = lanes;
    return (int)best;
}

static void choose_family(const ks_spec *spec, const ks_gather_shape &s, gather_algorithm *c)
{
    const int size = (int)ks_dtype_size(spec->in[KS_GATHER_TABLE].dtype);
    const int64_t packs = (int64_t)s.slice_bytes / 16;
    if (s.bags >= 0) {
        c->family = GATHER_BAGS;
        c->word = (int8_t)(s.slice_bytes ? over(word_bytes(s.slice_bytes), size) : 1);
        c->lanes = (int8_t)bag_lanes(over(s.inner, c->word));
    } else if (s.kind == KS_GATHER_ELEMENTS) {
        c->family = GATHER_ELEMENTS;
        c->word = (int8_t)size;
    } else if (s.slice_bytes == 0 || s.slice_bytes % 16 != 0) {
        c->family = GATHER_SLICE_WORDS;
        c->word = (int8_t)(s.slice_bytes ? word_bytes(s.slice_bytes) : size);
        c->single = s.slice_bytes == (size_t)c->word;
    } else {
        const int64_t threads = over(packs, KS_WARP) * KS_WARP;
        const bool full = (threads - packs) * WARP_WASTE <= threads;
        c->family = s.slice_bytes >= WARP_BYTES && full ? GATHER_SLICE_WARP : GATHER_SLICE_PACK;
    }
}

/* Each use of a slice reads it, over the link on mapped slots. */
static bool reads_once(const ks_spec *spec, const ks_gather_shape &s, int64_t grid)
{
    const bool elements = s.kind == KS_GATHER_ELEMENTS;
    const double unit = elements ? (double)ks_dtype_size(spec->in[KS_GATHER_TABLE].dtype) : (double)s.slice_bytes;
    const double uses = (double)s.outer * (double)s.count * (elements ? (double)s.inner : 1);
    const double moved = uses * (unit < (double)SEGMENT_BYTES ? (double)SEGMENT_BYTES : unit);
    return grid <= KS_GRID_MAX && moved <= (double)(spec->in[KS_GATHER_TABLE].size_bytes + MAPPED_AGAIN);
}

static void name_kernel(const ks_spec *spec, const ks_gather_shape &s, const gather_launch &go, ks_kernel_info *info)
{
    const gather_algorithm &c = go.c;
    static const char *const names[] = {[GATHER_SLICE_WARP] = "slice_warp",
                                        [GATHER_SLICE_PACK] = "slice_pack",
                                        [GATHER_SLICE_WORDS] = "slice_words",
                                        [GATHER_ELEMENTS] = "elements",
                                        [GATHER_BAGS] = "bags"};
    const char *dtype = ks_dtype_name(spec->in[KS_GATHER_TABLE].dtype);
    if (c.family == GATHER_BAGS)
        snprintf(info->kernel, sizeof info->kernel, "gather_bags<%s, %d threads of %d columns>", dtype, c.lanes,
                 c.word);
    else if (c.family == GATHER_ELEMENTS)
        snprintf(info->kernel, sizeof info->kernel, "gather_elements<%s>", dtype);
    else
        snprintf(info->kernel, sizeof info->kernel, "gather_%s<%lld bytes>", names[c.family], (long long)s.slice_bytes);
    info->grid = go.grid;
    info->threads = go.threads;
    info->cluster = 1;
    info->shared_bytes = 0;
    if (c.family == GATHER_BAGS)
        info->shared_bytes = gather_bags_shared(c.lanes, c.word, (int)ks_dtype_size(spec->in[0].dtype), go.a.weighted);
}

/* ks_cuda_plan_fn */
static ks_status cuda_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    (void)error;
    const ks_gather_shape s = ks_gather_shape_of(spec);
    gather_algorithm c = {};
    choose_family(spec, s, &c);
    const gather_launch go = launch_of(chip, spec, c);
    out->once = reads_once(spec, s, go.grid);
    out->batch_max = (int)KS_BATCH_MAX;
    out->workspace_bytes = 0;
    out->counters = 0;
    name_kernel(spec, s, go, &out->kernel_info);
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    (void)chip, (void)error;
    return KS_OK;
}

extern const ks_cuda_op ks_gather_cuda;
const ks_cuda_op ks_gather_cuda = {.setup = cuda_setup,
                                   .plan = cuda_plan,
                                   .launch = cuda_launch,
                                   .join = NULL,
                                   .candidates = NULL,
                                   .adopt = NULL,
                                   .revision = NULL,
                                   .starts_anywhere = NULL};
