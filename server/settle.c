#include "settle.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "listen.h"
#include "log.h"
#include "regions.h"

static const uint64_t no_limit = UINT64_MAX;

/* The lowest value of a cgroup file from this process's group up to the root; "max" and what cannot be read: none. For
 * cpu.max (period wanted) the value is the quota in cores, rounded up. */
static uint64_t cgroup_least(const char *file, bool quota)
{
    char group[512] = "/", line[512];
    FILE *self = fopen("/proc/self/cgroup", "re");
    while (self && fgets(line, sizeof line, self))
        if (strncmp(line, "0::", 3) == 0) snprintf(group, sizeof group, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
    if (self) fclose(self);
    uint64_t least = no_limit;
    for (;;) {
        char path[1024];
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", strcmp(group, "/") == 0 ? "" : group, file);
        FILE *in = fopen(path, "re");
        unsigned long long value, period = 1;
        const int got = in ? fscanf(in, "%llu %llu", &value, &period) : 0;
        if (in) fclose(in);
        if (got >= 1 && period > 0) {
            const uint64_t limit = quota ? (value + period - 1) / period : value;
            if (limit > 0 && limit < least) least = limit;
        }
        char *slash = strrchr(group, '/');
        if (!slash || strcmp(group, "/") == 0) return least;
        slash[slash == group] = 0;
    }
}

int ks_cores(void)
{
    cpu_set_t set;
    uint64_t cores = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint64_t)CPU_COUNT(&set) : 1;
    const uint64_t quota = cgroup_least("cpu.max", true);
    if (quota < cores) cores = quota;
    return cores > 0 ? (int)cores : 1;
}

uint64_t ks_memory_bytes(void)
{
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t group = cgroup_least("memory.max", false);
    return group < bytes ? group : bytes;
}

void ks_settle_config(ks_config *config, bool gpu)
{
    const uint64_t memory = ks_memory_bytes();
    if (config->threads == 0) {
        const int cores = ks_cores();
        config->threads = cores < 8 ? cores : 8;
    }
    if (config->lanes == 0) {
        /* About 16 lanes in all saturate a GPU; more only lengthen the tail. A CPU lane is a worker thread. */
        const int64_t share = gpu ? 16 / config->threads : 1;
        config->lanes = share < 1 ? 1 : share > 8 ? 8 : share;
    }
    if (config->max_work == 0) config->max_work = gpu ? 10000000000000 : 100000000000;
    if (config->inflight_bytes == 0) config->inflight_bytes = memory / 4 < 2ull << 30 ? memory / 4 : 2ull << 30;
}

/* Sides of 16 KiB, 64 KiB and so on to 64 MiB. The smallest class has a slot for every connection; what remains of the
 * shard's part is split evenly over the classes above, as long as one has two slots or more. */
static void settle_classes(const ks_config *config, ks_engine_options *out)
{
    const uint64_t part = config->pinned_bytes / (uint64_t)config->threads;
    uint64_t side = 16384;
    int64_t small = (config->connections + config->threads - 1) / config->threads + 2;
    if ((uint64_t)small * 2 * side > part / 4) small = (int64_t)(part / 4 / (2 * side));
    if (small < 1) small = 1;
    out->classes = 1;
    out->size_class[0].side_bytes = side;
    out->size_class[0].count = (int)small;
    const uint64_t used = (uint64_t)small * 2 * side;
    const uint64_t rest = part > used ? part - used : 0;
    int above = 6;
    while (above > 0 && rest / (uint64_t)above < 4 * (side << (2 * above))) above--;
    for (int i = 1; i <= above; i++) {
        const uint64_t bytes = side << (2 * i);
        out->size_class[i].side_bytes = bytes;
        out->size_class[i].count = (int)(rest / (uint64_t)above / (2 * bytes));
        out->classes = i + 1;
    }
}

void ks_settle_engine(const ks_config *config, ks_engine_options *out)
{
    memset(out, 0, sizeof *out);
    out->lanes = (int)config->lanes;
    settle_classes(config, out);
    out->plan_bytes = config->plan_cache;
    out->plans_max = (size_t)config->plans;
    out->queue_max = (int)config->queue;
    out->stall_ns = config->stall_timeout;
    out->scrub = config->scrub;
    out->wake_fd = -1;
}

bool ks_settle_library(const ks_config *config)
{
    enum { OFF, START, BACKGROUND };
    if (strcmp(config->cublaslt, "off") == 0) return false;
    if (config->tune.count) return true;
    return config->autotune == BACKGROUND || (config->autotune == START && (*config->tune_cache || config->warm.count));
}

ks_status ks_settle_limits(const ks_config *config, const ks_engine_options *engine, ks_limits *out, ks_error *error)
{
    *out = (ks_limits){.device_index = -1,
                       .lanes = (int)config->lanes,
                       .lane_bytes = 2 * engine->size_class[engine->classes - 1].side_bytes,
                       .large_bytes = config->max_body + config->max_output,
                       .stream_bytes = config->stream_bytes,
                       .workspace_bytes = config->workspace,
                       .mapped_max = config->mapped_max ? config->mapped_max : SIZE_MAX,
                       .pinned_must = config->pinned == 0,
                       .cublaslt = ks_settle_library(config) ? config->cublaslt : NULL};
    if (strcmp(config->device, "auto") == 0) return KS_OK;
    if (strspn(config->device, "0123456789") != strlen(config->device) || !*config->device ||
        strlen(config->device) > 3)
        return ks_fail(error, KS_CONFIG, "device: '%.64s' is neither auto nor the index of a GPU", config->device);
    out->device_index = atoi(config->device);
    return KS_OK;
}

void ks_settle_files(ks_config *config)
{
    enum { OTHERS = 64 + KS_ARRIVALS_MOST, PER_SHARD = 8 }; /* listeners, log, epoll, eventfds, the driver's */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    const rlim_t regions = config->allow_client_shm ? KS_REGIONS_MAX : 0;
    const rlim_t others = OTHERS + PER_SHARD * (rlim_t)config->threads + regions;
    const rlim_t needed = (rlim_t)config->connections + others;
    if (limit.rlim_cur < needed) {
        limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : needed;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= needed) return;
    const rlim_t left = limit.rlim_cur > 2 * others ? limit.rlim_cur - others : limit.rlim_cur / 2;
    KS_LOG(KS_LOG_WARN, "the limit of open files is too low for --connections; fewer are taken",
           KS_INT("connections", config->connections), KS_INT("open_files", limit.rlim_cur), KS_INT("taken", left));
    config->connections = left > 0 ? (int64_t)left : 1;
}
