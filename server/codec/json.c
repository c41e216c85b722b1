/* The JSON of a request: checks the skeleton member by member, in the order in which Triton checks, so that the first
 * fault names the same thing. The scanner has already read tensor data to its place and knows shapes and datatypes.
 *
 * In the skeleton a number is a string with a mark in front and U+0000 is C0 80 (scan.h), so integers are read exactly,
 * from their text. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number/number.h"
#include "codec/codec_parts.h"

enum { OUTPUTS_MAX = 16 };

static bool is_number(const cJSON *item)
{
    return cJSON_IsString(item) && (unsigned char)item->valuestring[0] == KS_SCAN_NUMBER;
}

static bool is_text(const cJSON *item)
{
    return cJSON_IsString(item) && !is_number(item);
}

static const cJSON *member(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static ks_quote quoted(const char *text)
{
    return ks_quoted(text, strlen(text));
}

static ks_status wrong_type(const char *field, const char *type, ks_error *error)
{
    return ks_fail(error, KS_FIELD, "Unable to parse '%s': attempt to access JSON non-%s as %s", field, type, type);
}

static ks_status missing(const char *field, ks_error *error)
{
    return ks_fail(error, KS_FIELD, "Unable to parse '%s': attempt to access non-existing object member '%s'", field,
                   field);
}

static const char *input_name(const ks_oip *oip, int input)
{
    return oip->ask.spec.op->inputs[input].name;
}

/* --- elements from JSON, while the body arrives ----------------------------------------------------------------------
 */

/* ks_scan_place_fn */
ks_status ks_oip_place_json(void *context, int index, const ks_scan_input *input, unsigned char **out, ks_error *error)
{
    ks_oip *oip = context;
    const ks_model *model = oip->ask.model;
    const ks_quote name = quoted(input->name[0] ? input->name : "(not named yet)");
    const int input_of_name = ks_op_input(model->op, input->name, strlen(input->name));
    for (int i = 0; i < index && index >= model->op->inputs_count; i++)
        if (input->name[0] && strcmp(ks_scan_input_at(oip->scan, i)->name, input->name) == 0)
            return ks_fail(error, KS_NAME, "input '%s' already exists in request", name.text);
    if (index >= model->op->inputs_count)
        return ks_fail(error, KS_NAME, "unexpected inference input '%s' for model '%s': it has %d inputs", name.text,
                       model->name, model->op->inputs_count);
    ks_status status = ks_oip_check_dtype(oip, input_of_name, name.text, input->dtype, error);
    if (status != KS_OK) return status;
    ks_tensor tensor = {.dtype = input->dtype, .rank = input->rank};
    memcpy(tensor.dims, input->dims, sizeof tensor.dims);
    status = ks_tensor_measure(&tensor, name.text, error);
    if (status != KS_OK) return status;
    if (tensor.size_bytes > oip->limits.max_body)
        return ks_fail(error, KS_BODY_SIZE,
                       "JSON input '%s' has a byte_size (%zu) that exceeds the maximum allowed value of %" PRIu64
                       ". Use --max-body to increase the limit.",
                       name.text, tensor.size_bytes, oip->limits.max_body);
    /* Each element takes a digit and a comma: a short body cannot make us take memory for a long shape. */
    const int64_t text_bytes = oip->json_length >= 0 ? oip->json_length : oip->content_length;
    if (text_bytes >= 0 && ks_tensor_count(&tensor) > text_bytes / 2)
        return ks_fail(error, KS_COUNT, "Failed to parse 'data' field: shape does not match true shape");
    /* softmax, and whatever keeps its shape, has then asked once; others ask again when all is known. */
    const size_t out_bytes = model->op->inputs_count == 1 ? tensor.size_bytes : 0;
    status = ks_oip_ask_place(oip, oip->in_used + ks_align(tensor.size_bytes), out_bytes, oip->in_used, error);
    if (status != KS_OK) return status;
    oip->json_offset[index] = oip->in_used;
    *out = oip->in + oip->in_used;
    oip->in_used = ks_align(oip->in_used + tensor.size_bytes);
    return KS_OK;
}

