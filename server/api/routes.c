#include "api/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

enum { READS = 1, WORKS = 2, BOTH = 3, PUTS = 4, DELETES = 8 }; /* GET and HEAD; POST; both; PUT; DELETE */
enum { DATA = 1, SECOND = 2, EACH = 3 };                        /* listeners */

/* A path's segments: a word stands for itself, "*" for a model's name, "#" for digits (a version), "@" for any other
 * name. The first row that fits counts, so that models/stats is not the metadata of a model named stats. */
static const struct {
    const char *path;
    ks_route_id id;
    ks_handler handler;
    char methods, listeners;
    bool open, authorized;
} table[] = {
    {"v2/models/*/infer", KS_ROUTE_INFER, KS_HANDLER_infer, WORKS, DATA, 0, 0},
    {"v2/models/*/versions/#/infer", KS_ROUTE_INFER, KS_HANDLER_infer, WORKS, DATA, 0, 0},
    {"v2/models/*/raw", KS_ROUTE_INFER, KS_HANDLER_infer, WORKS, DATA, 0, 0},
    {"v2/models/*/versions/#/raw", KS_ROUTE_INFER, KS_HANDLER_infer, WORKS, DATA, 0, 0},
    {"", KS_ROUTE_INDEX, KS_HANDLER_index, READS, EACH, 0, 0},
    {"v2/health/live", KS_ROUTE_LIVE, KS_HANDLER_live, READS, EACH, 1, 1},
    {"v2/health/ready", KS_ROUTE_READY, KS_HANDLER_ready, READS, EACH, 1, 1},
    {"livez", KS_ROUTE_LIVE, KS_HANDLER_live, READS, EACH, 1, 1},
    {"readyz", KS_ROUTE_READY, KS_HANDLER_ready, READS, EACH, 1, 1},
    {"healthz", KS_ROUTE_READY, KS_HANDLER_ready, READS, EACH, 1, 1},
    {"metrics", KS_ROUTE_METRICS, KS_HANDLER_metrics, READS, EACH, 1, 0},
    {"openapi.json", KS_ROUTE_OPENAPI, KS_HANDLER_index, READS, DATA, 0, 0},
    {"v2", KS_ROUTE_SERVER, KS_HANDLER_server_metadata, READS, DATA, 0, 0},
    {"v2/", KS_ROUTE_SERVER, KS_HANDLER_server_metadata, READS, DATA, 0, 0},
    {"v2/models/stats", KS_ROUTE_ALL_STATS, KS_HANDLER_model_stats, READS, DATA, 0, 0},
    {"v2/models/*", KS_ROUTE_MODEL, KS_HANDLER_model_metadata, READS | PUTS | DELETES, DATA, 0, 0},
    {"v2/models/*/ready", KS_ROUTE_MODEL_READY, KS_HANDLER_model_ready, READS, DATA, 0, 0},
    {"v2/models/*/config", KS_ROUTE_MODEL_CONFIG, KS_HANDLER_model_config, READS, DATA, 0, 0},
    {"v2/models/*/stats", KS_ROUTE_MODEL_STATS, KS_HANDLER_model_stats, READS, DATA, 0, 0},
    {"v2/models/*/plan", KS_ROUTE_PLAN, KS_HANDLER_model_plan, READS, DATA, 0, 0},
    {"v2/models/*/definition", KS_ROUTE_DEFINITION, KS_HANDLER_models, READS, DATA, 0, 0},
    {"v2/models/*/versions/#", KS_ROUTE_MODEL, KS_HANDLER_model_metadata, READS, DATA, 0, 0},
    {"v2/models/*/versions/#/ready", KS_ROUTE_MODEL_READY, KS_HANDLER_model_ready, READS, DATA, 0, 0},
    {"v2/models/*/versions/#/config", KS_ROUTE_MODEL_CONFIG, KS_HANDLER_model_config, READS, DATA, 0, 0},
    {"v2/models/*/versions/#/stats", KS_ROUTE_MODEL_STATS, KS_HANDLER_model_stats, READS, DATA, 0, 0},
    {"v2/models/*/versions/#/plan", KS_ROUTE_PLAN, KS_HANDLER_model_plan, READS, DATA, 0, 0},
    {"v2/repository/index", KS_ROUTE_REPOSITORY, KS_HANDLER_repository, WORKS, DATA, 0, 0},
    {"v2/repository/models/@/load", KS_ROUTE_LOAD, KS_HANDLER_models, WORKS, DATA, 0, 0},
    {"v2/repository/models/@/unload", KS_ROUTE_UNLOAD, KS_HANDLER_models, WORKS, DATA, 0, 0},
    {"v2/tensors", KS_ROUTE_TENSORS, KS_HANDLER_tensors, READS | PUTS, DATA, 0, 0},
    {"v2/tensors/@", KS_ROUTE_TENSOR, KS_HANDLER_tensors, READS | PUTS | DELETES, DATA, 0, 0},
    {"v2/logging", KS_ROUTE_LOGGING, KS_HANDLER_logging, BOTH, DATA, 0, 0},
#define SHARED_MEMORY(kind)                                                                                            \
    {kind "/status", KS_ROUTE_REGIONS, KS_HANDLER_shared_memory, READS, DATA, 0, 0},                                   \
        {kind "/region/@/status", KS_ROUTE_REGIONS, KS_HANDLER_shared_memory, READS, DATA, 0, 0},                      \
        {kind "/region/@/register", KS_ROUTE_REGISTER, KS_HANDLER_shared_memory, WORKS, DATA, 0, 0},                   \
        {kind "/region/@/unregister", KS_ROUTE_UNREGISTER, KS_HANDLER_shared_memory, WORKS, DATA, 0, 0},               \
        {kind "/unregister", KS_ROUTE_UNREGISTER, KS_HANDLER_shared_memory, WORKS, DATA, 0, 0},
    SHARED_MEMORY("v2/systemsharedmemory") SHARED_MEMORY("v2/cudasharedmemory")
#undef SHARED_MEMORY
        {"status", KS_ROUTE_STATUS_PAGE, KS_HANDLER_status, READS, SECOND, 0, 0},
    {"status.json", KS_ROUTE_STATUS, KS_HANDLER_status, READS, SECOND, 0, 0},
    {"v2/trace", KS_ROUTE_TIMELINE, KS_HANDLER_trace, READS, SECOND, 0, 0},
    {"v2/plans", KS_ROUTE_PLANS, KS_HANDLER_plans, READS, SECOND, 0, 0},
    {"v2/trace/setting", KS_ROUTE_TRACE, KS_HANDLER_trace, BOTH, DATA, 0, 0},
    {"v2/models/*/trace/setting", KS_ROUTE_TRACE, KS_HANDLER_trace, BOTH, DATA, 0, 0},
};

