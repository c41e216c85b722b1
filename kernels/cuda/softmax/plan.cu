/* Which kernel of this folder does a softmax, with what launch parameters (plan.h). A kernel's name says where a row, or a tile of
 * columns, lies while it is worked on:
 *
 *   row_elements                 few rows of up to 32 elements, one to a thread
 *   row_subwarp                  short rows of whole vectors, in the registers of a part of a warp
 *   row_in_vector                rows of 2 and 4 elements, several in a vector
 *   row_warp_unaligned           short rows of any length
 *   rows_smem                    very short rows, and short lines of columns: many of them in shared memory
 *   row_block_registers          rows that the registers of a CTA hold
 *   row_multiblock_pipelined     rows of CTA groups, several under way
 *   row_multiblock_registers     few rows of large CTA groups
 *   row_grid                     one row of any length over all CTAs
 *   column_block_registers       tiles of columns that the registers of a CTA hold
 *   column_cluster               tiles that the shared memory of a cluster holds
 *   column_multiblock_pipelined  long tiles of CTA groups, several under way
 *   column_multiblock_smem       tiles of CTA groups, of any length
 *
 * Selected elements, and results of another datatype, have kernels of their own (masked.cu).
 *
 * Borders are bytes and counts of the device where they follow from it, and else were measured on an H200, but SMEM_ROW:
 * there a row takes about as many instructions in rows_smem as in row_warp_unaligned. */
#include "cuda/softmax/plan.h"

#include "cuda/softmax/columns.cuh"
#include "cuda/softmax/column_cluster.cuh"
#include "cuda/softmax/column_multiblock_pipelined.cuh"
#include "cuda/softmax/masked.cuh"
#include "cuda/softmax/row_block_registers.cuh"
#include "cuda/softmax/row_multiblock_pipelined.cuh"
#include "cuda/softmax/row_multiblock_registers.cuh"
#include "cuda/softmax/short_rows.cuh"

#include <stdio.h>
#include <string.h>

enum { AXIS, LOG, SCALE };
enum {
    SMEM_BYTES = 16 << 10,       /* of shared memory that rows_smem aims at */
    SMEM_MOST = 48 << 10,        /* and what it may take: every CTA has so much */
    SMEM_ROW = 120,              /* elements of a row that rows_smem takes */
    UNALIGNED_PACKS = 4,         /* whole vectors of a row that a thread takes */
    CLUSTER_EXCHANGE = 96,       /* rows of a tile that the exchange of its pairs takes as long as; */
    CLUSTER_ALONE = 32,          /* likewise, of a tile that a CTA holds */
    CLUSTER_ROWS = 128,          /* of a CTA, at least, where there is more than one */
    LINE_BYTES = 128,            /* of memory */
    COLUMN_PIPELINE_ROUNDS = 3,  /* tiles of a CTA group that pay for filling the pipeline */
    COLUMN_PIPELINE_OWN = 2,     /* columns whose messages a CTA has time to combine */
    COLUMN_PIPELINE_MESSAGE = 4, /* rows that a message takes as long as */
    ROW_PIPELINE_GROUP = 64,     /* CTAs of a group for which any number of rows will do */
    ROW_PIPELINE_ROWS = 8,       /* and rows for which more will */
    ROW_PIPELINE_LONG = 1024,    /* vectors of a row for each SM, from which on fewer rows will do: */
    ROW_PIPELINE_FEW = 2,        /* the same where a row takes half of the shared memory, or all of it */
    ELEMENTS_THREADS = 32 << 10, /* of all rows of row_elements, at most */
    ROW_PIPELINE_PART = 16,      /* vectors that a row takes as long as, for each CTA that publishes its pair */
};

softmax_shape softmax_shape_of(const ks_spec *spec)
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

/* CTAs of a kernel of CTA groups that an SM holds: its registers are bound to 1024 threads, with FP64 to 512. */
static int resident(const softmax_problem &p, int threads, size_t shared)
{
    const int by_threads = (p.size == 8 ? 512 : 1024) / threads;
    const int by_shared = (int)(p.chip->shared_sm / (shared + STATIC_BYTES));
    return (by_threads < by_shared ? by_threads : by_shared) * p.chip->sms;
}

