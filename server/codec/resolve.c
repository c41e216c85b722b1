/* What the request's words come to, whatever format they have: datatypes and outputs that the model has, the work resolved, the
 * limits applied, memory asked for. */
#include <inttypes.h>
#include <string.h>

#include "codec/codec_parts.h"

ks_status ks_infer_request_check_bytes(const ks_infer_request *request, int input, const void *bytes, size_t n,
                                       ks_error *error)
{
    const unsigned char *const byte = bytes;
    unsigned char seen = 0;
    if (request->spec.in[input].dtype != KS_BOOL) return KS_OK;
    for (size_t i = 0; i < n; i++) seen |= byte[i];
    if (seen <= 1) return KS_OK;
    return ks_fail(error, KS_RANGE, "input '%s' has datatype BOOL and a byte that is neither 0 nor 1",
                   request->spec.op->inputs[input].name);
}

/* Up to the end of the last tensor of a side that the device does not move. */
static size_t side_bytes(const ks_tensor *tensors, unsigned used, unsigned device_copies)
{
    size_t bytes = 0;
    for (unsigned left = used & ~device_copies; left; left &= left - 1) {
        const ks_tensor *tensor = &tensors[__builtin_ctz(left)];
        const size_t end = tensor->offset + tensor->size_bytes;
        if (end > bytes) bytes = end;
    }
    return bytes;
}

size_t ks_infer_request_in_bytes(const ks_infer_request *request)
{
    return side_bytes(request->spec.in, request->spec.given, request->device_copies | (unsigned)request->resident);
}

size_t ks_infer_request_out_bytes(const ks_infer_request *request)
{
    return side_bytes(request->spec.out, (1u << request->spec.outputs) - 1,
                      (unsigned)request->device_copies >> KS_WINDOW_OUT);
}

ks_status ks_codec_take_memory(ks_codec *codec, size_t in_bytes, size_t out_bytes, size_t keep, ks_error *error)
{
    if (!codec->place || (codec->sides.in && in_bytes <= codec->in_asked && out_bytes <= codec->out_asked))
        return KS_OK;
    if (keep > codec->in_asked) keep = codec->in_asked;
    const ks_status status = codec->place(codec->context, in_bytes, out_bytes, keep, &codec->sides, error);
    if (status != KS_OK) return status;
    codec->in_asked = in_bytes;
    codec->out_asked = out_bytes;
    return KS_OK;
}

static uint32_t dtypes_of(const ks_op *op, int input)
{
    if (input >= 0) return ks_op_dtypes(op, input);
    uint32_t any = 0;
    for (int i = 0; i < op->inputs_count; i++) any |= op->inputs[i].dtypes;
    return any;
}

