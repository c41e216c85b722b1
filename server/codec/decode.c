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
#include <strings.h>

#include "base/number/number.h"
#include "codec/codec_parts.h"

ks_file ks_file_of(const char *media_type)
{
    static const struct {
        const char *name;
        ks_file file;
    } files[] = {{"application/x-npy", KS_FILE_NPY}, {"application/x-safetensors", KS_FILE_SAFETENSORS}};
    const size_t length = media_type ? strcspn(media_type, " \t;") : 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strlen(files[i].name) == length && strncasecmp(media_type, files[i].name, length) == 0)
            return files[i].file;
    return KS_FILE_NONE;
}

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

/* Up to the end of the last tensor of a side that the device does not move. */
static size_t side_bytes(const ks_tensor *tensors, unsigned used, unsigned directs)
{
    size_t bytes = 0;
    for (unsigned left = used & ~directs; left; left &= left - 1) {
        const ks_tensor *tensor = &tensors[__builtin_ctz(left)];
        const size_t end = tensor->offset + tensor->size_bytes;
        if (end > bytes) bytes = end;
    }
    return bytes;
}

size_t ks_ask_in_bytes(const ks_ask *ask)
{
    return side_bytes(ask->spec.in, ask->spec.given, ask->directs);
}

size_t ks_ask_out_bytes(const ks_ask *ask)
{
    return side_bytes(ask->spec.out, (1u << ask->spec.outputs) - 1, (unsigned)ask->directs >> KS_WINDOW_OUT);
}

ks_status ks_oip_ask_place(ks_oip *oip, size_t in_bytes, size_t out_bytes, size_t keep, ks_error *error)
{
    if (!oip->place || (oip->in && in_bytes <= oip->in_asked && out_bytes <= oip->out_asked)) return KS_OK;
    if (keep > oip->in_asked) keep = oip->in_asked;
    const ks_status status = oip->place(oip->context, in_bytes, out_bytes, keep, &oip->in, &oip->out, error);
    if (status != KS_OK) return status;
    oip->in_asked = in_bytes;
    oip->out_asked = out_bytes;
    return KS_OK;
}

static uint32_t dtypes_of(const ks_op *op, int input)
{
    if (input >= 0) return ks_op_dtypes(op, input);
    uint32_t any = 0;
    for (int i = 0; i < op->inputs_count; i++) any |= op->inputs[i].dtypes;
    return any;
}

ks_status ks_oip_check_dtype(const ks_oip *oip, int input, const char *name, ks_dtype dtype, ks_error *error)
{
    const ks_model *model = oip->ask.model;
    const uint32_t dtypes = dtypes_of(model->op, input);
    if (dtypes & KS_DTYPE_BIT(dtype)) return KS_OK;
    char expected[128];
    size_t n = 0;
    for (int i = 0; i < KS_DTYPE_COUNT; i++) {
        if (!(dtypes & KS_DTYPE_BIT(i))) continue;
        const char *const one = ks_dtype_name((ks_dtype)i);
        const size_t length = strlen(one);
        if (n + length + 2 > sizeof expected) break;
        if (n > 0) expected[n++] = ',';
        memcpy(expected + n, one, length);
        n += length;
    }
    expected[n] = 0;
    return ks_fail(error, KS_DATATYPE, "inference input '%s' data-type is '%s', but model '%s' expects '%s'", name,
                   ks_dtype_name(dtype), model->name, expected);
}

/* Which outputs the answer holds: those that the request names; none: all, or the first, where the answer is one tensor. */
static ks_status choose_outputs(ks_oip *oip, ks_error *error)
{
    ks_ask *ask = &oip->ask;
    const unsigned all = (1u << ask->spec.outputs) - 1;
    const bool raw = ask->form == KS_FORM_PLAIN_RAW && ask->binary && ask->answer == KS_FILE_NONE;
    const bool single = raw || ask->answer == KS_FILE_NPY;
    if (ask->outputs & ~all)
        return ks_fail(error, KS_NAME, "unexpected inference output '%s' for model '%s'",
                       ks_output_name(__builtin_ctz(ask->outputs & ~all)), ask->model->name);
    if (single && (ask->outputs & (ask->outputs - 1)))
        return ks_fail(error, KS_NAME, "%s answer holds 1 output: name one of model '%s'", raw ? "a raw" : "an npy",
                       ask->model->name);
    if (ask->outputs == 0) ask->outputs = (uint8_t)(single ? 1 : all);
    return KS_OK;
}

