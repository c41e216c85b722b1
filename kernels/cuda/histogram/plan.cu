/* Which kernel of this folder does a histogram, with what launch parameters (plan.h). */
#include "cuda/histogram/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SHARED_MOST = 48 << 10, /* bins */
    PART_LEAST = 8192,      /* elements of a part */
    COPIES = 8,             /* of counters, where bins are few; a power of two */
    MEETING_LEAST = 4096,   /* elements of a CTA of a cluster, at least, */
    MEETING_MOST = 16384    /* and from where on two launches, which spread over the chip, are faster */
};

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

/* As many as there is room for, or fewer that take as many rounds. */
static int64_t groups_for(int64_t items, int64_t room)
{
    return items <= 0 ? 1 : over(items, over(items, most(1, least(items, room))));
}

/* In FP32 a place errs by what min, the difference, the scale and the product are rounded by; twice that, at least. */
static float margin_of(const ks_histogram_shape &given, double scale)
{
    if (!(scale > 0x1p-100 && scale < 0x1p100)) return 1;
    const double margin = given.bins * 0x1p-21 + (fabs(given.min) + fabs(given.max)) * scale * 0x1p-22;
    return margin < 1 ? (float)margin : 1;
}

static bool is_power_of_two(double x)
{
    int exponent;
    return frexp(x, &exponent) == 0.5;
}

histogram_launch histogram_launch_of(const ks_spec *spec, const histogram_algorithm &c)
{
    const ks_histogram_shape given = ks_histogram_shape_of(spec);
    histogram_launch go = {};
    go.c = c;
    go.dtype = given.dtype;
    histogram_shape *s = &go.s;
    s->rows = given.rows;
    s->length = given.length;
    s->in = spec->in[0].offset;
    s->counts = spec->out[0].offset;
    s->edges = given.edges;
    s->edges_at = given.edges ? spec->out[1].offset : 0;
    s->part = c.part;
    s->parts = c.parts;
    s->copies = c.copies;
    s->meets = c.meets;
    s->bins = given.bins;
    s->ranged = given.ranged;
    s->min = given.ranged ? given.min : 0;
    s->max = given.ranged ? given.max : given.bins;
    s->width = ks_histogram_width(&given);
    s->scale = given.bins / (s->max - s->min);
    s->near_min = (float)s->min;
    s->near_scale = (float)s->scale;
    s->margin = margin_of(given, s->scale);
    s->exact = s->margin < HISTOGRAM_MARGIN && is_power_of_two(s->width) && (double)s->near_min == s->min &&
               (double)(float)s->max == s->max;
    if (ks_dtype_kind(given.dtype) == KS_KIND_INT) s->sign = (uint64_t)1 << (8 * ks_dtype_size(given.dtype) - 1);
    const size_t counters = (size_t)c.copies * (size_t)given.bins;
    go.shared_bytes = c.shared ? (counters + counters % 2) * sizeof(uint32_t) : 0; /* they are read by pairs */
    return go;
}

/* CTAs of the algorithm on an SM. */
static int64_t resident(const ks_chip *chip, const histogram_algorithm &c, int bins)
{
    const int64_t by_threads = chip->threads_sm / c.threads;
    const int64_t bytes = c.shared ? (int64_t)c.copies * bins * 4 + (1 << 10) : 0;
    return most(1, bytes ? least(by_threads, (int64_t)chip->shared_sm / bytes) : by_threads);
}

static void name_kernel(const histogram_launch &go, ks_kernel_info *info)
{
    snprintf(info->kernel, sizeof info->kernel, "histogram_%s<%s, %d parts>", go.c.shared ? "shared" : "global",
             ks_dtype_name(go.dtype), go.c.parts);
    info->grid = go.c.grid;
    info->threads = go.c.threads;
    info->cluster = go.c.meets ? go.c.parts : 1;
    info->shared_bytes = go.shared_bytes;
}

static histogram_algorithm counters_for(const ks_chip *chip, int bins)
{
    histogram_algorithm c = {};
    c.shared = bins <= SHARED_MOST && (size_t)bins * sizeof(uint32_t) + (2 << 10) <= chip->shared_optin;
    c.threads = !c.shared || bins > HISTOGRAM_SMALL ? 1024 : bins > HISTOGRAM_COPIES ? 512 : 256;
    c.copies = c.shared && bins <= HISTOGRAM_COPIES ? COPIES : 1;
    return c;
}

/* Few rows of few elements: as many parts as fit into a cluster, which adds its counters by itself. A second launch would take longer than
 * all else. A CTA has an SM for itself, so it may as well have more threads. */
static int64_t parts_that_meet(const ks_chip *chip, const ks_histogram_shape &given, histogram_algorithm *c)
{
    const bool few = c->shared && chip->capability >= 90 && given.rows > 0 &&
                     given.rows <= chip->sms / HISTOGRAM_CLUSTER &&
                     given.length <= (int64_t)HISTOGRAM_CLUSTER * MEETING_MOST;
    if (!few) return 0;
    const int64_t least_elements = most(MEETING_LEAST, given.bins / 4);
    int64_t parts = given.length < 2 * (int64_t)given.bins ? 1 : HISTOGRAM_CLUSTER; /* counters are exchanged, too */
    while (parts > 1 && given.length < parts * least_elements) parts /= 2;
    c->threads = (int16_t)most(c->threads, 512);
    c->meets = parts > 1;
    return parts;
}

/* ks_cuda_plan_fn */
ks_status histogram_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    (void)error;
    const ks_histogram_shape given = ks_histogram_shape_of(spec);
    const int64_t vector = 16 / (int64_t)ks_dtype_size(given.dtype),
                  vectors = over(given.length, vector) + (vector > 1);
    const int64_t rows = most(1, given.rows), part_bytes = rows * given.bins * (int64_t)sizeof(uint32_t);
    histogram_algorithm c = counters_for(chip, given.bins);
    int64_t parts = parts_that_meet(chip, given, &c);
    const int64_t room = chip->sms * resident(chip, c, given.bins);
    const int64_t enough = most(PART_LEAST, c.shared ? 2 * (int64_t)given.bins : 0) / vector;
    if (!parts) {
        parts = most(1, least(room / rows, vectors / enough));
        if (c.shared) parts = most(1, least(parts, (int64_t)chip->workspace_bytes / most(1, part_bytes)));
    }
    c.part = most(1, over(vectors, parts));
    c.parts = (int32_t)most(1, over(vectors, c.part));
    c.grid = (int32_t)(c.meets ? given.rows * c.parts : groups_for(given.rows * c.parts, least(KS_GRID_MAX, room)));
    out->once = c.shared; /* the others count in the output, which has to be the device's */
    out->workspace_bytes = c.shared && c.parts > 1 && !c.meets ? ks_align((size_t)part_bytes * (size_t)c.parts) : 0;
    out->counters = 0;
    out->batch_max = KS_BATCH_MAX;
    if (out->workspace_bytes)
        out->batch_max = (int)most(1, least(KS_BATCH_MAX, (int64_t)(chip->workspace_bytes / out->workspace_bytes)));
    const histogram_launch go = histogram_launch_of(spec, c);
    name_kernel(go, &out->kernel_info);
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}
