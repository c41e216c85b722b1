/* Request parameters: those of the protocol, and those that the op's descriptor lists. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number/number.h"
#include "codec/codec_parts.h"

static bool numeric(const ks_param_value *value)
{
    return value->kind == KS_VALUE_NUMBER || value->kind == KS_VALUE_QUERY;
}

static bool textual(const ks_param_value *value)
{
    return value->kind == KS_VALUE_TEXT || value->kind == KS_VALUE_QUERY;
}

static bool is(const ks_param_value *value, const char *word)
{
    return value->length == strlen(word) && memcmp(value->text, word, value->length) == 0;
}

static bool read_bool(const ks_param_value *value, bool *out)
{
    if (value->kind != KS_VALUE_BOOL && value->kind != KS_VALUE_QUERY) return false;
    const bool query = value->kind == KS_VALUE_QUERY;
    *out = is(value, "true") || (query && is(value, "1"));
    return *out || is(value, "false") || (query && is(value, "0"));
}

/* "1", "-1", "0,2"; what remains outside of int8 cannot be an axis of any tensor. */
static bool read_axes(const char *text, size_t length, ks_axes *out)
{
    const char *const end = text + length;
    out->count = 0;
    for (;;) {
        const char *const comma = memchr(text, ',', (size_t)(end - text));
        const char *const stop = comma ? comma : end;
        if (out->count == KS_RANK_MAX) return false;
        if (ks_number_read(text, (size_t)(stop - text), KS_INT8, &out->axis[out->count]) != KS_NUMBER_OK) return false;
        out->count++;
        if (!comma) return true;
        text = comma + 1;
    }
}

static bool read_axes_value(const ks_param_value *value, ks_axes *out)
{
    if (textual(value) && is(value, "all")) {
        out->count = -1;
        return true;
    }
    if (!textual(value) && value->kind != KS_VALUE_LIST &&
        (value->kind != KS_VALUE_NUMBER || memchr(value->text, ',', value->length)))
        return false;
    return value->length > 0 && read_axes(value->text, value->length, out);
}

static bool read_list(const ks_param_value *value, ks_integers *out)
{
    const char *text = value->text, *const end = text + value->length;
    out->count = 0;
    if (value->kind == KS_VALUE_BOOL) return false;
    while (text < end || out->count > 0) {
        const char *const comma = memchr(text, ',', (size_t)(end - text));
        const char *const stop = comma ? comma : end;
        if (out->count == KS_RANK_MAX) return false;
        int64_t *item = &out->value[out->count++];
        if (ks_number_read(text, (size_t)(stop - text), KS_INT64, item) != KS_NUMBER_OK) return false;
        if (!comma) break;
        text = comma + 1;
    }
    return true;
}

static bool read_choice(const ks_param_value *value, const char *const *choices, int64_t *out)
{
    if (!textual(value)) return false;
    for (int i = 0; choices[i]; i++) {
        if (!is(value, choices[i])) continue;
        *out = i;
        return true;
    }
    return false;
}

static bool read_infinity(const ks_param_value *value, double *out)
{
    if (!textual(value) || !(is(value, "inf") || is(value, "-inf"))) return false;
    *out = value->text[0] == '-' ? -(double)INFINITY : (double)INFINITY;
    return true;
}

static bool read_value(const ks_param *param, const ks_param_value *value, ks_value *out, ks_integers *lists)
{
    bool truth = false;
    memset(out, 0, sizeof *out);
    switch (param->kind) {
    case KS_PARAM_INT:
        return numeric(value) && ks_number_read(value->text, value->length, KS_INT64, &out->i) == KS_NUMBER_OK;
    case KS_PARAM_BOOL:
        if (!read_bool(value, &truth)) return false;
        out->i = truth;
        return true;
    case KS_PARAM_NUMBER:
        if (param->infinite && read_infinity(value, &out->d)) return true;
        /* The words for NaN and infinity are data, not parameters; they end in letters, as no number does. */
        return numeric(value) && value->length > 0 && (value->text[value->length - 1] | 0x20) < 'a' &&
               ks_number_read(value->text, value->length, KS_FP64, &out->d) == KS_NUMBER_OK;
    case KS_PARAM_CHOICE:
        return read_choice(value, param->choices, &out->i);
    case KS_PARAM_AXES:
        return read_axes_value(value, &out->axes);
    case KS_PARAM_LIST:
        out->list = param->preset.list;
        return read_list(value, &lists[out->list]);
    }
    return false;
}

