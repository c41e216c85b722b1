/* Open Inference Protocol words <-> one piece of work. Takes a request's body in chunks in any of its six formats (ks_body_format),
 * checks everything the request says, and leaves the tensors at their aligned offsets in
 * the caller's memory; afterwards writes the response. No threads, device or sockets here.
 *
 * Life   ks_codec_begin -> ks_codec_feed* -> ks_codec_end -> [the work] -> ks_codec_encode -> ks_codec_fini (always). */
#ifndef KS_DECODE_H
#define KS_DECODE_H
#include "kernserve/op.h"
#include "base/model.h"
#include "codec/format.h"

enum { KS_ID_MAX = 1024, KS_IDENTITY_QUERY_MAX = 2048, KS_WARNING_MAX = 192, KS_NAMED_MAX = 128 };

typedef enum ks_body_format {
    KS_BODY_FORMAT_JSON,
    KS_BODY_FORMAT_BINARY,
    KS_BODY_FORMAT_OIP_RAW,
    KS_BODY_FORMAT_RAW,
    KS_BODY_FORMAT_FILE /* of request.body's format */
} ks_body_format;

/* What becomes of names that neither the protocol nor the op has. */
typedef enum ks_names {
    KS_NAMES_ANY, /* nothing */
    KS_NAMES_OWN, /* in the query of our own formats KS_PARAMETER, else a warning */
    KS_NAMES_ALL  /* KS_PARAMETER */
} ks_names;

typedef struct ks_codec_limits {
    uint64_t max_body, max_json, max_output; /* bytes */
    double max_work;                         /* flops */
    size_t max_skeleton;
    ks_names unknown_names;
    bool json_non_finite_error; /* KS_NON_FINITE instead of the words NaN, Infinity */
    size_t *slice;              /* numbers that may still be converted or printed in this turn; NULL: any */
    struct ks_head_cache
        *head_cache; /* heads that were read before, under these limits and in this thread; NULL: each is read */
} ks_codec_limits;

typedef struct ks_head_cache ks_head_cache;
ks_head_cache *ks_head_cache_open(void); /* NULL: no memory */
void ks_head_cache_close(ks_head_cache **head_cache);
void ks_head_cache_forget(ks_head_cache *head_cache); /* all that it has: models have changed */

/* A window of a client's shared memory, as a request names it. */
typedef struct ks_window_name {
    const char *region;
    uint64_t offset, bytes;
} ks_window_name;

/* A request names a window: for the input `which`, or for output i (KS_WINDOW_OUT + i). Holds it. *device_copies: the
 * device moves its bytes; else the caller does, from and to the slot. KS_REGION, KS_WINDOW. */
enum { KS_WINDOW_OUT = KS_INPUTS_MAX, KS_WINDOWS = KS_INPUTS_MAX + KS_OUTPUTS_MAX };
typedef ks_status ks_codec_window_fn(void *context, int which, const ks_window_name *name, bool *device_copies,
                                     ks_error *error);

/* A request names a resident tensor for an input: its content, which is the request's from then on, in the place of one held for
 * that input before. name: 1 to KS_NAMED_MAX bytes. KS_NAME, KS_TENSOR, KS_LOST. */
typedef ks_status ks_codec_tensor_fn(void *context, int input, const char *name, const ks_tensor **out,
                                     ks_error *error);

/* What the request's head says. Strings need not outlive ks_codec_begin. */
typedef struct ks_codec_head {
    const ks_model *model;
    const char *query;          /* raw, behind the '?', or "" */
    const char *header_length;  /* value of Inference-Header-Content-Length as sent, or NULL */
    int64_t content_length;     /* bytes of the (not compressed) body, -1: unknown (chunked or compressed) */
    const ks_format *body;      /* by Content-Type; a header length goes before it; NULL: no file */
    const ks_format *response;  /* by Accept: outputs as a file; NULL: not */
    bool raw;                   /* the path is that for bytes: no JSON, and a name that means nothing is refused */
    bool accept_json;           /* bodies without JSON: Accept asks for application/json */
    ks_codec_window_fn *window; /* NULL: client shared memory is off */
    ks_codec_tensor_fn *tensor; /* NULL: no tensors stay here */
} ks_codec_head;

