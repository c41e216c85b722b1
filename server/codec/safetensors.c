/* The head of a safetensors body: eight bytes of length and a JSON object that names each tensor's datatype, shape and
 * place. Tensors are named as the model's inputs; the one tensor for a model of one input may have any name. Also the
 * head of a safetensors response. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number/number.h"
#include "codec/codec_parts.h"
#include "codec/json_tree.h"

enum { FIRST = 8 };

static const struct {
    const char *name;
    ks_dtype dtype;
} types[] = {{"BOOL", KS_BOOL},  {"U8", KS_UINT8}, {"U16", KS_UINT16},      {"U32", KS_UINT32},
             {"U64", KS_UINT64}, {"I8", KS_INT8},  {"I16", KS_INT16},       {"I32", KS_INT32},
             {"I64", KS_INT64},  {"F16", KS_FP16}, {"F8_E4M3", KS_FP8E4M3}, {"F8_E5M2", KS_FP8E5M2},
             {"BF16", KS_BF16},  {"F32", KS_FP32}, {"F64", KS_FP64}};
enum { TYPES = sizeof types / sizeof types[0] };

static const char metadata[] = "__metadata__";

/* ks_scan_place_fn */
static ks_status no_data(void *context, int index, const ks_scan_input *input, unsigned char **out, ks_error *error)
{
    (void)context, (void)index, (void)input, (void)out;
    return ks_fail(error, KS_FIELD, "a safetensors header has no data");
}

static ks_status malformed(const char *name, const char *what, ks_error *error)
{
    return ks_fail(error, KS_FIELD, "the safetensors header's %s of tensor '%s' cannot be read", what,
                   ks_quoted(name, strlen(name)).text);
}

/* A list of `most` numbers at most; -1: it is none. */
static int read_list(const ks_json *list, uint64_t *out, int most)
{
    const ks_json *item;
    int count = 0;
    if (!ks_json_is_list(list)) return -1;
    for (item = ks_json_first(list); item; item = ks_json_next(item)) {
        if (count == most || !ks_json_read_unsigned(item, &out[count++])) return -1;
    }
    return count;
}

static ks_status read_dtype(const ks_json *item, ks_tensor *out, ks_error *error)
{
    const char *const name = ks_json_text(item);
    for (int i = 0; i < TYPES; i++) {
        if (strcmp(types[i].name, name) != 0) continue;
        out->dtype = types[i].dtype;
        return KS_OK;
    }
    return ks_fail(error, KS_DATATYPE, "safetensors type '%s' is unknown or not supported",
                   ks_quoted(name, strlen(name)).text);
}

/* Dimensions that are to be measured yet. */
static ks_status read_shape(const ks_json *item, ks_tensor *tensor, ks_error *error)
{
    uint64_t dims[KS_RANK_MAX];
    tensor->rank = read_list(ks_json_member(item, "shape"), dims, KS_RANK_MAX);
    if (tensor->rank < 0)
        return ks_fail(error, KS_SHAPE, "Unable to parse 'shape': it is not a list of up to %d dimensions of 0 or more",
                       KS_RANK_MAX);
    for (int i = 0; i < tensor->rank; i++) tensor->dims[i] = dims[i] <= INT64_MAX ? (int64_t)dims[i] : -1;
    return KS_OK;
}

static ks_status read_range(const ks_json *item, uint64_t range[2], ks_error *error)
{
    if (read_list(ks_json_member(item, "data_offsets"), range, 2) == 2) return KS_OK;
    return malformed(ks_json_key(item), "data_offsets", error);
}

static bool spans(const uint64_t range[2], const ks_tensor *tensor)
{
    return range[1] >= range[0] && range[1] - range[0] == tensor->size_bytes;
}

static ks_status read_tensor(ks_codec *codec, const ks_json *item, int which, uint64_t *begin, ks_error *error)
{
    ks_tensor *tensor = &codec->request.spec.in[which];
    const char *const name = codec->request.spec.op->inputs[which].name;
    uint64_t range[2] = {0, 0};
    ks_status status = read_dtype(ks_json_member(item, "dtype"), tensor, error);
    if (status == KS_OK) status = ks_codec_check_dtype(codec, which, name, tensor->dtype, error);
    if (status == KS_OK) status = read_shape(item, tensor, error);
    if (status == KS_OK) status = ks_tensor_measure(tensor, name, error);
    if (status == KS_OK) status = read_range(item, range, error);
    if (status != KS_OK) return status;
    if (!spans(range, tensor))
        return ks_fail(error, KS_BINARY_SIZE,
                       "input byte size mismatch for input '%s' for model '%s'. Expected %zu, got %" PRIu64
                       " to %" PRIu64,
                       name, codec->request.model->name, tensor->size_bytes, range[0], range[1]);
    *begin = range[0];
    return KS_OK;
}

