#include "ops/op_harness.h"

#include "kernserve/chain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATHS = 3, GUARD = 256, STALL_S = 60 };
static const unsigned char OUT_POISON = 0xFF, GUARD_BYTE = 0x5A;

/* One opened device with one lane; slots are kept while they are large enough. */
typedef struct bench {
    ks_device *device;
    ks_lane *lane;
    ks_slot slots[KS_BATCH_MAX];
    int slots_count;
    ks_slot fixed[KS_INPUTS_MAX]; /* whose in side holds a fixed input */
    uint64_t last_plan;
} bench;

struct op_harness {
    const ks_backend *backend;
    size_t arena_bytes;
    int algorithm;             /* -1: as planned */
    unsigned fix;              /* inputs, as bits */
    const void *const *spoilt; /* the inputs of every other job; NULL: as the first one's */
    bench benches[PATHS];      /* by op_path; the two special ones are opened when they are asked for */
};

static ks_status open_bench(op_harness *harness, op_path path, bench **out, ks_error *error)
{
    bench *b = &harness->benches[path];
    *out = b;
    if (b->lane) return KS_OK;
    const ks_limits limits = {
        .device_index = -1,
        .lanes = 1,
        .lane_bytes = harness->arena_bytes,
        .large_bytes = harness->arena_bytes,
        .workspace_bytes = harness->arena_bytes,
        .model_bytes = harness->arena_bytes,
        .stream_bytes = 1, /* nothing is streamed: no pool, of which several processes would fill a device */
        .mapped_max = path == OP_PATH_COPIES   ? 0
                      : path == OP_PATH_MAPPED ? SIZE_MAX / 2
                                               : SIZE_MAX,
        .pinned_must = true,
        .cublaslt = getenv("KS_CUBLASLT"),
    };
    ks_status status = KS_OK;
    if (!b->device) status = harness->backend->open(&limits, &b->device, error);
    if (status == KS_OK) status = harness->backend->lane_open(b->device, 0, -1, &b->lane, error);
    return status;
}

op_harness *op_harness_open(const ks_backend *backend, size_t arena_bytes)
{
    if (!backend) return NULL;
    op_harness *harness = calloc(1, sizeof *harness);
    if (!harness) return NULL;
    harness->backend = backend;
    harness->arena_bytes = arena_bytes;
    harness->algorithm = -1;
    bench *b;
    ks_error error;
    if (open_bench(harness, OP_PATH_PLANNED, &b, &error) == KS_OK) return harness;
    fprintf(stderr, "%s: %s\n", backend->name, error.text);
    op_harness_close(&harness);
    return NULL;
}

static void drop_slots(op_harness *harness, bench *b)
{
    while (b->slots_count > 0) harness->backend->slot_fini(b->device, &b->slots[--b->slots_count]);
}

void op_harness_close(op_harness **harness)
{
    op_harness *closing = *harness;
    if (!closing) return;
    *harness = NULL;
    for (int i = 0; i < PATHS; i++) {
        bench *b = &closing->benches[i];
        if (b->lane) closing->backend->lane_close(&b->lane);
        drop_slots(closing, b);
        for (int in = 0; in < KS_INPUTS_MAX; in++)
            if (b->fixed[in].memory) closing->backend->slot_fini(b->device, &b->fixed[in]);
        if (b->device) closing->backend->close(&b->device);
    }
    free(closing);
}

static ks_status need_slots(op_harness *harness, bench *b, size_t in_bytes, size_t out_bytes, int count,
                            ks_error *error)
{
    if (b->slots_count && (b->slots[0].in_cap < in_bytes || b->slots[0].out_cap < out_bytes)) drop_slots(harness, b);
    while (b->slots_count < count) {
        /* All alike, as in a size class: the next one may not be smaller than those there are. */
        const size_t in = b->slots_count ? b->slots[0].in_cap : in_bytes;
        const size_t out = b->slots_count ? b->slots[0].out_cap : out_bytes;
        const ks_status status =
            harness->backend->slot_init(b->device, in, out, true, &b->slots[b->slots_count], error);
        if (status != KS_OK) return status;
        b->slots_count++;
    }
    return KS_OK;
}

