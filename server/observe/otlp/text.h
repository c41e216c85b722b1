/* The document that a collector takes: an ExportTraceServiceRequest in OTLP's JSON (ids hexadecimal, enums numbers, 64-bit
 * numbers texts). Pure; any thread. Source: opentelemetry-proto, docs/specification.md. */
#ifndef KS_OTLP_TEXT_H
#define KS_OTLP_TEXT_H
#include "base/text.h"
#include "observe/otlp/spans.h"

typedef struct ks_otlp_resource {
    const char *service;
    const char *attributes; /* of OTEL_RESOURCE_ATTRIBUTES: "key=value,key=value", percent-encoded; "": none */
} ks_otlp_resource;

/* wall_ns: of the epoch, when CLOCK_MONOTONIC read 0. */
void ks_otlp_text(const ks_otlp_resource *resource, const ks_span *spans, int count, int64_t wall_ns, ks_text *out);
/* The next "key=value" of a list that variables of OpenTelemetry hold, decoded in place; false: the end. */
bool ks_otlp_next_pair(char **list, char **key, char **value);
#endif
