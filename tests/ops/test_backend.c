/* What every backend promises (slots, launch and poll, batches), on the CPU and on CUDA where there is one; what is the
 * CPU's own (threads, waking); and that the harness of the operations' tests finds what it is there to find.
 * KS_SKIP=PATTERN: without the tests of such names. */
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <poll.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernserve/backends.h"
#include "ops/op_harness.h"
#include "ops/op_tiny.h"
#include "cpu/reference.h"

static uint64_t random_state;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return random_state;
}

/* The state of each test: its backend, or NULL where this machine has none. */
static const ks_backend *backend_or_skip(void **state)
{
    const ks_backend *backend = *state;
    if (!backend) skip();
    return backend;
}

static ks_device *open_device(const ks_backend *backend)
{
    const ks_limits limits = {.device_index = -1,
                              .lanes = 2,
                              .lane_bytes = 1 << 22,
                              .large_bytes = 1 << 23,
                              .workspace_bytes = 1 << 22,
                              .mapped_max = SIZE_MAX,
                              .pinned_must = true};
    ks_device *device = NULL;
    ks_error error;
    assert_int_equal(backend->open(&limits, &device, &error), KS_OK);
    return device;
}

/* --- every backend --------------------------------------------------------------------------------------------------
 */

static unsigned sum_bytes(const unsigned char *bytes, size_t count)
{
    unsigned sum = 0;
    for (size_t i = 0; i < count; i++) sum += bytes[i];
    return sum;
}

static void slots_have_what_their_header_says(void **state)
{
    const ks_backend *backend = backend_or_skip(state);
    ks_device *device = open_device(backend);
    const size_t sizes[][2] = {{0, 0}, {0, 1}, {1, 0}, {255, 257}, {4096, 4096}, {1000003, 17}, {1 << 22, 1 << 22}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int pinned = 0; pinned < 2; pinned++) {
            const size_t in = sizes[i][0], out = sizes[i][1];
            ks_slot slot;
            ks_error error;
            assert_int_equal(backend->slot_init(device, in, out, pinned, &slot, &error), KS_OK);
            assert_int_equal((uintptr_t)slot.in % KS_ALIGNMENT, 0);
            assert_int_equal((uintptr_t)slot.out % KS_ALIGNMENT, 0);
            assert_true(slot.in_cap >= in && slot.out_cap >= out);
            memset(slot.in, 1, in);
            memset(slot.out - KS_HEAD_ROOM, 2, KS_HEAD_ROOM);
            memset(slot.out, 3, out);
            assert_int_equal(sum_bytes(slot.in, in), in);
            assert_int_equal(sum_bytes(slot.out - KS_HEAD_ROOM, KS_HEAD_ROOM), 2 * KS_HEAD_ROOM);
            /* The pads may hold anything, but reading them is no fault. */
            volatile unsigned pads = sum_bytes(slot.in + in, KS_PAD) + sum_bytes(slot.out + out, KS_PAD);
            (void)pads;
            backend->slot_fini(device, &slot);
        }
    }
    backend->close(&device);
    assert_null(device);
}

static void a_slot_too_large_for_any_memory_is_refused(void **state)
{
    const ks_backend *backend = backend_or_skip(state);
    ks_device *device = open_device(backend);
    ks_slot slot;
    ks_error error;
    assert_int_equal(backend->slot_init(device, SIZE_MAX - 1, SIZE_MAX - 1, false, &slot, &error), KS_MEMORY);
    assert_int_equal(backend->slot_init(device, (size_t)1 << 60, 1, false, &slot, &error), KS_MEMORY);
    assert_int_equal(error.status, KS_MEMORY);
    backend->close(&device);
}

static void the_device_says_what_it_is(void **state)
{
    const ks_backend *backend = backend_or_skip(state);
    ks_device *device = open_device(backend);
    ks_device_info info;
    backend->info(device, &info);
    assert_string_equal(info.backend, backend->name);
    assert_true(strlen(info.name) > 0);
    assert_true(info.memory_bytes > 0);
    assert_false(backend->failed(device));
    backend->close(&device);
}

static void the_device_says_what_it_can_do_at_best(void **state)
{
    const ks_backend *backend = backend_or_skip(state);
    ks_device *device = open_device(backend);
    ks_memory_rates rates = {0};
    ks_peak peak = {0};
    ks_error error;
    assert_int_equal(backend->probe->memory(device, SIZE_MAX, &rates, &error), KS_OK);
    assert_true(rates.copy_gbs > 0.1 && rates.copy_gbs < 1e5);
    assert_true(strlen(rates.source) > 0);
    assert_int_equal(backend->probe->peak(device, KS_FP32, &peak, &error), KS_OK);
    assert_true(peak.tflops > 1e-4 && peak.tflops < 1e5);
    assert_int_equal(backend->probe->peak(device, KS_BOOL, &peak, &error), KS_DATATYPE);
    backend->close(&device);
}

