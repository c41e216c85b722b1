#include "daemon/defaults.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/listen.h"
#include "daemon/workers/changes.h"
#include "base/model.h"
#include "base/log.h"
#include "base/util.h"
#include "engine/regions.h"

/* Of the process itself: code, tables, the libraries' heaps. */
static const uint64_t own_bytes = 64 << 20;

enum { KS_PINNED_LEAST = 1 << 20, KS_PLANS_LEAST = 64 << 10 };

/* Of a worker (--devices): how many there are, and how many have its processors. */
static int workers = 1, sharing = 1;

void ks_defaults_share(int all, int same)
{
    workers = all;
    sharing = same;
}

int ks_cores(void)
{
    cpu_set_t set;
    ks_cgroup_limit quota;
    const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    ks_cgroup_cores("", &quota);
    const uint64_t own = (uint64_t)(allowed / sharing), share = quota.value / (uint64_t)workers;
    const int cores = share < own ? (int)share : (int)own;
    return cores > 0 ? cores : 1;
}

static void bound(ks_memory *memory, uint64_t bytes, const char *source)
{
    if (bytes >= memory->bytes) return;
    memory->bytes = bytes;
    snprintf(memory->source, sizeof memory->source, "%s", source);
}

void ks_defaults_memory(ks_memory *out)
{
    static const struct {
        int resource;
        const char *name;
    } own[] = {{RLIMIT_AS, "the limit of address space, ulimit -v"}, {RLIMIT_DATA, "the limit of data, ulimit -d"}};
    ks_cgroup_limit group;
    out->bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    snprintf(out->source, sizeof out->source, "the host's memory");
    ks_cgroup_memory("", &group);
    bound(out, group.value, group.source);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        struct rlimit limit;
        if (getrlimit(own[i].resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
            bound(out, limit.rlim_cur, own[i].name);
    }
    out->bytes /= (uint64_t)workers;
}

/* An automatic amount: its usual one, or its share of little memory, or of what the given ones leave; never so little
 * that nothing could be served. */
static uint64_t automatic(uint64_t usual, uint64_t share, uint64_t left, uint64_t floor)
{
    const uint64_t bytes = ks_least_size(usual, ks_least_size(share, left));
    return bytes > floor ? bytes : floor;
}

/* Of little memory slots get a quarter, bodies and responses outside of them another, plans a sixteenth. */
static void defaults_bytes(ks_config *config, uint64_t usable)
{
    const uint64_t shards = (uint64_t)config->threads;
    const uint64_t given = config->pinned_bytes + config->inflight_bytes + config->plan_cache * shards;
    const uint64_t left = usable > given ? usable - given : 0;
    if (config->pinned_bytes == 0) config->pinned_bytes = automatic(256 << 20, usable / 4, left / 4, 4 << 20);
    if (config->inflight_bytes == 0) config->inflight_bytes = automatic(2ull << 30, usable / 4, left / 2, 16 << 20);
    if (config->plan_cache == 0)
        config->plan_cache = automatic(64 << 20, usable / 16 / shards, left / 4 / shards, 1 << 20);
}

/* A daemon that promises more than there is ends by the system's hand, amid others' requests. */
static ks_status check_bytes(const ks_config *config, const ks_memory *memory, uint64_t usable, ks_error *error)
{
    const uint64_t plans = config->plan_cache * (uint64_t)config->threads;
    const uint64_t needed = config->pinned_bytes + config->inflight_bytes + plans;
    if (needed <= usable) return KS_OK;
    return ks_fail(error, KS_CONFIG,
                   "memory: pinned-bytes %" PRIu64 " MiB + inflight-bytes %" PRIu64 " MiB + plan-cache %" PRIu64
                   " MiB (of %" PRId64 " shards) = %" PRIu64 " MiB, and %" PRIu64 " MiB of %" PRIu64
                   " MiB are there for them (%s)",
                   config->pinned_bytes >> 20, config->inflight_bytes >> 20, plans >> 20, config->threads,
                   (needed + (1 << 20) - 1) >> 20, usable >> 20, memory->bytes >> 20, memory->source);
}

/* Tensors that stay, where kernels work on the host's memory. An automatic limit takes of what the others leave. */
static ks_status defaults_resident(ks_config *config, const ks_memory *memory, uint64_t usable, ks_error *error)
{
    const uint64_t others =
        config->pinned_bytes + config->inflight_bytes + config->plan_cache * (uint64_t)config->threads;
    const uint64_t left = usable - others;
    if (config->resident_bytes == 0)
        config->resident_bytes = automatic(8ull << 30, usable / 8, left, 1 << 20);
    else if (config->resident_bytes > left)
        return ks_fail(error, KS_CONFIG,
                       "memory: resident-bytes %" PRIu64 " MiB, and %" PRIu64 " MiB of %" PRIu64
                       " MiB are left for them (%s)",
                       config->resident_bytes >> 20, left >> 20, memory->bytes >> 20, memory->source);
    return KS_OK;
}

/* Their range has a gap behind 0, which is automatic. */
static ks_status check_least(const ks_config *config, ks_error *error)
{
    if (config->pinned_bytes > 0 && config->pinned_bytes < KS_PINNED_LEAST)
        return ks_fail(error, KS_CONFIG, "pinned-bytes: %" PRIu64 " is out of range: 1M to 256G, or 0",
                       config->pinned_bytes);
    if (config->plan_cache > 0 && config->plan_cache < KS_PLANS_LEAST)
        return ks_fail(error, KS_CONFIG, "plan-cache: %" PRIu64 " is out of range: 64k to 16G, or 0",
                       config->plan_cache);
    return KS_OK;
}

ks_status ks_defaults_config(ks_config *config, const ks_memory *memory, bool gpu, ks_error *error)
{
    const uint64_t usable = memory->bytes > 2 * own_bytes ? memory->bytes - own_bytes : memory->bytes / 2;
    ks_status status = check_least(config, error);
    if (status != KS_OK) return status;
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
    defaults_bytes(config, usable);
    status = check_bytes(config, memory, usable, error);
    return status == KS_OK && config->resident && !gpu ? defaults_resident(config, memory, usable, error) : status;
}

/* Sides of 16 KiB, 64 KiB and so on to 64 MiB. The smallest class has a slot for every connection; what remains of the
 * shard's part is split evenly over the classes above, as long as one has two slots or more. */
static void defaults_classes(const ks_config *config, ks_engine_options *out)
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

void ks_defaults_engine(const ks_config *config, ks_engine_options *out)
{
    memset(out, 0, sizeof *out);
    out->lanes = (int)config->lanes;
    out->model_lanes = (int)config->model_lanes;
    out->join_rows = (int)config->join_rows;
    defaults_classes(config, out);
    out->plan_bytes = config->plan_cache;
    out->plans_max = (size_t)config->max_plans;
    out->queue_max = (int)config->queue;
    out->stall_ns = config->stall_timeout;
    out->scrub = config->scrub;
    out->wake_fd = -1;
}

bool ks_defaults_library(const ks_config *config)
{
    if (strcmp(config->cublaslt, "off") == 0) return false;
    if (config->tune.count) return true;
    return config->autotune == KS_AUTOTUNE_BACKGROUND ||
           (config->autotune == KS_AUTOTUNE_START && (*config->tune_cache || config->warm.count));
}

ks_status ks_defaults_limits(const ks_config *config, const ks_engine_options *engine, ks_limits *out, ks_error *error)
{
    *out = (ks_limits){.device_index = -1,
                       .lanes = (int)config->lanes,
                       .lane_bytes = 2 * engine->size_class[engine->classes - 1].side_bytes,
                       .large_bytes = config->max_body + config->max_output,
                       .stream_bytes = config->stream_bytes,
                       .workspace_bytes = config->workspace,
                       .model_bytes = config->model_arena,
                       .mapped_max = config->mapped_max ? config->mapped_max : SIZE_MAX,
                       .pinned_must = config->pinned == KS_PINNED_MUST,
                       .cublaslt = ks_defaults_library(config) ? config->cublaslt : NULL};
    if (strcmp(config->device, "auto") == 0) return KS_OK;
    if (strspn(config->device, "0123456789") != strlen(config->device) || !*config->device ||
        strlen(config->device) > 3)
        return ks_fail(error, KS_CONFIG, "device: '%.64s' is neither auto nor the index of a GPU", config->device);
    out->device_index = atoi(config->device);
    return KS_OK;
}

void ks_defaults_files(ks_config *config)
{
    enum { OTHERS = 64 + KS_ARRIVALS_MOST, PER_SHARD = 8 }; /* listeners, log, epoll, eventfds, the driver's */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    const rlim_t regions = config->allow_client_shm ? KS_REGIONS_MAX : 0;
    /* Of several workers: a file for each model, a file and an eventfd for each change, and the channels. */
    const rlim_t changes =
        workers > 1 || *config->devices ? KS_MODELS_MAX + 2 * KS_CHANGES_WAIT_MAX + 2 * KS_WORKERS_MAX : 0;
    const rlim_t others = OTHERS + PER_SHARD * (rlim_t)config->threads + regions + changes;
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
