/* Values that decide (ks_op.check): looked at before the launch where the host has few bytes of them, and what a launch said of others. */
#ifndef KS_ENGINE_VALUES_H
#define KS_ENGINE_VALUES_H
#include "engine/engine.h"

enum { KS_CHECKED_MAX_BYTES = 16 << 10 }; /* of all inputs that decide: about a microsecond; kernels look at more of them */

/* KS_RANGE: a value is out of bounds. Inputs that the host does not have in the job's slot are passed over. */
ks_status ks_values_check(const ks_job *job, ks_error *error);
/* Whether a launch that is done refused job i's values, and the sentence. */
bool ks_values_refused(const ks_batch *batch, int i, ks_error *error);
#endif
