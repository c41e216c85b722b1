/* What is automatic in the configuration, settled from the machine: cores, memory, slot classes, limits. Start-up only.
 */
#ifndef KS_DEFAULTS_H
#define KS_DEFAULTS_H
#include "daemon/cgroup.h"
#include "base/config/config.h"
#include "engine/engine.h"

/* Of a worker (--devices), before all else here: cores and memory are its share of what all have, of those that have its processors (sharing),
 * or of all workers. */
void ks_defaults_share(int workers, int sharing);
int ks_cores(void); /* that this process may use: affinity and control groups */

/* The least of the host's memory, its control groups' limits and its own (ulimit -v, -d), and which of them it is. */
typedef struct ks_memory {
    uint64_t bytes;
    char source[KS_CGROUP_SOURCE_MAX];
} ks_memory;
void ks_defaults_memory(ks_memory *out);

/* threads, lanes, max_work, pinned_bytes, inflight_bytes, plan_cache: no zeros afterwards. KS_CONFIG: what they take
 * together is more than there is. */
ks_status ks_defaults_config(ks_config *config, const ks_memory *memory, bool gpu, ks_error *error);
/* Slot classes and the rest of what every shard's engine gets; config settled. */
void ks_defaults_engine(const ks_config *config, ks_engine_options *out);
/* Whether the backend opens cuBLASLt: it takes memory and time, so only where something may choose it. */
bool ks_defaults_library(const ks_config *config);
/* What the backend is opened with. KS_CONFIG: --device is neither auto nor an index. */
ks_status ks_defaults_limits(const ks_config *config, const ks_engine_options *engine, ks_limits *out, ks_error *error);
/* Raises the limit of open files; lowers config->connections, with a warning, where it stays too small. */
void ks_defaults_files(ks_config *config);
#endif
