/* One document of metrics under way: a family at a time, in either text form. begin() writes a family's head, sample() its
 * lines. metrics.def says what a family is; what differs between the forms (suffixes, UNIT, info and stateset types) is
 * known to metrics_sheet.c and nowhere else. */
#ifndef KS_METRICS_SHEET_H
#define KS_METRICS_SHEET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ks_text;

enum {
#define METRIC(id, ...) F_##id,
#include "observe/metrics.def"
};

typedef struct ks_sheet {
    struct ks_text *out;
    bool openmetrics;
    int family;
    const char *names[5], *values[5]; /* labels of the next line */
    int labels;
    /* where the document has a line of just these labels already, from its name up to what is the line's own; 0 bytes: nowhere */
    size_t series_at, series_bytes;
    const char *suffix; /* of that line's name */
    bool bucket;        /* its last label is le */
} ks_sheet;

void ks_sheet_begin(ks_sheet *sheet, int family);
/* Sets the label at place 0 .. 4 for the lines that follow; those behind it are gone. */
void ks_sheet_label(ks_sheet *sheet, int place, const char *name, const char *value);
void ks_sheet_sample(ks_sheet *sheet, uint64_t value);
void ks_sheet_real(ks_sheet *sheet, double value);
void ks_sheet_seconds(ks_sheet *sheet, uint64_t ns);
/* A cell as its row says: nanoseconds of a family in seconds; a gauge that its writers hold between two steps below 0 is 0. */
void ks_sheet_amount(ks_sheet *sheet, uint64_t value);
void ks_sheet_single(ks_sheet *sheet, int family, uint64_t value);
/* Lines of a histogram: _bucket with le, then _count, _sum. count is cumulative. */
void ks_sheet_bucket(ks_sheet *sheet, const char *le, uint64_t count);
/* OpenMetrics: of the bucket's line that was written last. */
void ks_sheet_exemplar(ks_sheet *sheet, const uint64_t trace[2], uint64_t value_ns, uint64_t wall_ms);
void ks_sheet_sum(ks_sheet *sheet, uint64_t count, uint64_t sum_ns);
void ks_sheet_total(ks_sheet *sheet, uint64_t count, double sum); /* likewise, of what is no time */
/* A stateset: a line per state, 1 for the current one. */
void ks_sheet_states(ks_sheet *sheet, const char *const *names, int count, int current);

/* The process_* families, from /proc/self. A family that cannot be read is left out. */
void ks_sheet_process(ks_sheet *sheet);
/* Triton's names (--triton-metrics): nv_inference_* of every model, and nv_gpu_* as far as NVML has them for the document's GPU. */
struct ks_metrics;
struct ks_document;
void ks_sheet_triton(ks_sheet *sheet, const struct ks_metrics *metrics, const struct ks_document *page);
#endif
