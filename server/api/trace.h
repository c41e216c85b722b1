/* GET /v2/trace: the timeline as Chrome trace JSON, which Perfetto and chrome://tracing read. Any thread. */
#ifndef KS_TRACE_H
#define KS_TRACE_H
#include "base/text.h"
#include "observe/timeline.h"

enum { KS_TRACE_BYTES_MAX = 12 << 20 }; /* of the document: then the oldest are left out, and "truncated" says so */

/* query: raw; "" for all that is kept, "ms=N" (1 to 10000) for what ended in the last N milliseconds. KS_PARAMETER. */
ks_status ks_trace_write(const ks_timeline *timeline, int shards, const ks_device_info *device, const char *query,
                         ks_text *out, ks_error *error);
#endif
