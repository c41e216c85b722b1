/* Which kernel of this folder does a norm, with what launch parameters (plan.h).
 *
 *   row_subwarp  short rows of whole vectors, in the registers of a part of a warp
 *   row_block    rows of whole vectors, in the registers of a CTA, or of a cluster of CTAs
 *   row_shifted  likewise of rows that are no whole vectors
 *   row_any      any other row: of any alignment, of groups of channels, with results of another datatype
 *   pieces       long rows that no cluster holds, or that are few and of any alignment: two launches
 *
 * What a row's bits follow from (packs, cluster, piece) depends on the number of rows only where the chip would else be idle. */
#include "cuda/norm/plan.h"

#include "cuda/norm/row_any.cuh"
#include "cuda/norm/row_block.cuh"
#include "cuda/norm/row_shifted.cuh"
#include "cuda/norm/row_subwarp.cuh"

#include <stdio.h>
#include <string.h>

enum {
    STATIC_BYTES = 2 << 10, /* of shared memory, at least what a kernel has besides */
    SUBWARP_VECTORS = 128,  /* of a row, at most */
    QUICK_VECTORS = 1024,   /* of a row that one CTA does as fast as a cluster could */
    CLUSTER_PART = 256,     /* vectors of a CTA of a cluster, at least, where rows are few */
    PIECE_ELEMENTS = 16384, /* of a piece, at least */
    PIECE_LEAST = 2048,     /* likewise where rows are few */
    SHIFTED_PACKS = 33,     /* of a row that row_shifted takes, at least: shorter ones are a warp's in row_any */
    PIECES_MOST = 512,      /* of a row */
    ANY_CTAS = 8,           /* on an SM, of kernels that take rows element by element */
    MAPPED_AGAIN = 64 << 10 /* bytes of weights that may be read more than once over the link */
};

/* Inputs that each CTA reads. */
static const int besides[] = {KS_NORM_WEIGHT, KS_NORM_BIAS, KS_NORM_PRE_BIAS};

static int64_t up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static int64_t over(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int logarithm(int64_t value) /* of the next power of two */
{
    int shift = 0;
    while ((int64_t)1 << shift < value) shift++;
    return shift;
}

/* As many groups as there is room for, or fewer that take as many rounds. */
static int64_t groups_for(int64_t items, int64_t room)
{
    if (items <= 0) return 1;
    return over(items, over(items, least(items, room)));
}

norm_shape norm_shape_of(const ks_spec *spec)
{
    const ks_norm_shape given = ks_norm_shape_of(spec);
    norm_shape s = {};
    s.rows = given.rows;
    s.length = given.length;
    s.groups = given.groups;
    s.channels = given.channels;
    s.inner = given.inner;
    s.last = given.last;
    for (s.inner_shift = -1; (int64_t)1 << (s.inner_shift + 1) < s.inner;) s.inner_shift++;
    if (s.inner > 1) {
        const unsigned __int128 power = (unsigned __int128)1 << (64 + s.inner_shift);
        s.inner_multiplier = (uint64_t)((power + (uint64_t)s.inner - 1) / (uint64_t)s.inner);
    }
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        s.in[i] = spec->in[i].offset;
        s.dtype[i] = spec->in[i].dtype;
    }
    s.out = spec->out[0].offset;
    s.sum = spec->outputs > 1 ? spec->out[1].offset : 0;
    s.out_dtype = spec->out[0].dtype;
    s.eps = given.eps;
    s.count = (double)given.length;
    s.over_count = given.averaged ? 1 / s.count : 1;
    s.activation = given.activation;
    s.centred = given.centred;
    s.averaged = given.averaged;
    s.weight = ks_has_input(spec, KS_NORM_WEIGHT);
    s.bias = ks_has_input(spec, KS_NORM_BIAS);
    s.residual = ks_has_input(spec, KS_NORM_RESIDUAL);
    s.pre_bias = ks_has_input(spec, KS_NORM_PRE_BIAS);
    s.keeps_sum = spec->outputs > 1;
    return s;
}

/* A problem: the shape, its datatype and what follows from them. */
struct norm_problem {
    const ks_chip *chip;
    const ks_spec *spec;
    norm_shape s;
    int size, vector; /* bytes of an element; elements of a vector */
    int64_t packs;    /* of a row, the last one in part */
    int64_t vectors;  /* of a row of whole ones; 0: it is none */
    bool plain;       /* each element has its own weight, and all operands go by one datatype */
    bool mixed;       /* which is FP32, and x's is another */
};

