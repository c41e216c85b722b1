/* Which kernel of this folder does a reduction, and how the work is cut (plan.h).
 *
 *   rows      the reduced axis is contiguous: vectors along it
 *   once      the same where all of it is in flight at once
 *   bands     it is a list of axes, the innermost of them contiguous: vectors along that one, results side by side
 *   runs      the same where they are long, or not whole vectors
 *   slab      results of a few elements, rows or narrow columns: through shared memory
 *   in_vector rows of a few elements, of which a vector holds one or several
 *   columns   the results lie side by side: vectors across them, threads along the axis
 *   planes    the same where rows follow each other without a gap and are short, off the lines of memory, or a list's
 *   elements  the same by single elements: what vectors cannot do
 *   segment_rows, segment_columns  segments of the reduced axis, contiguous ones and others; where they may be long a second launch joins
 *
 * One kernel each: where there are too few results to fill the chip the axis is cut into parts, and the CTA that comes
 * last in a result joins them in their order. What is accumulated, and how, stands in ops.cuh. */
#include "cuda/reduce/plan.h"

#include <stdio.h>
#include <string.h>

enum {
    SLAB_BYTES = 16 << 10,
    SLAB_ROW_MAX = 128,    /* bytes of a row of whole vectors, twice that of others; */
    SLAB_BLOCK_MAX = 1024, /* of depth x inner elements */
    LONG_VECTORS = 4096,   /* of a row that several CTAs may share */
    PARTS_MAX = 1024,
    LINE_BYTES = 128, /* of memory */
    WIDE_VECTORS =
        32, /* side by side where rows do not start on lines: 512 bytes, of which a line is shared with others */
    WAVE_VECTORS = 64,       /* side by side, at most, where one wave of CTAs takes all columns */
    PLANE_ROW_MAX = 512,     /* bytes of a row of the only plane of a line; */
    PLANE_VECTORS = 8,       /* of a thread in a part of planes, at least */
    PLANE_BYTES = 256 << 10, /* of the input of single ones for each SM, at least */
    IN_VECTOR_ROWS = 4096,   /* rows, at least */
    NUMBERED = 65536,        /* elements of a thread, at most */
    BAND_THREADS = 256,
    ONCE_VECTORS = 10240 /* of an SM */
};

/* --- the shape ------------------------------------------------------------------------------------------------------- */

static void add_axis(reduce_list *list, ks_dimension d)
{
    reduce_axis *axis = &list->at[list->count++];
    *axis = reduce_axis{d.extent, d.stride, 0, 0};
    if (d.extent < 2) return;
    while ((int64_t)1 << axis->shift < d.extent) axis->shift++;
    axis->shift--;
    const unsigned __int128 power = (unsigned __int128)1 << (64 + axis->shift);
    axis->multiplier = (uint64_t)((power + (uint64_t)d.extent - 1) / (uint64_t)d.extent);
}

/* Axes from the outside in; the last one in steps of `piece`. */
static reduce_list list_of(const ks_dimensions *outer, ks_dimension last, int piece)
{
    reduce_list list = {};
    for (int i = 0; i < outer->count; i++) add_axis(&list, outer->at[i]);
    if (last.extent != 1 || list.count == 0) add_axis(&list, ks_dimension{last.extent / piece, last.stride * piece});
    return list;
}

/* A reduction as the planner sees it. */
typedef struct reduce_work {
    ks_walk walk;
    int64_t results, depth;
    int64_t inner;       /* results side by side in memory; 1: the reduced axis is contiguous */
    int element, length; /* bytes of an element, elements of a vector */
    bool numbers;        /* integers, but not by their bits; what is done element by element */
    bool places;         /* argmax, argmin */
    int accumulator;     /* bytes of one, as its functor has it */
} reduce_work;

static int accumulator_of(int op, ks_dtype dtype)
{
    const int size = (int)ks_dtype_size(dtype);
    if (op == VAR || op == STD) return 24;
    if (op == ANY || op == ALL || op == COUNT_NONZERO || op == NORM_ZERO) return 4;
    if (op == NORM_MOST || op == NORM_LEAST) return size == 8 ? 8 : 4;
    if (op == LOGSUMEXP) return dtype == KS_FP64 ? 16 : 12;
    if (op == ARGMAX || op == ARGMIN) return size <= 2 ? 4 : size == 4 ? 8 : 16;
    return op == MAX || op == MIN ? (size == 8 ? 8 : 4) : 8;
}

