/* The responses of all routes but infer: documents, and what the control routes do. Any thread, but for plans, which are a
 * shard's; knows no sockets. */
#ifndef KS_DOCUMENTS_H
#define KS_DOCUMENTS_H
#include "api/control.h"
#include "request/infer.h"
#include "api/routes.h"
#include "base/text.h"
#include "observe/workers/ask.h"

typedef struct ks_document_request {
    const ks_route *route;
    const char *accept;        /* the field's value, or NULL */
    ks_infers *infers;         /* of the shard whose thread this is; NULL: the second listener */
    const ks_control *control; /* words of a POST; NULL: none came */
    ks_listing listing;        /* whose models are listed */
} ks_document_request;

/* Writes the body of the response and its HTTP status, or fails. content_type: static. */
ks_status ks_document_make(ks_api_view *view, const ks_document_request *request, ks_text *out, int *code,
                           const char **content_type, ks_error *error);
/* The metrics of this worker alone, Prometheus 0.0.4. nvml: for the figures of its GPU; NULL: none are asked for. */
void ks_document_own_metrics(ks_api_view *view, ks_nvml *nvml, ks_text *out);
/* What another worker's ks_document_make has asked for. */
void ks_document_part(const ks_api_view *view, const ks_part_ask *ask, ks_text *out);
/* The statistics of this worker's models, as another one's ks_document_make reads them. */
void ks_document_own_stats(const ks_api_view *view, ks_text *out);
#endif
