/* A request's words: which form the body has, its chunks to where they belong, limits.
 *
 * Forms   Inference-Header-Content-Length N > 0: N bytes of JSON, then tensors. 0: OIP raw. Absent: a file where
 *         Content-Type names one; plain raw where the query names a shape; else the whole body is JSON.
 * Owner   ks_oip is the caller's memory; while JSON or a file's head arrives it owns the scanner or the head's bytes,
 *         which their reader or fini frees. */
#include "codec/decode.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/number/number.h"
#include "codec/codec_parts.h"

enum { MEMBERS_MAX = 64 }; /* of an object in a request's JSON */

/* The scanner's memory lies behind the words. */
static size_t scanner_offset(void)
{
    return (sizeof(ks_oip) + 63) / 64 * 64;
}

size_t ks_oip_size(void)
{
    const ks_scan_limits limits = {.string_max = KS_ID_MAX, .members_max = MEMBERS_MAX};
    return scanner_offset() + ks_scan_bytes(&limits);
}

/* --- begin -----------------------------------------------------------------------------------------------------------
 */

static ks_status header_length(ks_oip *oip, const char *text, ks_error *error)
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
    const bool fits = !negative && ks_number_read(digits, strlen(digits), KS_INT64, &oip->json_length) == KS_NUMBER_OK;
    const int64_t most = oip->content_length >= 0 ? oip->content_length : (int64_t)oip->limits.max_body;
    if (!fits || oip->json_length > most)
        return ks_fail(error, KS_HEADER_LENGTH, "inference header size should be in range (0, %" PRId64 "), got: %s",
                       most, ks_quoted(text, n).text);
    return KS_OK;
}

static ks_status begin_json(ks_oip *oip, ks_error *error)
{
    const int64_t known = oip->json_length >= 0 ? oip->json_length : oip->content_length;
    if (known >= 0 && (uint64_t)known > oip->limits.max_json)
        return ks_fail(error, KS_BODY_SIZE,
                       "request JSON size of %" PRId64 " bytes exceeds the maximum allowed input size of %" PRIu64
                       " bytes. Use --max-json to increase the limit.",
                       known, oip->limits.max_json);
    const ks_scan_limits limits = {.skeleton_max = oip->limits.max_skeleton,
                                   .string_max = KS_ID_MAX,
                                   .members_max = MEMBERS_MAX,
                                   .json_max = known >= 0 ? (size_t)known : oip->limits.max_json,
                                   .slice = oip->limits.slice,
                                   .memory = (char *)oip + scanner_offset()};
    return ks_scan_begin(&limits, ks_oip_place_json, oip, &oip->scan, error);
}

ks_status ks_oip_begin(ks_oip *oip, const ks_oip_head *head, const ks_word_limits *limits, ks_oip_place_fn *place,
                       void *context, ks_error *error)
{
    memset(oip, 0, offsetof(ks_oip, ask.spec));
    oip->limits = *limits;
    oip->place = place;
    oip->context = context;
    oip->content_length = head->content_length;
    oip->json_length = -1;
    oip->window = head->window;
    oip->ask.model = head->model;
    ks_spec_init(&oip->ask.spec, head->model->op);
    if (head->model->fixed_param >= 0) oip->ask.spec.params[head->model->fixed_param] = head->model->fixed_value;
    if (head->content_length >= 0 && (uint64_t)head->content_length > limits->max_body)
        return ks_fail(error, KS_BODY_SIZE,
                       "request body of %" PRId64 " bytes exceeds the maximum allowed input size of %" PRIu64
                       " bytes. Use --max-body to increase the limit.",
                       head->content_length, limits->max_body);
    if (head->header_length) {
        const ks_status status = header_length(oip, head->header_length, error);
        if (status != KS_OK) return status;
    }
    oip->ask.answer = head->answer;
    if (!head->header_length && head->body != NULL) {
        oip->ask.form = KS_FORM_FILE;
        oip->ask.body = head->body;
        if (head->answer == NULL && !head->accept_json) oip->ask.answer = head->body;
        oip->ask.binary = oip->ask.answer != NULL ? KS_OUTPUTS_ALL : 0;
        return ks_oip_file_begin(oip, head->query, error);
    }
    if (oip->json_length == 0) {
        oip->ask.form = KS_FORM_OIP_RAW;
        oip->ask.binary = KS_OUTPUTS_ALL;
        return ks_oip_raw_begin(oip, head->query, error);
    }
    if (!head->header_length && (!place || ks_oip_query_has(head->query, "shape"))) {
        oip->ask.form = KS_FORM_PLAIN_RAW;
        oip->ask.binary = !head->accept_json || head->answer != NULL ? KS_OUTPUTS_ALL : 0;
        oip->accept_json = head->accept_json;
        return ks_oip_raw_begin(oip, head->query, error);
    }
    oip->ask.form = KS_FORM_JSON;
    return begin_json(oip, error);
}

