/* libnvidia-ml.so.1 of a host that has one GPU, for http/triton_metrics.py: every figure is a number that the test knows.
 * KS_NVML_FAILS names a function that fails. */
#include <stdlib.h>
#include <string.h>

#include "fake/backend_streaming.h"

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3]);
int nvmlDeviceGetUtilizationRates(void *device, unsigned out[2]);
int nvmlDeviceGetPowerUsage(void *device, unsigned *out);
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *out);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *out);

static int device, opened;
static unsigned long long energy_mj = 5000000;

/* 0, or as NVML says that something is not supported. */
static int result(const char *function)
{
    const char *fails = getenv("KS_NVML_FAILS");
    return fails && strcmp(fails, function) == 0 ? 3 : 0;
}

static int asked(void *of, const char *function)
{
    if (!opened || of != &device) abort();
    return result(function);
}

int nvmlInit_v2(void)
{
    opened++;
    return result("init");
}

int nvmlShutdown(void)
{
    opened--;
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **out)
{
    *out = &device;
    return strcmp(uuid, STREAMING_UUID) == 0 ? 0 : 6;
}

int nvmlDeviceGetMemoryInfo(void *of, unsigned long long out[3])
{
    out[0] = 150754820096;
    out[1] = 150000000000;
    out[2] = 754820096;
    return asked(of, "memory");
}

int nvmlDeviceGetUtilizationRates(void *of, unsigned out[2])
{
    out[0] = 37;
    out[1] = 12;
    return asked(of, "utilization");
}

int nvmlDeviceGetPowerUsage(void *of, unsigned *out)
{
    *out = 123456;
    return asked(of, "power");
}

int nvmlDeviceGetEnforcedPowerLimit(void *of, unsigned *out)
{
    *out = 700000;
    return asked(of, "power_limit");
}

/* 2.5 J more each time it is asked. */
int nvmlDeviceGetTotalEnergyConsumption(void *of, unsigned long long *out)
{
    *out = energy_mj += 2500;
    return asked(of, "energy");
}
