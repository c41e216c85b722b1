/* Body formats that a media type names: files, which begin with a head that says datatypes and shapes. A row of formats.def and a
 * ks_format in a file of its own make one; requests, responses, metrics and the OpenAPI document follow from it. */
#ifndef KS_FORMAT_H
#define KS_FORMAT_H
#include "base/formats.h"
#include "kernserve/backend.h"

struct ks_codec;
struct ks_infer_request;
enum { KS_FILE_HEAD_MAX = KS_HEAD_ROOM };

typedef struct ks_format {
    const char *name, *called; /* "npy", "an npy" */
    const char *content_type;
    ks_format_label encoding;
    uint32_t dtypes;             /* KS_DTYPE_BIT of each that it has a type for */
    int inputs_max, outputs_max; /* that one file holds */
    /* A request. first: so many bytes tell how long the head is. KS_FIELD: they are none of this format's. */
    size_t first;
    ks_status (*begin)(const unsigned char *first, uint64_t *head_bytes, ks_error *error);
    /* The whole head is there (codec->file): fills spec.in, spec.given and the segments of the body. */
    ks_status (*head)(struct ks_codec *codec, ks_error *error);
    /* The head in front of a response's outputs; returns its bytes. */
    size_t (*response_head)(const struct ks_infer_request *request, char out[KS_FILE_HEAD_MAX]);
} ks_format;

#define FORMAT(name)
#define FILE_FORMAT(name) extern const ks_format ks_format_##name;
#include "base/formats.def"

extern const ks_format *const ks_formats[]; /* in the order of formats.def; NULL-terminated */
/* Of a media type, whose parameters are ignored; NULL: none. media_type may be NULL. */
const ks_format *ks_file_of(const char *media_type);
#endif