/* --- id, parameters --------------------------------------------------------------------------------------------------
 */

static ks_status read_id(ks_oip *oip, const cJSON *top, ks_error *error)
{
    const cJSON *id = member(top, "id");
    if (!id) return KS_OK;
    if (!is_text(id)) return wrong_type("id", "string", error);
    /* The scanner's string limit is KS_ID_MAX decoded bytes, and C0 80 stands for one of them. */
    for (const char *p = id->valuestring; *p && oip->ask.id_length < KS_ID_MAX; p++) {
        const bool zero = (unsigned char)p[0] == 0xC0;
        oip->ask.id[oip->ask.id_length++] = zero ? 0 : *p;
        if (zero) p++;
    }
    return KS_OK;
}

static ks_oip_value value_of(const cJSON *item)
{
    if (cJSON_IsBool(item))
        return (ks_oip_value){KS_VALUE_BOOL, cJSON_IsTrue(item) ? "true" : "false", cJSON_IsTrue(item) ? 4 : 5};
    if (!cJSON_IsString(item)) return (ks_oip_value){KS_VALUE_OTHER, "", 0};
    const char *const text = item->valuestring + (is_number(item) ? 1 : 0);
    return (ks_oip_value){is_number(item) ? KS_VALUE_NUMBER : KS_VALUE_TEXT, text, strlen(text)};
}

