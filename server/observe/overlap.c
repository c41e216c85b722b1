#include "observe/overlap.h"

#include <stdlib.h>

enum { H2D = 1, COMPUTE = 2, D2H = 4, UNOBSERVED = 8 };
enum { OVERLAP_MARKS = 1 << 15, LOOK_MOST = 1 << 14, CELLS = sizeof(ks_overlap_sums) / sizeof(uint64_t) };

/* From here to the next mark these engines are busy. */
typedef struct mark {
    int64_t from_ns;
    unsigned busy;
} mark;

typedef struct span {
    int64_t from_ns, to_ns;
    unsigned engine;
} span;

struct ks_overlap {
    /* fixed after open: */
    const ks_timeline *timeline;
    int shards;
    /* the thread that looks: */
    int64_t looked_ns;
    uint64_t *seen; /* of each shard: number of the last launch that was counted */
    mark *marks;    /* by time; the first one is the oldest time that is known, the last one is idle */
    int count;
    span *spans; /* of the look under way: 3 * LOOK_MOST */
    int span_count;
    /* any thread: */
    _Atomic uint64_t cells[CELLS];
};

#define CELL(overlap, member) (&(overlap)->cells[offsetof(ks_overlap_sums, member) / sizeof(uint64_t)])

static void add(_Atomic uint64_t *cell, int64_t n)
{
    const uint64_t was = atomic_load_explicit(cell, memory_order_relaxed);
    atomic_store_explicit(cell, was + (uint64_t)n, memory_order_relaxed);
}

/* --- the axis ----------------------------------------------------------------------------------------------------- */

/* Neighbours that say the same become one; where that does not help, the older half is forgotten. */
static void make_room(ks_overlap *o)
{
    int kept = 0;
    for (int i = 0; i < o->count; i++)
        if (kept == 0 || o->marks[i].busy != o->marks[kept - 1].busy) o->marks[kept++] = o->marks[i];
    o->count = kept;
    if (kept < OVERLAP_MARKS / 4 * 3) return;
    o->count = kept - kept / 2;
    memmove(o->marks, o->marks + kept / 2, (size_t)o->count * sizeof *o->marks);
}

