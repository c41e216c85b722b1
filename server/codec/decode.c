/* A request's words: which form the body has, its chunks to where they belong, limits.
 *
 * Forms   Inference-Header-Content-Length N > 0: N bytes of JSON, then tensors. 0: OIP raw. Absent: a file where
 *         Content-Type names one; plain raw where the query names a shape; else the whole body is JSON.
 * Owner   ks_codec is the caller's memory; while JSON or a file's head arrives it owns the scanner or the head's bytes,
 *         which their reader or fini frees. */
#include "codec/decode.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number/number.h"
#include "codec/codec_parts.h"

enum { MEMBERS_MAX = 64 }; /* of an object in a request's JSON */

/* The scanner's memory lies behind the words. */
static size_t scanner_offset(void)
{
    return (sizeof(ks_codec) + 63) / 64 * 64;
}

size_t ks_codec_size(void)
{
    const ks_scan_limits limits = {.string_max = KS_ID_MAX, .members_max = MEMBERS_MAX};
    return scanner_offset() + ks_scan_bytes(&limits);
}

/* --- begin -----------------------------------------------------------------------------------------------------------
 */

static ks_status header_length(ks_codec *codec, const char *text, ks_error *error)
{
    const size_t n = strlen(text);
    const bool negative = n > 1 && text[0] == '-';
    const size_t sign = negative ? 1 : 0;
    if (n == sign || strspn(text + sign, "0123456789") != n - sign)
        return ks_fail(error, KS_HEADER_LENGTH, "Unable to parse Inference-Header-Content-Length, got: %s",
                       ks_quoted(text, n).text);
    /* Leading zeros are no reason to refuse: the value is digits, not JSON. */
    const char *digits = text + sign;
    while (digits[0] == '0' && digits[1]) digits++;
    const bool fits =
        !negative && ks_number_read(digits, strlen(digits), KS_INT64, &codec->json_length) == KS_NUMBER_OK;
    const int64_t most = codec->content_length >= 0 ? codec->content_length : (int64_t)codec->limits.max_body;
    if (!fits || codec->json_length > most)
        return ks_fail(error, KS_HEADER_LENGTH, "inference header size should be in range (0, %" PRId64 "), got: %s",
                       most, ks_quoted(text, n).text);
    return KS_OK;
}

static ks_status begin_json(ks_codec *codec, ks_error *error)
{
    const int64_t known = codec->json_length >= 0 ? codec->json_length : codec->content_length;
    if (known >= 0 && (uint64_t)known > codec->limits.max_json)
        return ks_fail(error, KS_BODY_SIZE,
                       "request JSON size of %" PRId64 " bytes exceeds the maximum allowed input size of %" PRIu64
                       " bytes. Use --max-json to increase the limit.",
                       known, codec->limits.max_json);
    const ks_scan_limits limits = {.json_head_max = codec->limits.max_skeleton,
                                   .string_max = KS_ID_MAX,
                                   .members_max = MEMBERS_MAX,
                                   .json_max = known >= 0 ? (size_t)known : codec->limits.max_json,
                                   .slice = codec->limits.slice,
                                   .memory = (char *)codec + scanner_offset()};
    return ks_scan_begin(&limits, ks_codec_place_json, codec, &codec->scan, error);
}

ks_status ks_codec_begin(ks_codec *codec, const ks_codec_head *head, const ks_codec_limits *limits,
                         ks_codec_place_fn *place, void *context, ks_error *error)
{
    memset(codec, 0, offsetof(ks_codec, request.spec));
    codec->limits = *limits;
    if (head->raw) codec->limits.unknown_names = KS_NAMES_ALL;
    codec->place = place;
    codec->context = context;
    codec->content_length = head->content_length;
    codec->json_length = -1;
    codec->window = head->window;
    codec->tensor = head->tensor;
    codec->request.model = head->model;
    ks_spec_init(&codec->request.spec, head->model->op);
    ks_model_fix(head->model, &codec->request.spec);
    if (head->content_length >= 0 && (uint64_t)head->content_length > limits->max_body)
        return ks_fail(error, KS_BODY_SIZE,
                       "request body of %" PRId64 " bytes exceeds the maximum allowed input size of %" PRIu64
                       " bytes. Use --max-body to increase the limit.",
                       head->content_length, limits->max_body);
    if (head->header_length) {
        const ks_status status = header_length(codec, head->header_length, error);
        if (status != KS_OK) return status;
    }
    codec->request.response = head->response;
    if (!head->header_length && head->body != NULL) {
        codec->request.format = KS_BODY_FORMAT_FILE;
        codec->request.body = head->body;
        if (head->response == NULL && !head->accept_json) codec->request.response = head->body;
        codec->request.binary = codec->request.response != NULL ? KS_OUTPUTS_ALL : 0;
        return ks_codec_file_begin(codec, head->query, error);
    }
    if (codec->json_length == 0) {
        codec->request.format = KS_BODY_FORMAT_OIP_RAW;
        codec->request.binary = KS_OUTPUTS_ALL;
        return ks_codec_raw_begin(codec, head->query, error);
    }
    if (!head->header_length && (!place || head->raw || ks_codec_query_is_raw(head->query))) {
        codec->request.format = KS_BODY_FORMAT_RAW;
        codec->request.binary = !head->accept_json || head->response != NULL ? KS_OUTPUTS_ALL : 0;
        codec->accept_json = head->accept_json;
        return ks_codec_raw_begin(codec, head->query, error);
    }
    codec->request.format = KS_BODY_FORMAT_JSON;
    const ks_status status = *head->query ? ks_codec_check_query(codec, head->query, error) : KS_OK;
    if (status != KS_OK) return status;
    return begin_json(codec, error);
}