/* Of integers: what needs them as numbers. Of all datatypes: what takes so long an element that nothing is lost. */
static bool takes_numbers(int op, ks_dtype dtype)
{
    static const unsigned of_integers = 1u << PROD | 1u << L2NORM | 1u << LOGSUMEXP | 1u << VAR | 1u << STD |
                                        1u << SUMSQ | 1u << L1NORM | 1u << LOGSUM | 1u << NORM_MOST | 1u << NORM_LEAST;
    if (op == NORM || op == NORM_ZERO) return true;
    if (ks_dtype_kind(dtype) == KS_KIND_FLOAT) return false;
    return (of_integers >> op & 1) || (op == MEAN && ks_dtype_size(dtype) == 8);
}

static reduce_work work_of(const ks_spec *spec)
{
    const ks_dtype dtype = spec->in[0].dtype;
    const int op = ks_reduce_function(spec);
    reduce_work w = {};
    w.walk = ks_walk_plan(spec, 0);
    w.inner = w.walk.lanes.extent;
    w.results = ks_walk_combinations(&w.walk.kept) * w.inner;
    w.depth = ks_walk_combinations(&w.walk.rest) * w.walk.depth.extent;
    w.element = (int)ks_dtype_size(dtype);
    w.places = op == ARGMAX || op == ARGMIN;
    w.accumulator = accumulator_of(op, dtype);
    w.length = 16 / w.element;
    w.numbers = takes_numbers(op, dtype);
    return w;
}

/* Vectors that a run touches at the most. */
static int64_t slots_of(const reduce_work *w)
{
    const int64_t run = w->walk.depth.extent;
    return quotient_up(run, w->length) + (run % w->length != 0);
}

/* Bands: results whose runs lie side by side. 0: runs that are not whole vectors, or too long for more than one to be worked
 * on at a time. */
static int64_t neighbours_of(const reduce_work *w)
{
    const ks_dimensions *kept = &w->walk.kept;
    const int64_t run = w->walk.depth.extent;
    if (w->inner > 1 || w->walk.rest.count == 0 || run % w->length || run / w->length * 2 > BAND_THREADS) return 0;
    return kept->count > 0 ? kept->at[kept->count - 1].extent : 0;
}

/* Lines off the vectors come round to the same shift after so many. */
static int64_t period_of(const reduce_work *w)
{
    int64_t period = 1;
    while (w->inner * period % w->length) period *= 2;
    return period;
}

static int64_t divisor_of(int64_t a, int64_t b)
{
    return b ? divisor_of(b, a % b) : a;
}

/* Planes: the vectors of a period. */
static int64_t period_vectors(const reduce_work *w)
{
    return w->inner / divisor_of(w->inner, w->length);
}

static int64_t plane_of(const reduce_work *w)
{
    return w->walk.depth.extent * w->inner;
}

/* So many planes on, a plane is shifted against the vectors as before. 0: planes of a list of lists, which differ. */
static int plane_classes(const reduce_work *w)
{
    int classes = 1;
    for (int i = 0; i < w->walk.rest.count; i++) {
        const int more = w->length / (int)divisor_of(w->walk.rest.at[i].stride, w->length);
        if (more > 1 && w->walk.rest.count > 1) return 0;
        classes = more > classes ? more : classes;
    }
    return classes;
}

/* Threads of a CTA that takes columns, pieces of so many to a thread (reduce_columns_threads). */
static int column_threads(const reduce_work *w, int piece)
{
    return piece == 16 || (piece == 8 && w->accumulator > 16) ? 128 : 256;
}

/* How many items; *tiles as in the shape. */
static int64_t items_of(const reduce_work *w, const reduce_algorithm *c, uint32_t *tiles)
{
    const int piece = c->kernel == REDUCE_COLUMNS ? w->length : 1;
    int64_t items = w->results;
    if (c->kernel == REDUCE_SLAB) {
        items = quotient_up(w->results, w->inner * c->width);
    } else if (c->kernel == REDUCE_BANDS) {
        *tiles = (uint32_t)quotient_up(neighbours_of(w), c->width);
        items = w->results / neighbours_of(w) * *tiles;
    } else if (c->kernel == REDUCE_ONCE) {
        items = w->results;
    } else if (c->kernel == REDUCE_PLANES) {
        items = w->results / w->inner;
    } else if (c->kernel == REDUCE_IN_VECTOR) {
        items =
            quotient_up(quotient_up(w->results * w->depth, w->length), REDUCE_IN_VECTOR_LOADS * (int64_t)c->threads);
    } else if (c->kernel > REDUCE_SLAB && w->inner % piece == 0) {
        items = quotient_up(w->results / piece, c->width);
    } else if (c->kernel > REDUCE_SLAB) {
        *tiles = (uint32_t)quotient_up(w->inner, (c->width - 1) * piece);
        items = w->results / w->inner * *tiles;
    }
    return items * c->parts;
}

