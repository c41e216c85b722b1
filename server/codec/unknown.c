/* Names in a request that nothing here has. A misspelt parameter would leave the preset in its place, and the answer would
 * be a wrong one: our own formats refuse it. Open Inference Protocol bodies may say what they like, as with Triton; their
 * client is warned, by the field Kernserve-Warning. */
#include <stdio.h>
#include <string.h>

#include "codec/codec_parts.h"

typedef struct nearest_name {
    const char *name;
    size_t length;
    const char *nearest; /* NULL: none yet */
    int distance;
} nearest_name;

static void look_at(nearest_name *search, const char *other)
{
    const int distance = ks_name_distance(search->name, search->length, other);
    if (distance == 0 || distance >= search->distance) return;
    search->distance = distance;
    search->nearest = other;
}

/* NULL: nothing is near. */
static const char *find_nearest(const ks_op *op, ks_name_place place, const char *name)
{
    static const char *const query[] = {"shape", "datatype", "input", "output", "priority", "timeout"};
    static const char *const parameters[] = {"priority", "timeout", "binary_data_output"};
    static const char *const members[] = {"id", "parameters", "inputs", "outputs", "model_name"};
    static const struct {
        const char *const *names;
        size_t count;
    } lists[] = {[KS_NAME_IN_QUERY] = {query, sizeof query / sizeof query[0]},
                 [KS_NAME_BESIDE_JSON] = {parameters, sizeof parameters / sizeof parameters[0]},
                 [KS_NAME_IN_PARAMETERS] = {parameters, sizeof parameters / sizeof parameters[0]},
                 [KS_NAME_IN_JSON] = {members, sizeof members / sizeof members[0]}};
    nearest_name search = {.name = name, .length = strlen(name), .distance = KS_NAME_FAR};
    for (int i = 0; i < op->params_count; i++) look_at(&search, op->params[i].name);
    if (op->chain && place != KS_NAME_IN_JSON) look_at(&search, "profile");
    for (size_t i = 0; i < lists[place].count; i++) look_at(&search, lists[place].names[i]);
    return ks_name_is_near(search.length, search.distance) ? search.nearest : NULL;
}

/* Client text fit for a quoted string of a field. */
static ks_quote quoted_field(const char *name)
{
    ks_quote quote = ks_quoted(name, strlen(name));
    for (char *c = quote.text; *c; c++)
        if (*c == '"' || *c == '\\') *c = '?';
    return quote;
}

static void warn(ks_infer_request *request, const char *name, const char *nearest)
{
    if (request->warned) return; /* the first one stays */
    request->warned = true;
    snprintf(request->warning, sizeof request->warning, "unknown-parameter; name=\"%s\"%s%s%s", quoted_field(name).text,
             nearest ? "; nearest=\"" : "", nearest ? nearest : "", nearest ? "\"" : "");
}

static ks_status refuse(const ks_codec *codec, ks_name_place place, const char *name, const char *nearest,
                        ks_error *error)
{
    const ks_model *model = codec->request.model;
    const ks_quote quote = ks_quoted(name, strlen(name));
    char list[128] = "";
    for (int i = 0; i < model->op->params_count; i++) {
        const size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "; it has ", model->op->params[i].name);
    }
    if (place == KS_NAME_BESIDE_JSON)
        return ks_fail(error, KS_PARAMETER, "the query names '%s'; parameters stand in the JSON", quote.text);
    if (place == KS_NAME_IN_JSON)
        return ks_fail(error, KS_PARAMETER, "the request has no member '%s'%s%s%s", quote.text,
                       nearest ? "; the nearest is '" : "", nearest ? nearest : "", nearest ? "'" : "");
    return ks_fail(error, KS_PARAMETER, "model '%s' has no parameter '%s'%s%s%s%s", model->name, quote.text,
                   nearest ? "; the nearest is '" : "", nearest ? nearest : "", nearest ? "'" : "", list);
}

/* Beside JSON it would change the answer, and has no effect. */
static bool has_meaning(const ks_op *op, const char *name)
{
    bool means = strcmp(name, "shape") == 0 || strcmp(name, "datatype") == 0 || ks_codec_names_tensor(name);
    for (int i = 0; i < op->params_count; i++) means = means || strcmp(op->params[i].name, name) == 0;
    return means;
}

ks_status ks_codec_unknown(ks_codec *codec, ks_name_place place, const char *name, ks_error *error)
{
    const ks_names rule = codec->limits.unknown_names;
    const ks_op *op = codec->request.model->op;
    const bool own = place == KS_NAME_IN_QUERY && codec->request.format != KS_BODY_FORMAT_OIP_RAW;
    if (rule == KS_NAMES_ANY) return KS_OK;
    const char *nearest = find_nearest(op, place, name);
    if (own || rule == KS_NAMES_ALL || (place == KS_NAME_BESIDE_JSON && has_meaning(op, name)))
        return refuse(codec, place, name, nearest, error);
    warn(&codec->request, name, nearest);
    return KS_OK;
}

ks_status ks_codec_check_members(ks_codec *codec, const ks_json *top, ks_error *error)
{
    static const char *const known[] = {"inputs", "outputs", "parameters", "id", "model_name"};
    enum { KNOWN = sizeof known / sizeof known[0] };
    if (codec->limits.unknown_names == KS_NAMES_ANY) return KS_OK;
    for (const ks_json *item = ks_json_first(top); item; item = ks_json_next(item)) {
        int i = 0;
        while (i < KNOWN && strcmp(known[i], ks_json_key(item)) != 0) i++;
        const ks_status status = i < KNOWN ? KS_OK : ks_codec_unknown(codec, KS_NAME_IN_JSON, ks_json_key(item), error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}
