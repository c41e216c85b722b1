#include "http/response.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "api/metadata.h"
#include "codec/decode.h"

const char *ks_response_sentence(ks_status status)
{
    return status == KS_DEVICE ? "the device has failed; the server restarts" : "Server not ready";
}

const char *ks_response_number(char out[24], int64_t value)
{
    char *end = out + 23;
    *end = '\0';
    do {
        *--end = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return end;
}

/* --- fields ------------------------------------------------------------------------------------------------------- */

void ks_fields_add(ks_fields *fields, const char *name, const char *value)
{
    assert((size_t)fields->count < sizeof fields->at / sizeof fields->at[0]);
    fields->at[fields->count].name = name;
    fields->at[fields->count++].value = value;
}

void ks_response_infer(ks_response *response, const ks_response_body *encoded, const char *timing, const char *profile)
{
    ks_fields *fields = &response->fields;
    response->code = 200;
    response->length = encoded->length;
    if (encoded->body) response->body = encoded->body;
    ks_fields_add(fields, "Content-Type", encoded->content_type);
    if (encoded->header_length >= 0)
        ks_fields_add(fields, "Inference-Header-Content-Length",
                      ks_response_number(fields->number, encoded->header_length));
    if (encoded->datatype) {
        ks_fields_add(fields, "Kernserve-Shape", encoded->shape);
        ks_fields_add(fields, "Kernserve-Datatype", encoded->datatype);
    }
    if (encoded->tensor) ks_fields_add(fields, "Kernserve-Tensor", encoded->tensor);
    if (encoded->content_encoding) ks_fields_add(fields, "Content-Encoding", encoded->content_encoding);
    if (encoded->warning) ks_fields_add(fields, "Kernserve-Warning", encoded->warning);
    if (timing[0]) ks_fields_add(fields, "Server-Timing", profile ? profile : timing);
    response->head_more = profile ? strlen(profile) : 0;
}

static void add_given(ks_fields *fields, const char *name, const char *value)
{
    if (value) ks_fields_add(fields, name, value);
}

void ks_response_tensors(ks_response *response, const ks_tensor_answer *answer)
{
    ks_fields *fields = &response->fields;
    response->code = answer->code;
    add_given(fields, "Content-Type", answer->content_type);
    add_given(fields, "Location", answer->location);
    add_given(fields, "ETag", answer->etag);
    add_given(fields, "Kernserve-Generation", answer->generation);
    add_given(fields, "Kernserve-Shape", answer->shape);
    add_given(fields, "Kernserve-Datatype", answer->datatype);
    if (answer->varies) ks_fields_add(fields, "Vary", "Accept");
}

bool ks_response_fault(ks_response *response, ks_status status, const char *sentence, const char *allow)
{
    ks_fields *fields = &response->fields;
    size_t length = 0;
    ks_text text;
    ks_text_init(&text, KS_ERROR_TEXT * 8);
    ks_document_error(&text, sentence);
    response->code = ks_status_http(status);
    response->body = response->owned = ks_text_take(&text, &length);
    response->length = length;
    ks_fields_add(fields, "Content-Type", "application/json");
    ks_fields_add(fields, "Kernserve-Error", ks_status_code(status));
    if (ks_status_retries(status)) ks_fields_add(fields, "Retry-After", "1");
    if (allow) ks_fields_add(fields, "Allow", allow);
    if (status == KS_ENCODING) ks_fields_add(fields, "Accept-Encoding", "gzip, deflate");
    if (status == KS_UNAUTHORIZED) ks_fields_add(fields, "WWW-Authenticate", "Bearer realm=\"kernserve\"");
    return response->owned != NULL;
}

void ks_response_fini(ks_response *response)
{
    free(response->owned);
    response->owned = NULL;
    ks_source_end(&response->source);
}

enum { HEAD_SPARE = 128 }; /* for what follows the fields */

/* --- text --------------------------------------------------------------------------------------------------------- */

/* Of the statuses that this server sends (RFC 9110 15). */
static const char *phrase_of(int code)
{
    static const struct {
        int code;
        const char *phrase;
    } phrases[] = {{200, "OK"},
                   {201, "Created"},
                   {204, "No Content"},
                   {304, "Not Modified"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {408, "Request Timeout"},
                   {410, "Gone"},
                   {412, "Precondition Failed"},
                   {413, "Content Too Large"},
                   {414, "URI Too Long"},
                   {415, "Unsupported Media Type"},
                   {417, "Expectation Failed"},
                   {421, "Misdirected Request"},
                   {422, "Unprocessable Content"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"},
                   {504, "Gateway Timeout"},
                   {505, "HTTP Version Not Supported"},
                   {507, "Insufficient Storage"}};
    for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++)
        if (phrases[i].code == code) return phrases[i].phrase;
    return "Unknown";
}

static const char *date_line(ks_date *date)
{
    const time_t now = time(NULL);
    struct tm day;
    if (now != date->dated && gmtime_r(&now, &day)) {
        date->dated = now;
        strftime(date->line, sizeof date->line, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &day);
    }
    return date->line;
}

static inline char *put(char *at, const char *text, size_t n)
{
    memcpy(at, text, n);
    return at + n;
}

#define PUT(at, literal) put(at, literal, sizeof(literal) - 1)

static char *put_text(char *at, const char *text)
{
    return put(at, text, strlen(text));
}

static char *put_status(char *at, int code)
{
    char number[24];
    if (code == 200) return PUT(at, "HTTP/1.1 200 OK\r\n");
    at = PUT(at, "HTTP/1.1 ");
    at = put_text(at, ks_response_number(number, code));
    at = PUT(at, " ");
    at = put_text(at, phrase_of(code));
    return PUT(at, "\r\n");
}

/* Names are ours, and values bounded: by KS_TIMING_MAX, KS_REQUEST_ID_MAX and the length of a shape. */
size_t ks_response_head(const ks_response *response, ks_date *date, char *out)
{
    char number[24], *at = put_text(put_status(out, response->code), date_line(date));
    for (int i = 0; i < response->fields.count; i++) {
        const char *const name = response->fields.at[i].name, *const value = response->fields.at[i].value;
        const size_t name_length = strlen(name), value_length = strlen(value);
        assert((size_t)(at - out) + name_length + value_length <
               KS_RESPONSE_HEAD_MAX + response->head_more - HEAD_SPARE);
        at = PUT(put(at, name, name_length), ": ");
        at = PUT(put(at, value, value_length), "\r\n");
    }
    if (response->last) at = PUT(at, "Connection: close\r\n");
    if (response->code == 204 || response->code == 304) return (size_t)(PUT(at, "\r\n") - out); /* RFC 9110 8.6 */
    at = PUT(at, "Content-Length: ");
    at = put_text(at, ks_response_number(number, (int64_t)response->length));
    at = PUT(at, "\r\n\r\n");
    return (size_t)(at - out);
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

int64_t ks_source_view(const ks_response_source *source, uint64_t at, const char **bytes)
{
    return source->infer ? ks_infer_view(source->infer, at, bytes) : ks_download_view(source->download, at, bytes);
}

void ks_source_used(const ks_response_source *source, uint64_t at, size_t n)
{
    if (source->infer)
        ks_infer_used(source->infer, at, n);
    else
        ks_download_used(source->download, at, n);
}

void ks_source_end(ks_response_source *source)
{
    if (source->infer) ks_infer_sent(source->infer);
    source->infer = NULL;
    ks_transfer_leave(&source->download);
}

/* --- books -------------------------------------------------------------------------------------------------------- */

void ks_response_count(ks_shard_metrics *metrics, const ks_route *route, ks_status status, int64_t total_ns)
{
    ks_record record = {.model = route->model ? route->model->index : -1, .status = status, .total_ns = total_ns};
    for (int i = 0; i < KS_PHASES; i++) record.phase_ns[i] = -1;
    ks_metrics_inference(metrics, &record);
}