reduce_shape reduce_shape_of(const ks_spec *spec, const reduce_algorithm *c)
{
    const reduce_work w = work_of(spec);
    const int piece = c->kernel == REDUCE_COLUMNS ? w.length : 1;
    reduce_shape s = {};
    s.offset = spec->in[0].offset;
    s.results = w.results;
    s.depth = w.depth;
    s.inner = w.inner;
    s.share = c->share;
    s.parts = c->parts;
    s.width = c->width;
    s.rows = c->threads / c->width;
    if (w.inner % piece) s.rows -= s.rows % (int)period_of(&w);
    s.items = (uint32_t)items_of(&w, c, &s.tiles);
    if (c->kernel == REDUCE_ROWS) {
        if (w.depth % w.length == 0) s.vectors = w.depth / w.length;
    } else if (c->kernel == REDUCE_RUNS) {
        s.inner = w.walk.depth.extent;
        s.slots = (uint32_t)slots_of(&w);
        s.kept = list_of(&w.walk.kept, w.walk.lanes, 1);
        s.reduced = list_of(&w.walk.rest, ks_dimension{1, 0}, 1);
    } else if (c->kernel == REDUCE_BANDS) {
        ks_dimensions lines = w.walk.kept;
        lines.count--;
        s.inner = neighbours_of(&w);
        s.slots = (uint32_t)(w.walk.depth.extent / w.length);
        s.rows = c->threads / (c->width * (int)s.slots);
        s.steps = w.depth / w.walk.depth.extent;
        s.kept = list_of(&lines, ks_dimension{1, 0}, 1);
        s.reduced = list_of(&w.walk.rest, ks_dimension{1, 0}, 1);
    } else if (c->kernel == REDUCE_PLANES) {
        s.plane = plane_of(&w);
        s.steps = w.depth / w.walk.depth.extent;
        s.classes = plane_classes(&w);
        s.kept = list_of(&w.walk.kept, ks_dimension{1, 0}, 1);
        s.reduced = list_of(&w.walk.rest, ks_dimension{1, 0}, 1);
    } else if (c->kernel != REDUCE_SLAB && c->kernel != REDUCE_IN_VECTOR) {
        s.reduced = list_of(&w.walk.rest, w.walk.depth, 1);
        s.kept = s.tiles ? list_of(&w.walk.kept, ks_dimension{1, 0}, 1) : list_of(&w.walk.kept, w.walk.lanes, piece);
    }
    return s;
}

/* --- choosing -------------------------------------------------------------------------------------------------------- */

/* Parts of an axis: at least `least` steps each, and at most `most`; their share is a multiple of `least`. */
static void cut(reduce_algorithm *c, int64_t parts, int64_t steps, int64_t least, int64_t most)
{
    const int64_t fewest = within(quotient_up(steps, most), 1, INT32_MAX);
    parts = within(parts, fewest, within(steps / least, fewest, INT32_MAX));
    c->share = within(quotient_up(quotient_up(steps, parts), least), 1, INT64_MAX) * least;
    c->parts = (uint32_t)within(quotient_up(steps, c->share), 1, INT32_MAX);
}

/* A few long rows: parts such that the CTAs are there all at once and nearly fill the chip, with 512 threads or 256. Where
 * that would be a few loads a thread, as many parts as SMs: to join them costs more than to wait for a load. */
static void choose_long(const ks_chip *chip, const reduce_work *w, int64_t vectors, reduce_algorithm *c)
{
    const bool small = w->results * vectors < (int64_t)chip->sms * 256 * 32;
    const int64_t slots = (int64_t)chip->sms * 2;
    int64_t parts = within((small ? slots / 2 : slots) / w->results, 1, PARTS_MAX);
    c->width = 512;
    if (small || parts * w->results * 4 < slots * 3) {
        if (!small) parts = within(2 * slots / w->results, 1, PARTS_MAX);
        c->width = 256;
    }
    cut(c, parts, vectors, c->width, NUMBERED / w->length * c->width);
}

