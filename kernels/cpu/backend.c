/* The CPU as a device: a lane is a worker thread with a one-place mailbox.
 *
 * Owns      the workers and their scratch; slots are anonymous mappings, so that what a large request used goes back to
 * the system. Threads   a lane's functions run on its shard's thread. The worker sees the lane only between the
 * mailbox's post and the state's release store; everything it needs is in the lane and in the batch. Limits    every
 * plan works on the slots themselves (mapped), a batch is cut so that it lasts at most about BATCH_NS: lanes are the
 * parallelism, one long batch would leave the others idle. Joined rows of a chain are cut so that the steps that are no faster for many last at most
 * about APART_NS.
 *
 * Work shorter than INLINE_NS runs inside launch: waking a thread and being woken by it costs 10 us or more here, and
 * the shard has nothing better to do meanwhile than to wait for exactly this answer. */
#include "kernserve/backends.h"
#include "cpu/chain/chain.h"
#include "cpu/chain/rows.h"
#include "cpu/join.h"
#include "cpu/onednn.h"
#include "cpu/probe.h"
#include "cpu/reference.h"
#include "cpu/resident.h"
#include "cpu/worker.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { INLINE_NS = 20000, BATCH_NS = 200000, APART_NS = 2000000 };
enum { CHAIN_ROWS = 4 };  /* of a chain's job that may be joined: products of more rows are faster by oneDNN, alone */
enum { ENDLESS = 1000 };  /* times what work should take: it does not end */
enum { WEIGHT_ROWS = 8 }; /* joined rows: to read the other operands once takes about as long as so many of them */

/* Until a plan has been measured: one core's cautious rates in plain C, per nanosecond. */
static const double FLOPS_PER_NS = 2, BYTES_PER_NS = 4;

typedef enum lane_state { LANE_FREE, LANE_RUNNING, LANE_DONE } lane_state;

struct ks_lane {
    /* fixed after open: */
    ks_device *device;
    int wake_fd;
    pthread_t thread;
    sem_t mailbox;
    /* written by the shard before the post, read by the worker after its wait: */
    ks_batch *batch;
    bool onednn;
    ks_cpu_join join;
    void *scratch;
    size_t scratch_bytes;
    ks_cpu_arena arena;
    unsigned char *operands; /* of a trial, while one runs */
    bool stop;
    /* written by the thread that ran the batch, before state says LANE_DONE: */
    int64_t begun_ns, done_ns;
    _Atomic int state;
    _Atomic int task; /* the worker's, as the system numbers it; 0: it has not run yet */
    /* the shard's own: */
    int64_t launched_ns;
    int64_t likely_ns;                   /* what the batch should take */
    int64_t first_used_ns, last_used_ns; /* the worker's processor time when first and last asked; -1: not asked */
};

/* What prepare keeps in plan->choice. */
typedef struct cpu_algorithm {
    bool onednn;      /* false: the op's reference */
    ks_cpu_join join; /* of a family's plan */
    double job_ns;    /* expected time of one job, of a family's of one row; follows what was measured */
} cpu_algorithm;
_Static_assert(sizeof(cpu_algorithm) <= KS_ALGORITHM_BYTES, "a plan has no room for the choice");

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static cpu_algorithm algorithm_of(const ks_plan *plan)
{
    cpu_algorithm algorithm;
    memcpy(&algorithm, plan->algorithm, sizeof algorithm);
    return algorithm;
}

static void algorithm_set(ks_plan *plan, const cpu_algorithm *algorithm)
{
    memcpy(plan->algorithm, algorithm, sizeof *algorithm);
    plan->at_once = algorithm->job_ns * (plan->join_rows ? 1 + WEIGHT_ROWS : 1) < INLINE_NS;
}

/* In jobs, or in a family's rows, whose times are alike. */
static double work_of(const ks_batch *batch)
{
    return batch->plan->join_rows && !batch->trial ? batch->rows_sum + WEIGHT_ROWS : batch->trial + batch->count;
}

/* --- device ------------------------------------------------------------------------------------------------------- */

