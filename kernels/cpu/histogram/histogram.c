/* Counts by bins on the CPU: the reference.
 *
 * Owns     nothing; edges, a block of elements and counters lie in the caller's scratch.
 * Threads  any; all memory is the caller's.
 *
 * Elements become doubles, a block at a time; a product in vector code says about which bin each is in, and the edges decide. Where bins are few,
 * neighbours count in tables of their own, so that equal ones do not wait for each other. */
#include "cpu/reduce/elements.h"
#include "cpu/reference.h"
#include "cpu/simd.h"
#include "ops/histogram/histogram.h"

extern const ks_cpu_op ks_histogram_cpu;

enum { TABLES = 4, FEW = 4096 /* bins that have them */ };

typedef struct task {
    ks_histogram_shape s;
    load_fn *load;
    work *w;        /* x: elements; best.i: bins, -1: none */
    double *edges;  /* bins + 1 */
    double scale;   /* bins over the range */
    int64_t *table; /* TABLES of them where bins are few */
} task;

/* About the bin of each element, in [0, bins); w->more.i: whether it lies in the range at all. */
KS_CLONES static void guess(work *restrict w, int count, double min, double max, double scale, double most)
{
    for (int i = 0; i < count; i++) {
        const double x = w->x.d[i], place = (x - min) * scale;
        const double bounded = place > most ? most : place;
        w->more.i[i] = (x >= min) & (x <= max);
        w->e[i] = bounded > 0 ? bounded : 0;
    }
}

/* The bins of a block of a range. */
static void find_bins(const task *t, int count)
{
    work *w = t->w;
    const int bins = t->s.bins;
    guess(w, count, t->s.min, t->s.max, t->scale, bins - 1);
    for (int i = 0; i < count; i++) {
        const double x = w->x.d[i];
        if (!w->more.i[i]) {
            w->best.i[i] = -1;
            continue;
        }
        int b = (int)w->e[i];
        while (b > 0 && x < t->edges[b]) b--;
        while (b + 1 < bins && x >= t->edges[b + 1]) b++;
        w->best.i[i] = b;
    }
}

/* Likewise where integers are the numbers of their bins: beyond 63 bits is beyond the last bin. */
static void own_bins(const task *t, int count)
{
    work *w = t->w;
    for (int i = 0; i < count; i++) {
        const int64_t value = w->x.i[i];
        w->best.i[i] = value >= 0 && value < t->s.bins ? value : -1;
    }
}

static void count_block(const task *t, int count)
{
    const int64_t *bins = t->w->best.i, apart = t->s.bins <= FEW ? t->s.bins : 0;
    for (int i = 0; i < count; i++)
        if (bins[i] >= 0) t->table[i % TABLES * apart + bins[i]]++;
}

static void count_row(const task *t, const void *in, int64_t row, int64_t *out)
{
    const ks_histogram_shape *s = &t->s;
    const int tables = s->bins <= FEW ? TABLES : 1;
    memset(t->table, 0, (size_t)tables * (size_t)s->bins * sizeof *t->table);
    for (int64_t i = 0; i < s->length; i += LANES) {
        const int n = s->length - i < LANES ? (int)(s->length - i) : LANES;
        t->load(in, row * s->length + i, 1, n, t->w);
        if (s->ranged)
            find_bins(t, n);
        else
            own_bins(t, n);
        count_block(t, n);
    }
    for (int b = 0; b < s->bins; b++) {
        out[b] = t->table[b];
        for (int k = 1; k < tables; k++) out[b] += t->table[(int64_t)k * s->bins + b];
    }
}

/* Each operation rounds: what is stored is not contracted. */
static void make_edges(const ks_histogram_shape *s, double *edges)
{
    const double width = ks_histogram_width(s), first = s->ranged ? s->min : 0;
    for (int b = 0; b < s->bins; b++) {
        const volatile double product = b * width;
        edges[b] = first + product;
    }
    edges[s->bins] = s->ranged ? s->max : s->bins;
}

/* ks_cpu_fn */
static void histogram_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    task t = {.s = ks_histogram_shape_of(spec), .w = scratch};
    t.edges = (double *)(void *)(t.w + 1);
    t.table = (int64_t *)(void *)(t.edges + t.s.bins + 1);
    t.load = ks_reduce_loader(t.s.dtype, t.s.ranged, false);
    t.scale = t.s.ranged ? t.s.bins / (t.s.max - t.s.min) : 1;
    make_edges(&t.s, t.edges);
    for (int64_t row = 0; row < t.s.rows; row++) count_row(&t, in[0], row, (int64_t *)out[0] + row * t.s.bins);
    if (t.s.edges) memcpy(out[1], t.edges, (size_t)(t.s.bins + 1) * sizeof *t.edges);
}

static size_t histogram_scratch(const ks_spec *spec)
{
    const int64_t bins = spec->params[KS_HISTOGRAM_BINS].i, tables = bins <= FEW ? TABLES : 1;
    return sizeof(work) + (size_t)(bins + 1) * sizeof(double) + (size_t)(tables * bins) * sizeof(int64_t);
}

const ks_cpu_op ks_histogram_cpu = {.reference = histogram_reference, .scratch_bytes = histogram_scratch};