/* As many CTA groups as there is room for, or fewer that take as many rounds. */
static int64_t groups_for(int64_t items, int64_t room)
{
    const int64_t cta_groups = items < room ? items : room;
    return over(items, over(items, cta_groups));
}

/* Threads of a CTA, at most: fewer where not every SM would get one. */
static int short_threads(const softmax_problem &p, int64_t lanes, int threads)
{
    while (threads > KS_WARP && lanes < (int64_t)p.chip->sms * threads) threads /= 2;
    return threads;
}

static void plan_row_subwarp(const softmax_problem &p, softmax_algorithm *c)
{
    c->kind = ROW_SUBWARP;
    c->packs = p.vectors <= KS_WARP ? 1 : 2;
    c->rows = c->packs == 1 ? 4 : 2;
    c->shift = (int8_t)logarithm(over(p.vectors, c->packs));
    /* On mapped slots each CTA costs a ticket. */
    const bool large = p.s.outer * p.s.length * p.size > KS_MAPPED_MOST / 2;
    c->threads =
        (int16_t)short_threads(p, over(p.s.outer << c->shift, c->rows), large ? SUBWARP_THREADS : SHORT_THREADS);
    c->grid = over(p.s.outer, (int64_t)(c->threads >> c->shift) * c->rows);
}

/* Vectors of a thread in softmax_row_in_vector. */
static void plan_row_in_vector(const softmax_problem &p, softmax_algorithm *c)
{
    c->kind = ROW_IN_VECTOR;
    c->packs = (int8_t)p.s.length;
    const int64_t threads = over(over(p.s.outer * p.s.length, p.vector), IN_VECTOR_VECTORS);
    c->threads = (int16_t)short_threads(p, threads, SHORT_THREADS);
    c->grid = over(threads, c->threads);
}

/* false: rows are too long. */
static bool plan_row_warp_unaligned(const softmax_problem &p, softmax_algorithm *c)
{
    const int64_t vectors = p.s.length / p.vector; /* that are whole, at most */
    int64_t least = INT64_MAX;
    if (vectors > UNALIGNED_PACKS * (int)KS_WARP) return false;
    for (int shift = logarithm(2 * (p.vector - 1)); shift <= 5; shift++) {
        const int64_t packs = over(vectors, (int64_t)1 << shift);
        if (packs > UNALIGNED_PACKS || packs << shift >= least) continue;
        least = packs << shift;
        c->shift = (int8_t)shift;
        c->packs = (int8_t)packs;
    }
    c->kind = ROW_WARP_UNALIGNED;
    c->rows = c->packs == 1 ? 2 : 1;
    c->threads = (int16_t)short_threads(p, over(p.s.outer << c->shift, c->rows), SUBWARP_THREADS);
    c->grid = over(p.s.outer, (int64_t)(c->threads >> c->shift) * c->rows);
    return true;
}

/* false: a row or a piece is too large. */
static bool plan_rows_smem(const softmax_problem &p, softmax_algorithm *c)
{
    const int64_t block = p.s.length * p.s.inner * p.size; /* bytes */
    int together = 1;                                      /* pieces that are whole vectors */
    while (together * block % 16) together *= 2;
    c->shift = (int8_t)(p.s.length <= SMEM_ELEMENTS ? 0 : logarithm(over(p.s.length, SMEM_ELEMENTS - 1)));
    if (block > SMEM_MOST / together || c->shift > 5) return false;
    c->kind = ROWS_SMEM;
    c->packs = (int8_t)(c->shift ? over(p.s.length, 1 << c->shift) | 1 : p.s.length);
    /* Rounds in which each thread has work, and not more than every SM can have some of. */
    const int64_t round = up(over(SHORT_THREADS >> c->shift, p.s.inner), together);
    const int64_t rounds = (SMEM_BYTES + round * block / 2) / (round * block);
    const int64_t most = SMEM_MOST / block / together * together, each = up(over(p.s.outer, p.chip->sms), together);
    int64_t blocks = round * (rounds ? rounds : 1);
    if (blocks > most) blocks = most;
    if (blocks > each) blocks = each;
    const int64_t lanes = up(blocks * p.s.inner << c->shift, KS_WARP);
    c->threads = (int16_t)(lanes < SHORT_THREADS ? lanes : SHORT_THREADS);
    c->blocks = (int32_t)blocks;
    c->shared = (int32_t)up(blocks * block, 16);
    c->grid = over(p.s.outer, blocks);
    return true;
}