/* Caches serve smaller buffers: no rate rather than theirs. */
static void little_memory_has_no_rate(void **state)
{
    const ks_backend *backend = backend_or_skip(state);
    ks_device *device = open_device(backend);
    ks_device_info info;
    ks_memory_rates rates;
    ks_error error;
    backend->info(device, &info);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const size_t little = (2 << 20) - 1;
#else
    const size_t little = 127 << 20;
#endif
    if (!info.gpu) assert_int_equal(backend->probe->memory(device, little, &rates, &error), KS_MEMORY);
    backend->close(&device);
}

static void a_plan_says_what_was_picked(void **state)
{
    const ks_backend *backend = backend_or_skip(state);
    ks_device *device = open_device(backend);
    for (const ks_op *const *op = ks_ops; *op; op++) {
        ks_plan plan = {.id = 1, .batch_max = 1};
        ks_error error;
        ks_lane *lane = NULL;
        ks_spec_init(&plan.spec, *op);
        (*op)->sample(&plan.spec);
        assert_int_equal((*op)->resolve(&plan.spec, &error), KS_OK);
        plan.in_bytes = ks_spec_layout(&plan.spec);
        plan.out_bytes = plan.spec.out[0].size_bytes;
        assert_int_equal(backend->prepare(device, &plan, &error), KS_OK);
        if (plan.kernel_info.kernel[0] == 0) fail_msg("%s: no kernel is named", (*op)->name);
        assert_true(strlen(plan.kernel_info.kernel) < sizeof plan.kernel_info.kernel);
        assert_true(plan.kernel_info.grid >= 1 && plan.kernel_info.threads >= 1 && plan.kernel_info.cluster >= 1);
        assert_int_equal(backend->lane_open(device, 1, -1, &lane, &error), KS_OK);
        backend->forget(lane, &plan);
        backend->lane_close(&lane);
    }
    backend->close(&device);
}

/* FP32 within a thousandth; other datatypes, such as indices, to the bit. */
static void check_output(const ks_op *op, const ks_tensor *tensor, const void *got, const void *wanted)
{
    if (tensor->dtype != KS_FP32) {
        assert_memory_equal(got, wanted, tensor->size_bytes);
        return;
    }
    const float *g = got, *w = wanted;
    for (size_t k = 0; k < tensor->size_bytes / sizeof *g; k++)
        if (!(fabsf(g[k] - w[k]) <= 1e-3f * (1 + fabsf(w[k]))))
            fail_msg("%s: element %zu is %g and not %g", op->name, k, (double)g[k], (double)w[k]);
}

/* FP32 from -1 to 1, or above 0 where nothing else is taken; of other datatypes, such as indices, any bits, which a sample takes. */
static void fill_input(const ks_tensor *tensor, bool positive, void *out)
{
    for (size_t k = 0; tensor->dtype != KS_FP32 && k < tensor->size_bytes; k++)
        ((unsigned char *)out)[k] = (unsigned char)random_next();
    for (size_t k = 0; tensor->dtype == KS_FP32 && k < tensor->size_bytes / sizeof(float); k++)
        ((float *)out)[k] = (float)((double)(random_next() % 2000 + 1) / 1000 - !positive);
}

/* Every operation's sample through every way the harness knows, against the reference. */
static void check_sample(op_harness *harness, const ks_op *op, op_path path, int copies, bool captured)
{
    ks_spec spec;
    ks_error error = {.status = KS_OK, .text = ""};
    ks_spec_init(&spec, op);
    op->sample(&spec);
    assert_int_equal(op->resolve(&spec, &error), KS_OK);
    ks_spec_layout(&spec);
    void *inputs[KS_INPUTS_MAX] = {NULL};
    for (int i = ks_next_input(&spec, -1); i >= 0; i = ks_next_input(&spec, i)) {
        inputs[i] = malloc(spec.in[i].size_bytes + 1);
        fill_input(&spec.in[i], op->inputs[i].positive, inputs[i]);
    }
    unsigned char *got = malloc(ks_spec_out_bytes(&spec) + 1), *wanted = malloc(ks_spec_out_bytes(&spec) + 1);
    void *outputs[KS_OUTPUTS_MAX] = {NULL}, *scratch = malloc(ks_cpu_scratch_bytes(&spec) + 1);
    for (int i = 0; i < spec.outputs; i++) outputs[i] = wanted + spec.out[i].offset;
    ks_cpu_reference(&spec, (const void *const *)inputs, outputs, scratch);
    const ks_status status =
        op_harness_run(harness, &spec, (const void *const *)inputs, got, path, copies, captured, &error);
    if (status != KS_OK) fail_msg("%s, path %d, %d copies: %s", op->name, (int)path, copies, error.text);
    for (int i = 0; i < spec.outputs; i++) check_output(op, &spec.out[i], got + spec.out[i].offset, outputs[i]);
    for (int i = 0; i < KS_INPUTS_MAX; i++) free(inputs[i]);
    free(got);
    free(wanted);
    free(scratch);
}

