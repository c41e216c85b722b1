/* The store of resident tensors at start: from the options, and from what a supervisor has kept. */
#ifndef KS_TENSORS_START_H
#define KS_TENSORS_START_H
#include "daemon/daemon.h"
#include "daemon/tensors/keeper.h"
#include "models/repository.h"

/* daemon->store and hashers, which stay NULL with --no-resident, and the keeper; neither where the backend keeps nothing. KS_CONFIG, KS_MEMORY,
 * KS_SYSTEM: what is open is the caller's to close. */
ks_status ks_tensors_open(ks_daemon *daemon, ks_keeper **keeper, ks_error *error);
ks_repository_options ks_repository_options_of(const ks_config *config); /* but for the models */
/* Models of --model-repository, where there is one: those that are wanted are loaded. KS_CONFIG, KS_MEMORY, KS_SYSTEM. */
ks_status ks_repository_start(ks_daemon *daemon, ks_error *error);
void ks_tensors_close(ks_daemon *daemon, ks_keeper **keeper); /* there are no shards */
#endif
