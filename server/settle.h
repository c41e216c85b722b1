/* What is automatic in the configuration, settled from the machine: cores, memory, slot classes, limits. Start-up only.
 */
#ifndef KS_SETTLE_H
#define KS_SETTLE_H
#include "config.h"
#include "engine.h"

int ks_cores(void);             /* that this process may use: affinity and cgroup */
uint64_t ks_memory_bytes(void); /* of the host, or less where a cgroup says so */

/* threads, lanes, max_work, inflight_bytes: no zeros afterwards. */
void ks_settle_config(ks_config *config, bool gpu);
/* Slot classes and the rest of what every shard's engine gets; config settled. */
void ks_settle_engine(const ks_config *config, ks_engine_options *out);
/* Whether the backend opens cuBLASLt: it takes memory and time, so only where something may choose it. */
bool ks_settle_library(const ks_config *config);
/* What the backend is opened with. KS_CONFIG: --device is neither auto nor an index. */
ks_status ks_settle_limits(const ks_config *config, const ks_engine_options *engine, ks_limits *out, ks_error *error);
/* Raises the limit of open files; lowers config->connections, with a warning, where it stays too small. */
void ks_settle_files(ks_config *config);
#endif
