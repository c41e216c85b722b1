/* Documents of the GET endpoints, compact JSON, members in the order that Triton has. Texts are marked broken where memory
 * fails; the caller looks once, at the end. Names of models and tensors are ours and need no escape. */
#include "api/metadata.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void ks_document_server_metadata(ks_text *out, const char *name, const char *version, bool shm, bool cuda_shm,
                                 bool tensors)
{
    ks_text_puts(out, "{\"name\":");
    ks_text_json(out, name, strlen(name));
    ks_text_puts(out, ",\"version\":");
    ks_text_json(out, version, strlen(version));
    ks_text_puts(out,
                 ",\"extensions\":[\"classification\",\"model_repository\",\"schedule_policy\",\"model_configuration\","
                 "\"binary_tensor_data\",\"parameters\",\"statistics\",\"logging\"");
    if (shm) ks_text_puts(out, ",\"system_shared_memory\"");
    if (cuda_shm) ks_text_puts(out, ",\"cuda_shared_memory\"");
    if (tensors) ks_text_puts(out, ",\"kernserve_tensors\"");
    ks_text_puts(out, "]}");
}

/* [-1,-1], or the dimensions that a model declares; without the first one where that is the batch. */
static void put_shape(ks_text *out, int rank, int64_t (*dims)[KS_RANK_MAX], int tensor, bool batch)
{
    ks_text_puts(out, "[");
    for (int i = batch; i < rank; i++)
        ks_text_printf(out, "%s%" PRId64, i > batch ? "," : "", dims ? dims[tensor][i] : -1);
    ks_text_puts(out, "]");
}

