/* oneDNN's versions of the CPU operations, where the library is found: the one door to it.
 *
 * Owns     nothing shared; a ks_onednn is one plan's prepared primitive.
 * Threads  prepare and free: any thread. One ks_onednn may be run by several threads at once. A run stays on its
 * caller's thread: lanes are the parallelism. Limits   FP32 matmul of at least 5 rows and columns, none empty;
 * everything else, and every spec in a build without oneDNN, is "not supported", and the reference does it. */
#ifndef KS_ONEDNN_H
#define KS_ONEDNN_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ks_onednn ks_onednn;

/* Such as "oneDNN 2.7.4"; "no oneDNN" where this build has none. */
const char *ks_onednn_version(void);

/* For a resolved spec. NULL: not supported, use the reference. Free with ks_onednn_free. */
ks_onednn *ks_onednn_prepare(const ks_spec *spec);

/* in[i], out: addresses of the tensors themselves, as for ks_cpu_fn. false: the library failed; the output is
 * undefined, and the reference may be run instead. */
bool ks_onednn_run(ks_onednn *prepared, const void *const *in, void *out);

/* Frees and clears *prepared, which may be NULL. */
void ks_onednn_free(ks_onednn **prepared);

#ifdef __cplusplus
}
#endif
#endif
