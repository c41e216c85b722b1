/* GET /v2/trace: the timeline as Chrome trace JSON, which Perfetto and chrome://tracing read. Any thread. */
#ifndef KS_TRACE_H
#define KS_TRACE_H
#include "api/view.h"
#include "base/text.h"
#include "observe/workers/ask.h"

enum { KS_TRACE_BYTES_MAX = 12 << 20 }; /* of the document: then the oldest are left out, and "truncated" says so */

/* query: raw; "" for all that is kept, "ms=N" (1 to 10000) for what ended in the last N milliseconds. of_all: of all workers, whose other ones
 * are asked; waits KS_ASK_WAIT_NS at most. KS_PARAMETER. */
ks_status ks_trace_write(const ks_api_view *view, const char *query, bool of_all, ks_text *out, ks_error *error);
/* What another worker's ks_trace_write has asked for. */
void ks_trace_part(const ks_api_view *view, const ks_part_ask *ask, ks_text *out);
#endif
