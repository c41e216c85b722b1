#include "engine/tune/warm.h"

#include <stdlib.h>
#include <string.h>

#include "base/model.h"

static bool read_dims(const char *text, size_t length, ks_tensor *tensor)
{
    const char *end = text + length;
    tensor->rank = 0;
    while (text < end) {
        char *stop = NULL;
        if (*text < '0' || *text > '9' || tensor->rank == KS_RANK_MAX) return false;
        tensor->dims[tensor->rank++] = strtoll(text, &stop, 10);
        text = stop;
        if (text < end && (*text++ != ',' || text == end)) return false;
    }
    return tensor->rank > 0;
}

/* Numbers, words and truth; axes are for requests. */
static bool read_value(const ks_param *param, const char *text, size_t length, ks_value *out)
{
    char copy[32], *end = copy;
    if (length == 0 || length >= sizeof copy) return false;
    memcpy(copy, text, length);
    copy[length] = 0;
    memset(out, 0, sizeof *out);
    switch (param->kind) {
    case KS_PARAM_CHOICE:
        while (param->choices[out->i] && strcmp(param->choices[out->i], copy) != 0) out->i++;
        return param->choices[out->i] != NULL;
    case KS_PARAM_BOOL:
        out->i = strcmp(copy, "1") == 0 || strcmp(copy, "true") == 0;
        return out->i || strcmp(copy, "0") == 0 || strcmp(copy, "false") == 0;
    case KS_PARAM_NUMBER:
        out->d = strtod(copy, &end);
        return !*end;
    case KS_PARAM_INT:
        out->i = strtoll(copy, &end, 10);
        return !*end;
    default:
        return false;
    }
}

/* NAME=VALUE, parted by '&'. */
static bool read_params(const char *text, ks_spec *spec)
{
    while (*text) {
        const size_t length = strcspn(text, "&"), name = strcspn(text, "=");
        int i = 0;
        while (i < spec->op->params_count &&
               (strlen(spec->op->params[i].name) != name || memcmp(spec->op->params[i].name, text, name) != 0))
            i++;
        if (name >= length || i == spec->op->params_count ||
            !read_value(&spec->op->params[i], text + name + 1, length - name - 1, &spec->params[i]))
            return false;
        text += length + (text[length] == '&');
    }
    return true;
}

/* Parted by commas: one for all inputs, or one for each in the order of their shapes. */
static bool read_dtypes(const char *text, const char *end, const int *order, int count, ks_spec *spec)
{
    const char *at = text;
    size_t length = 0;
    for (int i = 0; i < count; i++) {
        length = strcspn(at, ",?");
        if (!ks_dtype_find(at, length, &spec->in[order[i]].dtype)) return false;
        if (i + 1 == count) break;
        if (at[length] == ',')
            at += length + 1;
        else if (at != text)
            return false;
    }
    return at + length == end;
}

/* The parts between colons: model, one shape or one for each input, datatypes; then the parameters. */
static ks_status read_parts(const char *option, const char *text, ks_spec *spec, const ks_model **model,
                            ks_error *error)
{
    const char *const end = strchrnul(text, '?'), *colon = text + strcspn(text, ":?");
    *model = ks_model_find(text, (size_t)(colon - text));
    if (*model == NULL) return ks_fail(error, KS_CONFIG, "%s %s: no such model", option, text);
    ks_spec_init(spec, (*model)->op);
    /* Shapes are those of the inputs that the metadata declares, and then of the others. */
    unsigned left = (*model)->declared, others = ((1u << spec->op->inputs_count) - 1) & ~left;
    const int required = __builtin_popcount(left);
    int order[KS_INPUTS_MAX], count = 0;
    for (; left || (others && *colon == ':' && colon[1] >= '0' && colon[1] <= '9'); count++) {
        if (*colon != ':')
            return ks_fail(error, KS_CONFIG, "%s %s: model %s needs %d shapes", option, text, (*model)->name, required);
        unsigned *from = left ? &left : &others;
        const int input = __builtin_ctz(*from);
        const char *shape = colon + 1;
        *from &= *from - 1;
        colon = shape + strcspn(shape, ":?");
        memset(&spec->in[input], 0, sizeof spec->in[input]);
        if (!read_dims(shape, (size_t)(colon - shape), &spec->in[input]))
            return ks_fail(error, KS_CONFIG, "%s %s: shape %d is not like 64,1024", option, text, count + 1);
        spec->in[input].dtype = ks_model_dtype(*model, input);
        spec->given |= (uint16_t)(1u << input);
        order[count] = input;
    }
    if (*colon == ':' && !read_dtypes(colon + 1, end, order, count, spec))
        return ks_fail(error, KS_CONFIG, "%s %s: no such datatype, or not one for each shape", option, text);
    if (*end && !read_params(end + 1, spec))
        return ks_fail(error, KS_CONFIG, "%s %s: a parameter is none of %s's, or has no such value", option, text,
                       spec->op->name);
    return KS_OK;
}

ks_status ks_warm_spec(const char *option, const char *text, ks_spec *spec, ks_error *error)
{
    const ks_model *model = NULL;
    ks_status status = read_parts(option, text, spec, &model, error);
    if (status != KS_OK) return status;
    ks_model_fix(model, spec);
    for (int i = ks_next_input(spec, -1); i >= 0 && status == KS_OK; i = ks_next_input(spec, i))
        status = ks_tensor_measure(&spec->in[i], option, error);
    ks_error why = {0};
    if (status == KS_OK) status = spec->op->resolve(spec, &why);
    if (status != KS_OK) return ks_fail(error, KS_CONFIG, "%s %s: %s", option, text, why.text);
    ks_spec_layout(spec);
    return KS_OK;
}
