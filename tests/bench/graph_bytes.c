/* What a captured graph takes, of the process and of the device: for the constant in server/graphs.c. A program, not a test.
 *
 *     graph_bytes [PLANS]     64 plans of softmax, every bucket of each captured on one lane; 77: no GPU */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "kernserve/backends.h"

static ks_engine_stats stats(const ks_engine *engine)
{
    ks_engine_stats read;
    ks_engine_read_stats(engine, &read);
    return read;
}

static long resident_kib(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return 0;
    if (fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* All processes' on all GPUs, to 1 MiB: nothing else may run there. -1: nvidia-smi does not tell. */
static long device_mib(void)
{
    FILE *tool = popen("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits", "re");
    long all = -1, one;
    if (!tool) return -1;
    while (fscanf(tool, "%ld", &one) == 1) all = (all < 0 ? 0 : all) + one;
    pclose(tool);
    return all;
}

static void stop_on(ks_status status, const ks_error *error)
{
    if (status == KS_OK) return;
    fprintf(stderr, "graph_bytes: %s\n", error->text);
    exit(1);
}

static void warm(ks_engine *engine, int64_t columns)
{
    ks_error error = {.status = KS_OK};
    ks_spec spec;
    ks_spec_init(&spec, ks_op_find("softmax", 7));
    spec.in[0].dtype = KS_FP32;
    spec.in[0].rank = 2;
    spec.in[0].dims[0] = 4;
    spec.in[0].dims[1] = columns;
    stop_on(ks_tensor_measure(&spec.in[0], "INPUT0", &error), &error);
    stop_on(spec.op->resolve(&spec, &error), &error);
    ks_spec_layout(&spec);
    stop_on(ks_engine_warm(engine, &spec, &error), &error);
}

int main(int count, char **arguments)
{
    const int plans = count > 1 ? atoi(arguments[1]) : 64;
    const ks_limits limits = {.device_index = -1,
                              .lanes = 1,
                              .lane_bytes = 1 << 20,
                              .large_bytes = 1 << 20,
                              .workspace_bytes = 1 << 20,
                              .mapped_max = SIZE_MAX};
    ks_error error = {.status = KS_OK};
    ks_device *device = NULL;
    if (!ks_backend_cuda || ks_backend_cuda->open(&limits, &device, &error) != KS_OK) {
        puts("skip: no GPU that works");
        return 77;
    }
    ks_engine_options options = {.backend = ks_backend_cuda,
                                 .device = device,
                                 .budget = ks_budget_open(1 << 26),
                                 .lanes = 1,
                                 .classes = 1,
                                 .size_class = {{.side_bytes = 1 << 18, .count = 8}},
                                 .pinned = true,
                                 .plan_bytes = (size_t)1 << 34,
                                 .queue_max = 8,
                                 .stall_ns = 60000000000,
                                 .wake_fd = -1};
    ks_engine *engine = NULL;
    stop_on(ks_engine_open(&options, &engine, &error), &error);
    warm(engine, 64); /* what the first one takes is not a graph's */
    const long host = resident_kib(), card = device_mib();
    const uint64_t graphs = stats(engine).captures;
    for (int i = 1; i <= plans; i++) warm(engine, 64 + i);
    const uint64_t made = stats(engine).captures - graphs;
    if (made == 0) {
        puts("no graph was captured: such plans run without");
    } else {
        printf("%d plans, %llu graphs: %.0f bytes of the process each", plans, (unsigned long long)made,
               (double)(resident_kib() - host) * 1024 / (double)made);
        if (card >= 0)
            printf(", %.0f bytes of the device each", (double)(device_mib() - card) * 1048576 / (double)made);
        printf("; counted as %.0f\n", (double)stats(engine).plan_bytes / (double)stats(engine).captures);
    }
    ks_engine_close(&engine);
    ks_backend_cuda->close(&device);
    ks_budget_close(&options.budget);
    return 0;
}
