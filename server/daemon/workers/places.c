/* Owns       what --devices means on this host.
 * Interface  places.h
 * Limits     indexes of three digits; /proc and sysfs are read LINE_BYTES a file. */
#include "daemon/workers/places.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { GPUS_MAX = 64, LINE_BYTES = 4096, NODES_MAX = 64 };

typedef struct gpus {
    int count;
    struct {
        char uuid[KS_WORKER_UUID_MAX], bus[32];
        bool divided; /* into MIG instances */
    } gpu[GPUS_MAX];
} gpus;

/* --- what the option says ----------------------------------------------------------------------------------------- */

typedef struct choice {
    bool all;
    int count, device[KS_WORKERS_MAX];
} choice;

static ks_status add_device(choice *out, const char *item, size_t length, ks_error *error)
{
    const int shown = (int)(length < KS_QUOTE_MAX ? length : KS_QUOTE_MAX);
    if (strncasecmp(item, "MIG-", 4) == 0)
        return ks_fail(error, KS_CONFIG, "devices: '%.*s' is a MIG instance; a worker has a whole GPU: name its index",
                       shown, item);
    if (length == 0 || length > 3 || strspn(item, "0123456789") < length)
        return ks_fail(error, KS_CONFIG, "devices: '%.*s' is no index; right is all, or indexes with commas: 0,1",
                       shown, item);
    const int device = atoi(item);
    for (int i = 0; i < out->count; i++)
        if (out->device[i] == device) return ks_fail(error, KS_CONFIG, "devices: %d is named twice", device);
    if (out->count == KS_WORKERS_MAX) return ks_fail(error, KS_CONFIG, "devices: more than %d workers", KS_WORKERS_MAX);
    out->device[out->count++] = device;
    return KS_OK;
}

static ks_status read_wanted(const char *text, choice *out, ks_error *error)
{
    *out = (choice){.all = strcmp(text, "all") == 0};
    for (const char *item = text; !out->all; item++) {
        const size_t length = strcspn(item, ",");
        const ks_status status = add_device(out, item, length, error);
        if (status != KS_OK) return status;
        item += length;
        if (!*item) break;
    }
    return KS_OK;
}

/* What several workers cannot keep to, or do not mean. */
static ks_status check_others(const ks_config *config, ks_error *error)
{
    if (strcmp(config->device, "auto") != 0)
        return ks_fail(error, KS_CONFIG, "device: --devices names the devices of all workers; leave --device out");
    if (config->address_connections > 0)
        return ks_fail(error, KS_CONFIG,
                       "connections-per-address: each worker counts its own connections; leave it out with --devices");
    return KS_OK;
}

/* --- GPUs --------------------------------------------------------------------------------------------------------- */

/* sysfs has a domain of four digits, NVML and CUDA may write eight. */
static void keep_bus(char out[32], const char *bus)
{
    const char *colon = strchr(bus, ':');
    if (colon && colon - bus > 4) bus = colon - 4;
    size_t n = 0;
    for (; bus[n] && n < 31; n++) out[n] = (char)tolower((unsigned char)bus[n]);
    out[n] = 0;
}

/* As nvml.h has them; 0 is success. */
typedef struct nvml_device *nvml_device;
typedef struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char id[32];
} nvml_pci;

typedef struct nvml_field {
    unsigned field, scope;
    long long timestamp, latency_us;
    int type, result;
    union {
        double real;
        unsigned number;
        unsigned long long long_number;
    } value;
} nvml_field;

typedef struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *out);
    int (*at)(unsigned index, nvml_device *out);
    int (*uuid)(nvml_device device, char *out, unsigned bytes);
    int (*pci)(nvml_device device, nvml_pci *out);
    int (*mig)(nvml_device device, unsigned *now, unsigned *pending);
    int (*by_uuid)(const char *uuid, nvml_device *out);
    int (*fields)(nvml_device device, int count, nvml_field *fields);
} nvml;