static ks_status cpu_open(const ks_limits *limits, ks_device **out, ks_error *error)
{
    const ks_status status = ks_onednn_open(error);
    if (status != KS_OK) return status;
    ks_device *device = calloc(1, sizeof *device);
    if (!device) return ks_fail(error, KS_MEMORY, "no memory for the CPU device");
    device->limits = *limits;
    pthread_mutex_init(&device->arenas.lock, NULL);
    device->info.backend = "cpu";
    ks_cpu_probe_open();
    ks_cpu_probe_name(device->info.name, sizeof device->info.name);
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_bytes > 0) device->info.memory_bytes = (size_t)pages * (size_t)page_bytes;
    device->info.mapped_max = SIZE_MAX;
    device->info.work_max = 1e11;
    device->info.chain_rows = CHAIN_ROWS;
    *out = device;
    return KS_OK;
}

static void cpu_close(ks_device **device)
{
    if (*device) {
        ks_cpu_resident_close(*device);
        pthread_mutex_destroy(&(*device)->arenas.lock);
    }
    free(*device);
    *device = NULL;
}

static void cpu_info(const ks_device *device, ks_device_info *out)
{
    *out = device->info;
}

static bool cpu_failed(const ks_device *device)
{
    (void)device;
    return false;
}

/* --- slots -------------------------------------------------------------------------------------------------------- */

/* One mapping: in, pad | head room, out, pad. 0: the sizes do not fit the address space. */
static size_t slot_bytes(size_t in_bytes, size_t out_bytes)
{
    const size_t most = SIZE_MAX / 4;
    if (in_bytes > most || out_bytes > most) return 0;
    return ks_align(in_bytes + KS_PAD) + KS_HEAD_ROOM + ks_align(out_bytes + KS_PAD);
}

static ks_status cpu_slot_init(ks_device *device, size_t in_bytes, size_t out_bytes, bool pinned, ks_slot *slot,
                               ks_error *error)
{
    (void)device;
    const size_t bytes = slot_bytes(in_bytes, out_bytes);
    void *memory =
        bytes == 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return ks_fail(error, KS_MEMORY, "no memory for a slot of %zu bytes in and %zu bytes out", in_bytes, out_bytes);
    /* A slot of the pool is touched now, so that no request pays for its pages. An overflow slot is not: its bytes
     * arrive over time, and a large memset here would stop the shard. */
    if (pinned) memset(memory, 0, bytes);
    /* To give back 40 MiB in small pages keeps the shard for a millisecond and more. */
    else
        madvise(memory, bytes, MADV_HUGEPAGE);
    memset(slot, 0, sizeof *slot);
    slot->memory = memory;
    slot->in = memory;
    slot->out = slot->in + ks_align(in_bytes + KS_PAD) + KS_HEAD_ROOM;
    slot->in_cap = in_bytes;
    slot->out_cap = out_bytes;
    slot->in_device = slot->in;
    slot->out_device = slot->out;
    return KS_OK;
}

