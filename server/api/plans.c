#include "api/models/steps.h"
#include "api/plans.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOP = 100, TOP_MAX = KS_CATALOG_PLACES };

/* --- collecting --------------------------------------------------------------------------------------------------- */

static int compare_bytes(const void *a, const void *b, size_t n)
{
    return n == 0 ? 0 : memcmp(a, b, n);
}

/* Any order that puts equal work side by side. Where its tensors lie in a slot does not count. */
static int compare_work(const void *left, const void *right)
{
    const ks_spec *a = &((const ks_plan_row *)left)->facts.spec, *b = &((const ks_plan_row *)right)->facts.spec;
    if (a->op != b->op) return a->op < b->op ? -1 : 1;
    const int names = strcmp(((const ks_plan_row *)left)->facts.model, ((const ks_plan_row *)right)->facts.model);
    if (names != 0) return names;
    if (a->given != b->given) return a->given < b->given ? -1 : 1;
    int order = compare_bytes(a->params, b->params, (size_t)a->op->params_count * sizeof a->params[0]);
    for (int i = ks_next_input(a, -1); i >= 0 && order == 0; i = ks_next_input(a, i)) {
        const ks_tensor *x = &a->in[i], *y = &b->in[i];
        order = x->dtype != y->dtype ? (x->dtype < y->dtype ? -1 : 1)
                : x->rank != y->rank ? (x->rank < y->rank ? -1 : 1)
                                     : compare_bytes(x->dims, y->dims, (size_t)x->rank * sizeof x->dims[0]);
    }
    return order;
}

static void merge(ks_plan_row *into, const ks_plan_row *row)
{
    ks_plan_counts *sum = &into->counts;
    const ks_plan_counts counts = *sum, *more = &row->counts;
    if (more->jobs > counts.jobs) into->facts = row->facts;
    *sum = (ks_plan_counts){.launches = counts.launches + more->launches,
                            .jobs = counts.jobs + more->jobs,
                            .graph_hits = counts.graph_hits + more->graph_hits,
                            .timed_jobs = counts.timed_jobs + more->timed_jobs,
                            .timed_ns = counts.timed_ns + more->timed_ns};
}

static void merge_all(ks_plan_list *list)
{
    int kept = 0;
    qsort(list->row, (size_t)list->count, sizeof list->row[0], compare_work);
    for (int i = 0; i < list->count; i++) {
        if (kept > 0 && compare_work(&list->row[kept - 1], &list->row[i]) == 0)
            merge(&list->row[kept - 1], &list->row[i]);
        else
            list->row[kept++] = list->row[i];
    }
    list->count = kept;
}

static bool add_row(ks_plan_list *list, int *room, const ks_plan_row *row)
{
    if (list->count == *room) {
        const int wanted = *room ? 2 * *room : 64;
        ks_plan_row *grown = realloc(list->row, (size_t)wanted * sizeof *grown);
        if (!grown) return false;
        list->row = grown;
        *room = wanted;
    }
    list->row[list->count++] = *row;
    return true;
}

ks_status ks_plans_collect(const ks_api_view *view, ks_plan_list *out, ks_error *error)
{
    int room = 0;
    ks_plan_row row;
    *out = (ks_plan_list){0};
    for (int w = 0; w < ks_catalogs_writers(view->catalogs); w++) {
        for (int i = 0; i < ks_catalog_used(view->catalogs, w); i++) {
            if (!ks_catalog_read(view->catalogs, w, i, &row) || row.counts.jobs == 0) continue;
            if (add_row(out, &room, &row)) continue;
            ks_plans_free(out);
            return ks_fail(error, KS_MEMORY, "no memory for the plans of all shards");
        }
    }
    if (out->count > 0) merge_all(out);
    return KS_OK;
}

void ks_plans_free(ks_plan_list *list)
{
    free(list->row);
    *list = (ks_plan_list){0};
}

/* --- sorting ------------------------------------------------------------------------------------------------------ */