/* Rows and runs: threads enough for 8 vectors each; of 16-bit and 8-bit elements, which are more work a vector, up to 32
 * where there are rows enough. */
static void choose_rows(const ks_chip *chip, const reduce_work *w, reduce_algorithm *c)
{
    const int64_t vectors = c->kernel == REDUCE_RUNS ? slots_of(w) * (w->depth / w->walk.depth.extent)
                                                     : quotient_up(w->depth, w->length) + (w->depth % w->length != 0);
    const bool many = w->results >= (int64_t)chip->sms * 4;
    const int64_t inner = vectors - (w->depth % w->length != 0 ? 2 : 0); /* those at the edges are beside them */
    int64_t width = power_up(quotient_up(inner, w->length > 4 && !many ? 4 : 8));
    if (w->length > 4 && many && width > 16) width = within(power_up(quotient_up(vectors, 32)), 16, width);
    c->width = (int16_t)within(width, 4, many ? 256 : 512);
    c->share = vectors;
    c->parts = 1;
    if (!many && vectors >= LONG_VECTORS) choose_long(chip, w, vectors, c);
    const int64_t most = NUMBERED / w->length * c->width; /* rows so long that places run out: of many gigabytes */
    if (many && w->places && vectors > most) cut(c, 1, vectors, c->width, most);
    c->threads = (int16_t)(c->width < 128 ? 128 : c->width);
    c->grid = (uint32_t)within(quotient_up(w->results * c->parts, c->threads / c->width), 1, INT32_MAX);
}

/* Rows of which all vectors are in flight at once: up to 4 of each of 512 threads in a CTA; then parts of 256 threads, or of
 * 512 where these are too many. */
static bool choose_once(const ks_chip *chip, const reduce_work *w, reduce_algorithm *c)
{
    const int64_t vectors = quotient_up(w->depth, w->length) + (w->depth % w->length != 0);
    int64_t threads = within(power_up(quotient_up(vectors, REDUCE_ONCE_LOADS)), 32, 512);
    if (w->results < 1 || w->results >= (int64_t)chip->sms * 4) return false;
    if (w->results * vectors > (int64_t)chip->sms * ONCE_VECTORS) return false;
    if (vectors > threads * REDUCE_ONCE_LOADS) {
        threads = 256;
        if (w->results * quotient_up(vectors, threads * REDUCE_ONCE_LOADS) > (int64_t)chip->sms * 2) threads = 512;
    }
    c->parts = (uint32_t)quotient_up(vectors, threads * REDUCE_ONCE_LOADS);
    c->share = quotient_up(vectors, c->parts);
    c->parts = (uint32_t)quotient_up(vectors, c->share);
    c->width = c->threads = (int16_t)threads;
    c->grid = (uint32_t)w->results * c->parts;
    return true;
}

/* A slab of 128 bytes a thread, less where there are few results. */
static void choose_slab(const ks_chip *chip, const reduce_work *w, reduce_algorithm *c)
{
    const int64_t block = w->depth * w->inner * w->element;
    const int64_t few = quotient_up(quotient_up(w->results / w->inner, 4 * (int64_t)chip->sms), 16) * 16;
    const int64_t blocks = within(SLAB_BYTES / block / 16 * 16, 16, within(few, 16, 512));
    c->width = (int16_t)blocks;
    c->threads = (int16_t)within(power_up(blocks * w->inner), 32, 128);
    c->parts = 1;
    c->grid = (uint32_t)within(quotient_up(w->results, blocks * w->inner), 1, INT32_MAX);
    c->shared_bytes = (int32_t)(blocks * (block + 16));
}

/* CTAs of columns, or of planes, that an SM holds (reduce_columns_ctas, reduce_planes_ctas). */
static int column_ctas(const reduce_work *w, int piece, bool planes)
{
    if (w->accumulator > 16) return piece == 8 ? 3 : 2;
    if (w->element == 8 || w->numbers) return 2;
    return piece == 1 || piece > 8 || w->accumulator * piece > 96 || (planes && (w->accumulator > 8 || w->places)) ? 3
                                                                                                                   : 4;
}

/* Threads side by side and along the axis. The deeper the axis, the more along it, down to a line of memory side by side;
 * where rows do not start on lines, and neighbouring tiles share one in each row, down to WIDE_VECTORS. */
