/* Softmax on the GPU: which kernel of softmax_*.cuh, with what launch parameters; then the launch.
 *
 *   lanes           short rows of whole vectors              very short rows, and short lines           slab
 *   spans           short rows of any length                 rows of 2 and 4 elements, within a vector  within
 *   held            rows that the registers of a CTA hold    tiles of columns, likewise                 columns
 *   ring            rows of teams of CTAs                    long tiles of teams, likewise              columns_flow
 *   stream          few rows of large teams                  tiles of teams, of any length              columns_stream
 *   huge            one row of any length
 *
 * Borders are bytes and counts of the device where they follow from it, and else were measured on an H200, but SLAB_ROW:
 * there a row takes about as many instructions in a slab as in spans. */
#include "cuda/op.h"
#include "cuda/softmax/columns.cuh"
#include "cuda/softmax/multiblock_pipelined.cuh"
#include "cuda/softmax/block_registers.cuh"
#include "cuda/softmax/multiblock_ring.cuh"
#include "cuda/softmax/short_rows.cuh"
#include "cuda/softmax/multiblock_registers.cuh"

#include <stdio.h>
#include <string.h>

enum softmax_kind { LANES, WITHIN, SPANS, SLAB, HELD, RING, STREAM, HUGE, COLUMNS, COLUMNS_FLOW, COLUMNS_STREAM };
enum { AXIS, LOG, SCALE };
enum {
    SLAB_BYTES = 16 << 10, /* of shared memory that a slab aims at */
    SLAB_MOST = 48 << 10,  /* and what it may take: every CTA has so much */
    SLAB_ROW = 120,        /* elements of a row that a slab takes */
    SPAN_PACKS = 4,        /* whole vectors of a row that a lane takes */
    FLOW_ROUNDS = 3,       /* tiles of a team that make up for the start */
    FLOW_OWN = 2,          /* columns of which a member has time to gather the notes */
    FLOW_NOTE = 4,         /* rows that a note takes as long as */
    RING_TEAM = 64,        /* CTAs of a team for which any number of rows will do */
    RING_ROWS = 8,         /* and rows for which more will */
    RING_PART = 16,        /* vectors that a row takes as long as, for each CTA that tells its pair */
    RING_STATIC = 6 << 10, /* as STATIC_BYTES below, of ring */
    STATIC_BYTES = 2 << 10 /* at least what a kernel of teams has besides, with what the system takes of each CTA */
};

struct softmax_choice {
    int8_t kind, packs, rows; /* packs in a thread, rows of a lane: template choices */
    int8_t shift;             /* lanes of a row, their logarithm */
    int8_t pack;              /* elements of a pack */
    int8_t beyond;            /* columns_stream: a part is larger than what is kept */
    int16_t threads, lanes, parts, kept;
    int32_t pieces, shared;
    int64_t grid, share;
};
static_assert(sizeof(softmax_choice) <= KS_CHOICE_BYTES, "a plan remembers the choice");

static softmax_shape shape_of(const ks_spec *spec)
{
    const ks_tensor *x = &spec->in[0];
    const int axis = (int)spec->params[AXIS].i;
    const double scale = spec->params[SCALE].d;
    softmax_shape s = {};
    s.length = x->dims[axis];
    s.inner = ks_dims_product(x->dims, axis + 1, x->rank);
    s.outer = ks_dims_product(x->dims, 0, axis);
    s.offset = x->offset;
    s.sign = scale < 0 ? -1 : scale > 0 ? 1 : 0;
    s.twice_scale = 2 * fabs(scale);
    s.factor = scale == 0 ? 1 : s.twice_scale * 1.4426950408889634074;
    s.log = spec->params[LOG].i != 0;
    return s;
}

/* --- choosing -------------------------------------------------------------------------------------------------------- */