ks_status ks_codec_check_dtype(const ks_codec *codec, int input, const char *name, ks_dtype dtype, ks_error *error)
{
    const ks_model *model = codec->request.model;
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

/* Which outputs the response holds: those that the request names; none: all, or the first, where the response is one tensor. */
static ks_status choose_outputs(ks_codec *codec, ks_error *error)
{
    ks_infer_request *request = &codec->request;
    const unsigned all = (1u << request->spec.outputs) - 1;
    const bool raw = request->format == KS_BODY_FORMAT_RAW && request->binary && !request->response;
    const bool single = raw || (request->response && request->response->outputs_max == 1);
    if (request->outputs & ~all)
        return ks_fail(error, KS_NAME,
                       "unexpected inference output '%s' for model '%s', which makes %d with these parameters",
                       ks_op_output(request->spec.op, __builtin_ctz(request->outputs & ~all)), request->model->name,
                       request->spec.outputs);
    if (single && (request->outputs & (request->outputs - 1)))
        return ks_fail(error, KS_NAME, "%s answer holds 1 output: name one of model '%s'",
                       raw ? "a raw" : request->response->called, request->model->name);
    if (request->outputs == 0) request->outputs = (uint16_t)(single ? 1 : all);
    return KS_OK;
}

/* One that goes into the response, or to shared memory. */
static ks_status check_output(const ks_codec *codec, int output, ks_error *error)
{
    const ks_infer_request *request = &codec->request;
    const ks_tensor *out = &request->spec.out[output];
    const bool classes = ks_in(request->classified, output);
    const bool window = ks_in(request->windows, KS_WINDOW_OUT + output);
    if (!ks_in(request->binary, output) && !classes && !window && (out->dtype == KS_FP16 || out->dtype == KS_BF16))
        return ks_fail(error, KS_DATATYPE,
                       "sending %s data via JSON is not supported. Please use the binary data format for output",
                       ks_dtype_name(out->dtype));
    if (request->response && !(request->response->dtypes & KS_DTYPE_BIT(out->dtype)))
        return ks_fail(error, KS_DATATYPE, "%s has no type for %s: ask for application/x-safetensors",
                       request->response->name, ks_dtype_name(out->dtype));
    if (classes && (out->dtype == KS_FP16 || out->dtype == KS_BF16))
        return ks_fail(error, KS_DATATYPE, "class result not available for output due to unsupported type '%s'",
                       ks_dtype_name(out->dtype));
    if (classes && ks_tensor_count(out) > KS_CLASSES_ROW_MAX)
        return ks_fail(error, KS_SHAPE, "class result not available for output of %" PRId64 " elements, at most %d",
                       ks_tensor_count(out), KS_CLASSES_ROW_MAX);
    return KS_OK;
}

/* All outputs are made, whether or not the response holds them. */
static ks_status check_output_bytes(const ks_codec *codec, ks_error *error)
{
    const ks_infer_request *request = &codec->request;
    uint64_t bytes = 0, sent = 0;
    for (int i = 0; i < request->spec.outputs; i++) {
        const ks_tensor *out = &request->spec.out[i];
        const bool json =
            ks_in(request->outputs & ~(unsigned)request->binary & ~((unsigned)request->windows >> KS_WINDOW_OUT), i);
        /* An element takes two bytes of JSON or more. Each tensor is below 2^63 bytes, and what is in front of it within
         * the limits: neither sum overflows. */
        bytes += out->size_bytes;
        sent += json ? out->size_bytes / ks_dtype_size(out->dtype) * 2 : out->size_bytes;
        if (bytes > codec->limits.max_output || sent > INT32_MAX - (uint64_t)2 * KS_HEAD_ROOM)
            return ks_fail(error, KS_WORK,
                           "output '%s' has a byte_size (%zu) that exceeds the maximum allowed value of %" PRIu64
                           ". Use --max-output to increase the limit.",
                           ks_op_output(request->spec.op, i), out->size_bytes, codec->limits.max_output);
        if (ks_in(request->windows, KS_WINDOW_OUT + i) && codec->out_window_bytes[i] < out->size_bytes)
            return ks_fail(error, KS_WINDOW,
                           "shared memory size specified with the request for output '%s' (%" PRIu64
                           " bytes) should be at least %zu bytes to hold the results",
                           ks_op_output(request->spec.op, i), codec->out_window_bytes[i], out->size_bytes);
        if (ks_in(request->stored, i) && codec->out_window_bytes[i] != UINT64_MAX &&
            codec->out_window_bytes[i] != out->size_bytes)
            return ks_fail(error, KS_WINDOW,
                           "output '%s' becomes a resident tensor, whose size is all of its %zu bytes, not %" PRIu64,
                           ks_op_output(request->spec.op, i), out->size_bytes, codec->out_window_bytes[i]);
    }
    return KS_OK;
}

ks_status ks_codec_resolve(ks_codec *codec, ks_error *error)
{
    const ks_infer_request *request = &codec->request;
    ks_status status = request->spec.op->resolve(&codec->request.spec, error);
    if (status == KS_OK) status = choose_outputs(codec, error);
    for (int i = 0; i < request->spec.outputs && status == KS_OK; i++)
        if (ks_in(request->outputs, i)) status = check_output(codec, i, error);
    if (status == KS_OK) status = check_output_bytes(codec, error);
    if (status != KS_OK) return status;
    if (codec->limits.max_work > 0 && request->spec.flops > codec->limits.max_work)
        return ks_fail(
            error, KS_WORK,
            "the work of %.3g floating-point operations exceeds the maximum allowed value of %.3g. Use --max-work to "
            "increase the limit.",
            request->spec.flops, codec->limits.max_work);
    return KS_OK;
}

ks_status ks_codec_place_tensors(ks_codec *codec, ks_error *error)
{
    const size_t in_bytes = ks_spec_layout(&codec->request.spec);
    const size_t out_bytes =
        codec->request.windows ? ks_infer_request_out_bytes(&codec->request) : ks_spec_out_bytes(&codec->request.spec);
    return ks_codec_take_memory(codec, in_bytes, out_bytes, codec->in_used, error);
}
