#include "api/documents.h"

#include <stdio.h>
#include <string.h>

#include "api/metadata.h"
#include "api/board/board.h"
#include "api/board/workers.h"
#include "base/clock.h"
#include "api/openapi.h"
#include "api/plans.h"
#include "api/trace.h"
#include "kernserve/chain.h"
#include "observe/workers/merge.h"

/* Of one of several workers, or of the daemon that is alone: where one serves, all is served. */
static bool is_ready(const ks_api_view *view)
{
    bool ready = !view->workers && atomic_load(view->state) == KS_STATE_READY;
    for (int i = 0; view->workers && i < view->workers->count; i++) {
        const ks_worker_row *row = &view->workers->row[i];
        ready = ready || (ks_worker_serves(row, ks_now_ns()) && atomic_load(&row->state) == KS_STATE_READY);
    }
    return ready;
}

static void write_workers(const ks_workers *workers, ks_text *out)
{
    ks_text_puts(out, ",\"devices\":[");
    for (int i = 0; i < workers->count; i++) {
        const ks_worker_row *row = &workers->row[i];
        const char *const needs = ks_recovery_words[atomic_load(&row->needs)];
        ks_text_printf(out, "%s{\"device\":%d,\"state\":\"%s\"", i ? "," : "", row->device,
                       ks_worker_word(row, ks_state_names));
        if (needs) ks_text_printf(out, ",\"needs\":\"%s\"", needs);
        ks_text_puts(out, "}");
    }
    ks_text_puts(out, "]");
}

static int write_ready(ks_api_view *view, ks_text *out)
{
    const ks_state state = (ks_state)atomic_load(view->state);
    const bool ready = is_ready(view);
    ks_text_printf(out, "{\"live\":true,\"ready\":%s", ready ? "true" : "false");
    if (!ready) ks_text_printf(out, ",\"state\":\"%s\"", ks_state_names[state]);
    if (!ready && state == KS_STATE_WARMING)
        ks_text_printf(out, ",\"done\":%d,\"total\":%d", atomic_load(&view->warm_done), atomic_load(&view->warm_total));
    if (view->workers) write_workers(view->workers, out);
    ks_text_puts(out, "}");
    return ready ? 200 : 503;
}

static int write_model_ready(ks_api_view *view, const ks_model *model, ks_text *out)
{
    const bool ready = is_ready(view);
    ks_text_printf(out, "{\"name\":\"%s\",\"ready\":%s}", model->name, ready ? "true" : "false");
    return ready ? 200 : 503;
}

/* Of several workers a model's statistics go by its label: each worker has loaded it, maybe in another order. */
typedef struct stats_row {
    char label[KS_MODEL_LABEL_MAX];
    ks_model_stats stats;
} stats_row;

void ks_document_own_stats(const ks_api_view *view, ks_text *out)
{
    for (int i = 0; i < ks_model_count(); i++) {
        stats_row row = {.label = ""};
        snprintf(row.label, sizeof row.label, "%s", ks_model_at(i)->label);
        ks_metrics_stats(view->metrics, ks_model_at(i)->index, &row.stats);
        ks_text_add(out, (const char *)&row, sizeof row);
    }
}

static void add_stats(ks_model_stats *to, const ks_model_stats *more)
{
    if (more->last_inference_ms > to->last_inference_ms) to->last_inference_ms = more->last_inference_ms;
    to->inference_count += more->inference_count;
    to->execution_count += more->execution_count;
    to->success_count += more->success_count;
    to->success_ns += more->success_ns;
    to->fail_count += more->fail_count;
    to->fail_ns += more->fail_ns;
    to->queue_ns += more->queue_ns;
    to->compute_input_ns += more->compute_input_ns;
    to->compute_infer_ns += more->compute_infer_ns;
    to->compute_output_ns += more->compute_output_ns;
}

/* What the other workers that are up have counted. They are asked for new figures; a shard waits a moment at most. */
static void add_other_stats(ks_api_view *view, const ks_model *const *models, ks_model_stats *stats, int count)
{
    static const int64_t wait_ns = 10000000;
    ks_workers_refresh(view->workers, view->worker, wait_ns);
    for (int w = 0; w < view->workers->count; w++) {
        ks_text text;
        stats_row row;
        ks_text_init(&text, KS_WORKER_TEXT_MAX);
        const bool there = w != view->worker && ks_worker_read(view->workers, w, KS_WORKER_STATS, &text);
        for (size_t at = 0; there && at + sizeof row <= text.length; at += sizeof row) {
            memcpy(&row, text.bytes + at, sizeof row);
            for (int i = 0; i < count; i++)
                if (strcmp(models[i]->label, row.label) == 0) add_stats(&stats[i], &row.stats);
        }
        ks_text_fini(&text);
    }
}

