/* What the files of this folder share: one request's words. Nothing outside of these includes it. */
#ifndef KS_OIP_PARTS_H
#define KS_OIP_PARTS_H
#include "kernserve/backend.h"
#include "codec/decode.h"
#include "codec/scan.h"
#include "base/text.h"

/* Bytes of the body that go to one model input, in the body's order. */
typedef struct ks_oip_piece {
    int input;
    size_t bytes;
} ks_oip_piece;

enum { KS_OUTPUTS_ALL = (1 << KS_OUTPUTS_MAX) - 1 };

/* Where a model input's elements come from. */
typedef struct ks_oip_source {
    bool present, binary, shared;
    int index; /* in the request's "inputs" */
} ks_oip_source;

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

struct ks_oip {
    /* fixed by begin: */
    ks_word_limits limits;
    ks_oip_place_fn *place;
    ks_oip_write_fn *write; /* NULL: there is memory for the `in` side */
    void *context;
    int64_t content_length; /* -1: unknown */
    int64_t json_length;    /* bytes of JSON in front; -1: the whole body; 0: none */
    bool accept_json;
    ks_oip_window_fn *window;
    /* the body so far: */
    uint64_t received;
    ks_scan *scan; /* NULL but while JSON arrives */
    /* memory, and what of its `in` side is in use: */
    unsigned char *in, *out;
    size_t in_asked, out_asked, in_used;
    size_t json_offset[KS_INPUTS_MAX]; /* of elements read from JSON, by the request's index */
    ks_oip_source source[KS_INPUTS_MAX];
    ks_oip_piece piece[KS_INPUTS_MAX];
    int pieces, piece_now;
    size_t piece_filled;
    uint64_t out_window_bytes[KS_OUTPUTS_MAX];
    /* a file: its head, until it is read; then the walk over elements in Fortran's order */
    char *file;
    size_t file_length, file_due;
    bool file_sized; /* file_due is the whole head */
    bool fortran_order;
    ks_fortran fortran;
    bool deduce;     /* OIP raw: the shape follows from the body's length */
    bool all_binary; /* parameter binary_data_output */
    /* raw forms: what the query says, in its order */
    int query_shapes, query_datatypes, query_inputs;
    ks_dtype query_datatype[KS_INPUTS_MAX];
    int query_input[KS_INPUTS_MAX];
    /* the answer's JSON so far: */
    bool printing;
    int printing_output;
    size_t printed; /* elements of it */
    ks_text text, blobs;
    ks_ask ask; /* last: most of it is not cleared at the beginning */
};

/* A parameter's value as it came. */
typedef struct ks_oip_value {
    enum { KS_VALUE_TEXT, KS_VALUE_NUMBER, KS_VALUE_BOOL, KS_VALUE_QUERY, KS_VALUE_OTHER } kind;
    const char *text; /* "true" or "false" for a BOOL */
    size_t length;
} ks_oip_value;

/* params.c: one request parameter, of the protocol or of the op. */
ks_status ks_oip_parameter(ks_oip *oip, const char *name, const ks_oip_value *value, ks_error *error);

/* raw.c: shape, datatype and parameters from the query; then the spec, as far as the body's length is known. */
bool ks_oip_query_has(const char *query, const char *name);
ks_status ks_oip_raw_begin(ks_oip *oip, const char *query, ks_error *error);
ks_status ks_oip_raw_grow(ks_oip *oip, const char *bytes, size_t n, ks_error *error); /* deduce only */
ks_status ks_oip_raw_deduce(ks_oip *oip, size_t body_bytes, ks_error *error);

/* Parameters, and for raw forms shape and datatype. */
ks_status ks_oip_read_query(ks_oip *oip, const char *query, ks_error *error);

/* file.c: a file's head, taken from the body's bytes until it is complete and read. */
ks_status ks_oip_file_begin(ks_oip *oip, const char *query, ks_error *error);
ks_status ks_oip_file_feed(ks_oip *oip, const char **bytes, size_t *n, ks_error *error);

/* fortran.c */
void ks_fortran_begin(ks_fortran *walk, const ks_tensor *tensor);
void ks_fortran_put(ks_fortran *walk, unsigned char *to, const char *bytes, size_t n);

/* json.c */
ks_scan_place_fn ks_oip_place_json;
/* The skeleton is complete: reads it, checks all, resolves. *in_bytes: the memory that the inputs take. */
ks_status ks_oip_read_skeleton(ks_oip *oip, size_t *in_bytes, ks_error *error);

/* head_cache.c: a head that was read before says the same again. asked: ask.answer before it was read. */
bool ks_oip_recall(ks_oip *oip, const char *text, size_t length, size_t *in_bytes);
void ks_oip_remember(const ks_oip *oip, const char *text, size_t length, const ks_format *asked, size_t in_bytes);

/* resolve.c: shared by all forms. */
ks_status ks_oip_ask_place(ks_oip *oip, size_t in_bytes, size_t out_bytes, size_t keep, ks_error *error);
/* input: the model's; -1: not known yet, then what any of them takes. name: in the sentence. */
ks_status ks_oip_check_dtype(const ks_oip *oip, int input, const char *name, ks_dtype dtype, ks_error *error);
/* spec.in is complete but for the offsets: resolves it and applies the limits. */
ks_status ks_oip_resolve(ks_oip *oip, ks_error *error);
/* Behind ks_oip_resolve, for bodies of elements alone: offsets, and the memory for them. */
ks_status ks_oip_place_tensors(ks_oip *oip, ks_error *error);

/* classes.c: how many classes of an output there are, and their texts VALUE:INDEX, the largest first: as a JSON list's
 * members or as BYTES. out: the output's elements. KS_MEMORY. */
enum { KS_CLASSES_ROW_MAX = 1000000 };
size_t ks_answer_class_count(const ks_ask *ask, int output);
uint64_t ks_answer_class_bytes(const ks_ask *ask, int output); /* the most memory that they take, beside the head */
ks_status ks_answer_class_texts(const ks_ask *ask, int output, const unsigned char *out, ks_text *text,
                                ks_error *error);
#endif
