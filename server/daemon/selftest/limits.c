/* The host without HTTP: its memory, its link to the device, and the daemon's own work on an engine of its own. */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/defaults.h"
#include "daemon/selftest/parts.h"

enum { RUNS_LEAST = 3 };

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Bytes read and written. Buffers larger than caches; their pages are there before the clock starts. */
static ks_status measure_memcpy(double *gbs, int64_t for_ns, ks_error *error)
{
    const size_t bytes = 64 << 20;
    ks_test_samples samples = {0};
    unsigned char *both = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (both == MAP_FAILED) return ks_fail(error, KS_MEMORY, "no memory for a copy of %zu bytes", bytes);
    memset(both, 1, 2 * bytes);
    const int64_t until_ns = ks_now_ns() + for_ns;
    bool kept = true;
    for (int64_t begun_ns; kept && ((begun_ns = ks_now_ns()) < until_ns || samples.count < RUNS_LEAST);) {
        memcpy(both + bytes, both, bytes);
        __asm__ volatile("" ::"r"(both) : "memory"); /* the compiler must take it for read */
        const float us = (float)(ks_now_ns() - begun_ns) / 1e3f;
        kept = ks_samples_add(&samples, &us, 1);
    }
    *gbs = kept ? 2 * (double)bytes / 1e3 / ks_samples_quantile(&samples, 0.5) : 0;
    ks_samples_free(&samples);
    munmap(both, 2 * bytes);
    return kept ? KS_OK : ks_fail(error, KS_MEMORY, "no memory for latencies");
}

/* --- work without HTTP -------------------------------------------------------------------------------------------- */

static ks_status make_spec(size_t bytes, ks_spec *spec, ks_error *error)
{
    const ks_op *op = ks_op_find("softmax", strlen("softmax"));
    if (op == NULL) return ks_fail(error, KS_CONFIG, "no operation softmax to measure with");
    ks_spec_init(spec, op);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {(int64_t)(bytes / KS_TEST_ROW), KS_TEST_COLS}};
    const ks_status status = ks_tensor_measure(&spec->in[0], "INPUT0", error);
    if (status != KS_OK) return status;
    ks_spec_layout(spec);
    return op->resolve(spec, error);
}

/* From submit until it is handed back, with nothing else to do. */
static ks_status run_job(ks_engine *engine, ks_job *job, ks_error *error)
{
    error->status = KS_OK;
    job->fault = error;
    const ks_status status = ks_engine_submit(engine, job, error);
    if (status != KS_OK) return status;
    ks_engine_launch(engine);
    while (ks_engine_collect(engine) == NULL) continue;
    return job->status;
}

static ks_status time_job(ks_engine *engine, ks_job *job, int64_t for_ns, ks_test_samples *samples, ks_error *error)
{
    for (size_t i = 0; i < job->plan->in_bytes / 4; i++) {
        const float value = (float)(i * 7919 % 2003) / 200;
        memcpy(job->slot->in + i * 4, &value, 4);
    }
    ks_status status = run_job(engine, job, error); /* what the first one finds out is not measured */
    const int64_t until_ns = ks_now_ns() + for_ns;
    for (int64_t begun_ns; status == KS_OK && ((begun_ns = ks_now_ns()) < until_ns || samples->count < RUNS_LEAST);) {
        status = run_job(engine, job, error);
        const float us = (float)(ks_now_ns() - begun_ns) / 1e3f;
        if (status == KS_OK && !ks_samples_add(samples, &us, 1))
            status = ks_fail(error, KS_MEMORY, "no memory for latencies");
    }
    return status;
}

/* The median time of one piece of work, its graph captured. */
static ks_status measure_work(ks_engine *engine, size_t bytes, int64_t for_ns, double *us, ks_error *error)
{
    ks_spec spec;
    ks_job job = {0};
    ks_test_samples samples = {0};
    ks_status status = make_spec(bytes, &spec, error);
    if (status == KS_OK) status = ks_engine_warm(engine, &spec, error);
    if (status == KS_OK) status = ks_engine_plan(engine, &spec, &job.plan, error);
    if (status == KS_OK) status = ks_engine_slot(engine, job.plan->in_bytes, job.plan->out_bytes, &job.slot, error);
    if (status == KS_OK) status = time_job(engine, &job, for_ns, &samples, error);
    *us = ks_samples_quantile(&samples, 0.5);
    ks_samples_free(&samples);
    if (job.slot) ks_engine_slot_release(engine, &job.slot);
    if (job.plan) ks_engine_plan_release(engine, &job.plan);
    return status;
}

/* One lane, one slot of each size. A large body's way is measured where it leads through a slot: a device that streams
 * has the copies as its floor. */
static ks_status measure_engine(ks_test *test, int64_t for_ns, ks_error *error)
{
    ks_engine_options options = test->daemon->engine;
    options.lanes = 1;
    options.classes = options.backend->large ? 1 : 2;
    options.size_class[0].side_bytes = KS_TEST_ROW;
    options.size_class[1].side_bytes = test->large_bytes;
    options.size_class[0].count = options.size_class[1].count = 1;
    options.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ks_engine *engine = NULL;
    double large_us = 0;
    ks_status status = ks_engine_open(&options, &engine, error);
    if (status == KS_OK) status = measure_work(engine, KS_TEST_ROW, for_ns / 2, &test->device_limits.row_us, error);
    if (status == KS_OK && options.classes == 2)
        status = measure_work(engine, test->large_bytes, for_ns / 2, &large_us, error);
    test->device_limits.large_gbs = large_us > 0 ? (double)test->large_bytes / 1e3 / large_us : 0;
    ks_engine_close(&engine);
    if (options.wake_fd >= 0) close(options.wake_fd);
    return status;
}

/* What cannot be measured stays unknown. */
static void measure_ceilings(ks_test *test, const ks_probe *probe)
{
    ks_memory memory;
    ks_error ignored;
    ks_defaults_memory(&memory);
    ks_device *device = test->daemon->device;
    if (probe->memory(device, memory.bytes / 8, &test->device_limits.memory, &ignored) != KS_OK)
        test->device_limits.memory = (ks_memory_rates){0};
    if (probe->peak(device, KS_FP32, &test->device_limits.peak, &ignored) != KS_OK)
        test->device_limits.peak = (ks_peak){0};
}

ks_status ks_test_device_limits_measure(ks_test *test, int64_t for_ns, ks_error *error)
{
    const ks_daemon *daemon = test->daemon;
    ks_status status = measure_memcpy(&test->device_limits.memcpy_gbs, for_ns / 3, error);
    const ks_probe *probe = daemon->backend->probe;
    if (status == KS_OK && probe) measure_ceilings(test, probe);
    if (status == KS_OK && probe && probe->device_limits)
        status = probe->device_limits(daemon->device, &test->device_limits.device, error);
    if (status == KS_OK) status = measure_engine(test, for_ns / 3, error);
    return status;
}
