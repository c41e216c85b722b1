/* What the host has: nodes with processors, GPUs, and NVML, which says what a GPU needs.
 *
 * Interface  host.h; the calls, as the linker names them. */
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "sim/supervisor/host.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the linker's names */

static struct {
    int nodes;
    int needs[HOST_WORKERS], said[HOST_WORKERS];
    bool has_nvml;
} devices;

void host_devices_begin(void)
{
    memset(&devices, 0, sizeof devices);
    devices.nodes = 1 + (int)sim_draw(2);
    devices.has_nvml = host.gpus;
}

static int gpu_of(int row)
{
    return host_table() ? host_table()->row[row].device : row;
}

int host_device_needs(int row)
{
    return devices.said[gpu_of(row)];
}

void host_device_draw(int row)
{
    int *needs = &devices.needs[gpu_of(row)];
    *needs = sim_one_in(2) ? KS_RECOVERY_NONE : (int)sim_draw(KS_RECOVERIES + 1);
    sim_event("its GPU needs", row, *needs);
}

/* --- NVML --------------------------------------------------------------------------------------------------------- */

/* As places.c has it. */
typedef struct field {
    unsigned field, scope;
    long long timestamp, latency_us;
    int type, result;
    unsigned long long value;
} field;

static int nvml_init(void)
{
    return 0;
}

static int nvml_count(unsigned *out)
{
    *out = HOST_WORKERS;
    return 0;
}

static int nvml_at(unsigned index, void **out)
{
    *out = &devices.needs[index];
    return 0;
}

static int index_of(const void *device)
{
    return (int)((const int *)device - devices.needs);
}

static int nvml_uuid(void *device, char *out, unsigned bytes)
{
    snprintf(out, bytes, "GPU-%d", index_of(device));
    return 0;
}

static int nvml_pci(void *device, char *out)
{
    snprintf(out + 36, 32, "00000000:B%d:00.0", index_of(device));
    return 0;
}

static int nvml_mig(void *device, unsigned *now, unsigned *pending)
{
    (void)device;
    *now = *pending = 0;
    return 3;
}

static int nvml_by_uuid(const char *uuid, void **out)
{
    *out = &devices.needs[uuid[4] - '0'];
    return 0;
}

/* A sick GPU may let it wait, for ever too. */
static int nvml_fields(void *device, int count, field *out)
{
    const int at = index_of(device);
    (void)count;
    if (sim_one_in(20 * host.sick)) {
        sim_event("NVML hangs", at, 0);
        host_fiber_wait(HOST_FOR_EVER, 0, SIM_NEVER);
    }
    host_fiber_wait(HOST_UNTIL, 0, host_now_ns() + sim_skewed(SIM_MS, 2 * SIM_S));
    devices.said[at] = devices.needs[at];
    const bool is_known = devices.needs[at] < KS_RECOVERIES && ks_recovery_words[devices.needs[at]];
    if (!is_known) devices.said[at] = KS_RECOVERY_NONE;
    out->type = 1;
    out->result = 0;
    out->value = (unsigned)devices.needs[at];
    return 0;
}

void *__wrap_dlopen(const char *name, int flags)
{
    (void)name, (void)flags;
    return devices.has_nvml ? &devices : NULL;
}

int __wrap_dlclose(void *library)
{
    (void)library;
    return 0;
}

void *__wrap_dlsym(void *library, const char *name)
{
    static const struct {
        const char *name;
        uintptr_t at;
    } rows[] = {{"nvmlInit_v2", (uintptr_t)nvml_init},
                {"nvmlShutdown", (uintptr_t)nvml_init},
                {"nvmlDeviceGetCount_v2", (uintptr_t)nvml_count},
                {"nvmlDeviceGetHandleByIndex_v2", (uintptr_t)nvml_at},
                {"nvmlDeviceGetUUID", (uintptr_t)nvml_uuid},
                {"nvmlDeviceGetPciInfo_v3", (uintptr_t)nvml_pci},
                {"nvmlDeviceGetMigMode", (uintptr_t)nvml_mig},
                {"nvmlDeviceGetHandleByUUID", (uintptr_t)nvml_by_uuid},
                {"nvmlDeviceGetFieldValues", (uintptr_t)nvml_fields}};
    (void)library;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0) return (void *)rows[i].at;
    return NULL;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

/* Files of sysfs alone. */
FILE *__wrap_fopen(const char *path, const char *mode)
{
    static char text[3][32];
    int node;
    (void)mode;
    if (strstr(path, "numa_node")) {
        snprintf(text[2], sizeof text[2], "%d\n", (int)sim_draw((uint64_t)devices.nodes));
        return fmemopen(text[2], strlen(text[2]), "r");
    }
    if (sscanf(path, "/sys/devices/system/node/node%d/cpulist", &node) != 1 || node >= devices.nodes) return NULL;
    snprintf(text[node], sizeof text[node], "%d-%d\n", 2 * node, 2 * node + 1);
    return fmemopen(text[node], strlen(text[node]), "r");
}

int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *out)
{
    (void)pid;
    memset(out, 0, bytes);
    for (size_t i = 0; i < 4; i++) CPU_SET(i, out);
    return 0;
}

int __wrap_sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set)
{
    (void)pid, (void)bytes, (void)set;
    errno = EPERM;
    return sim_one_in(8) ? -1 : 0;
}

/* set_mempolicy, futex: of which nothing is seen. */
long __wrap_syscall(long number, long a, long b)
{
    (void)number, (void)a, (void)b;
    errno = EPERM;
    return sim_one_in(8) ? -1 : 0;
}