static bool open_nvml(nvml *self)
{
    const struct {
        void *function; /* where its address goes */
        const char *name;
    } names[] = {{&self->init, "nvmlInit_v2"},
                 {&self->shutdown, "nvmlShutdown"},
                 {&self->count, "nvmlDeviceGetCount_v2"},
                 {&self->at, "nvmlDeviceGetHandleByIndex_v2"},
                 {&self->uuid, "nvmlDeviceGetUUID"},
                 {&self->pci, "nvmlDeviceGetPciInfo_v3"},
                 {&self->mig, "nvmlDeviceGetMigMode"},
                 {&self->by_uuid, "nvmlDeviceGetHandleByUUID"},
                 {&self->fields, "nvmlDeviceGetFieldValues"}};
    self->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    bool good = self->library != NULL;
    for (size_t i = 0; good && i < sizeof names / sizeof names[0]; i++)
        good = (*(void **)names[i].function = dlsym(self->library, names[i].name)) != NULL;
    if (good && self->init() == 0) return true;
    if (self->library) dlclose(self->library);
    return false;
}

/* false: NVML is not there, or does not say. */
static bool ask_nvml(gpus *out)
{
    nvml self = {0};
    unsigned count = 0;
    if (!open_nvml(&self)) return false;
    bool good = self.count(&count) == 0;
    for (unsigned i = 0; good && i < count && i < GPUS_MAX; i++) {
        nvml_device device;
        nvml_pci pci = {.id = ""};
        unsigned now = 0, pending = 0;
        good = self.at(i, &device) == 0 && self.uuid(device, out->gpu[i].uuid, KS_WORKER_UUID_MAX) == 0 &&
               self.pci(device, &pci) == 0;
        if (!good) break;
        keep_bus(out->gpu[i].bus, pci.id);
        out->gpu[i].divided = self.mig(device, &now, &pending) == 0 && now != 0; /* an older one has no such mode */
        out->count++;
    }
    self.shutdown();
    dlclose(self.library);
    return good;
}

int ks_place_recovery(const ks_place *place)
{
    enum { FIELD = 230, UNSIGNED = 1 }; /* NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; NVML_VALUE_TYPE_UNSIGNED_INT */
    nvml self = {0};
    nvml_device device;
    nvml_field action = {.field = FIELD};
    if (!*place->uuid || !open_nvml(&self)) return KS_RECOVERY_NONE;
    const bool says = self.by_uuid(place->uuid, &device) == 0 && self.fields(device, 1, &action) == 0 &&
                      action.result == 0 && action.type == UNSIGNED && action.value.number < KS_RECOVERIES;
    self.shutdown();
    dlclose(self.library);
    return says && ks_recovery_words[action.value.number] ? (int)action.value.number : KS_RECOVERY_NONE;
}

/* The file's text, terminated; "": it cannot be read. */
static void read_file(const char *path, char out[LINE_BYTES])
{
    FILE *file = fopen(path, "re");
    out[file ? fread(out, 1, LINE_BYTES - 1, file) : 0] = 0;
    if (file) fclose(file);
}

static int is_gpu_folder(const struct dirent *entry)
{
    return strchr(entry->d_name, ':') != NULL;
}

/* In the order of their places on the bus, as NVML has them. */
static void read_driver(gpus *out)
{
    static const char folder[] = "/proc/driver/nvidia/gpus", key[] = "GPU UUID:";
    struct dirent **entries;
    const int found = scandir(folder, &entries, is_gpu_folder, alphasort);
    for (int i = 0; i < found; i++) {
        char path[sizeof folder + 300], text[LINE_BYTES];
        snprintf(path, sizeof path, "%s/%s/information", folder, entries[i]->d_name);
        read_file(path, text);
        const char *at = strstr(text, key);
        if (at && out->count < GPUS_MAX &&
            sscanf(at + sizeof key - 1, " %63s", out->gpu[out->count].uuid) == 1) /* KS_WORKER_UUID_MAX - 1 */
            keep_bus(out->gpu[out->count++].bus, entries[i]->d_name);
        free(entries[i]);
    }
    if (found >= 0) free(entries);
}

static int node_of(const char *bus)
{
    char path[128], text[LINE_BYTES];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus);
    read_file(path, text);
    return *text ? atoi(text) : -1;
}

static ks_status take_gpu(const gpus *found, int device, ks_place *out, ks_error *error)
{
    if (device >= found->count)
        return ks_fail(error, KS_CONFIG, "devices: there is no GPU %d; this host has %s%d", device,
                       found->count > 1 ? "0 to " : "", found->count - 1);
    if (found->gpu[device].divided)
        return ks_fail(error, KS_CONFIG, "devices: GPU %d is divided into MIG instances; a worker has a whole GPU",
                       device);
    *out = (ks_place){.device = device, .node = node_of(found->gpu[device].bus)};
    memcpy(out->uuid, found->gpu[device].uuid, sizeof out->uuid);
    memcpy(out->bus, found->gpu[device].bus, sizeof out->bus);
    return KS_OK;
}