/* Packs in a thread: few where that fills the chip, for the shortest time; else many, with as few of them idle as can
 * be. 0: no CTA holds the row. */
static int block_packs(const softmax_problem &p)
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

static void plan_row_block_registers(const softmax_problem &p, int packs, softmax_algorithm *c)
{
    c->kind = ROW_BLOCK_REGISTERS;
    c->packs = (int8_t)packs;
    c->threads = (int16_t)up(over(p.vectors, packs), KS_WARP);
    c->grid = p.s.outer;
}

static void plan_row_grid(const softmax_problem &p, softmax_algorithm *c)
{
    const int64_t fit = ((int64_t)p.chip->shared_optin - STATIC_BYTES) / (GROUP_CTA_THREADS * 16);
    c->kind = ROW_GRID;
    c->threads = GROUP_CTA_THREADS;
    c->parts = (int16_t)(p.chip->sms < GROUP_CTA_THREADS ? p.chip->sms : (int)GROUP_CTA_THREADS);
    c->share = up(over(p.vectors, c->parts), 64);
    c->kept = (int16_t)up(over(c->share, GROUP_CTA_THREADS), ROW_GRID_PACKS);
    if (c->kept > fit) c->kept = (int16_t)(fit / ROW_GRID_PACKS * ROW_GRID_PACKS);
    c->shared = c->kept * GROUP_CTA_THREADS * 16;
    c->grid = c->parts;
}

/* false: no CTA group holds the row, or a large one has too few rows to go on with while a pair is on its way. P: a
 * row_pipeline. */
template <class P>
static bool plan_row_multiblock_pipelined(const softmax_problem &p, softmax_algorithm *c)
{
    const int64_t row = P::STAGES * P::PACKS * 16; /* bytes of a consumer */
    const int64_t few = P::CHUNKS == 1 ? ROW_PIPELINE_ROWS : ROW_PIPELINE_FEW;
    int64_t consumers = ((int64_t)p.chip->shared_optin - ROW_PIPELINE_STATIC) / row / KS_WARP * KS_WARP,
            least = INT64_MAX;
    if (consumers > ROW_PIPELINE_CONSUMERS) consumers = ROW_PIPELINE_CONSUMERS;
    const int64_t most = consumers * P::PACKS; /* vectors of a CTA */
    for (int64_t wanted = most > 0 ? over(p.vectors, most) : INT64_MAX; wanted <= p.chip->sms; wanted++) {
        const int64_t share = up(over(p.vectors, wanted), 64), parts = over(p.vectors, share),
                      cta_groups = groups_for(p.s.outer, p.chip->sms / parts), rows = over(p.s.outer, cta_groups),
                      work = rows * (share + parts * ROW_PIPELINE_PART);
        const bool idle = (P::CHUNKS > 1 || parts > ROW_PIPELINE_GROUP) && rows < few;
        if (share > most || idle || work >= least) continue;
        least = work; /* of the CTA that has most to do */
        c->share = share;
        c->parts = (int16_t)parts;
        c->grid = cta_groups * parts;
    }
    if (least == INT64_MAX) return false;
    consumers = up(over(c->share, P::PACKS), KS_WARP);
    c->kind = ROW_MULTIBLOCK_PIPELINED;
    c->packs = P::PACKS;
    c->threads = (int16_t)(consumers + 2 * KS_WARP);
    c->shared = (int32_t)(consumers * row);
    return true;
}

/* false: no CTA group holds the row. */
static bool plan_row_multiblock_registers(const softmax_problem &p, int threads, softmax_algorithm *c)
{
    const int64_t most = (int64_t)threads * ROW_REGISTER_PACKS; /* vectors of a CTA */
    const int64_t room = resident(p, threads, (size_t)most * 16);
    int64_t parts = over(p.vectors, most), wanted = over(p.vectors, 1024);
    if (wanted > room / p.s.outer) wanted = room / p.s.outer;
    if (parts < wanted) parts = wanted; /* few rows: more CTAs, each with less */
    if (parts > threads || parts > room) return false;
    c->kind = ROW_MULTIBLOCK_REGISTERS;
    c->threads = (int16_t)threads;
    c->share = up(over(p.vectors, parts), 64);
    c->parts = (int16_t)over(p.vectors, c->share);
    c->shared = (int32_t)(most * 16);
    c->grid = groups_for(p.s.outer, room / c->parts) * c->parts;
    return true;
}

