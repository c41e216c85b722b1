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

static void put_output(head_text *head, const ks_ask *ask)
{
    ks_tensor shown = ask->spec.out;
    const ks_tensor *const out = &shown;
    if (ask->classes > 0)
        shown = (ks_tensor){.dtype = KS_BYTES, .rank = 1, .dims = {(int64_t)ks_answer_class_count(ask)}};
    puts_(head, "\"model_name\":\"");
    puts_(head, ask->model->name);
    puts_(head, "\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"OUTPUT0\",\"datatype\":\"");
    puts_(head, ks_dtype_name(out->dtype));
    puts_(head, "\",\"shape\":[");
    for (int i = 0; i < out->rank; i++) {
        if (i > 0) puts_(head, ",");
        put_integer(head, out->dims[i]);
    }
    puts_(head, "]");
}

static void put_size(head_text *head, size_t bytes)
{
    puts_(head, ",\"parameters\":{\"binary_data_size\":");
    put_integer(head, (int64_t)bytes);
    puts_(head, "}}]}");
}

/* Up to where the output's data, or the size of its blob, follows. */
static void put_head(head_text *head, const ks_ask *ask)
{
    head->length = 0;
    puts_(head, "{");
    if (ask->id_length > 0) {
        puts_(head, "\"id\":");
        put_json(head, ask->id, ask->id_length);
        puts_(head, ",");
    }
    put_output(head, ask);
}

/* The same into a text, which also holds an id too long for the head room. */
static void add_head(const ks_ask *ask, ks_text *text)
{
    head_text head;
    put_head(&head, ask);
    if (head.length <= sizeof head.bytes) {
        ks_text_add(text, head.bytes, head.length);
        return;
    }
    ks_text_puts(text, "{\"id\":");
    ks_text_json(text, ask->id, ask->id_length);
    ks_text_puts(text, ",");
    head.length = 0;
    put_output(&head, ask);
    ks_text_add(text, head.bytes, head.length);
}

/* Head and blob in a buffer of their own. Sets the head's length. */
static void add_binary(const ks_ask *ask, const char *blob, size_t size, ks_text *text, size_t *head_length)
{
    head_text end = {.length = 0};
    add_head(ask, text);
    put_size(&end, size);
    ks_text_add(text, end.bytes, end.length);
    *head_length = text->length;
    ks_text_add(text, blob, size);
}

static ks_status owned_answer(ks_text *text, ks_answer *answer, ks_error *error)
{
    answer->owned = ks_text_take(text, &answer->length);
    answer->body = answer->owned;
    return answer->owned ? KS_OK : ks_fail(error, KS_MEMORY, "no memory for the answer");
}

static ks_status binary_answer(const ks_ask *ask, unsigned char *out, ks_answer *answer, ks_error *error)
{
    const size_t size = ask->spec.out.size_bytes;
    head_text head;
    put_head(&head, ask);
    put_size(&head, size);
    if (head.length > sizeof head.bytes) {
        ks_text text;
        size_t head_length;
        ks_text_init(&text, ANSWER_MAX);
        add_binary(ask, (const char *)out, size, &text, &head_length);
        const ks_status status = owned_answer(&text, answer, error);
        ks_text_fini(&text);
        if (status != KS_OK) return status;
    } else {
        memcpy(out - head.length, head.bytes, head.length);
        answer->body = (const char *)out - head.length;
        answer->length = head.length + size;
    }
    /* An empty output has no blob: then it is plain JSON, as Triton sends it. */
    answer->content_type = size > 0 ? octets : json;
    if (size > 0) answer->header_length = (int64_t)(answer->length - size);
    return KS_OK;
}