/* Operands beside x and residual: all of x's datatype, or all FP32. */
static bool one_datatype(const ks_spec *spec, bool *mixed)
{
    int same = 0, others = 0;
    for (int i : besides) {
        if (!ks_has_input(spec, i)) continue;
        if (spec->in[i].dtype == spec->in[KS_NORM_X].dtype)
            same++;
        else
            others++;
    }
    *mixed = others > 0;
    return same == 0 || others == 0;
}

static norm_problem problem_of(const ks_chip *chip, const ks_spec *spec)
{
    norm_problem p = {};
    p.chip = chip;
    p.spec = spec;
    p.s = norm_shape_of(spec);
    p.size = (int)ks_dtype_size(spec->in[KS_NORM_X].dtype);
    p.vector = 16 / p.size;
    p.packs = over(p.s.length, p.vector);
    p.vectors = p.s.length % p.vector == 0 ? p.s.length / p.vector : 0;
    p.plain = one_datatype(spec, &p.mixed) && p.s.groups == 1 && p.s.inner == 1 &&
              spec->out[0].dtype == spec->in[KS_NORM_X].dtype && (!p.s.pre_bias || p.s.last == p.s.length);
    return p;
}

/* Packs of a thread that its registers hold, with weight and bias. */
static int packs_most(const norm_problem &p)
{
    return p.mixed && p.size == 2 ? 2 : 4;
}

/* Threads of a CTA, at most: fewer where not every SM would get one. */
static int short_threads(const norm_problem &p, int64_t lanes, int threads)
{
    while (threads > KS_WARP && lanes < (int64_t)p.chip->sms * threads) threads /= 2;
    return threads;
}

static void plan_row_subwarp(const norm_problem &p, norm_algorithm *c)
{
    c->family = NORM_ROW_SUBWARP;
    c->packs = (int8_t)(p.vectors <= KS_WARP ? 1 : p.vectors <= 2 * KS_WARP ? 2 : 4);
    c->rows = (int8_t)(4 / c->packs);
    c->shift = (int8_t)logarithm(over(p.vectors, c->packs));
    c->threads = (int16_t)short_threads(p, over(p.s.rows << c->shift, c->rows), NORM_SUBWARP_THREADS);
}

/* CTAs of a row: as few as hold it; where rows are few, more, each with less. 0: it is too long. */
static int cluster_of(const norm_problem &p)
{
    const int64_t held = (int64_t)NORM_BLOCK_THREADS * packs_most(p);
    const int most = p.chip->capability >= 90 ? (int)NORM_CLUSTER_MAX : 1;
    int cluster = 1;
    while (cluster * held < p.packs) cluster *= 2;
    if (cluster > most) return 0;
    if (p.packs > QUICK_VECTORS)
        while (cluster < most && p.s.rows * cluster * 4 <= p.chip->sms * 2 && p.packs >= 2 * cluster * CLUSTER_PART)
            cluster *= 2;
    return cluster;
}

/* CTAs of the algorithm's kernel on an SM. */
static int resident(const ks_chip *chip, const ks_spec *spec, const norm_algorithm &c)
{
    ks_launch_note note = {}, *const before = ks_noting;
    norm_launch go = norm_launch_of(chip, spec, c);
    go.shared_bytes = (size_t)c.pipeline_bytes;
    go.bucket = 1;
    ks_noting = &note;
    const cudaError_t status = norm_go(go);
    ks_noting = before;
    int ctas = 0;
    if (status != cudaSuccess || !note.kernel ||
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, note.kernel, note.threads, note.shared_bytes) !=
            cudaSuccess) {
        cudaGetLastError();
        ctas = 0;
    }
    return ctas < 1 ? 1 : ctas > 32 ? 32 : ctas;
}

/* Vectors of a thread's packs in a row's place in shared memory, for all threads. */
static int64_t vectors_under_way(const norm_algorithm &c)
{
    const int64_t threads = c.family == NORM_ROW_SHIFTED ? c.threads / KS_WARP * NORM_SHIFTED_SLOTS : c.threads;
    return threads * c.packs;
}

static void fill_block(const norm_problem &p, int packs, norm_algorithm *c)
{
    c->packs = (int8_t)packs;
    c->threads = (int16_t)up(over(c->share, packs), KS_WARP);
    const int64_t bytes = NORM_STAGES * (1 + p.s.residual) * vectors_under_way(*c) * 16;
    c->pipeline_bytes = bytes <= (int64_t)p.chip->shared_optin - STATIC_BYTES ? (int32_t)bytes : 0;
    c->ctas = (int8_t)resident(p.chip, p.spec, *c);
}

/* Packs of a thread: as few as let all rows run at a time, for the shortest time. Else as many rows on an SM as can be, since a row's time
 * is mostly that of its sums over the CTA: many packs, unless with fewer as many rows fit and fewer threads are idle. */
