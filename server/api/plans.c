#include "api/models/steps.h"
#include "api/plans.h"

#include <inttypes.h>
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

ks_status ks_plans_write(const ks_api_view *view, const char *query, bool csv, ks_text *out, ks_error *error)
{
    plans_query asked;
    ks_plan_list list;
    ks_status status = read_query(query, &asked, error);
    if (status == KS_OK) status = ks_plans_collect(view, &list, error);
    if (status != KS_OK) return status;
    ks_plans_sort(view, &list, asked.order);
    if (csv)
        ks_text_puts(out, ks_plan_csv_head);
    else
        ks_text_printf(out, "{\"plans_total\":%d,\"plans\":[", list.count);
    for (int i = 0; i < list.count && i < asked.top; i++) {
        if (csv) {
            put_csv_row(view, &list.row[i], out);
            continue;
        }
        if (i > 0) ks_text_puts(out, ",");
        ks_plans_open_row(view, &list.row[i], out);
        ks_text_puts(out, "}");
    }
    if (!csv) ks_text_puts(out, "]}");
    ks_plans_free(&list);
    return KS_OK;
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
