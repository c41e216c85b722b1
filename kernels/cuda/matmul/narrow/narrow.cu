/* Products of 8 bits: plans and launches. */
#include "cuda/matmul/narrow/tile.cuh"
#include "cuda/matmul/plan.h"

#include <stdio.h>
#include <string.h>

enum {
    SMALL = 64,          /* rows and columns of a tile */
    WIDE = 128,          /* likewise */
    SMALL_THREADS = 128, /* of a CTA */
    WIDE_THREADS = 256,
    SPLITS_MOST = 16,
    SLICE_LEAST = 512 /* values of K */
};
static_assert(sizeof(narrow_algorithm) <= KS_ALGORITHM_BYTES, "a plan remembers the choice");

static int64_t over(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- an operand as rows ---------------------------------------------------------------------------------------------- */

static bool are_multiples(const ks_matmul_shape &s, const int64_t *step, int64_t of)
{
    for (int d = 0; d < s.batch_rank; d++)
        if (step[d] % of) return false;
    return true;
}

static narrow_layout layout_of(const ks_matmul_shape &s, const narrow_operand &o)
{
    if (o.along == 1 && (o.rows == 1 || o.row % 16 == 0) && are_multiples(s, o.step, 16)) return NARROW_ALONG;
    return o.row == 1 && o.along > 1 && o.along >= o.rows ? NARROW_ACROSS : NARROW_ANY;
}

static narrow_args args_of(const ks_spec *spec, const narrow_algorithm &c)
{
    ks_matmul_shape s;
    narrow_args args = {};
    ks_matmul_shape_of(spec, &s);
    const int64_t tile = c.wide ? WIDE : SMALL;
    for (int i = 0; i < 2; i++) {
        narrow_operand &o = i ? args.b : args.a;
        const int scale = i ? KS_MATMUL_SCALE_B : KS_MATMUL_SCALE_A;
        o.at = spec->in[i].offset;
        o.rows = i ? s.n : s.m;
        o.row = i ? s.b_col : s.a_row;
        o.along = i ? s.b_row : s.a_col;
        for (int d = 0; d < s.batch_rank; d++) o.step[d] = i ? s.b_step[d] : s.a_step[d];
        o.matrix = i ? s.b_matrix : s.a_matrix;
        if (o.matrix == 0) o.matrix = 1; /* K is 0, and so are all offsets */
        o.scaled = ks_has_input(spec, scale);
        o.scales = o.scaled ? spec->in[scale].offset : 0;
        o.each = i ? s.b_scales : s.a_scales;
        o.e5m2 = (i ? s.b_dtype : s.a_dtype) == KS_FP8E5M2;
        o.layout = layout_of(s, o);
        o.words = o.along % 4 == 0 && o.rows % 4 == 0 && are_multiples(s, o.step, 4);
        args.counts[i] = o.scaled ? ks_tensor_count(&spec->in[scale]) : 0;
    }
    for (int d = 0; d < s.batch_rank; d++) args.batch_dims[d] = s.batch_dims[d];
    args.batch_rank = s.batch_rank;
    args.k = s.k;
    args.line = s.n;
    args.first = true;
    args.slice = c.slice;
    args.batch = s.batch;
    args.tiles_m = over(s.m, tile);
    args.tiles_n = over(s.n, tile);
    args.splits = c.splits;
    args.activation = s.activation;
    args.out = spec->out[0].dtype;
    args.alpha = (float)s.alpha;
    args.biased = s.biased;
    args.bias = s.biased ? spec->in[KS_MATMUL_BIAS].offset : 0;
    args.c = spec->out[0].offset;
    return args;
}

/* --- plans ----------------------------------------------------------------------------------------------------------- */

/* Large tiles where they fill the chip; small ones otherwise, and slices of K where these do not. */
static narrow_algorithm choose(const ks_chip *chip, const ks_matmul_shape &s)
{
    narrow_algorithm c = {};
    const int64_t large = over(s.m, WIDE) * over(s.n, WIDE) * s.batch;
    c.mark = KS_MATMUL_NARROW_MARK;
    c.wide = large >= chip->sms && s.m > SMALL && s.n > SMALL;
    const int64_t tile = c.wide ? WIDE : SMALL, tiles = over(s.m, tile) * over(s.n, tile) * s.batch;
    const int64_t bytes = s.m * s.n * s.batch * 4;
    int64_t splits = tiles > 0 && tiles < chip->sms ? least(over(2 * (int64_t)chip->sms, tiles), s.k / SLICE_LEAST) : 1;
    splits = least(splits, SPLITS_MOST);
    if (bytes > 0) splits = least(splits, (int64_t)chip->workspace_bytes / bytes);
    if (splits < 1) splits = 1;
    c.slice = over(over(s.k, splits), NARROW_DEPTH) * NARROW_DEPTH;
    c.splits = (int16_t)(s.k > 0 ? over(s.k, c.slice) : 1);
    const int64_t items = tiles * c.splits;
    c.grid = (int32_t)(items < 1 ? 1 : least(items, INT32_MAX));
    return c;
}

/* Of tile.cuh's kernel, in us: fitted to 180 readings of drawn products on an H200; the standard deviation of relative errors is 0.14. */
typedef struct tile_cost {
    double end;         /* of a tile */
    double multiply[2]; /* a step's products: of INT8, of FP8 */
    double read[4];     /* a step of an operand, by narrow_layout; WORDS */
} tile_cost;
enum { WORDS = NARROW_ANY + 1 /* across K in aligned words */ };
static const tile_cost costs[2] = {{0.8, {0.11, 0.32}, {0.47, 1.5, 0.9, 0.52}},
                                   {4.8, {1.3, 2.2}, {1.0, 2.0, 1.6, 4.0}}};

static double read_us(const tile_cost *cost, const narrow_operand &o)
{
    return cost->read[o.layout == NARROW_ACROSS && o.words ? (int)WORDS : o.layout];
}

static double predict_us(const ks_chip *chip, const ks_matmul_shape &s, const narrow_args &args,
                         const narrow_algorithm &c)
{
    const tile_cost *cost = &costs[c.wide != 0];
    const double steps = (double)over(least(c.slice, s.k), NARROW_DEPTH);
    const double tiles = (double)(args.tiles_m * args.tiles_n) * (double)s.batch * c.splits / chip->sms;
    const double sums = c.splits > 1 ? 1.2 + 0.65e-6 * (double)(s.m * s.n * s.batch) * 4 * c.splits : 0;
    return 3.8 + steps * (read_us(cost, args.a) + read_us(cost, args.b)) + sums +
           tiles * (cost->end + steps * cost->multiply[s.a_dtype != KS_INT8]);
}

/* An algorithm and how long it takes. */
typedef struct narrow_way {
    narrow_algorithm algorithm;
    double us;
} narrow_way;

enum { WAYS_MOST = NARROW_WGMMA_ROWS + 3 };
static_assert((int)WAYS_MOST <= (int)NARROW_WAYS_MOST, "a list has room for all");

/* All there are, by rising time; returns how many. */
static int list_ways(const ks_chip *chip, const ks_spec *spec, narrow_way *out)
{
    ks_matmul_shape s;
    int count = 0;
    ks_matmul_shape_of(spec, &s);
    const narrow_algorithm tile = choose(chip, s);
    const narrow_args args = args_of(spec, tile);
    for (int row = 0; row < WAYS_MOST; row++) {
        narrow_way way = {tile, predict_us(chip, s, args, tile)};
        if (row < NARROW_WGMMA_ROWS)
            way.us = narrow_wgmma_choose(chip, spec, args, row, &way.algorithm);
        else if (row == NARROW_WGMMA_ROWS)
            way.us = narrow_strip_choose(chip, spec, args, &way.algorithm);
        else if (row == NARROW_WGMMA_ROWS + 1)
            way.us = narrow_direct_choose(chip, spec, args, &way.algorithm);
        if (way.us <= 0) continue;
        int at = count++;
        for (; at > 0 && out[at - 1].us > way.us; at--) out[at] = out[at - 1];
        out[at] = way;
    }
    return count;
}

static void plan_tile(const ks_spec *spec, const narrow_algorithm &c, ks_cuda_plan *out)
{
    ks_matmul_shape s;
    ks_matmul_shape_of(spec, &s);
    const int tile = c.wide ? WIDE : SMALL;
    char slices[16] = "";
    if (c.splits > 1) snprintf(slices, sizeof slices, ", %d slices", c.splits);
    out->once = c.grid == 1 && s.batch <= 1;
    out->batch_max = out->once ? KS_BATCH_MAX : 1;
    out->workspace_bytes = c.splits > 1 ? ks_align((size_t)(s.m * s.n * s.batch) * 4 * (size_t)c.splits) : 0;
    out->kernel_info.grid = c.grid;
    out->kernel_info.threads = c.wide ? WIDE_THREADS : SMALL_THREADS;
    out->kernel_info.cluster = 1;
    snprintf(out->kernel_info.kernel, sizeof out->kernel_info.kernel, "matmul_8_bits<%s, %dx%d%s>",
             ks_dtype_name(s.a_dtype), tile, tile, slices);
}

static void plan_way(const ks_chip *chip, const ks_spec *spec, const narrow_algorithm &c, ks_cuda_plan *out)
{
    memset(out, 0, sizeof *out);
    if (c.wgmma)
        narrow_wgmma_plan(chip, spec, args_of(spec, c), c, out);
    else if (c.strip)
        narrow_strip_plan(spec, args_of(spec, c), c, out);
    else if (c.direct)
        narrow_direct_plan(spec, args_of(spec, c), c, out);
    else
        plan_tile(spec, c, out);
    memcpy(out->algorithm, &c, sizeof c);
}

/* Bytes, in and out together. Jobs of so few share a launch on mapped slots, which gains more than any kernel. */
enum { SHARED_MOST = 64 << 10 };

static bool shares(const ks_chip *chip, const ks_spec *spec, const narrow_algorithm &c)
{
    ks_cuda_plan plan;
    plan_way(chip, spec, c, &plan);
    return plan.once && !ks_spec_fixed(spec) && ks_spec_read_bytes(spec) + ks_spec_written_bytes(spec) <= SHARED_MOST;
}

int narrow_candidates(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, int most)
{
    narrow_way ways[WAYS_MOST];
    const int count = list_ways(chip, spec, ways);
    for (int i = 0; i < count; i++) {
        const narrow_way way = ways[i];
        if (way.algorithm.wgmma || way.algorithm.strip || !shares(chip, spec, way.algorithm)) continue;
        memmove(ways + 1, ways, (size_t)i * sizeof *ways);
        ways[0] = way;
        break;
    }
    for (int i = 0; i < count && i < most; i++) plan_way(chip, spec, ways[i].algorithm, &out[i]);
    return count < most ? count : most;
}

/* --- launches -------------------------------------------------------------------------------------------------------- */

template <class S>
static cudaError_t start_tile(const narrow_algorithm &c, const narrow_args &args, const ks_site &site, int bucket,
                              cudaStream_t stream)
{
    const dim3 grid((unsigned)c.grid, (unsigned)bucket);
    return c.wide ? ks_launch(narrow_tile<S, WIDE, WIDE, 2, 4>, grid, WIDE_THREADS, 0, false, stream, site, args)
                  : ks_launch(narrow_tile<S, SMALL, SMALL, 2, 2>, grid, SMALL_THREADS, 0, false, stream, site, args);
}

/* The slices' sums behind it, whatever has made them. */
template <class S>
static cudaError_t start_add(const narrow_algorithm &c, const narrow_args &args, const ks_site &site, int bucket,
                             cudaStream_t stream)
{
    if (c.splits == 1 || c.strip || ks_noting) return cudaSuccess;
    const int64_t groups = over(args.a.rows * args.b.rows * args.batch, NARROW_ADD_THREADS);
    return ks_launch(narrow_add<S>, dim3((unsigned)least(groups, KS_GRID_MAX), (unsigned)bucket), NARROW_ADD_THREADS, 0,
                     false, stream, site, args);
}

cudaError_t narrow_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, const ks_site &site,
                          int bucket, cudaStream_t stream)
{
    narrow_algorithm c;
    memcpy(&c, algorithm, sizeof c);
    const narrow_args args = args_of(spec, c);
    const bool integers = spec->in[0].dtype == KS_INT8;
    cudaError_t status = c.wgmma    ? narrow_wgmma_launch(chip, spec, args, c, site, stream)
                         : c.strip  ? narrow_strip_launch(spec, args, c, site, stream)
                         : c.direct ? narrow_direct_launch(spec, args, c, site, bucket, stream)
                         : integers ? start_tile<int32_t>(c, args, site, bucket, stream)
                                    : start_tile<float>(c, args, site, bucket, stream);
    if (status == cudaSuccess)
        status = integers ? start_add<int32_t>(c, args, site, bucket, stream)
                          : start_add<float>(c, args, site, bucket, stream);
    if (status != cudaSuccess) cudaGetLastError(); /* taken: the caller reports it */
    return status;
}
