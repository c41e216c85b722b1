/* Requests that a caller's trace sampled, on their way to its collector: a ring for each shard.
 *
 * Owns     all records; nothing is allocated after open. Spans that come faster than they are taken write over the oldest.
 * Threads  a ring has one writer, its shard. One thread takes.
 * Units    times are ks_now_ns's (CLOCK_MONOTONIC, ns), durations ns. */
#ifndef KS_SPANS_H
#define KS_SPANS_H
#include "base/request_id.h"
#include "observe/metrics.h"
#include "observe/timeline.h"

enum { KS_SPANS_KEPT = 4096, KS_SPAN_REQUEST_ID_MAX = 48 };

typedef struct ks_span {
    int64_t first_ns, answered_ns;
    int64_t phase_ns[KS_PHASES]; /* that follow each other from first_ns on; -1: did not happen */
    uint64_t in_bytes, out_bytes;
    uint64_t model : 32, status : 16, ran : 16; /* index; ks_status; ran: the phases are known */
    char trace_id[33], parent_id[17], id[17];   /* hexadecimal, terminated */
    char request_id[KS_SPAN_REQUEST_ID_MAX];    /* terminated; a longer one is cut */
    char unused[5];
} ks_span;

typedef struct ks_spans ks_spans;
typedef ks_ring ks_span_ring;

ks_spans *ks_spans_open(int writers); /* NULL: memory */
void ks_spans_close(ks_spans **spans);
ks_span_ring *ks_spans_writer(ks_spans *spans, int index);

/* The writer's own thread. */
void ks_spans_add(ks_span_ring *ring, const ks_span *span);
/* Spans that have not been taken yet, at most `most`; *lost grows by those that were written over. */
int ks_spans_take(ks_spans *spans, ks_span *out, int most, uint64_t *lost);
#endif
