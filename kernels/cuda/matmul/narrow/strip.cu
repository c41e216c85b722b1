/* Products of 8 bits of few rows: which strips, the launch. */
#include "cuda/matmul/narrow/strip.cuh"
#include "cuda/matmul/plan.h"

#include <stdio.h>
#include <string.h>

enum { FEW = 8, MORE = 16 /* rows */, SPLITS_MOST = 16 };

typedef void narrow_strip_kernel(ks_site, narrow_args);

/* What the host knows of a kernel. */
typedef struct narrow_strip_row {
    narrow_strip_kernel *entry;
    int columns, step, threads, shared_bytes, outputs;
} narrow_strip_row;

template <class S, int ROWS, bool ALONG>
static constexpr narrow_strip_row row_of()
{
    typedef narrow_strip_tile<S, ROWS, ALONG> TILE;
    return {narrow_strip<TILE>, TILE::COLUMNS, TILE::STEP, TILE::THREADS, TILE::SHARED, TILE::ROWS * TILE::COLUMNS};
}

/* [INT8][more rows][along K] */
static const narrow_strip_row kernels[2][2][2] = {{{row_of<float, FEW, false>(), row_of<float, FEW, true>()},
                                                   {row_of<float, MORE, false>(), row_of<float, MORE, true>()}},
                                                  {{row_of<int32_t, FEW, false>(), row_of<int32_t, FEW, true>()},
                                                   {row_of<int32_t, MORE, false>(), row_of<int32_t, MORE, true>()}}};

static const narrow_strip_row *row_at(const ks_spec *spec, const narrow_args &args, int64_t rows)
{
    return &kernels[spec->in[0].dtype == KS_INT8][rows > FEW][args.b.layout == NARROW_ALONG];
}

cudaError_t narrow_strip_allow(ks_chip *chip)
{
    cudaError_t code = cudaSuccess;
    for (int i = 0; i < 8 && code == cudaSuccess; i++) {
        const narrow_strip_row *row = &kernels[i / 4][i / 2 % 2][i % 2];
        if ((size_t)row->shared_bytes <= chip->shared_optin)
            code = cudaFuncSetAttribute((const void *)row->entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        row->shared_bytes);
    }
    return code;
}

static int64_t over(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

static int64_t strips_of(const narrow_args &args, const narrow_strip_row *row)
{
    return over(args.b.rows, row->columns);
}

double narrow_strip_choose(const ks_chip *chip, const ks_spec *spec, const narrow_args &args, narrow_algorithm *out)
{
    const narrow_strip_row *row = row_at(spec, args, args.a.rows);
    const bool across = args.b.layout == NARROW_ACROSS && args.b.along % 16 == 0 && args.b.rows % 16 == 0;
    if (args.a.rows < 1 || args.a.rows > MORE || args.b.rows < 1 || args.batch != 1 || args.k < 1 ||
        args.k % row->step != 0 || args.a.layout != NARROW_ALONG || (!across && args.b.layout != NARROW_ALONG) ||
        (size_t)row->shared_bytes > chip->shared_optin)
        return 0;
    const int64_t strips = strips_of(args, row), steps = args.k / row->step, turns = over(steps, 8);
    int64_t splits = chip->sms / strips;
    if (splits > turns) splits = turns;
    if (splits > SPLITS_MOST) splits = SPLITS_MOST;
    if (splits < 1) splits = 1;
    const int64_t each = over(steps, splits), slices = over(steps, each);
    if ((size_t)(strips * slices * row->outputs) * 4 > chip->workspace_bytes || strips > KS_COUNTERS_MAX) return 0;
    memset(out, 0, sizeof *out);
    out->mark = KS_MATMUL_NARROW_MARK;
    out->strip = args.a.rows > FEW ? MORE : FEW;
    out->splits = (int16_t)slices;
    out->slice = each * row->step;
    out->grid = (int32_t)(strips * slices);
    /* A CTA reads 25 bytes in a ns where all do. */
    const double waves = (double)over(strips * slices, chip->sms);
    return 2.5 + waves * (double)(each * row->step * row->columns) / 25e3;
}

void narrow_strip_plan(const ks_spec *spec, const narrow_args &args, const narrow_algorithm &c, ks_cuda_plan *out)
{
    const narrow_strip_row *row = row_at(spec, args, c.strip);
    const int64_t strips = strips_of(args, row);
    out->batch_max = 1;
    if (c.splits > 1) {
        out->workspace_bytes = ks_align((size_t)(strips * c.splits * row->outputs) * 4);
        out->counters = (size_t)strips;
    }
    out->kernel_info.grid = c.grid;
    out->kernel_info.threads = row->threads;
    out->kernel_info.cluster = 1;
    out->kernel_info.shared_bytes = (size_t)row->shared_bytes;
    char slices[16] = "";
    if (c.splits > 1) snprintf(slices, sizeof slices, ", %d slices", c.splits);
    snprintf(out->kernel_info.kernel, sizeof out->kernel_info.kernel, "matmul_8_bits<%s, strip %dx%d%s>",
             ks_dtype_name(spec->in[0].dtype), (int)c.strip, row->columns, slices);
}

cudaError_t narrow_strip_launch(const ks_spec *spec, const narrow_args &args, const narrow_algorithm &c,
                                const ks_site &site, cudaStream_t stream)
{
    const narrow_strip_row *row = row_at(spec, args, c.strip);
    return ks_launch(row->entry, dim3((unsigned)c.grid), row->threads, (size_t)row->shared_bytes, false, stream, site,
                     args);
}
