/* The response of one request. Binary: the JSON head is written right in front of the output, in the slot's head room, so
 * that head and tensor leave as one segment. JSON: text of its own, numbers in shortest form.
 *
 * Member names and their order are those of Triton's examples; clients exist that refuse any other member. */
#include <stdlib.h>
#include <string.h>

#include "base/number/number.h"
#include "codec/codec_parts.h"
#include "base/text.h"

static const char octets[] = "application/octet-stream", json[] = "application/json";

enum { NUMBERS_AT_ONCE = 256, ANSWER_MAX = INT32_MAX };

/* A text in fixed memory; length counts on past its end, so that one look at the end says whether it fitted. */
typedef struct head_text {
    char bytes[KS_HEAD_ROOM];
    size_t length;
} head_text;

static void put(head_text *head, const char *bytes, size_t n)
{
    if (head->length + n <= sizeof head->bytes) memcpy(head->bytes + head->length, bytes, n);
    head->length += n;
}

static void puts_(head_text *head, const char *text)
{
    put(head, text, strlen(text));
}

#define PUT(head, literal) put(head, literal, sizeof literal - 1)

static void put_integer(head_text *head, int64_t value)
{
    char digits[KS_NUMBER_TEXT_MAX];
    put(head, digits, ks_number_write(&value, KS_INT64, digits));
}

static void put_json(head_text *head, const char *bytes, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    put(head, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c == '"' || c == '\\') put(head, "\\", 1);
        if (c < 0x20) {
            const char escape[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            put(head, escape, sizeof escape);
        } else {
            put(head, &bytes[i], 1);
        }
    }
    put(head, "\"", 1);
}

/* Up to where the output's data, or the size of its blob, follows. */
#define BEGIN(name) "{\"name\":\"" name "\",\"datatype\":\""
static const char begins[KS_OP_OUTPUTS_MAX][sizeof BEGIN("OUTPUT0") - 1] = {BEGIN("OUTPUT0"), BEGIN("OUTPUT1"),
                                                                            BEGIN("OUTPUT2"), BEGIN("OUTPUT3")};

static void put_name(head_text *head, const ks_op *op, int output)
{
    if (!op->outputs) {
        put(head, begins[output], sizeof begins[0]);
        return;
    }
    PUT(head, "{\"name\":\"");
    puts_(head, op->outputs[output]);
    PUT(head, "\",\"datatype\":\"");
}

static void put_output(head_text *head, const ks_infer_request *request, int output)
{
    const ks_tensor *tensor = &request->spec.out[output];
    const bool classes = ks_in(request->classified, output);
    put_name(head, request->spec.op, output);
    puts_(head, ks_dtype_name(classes ? KS_BYTES : tensor->dtype));
    PUT(head, "\",\"shape\":[");
    if (classes) put_integer(head, (int64_t)ks_class_count(request, output));
    for (int i = 0; i < tensor->rank && !classes; i++) {
        if (i > 0) PUT(head, ",");
        put_integer(head, tensor->dims[i]);
    }
    PUT(head, "]");
}

static void put_size(head_text *head, size_t bytes)
{
    PUT(head, ",\"parameters\":{\"binary_data_size\":");
    put_integer(head, (int64_t)bytes);
    PUT(head, "}}");
}

/* All of it, of outputs whose elements follow as they are. */
static void put_binary_head(head_text *head, const ks_infer_request *request)
{
    head->length = 0;
    PUT(head, "{");
    if (request->id_length > 0) {
        PUT(head, "\"id\":");
        put_json(head, request->id, request->id_length);
        PUT(head, ",");
    }
    PUT(head, "\"model_name\":\"");
    puts_(head, request->model->name);
    PUT(head, "\",\"model_version\":\"1\",\"outputs\":[");
    for (unsigned left = request->outputs; left; left &= left - 1) {
        const int output = __builtin_ctz(left);
        if (left != request->outputs) PUT(head, ",");
        put_output(head, request, output);
        put_size(head, request->spec.out[output].size_bytes);
    }
    PUT(head, "]}");
}

/* --- responses in the slot ---------------------------------------------------------------------------------------------- */

/* The outputs that are asked for, one behind the other from where the first one lies, which is returned. */
static unsigned char *gather(const ks_infer_request *request, unsigned char *out, size_t *bytes)
{
    unsigned left = request->outputs;
    const ks_tensor *tensor = &request->spec.out[__builtin_ctz(left)];
    unsigned char *const begin = out + tensor->offset;
    *bytes = tensor->size_bytes;
    for (left &= left - 1; left; left &= left - 1) {
        tensor = &request->spec.out[__builtin_ctz(left)];
        memmove(begin + *bytes, out + tensor->offset, tensor->size_bytes);
        *bytes += tensor->size_bytes;
    }
    return begin;
}