static int64_t up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static int64_t over(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

static int logarithm(int64_t value) /* of the next power of two */
{
    int shift = 0;
    while ((int64_t)1 << shift < value) shift++;
    return shift;
}

/* A problem: the shape, its datatype and what follows from them. */
struct softmax_problem {
    const ks_chip *chip;
    softmax_shape s;
    int size, vector; /* bytes of an element; elements of a vector */
    bool whole;       /* rows, or lines of columns, are whole vectors */
    int64_t vectors;  /* of a row's aligned superset, at most */
};

/* CTAs of a kernel of teams that an SM holds: its registers are bound to 1024 threads, with FP64 to 512. */
static int resident(const softmax_problem &p, int threads, size_t shared)
{
    const int by_threads = (p.size == 8 ? 512 : 1024) / threads;
    const int by_shared = (int)(p.chip->shared_sm / (shared + STATIC_BYTES));
    return (by_threads < by_shared ? by_threads : by_shared) * p.chip->sms;
}

/* As many teams as there is room for, or fewer that take as many rounds. */
static int64_t teams_for(int64_t items, int64_t room)
{
    const int64_t teams = items < room ? items : room;
    return over(items, over(items, teams));
}

/* Threads of a CTA, at most: fewer where not every SM would get one. */
static int short_threads(const softmax_problem &p, int64_t lanes, int threads)
{
    while (threads > KS_WARP && lanes < (int64_t)p.chip->sms * threads) threads /= 2;
    return threads;
}

static void plan_lanes(const softmax_problem &p, softmax_choice *c)
{
    c->kind = LANES;
    c->packs = p.vectors <= KS_WARP ? 1 : 2;
    c->rows = c->packs == 1 ? 4 : 2;
    c->shift = (int8_t)logarithm(over(p.vectors, c->packs));
    /* On mapped slots each CTA costs a ticket. */
    const bool large = p.s.outer * p.s.length * p.size > KS_MAPPED_MOST / 2;
    c->threads = (int16_t)short_threads(p, over(p.s.outer << c->shift, c->rows), large ? GROUP_THREADS : SHORT_THREADS);
    c->grid = over(p.s.outer, (int64_t)(c->threads >> c->shift) * c->rows);
}

/* Vectors of a thread in softmax_within. */
static constexpr int WITHIN_VECTORS = 4;

static void plan_within(const softmax_problem &p, softmax_choice *c)
{
    c->kind = WITHIN;
    c->packs = (int8_t)p.s.length;
    const int64_t threads = over(over(p.s.outer * p.s.length, p.vector), WITHIN_VECTORS);
    c->threads = (int16_t)short_threads(p, threads, SHORT_THREADS);
    c->grid = over(threads, c->threads);
}

/* false: rows are too long. */
static bool plan_spans(const softmax_problem &p, softmax_choice *c)
{
    const int64_t vectors = p.s.length / p.vector; /* that are whole, at most */
    int64_t least = INT64_MAX;
    if (vectors > SPAN_PACKS * (int)KS_WARP) return false;
    for (int shift = logarithm(2 * (p.vector - 1)); shift <= 5; shift++) {
        const int64_t packs = over(vectors, (int64_t)1 << shift);
        if (packs > SPAN_PACKS || packs << shift >= least) continue;
        least = packs << shift;
        c->shift = (int8_t)shift;
        c->packs = (int8_t)packs;
    }
    c->kind = SPANS;
    c->rows = c->packs == 1 ? 2 : 1;
    c->threads = (int16_t)short_threads(p, over(p.s.outer << c->shift, c->rows), GROUP_THREADS);
    c->grid = over(p.s.outer, (int64_t)(c->threads >> c->shift) * c->rows);
    return true;
}

/* false: a row or a piece is too large. */
static bool plan_slab(const softmax_problem &p, softmax_choice *c)
{
    const int64_t piece = p.s.length * p.s.inner * p.size; /* bytes */
    int together = 1;                                      /* pieces that are whole vectors */
    while (together * piece % 16) together *= 2;
    c->shift = (int8_t)(p.s.length <= SLAB_ELEMENTS ? 0 : logarithm(over(p.s.length, SLAB_ELEMENTS - 1)));
    if (piece > SLAB_MOST / together || c->shift > 5) return false;
    c->kind = SLAB;
    c->packs = (int8_t)(c->shift ? over(p.s.length, 1 << c->shift) | 1 : p.s.length);
    /* Rounds in which each thread has work, and not more than every SM can have some of. */
    const int64_t round = up(over(SHORT_THREADS >> c->shift, p.s.inner), together);
    const int64_t rounds = (SLAB_BYTES + round * piece / 2) / (round * piece);
    const int64_t most = SLAB_MOST / piece / together * together, each = up(over(p.s.outer, p.chip->sms), together);
    int64_t pieces = round * (rounds ? rounds : 1);
    if (pieces > most) pieces = most;
    if (pieces > each) pieces = each;
    const int64_t lanes = up(pieces * p.s.inner << c->shift, KS_WARP);
    c->threads = (int16_t)(lanes < SHORT_THREADS ? lanes : SHORT_THREADS);
    c->pieces = (int32_t)pieces;
    c->shared = (int32_t)up(pieces * piece, 16);
    c->grid = over(p.s.outer, pieces);
    return true;
}

/* Packs in a thread: few where that fills the chip, for the shortest time; else many, with as few of them idle as can
 * be. 0: no CTA holds the row. */
static int held_packs(const softmax_problem &p)
{
    const int quick = p.vectors <= 128 ? 1 : p.vectors <= 512 ? 2 : p.vectors <= 2048 ? 4 : 8;
    if (p.s.outer * over(p.vectors, quick) <= (int64_t)p.chip->sms * 1536 && p.vectors <= quick * 512) return quick;
    const int64_t most = p.size == 8 ? 512 : 1024, by_four = up(over(p.vectors, 4), KS_WARP),
                  by_eight = up(over(p.vectors, 8), KS_WARP);
    if (by_eight > most) return 0;
    if (by_four > 512) return 8;
    const int64_t four = by_four * over(p.vectors, by_four), eight = by_eight * over(p.vectors, by_eight);
    if (four != eight) return four < eight ? 4 : 8;
    return p.size == 2 || p.vectors < 512 ? 4 : 8;
}

static void plan_held(const softmax_problem &p, int packs, softmax_choice *c)
{
    c->kind = HELD;
    c->packs = (int8_t)packs;
    c->threads = (int16_t)up(over(p.vectors, packs), KS_WARP);
    c->grid = p.s.outer;
}

static void plan_huge(const softmax_problem &p, softmax_choice *c)
{
    const int64_t fit = ((int64_t)p.chip->shared_optin - STATIC_BYTES) / (STREAM_THREADS * 16);
    c->kind = HUGE;
    c->threads = STREAM_THREADS;
    c->parts = (int16_t)(p.chip->sms < STREAM_THREADS ? p.chip->sms : (int)STREAM_THREADS);
    c->share = up(over(p.vectors, c->parts), 64);
    c->kept = (int16_t)up(over(c->share, STREAM_THREADS), HUGE_PACKS);
    if (c->kept > fit) c->kept = (int16_t)(fit / HUGE_PACKS * HUGE_PACKS);
    c->shared = c->kept * STREAM_THREADS * 16;
    c->grid = c->parts;
}

/* false: no team holds the row, or a large one has too few rows to go on with while it tells a pair. */
static bool plan_ring(const softmax_problem &p, softmax_choice *c)
{
    const int64_t row = RING_SLOTS * RING_PACKS * 16; /* bytes of a worker */
    int64_t workers = ((int64_t)p.chip->shared_optin - RING_STATIC) / row / KS_WARP * KS_WARP, least = INT64_MAX;
    if (workers > RING_WORKERS) workers = RING_WORKERS;
    const int64_t most = workers * RING_PACKS; /* vectors of a CTA */
    for (int64_t wanted = over(p.vectors, most); wanted <= p.chip->sms; wanted++) {
        const int64_t share = up(over(p.vectors, wanted), 64), parts = over(p.vectors, share),
                      teams = teams_for(p.s.outer, p.chip->sms / parts), rows = over(p.s.outer, teams),
                      work = rows * (share + parts * RING_PART);
        if (share > most || (parts > RING_TEAM && rows < RING_ROWS) || work >= least) continue;
        least = work; /* of the CTA that has most to do */
        c->share = share;
        c->parts = (int16_t)parts;
        c->grid = teams * parts;
    }
    if (least == INT64_MAX) return false;
    workers = up(over(c->share, RING_PACKS), KS_WARP);
    c->kind = RING;
    c->packs = RING_PACKS;
    c->threads = (int16_t)(workers + 2 * KS_WARP);
    c->shared = (int32_t)(workers * row);
    return true;
}

/* false: no team holds the row. */
static bool plan_stream(const softmax_problem &p, int threads, softmax_choice *c)
{
    const int64_t most = (int64_t)threads * STREAM_PACKS; /* vectors of a CTA */
    const int64_t room = resident(p, threads, (size_t)most * 16);
    int64_t parts = over(p.vectors, most), wanted = over(p.vectors, 1024);
    if (wanted > room / p.s.outer) wanted = room / p.s.outer;
    if (parts < wanted) parts = wanted; /* few rows: more CTAs, each with less */
    if (parts > threads || parts > room) return false;
    c->kind = STREAM;
    c->threads = (int16_t)threads;
    c->share = up(over(p.vectors, parts), 64);
    c->parts = (int16_t)over(p.vectors, c->share);
    c->shared = (int32_t)(most * 16);
    c->grid = teams_for(p.s.outer, room / c->parts) * c->parts;
    return true;
}

static void plan_rows(const softmax_problem &p, softmax_choice *c)
{
    if (p.whole && p.vectors <= 64) {
        plan_lanes(p, c);
        return;
    }
    if (p.size <= 4 && (p.s.length == 2 || p.s.length == 4)) { /* not whole vectors, so halves or quarters of one */
        plan_within(p, c);
        return;
    }
    if (!p.whole && p.s.length <= SLAB_ROW && plan_slab(p, c)) return;
    if (!p.whole && plan_spans(p, c)) return;
    const int packs = held_packs(p);
    const bool idle =
        p.s.outer * 2 < p.chip->sms && p.vectors > 2048; /* one CTA for each row would leave most SMs out */
    if (packs && !idle)
        plan_held(p, packs, c);
    else if (!plan_ring(p, c) && !plan_stream(p, STREAM_THREADS / 2, c) && !plan_stream(p, STREAM_THREADS, c))
        plan_huge(p, c);
}

/* Shared memory of a tile's pairs. */
static size_t tile_bytes(const softmax_problem &p, int threads, int lanes, int pack)
{
    return p.size == 8 ? softmax_tile<double>::bytes(threads, lanes, pack)
                       : softmax_tile<float>::bytes(threads, lanes, pack);
}

/* false: no CTA holds a tile, or too few SMs would have one. */
static bool plan_tile(const softmax_problem &p, int64_t all, softmax_choice *c)
{
    const int wide = p.whole ? 8 : 64 / p.size; /* lanes: 128 bytes, or 64 */
    const int most = p.size == 2 && p.whole ? STREAM_THREADS / 2 : STREAM_THREADS;
    int packs = !p.whole ? 16 : p.s.length <= 16 ? 4 : 8;
    int64_t lanes = wide, step = over(p.s.length, packs);
    while (lanes * step < 64) lanes *= 2;
    if (lanes > all) lanes = all;
    int64_t threads = up(lanes * step, KS_WARP);
    if (threads > most) {
        if (!p.whole || p.size == 8) return false;
        packs = MANY_PACKS;
        lanes = p.size == 2 ? wide / 2 : wide;
        threads = up(lanes * over(p.s.length, packs), KS_WARP);
        if (threads > most || over(all, lanes) * 2 < p.chip->sms) return false;
    }
    c->kind = COLUMNS;
    c->packs = (int8_t)packs;
    c->threads = (int16_t)threads;
    c->lanes = (int16_t)lanes;
    c->shared = (int32_t)tile_bytes(p, c->threads, c->lanes, c->pack);
    c->grid = over(all, lanes);
    return true;
}

static void plan_tiles(const softmax_problem &p, int64_t all, softmax_choice *c)
{
    const int packs = p.whole ? p.size == 8 ? 2 : 4 : 8, word = c->pack * p.size;
    const int64_t lanes = all < (p.whole ? 8 : KS_WARP) ? all : p.whole ? 8 : KS_WARP, step = STREAM_THREADS / lanes;
    const size_t tile = tile_bytes(p, STREAM_THREADS, (int)lanes, c->pack),
                 unit = (size_t)STREAM_THREADS * word * packs;
    const int ctas = p.size == 8 ? 1 : 2;
    int64_t fit = (int64_t)((p.chip->shared_sm / ctas - tile - STATIC_BYTES) / unit) * packs;
    int64_t room = (int64_t)ctas * p.chip->sms, parts = over(p.s.length, step * fit);
    const int64_t counters = KS_COUNTERS_MAX / (TEAM_PLACES * TEAM_RECORD * lanes * c->pack) - TEAM_RECORD;
    if (room > counters) room = counters;
    c->beyond = parts > room;
    if (c->beyond) {
        room = p.chip->sms < counters ? p.chip->sms : counters;
        parts = room;
        fit = (int64_t)((p.chip->shared_optin - tile - STATIC_BYTES) / unit) * packs;
    }
    const int64_t tiles = over(all, lanes);
    while (parts * 2 * tiles <= room && p.s.length / (parts * 2) >= step * packs) parts *= 2;
    c->kind = COLUMNS_STREAM;
    c->packs = (int8_t)packs;
    c->threads = STREAM_THREADS;
    c->lanes = (int16_t)lanes;
    c->share = over(p.s.length, parts);
    c->parts = (int16_t)over(p.s.length, c->share);
    c->kept = (int16_t)up(over(c->share, step), packs);
    if (c->kept > fit) c->kept = (int16_t)fit;
    c->shared = (int32_t)((size_t)c->kept * STREAM_THREADS * word + tile);
    c->grid = teams_for(tiles, room / c->parts) * c->parts;
}

/* false: too few tiles, no team holds one, or a member would have to gather too much. */
static bool plan_flow(const softmax_problem &p, int64_t all, softmax_choice *c)
{
    const int lanes = 8, columns = lanes * c->pack, most = FLOW_THREADS / lanes * FLOW_PACKS; /* rows of a part */
    const int64_t tiles = over(all, lanes), fewest = over(p.s.length, most);
    const size_t shared =
        (size_t)FLOW_SLOTS * FLOW_PACKS * FLOW_THREADS * 16 + FLOW_CELLS * softmax_flow_cells(columns);
    if (!p.whole || p.size == 8 || all < lanes || shared + STATIC_BYTES / 4 > p.chip->shared_optin) return false;
    if (p.chip->sms / fewest * (FLOW_ROUNDS - 1) >= tiles || over(columns, fewest) > FLOW_OWN) return false;
    int64_t least = INT64_MAX;
    for (int64_t wanted = fewest; wanted <= p.chip->sms; wanted++) {
        const int64_t share = over(p.s.length, wanted), parts = over(p.s.length, share),
                      teams = teams_for(tiles, p.chip->sms / parts),
                      work = over(tiles, teams) * (share + FLOW_NOTE * softmax_flow_own(columns, (int)parts));
        const size_t counters = softmax_flow_counters((int)(teams * parts), columns, (int)parts);
        if (counters > KS_COUNTERS_MAX || work >= least) continue;
        least = work; /* of the CTA that has most to do */
        c->share = share;
        c->parts = (int16_t)parts;
        c->grid = teams * parts;
    }
    if (least == INT64_MAX) return false;
    c->kind = COLUMNS_FLOW;
    c->packs = FLOW_PACKS;
    c->threads = FLOW_THREADS + 3 * KS_WARP;
    c->lanes = (int16_t)lanes;
    c->shared = (int32_t)shared;
    return true;
}

static void plan_columns(const softmax_problem &p, softmax_choice *c)
{
    c->pack = (int8_t)(p.whole ? p.vector : 1);
    const int64_t all = p.s.outer * (p.s.inner / c->pack);
    if (!p.whole && plan_slab(p, c)) return;
    const bool counted = c->pack == 1 || all * p.s.length <= UINT32_MAX; /* as softmax_index does */
    if (!(counted && (plan_tile(p, all, c) || plan_flow(p, all, c)))) plan_tiles(p, all, c);
}

static softmax_problem problem_of(const ks_chip *chip, const ks_spec *spec)
{
    softmax_problem p = {};
    p.chip = chip;
    p.s = shape_of(spec);
    p.size = (int)ks_dtype_size(spec->in[0].dtype);
    p.vector = 16 / p.size;
    p.whole = (p.s.inner == 1 ? p.s.length : p.s.inner) % p.vector == 0;
    p.vectors = p.whole ? p.s.length / p.vector : (p.s.length + 2 * p.vector - 2) / p.vector;
    return p;
}

static void pick_of(const softmax_choice &c, ks_dtype dtype, ks_pick *pick)
{
    static const char *const names[] = {"lanes",  "within", "spans",   "slab",         "held",          "ring",
                                        "stream", "huge",   "columns", "columns_flow", "columns_stream"};
    char more[32] = "";
    switch (c.kind) {
    case LANES:
    case SPANS:
    case SLAB:
        snprintf(more, sizeof more, ", %d of %d lanes", c.packs, 1 << c.shift);
        break;
    case WITHIN:
        snprintf(more, sizeof more, ", rows of %d", c.packs);
        break;
    case HELD:
        snprintf(more, sizeof more, ", %d packs", c.packs);
        break;
    case RING:
    case STREAM:
    case HUGE:
        snprintf(more, sizeof more, ", teams of %d", c.parts);
        break;
    default:
        snprintf(more, sizeof more, ", %d x %d, %d of %d", c.packs, c.pack, c.lanes, c.parts);
        break;
    }
    snprintf(pick->kernel, sizeof pick->kernel, "softmax_%s<%s%s>", names[c.kind], ks_dtype_name(dtype), more);
    pick->grid = c.grid;
    pick->threads = c.threads;
    pick->cluster = 1;
    pick->shared_bytes = (size_t)c.shared;
}

/* ks_cuda_plan_fn */
static ks_status cuda_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    (void)error;
    const softmax_problem p = problem_of(chip, spec);
    softmax_choice c = {};
    c.parts = 1;
    if (ks_tensor_count(&spec->in[0]) == 0)
        plan_held(p, 1, &c);
    else if (p.s.inner == 1)
        plan_rows(p, &c);
    else
        plan_columns(p, &c);
    /* Teams wait for each other: all their CTAs are there at once, and one job's alone. */
    const bool team = c.parts > 1 || c.kind == HUGE;
    out->once = !team && c.kind != COLUMNS_STREAM && c.grid <= KS_GRID_MAX;
    out->batch_max = team ? 1 : (int)KS_BATCH_MAX;
    out->workspace_bytes = 0;
    const int records = c.kind == COLUMNS_STREAM ? c.lanes * c.pack : 1;
    const int turns = c.kind == RING ? (int)RING_TURNS : (int)TEAM_PLACES;
    out->counters = !team                    ? 0
                    : c.kind == COLUMNS_FLOW ? softmax_flow_counters((int)c.grid, c.lanes * c.pack, c.parts)
                                             : softmax_team_counters((int)c.grid, records, turns);
    pick_of(c, spec->in[0].dtype, &out->pick);
    memcpy(out->choice, &c, sizeof c);
    return KS_OK;
}