static size_t fixed_at(int input)
{
    return (size_t)(1 + input) * KS_ALIGNMENT;
}

static size_t row_bytes(const ks_tensor *tensor)
{
    return tensor->pitch ? (size_t)tensor->dims[tensor->rank - 1] * ks_dtype_size(tensor->dtype) : tensor->size_bytes;
}

/* From one row's start to the next; of a tensor without a pitch all of it is one row. */
static size_t apart(const ks_tensor *tensor)
{
    return tensor->pitch ? (size_t)tensor->pitch * ks_dtype_size(tensor->dtype) : tensor->size_bytes;
}

static size_t held_bytes(const ks_tensor *tensor)
{
    return tensor->size_bytes == 0 ? 0 : tensor->size_bytes / row_bytes(tensor) * apart(tensor);
}

static void put_rows(unsigned char *to, const unsigned char *from, const ks_tensor *tensor)
{
    const size_t bytes = row_bytes(tensor), step = apart(tensor);
    for (size_t at = 0; at < tensor->size_bytes; at += bytes, to += step) memcpy(to, from + at, bytes);
}

static bool has_rows(const unsigned char *there, const unsigned char *wanted, const ks_tensor *tensor)
{
    const size_t bytes = row_bytes(tensor), step = apart(tensor);
    for (size_t at = 0; at < tensor->size_bytes; at += bytes, there += step)
        if (memcmp(there, wanted + at, bytes) != 0) return false;
    return true;
}

/* As the operation would have it, where that is asked for; ways to choose from are those of rows that follow each other. */
static int64_t pitch_of(const op_harness *harness, const ks_spec *spec, int input)
{
    const bool pitched = harness->fix & OP_HARNESS_PITCHED && harness->algorithm < 0 && spec->op->pitch &&
                         !spec->op->inputs[input].small && !spec->op->inputs[input].as_it_is;
    return pitched ? spec->op->pitch(&spec->in[input]) : 0;
}

/* The spec with its fixed inputs in their places. What lies between rows is zero, as ks_resident.take leaves it. */
static ks_status fix_inputs(op_harness *harness, bench *b, ks_spec *spec, ks_error *error)
{
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        ks_slot *slot = &b->fixed[i];
        if (!(harness->fix >> i & 1)) continue;
        spec->in[i].pitch = pitch_of(harness, spec, i);
        const size_t bytes = fixed_at(i) + held_bytes(&spec->in[i]);
        if (slot->memory && slot->in_cap < bytes) harness->backend->slot_fini(b->device, slot);
        ks_status status = KS_OK;
        if (!slot->memory) status = harness->backend->slot_init(b->device, bytes, 1, true, slot, error);
        if (status != KS_OK) return status;
        memset(slot->in + fixed_at(i), 0, held_bytes(&spec->in[i]));
        spec->in[i].fixed = (unsigned char *)slot->in_device + fixed_at(i);
    }
    if (harness->fix & spec->given) ks_spec_layout(spec);
    return KS_OK;
}

/* Where an input lies as the host sees it. */
static unsigned char *place_of(const bench *b, const ks_slot *slot, const ks_spec *spec, int input)
{
    return spec->in[input].fixed ? b->fixed[input].in + fixed_at(input) : slot->in + spec->in[input].offset;
}

/* The way to every byte that no kernel may touch: in front of the output (but for the backend's line), behind it, and
 * all of the input. */
static void fill_slot(const bench *b, const ks_slot *slot, const ks_spec *spec, const void *const *inputs)
{
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        put_rows(place_of(b, slot, spec, i), inputs[i], &spec->in[i]);
    memset(slot->out - KS_HEAD_ROOM, GUARD_BYTE, KS_HEAD_ROOM);
    memset(slot->out, OUT_POISON, ks_spec_out_bytes(spec));
    memset(slot->out + ks_spec_out_bytes(spec), GUARD_BYTE, GUARD);
}

