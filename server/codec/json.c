/* The JSON of a request: checks the JSON head member by member, in the order in which Triton checks, so that the first
 * fault names the same thing. The scanner has already read tensor data to its place and knows shapes and datatypes.
 *
 * In the JSON head U+0000 is C0 80 (scan.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number/number.h"
#include "codec/codec_parts.h"
#include "codec/json_tree.h"

enum { OUTPUTS_MAX = 16 };

static ks_quote quoted(const char *text)
{
    return ks_quoted(text, strlen(text));
}

static const char *input_name(const ks_codec *codec, int input)
{
    return codec->request.spec.op->inputs[input].name;
}

/* --- elements from JSON, while the body arrives ----------------------------------------------------------------------
 */

/* ks_scan_place_fn */
ks_status ks_codec_place_json(void *context, int index, const ks_scan_input *input, unsigned char **out,
                              ks_error *error)
{
    ks_codec *codec = context;
    const ks_model *model = codec->request.model;
    const ks_quote name = quoted(input->name[0] ? input->name : "(not named yet)");
    const int input_of_name = ks_op_input(model->op, input->name, strlen(input->name));
    for (int i = 0; i < index && index >= model->op->inputs_count; i++)
        if (input->name[0] && strcmp(ks_scan_input_at(codec->scan, i)->name, input->name) == 0)
            return ks_fail(error, KS_NAME, "input '%s' already exists in request", name.text);
    if (index >= model->op->inputs_count)
        return ks_fail(error, KS_NAME, "unexpected inference input '%s' for model '%s': it has %d inputs", name.text,
                       model->name, model->op->inputs_count);
    ks_status status = ks_codec_check_dtype(codec, input_of_name, name.text, input->dtype, error);
    if (status != KS_OK) return status;
    ks_tensor tensor = {.dtype = input->dtype, .rank = input->rank};
    memcpy(tensor.dims, input->dims, sizeof tensor.dims);
    status = ks_tensor_measure(&tensor, name.text, error);
    if (status != KS_OK) return status;
    if (tensor.size_bytes > codec->limits.max_body)
        return ks_fail(error, KS_BODY_SIZE,
                       "JSON input '%s' has a byte_size (%zu) that exceeds the maximum allowed value of %" PRIu64
                       ". Use --max-body to increase the limit.",
                       name.text, tensor.size_bytes, codec->limits.max_body);
    /* Each element takes a digit and a comma: a short body cannot make us take memory for a long shape. */
    const int64_t text_bytes = codec->json_length >= 0 ? codec->json_length : codec->content_length;
    if (text_bytes >= 0 && ks_tensor_count(&tensor) > text_bytes / 2)
        return ks_fail(error, KS_COUNT, "Failed to parse 'data' field: shape does not match true shape");
    /* softmax, and whatever keeps its shape, has then asked once; others ask again when all is known. */
    const size_t out_bytes = model->op->inputs_count == 1 ? tensor.size_bytes : 0;
    status =
        ks_codec_take_memory(codec, codec->in_used + ks_align(tensor.size_bytes), out_bytes, codec->in_used, error);
    if (status != KS_OK) return status;
    codec->json_offset[index] = codec->in_used;
    *out = codec->sides.in + codec->in_used;
    codec->in_used = ks_align(codec->in_used + tensor.size_bytes);
    return KS_OK;
}

/* --- id, parameters --------------------------------------------------------------------------------------------------
 */

static ks_status read_id(ks_codec *codec, const ks_json *top, ks_error *error)
{
    const ks_json *id = ks_json_member(top, "id");
    if (!id) return KS_OK;
    if (!ks_json_is_text(id)) return ks_json_wrong_type("id", "string", error);
    /* The scanner's string limit is KS_ID_MAX decoded bytes, and C0 80 stands for one of them. */
    for (const char *p = ks_json_text(id); *p && codec->request.id_length < KS_ID_MAX; p++) {
        const bool zero = (unsigned char)p[0] == 0xC0;
        codec->request.id[codec->request.id_length++] = zero ? 0 : *p;
        if (zero) p++;
    }
    return KS_OK;
}

enum { LIST_TEXT_MAX = 256 };