/* --- the body --------------------------------------------------------------------------------------------------------
 */

static ks_status put_bytes(ks_oip *oip, size_t offset, const char *bytes, size_t n, size_t *taken, ks_error *error)
{
    if (oip->write) return oip->write(oip->context, offset, bytes, n, taken, error);
    if (oip->fortran_order) {
        ks_fortran_put(&oip->fortran, oip->in + oip->ask.spec.in[oip->piece[0].input].offset, bytes, n);
        *taken = n;
        return KS_OK;
    }
    memcpy(oip->in + offset, bytes, n);
    *taken = n;
    return KS_OK;
}

/* *unfed: the last bytes, which nobody took. */
static ks_status feed_pieces(ks_oip *oip, const char *bytes, size_t n, size_t *unfed, ks_error *error)
{
    *unfed = n;
    while (n > 0) {
        if (oip->piece_now == oip->pieces)
            return ks_fail(error, KS_BINARY_SIZE, "unexpected additional input data for model '%s'",
                           oip->ask.model->name);
        const ks_oip_piece *piece = &oip->piece[oip->piece_now];
        const size_t left = piece->bytes - oip->piece_filled;
        const size_t offered = n < left ? n : left, at = oip->ask.spec.in[piece->input].offset + oip->piece_filled;
        size_t taken;
        ks_status status = ks_ask_check_bytes(&oip->ask, piece->input, bytes, offered, error);
        if (status == KS_OK) status = put_bytes(oip, at, bytes, offered, &taken, error);
        if (status != KS_OK) return status;
        oip->piece_filled += taken;
        bytes += taken;
        n -= taken;
        *unfed = n;
        if (oip->piece_filled < piece->bytes) break;
        oip->piece_now++;
        oip->piece_filled = 0;
    }
    return KS_OK;
}

static ks_status place_tensors(ks_oip *oip, size_t in_bytes, ks_error *error)
{
    ks_scan_fini(&oip->scan);
    return ks_oip_ask_place(oip, in_bytes, ks_ask_out_bytes(&oip->ask), oip->in_used, error);
}

/* head: all of the JSON, where one piece of the body holds it; else NULL. */
static ks_status end_json(ks_oip *oip, const char *head, ks_error *error)
{
    const ks_format *const asked = oip->ask.answer;
    size_t in_bytes = 0;
    ks_status status = ks_scan_end(oip->scan, error);
    if (status == KS_OK && ks_scan_busy(oip->scan)) return KS_OK;
    if (status == KS_OK) status = ks_oip_read_skeleton(oip, &in_bytes, error);
    if (status != KS_OK) {
        ks_scan_fini(&oip->scan);
        return status;
    }
    if (head) ks_oip_remember(oip, head, (size_t)oip->json_length, asked, in_bytes);
    return place_tensors(oip, in_bytes, error);
}

bool ks_oip_may_stream(const ks_oip *oip)
{
    const ks_ask *ask = &oip->ask;
    const bool short_id = 6 * ask->id_length <= KS_HEAD_ROOM / 4; /* its answer's head fits into the head room */
    /* Files have heads of their own, and what lies in shared memory neither comes nor goes with the bodies. */
    const bool file = ask->form == KS_FORM_FILE || ask->answer;
    /* None is chosen before all of the request's words are read. */
    const bool binary = ask->outputs != 0 && (ask->outputs & ~(unsigned)ask->binary) == 0;
    return oip->in_used == 0 && !oip->deduce && binary && short_id && !file && !ask->windows;
}

void ks_oip_stream(ks_oip *oip, ks_oip_write_fn *write)
{
    oip->write = write;
}