/* The last mark at or before a time; 0 also for a time before all of them. */
static int mark_at(const ks_overlap *o, int64_t ns)
{
    int low = 0, high = o->count;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (o->marks[middle].from_ns <= ns)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The mark that begins at a time, made where there is none; ns is not before the first one. */
static int split(ks_overlap *o, int64_t ns)
{
    const int at = mark_at(o, ns);
    if (o->marks[at].from_ns == ns) return at;
    memmove(o->marks + at + 2, o->marks + at + 1, (size_t)(o->count - at - 1) * sizeof *o->marks);
    o->marks[at + 1] = (mark){ns, o->marks[at].busy};
    o->count++;
    return at + 1;
}

/* Beside engines that are known to be busy for so long, another one turns out to be. */
static void count_engine(ks_overlap *o, unsigned busy, unsigned engine, int64_t ns)
{
    const unsigned now = busy | engine;
    add(engine == H2D ? CELL(o, busy_h2d) : engine == D2H ? CELL(o, busy_d2h) : CELL(o, busy_compute), ns);
    if (busy == 0) add(CELL(o, busy_any), ns);
    if ((busy & (busy - 1)) == 0 && busy != 0) add(CELL(o, two), ns);
    if (now == (H2D | COMPUTE | D2H)) add(CELL(o, all), ns);
    if ((now & (H2D | COMPUTE)) == (H2D | COMPUTE) && engine != D2H) add(CELL(o, h2d_compute), ns);
    if ((now & (H2D | D2H)) == (H2D | D2H) && engine != COMPUTE) add(CELL(o, h2d_d2h), ns);
    if ((now & (COMPUTE | D2H)) == (COMPUTE | D2H) && engine != H2D) add(CELL(o, compute_d2h), ns);
}

static void put_span(ks_overlap *o, const span *s)
{
    const int64_t from_ns = s->from_ns > o->marks[0].from_ns ? s->from_ns : o->marks[0].from_ns;
    if (s->to_ns <= from_ns) return;
    if (o->count + 2 > OVERLAP_MARKS) {
        make_room(o);
        put_span(o, s);
        return;
    }
    const int first = split(o, from_ns), end = split(o, s->to_ns);
    for (int i = first; i < end; i++) {
        mark *m = &o->marks[i];
        if (!(m->busy & (s->engine | UNOBSERVED)) && s->engine != UNOBSERVED)
            count_engine(o, m->busy, s->engine, o->marks[i + 1].from_ns - m->from_ns);
        m->busy |= s->engine;
    }
}

/* --- a look ------------------------------------------------------------------------------------------------------- */

static int64_t end_of(const ks_launch_record *r)
{
    return r->launched_ns + r->h2d_ns + r->compute_ns + r->d2h_ns;
}

static void add_span(ks_overlap *o, unsigned engine, int64_t *at_ns, int64_t ns)
{
    if (ns > 0) o->spans[o->span_count++] = (span){*at_ns, *at_ns + ns, engine};
    *at_ns += ns;
}

/* The launches of a shard since the last look. Returns since when all of them are here: a shard's records follow each other in the
 * order in which it saw the ends, so that a lost one ended before the first that is here. */
static int64_t gather(ks_overlap *o, int shard, uint64_t most)
{
    const uint64_t last = ks_timeline_launches(o->timeline, shard);
    uint64_t number = o->seen[shard] + 1;
    int64_t since_ns = o->looked_ns;
    ks_launch_record r;
    if (last >= most && number <= last - most) number = last - most + 1;
    while (number <= last && !ks_timeline_launch(o->timeline, shard, number, &r)) number++;
    const uint64_t lost = number - o->seen[shard] - 1;
    add(CELL(o, overruns), (int64_t)lost);
    for (; number <= last; number++) {
        if (!ks_timeline_launch(o->timeline, shard, number, &r)) { /* written over just now, with all before it */
            add(CELL(o, overruns), 1);
            since_ns = INT64_MAX;
            continue;
        }
        if ((lost > 0 && since_ns == o->looked_ns) || since_ns == INT64_MAX) since_ns = end_of(&r);
        int64_t at_ns = r.launched_ns;
        add_span(o, H2D, &at_ns, r.h2d_ns);
        add_span(o, COMPUTE, &at_ns, r.compute_ns);
        add_span(o, D2H, &at_ns, r.d2h_ns);
    }
    o->seen[shard] = last;
    return lost > 0 && since_ns == o->looked_ns ? INT64_MAX : since_ns; /* none is here: nothing is known */
}

static int by_start(const void *a, const void *b)
{
    const int64_t x = ((const span *)a)->from_ns, y = ((const span *)b)->from_ns;
    return (x > y) - (x < y);
}

void ks_overlap_look(ks_overlap *o, int64_t now_ns)
{
    int64_t since_ns = o->looked_ns;
    o->span_count = 0;
    for (int i = 0; i < o->shards; i++) {
        const int64_t from_ns = gather(o, i, (uint64_t)(LOOK_MOST / o->shards));
        if (from_ns > since_ns) since_ns = from_ns;
    }
    if (since_ns > now_ns) since_ns = now_ns;
    put_span(o, &(span){o->looked_ns, since_ns, UNOBSERVED});
    qsort(o->spans, (size_t)o->span_count, sizeof *o->spans, by_start);
    for (int i = 0; i < o->span_count; i++) put_span(o, &o->spans[i]);
    add(CELL(o, observed), now_ns - since_ns);
    o->looked_ns = now_ns;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

ks_overlap *ks_overlap_open(const ks_timeline *timeline, int shards, int64_t now_ns)
{
    ks_overlap *o = calloc(1, sizeof *o);
    if (!o) return NULL;
    o->timeline = timeline;
    o->shards = shards;
    o->looked_ns = now_ns;
    o->seen = calloc((size_t)shards, sizeof *o->seen);
    o->marks = calloc(OVERLAP_MARKS, sizeof *o->marks);
    o->spans = calloc(3 * LOOK_MOST, sizeof *o->spans);
    if (!o->seen || !o->marks || !o->spans) {
        ks_overlap_close(&o);
        return NULL;
    }
    for (int i = 0; i < shards; i++) o->seen[i] = ks_timeline_launches(timeline, i);
    o->marks[0] = (mark){now_ns, 0};
    o->count = 1;
    return o;
}

void ks_overlap_close(ks_overlap **overlap)
{
    ks_overlap *o = *overlap;
    if (!o) return;
    free(o->seen);
    free(o->marks);
    free(o->spans);
    free(o);
    *overlap = NULL;
}

void ks_overlap_read(const ks_overlap *o, ks_overlap_sums *out)
{
    for (int i = 0; i < CELLS; i++) ((uint64_t *)out)[i] = atomic_load_explicit(&o->cells[i], memory_order_relaxed);
}