/* Where the sides of a request's memory begin, as in ks_slot; NULL: there is none. */
typedef struct ks_sides {
    unsigned char *in, *out; /* out has KS_HEAD_ROOM in front */
} ks_sides;

/* Memory for the tensors: at least in_bytes and out_bytes. Called once or more; a later call asks for more, and the
 * first `keep` bytes of the former `in` side must have been carried over. Sets *sides. Errors: KS_BUDGET, KS_MEMORY,
 * KS_BODY_SIZE. */
typedef ks_status ks_codec_place_fn(void *context, size_t in_bytes, size_t out_bytes, size_t keep, ks_sides *sides,
                                    ks_error *error);

/* Instead of memory for the `in` side: where its bytes go as they come. Sets *taken; fewer than n: the rest is offered
 * again. */
typedef ks_status ks_codec_write_fn(void *context, size_t offset, const char *bytes, size_t n, size_t *taken,
                                    ks_error *error);

/* What came of the request; valid after ks_codec_end. */
typedef struct ks_infer_request {
    const ks_model *model;
    ks_body_format format;
    const ks_format *body;     /* KS_BODY_FORMAT_FILE */
    const ks_format *response; /* the outputs as a file; NULL: not */
    uint16_t outputs; /* bit i: OUTPUTi is asked for: the response holds it, or says that it is in shared memory */
    uint16_t binary;  /* bit i: and as binary (else JSON) */
    bool warned;      /* there is a warning */
    bool profile;     /* each step of the model is to be timed */
    uint32_t windows; /* bit i: this tensor lies in shared memory, by its input or KS_WINDOW_OUT + output */
    uint32_t device_copies; /* bit i: and the device moves it; it then takes no part of the slot */
    uint16_t resident;   /* bit i: INPUTi is the resident tensor of the name tensor[i], held; spec.in[i].fixed is set */
    uint16_t stored;     /* bit i: OUTPUTi becomes the one of the name tensor[KS_WINDOW_OUT + i]; among device_copies */
    uint64_t priority;   /* 0: default, 1: highest */
    int64_t timeout_us;  /* 0: none */
    uint16_t classified; /* bit i: of OUTPUTi its classes[i] largest elements, as texts */
    size_t id_length;
    /* from here on nothing is cleared at the beginning: */
    ks_spec spec;       /* resolved; offsets laid out */
    char id[KS_ID_MAX]; /* as UTF-8, unescaped */
    char tensor[KS_WINDOWS][KS_NAMED_MAX + 1];
    int64_t ttl_s[KS_OUTPUTS_MAX];    /* of stored ones; -1: the preset */
    uint64_t classes[KS_OUTPUTS_MAX]; /* of classified ones */
    char warning[KS_WARNING_MAX];     /* the value of Kernserve-Warning */
} ks_infer_request;

/* Whether a set of tensors or outputs holds this one. */
static inline bool ks_in(unsigned set, int which)
{
    return (set >> which & 1) != 0;
}

/* An input's bytes, or some of them, are elements of its datatype: of BOOL 0 and 1 alone. KS_RANGE. */
ks_status ks_infer_request_check_bytes(const ks_infer_request *request, int input, const void *bytes, size_t n,
                                       ks_error *error);
/* Whose counters are the request's. */
ks_format_label ks_infer_request_label(const ks_infer_request *request);
/* What the slot's sides must hold: all but what the device moves. */
size_t ks_infer_request_in_bytes(const ks_infer_request *request);
size_t ks_infer_request_out_bytes(const ks_infer_request *request);

