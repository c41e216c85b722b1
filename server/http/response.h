/* Responses: what one consists of, and the only writer of its text: status line, phrase, Date, fields. Any thread. */
#ifndef KS_RESPONSE_H
#define KS_RESPONSE_H
#include <time.h>

#include "base/head.h"
#include "request/infer.h"
#include "request/transfer.h"
#include "observe/metrics.h"
#include "api/routes.h"
#include "api/tensors/tensors.h"
#include "base/text.h"

/* Whose bytes a body has that no text holds: an inference's response, or a tensor's download; both NULL: there is none. */
typedef struct ks_response_source {
    ks_infer *infer;       /* ks_infer_sent must follow */
    ks_transfer *download; /* ks_transfer_leave must follow */
} ks_response_source;

static inline bool ks_source_has_bytes(const ks_response_source *source)
{
    return source->infer || source->download;
}
/* As ks_infer_view, ks_infer_used. */
int64_t ks_source_view(const ks_response_source *source, uint64_t at, const char **bytes);
void ks_source_used(const ks_response_source *source, uint64_t at, size_t n);
void ks_source_end(ks_response_source *source); /* the last byte has left, or none will */

/* Names and values are others' memory, but for the number. */
typedef struct ks_fields {
    int count;
    struct {
        const char *name, *value;
    } at[11];
    char number[24];
} ks_fields;

typedef struct ks_response {
    int code;
    bool last;        /* the connection ends with it */
    bool bodiless;    /* to HEAD: the length is that of the body which is not sent */
    const char *body; /* NULL: none, or the source's */
    char *owned;      /* body's memory, to be freed; or NULL */
    ks_response_source source;
    uint64_t length;  /* of the body */
    size_t head_more; /* bytes that the fields have beyond the usual: of a model's steps */
    ks_fields fields; /* all but Date, Connection and Content-Length */
} ks_response;

/* The Date field's line; a second is put into words once. One thread at a time. */
typedef struct ks_date {
    time_t dated;
    char line[40];
} ks_date;

enum { KS_RESPONSE_HEAD_MAX = 2048 };

void ks_fields_add(ks_fields *fields, const char *name, const char *value);
/* Of a request of tensors. Of an inference's response; timing: the value of Server-Timing, or ""; profile: a
 * longer one in its place, or NULL. Of a fault; allow: a path's methods, or NULL. */
void ks_response_tensors(ks_response *response, const ks_tensor_answer *answer);
void ks_response_infer(ks_response *response, const ks_response_body *encoded, const char *timing, const char *profile);
/* Also makes the body; false: no memory for it. */
bool ks_response_fault(ks_response *response, ks_status status, const char *sentence, const char *allow);
/* The text of everything before the body: at most KS_RESPONSE_HEAD_MAX + response->head_more bytes. Returns its length. */
size_t ks_response_head(const ks_response *response, ks_date *date, char *out);
/* What is left of a response that is not sent. */
void ks_response_fini(ks_response *response);

const char *ks_response_sentence(ks_status status);          /* why the server as a whole refuses */
const char *ks_response_number(char out[24], int64_t value); /* value >= 0 */
/* An inference request without a record: refused before it had one, or to a compatibility model. */
void ks_response_count(ks_shard_metrics *metrics, const ks_route *route, ks_status status, int64_t total_ns);
#endif