typedef struct segment {
    const char *text;
    size_t length;
} segment;

ks_method ks_method_of(const char *method)
{
    if (strcmp(method, "POST") == 0) return KS_METHOD_POST;
    if (strcmp(method, "GET") == 0) return KS_METHOD_GET;
    if (strcmp(method, "HEAD") == 0) return KS_METHOD_HEAD;
    if (strcmp(method, "PUT") == 0) return KS_METHOD_PUT;
    return strcmp(method, "DELETE") == 0 ? KS_METHOD_DELETE : KS_METHOD_OTHER;
}

static segment next_segment(const char *text, const char *end)
{
    const char *slash = memchr(text, '/', (size_t)(end - text));
    return (segment){text, (size_t)((slash ? slash : end) - text)};
}

static bool all_digits(segment s)
{
    for (size_t i = 0; i < s.length; i++)
        if (s.text[i] < '0' || s.text[i] > '9') return false;
    return s.length > 0;
}

/* Compares segment by segment, raw: nothing is decoded, "//" and ".." mean nothing. */
static bool matches(const char *pattern, const char *path, const char *end, segment *model, segment *version,
                    segment *name)
{
    const char *pattern_end = pattern + strlen(pattern);
    for (;;) {
        segment want = next_segment(pattern, pattern_end), have = next_segment(path, end);
        if (want.length == 1 && *want.text == '*') {
            if (have.length == 0) return false;
            *model = have;
        } else if (want.length == 1 && *want.text == '@') {
            if (have.length == 0) return false;
            *name = have;
        } else if (want.length == 1 && *want.text == '#') {
            if (!all_digits(have)) return false;
            *version = have;
        } else if (want.length != have.length || memcmp(want.text, have.text, want.length) != 0) {
            return false;
        }
        pattern = want.text + want.length;
        path = have.text + have.length;
        if (pattern == pattern_end || path == end) return pattern == pattern_end && path == end;
        pattern++;
        path++;
    }
}

/* Percent-decodes a name. false: malformed, or an encoded slash or NUL, which no path of ours holds. What is
 * longer than any model's name is cut: it is unknown either way. */
