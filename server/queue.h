/* Jobs that wait for a lane: those with a priority first, 1 before 2, then all others; equal ones in their order of
 * arrival. One list; adding a job without priority and taking a job out where a link is known cost O(1).
 * Borrows the jobs. The shard's thread only. */
#ifndef KS_QUEUE_H
#define KS_QUEUE_H
#include "engine.h"

/* Holds addresses of its own fields: it must not move after init. */
typedef struct ks_queue {
    ks_job *first;
    ks_job **plain; /* the link at which jobs without priority begin */
    ks_job **end;   /* the last link, always NULL */
    int count;
} ks_queue;

static inline void ks_queue_init(ks_queue *queue)
{
    queue->first = NULL;
    queue->plain = queue->end = &queue->first;
    queue->count = 0;
}

static inline void ks_queue_add(ks_queue *queue, ks_job *job)
{
    ks_job **link = queue->end;
    if (job->priority) {
        link = &queue->first;
        while (link != queue->plain && (*link)->priority <= job->priority) link = &(*link)->next;
        if (link == queue->plain) queue->plain = &job->next;
    }
    job->next = *link;
    if (link == queue->end) queue->end = &job->next;
    *link = job;
    queue->count++;
}

/* Takes out the job at the link; the link then leads to the one behind it. */
static inline ks_job *ks_queue_take(ks_queue *queue, ks_job **link)
{
    ks_job *job = *link;
    if (queue->plain == &job->next) queue->plain = link;
    if (queue->end == &job->next) queue->end = link;
    *link = job->next;
    job->next = NULL;
    queue->count--;
    return job;
}
#endif