/* The JSON part of bytes, or of a tail of them that comes again; *n: as much as it took. */
static ks_status feed_json(ks_oip *oip, const char *bytes, size_t *n, ks_error *error)
{
    const uint64_t due = oip->json_length >= 0 ? (uint64_t)oip->json_length - oip->received : UINT64_MAX;
    if (*n > due) *n = (size_t)due;
    const char *const head = oip->received == 0 && *n == due ? bytes : NULL;
    size_t in_bytes;
    oip->received += *n;
    if (head && ks_oip_recall(oip, head, *n, &in_bytes)) return place_tensors(oip, in_bytes, error);
    ks_status status = *n > 0 ? ks_scan_feed(oip->scan, bytes, *n, error) : KS_OK;
    if (status == KS_OK && *n == due) status = end_json(oip, head, error);
    return status;
}

ks_status ks_oip_feed(ks_oip *oip, const char *bytes, size_t *n, ks_error *error)
{
    size_t taken = 0;
    if (*n > oip->limits.max_body - oip->received)
        return ks_fail(error, KS_BODY_SIZE,
                       "request body exceeds the maximum allowed input size of %" PRIu64
                       " bytes. Use --max-body to increase the limit.",
                       oip->limits.max_body);
    if (oip->scan) {
        taken = *n;
        const ks_status status = feed_json(oip, bytes, &taken, error);
        if (status != KS_OK) return status;
    }
    size_t rest = *n - taken;
    if (rest == 0) return KS_OK;
    if (ks_oip_busy(oip)) {
        *n = taken;
        return KS_OK;
    }
    oip->received += rest;
    bytes += taken;
    if (oip->file_due > 0) {
        const ks_status status = ks_oip_file_feed(oip, &bytes, &rest, error);
        if (status != KS_OK || rest == 0) return status;
    }
    if (oip->deduce) return ks_oip_raw_grow(oip, bytes, rest, error);
    size_t unfed;
    const ks_status status = feed_pieces(oip, bytes, rest, &unfed, error);
    if (status != KS_OK) return status;
    oip->received -= unfed;
    *n -= unfed;
    return KS_OK;
}

ks_status ks_oip_end(ks_oip *oip, ks_error *error)
{
    ks_status status = KS_OK;
    if (oip->scan && oip->json_length > 0 && (uint64_t)oip->json_length > oip->received)
        return ks_fail(error, KS_HEADER_LENGTH,
                       "inference header size should be in range (0, %" PRIu64 "), got: %" PRId64, oip->received,
                       oip->json_length);
    if (oip->scan) status = end_json(oip, NULL, error);
    if (status == KS_OK && ks_oip_busy(oip)) return KS_OK;
    if (oip->file_due > 0)
        return ks_fail(error, KS_BINARY_SIZE, "the body ends within the file's header, after %" PRIu64 " bytes",
                       oip->received);
    if (oip->deduce) {
        status = ks_oip_raw_deduce(oip, oip->in_used, error);
        if (status == KS_OK) oip->piece_now = oip->pieces;
    }
    if (status != KS_OK) return status;
    while (oip->piece_now < oip->pieces && oip->piece_filled == oip->piece[oip->piece_now].bytes) {
        oip->piece_now++;
        oip->piece_filled = 0;
    }
    if (oip->piece_now < oip->pieces) {
        const ks_oip_piece *piece = &oip->piece[oip->piece_now];
        return ks_fail(
            error, KS_BINARY_SIZE, "unexpected size for input '%s', expecting %zu additional bytes for model '%s'",
            oip->ask.spec.op->inputs[piece->input].name, piece->bytes - oip->piece_filled, oip->ask.model->name);
    }
    return KS_OK;
}

bool ks_oip_busy(const ks_oip *oip)
{
    return oip->printing || (oip->scan && ks_scan_busy(oip->scan));
}

bool ks_oip_complete(const ks_oip *oip)
{
    return oip->content_length >= 0 && oip->received == (uint64_t)oip->content_length;
}

ks_encoding ks_ask_encoding(const ks_ask *ask)
{
    static const ks_encoding encodings[] = {[KS_FORM_JSON] = KS_ENCODING_json,
                                            [KS_FORM_BINARY] = KS_ENCODING_binary,
                                            [KS_FORM_OIP_RAW] = KS_ENCODING_raw,
                                            [KS_FORM_PLAIN_RAW] = KS_ENCODING_raw};
    return ask->form == KS_FORM_FILE ? ask->body->encoding : encodings[ask->form];
}

const ks_ask *ks_oip_ask(const ks_oip *oip)
{
    return &oip->ask;
}

void ks_oip_fini(ks_oip *oip)
{
    ks_scan_fini(&oip->scan);
    free(oip->file);
    oip->file = NULL;
    ks_text_fini(&oip->text);
    if (oip->blobs.bytes) ks_text_fini(&oip->blobs);
}
