#include "engine/slot_queue.h"

#include "base/clock.h"
#include "base/util.h"

void ks_slot_line_init(ks_slot_line *line, const ks_engine *engine, int64_t patience_ns)
{
    *line = (ks_slot_line){.engine = engine,
                           .small = ks_engine_small_bytes(engine),
                           .patience_ns = patience_ns,
                           .end = &line->first,
                           .at = &line->first,
                           .until_ns = INT64_MAX};
}

bool ks_slot_line_holds(const ks_slot_line *line, size_t in_bytes, size_t out_bytes)
{
    if (in_bytes <= line->small && out_bytes <= line->small) return false;
    return line->first || !ks_engine_slot_free(line->engine, in_bytes, out_bytes);
}

void ks_slot_line_join(ks_slot_line *line, ks_slot_wait *wait, size_t in_bytes, size_t out_bytes)
{
    const int64_t now_ns = ks_now_ns();
    *wait = (ks_slot_wait){.in_bytes = in_bytes,
                           .out_bytes = out_bytes,
                           .until_ns = now_ns + line->patience_ns,
                           .last_ns = now_ns + KS_SLOT_LINE_PATIENCES * line->patience_ns,
                           .waits = true};
    *line->end = wait;
    line->end = &wait->next;
    line->until_ns = ks_least(line->until_ns, wait->until_ns);
    line->changed = true; /* there may be a slot that is too small for those before */
}

static void unlink_at(ks_slot_line *line, ks_slot_wait **link)
{
    ks_slot_wait *wait = *link;
    *link = wait->next;
    if (line->end == &wait->next) line->end = link;
    if (line->at == &wait->next) line->at = link;
    wait->next = NULL;
    wait->waits = false;
}

void ks_slot_line_leave(ks_slot_line *line, ks_slot_wait *wait)
{
    if (!wait->waits) return;
    ks_slot_wait **link = &line->first;
    while (*link != wait) link = &(*link)->next;
    unlink_at(line, link);
}

void ks_slot_line_freed(ks_slot_line *line)
{
    line->changed = true;
}

void ks_slot_line_look(ks_slot_line *line, int64_t now_ns)
{
    const bool any = line->first && (line->changed || line->until_ns <= now_ns);
    line->now_ns = now_ns;
    line->changed = false;
    line->at = any ? &line->first : line->end;
    if (!any) return;
    line->until_ns = INT64_MAX;
    line->given = 0;
}

ks_slot_wait *ks_slot_line_next(ks_slot_line *line)
{
    for (; *line->at; line->at = &(*line->at)->next) {
        ks_slot_wait *wait = *line->at;
        const size_t side = wait->in_bytes > wait->out_bytes ? wait->in_bytes : wait->out_bytes;
        const bool free = ks_engine_slot_free(line->engine, wait->in_bytes, wait->out_bytes);
        if (free && side > line->given) line->given = side;
        if (!free && side <= line->given) wait->until_ns = ks_least(wait->last_ns, line->now_ns + line->patience_ns);
        if (!free && wait->until_ns > line->now_ns) {
            line->until_ns = ks_least(line->until_ns, wait->until_ns);
            continue;
        }
        unlink_at(line, line->at);
        return wait;
    }
    return NULL;
}

int64_t ks_slot_line_wait_ns(const ks_slot_line *line)
{
    if (!line->first) return INT64_MAX;
    const int64_t left_ns = line->until_ns - line->now_ns;
    return line->changed || left_ns < 0 ? 0 : left_ns;
}