/* Codes that become numbers are computed as numbers. */
static ks_dtype arithmetic_of(const ks_spec *spec)
{
    const ks_dtype in = spec->in[0].dtype, out = spec->out[0].dtype;
    return ks_dtype_kind(in) != KS_KIND_FLOAT && ks_dtype_kind(out) == KS_KIND_FLOAT ? out : in;
}

static void ceilings_of(const ks_api_view *view, const ks_plan_row *row, ks_ceilings *out)
{
    ks_ceilings_read(view->ceilings, arithmetic_of(&row->facts.spec), out);
}

ks_plan_figures ks_plans_figures(const ks_api_view *view, const ks_plan_row *row)
{
    ks_ceilings ceilings;
    ceilings_of(view, row, &ceilings);
    return ks_plan_figures_of(row, view->device_info, &ceilings);
}

typedef struct sort_key {
    double key; /* the largest first */
    int index;
} sort_key;

static int compare_keys(const void *left, const void *right)
{
    const sort_key *a = left, *b = right;
    return a->key != b->key ? (a->key > b->key ? -1 : 1) : a->index - b->index;
}

static double key_of(const ks_api_view *view, const ks_plan_row *row, ks_plans_order order)
{
    if (order == KS_PLANS_BY_TIME) return (double)row->counts.timed_ns;
    if (order == KS_PLANS_BY_LAUNCHES) return (double)row->counts.launches;
    const double share = ks_plans_figures(view, row).share;
    return share > 0 ? -share : -1e9;
}

void ks_plans_sort(const ks_api_view *view, ks_plan_list *list, ks_plans_order order)
{
    const size_t count = (size_t)list->count;
    sort_key *keys = malloc(count * sizeof *keys);
    ks_plan_row *sorted = malloc(count * sizeof *sorted);
    if (keys && sorted) {
        for (size_t i = 0; i < count; i++)
            keys[i] = (sort_key){.key = key_of(view, &list->row[i], order), .index = (int)i};
        qsort(keys, count, sizeof *keys, compare_keys);
        for (size_t i = 0; i < count; i++) sorted[i] = list->row[keys[i].index];
        free(list->row);
        list->row = sorted;
        sorted = NULL;
    }
    free(keys);
    free(sorted);
}

/* --- the documents ------------------------------------------------------------------------------------------------ */

typedef struct plans_query {
    int top;
    ks_plans_order order;
} plans_query;

static bool read_top(const char *text, size_t n, int *top)
{
    *top = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9' || *top > TOP_MAX) return false;
        *top = 10 * *top + (text[i] - '0');
    }
    return n > 0 && *top >= 1 && *top <= TOP_MAX;
}

static bool read_order(const char *text, size_t n, ks_plans_order *order)
{
    static const char *const names[] = {
        [KS_PLANS_BY_TIME] = "time", [KS_PLANS_BY_SHARE] = "share", [KS_PLANS_BY_LAUNCHES] = "launches"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) != n || memcmp(names[i], text, n) != 0) continue;
        *order = (ks_plans_order)i;
        return true;
    }
    return false;
}

static ks_status read_query(const char *query, plans_query *out, ks_error *error)
{
    *out = (plans_query){.top = TOP};
    while (*query) {
        const size_t n = strcspn(query, "&"), name = strcspn(query, "=&");
        const char *value = query + name + (query[name] == '=');
        const size_t length = n - (size_t)(value - query);
        const bool good = name == 3 && memcmp(query, "top", 3) == 0
                              ? read_top(value, length, &out->top)
                              : name == 4 && memcmp(query, "sort", 4) == 0 && read_order(value, length, &out->order);
        if (!good)
            return ks_fail(error, KS_PARAMETER, "'%s': may be top=1 to %d, and sort=time, share or launches",
                           ks_quoted(query, n).text, (int)TOP_MAX);
        query += n + (query[n] == '&');
    }
    return KS_OK;
}

void ks_plans_open_row(const ks_api_view *view, const ks_plan_row *row, ks_text *out)
{
    ks_ceilings ceilings;
    ceilings_of(view, row, &ceilings);
    ks_plan_json(out, ks_plan_row_name(row), row, view->device_info, &ceilings);
    ks_plan_json_counts(out, &row->counts);
}

