#include "observe/otlp/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/model.h"

enum { KIND_INTERNAL = 1, KIND_SERVER = 2, STATUS_ERROR = 2 };

/* --- lists of the environment --------------------------------------------------------------------------------------- */

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static void decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        const bool coded = *from == '%' && digit_of(from[1]) >= 0 && digit_of(from[2]) >= 0;
        *to++ = (char)(coded ? digit_of(from[1]) * 16 + digit_of(from[2]) : *from);
        if (coded) from += 2;
    }
    *to = '\0';
}

static char *trim(char *text)
{
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t')) n--;
    text[n] = '\0';
    return text;
}

bool ks_otlp_next_pair(char **list, char **key, char **value)
{
    for (char *pair; (pair = strsep(list, ",")) != NULL;) {
        char *const equals = strchr(pair, '=');
        if (!equals) continue;
        *equals = '\0';
        *key = trim(pair);
        *value = trim(equals + 1);
        decode(*value);
        if (**key) return true;
    }
    return false;
}

/* --- attributes ------------------------------------------------------------------------------------------------------ */

static void begin_attribute(ks_text *out, const char *key)
{
    if (out->length > 0 && out->bytes[out->length - 1] == '}') ks_text_puts(out, ",");
    ks_text_puts(out, "{\"key\":");
    ks_text_json(out, key, strlen(key));
    ks_text_puts(out, ",\"value\":{");
}

static void put_text(ks_text *out, const char *key, const char *value)
{
    begin_attribute(out, key);
    ks_text_puts(out, "\"stringValue\":");
    ks_text_json(out, value, strlen(value));
    ks_text_puts(out, "}}");
}

static void put_number(ks_text *out, const char *key, uint64_t value)
{
    begin_attribute(out, key);
    ks_text_printf(out, "\"intValue\":\"%" PRIu64 "\"}}", value);
}

static void put_resource(const ks_otlp_resource *resource, ks_text *out)
{
    ks_text_puts(out, "{\"attributes\":[");
    put_text(out, "service.name", resource->service);
    put_text(out, "service.version", KS_VERSION);
    char *const copy = strdup(resource->attributes), *list = copy, *key, *value;
    while (copy && ks_otlp_next_pair(&list, &key, &value))
        if (strcmp(key, "service.name") != 0) put_text(out, key, value);
    free(copy);
    ks_text_puts(out, "]}");
}

/* --- spans ----------------------------------------------------------------------------------------------------------- */

static void begin_span(ks_text *out, const ks_span *span, const char *id, const char *parent)
{
    if (out->length > 0 && out->bytes[out->length - 1] == '}') ks_text_puts(out, ",");
    ks_text_printf(out, "{\"traceId\":\"%s\",\"spanId\":\"%s\",\"parentSpanId\":\"%s\"", span->trace_id, id, parent);
}

static void put_times(ks_text *out, int64_t from_ns, int64_t to_ns)
{
    ks_text_printf(out, ",\"startTimeUnixNano\":\"%" PRId64 "\",\"endTimeUnixNano\":\"%" PRId64 "\"", from_ns, to_ns);
}

/* Ids of children follow from the request's: another number for each phase, never 0. */
static void child_id(const ks_span *span, int phase, char out[17])
{
    uint64_t id = strtoull(span->id, NULL, 16) + (uint64_t)(phase + 1) * 0x9e3779b97f4a7c15u;
    id ^= id >> 29;
    snprintf(out, 17, "%016" PRIx64, id ? id : 1);
}

static void put_phases(ks_text *out, const ks_span *span, int64_t wall_ns)
{
    int64_t at_ns = wall_ns + span->first_ns;
    for (int phase = 0; phase < KS_PHASES; phase++) {
        char id[17];
        if (span->phase_ns[phase] <= 0) continue;
        child_id(span, phase, id);
        begin_span(out, span, id, span->id);
        ks_text_printf(out, ",\"name\":\"%s\",\"kind\":%d", ks_phase_name((ks_phase)phase), KIND_INTERNAL);
        put_times(out, at_ns, at_ns + span->phase_ns[phase]);
        ks_text_puts(out, "}");
        at_ns += span->phase_ns[phase];
    }
}

static void put_request(ks_text *out, const ks_span *span, int64_t wall_ns)
{
    const ks_status status = (ks_status)span->status;
    const int index = (int)span->model;
    begin_span(out, span, span->id, span->parent_id);
    ks_text_printf(out, ",\"name\":\"POST /v2/models/{model}/infer\",\"kind\":%d", KIND_SERVER);
    put_times(out, wall_ns + span->first_ns, wall_ns + span->answered_ns);
    ks_text_puts(out, ",\"attributes\":[");
    put_text(out, "http.request.method", "POST");
    put_text(out, "http.route", "/v2/models/{model}/infer");
    put_number(out, "http.response.status_code", (uint64_t)ks_status_http(status));
    if (status != KS_OK) put_text(out, "error.type", ks_status_code(status));
    put_text(out, "kernserve.model", index < ks_model_count() ? ks_model_at(index)->label : "unknown");
    put_text(out, "kernserve.request_id", span->request_id);
    put_number(out, "kernserve.in_bytes", span->in_bytes);
    put_number(out, "http.response.body.size", span->out_bytes);
    ks_text_puts(out, "]");
    if (ks_status_http(status) >= 500) ks_text_printf(out, ",\"status\":{\"code\":%d}", STATUS_ERROR);
    ks_text_puts(out, "}");
    if (span->ran) put_phases(out, span, wall_ns);
}

void ks_otlp_text(const ks_otlp_resource *resource, const ks_span *spans, int count, int64_t wall_ns, ks_text *out)
{
    ks_text_puts(out, "{\"resourceSpans\":[{\"resource\":");
    put_resource(resource, out);
    ks_text_puts(out,
                 ",\"scopeSpans\":[{\"scope\":{\"name\":\"kernserve\",\"version\":\"" KS_VERSION "\"},\"spans\":[");
    for (int i = 0; i < count; i++) put_request(out, &spans[i], wall_ns);
    ks_text_puts(out, "]}]}]}");
}
