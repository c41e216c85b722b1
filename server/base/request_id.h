/* A request's identity, in its response and in the logs: X-Request-Id, the client's own or one made here, and the place in a
 * distributed trace that a traceparent gives it (W3C Trace Context). Pure; any thread. */
#ifndef KS_IDENTITY_H
#define KS_IDENTITY_H
#include "base/head.h"

enum { KS_REQUEST_ID_MAX = 128 };

typedef struct ks_identity {
    const char *request_id; /* the client's, which ends with its head, or `made` */
    char made[17];
    char trace_id[33];  /* of the caller; "": no traceparent, or none that is valid */
    char parent_id[17]; /* of the caller's span */
    char span_id[17];   /* of this request within it */
    bool sampled;
} ks_identity;

/* Of numbers for ids, not for secrets. One thread at a time. */
uint64_t ks_identity_seed(void);
void ks_identity_read(ks_identity *identity, const ks_head *head, uint64_t *numbers);
#endif