/* --- the body --------------------------------------------------------------------------------------------------------
 */

static ks_status put_bytes(ks_codec *codec, size_t offset, const char *bytes, size_t n, size_t *taken, ks_error *error)
{
    if (codec->write) return codec->write(codec->context, offset, bytes, n, taken, error);
    if (codec->fortran_order) {
        ks_fortran_put(&codec->fortran, codec->sides.in + codec->request.spec.in[codec->segment[0].input].offset, bytes,
                       n);
        *taken = n;
        return KS_OK;
    }
    memcpy(codec->sides.in + offset, bytes, n);
    *taken = n;
    return KS_OK;
}

/* *unfed: the last bytes, which were not taken. */
static ks_status feed_segments(ks_codec *codec, const char *bytes, size_t n, size_t *unfed, ks_error *error)
{
    *unfed = n;
    while (n > 0) {
        if (codec->segment_now == codec->segments)
            return ks_fail(error, KS_BINARY_SIZE, "unexpected additional input data for model '%s'",
                           codec->request.model->name);
        const ks_segment *segment = &codec->segment[codec->segment_now];
        const size_t left = segment->bytes - codec->segment_filled;
        const size_t offered = n < left ? n : left,
                     at = codec->request.spec.in[segment->input].offset + codec->segment_filled;
        size_t taken;
        ks_status status = ks_infer_request_check_bytes(&codec->request, segment->input, bytes, offered, error);
        if (status == KS_OK) status = put_bytes(codec, at, bytes, offered, &taken, error);
        if (status != KS_OK) return status;
        codec->segment_filled += taken;
        bytes += taken;
        n -= taken;
        *unfed = n;
        if (codec->segment_filled < segment->bytes) break;
        codec->segment_now++;
        codec->segment_filled = 0;
    }
    return KS_OK;
}

static ks_status place_tensors(ks_codec *codec, size_t in_bytes, ks_error *error)
{
    ks_scan_fini(&codec->scan);
    return ks_codec_take_memory(codec, in_bytes, ks_infer_request_out_bytes(&codec->request), codec->in_used, error);
}

/* head: all of the JSON, where one segment of the body holds it; else NULL. */
static ks_status end_json(ks_codec *codec, const char *head, ks_error *error)
{
    const ks_format *const asked = codec->request.response;
    size_t in_bytes = 0;
    ks_status status = ks_scan_end(codec->scan, error);
    if (status == KS_OK && ks_scan_busy(codec->scan)) return KS_OK;
    if (status == KS_OK) status = ks_codec_read_json_head(codec, &in_bytes, error);
    if (status != KS_OK) {
        ks_scan_fini(&codec->scan);
        return status;
    }
    if (head) ks_head_cache_put(codec, head, (size_t)codec->json_length, asked, in_bytes);
    return place_tensors(codec, in_bytes, error);
}

bool ks_codec_may_write_through(const ks_codec *codec)
{
    const ks_infer_request *request = &codec->request;
    /* Its response's head fits into the head room. */
    const bool short_head = 6 * request->id_length <= KS_HEAD_ROOM / 4 && request->spec.outputs <= KS_OP_OUTPUTS_MAX;
    /* Files have heads of their own, and what lies in shared memory neither comes nor goes with the bodies. */
    const bool file = request->format == KS_BODY_FORMAT_FILE || request->response;
    /* None is chosen before all of the request's words are read. */
    const bool binary = request->outputs != 0 && (request->outputs & ~(unsigned)request->binary) == 0;
    return codec->in_used == 0 && !codec->deduce && binary && short_head && !file && !request->windows;
}

void ks_codec_write_through(ks_codec *codec, ks_codec_write_fn *write)
{
    codec->write = write;
}

static bool is_raw(char first)
{
    return !strchr("{[\" \t\r\n", first) || first == 0;
}

/* Bytes without a shape, most often: what would make them a request. */
static void name_raw(ks_error *error)
{
    const size_t n = strlen(error->text);
    snprintf(
        error->text + n, sizeof error->text - n,
        "; the body is no JSON: for raw bytes name ?shape=R,C&datatype=FP32, or send Content-Type: application/x-npy");
}

