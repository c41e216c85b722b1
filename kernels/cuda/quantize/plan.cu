/* Which kernels of this folder do a piece of work, with what launch parameters (plan.h). */
#include "cuda/quantize/plan.h"

#include <stdio.h>
#include <string.h>

static const int WARP = 32, ROW_THREADS_MOST = QUANTIZE_ROW_THREADS;
static const int CTAS_SM = 8;          /* that an SM is given where there is work enough */
static const int PART_ROWS_LEAST = 32; /* of columns */

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

/* Elements of 16 bytes on the side that has not 8 bits. */
static int64_t vector_of(const ks_quantize_shape &s)
{
    return 16 / (int64_t)most((int64_t)ks_dtype_size(s.from), (int64_t)ks_dtype_size(s.to));
}

/* How a kernel sees the work. */
static quantize_shape shape_of(const ks_spec *spec, const quantize_algorithm &c)
{
    const ks_quantize_shape given = ks_quantize_shape_of(spec);
    quantize_shape shape = {}, *const s = &shape;
    s->count = given.rows * given.columns;
    const bool one = c.family == QUANTIZE_ROWS && given.per == KS_SCALE_TENSOR; /* a short tensor is one row */
    s->rows = one ? 1 : given.rows;
    s->columns = one ? s->count : given.columns;
    s->scales = given.scales;
    s->in = spec->in[KS_QUANTIZE_X].offset;
    s->out = spec->out[0].offset;
    s->given_at = given.given ? spec->in[KS_QUANTIZE_SCALE].offset : 0;
    s->scales_at = spec->outputs > 1 ? spec->out[1].offset : 0;
    s->part = c.part;
    s->parts = c.parts;
    s->width = c.width;
    s->from = given.from;
    s->to = given.to;
    s->most = ks_quantize_most(given.to);
    s->given = given.given;
    s->by_columns = ks_divider_of(given.columns);
    return shape;
}

quantize_launch quantize_launch_of(const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                                   cudaStream_t stream)
{
    quantize_launch go = {};
    memcpy(&go.c, algorithm, sizeof go.c);
    go.s = shape_of(spec, go.c);
    go.site = site;
    go.bucket = bucket;
    go.stream = stream;
    return go;
}

ks_status quantize_launched(const ks_spec *spec, cudaError_t status, ks_error *error)
{
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "%s: launch failed: %s", spec->op->name, cudaGetErrorString(status));
}

ks_status quantize_setup(ks_chip *chip, ks_error *error)
{
    (void)chip, (void)error;
    return KS_OK;
}

/* --- what is chosen -------------------------------------------------------------------------------------------------- */

static quantize_index index_of(const ks_quantize_shape &s)
{
    const bool whole = s.columns % vector_of(s) == 0;
    switch (s.per) {
    case KS_SCALE_ROW:
        return whole ? QUANTIZE_BY_ROW : QUANTIZE_BY_ANY_ROW;
    case KS_SCALE_COLUMN:
        return whole ? QUANTIZE_BY_COLUMN : QUANTIZE_BY_ANY_COLUMN;
    default:
        return QUANTIZE_BY_TENSOR;
    }
}

/* As many CTAs as rows take at a time, where each is by `width` threads. */
static void choose_rows(const ks_chip *chip, int64_t rows, int64_t columns, int64_t vector, quantize_algorithm *c)
{
    const int64_t vectors = most(1, over(columns, vector) + (columns % vector != 0));
    const int64_t each = rows >= 4 * (int64_t)chip->sms ? QUANTIZE_HELD : 1; /* vectors of a thread */
    int64_t width = 1;
    while (width < WARP && width * each < vectors) width *= 2;
    if (over(vectors, each) > WARP) width = least(ROW_THREADS_MOST, over(over(vectors, each), WARP) * WARP);
    c->family = QUANTIZE_ROWS;
    c->width = (int16_t)width;
    c->threads = (int16_t)(width > WARP ? width : (int64_t)QUANTIZE_THREADS);
    c->grid = (int32_t)most(1, least(KS_GRID_MAX, over(rows, c->threads / width)));
}