/* The head of more outputs than an op makes may be longer than the head room. */
static bool has_head_room(const ks_infer_request *request)
{
    return request->spec.outputs <= KS_OP_OUTPUTS_MAX;
}

/* false: the head is longer than the head room. */
static bool binary_response(const ks_infer_request *request, unsigned char *out, ks_response_body *response)
{
    head_text head;
    size_t size;
    put_binary_head(&head, request);
    if (head.length > sizeof head.bytes) return false;
    unsigned char *const begin = gather(request, out, &size);
    memcpy(begin - head.length, head.bytes, head.length);
    response->body = (const char *)begin - head.length;
    response->length = head.length + size;
    /* Empty outputs have no blobs: then it is plain JSON, as Triton sends it. */
    response->content_type = size > 0 ? octets : json;
    if (size > 0) response->header_length = (int64_t)head.length;
    return true;
}

/* A file: its head right in front of the outputs, as with the JSON head; or both in memory of their own, where it may have no room. */
static ks_status file_response(const ks_infer_request *request, unsigned char *out, ks_response_body *response,
                               ks_error *error)
{
    char head[KS_FILE_HEAD_MAX];
    size_t size;
    const size_t length = request->response->response_head(request, head);
    unsigned char *const begin = gather(request, out, &size);
    char *to = (char *)begin - length;
    response->content_type = request->response->content_type;
    response->length = length + size;
    if (!has_head_room(request)) {
        to = response->owned = malloc(length + size);
        if (!to) return ks_fail(error, KS_MEMORY, "no memory for the answer");
        memcpy(to + length, begin, size);
    }
    memcpy(to, head, length);
    response->body = to;
    return KS_OK;
}

/* The output's datatype and shape, in fields. */
static void put_fields(const ks_tensor *tensor, ks_response_body *response)
{
    response->content_type = octets;
    response->datatype = ks_dtype_name(tensor->dtype);
    ks_dims_text(tensor, response->shape, sizeof response->shape);
    /* Some readers of HTTP drop a field without a value, and some writers do not write one. */
    if (response->shape[0] == '\0') strcpy(response->shape, "scalar");
}

static void raw_response(const ks_infer_request *request, unsigned char *out, ks_response_body *response)
{
    const ks_tensor *tensor = &request->spec.out[__builtin_ctz(request->outputs)];
    response->body = (const char *)out + tensor->offset;
    response->length = tensor->size_bytes;
    put_fields(tensor, response);
}

/* Parameters come from the query, and there is no JSON to say what the output is. */
static bool is_query_format(const ks_infer_request *request)
{
    return request->format == KS_BODY_FORMAT_RAW || request->format == KS_BODY_FORMAT_FILE;
}

/* The output stays here: no more than what it is. */
static void stored_response(const ks_infer_request *request, ks_response_body *response)
{
    put_fields(&request->spec.out[__builtin_ctz(request->outputs)], response);
    response->body = "";
    response->length = 0;
}

/* --- responses with memory of their own --------------------------------------------------------------------------------- */

static ks_status owned_response(ks_text *text, ks_response_body *response, ks_error *error)
{
    response->owned = ks_text_take(text, &response->length);
    response->body = response->owned;
    return response->owned ? KS_OK : ks_fail(error, KS_MEMORY, "no memory for the answer");
}

/* The most bytes that one element takes as JSON text, with its comma. */
static size_t text_bytes(ks_dtype dtype)
{
    if (ks_dtype_kind(dtype) == KS_KIND_FLOAT && ks_dtype_size(dtype) == 1) return 17; /* as FP32 */
    switch (ks_dtype_size(dtype)) {
    case 1:
        return 6;
    case 2:
        return 7;
    case 4:
        return 17;
    default:
        return 28;
    }
}

/* Every output that is asked for follows the head as it is. */
static bool is_binary(const ks_infer_request *request)
{
    return !((request->outputs & ~(unsigned)request->binary) | (request->outputs & request->classified) |
             request->windows >> KS_WINDOW_OUT);
}

