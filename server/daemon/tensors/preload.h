/* Tensors of the start (--tensors): files whose tensors stay, read-only, before the daemon is ready. */
#ifndef KS_PRELOAD_H
#define KS_PRELOAD_H
#include "daemon/daemon.h"

/* Each is [PREFIX=]PATH: a .safetensors (its keys are the names), a .npy (its stem is), or a folder of such (the stem, and a dot in
 * front of keys). KS_CONFIG, in one sentence: what is wrong with which file. */
ks_status ks_preload(const ks_daemon *daemon, const ks_list *paths, ks_error *error);
#endif
