/* Documents of the GET endpoints, compact JSON, members in protocol.md's order. Texts are marked broken where memory
 * fails; the caller looks once, at the end. Names of models and tensors are ours and need no escape. */
#include <inttypes.h>
#include <string.h>

#include "metrics.h"
#include "oip_parts.h"
#include "text.h"

void ks_oip_server_metadata(ks_text *out, const char *name, const char *version)
{
    ks_text_puts(out, "{\"name\":");
    ks_text_json(out, name, strlen(name));
    ks_text_puts(out, ",\"version\":");
    ks_text_json(out, version, strlen(version));
    ks_text_puts(out,
                 ",\"extensions\":[\"model_configuration\",\"binary_tensor_data\",\"parameters\",\"statistics\"]}");
}

/* [-1,-1] */
static void any_shape(ks_text *out, int rank)
{
    ks_text_puts(out, "[");
    for (int i = 0; i < rank; i++) ks_text_puts(out, i > 0 ? ",-1" : "-1");
    ks_text_puts(out, "]");
}

static void metadata_tensor(ks_text *out, const char *name, ks_dtype dtype, int rank)
{
    ks_text_printf(out, "{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":", name, ks_dtype_name(dtype));
    any_shape(out, rank);
    ks_text_puts(out, "}");
}

/* Required inputs only, as in the configuration: metadata has no word for an optional one, and clients send all that it
 * names. */
void ks_oip_model_metadata(ks_text *out, const ks_model *model)
{
    ks_text_printf(out, "{\"name\":\"%s\",\"versions\":[\"1\"],\"platform\":\"cuda_kernels\",\"inputs\":[",
                   model->name);
    for (int i = 0; i < model->op->inputs_least; i++) {
        if (i > 0) ks_text_puts(out, ",");
        metadata_tensor(out, ks_oip_input_name(i), model->dtype, model->in_rank);
    }
    ks_text_puts(out, "],\"outputs\":[");
    metadata_tensor(out, "OUTPUT0", model->out_dtype, model->out_rank);
    ks_text_puts(out, "]}");
}

static const char *config_type(ks_dtype dtype)
{
    return dtype == KS_BYTES ? "STRING" : ks_dtype_name(dtype);
}

void ks_oip_model_config(ks_text *out, const ks_model *model, bool gpu)
{
    ks_text_printf(out,
                   "{\"name\":\"%s\",\"platform\":\"\",\"backend\":\"cuda_kernels\",\"version_policy\":{\"latest\":"
                   "{\"num_versions\":1}},\"max_batch_size\":0,\"input\":[",
                   model->name);
    for (int i = 0; i < model->op->inputs_least; i++) {
        ks_text_printf(out, "%s{\"name\":\"%s\",\"data_type\":\"TYPE_%s\",\"format\":\"FORMAT_NONE\",\"dims\":",
                       i > 0 ? "," : "", ks_oip_input_name(i), config_type(model->dtype));
        any_shape(out, model->in_rank);
        ks_text_puts(out, ",\"is_shape_tensor\":false,\"allow_ragged_batch\":false,\"optional\":false}");
    }
    ks_text_printf(
        out, "],\"output\":[{\"name\":\"OUTPUT0\",\"data_type\":\"TYPE_%s\",\"dims\":", config_type(model->out_dtype));
    any_shape(out, model->out_rank);
    ks_text_printf(
        out,
        ",\"label_filename\":\"\",\"is_shape_tensor\":false}],\"instance_group\":[{\"name\":\"%s_0\",\"kind\":\"%s\","
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

static void model_stats(ks_text *out, const ks_model *model, const ks_model_stats *stats)
{
    ks_text_printf(out,
                   "{\"name\":\"%s\",\"version\":\"1\",\"last_inference\":%" PRId64 ",\"inference_count\":%" PRIu64
                   ",\"execution_count\":%" PRIu64 ",\"inference_stats\":{",
                   model->name, stats->last_inference_ms, stats->inference_count, stats->execution_count);
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

void ks_oip_stats(ks_text *out, const ks_model *const *models, const ks_model_stats *stats, int count)
{
    ks_text_puts(out, "{\"model_stats\":[");
    for (int i = 0; i < count; i++) {
        if (i > 0) ks_text_puts(out, ",");
        model_stats(out, models[i], &stats[i]);
    }
    ks_text_puts(out, "]}");
}

void ks_oip_error(ks_text *out, const char *sentence)
{
    ks_text_puts(out, "{\"error\":");
    ks_text_json(out, sentence, strlen(sentence));
    ks_text_puts(out, "}");
}
