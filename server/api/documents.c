#include "api/documents.h"

#include <string.h>

#include "api/metadata.h"
#include "api/board/board.h"
#include "api/openapi.h"
#include "api/plans.h"
#include "api/trace.h"
#include "kernserve/chain.h"

static int write_ready(ks_api_view *view, ks_text *out)
{
    ks_state state = (ks_state)atomic_load(view->state);
    if (state == KS_STATE_READY) {
        ks_text_puts(out, "{\"live\":true,\"ready\":true}");
        return 200;
    }
    ks_text_printf(out, "{\"live\":true,\"ready\":false,\"state\":\"%s\"", ks_state_names[state]);
    if (state == KS_STATE_WARMING)
        ks_text_printf(out, ",\"done\":%d,\"total\":%d", atomic_load(&view->warm_done), atomic_load(&view->warm_total));
    ks_text_puts(out, "}");
    return 503;
}

static int write_model_ready(ks_api_view *view, const ks_model *model, ks_text *out)
{
    bool ready = atomic_load(view->state) == KS_STATE_READY;
    ks_text_printf(out, "{\"name\":\"%s\",\"ready\":%s}", model->name, ready ? "true" : "false");
    return ready ? 200 : 503;
}

static void write_stats(const ks_api_view *view, const ks_document_request *request, ks_text *out)
{
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

static void write_metrics(ks_api_view *view, const ks_document_request *request, ks_text *out,
                          const char **content_type)
{
    ks_engine_stats engines[KS_SHARDS_MAX];
    ks_overlap_sums sums;
    const int shards = ks_view_engines(view, engines);
    if (view->overlap) ks_overlap_read(view->overlap, &sums);
    /* Asking the driver may take milliseconds, so shards leave the GPU's figures to the second listener. OpenMetrics has
     * no room for Triton's names. */
    const bool triton = view->config->triton_metrics, openmetrics = !triton && wants_openmetrics(request->accept);
    const bool gpu = triton && view->nvml && !request->infers;
    ks_gpu_figures figures;
    if (gpu) ks_nvml_read(view->nvml, &figures);
    *content_type = openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                : "text/plain; version=0.0.4; charset=utf-8";
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
                            .triton = triton,
                            .gpu = gpu ? &figures : NULL,
                            .overlap = view->overlap ? &sums : NULL,
                            .device_used_bytes = atomic_load(&view->device_used_bytes),
                            .device_free_bytes = atomic_load(&view->device_free_bytes)};
    for (int dtype = 0; dtype < KS_DTYPE_COUNT; dtype++)
        document.tflops[dtype] = ks_ceilings_tflops(view->ceilings, (ks_dtype)dtype);
    fill_resident(view, &document);
    ks_metrics_text(view->metrics, &document, out);
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

static ks_status write_plans(const ks_api_view *view, const ks_document_request *request, ks_text *out,
                             const char **content_type, ks_error *error)
{
    const bool csv = request->accept && strstr(request->accept, "text/csv");
    if (csv) *content_type = "text/csv; charset=utf-8";
    return ks_plans_write(view, request->route->query, csv, out, error);
}

static ks_status write_status(ks_api_view *view, const ks_route *route, ks_text *out, const char **content_type,
                              ks_error *error)
{
    if (!view->config->status || !view->board) return ks_fail(error, KS_PATH, "Not Found: the option is --no-status");
    if (route->id == KS_ROUTE_STATUS) {
        ks_board_json(view->board, out);
        return KS_OK;
    }
    *content_type = "text/html; charset=utf-8";
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

ks_status ks_document_make(ks_api_view *view, const ks_document_request *request, ks_text *out, int *code,
                           const char **content_type, ks_error *error)
{
    *content_type = "application/json";
    *code = 200;
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
        return write_plans(view, request, out, content_type, error);
    case KS_ROUTE_STATUS:
    case KS_ROUTE_STATUS_PAGE:
        return write_status(view, request->route, out, content_type, error);
    case KS_ROUTE_TIMELINE:
        return ks_trace_write(view->timeline, view->shards, view->device_info, request->route->query, out, error);
    case KS_ROUTE_TRACE:
        return ks_fail(error, KS_UNAVAILABLE, "the server does not support tracing");
    default:
        write_document(view, request, out);
        return KS_OK;
    }
}