static void put_csv_row(const ks_api_view *view, const ks_plan_row *row, ks_text *out)
{
    ks_ceilings ceilings;
    ceilings_of(view, row, &ceilings);
    ks_plan_csv(out, row, view->device_info, &ceilings);
}

/* A column more behind the line that was written last, for a worker's device. */
static void add_column(ks_text *out, const char *text)
{
    static const char end[] = "\r\n";
    if (!out->broken) out->length -= sizeof end - 1;
    ks_text_printf(out, ",%s%s", text, end);
}

/* An object, or a line. */
static void put_row(const ks_api_view *view, const ks_plan_row *row, bool csv, ks_text *out)
{
    char number[12];
    const int device = ks_view_device(view);
    snprintf(number, sizeof number, "%d", device);
    if (csv) {
        put_csv_row(view, row, out);
        if (device >= 0) add_column(out, number);
        return;
    }
    ks_plans_open_row(view, row, out);
    if (device >= 0) ks_text_printf(out, ",\"device\":%s", number);
    ks_text_puts(out, "}");
}

static void put_head(const ks_api_view *view, bool csv, int count, ks_text *out)
{
    if (!csv) {
        ks_text_printf(out, "{\"plans_total\":%d,\"plans\":[", count);
        return;
    }
    ks_text_puts(out, ks_plan_csv_head);
    if (ks_view_device(view) >= 0) add_column(out, "device");
}

static ks_status write_own(const ks_api_view *view, const plans_query *asked, bool csv, ks_text *out, ks_error *error)
{
    ks_plan_list list;
    const ks_status status = ks_plans_collect(view, &list, error);
    if (status != KS_OK) return status;
    ks_plans_sort(view, &list, asked->order);
    put_head(view, csv, list.count, out);
    for (int i = 0; i < list.count && i < asked->top; i++) {
        if (i > 0 && !csv) ks_text_puts(out, ",");
        put_row(view, &list.row[i], csv, out);
    }
    if (!csv) ks_text_puts(out, "]}");
    ks_plans_free(&list);
    return KS_OK;
}

/* --- of several workers ------------------------------------------------------------------------------------------- */

/* A part: how many plans the worker has, and those that were asked for, in their order: what each is sorted by, and its text. */
typedef struct part_row {
    double key;
    size_t bytes;
} part_row;

void ks_plans_part(const ks_api_view *view, const ks_part_ask *ask, ks_text *out)
{
    enum { ROW_ROOM = 64 << 10 };
    static_assert(KS_CATALOG_PLACES <= UINT16_MAX, "an ask has room for how many");
    ks_error ignored;
    ks_plan_list list;
    if (ks_plans_collect(view, &list, &ignored) != KS_OK) {
        out->broken = true;
        return;
    }
    ks_plans_sort(view, &list, (ks_plans_order)ask->order);
    ks_text_add(out, (const char *)&list.count, sizeof list.count);
    for (int i = 0; i < list.count && i < ask->number && out->length < KS_WORKER_PART_MAX - ROW_ROOM; i++) {
        part_row row = {.key = key_of(view, &list.row[i], (ks_plans_order)ask->order)};
        const size_t at = out->length;
        ks_text_add(out, (const char *)&row, sizeof row);
        put_row(view, &list.row[i], ask->csv, out);
        if (out->broken) break;
        row.bytes = out->length - at - sizeof row;
        memcpy(out->bytes + at, &row, sizeof row);
    }
    ks_plans_free(&list);
}

typedef struct part_cursor {
    const char *at, *end;
    part_row row; /* the next one */
    bool has_row;
} part_cursor;

static void read_row(part_cursor *cursor)
{
    cursor->has_row = (size_t)(cursor->end - cursor->at) >= sizeof cursor->row;
    if (!cursor->has_row) return;
    memcpy(&cursor->row, cursor->at, sizeof cursor->row);
    cursor->at += sizeof cursor->row;
    cursor->has_row = cursor->row.bytes <= (size_t)(cursor->end - cursor->at);
}