/* -1: none of the model's. */
static int input_of(const ks_codec *codec, const char *name, bool only)
{
    const ks_op *op = codec->request.model->op;
    const unsigned required = ks_op_required(op) & ~(unsigned)codec->request.resident;
    const int input = ks_op_input(op, name, strlen(name));
    if (input >= 0 || !only || __builtin_popcount(required) != 1) return input;
    return __builtin_ctz(required);
}

/* Pieces in the order of their bytes, which follow each other without a gap. */
static ks_status order_segments(ks_codec *codec, const uint64_t *begin, ks_error *error)
{
    uint64_t at = 0;
    bool placed[KS_INPUTS_MAX] = {false};
    const ks_spec *spec = &codec->request.spec;
    const unsigned in_body = spec->given & ~(unsigned)codec->request.resident;
    while (codec->segments < __builtin_popcount(in_body)) {
        int next = -1;
        for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
            if (ks_in(in_body, i) && !placed[i] && begin[i] == at &&
                (next < 0 || codec->request.spec.in[i].size_bytes == 0))
                next = i;
        if (next < 0)
            return ks_fail(error, KS_BINARY_SIZE,
                           "the safetensors header leaves a gap or an overlap at byte %" PRIu64 " of the data", at);
        placed[next] = true;
        at += codec->request.spec.in[next].size_bytes;
        codec->segment[codec->segments++] =
            (ks_segment){.input = next, .bytes = codec->request.spec.in[next].size_bytes};
    }
    return KS_OK;
}

static ks_status read_tensors(ks_codec *codec, const ks_json *top, ks_error *error)
{
    const ks_model *model = codec->request.model;
    uint64_t begin[KS_INPUTS_MAX];
    const unsigned required = ks_op_required(model->op), resident = codec->request.resident;
    unsigned present = 0;
    const ks_json *item;
    int count = 0;
    for (item = ks_json_first(top); item; item = ks_json_next(item)) count += strcmp(ks_json_key(item), metadata) != 0;
    const bool only = count == 1;
    count = 0;
    for (item = ks_json_first(top); item; item = ks_json_next(item)) {
        if (strcmp(ks_json_key(item), metadata) == 0) continue;
        const int which = input_of(codec, ks_json_key(item), only);
        if (which < 0)
            return ks_fail(error, KS_NAME, "unexpected inference input '%s' for model '%s'",
                           ks_quoted(ks_json_key(item), strlen(ks_json_key(item))).text, model->name);
        if (ks_in(resident, which))
            return ks_fail(error, KS_NAME, "input '%s' already exists in request", model->op->inputs[which].name);
        const ks_status status = read_tensor(codec, item, which, &begin[which], error);
        if (status != KS_OK) return status;
        present |= 1u << which;
        count++; /* the scanner lets no key come twice */
    }
    if (required & ~(present | resident))
        return ks_fail(error, KS_NAME, "expected %d inputs but got %d inputs for model '%s'",
                       __builtin_popcount(required | present), count, model->name);
    codec->request.spec.given = (uint16_t)(present | resident);
    return order_segments(codec, begin, error);
}

/* ks_format.begin */
static ks_status safetensors_begin(const unsigned char *first, uint64_t *head_bytes, ks_error *error)
{
    (void)error;
    uint64_t length = 0;
    for (int i = FIRST - 1; i >= 0; i--) length = length << 8 | first[i];
    *head_bytes = length > UINT64_MAX - FIRST ? UINT64_MAX : FIRST + length;
    return KS_OK;
}

/* Of the JSON behind the length of a whole head. */
static ks_status open_head(const char *head, size_t length, const ks_scan_limits *limits, ks_json **top,
                           ks_error *error)
{
    ks_scan *scan = NULL;
    ks_status status = ks_scan_begin(limits, no_data, NULL, &scan, error);
    if (status == KS_OK) status = ks_scan_feed(scan, head + FIRST, length - FIRST, error);
    if (status == KS_OK) status = ks_scan_end(scan, error);
    if (status == KS_OK) status = ks_json_open(scan, "the file's header", top, error);
    ks_scan_fini(&scan);
    return status;
}

