/* Places of softmax's parameters in ks_spec.params, for every backend. */
#ifndef KS_OPS_SOFTMAX_H
#define KS_OPS_SOFTMAX_H

#include "kernserve/op.h"

enum { KS_SOFTMAX_AXIS, KS_SOFTMAX_LOG, KS_SOFTMAX_SCALE };

#endif
