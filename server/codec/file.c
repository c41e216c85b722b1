/* Bodies that are files (format.h). They begin with a head that says datatypes and shapes; it is collected, read by its format, and then
 * the elements go where those of any body go. Parameters come from the query. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec_parts.h"

ks_status ks_oip_file_begin(ks_oip *oip, const char *query, ks_error *error)
{
    const ks_model *model = oip->ask.model;
    const ks_format *format = oip->ask.body;
    if (__builtin_popcount(ks_op_required(model->op)) > format->inputs_max)
        return ks_fail(error, KS_NAME, "%s body holds %d input%s but '%s' has %d: send a safetensors body",
                       format->called, format->inputs_max, format->inputs_max == 1 ? "" : "s", model->name,
                       model->op->inputs_count);
    oip->file_due = format->first;
    return ks_oip_read_query(oip, query, error);
}

static ks_status begin_head(ks_oip *oip, ks_error *error)
{
    uint64_t bytes = 0;
    const ks_status status = oip->ask.body->begin((const unsigned char *)oip->file, &bytes, error);
    if (status != KS_OK) return status;
    if (bytes > oip->limits.max_skeleton)
        return ks_fail(error, KS_BODY_SIZE,
                       "the file's header of %" PRIu64 " bytes exceeds the maximum allowed value of %zu", bytes,
                       oip->limits.max_skeleton);
    if (bytes < oip->file_length) return ks_fail(error, KS_FIELD, "the file's header is too short to be one");
    oip->file_due = (size_t)bytes;
    oip->file_sized = true;
    return KS_OK;
}

/* The inputs are known: one piece of the body for each that has bytes, as the head's reader has ordered them. */
static ks_status end_head(ks_oip *oip, ks_error *error)
{
    ks_status status = oip->ask.body->head(oip, error);
    if (status != KS_OK) return status;
    uint64_t sum = oip->file_length;
    for (int i = 0; i < oip->pieces; i++)
        if (__builtin_add_overflow(sum, (uint64_t)oip->piece[i].bytes, &sum)) sum = UINT64_MAX;
    if (oip->content_length >= 0 && (uint64_t)oip->content_length != sum)
        return ks_fail(error, KS_BINARY_SIZE,
                       "the file's header calls for a body of %" PRIu64 " bytes for model '%s', got %" PRId64, sum,
                       oip->ask.model->name, oip->content_length);
    if (sum > oip->limits.max_body)
        return ks_fail(error, KS_BODY_SIZE,
                       "a body of %" PRIu64 " bytes exceeds the maximum allowed input size of %" PRIu64
                       " bytes. Use --max-body to increase the limit.",
                       sum, oip->limits.max_body);
    free(oip->file);
    oip->file = NULL;
    oip->file_due = 0;
    status = ks_oip_resolve(oip, error);
    return status == KS_OK ? ks_oip_place_tensors(oip, error) : status;
}

ks_status ks_oip_file_feed(ks_oip *oip, const char **bytes, size_t *n, ks_error *error)
{
    while (oip->file_due > 0) {
        if (oip->file_length == oip->file_due) {
            const ks_status status = oip->file_sized ? end_head(oip, error) : begin_head(oip, error);
            if (status != KS_OK) return status;
            continue;
        }
        if (*n == 0) return KS_OK;
        char *const room = realloc(oip->file, oip->file_due);
        if (!room) return ks_fail(error, KS_MEMORY, "no memory for the file's header");
        oip->file = room;
        const size_t left = oip->file_due - oip->file_length, taken = *n < left ? *n : left;
        memcpy(oip->file + oip->file_length, *bytes, taken);
        oip->file_length += taken;
        *bytes += taken;
        *n -= taken;
    }
    return KS_OK;
}
