/* Small products of 8 bits: how many warps share a slab's K, the launch. */
#include "cuda/matmul/narrow/direct.cuh"
#include "cuda/matmul/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CTAS_SM = 2 /* that the registers suffice for */, WAVES_MOST = 64, K_END = 1 << 30 };

static int64_t over(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

static int rows_of(int parts)
{
    return NARROW_DIRECT_WARPS / parts * NARROW_DIRECT_ROWS;
}

static int64_t ctas_of(const narrow_args &args, int parts)
{
    return over(args.a.rows, rows_of(parts)) * over(args.b.rows, NARROW_DIRECT_COLUMNS) * args.batch;
}

/* In us, fitted to 120 drawn products on an H200: a CTA's start on each SM, then what a wave of CTAs takes. */
static const double START_US = 1.28, WAVE_US = 0.82, END_US = 0.47, ANY_US = 1.49, FP8_US = 1.03;
static const double CHUNK_US = 0.89, CHUNK_ACROSS_US = 0.41, CHUNK_ANY_US = 0.22;

static double predict_us(const ks_chip *chip, const ks_spec *spec, const narrow_args &args, int parts)
{
    const double steps = (double)over(over(args.k, NARROW_DIRECT_DEPTH), parts), ctas = (double)ctas_of(args, parts);
    const double waves = ceil(ctas / (CTAS_SM * chip->sms)), starts = ctas / chip->sms;
    const bool across = args.b.layout != NARROW_ALONG && args.b.along != 1;
    const bool any = args.a.layout != NARROW_ALONG || (across ? !args.b.words : args.b.layout != NARROW_ALONG);
    const double wave = WAVE_US + END_US / parts + (any ? ANY_US : 0) + (spec->in[0].dtype != KS_INT8 ? FP8_US : 0);
    const double chunk = CHUNK_US + (across ? CHUNK_ACROSS_US : 0) + (any ? CHUNK_ANY_US : 0);
    return START_US * (starts > 1 ? starts : 1) + waves * (wave + steps * chunk);
}

/* Whether a warp can read it: A along K, B along or across it. */
static bool reads(const narrow_args &args)
{
    return args.a.along == 1 && (args.b.along == 1 || args.b.row == 1) && args.a.rows > 0 && args.b.rows > 0 &&
           args.batch > 0 && args.k > 0 && args.k < K_END;
}

double narrow_direct_choose(const ks_chip *chip, const ks_spec *spec, const narrow_args &args, narrow_algorithm *out)
{
    double least_us = 0;
    if (!reads(args)) return 0;
    for (int parts = 1; parts <= NARROW_DIRECT_WARPS; parts *= 2) {
        const int64_t ctas = ctas_of(args, parts);
        if (ctas > (int64_t)WAVES_MOST * CTAS_SM * chip->sms) continue;
        const double us = predict_us(chip, spec, args, parts);
        if (least_us > 0 && us >= least_us) continue;
        least_us = us;
        memset(out, 0, sizeof *out);
        out->mark = KS_MATMUL_NARROW_MARK;
        out->direct = parts;
        out->splits = 1;
        out->slice = args.k;
        out->grid = (int32_t)ctas;
    }
    return least_us;
}

void narrow_direct_plan(const ks_spec *spec, const narrow_args &args, const narrow_algorithm &c, ks_cuda_plan *out)
{
    /* What several CTAs read of A or B is at most a quarter of both. */
    const int64_t down = over(args.a.rows, rows_of(c.direct)), across = over(args.b.rows, NARROW_DIRECT_COLUMNS);
    const int64_t rows = args.a.rows + args.b.rows, read = args.a.rows * across + args.b.rows * down;
    out->once = args.batch <= 1 && read <= rows + rows / 4 && c.grid <= KS_GRID_MAX;
    out->batch_max = out->once ? KS_BATCH_MAX : 1;
    out->kernel_info.grid = c.grid;
    out->kernel_info.threads = NARROW_DIRECT_THREADS;
    out->kernel_info.cluster = 1;
    snprintf(out->kernel_info.kernel, sizeof out->kernel_info.kernel, "matmul_8_bits<%s, direct %dx%d%s>",
             ks_dtype_name(spec->in[0].dtype), rows_of(c.direct), (int)NARROW_DIRECT_COLUMNS,
             c.direct > 1 ? ", shared K" : "");
}

template <class S>
static cudaError_t start(const narrow_args &args, const narrow_algorithm &c, const ks_site &site, int bucket,
                         cudaStream_t stream)
{
    const dim3 grid((unsigned)c.grid, (unsigned)bucket);
    int share = 0;
    while (1 << share < c.direct) share++;
    return args.b.along == 1
               ? ks_launch(narrow_direct<S, false>, grid, NARROW_DIRECT_THREADS, 0, false, stream, site, args, share)
               : ks_launch(narrow_direct<S, true>, grid, NARROW_DIRECT_THREADS, 0, false, stream, site, args, share);
}

cudaError_t narrow_direct_launch(const ks_spec *spec, const narrow_args &args, const narrow_algorithm &c,
                                 const ks_site &site, int bucket, cudaStream_t stream)
{
    narrow_args here = args;
    here.tiles_m = over(args.a.rows, rows_of(c.direct));
    here.tiles_n = over(args.b.rows, NARROW_DIRECT_COLUMNS);
    return spec->in[0].dtype == KS_INT8 ? start<int32_t>(here, c, site, bucket, stream)
                                        : start<float>(here, c, site, bucket, stream);
}