static void cpu_slot_fini(ks_device *device, ks_slot *slot)
{
    (void)device;
    if (slot->memory) munmap(slot->memory, slot_bytes(slot->in_cap, slot->out_cap));
    memset(slot, 0, sizeof *slot);
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

static const char *const algorithm_names[] = {"reference", "onednn"};

static void choose(ks_plan *plan, bool onednn)
{
    const double bytes = (double)ks_spec_read_bytes(&plan->spec) + (double)ks_spec_written_bytes(&plan->spec);
    const cpu_algorithm algorithm = {.onednn = onednn,
                                     .job_ns = 1 + plan->spec.flops / FLOPS_PER_NS + bytes / BYTES_PER_NS};
    algorithm_set(plan, &algorithm);
    plan->kernel_info = (ks_kernel_info){.grid = 1, .threads = 1, .cluster = 1};
    snprintf(plan->kernel_info.kernel, sizeof plan->kernel_info.kernel, "%s", algorithm_names[onednn]);
}

static ks_status check_arena(const ks_device *device, const ks_plan *plan, ks_error *error)
{
    const size_t bytes = plan->program ? ks_cpu_chain_arena_bytes(plan->program) : 0, most = device->limits.model_bytes;
    if (bytes <= most) return KS_OK;
    return ks_fail(error, KS_WORK,
                   "%s: the values between its nodes take %zu bytes, a lane has %zu for them (--model-arena)",
                   plan->spec.op->name, bytes, most);
}

static void name_chain(ks_plan *plan)
{
    snprintf(plan->kernel_info.kernel, sizeof plan->kernel_info.kernel, "chain<%d steps>", plan->program->count);
}

static int jobs_of(double all_ns, double job_ns)
{
    const double jobs = all_ns / job_ns;
    return jobs < 1 ? 1 : jobs > KS_BATCH_MAX ? KS_BATCH_MAX : (int)jobs;
}

/* The rows' way, memory, and jobs in a launch. false: the family's rows are not joined. */
static bool choose_join(const ks_device *device, ks_plan *plan, ks_cpu_join *join)
{
    ks_cpu_chain_rows rows;
    ks_error ignored;
    if (!plan->program) {
        *join = ks_cpu_join_of(&plan->spec);
        plan->batch_max = join->rows ? KS_BATCH_MAX : 0;
        plan->workspace_bytes = join->rows ? ks_cpu_join_scratch_bytes(&plan->spec, *join) : 0;
        return join->rows > 0;
    }
    *join = (ks_cpu_join){.rows = 0};
    if (check_arena(device, plan, &ignored) != KS_OK || !ks_cpu_chain_rows_prepare(plan, &rows)) return false;
    plan->batch_max = jobs_of(APART_NS, 1 + rows.flops / FLOPS_PER_NS + rows.bytes / BYTES_PER_NS);
    plan->workspace_bytes = rows.scratch_bytes;
    return plan->batch_max > 1;
}

static bool prepare_join(const ks_device *device, ks_plan *plan)
{
    ks_cpu_join join;
    if (!choose_join(device, plan, &join)) {
        plan->join_rows = 0;
        return false;
    }
    choose(plan, join.onednn);
    if (plan->program) name_chain(plan);
    cpu_algorithm algorithm = algorithm_of(plan);
    algorithm.join = join;
    algorithm.job_ns /= plan->join_rows;
    algorithm_set(plan, &algorithm);
    plan->mapped = true;
    plan->rows_like = 1; /* as no other plan's */
    return true;
}

static ks_status cpu_prepare(ks_device *device, ks_plan *plan, ks_error *error)
{
    if (plan->join_rows && prepare_join(device, plan)) return KS_OK;
    const ks_status status = check_arena(device, plan, error);
    if (status != KS_OK) return status;
    choose(plan, !plan->program && ks_onednn_takes(&plan->spec));
    plan->workspace_bytes = plan->program ? ks_cpu_chain_prepare(plan->program) : ks_cpu_scratch_bytes(&plan->spec);
    if (plan->program) name_chain(plan);
    plan->mapped = true;
    plan->large = false;
    plan->graphs = false;
    plan->rows_like = 0; /* free dimensions are outer loops */
    plan->batch_max = jobs_of(BATCH_NS, algorithm_of(plan).job_ns);
    return KS_OK;
}

static ks_status cpu_capture(ks_lane *lane, ks_plan *plan, int bucket, ks_error *error)
{
    (void)lane, (void)plan, (void)bucket, (void)error;
    return KS_OK; /* there are no graphs; plan->graphs says so */
}

/* A lane keeps nothing of a plan. */
static void cpu_forget(ks_lane *lane, ks_plan *plan)
{
    (void)lane, (void)plan;
}

/* tuning.revision */
static void cpu_revision(const ks_device *device, char *out, size_t cap)
{
    (void)device;
    snprintf(out, cap, "%s", ks_onednn_version());
}

/* tuning.list. An algorithm is one byte: an index of algorithm_names. */
static int cpu_list(ks_device *device, const ks_plan *plan, ks_algorithm *out, int most)
{
    (void)device;
    if (most < 2 || plan->program || !ks_onednn_takes(&plan->spec)) return 0;
    for (int i = 0; i < 2; i++) {
        const int which = 1 - i; /* prepare picks oneDNN where it can */
        memset(&out[i], 0, sizeof out[i]);
        snprintf(out[i].kernel, sizeof out[i].kernel, "%s", algorithm_names[which]);
        out[i].algorithm[0] = (unsigned char)which;
    }
    return 2;
}

/* tuning.adopt */
static ks_status cpu_adopt(ks_device *device, ks_plan *plan, const ks_algorithm *algorithm, ks_error *error)
{
    (void)device;
    const unsigned char which = algorithm->algorithm[0];
    if (which > 1 || (which == 1 && !ks_onednn_takes(&plan->spec)))
        return ks_fail(error, KS_CONFIG, "%s: way %d is none of the CPU's", plan->spec.op->name, which);
    choose(plan, which == 1);
    return KS_OK;
}

static const ks_tuning tuning = {.revision = cpu_revision, .list = cpu_list, .adopt = cpu_adopt};

/* --- lanes -------------------------------------------------------------------------------------------------------- */

static void find_inputs(const ks_spec *spec, const ks_slot *slot, const void **in)
{
    const ks_places *places = slot->places;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        in[i] = spec->in[i].fixed ? spec->in[i].fixed : slot->in + (places ? places->in[i] : spec->in[i].offset);
}

static void find_tensors(const ks_spec *spec, const ks_slot *slot, const void **in, void **out)
{
    find_inputs(spec, slot, in);
    for (int i = 0; i < spec->outputs; i++)
        out[i] = slot->out_window[i] ? slot->out_window[i]
                                     : slot->out + (slot->places ? slot->places->out[i] : spec->out[i].offset);
}

static bool run_chain(const ks_lane *lane, const ks_plan *plan, const ks_slot *slot, ks_bad_value *bad)
{
    const void *in[KS_INPUTS_MAX];
    void *out[KS_OUTPUTS_MAX];
    const ks_cpu_chain_memory memory = {.arena = ks_cpu_arena_memory(&lane->arena), .scratch = lane->scratch};
    find_tensors(&plan->spec, slot, in, out);
    return ks_cpu_chain_run(plan->program, in, out, &memory,
                            &(ks_cpu_chain_note){.step_ns = lane->batch->step_ns, .bad = bad});
}

/* false: steps of a chain have refused values. */
static bool run_job(const ks_lane *lane, const ks_plan *plan, const ks_slot *slot, ks_bad_value *bad)
{
    const ks_spec *spec = &plan->spec;
    const void *in[KS_OP_INPUTS_MAX] = {NULL};
    void *out[KS_OP_OUTPUTS_MAX] = {NULL};
    if (plan->program) return run_chain(lane, plan, slot, bad);
    find_tensors(spec, slot, in, out);
    if (!lane->onednn || !ks_onednn_run(spec, in, out[0])) ks_cpu_reference(spec, in, out, lane->scratch);
    return true;
}

/* A job whose values decide is not run where one of them is out of bounds. */
static void run_checked(const ks_lane *lane, ks_batch *batch, int i)
{
    const ks_spec *spec = &batch->plan->spec;
    bool refused = false;
    batch->bad[i].input = 0;
    if (ks_decides(spec) && spec->op->check) {
        const void *in[KS_OP_INPUTS_MAX] = {NULL};
        find_inputs(spec, batch->slots[i], in);
        refused = spec->op->check(spec, in, &batch->bad[i]);
    }
    if (!refused) refused = !run_job(lane, batch->plan, batch->slots[i], &batch->bad[i]);
    batch->refused = batch->refused || refused;
}

/* Operands and output of a trial behind one another: as large as the sides of a slot. */
static size_t trial_bytes(const ks_plan *plan)
{
    return ks_align(plan->in_bytes + KS_PAD) + ks_align(plan->out_bytes + KS_PAD);
}

/* FP32 of magnitude 0.5 to 1 and either sign: only products of that datatype have two ways here. */
static void fill_operands(unsigned char *in, size_t bytes)
{
    uint32_t word = 1;
    for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
        word = word * 1664525u + 1013904223u;
        const uint32_t value = (word & 0x807FFFFFu) | 0x3F000000u;
        memcpy(in + i, &value, sizeof value);
    }
}

