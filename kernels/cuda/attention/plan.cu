/* How attention is spread over the chip (plan.h): rows of a CTA, splits of the keys, stages of the ring, units of a launch.
 *
 * Rule     few rows (SPLIT_ROWS) of more than WHOLE keys are split over these, by the capacity alone: up to SPLITS parts of at least PART keys. */
#include "cuda/attention/apart.cuh"
#include "cuda/attention/floats.cuh"
#include "cuda/attention/halves.cuh"
#include "cuda/attention/plan.h"
#include "cuda/attention/wgmma.cuh"

#include <stdio.h>
#include <string.h>

enum {
    SPLIT_ROWS = 64,        /* of a unit, at most */
    SPLITS = KS_WARP,       /* as the merge has lanes */
    PART = 64,              /* keys */
    WHOLE = 128,            /* keys, at most, of rows that are not split: the merge would take longer than they do */
    STAGES = 4,             /* of a ring, at most */
    UNMIXED_TILES = 8,      /* causal tiles of a head, at most, whose units follow each other */
    RING_BYTES = 72 << 10,  /* of one, about: two CTAs and more on an SM */
    MAPPED_AGAIN = 64 << 10 /* bytes that may be read more than once over the link */
};

static const int64_t KEY_HEADS_MOST = UINT32_MAX; /* of all batches: they are counted in 32 bits */