enum { WANTED_MAX = 160 };

static const char *wanted(const ks_param *param, char list[WANTED_MAX])
{
    switch (param->kind) {
    case KS_PARAM_INT:
        return "an integer";
    case KS_PARAM_BOOL:
        return "true or false";
    case KS_PARAM_NUMBER:
        return param->infinite ? "a number, \"inf\" or \"-inf\"" : "a finite number";
    case KS_PARAM_CHOICE:
        snprintf(list, WANTED_MAX, "one of %s", param->choices[0]);
        for (int i = 1; param->choices[i]; i++) {
            const size_t n = strlen(list);
            snprintf(list + n, WANTED_MAX - n, ", %s", param->choices[i]);
        }
        return list;
    case KS_PARAM_AXES:
        return "an integer, a list of axes, also as text such as \"0,2\", or \"all\"";
    case KS_PARAM_LIST:
        return "a list of at most 8 integers, or one as text such as \"2,0,1\"";
    }
    return "";
}

static bool is_fixed_value(const ks_spec *spec, const ks_fixed *fixed)
{
    const ks_param *param = &spec->op->params[fixed->param];
    const ks_value *a = &spec->params[fixed->param], *b = &fixed->value;
    if (param->kind == KS_PARAM_NUMBER) return memcmp(&a->d, &b->d, sizeof a->d) == 0;
    if (param->kind == KS_PARAM_LIST) {
        const ks_integers *list = ks_list_of(spec, fixed->param);
        return list->count == fixed->list->count &&
               memcmp(list->value, fixed->list->value, (size_t)list->count * sizeof *list->value) == 0;
    }
    if (param->kind != KS_PARAM_AXES) return a->i == b->i;
    return a->axes.count == b->axes.count &&
           (a->axes.count < 0 || memcmp(a->axes.axis, b->axes.axis, (size_t)a->axes.count) == 0);
}

/* An object, null, or an array where no list is taken. */
static ks_status no_value(const char *name, ks_status status, ks_error *error)
{
    return ks_fail(error, status,
                   "parameter '%s' has invalid type. It should be either 'int', 'double', 'bool', or 'string'.",
                   ks_quoted(name, strlen(name)).text);
}

ks_status ks_param_read(const ks_param *param, const ks_param_value *value, const ks_param_owner *owner, ks_value *out,
                        ks_integers *lists, ks_error *error)
{
    char list[WANTED_MAX];
    const bool is_list = param->kind == KS_PARAM_LIST || param->kind == KS_PARAM_AXES;
    if (value->kind == KS_VALUE_OTHER || (value->kind == KS_VALUE_LIST && !is_list))
        return no_value(param->name, param->status, error);
    if (read_value(param, value, out, lists)) return KS_OK;
    return ks_fail(error, param->status, "parameter '%s' of %s '%s' must be %s, got '%s'", param->name, owner->of,
                   owner->name, wanted(param, list), ks_quoted(value->text, value->length).text);
}

