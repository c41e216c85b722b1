/* Bodies that are files: .npy and safetensors. Both begin with a head that says datatype and shape; it is collected, read
 * (oip_npy.c, oip_safetensors.c), and then the elements go where those of any body go. Parameters come from the query. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec_parts.h"

enum { NPY_FIRST = 12, SAFETENSORS_FIRST = 8 };

ks_status ks_oip_file_begin(ks_oip *oip, const char *query, ks_error *error)
{
    const ks_model *model = oip->ask.model;
    if (oip->ask.form == KS_FORM_NPY && __builtin_popcount(ks_op_required(model->op)) != 1)
        return ks_fail(error, KS_NAME, "an npy body holds 1 input but '%s' has %d: send a safetensors body",
                       model->name, model->op->inputs_count);
    oip->file_due = oip->ask.form == KS_FORM_NPY ? NPY_FIRST : SAFETENSORS_FIRST;
    return ks_oip_read_query(oip, query, error);
}

/* The bytes of the whole head, once its first ones are there. */
static uint64_t head_bytes(const ks_oip *oip)
{
    const unsigned char *first = (const unsigned char *)oip->file;
    uint64_t length = 0;
    if (oip->ask.form == KS_FORM_SAFETENSORS) {
        for (int i = 7; i >= 0; i--) length = length << 8 | first[i];
        return length > UINT64_MAX - SAFETENSORS_FIRST ? UINT64_MAX : SAFETENSORS_FIRST + length;
    }
    if (first[6] == 1) return 10 + (uint64_t)(first[8] | first[9] << 8);
    for (int i = 3; i >= 0; i--) length = length << 8 | first[8 + i];
    return NPY_FIRST + length;
}

static ks_status begin_head(ks_oip *oip, ks_error *error)
{
    if (oip->ask.form == KS_FORM_NPY) {
        const ks_status status = ks_oip_npy_check_magic(oip->file, error);
        if (status != KS_OK) return status;
    }
    const uint64_t bytes = head_bytes(oip);
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
    ks_status status = oip->ask.form == KS_FORM_NPY ? ks_oip_npy_read(oip, error) : ks_oip_safetensors_read(oip, error);
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

/* --- Fortran order -------------------------------------------------------------------------------------------------- */

void ks_fortran_begin(ks_fortran *walk, const ks_tensor *tensor)
{
    memset(walk, 0, sizeof *walk);
    walk->element = ks_dtype_size(tensor->dtype);
    walk->rank = tensor->rank;
    walk->left = (uint64_t)ks_tensor_count(tensor);
    size_t stride = walk->element;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        walk->dims[i] = tensor->dims[i];
        walk->stride[i] = stride;
        stride *= (size_t)tensor->dims[i];
    }
}

/* To the next element in Fortran's order, in which the first index runs fastest. */
static void step(ks_fortran *walk)
{
    walk->left--;
    for (int i = 0; i < walk->rank; i++) {
        walk->offset += walk->stride[i];
        if (++walk->at[i] < walk->dims[i]) return;
        walk->offset -= walk->stride[i] * (size_t)walk->dims[i];
        walk->at[i] = 0;
    }
}

void ks_fortran_put(ks_fortran *walk, unsigned char *to, const char *bytes, size_t n)
{
    const char *const end = bytes + n;
    const size_t element = walk->element;
    while (walk->left > 0 && bytes < end) {
        if (walk->part_length == 0 && (size_t)(end - bytes) >= element) {
            memcpy(to + walk->offset, bytes, element);
            bytes += element;
            step(walk);
            continue;
        }
        /* One that a chunk's end has cut. */
        walk->part[walk->part_length++] = *bytes++;
        if (walk->part_length < element) continue;
        memcpy(to + walk->offset, walk->part, element);
        walk->part_length = 0;
        step(walk);
    }
}