static int64_t column_width(const ks_chip *chip, const reduce_work *w, int piece)
{
    const int64_t threads = column_threads(w, piece), wanted = 2 * (int64_t)chip->sms * threads;
    const bool off = w->inner % piece != 0;
    const int64_t across = off ? quotient_up(w->inner, piece) + 1 : w->inner / piece, period = off ? period_of(w) : 1;
    const bool shared = piece > 1 && w->inner * w->element % LINE_BYTES != 0 && across >= 2 * WIDE_VECTORS;
    const int64_t most = threads / (shared ? (int)WIDE_VECTORS : 8);
    int64_t rows = within(power_up(quotient_up(w->depth, 64)), 1, most);
    if (w->results / piece * rows < wanted) rows = within(power_up(quotient_up(w->depth, 8)), 1, most);
    if (off) rows = within(rows, period, period > 8 ? period : 8);
    int64_t width = threads / rows;
    if (shared && !off && rows > 1)
        width = quotient_up(across, within(across / width, 1, across)); /* no tile of a few */
    if (width > across && (rows > 1 || off)) width = across;
    if (width > w->results / piece && !off) width = w->results / piece;
    return width;
}

/* Whole waves of CTAs for columns that are enough for one and no more than a few: as wide as that makes them. 0: the axis is
 * too short for so many threads along it. */
static int64_t wave_width(const ks_chip *chip, const reduce_work *w, int piece)
{
    const int64_t all = w->results / piece, wave = (int64_t)column_ctas(w, piece, false) * chip->sms;
    if (piece == 1 || w->inner % piece != 0 || all < wave * 8 || all > wave * WAVE_VECTORS * 4) return 0;
    const int64_t width = quotient_up(all, wave * quotient_up(all, wave * WAVE_VECTORS));
    return width > w->inner / piece || w->depth < 16 * (column_threads(w, piece) / width) ? 0 : width;
}

/* Columns and elements. Parts such that two CTAs an SM are there; of 16-bit elements, which a thread has half as many bytes of
 * in flight, as many as an SM holds where the axis is long enough. */
static void choose_columns(const ks_chip *chip, const reduce_work *w, reduce_algorithm *c)
{
    const int piece = c->kernel == REDUCE_COLUMNS ? w->length : 1, threads = column_threads(w, piece);
    const int64_t lines = w->results / w->inner, wanted = 2 * (int64_t)chip->sms;
    const bool off = w->inner % piece != 0;
    const int64_t period = off ? period_of(w) : 1, wave = wave_width(chip, w, piece),
                  width = wave ? wave : column_width(chip, w, piece), rows = threads / width - threads / width % period;
    c->width = (int16_t)width;
    c->threads = (int16_t)(quotient_up(rows * width, 32) * 32);
    const int64_t tiles =
        off ? lines * quotient_up(w->inner, (width - 1) * piece) : quotient_up(w->results / piece, width);
    int64_t parts = wanted / tiles;
    if (piece == 8 && !off)
        parts = within(w->depth / (64 * rows), parts, column_ctas(w, piece, false) * (int64_t)chip->sms / tiles);
    parts = within(parts, 1, within(w->depth / (8 * rows), 1, INT32_MAX));
    cut(c, parts, w->depth, rows, NUMBERED * rows); /* CTAs with a round less than others would leave SMs idle */
    c->grid = (uint32_t)within(tiles * c->parts, 1, INT32_MAX);
    c->shared_bytes = (int32_t)(c->threads * piece * STATE_BYTES);
}

/* Planes: parts such that all CTAs are there at once and nearly fill the chip; where there are lines enough, whole lines. */
static void choose_planes(const ks_chip *chip, const reduce_work *w, reduce_algorithm *c)
{
    const int64_t width = period_vectors(w), groups = column_threads(w, w->length) / width, threads = width * groups;
    const int64_t planes = w->depth / w->walk.depth.extent, vectors = quotient_up(plane_of(w), w->length);
    const int64_t lines = w->results / w->inner, slots = (int64_t)column_ctas(w, w->length, true) * chip->sms;
    int64_t parts = slots / lines;
    if (parts * lines * 10 < slots * 9 && lines < 4 * slots)
        parts = 4 * slots / lines; /* so many that the last ones are a small part */
    c->width = (int16_t)width;
    c->threads = (int16_t)(quotient_up(threads, 32) * 32);
    if (planes > 1) {
        const int64_t least = within(quotient_up(threads * PLANE_VECTORS, vectors), 1, planes) * plane_classes(w);
        cut(c, within(parts, 1, within(planes / least, 1, planes)), planes, 1, INT32_MAX); /* of one size, nearly */
    } else {
        cut(c, parts, quotient_up(vectors, width), groups * PLANE_VECTORS, NUMBERED * groups);
    }
    c->grid = (uint32_t)within(lines * c->parts, 1, INT32_MAX);
    c->shared_bytes = (int32_t)(threads * w->length * STATE_BYTES + REDUCE_PLANES_AHEAD * (int)sizeof(int64_t));
}

