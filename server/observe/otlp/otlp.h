/* Spans of requests to an OpenTelemetry collector, by OTLP over HTTP with JSON.
 *
 * A request whose traceparent is sampled becomes a span below the caller's, with its phases as children. A thread of its own
 * sends them, and a collector that is slow or gone costs requests nothing: what does not fit is counted as lost.
 *
 * Asked for by the environment that OpenTelemetry defines, none of it an option of ours: OTEL_EXPORTER_OTLP_ENDPOINT or
 * OTEL_EXPORTER_OTLP_TRACES_ENDPOINT (http, https), _HEADERS, _TIMEOUT, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES,
 * OTEL_SDK_DISABLED. Other OTEL_* are a warning.
 *
 * Threads  open and close: one; counts: any. */
#ifndef KS_OTLP_H
#define KS_OTLP_H
#include "observe/otlp/spans.h"

typedef struct ks_otlp ks_otlp;

typedef struct ks_otlp_counts {
    uint64_t exported, lost, failed; /* spans: taken by the collector; written over; sent in vain */
} ks_otlp_counts;

/* *out is NULL where no endpoint is named. KS_CONFIG: a variable is wrong, or this build has no exporter; KS_MEMORY, KS_SYSTEM. */
ks_status ks_otlp_open(int writers, ks_otlp **out, ks_error *error);
/* Sends what is there, for two seconds at most. */
void ks_otlp_close(ks_otlp **otlp);
ks_span_ring *ks_otlp_writer(ks_otlp *otlp, int index);
ks_otlp_counts ks_otlp_read_counts(const ks_otlp *otlp); /* NULL: all 0 */
#endif