static void write_stats(ks_api_view *view, const ks_document_request *request, ks_text *out)
{
    int device;
    const ks_model *models[KS_MODELS_MAX];
    ks_model_stats stats[KS_MODELS_MAX];
    const ks_model *only = request->route->model;
    int count = 0;
    for (int i = 0; i < ks_model_count(); i++) {
        const ks_model *model = ks_model_at(i);
        if (!only && !ks_document_lists(model, &request->listing)) continue;
        if (only ? model->index != only->index : ks_model_is_loadable(i) && !ks_model_current(i)) continue;
        models[count] = model;
        ks_metrics_stats(view->metrics, model->index, &stats[count]);
        count++;
    }
    ks_query_device(request->route->query, &device);
    if (view->workers && device < 0) add_other_stats(view, models, stats, count);
    ks_document_stats(out, models, stats, count, request->listing.tenant);
}

/* The scraper's list is ordered by what it prefers. */
static bool wants_openmetrics(const char *accept)
{
    const char *open = accept ? strstr(accept, "application/openmetrics-text") : NULL;
    const char *plain = accept ? strstr(accept, "text/plain") : NULL;
    return open && (plain == NULL || open < plain);
}

/* Of resident tensors; zeros where none are kept. */
static void fill_resident(const ks_api_view *view, ks_document *document)
{
    ks_store_stats stats = {0};
    if (view->store) ks_store_read_stats(view->store, &stats);
    document->resident_tensors = stats.tensors;
    document->resident_tensor_bytes = stats.bytes;
    document->resident_form_bytes = stats.form_bytes;
    document->resident_limit = stats.limit_bytes;
    document->resident_mapped = stats.held_bytes;
    document->resident_generation = stats.generation;
    document->resident_put_bytes = stats.put_bytes;
    document->puts_created = stats.puts[0];
    document->puts_replaced = stats.puts[1];
    document->puts_unchanged = stats.puts[2];
    document->puts_linked = stats.puts[3];
    document->puts_refused = stats.puts[4];
    document->puts_aborted = stats.puts[5];
    document->put_ns = stats.put_ns;
    memcpy(document->put_bucket, stats.put_bucket, sizeof stats.put_bucket);
    document->gone_delete = stats.gone[0];
    document->gone_ttl = stats.gone[1];
    document->gone_evicted = stats.gone[2];
    document->gone_replaced = stats.gone[3];
    document->lookups_hit = stats.lookups[0];
    document->lookups_unknown = stats.lookups[1];
    document->lookups_lost = stats.lookups[2];
}

/* In which form: OpenMetrics has no room for Triton's names, and workers' documents are merged as Prometheus has them. */
static bool is_openmetrics(const ks_api_view *view, const char *accept)
{
    return !view->config->triton_metrics && !view->workers && wants_openmetrics(accept);
}

/* Of this process. figures: of its GPU, NULL: not asked for. of_all: with what the table of workers says. */
static void write_own_metrics(ks_api_view *view, const ks_gpu_figures *figures, bool openmetrics, bool of_all,
                              ks_text *out)
{
    ks_engine_stats engines[KS_SHARDS_MAX];
    ks_overlap_sums sums;
    const int shards = ks_view_engines(view, engines);
    if (view->overlap) ks_overlap_read(view->overlap, &sums);
    const ks_otlp_counts spans = ks_otlp_read_counts(view->otlp);
    ks_document document = {.state = (ks_state)atomic_load(view->state),
                            .device = *view->device_info,
                            .engines = engines,
                            .shards = shards,
                            .queue_capacity = (uint64_t)view->config->queue * (uint64_t)view->shards,
                            .inflight_bytes = ks_budget_used(view->budget),
                            .inflight_limit = ks_budget_limit(view->budget),
                            .spans_exported = spans.exported,
                            .spans_lost = spans.lost,
                            .spans_failed = spans.failed,
                            .device_faults = atomic_load(view->device_faults),
                            .copy_gbs = ks_ceilings_copy_gbs(view->ceilings),
                            .tls_expiry_s = atomic_load(view->tls_expiry_s),
                            .openmetrics = openmetrics,
                            .triton = view->config->triton_metrics,
                            .gpu = figures,
                            .workers = view->workers,
                            .worker = view->worker,
                            .of_all = of_all,
                            .overlap = view->overlap ? &sums : NULL,
                            .device_used_bytes = atomic_load(&view->device_used_bytes),
                            .device_free_bytes = atomic_load(&view->device_free_bytes)};
    for (int dtype = 0; dtype < KS_DTYPE_COUNT; dtype++)
        document.tflops[dtype] = ks_ceilings_tflops(view->ceilings, (ks_dtype)dtype);
    fill_resident(view, &document);
    ks_metrics_text(view->metrics, &document, out);
}