/* The most bytes that one element takes as JSON text, with its comma. */
static size_t text_bytes(ks_dtype dtype)
{
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

uint64_t ks_oip_answer_bound(const ks_oip *oip)
{
    const ks_ask *ask = &oip->ask;
    const uint64_t head = KS_HEAD_ROOM + 6 * (uint64_t)ask->id_length;
    const ks_tensor *out = &ask->spec.out;
    if (ask->window[KS_WINDOW_OUT]) return head;
    if (ask->answer != KS_FILE_NONE) return 0;
    if (ask->classes > 0) return head + ks_answer_class_bytes(ask);
    if (!ask->out_binary) return head + out->size_bytes / ks_dtype_size(out->dtype) * text_bytes(out->dtype);
    return ask->form != KS_FORM_PLAIN_RAW && 6 * ask->id_length > KS_HEAD_ROOM / 4 ? head + out->size_bytes : 0;
}

/* KS_NON_FINITE as soon as one is found. Stops where the slice ends. */
static ks_status put_numbers(ks_oip *oip, const unsigned char *out, ks_error *error)
{
    const ks_tensor *tensor = &oip->ask.spec.out;
    const size_t element = ks_dtype_size(tensor->dtype), count = tensor->size_bytes / element;
    size_t *const slice = oip->limits.slice;
    int non_finite = 0;
    while (oip->printed < count && !(slice && *slice == 0)) {
        size_t n = count - oip->printed < NUMBERS_AT_ONCE ? count - oip->printed : NUMBERS_AT_ONCE;
        if (slice && n > *slice) n = *slice;
        if (oip->printed > 0) ks_text_add(&oip->text, ",", 1);
        char *const room = ks_text_room(&oip->text, n * KS_NUMBER_TEXT_MAX);
        if (room)
            oip->text.length += ks_numbers_write(out + oip->printed * element, n, tensor->dtype, room, &non_finite);
        else
            n = count - oip->printed; /* the text is marked; its taker says so */
        if (non_finite && oip->limits.json_non_finite_error)
            return ks_fail(
                error, KS_NON_FINITE,
                "output 'OUTPUT0' holds NaN or infinity, which JSON has no number for: ask for binary output");
        oip->printed += n;
        if (slice) *slice -= n < *slice ? n : *slice;
    }
    oip->printing = oip->printed < count;
    return KS_OK;
}

/* All the memory at once: no slice waits until what there is has been copied to a larger place. */
static ks_status begin_json(ks_oip *oip, const unsigned char *out, ks_error *error)
{
    const ks_ask *ask = &oip->ask;
    const uint64_t room = ks_oip_answer_bound(oip) + (uint64_t)NUMBERS_AT_ONCE * KS_NUMBER_TEXT_MAX;
    ks_text_init(&oip->text, ANSWER_MAX);
    ks_text_room(&oip->text, room < ANSWER_MAX ? (size_t)room : ANSWER_MAX);
    add_head(ask, &oip->text);
    ks_text_puts(&oip->text, ",\"data\":[");
    oip->printed = 0;
    return ask->classes > 0 ? ks_answer_class_texts(ask, out, &oip->text, error) : KS_OK;
}

static ks_status json_answer(ks_oip *oip, const unsigned char *out, ks_answer *answer, ks_error *error)
{
    ks_text *const text = &oip->text;
    ks_status status = oip->printing ? KS_OK : begin_json(oip, out, error);
    if (status == KS_OK && oip->ask.classes == 0) status = put_numbers(oip, out, error);
    if (status == KS_OK && oip->printing) return KS_OK;
    oip->printing = false;
    ks_text_puts(text, "]}]}");
    if (status == KS_OK && text->broken && text->length > ANSWER_MAX / 2)
        status = ks_fail(error, KS_WORK,
                         "the answer's JSON exceeds the maximum allowed size of %d bytes: ask for binary output",
                         ANSWER_MAX);
    if (status == KS_OK) status = owned_answer(text, answer, error);
    ks_text_fini(text);
    answer->content_type = json;
    return status;
}

/* The output lies in shared memory: nothing but its name, datatype and shape is said here. */
static ks_status shared_answer(const ks_ask *ask, ks_answer *answer, ks_error *error)
{
    ks_text text;
    ks_text_init(&text, ANSWER_MAX);
    add_head(ask, &text);
    ks_text_puts(&text, "}]}");
    const ks_status status = owned_answer(&text, answer, error);
    ks_text_fini(&text);
    return status;
}

/* A file: its head right in front of the output, as with the JSON head. */
static void file_answer(const ks_ask *ask, unsigned char *out, ks_answer *answer)
{
    char head[KS_FILE_HEAD_MAX];
    const bool npy = ask->answer == KS_FILE_NPY;
    const size_t length = npy ? ks_npy_head(&ask->spec.out, head) : ks_safetensors_head(&ask->spec.out, head);
    memcpy(out - length, head, length);
    answer->body = (const char *)out - length;
    answer->length = length + ask->spec.out.size_bytes;
    answer->content_type = npy ? "application/x-npy" : "application/x-safetensors";
}

static ks_status binary_classes(const ks_ask *ask, const unsigned char *out, ks_answer *answer, ks_error *error)
{
    ks_text blob, text;
    size_t head_length = 0;
    ks_text_init(&blob, ANSWER_MAX);
    ks_text_init(&text, ANSWER_MAX);
    ks_status status = ks_answer_class_texts(ask, out, &blob, error);
    const size_t size = blob.length;
    if (status == KS_OK) add_binary(ask, blob.bytes, size, &text, &head_length);
    text.broken |= blob.broken;
    if (status == KS_OK) status = owned_answer(&text, answer, error);
    ks_text_fini(&blob);
    ks_text_fini(&text);
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
    if (ask->window[KS_WINDOW_OUT]) return shared_answer(ask, answer, error);
    if (ask->answer != KS_FILE_NONE) {
        file_answer(ask, out, answer);
        return KS_OK;
    }
    if (!ask->out_binary) return json_answer(oip, out, answer, error);
    if (ask->classes > 0) return binary_classes(ask, out, answer, error);
    if (ask->form != KS_FORM_PLAIN_RAW) return binary_answer(ask, out, answer, error);
    answer->body = (const char *)out;
    answer->length = ask->spec.out.size_bytes;
    answer->content_type = octets;
    answer->datatype = ks_dtype_name(ask->spec.out.dtype);
    ks_dims_text(&ask->spec.out, answer->shape, sizeof answer->shape);
    /* Some readers of HTTP drop a field without a value, and some writers do not write one. */
    if (answer->shape[0] == '\0') strcpy(answer->shape, "scalar");
    return KS_OK;
}
