/* Body formats that a media type names: files, which begin with a head that says datatypes and shapes. A row of formats.def and a
 * ks_format in a file of its own make one; requests, responses, metrics and the OpenAPI document follow from it. */
#ifndef KS_FORMAT_H
#define KS_FORMAT_H
#include "base/formats.h"
#include "kernserve/backend.h"

struct ks_codec;
struct ks_infer_request;
enum { KS_FILE_HEAD_MAX = 4096, KS_FILE_NAME_MAX = 128, KS_FILE_TENSORS_MAX = 4096 };

/* One tensor of a file, as its head says it. */
typedef struct ks_file_tensor {
    char name[KS_FILE_NAME_MAX + 2]; /* terminated; cut behind one byte too many; "": files of that format name none */
    ks_tensor tensor;                /* datatype, shape and bytes alone */
    uint64_t begin;                  /* of its bytes, behind the head */
    bool fortran;                    /* they come in Fortran's order, and that is another one */
} ks_file_tensor;

/* All of them, in the order of their bytes, which follow each other without a gap. */
typedef struct ks_file_tensors {
    bool wants_definition; /* by the caller: the file is a model's */
    int count;
    ks_file_tensor *item; /* free() */
    char *definition;     /* free(); the text that __metadata__ has as its member kernserve; NULL: it has none */
} ks_file_tensors;

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
    /* Tensors that are stored, whatever op may use them; both NULL: not in this format. tensors: of a whole head; KS_BODY_SIZE: more
     * than KS_FILE_TENSORS_MAX. tensor_head: in front of one tensor, of `dtypes`; returns its bytes. */
    ks_status (*tensors)(const char *head, size_t length, ks_file_tensors *out, ks_error *error);
    size_t (*tensor_head)(const char *name, const ks_tensor *tensor, char out[KS_FILE_HEAD_MAX]);
} ks_format;

/* Elements that come in Fortran's order, on their way to where C's order has them. */
typedef struct ks_fortran {
    size_t element, offset; /* bytes */
    int rank;
    int64_t dims[KS_RANK_MAX], at[KS_RANK_MAX];
    size_t stride[KS_RANK_MAX]; /* bytes, of C's order */
    uint64_t left;              /* elements */
    size_t part_length;         /* of an element that the last chunk has cut */
    unsigned char part[8];
} ks_fortran;

void ks_fortran_begin(ks_fortran *walk, const ks_tensor *tensor);
/* The next n bytes that come, to the tensor's memory. */
void ks_fortran_put(ks_fortran *walk, unsigned char *to, const char *bytes, size_t n);

#define FORMAT(name)
#define FILE_FORMAT(name) extern const ks_format ks_format_##name;
#include "base/formats.def"

extern const ks_format *const ks_formats[]; /* in the order of formats.def; NULL-terminated */
/* Of a media type, whose parameters are ignored; NULL: none. media_type may be NULL. */
const ks_format *ks_file_of(const char *media_type);
#endif
