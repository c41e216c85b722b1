/* The answer of one request. Binary: the JSON head is written right in front of the output, in the slot's head room, so
 * that head and tensor leave as one piece. JSON: text of its own, numbers in shortest form.
 *
 * Member names and their order are those of protocol.md's examples; clients exist that refuse any other member. */
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
static const char begins[KS_OUTPUTS_MAX][sizeof BEGIN("OUTPUT0") - 1] = {BEGIN("OUTPUT0"), BEGIN("OUTPUT1"),
                                                                         BEGIN("OUTPUT2"), BEGIN("OUTPUT3")};

static void put_output(head_text *head, const ks_ask *ask, int output)
{
    const ks_tensor *tensor = &ask->spec.out[output];
    const bool classes = ask->classes[output] > 0;
    put(head, begins[output], sizeof begins[0]);
    puts_(head, ks_dtype_name(classes ? KS_BYTES : tensor->dtype));
    PUT(head, "\",\"shape\":[");
    if (classes) put_integer(head, (int64_t)ks_answer_class_count(ask, output));
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
static void put_binary_head(head_text *head, const ks_ask *ask)
{
    head->length = 0;
    PUT(head, "{");
    if (ask->id_length > 0) {
        PUT(head, "\"id\":");
        put_json(head, ask->id, ask->id_length);
        PUT(head, ",");
    }
    PUT(head, "\"model_name\":\"");
    puts_(head, ask->model->name);
    PUT(head, "\",\"model_version\":\"1\",\"outputs\":[");
    for (unsigned left = ask->outputs; left; left &= left - 1) {
        const int output = __builtin_ctz(left);
        if (left != ask->outputs) PUT(head, ",");
        put_output(head, ask, output);
        put_size(head, ask->spec.out[output].size_bytes);
    }
    PUT(head, "]}");
}

/* --- answers in the slot ---------------------------------------------------------------------------------------------- */

/* The outputs that are asked for, one behind the other from where the first one lies, which is returned. */
static unsigned char *gather(const ks_ask *ask, unsigned char *out, size_t *bytes)
{
    unsigned left = ask->outputs;
    const ks_tensor *tensor = &ask->spec.out[__builtin_ctz(left)];
    unsigned char *const begin = out + tensor->offset;
    *bytes = tensor->size_bytes;
    for (left &= left - 1; left; left &= left - 1) {
        tensor = &ask->spec.out[__builtin_ctz(left)];
        memmove(begin + *bytes, out + tensor->offset, tensor->size_bytes);
        *bytes += tensor->size_bytes;
    }
    return begin;
}

/* false: the head is longer than the head room. */
static bool binary_answer(const ks_ask *ask, unsigned char *out, ks_answer *answer)
{
    head_text head;
    size_t size;
    put_binary_head(&head, ask);
    if (head.length > sizeof head.bytes) return false;
    unsigned char *const begin = gather(ask, out, &size);
    memcpy(begin - head.length, head.bytes, head.length);
    answer->body = (const char *)begin - head.length;
    answer->length = head.length + size;
    /* Empty outputs have no blobs: then it is plain JSON, as Triton sends it. */
    answer->content_type = size > 0 ? octets : json;
    if (size > 0) answer->header_length = (int64_t)head.length;
    return true;
}

/* A file: its head right in front of the outputs, as with the JSON head. */
static void file_answer(const ks_ask *ask, unsigned char *out, ks_answer *answer)
{
    char head[KS_FILE_HEAD_MAX];
    size_t size;
    const size_t length = ask->answer->response_head(ask, head);
    unsigned char *const begin = gather(ask, out, &size);
    memcpy(begin - length, head, length);
    answer->body = (const char *)begin - length;
    answer->length = length + size;
    answer->content_type = ask->answer->content_type;
}

static void raw_answer(const ks_ask *ask, unsigned char *out, ks_answer *answer)
{
    const ks_tensor *tensor = &ask->spec.out[__builtin_ctz(ask->outputs)];
    answer->body = (const char *)out + tensor->offset;
    answer->length = tensor->size_bytes;
    answer->content_type = octets;
    answer->datatype = ks_dtype_name(tensor->dtype);
    ks_dims_text(tensor, answer->shape, sizeof answer->shape);
    /* Some readers of HTTP drop a field without a value, and some writers do not write one. */
    if (answer->shape[0] == '\0') strcpy(answer->shape, "scalar");
}

/* --- answers with memory of their own --------------------------------------------------------------------------------- */

static ks_status owned_answer(ks_text *text, ks_answer *answer, ks_error *error)
{
    answer->owned = ks_text_take(text, &answer->length);
    answer->body = answer->owned;
    return answer->owned ? KS_OK : ks_fail(error, KS_MEMORY, "no memory for the answer");
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
static bool is_binary(const ks_ask *ask)
{
    if ((ask->outputs & ~(unsigned)ask->binary) | (unsigned)ask->windows >> KS_WINDOW_OUT) return false;
    for (unsigned left = ask->outputs; left; left &= left - 1)
        if (ask->classes[__builtin_ctz(left)] > 0) return false;
    return true;
}

/* What one output takes in a text, beside the head. */
static uint64_t output_bound(const ks_ask *ask, int output)
{
    const ks_tensor *tensor = &ask->spec.out[output];
    if (ks_in(ask->windows, KS_WINDOW_OUT + output)) return 0;
    if (ask->classes[output] > 0) return ks_answer_class_bytes(ask, output);
    if (ks_in(ask->binary, output)) return 2 * (uint64_t)tensor->size_bytes; /* there, and on its way there */
    return tensor->size_bytes / ks_dtype_size(tensor->dtype) * text_bytes(tensor->dtype);
}

uint64_t ks_oip_answer_bound(const ks_oip *oip)
{
    const ks_ask *ask = &oip->ask;
    uint64_t bound = KS_HEAD_ROOM + 6 * (uint64_t)ask->id_length;
    if (ask->answer) return 0;
    if (is_binary(ask) && (ask->form == KS_FORM_PLAIN_RAW || 6 * ask->id_length <= KS_HEAD_ROOM / 4)) return 0;
    for (int i = 0; i < ask->spec.outputs; i++)
        if (ks_in(ask->outputs, i)) bound += output_bound(ask, i);
    return bound;
}

/* KS_NON_FINITE as soon as one is found. Stops where the slice ends. */
static ks_status put_numbers(ks_oip *oip, const unsigned char *out, ks_error *error)
{
    const ks_tensor *tensor = &oip->ask.spec.out[oip->printing_output];
    const size_t element = ks_dtype_size(tensor->dtype), count = tensor->size_bytes / element;
    size_t *const slice = oip->limits.slice;
    int non_finite = 0;
    while (oip->printed < count && !(slice && *slice == 0)) {
        size_t n = count - oip->printed < NUMBERS_AT_ONCE ? count - oip->printed : NUMBERS_AT_ONCE;
        if (slice && n > *slice) n = *slice;
        if (oip->printed > 0) ks_text_add(&oip->text, ",", 1);
        char *const room = ks_text_room(&oip->text, n * KS_NUMBER_TEXT_MAX);
        if (room)
            oip->text.length +=
                ks_numbers_write(out + tensor->offset + oip->printed * element, n, tensor->dtype, room, &non_finite);
        else
            n = count - oip->printed; /* the text is marked; its taker says so */
        if (non_finite && oip->limits.json_non_finite_error)
            return ks_fail(error, KS_NON_FINITE,
                           "output '%s' holds NaN or infinity, which JSON has no number for: ask for binary output",
                           ks_output_name(oip->printing_output));
        oip->printed += n;
        if (slice) *slice -= n < *slice ? n : *slice;
    }
    return KS_OK;
}

/* All the memory at once: no slice waits until what there is has been copied to a larger place. */
static void begin_text(ks_oip *oip)
{
    const ks_ask *ask = &oip->ask;
    const uint64_t room = ks_oip_answer_bound(oip) + (uint64_t)NUMBERS_AT_ONCE * KS_NUMBER_TEXT_MAX;
    ks_text_init(&oip->text, ANSWER_MAX);
    ks_text_init(&oip->blobs, ANSWER_MAX);
    ks_text_room(&oip->text, room < ANSWER_MAX ? (size_t)room : ANSWER_MAX);
    ks_text_puts(&oip->text, "{");
    if (ask->id_length > 0) {
        ks_text_puts(&oip->text, "\"id\":");
        ks_text_json(&oip->text, ask->id, ask->id_length);
        ks_text_puts(&oip->text, ",");
    }
    ks_text_puts(&oip->text, "\"model_name\":\"");
    ks_text_puts(&oip->text, ask->model->name);
    ks_text_puts(&oip->text, "\",\"model_version\":\"1\",\"outputs\":[");
    oip->printing = true;
    oip->printing_output = -1;
}

/* The output's blob, and its size in the text. */
static ks_status put_blob(ks_oip *oip, int output, const unsigned char *out, ks_error *error)
{
    const ks_ask *ask = &oip->ask;
    const ks_tensor *tensor = &ask->spec.out[output];
    const size_t before = oip->blobs.length;
    char digits[KS_NUMBER_TEXT_MAX];
    ks_status status = KS_OK;
    if (ask->classes[output] > 0)
        status = ks_answer_class_texts(ask, output, out + tensor->offset, &oip->blobs, error);
    else
        ks_text_add(&oip->blobs, (const char *)out + tensor->offset, tensor->size_bytes);
    const int64_t size = (int64_t)(oip->blobs.length - before);
    ks_text_puts(&oip->text, ",\"parameters\":{\"binary_data_size\":");
    ks_text_add(&oip->text, digits, ks_number_write(&size, KS_INT64, digits));
    ks_text_puts(&oip->text, "}}");
    return status;
}

/* What comes of an output at once: all but a list of its elements, of which only the beginning. */
static ks_status begin_output(ks_oip *oip, int output, const unsigned char *out, ks_error *error)
{
    const ks_ask *ask = &oip->ask;
    ks_status status = KS_OK;
    head_text head;
    head.length = 0;
    put_output(&head, ask, output);
    ks_text_add(&oip->text, head.bytes, head.length);
    oip->printed = 0;
    if (ks_in(ask->windows, KS_WINDOW_OUT + output)) {
        ks_text_puts(&oip->text, "}");
    } else if (ks_in(ask->binary, output)) {
        status = put_blob(oip, output, out, error);
    } else {
        ks_text_puts(&oip->text, ",\"data\":[");
        if (ask->classes[output] == 0) return KS_OK;
        status = ks_answer_class_texts(ask, output, out + ask->spec.out[output].offset, &oip->text, error);
        ks_text_puts(&oip->text, "]}");
    }
    oip->printed = SIZE_MAX;
    return status;
}

/* To the next output that is asked for; behind the last one the answer is written. */
static ks_status next_output(ks_oip *oip, const unsigned char *out, ks_error *error)
{
    const ks_ask *ask = &oip->ask;
    const bool first = oip->printing_output < 0;
    do {
        oip->printing_output++;
    } while (oip->printing_output < ask->spec.outputs && !ks_in(ask->outputs, oip->printing_output));
    oip->printing = oip->printing_output < ask->spec.outputs;
    if (!oip->printing) return KS_OK;
    if (!first) ks_text_add(&oip->text, ",", 1);
    return begin_output(oip, oip->printing_output, out, error);
}

/* As far as the slice goes. */
static ks_status put_outputs(ks_oip *oip, const unsigned char *out, ks_error *error)
{
    ks_status status = KS_OK;
    while (oip->printing && status == KS_OK) {
        if (oip->printing_output >= 0 && oip->printed != SIZE_MAX) {
            const ks_tensor *tensor = &oip->ask.spec.out[oip->printing_output];
            status = put_numbers(oip, out, error);
            if (status != KS_OK || oip->printed < tensor->size_bytes / ks_dtype_size(tensor->dtype)) return status;
            ks_text_puts(&oip->text, "]}");
        }
        status = next_output(oip, out, error);
    }
    return status;
}

static ks_status text_answer(ks_oip *oip, const unsigned char *out, ks_answer *answer, ks_error *error)
{
    ks_text *const text = &oip->text;
    if (!oip->printing) begin_text(oip);
    ks_status status = put_outputs(oip, out, error);
    if (status == KS_OK && oip->printing) return KS_OK;
    oip->printing = false;
    ks_text_puts(text, "]}");
    const size_t head_length = text->length, size = oip->blobs.length;
    if (size > 0) ks_text_add(text, oip->blobs.bytes, size);
    text->broken |= oip->blobs.broken;
    if (status == KS_OK && text->broken && text->length > ANSWER_MAX / 2)
        status = ks_fail(error, KS_WORK,
                         "the answer's JSON exceeds the maximum allowed size of %d bytes: ask for binary output",
                         ANSWER_MAX);
    if (status == KS_OK) status = owned_answer(text, answer, error);
    ks_text_fini(text);
    ks_text_fini(&oip->blobs);
    answer->content_type = size > 0 ? octets : json;
    if (size > 0) answer->header_length = (int64_t)head_length;
    return status;
}

ks_status ks_oip_answer(ks_oip *oip, unsigned char *out, ks_answer *answer, ks_error *error)
{
    const ks_ask *ask = &oip->ask;
    answer->body = NULL;
    answer->length = 0;
    answer->owned = NULL;
    answer->content_encoding = NULL;
    answer->content_type = json;
    answer->header_length = -1;
    answer->shape[0] = 0;
    answer->datatype = NULL;
    if (ask->answer)
        file_answer(ask, out, answer);
    else if (!is_binary(ask))
        return text_answer(oip, out, answer, error);
    else if (ask->form == KS_FORM_PLAIN_RAW)
        raw_answer(ask, out, answer);
    else if (!binary_answer(ask, out, answer))
        return text_answer(oip, out, answer, error);
    return KS_OK;
}