/* Bands: as columns, of results with a run's vectors each. */
static void choose_bands(const ks_chip *chip, const reduce_work *w, reduce_algorithm *c)
{
    const int64_t piece = w->walk.depth.extent / w->length, steps = w->depth / w->walk.depth.extent;
    const int64_t all = neighbours_of(w);
    const int64_t most = within(BAND_THREADS / piece, 1, all);
    c->width = (int16_t)quotient_up(all, quotient_up(all, most));
    const int64_t rows = within(quotient_up(steps, 8), 1, BAND_THREADS / (c->width * piece));
    c->threads = (int16_t)(quotient_up(rows * c->width * piece, 32) * 32);
    const int64_t tiles = w->results / all * quotient_up(all, c->width);
    cut(c, 4 * (int64_t)chip->sms / tiles, steps, 8 * rows, INT32_MAX);
    c->grid = (uint32_t)within(tiles * c->parts, 1, INT32_MAX);
    const int ahead = reduce_band_steps(c->threads / (c->width * (int)piece));
    c->shared_bytes = c->threads * STATE_BYTES + ahead * (int)sizeof(int64_t);
}

/* Rows that vectors hold several of: of so many that a thread has work. */
static bool choose_in_vector(const reduce_work *w, reduce_algorithm *c)
{
    if (w->inner != 1 || w->numbers || w->depth < 2 || w->length % w->depth != 0 || w->results < IN_VECTOR_ROWS)
        return false;
    c->kernel = REDUCE_IN_VECTOR;
    c->parts = 1;
    c->width = (int16_t)w->depth;
    c->threads = 256;
    uint32_t tiles;
    c->grid = (uint32_t)within(items_of(w, c, &tiles), 1, INT32_MAX);
    return true;
}

/* Planes of a list, and a long one whose rows are short and not whole vectors, as far as a CTA has a thread for each vector of a
 * period: columns of whole vectors, or of a few MiB, are as quick by columns or quicker (docs/kernels/reduce.md). */
static bool takes_planes(const ks_chip *chip, const reduce_work *w)
{
    if (w->inner == 1 || w->numbers || w->depth == 0 || w->walk.depth.extent < 2) return false;
    if (period_vectors(w) > column_threads(w, w->length) || plane_of(w) / w->length > INT32_MAX / 2 ||
        plane_classes(w) == 0)
        return false;
    if (w->walk.rest.count > 0) return plane_of(w) >= 4 * w->length;
    const int64_t threads = column_threads(w, w->length) / period_vectors(w) * period_vectors(w);
    return w->inner * w->element <= PLANE_ROW_MAX && plane_of(w) >= threads * PLANE_VECTORS * w->length &&
           w->inner % w->length != 0 && w->results * w->depth * w->element >= PLANE_BYTES * (int64_t)chip->sms;
}

/* Lines off the vectors are worth their threads where the axis is deep. */
static bool takes_vectors(const reduce_work *w)
{
    return w->inner % w->length == 0 || (w->walk.rest.count == 0 && w->depth >= 128);
}

