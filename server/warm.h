/* --warm: the work that a shard prepares before it is ready. Pure; any thread. */
#ifndef KS_WARM_H
#define KS_WARM_H
#include "kernserve/op.h"

/* Reads MODEL:SHAPE[:SHAPE][:DATATYPE], e.g. matmul:64,128:128,256:FP16, into a resolved, laid-out spec. KS_CONFIG. */
ks_status ks_warm_spec(const char *text, ks_spec *spec, ks_error *error);
#endif