/* --- launching ------------------------------------------------------------------------------------------------------- */

struct softmax_launch {
    const softmax_choice &c;
    const softmax_shape &s;
    ks_site site;
    int bucket;
    cudaStream_t stream;

    template <class... Given>
    cudaError_t operator()(void (*kernel)(ks_site, softmax_shape, Given...), Given... given) const
    {
        return ks_launch(kernel, dim3((unsigned)c.grid, (unsigned)bucket), c.threads, (size_t)c.shared, c.parts > 1,
                         stream, site, s, given...);
    }
};

template <class T>
static cudaError_t launch_within(const softmax_launch &go)
{
    if constexpr (sizeof(T) == 8)
        return cudaErrorInvalidValue; /* two elements are a whole vector */
    else if constexpr (sizeof(T) == 4)
        return go(softmax_within<T, 2, WITHIN_VECTORS>);
    else
        return go.c.packs == 2 ? go(softmax_within<T, 2, WITHIN_VECTORS>) : go(softmax_within<T, 4, WITHIN_VECTORS>);
}

template <class T>
static cudaError_t launch_rows(const softmax_launch &go)
{
    const softmax_choice &c = go.c;
    switch (c.kind) {
    case LANES:
        return c.packs == 1 ? go(softmax_lanes<T, 1, 4>, (int)c.shift) : go(softmax_lanes<T, 2, 2>, (int)c.shift);
    case WITHIN:
        return launch_within<T>(go);
    case SPANS:
        return c.packs == 1   ? go(softmax_spans<T, 1, 2>, (int)c.shift)
               : c.packs == 2 ? go(softmax_spans<T, 2, 1>, (int)c.shift)
               : c.packs == 3 ? go(softmax_spans<T, 3, 1>, (int)c.shift)
                              : go(softmax_spans<T, 4, 1>, (int)c.shift);
    case HELD:
        return c.packs == 1   ? go(softmax_held<T, 1>)
               : c.packs == 2 ? go(softmax_held<T, 2>)
               : c.packs == 4 ? go(softmax_held<T, 4>)
                              : go(softmax_held<T, 8>);
    case RING:
        return go(softmax_ring<T>, (int)c.parts, c.share);
    case STREAM:
        return go(softmax_stream<T>, (int)c.parts, c.share);
    default:
        return go(softmax_huge<T>, c.share, (int)c.kept);
    }
}

