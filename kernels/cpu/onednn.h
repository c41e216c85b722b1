/* oneDNN's versions of the CPU operations, where the library is found: the one door to it.
 *
 * Owns     nothing for a plan: the library's code serves all shapes, and is made by ks_onednn_open().
 * Threads  open: one, before all others call. The others: any, several at once. A run stays on its caller's thread: lanes
 *          are the parallelism.
 * Limits   FP32 matmul of at least 5 rows and columns, none empty; everything else, and every spec in a build without
 *          oneDNN, is "not taken", and the reference does it. */
#ifndef KS_ONEDNN_H
#define KS_ONEDNN_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Such as "oneDNN 2.7.4"; "no oneDNN" where this build has none. */
const char *ks_onednn_version(void);

/* Makes the library's code, first in a child, so that a failure there harms nothing. Takes some 60 ms and 8 MiB, once a
 * process. KS_MEMORY. */
ks_status ks_onednn_open(ks_error *error);

/* For a resolved spec; false also before ks_onednn_open(). Allocates nothing. */
bool ks_onednn_takes(const ks_spec *spec);

/* A spec that is taken. in[i], out: addresses of the tensors themselves, as for ks_cpu_fn. false: there was no memory; the
 * output is undefined, and the reference may be run instead. */
bool ks_onednn_run(const ks_spec *spec, const void *const *in, void *out);

/* Rows of INPUT0 of a call whose rows have equal bits at each place and beside any others; every call has as many, or they differ. 0: it
 * is no such spec, or the library was seen to compute them differently. */
int ks_onednn_join_rows(const ks_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
