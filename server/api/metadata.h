/* What the server and its models are, as documents of GET routes. Each marks its text broken where memory fails. */
#ifndef KS_METADATA_H
#define KS_METADATA_H
#include "base/model.h"
#include "base/text.h"
#include "models/table.h"
#include "observe/metrics.h"

/* shm, cuda_shm: these regions can be registered; tensors: there is a store of them */
void ks_document_server_metadata(ks_text *out, const char *name, const char *version, bool shm, bool cuda_shm,
                                 bool tensors);
void ks_document_model_metadata(ks_text *out, const ks_model *model);
void ks_document_model_config(ks_text *out, const ks_model *model, bool gpu);
/* {"model_stats":[...]} of `count` models */
void ks_document_stats(ks_text *out, const ks_model *const *models, const ks_model_stats *stats, int count);
/* [{"name":"softmax","version":"1","state":"READY","reason":""},...] of all models, which share one state; reason: why
 * they are not ready, or "". */
/* only_ready: without models that are not loaded now. */
void ks_document_repository(ks_text *out, ks_models *models, bool ready, bool only_ready);
/* {"error":"..."} */
void ks_document_error(ks_text *out, const char *sentence);
#endif