template <class T, int E, int V>
static cudaError_t launch_tiles(const softmax_launch &go)
{
    const softmax_choice &c = go.c;
    return c.beyond ? go(softmax_columns_stream<T, E, V, true>, (int)c.lanes, (int)c.parts, c.share, (int)c.kept)
                    : go(softmax_columns_stream<T, E, V, false>, (int)c.lanes, (int)c.parts, c.share, (int)c.kept);
}

/* Tiles of many packs in a thread: not with FP64. */
template <class T>
static cudaError_t launch_many(const softmax_launch &go)
{
    if constexpr (sizeof(T) == 8)
        return cudaErrorInvalidValue;
    else
        return go.c.kind == COLUMNS ? go(softmax_columns<T, ks_vector<T>::length, MANY_PACKS>, (int)go.c.lanes)
                                    : go(softmax_flow<T>, (int)go.c.lanes, (int)go.c.parts, go.c.share);
}

template <class T>
static cudaError_t launch_as(const softmax_launch &go)
{
    constexpr int E = ks_vector<T>::length, V = sizeof(T) == 8 ? 2 : 4;
    const softmax_choice &c = go.c;
    switch (c.kind) {
    case SLAB:
        return go.s.inner == 1 ? go(softmax_slab<T, false>, (int)c.pieces, (int)c.shift, (int)c.packs)
                               : go(softmax_slab<T, true>, (int)c.pieces, (int)c.shift, (int)c.packs);
    case COLUMNS:
        return c.pack == 1    ? go(softmax_columns<T, 1, 16>, (int)c.lanes)
               : c.packs == 4 ? go(softmax_columns<T, E, 4>, (int)c.lanes)
               : c.packs == 8 ? go(softmax_columns<T, E, 8>, (int)c.lanes)
                              : launch_many<T>(go);
    case COLUMNS_FLOW:
        return launch_many<T>(go);
    case COLUMNS_STREAM:
        return c.pack == 1 ? launch_tiles<T, 1, 8>(go) : launch_tiles<T, E, V>(go);
    default:
        return launch_rows<T>(go);
    }
}