static ks_status check_slot(const bench *b, const ks_slot *slot, const ks_spec *spec, const void *const *inputs,
                            ks_error *error)
{
    for (int i = 0; i < KS_HEAD_ROOM - KS_COMPLETION_BYTES; i++)
        if (slot->out[i - KS_HEAD_ROOM] != GUARD_BYTE)
            return ks_fail(error, KS_DEVICE, "%s wrote %d bytes in front of its output", spec->op->name,
                           KS_HEAD_ROOM - i);
    for (size_t i = 0; i < GUARD; i++)
        if (slot->out[ks_spec_out_bytes(spec) + i] != GUARD_BYTE)
            return ks_fail(error, KS_DEVICE, "%s wrote %zu bytes behind its output of %zu", spec->op->name, i + 1,
                           ks_spec_out_bytes(spec));
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        if (!has_rows(place_of(b, slot, spec, i), inputs[i], &spec->in[i]))
            return ks_fail(error, KS_DEVICE, "%s changed its input %d", spec->op->name, i);
    return KS_OK;
}

static ks_status wait_done(op_harness *harness, bench *b, ks_error *error)
{
    const time_t give_up = time(NULL) + STALL_S;
    ks_error fault = {.status = KS_DEVICE, .text = "poll failed and did not say why"};
    for (;;) {
        const ks_poll poll = harness->backend->poll(b->lane, &fault);
        if (poll == KS_DONE) return KS_OK;
        if (poll == KS_FAILED) {
            if (error) *error = fault;
            return fault.status;
        }
        if (time(NULL) > give_up) return ks_fail(error, KS_DEVICE, "not done after %d s", STALL_S);
        nanosleep(&(struct timespec){.tv_nsec = 2000}, NULL);
    }
}

static bool is_spoilt(const op_harness *harness, int job)
{
    return harness->spoilt && job % 2;
}

static const void *const *inputs_of(const op_harness *harness, const void *const *inputs, int job)
{
    return is_spoilt(harness, job) ? harness->spoilt : inputs;
}

/* Of a batch that is done: all jobs' values are refused alike, or those of the spoilt ones alone. */
static ks_status check_refused(const op_harness *harness, const ks_batch *batch, ks_error *error)
{
    const ks_spec *spec = &batch->plan->spec;
    const bool all = batch->refused && batch->bad[0].input != 0;
    for (int i = 0; i < batch->count; i++) {
        const ks_bad_value *bad = &batch->bad[i];
        const bool refused = batch->refused && bad->input != 0;
        if (refused != (all || is_spoilt(harness, i)))
            return ks_fail(error, KS_DEVICE, "%s: job %d of %d is %srefused", spec->op->name, i, batch->count,
                           refused ? "" : "not ");
        if (all && (bad->input != batch->bad[0].input || bad->place != batch->bad[0].place ||
                    bad->value != batch->bad[0].value))
            return ks_fail(error, KS_DEVICE, "%s: equal jobs are refused for different values", spec->op->name);
    }
    return all ? spec->op->refuse(spec, &batch->bad[0], error) : KS_OK;
}

/* The steps of a chain that ran without a graph were timed, one by one, unless one of them was refused. */
static ks_status check_steps(const ks_batch *batch, ks_error *error)
{
    int64_t sum_ns = 0;
    for (int i = 0; batch->step_ns && i < batch->plan->program->count; i++) {
        if (batch->step_ns[i] < 0)
            return ks_fail(error, KS_DEVICE, "step %d of %d has no time", i, batch->plan->program->count);
        sum_ns += batch->step_ns[i];
    }
    if (batch->step_ns && (sum_ns == 0 || sum_ns > batch->compute_ns))
        return ks_fail(error, KS_DEVICE, "the steps took %lld ns, the launch %lld", (long long)sum_ns,
                       (long long)batch->compute_ns);
    return KS_OK;
}

/* The slots are there and filled. */
static ks_status run_plan(op_harness *harness, bench *b, ks_plan *plan, int copies, bool captured, ks_error *error)
{
    const ks_backend *backend = harness->backend;
    if (captured && plan->graphs) {
        const ks_status status = backend->capture(b->lane, plan, ks_bucket(copies), error);
        if (status != KS_OK) return status;
    }
    ks_batch *batch = calloc(1, sizeof *batch);
    if (!batch) return ks_fail(error, KS_MEMORY, "no memory for a batch");
    batch->plan = plan;
    batch->count = copies;
    for (int i = 0; i < copies; i++) batch->slots[i] = &b->slots[i];
    int64_t step_ns[KS_CHAIN_STEPS_MAX];
    memset(step_ns, -1, sizeof step_ns);
    if (plan->program && copies == 1 && !captured) batch->step_ns = step_ns;
    ks_status status = backend->launch(b->lane, batch, error);
    if (status == KS_OK) status = wait_done(harness, b, error);
    if (status == KS_OK && !batch->refused) status = check_steps(batch, error);
    if (status == KS_OK && captured && plan->graphs && batch->graph != KS_GRAPH_HIT)
        status = ks_fail(error, KS_DEVICE, "the captured graph of %d jobs was not used", copies);
    if (status == KS_OK) status = check_refused(harness, batch, error);
    free(batch);
    return status;
}

