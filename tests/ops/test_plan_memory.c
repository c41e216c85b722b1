/* Memory that runs out where plans are made and run, on the CPU with oneDNN's code in the process: every allocation of the
 * process passes through this file, the libraries' too, and fails on demand. Nothing may end the process; whatever is not a
 * right answer is KS_MEMORY. Needs glibc, and no sanitizer, which has an allocator of its own.
 *
 * KS_SITES=N   so many allocations of the start are let fail, in each of the two ways (default: 20; it has some 40,000). */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "cpu/onednn.h"
#include "kernserve/backends.h"

/* --- the allocator ------------------------------------------------------------------------------------------------------ */

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static struct {
    _Atomic bool on;
    _Atomic long seen;
    long at;  /* that one fails */
    bool all; /* and all behind it */
} arm;

static bool fails(void)
{
    if (!atomic_load(&arm.on)) return false;
    const long seen = atomic_fetch_add(&arm.seen, 1) + 1;
    return seen == arm.at || (arm.all && seen > arm.at);
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *memory = fails() ? NULL : __libc_memalign(alignment, bytes);
    if (memory) *out = memory;
    return memory ? 0 : ENOMEM;
}

/* at 0: none fails, they are counted. */
static void arm_at(long at, bool all)
{
    arm.at = at;
    arm.all = all && at > 0;
    atomic_store(&arm.seen, 0);
    atomic_store(&arm.on, true);
}

static long disarm(void)
{
    atomic_store(&arm.on, false);
    return atomic_load(&arm.seen);
}

/* --- the start ---------------------------------------------------------------------------------------------------------- */

static const ks_limits limits = {.device_index = -1, .lanes = 1, .mapped_max = SIZE_MAX};

typedef struct opened {
    ks_status status;
    long allocations;
} opened;

/* Opens the device in a child, whose end is what is looked at. */
static opened open_in_child(long at, bool all)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ks_device *device = NULL;
        ks_error error = {.status = KS_OK};
        arm_at(at, all);
        opened result = {.status = ks_backend_cpu->open(&limits, &device, &error)};
        result.allocations = disarm();
        _exit(write(ends[1], &result, sizeof result) == sizeof result ? 0 : 1);
    }
    close(ends[1]);
    opened result = {.status = KS_DEVICE};
    const ssize_t got = read(ends[0], &result, sizeof result);
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || got != sizeof result)
        fail_msg("allocation %ld%s of the start fails: the process ends with status 0x%x", at,
                 all ? " and all behind it" : "", status);
    return result;
}

/* Before the device is opened in this process, which happens once. */
static void a_start_without_memory_is_an_error(void **state)
{
    (void)state;
    const char *text = getenv("KS_SITES");
    const long sites = text ? strtol(text, NULL, 10) : 20;
    const opened whole = open_in_child(0, false);
    assert_int_equal(whole.status, KS_OK);
    long failed = 0;
    for (long i = 0; i < 2 * sites; i++) {
        const long step = i / 2; /* a fifth of them are the first ones, the others are spread */
        const long at = step < sites / 5 ? step + 1 : 1 + step * (whole.allocations - 1) / sites;
        const opened result = open_in_child(at, i % 2);
        assert_true(result.status == KS_OK || result.status == KS_MEMORY);
        failed += result.status == KS_MEMORY;
    }
    print_message("start: %ld allocations, %ld of %ld failures refused it, the others did no harm\n", whole.allocations,
                  failed, 2 * sites);
    if (strcmp(ks_onednn_version(), "no oneDNN") != 0) assert_true(failed > sites);
}

/* --- plans -------------------------------------------------------------------------------------------------------------- */

enum { SIDE = 1 << 20, PLAN_BYTES = 1 << 20, PLANS = 500 };

static struct {
    ks_device *device;
    ks_budget *budget;
    ks_engine *engine;
    int wake_fd;
} bed;

static int open_bed(void **state)
{
    (void)state;
    ks_error error;
    if (ks_backend_cpu->open(&limits, &bed.device, &error) != KS_OK) return -1;
    bed.budget = ks_budget_open(64 << 20);
    bed.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const ks_engine_options options = {.backend = ks_backend_cpu,
                                       .device = bed.device,
                                       .budget = bed.budget,
                                       .lanes = 1,
                                       .classes = 1,
                                       .size_class = {{.side_bytes = SIDE, .count = 2}},
                                       .plan_bytes = PLAN_BYTES,
                                       .plans_max = PLANS,
                                       .queue_max = 4,
                                       .stall_ns = 60000000000,
                                       .wake_fd = bed.wake_fd};
    return ks_engine_open(&options, &bed.engine, &error) == KS_OK ? 0 : -1;
}

static int close_bed(void **state)
{
    (void)state;
    ks_engine_close(&bed.engine);
    ks_backend_cpu->close(&bed.device);
    ks_budget_close(&bed.budget);
    close(bed.wake_fd);
    return 0;
}

static const ks_op *op_of(const char *name)
{
    return ks_op_find(name, strlen(name));
}