static cudaError_t launch_choice(ks_dtype dtype, const softmax_choice &c, const softmax_shape &s, ks_site site,
                                 int bucket, cudaStream_t stream)
{
    const softmax_launch go = {c, s, site, bucket, stream};
    switch (dtype) {
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

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *, const ks_spec *spec, const void *choice, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    softmax_choice c;
    memcpy(&c, choice, sizeof c);
    const cudaError_t status = launch_choice(spec->in[0].dtype, c, shape_of(spec), site, bucket, stream);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: it is told here */
    return ks_fail(error, KS_DEVICE, "softmax: launch failed: %s", cudaGetErrorString(status));
}

/* --- once ------------------------------------------------------------------------------------------------------------ */

/* NULL: there is none. */
template <class T>
static const void *flow_kernel()
{
    if constexpr (sizeof(T) == 8)
        return NULL;
    else
        return (const void *)softmax_flow<T>;
}

/* Kernels of teams take as much shared memory as a CTA can have. */
template <class T>
static cudaError_t allow(const ks_chip *chip)
{
    constexpr int E = ks_vector<T>::length, V = sizeof(T) == 8 ? 2 : 4;
    const void *const kernels[] = {(const void *)softmax_stream<T>,
                                   (const void *)softmax_huge<T>,
                                   flow_kernel<T>(),
                                   (const void *)softmax_columns_stream<T, E, V, false>,
                                   (const void *)softmax_columns_stream<T, E, V, true>,
                                   (const void *)softmax_columns_stream<T, 1, 8, false>,
                                   (const void *)softmax_columns_stream<T, 1, 8, true>};
    cudaError_t status =
        cudaFuncSetAttribute((const void *)softmax_ring<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)chip->shared_optin - RING_STATIC);
    for (const void *kernel : kernels)
        if (kernel && status == cudaSuccess)
            status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          (int)chip->shared_optin -
                                              (kernel == flow_kernel<T>() ? STATIC_BYTES / 4 : STATIC_BYTES));
    return status;
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    cudaError_t status = allow<float>(chip);
    if (status == cudaSuccess) status = allow<__half>(chip);
    if (status == cudaSuccess) status = allow<__nv_bfloat16>(chip);
    if (status == cudaSuccess) status = allow<double>(chip);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError();
    return ks_fail(error, KS_DEVICE, "softmax: cannot set its kernels' shared memory: %s", cudaGetErrorString(status));
}

const ks_cuda_op ks_softmax_cuda = {
    .setup = cuda_setup, .plan = cuda_plan, .launch = cuda_launch, .candidates = NULL, .adopt = NULL, .revision = NULL};
