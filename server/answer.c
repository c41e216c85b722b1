/* The answer of one request. Binary: the JSON head is written right in front of the output, in the slot's head room, so
 * that head and tensor leave as one piece. JSON: text of its own, numbers in shortest form.
 *
 * Member names and their order are those of protocol.md's examples; clients exist that refuse any other member. */
#include <stdlib.h>
#include <string.h>

#include "number.h"
#include "oip_parts.h"
#include "text.h"

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
    const ks_tensor *out = &ask->spec.out;
    puts_(head, "\"model_name\":\"");
    puts_(head, ask->model->name);
    puts_(head, "\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"OUTPUT0\",\"datatype\":\"");
    puts_(head, ks_dtype_name(out->dtype));
    puts_(head, "\",\"shape\":[");
    for (int i = 0; i < out->rank; i++) {
        if (i > 0) puts_(head, ",");
        put_integer(head, out->dims[i]);
    }
    puts_(head, "],");
}

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
    if (!ask->out_binary) return;
    puts_(head, "\"parameters\":{\"binary_data_size\":");
    put_integer(head, (int64_t)ask->spec.out.size_bytes);
    puts_(head, "}}]}");
}

/* An id too long for the head room: a buffer of its own for head and tensor. */
static ks_status long_head(const ks_ask *ask, const unsigned char *out, ks_text *text, ks_error *error)
{
    head_text rest = {.length = 0};
    put_output(&rest, ask);
    ks_text_puts(text, "{\"id\":");
    ks_text_json(text, ask->id, ask->id_length);
    ks_text_puts(text, ",");
    ks_text_add(text, rest.bytes, rest.length);
    if (!ask->out_binary) return text->broken ? ks_fail(error, KS_MEMORY, "no memory for the answer") : KS_OK;
    ks_text_printf(text, "\"parameters\":{\"binary_data_size\":%zu}}]}", ask->spec.out.size_bytes);
    ks_text_add(text, (const char *)out, ask->spec.out.size_bytes);
    return text->broken ? ks_fail(error, KS_MEMORY, "no memory for the answer") : KS_OK;
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
    if (head.length > sizeof head.bytes) {
        ks_text text;
        ks_text_init(&text, ANSWER_MAX);
        ks_status status = long_head(ask, out, &text, error);
        if (status == KS_OK) status = owned_answer(&text, answer, error);
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
    head_text head;
    ks_text_init(&oip->text, ANSWER_MAX);
    ks_text_room(&oip->text, room < ANSWER_MAX ? (size_t)room : ANSWER_MAX);
    put_head(&head, ask);
    ks_status status = KS_OK;
    if (head.length > sizeof head.bytes)
        status = long_head(ask, out, &oip->text, error);
    else
        ks_text_add(&oip->text, head.bytes, head.length);
    ks_text_puts(&oip->text, "\"data\":[");
    oip->printed = 0;
    return status;
}

static ks_status json_answer(ks_oip *oip, const unsigned char *out, ks_answer *answer, ks_error *error)
{
    ks_text *const text = &oip->text;
    ks_status status = oip->printing ? KS_OK : begin_json(oip, out, error);
    if (status == KS_OK) status = put_numbers(oip, out, error);
    if (status == KS_OK && oip->printing) return KS_OK;
    oip->printing = false;
    ks_text_puts(text, "]}]}");
    if (status == KS_OK && text->broken && text->length > ANSWER_MAX / 2)
        status = ks_fail(error, KS_WORK, "the answer's JSON exceeds %d bytes: ask for binary output", ANSWER_MAX);
    if (status == KS_OK) status = owned_answer(text, answer, error);
    ks_text_fini(text);
    answer->content_type = json;
    return status;
}

ks_status ks_oip_answer(ks_oip *oip, unsigned char *out, ks_answer *answer, ks_error *error)
{
    const ks_ask *ask = &oip->ask;
    answer->body = NULL;
    answer->length = 0;
    answer->owned = NULL;
    answer->content_type = json;
    answer->header_length = -1;
    answer->shape[0] = 0;
    answer->datatype = NULL;
    if (!ask->out_binary) return json_answer(oip, out, answer, error);
    if (ask->form != KS_FORM_PLAIN_RAW) return binary_answer(ask, out, answer, error);
    answer->body = (const char *)out;
    answer->length = ask->spec.out.size_bytes;
    answer->content_type = octets;
    answer->datatype = ks_dtype_name(ask->spec.out.dtype);
    ks_dims_text(&ask->spec.out, answer->shape, sizeof answer->shape);
    return KS_OK;
}