static void samples_are_right_on_every_path(void **state)
{
    const ks_backend *backend = backend_or_skip(state);
    op_harness *harness = op_harness_open(backend, 1 << 24);
    assert_non_null(harness);
    for (const ks_op *const *op = ks_ops; *op; op++)
        for (int path = OP_PATH_PLANNED; path <= OP_PATH_MAPPED; path++)
            for (int captured = 0; captured < 2; captured++) {
                const int copies[] = {1, 2, 3, 17, KS_BATCH_MAX};
                for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
                    check_sample(harness, *op, (op_path)path, copies[i], captured);
            }
    op_harness_close(&harness);
    assert_null(harness);
}

/* --- the CPU's own ---------------------------------------------------------------------------------------------------
 */

typedef struct cpu_bed {
    ks_device *device;
    ks_lane *lanes[2];
    int wake_fd;
    ks_plan plan;
    ks_batch batches[2];
    ks_slot slots[2];
} cpu_bed;

static cpu_bed *open_cpu(int64_t count, int64_t spin_us)
{
    cpu_bed *bed = calloc(1, sizeof *bed);
    ks_error error;
    bed->device = open_device(ks_backend_cpu);
    bed->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    bed->plan.spec = tiny_spec(count, 5, spin_us);
    bed->plan.in_bytes = bed->plan.out_bytes = (size_t)count * sizeof(float);
    assert_int_equal(ks_backend_cpu->prepare(bed->device, &bed->plan, &error), KS_OK);
    assert_true(bed->plan.mapped);
    assert_false(bed->plan.graphs);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ks_backend_cpu->lane_open(bed->device, i, bed->wake_fd, &bed->lanes[i], &error), KS_OK);
        assert_int_equal(ks_backend_cpu->slot_init(bed->device, bed->plan.in_bytes, bed->plan.out_bytes, true,
                                                   &bed->slots[i], &error),
                         KS_OK);
        for (int64_t k = 0; k < count; k++) ((float *)bed->slots[i].in)[k] = (float)(k + i);
        bed->batches[i].plan = &bed->plan;
        bed->batches[i].count = 1;
        bed->batches[i].slots[0] = &bed->slots[i];
    }
    return bed;
}

static void check_cpu(const cpu_bed *bed, int i)
{
    for (size_t k = 0; k < bed->plan.out_bytes / sizeof(float); k++)
        assert_true(((float *)bed->slots[i].out)[k] == (float)(k + (size_t)i) * 2 + 5);
}

static void close_cpu(cpu_bed *bed)
{
    for (int i = 0; i < 2; i++) {
        ks_backend_cpu->forget(bed->lanes[i], &bed->plan);
        ks_backend_cpu->lane_close(&bed->lanes[i]);
        assert_null(bed->lanes[i]);
        ks_backend_cpu->slot_fini(bed->device, &bed->slots[i]);
    }
    ks_backend_cpu->close(&bed->device);
    close(bed->wake_fd);
    free(bed);
}

static bool woken(const cpu_bed *bed, int timeout_ms)
{
    struct pollfd wake = {.fd = bed->wake_fd, .events = POLLIN};
    return poll(&wake, 1, timeout_ms) == 1;
}

static void small_work_is_done_when_launch_returns(void **state)
{
    (void)state;
    cpu_bed *bed = open_cpu(64, 0);
    ks_error error;
    assert_int_equal(bed->plan.batch_max, KS_BATCH_MAX);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ks_backend_cpu->launch(bed->lanes[0], &bed->batches[0], &error), KS_OK);
        assert_int_equal(ks_backend_cpu->poll(bed->lanes[0], &error), KS_DONE);
        check_cpu(bed, 0);
    }
    assert_false(woken(bed, 0));
    close_cpu(bed);
}

