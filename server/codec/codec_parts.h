/* What the files of this folder share: how one request's body is read. Nothing outside of this folder includes it. */
#ifndef KS_CODEC_PARTS_H
#define KS_CODEC_PARTS_H
#include "kernserve/backend.h"
#include "codec/decode.h"
#include "codec/json_tree.h"
#include "codec/scan/scan.h"
#include "base/text.h"

/* Bytes of the body that go to one model input, in the body's order. */
typedef struct ks_segment {
    int input;
    size_t bytes;
} ks_segment;

enum { KS_OUTPUTS_ALL = (1 << KS_OUTPUTS_MAX) - 1 };

/* Where a model input's elements come from. */
typedef struct ks_input_source {
    bool present, binary, shared, resident;
    int index; /* in the request's "inputs" */
} ks_input_source;

struct ks_codec {
    /* fixed by begin: */
    ks_codec_limits limits;
    ks_codec_place_fn *place;
    ks_codec_write_fn *write; /* NULL: there is memory for the `in` side */
    void *context;
    int64_t content_length; /* -1: unknown */
    int64_t json_length;    /* bytes of JSON in front; -1: the whole body; 0: none */
    bool accept_json;
    bool query_warned; /* request.warning is of the query, which no head says */
    ks_codec_window_fn *window;
    ks_codec_tensor_fn *tensor;
    /* the body so far: */
    uint64_t received;
    ks_scan *scan; /* NULL but while JSON arrives */
    /* memory, and what of its `in` side is in use: */
    ks_sides sides;
    size_t in_asked, out_asked, in_used;
    ks_input_source source[KS_INPUTS_MAX];
    int segments, segment_now;
    size_t segment_filled;
    /* a file: its head, until it is read; then the walk over elements in Fortran's order */
    char *file;
    size_t file_length, file_due;
    bool file_sized; /* file_due is the whole head */
    bool fortran_order;
    ks_fortran fortran;
    bool deduce;     /* OIP raw: the shape follows from the body's length */
    bool all_binary; /* parameter binary_data_output */
    /* raw formats: what the query says, in its order */
    int query_shapes, query_datatypes, query_inputs;
    bool query_ttl;
    int64_t query_ttl_s;
    /* the response's JSON so far: */
    bool printing;
    int printing_output;
    size_t printed; /* elements of it */
    ks_text text, blobs;
    ks_infer_request request; /* most of it is not cleared at the beginning, and nothing behind it: */
    ks_segment segment[KS_INPUTS_MAX];
    size_t json_offset[KS_INPUTS_MAX]; /* of elements read from JSON, by the request's index */
    uint64_t out_window_bytes[KS_OUTPUTS_MAX];
    ks_dtype query_datatype[KS_INPUTS_MAX];
    int query_input[KS_INPUTS_MAX];
};

/* params.c: one request parameter, of the protocol or of the op. */
ks_status ks_codec_parameter(ks_codec *codec, const char *name, const ks_param_value *value, ks_error *error);

/* raw.c: shape, datatype and parameters from the query; then the spec, as far as the body's length is known. */
bool ks_codec_query_is_raw(const char *query); /* names a shape, or a resident tensor for an input */
ks_status ks_codec_raw_begin(ks_codec *codec, const char *query, ks_error *error);
ks_status ks_codec_raw_grow(ks_codec *codec, const char *bytes, size_t n, ks_error *error); /* deduce only */
ks_status ks_codec_raw_deduce(ks_codec *codec, size_t body_bytes, ks_error *error);

/* Parameters, and for raw formats shape and datatype. */
ks_status ks_codec_read_query(ks_codec *codec, const char *query, ks_error *error);
/* Of a body with JSON: nothing is read from the query; what it says is refused, or the request is warned. */
ks_status ks_codec_check_query(ks_codec *codec, const char *query, ks_error *error);