/* false: rows are too long, or so many that other kernels have more of them in flight. */
static bool plan_row_elements(const softmax_problem &p, softmax_algorithm *c)
{
    const int shift = logarithm(p.s.length);
    if (p.s.length > (int)KS_WARP || p.s.outer > ELEMENTS_THREADS >> shift) return false;
    c->kind = ROW_ELEMENTS;
    c->shift = (int8_t)shift;
    c->threads = (int16_t)short_threads(p, p.s.outer << shift, SHORT_THREADS);
    c->grid = over(p.s.outer, c->threads >> c->shift);
    return true;
}

/* Rows that more than one CTA works on. */
static void plan_row_multiblock(const softmax_problem &p, softmax_algorithm *c)
{
    const bool huge = p.vectors > (int64_t)p.chip->sms * ROW_PIPELINE_LONG;
    if (plan_row_multiblock_pipelined<row_pipeline_short>(p, c)) return;
    if (huge && plan_row_multiblock_pipelined<row_pipeline_long>(p, c)) return;
    if (huge && p.size < 8 && plan_row_multiblock_pipelined<row_pipeline_whole>(p, c)) return;
    if (plan_row_multiblock_registers(p, GROUP_CTA_THREADS / 2, c)) return;
    if (!plan_row_multiblock_registers(p, GROUP_CTA_THREADS, c)) plan_row_grid(p, c);
}

static void plan_rows(const softmax_problem &p, softmax_algorithm *c)
{
    if (plan_row_elements(p, c)) return;
    if (p.whole && p.vectors <= 64) {
        plan_row_subwarp(p, c);
        return;
    }
    if (p.size <= 4 && (p.s.length == 2 || p.s.length == 4)) { /* not whole vectors, so halves or quarters of one */
        plan_row_in_vector(p, c);
        return;
    }
    if (!p.whole && p.s.length <= SMEM_ROW && plan_rows_smem(p, c)) return;
    if (!p.whole && plan_row_warp_unaligned(p, c)) return;
    const int packs = block_packs(p);
    const bool idle =
        p.s.outer * 2 < p.chip->sms && p.vectors > 2048; /* one CTA for each row would leave most SMs out */
    if (packs && !idle)
        plan_row_block_registers(p, packs, c);
    else
        plan_row_multiblock(p, c);
}

/* Shared memory of a tile's pairs. */
static size_t tile_bytes(const softmax_problem &p, int threads, int lanes, int pack)
{
    return p.size == 8 ? softmax_tile<double>::bytes(threads, lanes, pack)
                       : softmax_tile<float>::bytes(threads, lanes, pack);
}

/* false: no CTA holds a tile, or too few SMs would have one. */
static bool plan_column_block_registers(const softmax_problem &p, int64_t all, softmax_algorithm *c)
{
    const int wide = p.whole ? 8 : 64 / p.size; /* lanes: 128 bytes, or 64 */
    const int most = p.size == 2 && p.whole ? GROUP_CTA_THREADS / 2 : GROUP_CTA_THREADS;
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
    c->kind = COLUMN_BLOCK_REGISTERS;
    c->packs = (int8_t)packs;
    c->threads = (int16_t)threads;
    c->lanes = (int16_t)lanes;
    c->shared = (int32_t)tile_bytes(p, c->threads, c->lanes, c->pack);
    c->grid = over(all, lanes);
    return true;
}

