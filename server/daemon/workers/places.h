/* Where the workers of --devices run: which devices, and their processors and memory. Asks NVML, or reads what the driver says in
 * /proc where NVML is not there; never CUDA. Main's thread, before there is another one. */
#ifndef KS_PLACES_H
#define KS_PLACES_H
#include "base/config/config.h"
#include "observe/workers/workers.h"

typedef struct ks_place {
    int device;                    /* index, as --devices names it */
    char uuid[KS_WORKER_UUID_MAX]; /* of a GPU; "": a worker of the CPU */
    char bus[32];                  /* of a GPU, as sysfs names it, 0000:1b:00.0 */
    int node;                      /* of its processors and memory; -1: any */
    int sharing;                   /* places that have its processors, itself included */
} ks_place;

/* What --devices names, in its order. KS_CONFIG: malformed, a device twice, one that is not there, more than KS_WORKERS_MAX, or an option
 * that several workers do not have. KS_DEVICE: there is no GPU. */
ks_status ks_places_find(const ks_config *config, ks_place out[KS_WORKERS_MAX], int *count, ks_error *error);
/* What NVML says that the GPU needs before work goes on: ks_recovery; KS_RECOVERY_NONE also where it is no GPU or NVML does not say. May take
 * long, on a sick GPU for ever: the supervisor's child asks, never the supervisor. */
int ks_place_recovery(const ks_place *place);
/* Of the calling process: the processors of the place's node, as far as it has them, and memory of that node first. What the system
 * refuses is left as it is: *refused says what, "" nothing. */
void ks_place_take(const ks_place *place, const char **refused);
#endif
