/* What the server and its models are, as documents of GET routes. Each marks its text broken where memory fails. */
#ifndef KS_METADATA_H
#define KS_METADATA_H
#include "base/model.h"
#include "base/text.h"
#include "models/table.h"
#include "observe/metrics.h"

/* For whom models are listed. */
typedef struct ks_listing {
    const char *tenant; /* beside those that all see */
    bool sees_all;
    bool ready, only_ready; /* the daemon is; models that are not loaded now are left out */
} ks_listing;

/* shm, cuda_shm: these regions can be registered; tensors: there is a store of them */
void ks_document_server_metadata(ks_text *out, const char *name, const char *version, bool shm, bool cuda_shm,
                                 bool tensors);
void ks_document_model_metadata(ks_text *out, const ks_model *model);
void ks_document_model_config(ks_text *out, const ks_model *model, bool gpu);
/* {"model_stats":[...]} of `count` models; tenant: whose have their names alone. */
void ks_document_stats(ks_text *out, const ks_model *const *models, const ks_model_stats *stats, int count,
                       const char *tenant);
/* [{"name":"softmax","version":"1","state":"READY","reason":""},...] of the listing's models, which share one state; reason: why
 * they are not ready, or "". */
void ks_document_repository(ks_text *out, ks_models *models, const ks_listing *listing);
/* Whether a model is one of that listing. */
bool ks_document_lists(const ks_model *model, const ks_listing *listing);
/* {"error":"..."} */
void ks_document_error(ks_text *out, const char *sentence);
#endif