/* "2,0,1"; "...": more than any list that is taken. false: it holds other things than numbers. */
static bool join_list(const ks_json *list, char out[LIST_TEXT_MAX])
{
    size_t n = 0;
    out[0] = 0;
    for (const ks_json *item = ks_json_first(list); item; item = ks_json_next(item)) {
        const char *const text = ks_json_text(item);
        if (!ks_json_is_number(item)) return false;
        const bool fits = n + strlen(text) + sizeof ",..." <= LIST_TEXT_MAX;
        n += (size_t)snprintf(out + n, LIST_TEXT_MAX - n, "%s%s", n ? "," : "", fits ? text : "...");
        if (!fits) break;
    }
    return true;
}

static ks_param_value value_of(const ks_json *item, char list[LIST_TEXT_MAX])
{
    if (ks_json_is_bool(item))
        return (ks_param_value){KS_VALUE_BOOL, ks_json_is_true(item) ? "true" : "false", ks_json_is_true(item) ? 4 : 5};
    if (ks_json_is_list(item) && join_list(item, list)) return (ks_param_value){KS_VALUE_LIST, list, strlen(list)};
    if (!ks_json_is_number(item) && !ks_json_is_text(item)) return (ks_param_value){KS_VALUE_OTHER, "", 0};
    const char *const text = ks_json_text(item);
    return (ks_param_value){ks_json_is_number(item) ? KS_VALUE_NUMBER : KS_VALUE_TEXT, text, strlen(text)};
}