static void long_work_runs_beside_the_caller(void **state)
{
    (void)state;
    cpu_bed *bed = open_cpu(64, 30000);
    ks_error error;
    assert_int_equal(bed->plan.batch_max, 1);
    const int64_t start_ns = tiny_now_ns();
    for (int i = 0; i < 2; i++)
        assert_int_equal(ks_backend_cpu->launch(bed->lanes[i], &bed->batches[i], &error), KS_OK);
    assert_int_equal(ks_backend_cpu->poll(bed->lanes[0], &error), KS_RUNNING);
    assert_int_equal(ks_backend_cpu->poll(bed->lanes[1], &error), KS_RUNNING);
    assert_true(tiny_now_ns() - start_ns < 30000000);
    for (int i = 0; i < 2; i++) {
        ks_poll poll;
        while ((poll = ks_backend_cpu->poll(bed->lanes[i], &error)) == KS_RUNNING) assert_true(woken(bed, 10000));
        assert_int_equal(poll, KS_DONE);
        assert_true(bed->batches[i].kernel_ns >= 30000000);
        assert_true(bed->batches[i].compute_ns >= bed->batches[i].kernel_ns);
        assert_int_equal(bed->batches[i].h2d_ns, 0);
        assert_int_equal(bed->batches[i].d2h_ns, 0);
        assert_int_equal(bed->batches[i].graph, KS_GRAPH_NONE);
        check_cpu(bed, i);
    }
    close_cpu(bed);
}

static void a_lane_that_works_can_be_closed(void **state)
{
    (void)state;
    cpu_bed *bed = open_cpu(64, 5000);
    ks_error error;
    assert_int_equal(ks_backend_cpu->launch(bed->lanes[0], &bed->batches[0], &error), KS_OK);
    close_cpu(bed);
}

static sem_t wakes;

static void sleeping_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    while (sem_wait(&wakes) != 0) continue;
    tiny_reference(spec, in, out, scratch);
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

static void a_lane_that_sleeps_does_not_go_on(void **state)
{
    (void)state;
    const int64_t long_ns = 60000000000;
    cpu_bed *bed = open_cpu(64, 5000);
    static ks_op op;
    static const ks_cpu_op cpu = {.reference = sleeping_reference, .scratch_bytes = tiny_scratch};
    ks_error error;
    op = op_tiny;
    ks_cpu_add_op(&op, &cpu);
    bed->plan.spec.op = &op;
    sem_init(&wakes, 0, 0);
    assert_int_equal(ks_backend_cpu->launch(bed->lanes[0], &bed->batches[0], &error), KS_OK);
    assert_true(ks_backend_cpu->goes_on(bed->lanes[0], long_ns)); /* asked for the first time */
    /* Until it has come to its sleep. What a thread spends on falling asleep may show after it has been seen asleep, so that
     * it seems to go on once more; asleep for good it never does. */
    for (int asked = 0, asleep = 0; asleep < 10; asked++) {
        assert_true(asked < 10000);
        sleep_ms(1);
        asleep = ks_backend_cpu->goes_on(bed->lanes[0], long_ns) ? 0 : asleep + 1;
    }
    assert_int_equal(ks_backend_cpu->poll(bed->lanes[0], &error), KS_RUNNING);
    sem_post(&wakes);
    while (ks_backend_cpu->poll(bed->lanes[0], &error) == KS_RUNNING) assert_true(woken(bed, 10000));
    check_cpu(bed, 0);
    close_cpu(bed);
    sem_destroy(&wakes);
}

static _Atomic bool ends;

static void spinning_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    while (!ends) continue;
    tiny_reference(spec, in, out, scratch);
}

/* Work of 0.1 ms goes on, however often it is asked, until it has used a thousand times that and what may pass besides. */
static void work_that_never_ends_does_not_go_on(void **state)
{
    (void)state;
    const int64_t stall_ns = 100000000;
    cpu_bed *bed = open_cpu(64, 100);
    static ks_op op;
    static const ks_cpu_op cpu = {.reference = spinning_reference, .scratch_bytes = tiny_scratch};
    ks_error error;
    op = op_tiny;
    ks_cpu_add_op(&op, &cpu);
    bed->plan.spec.op = &op;
    ends = false;
    const int64_t begun_ns = tiny_now_ns();
    assert_int_equal(ks_backend_cpu->launch(bed->lanes[0], &bed->batches[0], &error), KS_OK);
    while (ks_backend_cpu->goes_on(bed->lanes[0], stall_ns)) {
        assert_true(tiny_now_ns() - begun_ns < 60 * 1000000000LL);
        sleep_ms(5);
    }
    assert_true(tiny_now_ns() - begun_ns > stall_ns + 100000000);
    ends = true;
    while (ks_backend_cpu->poll(bed->lanes[0], &error) == KS_RUNNING) assert_true(woken(bed, 10000));
    check_cpu(bed, 0);
    close_cpu(bed);
}

