/* The document is openapi.json, which the build embeds, with what only the daemon knows in place of its names that begin with
 * '@': version, models, error codes, media types of files, parameters of the ops. "@paths" stands for all paths of the route table,
 * each with its operations of that object by name.
 * Interface  openapi.h. Threads  any. */
#include "api/openapi.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/model.h"
#include "api/routes.h"
#include "codec/format.h"

extern const char ks_openapi_text[]; /* openapi.json, terminated */

static const char *const names[KS_ROUTES] = {
    [KS_ROUTE_INFER] = "infer",
    [KS_ROUTE_INDEX] = "index",
    [KS_ROUTE_LIVE] = "live",
    [KS_ROUTE_READY] = "ready",
    [KS_ROUTE_SERVER] = "server_metadata",
    [KS_ROUTE_MODEL] = "model_metadata",
    [KS_ROUTE_MODEL_READY] = "model_ready",
    [KS_ROUTE_MODEL_CONFIG] = "model_config",
    [KS_ROUTE_MODEL_STATS] = "model_stats",
    [KS_ROUTE_ALL_STATS] = "all_stats",
    [KS_ROUTE_PLAN] = "plan",
    [KS_ROUTE_DEFINITION] = "definition",
    [KS_ROUTE_METRICS] = "metrics",
    [KS_ROUTE_REPOSITORY] = "repository_index",
    [KS_ROUTE_LOAD] = "load",
    [KS_ROUTE_UNLOAD] = "unload",
    [KS_ROUTE_LOGGING] = "logging",
    [KS_ROUTE_TRACE] = "trace",
    [KS_ROUTE_REGIONS] = "regions",
    [KS_ROUTE_REGISTER] = "register",
    [KS_ROUTE_UNREGISTER] = "unregister",
    [KS_ROUTE_TENSORS] = "tensors",
    [KS_ROUTE_TENSOR] = "tensor",
    [KS_ROUTE_OPENAPI] = "openapi",
};

/* --- the file ----------------------------------------------------------------------------------------------------- */

/* Behind the string at text. */
static const char *string_end(const char *text)
{
    for (text++; *text != '"'; text++) text += *text == '\\';
    return text + 1;
}

/* Behind the object or list at text. */
static const char *value_end(const char *text)
{
    int depth = 0;
    do {
        if (*text == '"') {
            text = string_end(text);
            continue;
        }
        depth += (*text == '{' || *text == '[') - (*text == '}' || *text == ']');
        text++;
    } while (depth > 0);
    return text;
}

/* The object that a member of the object at text is; it is there. */
static const char *member(const char *text, const char *name)
{
    const size_t length = strlen(name);
    for (text = strchr(text, '"');; text = strchr(text, '"')) {
        const char *const end = string_end(text);
        const bool found = (size_t)(end - text) == length + 2 && memcmp(text + 1, name, length) == 0;
        text = strchr(end, '{');
        if (found) return text;
        text = value_end(text);
        assert(*text == ',');
    }
}

static void put(ks_text *out, const char *text, const char *end, const char *version);

/* --- what the daemon knows ------------------------------------------------------------------------------------------ */

static void put_string(ks_text *out, const char *text, bool *first)
{
    if (!*first) ks_text_puts(out, ",");
    *first = false;
    ks_text_json(out, text, strlen(text));
}

static void put_models(ks_text *out)
{
    bool first = true;
    for (int i = 0; i < ks_model_count(); i++)
        if (ks_model_is_of(ks_model_at(i)->label, "") && (!ks_model_is_loadable(i) || ks_model_current(i)))
            put_string(out, ks_model_at(i)->name, &first);
}

static bool is_first_of_code(int status)
{
    for (int i = KS_OK + 1; i < status; i++)
        if (strcmp(ks_status_code((ks_status)i), ks_status_code((ks_status)status)) == 0) return false;
    return true;
}

static void put_codes(ks_text *out)
{
    bool first = true;
    for (int i = KS_OK + 1; i < KS_STATUS_COUNT; i++)
        if (is_first_of_code(i)) put_string(out, ks_status_code((ks_status)i), &first);
}

/* A member for each file format: what stands at value, the same for each. */
static void put_files(ks_text *out, const char *value)
{
    bool first = true;
    for (const ks_format *const *format = ks_formats; *format; format++) {
        put_string(out, (*format)->content_type, &first);
        ks_text_puts(out, ":");
        put(out, value, value_end(value), "");
    }
}

static const ks_param *find_param(const ks_op *op, const char *name)
{
    for (int i = 0; i < op->params_count; i++)
        if (strcmp(op->params[i].name, name) == 0) return &op->params[i];
    return NULL;
}

static bool lists(const ks_param *param, const char *text)
{
    for (const char *const *choice = param->choices; *choice; choice++)
        if (strcmp(*choice, text) == 0) return true;
    return false;
}