static void plan_column_multiblock_smem(const softmax_problem &p, int64_t all, softmax_algorithm *c)
{
    const int packs = p.whole ? p.size == 8 ? 2 : 4 : 8, word = c->pack * p.size;
    const int64_t lanes = all < (p.whole ? 8 : KS_WARP) ? all : p.whole ? 8 : KS_WARP, step = GROUP_CTA_THREADS / lanes;
    const size_t tile = tile_bytes(p, GROUP_CTA_THREADS, (int)lanes, c->pack),
                 unit = (size_t)GROUP_CTA_THREADS * word * packs;
    const int ctas = p.size == 8 ? 1 : 2;
    int64_t fit = (int64_t)((p.chip->shared_sm / ctas - tile - STATIC_BYTES) / unit) * packs;
    int64_t room = (int64_t)ctas * p.chip->sms, parts = over(p.s.length, step * fit);
    const int64_t counters = KS_COUNTERS_MAX / (GROUP_SLOTS * GROUP_MESSAGE * lanes * c->pack) - GROUP_MESSAGE;
    if (room > counters) room = counters;
    c->beyond = parts > room;
    if (c->beyond) {
        room = p.chip->sms < counters ? p.chip->sms : counters;
        parts = room;
        fit = (int64_t)((p.chip->shared_optin - tile - STATIC_BYTES) / unit) * packs;
    }
    const int64_t tiles = over(all, lanes);
    while (parts * 2 * tiles <= room && p.s.length / (parts * 2) >= step * packs) parts *= 2;
    c->kind = COLUMN_MULTIBLOCK_SMEM;
    c->packs = (int8_t)packs;
    c->threads = GROUP_CTA_THREADS;
    c->lanes = (int16_t)lanes;
    c->share = over(p.s.length, parts);
    c->parts = (int16_t)over(p.s.length, c->share);
    c->kept = (int16_t)up(over(c->share, step), packs);
    if (c->kept > fit) c->kept = (int16_t)fit;
    c->shared = (int32_t)((size_t)c->kept * GROUP_CTA_THREADS * word + tile);
    c->grid = groups_for(tiles, room / c->parts) * c->parts;
}

/* Clusters that run at a time, two CTAs of them on an SM. */
static int64_t clusters_of(const ks_chip *chip, int ctas)
{
    int log2 = logarithm(ctas);
    if (log2 == 4) return chip->clusters[3]; /* they have twice the CTAs on as many SMs */
    return 2 * (int64_t)chip->clusters[log2];
}

/* false: no cluster holds a tile of so many lanes. */
static bool plan_column_cluster(const softmax_problem &p, int lanes, softmax_algorithm *c)
{
    const int64_t step = GROUP_CTA_THREADS / lanes, tiles = over(p.s.outer * (p.s.inner / p.vector), lanes);
    const size_t pairs = tile_bytes(p, GROUP_CTA_THREADS, lanes, p.vector) + softmax_cluster_bytes(lanes, p.vector),
                 room = p.chip->shared_sm / 2 - STATIC_BYTES, unit = (size_t)GROUP_CTA_THREADS * 16;
    int64_t least = INT64_MAX;
    for (int parts = 1; parts <= CLUSTER_CTAS_MAX; parts *= 2) {
        const int64_t share = over(p.s.length, parts), kept = over(share, step),
                      clusters = groups_for(tiles, clusters_of(p.chip, parts)),
                      work = over(tiles, clusters) * (share + (parts > 1 ? CLUSTER_EXCHANGE : CLUSTER_ALONE));
        if (pairs + (size_t)kept * unit > room || (parts > 1 && share < CLUSTER_ROWS) || work >= least) continue;
        least = work; /* of the CTA that has most to do */
        c->share = share;
        c->parts = (int16_t)parts;
        c->kept = (int16_t)kept;
        c->shared = (int32_t)(pairs + (size_t)kept * unit);
        c->grid = clusters * parts;
    }
    if (least == INT64_MAX) return false;
    c->kind = COLUMN_CLUSTER;
    c->packs = COLUMN_CLUSTER_PACKS;
    c->pack = (int8_t)p.vector;
    c->threads = GROUP_CTA_THREADS;
    c->lanes = (int16_t)lanes;
    return true;
}

/* Tiles of a line of memory; of two where rows do not start on lines, since neighbours share one in each row: it is read and
 * written for each of them. */
