/* Inference with the compatibility models (--compat-models): the tiny element-wise models that the sample programs of
 * Triton's clients ask for. They are no operations: no device, no slot, no plan; the body is collected, the response made in
 * one call. One thread at a time for each job. */
#ifndef KS_COMPAT_H
#define KS_COMPAT_H
#include "base/head.h"
#include "base/model.h"
#include "engine/regions.h"
#include "base/text.h"

typedef struct ks_compat_job ks_compat_job;

/* header_length: value of Inference-Header-Content-Length, or NULL. non_finite_error: 422 for NaN and infinity in a JSON
 * response, not words. */
ks_status ks_compat_begin(const ks_model *model, const char *header_length, ks_body_encoding encoding,
                          bool non_finite_error, ks_compat_job **out, ks_error *error);
ks_status ks_compat_feed(ks_compat_job *job, const char *bytes, size_t n, ks_error *error);
/* regions NULL: client shared memory is off. *json_length: of the response, where tensors follow it; else -1. */
ks_status ks_compat_respond(ks_compat_job *job, ks_regions *regions, ks_text *out, int64_t *json_length,
                            ks_error *error);
void ks_compat_fini(ks_compat_job **job);
#endif
