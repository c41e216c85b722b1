/* One line of the tune cache: a checksum, then fields parted by tabs. Pure; any thread. */
#ifndef KS_TUNE_LINE_H
#define KS_TUNE_LINE_H
#include "base/text.h"
#include "engine/tune/cache.h"

enum { KS_TUNE_LINE_MAX = 2048 };

/* A line, cut into its fields in place. */
typedef struct ks_tune_line {
    char *context, *key, *choice, *kernel, *us, *planned, *planned_us, *ways;
} ks_tune_line;

/* What a plan is made for, as text. NULL: memory, or a plan that no line has room for. free() it. */
char *ks_tune_key(const ks_spec *spec);
void ks_tune_line_put(ks_text *out, const char *context, const char *key, const ks_tuned *tuned);
/* line: terminated, without its end. false: damaged. */
bool ks_tune_line_cut(char *line, ks_tune_line *out);
bool ks_tune_line_read(const ks_tune_line *line, ks_tuned *out);
#endif
