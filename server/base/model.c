#include "base/model.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Of each axis of the work that declares outputs: a preset may need as many elements along one. */
enum { DECLARED_EXTENT = 64 };

static ks_model models[KS_MODELS_MAX];
static _Atomic int models_count; /* a place is complete before it counts */
static _Atomic(const ks_model *) loaded[KS_MODELS_MAX];
static _Atomic uint64_t epoch;

ks_dtype ks_model_dtype(const ks_model *model, int input)
{
    if (input == 0 && model->first) return (ks_dtype)__builtin_ctz(model->first);
    const uint32_t dtypes = ks_op_dtypes(model->op, input);
    return !dtypes || dtypes & KS_DTYPE_BIT(model->dtype) ? model->dtype : (ks_dtype)__builtin_ctz(dtypes);
}

const ks_fixed *ks_model_fixed(const ks_model *model, int param)
{
    for (int i = 0; i < model->fixed_count; i++)
        if (model->fixed[i].param == param) return &model->fixed[i];
    return NULL;
}

void ks_model_fix(const ks_model *model, ks_spec *spec)
{
    for (int i = 0; i < model->fixed_count; i++) {
        const ks_fixed *fixed = &model->fixed[i];
        if (fixed->list)
            *ks_spec_list(spec, fixed->param) = *fixed->list;
        else
            spec->params[fixed->param] = fixed->value;
    }
}

/* Of parameters that have to be given: as the op's sample has them. */
static ks_status resolve_as_sample(const ks_model *model, ks_spec *spec, ks_error *error)
{
    ks_spec sample;
    model->op->sample(&sample);
    ks_params_copy(model->op, spec->params, spec->lists, sample.params, sample.lists);
    ks_model_fix(model, spec);
    return model->op->resolve(spec, error);
}

/* What the metadata declares for the outputs: resolve's own verdict on a small piece of work of the declared datatypes
 * and ranks. Its failure is a mistake in a descriptor, not an operating error. */
static void declare_outputs(ks_model *model)
{
    ks_spec spec;
    ks_spec_init(&spec, model->op);
    ks_model_fix(model, &spec);
    spec.given = model->declared;
    ks_error error = {0};
    for (int i = ks_next_input(&spec, -1); i >= 0; i = ks_next_input(&spec, i)) {
        ks_tensor *in = &spec.in[i];
        *in = (ks_tensor){.dtype = ks_model_dtype(model, i), .rank = model->in_rank[i]};
        for (int axis = 0; axis < in->rank; axis++) in->dims[axis] = DECLARED_EXTENT;
        if (ks_tensor_measure(in, model->op->inputs[i].name, &error) != KS_OK)
            assert(0 && "a declared input is not measurable");
    }
    ks_spec_layout(&spec);
    if (model->op->resolve(&spec, &error) != KS_OK && resolve_as_sample(model, &spec, &error) != KS_OK) {
        fprintf(stderr, "model %s does not resolve: %s\n", model->name, error.text);
        assert(0 && "a descriptor's declared input must resolve");
    }
    assert(spec.outputs >= 1 && spec.outputs <= KS_OUTPUTS_MAX);
    model->outputs = spec.outputs;
    model->outputs_max = model->op->outputs_max > spec.outputs ? model->op->outputs_max : spec.outputs;
    for (int i = 0; i < spec.outputs; i++) {
        model->out_dtype[i] = spec.out[i].dtype;
        if (i > 0) model->out_rank[i] = spec.out[i].rank;
    }
}

static void declare_inputs(ks_model *model, int rank)
{
    for (int i = 0; i < model->op->inputs_count; i++) {
        const ks_input *row = &model->op->inputs[i];
        const int wanted = row->rank ? row->rank : rank;
        model->in_rank[i] = wanted < row->rank_min ? row->rank_min : wanted > row->rank_max ? row->rank_max : wanted;
    }
}