static bool plan_column_cluster(const softmax_problem &p, softmax_algorithm *c)
{
    const int lanes = LINE_BYTES / 16;
    const int64_t vectors = p.s.outer * p.s.inner / p.vector;
    /* H200: FP32 6000x6016 108 us against 123 of column_multiblock_smem, 3x3000x3000 83 against 99; but BF16 4x3000x3000 103 against 79,
     * 8192x8192 180 against 146. */
    if (p.size != 4 || !p.whole) return false;
    if (p.chip->capability < 90 || p.chip->clusters[3] < 1) return false;
    if (vectors * p.s.length >= UINT32_MAX || vectors < lanes) return false;
    const bool wide = p.s.inner * p.size % LINE_BYTES != 0 && p.s.inner * p.size > LINE_BYTES && vectors >= 2 * lanes;
    return (wide && plan_column_cluster(p, 2 * lanes, c)) || plan_column_cluster(p, lanes, c);
}

/* false: too few tiles, no CTA group holds one, or a CTA would have to combine too much. */
static bool plan_column_multiblock_pipelined(const softmax_problem &p, int64_t all, softmax_algorithm *c)
{
    const int lanes = 8, columns = lanes * c->pack,
              most = COLUMN_PIPELINE_CONSUMERS / lanes * COLUMN_PIPELINE_PACKS; /* rows of a part */
    const int64_t tiles = over(all, lanes), fewest = over(p.s.length, most);
    const size_t shared = (size_t)COLUMN_PIPELINE_STAGES * COLUMN_PIPELINE_PACKS * COLUMN_PIPELINE_CONSUMERS * 16 +
                          COLUMN_PIPELINE_CELLS * softmax_column_cells(columns);
    if (!p.whole || p.size == 8 || all < lanes || shared + STATIC_BYTES / 4 > p.chip->shared_optin) return false;
    if (p.chip->sms / fewest * (COLUMN_PIPELINE_ROUNDS - 1) >= tiles || over(columns, fewest) > COLUMN_PIPELINE_OWN)
        return false;
    int64_t least = INT64_MAX;
    for (int64_t wanted = fewest; wanted <= p.chip->sms; wanted++) {
        const int64_t share = over(p.s.length, wanted), parts = over(p.s.length, share),
                      cta_groups = groups_for(tiles, p.chip->sms / parts),
                      work = over(tiles, cta_groups) *
                             (share + COLUMN_PIPELINE_MESSAGE * softmax_column_own(columns, (int)parts));
        const size_t counters = softmax_column_counters((int)(cta_groups * parts), columns, (int)parts);
        if (counters > KS_COUNTERS_MAX || work >= least) continue;
        least = work; /* of the CTA that has most to do */
        c->share = share;
        c->parts = (int16_t)parts;
        c->grid = cta_groups * parts;
    }
    if (least == INT64_MAX) return false;
    c->kind = COLUMN_MULTIBLOCK_PIPELINED;
    c->packs = COLUMN_PIPELINE_PACKS;
    c->threads = COLUMN_PIPELINE_CONSUMERS + 3 * KS_WARP;
    c->lanes = (int16_t)lanes;
    c->shared = (int32_t)shared;
    return true;
}

static void plan_columns(const softmax_problem &p, softmax_algorithm *c)
{
    c->pack = (int8_t)(p.whole ? p.vector : 1);
    const int64_t all = p.s.outer * (p.s.inner / c->pack);
    if (!p.whole && plan_rows_smem(p, c)) return;
    const bool counted = c->pack == 1 || all * p.s.length <= UINT32_MAX; /* as softmax_index does */
    if (counted && plan_column_block_registers(p, all, c)) return;
    if (counted && plan_column_multiblock_pipelined(p, all, c)) return;
    if (!plan_column_cluster(p, c)) plan_column_multiblock_smem(p, all, c);
}

static softmax_problem problem_of(const ks_chip *chip, const ks_spec *spec)
{
    softmax_problem p = {};
    p.chip = chip;
    p.s = softmax_shape_of(spec);
    p.size = (int)ks_dtype_size(spec->in[0].dtype);
    p.vector = 16 / p.size;
    p.whole = (p.s.inner == 1 ? p.s.length : p.s.inner) % p.vector == 0;
    p.vectors = p.whole ? p.s.length / p.vector : (p.s.length + 2 * p.vector - 2) / p.vector;
    return p;
}

