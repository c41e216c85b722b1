/* Checks JSON as it arrives, cuts the tensors' numbers out of it, and leaves a small JSON head for cJSON.
 *
 * The scanner is a push parser over chunks of any size. It checks syntax (RFC 8259, strict), UTF-8, depth, string
 * length, members per object, duplicate keys; it tracks the path far enough to know inputs[i].data, inputs[i].shape and
 * inputs[i].datatype. Everything but the elements of inputs[i].data is copied to the JSON head, where "data":[] stays.
 * Elements are converted straight into the place that the caller names (ks_scan_place_fn); where datatype or shape come
 * only after data, the raw text is kept (bounded by the JSON limit) and converted in ks_scan_end.
 *
 * The JSON head is JSON without white space that differs from the request in two ways, so that cJSON, which holds
 * numbers as doubles and strings as C strings, loses nothing: a number is a string that begins with KS_SCAN_NUMBER,
 * followed by the number's own text; U+0000 in a string is the two bytes C0 80. Neither can come from a request, whose
 * strings are valid UTF-8. Owns kept text and a long JSON head (malloc): in the caller's memory a request that needs neither
 * allocates nothing. One thread at a time. No recursion on input. */
#ifndef KS_SCAN_H
#define KS_SCAN_H
#include "kernserve/tensor.h"

enum { KS_SCAN_INPUTS_MAX = 16, KS_SCAN_DATA_DEPTH = 100, KS_SCAN_DEPTH = 16, KS_SCAN_NAME_MAX = 64 };
enum { KS_SCAN_NUMBER = 0xFF };

typedef struct ks_scan_limits {
    size_t json_head_max; /* 64 KiB */
    size_t string_max;    /* 1 KiB; also of one number's text */
    int members_max;      /* 64 per object */
    size_t json_max;      /* of the whole text; its length, where that is known */
    size_t *slice;        /* numbers that may still be converted in this turn; NULL: any */
    void *memory;         /* ks_scan_bytes of the caller's, for as long as the scanner lives; NULL: its own */
} ks_scan_limits;

/* What the scanner has seen of inputs[index] when its data begins, or at the end. */
typedef struct ks_scan_input {
    bool has_dtype, has_shape; /* present and well formed */
    ks_dtype dtype;
    int rank;
    int64_t dims[KS_RANK_MAX];
    bool has_data, null_data; /* "data" present as a list; present as null (counts as absent) */
    uint64_t elements;        /* counted so far */
    char name[KS_SCAN_NAME_MAX +
              1]; /* "" while unknown, or where it is longer or not printable ASCII: fit for a sentence */
} ks_scan_input;

/* Where the elements of inputs[index] go: sets *out to memory for all product(dims) elements. May fail (slot, limit).
 */
typedef ks_status ks_scan_place_fn(void *context, int index, const ks_scan_input *input, unsigned char **out,
                                   ks_error *error);

typedef struct ks_scan ks_scan;

/* Of string_max and members_max alone; 8-byte aligned. */
size_t ks_scan_bytes(const ks_scan_limits *limits);
/* place NULL: elements stay in the JSON head. */
ks_status ks_scan_begin(const ks_scan_limits *limits, ks_scan_place_fn *place, void *context, ks_scan **out,
                        ks_error *error);
/* Errors: KS_JSON, KS_JSON_LIMIT, KS_BODY_SIZE (JSON head or json_max), KS_COUNT (ragged or too many elements),
 * KS_RANGE, KS_SHAPE (overflow), KS_DATATYPE (FP16/BF16/BYTES as JSON), KS_FIELD, KS_MEMORY, or what place returned.
 * After an error feed must not be called again. */
ks_status ks_scan_feed(ks_scan *scan, const char *bytes, size_t n, ks_error *error);
/* The text is over: converts what was kept, as far as the slice goes (ks_scan_busy: call again). KS_JSON: it is not
 * complete; KS_COUNT: too few elements. An input without a well-formed datatype or shape is left as it is: its fault is
 * the reader's of the JSON head to name. */
ks_status ks_scan_end(ks_scan *scan, ks_error *error);
bool ks_scan_busy(const ks_scan *scan); /* numbers are left to be converted */
const char *ks_scan_json_head(const ks_scan *scan, size_t *length);
int ks_scan_inputs(const ks_scan *scan);
const ks_scan_input *ks_scan_input_at(const ks_scan *scan, int index);
void ks_scan_fini(ks_scan **scan);
#endif
