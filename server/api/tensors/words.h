/* What a request of /v2/tensors says in its query and its fields. Pure; any thread. */
#ifndef KS_TENSOR_WORDS_H
#define KS_TENSOR_WORDS_H
#include "api/tensors/tensors.h"

enum { KS_TENSOR_LIST_MAX = 10000, KS_TENSOR_LIST_PRESET = 1000 };

typedef struct ks_tensor_words {
    ks_tensor tensor; /* of shape and datatype */
    bool has_shape, has_datatype, has_etag;
    int64_t device; /* of several workers, that is to have it alone; -1: none is named */
    int64_t ttl_s;  /* -1: the preset */
    bool evictable;
    const ks_op *form_op;       /* that a form is wanted for; NULL: none */
    char etag[KS_ETAG_MAX + 1]; /* to be linked */
    char key[KS_TENSOR_NAME_MAX + 1], prefix[KS_TENSOR_NAME_MAX + 1], after[KS_TENSOR_NAME_MAX + 1];
    char tenant[KS_TENANT_NAME_MAX + 1]; /* whose tensors an operator asks for; "": its own */
    int64_t limit;
    /* fields: */
    bool only_new, has_if_match, has_digest;
    char if_match[KS_ETAG_MAX + 1]; /* "*": any */
    unsigned char digest[KS_DIGEST_BYTES];
} ks_tensor_words;

/* KS_PARAMETER: a member that this method does not have, or that cannot be read; KS_SHAPE, KS_DATATYPE, KS_FIELD. */
ks_status ks_tensor_words_read(const ks_tensor_ask *ask, ks_tensor_words *out, ks_error *error);
/* If-None-Match and If-Match of a PUT or a DELETE alone. KS_FIELD. */
ks_status ks_conditions_read(const ks_head *head, ks_tensor_words *out, ks_error *error);
/* Whether a list of entity tags, as in If-None-Match, names this one. */
bool ks_tensor_tag_is_in(const char *list, const char *etag);
#endif