static int64_t over(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static size_t unit_bytes(const ks_attention_shape &s, const attention_algorithm &c)
{
    return c.splits == 1
               ? 0
               : (size_t)(s.group * s.queries) * (size_t)c.splits * (size_t)(2 + s.value_depth) * sizeof(float);
}

static void choose_splits(const ks_attention_shape &s, attention_algorithm *c)
{
    const int64_t rows = s.group * s.queries;
    const bool whole = rows > SPLIT_ROWS || s.keys <= (int)WHOLE;
    c->part = whole ? most(1, s.keys) : over(over(s.keys, SPLITS), PART) * PART;
    c->splits = (int32_t)most(1, over(s.keys, c->part));
    if (c->splits == 1) c->part = INT64_MAX / 4;
}

/* By the shape alone, so that lengths, masks and layouts of one shape have one kernel, and equal bits. */
static bool takes_wgmma(const ks_chip *chip, const ks_attention_shape &s)
{
    const int64_t rows = s.group * s.queries, units = s.batches * s.kv_heads;
    return chip->capability == 90 && chip->encode_tiled && s.dtype != KS_FP32 && s.depth % 8 == 0 &&
           s.value_depth % 8 == 0 && rows > SPLIT_ROWS && units > 0 && s.keys > 0 &&
           s.keys <= INT32_MAX - ATTENTION_WGMMA_ROWS &&
           rows <= (INT32_MAX - ATTENTION_WGMMA_ROWS) / units; /* counted in 32 bits */
}

/* For which a kernel has an instance. */
static int32_t columns_of(const ks_attention_shape &s, bool wgmma)
{
    const int64_t both = most(s.depth, s.value_depth), columns = wgmma ? both : s.value_depth;
    if (s.dtype == KS_FP32) return (int32_t)(both <= 128 ? over(both, 32) * 32 : over(both, 64) * 64);
    return columns <= 64 ? 64 : columns <= 128 ? 128 : 256;
}

/* FP32: rows of a tile, of which a row's bits do not hang. Those of large tiles are read once for more products, but small ones are spread over
 * more SMs: the largest that fits and leaves no SM idle. */
static int32_t floats_tile(const ks_chip *chip, int64_t pieces, int64_t rows, int32_t columns)
{
    const int64_t room = (int64_t)chip->shared_optin - ATTENTION_STATIC_BYTES;
    int32_t tile = ATTENTION_FLOATS_MOST;
    while (tile > (int)ATTENTION_ROWS &&
           (rows <= tile / 2 || pieces * over(rows, tile) < chip->sms || attention_floats_bytes(tile, columns) > room))
        tile /= 2;
    return tile;
}

/* false: one stage does not fit. */
static bool choose_memory(const ks_chip *chip, const ks_attention_shape &s, attention_algorithm *c)
{
    const int64_t room = (int64_t)chip->shared_optin - ATTENTION_STATIC_BYTES;
    c->stages = 1;
    if (c->wgmma) {
        c->shared_bytes = attention_wgmma_bytes(c->columns);
        return c->shared_bytes <= room;
    }
    if (s.dtype == KS_FP32) {
        c->shared_bytes = attention_floats_bytes(c->tile, c->columns);
        return c->shared_bytes <= room;
    }
    const int64_t row = attention_row_bytes(s.depth), rows = s.group * s.queries;
    /* What is there once, and for each stage. */
    const int64_t query = c->apart ? 0 : c->tile * row;
    const int64_t stage =
        c->apart ? attention_apart_rows(rows) * row +
                       (int)ATTENTION_MMA_WARPS * (int64_t)attention_quarter_bytes(s.depth, s.value_depth, c->columns)
                 : (int64_t)attention_stage_bytes(s.depth, s.value_depth);
    /* A few long parts, one a CTA: each has the bytes under way that others' would be. */
    const int64_t ctas = c->apart && c->splits > 1 && c->part > 2 * (int)ATTENTION_BLOCK
                             ? over(c->units * c->splits, chip->sms)
                             : INT64_MAX;
    const int64_t ring =
        ctas > 2 ? (int64_t)RING_BYTES
                 : (int64_t)chip->shared_sm / ctas - (int64_t)chip->shared_reserved - (int64_t)ATTENTION_STATIC_BYTES;
    const int64_t good = least(room - query, most(2 * stage, ring));
    c->stages = (int32_t)most(1, least(STAGES, good / stage));
    c->shared_bytes = (int32_t)(query + c->stages * stage);
    return c->shared_bytes <= room;
}

/* wgmma: the heads whose rows no tile has together. A causal tile of two heads would have the last rows of one and the first ones of the other:
 * it takes all keys, and selects those of each block. */
static int64_t heads_of(const ks_attention_shape &s, const attention_algorithm &c)
{
    return c.wgmma && s.causal != KS_ATTENTION_ALL && s.queries >= c.tile ? s.group : 1;
}

/* Of a unit. */
static int64_t tiles_of(const ks_attention_shape &s, const attention_algorithm &c)
{
    const int64_t heads = heads_of(s, c);
    return heads * over(s.group / heads * s.queries, c.tile);
}

static bool choose(const ks_chip *chip, const ks_attention_shape &s, attention_algorithm *c)
{
    const int64_t rows = s.group * s.queries, units = s.batches * s.kv_heads;
    *c = {};
    c->apart = s.dtype != KS_FP32 && rows <= ATTENTION_M;
    choose_splits(s, c);
    c->wgmma = takes_wgmma(chip, s);
    c->columns = columns_of(s, c->wgmma);
    c->tile = s.dtype == KS_FP32 ? floats_tile(chip, units * c->splits, rows, c->columns)
              : c->wgmma         ? (int)ATTENTION_WGMMA_ROWS
              : c->apart         ? (int)ATTENTION_M
                                 : (int)ATTENTION_M * (int)ATTENTION_MMA_WARPS;
    const size_t bytes = unit_bytes(s, *c);
    c->units = bytes ? most(1, least(units, (int64_t)(chip->workspace_bytes / bytes))) : units;
    if (c->apart) c->units = least(c->units, INT32_MAX / (int)SPLITS); /* its pieces are counted in 32 bits */
    c->grid = most(1, least(c->units * tiles_of(s, *c) * c->splits, INT32_MAX));
    c->joins = c->apart && c->splits > 1 && c->units <= (int)KS_COUNTERS_MAX / (int)KS_BATCH_MAX;
    if (!choose_memory(chip, s, c)) return false;
    if (c->wgmma) c->grid = least(c->grid, chip->sms); /* copies run ahead into a CTA's next tile */
    c->together = 1; /* neighbours that share keys gain more than the order, where heads have few tiles */
    if (c->wgmma && s.causal != KS_ATTENTION_ALL && s.queries > UNMIXED_TILES * c->tile)
        c->together = most(1, least(c->units, (int64_t)chip->l2_bytes / (s.keys * (s.depth + s.value_depth) * 2)));
    if (c->apart) /* a CTA's next piece is under way while it ends one: as many as run at a time */
        c->grid =
            least(c->grid,
                  most(1, (int64_t)chip->shared_sm / (c->shared_bytes + (int64_t)chip->shared_reserved)) * chip->sms);
    return true;
}

attention_launch attention_launch_of(const ks_spec *spec, const attention_algorithm &c)
{
    attention_launch go = {};
    const int64_t vector = 16 / (int64_t)ks_dtype_size(spec->in[0].dtype);
    attention_shape &a = go.a;
    go.c = c;
    a.s = ks_attention_shape_of(spec);
    a.query = spec->in[KS_ATTENTION_QUERY].offset;
    a.key = spec->in[KS_ATTENTION_KEY].offset;
    a.value = spec->in[KS_ATTENTION_VALUE].offset;
    a.mask = spec->in[KS_ATTENTION_MASK].offset;
    a.lengths = spec->in[KS_ATTENTION_LENGTHS].offset;
    a.out = spec->out[0].offset;
    a.lse = spec->outputs > 1 ? spec->out[1].offset : 0; /* a plan's spec ends with the outputs that it has */
    a.rows = a.s.group * a.s.queries;
    a.tiles = tiles_of(a.s, c);
    a.together = c.together;
    a.heads = heads_of(a.s, c);
    a.head_rows = a.rows / a.heads;
    a.part = c.part;
    a.splits = c.splits;
    a.stages = c.stages;
    a.joins = c.joins;
    a.vectors = a.s.depth % vector == 0 && a.s.value_depth % vector == 0;
    return go;
}

/* Keys and values are read once for a tile of rows. */
static bool reads_once(const ks_spec *spec, const ks_attention_shape &s, const attention_algorithm &c)
{
    if (s.group * s.queries > c.tile) return false;
    return !s.masked || spec->in[KS_ATTENTION_MASK].size_bytes <= MAPPED_AGAIN;
}

static void name_kernel(const ks_attention_shape &s, const attention_algorithm &c, ks_kernel_info *info)
{
    snprintf(info->kernel, sizeof info->kernel, "attention_%s<%s, %d, %d splits>",
             s.dtype == KS_FP32 ? "floats"
             : c.wgmma          ? "wgmma"
             : c.apart          ? "apart"
                                : "halves",
             ks_dtype_name(s.dtype), c.columns, c.splits);
    info->grid = c.grid;
    info->threads = c.wgmma ? (int)ATTENTION_WGMMA_THREADS : (int)ATTENTION_MMA_THREADS;
    info->cluster = 1;
    info->shared_bytes = (size_t)c.shared_bytes;
}

ks_status attention_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    const ks_attention_shape s = ks_attention_shape_of(spec);
    attention_algorithm c;
    if (s.batches * s.kv_heads > KEY_HEADS_MOST)
        return ks_fail(error, KS_WORK, "attention: batches of %lld key heads in all, this kernel takes %lld",
                       (long long)(s.batches * s.kv_heads), (long long)KEY_HEADS_MOST);
    if (!choose(chip, s, &c))
        return ks_fail(error, KS_WORK, "attention: heads of %d and %d elements do not fit on this device", s.depth,
                       s.value_depth);
    if (ks_spec_read_bytes(spec) + ks_spec_written_bytes(spec) <= KS_MAPPED_MOST) c.grid = least(c.grid, KS_GRID_MAX);
    out->once = !c.wgmma && reads_once(spec, s, c); /* maps hold the addresses of one job */
    out->batch_max = KS_BATCH_MAX;
    out->early = c.wgmma && c.splits == 1 && c.units == s.batches * s.kv_heads;
    out->counters = c.joins ? (size_t)c.units : 0;
    out->workspace_bytes = ks_align(unit_bytes(s, c) * (size_t)c.units);
    if (out->workspace_bytes > chip->workspace_bytes)
        return ks_fail(error, KS_WORK, "attention: a key head's parts are %zu bytes, on this device at most %zu",
                       out->workspace_bytes, chip->workspace_bytes);
    name_kernel(s, c, &out->kernel_info);
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}
