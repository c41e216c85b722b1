#include "observe/plan_use.h"

#include <stdlib.h>

enum { PLANS = 1024, PLACES = 4096 };

/* Which row a shard's plan belongs to; its numbers start again where a row is given to another plan. */
typedef struct place {
    uint64_t shard, plan; /* plan 0: free */
    int row;
} place;

struct ks_plan_uses {
    ks_plan_use rows[PLANS];
    int count;
    place places[PLACES]; /* by shard and plan; a newer one takes an older one's place */
};

ks_plan_uses *ks_plan_uses_open(void)
{
    return calloc(1, sizeof(ks_plan_uses));
}

void ks_plan_uses_close(ks_plan_uses **uses)
{
    free(*uses);
    *uses = NULL;
}

static int by_use(const void *a, const void *b)
{
    const int64_t x = ((const ks_plan_use *)a)->used_ns, y = ((const ks_plan_use *)b)->used_ns;
    return (x < y) - (x > y);
}

/* Rows move, so that all places are looked for again. */
static void forget_half(ks_plan_uses *uses)
{
    qsort(uses->rows, (size_t)uses->count, sizeof *uses->rows, by_use);
    uses->count /= 2;
    memset(uses->places, 0, sizeof uses->places);
}

static int row_of(ks_plan_uses *uses, const ks_plan_record *plan)
{
    for (int i = 0; i < uses->count; i++)
        if (memcmp(&uses->rows[i].plan, plan, sizeof *plan) == 0) return i;
    if (uses->count == PLANS) forget_half(uses);
    uses->rows[uses->count] = (ks_plan_use){.plan = *plan};
    return uses->count++;
}

void ks_plan_uses_add(ks_plan_uses *uses, const ks_timeline *timeline, int shard, const ks_launch_record *launch)
{
    ks_plan_record plan;
    if (launch->jobs == 0) return;
    place *p = &uses->places[(launch->plan * 64 + (uint64_t)shard) % PLACES];
    if (p->plan != launch->plan || p->shard != (uint64_t)shard) {
        if (!ks_timeline_plan(timeline, shard, launch->plan, &plan)) return;
        const int row = row_of(uses, &plan); /* may empty the places */
        *p = (place){(uint64_t)shard, launch->plan, row};
    }
    ks_plan_use *use = &uses->rows[p->row];
    use->launches++;
    use->jobs += launch->jobs;
    use->graph_hits += launch->graph == KS_GRAPH_HIT;
    use->h2d_ns += launch->h2d_ns;
    use->compute_ns += launch->compute_ns;
    use->d2h_ns += launch->d2h_ns;
    use->used_ns = launch->launched_ns;
}

int ks_plan_uses_top(const ks_plan_uses *uses, const ks_plan_use **out, int most)
{
    int count = 0;
    for (int i = 0; i < uses->count; i++) { /* insertion: most is small */
        const ks_plan_use *use = &uses->rows[i];
        int at = count < most ? count++ : most;
        for (; at > 0 && ks_plan_use_ns(out[at - 1]) < ks_plan_use_ns(use); at--)
            if (at < most) out[at] = out[at - 1];
        if (at < most) out[at] = use;
    }
    return count;
}
