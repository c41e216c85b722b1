/* Paths, methods and path parameters come from the route table; what a route takes and gives stands in the table below,
 * by its id. JSON is written here with ' for ", which no text of ours holds. */
#include "api/openapi.h"

#include <stdio.h>
#include <string.h>

#include "base/model.h"
#include "api/routes.h"
#include "codec/format.h"

typedef struct route_words {
    const char *name, *summary;
    const char *response; /* name of the schema of a 200; "": an empty body; NULL: see content_of */
    const char *request;  /* name of the schema of a POST's body; NULL: none is read */
} route_words;

static const route_words words[KS_ROUTES] = {
    [KS_ROUTE_INFER] = {"infer",
                        "Run one operation. The body is JSON, JSON with binary tensors behind it, bytes, npy or "
                        "safetensors; without JSON the query names shape, datatype and parameters.",
                        NULL, "InferRequest"},
    [KS_ROUTE_INDEX] = {"index", "Name, version and links", "Index", NULL},
    [KS_ROUTE_LIVE] = {"live", "The process serves", "Live", NULL},
    [KS_ROUTE_READY] = {"ready", "Inference requests are taken", "Ready", NULL},
    [KS_ROUTE_SERVER] = {"server_metadata", "Name, version and extensions of the protocol", "ServerMetadata", NULL},
    [KS_ROUTE_MODEL] = {"model_metadata", "Inputs and outputs", "ModelMetadata", NULL},
    [KS_ROUTE_MODEL_READY] = {"model_ready", "This model takes requests", "ModelReady", NULL},
    [KS_ROUTE_MODEL_CONFIG] = {"model_config", "Configuration as Triton has it", "Object", NULL},
    [KS_ROUTE_MODEL_STATS] = {"model_stats", "Statistics of one model", "Statistics", NULL},
    [KS_ROUTE_ALL_STATS] = {"all_stats", "Statistics of all models", "Statistics", NULL},
    [KS_ROUTE_PLAN] = {"plan",
                       "What was picked for a piece of work, which the query names as that of a raw request does",
                       "Object", NULL},
    [KS_ROUTE_METRICS] = {"metrics", "Metrics for Prometheus", NULL, NULL},
    [KS_ROUTE_REPOSITORY] = {"repository_index", "All models and their state", "RepositoryIndex", "RepositoryQuestion"},
    [KS_ROUTE_LOAD] = {"load", "Refused: the set of models is fixed", "", NULL},
    [KS_ROUTE_LOGGING] = {"logging", "Log settings", "LogSettings", "LogSettings"},
    [KS_ROUTE_TRACE] = {"trace", "Refused: tracing is not built in", "", NULL},
    [KS_ROUTE_REGIONS] = {"regions", "Registered shared memory", "Regions", NULL},
    [KS_ROUTE_REGISTER] = {"register", "Register shared memory", "", "Region"},
    [KS_ROUTE_UNREGISTER] = {"unregister", "Unregister shared memory", "", NULL},
    [KS_ROUTE_OPENAPI] = {"openapi", "This document", "Object", NULL},
};