/* unknown.c: a name that nothing here has is refused, or the request is warned. */
typedef enum ks_name_place {
    KS_NAME_IN_QUERY,
    KS_NAME_BESIDE_JSON, /* in the query of a body with JSON */
    KS_NAME_IN_PARAMETERS,
    KS_NAME_IN_JSON /* a member of the whole */
} ks_name_place;
ks_status ks_codec_unknown(ks_codec *codec, ks_name_place place, const char *name, ks_error *error);
ks_status ks_codec_check_members(ks_codec *codec, const ks_json *top, ks_error *error);

/* file.c: a file's head, taken from the body's bytes until it is complete and read. */
ks_status ks_codec_file_begin(ks_codec *codec, const char *query, ks_error *error);
ks_status ks_codec_file_feed(ks_codec *codec, const char **bytes, size_t *n, ks_error *error);

/* json.c */
ks_scan_place_fn ks_codec_place_json;
/* The JSON head is complete: reads it, checks all, resolves. *in_bytes: the memory that the inputs take. */
ks_status ks_codec_read_json_head(ks_codec *codec, size_t *in_bytes, ks_error *error);

/* head_cache.c: a head that was read before says the same again. asked: request.response before it was read. */
bool ks_head_cache_find(ks_codec *codec, const char *text, size_t length, size_t *in_bytes);
void ks_head_cache_put(const ks_codec *codec, const char *text, size_t length, const ks_format *asked, size_t in_bytes);

/* resident.c: tensors that are named in the place of data. */
/* A pair of the query: INPUT1=@W, OUTPUT0=@h, in either case, or ttl. *known: it is one of these. */
ks_status ks_codec_query_tensor(ks_codec *codec, const char *name, const char *value, bool *known, ks_error *error);
/* Whether the name of a pair is that of a tensor. */
bool ks_codec_names_tensor(const char *name);
ks_status ks_codec_name_input(ks_codec *codec, int input, const char *name, ks_error *error);
ks_status ks_codec_name_output(ks_codec *codec, int output, const char *name, int64_t ttl_s, ks_error *error);
/* Seconds of a stored output's life. KS_PARAMETER. */
ks_status ks_codec_check_ttl(bool read, uint64_t seconds, ks_error *error);
/* Holds a named input: its part of the spec is complete. */
ks_status ks_codec_hold_input(ks_codec *codec, int input, ks_error *error);
/* Holds all that the query names. */
ks_status ks_codec_hold_query(ks_codec *codec, ks_error *error);
/* Of a head that was read before: holds what it names. false: one is not there, or is another by now. */
bool ks_codec_hold_again(ks_codec *codec, const ks_infer_request *known, const void *fixed[KS_INPUTS_MAX]);

/* resolve.c: shared by all formats. */
ks_status ks_codec_take_memory(ks_codec *codec, size_t in_bytes, size_t out_bytes, size_t keep, ks_error *error);
/* input: the model's; -1: not known yet, then what any of them takes. name: in the sentence. */
ks_status ks_codec_check_dtype(const ks_codec *codec, int input, const char *name, ks_dtype dtype, ks_error *error);
/* spec.in is complete but for the offsets: resolves it and applies the limits. */
ks_status ks_codec_resolve(ks_codec *codec, ks_error *error);
/* Behind ks_codec_resolve, for bodies of elements alone: offsets, and the memory for them. */
ks_status ks_codec_place_tensors(ks_codec *codec, ks_error *error);

/* classes.c: how many classes of an output there are, and their texts VALUE:INDEX, the largest first: as a JSON list's
 * members or as BYTES. out: the output's elements. KS_MEMORY. */
enum { KS_CLASSES_ROW_MAX = 1000000 };
size_t ks_class_count(const ks_infer_request *request, int output);
uint64_t ks_class_bytes(const ks_infer_request *request,
                        int output); /* the most memory that they take, beside the head */
ks_status ks_class_texts(const ks_infer_request *request, int output, const unsigned char *out, ks_text *text,
                         ks_error *error);
#endif