static void metadata_name(ks_text *out, const char *name, ks_dtype dtype)
{
    ks_text_printf(out, "{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":", name, ks_dtype_name(dtype));
}

static void compat_dims(ks_text *out, const ks_compat *compat, bool batch)
{
    ks_text_printf(out, "[%s%" PRId64 "]", batch && compat->max_batch > 0 ? "-1," : "", compat->dim);
}

static void compat_metadata(ks_text *out, const ks_model *model)
{
    ks_text_printf(out, "{\"name\":\"%s\",\"versions\":[\"1\"],\"platform\":\"compat\"", model->name);
    for (int side = 0; side < 2; side++) {
        ks_text_printf(out, ",\"%s\":[", side ? "outputs" : "inputs");
        for (int i = 0; i < model->compat->tensors; i++) {
            ks_text_printf(out, "%s{\"name\":\"%s%d\",\"datatype\":\"%s\",\"shape\":", i > 0 ? "," : "",
                           side ? "OUTPUT" : "INPUT", i, ks_dtype_name(model->dtype));
            compat_dims(out, model->compat, true);
            ks_text_puts(out, "}");
        }
        ks_text_puts(out, "]");
    }
    ks_text_puts(out, "}");
}

/* Required inputs, and those that a preset is for: metadata has no word for an optional one, and clients send all that it names. */
void ks_document_model_metadata(ks_text *out, const ks_model *model)
{
    if (model->compat) {
        compat_metadata(out, model);
        return;
    }
    ks_text_printf(out, "{\"name\":\"%s\",\"versions\":[\"1\"],\"platform\":\"%s\",\"inputs\":[", model->name,
                   model->definition ? "kernserve_graph" : "cuda_kernels");
    const char *separator = "";
    for (int i = 0; i < model->op->inputs_count; i++) {
        const ks_input *row = &model->op->inputs[i];
        if (!(model->declared >> i & 1)) continue;
        ks_text_puts(out, separator);
        metadata_name(out, row->name, ks_model_dtype(model, i));
        put_shape(out, model->in_rank[i], model->in_dims, i, false);
        ks_text_puts(out, "}");
        separator = ",";
    }
    ks_text_puts(out, "],\"outputs\":[");
    for (int i = 0; i < model->outputs; i++) {
        if (i > 0) ks_text_puts(out, ",");
        metadata_name(out, ks_op_output(model->op, i), model->out_dtype[i]);
        put_shape(out, model->out_rank[i], model->out_dims, i, false);
        ks_text_puts(out, "}");
    }
    ks_text_puts(out, "]}");
}

static const char *config_type(ks_dtype dtype)
{
    return dtype == KS_BYTES ? "STRING" : ks_dtype_name(dtype);
}

static void compat_config(ks_text *out, const ks_model *model)
{
    ks_text_printf(out,
                   "{\"name\":\"%s\",\"platform\":\"\",\"backend\":\"compat\",\"version_policy\":{\"latest\":"
                   "{\"num_versions\":1}},\"max_batch_size\":%d",
                   model->name, model->compat->max_batch);
    for (int side = 0; side < 2; side++) {
        ks_text_printf(out, ",\"%s\":[", side ? "output" : "input");
        for (int i = 0; i < model->compat->tensors; i++) {
            ks_text_printf(out, "%s{\"name\":\"%s%d\",\"data_type\":\"TYPE_%s\",\"dims\":", i > 0 ? "," : "",
                           side ? "OUTPUT" : "INPUT", i, config_type(model->dtype));
            compat_dims(out, model->compat, false);
            ks_text_puts(out, ",\"is_shape_tensor\":false,\"optional\":false}");
        }
        ks_text_puts(out, "]");
    }
    ks_text_puts(out, ",\"parameters\":{},\"model_transaction_policy\":{\"decoupled\":false}}");
}

static void config_inputs(ks_text *out, const ks_model *model, bool declared)
{
    const char *separator = "";
    for (int i = 0; i < model->op->inputs_count; i++) {
        const ks_input *row = &model->op->inputs[i];
        if ((model->declared >> i & 1) != declared) continue;
        ks_text_printf(out,
                       "%s{\"name\":\"%s\",\"data_type\":\"TYPE_%s\",\"format\":\"FORMAT_NONE\",\"dims\":", separator,
                       row->name, config_type(ks_model_dtype(model, i)));
        put_shape(out, model->in_rank[i], model->in_dims, i, model->max_batch > 0);
        ks_text_printf(out, ",\"is_shape_tensor\":false,\"allow_ragged_batch\":false,\"optional\":%s}",
                       declared ? "false" : "true");
        separator = ",";
    }
}

static void config_outputs(ks_text *out, const ks_model *model)
{
    for (int i = 0; i < model->outputs; i++) {
        ks_text_printf(out, "%s{\"name\":\"%s\",\"data_type\":\"TYPE_%s\",\"dims\":", i > 0 ? "," : "",
                       ks_op_output(model->op, i), config_type(model->out_dtype[i]));
        put_shape(out, model->out_rank[i], model->out_dims, i, model->max_batch > 0);
        ks_text_puts(out, ",\"label_filename\":\"\",\"is_shape_tensor\":false}");
    }
}

/* Optional inputs are a list of their own: perf_analyzer ends where "input" names one that the metadata does not, and clients
 * send all that the metadata names. */
void ks_document_model_config(ks_text *out, const ks_model *model, bool gpu)
{
    if (model->compat) {
        compat_config(out, model);
        return;
    }
    ks_text_printf(out,
                   "{\"name\":\"%s\",\"platform\":\"\",\"backend\":\"%s\",\"version_policy\":{\"latest\":"
                   "{\"num_versions\":1}},\"max_batch_size\":%d,\"input\":[",
                   model->name, model->definition ? "kernserve" : "cuda_kernels", model->max_batch);
    config_inputs(out, model, true);
    ks_text_puts(out, "],\"output\":[");
    config_outputs(out, model);
    if (model->declared != (1u << model->op->inputs_count) - 1) {
        ks_text_puts(out, "],\"optional_input\":[");
        config_inputs(out, model, false);
    }
    ks_text_printf(out,
                   "],\"instance_group\":[{\"name\":\"%s_0\",\"kind\":\"%s\","
                   "\"count\":1,\"gpus\":[%s]}],\"parameters\":{},\"model_transaction_policy\":{\"decoupled\":false}}",
                   model->name, gpu ? "KIND_GPU" : "KIND_CPU", gpu ? "0" : "");
}

static void counter(ks_text *out, const char *name, uint64_t count, uint64_t ns)
{
    ks_text_printf(out, "\"%s\":{\"count\":%" PRIu64 ",\"ns\":%" PRIu64 "}", name, count, ns);
}

/* compute_input, compute_infer, compute_output: their counts must be equal at all times, or perf_analyzer stops. */
static void compute_counters(ks_text *out, const ks_model_stats *stats)
{
    counter(out, "compute_input", stats->success_count, stats->compute_input_ns);
    ks_text_puts(out, ",");
    counter(out, "compute_infer", stats->success_count, stats->compute_infer_ns);
    ks_text_puts(out, ",");
    counter(out, "compute_output", stats->success_count, stats->compute_output_ns);
}

/* Others' have their tenant in front: the name alone is another model's, or none's. */
static const char *listed_name(const ks_model *model, const char *tenant)
{
    return ks_model_is_of(model->label, tenant) ? model->name : model->label;
}

static void model_stats(ks_text *out, const char *name, const ks_model_stats *stats)
{
    ks_text_printf(out,
                   "{\"name\":\"%s\",\"version\":\"1\",\"last_inference\":%" PRId64 ",\"inference_count\":%" PRIu64
                   ",\"execution_count\":%" PRIu64 ",\"inference_stats\":{",
                   name, stats->last_inference_ms, stats->inference_count, stats->execution_count);
    counter(out, "success", stats->success_count, stats->success_ns);
    ks_text_puts(out, ",");
    counter(out, "fail", stats->fail_count, stats->fail_ns);
    ks_text_puts(out, ",");
    counter(out, "queue", stats->success_count, stats->queue_ns);
    ks_text_puts(out, ",");
    compute_counters(out, stats);
    ks_text_puts(out,
                 ",\"cache_hit\":{\"count\":0,\"ns\":0},\"cache_miss\":{\"count\":0,\"ns\":0}},\"response_stats\":{},"
                 "\"batch_stats\":[");
    if (stats->success_count > 0) {
        ks_text_puts(out, "{\"batch_size\":1,");
        compute_counters(out, stats);
        ks_text_puts(out, "}");
    }
    ks_text_puts(out, "],\"memory_usage\":[]}");
}

void ks_document_stats(ks_text *out, const ks_model *const *models, const ks_model_stats *stats, int count,
                       const char *tenant)
{
    ks_text_puts(out, "{\"model_stats\":[");
    for (int i = 0; i < count; i++) {
        if (i > 0) ks_text_puts(out, ",");
        model_stats(out, listed_name(models[i], tenant), &stats[i]);
    }
    ks_text_puts(out, "]}");
}

static void put_state(ks_text *out, const char *name, const char *state, const char *reason)
{
    ks_text_printf(out, "%s{\"name\":\"%s\",\"version\":\"1\",\"state\":\"%s\",\"reason\":", out->length > 1 ? "," : "",
                   name, state);
    ks_text_json(out, reason, strlen(reason));
    ks_text_puts(out, "}");
}

/* Models of the repository that have never been loaded. */
static void put_notes(ks_text *out, ks_models *models)
{
    char name[KS_MODEL_NAME_MAX], reason[KS_MODEL_NOTE_MAX];
    for (int i = 0; models && ks_models_note_at(models, i, name); i++)
        if (!ks_model_is_known(name, strlen(name)) && ks_models_reason(models, name, reason))
            put_state(out, name, "UNAVAILABLE", reason);
}

/* The protocol's words. */
static const char *state_of(const char *name, bool ready, bool unloaded)
{
    if (unloaded && ks_model_is_loading(name, strlen(name))) return "LOADING";
    return ready && !unloaded ? "READY" : "UNAVAILABLE";
}

bool ks_document_lists(const ks_model *model, const ks_listing *listing)
{
    return listing->sees_all || ks_model_is_of(model->label, "") || ks_model_is_of(model->label, listing->tenant);
}

void ks_document_repository(ks_text *out, ks_models *models, const ks_listing *listing)
{
    ks_text_puts(out, "[");
    for (int i = 0; i < ks_model_count(); i++) {
        const ks_model *model = ks_model_at(i);
        const bool unloaded = ks_model_is_loadable(i) && !ks_model_current(i);
        char reason[KS_MODEL_NOTE_MAX] = "";
        if ((unloaded && listing->only_ready) || !ks_document_lists(model, listing)) continue;
        if (unloaded && !(models && ks_models_reason(models, model->label, reason)))
            snprintf(reason, sizeof reason, "unloaded");
        if (!listing->ready && !unloaded) snprintf(reason, sizeof reason, "Server not ready");
        put_state(out, listed_name(model, listing->tenant), state_of(model->label, listing->ready, unloaded), reason);
    }
    if (!listing->only_ready) put_notes(out, models);
    ks_text_puts(out, "]");
}

void ks_document_error(ks_text *out, const char *sentence)
{
    const size_t n = strlen(sentence);
    ks_text valid;
    ks_text_init(&valid, 3 * n + 1);
    /* Names of the client's may be in it, of any bytes, and one cut amid a character. */
    for (size_t i = 0, length; i < n; i += length ? length : 1) {
        length = ks_utf8_length(sentence + i, n - i);
        ks_text_add(&valid, length ? sentence + i : "\xef\xbf\xbd", length ? length : 3);
    }
    ks_text_puts(out, "{\"error\":");
    ks_text_json(out, valid.bytes ? valid.bytes : "", valid.length);
    ks_text_puts(out, "}");
    out->broken |= valid.broken;
    ks_text_fini(&valid);
}