static void choose_packs(const norm_problem &p, norm_algorithm *c)
{
    const int most = packs_most(p);
    norm_algorithm best = {};
    for (int packs = 1; packs <= most; packs *= 2) {
        if (c->share > (int64_t)NORM_BLOCK_THREADS * packs) continue;
        norm_algorithm next = *c;
        fill_block(p, packs, &next);
        const bool more_idle = next.threads * next.packs > best.threads * best.packs;
        if (best.packs == 0 || next.ctas > best.ctas || (next.ctas == best.ctas && !more_idle)) best = next;
        if (p.s.rows * c->cluster <= (int64_t)p.chip->sms * next.ctas) {
            best = next;
            break;
        }
    }
    *c = best;
}

/* family: NORM_ROW_BLOCK or NORM_ROW_SHIFTED. */
static bool plan_row_block(const norm_problem &p, int family, norm_algorithm *c)
{
    const int cluster = cluster_of(p);
    if (!cluster) return false;
    const int64_t share = cluster == 1 ? p.packs : up(over(p.packs, cluster), 8);
    if (share * (cluster - 1) >= p.packs) return false;
    norm_algorithm found = *c;
    found.family = (int8_t)family;
    found.cluster = (int8_t)cluster;
    found.share = (int32_t)share;
    choose_packs(p, &found);
    if (family == NORM_ROW_SHIFTED && !found.pipeline_bytes) return false;
    *c = found;
    return true;
}

/* Rows of any length that registers hold: of 16 and 32 bits, no shorter than what a warp of row_any does as fast. */
static bool suits_shifted(const norm_problem &p)
{
    return p.plain && !p.vectors && p.size <= 4 && p.packs >= SHIFTED_PACKS;
}

/* Of rows that no cluster holds; shorter ones where rows are fewer than the SMs. */
static int64_t piece_of(const norm_problem &p)
{
    const int64_t piece = up(over(p.s.length, PIECES_MOST), p.vector),
                  even = up(over(p.s.length, over(p.chip->sms, p.s.rows < 1 ? 1 : p.s.rows)), p.vector);
    const int64_t wanted = least(PIECE_ELEMENTS, even < PIECE_LEAST ? (int64_t)PIECE_LEAST : even);
    return piece < wanted ? wanted : piece;
}

static void plan_row_any(const norm_problem &p, norm_algorithm *c)
{
    const int64_t v = p.vector;
    c->vector =
        (int8_t)(p.s.length % v == 0 && (p.s.inner == 1 || p.s.inner % v == 0) && (!p.s.pre_bias || p.s.last % v == 0));
    const int64_t packs = c->vector ? p.s.length / v : p.s.length;
    c->family = NORM_ROW_ANY;
    c->held = packs <= (int64_t)NORM_HELD * NORM_BLOCK_THREADS;
    c->width = (int16_t)(c->held ? up(over(packs, NORM_HELD), KS_WARP) : NORM_BLOCK_THREADS);
    c->threads = c->width;
    if (c->width == KS_WARP)
        c->threads = (int16_t)short_threads(p, p.s.rows * KS_WARP, NORM_SUBWARP_THREADS);
    else if (c->held && p.s.rows < p.chip->sms)
        c->threads = c->width = (int16_t)least(up(packs, KS_WARP), NORM_BLOCK_THREADS);
    if (c->held) return;
    c->family = NORM_PIECES;
    c->piece = piece_of(p);
    c->pieces = (int32_t)over(p.s.length, c->piece);
    if (c->pieces <= 2 && p.s.rows >= p.chip->sms) c->family = NORM_ROW_ANY;
}

/* A cluster that stays beyond those would begin when the others have ended, and take as long again. */
static int64_t clusters_at_a_time(const ks_chip *chip, const norm_algorithm &c)
{
    const int64_t room = (int64_t)chip->sms * c.ctas / c.cluster,
                  held = (int64_t)chip->clusters[logarithm(c.cluster)] * c.ctas;
    const int64_t clusters = held > 0 ? least(room, held) : room;
    return clusters < 1 ? 1 : clusters;
}

