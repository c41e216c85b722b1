/* What the files scan*.c share: the scanner's state. Nothing outside of these includes it. */
#ifndef KS_SCAN_PARTS_H
#define KS_SCAN_PARTS_H
#include "codec/scan/scan.h"

typedef enum ks_scan_state {
    KS_SCAN_VALUE,       /* a value must come */
    KS_SCAN_FIRST_VALUE, /* a value, or ']' */
    KS_SCAN_FIRST_KEY,   /* a key, or '}' */
    KS_SCAN_KEY,         /* a key must come */
    KS_SCAN_COLON,
    KS_SCAN_COMMA,  /* ',' or the end of the object or array */
    KS_SCAN_STRING, /* inside a string */
    KS_SCAN_TOKEN,  /* inside a number or literal */
    KS_SCAN_DATA,   /* inside inputs[i].data */
    KS_SCAN_OVER    /* the top-level value is complete */
} ks_scan_state;

/* What a value means by its path. */
typedef enum ks_scan_role {
    KS_ROLE_OTHER,
    KS_ROLE_TOP,
    KS_ROLE_INPUTS, /* top-level "inputs" */
    KS_ROLE_INPUT,  /* an element of it */
    KS_ROLE_NAME,   /* members of such an element */
    KS_ROLE_DATATYPE,
    KS_ROLE_SHAPE,
    KS_ROLE_DATA,
    KS_ROLE_ELEMENT /* of data that has no place */
} ks_scan_role;

typedef struct ks_scan_frame {
    bool object;
    ks_scan_role role;
    int members;   /* of an object */
    int first_key; /* of its keys in ks_scan.keys */
    int lists;     /* of data, up to and with this one; 0: it is none */
} ks_scan_frame;

typedef struct ks_scan_key {
    uint32_t hash, length;
    size_t offset; /* in the JSON head */
} ks_scan_key;

typedef enum ks_string_state {
    KS_STRING_PLAIN,
    KS_STRING_UTF8,          /* continuation bytes are due */
    KS_STRING_ESCAPE,        /* behind a backslash */
    KS_STRING_HEX,           /* in the digits of \uXXXX */
    KS_STRING_LOW_BACKSLASH, /* a high surrogate was read; its low one must follow */
    KS_STRING_LOW_U
} ks_string_state;

typedef struct ks_scan_string {
    ks_string_state state;
    bool is_key;
    unsigned char low, high; /* range of the next continuation byte */
    int due;                 /* continuation bytes, or hex digits */
    uint32_t unit, surrogate;
} ks_scan_string;

typedef enum ks_data_next { KS_DATA_FIRST, KS_DATA_VALUE, KS_DATA_COMMA } ks_data_next;

/* The list that is being read. Level 0 is unused: levels count brackets. */
typedef struct ks_scan_data {
    ks_data_next next;
    int depth, deepest;
    bool keep; /* datatype or shape unknown: text is kept, converted at the end */
    ks_dtype dtype;
    size_t element_bytes;
    uint64_t expected;                      /* elements by the shape */
    unsigned char *out;                     /* next element */
    uint64_t count[KS_SCAN_DATA_DEPTH + 1]; /* members of the open list at this level */
    uint64_t width[KS_SCAN_DATA_DEPTH + 1]; /* of each list at this level, once one was closed; UINT64_MAX before */
    char kind[KS_SCAN_DATA_DEPTH + 1];      /* members are: 0 not known, 'e' elements, 'l' lists */
} ks_scan_data;

typedef struct ks_scan_kept {
    size_t offset, length; /* in kept: tokens, each followed by a comma */
    bool present;
} ks_scan_kept;

enum { KS_SCAN_CHECKED = 128, KS_SCAN_JSON_HEAD_FIRST = 1024 };

struct ks_scan {
    ks_scan_limits limits;
    ks_scan_place_fn *place;
    void *context;
    ks_scan_state state;
    ks_scan_role role; /* of the value that comes next, or is being read */
    const char *chunk; /* start of the chunk that is being fed */
    uint64_t offset;   /* of it in the text */
    int depth;
    int inputs; /* elements of "inputs" begun */
    size_t text_length;
    char *text;        /* decoded string, or token cut by a chunk's end; limits.string_max bytes */
    ks_scan_key *keys; /* of the open objects; KS_SCAN_DEPTH * limits.members_max */
    int keys_count;
    char *json_head; /* first, or malloc'ed */
    size_t json_head_length, json_head_cap;
    char *kept;
    size_t kept_length, kept_cap;
    int converting;      /* the input whose kept text is next */
    size_t kept_given;   /* back to the system, of kept */
    const char *kept_at; /* in kept, while it is being converted; NULL: it is not */
    ks_scan_string string;
    /* from here on nothing is cleared at the beginning: each is set when what it belongs to begins */
    char first[KS_SCAN_JSON_HEAD_FIRST];
    double checked[KS_SCAN_CHECKED]; /* values of kept numbers, which are not used */
    ks_scan_data data;
    ks_scan_frame frame[KS_SCAN_DEPTH + KS_SCAN_DATA_DEPTH + 1];
    ks_scan_input input[KS_SCAN_INPUTS_MAX];
    ks_scan_kept kept_of[KS_SCAN_INPUTS_MAX];
};

extern const unsigned char ks_scan_token[256]; /* 1: may be part of a number or literal */

/* KS_JSON with the protocol's sentence; at: where in the current chunk. */
ks_status ks_scan_bad(const ks_scan *scan, const char *why, const char *at, ks_error *error);
/* Appends to a malloc'ed buffer, doubling. false: no memory. */
bool ks_scan_append(char **buffer, size_t *length, size_t *cap, const char *bytes, size_t n);
/* Appends one byte to scan->text; KS_JSON_LIMIT when it is full. */
ks_status ks_scan_text_add(ks_scan *scan, const char *bytes, size_t n, ks_error *error);
void ks_scan_value_over(ks_scan *scan);

/* Each reads on from *at, at most to end, and leaves *at behind what it has used. */
void ks_scan_string_begin(ks_scan *scan, bool is_key);
ks_status ks_scan_string_step(ks_scan *scan, const char **at, const char *end, bool *over, ks_error *error);
ks_status ks_scan_token_step(ks_scan *scan, const char **at, const char *end, ks_error *error);
/* One byte between values that is not white space. */
ks_status ks_scan_structure(ks_scan *scan, const char *at, ks_error *error);
/* The string in scan->text is complete: a key or a value. at: its closing quote. */
ks_status ks_scan_string_over(ks_scan *scan, const char *at, ks_error *error);
ks_status ks_scan_data_begin(ks_scan *scan, ks_error *error);
ks_status ks_scan_data_step(ks_scan *scan, const char **at, const char *end, ks_error *error);
/* Leaves kept_at set where the slice ended before the text. */
ks_status ks_scan_data_convert_kept(ks_scan *scan, int index, ks_error *error);
#endif
