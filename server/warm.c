#include "warm.h"

#include <stdlib.h>
#include <string.h>

#include "model.h"

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

/* The parts between colons: model, one shape or one for each input, datatype. */
static ks_status read_parts(const char *text, ks_spec *spec, const ks_model **model, ks_error *error)
{
    const char *colon = strchrnul(text, ':');
    *model = ks_model_find(text, (size_t)(colon - text));
    if (*model == NULL) return ks_fail(error, KS_CONFIG, "--warm %s: no such model", text);
    ks_spec_init(spec, (*model)->op);
    for (int i = 0; i < spec->inputs; i++) {
        if (*colon == '\0')
            return ks_fail(error, KS_CONFIG, "--warm %s: model %s needs %d shapes", text, (*model)->name, spec->inputs);
        const char *shape = colon + 1;
        colon = strchrnul(shape, ':');
        if (!read_dims(shape, (size_t)(colon - shape), &spec->in[i]))
            return ks_fail(error, KS_CONFIG, "--warm %s: shape %d is not like 64,1024", text, i + 1);
    }
    ks_dtype dtype = (*model)->dtype;
    if (*colon && !ks_dtype_find(colon + 1, strlen(colon + 1), &dtype))
        return ks_fail(error, KS_CONFIG, "--warm %s: no such datatype", text);
    for (int i = 0; i < spec->inputs; i++) spec->in[i].dtype = dtype;
    return KS_OK;
}

ks_status ks_warm_spec(const char *text, ks_spec *spec, ks_error *error)
{
    const ks_model *model = NULL;
    ks_status status = read_parts(text, spec, &model, error);
    if (status != KS_OK) return status;
    if (model->fixed_param >= 0) spec->params[model->fixed_param] = model->fixed_value;
    for (int i = 0; i < spec->inputs && status == KS_OK; i++) status = ks_tensor_measure(&spec->in[i], "--warm", error);
    ks_error why = {0};
    if (status == KS_OK) status = spec->op->resolve(spec, &why);
    if (status != KS_OK) return ks_fail(error, KS_CONFIG, "--warm %s: %s", text, why.text);
    ks_spec_layout(spec);
    return KS_OK;
}
