#include "observe/metrics_sheet.h"

#include <inttypes.h>
#include <string.h>

#include "base/number/number.h"
#include "base/text.h"
#include "base/util.h"

typedef enum kind { COUNTER, BARE_COUNTER, GAUGE, HISTOGRAM, INFO, STATESET } kind;

typedef struct family {
    const char *name;
    kind kind;
    const char *unit, *help;
} family;

static const family families[] = {
#define METRIC(id, kind, name, unit, help) {name, kind, unit, help},
#include "observe/metrics.def"
};

static void put_about(ks_sheet *sheet, const char *what, const char *suffix, const char *text)
{
    const char *const parts[] = {what, families[sheet->family].name, suffix, " ", text, "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) ks_text_puts(sheet->out, parts[i]);
}

void ks_sheet_begin(ks_sheet *sheet, int id)
{
    static const char *const words[][2] = {[COUNTER] = {"counter", "counter"}, [BARE_COUNTER] = {"counter", "counter"},
                                           [GAUGE] = {"gauge", "gauge"},       [HISTOGRAM] = {"histogram", "histogram"},
                                           [INFO] = {"gauge", "info"},         [STATESET] = {"gauge", "stateset"}};
    const family *f = &families[id];
    sheet->family = id;
    const char *suffix = sheet->openmetrics ? "" : f->kind == COUNTER ? "_total" : f->kind == INFO ? "_info" : "";
    sheet->labels = 0;
    sheet->series_bytes = 0;
    put_about(sheet, "# HELP ", suffix, f->help);
    put_about(sheet, "# TYPE ", suffix, words[f->kind][sheet->openmetrics]);
    if (sheet->openmetrics && f->unit[0]) put_about(sheet, "# UNIT ", "", f->unit);
}

void ks_sheet_label(ks_sheet *sheet, int place, const char *name, const char *value)
{
    sheet->names[place] = name;
    sheet->values[place] = value;
    sheet->labels = place + 1;
    sheet->series_bytes = 0;
}

/* In one piece: a document has thousands of them. */
static void put_label(ks_sheet *sheet, char separator, const char *name, const char *value)
{
    const size_t named = strlen(name), most = named + 2 * strlen(value) + 4;
    char *at = ks_text_room(sheet->out, most);
    if (!at) return;
    const char *const begin = at;
    *at++ = separator;
    memcpy(at, name, named);
    at += named;
    *at++ = '=', *at++ = '"';
    for (; *value; value++) {
        if (*value == '\\' || *value == '"' || *value == '\n') *at++ = '\\';
        *at++ = *value == '\n' ? 'n' : *value;
    }
    *at++ = '"';
    sheet->out->length += (size_t)(at - begin);
}

/* Name and labels of a line; le: one more label, or NULL. A histogram's buckets differ in le alone: what stands before it is
 * copied from the line before, which halves a document's time. */
static void put_series(ks_sheet *sheet, const char *suffix, const char *le)
{
    ks_text *out = sheet->out;
    if (sheet->series_bytes && sheet->suffix == suffix && sheet->bucket == (le != NULL)) {
        char *room = ks_text_room(out, sheet->series_bytes);
        if (!room) return;
        memcpy(room, out->bytes + sheet->series_at, sheet->series_bytes);
        out->length += sheet->series_bytes;
    } else {
        sheet->series_at = out->length;
        ks_text_puts(out, families[sheet->family].name);
        ks_text_puts(out, suffix);
        for (int i = 0; i < sheet->labels; i++) put_label(sheet, i ? ',' : '{', sheet->names[i], sheet->values[i]);
        if (le) ks_text_puts(out, sheet->labels ? ",le=\"" : "{le=\"");
        sheet->series_bytes = out->length - sheet->series_at;
        sheet->suffix = suffix, sheet->bucket = le != NULL;
    }
    if (le) ks_text_puts(out, le);
    ks_text_puts(out, le ? "\"} " : sheet->labels ? "} " : " ");
}

static void put_integer(ks_sheet *sheet, uint64_t value)
{
    char digits[24];
    char *at = digits + sizeof digits;
    *--at = '\n';
    at = ks_digits(at, value);
    ks_text_add(sheet->out, at, (size_t)(digits + sizeof digits - at));
}

static void put_double(ks_sheet *sheet, double value)
{
    char digits[KS_NUMBER_TEXT_MAX + 4];
    size_t length = ks_double_write(value, digits);
    digits[length] = 0;
    if (!strpbrk(digits, ".eNI")) length += (size_t)(stpcpy(digits + length, ".0") - (digits + length));
    digits[length++] = '\n';
    ks_text_add(sheet->out, digits, length);
}

static const char *suffix_of(const ks_sheet *sheet)
{
    return families[sheet->family].kind == COUNTER ? "_total" : families[sheet->family].kind == INFO ? "_info" : "";
}

void ks_sheet_sample(ks_sheet *sheet, uint64_t value)
{
    put_series(sheet, suffix_of(sheet), NULL);
    put_integer(sheet, value);
}

void ks_sheet_real(ks_sheet *sheet, double value)
{
    put_series(sheet, suffix_of(sheet), NULL);
    put_double(sheet, value);
}

void ks_sheet_seconds(ks_sheet *sheet, uint64_t ns)
{
    ks_sheet_real(sheet, (double)ns / 1e9);
}

void ks_sheet_amount(ks_sheet *sheet, uint64_t value)
{
    const family *f = &families[sheet->family];
    if (strcmp(f->unit, "seconds") == 0)
        ks_sheet_seconds(sheet, value);
    else
        ks_sheet_sample(sheet, f->kind == GAUGE && (int64_t)value < 0 ? 0 : value);
}

void ks_sheet_single(ks_sheet *sheet, int id, uint64_t value)
{
    ks_sheet_begin(sheet, id);
    ks_sheet_sample(sheet, value);
}

void ks_sheet_states(ks_sheet *sheet, const char *const *names, int count, int current)
{
    const int place = sheet->labels;
    for (int i = 0; i < count; i++) {
        ks_sheet_label(sheet, place, families[sheet->family].name, names[i]);
        ks_sheet_sample(sheet, i == current);
    }
}

void ks_sheet_bucket(ks_sheet *sheet, const char *le, uint64_t count)
{
    put_series(sheet, "_bucket", le);
    put_integer(sheet, count);
}

void ks_sheet_exemplar(ks_sheet *sheet, const uint64_t trace[2], uint64_t value_ns, uint64_t wall_ms)
{
    if (sheet->out->broken) return;
    sheet->out->length--; /* the line's end */
    ks_text_printf(sheet->out, " # {trace_id=\"%016" PRIx64 "%016" PRIx64 "\"} %.9f %" PRIu64 ".%03d\n", trace[0],
                   trace[1], (double)value_ns / 1e9, wall_ms / 1000, (int)(wall_ms % 1000));
}

void ks_sheet_total(ks_sheet *sheet, uint64_t count, double sum)
{
    put_series(sheet, "_count", NULL);
    put_integer(sheet, count);
    put_series(sheet, "_sum", NULL);
    put_double(sheet, sum);
}

void ks_sheet_sum(ks_sheet *sheet, uint64_t count, uint64_t sum_ns)
{
    ks_sheet_total(sheet, count, (double)sum_ns / 1e9);
}