static void run_trial(ks_lane *lane)
{
    const ks_plan *plan = lane->batch->plan;
    unsigned char *in = lane->operands, *out = in + ks_align(plan->in_bytes + KS_PAD);
    const ks_slot slot = {.in = in, .out = out};
    fill_operands(in, plan->in_bytes);
    lane->begun_ns = now_ns();
    ks_bad_value bad; /* drawn operands are never refused: chains have no trials */
    for (int i = 0; i < lane->batch->trial; i++) run_job(lane, plan, &slot, &bad);
    lane->done_ns = now_ns();
    atomic_store_explicit(&lane->state, LANE_DONE, memory_order_release);
}

static void run_joined(const ks_lane *lane, ks_batch *batch)
{
    const ks_cpu_chain_memory memory = {.arena = ks_cpu_arena_memory(&lane->arena), .scratch = lane->scratch};
    if (batch->plan->program)
        ks_cpu_chain_rows_run(batch, &memory);
    else
        ks_cpu_join_run(batch, lane->join, lane->scratch);
}

static void run_batch(ks_lane *lane, int64_t begun_ns)
{
    const ks_batch *batch = lane->batch;
    if (batch->trial) {
        run_trial(lane);
        return;
    }
    lane->begun_ns = begun_ns;
    if (batch->plan->join_rows)
        run_joined(lane, lane->batch);
    else
        for (int i = 0; i < batch->count; i++) run_checked(lane, lane->batch, i);
    lane->done_ns = now_ns();
    atomic_store_explicit(&lane->state, LANE_DONE, memory_order_release);
}

