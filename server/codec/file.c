/* Bodies that are files (format.h). They begin with a head that says datatypes and shapes; it is collected, read by its format, and then
 * the elements go where those of any body go. Parameters come from the query. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec_parts.h"

static ks_status resolve_all(ks_codec *codec, ks_error *error)
{
    const ks_status status = ks_codec_resolve(codec, error);
    return status == KS_OK ? ks_codec_place_tensors(codec, error) : status;
}

ks_status ks_codec_file_begin(ks_codec *codec, const char *query, ks_error *error)
{
    const ks_model *model = codec->request.model;
    const ks_format *format = codec->request.body;
    ks_status status = ks_codec_read_query(codec, query, error);
    if (status == KS_OK) status = ks_codec_hold_query(codec, error);
    if (status != KS_OK) return status;
    const unsigned wanted = ks_op_required(model->op) & ~(unsigned)codec->request.resident;
    if (__builtin_popcount(wanted) > format->inputs_max)
        return ks_fail(error, KS_NAME, "%s body holds %d input%s but '%s' has %d: send a safetensors body",
                       format->called, format->inputs_max, format->inputs_max == 1 ? "" : "s", model->name,
                       model->op->inputs_count);
    if (wanted == 0 && codec->content_length == 0) return resolve_all(codec, error); /* every input is resident */
    codec->file_due = format->first;
    return KS_OK;
}

static ks_status begin_head(ks_codec *codec, ks_error *error)
{
    uint64_t bytes = 0;
    const ks_status status = codec->request.body->begin((const unsigned char *)codec->file, &bytes, error);
    if (status != KS_OK) return status;
    if (bytes > codec->limits.max_skeleton)
        return ks_fail(error, KS_BODY_SIZE,
                       "the file's header of %" PRIu64 " bytes exceeds the maximum allowed value of %zu", bytes,
                       codec->limits.max_skeleton);
    if (bytes < codec->file_length) return ks_fail(error, KS_FIELD, "the file's header is too short to be one");
    codec->file_due = (size_t)bytes;
    codec->file_sized = true;
    return KS_OK;
}

/* The inputs are known: one segment of the body for each that has bytes, as the head's reader has ordered them. */
static ks_status end_head(ks_codec *codec, ks_error *error)
{
    ks_status status = codec->request.body->head(codec, error);
    if (status != KS_OK) return status;
    uint64_t sum = codec->file_length;
    for (int i = 0; i < codec->segments; i++)
        if (__builtin_add_overflow(sum, (uint64_t)codec->segment[i].bytes, &sum)) sum = UINT64_MAX;
    if (codec->content_length >= 0 && (uint64_t)codec->content_length != sum)
        return ks_fail(error, KS_BINARY_SIZE,
                       "the file's header calls for a body of %" PRIu64 " bytes for model '%s', got %" PRId64, sum,
                       codec->request.model->name, codec->content_length);
    if (sum > codec->limits.max_body)
        return ks_fail(error, KS_BODY_SIZE,
                       "a body of %" PRIu64 " bytes exceeds the maximum allowed input size of %" PRIu64
                       " bytes. Use --max-body to increase the limit.",
                       sum, codec->limits.max_body);
    free(codec->file);
    codec->file = NULL;
    codec->file_due = 0;
    return resolve_all(codec, error);
}

ks_status ks_codec_file_feed(ks_codec *codec, const char **bytes, size_t *n, ks_error *error)
{
    while (codec->file_due > 0) {
        if (codec->file_length == codec->file_due) {
            const ks_status status = codec->file_sized ? end_head(codec, error) : begin_head(codec, error);
            if (status != KS_OK) return status;
            continue;
        }
        if (*n == 0) return KS_OK;
        char *const room = realloc(codec->file, codec->file_due);
        if (!room) return ks_fail(error, KS_MEMORY, "no memory for the file's header");
        codec->file = room;
        const size_t left = codec->file_due - codec->file_length, taken = *n < left ? *n : left;
        memcpy(codec->file + codec->file_length, *bytes, taken);
        codec->file_length += taken;
        *bytes += taken;
        *n -= taken;
    }
    return KS_OK;
}