/* One that goes into the answer, or to shared memory. */
static ks_status check_output(const ks_oip *oip, int output, ks_error *error)
{
    const ks_ask *ask = &oip->ask;
    const ks_tensor *out = &ask->spec.out[output];
    const uint64_t classes = ask->classes[output];
    const bool window = ks_in(ask->windows, KS_WINDOW_OUT + output);
    if (!ks_in(ask->binary, output) && !classes && !window && (out->dtype == KS_FP16 || out->dtype == KS_BF16))
        return ks_fail(error, KS_DATATYPE,
                       "sending %s data via JSON is not supported. Please use the binary data format for output",
                       ks_dtype_name(out->dtype));
    if (ask->answer == KS_FILE_NPY && !ks_npy_type(out->dtype))
        return ks_fail(error, KS_DATATYPE, "npy has no type for %s: ask for application/x-safetensors",
                       ks_dtype_name(out->dtype));
    if (classes > 0 && (out->dtype == KS_FP16 || out->dtype == KS_BF16))
        return ks_fail(error, KS_DATATYPE, "class result not available for output due to unsupported type '%s'",
                       ks_dtype_name(out->dtype));
    if (classes > 0 && ks_tensor_count(out) > KS_CLASSES_ROW_MAX)
        return ks_fail(error, KS_SHAPE, "class result not available for output of %" PRId64 " elements, at most %d",
                       ks_tensor_count(out), KS_CLASSES_ROW_MAX);
    return KS_OK;
}

/* All outputs are made, whether or not the answer holds them. */
static ks_status check_output_bytes(const ks_oip *oip, ks_error *error)
{
    const ks_ask *ask = &oip->ask;
    uint64_t bytes = 0, sent = 0;
    for (int i = 0; i < ask->spec.outputs; i++) {
        const ks_tensor *out = &ask->spec.out[i];
        const bool json = ks_in(ask->outputs & ~(unsigned)ask->binary & ~((unsigned)ask->windows >> KS_WINDOW_OUT), i);
        /* An element takes two bytes of JSON or more. Each is below 2^63 and there are four at most: they cannot overflow
         * before the first of them is refused. */
        bytes += out->size_bytes;
        sent += json ? out->size_bytes / ks_dtype_size(out->dtype) * 2 : out->size_bytes;
        if (bytes > oip->limits.max_output || sent > INT32_MAX - (uint64_t)2 * KS_HEAD_ROOM)
            return ks_fail(error, KS_WORK,
                           "output '%s' has %zu bytes, more than the %" PRIu64
                           " allowed. Use --max-output to increase the limit.",
                           ks_output_name(i), out->size_bytes, oip->limits.max_output);
        if (ks_in(ask->windows, KS_WINDOW_OUT + i) && oip->out_window_bytes[i] < out->size_bytes)
            return ks_fail(error, KS_WINDOW,
                           "shared memory size specified with the request for output '%s' (%" PRIu64
                           " bytes) should be at least %zu bytes to hold the results",
                           ks_output_name(i), oip->out_window_bytes[i], out->size_bytes);
    }
    return KS_OK;
}

ks_status ks_oip_resolve(ks_oip *oip, ks_error *error)
{
    const ks_ask *ask = &oip->ask;
    ks_status status = ask->spec.op->resolve(&oip->ask.spec, error);
    if (status == KS_OK) status = choose_outputs(oip, error);
    for (int i = 0; i < ask->spec.outputs && status == KS_OK; i++)
        if (ks_in(ask->outputs, i)) status = check_output(oip, i, error);
    if (status == KS_OK) status = check_output_bytes(oip, error);
    if (status != KS_OK) return status;
    if (oip->limits.max_work > 0 && ask->spec.flops > oip->limits.max_work)
        return ks_fail(
            error, KS_WORK,
            "the work of %.3g floating-point operations exceeds the maximum allowed value of %.3g. Use --max-work to "
            "increase the limit.",
            ask->spec.flops, oip->limits.max_work);
    return KS_OK;
}

ks_status ks_oip_place_tensors(ks_oip *oip, ks_error *error)
{
    const size_t in_bytes = ks_spec_layout(&oip->ask.spec);
    return ks_oip_ask_place(oip, in_bytes, ks_spec_out_bytes(&oip->ask.spec), oip->in_used, error);
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
    if (!head->header_length && head->body != KS_FILE_NONE) {
        oip->ask.form = head->body == KS_FILE_NPY ? KS_FORM_NPY : KS_FORM_SAFETENSORS;
        if (head->answer == KS_FILE_NONE && !head->accept_json) oip->ask.answer = head->body;
        oip->ask.binary = oip->ask.answer != KS_FILE_NONE ? KS_OUTPUTS_ALL : 0;
        return ks_oip_file_begin(oip, head->query, error);
    }
    if (oip->json_length == 0) {
        oip->ask.form = KS_FORM_OIP_RAW;
        oip->ask.binary = KS_OUTPUTS_ALL;
        return ks_oip_raw_begin(oip, head->query, error);
    }
    if (!head->header_length && (!place || ks_oip_query_has(head->query, "shape"))) {
        oip->ask.form = KS_FORM_PLAIN_RAW;
        oip->ask.binary = !head->accept_json || head->answer != KS_FILE_NONE ? KS_OUTPUTS_ALL : 0;
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
        const ks_status status = put_bytes(oip, at, bytes, offered, &taken, error);
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
    const ks_file asked = oip->ask.answer;
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
    const bool file = ask->form == KS_FORM_NPY || ask->form == KS_FORM_SAFETENSORS || ask->answer != KS_FILE_NONE;
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