/* Rows too few for the chip, which no CTA keeps: as many parts as fill it. */
static bool choose_long(const ks_chip *chip, const ks_quantize_shape &s, quantize_algorithm *c)
{
    const int64_t vectors = over(s.columns, vector_of(s)) + 1, kept = QUANTIZE_ROW_THREADS * QUANTIZE_HELD;
    const int64_t parts = (int64_t)chip->sms * CTAS_SM / most(1, s.rows);
    if (s.rows < 1 || s.rows > 2 * (int64_t)chip->sms || vectors <= kept) return false;
    c->family = QUANTIZE_LONG;
    c->part = most(QUANTIZE_THREADS, over(vectors, most(1, parts)));
    c->parts = (int32_t)over(vectors, c->part);
    return true;
}

static void choose_columns(const ks_chip *chip, const ks_quantize_shape &s, quantize_algorithm *c)
{
    const int64_t vector = s.columns % vector_of(s) ? 1 : vector_of(s);
    const int64_t tiles = most(1, over(s.columns, vector * WARP));
    const int64_t room = (int64_t)chip->workspace_bytes / (int64_t)ks_align((size_t)most(1, s.columns) * sizeof(float));
    const int64_t parts = least(least((int64_t)chip->sms * CTAS_SM / tiles, room), over(s.rows, PART_ROWS_LEAST));
    c->family = QUANTIZE_COLUMNS;
    c->part = most(1, over(s.rows, most(1, parts)));
    c->parts = (int32_t)most(1, over(s.rows, c->part));
}

static quantize_algorithm choose(const ks_chip *chip, const ks_quantize_shape &s)
{
    quantize_algorithm c = {};
    const int64_t count = s.rows * s.columns, vectors = over(count, vector_of(s));
    const int64_t ctas = (int64_t)chip->sms * CTAS_SM;
    c.index = (uint8_t)index_of(s);
    c.threads = QUANTIZE_THREADS;
    c.grid = (int32_t)most(1, least(least(KS_GRID_MAX, ctas), over(vectors, QUANTIZE_THREADS)));
    c.parts = 1;
    if (s.given) {
        c.family = QUANTIZE_GIVEN;
    } else if (s.per == KS_SCALE_COLUMN) {
        choose_columns(chip, s, &c);
    } else if (s.per == KS_SCALE_ROW && choose_long(chip, s, &c)) {
        return c;
    } else if (s.per == KS_SCALE_ROW) {
        choose_rows(chip, s.rows, s.columns, vector_of(s), &c);
    } else if (vectors <= ROW_THREADS_MOST * QUANTIZE_HELD) {
        choose_rows(chip, 1, count, vector_of(s), &c);
    } else {
        c.family = QUANTIZE_TENSOR;
        c.parts = c.grid;
    }
    return c;
}

/* Each input byte is read about once: what a row's threads do not keep they read again. */
static bool reads_once(const ks_quantize_shape &s, const quantize_algorithm &c)
{
    const int64_t length = s.per == KS_SCALE_TENSOR ? s.rows * s.columns : s.columns;
    if (c.family == QUANTIZE_GIVEN) return true;
    return c.family == QUANTIZE_ROWS && over(length, vector_of(s)) < (int64_t)c.width * QUANTIZE_HELD;
}

static void name_kernel(const ks_spec *spec, const quantize_algorithm &c, ks_kernel_info *info)
{
    static const char *const families[] = {[QUANTIZE_ROWS] = "rows",
                                           [QUANTIZE_LONG] = "long",
                                           [QUANTIZE_TENSOR] = "tensor",
                                           [QUANTIZE_COLUMNS] = "columns",
                                           [QUANTIZE_GIVEN] = "given"};
    snprintf(info->kernel, sizeof info->kernel, "%s_%s<%s to %s>", spec->op->name, families[c.family],
             ks_dtype_name(spec->in[0].dtype), ks_dtype_name(spec->out[0].dtype));
    info->grid = c.grid;
    info->threads = c.threads;
    info->cluster = 1;
    info->shared_bytes = 0;
}

/* ks_cuda_plan_fn */
ks_status quantize_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    (void)error;
    const ks_quantize_shape s = ks_quantize_shape_of(spec);
    const quantize_algorithm c = choose(chip, s);
    const int64_t each = c.family == QUANTIZE_TENSOR ? c.parts : c.parts > 1 ? c.parts * s.scales : 0;
    out->once = reads_once(s, c);
    out->workspace_bytes = ks_align((size_t)each * sizeof(float));
    out->counters = 0;
    out->batch_max = KS_BATCH_MAX;
    if (out->workspace_bytes)
        out->batch_max = (int)most(1, least(KS_BATCH_MAX, (int64_t)(chip->workspace_bytes / out->workspace_bytes)));
    name_kernel(spec, c, &out->kernel_info);
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}
