/* One log line, written into the caller's memory: logfmt or a JSON object. Bounded: a field that does not fit is left
 * out, and the line says so. Any thread. Private to log.c. */
#ifndef KS_LOG_LINE_H
#define KS_LOG_LINE_H
#include <stddef.h>

#include "base/log.h"

enum { KS_LINE_MAX = 1024 }; /* an access line with all its fields fits */

/* Returns the length, newline included. wall_ns: CLOCK_REALTIME. journal: with the prefix <N> of a syslog level. */
size_t ks_line_write(char out[KS_LINE_MAX], ks_log_format format, bool journal, int64_t wall_ns, ks_level level,
                     const char *msg, const ks_field *fields, int count);
const char *ks_level_name(ks_level level);
#endif
