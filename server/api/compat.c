#include "api/compat.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/compat_parts.h"
#include "base/number/number.h"

enum { NUMBER_MAX = 24 };

ks_status ks_compat_begin(const ks_model *model, const char *header_length, ks_body_encoding encoding,
                          bool non_finite_error, ks_compat_job **out, ks_error *error)
{
    int64_t json_length = -1;
    if (header_length && (*header_length == '-' ||
                          ks_number_read(header_length, strlen(header_length), KS_INT64, &json_length) != KS_NUMBER_OK))
        return ks_fail(error, KS_HEADER_LENGTH, "Unable to parse Inference-Header-Content-Length, got: %s",
                       ks_quoted(header_length, strlen(header_length)).text);
    ks_compat_job *job = calloc(1, sizeof *job);
    if (!job) return ks_compat_no_memory(error);
    job->model = model;
    job->compat = model->compat;
    job->json_length = json_length;
    job->non_finite_error = non_finite_error;
    ks_text_init(&job->body, KS_COMPAT_BODY_MAX);
    for (int i = 0; i < KS_COMPAT_TENSORS; i++) {
        ks_text_init(&job->in[i].bytes, KS_COMPAT_BODY_MAX);
        ks_text_init(&job->out[i].bytes, KS_COMPAT_BODY_MAX);
    }
    ks_status status = KS_OK;
    if (encoding != KS_BODY_PLAIN) status = ks_inflate_begin(KS_COMPAT_BODY_MAX, NULL, &job->inflate, error);
    if (status != KS_OK) ks_compat_fini(&job);
    *out = job;
    return status;
}

/* ks_inflate_fn */
static ks_status collect(void *context, const char *bytes, size_t *n, ks_error *error)
{
    ks_compat_job *job = context;
    if (*n > KS_COMPAT_BODY_MAX - job->body.length)
        return ks_fail(error, KS_BODY_SIZE, "request body for '%s' exceeds the maximum allowed input size of %d bytes",
                       job->model->name, KS_COMPAT_BODY_MAX);
    ks_text_add(&job->body, bytes, *n);
    return job->body.broken ? ks_compat_no_memory(error) : KS_OK;
}

ks_status ks_compat_feed(ks_compat_job *job, const char *bytes, size_t n, ks_error *error)
{
    return job->inflate ? ks_inflate_feed(job->inflate, bytes, &n, collect, job, error)
                        : collect(job, bytes, &n, error);
}

void ks_compat_fini(ks_compat_job **pointer)
{
    ks_compat_job *job = *pointer;
    *pointer = NULL;
    if (!job) return;
    for (int i = 0; i < KS_COMPAT_TENSORS; i++) {
        ks_text_fini(&job->in[i].bytes);
        ks_text_fini(&job->out[i].bytes);
    }
    ks_inflate_fini(&job->inflate);
    ks_text_fini(&job->body);
    free(job);
}

/* --- the work ------------------------------------------------------------------------------------------------------- */

static uint32_t next_string(const ks_text *bytes, size_t *at, const char **out)
{
    uint32_t length;
    memcpy(&length, bytes->bytes + *at, sizeof length);
    *out = bytes->bytes + *at + sizeof length;
    *at += sizeof length + length;
    return length;
}

static ks_status next_number(const ks_text *bytes, size_t *at, int64_t *out, ks_error *error)
{
    const char *text;
    const uint32_t length = next_string(bytes, at, &text);
    if (ks_number_read(text, length, KS_INT64, out) == KS_NUMBER_OK && *out >= INT32_MIN && *out <= INT32_MAX)
        return KS_OK;
    return ks_fail(error, KS_RANGE, "'%s' is no decimal number", ks_quoted(text, length).text);
}

static void add_number_text(ks_text *out, int64_t value)
{
    char text[NUMBER_MAX];
    const uint32_t length = (uint32_t)snprintf(text, sizeof text, "%" PRId64, value);
    ks_text_add(out, (const char *)&length, sizeof length);
    ks_text_add(out, text, length);
}

/* Sum and difference, of INT32 (which wraps) or of decimal texts. */
static ks_status add_and_subtract(ks_compat_job *job, ks_error *error)
{
    size_t at[KS_COMPAT_TENSORS] = {0, 0};
    for (size_t i = 0; i < job->in[0].count; i++) {
        if (job->compat->dtype == KS_BYTES) {
            int64_t a, b;
            ks_status status = next_number(&job->in[0].bytes, &at[0], &a, error);
            if (status == KS_OK) status = next_number(&job->in[1].bytes, &at[1], &b, error);
            if (status != KS_OK) return status;
            add_number_text(&job->out[0].bytes, a + b);
            add_number_text(&job->out[1].bytes, a - b);
            continue;
        }
        uint32_t a, b;
        memcpy(&a, job->in[0].bytes.bytes + i * sizeof a, sizeof a);
        memcpy(&b, job->in[1].bytes.bytes + i * sizeof b, sizeof b);
        const uint32_t sum = a + b, difference = a - b;
        ks_text_add(&job->out[0].bytes, (const char *)&sum, sizeof sum);
        ks_text_add(&job->out[1].bytes, (const char *)&difference, sizeof difference);
    }
    return KS_OK;
}