static ks_status find_gpus(choice *wanted, ks_place out[KS_WORKERS_MAX], ks_error *error)
{
    gpus found = {0};
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && *visible)
        return ks_fail(error, KS_CONFIG,
                       "devices: CUDA_VISIBLE_DEVICES is set too, and each worker gets its own: unset it");
    if (!ask_nvml(&found)) {
        found.count = 0;
        read_driver(&found);
    }
    if (found.count == 0)
        return ks_fail(error, KS_DEVICE, "devices: this host has no GPU; --backend cpu starts workers of the CPU");
    if (wanted->all && found.count > KS_WORKERS_MAX)
        return ks_fail(error, KS_CONFIG, "devices: more than %d workers", KS_WORKERS_MAX);
    for (int i = 0; wanted->all && i < found.count; i++) wanted->device[wanted->count++] = i;
    for (int i = 0; i < wanted->count; i++) {
        const ks_status status = take_gpu(&found, wanted->device[i], &out[i], error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

/* --- the CPU ------------------------------------------------------------------------------------------------------ */

static bool node_processors(int node, cpu_set_t *out);

static int count_nodes(void)
{
    cpu_set_t set;
    int nodes = 0;
    while (nodes < NODES_MAX && node_processors(nodes, &set)) nodes++;
    return nodes;
}

/* Its devices are processes: as many as are named. Of several nodes each has one with its number. */
static ks_status find_cpus(choice *wanted, ks_place out[KS_WORKERS_MAX], ks_error *error)
{
    const int nodes = count_nodes();
    for (int i = 0; wanted->all && (i == 0 || i < nodes) && i < KS_WORKERS_MAX; i++)
        wanted->device[wanted->count++] = i;
    for (int i = 0; i < wanted->count; i++) {
        const int device = wanted->device[i];
        if (device >= KS_WORKERS_MAX)
            return ks_fail(error, KS_CONFIG, "devices: there is no CPU worker %d; right is 0 to %d", device,
                           KS_WORKERS_MAX - 1);
        out[i] = (ks_place){.device = device, .node = nodes > 1 && device < nodes ? device : -1};
    }
    return KS_OK;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

/* A place without a node has every processor: so all share. */
static void count_sharing(ks_place *places, int count)
{
    bool all = false;
    for (int i = 0; i < count; i++) all = all || places[i].node < 0;
    for (int i = 0; i < count; i++) {
        places[i].sharing = all ? count : 0;
        for (int j = 0; !all && j < count; j++) places[i].sharing += places[j].node == places[i].node;
    }
}

ks_status ks_places_find(const ks_config *config, ks_place out[KS_WORKERS_MAX], int *count, ks_error *error)
{
    choice wanted;
    ks_status status = read_wanted(config->devices, &wanted, error);
    if (status == KS_OK) status = check_others(config, error);
    if (status == KS_OK)
        status = config->backend == KS_BACKEND_CPU ? find_cpus(&wanted, out, error) : find_gpus(&wanted, out, error);
    if (status != KS_OK) return status;
    *count = wanted.count;
    count_sharing(out, *count);
    return KS_OK;
}

/* Of a list as the kernel writes it: 0-23,96-119. */
static bool node_processors(int node, cpu_set_t *out)
{
    char path[64], text[LINE_BYTES];
    CPU_ZERO(out);
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    read_file(path, text);
    for (char *at = text; isdigit((unsigned char)*at); at += *at == ',') {
        const long first = strtol(at, &at, 10), last = *at == '-' ? strtol(at + 1, &at, 10) : first;
        for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++) CPU_SET((size_t)cpu, out);
    }
    return CPU_COUNT(out) > 0;
}

void ks_place_take(const ks_place *place, const char **refused)
{
    cpu_set_t node, own, both;
    *refused = "";
    if (place->node < 0 || place->node >= NODES_MAX || !node_processors(place->node, &node)) return;
    if (sched_getaffinity(0, sizeof own, &own) != 0) return;
    CPU_AND(&both, &node, &own);
    if (CPU_COUNT(&both) > 0 && sched_setaffinity(0, sizeof both, &both) != 0) *refused = "the processors";
    const unsigned long mask[2] = {1ul << place->node};
    if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, 8 * sizeof mask) != 0) *refused = "the memory policy";
}