static ks_status read_parameters(ks_codec *codec, const ks_json *top, ks_error *error)
{
    const ks_json *parameters, *item;
    char list[LIST_TEXT_MAX];
    const ks_status found = ks_json_find_object(top, "parameters", &parameters, error);
    if (found != KS_OK) return found;
    for (item = ks_json_first(parameters); item; item = ks_json_next(item)) {
        const ks_param_value value = value_of(item, list);
        const ks_status status = ks_codec_parameter(codec, ks_json_key(item), &value, error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

/* --- shared memory ---------------------------------------------------------------------------------------------------
 */

/* The window that parameters name for an input, or for an output. */
static ks_status read_window(ks_codec *codec, const ks_json *parameters, int which, uint64_t *bytes, ks_error *error)
{
    ks_window_name name = {.offset = 0};
    if (!codec->window)
        return ks_fail(error, KS_UNSUPPORTED,
                       "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.");
    ks_status status = ks_json_get_text(parameters, "shared_memory_region", &name.region, error);
    if (status == KS_OK && ks_json_member(parameters, "shared_memory_offset"))
        status = ks_json_get_unsigned(parameters, "shared_memory_offset", &name.offset, error);
    if (status == KS_OK) status = ks_json_get_unsigned(parameters, "shared_memory_byte_size", &name.bytes, error);
    if (status != KS_OK) return status;
    *bytes = name.bytes;
    bool device_copies = false;
    status = codec->window(codec->context, which, &name, &device_copies, error);
    codec->request.windows |= (uint32_t)(1u << which);
    /* A member that was not read here may be anything. */
    const bool seen = which < KS_WINDOW_OUT && codec->request.spec.in[which].dtype == KS_BOOL;
    codec->request.device_copies |= (uint32_t)((device_copies && !seen) << which);
    return status;
}

/* --- resident tensors ------------------------------------------------------------------------------------------------
 */

/* A region of this name is no client's. */
static const char *tensor_of_region(const ks_json *parameters)
{
    static const char prefix[] = "tensor:";
    const char *const region = ks_json_text(ks_json_member(parameters, "shared_memory_region"));
    return strncmp(region, prefix, sizeof prefix - 1) == 0 ? region + sizeof prefix - 1 : NULL;
}

/* The region is all of the tensor. */
static ks_status read_region(const ks_json *parameters, const char *name, uint64_t *bytes, ks_error *error)
{
    uint64_t offset = 0;
    ks_status status = KS_OK;
    if (ks_json_member(parameters, "shared_memory_offset"))
        status = ks_json_get_unsigned(parameters, "shared_memory_offset", &offset, error);
    if (status == KS_OK) status = ks_json_get_unsigned(parameters, "shared_memory_byte_size", bytes, error);
    if (status != KS_OK || offset == 0) return status;
    return ks_fail(error, KS_WINDOW, "region 'tensor:%s' is all of a resident tensor: its offset is 0, not %" PRIu64,
                   quoted(name).text, offset);
}

/* --- inputs ----------------------------------------------------------------------------------------------------------
 */

/* Exactly one source of data. */
static ks_status read_source(const ks_json *input, const ks_scan_input *scanned, const ks_json **parameters,
                             ks_input_source *source, ks_error *error)
{
    const ks_status found = ks_json_find_object(input, "parameters", parameters, error);
    if (found != KS_OK) return found;
    source->present = true;
    source->binary = *parameters && ks_json_member(*parameters, "binary_data_size");
    source->shared = *parameters && ks_json_member(*parameters, "shared_memory_region");
    source->resident = *parameters && ks_json_member(*parameters, "tensor");
    const int sources = scanned->has_data + source->binary + source->shared + source->resident;
    if (sources == 1) return KS_OK;
    return ks_fail(error, KS_COUNT,
                   "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
                   "'shared_memory_region' in 'parameters'%s. But%s%s%s%s%s set",
                   source->resident ? ", 'tensor' in 'parameters'" : "", scanned->has_data ? " 'data'" : "",
                   source->binary ? " 'binary_data_size'" : "", source->shared ? " 'shared_memory_region'" : "",
                   source->resident ? " 'tensor'" : "", sources > 0 ? " are" : " none of them is");
}

static ks_status read_name(ks_codec *codec, const ks_json *input, int *which, ks_error *error)
{
    const ks_model *model = codec->request.model;
    const char *name;
    const ks_status status = ks_json_get_text(input, "name", &name, error);
    if (status != KS_OK) return status;
    *which = ks_op_input(model->op, name, strlen(name));
    if (*which < 0)
        return ks_fail(error, KS_NAME, "unexpected inference input '%s' for model '%s'", quoted(name).text,
                       model->name);
    if (codec->source[*which].present) return ks_fail(error, KS_NAME, "input '%s' already exists in request", name);
    return KS_OK;
}

static ks_status read_datatype(ks_codec *codec, const ks_json *input, int which, ks_error *error)
{
    const char *datatype;
    ks_tensor *tensor = &codec->request.spec.in[which];
    const ks_status status = ks_json_get_text(input, "datatype", &datatype, error);
    if (status != KS_OK) return status;
    if (!ks_dtype_find(datatype, strlen(datatype), &tensor->dtype))
        return ks_fail(error, KS_DATATYPE, "inference input '%s' data-type is '%s', but model '%s' expects '%s'",
                       input_name(codec, which), quoted(datatype).text, codec->request.model->name,
                       ks_dtype_name(ks_model_dtype(codec->request.model, which)));
    return ks_codec_check_dtype(codec, which, input_name(codec, which), tensor->dtype, error);
}

/* The scanner has found the shape wanting: says where. */
static ks_status bad_shape(const ks_json *shape, const char *name, ks_error *error)
{
    const ks_json *item;
    int rank = 0;
    if (!shape) return ks_json_missing("shape", error);
    if (!ks_json_is_list(shape)) return ks_json_wrong_type("shape", "array", error);
    for (item = ks_json_first(shape); item; item = ks_json_next(item)) {
        int64_t dim;
        const char *const text = ks_json_is_number(item) ? ks_json_text(item) : "";
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

static ks_status read_shape(ks_codec *codec, const ks_json *input, const ks_scan_input *scanned, int which,
                            ks_error *error)
{
    if (!scanned->has_shape) return bad_shape(ks_json_member(input, "shape"), input_name(codec, which), error);
    ks_tensor *tensor = &codec->request.spec.in[which];
    tensor->rank = scanned->rank;
    memcpy(tensor->dims, scanned->dims, (size_t)scanned->rank * sizeof tensor->dims[0]);
    return ks_tensor_measure(tensor, input_name(codec, which), error);
}

/* What stands beside a tensor's name in place of its own, and has to agree. */
static ks_status check_beside(const ks_codec *codec, const ks_json *input, const ks_scan_input *scanned, int which,
                              ks_error *error)
{
    const ks_tensor *tensor = &codec->request.spec.in[which];
    const char *const name = codec->request.tensor[which], *datatype = ks_dtype_name(tensor->dtype);
    ks_status status = KS_OK;
    char dims[KS_RANK_MAX * 21 + 1];
    if (ks_json_member(input, "datatype")) status = ks_json_get_text(input, "datatype", &datatype, error);
    if (status != KS_OK) return status;
    if (strcmp(datatype, ks_dtype_name(tensor->dtype)) != 0)
        return ks_fail(error, KS_DATATYPE, "input '%s' has datatype '%s' beside tensor '%s', which has '%s'",
                       input_name(codec, which), quoted(datatype).text, name, ks_dtype_name(tensor->dtype));
    if (!ks_json_member(input, "shape")) return KS_OK;
    if (!scanned->has_shape) return bad_shape(ks_json_member(input, "shape"), input_name(codec, which), error);
    bool same = scanned->rank == tensor->rank;
    for (int i = 0; i < tensor->rank && same; i++) same = scanned->dims[i] == tensor->dims[i];
    if (same) return KS_OK;
    ks_dims_text(tensor, dims, sizeof dims);
    return ks_fail(error, KS_SHAPE, "input '%s' has another shape than tensor '%s', which has [%s]",
                   input_name(codec, which), name, dims);
}

static ks_status read_tensor(ks_codec *codec, const ks_json *input, const ks_scan_input *scanned, int which,
                             ks_error *error)
{
    const ks_json *const parameters = ks_json_member(input, "parameters");
    const char *name = tensor_of_region(parameters);
    uint64_t bytes = UINT64_MAX;
    ks_status status =
        name ? read_region(parameters, name, &bytes, error) : ks_json_get_text(parameters, "tensor", &name, error);
    if (status == KS_OK) status = ks_codec_name_input(codec, which, name, error);
    if (status == KS_OK) status = ks_codec_hold_input(codec, which, error);
    if (status == KS_OK) status = check_beside(codec, input, scanned, which, error);
    if (status != KS_OK || bytes == UINT64_MAX || bytes == codec->request.spec.in[which].size_bytes) return status;
    return ks_fail(
        error, KS_BINARY_SIZE, "input byte size mismatch for input '%s' for model '%s'. Expected %zu, got %" PRIu64,
        input_name(codec, which), codec->request.model->name, codec->request.spec.in[which].size_bytes, bytes);
}

static ks_status read_binary_size(ks_codec *codec, const ks_json *item, int which, ks_error *error)
{
    const size_t expected = codec->request.spec.in[which].size_bytes;
    uint64_t bytes = 0;
    if (!ks_json_is_number(item)) return ks_json_wrong_type("binary_data_size", "unsigned-integer", error);
    const char *const text = ks_json_text(item);
    if (ks_number_read(text, strlen(text), KS_UINT64, &bytes) != KS_NUMBER_OK || bytes != expected)
        return ks_fail(error, KS_BINARY_SIZE,
                       "input byte size mismatch for input '%s' for model '%s'. Expected %zu, got %s",
                       input_name(codec, which), codec->request.model->name, expected, quoted(text).text);
    if (bytes > 0) codec->segment[codec->segments++] = (ks_segment){.input = which, .bytes = expected};
    return KS_OK;
}

static ks_status read_input_window(ks_codec *codec, const ks_json *parameters, int which, ks_error *error)
{
    const size_t expected = codec->request.spec.in[which].size_bytes;
    uint64_t bytes = 0;
    const ks_status status = read_window(codec, parameters, which, &bytes, error);
    if (status != KS_OK || bytes == expected) return status;
    return ks_fail(error, KS_BINARY_SIZE,
                   "input byte size mismatch for input '%s' for model '%s'. Expected %zu, got %" PRIu64,
                   input_name(codec, which), codec->request.model->name, expected, bytes);
}

static ks_status read_input(ks_codec *codec, const ks_json *input, int index, ks_error *error)
{
    const ks_scan_input *scanned = ks_scan_input_at(codec->scan, index);
    const ks_json *parameters = NULL;
    ks_input_source source = {.index = index};
    int which = 0;
    if (!ks_json_is_object(input)) return ks_json_wrong_type("inputs", "object", error);
    ks_status status = read_source(input, scanned, &parameters, &source, error);
    if (status == KS_OK) status = read_name(codec, input, &which, error);
    source.resident |= source.shared && tensor_of_region(parameters);
    if (status == KS_OK && source.resident) {
        codec->source[which] = source;
        return read_tensor(codec, input, scanned, which, error);
    }
    if (status == KS_OK) status = read_datatype(codec, input, which, error);
    if (status == KS_OK) status = read_shape(codec, input, scanned, which, error);
    if (status != KS_OK) return status;
    codec->source[which] = source;
    if (source.shared) return read_input_window(codec, parameters, which, error);
    return source.binary ? read_binary_size(codec, ks_json_member(parameters, "binary_data_size"), which, error)
                         : KS_OK;
}

/* wanted: those required, and those that are there. */
static ks_status missing_inputs(const ks_codec *codec, unsigned wanted, int count, ks_error *error)
{
    const ks_model *model = codec->request.model;
    char got[96] = "", lacks[96] = "";
    for (int i = 0; i < model->op->inputs_count; i++) {
        if (!ks_in(wanted, i)) continue;
        char *const list = codec->source[i].present ? got : lacks;
        const size_t n = strlen(list);
        snprintf(list + n, sizeof got - n, "%s'%s'", n ? "," : "", input_name(codec, i));
    }
    return ks_fail(
        error, KS_NAME,
        "expected %d inputs but got %d inputs for model '%s'. Got input(s) [%s], but missing required input(s) [%s]. "
        "Please provide all required input(s).",
        __builtin_popcount(wanted), count, model->name, got, lacks);
}

static ks_status read_inputs(ks_codec *codec, const ks_json *top, ks_error *error)
{
    const ks_json *inputs, *input;
    int count = 0;
    const ks_status found = ks_json_find_list(top, "inputs", &inputs, error);
    if (found != KS_OK) return found;
    if (!inputs) return ks_json_missing("inputs", error);
    for (input = ks_json_first(inputs); input; input = ks_json_next(input)) {
        const ks_status status = read_input(codec, input, count++, error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

/* Blobs behind the JSON must fill the body exactly; known early where the body's length is. */
static ks_status check_rest(const ks_codec *codec, ks_error *error)
{
    uint64_t sum = 0;
    for (int i = 0; i < codec->segments; i++) /* each below 2^63: three of them may pass 2^64 */
        if (__builtin_add_overflow(sum, (uint64_t)codec->segment[i].bytes, &sum)) sum = UINT64_MAX;
    const char *const model = codec->request.model->name;
    if (sum > codec->limits.max_body)
        return ks_fail(error, KS_BODY_SIZE,
                       "binary input data of %" PRIu64 " bytes exceeds the maximum allowed input size of %" PRIu64
                       " bytes. Use --max-body to increase the limit.",
                       sum, codec->limits.max_body);
    if (codec->content_length < 0 || codec->json_length < 0) return KS_OK;
    const uint64_t rest = (uint64_t)(codec->content_length - codec->json_length);
    if (sum < rest) return ks_fail(error, KS_BINARY_SIZE, "unexpected additional input data for model '%s'", model);
    uint64_t left = rest;
    for (int i = 0; i < codec->segments; i++) {
        if (codec->segment[i].bytes > left)
            return ks_fail(error, KS_BINARY_SIZE,
                           "unexpected size for input '%s', expecting %" PRIu64 " additional bytes for model '%s'",
                           input_name(codec, codec->segment[i].input), codec->segment[i].bytes - left, model);
        left -= codec->segment[i].bytes;
    }
    return KS_OK;
}

/* --- outputs ---------------------------------------------------------------------------------------------------------
 */

/* A window, or a resident tensor, takes the whole output as it is: not as classes, and not into the body. */
static ks_status check_whole_output(const ks_codec *codec, const char *source, int output, ks_error *error)
{
    const char *const other = ks_in(codec->request.classified, output) ? "classification"
                              : ks_in(codec->request.binary, output)   ? "binary_data"
                                                                       : NULL;
    if (!other) return KS_OK;
    return ks_fail(error, KS_PARAMETER, "output '%s' has both '%s' and '%s'",
                   ks_op_output(codec->request.spec.op, output), other, source);
}

static ks_status read_stored_output(ks_codec *codec, const ks_json *parameters, int output, ks_error *error)
{
    const ks_json *const ttl = ks_json_member(parameters, "ttl");
    const char *name = tensor_of_region(parameters);
    uint64_t bytes = UINT64_MAX, seconds = 0;
    if (name && ks_json_member(parameters, "tensor"))
        return ks_fail(error, KS_PARAMETER, "output '%s' has both 'tensor' and 'shared_memory_region'",
                       ks_op_output(codec->request.spec.op, output));
    ks_status status = check_whole_output(codec, name ? "shared_memory_region" : "tensor", output, error);
    if (status == KS_OK)
        status =
            name ? read_region(parameters, name, &bytes, error) : ks_json_get_text(parameters, "tensor", &name, error);
    const bool whole = ttl && ks_json_read_unsigned(ttl, &seconds);
    if (status == KS_OK && ttl) status = ks_codec_check_ttl(whole, seconds, error);
    if (status == KS_OK) status = ks_codec_name_output(codec, output, name, ttl ? (int64_t)seconds : -1, error);
    codec->out_window_bytes[output] = bytes;
    return status;
}

static ks_status read_output_window(ks_codec *codec, const ks_json *parameters, int output, ks_error *error)
{
    if (tensor_of_region(parameters) || ks_json_member(parameters, "tensor"))
        return read_stored_output(codec, parameters, output, error);
    const ks_status status = check_whole_output(codec, "shared_memory_region", output, error);
    if (status != KS_OK) return status;
    return read_window(codec, parameters, KS_WINDOW_OUT + output, &codec->out_window_bytes[output], error);
}

/* -1: the model has none of that name. */
static int output_of(const ks_codec *codec, const char *name)
{
    for (int i = 0; i < codec->request.model->outputs_max; i++)
        if (strcmp(name, ks_op_output(codec->request.spec.op, i)) == 0) return i;
    return -1;
}

static ks_status read_classes(ks_codec *codec, const ks_json *parameters, int output, ks_error *error)
{
    uint64_t *const classes = &codec->request.classes[output];
    const ks_status status = ks_json_get_unsigned(parameters, "classification", classes, error);
    if (status == KS_OK && *classes > 0) codec->request.classified |= (uint16_t)(1u << output);
    return status;
}

static ks_status read_output(ks_codec *codec, const ks_json *output, ks_error *error)
{
    if (!ks_json_is_object(output)) return ks_json_wrong_type("outputs", "object", error);
    const ks_json *parameters;
    const char *name;
    bool binary = false;
    ks_status status = ks_json_get_text(output, "name", &name, error);
    if (status != KS_OK) return status;
    const int which = output_of(codec, name);
    if (which < 0)
        return ks_fail(error, KS_NAME, "unexpected inference output '%s' for model '%s'", quoted(name).text,
                       codec->request.model->name);
    if (ks_in(codec->request.outputs, which))
        return ks_fail(error, KS_NAME, "output '%s' already exists in request", name);
    const unsigned bit = 1u << which;
    codec->request.outputs |= (uint16_t)bit;
    status = ks_json_find_object(output, "parameters", &parameters, error);
    if (status != KS_OK || !parameters) return status;
    if (ks_json_member(parameters, "classification")) status = read_classes(codec, parameters, which, error);
    if (status == KS_OK) status = ks_json_find_bool(parameters, "binary_data", &binary, error);
    if (status != KS_OK) return status;
    if (binary) codec->request.binary |= (uint16_t)bit;
    const bool away = ks_json_member(parameters, "shared_memory_region") || ks_json_member(parameters, "tensor");
    return away ? read_output_window(codec, parameters, which, error) : KS_OK;
}

static ks_status read_outputs(ks_codec *codec, const ks_json *top, ks_error *error)
{
    const ks_json *outputs, *output;
    const ks_status found = ks_json_find_list(top, "outputs", &outputs, error);
    if (found != KS_OK) return found;
    int count = 0;
    for (output = ks_json_first(outputs); output; output = ks_json_next(output)) {
        if (count == OUTPUTS_MAX)
            return ks_fail(error, KS_JSON_LIMIT, "'outputs' holds more than %d outputs", OUTPUTS_MAX);
        const ks_status status = read_output(codec, output, error);
        count++;
        if (status != KS_OK) return status;
    }
    /* With outputs listed each one's own binary_data decides, and binary_data_output does not: as Triton has it. */
    if (count == 0 && codec->all_binary) codec->request.binary = KS_OUTPUTS_ALL;
    return KS_OK;
}

/* --- all of it -------------------------------------------------------------------------------------------------------
 */

static ks_status read_top(ks_codec *codec, const ks_json *top, ks_error *error)
{
    ks_status status = ks_codec_check_members(codec, top, error);
    if (status == KS_OK) status = read_id(codec, top, error);
    if (status == KS_OK) status = read_parameters(codec, top, error);
    if (status == KS_OK) status = read_inputs(codec, top, error);
    if (status == KS_OK) status = check_rest(codec, error);
    if (status == KS_OK) status = read_outputs(codec, top, error);
    if (status != KS_OK) return status;
    unsigned present = 0;
    const ks_op *op = codec->request.model->op;
    for (int i = 0; i < op->inputs_count; i++) present |= (unsigned)codec->source[i].present << i;
    codec->request.spec.given = (uint16_t)present;
    const unsigned required = ks_op_required(op);
    if (required & ~present) return missing_inputs(codec, required | present, ks_scan_inputs(codec->scan), error);
    return KS_OK;
}

/* A set of inputs. Returns where the next ones go. */
static size_t lay_out_inputs(ks_codec *codec, unsigned set, size_t bytes)
{
    for (; set; set &= set - 1) {
        const int i = __builtin_ctz(set);
        ks_tensor *tensor = &codec->request.spec.in[i];
        if (!codec->source[i].binary && !codec->source[i].shared) {
            tensor->offset = codec->json_offset[codec->source[i].index];
        } else {
            tensor->offset = bytes;
            bytes = ks_align(bytes + tensor->size_bytes);
        }
    }
    return bytes;
}

static size_t lay_out_outputs(ks_codec *codec, unsigned set, size_t bytes)
{
    for (; set; set &= set - 1) {
        ks_tensor *tensor = &codec->request.spec.out[__builtin_ctz(set)];
        tensor->offset = bytes;
        bytes = ks_align(bytes + tensor->size_bytes);
    }
    return bytes;
}

/* Elements from JSON stay where they were read; then come inputs from the body and from windows, small ones first, else in
 * the model's order, and behind all of them those that the device moves itself, for which the slot needs no room. Returns what
 * it needs. */
static size_t lay_out(ks_codec *codec)
{
    const ks_spec *spec = &codec->request.spec;
    const unsigned outputs = (1u << spec->outputs) - 1,
                   moved_outputs = (unsigned)codec->request.device_copies >> KS_WINDOW_OUT;
    const unsigned given = spec->given & ~(unsigned)codec->request.resident;
    const unsigned moved = codec->request.device_copies & given, ours = given & ~moved;
    unsigned small = 0;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        small |= (unsigned)spec->op->inputs[i].small << i;
    const size_t in_slot = lay_out_inputs(codec, ours & ~small, lay_out_inputs(codec, ours & small, codec->in_used));
    lay_out_inputs(codec, moved & ~small, lay_out_inputs(codec, moved & small, in_slot));
    lay_out_outputs(codec, moved_outputs, lay_out_outputs(codec, outputs & ~moved_outputs, 0));
    return in_slot;
}

ks_status ks_codec_read_json_head(ks_codec *codec, size_t *in_bytes, ks_error *error)
{
    ks_json *top;
    ks_status status = ks_json_open(codec->scan, "the request's JSON", &top, error);
    if (status != KS_OK) return status;
    status = read_top(codec, top, error);
    ks_json_close(&top);
    /* What the request itself asks for goes before what its head accepts. */
    if (codec->request.classified || codec->request.windows >> KS_WINDOW_OUT) codec->request.response = NULL;
    if (codec->request.response) codec->request.binary = KS_OUTPUTS_ALL;
    if (status == KS_OK) status = ks_codec_resolve(codec, error);
    if (status != KS_OK) return status;
    if (codec->segments > 0 || codec->request.binary) codec->request.format = KS_BODY_FORMAT_BINARY;
    *in_bytes = lay_out(codec);
    return KS_OK;
}