/* ks_format.head */
static ks_status safetensors_head(ks_codec *codec, ks_error *error)
{
    const ks_scan_limits limits = {.json_head_max = 2 * codec->limits.max_skeleton,
                                   .string_max = KS_ID_MAX,
                                   .members_max = 64,
                                   .json_max = codec->limits.max_json};
    ks_json *top = NULL;
    ks_status status = open_head(codec->file, codec->file_length, &limits, &top, error);
    if (status == KS_OK) status = read_tensors(codec, top, error);
    ks_json_close(&top);
    return status;
}

/* --- tensors that are stored --------------------------------------------------------------------------------------- */

static ks_status read_one(const ks_json *item, ks_file_tensor *out, ks_error *error)
{
    const char *const key = ks_json_key(item);
    const ks_quote shown = ks_quoted(key, strlen(key));
    uint64_t range[2] = {0, 0};
    snprintf(out->name, sizeof out->name, "%s", key);
    ks_status status = read_dtype(ks_json_member(item, "dtype"), &out->tensor, error);
    if (status == KS_OK) status = read_shape(item, &out->tensor, error);
    if (status == KS_OK) status = ks_tensor_measure(&out->tensor, shown.text, error);
    if (status == KS_OK) status = read_range(item, range, error);
    if (status != KS_OK) return status;
    out->begin = range[0];
    if (spans(range, &out->tensor)) return KS_OK;
    return ks_fail(error, KS_BINARY_SIZE,
                   "tensor '%s' has %zu bytes by its shape, but data_offsets %" PRIu64 " to %" PRIu64, shown.text,
                   out->tensor.size_bytes, range[0], range[1]);
}

static int by_place(const void *left, const void *right)
{
    const ks_file_tensor *const a = left, *const b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->tensor.size_bytes < b->tensor.size_bytes ? -1 : a->tensor.size_bytes > b->tensor.size_bytes;
}

static ks_status order_tensors(ks_file_tensors *all, ks_error *error)
{
    uint64_t at = 0;
    qsort(all->item, (size_t)all->count, sizeof *all->item, by_place);
    for (int i = 0; i < all->count; i++) {
        if (all->item[i].begin != at)
            return ks_fail(error, KS_BINARY_SIZE,
                           "the safetensors header leaves a gap or an overlap at byte %" PRIu64 " of the data", at);
        at += all->item[i].tensor.size_bytes;
    }
    return KS_OK;
}

/* A model's document. Without one there is none: what that comes to is the caller's. */
static ks_status read_definition(const ks_json *top, ks_file_tensors *out, ks_error *error)
{
    const ks_json *all = ks_json_member(top, metadata);
    const ks_json *item = all && ks_json_is_object(all) ? ks_json_member(all, "kernserve") : NULL;
    if (!out->wants_definition || !item || !ks_json_is_text(item)) return KS_OK;
    out->definition = strdup(ks_json_text(item));
    return out->definition ? KS_OK : ks_fail(error, KS_MEMORY, "no memory for a definition");
}

static ks_status read_all(const ks_json *top, ks_file_tensors *out, ks_error *error)
{
    int count = 0;
    for (const ks_json *item = ks_json_first(top); item; item = ks_json_next(item))
        count += strcmp(ks_json_key(item), metadata) != 0;
    if (count > KS_FILE_TENSORS_MAX)
        return ks_fail(error, KS_BODY_SIZE,
                       "the safetensors header's number of tensors exceeds the maximum allowed value of %d",
                       KS_FILE_TENSORS_MAX);
    out->item = calloc((size_t)count + 1, sizeof *out->item);
    if (!out->item) return ks_fail(error, KS_MEMORY, "no memory for the file's header");
    for (const ks_json *item = ks_json_first(top); item; item = ks_json_next(item)) {
        if (strcmp(ks_json_key(item), metadata) == 0) continue;
        const ks_status status = read_one(item, &out->item[out->count++], error);
        if (status != KS_OK) return status;
    }
    const ks_status status = order_tensors(out, error);
    return status == KS_OK ? read_definition(top, out, error) : status;
}

