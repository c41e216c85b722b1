/* Products of 8 bits of few rows: which strips, the launch. */
#include "cuda/matmul/narrow/strip.cuh"
#include "cuda/matmul/plan.h"

#include <stdio.h>
#include <string.h>

enum { FEW = 8, MORE = 16, MANY = 32, ROWS_MOST = 64, SPLITS_MOST = 16 };

typedef void narrow_strip_kernel(ks_site, narrow_args);

/* What the host knows of a kernel. */
typedef struct narrow_strip_row {
    narrow_strip_kernel *entry;
    int columns, step, threads, shared_bytes, outputs;
    float end_us, turn_us; /* what is not turns; a turn of all warps; fitted to 27 readings on an H200 */
} narrow_strip_row;

/* end_us of FEW, MORE, MANY rows: INPUT1 across K; along it. */
static constexpr float ends[2][3] = {{1.9f, 5.9f, 9.5f}, {0.9f, 1.6f, 3.5f}};

template <class S, int ROWS, bool ALONG>
static constexpr narrow_strip_row row_of()
{
    typedef narrow_strip_tile<S, ROWS, ALONG> TILE;
    constexpr float end = ends[ALONG][ROWS == FEW ? 0 : ROWS == MORE ? 1 : 2];
    return {narrow_strip<TILE>,         TILE::COLUMNS, TILE::STEP,           TILE::THREADS, TILE::SHARED,
            TILE::ROWS * TILE::COLUMNS, end,           ALONG ? 2.47f : 1.98f};
}

#define ROWS(S, rows)                                                                                                  \
    {                                                                                                                  \
        row_of<S, rows, false>(), row_of<S, rows, true>()                                                              \
    }
/* [INT8][rows][along K] */
static const narrow_strip_row kernels[2][3][2] = {{ROWS(float, FEW), ROWS(float, MORE), ROWS(float, MANY)},
                                                  {ROWS(int32_t, FEW), ROWS(int32_t, MORE), ROWS(int32_t, MANY)}};

/* Rows of a CTA. */
static int rows_of(const narrow_args &args)
{
    return args.a.rows <= FEW ? FEW : args.a.rows <= MORE ? MORE : MANY;
}

static const narrow_strip_row *row_at(const ks_spec *spec, const narrow_args &args)
{
    const int rows = rows_of(args);
    return &kernels[spec->in[0].dtype == KS_INT8][rows == FEW    ? 0
                                                  : rows == MORE ? 1
                                                                 : 2][args.b.layout == NARROW_ALONG];
}

cudaError_t narrow_strip_allow(ks_chip *chip)
{
    cudaError_t code = cudaSuccess;
    for (int i = 0; i < 12 && code == cudaSuccess; i++) {
        const narrow_strip_row *row = &kernels[i / 6][i / 2 % 3][i % 2];
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

/* Of rows and columns. */
static int64_t parts_of(const narrow_args &args, const narrow_strip_row *row)
{
    return over(args.b.rows, row->columns) * over(args.a.rows, rows_of(args));
}

double narrow_strip_choose(const ks_chip *chip, const ks_spec *spec, const narrow_args &args, narrow_algorithm *out)
{
    const narrow_strip_row *row = row_at(spec, args);
    const bool across = args.b.layout == NARROW_ACROSS && args.b.along % 16 == 0 && args.b.rows % 16 == 0;
    if (args.a.rows < 1 || args.a.rows > ROWS_MOST || args.b.rows < 1 || args.batch != 1 || args.k < 1 ||
        args.k % row->step != 0 || args.a.layout != NARROW_ALONG || (!across && args.b.layout != NARROW_ALONG) ||
        (size_t)row->shared_bytes > chip->shared_optin)
        return 0;
    const int64_t parts = parts_of(args, row), steps = args.k / row->step, turns = over(steps, 8);
    int64_t splits = chip->sms / parts;
    if (splits > turns) splits = turns;
    if (splits > SPLITS_MOST) splits = SPLITS_MOST;
    if (splits < 1) splits = 1;
    const int64_t each = over(steps, splits), slices = over(steps, each);
    if ((size_t)(parts * slices * row->outputs) * 4 > chip->workspace_bytes || parts > KS_COUNTERS_MAX) return 0;
    memset(out, 0, sizeof *out);
    out->mark = KS_MATMUL_NARROW_MARK;
    out->strip = rows_of(args);
    out->splits = (int16_t)slices;
    out->slice = each * row->step;
    out->grid = (int32_t)(parts * slices);
    const double waves = (double)over(parts * slices, chip->sms);
    return row->end_us + waves * (double)over(each, 8) * row->turn_us + (slices > 1 ? 1.5 + 0.24 * (double)slices : 0);
}

void narrow_strip_plan(const ks_spec *spec, const narrow_args &args, const narrow_algorithm &c, ks_cuda_plan *out)
{
    const narrow_strip_row *row = row_at(spec, args);
    const int64_t parts = parts_of(args, row);
    out->batch_max = 1;
    if (c.splits > 1) {
        out->workspace_bytes = ks_align((size_t)(parts * c.splits * row->outputs) * 4);
        out->counters = (size_t)parts;
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
    const narrow_strip_row *row = row_at(spec, args);
    narrow_args here = args;
    here.tiles_m = over(args.a.rows, rows_of(args));
    return ks_launch(row->entry, dim3((unsigned)c.grid), row->threads, (size_t)row->shared_bytes, false, stream, site,
                     here);
}
