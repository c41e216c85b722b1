#include "api/control.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "api/metadata.h"

ks_status ks_control_repository(ks_api_view *view, const ks_control *words, const ks_listing *whose, ks_text *out,
                                ks_error *error)
{
    bool present;
    ks_listing listing = *whose;
    const ks_status status = ks_control_bool(words, "ready", &present, &listing.only_ready, error);
    if (status != KS_OK) return ks_fail(error, status, "Invalid value for 'ready': expected a boolean");
    listing.ready = atomic_load(view->state) == KS_STATE_READY;
    if (listing.only_ready && !listing.ready)
        ks_text_puts(out, "[]");
    else
        ks_document_repository(out, view->models, &listing);
    return KS_OK;
}

/* --- logging -------------------------------------------------------------------------------------------------------- */

typedef struct log_settings {
    unsigned levels; /* one bit each, as in log.h */
    bool iso8601;
} log_settings;

static const struct {
    const char *name;
    ks_level level;
} log_flags[] = {{"log_info", KS_LOG_INFO}, {"log_warning", KS_LOG_WARN}, {"log_error", KS_LOG_ERROR}};
enum { LOG_FLAGS = sizeof log_flags / sizeof log_flags[0] };

static unsigned with_level(unsigned levels, ks_level level, bool on)
{
    return on ? levels | 1u << level : levels & ~(1u << level);
}

/* All of it or, with an error, nothing. */
static ks_status read_log_settings(const ks_control *words, log_settings *settings, ks_error *error)
{
    bool present, on = false;
    uint64_t verbose = 0;
    const char *text;
    ks_status status = ks_control_text(words, NULL, "log_file", &text, error);
    if (status != KS_OK) return status;
    if (text) return ks_fail(error, KS_UNSUPPORTED, "log file location can not be updated through network protocol");
    for (int i = 0; i < LOG_FLAGS; i++) {
        status = ks_control_bool(words, log_flags[i].name, &present, &on, error);
        if (status != KS_OK) return status;
        if (present) settings->levels = with_level(settings->levels, log_flags[i].level, on);
    }
    status = ks_control_unsigned(words, "log_verbose_level", &present, &verbose, error);
    if (status != KS_OK) return status;
    if (present) settings->levels = with_level(settings->levels, KS_LOG_DEBUG, verbose > 0);
    status = ks_control_text(words, NULL, "log_format", &text, error);
    if (status != KS_OK || !text) return status;
    settings->iso8601 = strcmp(text, "ISO8601") == 0;
    if (settings->iso8601 || strcmp(text, "default") == 0) return KS_OK;
    return ks_fail(error, KS_FIELD, "log_format must be 'default' or 'ISO8601'");
}

ks_status ks_control_logging(ks_api_view *view, const ks_control *words, ks_text *out, ks_error *error)
{
    log_settings settings = {.levels = ks_log_levels(), .iso8601 = atomic_load(&view->log_iso8601)};
    const ks_status status = read_log_settings(words, &settings, error);
    if (status != KS_OK) return status;
    if (words) {
        ks_log_set_levels(settings.levels);
        atomic_store(&view->log_iso8601, settings.iso8601);
        KS_LOG(KS_LOG_INFO, "log settings changed", KS_INT("levels", settings.levels));
    }
    ks_text_puts(out, "{\"log_file\":\"\"");
    for (int i = 0; i < LOG_FLAGS; i++)
        ks_text_printf(out, ",\"%s\":%s", log_flags[i].name,
                       settings.levels >> log_flags[i].level & 1 ? "true" : "false");
    ks_text_printf(out, ",\"log_verbose_level\":%u,\"log_format\":\"%s\"}", settings.levels >> KS_LOG_DEBUG & 1,
                   settings.iso8601 ? "ISO8601" : "default");
    return KS_OK;
}

/* --- shared memory -------------------------------------------------------------------------------------------------- */

static ks_status disabled(ks_error *error)
{
    return ks_fail(error, KS_UNSUPPORTED,
                   "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.");
}

static ks_region_kind kind_of(const ks_route *route)
{
    return route->cuda ? KS_REGION_CUDA : KS_REGION_SYSTEM;
}

ks_status ks_control_regions(ks_api_view *view, const ks_route *route, ks_text *out, ks_error *error)
{
    char name[KS_ROUTE_NAME_MAX + 1];
    const ks_status status = route->name ? ks_route_name(route, name, error) : KS_OK;
    if (status != KS_OK) return status;
    return ks_regions_list(view->regions, kind_of(route), route->name ? name : NULL, out, error);
}

static ks_status no_field(const char *field, ks_error *error)
{
    return ks_fail(error, KS_FIELD, "Shared memory register request has no '%s' field", field);
}

static ks_status register_system(ks_regions *regions, const char *name, const ks_control *words, uint64_t bytes,
                                 ks_error *error)
{
    const char *key;
    bool present;
    uint64_t offset = 0;
    ks_status status = ks_control_text(words, NULL, "key", &key, error);
    if (status == KS_OK && !key) return no_field("key", error);
    if (status == KS_OK) status = ks_control_unsigned(words, "offset", &present, &offset, error);
    return status == KS_OK ? ks_regions_add_system(regions, name, key, offset, bytes, error) : status;
}

static ks_status register_cuda(ks_regions *regions, const char *name, const ks_control *words, uint64_t bytes,
                               ks_error *error)
{
    const char *handle;
    bool present;
    uint64_t device = 0;
    ks_status status = ks_control_text(words, "raw_handle", "b64", &handle, error);
    if (status == KS_OK && !handle) return no_field("raw_handle", error);
    if (status == KS_OK) status = ks_control_unsigned(words, "device_id", &present, &device, error);
    if (status == KS_OK && !present) return no_field("device_id", error);
    return status == KS_OK ? ks_regions_add_cuda(regions, name, handle, device, bytes, error) : status;
}

/* Requests mean resident tensors by such a name. */
static ks_status check_region(const char *name, ks_error *error)
{
    static const char resident[] = "tensor:";
    if (strncmp(name, resident, sizeof resident - 1) != 0) return KS_OK;
    return ks_fail(error, KS_WINDOW, "'%s' is the name of a resident tensor: no region can be registered by it",
                   ks_quoted(name, strlen(name)).text);
}

ks_status ks_control_register(ks_api_view *view, const ks_route *route, const ks_control *words, ks_error *error)
{
    char name[KS_ROUTE_NAME_MAX + 1];
    bool present;
    uint64_t bytes = 0;
    ks_status status = ks_route_name(route, name, error);
    if (status == KS_OK) status = check_region(name, error);
    if (status == KS_OK && !view->regions) return disabled(error);
    if (status == KS_OK) status = ks_control_unsigned(words, "byte_size", &present, &bytes, error);
    if (status == KS_OK && !present) return no_field("byte_size", error);
    if (status != KS_OK) return status;
    status = route->cuda ? register_cuda(view->regions, name, words, bytes, error)
                         : register_system(view->regions, name, words, bytes, error);
    if (status == KS_OK)
        KS_LOG(KS_LOG_DEBUG, "shared memory registered", KS_TEXT("region", name), KS_INT("byte_size", bytes));
    return status;
}

ks_status ks_control_unregister(ks_api_view *view, const ks_route *route, ks_error *error)
{
    char name[KS_ROUTE_NAME_MAX + 1];
    if (!view->regions) return disabled(error);
    const ks_status status = route->name ? ks_route_name(route, name, error) : KS_OK;
    if (status == KS_OK) ks_regions_remove(view->regions, kind_of(route), route->name ? name : NULL);
    return status;
}