/* NAME, NAME_FIRST, NAME_SECOND or NAME_FIRST_SECOND. */
static ks_model *add_model(const ks_op *op, const char *first, const char *second, ks_dtype dtype)
{
    assert(models_count < KS_MODELS_MAX);
    ks_model *model = &models[models_count];
    *model = (ks_model){
        .index = models_count, .op = op, .dtype = dtype, .out_rank = {op->out_rank}, .declared = ks_op_required(op)};
    declare_inputs(model, op->in_rank);
    const int n = snprintf(model->name, sizeof model->name, "%s%s%s%s%s", op->name, first ? "_" : "",
                           first ? first : "", second ? "_" : "", second ? second : "");
    assert(n > 0 && (size_t)n < sizeof model->name);
    assert(!ks_model_find(model->name, strlen(model->name)));
    memcpy(model->label, model->name, sizeof model->name);
    memcpy(model->series, model->name, sizeof model->name);
    models_count++;
    return model;
}

static void fix(ks_model *model, const ks_fixed *fixed)
{
    assert(model->fixed_count < KS_FIXED_MAX);
    model->fixed[model->fixed_count++] = *fixed;
}

static void add_preset(const ks_op *op, const ks_preset *preset, const char *suffix, ks_dtype dtype)
{
    ks_model *model = add_model(op, preset->suffix, suffix, dtype);
    if (preset->param >= 0) fix(model, &(ks_fixed){preset->param, preset->value, preset->list});
    for (int i = 0; i < preset->more_count; i++) fix(model, &preset->more[i]);
    model->declared |= preset->inputs;
    model->first = preset->first;
    if (preset->in_rank) declare_inputs(model, preset->in_rank);
    if (preset->out_rank) model->out_rank[0] = preset->out_rank < 0 ? 0 : preset->out_rank; /* -1: a scalar */
    declare_outputs(model);
}

void ks_models_add(const ks_op *op)
{
    static const struct {
        const char *suffix;
        ks_dtype dtype;
    } declared[] = {{NULL, KS_FP32}, {"fp16", KS_FP16}, {"bf16", KS_BF16}, {"fp64", KS_FP64}};
    for (size_t i = 0; i < sizeof declared / sizeof declared[0]; i++) {
        if (!declared[i].suffix || op->inputs[0].dtypes & KS_DTYPE_BIT(declared[i].dtype))
            declare_outputs(add_model(op, declared[i].suffix, NULL, declared[i].dtype));
    }
    for (int i = 0; i < op->presets_count; i++) {
        const ks_preset *preset = &op->presets[i];
        add_preset(op, preset, NULL, KS_FP32);
        if (!preset->narrow) continue;
        add_preset(op, preset, "fp16", KS_FP16);
        add_preset(op, preset, "bf16", KS_BF16);
    }
}

void ks_models_init(void)
{
    if (models_count) return; /* a test may ask twice */
    for (const ks_op *const *op = ks_ops; *op; op++) ks_models_add(*op);
}

/* --- compatibility models ------------------------------------------------------------------------------------------- */

/* ks_resolve_fn */
static ks_status resolve_nothing(ks_spec *spec, ks_error *error)
{
    (void)spec;
    return ks_fail(error, KS_NAME, "a compatibility model has no operation");
}

static const ks_op no_op = {.name = "compat", .resolve = resolve_nothing};

static const ks_compat compats[] = {
    {"simple", 2, 8, KS_INT32, 16},
    {"simple_identity", 1, 8, KS_BYTES, -1},
    {"simple_string", 2, 8, KS_BYTES, 16},
    {"identity_fp32", 1, 0, KS_FP32, -1},
};

void ks_models_add_compat(void)
{
    for (size_t i = 0; i < sizeof compats / sizeof compats[0]; i++) {
        assert(models_count < KS_MODELS_MAX);
        ks_model *model = &models[models_count];
        *model = (ks_model){.index = models_count, .op = &no_op, .dtype = compats[i].dtype, .compat = &compats[i]};
        snprintf(model->name, sizeof model->name, "%s", compats[i].name);
        memcpy(model->label, model->name, sizeof model->name);
        memcpy(model->series, model->name, sizeof model->name);
        models_count++;
    }
}

/* --- loaded models --------------------------------------------------------------------------------------------------- */