static ks_status check_all(const op_harness *harness, const bench *b, const ks_spec *spec, const void *const *inputs,
                           int copies, ks_error *error)
{
    for (int i = 0; i < copies; i++) {
        const ks_status status = check_slot(b, &b->slots[i], spec, inputs_of(harness, inputs, i), error);
        if (status != KS_OK) return status;
        if (is_spoilt(harness, i)) continue;
        for (int o = 0; o < spec->outputs; o++)
            if (memcmp(b->slots[i].out + spec->out[o].offset, b->slots[0].out + spec->out[o].offset,
                       spec->out[o].size_bytes) != 0)
                return ks_fail(error, KS_DEVICE, "job %d of %d equal ones gives other bytes than job 0", i, copies);
    }
    return KS_OK;
}

static void make_plan(bench *b, const ks_spec *spec, ks_plan *plan)
{
    memset(plan, 0, sizeof *plan);
    memcpy(&plan->spec, spec, sizeof *spec);
    plan->id = ++b->last_plan;
    plan->batch_max = 1;
    plan->in_bytes = ks_spec_in_bytes(spec);
    plan->out_bytes = ks_spec_out_bytes(spec);
}

/* The algorithms of a prepared plan, in memory of the caller's to free; NULL: memory. */
static ks_algorithm *list_candidates(op_harness *harness, bench *b, const ks_plan *plan, int *count)
{
    ks_algorithm *candidates = calloc(KS_CANDIDATES_MAX, sizeof *candidates);
    const ks_tuning *tuning = harness->backend->tuning;
    *count = candidates && tuning ? tuning->list(b->device, plan, candidates, KS_CANDIDATES_MAX) : 0;
    return candidates;
}

static ks_status prepare_as_planned(op_harness *harness, bench *b, const ks_spec *spec, ks_plan *plan, ks_error *error)
{
    make_plan(b, spec, plan);
    const ks_status status =
        spec->op->chain ? ks_program_make(spec, harness->backend->chains, &plan->program, error) : KS_OK;
    return status == KS_OK ? harness->backend->prepare(b->device, plan, error) : status;
}

/* Prepared, and by the way that was chosen among those that the spec has with every input in the slot. */
static ks_status prepare_plan(op_harness *harness, bench *b, const ks_spec *spec, ks_plan *plan, ks_error *error)
{
    if (harness->algorithm < 0) return prepare_as_planned(harness, b, spec, plan, error);
    int count;
    ks_spec open = *spec;
    ks_spec_unfix(&open);
    ks_status status = prepare_as_planned(harness, b, &open, plan, error);
    if (status != KS_OK) return status;
    ks_algorithm *candidates = list_candidates(harness, b, plan, &count);
    if (ks_spec_fixed(spec)) status = prepare_as_planned(harness, b, spec, plan, error);
    if (status == KS_OK && harness->algorithm < count)
        status = harness->backend->tuning->adopt(b->device, plan, &candidates[harness->algorithm], error);
    else if (status == KS_OK)
        status = ks_fail(error, KS_CONFIG, "way %d of %d", harness->algorithm, count);
    free(candidates);
    return status;
}

int op_harness_candidates(op_harness *harness, const ks_spec *spec, op_path path)
{
    bench *b;
    ks_error error;
    int count = 0;
    ks_plan *plan = malloc(sizeof *plan);
    if (!plan || open_bench(harness, path, &b, &error) != KS_OK) {
        free(plan);
        return 0;
    }
    make_plan(b, spec, plan);
    if (harness->backend->prepare(b->device, plan, &error) == KS_OK) {
        free(list_candidates(harness, b, plan, &count));
        harness->backend->forget(b->lane, plan);
    }
    free(plan);
    return count;
}