static const char schemas[] =
    "'Object':{'type':'object'},"
    "'Error':{'type':'object','required':['error'],'properties':{'error':{'type':'string'}},'additionalProperties':"
    "false},"
    "'Index':{'type':'object','required':['name','version','links']},"
    "'Live':{'type':'object','required':['live'],'properties':{'live':{'type':'boolean'}}},"
    "'Ready':{'type':'object','required':['live','ready'],'properties':{'live':{'type':'boolean'},"
    "'ready':{'type':'boolean'}}},"
    "'ModelReady':{'type':'object','required':['name','ready'],'properties':{'name':{'type':'string'},"
    "'ready':{'type':'boolean'}}},"
    "'ServerMetadata':{'type':'object','required':['name','version','extensions'],'properties':{'name':{'type':'string'"
    "},"
    "'version':{'type':'string'},'extensions':{'type':'array','items':{'type':'string'}}}},"
    "'TensorMetadata':{'type':'object','required':['name','datatype','shape'],'properties':{'name':{'type':'string'},"
    "'datatype':{'$ref':'#/components/schemas/"
    "Datatype'},'shape':{'type':'array','items':{'type':'integer','minimum':-1}}}},"
    "'ModelMetadata':{'type':'object','required':['name','versions','platform','inputs','outputs'],'properties':{"
    "'name':{'type':'string'},'versions':{'type':'array','items':{'type':'string'}},'platform':{'type':'string'},"
    "'inputs':{'type':'array','items':{'$ref':'#/components/schemas/TensorMetadata'}},"
    "'outputs':{'type':'array','items':{'$ref':'#/components/schemas/TensorMetadata'}}}},"
    "'Statistics':{'type':'object','required':['model_stats'],'properties':{'model_stats':{'type':'array','items':{"
    "'type':'object','required':['name','version','last_inference','inference_count','execution_count','inference_"
    "stats',"
    "'batch_stats']}}}},"
    "'RepositoryQuestion':{'type':'object','properties':{'ready':{'type':['boolean','null']}}},"
    "'RepositoryIndex':{'type':'array','items':{'type':'object','required':['name','version','state','reason'],"
    "'properties':{'state':{'enum':['READY','UNAVAILABLE']}}}},"
    "'LogSettings':{'type':'object','properties':{'log_info':{'type':['boolean','null']},'log_warning':{'type':['"
    "boolean',"
    "'null']},'log_error':{'type':['boolean','null']},'log_verbose_level':{'type':['integer','null'],'minimum':0,"
    "'maximum':18446744073709551615},'log_format':{'enum':['default','ISO8601',null]}}},"
    "'Region':{'type':'object','required':['byte_size'],'properties':{'key':{'type':'string'},'offset':{'type':'"
    "integer',"
    "'minimum':0},'byte_size':{'type':'integer','minimum':1},'device_id':{'type':'integer','minimum':0},'raw_handle':{"
    "'type':'object','required':['b64'],'properties':{'b64':{'type':'string'}}}}},"
    "'Regions':{'type':'array','items':{'type':'object','required':['name','byte_size']}},"
    "'Datatype':{'enum':['BOOL','UINT8','UINT16','UINT32','UINT64','INT8','INT16','INT32','INT64','FP16','BF16','FP32',"
    "'FP64','BYTES']},"
    "'InferInput':{'type':'object','required':['name','shape','datatype'],'properties':{'name':{'type':'string'},"
    "'shape':{'type':'array','maxItems':8,'items':{'type':'integer','minimum':0}},"
    "'datatype':{'$ref':'#/components/schemas/Datatype'},'data':{'type':'array'},'parameters':{'type':'object'}}},"
    "'InferOutput':{'type':'object','required':['name'],'properties':{'name':{'type':'string'},"
    "'parameters':{'type':'object'}}},"
    "'InferRequest':{'type':'object','required':['inputs'],'properties':{'id':{'type':'string'},"
    "'parameters':{'type':'object'},'inputs':{'type':'array','items':{'$ref':'#/components/schemas/InferInput'}},"
    "'outputs':{'type':'array','items':{'$ref':'#/components/schemas/InferOutput'}}}},"
    "'InferAnswer':{'type':'object','required':['model_name','model_version','outputs'],'properties':{'id':{"
    "'type':'string'},'model_name':{'type':'string'},'model_version':{'type':'string'},'outputs':{'type':'array','"
    "items':{"
    "'type':'object','required':['name','datatype','shape']}}}}";

static const char error_response[] = "'default':{'description':'What is wrong, in one "
                                     "sentence','headers':{'Kernserve-Error':{'description':'The reason as a "
                                     "code','schema':{'type':'string'}}},'content':{'application/"
                                     "json':{'schema':{'$ref':'#/components/schemas/Error'}}}}";

static void put(ks_text *out, const char *text)
{
    const size_t n = strlen(text);
    char *const room = ks_text_room(out, n);
    if (!room) return;
    for (size_t i = 0; i < n; i++) room[i] = text[i] == '\'' ? '"' : text[i];
    out->length += n;
}