/* Bytes ready to be sent. */
typedef struct ks_response_body {
    const char *body;
    size_t length;
    char *owned;                  /* free() after sending; NULL: body lies in the slot's out side and its head room */
    const char *content_type;     /* static */
    const char *content_encoding; /* static; NULL: as it is */
    int64_t header_length;        /* Inference-Header-Content-Length, -1: not sent */
    char shape[KS_RANK_MAX * 21]; /* Kernserve-Shape "2,3" or "scalar", plain raw only, else "" */
    const char *datatype;         /* Kernserve-Datatype, plain raw only, else NULL */
    const char *tensor;  /* Kernserve-Tensor, of the request's record: where the first stored output is; NULL: none */
    const char *warning; /* Kernserve-Warning, of the request's record; NULL: none */
} ks_response_body;

/* One pair of a query, percent-decoded. A name that cannot be decoded is "?": nothing of ours. */
typedef struct ks_query_pair {
    char name[64];
    char value[256];
    int value_length; /* -1: too long, or not decodable */
} ks_query_pair;
bool ks_query_next(const char **query, ks_query_pair *pair); /* false at the end */
/* "4,1024", "" a scalar: rank and dimensions, to be measured yet. KS_SHAPE. */
ks_status ks_query_dims(const char *text, size_t length, ks_tensor *tensor, ks_error *error);

/* A parameter's value as it came. */
typedef struct ks_param_value {
    enum { KS_VALUE_TEXT, KS_VALUE_NUMBER, KS_VALUE_BOOL, KS_VALUE_LIST, KS_VALUE_QUERY, KS_VALUE_OTHER } kind;
    const char *text; /* "true" or "false" for a BOOL, "2,0,1" for a LIST of numbers */
    size_t length;
} ks_param_value;
typedef struct ks_param_owner {
    const char *of, *name; /* "model", "softmax" */
} ks_param_owner;
/* The value of an op's parameter, of a list in its place of lists; or the parameter's own status: "parameter 'axis' of OF 'NAME' must be
 * ...", after which either is anything. */
ks_status ks_param_read(const ks_param *param, const ks_param_value *value, const ks_param_owner *owner, ks_value *out,
                        ks_integers *lists, ks_error *error);

typedef struct ks_codec ks_codec;
size_t ks_codec_size(void); /* the caller provides the memory (fixed at start), zeroed or reused */

/* place NULL: no body will come. The query is read as that of a plain raw request, whose work ks_codec_request then holds. */
ks_status ks_codec_begin(ks_codec *codec, const ks_codec_head *head, const ks_codec_limits *limits,
                         ks_codec_place_fn *place, void *context, ks_error *error);
/* feed, end and encode do no more than limits.slice allows: while the words are busy after them, the same call goes on in
 * another turn. feed sets *n to what it has taken of bytes; the rest comes again. Errors are those of reliability:
 * KS_JSON .. KS_WORK, KS_BODY_SIZE, and what place returned. After an error no more feed. */
ks_status ks_codec_feed(ks_codec *codec, const char *bytes, size_t *n, ks_error *error);
/* From within the place function: true where every byte of the `in` side comes from the body's binary part and the outputs
 * are asked for as binary. Then ks_codec_write_through may take the place of the memory (in and out are NULL). */
bool ks_codec_may_write_through(const ks_codec *codec);
void ks_codec_write_through(ks_codec *codec, ks_codec_write_fn *write);
ks_status ks_codec_end(ks_codec *codec, ks_error *error);
bool ks_codec_busy(const ks_codec *codec);
bool ks_codec_complete(const ks_codec *codec); /* the body's length is known, and that much has come */
const ks_infer_request *ks_codec_request(const ks_codec *codec);
/* The most memory that the response takes beyond the slot. 0: its head fits into the slot's head room. */
uint64_t ks_codec_encode_bound(const ks_codec *codec);
/* out: start of the slot's out side, holding the result. Writes the response's head into the KS_HEAD_ROOM bytes in front,
 * or allocates the JSON text. KS_NON_FINITE, KS_MEMORY. */
ks_status ks_codec_encode(ks_codec *codec, unsigned char *out, ks_response_body *response, ks_error *error);
void ks_codec_fini(ks_codec *codec);
#endif
