/* Layout on the GPU: which kernel, with what launch parameters, and its launch.
 *
 *   layout_tile    lines of the output that are not lines of the input: transposed in shared memory
 *   layout_packs   an output that is written from its begin to its end: 16 bytes of a thread
 *   layout_words   each input of concat: a launch of its own
 *
 * Words are as wide as both sides' runs and their places allow. */
#include "cuda/layout/tiles.cuh"
#include "cuda/layout/words.cuh"
#include "cuda/op.h"

#include <stdio.h>
#include <string.h>

enum layout_family { LAYOUT_WORDS, LAYOUT_PACKS, LAYOUT_TILES };
enum {
    CTAS_SM = 8,             /* that a grid has at most */
    FEW_THREADS = 64,        /* of a CTA where not every SM would get one */
    TILE_LEAST = 16,         /* elements along either axis of a tile, at least */
    MAPPED_AGAIN = 64 << 10, /* bytes that may be read more than once over the link */
    SECTOR_BYTES = 32        /* that the link moves at least */
};

struct layout_algorithm {
    int8_t family, padded;
};
static_assert(sizeof(layout_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

struct layout_launch {
    layout_algorithm c;
    layout_args a;
    layout_tiles t;
    int word; /* bytes */
    int threads;
    size_t shared_bytes;
    int64_t grid;
    ks_site site;
    int bucket;
    cudaStream_t stream;
};

static int64_t over(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

/* --- as words -------------------------------------------------------------------------------------------------------- */

static bool divides(int64_t by, int64_t value)
{
    return value % by == 0;
}

/* Elements that are neighbours on both sides, wherever the box has them, and begin at multiples: as many as 16 bytes hold, or fewer. */
static int64_t run_of(const ks_layout_copy &copy, int size)
{
    const int last = copy.rank - 1;
    int64_t n = 16 / size;
    if (copy.from[last] != 1 || copy.to[last] != 1) return 1;
    for (; n > 1; n /= 2) {
        bool all = divides(n, copy.extent[last]) && divides(n, copy.from_start) && divides(n, copy.to_start);
        for (int d = 0; d < last; d++) all = all && divides(n, copy.from[d]) && divides(n, copy.to[d]);
        if (all) break;
    }
    return n;
}

static void args_of_copy(const ks_spec *spec, int input, layout_launch *go)
{
    const ks_layout_copy copy = ks_layout_copy_of(spec, input);
    const int size = (int)ks_dtype_size(spec->in[0].dtype), last = copy.rank - 1;
    const int64_t run = run_of(copy, size);
    layout_args *a = &go->a;
    a->rank = copy.rank;
    a->items = 1;
    for (int d = 0; d < copy.rank; d++) {
        const int64_t extent = d == last ? copy.extent[d] / run : copy.extent[d];
        a->axis[d].per = ks_divider_of(extent);
        a->axis[d].from = d == last ? copy.from[d] : copy.from[d] / run;
        a->axis[d].to = d == last ? copy.to[d] : copy.to[d] / run;
        a->items *= extent;
    }
    a->from_start = copy.from_start / run;
    a->to_start = copy.to_start / run;
    go->word = (int)run * size;
}

static void args_of_pad(const ks_spec *spec, layout_launch *go)
{
    const ks_layout_pad pad = ks_layout_pad_of(spec);
    const int size = (int)ks_dtype_size(spec->in[0].dtype), last = pad.rank - 1;
    const bool whole = pad.before[last] == 0 && pad.after[last] == 0;
    int64_t run = whole ? 16 / size : 1, stride = 1, to = 1;
    layout_args *a = &go->a;
    while (!divides(run, pad.extent[last])) run /= 2;
    a->rank = pad.rank;
    a->mode = pad.mode;
    for (int d = last; d >= 0; d--) {
        const int64_t by = d == last ? run : 1, extent = pad.before[d] + pad.extent[d] + pad.after[d];
        a->axis[d] = {ks_divider_of(extent / by), stride, to, pad.before[d], pad.extent[d] / by};
        stride *= pad.extent[d] / by;
        to *= extent / by;
    }
    a->items = to;
    for (int i = 0; i < 16; i += size) memcpy((unsigned char *)&a->fill + i, &pad.fill, (size_t)size);
    go->word = (int)run * size;
}

/* --- as tiles -------------------------------------------------------------------------------------------------------- */

/* The axis along which the input's elements are neighbours, where it is not the output's last one; -1. */
static int line_of(const ks_layout_copy &copy)
{
    const int last = copy.rank - 1;
    if (copy.to[last] != 1 || copy.extent[last] < TILE_LEAST) return -1;
    for (int d = 0; d < last; d++)
        if (copy.from[d] == 1 && copy.extent[d] >= TILE_LEAST) return d;
    return -1;
}

static void args_of_tiles(const ks_spec *spec, layout_launch *go)
{
    const ks_layout_copy copy = ks_layout_copy_of(spec, 0);
    const int last = copy.rank - 1, line = line_of(copy);
    layout_args *a = &go->a;
    int64_t outer = 1;
    a->rank = copy.rank;
    a->from_start = copy.from_start;
    a->to_start = copy.to_start;
    for (int d = 0, to = 0; d < last; d++) {
        if (d == line) continue;
        a->axis[to].per = ks_divider_of(copy.extent[d]);
        a->axis[to].from = copy.from[d];
        a->axis[to++].to = copy.to[d];
        outer *= copy.extent[d];
    }
    const int64_t down = over(copy.extent[line], LAYOUT_TILE), across = over(copy.extent[last], LAYOUT_TILE);
    go->t = {copy.extent[line],   copy.extent[last],     copy.to[line],        copy.from[last],
             ks_divider_of(down), ks_divider_of(across), outer * down * across};
    go->word = (int)ks_dtype_size(spec->in[0].dtype);
    go->shared_bytes = (size_t)(LAYOUT_TILE * layout_tile_pitch(go->word) * go->word);
}

/* --- what is launched ------------------------------------------------------------------------------------------------ */

static void settle_grid(const ks_chip *chip, layout_launch *go)
{
    const int64_t each = go->c.family == LAYOUT_PACKS ? 16 / go->word : 1;
    const int64_t work = go->c.family == LAYOUT_TILES ? go->t.tiles * LAYOUT_THREADS : over(go->a.items, each);
    const int64_t room = (int64_t)chip->sms * CTAS_SM;
    go->threads = LAYOUT_THREADS;
    if (go->c.family == LAYOUT_PACKS && over(work, LAYOUT_THREADS) < chip->sms) go->threads = FEW_THREADS;
    const int64_t ctas = over(work, go->threads);
    go->grid = ctas < 1 ? 1 : ctas < room ? ctas : room;
}

/* Of one input. */
static layout_launch launch_of(const ks_chip *chip, const ks_spec *spec, const layout_algorithm &c, int input)
{
    layout_launch go = {};
    go.c = c;
    if (c.family == LAYOUT_TILES)
        args_of_tiles(spec, &go);
    else if (c.padded)
        args_of_pad(spec, &go);
    else
        args_of_copy(spec, input, &go);
    go.a.in = spec->in[input].offset;
    go.a.out = spec->out[0].offset;
    go.a.first = go.a.last = true;
    settle_grid(chip, &go);
    return go;
}

template <class... Taken, class... Given>
static cudaError_t run(const layout_launch &go, void (*kernel)(ks_site, Taken...), const Given &...given)
{
    return ks_launch(kernel, dim3((unsigned)go.grid, (unsigned)go.bucket), go.threads, go.shared_bytes, false,
                     go.stream, go.site, given...);
}

template <class W>
static cudaError_t run_words(const layout_launch &go)
{
    if (go.c.family == LAYOUT_WORDS) return run(go, layout_words<W, false>, go.a);
    return go.c.padded ? run(go, layout_packs<W, true>, go.a) : run(go, layout_packs<W, false>, go.a);
}

static cudaError_t run_tiles(const layout_launch &go)
{
    switch (go.word) {
    case 1:
        return run(go, layout_tile<uint8_t>, go.a, go.t);
    case 2:
        return run(go, layout_tile<uint16_t>, go.a, go.t);
    case 4:
        return run(go, layout_tile<uint32_t>, go.a, go.t);
    default:
        return run(go, layout_tile<unsigned long long>, go.a, go.t);
    }
}

static cudaError_t go_on(const layout_launch &go)
{
    if (go.c.family == LAYOUT_TILES) return run_tiles(go);
    switch (go.word) {
    case 1:
        return run_words<uint8_t>(go);
    case 2:
        return run_words<uint16_t>(go);
    case 4:
        return run_words<uint32_t>(go);
    case 8:
        return run_words<unsigned long long>(go);
    default:
        return run_words<uint4>(go);
    }
}

/* Inputs without an element take no launch, but for the last one where none has any. */
static int next_part(const ks_spec *spec, int after)
{
    int next = ks_next_input(spec, after);
    while (next >= 0 && spec->in[next].size_bytes == 0) next = ks_next_input(spec, next);
    return next;
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    layout_algorithm c;
    cudaError_t status = cudaSuccess;
    memcpy(&c, algorithm, sizeof c);
    int input = c.family == LAYOUT_WORDS ? next_part(spec, -1) : 0;
    if (input < 0) input = 0;
    for (bool first = true; input >= 0 && status == cudaSuccess; first = false) {
        layout_launch go = launch_of(chip, spec, c, input);
        input = c.family == LAYOUT_WORDS ? next_part(spec, input) : -1;
        go.a.first = first;
        go.a.last = input < 0;
        go.site = site;
        go.bucket = bucket;
        go.stream = stream;
        status = go_on(go);
    }
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "layout: launch failed: %s", cudaGetErrorString(status));
}

/* --- what is chosen -------------------------------------------------------------------------------------------------- */

static layout_algorithm choose(const ks_spec *spec)
{
    layout_algorithm c = {};
    const int64_t op = spec->params[KS_LAYOUT_OP].i;
    c.padded = op == KS_LAYOUT_PAD;
    c.family = op == KS_LAYOUT_CONCAT ? LAYOUT_WORDS : LAYOUT_PACKS;
    if (op != KS_LAYOUT_PAD && op != KS_LAYOUT_CONCAT && line_of(ks_layout_copy_of(spec, 0)) >= 0)
        c.family = LAYOUT_TILES;
    return c;
}

/* Words that lie apart in the input are read by the sector, and some of them are several times, over the link on mapped slots. */
static bool reads_once(const ks_spec *spec, const layout_launch &go)
{
    if (go.grid > KS_GRID_MAX) return false;
    const bool lines = go.c.family != LAYOUT_PACKS || go.c.padded || go.a.axis[go.a.rank - 1].from == 1;
    const double again = lines || go.word >= SECTOR_BYTES ? 1 : (double)SECTOR_BYTES / go.word;
    size_t in_bytes = 0;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) in_bytes += spec->in[i].size_bytes;
    return (double)spec->out[0].size_bytes * again <= (double)(in_bytes + MAPPED_AGAIN);
}

static void name_kernel(const layout_launch &go, ks_kernel_info *info)
{
    static const char *const names[] = {"words", "packs", "tile"};
    snprintf(info->kernel, sizeof info->kernel, "layout_%s<%d bytes%s>", names[go.c.family], go.word,
             go.c.padded ? ", padded" : "");
    info->grid = go.grid;
    info->threads = go.threads;
    info->cluster = 1;
    info->shared_bytes = go.shared_bytes;
}

/* ks_cuda_plan_fn */
static ks_status cuda_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    (void)error;
    const layout_algorithm c = choose(spec);
    const layout_launch go = launch_of(chip, spec, c, 0);
    out->once = reads_once(spec, go);
    out->batch_max = (int)KS_BATCH_MAX;
    out->workspace_bytes = 0;
    out->counters = 0;
    name_kernel(go, &out->kernel_info);
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    (void)chip, (void)error;
    return KS_OK;
}

extern const ks_cuda_op ks_layout_cuda;
const ks_cuda_op ks_layout_cuda = {.setup = cuda_setup,
                                   .plan = cuda_plan,
                                   .launch = cuda_launch,
                                   .join = NULL,
                                   .candidates = NULL,
                                   .adopt = NULL,
                                   .revision = NULL,
                                   .starts_anywhere = NULL};
