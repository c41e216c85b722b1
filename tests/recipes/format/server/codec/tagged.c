/* Tagged: a toy format (tests/recipes/format.py). A head of 8 bytes, "TAG1", datatype as ks_dtype, rank, two zeros; then the dimensions,
 * 8 bytes each, least byte first; then the elements. One tensor. */
#include <string.h>

#include "codec/codec_parts.h"

static const char magic[4] = "TAG1";
enum { FIRST = 8, DTYPE_AT = 4, RANK_AT = 5, DIM_BYTES = 8 };

/* ks_format.begin */
static ks_status tagged_begin(const unsigned char *first, uint64_t *head_bytes, ks_error *error)
{
    if (memcmp(first, magic, sizeof magic) != 0)
        return ks_fail(error, KS_FIELD, "the body is no tagged file: it does not begin with TAG1");
    if (first[RANK_AT] > KS_RANK_MAX)
        return ks_fail(error, KS_SHAPE, "the tagged head has rank %d, takes 0 to %d", first[RANK_AT], KS_RANK_MAX);
    *head_bytes = FIRST + (uint64_t)first[RANK_AT] * DIM_BYTES;
    return KS_OK;
}

static int64_t read_dim(const unsigned char *at)
{
    uint64_t dim = 0;
    for (int i = DIM_BYTES - 1; i >= 0; i--) dim = dim << 8 | at[i];
    return (int64_t)dim;
}

/* ks_format.head */
static ks_status tagged_head(ks_codec *codec, ks_error *error)
{
    const unsigned char *head = (const unsigned char *)codec->file;
    const int input = __builtin_ctz(ks_op_required(codec->request.spec.op));
    const char *const name = codec->request.spec.op->inputs[input].name;
    ks_tensor *tensor = &codec->request.spec.in[input];
    if (head[DTYPE_AT] >= KS_BYTES)
        return ks_fail(error, KS_DATATYPE, "the tagged head has datatype %d, which is none", head[DTYPE_AT]);
    tensor->dtype = (ks_dtype)head[DTYPE_AT];
    tensor->rank = head[RANK_AT];
    for (int i = 0; i < tensor->rank; i++) {
        tensor->dims[i] = read_dim(head + FIRST + i * DIM_BYTES);
        if (tensor->dims[i] < 0) return ks_fail(error, KS_SHAPE, "the tagged head's dimension %d is negative", i);
    }
    ks_status status = ks_codec_check_dtype(codec, input, name, tensor->dtype, error);
    if (status == KS_OK) status = ks_tensor_measure(tensor, name, error);
    if (status != KS_OK) return status;
    codec->segment[codec->segments++] = (ks_segment){.input = input, .bytes = tensor->size_bytes};
    return KS_OK;
}

/* ks_format.response_head */
static size_t tagged_response_head(const ks_infer_request *request, char out[KS_FILE_HEAD_MAX])
{
    const ks_tensor *tensor = &request->spec.out[__builtin_ctz(request->outputs)];
    memset(out, 0, FIRST);
    memcpy(out, magic, sizeof magic);
    out[DTYPE_AT] = (char)tensor->dtype;
    out[RANK_AT] = (char)tensor->rank;
    for (int i = 0; i < tensor->rank; i++)
        for (int b = 0; b < DIM_BYTES; b++)
            out[FIRST + i * DIM_BYTES + b] = (char)((uint64_t)tensor->dims[i] >> 8 * b & 255);
    return FIRST + (size_t)tensor->rank * DIM_BYTES;
}

const ks_format ks_format_tagged = {
    .name = "tagged",
    .called = "a tagged",
    .content_type = "application/x-tagged",
    .encoding = KS_FORMAT_LABEL_tagged,
    .dtypes = KS_DTYPE_BIT(KS_BYTES) - 1, /* all of fixed size */
    .inputs_max = 1,
    .outputs_max = 1,
    .first = FIRST,
    .begin = tagged_begin,
    .head = tagged_head,
    .response_head = tagged_response_head,
};