norm_launch norm_launch_of(const ks_chip *chip, const ks_spec *spec, const norm_algorithm &c)
{
    norm_launch go = {};
    go.c = c;
    go.s = norm_shape_of(spec);
    go.dtype = spec->in[KS_NORM_X].dtype;
    const int64_t room = (int64_t)chip->sms * c.ctas;
    switch (c.family) {
    case NORM_ROW_SUBWARP:
        go.grid = groups_for(over(go.s.rows, (int64_t)(c.threads >> c.shift) * c.rows), room);
        break;
    case NORM_ROW_BLOCK: {
        const int64_t clusters = clusters_at_a_time(chip, c);
        const bool pipeline = c.pipeline_bytes && go.s.rows > 2 * clusters;
        go.stages = pipeline ? (int)NORM_STAGES : 0;
        go.shared_bytes = pipeline ? (size_t)c.pipeline_bytes : 0;
        go.grid = (pipeline ? groups_for(go.s.rows, clusters) : go.s.rows < 1 ? 1 : go.s.rows) * c.cluster;
        break;
    }
    case NORM_ROW_SHIFTED:
        go.shared_bytes = (size_t)c.pipeline_bytes;
        go.grid = groups_for(go.s.rows, clusters_at_a_time(chip, c)) * c.cluster;
        break;
    case NORM_ROW_ANY:
        go.grid = groups_for(over(go.s.rows, c.threads / c.width), (int64_t)chip->sms * ANY_CTAS);
        break;
    default:
        go.grid = groups_for(go.s.rows * c.pieces, (int64_t)chip->sms * ANY_CTAS);
        break;
    }
    return go;
}

static void name_kernel(const norm_problem &p, const norm_launch &go, ks_kernel_info *info)
{
    static const char *const names[] = {[NORM_ROW_SUBWARP] = "row_subwarp",
                                        [NORM_ROW_BLOCK] = "row_block",
                                        [NORM_ROW_SHIFTED] = "row_shifted",
                                        [NORM_ROW_ANY] = "row_any",
                                        [NORM_PIECES] = "pieces"};
    const norm_algorithm &c = go.c;
    char more[32] = "";
    if (c.family == NORM_ROW_SUBWARP)
        snprintf(more, sizeof more, ", %d of %d threads", c.packs, 1 << c.shift);
    else if (c.family == NORM_ROW_BLOCK)
        snprintf(more, sizeof more, ", %d packs%s", c.packs, go.stages ? ", pipelined" : "");
    else if (c.family == NORM_ROW_SHIFTED)
        snprintf(more, sizeof more, ", %d packs", c.packs);
    else if (c.family == NORM_ROW_ANY)
        snprintf(more, sizeof more, ", %d threads%s", c.width, c.held ? "" : ", read again");
    else
        snprintf(more, sizeof more, ", %d pieces", c.pieces);
    snprintf(info->kernel, sizeof info->kernel, "norm_%s<%s%s>", names[c.family],
             ks_dtype_name(p.spec->in[KS_NORM_X].dtype), more);
    info->grid = go.grid;
    info->threads = c.threads;
    info->cluster = c.cluster;
    info->shared_bytes = go.shared_bytes;
}

/* Each CTA reads weight, bias and pre_bias: on mapped slots, over the link. */
static bool reads_once(const norm_problem &p, const norm_launch &go)
{
    size_t weights = 0;
    for (int i : besides)
        if (ks_has_input(p.spec, i)) weights += p.spec->in[i].size_bytes;
    const bool held = go.c.family == NORM_ROW_ANY ? go.c.held != 0 : go.c.family != NORM_PIECES;
    const int64_t readings = go.c.family == NORM_ROW_ANY ? p.s.rows : go.grid / go.c.cluster;
    return held && go.grid <= KS_GRID_MAX &&
           (size_t)readings * weights <= p.spec->in[KS_NORM_X].size_bytes + weights + MAPPED_AGAIN;
}

/* ks_cuda_plan_fn */
ks_status norm_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    (void)error;
    const norm_problem p = problem_of(chip, spec);
    norm_algorithm c = {};
    c.cluster = c.ctas = 1;
    c.mixed = p.mixed;
    if (p.plain && p.vectors && p.vectors <= (int64_t)SUBWARP_VECTORS * packs_most(p) / 4)
        plan_row_subwarp(p, &c);
    else if (!(p.plain && p.vectors && plan_row_block(p, NORM_ROW_BLOCK, &c)) &&
             !(suits_shifted(p) && plan_row_block(p, NORM_ROW_SHIFTED, &c)))
        plan_row_any(p, &c);
    if (c.family == NORM_ROW_SUBWARP) c.ctas = (int8_t)resident(chip, spec, c);
    const norm_launch go = norm_launch_of(chip, spec, c);
    out->once = reads_once(p, go);
    out->batch_max = (int)KS_BATCH_MAX;
    out->early = c.family <= NORM_ROW_SHIFTED;
    out->early_fixed = (uint16_t)(p.s.weight << 1 | p.s.bias << 2 | p.s.pre_bias << 4);
    out->workspace_bytes = c.family == NORM_PIECES ? ks_align((size_t)(p.s.rows * c.pieces) * 2 * sizeof(double)) : 0;
    out->counters = 0;
    name_kernel(p, go, &out->kernel_info);
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}