static ks_status op_parameter(ks_codec *codec, int index, const ks_param_value *value, ks_error *error)
{
    const ks_model *model = codec->request.model;
    const ks_param *param = &model->op->params[index];
    ks_spec *spec = &codec->request.spec;
    const ks_param_owner owner = {"model", model->name};
    const ks_status status = ks_param_read(param, value, &owner, &spec->params[index], spec->lists, error);
    if (status != KS_OK) return status;
    const ks_fixed *fixed = ks_model_fixed(model, index);
    if (fixed && !is_fixed_value(spec, fixed))
        return ks_fail(error, KS_PARAMETER, "parameter '%s' is fixed in model '%s' and cannot be '%s'", param->name,
                       model->name, ks_quoted(value->text, value->length).text);
    return KS_OK;
}

static ks_status wrong_type(const char *name, const char *type, ks_error *error)
{
    return ks_fail(error, KS_PARAMETER, "Unable to parse '%s': attempt to access JSON non-%s as %s", name, type, type);
}

static bool read_unsigned(const ks_param_value *value, uint64_t *out)
{
    return numeric(value) && ks_number_read(value->text, value->length, KS_UINT64, out) == KS_NUMBER_OK;
}

/* Of models that have steps. */
static ks_status read_profile(ks_codec *codec, const ks_param_value *value, ks_error *error)
{
    uint64_t number = 0;
    if (read_bool(value, &codec->request.profile)) return KS_OK;
    if (!read_unsigned(value, &number) || number > 1)
        return ks_fail(error, KS_PARAMETER, "parameter 'profile' must be 0 or 1, got '%s'",
                       ks_quoted(value->text, value->length).text);
    codec->request.profile = number == 1;
    return KS_OK;
}

/* Those with a meaning in the protocol; *known is false for any other. */
static ks_status protocol_parameter(ks_codec *codec, const char *name, const ks_param_value *value, bool *known,
                                    ks_error *error)
{
    uint64_t number = 0;
    bool truth;
    *known = true;
    if (strcmp(name, "binary_data_output") == 0)
        return read_bool(value, &codec->all_binary) ? KS_OK : wrong_type(name, "boolean", error);
    if (strcmp(name, "priority") == 0)
        return read_unsigned(value, &codec->request.priority) ? KS_OK : wrong_type(name, "unsigned-integer", error);
    if (strcmp(name, "timeout") == 0) {
        if (!read_unsigned(value, &number)) return wrong_type(name, "unsigned-integer", error);
        /* Nanoseconds must fit an int64_t too. */
        codec->request.timeout_us = number < INT64_MAX / 1000 ? (int64_t)number : INT64_MAX / 1000;
        return KS_OK;
    }
    if (strcmp(name, "profile") == 0 && codec->request.model->op->chain) return read_profile(codec, value, error);
    if (strcmp(name, "sequence_id") == 0)
        return textual(value) || read_unsigned(value, &number) ? KS_OK : wrong_type(name, "unsigned-integer", error);
    if (strcmp(name, "sequence_start") == 0 || strcmp(name, "sequence_end") == 0)
        return read_bool(value, &truth) ? KS_OK : wrong_type(name, "boolean", error);
    if (strcmp(name, "headers") == 0) return KS_OK;
    if (strncmp(name, "triton_", 7) == 0)
        return ks_fail(
            error, KS_PARAMETER,
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.");
    *known = false;
    return KS_OK;
}

ks_status ks_codec_parameter(ks_codec *codec, const char *name, const ks_param_value *value, ks_error *error)
{
    const ks_op *op = codec->request.model->op;
    for (int i = 0; i < op->params_count; i++)
        if (strcmp(op->params[i].name, name) == 0) return op_parameter(codec, i, value, error);
    bool known;
    const ks_status status = protocol_parameter(codec, name, value, &known, error);
    if (status != KS_OK || known) return status;
    if (value->kind == KS_VALUE_OTHER || value->kind == KS_VALUE_LIST) return no_value(name, KS_PARAMETER, error);
    return ks_codec_unknown(codec, value->kind == KS_VALUE_QUERY ? KS_NAME_IN_QUERY : KS_NAME_IN_PARAMETERS, name,
                            error);
}
