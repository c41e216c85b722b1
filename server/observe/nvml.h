/* What the driver's management library (NVML) says of one GPU. The library is loaded where it is: a host without it, and a
 * figure that the GPU does not tell, are no fault. Calls may take milliseconds: never on a shard.
 * Threads  one at a time. */
#ifndef KS_NVML_H
#define KS_NVML_H
#include <stdbool.h>
#include <stdint.h>

typedef struct ks_nvml ks_nvml;

/* -1: not known */
typedef struct ks_gpu_figures {
    double utilization; /* 0 .. 1: share of the last sample in which a kernel ran */
    int64_t memory_total_bytes, memory_used_bytes, memory_free_bytes;
    int64_t power_mw, power_limit_mw;
    int64_t energy_mj; /* since ks_nvml_open */
} ks_gpu_figures;

/* NULL: no library, or none that knows the GPU; *reason says which, in static text. uuid: "GPU-...". */
ks_nvml *ks_nvml_open(const char *uuid, const char **reason);
void ks_nvml_close(ks_nvml **nvml);
void ks_nvml_read(ks_nvml *nvml, ks_gpu_figures *out);
void ks_nvml_read_memory(ks_nvml *nvml, ks_gpu_figures *out); /* the figures of memory alone */
#endif
