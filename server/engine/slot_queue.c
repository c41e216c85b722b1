#include "engine/slot_queue.h"

#include "base/clock.h"
#include "base/util.h"

void ks_slot_queue_init(ks_slot_queue *queue, const ks_engine *engine, int64_t wait_max_ns)
{
    *queue = (ks_slot_queue){.engine = engine,
                             .small = ks_engine_small_bytes(engine),
                             .wait_max_ns = wait_max_ns,
                             .end = &queue->first,
                             .at = &queue->first,
                             .until_ns = INT64_MAX};
}

bool ks_slot_queue_holds(const ks_slot_queue *queue, size_t in_bytes, size_t out_bytes)
{
    if (in_bytes <= queue->small && out_bytes <= queue->small) return false;
    return queue->first || !ks_engine_slot_free(queue->engine, in_bytes, out_bytes);
}

void ks_slot_queue_join(ks_slot_queue *queue, ks_slot_wait *wait, size_t in_bytes, size_t out_bytes)
{
    const int64_t now_ns = ks_now_ns();
    *wait = (ks_slot_wait){.in_bytes = in_bytes,
                           .out_bytes = out_bytes,
                           .until_ns = now_ns + queue->wait_max_ns,
                           .last_ns = now_ns + KS_SLOT_QUEUE_WAITS_MAX * queue->wait_max_ns,
                           .waits = true};
    *queue->end = wait;
    queue->end = &wait->next;
    queue->until_ns = ks_least(queue->until_ns, wait->until_ns);
    queue->changed = true; /* there may be a slot that is too small for those before */
}

static void unlink_at(ks_slot_queue *queue, ks_slot_wait **link)
{
    ks_slot_wait *wait = *link;
    *link = wait->next;
    if (queue->end == &wait->next) queue->end = link;
    if (queue->at == &wait->next) queue->at = link;
    wait->next = NULL;
    wait->waits = false;
}

void ks_slot_queue_leave(ks_slot_queue *queue, ks_slot_wait *wait)
{
    if (!wait->waits) return;
    ks_slot_wait **link = &queue->first;
    while (*link != wait) link = &(*link)->next;
    unlink_at(queue, link);
}

void ks_slot_queue_freed(ks_slot_queue *queue)
{
    queue->changed = true;
}

void ks_slot_queue_look(ks_slot_queue *queue, int64_t now_ns)
{
    const bool any = queue->first && (queue->changed || queue->until_ns <= now_ns);
    queue->now_ns = now_ns;
    queue->changed = false;
    queue->at = any ? &queue->first : queue->end;
    if (!any) return;
    queue->until_ns = INT64_MAX;
    queue->given = 0;
}

ks_slot_wait *ks_slot_queue_next(ks_slot_queue *queue)
{
    for (; *queue->at; queue->at = &(*queue->at)->next) {
        ks_slot_wait *wait = *queue->at;
        const size_t side = wait->in_bytes > wait->out_bytes ? wait->in_bytes : wait->out_bytes;
        const bool free = ks_engine_slot_free(queue->engine, wait->in_bytes, wait->out_bytes);
        if (free && side > queue->given) queue->given = side;
        if (!free && side <= queue->given) wait->until_ns = ks_least(wait->last_ns, queue->now_ns + queue->wait_max_ns);
        if (!free && wait->until_ns > queue->now_ns) {
            queue->until_ns = ks_least(queue->until_ns, wait->until_ns);
            continue;
        }
        unlink_at(queue, queue->at);
        return wait;
    }
    return NULL;
}

int64_t ks_slot_queue_wait_ns(const ks_slot_queue *queue)
{
    if (!queue->first) return INT64_MAX;
    const int64_t left_ns = queue->until_ns - queue->now_ns;
    return queue->changed || left_ns < 0 ? 0 : left_ns;
}
