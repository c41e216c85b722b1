/* NVML's names are resolved by hand: nvml.h is no part of what a build needs, and of its types these few are used. */
#include "observe/nvml.h"

#include <dlfcn.h>
#include <stdlib.h>

/* As nvml.h has them; a return of 0 is success. */
typedef struct nvml_device *nvml_device;
typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;
typedef struct nvml_utilization {
    unsigned gpu, memory; /* percent */
} nvml_utilization;

struct ks_nvml {
    void *library;
    nvml_device device;
    int64_t energy_mj; /* at open; -1: not known */
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_uuid)(const char *uuid, nvml_device *out);
    int (*memory)(nvml_device device, nvml_memory *out);
    int (*utilization)(nvml_device device, nvml_utilization *out);
    int (*power)(nvml_device device, unsigned *out_mw);
    int (*power_limit)(nvml_device device, unsigned *out_mw);
    int (*energy)(nvml_device device, unsigned long long *out_mj);
};

static bool resolve(ks_nvml *nvml)
{
    const struct {
        void *function; /* where its address goes */
        const char *name;
    } wanted[] = {{&nvml->init, "nvmlInit_v2"},
                  {&nvml->shutdown, "nvmlShutdown"},
                  {&nvml->by_uuid, "nvmlDeviceGetHandleByUUID"},
                  {&nvml->memory, "nvmlDeviceGetMemoryInfo"},
                  {&nvml->utilization, "nvmlDeviceGetUtilizationRates"},
                  {&nvml->power, "nvmlDeviceGetPowerUsage"},
                  {&nvml->power_limit, "nvmlDeviceGetEnforcedPowerLimit"},
                  {&nvml->energy, "nvmlDeviceGetTotalEnergyConsumption"}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!(*(void **)wanted[i].function = dlsym(nvml->library, wanted[i].name))) return false;
    return true;
}

static int64_t energy_of(const ks_nvml *nvml)
{
    unsigned long long mj;
    return nvml->energy(nvml->device, &mj) == 0 ? (int64_t)mj : -1;
}

/* NULL: nvml knows the GPU now. */
static const char *open_library(ks_nvml *nvml, const char *uuid)
{
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library) return "libnvidia-ml.so.1 cannot be loaded";
    const char *reason = "libnvidia-ml.so.1 lacks a function";
    if (resolve(nvml)) {
        reason = "nvmlInit_v2 failed";
        if (nvml->init() == 0) {
            if (nvml->by_uuid(uuid, &nvml->device) == 0) return NULL;
            reason = "NVML does not know the device";
            nvml->shutdown();
        }
    }
    dlclose(nvml->library);
    return reason;
}

ks_nvml *ks_nvml_open(const char *uuid, const char **reason)
{
    ks_nvml *nvml = calloc(1, sizeof *nvml);
    *reason = nvml ? open_library(nvml, uuid) : "out of memory";
    if (*reason) {
        free(nvml);
        return NULL;
    }
    nvml->energy_mj = energy_of(nvml);
    return nvml;
}

void ks_nvml_close(ks_nvml **nvml)
{
    ks_nvml *closing = *nvml;
    if (!closing) return;
    *nvml = NULL;
    closing->shutdown();
    dlclose(closing->library);
    free(closing);
}

void ks_nvml_read_memory(ks_nvml *nvml, ks_gpu_figures *out)
{
    nvml_memory memory;
    out->memory_total_bytes = out->memory_used_bytes = out->memory_free_bytes = -1;
    if (nvml->memory(nvml->device, &memory) != 0) return;
    out->memory_total_bytes = (int64_t)memory.total;
    out->memory_used_bytes = (int64_t)memory.used;
    out->memory_free_bytes = (int64_t)memory.free;
}

void ks_nvml_read(ks_nvml *nvml, ks_gpu_figures *out)
{
    nvml_utilization utilization;
    unsigned mw;
    *out = (ks_gpu_figures){.utilization = -1, .power_mw = -1, .power_limit_mw = -1, .energy_mj = -1};
    ks_nvml_read_memory(nvml, out);
    if (nvml->utilization(nvml->device, &utilization) == 0) out->utilization = utilization.gpu / 100.0;
    if (nvml->power(nvml->device, &mw) == 0) out->power_mw = mw;
    if (nvml->power_limit(nvml->device, &mw) == 0) out->power_limit_mw = mw;
    const int64_t energy_mj = energy_of(nvml);
    if (energy_mj >= 0 && nvml->energy_mj >= 0) out->energy_mj = energy_mj - nvml->energy_mj;
}
