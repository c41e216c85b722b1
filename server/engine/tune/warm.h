/* --warm and --tune: work that is named on the command line. Pure; any thread. */
#ifndef KS_WARM_H
#define KS_WARM_H
#include "kernserve/op.h"

/* Reads MODEL:SHAPE[:SHAPE][:DATATYPE[,DATATYPE]][?NAME=VALUE&...], e.g. matmul:64,128:128,256:FP16?transpose_b=1, into a resolved,
 * laid-out spec; optional inputs have shapes too. option: for the sentence, "--warm". KS_CONFIG. */
ks_status ks_warm_spec(const char *option, const char *text, ks_spec *spec, ks_error *error);
#endif