static void finish_spec(ks_spec *spec)
{
    ks_error error = {.status = KS_OK};
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        assert_int_equal(ks_tensor_measure(&spec->in[i], "INPUT", &error), KS_OK);
    if (spec->op->resolve(spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(spec);
}

/* [m, k] x [k, n] in FP32; bit 0 and 1 of turned: the operands lie transposed. */
static ks_spec product(int64_t m, int64_t n, int64_t k, int turned)
{
    ks_spec spec;
    ks_spec_init(&spec, op_of("matmul"));
    for (int i = 0; i < 2; i++) {
        spec.in[i].dtype = KS_FP32;
        spec.in[i].rank = 2;
        spec.params[i].i = turned >> i & 1; /* transpose_a, transpose_b */
    }
    spec.in[0].dims[0] = turned & 1 ? k : m;
    spec.in[0].dims[1] = turned & 1 ? m : k;
    spec.in[1].dims[0] = turned & 2 ? n : k;
    spec.in[1].dims[1] = turned & 2 ? k : n;
    finish_spec(&spec);
    return spec;
}

static ks_spec rows(const char *op, int64_t count, int64_t columns)
{
    ks_spec spec;
    ks_spec_init(&spec, op_of(op));
    spec.in[0].dtype = KS_FP32;
    spec.in[0].rank = 2;
    spec.in[0].dims[0] = count;
    spec.in[0].dims[1] = columns;
    finish_spec(&spec);
    return spec;
}

/* Small whole numbers, whose sums of products are exact. */
static float value_at(int input, int64_t at)
{
    return (float)(input ? at * 5 % 7 - 3 : at * 3 % 5 - 1);
}

static void fill(const ks_spec *spec, unsigned char *side)
{
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        float *data = (float *)(void *)(side + spec->in[i].offset);
        const int64_t count = ks_tensor_count(&spec->in[i]);
        for (int64_t at = 0; at < count; at++) data[at] = value_at(i, at);
    }
}

static void check_product(const ks_spec *spec, const float *out)
{
    const bool ta = spec->params[0].i != 0, tb = spec->params[1].i != 0;
    const int64_t m = spec->out[0].dims[0], n = spec->out[0].dims[1], k = spec->in[0].dims[ta ? 0 : 1];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += value_at(0, ta ? l * m + i : i * k + l) * value_at(1, tb ? j * k + l : l * n + j);
            if (out[i * n + j] != sum)
                fail_msg("%d x %d x %d: [%d][%d] is %g and not %g", (int)m, (int)n, (int)k, (int)i, (int)j,
                         (double)out[i * n + j], (double)sum);
        }
}

/* One job of the plan, from slot to answer. */
static ks_status run(ks_plan *plan, ks_slot *slot)
{
    ks_error error = {.status = KS_OK};
    ks_job job = {.plan = plan, .slot = slot};
    const ks_status status = ks_engine_submit(bed.engine, &job, &error);
    if (status != KS_OK) return status;
    const ks_job *done = NULL;
    while (!done) {
        ks_engine_launch(bed.engine);
        done = ks_engine_collect(bed.engine);
    }
    assert_ptr_equal(done, &job);
    return job.status;
}

typedef ks_spec spec_fn(int64_t step); /* a shape that no other step has */

static ks_spec next_product(int64_t step)
{
    return product(5 + step % 60, 7 + step / 60 % 60, 6 + step / 3600 % 60, (int)(step % 4));
}

static ks_spec
next_long_product(int64_t step) /* long enough for the lane's own thread; few rows by a transposed operand */
{
    return product(16 + step % 16, 300, 256 + step / 16, 2);
}

static ks_spec next_softmax(int64_t step)
{
    return rows("softmax", 1 + step % 50, 1 + step / 50);
}

static ks_spec next_reduce(int64_t step)
{
    return rows("reduce", 1 + step % 50, 1 + step / 50);
}

/* The allocation `at` of making a plan and running it fails, or all from there on. Returns whether so many were made. */
static bool fail_once(spec_fn *next, int64_t step, long at, bool all, int *refused)
{
    const ks_spec spec = next(step);
    ks_error error = {.status = KS_OK};
    ks_slot *slot = NULL;
    ks_plan *plan = NULL;
    assert_int_equal(ks_engine_slot(bed.engine, ks_spec_in_bytes(&spec), ks_spec_out_bytes(&spec), &slot, &error),
                     KS_OK);
    fill(&spec, slot->in);
    memset(slot->out, 0xFF, spec.out[0].size_bytes);
    arm_at(at, all);
    ks_status status = ks_engine_plan(bed.engine, &spec, &plan, &error);
    if (status == KS_OK) status = run(plan, slot);
    const long seen = disarm();
    assert_true(status == KS_OK || status == KS_MEMORY);
    *refused += status == KS_MEMORY;
    if (status == KS_OK && spec.op == op_of("matmul")) check_product(&spec, (const float *)(const void *)slot->out);
    if (plan) ks_engine_plan_release(bed.engine, &plan);
    ks_engine_slot_release(bed.engine, &slot);
    return seen >= at;
}