/* The choices of all ops that have a choice of this name, each once. */
static void put_choices(ks_text *out, const char *name)
{
    bool first = true;
    for (const ks_op *const *op = ks_ops; *op; op++) {
        const ks_param *const param = find_param(*op, name);
        if (!param || param->kind != KS_PARAM_CHOICE) continue;
        for (const char *const *choice = param->choices; *choice; choice++) {
            const ks_op *const *before = ks_ops;
            for (const ks_param *other; before != op; before++)
                if ((other = find_param(*before, name)) && other->kind == KS_PARAM_CHOICE && lists(other, *choice))
                    break;
            if (before == op) put_string(out, *choice, &first);
        }
    }
}

static void put_kind(ks_text *out, const ks_param *param)
{
    static const char *const kinds[] = {
        [KS_PARAM_INT] = "{\"type\":\"integer\"}",
        [KS_PARAM_BOOL] = "{\"type\":\"boolean\"}",
        [KS_PARAM_NUMBER] = "{\"type\":\"number\"}",
        [KS_PARAM_AXES] = "{\"type\":\"string\",\"pattern\":\"^(all|-?[0-9](,-?[0-9])*)$\"}",
        [KS_PARAM_LIST] = "{\"type\":\"string\",\"pattern\":\"^(-?[0-9]+(,-?[0-9]+){0,7})?$\"}"};
    if (param->kind != KS_PARAM_CHOICE) {
        ks_text_puts(out, param->infinite
                              ? "{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"string\",\"enum\":[\"inf\",\"-inf\"]}]}"
                              : kinds[param->kind]);
        return;
    }
    ks_text_puts(out, "{\"type\":\"string\",\"enum\":[");
    put_choices(out, param->name);
    ks_text_puts(out, "]}");
}

static void put_preset(ks_text *out, const ks_param *param)
{
    if (param->kind == KS_PARAM_CHOICE)
        ks_text_puts(out, param->choices[param->preset.i]);
    else if (param->kind == KS_PARAM_BOOL)
        ks_text_puts(out, param->preset.i ? "true" : "false");
    else if (param->kind == KS_PARAM_NUMBER && isnan(param->preset.d)) /* it follows from the others */
        ks_text_puts(out, "automatic");
    else if (param->kind == KS_PARAM_NUMBER)
        ks_text_printf(out, "%g", param->preset.d);
    else if (param->kind == KS_PARAM_INT)
        ks_text_printf(out, "%lld", (long long)param->preset.i);
    else if (param->kind == KS_PARAM_LIST)
        ks_text_puts(out, "none");
    else if (param->preset.axes.count < 0)
        ks_text_puts(out, "all");
    else
        ks_text_printf(out, "%d", param->preset.axes.axis[0]);
}

/* A parameter of every op that has it under this name. The presets are words and no "default", which a client would send to ops
 * that do not have it. */
static void put_parameter(ks_text *out, const char *name)
{
    const char *separator = "";
    ks_text_printf(out, ",{\"name\":\"%s\",\"in\":\"query\",\"description\":\"", name);
    for (const ks_op *const *op = ks_ops; *op; op++) {
        const ks_param *const param = find_param(*op, name);
        if (!param) continue;
        ks_text_printf(out, "%s%s (preset ", separator, (*op)->name);
        put_preset(out, param);
        ks_text_puts(out, ")");
        separator = ", ";
    }
    ks_text_puts(out, "\",\"schema\":");
    const ks_param *first = NULL, *other = NULL;
    for (const ks_op *const *op = ks_ops; *op; op++) {
        const ks_param *const param = find_param(*op, name);
        if (param && !first) first = param;
        if (param && param->kind != first->kind) other = param;
    }
    if (other) ks_text_puts(out, "{\"anyOf\":[");
    put_kind(out, first);
    if (other) {
        ks_text_puts(out, ",");
        put_kind(out, other);
        ks_text_puts(out, "]}");
    }
    ks_text_puts(out, "}");
}

/* What the query of work without JSON may name. */
static void put_work(ks_text *out)
{
    ks_text_puts(out, "{\"$ref\":\"#/components/parameters/Shape\"},{\"$ref\":\"#/components/parameters/DatatypeOf\"}");
    for (const ks_op *const *op = ks_ops; *op; op++)
        for (int i = 0; i < (*op)->params_count; i++) {
            const char *const name = (*op)->params[i].name;
            const ks_op *const *before = ks_ops;
            while (before != op && !find_param(*before, name)) before++;
            if (before == op) put_parameter(out, name);
        }
}

/* --- text with names in it --------------------------------------------------------------------------------------------- */

static void put_paths(ks_text *out, const char *operations);

/* The name of n bytes at text, which value may follow. Returns behind what it has put. */
static const char *put_name(ks_text *out, const char *text, size_t n, const char *version)
{
    const char *const end = text + n, *const value = end + strspn(end, ": ");
    const struct {
        const char *name;
        void (*put)(ks_text *);
        void (*put_with)(ks_text *, const char *);
    } rows[] = {{"\"@models\"", put_models, NULL},
                {"\"@codes\"", put_codes, NULL},
                {"\"@work\"", put_work, NULL},
                {"\"@files\"", NULL, put_files},
                {"\"@paths\"", NULL, put_paths}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strlen(rows[i].name) != n || memcmp(rows[i].name, text, n) != 0) continue;
        if (rows[i].put) {
            rows[i].put(out);
            return end;
        }
        rows[i].put_with(out, value);
        return value_end(value);
    }
    assert(strncmp(text, "\"@version\"", n) == 0);
    ks_text_json(out, version, strlen(version));
    return end;
}

