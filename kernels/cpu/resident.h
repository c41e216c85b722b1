/* Memory of the CPU that stays (ks_resident in backend.h), and the record that it has in the device. */
#ifndef KS_CPU_RESIDENT_H
#define KS_CPU_RESIDENT_H
#include <pthread.h>

#include "cpu/arena.h"
#include "kernserve/backend.h"
#include "memory/range.h"

typedef struct ks_cpu_memory {
    void *reserved;
    unsigned char *base; /* in it, on a page */
    uint64_t addresses, limit;
    pthread_mutex_t lock;
    ks_range *range; /* under lock; NULL: reserve was not called */
    int quiet_turns; /* likewise: trims since the last take */
} ks_cpu_memory;

struct ks_device {
    ks_limits limits;
    ks_device_info info;
    ks_cpu_memory resident;
    ks_cpu_arenas arenas; /* of its lanes */
};

void ks_cpu_resident_close(ks_device *device);
extern const ks_resident ks_cpu_resident;
#endif
