/* Layout on the GPU: which kernel, with what launch parameters, and its launch.
 *
 *   layout_tile    lines of the output that are not lines of the input: transposed in shared memory
 *   layout_words   both sides are vectors of 16 bytes; or each input of concat, a launch of its own
 *   layout_runs    lines of both sides that begin anywhere, and have a border: concat and pad
 *   layout_packs   any other output: 16 bytes of a thread, element by element
 *
 * Words are as wide as both sides' runs and their places allow. Where everything is below 2^31, indices have 32 bits. */
#include "cuda/layout/runs.cuh"
#include "cuda/layout/tiles.cuh"
#include "cuda/layout/words.cuh"
#include "cuda/op.h"

#include <stdio.h>
#include <string.h>

enum layout_family { LAYOUT_WORDS, LAYOUT_PACKS, LAYOUT_TILES, LAYOUT_RUNS };
enum {
    CTAS_SM = 8,             /* that a grid has at most */
    RUNS_CTAS_SM = 3,        /* of layout_runs: as many as fit */
    LANES_LEAST = 2,         /* log2 of those of a line */
    PADDED_LEAST = 48,       /* elements of a line for layout_runs: of shorter ones packs are fewer instructions */
    FEW_THREADS = 64,        /* of a CTA where not every SM would get one */
    TILE_LEAST = 16,         /* elements along either axis of a tile, at least */
    TILE_WORDS = 64,         /* of one of its lines, at most */
    TILE_LINES = 128,        /* at most */
    TILE_FEW = 512,          /* words of the smallest one, where not every SM would get one */
    VECTOR = 16,             /* bytes */
    MAPPED_AGAIN = 64 << 10, /* bytes that may be read more than once over the link */
    SECTOR_BYTES = 32        /* that the link moves at least */
};

