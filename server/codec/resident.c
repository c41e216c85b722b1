/* Resident tensors that a request names in the place of data, and those that its outputs become. The codec knows the names alone;
 * contents are found and held by a callback (ks_codec_tensor_fn). No allocation. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/number/number.h"
#include "codec/codec_parts.h"

enum { TTL_MAX_S = 10 * 365 * 86400 };

static const char input_word[] = "input", output_word[] = "output";

/* WORD and digits, in either case. */
static bool is_numbered(const char *name, const char *word)
{
    const size_t length = strlen(word);
    return strncasecmp(name, word, length) == 0 && name[length] != 0 &&
           strspn(name + length, "0123456789") == strlen(name + length);
}

bool ks_codec_names_tensor(const char *name)
{
    return is_numbered(name, input_word) || is_numbered(name, output_word);
}

/* The name goes to the place of an input, or of an output. */
static ks_status put_name(ks_codec *codec, int which, const char *name, ks_error *error)
{
    const size_t length = strlen(name);
    if (!codec->tensor)
        return ks_fail(error, KS_UNSUPPORTED, "Resident tensors are disabled: this server was started without them");
    if (length == 0 || length > KS_NAMED_MAX)
        return ks_fail(error, KS_NAME, "a tensor's name has 1 to %d bytes, got %zu", KS_NAMED_MAX, length);
    memcpy(codec->request.tensor[which], name, length + 1);
    return KS_OK;
}

ks_status ks_codec_name_input(ks_codec *codec, int input, const char *name, ks_error *error)
{
    if (ks_in(codec->request.resident, input))
        return ks_fail(error, KS_NAME, "input '%s' already exists in request",
                       codec->request.spec.op->inputs[input].name);
    codec->request.resident |= (uint16_t)(1u << input);
    return put_name(codec, input, name, error);
}

ks_status ks_codec_name_output(ks_codec *codec, int output, const char *name, int64_t ttl_s, ks_error *error)
{
    ks_infer_request *request = &codec->request;
    if (ks_in(request->stored, output))
        return ks_fail(error, KS_NAME, "output '%s' already exists in request", ks_op_output(request->spec.op, output));
    const unsigned bit = 1u << (KS_WINDOW_OUT + output);
    request->outputs |= (uint16_t)(1u << output);
    request->stored |= (uint16_t)(1u << output);
    request->windows |= (uint32_t)bit;
    request->device_copies |= (uint32_t)bit;
    request->ttl_s[output] = ttl_s;
    codec->out_window_bytes[output] = UINT64_MAX;
    return put_name(codec, KS_WINDOW_OUT + output, name, error);
}

ks_status ks_codec_check_ttl(bool read, uint64_t seconds, ks_error *error)
{
    if (read && seconds <= TTL_MAX_S) return KS_OK;
    return ks_fail(error, KS_PARAMETER, "'ttl' is a whole number of seconds, 0 to %d", TTL_MAX_S);
}

/* --- the query ------------------------------------------------------------------------------------------------------ */

static ks_status query_ttl(ks_codec *codec, const char *value, ks_error *error)
{
    uint64_t seconds = 0;
    const bool read = ks_number_read(value, strlen(value), KS_UINT64, &seconds) == KS_NUMBER_OK;
    codec->query_ttl = true;
    codec->query_ttl_s = (int64_t)seconds;
    return ks_codec_check_ttl(read, seconds, error);
}

/* A model of a client's has names of its own for them, which may be those of parameters: the query gives their places. */
static bool is_called(const ks_op *op, const char *own, const char *word, int index, const char *name)
{
    if (strcasecmp(own, name) == 0) return true;
    return op->chain && strtol(name + strlen(word), NULL, 10) == index;
}

static ks_status query_input(ks_codec *codec, const char *name, const char *value, ks_error *error)
{
    const ks_model *model = codec->request.model;
    for (int i = 0; i < model->op->inputs_count; i++)
        if (is_called(model->op, model->op->inputs[i].name, input_word, i, name))
            return ks_codec_name_input(codec, i, value, error);
    return ks_fail(error, KS_NAME, "unexpected inference input '%s' for model '%s'", ks_quoted(name, strlen(name)).text,
                   model->name);
}

static ks_status query_output(ks_codec *codec, const char *name, const char *value, ks_error *error)
{
    const ks_model *model = codec->request.model;
    for (int i = 0; i < model->outputs_max; i++)
        if (is_called(model->op, ks_op_output(model->op, i), output_word, i, name))
            return ks_codec_name_output(codec, i, value, -1, error);
    return ks_fail(error, KS_NAME, "unexpected inference output '%s' for model '%s'",
                   ks_quoted(name, strlen(name)).text, model->name);
}

ks_status ks_codec_query_tensor(ks_codec *codec, const char *name, const char *value, bool *known, ks_error *error)
{
    const bool output = is_numbered(name, output_word);
    *known = true;
    if (strcmp(name, "ttl") == 0) return query_ttl(codec, value, error);
    *known = output || is_numbered(name, input_word);
    if (!*known) return KS_OK;
    if (value[0] != '@')
        return ks_fail(error, KS_PARAMETER, "the query's '%s' names no resident tensor: write %s=@NAME",
                       ks_quoted(name, strlen(name)).text, ks_quoted(name, strlen(name)).text);
    return output ? query_output(codec, name, value + 1, error) : query_input(codec, name, value + 1, error);
}

/* --- contents ------------------------------------------------------------------------------------------------------- */

ks_status ks_codec_hold_input(ks_codec *codec, int input, ks_error *error)
{
    ks_tensor *tensor = &codec->request.spec.in[input];
    const ks_tensor *content;
    const ks_status status = codec->tensor(codec->context, input, codec->request.tensor[input], &content, error);
    if (status != KS_OK) return status;
    *tensor = *content;
    tensor->offset = 0;
    return ks_codec_check_dtype(codec, input, codec->request.spec.op->inputs[input].name, tensor->dtype, error);
}

ks_status ks_codec_hold_query(ks_codec *codec, ks_error *error)
{
    ks_infer_request *request = &codec->request;
    ks_status status = KS_OK;
    if (codec->query_ttl && request->stored == 0)
        return ks_fail(error, KS_PARAMETER, "the query names 'ttl', but no output that stays: OUTPUT0=@NAME");
    for (int i = 0; i < KS_OUTPUTS_MAX && codec->query_ttl; i++) request->ttl_s[i] = codec->query_ttl_s;
    if (request->stored) request->response = NULL;
    for (unsigned left = request->resident; left && status == KS_OK; left &= left - 1)
        status = ks_codec_hold_input(codec, __builtin_ctz(left), error);
    request->spec.given |= request->resident;
    return status;
}

static bool same_shape(const ks_tensor *a, const ks_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && a->pitch == b->pitch &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

bool ks_codec_hold_again(ks_codec *codec, const ks_infer_request *known, const void *fixed[KS_INPUTS_MAX])
{
    ks_error ignored;
    const ks_tensor *content;
    for (unsigned left = known->resident; left; left &= left - 1) {
        const int input = __builtin_ctz(left);
        if (codec->tensor(codec->context, input, known->tensor[input], &content, &ignored) != KS_OK) return false;
        if (!same_shape(content, &known->spec.in[input])) return false;
        fixed[input] = content->fixed;
    }
    return true;
}