/* The JSON part of bytes, or of a tail of them that comes again; *n: as much as it took. */
static ks_status feed_json(ks_codec *codec, const char *bytes, size_t *n, ks_error *error)
{
    const uint64_t due = codec->json_length >= 0 ? (uint64_t)codec->json_length - codec->received : UINT64_MAX;
    if (*n > due) *n = (size_t)due;
    const char *const head = codec->received == 0 && *n == due ? bytes : NULL;
    size_t in_bytes;
    codec->received += *n;
    if (head && ks_head_cache_find(codec, head, *n, &in_bytes)) return place_tensors(codec, in_bytes, error);
    ks_status status = *n > 0 ? ks_scan_feed(codec->scan, bytes, *n, error) : KS_OK;
    if (status == KS_OK && *n == due) status = end_json(codec, head, error);
    if (status == KS_JSON && codec->json_length < 0 && codec->received == *n && is_raw(*bytes)) name_raw(error);
    return status;
}

ks_status ks_codec_feed(ks_codec *codec, const char *bytes, size_t *n, ks_error *error)
{
    size_t taken = 0;
    if (*n > codec->limits.max_body - codec->received)
        return ks_fail(error, KS_BODY_SIZE,
                       "request body exceeds the maximum allowed input size of %" PRIu64
                       " bytes. Use --max-body to increase the limit.",
                       codec->limits.max_body);
    if (codec->scan) {
        taken = *n;
        const ks_status status = feed_json(codec, bytes, &taken, error);
        if (status != KS_OK) return status;
    }
    size_t rest = *n - taken;
    if (rest == 0) return KS_OK;
    if (ks_codec_busy(codec)) {
        *n = taken;
        return KS_OK;
    }
    codec->received += rest;
    bytes += taken;
    if (codec->file_due > 0) {
        const ks_status status = ks_codec_file_feed(codec, &bytes, &rest, error);
        if (status != KS_OK || rest == 0) return status;
    }
    if (codec->deduce) return ks_codec_raw_grow(codec, bytes, rest, error);
    size_t unfed;
    const ks_status status = feed_segments(codec, bytes, rest, &unfed, error);
    if (status != KS_OK) return status;
    codec->received -= unfed;
    *n -= unfed;
    return KS_OK;
}

ks_status ks_codec_end(ks_codec *codec, ks_error *error)
{
    ks_status status = KS_OK;
    if (codec->scan && codec->json_length > 0 && (uint64_t)codec->json_length > codec->received)
        return ks_fail(error, KS_HEADER_LENGTH,
                       "inference header size should be in range (0, %" PRIu64 "), got: %" PRId64, codec->received,
                       codec->json_length);
    if (codec->scan) status = end_json(codec, NULL, error);
    if (status == KS_OK && ks_codec_busy(codec)) return KS_OK;
    if (codec->file_due > 0)
        return ks_fail(error, KS_BINARY_SIZE, "the body ends within the file's header, after %" PRIu64 " bytes",
                       codec->received);
    if (codec->deduce) {
        status = ks_codec_raw_deduce(codec, codec->in_used, error);
        if (status == KS_OK) codec->segment_now = codec->segments;
    }
    if (status != KS_OK) return status;
    while (codec->segment_now < codec->segments && codec->segment_filled == codec->segment[codec->segment_now].bytes) {
        codec->segment_now++;
        codec->segment_filled = 0;
    }
    if (codec->segment_now < codec->segments) {
        const ks_segment *segment = &codec->segment[codec->segment_now];
        return ks_fail(error, KS_BINARY_SIZE,
                       "unexpected size for input '%s', expecting %zu additional bytes for model '%s'",
                       codec->request.spec.op->inputs[segment->input].name, segment->bytes - codec->segment_filled,
                       codec->request.model->name);
    }
    return KS_OK;
}

bool ks_codec_busy(const ks_codec *codec)
{
    return codec->printing || (codec->scan && ks_scan_busy(codec->scan));
}

bool ks_codec_complete(const ks_codec *codec)
{
    return codec->content_length >= 0 && codec->received == (uint64_t)codec->content_length;
}

ks_format_label ks_infer_request_label(const ks_infer_request *request)
{
    static const ks_format_label encodings[] = {[KS_BODY_FORMAT_JSON] = KS_FORMAT_LABEL_json,
                                                [KS_BODY_FORMAT_BINARY] = KS_FORMAT_LABEL_binary,
                                                [KS_BODY_FORMAT_OIP_RAW] = KS_FORMAT_LABEL_raw,
                                                [KS_BODY_FORMAT_RAW] = KS_FORMAT_LABEL_raw};
    return request->format == KS_BODY_FORMAT_FILE ? request->body->encoding : encodings[request->format];
}

const ks_infer_request *ks_codec_request(const ks_codec *codec)
{
    return &codec->request;
}

void ks_codec_fini(ks_codec *codec)
{
    ks_scan_fini(&codec->scan);
    free(codec->file);
    codec->file = NULL;
    ks_text_fini(&codec->text);
    if (codec->blobs.bytes) ks_text_fini(&codec->blobs);
}