static void fail_each(spec_fn *next)
{
    int64_t step = 0;
    int refused = 0;
    long sites = 0;
    for (int all = 0; all < 2; all++) {
        long at = 1;
        while (fail_once(next, step++, at, all, &refused)) at++;
        if (at - 1 > sites) sites = at - 1;
    }
    assert_true(sites >= 1 && refused >= 2); /* the plan itself, in either way */
    assert_false(fail_once(next, step, 1000000, false, &refused));
    print_message("%ld allocations, %d answers of no memory\n", sites, refused);
}

static void each_allocation_of_a_plan_and_its_job_may_fail(void **state)
{
    (void)state;
    fail_each(next_product);
    fail_each(next_long_product);
    fail_each(next_softmax);
    fail_each(next_reduce);
}

typedef struct newcomer {
    ks_spec spec;
    long at; /* the allocation that fails in it, */
    bool all;
    long seen; /* of so many */
} newcomer;

static void *first_product(void *context)
{
    static float in[2][1 << 16], out[1 << 16];
    newcomer *n = context;
    const void *const operands[] = {in[0], in[1]};
    arm_at(n->at, n->all);
    (void)ks_onednn_run(&n->spec, operands, out);
    n->seen = disarm();
    return NULL;
}

/* As a lane's worker, which may have come to run only when memory is short: what a library keeps for a thread is made then. */
static void a_threads_first_product_may_find_no_memory(void **state)
{
    (void)state;
    const ks_spec specs[] = {product(8, 8, 8, 0), product(200, 200, 200, 0), product(16, 100, 300, 2)};
    long most = 0;
    for (int i = 0; i < 6; i++) {
        newcomer n = {.spec = specs[i / 2], .all = i % 2};
        if (!ks_onednn_takes(&n.spec)) skip();
        do {
            n.at++;
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, first_product, &n), 0);
            assert_int_equal(pthread_join(thread, NULL), 0);
            if (n.seen > most) most = n.seen;
        } while (n.seen >= n.at);
    }
    print_message("at most %ld allocations\n", most);
}

static int threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    int count = -2; /* "." and ".." */
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

/* Nothing is made at a first run of a shape, whatever shape it is: a call takes what it packs into, and no more, and no other
 * thread works for it. */
static void the_librarys_code_is_complete(void **state)
{
    (void)state;
    enum { LONGEST = 96, CASES = 3000 };
    static float in[2][LONGEST * 40 * LONGEST], out[LONGEST * 40 * LONGEST];
    uint64_t random = 88172645463325252u;
    long most = 0;
    int taken = 0;
    for (int i = 0; i < CASES; i++) {
        int64_t side[3];
        for (int d = 0; d < 3; d++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            side[d] = 1 + (int64_t)(random % LONGEST);
        }
        if (i % 3 != 2) side[random >> 32 & 1] *= 1 + (int64_t)(random >> 40) % 40; /* one long side, at most */
        const ks_spec spec = product(side[0], side[1], side[2], i % 4);
        if (!ks_onednn_takes(&spec)) continue;
        const void *const operands[] = {in[0], in[1]};
        arm_at(0, false);
        assert_true(ks_onednn_run(&spec, operands, out));
        const long seen = disarm();
        if (seen > most) most = seen;
        taken++;
    }
    if (taken == 0) skip();
    print_message("%d products, at most %ld allocations each\n", taken, most);
    assert_true(most <= 4);
    assert_int_equal(threads(), 1 + limits.lanes);
}

static long resident_kib(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &pages, &resident), 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* 60,000 shapes, with which a process that kept a primitive for each took 2.8 GiB. */
static void plans_stay_within_their_bytes_and_number(void **state)
{
    (void)state;
    const long before = resident_kib();
    for (int64_t step = 0; step < 60000; step++) {
        const ks_spec spec = next_product(step + 1000);
        ks_error error;
        ks_plan *plan = NULL;
        assert_int_equal(ks_engine_plan(bed.engine, &spec, &plan, &error), KS_OK);
        ks_engine_plan_release(bed.engine, &plan);
    }
    ks_engine_stats stats;
    ks_engine_read_stats(bed.engine, &stats);
    const long grown = resident_kib() - before;
    print_message("%llu plans of %llu bytes, %ld KiB more in memory\n", (unsigned long long)stats.plans,
                  (unsigned long long)stats.plan_bytes, grown);
    assert_true(stats.plans <= PLANS && stats.plan_bytes <= PLAN_BYTES);
    assert_true(grown < 2 * PLAN_BYTES / 1024);
}

int main(void)
{
    const struct CMUnitTest start[] = {cmocka_unit_test(a_start_without_memory_is_an_error)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_of_a_plan_and_its_job_may_fail),
        cmocka_unit_test(a_threads_first_product_may_find_no_memory),
        cmocka_unit_test(the_librarys_code_is_complete),
        cmocka_unit_test(plans_stay_within_their_bytes_and_number),
    };
    return cmocka_run_group_tests(start, NULL, NULL) + cmocka_run_group_tests(tests, open_bed, close_bed);
}