static void *work(void *context)
{
    ks_lane *lane = context;
    atomic_store_explicit(&lane->task, gettid(), memory_order_relaxed);
    for (;;) {
        while (sem_wait(&lane->mailbox) != 0) {
        }
        if (lane->stop) return NULL;
        const int wake_fd = lane->wake_fd; /* the lane is the shard's again as soon as run_batch has said so */
        run_batch(lane, now_ns());
        const uint64_t one = 1;
        if (wake_fd >= 0 && TEMP_FAILURE_RETRY(write(wake_fd, &one, sizeof one)) < 0) {
            /* The counter is full: the shard has wake-ups enough. */
        }
    }
}

static ks_status cpu_lane_open(ks_device *device, int index, int wake_fd, ks_lane **out, ks_error *error)
{
    ks_lane *lane = calloc(1, sizeof *lane);
    if (!lane) return ks_fail(error, KS_MEMORY, "no memory for lane %d", index);
    lane->device = device;
    lane->wake_fd = wake_fd;
    sem_init(&lane->mailbox, 0, 0);
    /* Signals are for the daemon's own threads. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int failure = pthread_create(&lane->thread, NULL, work, lane);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failure) {
        sem_destroy(&lane->mailbox);
        free(lane);
        return ks_fail(error, KS_MEMORY, "cannot start the thread of lane %d: %s", index, strerror(failure));
    }
    ks_cpu_arena_open(&device->arenas, &lane->arena);
    char name[16];
    snprintf(name, sizeof name, "ks-lane-%d", index);
    pthread_setname_np(lane->thread, name);
    *out = lane;
    return KS_OK;
}

static void cpu_lane_close(ks_lane **lane)
{
    ks_lane *closing = *lane;
    if (!closing) return;
    *lane = NULL;
    /* A batch that still runs ends first; after it the worker finds the second post and stop. */
    while (atomic_load_explicit(&closing->state, memory_order_acquire) == LANE_RUNNING)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    closing->stop = true;
    sem_post(&closing->mailbox);
    pthread_join(closing->thread, NULL);
    sem_destroy(&closing->mailbox);
    ks_cpu_arena_close(&closing->device->arenas, &closing->arena);
    free(closing->operands);
    free(closing->scratch);
    free(closing);
}

/* Scratch only grows: after a lane's first job of the hungriest plan it is never allocated again. */
static ks_status grow_scratch(ks_lane *lane, size_t bytes, ks_error *error)
{
    if (bytes <= lane->scratch_bytes) return KS_OK;
    void *scratch = aligned_alloc(KS_ALIGNMENT, ks_align(bytes));
    if (!scratch) return ks_fail(error, KS_MEMORY, "no memory for %zu bytes of scratch", bytes);
    free(lane->scratch);
    lane->scratch = scratch;
    lane->scratch_bytes = ks_align(bytes);
    return KS_OK;
}

