/* The head of an .npy body, versions 1 to 3: magic, version, length, and a Python dictionary with exactly the keys descr,
 * fortran_order and shape. A reader of that, not of Python. Also the head of an .npy response. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number/number.h"
#include "codec/codec_parts.h"

static const char magic[6] = "\x93NUMPY";

static const struct {
    const char *name; /* without its byte order */
    ks_dtype dtype;
} types[] = {{"b1", KS_BOOL},   {"u1", KS_UINT8}, {"u2", KS_UINT16}, {"u4", KS_UINT32},
             {"u8", KS_UINT64}, {"i1", KS_INT8},  {"i2", KS_INT16},  {"i4", KS_INT32},
             {"i8", KS_INT64},  {"f2", KS_FP16},  {"f4", KS_FP32},   {"f8", KS_FP64}};
enum { TYPES = sizeof types / sizeof types[0] };

enum { FIRST = 12 };

/* ks_format.begin */
static ks_status npy_begin(const unsigned char *first, uint64_t *head_bytes, ks_error *error)
{
    if (memcmp(first, magic, sizeof magic) != 0)
        return ks_fail(error, KS_FIELD, "the body is no npy file: it does not begin with \\x93NUMPY");
    const unsigned char version = first[6];
    if (version < 1 || version > 3)
        return ks_fail(error, KS_FIELD, "npy version %d is not supported, versions 1 to 3 are", version);
    uint64_t length = 0;
    for (int i = version == 1 ? 1 : 3; i >= 0; i--) length = length << 8 | first[8 + i];
    *head_bytes = (version == 1 ? 10 : FIRST) + length;
    return KS_OK;
}

typedef struct npy_text {
    const char *at, *end;
} npy_text;

static void skip_space(npy_text *text)
{
    while (text->at < text->end && strchr(" \t\n\r", *text->at) && *text->at) text->at++;
}

static bool take(npy_text *text, char c)
{
    skip_space(text);
    if (text->at == text->end || *text->at != c) return false;
    text->at++;
    return true;
}

/* A string in either quotes, without escapes. */
static bool take_string(npy_text *text, const char **out, size_t *length)
{
    skip_space(text);
    if (text->at == text->end || (*text->at != '\'' && *text->at != '"')) return false;
    const char *const begin = text->at + 1;
    const char *const close = memchr(begin, *text->at, (size_t)(text->end - begin));
    if (!close || memchr(begin, '\\', (size_t)(close - begin))) return false;
    *out = begin;
    *length = (size_t)(close - begin);
    text->at = close + 1;
    return true;
}

static bool take_word(npy_text *text, const char *word)
{
    const size_t length = strlen(word);
    skip_space(text);
    if ((size_t)(text->end - text->at) < length || memcmp(text->at, word, length) != 0) return false;
    text->at += length;
    return true;
}

static ks_status malformed(const char *what, ks_error *error)
{
    return ks_fail(error, KS_FIELD, "the npy header's %s cannot be read", what);
}

static ks_status read_descr(npy_text *text, ks_dtype *out, ks_error *error)
{
    const char *name;
    size_t length;
    if (!take_string(text, &name, &length))
        return ks_fail(error, KS_DATATYPE, "the npy header's descr is no simple type: structured arrays are refused");
    const ks_quote shown = ks_quoted(name, length);
    const bool ordered = length > 0 && strchr("<>=|", *name);
    if (length > 1 && name[ordered ? 1 : 0] == 'O')
        return ks_fail(error, KS_DATATYPE, "npy arrays of objects ('%s') are refused", shown.text);
    for (int i = 0; i < TYPES && ordered && length == 3; i++) {
        if (memcmp(name + 1, types[i].name, 2) != 0) continue;
        if (*name == '>' && ks_dtype_size(types[i].dtype) > 1)
            return ks_fail(error, KS_DATATYPE, "big-endian npy data ('%s') is not supported: store it as '<%s'",
                           shown.text, types[i].name);
        *out = types[i].dtype;
        return KS_OK;
    }
    return ks_fail(error, KS_DATATYPE, "npy type '%s' is unknown or not supported", shown.text);
}

