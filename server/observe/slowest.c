#include "observe/slowest.h"

#include <stdlib.h>

static const int64_t part_ns = 10000000000;

typedef struct part {
    int count;
    ks_slow slow[KS_SLOWEST]; /* the slowest first */
} part;

struct ks_slowest {
    ks_timeline *timeline;
    int shards, newest;
    int64_t begun_ns; /* the newest part */
    uint64_t *seen;   /* of each shard: number of the last record that was read */
    part parts[KS_SLOWEST_PARTS];
};

ks_slowest *ks_slowest_open(ks_timeline *timeline, int shards, int64_t now_ns)
{
    ks_slowest *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->seen = calloc((size_t)shards, sizeof *s->seen);
    if (!s->seen) {
        free(s);
        return NULL;
    }
    s->timeline = timeline;
    s->shards = shards;
    s->begun_ns = now_ns;
    ks_timeline_keep_slow(timeline, 0);
    return s;
}

void ks_slowest_close(ks_slowest **slowest)
{
    if (!*slowest) return;
    ks_timeline_keep_slow((*slowest)->timeline, INT64_MAX);
    free((*slowest)->seen);
    free(*slowest);
    *slowest = NULL;
}

static void find_plan(const ks_slowest *s, ks_slow *slow)
{
    ks_launch_record launch;
    if (!ks_timeline_launch(s->timeline, slow->shard, slow->request.launch, &launch)) return;
    slow->lane = (int)launch.lane;
    if (!ks_timeline_plan(s->timeline, slow->shard, launch.plan, &slow->plan))
        memset(&slow->plan, 0, sizeof slow->plan);
}

static void put(const ks_slowest *s, part *p, int shard, const ks_request_record *request)
{
    ks_slow slow = {.request = *request, .shard = shard, .lane = -1};
    int at = p->count < KS_SLOWEST ? p->count++ : KS_SLOWEST;
    find_plan(s, &slow);
    for (; at > 0 && ks_slow_ns(&p->slow[at - 1]) < ks_slow_ns(&slow); at--)
        if (at < KS_SLOWEST) p->slow[at] = p->slow[at - 1];
    if (at < KS_SLOWEST) p->slow[at] = slow;
}

void ks_slowest_look(ks_slowest *s, int64_t now_ns)
{
    for (int i = 0; now_ns - s->begun_ns >= part_ns && i < KS_SLOWEST_PARTS; i++) {
        s->newest = (s->newest + 1) % KS_SLOWEST_PARTS;
        s->parts[s->newest].count = 0;
        s->begun_ns += part_ns;
    }
    if (now_ns - s->begun_ns >= part_ns) s->begun_ns = now_ns; /* all that was there is older than five minutes */
    part *p = &s->parts[s->newest];
    for (int shard = 0; shard < s->shards; shard++) {
        const uint64_t last = ks_timeline_slow_requests(s->timeline, shard);
        uint64_t number = s->seen[shard] + 1;
        ks_request_record request;
        if (last > KS_SLOW_RECORDS && number <= last - KS_SLOW_RECORDS) number = last - KS_SLOW_RECORDS + 1;
        for (; number <= last; number++)
            if (ks_timeline_slow(s->timeline, shard, number, &request)) put(s, p, shard, &request);
        s->seen[shard] = last;
    }
    ks_timeline_keep_slow(s->timeline, p->count < KS_SLOWEST ? 0 : ks_slow_ns(&p->slow[KS_SLOWEST - 1]));
}

int ks_slowest_list(const ks_slowest *s, const ks_slow *out[KS_SLOWEST])
{
    int count = 0, at[KS_SLOWEST_PARTS] = {0};
    while (count < KS_SLOWEST) { /* the slowest that is left of any part */
        int best = -1;
        for (int i = 0; i < KS_SLOWEST_PARTS; i++) {
            if (at[i] == s->parts[i].count) continue;
            if (best < 0 || ks_slow_ns(&s->parts[i].slow[at[i]]) > ks_slow_ns(&s->parts[best].slow[at[best]])) best = i;
        }
        if (best < 0) break;
        out[count++] = &s->parts[best].slow[at[best]++];
    }
    return count;
}
