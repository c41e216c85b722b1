/* libnvidia-ml.so.1 of a host that has one GPU, for http/triton_metrics.py: every figure is a number that the test knows.
 * For unit/daemon/test_places.c it has KS_NVML_GPUS, GPU-0, GPU-1 ...; KS_NVML_MIG is the one that is divided, KS_NVML_RECOVERY what all need.
 * KS_NVML_FAILS names a function that fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake/backend_streaming.h"

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out);
int nvmlDeviceGetCount_v2(unsigned *out);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out);
int nvmlDeviceGetUUID(void *device, char *out, unsigned bytes);
int nvmlDeviceGetPciInfo_v3(void *device, char out[68]);
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending);
int nvmlDeviceGetFieldValues(void *device, int count, unsigned char *fields);
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

static char several[8];

static unsigned number(const char *variable, unsigned otherwise)
{
    const char *text = getenv(variable);
    return text ? (unsigned)atoi(text) : otherwise;
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
    if (strncmp(uuid, "GPU-", 4) == 0 && uuid[4] - '0' < (int)number("KS_NVML_GPUS", 0)) {
        *out = &several[uuid[4] - '0'];
        return result("by_uuid");
    }
    return strcmp(uuid, STREAMING_UUID) == 0 ? 0 : 6;
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
    *out = number("KS_NVML_GPUS", 1);
    return result("count");
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out)
{
    *out = &several[index];
    return index < number("KS_NVML_GPUS", 1) ? result("at") : 2;
}

static int index_of(const void *of)
{
    return (int)((const char *)of - several);
}

int nvmlDeviceGetUUID(void *of, char *out, unsigned bytes)
{
    snprintf(out, bytes, "GPU-%d", index_of(of));
    return result("uuid");
}

/* Behind 16 bytes and five numbers the place on the bus, as NVML writes it. */
int nvmlDeviceGetPciInfo_v3(void *of, char out[68])
{
    snprintf(out + 36, 32, "00000000:%02X:00.0", 0xA0 + index_of(of));
    return result("pci");
}

int nvmlDeviceGetMigMode(void *of, unsigned *now, unsigned *pending)
{
    *now = *pending = index_of(of) == (int)number("KS_NVML_MIG", 99);
    return result("mig");
}

int nvmlDeviceGetFieldValues(void *of, int count, unsigned char *fields)
{
    const unsigned field = 230, type = 1, value = number("KS_NVML_RECOVERY", 0);
    const int fault = result("field");
    if (count != 1 || memcmp(fields, &field, sizeof field) != 0 || index_of(of) < 0) abort();
    memcpy(fields + 24, &type, sizeof type);
    memcpy(fields + 28, &fault, sizeof fault);
    memcpy(fields + 32, &value, sizeof value);
    return result("fields");
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