int op_harness_batch(op_harness *harness, const ks_spec *spec, op_path path)
{
    bench *b;
    ks_error error;
    int most = 0;
    ks_plan *plan = malloc(sizeof *plan);
    if (plan && open_bench(harness, path, &b, &error) == KS_OK &&
        prepare_plan(harness, b, spec, plan, &error) == KS_OK) {
        most = (int)plan->batch_max;
        harness->backend->forget(b->lane, plan);
    }
    free(plan);
    return most;
}

void op_harness_choose(op_harness *harness, int algorithm)
{
    harness->algorithm = algorithm;
}

void op_harness_spoil(op_harness *harness, const void *const *inputs)
{
    harness->spoilt = inputs;
}

void op_harness_fix(op_harness *harness, unsigned inputs)
{
    harness->fix = inputs;
}

ks_status op_harness_trial(op_harness *harness, const ks_spec *spec, op_path path, int runs, int64_t *run_ns,
                           ks_error *error)
{
    bench *b;
    ks_status status = open_bench(harness, path, &b, error);
    ks_plan *plan = malloc(sizeof *plan);
    ks_batch *batch = calloc(1, sizeof *batch);
    if (status == KS_OK && (!plan || !batch)) status = ks_fail(error, KS_MEMORY, "no memory for a trial");
    if (status == KS_OK) status = prepare_plan(harness, b, spec, plan, error);
    if (status == KS_OK) {
        batch->plan = plan;
        batch->trial = runs;
        status = harness->backend->launch(b->lane, batch, error);
        if (status == KS_OK) status = wait_done(harness, b, error);
        *run_ns = batch->kernel_ns;
        harness->backend->forget(b->lane, plan);
    }
    free(batch);
    free(plan);
    return status;
}

static ks_status run_spec(op_harness *harness, bench *b, const ks_spec *spec, const void *const *inputs, ks_plan *plan,
                          int copies, bool captured, ks_error *error)
{
    ks_status status = prepare_plan(harness, b, spec, plan, error);
    if (status != KS_OK) return status;
    if (copies > plan->batch_max) copies = plan->batch_max;
    if (copies < 1) copies = 1;
    status = need_slots(harness, b, plan->in_bytes, plan->out_bytes + GUARD, copies, error);
    if (status == KS_OK) {
        for (int i = 0; i < copies; i++) fill_slot(b, &b->slots[i], spec, inputs_of(harness, inputs, i));
        status = run_plan(harness, b, plan, copies, captured, error);
    }
    if (status == KS_OK || status == KS_RANGE) {
        const ks_status beside = check_all(harness, b, spec, inputs, copies, error);
        if (beside != KS_OK) status = beside;
    }
    harness->backend->forget(b->lane, plan);
    return status;
}

ks_status op_harness_run(op_harness *harness, const ks_spec *spec, const void *const *inputs, void *output,
                         op_path path, int copies, bool captured, ks_error *error)
{
    bench *b;
    ks_status status = open_bench(harness, path, &b, error);
    if (status != KS_OK) return status;
    if (spec->out[0].size_bytes == 0) return KS_OK; /* never reaches a backend */
    ks_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return ks_fail(error, KS_MEMORY, "no memory for a plan");
    ks_spec fixed = *spec;
    status = fix_inputs(harness, b, &fixed, error);
    if (status == KS_OK) status = run_spec(harness, b, &fixed, inputs, plan, copies, captured, error);
    if (status == KS_OK) memcpy(output, b->slots[0].out, ks_spec_out_bytes(spec));
    ks_program_free(&plan->program);
    free(plan);
    return status;
}

bool op_harness_once(const ks_backend *backend, size_t arena_bytes, const ks_spec *spec, const void *const *inputs,
                     void *output, ks_error *error)
{
    op_harness *harness = backend ? op_harness_open(backend, arena_bytes) : NULL;
    if (!harness) return false;
    *error = (ks_error){0};
    error->status = op_harness_run(harness, spec, inputs, output, OP_PATH_PLANNED, 1, false, error);
    op_harness_close(&harness);
    return true;
}