/* --- the harness finds what it is there for -------------------------------------------------------------------------- */

static int spoil_at; /* bytes from the output's start or, where spoil_input, of the input */
static bool spoil_input;

static void spoiling_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    tiny_reference(spec, in, out, scratch);
    ((unsigned char *)(spoil_input ? (void *)(uintptr_t)in[0] : out[0]))[spoil_at] ^= 0x11;
}

static ks_status run_spoiled(int at, bool input, ks_error *error)
{
    static ks_op op;
    static const ks_cpu_op cpu = {.reference = spoiling_reference, .scratch_bytes = tiny_scratch};
    op = op_tiny;
    ks_cpu_add_op(&op, &cpu);
    spoil_at = at;
    spoil_input = input;
    ks_spec spec = tiny_spec(100, 0, 0);
    spec.op = &op;
    const float numbers[100] = {1};
    float output[100];
    op_harness *harness = op_harness_open(ks_backend_cpu, 1 << 20);
    const void *inputs[] = {numbers};
    const ks_status status = op_harness_run(harness, &spec, inputs, output, OP_PATH_PLANNED, 2, false, error);
    op_harness_close(&harness);
    return status;
}

static void the_harness_sees_stray_writes(void **state)
{
    (void)state;
    ks_error error;
    assert_int_equal(run_spoiled(0, false, &error), KS_OK); /* inside: not its business */
    assert_int_equal(run_spoiled(400, false, &error), KS_DEVICE);
    assert_non_null(strstr(error.text, "behind"));
    assert_int_equal(run_spoiled(400 + 255, false, &error), KS_DEVICE);
    assert_int_equal(run_spoiled(-KS_COMPLETION_BYTES - 1, false, &error), KS_DEVICE);
    assert_non_null(strstr(error.text, "in front"));
    assert_int_equal(run_spoiled(8, true, &error), KS_DEVICE);
    assert_non_null(strstr(error.text, "input"));
}

static bool works(const ks_backend *backend)
{
    const ks_limits limits = {.device_index = -1, .lanes = 1, .lane_bytes = 1 << 20, .mapped_max = SIZE_MAX};
    ks_device *device = NULL;
    ks_error error;
    if (!backend || backend->open(&limits, &device, &error) != KS_OK) return false;
    backend->close(&device);
    return true;
}

#define ON_BOTH(test)                                                                                                  \
    {"cpu: " #test, test, NULL, NULL, (void *)(uintptr_t)ks_backend_cpu},                                              \
    {                                                                                                                  \
        "cuda: " #test, test, NULL, NULL, cuda                                                                         \
    }

int main(void)
{
    const char *seed = getenv("KS_SEED");
    const uint64_t chosen = seed ? strtoull(seed, NULL, 10) : (uint64_t)tiny_now_ns();
    random_state = chosen | 1;
    printf("KS_SEED=%llu\n", (unsigned long long)chosen);
    void *cuda = works(ks_backend_cuda) ? (void *)(uintptr_t)ks_backend_cuda : NULL;
    const struct CMUnitTest tests[] = {
        ON_BOTH(slots_have_what_their_header_says),
        ON_BOTH(a_slot_too_large_for_any_memory_is_refused),
        ON_BOTH(the_device_says_what_it_is),
        ON_BOTH(the_device_says_what_it_can_do_at_best),
        ON_BOTH(little_memory_has_no_rate),
        ON_BOTH(a_plan_says_what_was_picked),
        ON_BOTH(samples_are_right_on_every_path),
        cmocka_unit_test(small_work_is_done_when_launch_returns),
        cmocka_unit_test(long_work_runs_beside_the_caller),
        cmocka_unit_test(a_lane_that_works_can_be_closed),
        cmocka_unit_test(a_lane_that_sleeps_does_not_go_on),
        cmocka_unit_test(work_that_never_ends_does_not_go_on),
        cmocka_unit_test(the_harness_sees_stray_writes),
    };
    cmocka_set_skip_filter(getenv("KS_SKIP"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
