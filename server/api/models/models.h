/* Requests that load, unload and read models of clients: PUT and DELETE of /v2/models/{name}, GET of its definition, load and unload of
 * /v2/repository/models/{name}. Like a tensor
 * call it knows no sockets.
 *
 * Life     ks_models_begin -> ks_models_feed* -> ks_models_end -> ks_models_respond once it is done -> ks_models_leave (always).
 * Owner    the call; the text of a definition while it comes.  Threads  the shard's own. */
#ifndef KS_API_MODELS_H
#define KS_API_MODELS_H
#include "api/tensors/tensors.h"
#include "models/table.h"

typedef struct ks_model_call ks_model_call;

/* wake_fd: written when a load is done. KS_UNSUPPORTED: no tensors stay here, and so no models. */
ks_status ks_models_begin(ks_api_view *view, const ks_tensor_ask *ask, int wake_fd, ks_model_call **out,
                          ks_error *error);
bool ks_models_loads(const ks_model_call *call);        /* bytes of a body are wanted */
uint64_t ks_models_body_max(const ks_model_call *call); /* so many, where they are not a file's */
bool ks_models_uploads(
    const ks_model_call *call); /* they are a file's, whose tensors are bounded by the memory for tensors */
size_t ks_models_feed(ks_model_call *call, const char *bytes, size_t n); /* returns how many were taken */
bool ks_models_end(ks_model_call *call);         /* the body is complete; false: again in another turn */
bool ks_models_waits(const ks_model_call *call); /* for memory of the ring, or for hashers */
bool ks_models_done(ks_model_call *call);
ks_status ks_models_fault(const ks_model_call *call, ks_error *error); /* so far; error: filled where there is one */
void ks_models_abort(ks_model_call *call, ks_status status, const char *sentence);
ks_status ks_models_respond(ks_model_call *call, ks_tensor_answer *out, ks_error *error);
void ks_models_leave(ks_model_call **call);
#endif