static ks_status read_parameters(ks_oip *oip, const cJSON *top, ks_error *error)
{
    const cJSON *parameters = member(top, "parameters"), *item;
    if (!parameters) return KS_OK;
    if (!cJSON_IsObject(parameters)) return wrong_type("parameters", "object", error);
    cJSON_ArrayForEach(item, parameters)
    {
        const ks_oip_value value = value_of(item);
        const ks_status status = ks_oip_parameter(oip, item->string, &value, error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

/* --- shared memory ---------------------------------------------------------------------------------------------------
 */

static ks_status read_size(const cJSON *parameters, const char *name, uint64_t *out, ks_error *error)
{
    const cJSON *item = member(parameters, name);
    const char *const text = item && is_number(item) ? item->valuestring + 1 : "";
    if (ks_number_read(text, strlen(text), KS_UINT64, out) != KS_NUMBER_OK)
        return wrong_type(name, "unsigned-integer", error);
    return KS_OK;
}

/* The window that parameters name for an input, or for an output. */
static ks_status read_window(ks_oip *oip, const cJSON *parameters, int which, uint64_t *bytes, ks_error *error)
{
    const cJSON *region = member(parameters, "shared_memory_region");
    uint64_t offset = 0;
    if (!oip->window)
        return ks_fail(error, KS_UNSUPPORTED,
                       "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.");
    if (!is_text(region)) return wrong_type("shared_memory_region", "string", error);
    ks_status status = KS_OK;
    if (member(parameters, "shared_memory_offset"))
        status = read_size(parameters, "shared_memory_offset", &offset, error);
    if (status == KS_OK && !member(parameters, "shared_memory_byte_size"))
        return missing("shared_memory_byte_size", error);
    if (status == KS_OK) status = read_size(parameters, "shared_memory_byte_size", bytes, error);
    if (status != KS_OK) return status;
    bool direct = false;
    status = oip->window(oip->context, which, region->valuestring, offset, *bytes, &direct, error);
    oip->ask.windows |= (uint16_t)(1u << which);
    oip->ask.directs |= (uint16_t)(direct << which);
    return status;
}

/* --- inputs ----------------------------------------------------------------------------------------------------------
 */

/* Exactly one source of data. */
static ks_status read_source(const cJSON *input, const ks_scan_input *scanned, const cJSON **parameters,
                             ks_oip_source *source, ks_error *error)
{
    *parameters = member(input, "parameters");
    if (*parameters && !cJSON_IsObject(*parameters)) return wrong_type("parameters", "object", error);
    source->present = true;
    source->binary = *parameters && member(*parameters, "binary_data_size");
    source->shared = *parameters && member(*parameters, "shared_memory_region");
    if (scanned->has_data + source->binary + source->shared == 1) return KS_OK;
    return ks_fail(error, KS_COUNT,
                   "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
                   "'shared_memory_region' in 'parameters'. But%s%s%s%s set",
                   scanned->has_data ? " 'data'" : "", source->binary ? " 'binary_data_size'" : "",
                   source->shared ? " 'shared_memory_region'" : "",
                   scanned->has_data || source->binary || source->shared ? " are" : " none of them is");
}

static ks_status read_name(ks_oip *oip, const cJSON *input, int *which, ks_error *error)
{
    const ks_model *model = oip->ask.model;
    const cJSON *name = member(input, "name");
    if (!name) return missing("name", error);
    if (!is_text(name)) return wrong_type("name", "string", error);
    *which = ks_op_input(model->op, name->valuestring, strlen(name->valuestring));
    if (*which < 0)
        return ks_fail(error, KS_NAME, "unexpected inference input '%s' for model '%s'", quoted(name->valuestring).text,
                       model->name);
    if (oip->source[*which].present)
        return ks_fail(error, KS_NAME, "input '%s' already exists in request", name->valuestring);
    return KS_OK;
}

static ks_status read_datatype(ks_oip *oip, const cJSON *input, int which, ks_error *error)
{
    const cJSON *datatype = member(input, "datatype");
    ks_tensor *tensor = &oip->ask.spec.in[which];
    if (!datatype) return missing("datatype", error);
    if (!is_text(datatype)) return wrong_type("datatype", "string", error);
    if (!ks_dtype_find(datatype->valuestring, strlen(datatype->valuestring), &tensor->dtype))
        return ks_fail(error, KS_DATATYPE, "inference input '%s' data-type is '%s', but model '%s' expects '%s'",
                       input_name(oip, which), quoted(datatype->valuestring).text, oip->ask.model->name,
                       ks_dtype_name(ks_model_dtype(oip->ask.model, which)));
    return ks_oip_check_dtype(oip, which, input_name(oip, which), tensor->dtype, error);
}

/* The scanner has found the shape wanting: says where. */
static ks_status bad_shape(const cJSON *shape, const char *name, ks_error *error)
{
    const cJSON *item;
    int rank = 0;
    if (!shape) return missing("shape", error);
    if (!cJSON_IsArray(shape)) return wrong_type("shape", "array", error);
    cJSON_ArrayForEach(item, shape)
    {
        int64_t dim;
        const char *const text = is_number(item) ? item->valuestring + 1 : "";
        if (++rank > KS_RANK_MAX)
            return ks_fail(error, KS_SHAPE, "Unable to parse 'shape': input '%s' has more than %d dimensions", name,
                           KS_RANK_MAX);
        if (*text == 0 || *text == '-' || ks_number_read(text, strlen(text), KS_INT64, &dim) != KS_NUMBER_OK)
            return ks_fail(error, KS_SHAPE,
                           "Unable to parse 'shape': dimension %d of input '%s' is %s, not an integer of 0 or more",
                           rank - 1, name, *text ? quoted(text).text : "no number");
    }
    return ks_fail(error, KS_SHAPE, "Unable to parse 'shape': input '%s'", name);
}

static ks_status read_shape(ks_oip *oip, const cJSON *input, const ks_scan_input *scanned, int which, ks_error *error)
{
    if (!scanned->has_shape) return bad_shape(member(input, "shape"), input_name(oip, which), error);
    ks_tensor *tensor = &oip->ask.spec.in[which];
    tensor->rank = scanned->rank;
    memcpy(tensor->dims, scanned->dims, (size_t)scanned->rank * sizeof tensor->dims[0]);
    return ks_tensor_measure(tensor, input_name(oip, which), error);
}

static ks_status read_binary_size(ks_oip *oip, const cJSON *item, int which, ks_error *error)
{
    const size_t expected = oip->ask.spec.in[which].size_bytes;
    uint64_t bytes = 0;
    if (!is_number(item)) return wrong_type("binary_data_size", "unsigned-integer", error);
    const char *const text = item->valuestring + 1;
    if (ks_number_read(text, strlen(text), KS_UINT64, &bytes) != KS_NUMBER_OK || bytes != expected)
        return ks_fail(error, KS_BINARY_SIZE,
                       "input byte size mismatch for input '%s' for model '%s'. Expected %zu, got %s",
                       input_name(oip, which), oip->ask.model->name, expected, quoted(text).text);
    if (bytes > 0) oip->piece[oip->pieces++] = (ks_oip_piece){.input = which, .bytes = expected};
    return KS_OK;
}

static ks_status read_input_window(ks_oip *oip, const cJSON *parameters, int which, ks_error *error)
{
    const size_t expected = oip->ask.spec.in[which].size_bytes;
    uint64_t bytes = 0;
    const ks_status status = read_window(oip, parameters, which, &bytes, error);
    if (status != KS_OK || bytes == expected) return status;
    return ks_fail(error, KS_BINARY_SIZE,
                   "input byte size mismatch for input '%s' for model '%s'. Expected %zu, got %" PRIu64,
                   input_name(oip, which), oip->ask.model->name, expected, bytes);
}

static ks_status read_input(ks_oip *oip, const cJSON *input, int index, ks_error *error)
{
    const ks_scan_input *scanned = ks_scan_input_at(oip->scan, index);
    const cJSON *parameters = NULL;
    ks_oip_source source = {.index = index};
    int which = 0;
    if (!cJSON_IsObject(input)) return wrong_type("inputs", "object", error);
    ks_status status = read_source(input, scanned, &parameters, &source, error);
    if (status == KS_OK) status = read_name(oip, input, &which, error);
    if (status == KS_OK) status = read_datatype(oip, input, which, error);
    if (status == KS_OK) status = read_shape(oip, input, scanned, which, error);
    if (status != KS_OK) return status;
    oip->source[which] = source;
    if (source.shared) return read_input_window(oip, parameters, which, error);
    return source.binary ? read_binary_size(oip, member(parameters, "binary_data_size"), which, error) : KS_OK;
}

/* wanted: those required, and those that are there. */
static ks_status missing_inputs(const ks_oip *oip, unsigned wanted, int count, ks_error *error)
{
    const ks_model *model = oip->ask.model;
    char got[96] = "", lacks[96] = "";
    for (int i = 0; i < model->op->inputs_count; i++) {
        if (!ks_in(wanted, i)) continue;
        char *const list = oip->source[i].present ? got : lacks;
        const size_t n = strlen(list);
        snprintf(list + n, sizeof got - n, "%s'%s'", n ? "," : "", input_name(oip, i));
    }
    return ks_fail(
        error, KS_NAME,
        "expected %d inputs but got %d inputs for model '%s'. Got input(s) [%s], but missing required input(s) [%s]. "
        "Please provide all required input(s).",
        __builtin_popcount(wanted), count, model->name, got, lacks);
}

static ks_status read_inputs(ks_oip *oip, const cJSON *top, ks_error *error)
{
    const cJSON *inputs = member(top, "inputs"), *input;
    int count = 0;
    if (!inputs) return missing("inputs", error);
    if (!cJSON_IsArray(inputs)) return wrong_type("inputs", "array", error);
    cJSON_ArrayForEach(input, inputs)
    {
        const ks_status status = read_input(oip, input, count++, error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

/* Blobs behind the JSON must fill the body exactly; known early where the body's length is. */
static ks_status check_rest(const ks_oip *oip, ks_error *error)
{
    uint64_t sum = 0;
    for (int i = 0; i < oip->pieces; i++) /* each below 2^63: three of them may pass 2^64 */
        if (__builtin_add_overflow(sum, (uint64_t)oip->piece[i].bytes, &sum)) sum = UINT64_MAX;
    const char *const model = oip->ask.model->name;
    if (sum > oip->limits.max_body)
        return ks_fail(error, KS_BODY_SIZE,
                       "binary input data of %" PRIu64 " bytes exceeds the maximum allowed input size of %" PRIu64
                       " bytes. Use --max-body to increase the limit.",
                       sum, oip->limits.max_body);
    if (oip->content_length < 0 || oip->json_length < 0) return KS_OK;
    const uint64_t rest = (uint64_t)(oip->content_length - oip->json_length);
    if (sum < rest) return ks_fail(error, KS_BINARY_SIZE, "unexpected additional input data for model '%s'", model);
    uint64_t left = rest;
    for (int i = 0; i < oip->pieces; i++) {
        if (oip->piece[i].bytes > left)
            return ks_fail(error, KS_BINARY_SIZE,
                           "unexpected size for input '%s', expecting %" PRIu64 " additional bytes for model '%s'",
                           input_name(oip, oip->piece[i].input), oip->piece[i].bytes - left, model);
        left -= oip->piece[i].bytes;
    }
    return KS_OK;
}

/* --- outputs ---------------------------------------------------------------------------------------------------------
 */

/* A window takes the whole output as it is: not as classes, and not into the body. */
static ks_status read_output_window(ks_oip *oip, const cJSON *parameters, int output, ks_error *error)
{
    const char *const other = oip->ask.classes[output] > 0     ? "classification"
                              : ks_in(oip->ask.binary, output) ? "binary_data"
                                                               : NULL;
    if (other)
        return ks_fail(error, KS_PARAMETER, "output '%s' has both '%s' and 'shared_memory_region'",
                       ks_output_name(output), other);
    return read_window(oip, parameters, KS_WINDOW_OUT + output, &oip->out_window_bytes[output], error);
}

/* -1: the model has none of that name. */
static int output_of(const ks_oip *oip, const char *name)
{
    for (int i = 0; i < oip->ask.model->outputs; i++)
        if (strcmp(name, ks_output_name(i)) == 0) return i;
    return -1;
}

static ks_status read_output(ks_oip *oip, const cJSON *output, ks_error *error)
{
    if (!cJSON_IsObject(output)) return wrong_type("outputs", "object", error);
    const cJSON *name = member(output, "name"), *parameters = member(output, "parameters");
    if (!name) return missing("name", error);
    if (!is_text(name)) return wrong_type("name", "string", error);
    const int which = output_of(oip, name->valuestring);
    if (which < 0)
        return ks_fail(error, KS_NAME, "unexpected inference output '%s' for model '%s'",
                       quoted(name->valuestring).text, oip->ask.model->name);
    if (ks_in(oip->ask.outputs, which))
        return ks_fail(error, KS_NAME, "output '%s' already exists in request", name->valuestring);
    oip->ask.outputs |= (uint8_t)(1u << which);
    if (!parameters) return KS_OK;
    if (!cJSON_IsObject(parameters)) return wrong_type("parameters", "object", error);
    const cJSON *classes = member(parameters, "classification");
    const char *const number = classes && is_number(classes) ? classes->valuestring + 1 : "";
    if (classes && ks_number_read(number, strlen(number), KS_UINT64, &oip->ask.classes[which]) != KS_NUMBER_OK)
        return wrong_type("classification", "unsigned-integer", error);
    const cJSON *binary = member(parameters, "binary_data");
    if (binary && !cJSON_IsBool(binary)) return wrong_type("binary_data", "boolean", error);
    if (binary && cJSON_IsTrue(binary)) oip->ask.binary |= (uint8_t)(1u << which);
    return member(parameters, "shared_memory_region") ? read_output_window(oip, parameters, which, error) : KS_OK;
}

static ks_status read_outputs(ks_oip *oip, const cJSON *top, ks_error *error)
{
    const cJSON *outputs = member(top, "outputs"), *output;
    if (outputs && !cJSON_IsArray(outputs)) return wrong_type("outputs", "array", error);
    int count = 0;
    cJSON_ArrayForEach(output, outputs)
    {
        if (count == OUTPUTS_MAX)
            return ks_fail(error, KS_JSON_LIMIT, "'outputs' holds more than %d outputs", OUTPUTS_MAX);
        const ks_status status = read_output(oip, output, error);
        count++;
        if (status != KS_OK) return status;
    }
    /* With outputs listed each one's own binary_data decides, and binary_data_output does not: as Triton has it. */
    if (count == 0 && oip->all_binary) oip->ask.binary = KS_OUTPUTS_ALL;
    return KS_OK;
}

/* --- all of it -------------------------------------------------------------------------------------------------------
 */

static ks_status read_top(ks_oip *oip, const cJSON *top, ks_error *error)
{
    ks_status status = read_id(oip, top, error);
    if (status == KS_OK) status = read_parameters(oip, top, error);
    if (status == KS_OK) status = read_inputs(oip, top, error);
    if (status == KS_OK) status = check_rest(oip, error);
    if (status == KS_OK) status = read_outputs(oip, top, error);
    if (status != KS_OK) return status;
    unsigned present = 0;
    const ks_op *op = oip->ask.model->op;
    for (int i = 0; i < op->inputs_count; i++) present |= (unsigned)oip->source[i].present << i;
    oip->ask.spec.given = (uint16_t)present;
    const unsigned required = ks_op_required(op);
    if (required & ~present) return missing_inputs(oip, required | present, ks_scan_inputs(oip->scan), error);
    return KS_OK;
}

/* A set of inputs. Returns where the next ones go. */
static size_t lay_out_inputs(ks_oip *oip, unsigned set, size_t bytes)
{
    for (; set; set &= set - 1) {
        const int i = __builtin_ctz(set);
        ks_tensor *tensor = &oip->ask.spec.in[i];
        if (!oip->source[i].binary && !oip->source[i].shared) {
            tensor->offset = oip->json_offset[oip->source[i].index];
        } else {
            tensor->offset = bytes;
            bytes = ks_align(bytes + tensor->size_bytes);
        }
    }
    return bytes;
}

static size_t lay_out_outputs(ks_oip *oip, unsigned set, size_t bytes)
{
    for (; set; set &= set - 1) {
        ks_tensor *tensor = &oip->ask.spec.out[__builtin_ctz(set)];
        tensor->offset = bytes;
        bytes = ks_align(bytes + tensor->size_bytes);
    }
    return bytes;
}

/* Elements from JSON stay where they were read; then come inputs from the body and from windows, small ones first, else in
 * the model's order, and behind all of them those that the device moves itself, for which the slot needs no room. Returns what
 * it needs. */
static size_t lay_out(ks_oip *oip)
{
    const ks_spec *spec = &oip->ask.spec;
    const unsigned outputs = (1u << spec->outputs) - 1, moved_outputs = (unsigned)oip->ask.directs >> KS_WINDOW_OUT;
    const unsigned moved = oip->ask.directs & spec->given, ours = spec->given & ~moved;
    unsigned small = 0;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        small |= (unsigned)spec->op->inputs[i].small << i;
    const size_t in_slot = lay_out_inputs(oip, ours & ~small, lay_out_inputs(oip, ours & small, oip->in_used));
    lay_out_inputs(oip, moved & ~small, lay_out_inputs(oip, moved & small, in_slot));
    lay_out_outputs(oip, moved_outputs, lay_out_outputs(oip, outputs & ~moved_outputs, 0));
    return in_slot;
}

ks_status ks_oip_read_skeleton(ks_oip *oip, size_t *in_bytes, ks_error *error)
{
    size_t length;
    const char *skeleton = ks_scan_skeleton(oip->scan, &length);
    cJSON *top = cJSON_ParseWithLength(skeleton, length);
    /* The scanner has accepted every byte of it, so that only memory can be missing. */
    if (!top) return ks_fail(error, KS_MEMORY, "no memory for the request's JSON");
    ks_status status = read_top(oip, top, error);
    cJSON_Delete(top);
    /* What the request itself asks for goes before what its head accepts. */
    uint64_t classes = 0;
    for (int i = 0; i < KS_OUTPUTS_MAX; i++) classes |= oip->ask.classes[i];
    if (classes > 0 || oip->ask.windows >> KS_WINDOW_OUT) oip->ask.answer = KS_FILE_NONE;
    if (oip->ask.answer != KS_FILE_NONE) oip->ask.binary = KS_OUTPUTS_ALL;
    if (status == KS_OK) status = ks_oip_resolve(oip, error);
    if (status != KS_OK) return status;
    if (oip->pieces > 0 || oip->ask.binary) oip->ask.form = KS_FORM_BINARY;
    *in_bytes = lay_out(oip);
    return KS_OK;
}