struct layout_algorithm {
    int8_t family, padded;
};
static_assert(sizeof(layout_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

struct layout_launch {
    layout_algorithm c;
    layout_args<ks_divider> a;
    layout_tiles t;
    layout_lines<ks_divider> l;
    bool small;          /* indices and places are below 2^31 */
    bool vectors, whole; /* tiles: lines of the input begin on vectors, of the output on words */
    bool aligned;        /* runs: each vector of the output is one of the input */
    int word;            /* bytes */
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
    layout_args<ks_divider> *a = &go->a;
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

/* A border of one value around elements that lie side by side is one axis with them. */
static ks_layout_pad pad_of(const ks_spec *spec)
{
    ks_layout_pad pad = ks_layout_pad_of(spec);
    for (int d = pad.rank - 2; d >= 0 && pad.mode == KS_LAYOUT_CONSTANT; d--) {
        const int64_t inner = pad.extent[d + 1];
        if (pad.before[d + 1] || pad.after[d + 1]) continue;
        pad.rank--;
        for (int i = d + 1; i < pad.rank; i++)
            pad.extent[i] = pad.extent[i + 1], pad.before[i] = pad.before[i + 1], pad.after[i] = pad.after[i + 1];
        pad.extent[d] *= inner;
        pad.before[d] *= inner;
        pad.after[d] *= inner;
    }
    return pad;
}

/* Elements of a word of a padded tensor: what continues the input goes by elements. */
static int64_t run_of_pad(const ks_layout_pad &pad, int size)
{
    const int last = pad.rank - 1;
    const bool whole = pad.before[last] == 0 && pad.after[last] == 0;
    int64_t run = whole || pad.mode == KS_LAYOUT_CONSTANT ? 16 / size : 1;
    while (!divides(run, pad.extent[last]) || !divides(run, pad.before[last]) || !divides(run, pad.after[last]))
        run /= 2;
    return run;
}

static void args_of_pad(const ks_spec *spec, layout_launch *go)
{
    const ks_layout_pad pad = pad_of(spec);
    const int size = (int)ks_dtype_size(spec->in[0].dtype), last = pad.rank - 1;
    const int64_t run = run_of_pad(pad, size);
    int64_t stride = 1, to = 1;
    layout_args<ks_divider> *a = &go->a;
    a->rank = pad.rank;
    a->mode = pad.mode;
    for (int d = last; d >= 0; d--) {
        const int64_t by = d == last ? run : 1, extent = pad.before[d] + pad.extent[d] + pad.after[d];
        a->axis[d] = {ks_divider_of(extent / by), stride, to, pad.before[d] / by, pad.extent[d] / by};
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

/* Tiles as the box is, and small ones where the chip would have few. */
static void choose_tile(const ks_chip *chip, const ks_layout_copy &copy, int line, int64_t outer, layout_launch *go)
{
    const int last = copy.rank - 1, length = layout_word_length(go->word), word = go->word * length;
    const int rows_least = layout_log2(VECTOR / go->word), words_least = layout_log2(VECTOR / word);
    const int64_t words = over(copy.extent[last], length), rows = copy.extent[line];
    layout_tiles *t = &go->t;
    const int64_t words_most = length > 2 ? TILE_WORDS / 2 : TILE_WORDS;
    t->words_log2 = layout_log2(words < words_most ? words : words_most);
    if (t->words_log2 < words_least) t->words_log2 = words_least;
    t->rows_log2 = layout_log2(LAYOUT_TILE_BYTES / word) - t->words_log2;
    while (t->rows_log2 > rows_least && ((int64_t)1 << (t->rows_log2 - 1) >= rows || 1 << t->rows_log2 > TILE_LINES))
        t->rows_log2--;
    for (;;) {
        const int64_t down = over(rows, (int64_t)1 << t->rows_log2), across = over(words, (int64_t)1 << t->words_log2);
        t->down = ks_divider_of(down);
        t->across = ks_divider_of(across);
        t->tiles = outer * down * across;
        if (t->tiles >= chip->sms || 1 << (t->rows_log2 + t->words_log2) <= TILE_FEW) break;
        if (t->rows_log2 > rows_least && t->rows_log2 >= t->words_log2)
            t->rows_log2--;
        else if (t->words_log2 > words_least)
            t->words_log2--;
        else
            break;
    }
    go->shared_bytes = (size_t)(((1 << t->words_log2) + 1) * word) << t->rows_log2;
}

static void args_of_tiles(const ks_chip *chip, const ks_spec *spec, layout_launch *go)
{
    const ks_layout_copy copy = ks_layout_copy_of(spec, 0);
    const int last = copy.rank - 1, line = line_of(copy);
    layout_args<ks_divider> *a = &go->a;
    int64_t outer = 1;
    go->word = (int)ks_dtype_size(spec->in[0].dtype);
    const int64_t vector = VECTOR / go->word, word = layout_word_length(go->word);
    a->rank = copy.rank;
    a->from_start = copy.from_start;
    a->to_start = copy.to_start;
    go->vectors = divides(vector, copy.from_start) && divides(vector, copy.from[last]);
    go->whole = divides(word, copy.to_start) && divides(word, copy.to[line]);
    for (int d = 0, to = 0; d < last; d++) {
        if (d == line) continue;
        a->axis[to].per = ks_divider_of(copy.extent[d]);
        a->axis[to].from = copy.from[d];
        a->axis[to++].to = copy.to[d];
        outer *= copy.extent[d];
        go->vectors = go->vectors && divides(vector, copy.from[d]);
        go->whole = go->whole && divides(word, copy.to[d]);
    }
    go->t = {copy.extent[line], copy.extent[last], copy.to[line], copy.from[last], {}, {}, 0, 0, 0};
    choose_tile(chip, copy, line, outer, go);
}

/* --- as runs --------------------------------------------------------------------------------------------------------- */

/* Chunks of a line of so many elements; any: it may begin anywhere. */
static int64_t chunks_of(int64_t length, int size, bool any)
{
    return over(length * size + (any ? VECTOR - size : 0), VECTOR);
}

/* An input of concat, whose box has one axis or two. false: its lines are not as many as `lines`, which the first one sets. */
static bool add_part(const ks_spec *spec, int input, int64_t *lines, int64_t *to, layout_launch *go)
{
    const ks_layout_copy copy = ks_layout_copy_of(spec, input);
    const bool one = copy.rank == 1 && copy.from[0] == 1 && copy.to[0] == 1, single = copy.rank == 1 && !one;
    if (copy.rank > 2 || (copy.rank == 2 && (copy.from[1] != 1 || copy.to[1] != 1))) return false;
    const int64_t rows = one ? 1 : copy.extent[0], length = single ? 1 : copy.extent[copy.rank - 1];
    layout_part<ks_divider> *part = &go->l.part[go->l.parts++];
    if (go->l.parts == 1) *lines = rows, *to = one ? 0 : copy.to[0];
    *part = {spec->in[input].offset, copy.from_start, copy.to_start, one ? 0 : copy.from[0], 0, length, length, 0};
    return rows == *lines && (one ? 0 : copy.to[0]) == *to;
}

static bool parts_of_concat(const ks_spec *spec, layout_launch *go)
{
    layout_lines<ks_divider> *l = &go->l;
    int64_t lines = 1, to = 0;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        if (spec->in[i].size_bytes > 0 && !add_part(spec, i, &lines, &to, go)) return false;
    l->rank = 1;
    l->axis[0] = {ks_divider_of(lines), 1, to, 0, lines};
    return l->parts > 0;
}

static bool part_of_pad(const ks_spec *spec, layout_launch *go)
{
    const ks_layout_pad pad = pad_of(spec);
    const int last = pad.rank - 1;
    layout_lines<ks_divider> *l = &go->l;
    int64_t stride = 1, to = 1;
    for (int d = last; d >= 0; d--) {
        const int64_t extent = pad.before[d] + pad.extent[d] + pad.after[d];
        if (d == last)
            l->part[0] = {spec->in[0].offset, 0, 0, 1, pad.before[d], pad.extent[d], extent, 0};
        else
            l->axis[d] = {ks_divider_of(extent), stride, to, pad.before[d], pad.extent[d]};
        stride *= pad.extent[d];
        to *= extent;
    }
    l->rank = last;
    l->parts = 1;
    l->mode = pad.mode;
    const size_t size = ks_dtype_size(spec->in[0].dtype);
    for (size_t i = 0; i < VECTOR; i += size) memcpy((unsigned char *)&l->fill + i, &pad.fill, size);
    return true;
}

static bool part_of_box(const ks_spec *spec, layout_launch *go)
{
    const ks_layout_copy copy = ks_layout_copy_of(spec, 0);
    const int last = copy.rank - 1;
    layout_lines<ks_divider> *l = &go->l;
    if (copy.from[last] != 1 || copy.to[last] != 1) return false;
    for (int d = 0; d < last; d++)
        l->axis[d] = {ks_divider_of(copy.extent[d]), copy.from[d], copy.to[d], 0, copy.extent[d]};
    l->part[0] = {spec->in[0].offset, copy.from_start, copy.to_start, 1, 0, copy.extent[last], copy.extent[last], 0};
    l->rank = last;
    l->parts = 1;
    return true;
}

/* Whether all lines begin on vectors of the output, and, where `in` is asked, of the input. */
static bool on_vectors(const layout_lines<ks_divider> &l, int size, bool in)
{
    const int64_t n = VECTOR / size;
    bool all = true;
    for (int d = 0; d < l.rank; d++) all = all && divides(n, l.axis[d].to);
    for (int p = 0; p < l.parts; p++) {
        const layout_part<ks_divider> &part = l.part[p];
        all = all && divides(n, part.to_start);
        if (in) all = all && divides(n, part.from_start) && divides(n, part.before);
        for (int d = 0; in && d < l.rank; d++) all = all && divides(n, l.axis[d].from * part.row_from);
    }
    return all;
}

/* false: the work has other lines, or such short ones that most of a thread's bytes would be another's. */
static bool args_of_runs(const ks_spec *spec, layout_launch *go)
{
    const int64_t op = spec->params[KS_LAYOUT_OP].i;
    const int size = (int)ks_dtype_size(spec->in[0].dtype);
    layout_lines<ks_divider> *l = &go->l;
    if (!(op == KS_LAYOUT_CONCAT ? parts_of_concat : op == KS_LAYOUT_PAD ? part_of_pad : part_of_box)(spec, go))
        return false;
    const bool any = !on_vectors(*l, size, false);
    int64_t chunks = 0, lines = 1, bytes = 0, pieces = 0, most = 0;
    for (int p = 0; p < l->parts; p++) {
        const int64_t n = chunks_of(l->part[p].length, size, any);
        chunks += n;
        bytes += l->part[p].length * size;
        if (n > most) most = n;
    }
    l->lanes_log2 = LANES_LEAST;
    while (1 << l->lanes_log2 < KS_WARP && (int64_t)LAYOUT_CHUNKS << l->lanes_log2 < most) l->lanes_log2++;
    for (int p = 0; p < l->parts; p++) {
        l->part[p].first_piece = pieces;
        pieces += over(chunks_of(l->part[p].length, size, any), (int64_t)LAYOUT_CHUNKS << l->lanes_log2);
    }
    for (int d = 0; d < l->rank; d++) lines *= l->axis[d].per.by;
    l->pieces = ks_divider_of(pieces);
    l->items = lines * pieces;
    l->out = spec->out[0].offset;
    l->first = l->last = true;
    go->aligned = !any && on_vectors(*l, size, true);
    go->word = size;
    return chunks * VECTOR <= 2 * bytes;
}

/* --- what is launched ------------------------------------------------------------------------------------------------ */

/* Whether each input takes a launch. */
static bool is_divided(const ks_spec *spec, const layout_algorithm &c)
{
    return c.family == LAYOUT_WORDS && spec->params[KS_LAYOUT_OP].i == KS_LAYOUT_CONCAT;
}

/* few: CTAs may have few threads; the launches of a plan have as many as each other. */
static void settle_grid(const ks_chip *chip, bool few, layout_launch *go)
{
    const int64_t each = go->c.family == LAYOUT_PACKS ? 16 / go->word : 1;
    const int64_t work = go->c.family == LAYOUT_TILES  ? go->t.tiles * LAYOUT_THREADS
                         : go->c.family == LAYOUT_RUNS ? go->l.items << go->l.lanes_log2
                                                       : over(go->a.items, each);
    const int64_t room = (int64_t)chip->sms * (go->c.family == LAYOUT_RUNS ? RUNS_CTAS_SM : CTAS_SM);
    go->threads = LAYOUT_THREADS;
    if (few && over(work, LAYOUT_THREADS) < chip->sms) go->threads = FEW_THREADS;
    const int64_t ctas = over(work, go->threads);
    go->grid = ctas < 1 ? 1 : ctas < room ? ctas : room;
}

/* Whether 31 bits hold every index, and every place of both sides in elements; chunks of a piece may lie behind its line's end. */
static bool is_small(const ks_spec *spec, const layout_launch &go)
{
    const uint64_t size = ks_dtype_size(spec->in[0].dtype),
                   most = INT32_MAX - (int)LAYOUT_CHUNKS * KS_WARP * (int)VECTOR;
    bool small = spec->out[0].size_bytes / size < most && (uint64_t)go.l.items < INT32_MAX;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        small = small && spec->in[i].size_bytes / size < most;
    return small;
}

/* Of one input. */
static layout_launch launch_of(const ks_chip *chip, const ks_spec *spec, const layout_algorithm &c, int input)
{
    layout_launch go = {};
    go.c = c;
    if (c.family == LAYOUT_TILES)
        args_of_tiles(chip, spec, &go);
    else if (c.family == LAYOUT_RUNS)
        args_of_runs(spec, &go);
    else if (c.padded)
        args_of_pad(spec, &go);
    else
        args_of_copy(spec, input, &go);
    go.a.in = spec->in[input].offset;
    go.a.out = spec->out[0].offset;
    go.a.first = go.a.last = true;
    go.small = is_small(spec, go);
    settle_grid(chip, c.family != LAYOUT_TILES && !is_divided(spec, c), &go);
    return go;
}

template <class... Taken, class Given, class... More>
static cudaError_t run(const layout_launch &go, void (*kernel)(ks_site, Taken...), const Given &given,
                       const More &...more)
{
    return ks_launch(kernel, dim3((unsigned)go.grid, (unsigned)go.bucket), go.threads, go.shared_bytes, false,
                     go.stream, go.site, given, more...);
}

static layout_axis<ks_divider32> narrow(const layout_axis<ks_divider> &axis)
{
    return {ks_divider32_of(axis.per.by), (int32_t)axis.from, (int32_t)axis.to, (int32_t)axis.before,
            (int32_t)axis.extent};
}

static layout_args<ks_divider32> narrow(const layout_args<ks_divider> &a)
{
    layout_args<ks_divider32> to = {a.in,    a.out,  a.from_start, a.to_start, (int32_t)a.items, a.rank, a.mode,
                                    a.first, a.last, {},           a.fill};
    for (int d = 0; d < a.rank; d++) to.axis[d] = narrow(a.axis[d]);
    return to;
}

static layout_lines<ks_divider32> narrow(const layout_lines<ks_divider> &l)
{
    layout_lines<ks_divider32> to = {};
    to.rank = l.rank;
    to.parts = l.parts;
    to.lanes_log2 = l.lanes_log2;
    to.pieces = ks_divider32_of(l.pieces.by);
    to.items = (int32_t)l.items;
    to.out = l.out;
    to.mode = l.mode;
    to.fill = l.fill;
    to.first = l.first;
    to.last = l.last;
    for (int d = 0; d < l.rank; d++) to.axis[d] = narrow(l.axis[d]);
    for (int p = 0; p < l.parts; p++) {
        const layout_part<ks_divider> &part = l.part[p];
        to.part[p] = {part.in,
                      part.from_start,
                      part.to_start,
                      part.row_from,
                      (int32_t)part.before,
                      (int32_t)part.inside,
                      (int32_t)part.length,
                      (int32_t)part.first_piece};
    }
    return to;
}

template <class W>
static cudaError_t run_words(const layout_launch &go)
{
    typedef ks_divider L;
    typedef ks_divider32 S;
    if (go.c.family == LAYOUT_WORDS)
        return go.small ? run(go, layout_words<W, S>, narrow(go.a)) : run(go, layout_words<W, L>, go.a);
    if (!go.c.padded)
        return go.small ? run(go, layout_packs<W, S, LAYOUT_BOX>, narrow(go.a))
                        : run(go, layout_packs<W, L, LAYOUT_BOX>, go.a);
    if (go.a.mode == KS_LAYOUT_CONSTANT)
        return go.small ? run(go, layout_packs<W, S, LAYOUT_FILLED>, narrow(go.a))
                        : run(go, layout_packs<W, L, LAYOUT_FILLED>, go.a);
    return go.small ? run(go, layout_packs<W, S, LAYOUT_CONTINUED>, narrow(go.a))
                    : run(go, layout_packs<W, L, LAYOUT_CONTINUED>, go.a);
}

template <class W>
static cudaError_t run_elements(const layout_launch &go)
{
    if (go.c.family == LAYOUT_RUNS)
        return go.small ? run(go, layout_runs<W, ks_divider32>, narrow(go.l))
                        : run(go, layout_runs<W, ks_divider>, go.l);
    if (go.vectors)
        return go.whole ? run(go, layout_tile<W, true, true>, go.a, go.t)
                        : run(go, layout_tile<W, true, false>, go.a, go.t);
    return go.whole ? run(go, layout_tile<W, false, true>, go.a, go.t)
                    : run(go, layout_tile<W, false, false>, go.a, go.t);
}

static cudaError_t go_on(const layout_launch &go)
{
    const bool elements = go.c.family == LAYOUT_TILES || go.c.family == LAYOUT_RUNS;
    switch (go.word) {
    case 1:
        return elements ? run_elements<uint8_t>(go) : run_words<uint8_t>(go);
    case 2:
        return elements ? run_elements<uint16_t>(go) : run_words<uint16_t>(go);
    case 4:
        return elements ? run_elements<uint32_t>(go) : run_words<uint32_t>(go);
    case 8:
        return elements ? run_elements<unsigned long long>(go) : run_words<unsigned long long>(go);
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
    const bool parts = is_divided(spec, c);
    int input = parts ? next_part(spec, -1) : 0;
    if (input < 0) input = 0;
    for (bool first = true; input >= 0 && status == cudaSuccess; first = false) {
        layout_launch go = launch_of(chip, spec, c, input);
        input = parts ? next_part(spec, input) : -1;
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

/* Whether both sides of a box are vectors of 16 bytes. */
static bool is_vectors(const ks_layout_copy &copy, int size)
{
    return run_of(copy, size) * size == VECTOR;
}

static layout_algorithm choose(const ks_spec *spec)
{
    layout_algorithm c = {};
    layout_launch tried = {};
    const int64_t op = spec->params[KS_LAYOUT_OP].i;
    const int size = (int)ks_dtype_size(spec->in[0].dtype);
    const bool box = op != KS_LAYOUT_PAD && op != KS_LAYOUT_CONCAT;
    c.padded = op == KS_LAYOUT_PAD;
    if (spec->out[0].size_bytes == 0)
        c.family = op == KS_LAYOUT_CONCAT ? LAYOUT_WORDS : LAYOUT_PACKS;
    else if (box && line_of(ks_layout_copy_of(spec, 0)) >= 0)
        c.family = LAYOUT_TILES;
    else if (box && is_vectors(ks_layout_copy_of(spec, 0), size))
        c.family = LAYOUT_WORDS;
    else if (args_of_runs(spec, &tried) && (!c.padded || tried.l.part[0].length >= PADDED_LEAST))
        c.family = LAYOUT_RUNS;
    else
        c.family = op == KS_LAYOUT_CONCAT ? LAYOUT_WORDS : LAYOUT_PACKS;
    return c;
}

/* Words that lie apart in the input are read by the sector, and some of them are several times, over the link on mapped slots; vectors that
 * lie across two are read twice. */
static bool reads_once(const ks_spec *spec, const layout_launch &go)
{
    if (go.grid > KS_GRID_MAX) return false;
    const bool packs = go.c.family == LAYOUT_PACKS && !go.c.padded && go.a.axis[go.a.rank - 1].from != 1;
    const double again = packs && go.word < SECTOR_BYTES             ? (double)SECTOR_BYTES / go.word
                         : go.c.family == LAYOUT_RUNS && !go.aligned ? 2
                                                                     : 1;
    size_t in_bytes = 0;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) in_bytes += spec->in[i].size_bytes;
    return (double)spec->out[0].size_bytes * again <= (double)(in_bytes + MAPPED_AGAIN);
}

static void name_kernel(const layout_launch &go, ks_kernel_info *info)
{
    static const char *const names[] = {"words", "packs", "tile", "runs"};
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