static ks_status read_shape(npy_text *text, ks_tensor *out, ks_error *error)
{
    if (!take(text, '(')) return malformed("shape", error);
    while (!take(text, ')')) {
        skip_space(text);
        const char *const begin = text->at;
        while (text->at < text->end && *text->at >= '0' && *text->at <= '9') text->at++;
        if (out->rank == KS_RANK_MAX)
            return ks_fail(error, KS_SHAPE, "Unable to parse 'shape': more than %d dimensions", KS_RANK_MAX);
        if (ks_number_read(begin, (size_t)(text->at - begin), KS_INT64, &out->dims[out->rank++]) != KS_NUMBER_OK)
            return ks_fail(error, KS_SHAPE, "Unable to parse 'shape': dimension %d of the npy header is no number",
                           out->rank - 1);
        if (take(text, ',')) continue;
        if (out->rank == 1 || !take(text, ')')) return malformed("shape", error); /* (3) is no tuple in Python */
        break;
    }
    return KS_OK;
}

enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4, HAS_ALL = 7 };

static ks_status read_member(npy_text *text, ks_tensor *out, bool *fortran, int *has, ks_error *error)
{
    const char *key;
    size_t length;
    if (!take_string(text, &key, &length) || !take(text, ':')) return malformed("dictionary", error);
    const int which = length == 5 && memcmp(key, "descr", 5) == 0             ? HAS_DESCR
                      : length == 13 && memcmp(key, "fortran_order", 13) == 0 ? HAS_ORDER
                      : length == 5 && memcmp(key, "shape", 5) == 0           ? HAS_SHAPE
                                                                              : 0;
    if (which == 0 || (*has & which))
        return ks_fail(error, KS_FIELD, "the npy header has '%s' %s", ks_quoted(key, length).text,
                       which ? "twice" : "as a key, which no npy file has");
    *has |= which;
    if (which == HAS_DESCR) return read_descr(text, &out->dtype, error);
    if (which == HAS_SHAPE) return read_shape(text, out, error);
    *fortran = take_word(text, "True");
    return *fortran || take_word(text, "False") ? KS_OK : malformed("fortran_order", error);
}

/* The dictionary of a whole head. */
static ks_status read_dictionary(const char *head, size_t length, ks_tensor *tensor, bool *fortran, ks_error *error)
{
    npy_text text = {head + (head[6] == 1 ? 10 : 12), head + length};
    int has = 0;
    if (!take(&text, '{')) return malformed("dictionary", error);
    while (!take(&text, '}')) {
        const ks_status status = read_member(&text, tensor, fortran, &has, error);
        if (status != KS_OK) return status;
        if (take(&text, ',')) continue;
        if (!take(&text, '}')) return malformed("dictionary", error);
        break;
    }
    skip_space(&text);
    return has == HAS_ALL && text.at == text.end ? KS_OK : malformed("dictionary", error);
}

/* Whether Fortran's order of its elements is another one than C's. */
static bool differs(const ks_tensor *tensor)
{
    return tensor->rank > 1 && tensor->size_bytes > 0;
}

/* The first required one that is no resident tensor, or else the first optional one, of a preset its own; -1: there is none. */
static int input_of(const ks_codec *codec)
{
    const ks_op *op = codec->request.spec.op;
    const unsigned others = ((1u << op->inputs_count) - 1) & ~(unsigned)codec->request.resident;
    const unsigned required = others & ks_op_required(op), declared = others & codec->request.model->declared;
    const unsigned left = required ? required : declared ? declared : others;
    return left ? __builtin_ctz(left) : -1;
}