static reduce_algorithm choose(const ks_chip *chip, const reduce_work *w)
{
    reduce_algorithm c = {};
    const bool simple = w->walk.rest.count == 0 && w->walk.kept.count <= 1;
    const int64_t block = simple ? w->depth * w->inner * w->element : INT64_MAX;
    const bool whole = w->inner * w->depth % w->length == 0 && w->inner == 1;
    const bool narrow = w->inner == 1 || w->inner % w->length != 0 || w->inner < 4 * w->length;
    if (simple && w->depth > 0 && choose_in_vector(w, &c)) return c;
    if (simple && w->inner == 1 && w->depth > 0 && !w->numbers && block <= 2 * SLAB_ROW_MAX &&
        choose_once(chip, w, &c)) {
        c.kernel = REDUCE_ONCE; /* few: no more than a warp each, and nothing through shared memory */
        return c;
    }
    if (w->depth > 0 && narrow && block <= (whole ? SLAB_ROW_MAX : w->inner == 1 ? 2 * SLAB_ROW_MAX : SLAB_BLOCK_MAX)) {
        c.kernel = REDUCE_SLAB;
        choose_slab(chip, w, &c);
    } else if (w->numbers || w->depth == 0) {
        c.kernel = REDUCE_ELEMENTS;
        choose_columns(chip, w, &c);
    } else if (w->inner == 1) {
        c.kernel = simple ? REDUCE_ROWS : neighbours_of(w) > 1 ? REDUCE_BANDS : REDUCE_RUNS;
        if (c.kernel == REDUCE_BANDS)
            choose_bands(chip, w, &c);
        else if (c.kernel == REDUCE_ROWS && choose_once(chip, w, &c))
            c.kernel = REDUCE_ONCE;
        else
            choose_rows(chip, w, &c);
    } else if (takes_planes(chip, w)) {
        c.kernel = REDUCE_PLANES;
        choose_planes(chip, w, &c);
    } else {
        c.kernel = takes_vectors(w) ? REDUCE_COLUMNS : REDUCE_ELEMENTS;
        choose_columns(chip, w, &c);
    }
    return c;
}

void reduce_describe(const ks_spec *spec, const reduce_algorithm *c, ks_kernel_info *kernel_info)
{
    static const char *const ways[] = {"rows", "runs",   "slab",      "columns",      "elements",       "bands",
                                       "once", "planes", "in_vector", "segment_rows", "segment_columns"};
    snprintf(kernel_info->kernel, sizeof kernel_info->kernel, "reduce_%s<%s, %s, %d wide, %u parts>", ways[c->kernel],
             ks_dtype_name(spec->in[0].dtype), spec->op->params[OP].choices[spec->params[OP].i], c->width, c->parts);
    kernel_info->grid = c->grid;
    kernel_info->threads = c->threads;
    kernel_info->cluster = 1;
    kernel_info->shared_bytes = (size_t)c->shared_bytes;
}

ks_status reduce_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    if (ks_reduce_has_segments(spec)) return reduce_plan_segments(chip, spec, out, error);
    const reduce_work w = work_of(spec);
    reduce_algorithm c = choose(chip, &w);
    if (spec->in[0].size_bytes + spec->out[0].size_bytes <= KS_MAPPED_MOST && c.grid > KS_GRID_MAX)
        c.grid = KS_GRID_MAX;
    uint32_t tiles = 0;
    const int64_t items = items_of(&w, &c, &tiles);
    out->once = true;
    out->batch_max = KS_BATCH_MAX;
    if (c.parts > 1 && (c.kernel <= REDUCE_RUNS || c.kernel == REDUCE_ONCE)) {
        out->counters = (size_t)w.results * REDUCE_MESSAGE * (c.parts + 1);
    } else if (c.parts > 1 && c.kernel == REDUCE_PLANES) {
        out->workspace_bytes = ks_align((size_t)(items * w.inner) * STATE_BYTES);
        out->counters = (size_t)items / c.parts * reduce_join_counters(c.parts);
    } else if (c.parts > 1) {
        const bool more = c.kernel != REDUCE_BANDS && tiles > 0; /* a thread more than pieces */
        const int64_t span = (c.width - more) * (int64_t)(c.kernel == REDUCE_COLUMNS ? w.length : 1);
        out->workspace_bytes = ks_align((size_t)(items * span) * STATE_BYTES);
        out->counters = (size_t)items / c.parts * reduce_join_counters(c.parts);
    }
    if (items > INT32_MAX || out->counters > KS_COUNTERS_MAX)
        return ks_fail(error, KS_WORK, "reduce: %lld pieces of work and %zu counters, takes %d and %d",
                       (long long)items, out->counters, INT32_MAX, (int)KS_COUNTERS_MAX);
    if (out->workspace_bytes > chip->workspace_bytes)
        return ks_fail(error, KS_WORK, "reduce: needs %zu bytes of workspace, the device has %zu", out->workspace_bytes,
                       chip->workspace_bytes);
    reduce_describe(spec, &c, &out->kernel_info);
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}