static void pick_of(const softmax_algorithm &c, ks_dtype dtype, ks_kernel_info *kernel_info)
{
    static const char *const names[] = {[ROW_ELEMENTS] = "row_elements",
                                        [ROW_SUBWARP] = "row_subwarp",
                                        [ROW_IN_VECTOR] = "row_in_vector",
                                        [ROW_WARP_UNALIGNED] = "row_warp_unaligned",
                                        [ROWS_SMEM] = "rows_smem",
                                        [ROW_BLOCK_REGISTERS] = "row_block_registers",
                                        [ROW_MULTIBLOCK_PIPELINED] = "row_multiblock_pipelined",
                                        [ROW_MULTIBLOCK_REGISTERS] = "row_multiblock_registers",
                                        [ROW_GRID] = "row_grid",
                                        [COLUMN_BLOCK_REGISTERS] = "column_block_registers",
                                        [COLUMN_CLUSTER] = "column_cluster",
                                        [COLUMN_MULTIBLOCK_PIPELINED] = "column_multiblock_pipelined",
                                        [COLUMN_MULTIBLOCK_SMEM] = "column_multiblock_smem"};
    char more[32] = "";
    switch (c.kind) {
    case ROW_ELEMENTS:
        snprintf(more, sizeof more, ", %d threads", 1 << c.shift);
        break;
    case ROW_SUBWARP:
    case ROW_WARP_UNALIGNED:
    case ROWS_SMEM:
        snprintf(more, sizeof more, ", %d of %d threads", c.packs, 1 << c.shift);
        break;
    case ROW_IN_VECTOR:
        snprintf(more, sizeof more, ", rows of %d", c.packs);
        break;
    case ROW_BLOCK_REGISTERS:
        snprintf(more, sizeof more, ", %d packs", c.packs);
        break;
    case ROW_MULTIBLOCK_PIPELINED:
    case ROW_MULTIBLOCK_REGISTERS:
    case ROW_GRID:
        snprintf(more, sizeof more, ", groups of %d CTAs", c.parts);
        break;
    default:
        snprintf(more, sizeof more, ", %dx%d, %d/%d", c.packs, c.pack, c.lanes, c.parts);
        break;
    }
    snprintf(kernel_info->kernel, sizeof kernel_info->kernel, "softmax_%s<%s%s>", names[c.kind], ks_dtype_name(dtype),
             more);
    kernel_info->grid = c.grid;
    kernel_info->threads = c.threads;
    kernel_info->cluster = c.kind == COLUMN_CLUSTER ? c.parts : 1;
    kernel_info->shared_bytes = (size_t)c.shared;
}

ks_status softmax_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    if (ks_softmax_selects(spec)) return softmax_masked_plan(chip, spec, out, error);
    const softmax_problem p = problem_of(chip, spec);
    softmax_algorithm c = {};
    c.parts = 1;
    if (ks_tensor_count(&spec->in[0]) == 0)
        plan_row_block_registers(p, 1, &c);
    else if (p.s.inner == 1)
        plan_rows(p, &c);
    else
        plan_columns(p, &c);
    /* CTA groups wait for each other: all their CTAs are there at once, and one job's alone. */
    const bool cta_group = (c.parts > 1 && c.kind != COLUMN_CLUSTER) || c.kind == ROW_GRID;
    out->once = !cta_group && c.kind != COLUMN_MULTIBLOCK_SMEM && c.grid <= KS_GRID_MAX;
    out->batch_max = cta_group ? 1 : (int)KS_BATCH_MAX;
    out->workspace_bytes = 0;
    const int messages = c.kind == COLUMN_MULTIBLOCK_SMEM ? c.lanes * c.pack : 1;
    const int slots = c.kind == ROW_MULTIBLOCK_PIPELINED ? (int)ROW_PIPELINE_SLOTS : (int)GROUP_SLOTS;
    out->counters = !cta_group ? 0
                    : c.kind == COLUMN_MULTIBLOCK_PIPELINED
                        ? softmax_column_counters((int)c.grid, c.lanes * c.pack, c.parts)
                        : softmax_cta_group_counters((int)c.grid, messages, slots,
                                                     c.kind == COLUMN_MULTIBLOCK_SMEM ? (int)c.grid / c.parts : 0);
    pick_of(c, spec->in[0].dtype, &out->kernel_info);
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}