/* ks_format.head */
static ks_status npy_head(ks_codec *codec, ks_error *error)
{
    ks_spec *spec = &codec->request.spec;
    const int input = input_of(codec);
    if (input < 0)
        return ks_fail(error, KS_NAME, "every input of model '%s' is a resident tensor: no body is left to send",
                       codec->request.model->name);
    spec->given |= (uint16_t)(1u << input);
    const char *const name = spec->op->inputs[input].name;
    ks_tensor *tensor = &spec->in[input];
    bool fortran = false;
    ks_status status = read_dictionary(codec->file, codec->file_length, tensor, &fortran, error);
    if (status == KS_OK) status = ks_codec_check_dtype(codec, input, name, tensor->dtype, error);
    if (status == KS_OK) status = ks_tensor_measure(tensor, name, error);
    if (status != KS_OK) return status;
    codec->segment[codec->segments++] = (ks_segment){.input = input, .bytes = tensor->size_bytes};
    codec->fortran_order = fortran && differs(tensor);
    if (codec->fortran_order) ks_fortran_begin(&codec->fortran, tensor);
    return KS_OK;
}

/* ks_format.tensors */
static ks_status npy_tensors(const char *head, size_t length, ks_file_tensors *out, ks_error *error)
{
    ks_file_tensor *one = calloc(1, sizeof *one);
    if (!one) return ks_fail(error, KS_MEMORY, "no memory for the file's header");
    *out = (ks_file_tensors){.count = 1, .item = one};
    ks_status status = read_dictionary(head, length, &one->tensor, &one->fortran, error);
    if (status == KS_OK) status = ks_tensor_measure(&one->tensor, "the file", error);
    one->fortran &= status == KS_OK && differs(&one->tensor);
    return status;
}

static const char *type_of(ks_dtype dtype)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype) return types[i].name;
    return NULL;
}

/* ks_format.tensor_head: version 1, padded so that the elements begin at a multiple of 64. */
static size_t npy_tensor_head(const char *name, const ks_tensor *tensor, char out[KS_FILE_HEAD_MAX])
{
    (void)name;
    enum { HEAD_AT = 10, UNIT = 64 };
    char dims[KS_RANK_MAX * 21 + 1];
    const size_t shape = ks_dims_text(tensor, dims, sizeof dims);
    char *const text = out + HEAD_AT;
    size_t n = (size_t)snprintf(text, KS_FILE_HEAD_MAX - HEAD_AT,
                                "{'descr': '%c%s', 'fortran_order': False, 'shape': (%.*s%s), }",
                                ks_dtype_size(tensor->dtype) > 1 ? '<' : '|', type_of(tensor->dtype), (int)shape, dims,
                                tensor->rank == 1 ? "," : "");
    const size_t whole = (HEAD_AT + n + 1 + UNIT - 1) / UNIT * UNIT;
    memset(text + n, ' ', whole - HEAD_AT - n);
    out[whole - 1] = '\n';
    memcpy(out, magic, sizeof magic);
    const char after[4] = {1, 0, (char)((whole - HEAD_AT) & 255), (char)((whole - HEAD_AT) >> 8)};
    memcpy(out + sizeof magic, after, sizeof after);
    return whole;
}

/* ks_format.response_head */
static size_t npy_response_head(const ks_infer_request *request, char out[KS_FILE_HEAD_MAX])
{
    return npy_tensor_head("", &request->spec.out[__builtin_ctz(request->outputs)], out);
}

const ks_format ks_format_npy = {
    .name = "npy",
    .called = "an npy",
    .content_type = "application/x-npy",
    .encoding = KS_FORMAT_LABEL_npy,
    .dtypes = KS_DTYPE_BIT(KS_BOOL) | KS_DTYPE_BIT(KS_UINT8) | KS_DTYPE_BIT(KS_UINT16) | KS_DTYPE_BIT(KS_UINT32) |
              KS_DTYPE_BIT(KS_UINT64) | KS_DTYPE_BIT(KS_INT8) | KS_DTYPE_BIT(KS_INT16) | KS_DTYPE_BIT(KS_INT32) |
              KS_DTYPE_BIT(KS_INT64) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP64),
    .inputs_max = 1,
    .outputs_max = 1,
    .first = FIRST,
    .begin = npy_begin,
    .head = npy_head,
    .response_head = npy_response_head,
    .tensors = npy_tensors,
    .tensor_head = npy_tensor_head,
};