/* Returns how many plans its worker has. */
static int open_cursor(part_cursor *cursor, const ks_text *part)
{
    int count = 0;
    *cursor = (part_cursor){.at = part->bytes, .end = part->bytes + part->length};
    if (part->length < sizeof count) return 0;
    memcpy(&count, cursor->at, sizeof count);
    cursor->at += sizeof count;
    read_row(cursor);
    return count;
}

/* Of all parts the row that comes first; NULL: none is left. */
static part_cursor *first_of(part_cursor *cursors, int count)
{
    part_cursor *first = NULL;
    for (int i = 0; i < count; i++)
        if (cursors[i].has_row && (!first || cursors[i].row.key > first->row.key)) first = &cursors[i];
    return first;
}

static void merge_parts(const ks_api_view *view, const ks_text *parts, const ks_part_ask *ask, ks_text *out)
{
    part_cursor cursors[KS_WORKERS_MAX], *first;
    const int count = view->workers->count;
    int plans = 0;
    for (int i = 0; i < count; i++) plans += open_cursor(&cursors[i], &parts[i]);
    put_head(view, ask->csv, plans, out);
    for (int i = 0; i < ask->number && (first = first_of(cursors, count)); i++) {
        if (i > 0 && !ask->csv) ks_text_puts(out, ",");
        ks_text_add(out, first->at, first->row.bytes);
        first->at += first->row.bytes;
        read_row(first);
    }
}

/* In CSV a worker that has not answered has a line with its device alone. */
static void put_missing_lines(const ks_api_view *view, unsigned answered, ks_text *out)
{
    for (int i = 0; i < view->workers->count; i++) {
        if (answered >> i & 1) continue;
        for (const char *at = ks_plan_csv_head; *at; at++)
            if (*at == ',') ks_text_puts(out, ",");
        ks_text_printf(out, ",%d\r\n", view->workers->row[i].device);
    }
}

static ks_status write_all(const ks_api_view *view, const plans_query *asked, bool csv, ks_text *out, ks_error *error)
{
    ks_text parts[KS_WORKERS_MAX];
    const ks_part_ask ask = {
        .kind = KS_ASK_PLANS, .csv = csv, .order = (uint8_t)asked->order, .number = (uint16_t)asked->top};
    const unsigned answered =
        ks_workers_ask(view->workers, view->worker, &ask, KS_ASK_WAIT_NS, parts) | 1u << view->worker;
    ks_plans_part(view, &ask, &parts[view->worker]);
    const bool good = !parts[view->worker].broken;
    if (good) {
        merge_parts(view, parts, &ask, out);
        if (csv)
            put_missing_lines(view, answered, out);
        else
            ks_text_puts(out, "]");
        if (!csv) ks_view_missing(view, answered, out);
        if (!csv) ks_text_puts(out, "}");
    }
    for (int i = 0; i < view->workers->count; i++) ks_text_fini(&parts[i]);
    return good ? KS_OK : ks_fail(error, KS_MEMORY, "no memory for the plans of all shards");
}

ks_status ks_plans_write(const ks_api_view *view, const char *query, bool csv, bool of_all, ks_text *out,
                         ks_error *error)
{
    plans_query asked;
    const ks_status status = read_query(query, &asked, error);
    if (status != KS_OK) return status;
    return of_all ? write_all(view, &asked, csv, out, error) : write_own(view, &asked, csv, out, error);
}

void ks_plans_write_one(const ks_api_view *view, const char *model, const ks_plan *plan, const ks_plan_way *way,
                        ks_text *out)
{
    ks_plan_row row;
    ks_ceilings ceilings;
    ks_plan_row_of(plan, way->path, &row);
    row.bucket = way->bucket;
    ceilings_of(view, &row, &ceilings);
    ks_plan_json(out, model, &row, view->device_info, &ceilings);
    if (plan->program) ks_model_steps_write(out, plan, &ceilings);
    ks_text_puts(out, "}");
}