/* Bodies that are no JSON. */
static void put_files(ks_text *out)
{
    put(out, ",'application/octet-stream':{}");
    for (const ks_format *const *format = ks_formats; *format; format++)
        ks_text_printf(out, ",\"%s\":{}", (*format)->content_type);
}

static void put_schema(ks_text *out, const char *name)
{
    put(out, "'application/json':{'schema':{'$ref':'#/components/schemas/");
    put(out, name);
    put(out, "'}}");
}

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

static void put_parameters(ks_text *out, const char *pattern)
{
    bool first = true;
    put(out, "'parameters':[");
    for (; *pattern; pattern += strspn(pattern, "/")) {
        const size_t length = strcspn(pattern, "/");
        const char *const parameter = parameter_of(pattern, length);
        pattern += length;
        if (!parameter) continue;
        if (!first) put(out, ",");
        first = false;
        put(out, "{'$ref':'#/components/parameters/");
        put(out, parameter);
        put(out, "'}");
    }
    put(out, "],");
}

static void put_response(ks_text *out, const ks_route_row *row, const route_words *w)
{
    put(out, "'responses':{'200':{'description':'Done'");
    if (row->id == KS_ROUTE_INFER) {
        put(out, ",'content':{");
        put_schema(out, "InferAnswer");
        put_files(out);
        put(out, "}");
    } else if (row->id == KS_ROUTE_METRICS) {
        put(out, ",'content':{'text/plain':{},'application/openmetrics-text':{}}");
    } else if (*w->response) {
        put(out, ",'content':{");
        put_schema(out, w->response);
        put(out, "}");
    }
    put(out, "},");
    put(out, error_response);
    put(out, "}");
}

static void put_operation(ks_text *out, const ks_route_row *row, const char *method, int number)
{
    const route_words *w = &words[row->id];
    ks_text_printf(out, "\"%s\":{\"operationId\":\"%s_%s_%d\",\"summary\":\"%s\",", method, method, w->name, number,
                   w->summary);
    if (w->request && strcmp(method, "post") == 0) {
        put(out, "'requestBody':{'content':{");
        put_schema(out, w->request);
        if (row->id == KS_ROUTE_INFER) put_files(out);
        put(out, row->id == KS_ROUTE_REPOSITORY || row->id == KS_ROUTE_LOGGING ? "}}," : "},'required':true},");
    }
    put_response(out, row, w);
    ks_text_puts(out, "}");
}

static void put_paths(ks_text *out)
{
    ks_route_row row;
    const char *separator = "";
    put(out, "'paths':{");
    for (int i = 0; ks_route_at(i, &row); i++) {
        if (!row.data) continue;
        ks_text_puts(out, separator);
        separator = ",";
        put_path(out, row.path);
        put_parameters(out, row.path);
        if (row.reads) put_operation(out, &row, "get", i);
        if (row.reads && row.works) ks_text_puts(out, ",");
        if (row.works) put_operation(out, &row, "post", i);
        ks_text_puts(out, "}");
    }
    put(out, "},");
}

void ks_openapi_write(ks_text *out, const char *version)
{
    put(out,
        "{'openapi':'3.1.0','info':{'title':'kernserve','summary':'CUDA kernels over HTTP: Open Inference Protocol v2 "
        "with binary tensors','version':'");
    put(out, version);
    put(out, "'},");
    put_paths(out);
    put(out, "'components':{'parameters':{'model':{'name':'model','in':'path','required':true,'schema':{'enum':[");
    for (int i = 0; i < ks_model_count(); i++) ks_text_printf(out, "%s\"%s\"", i > 0 ? "," : "", ks_model_at(i)->name);
    put(out,
        "]}},'version':{'name':'version','in':'path','required':true,'schema':{'enum':['1']}},'name':{'name':'name',"
        "'in':'path','required':true,'schema':{'type':'string','pattern':'^[ -.0-~]{1,128}$'}}},'schemas':{");
    put(out, schemas);
    put(out, "}}}");
}