void ks_document_own_metrics(ks_api_view *view, ks_nvml *nvml, ks_text *out)
{
    ks_gpu_figures figures;
    if (nvml) ks_nvml_read(nvml, &figures);
    write_own_metrics(view, nvml ? &figures : NULL, false, false, out);
}

/* Those of the others are a second old at most; the second listener, whose thread may wait, asks for new ones. A worker that is down, or
 * does not answer, has no samples but those about all. */
static void merge_metrics(ks_api_view *view, bool may_wait, const ks_text *own, ks_text *out)
{
    static const int64_t wait_ns = 100000000;
    ks_merge_part parts[KS_WORKERS_MAX] = {0};
    ks_text texts[KS_WORKERS_MAX];
    const int count = view->workers->count;
    if (may_wait) ks_workers_refresh(view->workers, view->worker, wait_ns);
    for (int i = 0; i < count; i++) {
        ks_text_init(&texts[i], KS_WORKER_TEXT_MAX);
        const bool mine = i == view->worker,
                   there = mine || ks_worker_read(view->workers, i, KS_WORKER_METRICS, &texts[i]);
        const ks_text *text = mine ? own : &texts[i];
        parts[i] = (ks_merge_part){text->bytes, there ? text->length : 0, view->workers->row[i].device};
    }
    ks_merge(parts, count, out);
    for (int i = 0; i < count; i++) ks_text_fini(&texts[i]);
}

static void write_metrics(ks_api_view *view, const ks_document_request *request, ks_text *out,
                          const char **content_type)
{
    /* Asking the driver may take milliseconds, so shards leave the GPU's figures to the second listener. */
    const bool openmetrics = is_openmetrics(view, request->accept), second = !request->infers;
    const bool gpu = view->config->triton_metrics && view->nvml && second;
    ks_gpu_figures figures;
    if (gpu) ks_nvml_read(view->nvml, &figures);
    *content_type = openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                : "text/plain; version=0.0.4; charset=utf-8";
    if (!view->workers) {
        write_own_metrics(view, gpu ? &figures : NULL, openmetrics, false, out);
        return;
    }
    ks_text own;
    ks_text_init(&own, KS_WORKER_TEXT_MAX);
    write_own_metrics(view, gpu ? &figures : NULL, false, true, &own);
    if (own.broken)
        out->broken = true;
    else
        merge_metrics(view, second, &own, out);
    ks_text_fini(&own);
}

/* What each listener has; the document of the data's describes all its routes. */
static void write_index(const ks_api_view *view, bool admin, ks_text *out)
{
    ks_text_puts(out, "{\"name\":");
    ks_text_json(out, view->config->server_name, strlen(view->config->server_name));
    ks_text_puts(out, ",\"version\":\"" KS_VERSION "\",\"links\":[");
    if (!admin) ks_text_puts(out, "\"/v2\",\"/v2/models/stats\",\"/v2/tensors\",\"/openapi.json\",");
    if (admin && view->config->status) ks_text_puts(out, "\"/status\",\"/status.json\",");
    if (admin) ks_text_puts(out, "\"/v2/trace\",\"/v2/plans\",");
    ks_text_puts(out, "\"/v2/health/live\",\"/v2/health/ready\",\"/metrics\"]}");
}

static ks_status write_plan(const ks_api_view *view, ks_infers *infers, const ks_route *route, ks_text *out,
                            ks_error *error)
{
    ks_plan plan;
    ks_plan_way way;
    const ks_status status = ks_infers_plan(infers, route->model, route->query, &plan, &way, error);
    if (status != KS_OK) return status;
    ks_plans_write_one(view, route->model->name, &plan, &way, out);
    ks_program_free(&plan.program);
    return KS_OK;
}

/* Of several workers, what does not name one of them. */
static bool is_of_all(const ks_api_view *view, const ks_route *route)
{
    int device;
    ks_query_device(route->query, &device);
    return view->workers && view->workers->count > 1 && device < 0;
}

static ks_status write_plans(const ks_api_view *view, const ks_document_request *request, const char *query,
                             ks_text *out, const char **content_type, ks_error *error)
{
    const bool csv = request->accept && strstr(request->accept, "text/csv");
    if (csv) *content_type = "text/csv; charset=utf-8";
    return ks_plans_write(view, query, csv, is_of_all(view, request->route), out, error);
}