static bool decode_name(segment raw, char *out, size_t cap, size_t *length)
{
    size_t n = 0;
    for (size_t i = 0; i < raw.length && n < cap; i++) {
        char c = raw.text[i];
        if (c == '%') {
            const int byte = ks_percent_byte(raw.text + i + 1, raw.text + raw.length);
            if (byte < 0) return false;
            c = (char)byte;
            if (c == '\0' || c == '/') return false;
            i += 2;
        }
        out[n++] = c;
    }
    *length = n;
    return true;
}

/* Every model has version 1 only; any digits that say one are it. */
static bool version_known(segment version)
{
    if (version.text == NULL) return true;
    while (version.length > 1 && *version.text == '0') {
        version.text++;
        version.length--;
    }
    return version.length == 1 && *version.text == '1';
}

/* The tenant's own, or else one that all see. */
typedef bool is_there_fn(const char *label, size_t length);
static bool is_one(is_there_fn *is_there, const char *tenant, const char *name, size_t length)
{
    char own[KS_MODEL_LABEL_MAX];
    if (is_there(name, length)) return true;
    if (!tenant[0]) return false;
    const int n = snprintf(own, sizeof own, "%s/%.*s", tenant, (int)length, name);
    return n > 0 && (size_t)n < sizeof own && is_there(own, (size_t)n);
}

static ks_status find_model(segment raw, segment version, const char *tenant, ks_route *route, ks_error *error)
{
    enum { SHOWN = 64 };
    char name[KS_MODEL_NAME_MAX + SHOWN];
    size_t length = 0;
    if (!decode_name(raw, name, sizeof name, &length)) return ks_fail(error, KS_PATH, "Not Found");
    route->model = tenant[0] ? ks_model_find_own(tenant, name, length) : NULL;
    if (route->model == NULL) route->model = ks_model_find(name, length);
    int shown = (int)(length < SHOWN ? length : SHOWN);
    if (route->model == NULL && route->id == KS_ROUTE_MODEL_STATS)
        return ks_fail(error, KS_MODEL, "requested model '%.*s' is not available", shown, name);
    if (route->model == NULL && is_one(ks_model_is_loading, tenant, name, length))
        return ks_fail(error, KS_LOADING, "model '%.*s' is being loaded", shown, name);
    if (route->model == NULL && is_one(ks_model_is_known, tenant, name, length))
        return ks_fail(error, KS_MODEL, "Request for unknown model: '%.*s' has no available versions", shown, name);
    if (route->model == NULL)
        return ks_fail(error, KS_MODEL, "Request for unknown model: '%.*s' is not found", shown, name);
    if (!version_known(version)) {
        route->model = NULL;
        return ks_fail(error, KS_MODEL, "Request for unknown model: '%.*s' version %.*s is not found", shown, name,
                       (int)(version.length < 20 ? version.length : 20), version.text);
    }
    return KS_OK;
}

ks_status ks_route_name(const ks_route *route, char out[KS_ROUTE_NAME_MAX + 1], ks_error *error)
{
    size_t length = 0;
    const segment raw = {route->name, route->name_length};
    if (!decode_name(raw, out, KS_ROUTE_NAME_MAX + 1, &length)) return ks_fail(error, KS_PATH, "Not Found");
    if (length > KS_ROUTE_NAME_MAX) return ks_fail(error, KS_NAME, "a name has more than %d bytes", KS_ROUTE_NAME_MAX);
    for (size_t i = 0; i < length; i++)
        if (out[i] < ' ' || out[i] > '~')
            return ks_fail(error, KS_NAME, "a name holds a byte that is not printable ASCII");
    out[length] = '\0';
    return KS_OK;
}

/* What the token of a POST, a PUT or a DELETE must be allowed. A route that is not named here is the operator's: shared memory, which any name
 * of this host's opens and all clients share, and the log. */
static unsigned right_of(ks_route_id id)
{
    switch (id) {
    case KS_ROUTE_INFER:
        return KS_RIGHT_INFER;
    case KS_ROUTE_MODEL:
    case KS_ROUTE_LOAD:
    case KS_ROUTE_UNLOAD:
        return KS_RIGHT_MODELS;
    case KS_ROUTE_TENSORS:
    case KS_ROUTE_TENSOR:
        return KS_RIGHT_TENSORS;
    case KS_ROUTE_REPOSITORY:
        return 0; /* a list */
    default:
        return KS_RIGHT_OPERATOR;
    }
}

/* Of the paths to an inference: the one for bytes. */
static bool is_raw(ks_route_id id, const char *path)
{
    return id == KS_ROUTE_INFER && strcmp(strrchr(path, '/'), "/raw") == 0;
}

