/* Jobs that wait for a lane, by rank: those with a priority first, 1 before 2; of equal priority those whose client asked
 * for a deadline, the sooner one first; then in their order of arrival. One list; adding a plain job, which asked for
 * neither, and taking a job out where a link is known cost O(1).
 * Borrows the jobs. The shard's thread only. */
#ifndef KS_QUEUE_H
#define KS_QUEUE_H
#include "engine/engine.h"

/* Holds addresses of its own fields: it must not move after init. */
typedef struct ks_queue {
    ks_job *first;
    ks_job **plain; /* the link at which plain jobs begin */
    ks_job **end;   /* the last link, always NULL */
    int count;
} ks_queue;

static inline void ks_queue_init(ks_queue *queue)
{
    queue->first = NULL;
    queue->plain = queue->end = &queue->first;
    queue->count = 0;
}

/* Whether a goes before b, whichever came first. */
static inline bool ks_queue_outranks(const ks_job *a, const ks_job *b)
{
    if (a->priority != b->priority) return a->priority && (!b->priority || a->priority < b->priority);
    return a->deadline_asked && (!b->deadline_asked || a->deadline_ns < b->deadline_ns);
}

static inline void ks_queue_add(ks_queue *queue, ks_job *job)
{
    ks_job **link = queue->end;
    if (job->priority || job->deadline_asked) {
        link = &queue->first;
        while (link != queue->plain && !ks_queue_outranks(job, *link)) link = &(*link)->next;
        if (link == queue->plain) queue->plain = &job->next;
    }
    job->next = *link;
    if (link == queue->end) queue->end = &job->next;
    *link = job;
    queue->count++;
}

/* The link at which a job that waits is found. */
static inline ks_job **ks_queue_find(ks_queue *queue, const ks_job *job)
{
    ks_job **link = &queue->first;
    while (*link != job) link = &(*link)->next;
    return link;
}

/* The link at which the one that ranks last is found; the queue is not empty. */
static inline ks_job **ks_queue_last(ks_queue *queue)
{
    ks_job **link = &queue->first;
    while ((*link)->next) link = &(*link)->next;
    return link;
}

/* The first fault of a request stays. */
static inline void ks_job_set_fault(ks_job *job, const ks_error *error)
{
    if (job->fault && job->fault->status == KS_OK) *job->fault = *error;
}

static inline bool ks_job_is_late(const ks_job *job, int64_t now_ns)
{
    return job->deadline_ns && job->deadline_ns <= now_ns;
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