/* ks_format.tensors. What is too much of a head is too large a body. */
static ks_status safetensors_tensors(const char *head, size_t length, ks_file_tensors *out, ks_error *error)
{
    const ks_scan_limits limits = {.json_head_max = 2 * length,
                                   .string_max = out->wants_definition ? length : KS_ID_MAX,
                                   .members_max = KS_FILE_TENSORS_MAX + 2, /* and __metadata__, and one too many */
                                   .json_max = length};
    ks_json *top = NULL;
    ks_status status = open_head(head, length, &limits, &top, error);
    if (status == KS_JSON_LIMIT)
        status = ks_fail(error, KS_BODY_SIZE,
                         "the safetensors header exceeds the maximum allowed value of %d tensors, of %d bytes for a "
                         "key, or of depth",
                         KS_FILE_TENSORS_MAX, KS_ID_MAX);
    if (status == KS_OK) status = read_all(top, out, error);
    ks_json_close(&top);
    return status;
}

static const char *type_of(ks_dtype dtype)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype) return types[i].name;
    return "";
}

/* n bytes of head, padded so that the data begins at a multiple of 8, with the length in front. */
static size_t end_head(char out[KS_FILE_HEAD_MAX], size_t n)
{
    const size_t whole = (n + 7) / 8 * 8;
    memset(out + n, ' ', whole - n);
    for (int i = 0; i < FIRST; i++) out[i] = (char)((whole - FIRST) >> 8 * i & 255);
    return whole;
}

/* ks_format.response_head. An output takes 180 bytes of it at most, with its name: a shape of eight dimensions that can be measured has 34
 * characters. Those of an op fit into the head room. */
static size_t safetensors_response_head(const ks_infer_request *request, char out[KS_FILE_HEAD_MAX])
{
    size_t n = FIRST, begin = 0;
    for (int i = 0; i < request->spec.outputs; i++) {
        const ks_tensor *tensor = &request->spec.out[i];
        char dims[KS_RANK_MAX * 21 + 1];
        if (!ks_in(request->outputs, i)) continue;
        ks_dims_text(tensor, dims, sizeof dims);
        n += (size_t)snprintf(out + n, KS_FILE_HEAD_MAX - n,
                              "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                              n == FIRST ? '{' : ',', ks_op_output(request->spec.op, i), type_of(tensor->dtype), dims,
                              begin, begin + tensor->size_bytes);
        begin += tensor->size_bytes;
    }
    out[n++] = '}';
    return end_head(out, n);
}

/* ks_format.tensor_head */
static size_t safetensors_tensor_head(const char *name, const ks_tensor *tensor, char out[KS_FILE_HEAD_MAX])
{
    char dims[KS_RANK_MAX * 21 + 1];
    ks_dims_text(tensor, dims, sizeof dims);
    const int n = snprintf(out + FIRST, KS_FILE_HEAD_MAX - FIRST,
                           "{\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[0,%zu]}}", name,
                           type_of(tensor->dtype), dims, tensor->size_bytes);
    return end_head(out, FIRST + (size_t)n);
}

const ks_format ks_format_safetensors = {
    .name = "safetensors",
    .called = "a safetensors",
    .content_type = "application/x-safetensors",
    .encoding = KS_FORMAT_LABEL_safetensors,
    .dtypes = KS_DTYPE_BIT(KS_BOOL) | KS_DTYPE_BIT(KS_UINT8) | KS_DTYPE_BIT(KS_UINT16) | KS_DTYPE_BIT(KS_UINT32) |
              KS_DTYPE_BIT(KS_UINT64) | KS_DTYPE_BIT(KS_INT8) | KS_DTYPE_BIT(KS_INT16) | KS_DTYPE_BIT(KS_INT32) |
              KS_DTYPE_BIT(KS_INT64) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_FP8E4M3) | KS_DTYPE_BIT(KS_FP8E5M2) |
              KS_DTYPE_BIT(KS_BF16) | KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP64),
    .inputs_max = KS_INPUTS_MAX,
    .outputs_max = KS_OUTPUTS_MAX,
    .first = FIRST,
    .begin = safetensors_begin,
    .head = safetensors_head,
    .response_head = safetensors_response_head,
    .tensors = safetensors_tensors,
    .tensor_head = safetensors_tensor_head,
};