/* The file's text up to end, without its white space. */
static void put(ks_text *out, const char *text, const char *end, const char *version)
{
    while (text < end) {
        const char *const from = text;
        if (*text == '"') {
            text = string_end(text);
            if (from[1] == '@')
                text = put_name(out, from, (size_t)(text - from), version);
            else
                ks_text_add(out, from, (size_t)(text - from));
        } else if (*text == ' ' || *text == '\n') {
            text++;
        } else {
            ks_text_add(out, text++, 1);
        }
    }
}

/* --- paths -------------------------------------------------------------------------------------------------------- */

/* The name of a path parameter that a pattern's segment stands for; NULL: it stands for itself. */
static const char *parameter_of(const char *segment, size_t length)
{
    if (length != 1) return NULL;
    return *segment == '*' ? "model" : *segment == '#' ? "version" : *segment == '@' ? "name" : NULL;
}

static void put_path(ks_text *out, const char *pattern)
{
    ks_text_puts(out, "\"/");
    for (;;) {
        const size_t length = strcspn(pattern, "/");
        const char *const parameter = parameter_of(pattern, length);
        if (parameter)
            ks_text_printf(out, "{%s}", parameter);
        else
            ks_text_add(out, pattern, length);
        pattern += length;
        if (!*pattern) break;
        ks_text_puts(out, "/");
        pattern++;
    }
    ks_text_puts(out, "\":{");
}

static void put_path_parameters(ks_text *out, const char *pattern)
{
    const char *separator = "";
    ks_text_puts(out, "\"parameters\":[");
    for (; *pattern; pattern += strspn(pattern, "/")) {
        const size_t length = strcspn(pattern, "/");
        const char *const parameter = parameter_of(pattern, length);
        pattern += length;
        if (!parameter) continue;
        ks_text_printf(out, "%s{\"$ref\":\"#/components/parameters/%s\"}", separator, parameter);
        separator = ",";
    }
    ks_text_puts(out, "],");
}

/* Whether a row before it has the same name. */
static bool is_named_before(int row, const char *name, bool version)
{
    ks_route_row other;
    for (int i = 0; i < row && ks_route_at(i, &other); i++)
        if (other.data && strcmp(other.raw ? "raw" : names[other.id], name) == 0 &&
            (strchr(other.path, '#') != NULL) == version)
            return true;
    return false;
}

/* What a POST to a path that can be read as well takes, a GET does not. */
static void put_operation(ks_text *out, const char *operations, const char *method, int number)
{
    ks_route_row row;
    ks_route_at(number, &row);
    const bool version = strchr(row.path, '#') != NULL, posts = strcmp(method, "post") == 0;
    const bool own = *method == 'd' || strcmp(method, "put") == 0; /* an operation of the method's own: "put_tensor" */
    const char *const base = row.raw ? "raw" : own && row.id == KS_ROUTE_MODEL ? "model" : names[row.id];
    char name[32];
    snprintf(name, sizeof name, "%s%s%s", own ? method : "", own ? "_" : "", base);
    ks_text_printf(out, "\"%s\":{\"operationId\":\"%s%s%s", method, posts && row.reads ? "set_" : "", name,
                   version ? "_version" : "");
    if (is_named_before(number, name, version)) ks_text_printf(out, "_%d", number);
    ks_text_puts(out, "\",");
    const char *const text = member(operations, name), *const body =
                                                           posts || own ? NULL : strstr(text, "\"requestBody\"");
    const char *const end = value_end(text);
    if (body && body < end) {
        const char *const behind = value_end(strchr(body, '{'));
        put(out, text + 1, body, "");
        put(out, behind + strspn(behind, ", \n"), end, "");
    } else {
        put(out, text + 1, end, "");
    }
}

static void put_paths(ks_text *out, const char *operations)
{
    ks_route_row row;
    const char *separator = "";
    for (int i = 0; ks_route_at(i, &row); i++) {
        if (!row.data) continue;
        ks_text_puts(out, separator);
        separator = ",";
        put_path(out, row.path);
        put_path_parameters(out, row.path);
        if (row.reads) put_operation(out, operations, "get", i);
        if (row.reads && row.works) ks_text_puts(out, ",");
        if (row.works) put_operation(out, operations, "post", i);
        if (row.puts) ks_text_puts(out, ",");
        if (row.puts) put_operation(out, operations, "put", i);
        if (row.deletes) ks_text_puts(out, ",");
        if (row.deletes) put_operation(out, operations, "delete", i);
        ks_text_puts(out, "}");
    }
}

void ks_openapi_write(ks_text *out, const char *version)
{
    put(out, ks_openapi_text, ks_openapi_text + strlen(ks_openapi_text), version);
}
