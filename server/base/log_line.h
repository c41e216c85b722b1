/* One log line, written into the caller's memory: logfmt or a JSON object. Bounded: a field that does not fit is left
 * out, and the line says so. Any thread. Private to log.c. */
#ifndef KS_LOG_LINE_H
#define KS_LOG_LINE_H
#include <stddef.h>

#include "base/log.h"

enum { KS_LINE_MAX = 1536 }; /* an access line with all its fields fits */

/* How lines are written. */
typedef struct ks_line_style {
    ks_log_format format;
    bool journal;   /* with the prefix <N> of a syslog level */
    bool of_worker; /* with the index of its device: */
    int worker;
} ks_line_style;

/* What a line says. */
typedef struct ks_line {
    int64_t wall_ns; /* CLOCK_REALTIME */
    ks_level level;
    const char *msg;
    const ks_field *fields;
    int count;
} ks_line;

/* Returns the length, newline included. */
size_t ks_line_write(char out[KS_LINE_MAX], ks_line_style style, const ks_line *line);
const char *ks_level_name(ks_level level);
#endif