bool ks_route_at(int index, ks_route_row *out)
{
    if (index < 0 || (size_t)index >= sizeof table / sizeof table[0]) return false;
    *out = (ks_route_row){.id = table[index].id,
                          .path = table[index].path,
                          .reads = table[index].methods & READS,
                          .works = table[index].methods & WORKS,
                          .puts = table[index].methods & PUTS,
                          .deletes = table[index].methods & DELETES,
                          .data = table[index].listeners & DATA,
                          .raw = is_raw(table[index].id, table[index].path),
                          .right = right_of(table[index].id)};
    return true;
}

bool ks_route_has_json_body(const ks_route *route)
{
    return route->id == KS_ROUTE_REPOSITORY || route->id == KS_ROUTE_LOGGING || route->id == KS_ROUTE_REGISTER;
}

bool ks_route_is_of_device(ks_route_id id)
{
    return id == KS_ROUTE_STATUS || id == KS_ROUTE_STATUS_PAGE || id == KS_ROUTE_TIMELINE || id == KS_ROUTE_PLANS ||
           id == KS_ROUTE_ALL_STATS || id == KS_ROUTE_MODEL_STATS;
}

int ks_device_read(const char *text, size_t length)
{
    enum { DIGITS_MAX = 3 };
    return length == 0 || length > DIGITS_MAX || strspn(text, "0123456789") < length ? -1 : atoi(text);
}

const char *ks_query_device(const char *query, int *device)
{
    static const char name[] = "device=";
    const size_t length = strcspn(query, "&");
    *device = -1;
    if (strncmp(query, name, sizeof name - 1) != 0) return query;
    *device = ks_device_read(query + sizeof name - 1, length - (sizeof name - 1));
    if (*device < 0) return query;
    return query + length + (query[length] == '&');
}

/* Clients of the protocol look for the bare words. */
static ks_status no_route(const char *target, ks_error *error)
{
    const bool protocol = strncmp(target, "/v2", 3) == 0;
    return ks_fail(error, KS_PATH, "Not Found%s", protocol ? "" : "; GET / lists the routes");
}

ks_status ks_route_find(const char *method, const char *target, bool admin, const char *tenant, ks_route *route,
                        ks_error *error)
{
    const char *end = strchrnul(target, '?');
    segment model = {0}, version = {0}, name = {0};
    memset(route, 0, sizeof *route);
    route->handler = KS_HANDLER_other;
    route->query = *end ? end + 1 : end;
    if (strcmp(target, "*") == 0 && strcmp(method, "OPTIONS") == 0) {
        route->id = KS_ROUTE_OPTIONS;
        route->allow = "GET, HEAD, POST, PUT, DELETE, OPTIONS";
        return KS_OK;
    }
    if (*target != '/') return no_route(target, error);
    size_t row = 0;
    while (row < sizeof table / sizeof table[0] &&
           (!(table[row].listeners & (admin ? SECOND : DATA)) ||
            !matches(table[row].path, target + 1, end, &model, &version, &name))) {
        model = version = name = (segment){0};
        row++;
    }
    if (row == sizeof table / sizeof table[0]) return no_route(target, error);
    route->id = table[row].id;
    route->handler = table[row].handler;
    route->open = table[row].open;
    route->authorized = table[row].authorized;
    route->cuda = strncmp(table[row].path, "v2/cuda", 7) == 0;
    route->raw = is_raw(route->id, table[row].path);
    route->name = name.text;
    route->name_length = name.length;
    static const char *const allowed[] = {[READS] = "GET, HEAD",
                                          [WORKS] = "POST",
                                          [BOTH] = "GET, HEAD, POST",
                                          [READS | PUTS] = "GET, HEAD, PUT",
                                          [READS | PUTS | DELETES] = "GET, HEAD, PUT, DELETE"};
    static const int asks[KS_METHODS] = {[KS_METHOD_GET] = READS,
                                         [KS_METHOD_HEAD] = READS,
                                         [KS_METHOD_POST] = WORKS,
                                         [KS_METHOD_PUT] = PUTS,
                                         [KS_METHOD_DELETE] = DELETES};
    const int asked = asks[ks_method_of(method)];
    route->right = asked & ~READS ? right_of(route->id) : 0;
    if (!(table[row].methods & asked)) {
        route->allow = allowed[(int)table[row].methods];
        return ks_fail(error, KS_METHOD, "Method Not Allowed");
    }
    if (route->id == KS_ROUTE_MODEL && asked & ~READS) { /* which need not be there */
        route->handler = KS_HANDLER_models;
        route->name = model.text;
        route->name_length = model.length;
        return KS_OK;
    }
    return model.text ? find_model(model, version, tenant, route, error) : KS_OK;
}