static ks_status cpu_launch(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    assert(atomic_load_explicit(&lane->state, memory_order_relaxed) == LANE_FREE);
    assert(batch->trial > 0 || (batch->count >= 1 && batch->count <= KS_BATCH_MAX));
    const size_t arena = batch->plan->program ? ks_cpu_chain_arena_bytes(batch->plan->program) : 0;
    ks_status status = grow_scratch(lane, batch->plan->workspace_bytes, error);
    if (status == KS_OK && arena) status = ks_cpu_arena_take(&lane->arena, arena, error);
    if (status != KS_OK) return status;
    if (batch->trial) {
        lane->operands = aligned_alloc(KS_ALIGNMENT, trial_bytes(batch->plan));
        if (!lane->operands)
            return ks_fail(error, KS_MEMORY, "no memory for %zu bytes of a trial", trial_bytes(batch->plan));
    }
    const cpu_algorithm algorithm = algorithm_of(batch->plan);
    batch->graph = KS_GRAPH_NONE;
    lane->batch = batch;
    lane->onednn = algorithm.onednn;
    lane->join = algorithm.join;
    lane->launched_ns = now_ns();
    lane->likely_ns = (int64_t)(algorithm.job_ns * work_of(batch));
    lane->first_used_ns = lane->last_used_ns = -1;
    if (!batch->trial && algorithm.job_ns * work_of(batch) < INLINE_NS) {
        run_batch(lane, lane->launched_ns);
    } else {
        atomic_store_explicit(&lane->state, LANE_RUNNING, memory_order_relaxed);
        sem_post(&lane->mailbox);
    }
    return KS_OK;
}

static ks_poll cpu_poll(ks_lane *lane, ks_error *error)
{
    (void)error;
    const int state = atomic_load_explicit(&lane->state, memory_order_acquire);
    assert(state != LANE_FREE);
    if (state == LANE_RUNNING) return KS_RUNNING;
    ks_batch *batch = lane->batch;
    batch->h2d_ns = batch->d2h_ns = 0;
    batch->compute_ns = lane->done_ns - lane->launched_ns;
    batch->kernel_ns = lane->done_ns - lane->begun_ns;
    ks_cpu_arena_give(&lane->arena);
    if (batch->trial) {
        batch->kernel_ns /= batch->trial;
        free(lane->operands);
        lane->operands = NULL;
        lane->batch = NULL;
        atomic_store_explicit(&lane->state, LANE_FREE, memory_order_relaxed);
        return KS_DONE;
    }
    /* An eighth of the news, and no news is above twice the old: a run that was preempted for milliseconds must not send a
     * small plan to the worker. Without the hand-over, or none would ever come back from there. */
    cpu_algorithm algorithm = algorithm_of(batch->plan);
    const double news_ns = (double)batch->kernel_ns / work_of(batch);
    algorithm.job_ns += ((news_ns < 2 * algorithm.job_ns ? news_ns : 2 * algorithm.job_ns) - algorithm.job_ns) / 8;
    algorithm_set(batch->plan, &algorithm);
    lane->batch = NULL;
    atomic_store_explicit(&lane->state, LANE_FREE, memory_order_relaxed);
    return KS_DONE;
}

/* backend.goes_on */
static bool cpu_goes_on(ks_lane *lane, int64_t stall_ns)
{
    const int64_t used = ks_cpu_used_ns(lane->thread), last = lane->last_used_ns;
    lane->last_used_ns = used;
    if (lane->first_used_ns < 0) {
        lane->first_used_ns = used;
        return true;
    }
    if (used != last) return used - lane->first_used_ns <= stall_ns + ENDLESS * lane->likely_ns;
    return !ks_cpu_is_asleep(atomic_load_explicit(&lane->task, memory_order_relaxed));
}

static const ks_backend backend = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .slot_init = cpu_slot_init,
    .slot_fini = cpu_slot_fini,
    .lane_open = cpu_lane_open,
    .lane_close = cpu_lane_close,
    .prepare = cpu_prepare,
    .capture = cpu_capture,
    .forget = cpu_forget,
    .launch = cpu_launch,
    .poll = cpu_poll,
    .goes_on = cpu_goes_on,
    .failed = cpu_failed,
    .probe = &ks_cpu_probe,
    .tuning = &tuning,
    .resident = &ks_cpu_resident,
    .chains = &ks_cpu_chain_means,
};

const ks_backend *const ks_backend_cpu = &backend;