/* What one output takes in a text, beside the head. */
static uint64_t output_bound(const ks_infer_request *request, int output)
{
    const ks_tensor *tensor = &request->spec.out[output];
    if (ks_in(request->windows, KS_WINDOW_OUT + output)) return 0;
    if (ks_in(request->classified, output)) return ks_class_bytes(request, output);
    if (ks_in(request->binary, output)) return 2 * (uint64_t)tensor->size_bytes; /* there, and on its way there */
    return tensor->size_bytes / ks_dtype_size(tensor->dtype) * text_bytes(tensor->dtype);
}

uint64_t ks_codec_encode_bound(const ks_codec *codec)
{
    const ks_infer_request *request = &codec->request;
    uint64_t bound = KS_FILE_HEAD_MAX + 6 * (uint64_t)request->id_length;
    if (request->response && has_head_room(request)) return 0;
    if (is_binary(request) && (request->format == KS_BODY_FORMAT_RAW ||
                               (has_head_room(request) && 6 * request->id_length <= KS_HEAD_ROOM / 4)))
        return 0;
    for (int i = 0; i < request->spec.outputs; i++)
        if (ks_in(request->outputs, i)) bound += output_bound(request, i);
    return bound;
}

/* KS_NON_FINITE as soon as one is found. Stops where the slice ends. */
static ks_status put_numbers(ks_codec *codec, const unsigned char *out, ks_error *error)
{
    const ks_tensor *tensor = &codec->request.spec.out[codec->printing_output];
    const size_t element = ks_dtype_size(tensor->dtype), count = tensor->size_bytes / element;
    size_t *const slice = codec->limits.slice;
    int non_finite = 0;
    while (codec->printed < count && !(slice && *slice == 0)) {
        size_t n = count - codec->printed < NUMBERS_AT_ONCE ? count - codec->printed : NUMBERS_AT_ONCE;
        if (slice && n > *slice) n = *slice;
        if (codec->printed > 0) ks_text_add(&codec->text, ",", 1);
        char *const room = ks_text_room(&codec->text, n * KS_NUMBER_TEXT_MAX);
        if (room)
            codec->text.length +=
                ks_numbers_write(out + tensor->offset + codec->printed * element, n, tensor->dtype, room, &non_finite);
        else
            n = count - codec->printed; /* the text is marked; its taker says so */
        if (non_finite && codec->limits.json_non_finite_error)
            return ks_fail(error, KS_NON_FINITE,
                           "output '%s' holds NaN or infinity, which JSON has no number for: ask for binary output",
                           ks_op_output(codec->request.spec.op, codec->printing_output));
        codec->printed += n;
        if (slice) *slice -= n < *slice ? n : *slice;
    }
    return KS_OK;
}

/* All the memory at once: no slice waits until what there is has been copied to a larger place. */
static void begin_text(ks_codec *codec)
{
    const ks_infer_request *request = &codec->request;
    const uint64_t room = ks_codec_encode_bound(codec) + (uint64_t)NUMBERS_AT_ONCE * KS_NUMBER_TEXT_MAX;
    ks_text_init(&codec->text, ANSWER_MAX);
    ks_text_init(&codec->blobs, ANSWER_MAX);
    ks_text_room(&codec->text, room < ANSWER_MAX ? (size_t)room : ANSWER_MAX);
    ks_text_puts(&codec->text, "{");
    if (request->id_length > 0) {
        ks_text_puts(&codec->text, "\"id\":");
        ks_text_json(&codec->text, request->id, request->id_length);
        ks_text_puts(&codec->text, ",");
    }
    ks_text_puts(&codec->text, "\"model_name\":\"");
    ks_text_puts(&codec->text, request->model->name);
    ks_text_puts(&codec->text, "\",\"model_version\":\"1\",\"outputs\":[");
    codec->printing = true;
    codec->printing_output = -1;
}

/* The output's blob, and its size in the text. */
static ks_status put_blob(ks_codec *codec, int output, const unsigned char *out, ks_error *error)
{
    const ks_infer_request *request = &codec->request;
    const ks_tensor *tensor = &request->spec.out[output];
    const size_t before = codec->blobs.length;
    char digits[KS_NUMBER_TEXT_MAX];
    ks_status status = KS_OK;
    if (ks_in(request->classified, output))
        status = ks_class_texts(request, output, out + tensor->offset, &codec->blobs, error);
    else
        ks_text_add(&codec->blobs, (const char *)out + tensor->offset, tensor->size_bytes);
    const int64_t size = (int64_t)(codec->blobs.length - before);
    ks_text_puts(&codec->text, ",\"parameters\":{\"binary_data_size\":");
    ks_text_add(&codec->text, digits, ks_number_write(&size, KS_INT64, digits));
    ks_text_puts(&codec->text, "}}");
    return status;
}