static ks_status work(ks_compat_job *job, ks_error *error)
{
    ks_status status = KS_OK;
    if (job->compat->tensors == 2)
        status = add_and_subtract(job, error);
    else
        ks_text_add(&job->out[0].bytes, job->in[0].bytes.bytes, job->in[0].bytes.length);
    for (int i = 0; i < KS_COMPAT_TENSORS; i++)
        if (job->out[i].bytes.broken) return ks_compat_no_memory(error);
    return status;
}

/* --- the response ----------------------------------------------------------------------------------------------------- */

static bool is_utf8(const char *text, size_t length)
{
    for (size_t at = 0, n; at < length; at += n)
        if ((n = ks_utf8_length(text + at, length - at)) == 0) return false;
    return true;
}

static ks_status write_data(const ks_compat_job *job, const ks_compat_tensor *tensor, ks_text *out, ks_error *error)
{
    const size_t count = job->in[0].count;
    size_t at = 0;
    int non_finite = 0;
    ks_text_puts(out, ",\"data\":[");
    if (job->compat->dtype != KS_BYTES) {
        char *const room = ks_text_room(out, count * KS_NUMBER_TEXT_MAX);
        if (room && count > 0)
            out->length += ks_numbers_write(tensor->bytes.bytes, count, job->compat->dtype, room, &non_finite);
    }
    for (size_t i = 0; i < count && job->compat->dtype == KS_BYTES; i++) {
        const char *text;
        const uint32_t length = next_string(&tensor->bytes, &at, &text);
        if (!is_utf8(text, length))
            return ks_fail(error, KS_DATATYPE,
                           "sending BYTES data that is not UTF-8 via JSON is not possible. Please use the binary data "
                           "format for output");
        if (i > 0) ks_text_puts(out, ",");
        ks_text_json(out, text, length);
    }
    ks_text_puts(out, "]");
    if (!non_finite || !job->non_finite_error) return KS_OK;
    return ks_fail(error, KS_NON_FINITE, "the output holds NaN or infinity; ask for binary output");
}

static ks_status write_output(ks_compat_job *job, int which, bool first, ks_text *head, ks_text *blobs, ks_error *error)
{
    const ks_compat_tensor *tensor = &job->out[which], *like = &job->in[0];
    ks_compat_wish *wish = &job->wish[which];
    ks_text_printf(head, "%s{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[", first ? "" : ",",
                   ks_compat_outputs[which], ks_dtype_name(job->compat->dtype));
    for (int i = 0; i < like->rank; i++) ks_text_printf(head, "%s%" PRId64, i > 0 ? "," : "", like->dims[i]);
    ks_text_puts(head, "]");
    ks_status status = KS_OK;
    if (wish->window.region) {
        if (tensor->bytes.length > wish->window.bytes)
            return ks_fail(
                error, KS_WINDOW,
                "shared memory size specified with the request for output '%s' (%zu bytes) should be at least "
                "%zu bytes to hold the results",
                ks_compat_outputs[which], wish->window.bytes, tensor->bytes.length);
        status = ks_window_write(&wish->window, tensor->bytes.bytes, tensor->bytes.length, error);
    } else if (wish->binary) {
        ks_text_printf(head, ",\"parameters\":{\"binary_data_size\":%zu}", tensor->bytes.length);
        ks_text_add(blobs, tensor->bytes.bytes, tensor->bytes.length);
    } else {
        status = write_data(job, tensor, head, error);
    }
    ks_text_puts(head, "}");
    return status;
}

static ks_status write_response(ks_compat_job *job, ks_text *out, int64_t *json_length, ks_error *error)
{
    ks_text blobs;
    ks_status status = KS_OK;
    bool first = true;
    ks_text_init(&blobs, 2 * KS_COMPAT_BODY_MAX);
    ks_text_puts(out, "{");
    if (job->id_length > 0) {
        ks_text_puts(out, "\"id\":");
        ks_text_json(out, job->id, job->id_length);
        ks_text_puts(out, ",");
    }
    ks_text_printf(out, "\"model_name\":\"%s\",\"model_version\":\"1\",\"outputs\":[", job->model->name);
    for (int i = 0; i < job->compat->tensors && status == KS_OK; i++) {
        if (!job->wish[i].wanted) continue;
        status = write_output(job, i, first, out, &blobs, error);
        first = false;
    }
    ks_text_puts(out, "]}");
    *json_length = blobs.length > 0 ? (int64_t)out->length : -1;
    ks_text_add(out, blobs.bytes, blobs.length);
    out->broken |= blobs.broken;
    ks_text_fini(&blobs);
    return status;
}

ks_status ks_compat_respond(ks_compat_job *job, ks_regions *regions, ks_text *out, int64_t *json_length,
                            ks_error *error)
{
    ks_status status = job->inflate ? ks_inflate_end(job->inflate, error) : KS_OK;
    if (status == KS_OK) status = ks_compat_read(job, regions, error);
    if (status == KS_OK) status = work(job, error);
    if (status == KS_OK) status = write_response(job, out, json_length, error);
    for (int i = 0; i < KS_COMPAT_TENSORS; i++)
        if (job->wish[i].window.region) ks_window_release(regions, &job->wish[i].window);
    return status;
}