static int find_place(const char *label, size_t length)
{
    const int count = atomic_load_explicit(&models_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (strlen(models[i].label) == length && memcmp(models[i].label, label, length) == 0) return i;
    return -1;
}

void ks_model_label(const char *tenant, const char *name, char out[KS_MODEL_LABEL_MAX])
{
    snprintf(out, KS_MODEL_LABEL_MAX, "%s%s%s", tenant, tenant[0] ? "/" : "", name);
}

const char *ks_model_bare(const char *label)
{
    const char *slash = strrchr(label, '/');
    return slash ? slash + 1 : label;
}

bool ks_model_is_of(const char *label, const char *tenant)
{
    const size_t length = strlen(tenant), bare = (size_t)(ks_model_bare(label) - label);
    return length == 0 ? bare == 0 : bare == length + 1 && memcmp(label, tenant, length) == 0;
}

/* A name that is there for good is no tenant's to take. */
int ks_model_place(const char *label)
{
    const char *const name = ks_model_bare(label);
    const int found = find_place(label, strlen(label)), open = find_place(name, strlen(name));
    if (open >= 0 && !ks_model_is_loadable(open)) return -2;
    if (found >= 0) return found;
    if (models_count == KS_MODELS_MAX) return -1;
    const int index = models_count;
    models[index] = (ks_model){.index = index, .op = &no_op};
    snprintf(models[index].name, sizeof models[index].name, "%s", name);
    snprintf(models[index].label, sizeof models[index].label, "%s", label);
    if (name == label)
        memcpy(models[index].series, models[index].name, sizeof models[index].series);
    else
        snprintf(models[index].series, sizeof models[index].series, "tenant:%d", index); /* no name has a colon */
    atomic_store_explicit(&models_count, index + 1, memory_order_release);
    return index;
}

const ks_model *ks_model_publish(int index, const ks_model *model)
{
    assert(ks_model_is_loadable(index));
    /* In front: a request that finds the model forgets heads of one that lay at its address. Behind: routes found meanwhile are looked up again. */
    atomic_fetch_add(&epoch, 1);
    const ks_model *before = atomic_exchange(&loaded[index], model);
    atomic_fetch_add(&epoch, 1);
    return before;
}

uint64_t ks_model_epoch(void)
{
    return atomic_load_explicit(&epoch, memory_order_acquire);
}

bool ks_model_is_loadable(int index)
{
    return models[index].op == &no_op && !models[index].compat;
}

const ks_model *ks_model_current(int index)
{
    return atomic_load_explicit(&loaded[index], memory_order_acquire);
}

bool ks_model_is_known(const char *label, size_t length)
{
    return find_place(label, length) >= 0;
}

int ks_model_count(void)
{
    return atomic_load_explicit(&models_count, memory_order_acquire);
}

const ks_model *ks_model_at(int index)
{
    assert(index >= 0 && index < models_count);
    return &models[index];
}

const ks_model *ks_model_find(const char *name, size_t length)
{
    const int index = find_place(name, length);
    if (index < 0) return NULL;
    return ks_model_is_loadable(index) ? ks_model_current(index) : &models[index];
}

const ks_model *ks_model_find_own(const char *tenant, const char *name, size_t length)
{
    char label[KS_MODEL_LABEL_MAX];
    if (!tenant[0]) return ks_model_find(name, length);
    const int n = snprintf(label, sizeof label, "%s/%.*s", tenant, (int)length, name);
    return n > 0 && (size_t)n < sizeof label ? ks_model_find(label, (size_t)n) : NULL;
}

/* --- loads ---------------------------------------------------------------------------------------------------------- */

static pthread_mutex_t loads_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char label[KS_MODEL_LABEL_MAX];
    int count;               /* of that label */
} loads[KS_MODEL_LOADS_MAX]; /* under loads_lock */

/* With the lock: -1: none is loading. */
static int find_load(const char *label, size_t length)
{
    for (int i = 0; i < KS_MODEL_LOADS_MAX; i++)
        if (loads[i].count > 0 && strlen(loads[i].label) == length && memcmp(loads[i].label, label, length) == 0)
            return i;
    return -1;
}

void ks_model_loading(const char *label, int more)
{
    pthread_mutex_lock(&loads_lock);
    int i = find_load(label, strlen(label));
    if (i < 0) {
        i = 0;
        while (loads[i].count > 0) i++;
        snprintf(loads[i].label, sizeof loads[i].label, "%s", label);
    }
    loads[i].count += more;
    pthread_mutex_unlock(&loads_lock);
}

bool ks_model_is_loading(const char *label, size_t length)
{
    pthread_mutex_lock(&loads_lock);
    const bool found = find_load(label, length) >= 0;
    pthread_mutex_unlock(&loads_lock);
    return found;
}