/* What comes of an output at once: all but a list of its elements, of which only the beginning. */
static ks_status begin_output(ks_codec *codec, int output, const unsigned char *out, ks_error *error)
{
    const ks_infer_request *request = &codec->request;
    ks_status status = KS_OK;
    head_text head;
    head.length = 0;
    put_output(&head, request, output);
    ks_text_add(&codec->text, head.bytes, head.length);
    codec->printed = 0;
    if (ks_in(request->windows, KS_WINDOW_OUT + output)) {
        ks_text_puts(&codec->text, "}");
    } else if (ks_in(request->binary, output)) {
        status = put_blob(codec, output, out, error);
    } else {
        ks_text_puts(&codec->text, ",\"data\":[");
        if (!ks_in(request->classified, output)) return KS_OK;
        status = ks_class_texts(request, output, out + request->spec.out[output].offset, &codec->text, error);
        ks_text_puts(&codec->text, "]}");
    }
    codec->printed = SIZE_MAX;
    return status;
}

/* To the next output that is asked for; behind the last one the response is written. */
static ks_status next_output(ks_codec *codec, const unsigned char *out, ks_error *error)
{
    const ks_infer_request *request = &codec->request;
    const bool first = codec->printing_output < 0;
    do {
        codec->printing_output++;
    } while (codec->printing_output < request->spec.outputs && !ks_in(request->outputs, codec->printing_output));
    codec->printing = codec->printing_output < request->spec.outputs;
    if (!codec->printing) return KS_OK;
    if (!first) ks_text_add(&codec->text, ",", 1);
    return begin_output(codec, codec->printing_output, out, error);
}

/* As far as the slice goes. */
static ks_status put_outputs(ks_codec *codec, const unsigned char *out, ks_error *error)
{
    ks_status status = KS_OK;
    while (codec->printing && status == KS_OK) {
        if (codec->printing_output >= 0 && codec->printed != SIZE_MAX) {
            const ks_tensor *tensor = &codec->request.spec.out[codec->printing_output];
            status = put_numbers(codec, out, error);
            if (status != KS_OK || codec->printed < tensor->size_bytes / ks_dtype_size(tensor->dtype)) return status;
            ks_text_puts(&codec->text, "]}");
        }
        status = next_output(codec, out, error);
    }
    return status;
}

static ks_status text_response(ks_codec *codec, const unsigned char *out, ks_response_body *response, ks_error *error)
{
    ks_text *const text = &codec->text;
    if (!codec->printing) begin_text(codec);
    ks_status status = put_outputs(codec, out, error);
    if (status == KS_OK && codec->printing) return KS_OK;
    codec->printing = false;
    ks_text_puts(text, "]}");
    const size_t head_length = text->length, size = codec->blobs.length;
    if (size > 0) ks_text_add(text, codec->blobs.bytes, size);
    text->broken |= codec->blobs.broken;
    if (status == KS_OK && text->broken && text->length > ANSWER_MAX / 2)
        status = ks_fail(error, KS_WORK,
                         "the answer's JSON exceeds the maximum allowed size of %d bytes: ask for binary output",
                         ANSWER_MAX);
    if (status == KS_OK) status = owned_response(text, response, error);
    ks_text_fini(text);
    ks_text_fini(&codec->blobs);
    response->content_type = size > 0 ? octets : json;
    if (size > 0) response->header_length = (int64_t)head_length;
    return status;
}

ks_status ks_codec_encode(ks_codec *codec, unsigned char *out, ks_response_body *response, ks_error *error)
{
    const ks_infer_request *request = &codec->request;
    response->body = NULL;
    response->length = 0;
    response->owned = NULL;
    response->content_encoding = NULL;
    response->content_type = json;
    response->header_length = -1;
    response->shape[0] = 0;
    response->datatype = NULL;
    response->tensor =
        request->stored ? request->tensor[KS_WINDOW_OUT + __builtin_ctz((unsigned)request->stored)] : NULL;
    if (request->stored && request->binary && is_query_format(request))
        stored_response(request, response);
    else if (request->response)
        return file_response(request, out, response, error);
    else if (!is_binary(request))
        return text_response(codec, out, response, error);
    else if (request->format == KS_BODY_FORMAT_RAW)
        raw_response(request, out, response);
    else if (!has_head_room(request) || !binary_response(request, out, response))
        return text_response(codec, out, response, error);
    return KS_OK;
}