void ks_document_part(const ks_api_view *view, const ks_part_ask *ask, ks_text *out)
{
    if (ask->kind == KS_ASK_PLANS) ks_plans_part(view, ask, out);
    if (ask->kind == KS_ASK_TRACE) ks_trace_part(view, ask, out);
}

static ks_status write_status(ks_api_view *view, const ks_route *route, ks_text *out, const char **content_type,
                              ks_error *error)
{
    if (!view->config->status || !view->board) return ks_fail(error, KS_PATH, "Not Found: the option is --no-status");
    const bool of_all = is_of_all(view, route);
    if (route->id == KS_ROUTE_STATUS) {
        if (of_all)
            ks_workers_json(view->workers, out);
        else
            ks_board_json(view->board, out);
        return KS_OK;
    }
    *content_type = "text/html; charset=utf-8";
    if (of_all)
        ks_workers_page(view->workers, out);
    else
        ks_board_page(view->board, out);
    return KS_OK;
}

static void write_document(ks_api_view *view, const ks_document_request *request, ks_text *out)
{
    const ks_route *route = request->route;
    switch (route->id) {
    case KS_ROUTE_SERVER:
        ks_document_server_metadata(out, view->config->server_name, KS_VERSION, view->regions != NULL,
                                    view->regions && ks_regions_has_cuda(view->regions), view->store != NULL);
        break;
    case KS_ROUTE_MODEL:
        ks_document_model_metadata(out, route->model);
        break;
    case KS_ROUTE_MODEL_CONFIG:
        ks_document_model_config(out, route->model, view->device_info->gpu);
        break;
    case KS_ROUTE_MODEL_STATS:
    case KS_ROUTE_ALL_STATS:
        write_stats(view, request, out);
        break;
    case KS_ROUTE_OPENAPI:
        ks_openapi_write(out, KS_VERSION);
        break;
    default:
        write_index(view, request->infers == NULL, out);
    }
}

/* Of a document about one device: that it is this worker's. Where it is another one's the connection would have gone there. *query: behind
 * device=N. */
static ks_status check_device(const ks_api_view *view, const ks_document_request *request, const char **query,
                              ks_error *error)
{
    int device;
    const ks_route *route = request->route;
    *query = route->query;
    if (!view->workers || !ks_route_is_of_device(route->id)) return KS_OK;
    *query = ks_query_device(route->query, &device);
    if (device < 0) return KS_OK; /* it is of all */
    return ks_view_check_device(view, device, request->infers != NULL, error);
}

ks_status ks_document_make(ks_api_view *view, const ks_document_request *request, ks_text *out, int *code,
                           const char **content_type, ks_error *error)
{
    const char *query;
    *content_type = "application/json";
    *code = 200;
    if (check_device(view, request, &query, error) != KS_OK) return error->status;
    switch (request->route->id) {
    case KS_ROUTE_OPTIONS: /* the response is its fields */
        return KS_OK;
    case KS_ROUTE_LIVE:
        ks_text_puts(out, "{\"live\":true}");
        return KS_OK;
    case KS_ROUTE_READY:
        *code = write_ready(view, out);
        return KS_OK;
    case KS_ROUTE_MODEL_READY:
        *code = write_model_ready(view, request->route->model, out);
        return KS_OK;
    case KS_ROUTE_METRICS:
        write_metrics(view, request, out, content_type);
        return KS_OK;
    case KS_ROUTE_PLAN:
        return write_plan(view, request->infers, request->route, out, error);
    case KS_ROUTE_REPOSITORY:
        return ks_control_repository(view, request->control, &request->listing, out, error);
    case KS_ROUTE_LOGGING:
        return ks_control_logging(view, request->control, out, error);
    case KS_ROUTE_REGIONS:
        return ks_control_regions(view, request->route, out, error);
    case KS_ROUTE_REGISTER:
        return ks_control_register(view, request->route, request->control, error);
    case KS_ROUTE_UNREGISTER:
        return ks_control_unregister(view, request->route, error);
    case KS_ROUTE_PLANS:
        return write_plans(view, request, query, out, content_type, error);
    case KS_ROUTE_STATUS:
    case KS_ROUTE_STATUS_PAGE:
        return write_status(view, request->route, out, content_type, error);
    case KS_ROUTE_TIMELINE:
        return ks_trace_write(view, query, is_of_all(view, request->route), out, error);
    case KS_ROUTE_TRACE:
        return ks_fail(error, KS_UNAVAILABLE, "the server does not support tracing");
    default:
        write_document(view, request, out);
        return KS_OK;
    }
}
