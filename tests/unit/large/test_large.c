/* Large requests in pieces: on the CPU, where a stream is one slot; on a device with memory of its own
 * (fake/backend_streaming.c), where bytes pass a ring; and on CUDA where there is one. Every test ends with no area, no piece under way and no byte taken. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake/backend_streaming.h"
#include "base/clock.h"
#include "large/large.h"
#include "cpu/reference.h"
#include "ops/op_wide.h"
#include "kernserve/backends.h"

enum { STREAMS = 16, SIDE = 4096, CHUNK = 32768, BUDGET = 64 << 20 };
static const int64_t LONG_NS = 60000000000;

static struct {
    const ks_backend *backend;
    ks_device *device;
    ks_budget *budget;
    ks_engine *engine;
    ks_large_requests *streams;
    ks_large_request stream[STREAMS];
    ks_job job[STREAMS];
    ks_error fault[STREAMS];
    bool running[STREAMS];
    int wake_fd;
    int64_t stall_ns; /* 0: a long time */
    uint64_t random;
} bed;

static uint64_t random_next(void)
{
    bed.random ^= bed.random << 13, bed.random ^= bed.random >> 7, bed.random ^= bed.random << 17;
    return bed.random;
}

/* --- the bed ------------------------------------------------------------------------------------------------------- */

static void open_bed(void **state, size_t pool, int queue_max)
{
    const ks_backend *backend = *state;
    ks_error error;
    if (!backend) skip();
    memset(bed.stream, 0, sizeof bed.stream);
    memset(bed.job, 0, sizeof bed.job);
    memset(bed.running, 0, sizeof bed.running);
    streaming_reset();
    bed.backend = backend;
    bed.budget = ks_budget_open(backend->large ? BUDGET : pool);
    bed.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const ks_limits limits = {.device_index = -1,
                              .lanes = 2,
                              .lane_bytes = 2 * SIDE,
                              .workspace_bytes = 32 << 20,
                              .stream_bytes = pool,
                              .mapped_max = SIDE};
    assert_int_equal(backend->open(&limits, &bed.device, &error), KS_OK);
    const ks_engine_options options = {.backend = backend,
                                       .device = bed.device,
                                       .budget = bed.budget,
                                       .lanes = 2,
                                       .classes = 1,
                                       .size_class = {{.side_bytes = SIDE, .count = 4}},
                                       .pinned = true,
                                       .plan_bytes = 1 << 20,
                                       .queue_max = queue_max,
                                       .stall_ns = bed.stall_ns ? bed.stall_ns : LONG_NS,
                                       .scrub = true,
                                       .wake_fd = bed.wake_fd};
    assert_int_equal(ks_engine_open(&options, &bed.engine, &error), KS_OK);
    assert_int_equal(ks_large_requests_open(bed.engine, &bed.streams, &error), KS_OK);
}

static ks_engine_stats stats(void)
{
    ks_engine_stats read;
    ks_engine_read_stats(bed.engine, &read);
    return read;
}

static void close_bed(void)
{
    assert_int_equal(stats().streams_open, 0);
    assert_int_equal(stats().streams_waiting, 0);
    assert_int_equal(stats().stream_bytes, 0);
    ks_large_requests_close(&bed.streams);
    assert_int_equal(streaming_read().device_buffers, 0);
    assert_int_equal(streaming_read().under_way, 0);
    ks_engine_close(&bed.engine);
    assert_int_equal(ks_budget_used(bed.budget), 0);
    bed.backend->close(&bed.device);
    ks_budget_close(&bed.budget);
    close(bed.wake_fd);
}

static ks_spec spec_of(const char *name, int64_t rows, int64_t cols)
{
    ks_spec spec;
    ks_error error;
    ks_spec_init(&spec, ks_op_find(name, strlen(name)));
    for (int i = ks_next_input(&spec, -1); i >= 0; i = ks_next_input(&spec, i))
        spec.in[i] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {i ? cols : rows, i ? rows : cols}};
    for (int i = ks_next_input(&spec, -1); i >= 0; i = ks_next_input(&spec, i))
        assert_int_equal(ks_tensor_measure(&spec.in[i], "x", &error), KS_OK);
    ks_spec_layout(&spec);
    assert_int_equal(spec.op->resolve(&spec, &error), KS_OK);
    return spec;
}

static size_t in_bytes(const ks_spec *spec)
{
    return ks_spec_in_bytes(spec);
}

static unsigned char *random_input(const ks_spec *spec)
{
    const size_t bytes = in_bytes(spec);
    float *values = calloc(1, bytes);
    for (size_t i = 0; i < bytes / sizeof *values; i++)
        values[i] = (float)((double)(random_next() % 20001) / 1000 - 10);
    return (unsigned char *)values;
}

static unsigned char *expected(const ks_spec *spec, const unsigned char *input)
{
    unsigned char *out = calloc(1, spec->out[0].size_bytes);
    void *scratch = malloc(ks_cpu_scratch_bytes(spec) + 1);
    const void *in[KS_INPUTS_MAX] = {NULL};
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) in[i] = input + spec->in[i].offset;
    ks_cpu_reference(spec, in, (void *const[]){out}, scratch);
    free(scratch);
    return out;
}

/* --- what a request's record does with a stream -------------------------------------------------------------------- */

static ks_status begin(int i, const ks_spec *spec, int64_t deadline_ns, ks_error *error)
{
    bed.fault[i].status = KS_OK;
    bed.job[i].fault = &bed.fault[i];
    const ks_status status = ks_large_begin(bed.streams, &bed.stream[i], spec, deadline_ns, &bed.fault[i]);
    *error = bed.fault[i];
    return status;
}

static void run_block(int i)
{
    ks_error error;
    if (bed.running[i] || !ks_large_next(&bed.stream[i], &bed.job[i])) return;
    const ks_status status = ks_engine_submit(bed.engine, &bed.job[i], &error);
    if (status == KS_QUEUE_FULL) {
        ks_large_later(&bed.stream[i]);
        return;
    }
    assert_int_equal(status, KS_OK);
    ks_large_launched(&bed.stream[i]);
    bed.running[i] = true;
}

/* A shard's turn, but for sockets. The streams' events are not looked at: everything is tried again all the time. */
static void turn(void)
{
    const int64_t now_ns = ks_now_ns();
    ks_large_requests_turn(bed.streams, now_ns);
    ks_engine_launch(bed.engine);
    for (ks_job *job = ks_engine_collect(bed.engine), *next; job; job = next) {
        next = job->next;
        const int i = (int)(job - bed.job);
        bed.running[i] = false;
        if (job->status != KS_OK) fail_msg("block: %s", job->fault->text);
        ks_large_done(&bed.stream[i], job);
        run_block(i);
    }
    for (int i = 0; i < STREAMS; i++)
        if (bed.stream[i].state == KS_LARGE_OPEN && bed.stream[i].status == KS_OK) run_block(i);
}

/* What a sender and a reader have come to. */
typedef struct client {
    const ks_spec *spec;
    unsigned char *input, *wanted, *got;
    size_t sent, read;
    bool ended;
} client;

static client make_client(const ks_spec *spec)
{
    client made = {.spec = spec, .input = random_input(spec)};
    made.wanted = expected(spec, made.input);
    made.got = calloc(1, spec->out[0].size_bytes);
    return made;
}

static void free_client(client *of)
{
    free(of->input);
    free(of->wanted);
    free(of->got);
}

/* One chunk of the body; the tensors follow each other without the gaps between them. */
static void send_some(int i, client *of, size_t most)
{
    const ks_spec *spec = of->spec;
    for (int k = ks_next_input(spec, -1); k >= 0; k = ks_next_input(spec, k)) {
        const size_t from = spec->in[k].offset, to = from + spec->in[k].size_bytes;
        if (of->sent >= to) continue;
        if (of->sent < from) of->sent = from;
        size_t n = to - of->sent, taken = 0;
        n = n < most ? n : most;
        const ks_status status =
            ks_large_write(&bed.stream[i], of->sent, (const char *)of->input + of->sent, n, &taken);
        if (status != KS_OK) fail_msg("write: %s", bed.fault[i].text);
        of->sent += taken;
        break;
    }
    run_block(i);
    if (of->sent < in_bytes(spec) || of->ended) return;
    of->ended = true;
    assert_int_equal(ks_large_finish(&bed.stream[i]), KS_OK);
    run_block(i);
}

static bool read_some(int i, client *of, size_t most)
{
    const size_t size = of->spec->out[0].size_bytes;
    if (!ks_large_is_done(&bed.stream[i])) return false;
    if (!ks_large_is_remote(&bed.stream[i])) {
        memcpy(of->got, ks_large_out(&bed.stream[i]), size);
        of->read = size;
    } else {
        const char *bytes;
        const size_t there = ks_large_view(&bed.stream[i], of->read, &bytes), n = there < most ? there : most;
        if (n > 0) {
            memcpy(of->got + of->read, bytes, n);
            ks_large_used(&bed.stream[i], n);
        }
        of->read += n;
        assert_int_equal(bed.stream[i].status, KS_OK);
    }
    return of->read == size;
}

static void leave(int i)
{
    while (bed.running[i]) turn();
    while (!ks_large_leave(&bed.stream[i])) turn();
}

/* The CPU's results are the reference's own. Another device's are near them, and those of rows that are computed twice
 * are the same both times, or some row would be torn. */
static void check_values(const client *of)
{
    const float *got = (const float *)(void *)of->got, *wanted = (const float *)(void *)of->wanted;
    const size_t count = of->spec->out[0].size_bytes / sizeof *got;
    if (bed.backend != ks_backend_cuda) {
        assert_memory_equal(got, wanted, of->spec->out[0].size_bytes);
        return;
    }
    /* What sums over many large numbers may lose; a softmax's values are at most 1. */
    const float near = ks_has_input(of->spec, 1) ? 0.5f : strcmp(of->spec->op->name, "reduce") == 0 ? 1e-3f : 1e-5f;
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(got[i] - wanted[i]) <= near + 1e-5f * fabsf(wanted[i])))
            fail_msg("%s: element %zu of %zu is %g and not %g", of->spec->op->name, i, count, (double)got[i],
                     (double)wanted[i]);
}

static void check_and_leave(int i, client *of)
{
    check_values(of);
    leave(i);
    free_client(of);
}

static void exchange(int i, const ks_spec *spec)
{
    client of = make_client(spec);
    while (!of.ended) {
        send_some(i, &of, 1 + random_next() % CHUNK);
        if (random_next() % 4 == 0) turn();
    }
    while (!read_some(i, &of, 1 + random_next() % CHUNK)) turn();
    check_and_leave(i, &of);
}

/* Runs of the plan that a person asks for, whatever it was cut into. */
static uint64_t runs_of(const ks_spec *spec)
{
    ks_plan *plan;
    ks_error error;
    assert_int_equal(ks_engine_plan(bed.engine, spec, &plan, &error), KS_OK);
    const uint64_t runs = plan->timed_jobs;
    assert_true((plan->timed_ns > 0) == (runs > 0));
    ks_engine_plan_release(bed.engine, &plan);
    return runs;
}

/* --- tests ---------------------------------------------------------------------------------------------------------- */

static void what_goes_in_in_pieces_comes_out_right(void **state)
{
    static const struct {
        const char *op;
        int64_t rows, cols;
        bool many; /* blocks */
    } cases[] = {{"softmax", 4096, 1024, true}, {"softmax", 999, 2500, true},   {"softmax", 1234, 777, true},
                 {"softmax", 2, 1 << 20, true}, {"softmax", 1, 1 << 20, false}, {"softmax", 3, 1000, false},
                 {"reduce", 70001, 50, true},   {"reduce", 3001, 1001, true},   {"reduce", 1, 1 << 20, false},
                 {"matmul", 4, 200000, false}};
    ks_error error;
    open_bed(state, 48 << 20, 8);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const ks_spec spec = spec_of(cases[k].op, cases[k].rows, cases[k].cols);
        const uint64_t runs = runs_of(&spec);
        assert_int_equal(begin(0, &spec, ks_now_ns() + LONG_NS, &error), KS_OK);
        /* On CUDA it is for the kernels to say from how many rows on they come out alike. */
        if (bed.backend != ks_backend_cuda && cases[k].many != (bed.stream[0].blocks > 1))
            fail_msg("%s %d x %d: %d blocks", cases[k].op, (int)cases[k].rows, (int)cases[k].cols,
                     (int)bed.stream[0].blocks);
        exchange(0, &spec);
        assert_int_equal(runs_of(&spec), runs + 1);
    }
    close_bed();
}

static void rows_are_worked_on_while_the_rest_is_still_to_come(void **state)
{
    const ks_spec spec = spec_of("softmax", 4096, 1024);
    ks_error error;
    open_bed(state, 48 << 20, 8);
    assert_int_equal(begin(0, &spec, ks_now_ns() + LONG_NS, &error), KS_OK);
    client of = make_client(&spec);
    while (of.sent < in_bytes(&spec) / 2) {
        send_some(0, &of, CHUNK);
        turn();
    }
    for (int i = 0; i < 2000 && bed.stream[0].done < bed.stream[0].blocks / 2 - 1; i++) {
        turn();
        usleep(1000);
    }
    assert_true(bed.stream[0].done >= bed.stream[0].blocks / 2 - 1);
    assert_true(bed.stream[0].launched <= bed.stream[0].blocks / 2 + 1);
    leave(0);
    free_client(&of);
    close_bed();
}

/* Bytes of one input, in chunks; turns go on meanwhile. */
static void send_input(int i, const client *of, int input, size_t from, size_t to)
{
    const size_t begin_at = of->spec->in[input].offset;
    while (from < to) {
        size_t n = 1 + random_next() % CHUNK, taken = 0;
        if (n > to - from) n = to - from;
        const char *bytes = (const char *)of->input + begin_at + from;
        if (ks_large_write(&bed.stream[i], begin_at + from, bytes, n, &taken) != KS_OK)
            fail_msg("write: %s", bed.fault[i].text);
        from += taken;
        run_block(i);
        turn();
    }
}

static void finish_and_check(int i, client *of)
{
    assert_int_equal(ks_large_finish(&bed.stream[i]), KS_OK);
    run_block(i);
    while (!read_some(i, of, 1 + random_next() % CHUNK)) turn();
    check_and_leave(i, of);
}

static void nothing_runs_before_all_that_it_needs_is_there(void **state)
{
    const ks_spec spec = spec_of("matmul", 4, 200000);
    ks_error error;
    open_bed(state, 48 << 20, 8);
    assert_int_equal(begin(0, &spec, ks_now_ns() + LONG_NS, &error), KS_OK);
    client of = make_client(&spec);
    send_input(0, &of, 1, 0, spec.in[1].size_bytes);
    assert_int_equal(bed.stream[0].launched, 0);
    send_input(0, &of, 0, 0, spec.in[0].size_bytes);
    finish_and_check(0, &of);
    close_bed();
}

/* Small inputs lie in front, and rows run as soon as they are there, whatever comes first. */
static void rows_wait_for_small_inputs_alone(void **state)
{
    if (*state == NULL || *state == (const void *)ks_backend_cuda) skip(); /* no kernel of it */
    ks_cpu_add_op(&op_wide, &wide_cpu);
    ks_error error;
    ks_spec spec;
    ks_spec_init(&spec, &op_wide);
    spec.given |= 1u << WIDE_WEIGHT;
    spec.params[0].i = 3;
    spec.params[WIDE_ONE_OUTPUT].i = 1;
    spec.in[WIDE_X] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {4001, 1000}};
    spec.in[WIDE_WEIGHT] = (ks_tensor){.dtype = KS_FP32, .rank = 1, .dims = {1000}};
    spec.in[WIDE_LIMIT] = (ks_tensor){.dtype = KS_INT32, .rank = 1, .dims = {1}};
    assert_int_equal(op_wide.resolve(&spec, &error), KS_OK);
    ks_spec_layout(&spec);
    assert_true(spec.in[WIDE_X].offset > spec.in[WIDE_WEIGHT].offset);
    open_bed(state, 48 << 20, 8);
    for (int small_last = 0; small_last < 2; small_last++) {
        assert_int_equal(begin(0, &spec, ks_now_ns() + LONG_NS, &error), KS_OK);
        assert_true(bed.stream[0].blocks > 2);
        client of = make_client(&spec);
        const size_t all = spec.in[WIDE_X].size_bytes, half = all / 2;
        if (small_last) send_input(0, &of, WIDE_X, 0, half);
        assert_int_equal(bed.stream[0].launched, 0);
        send_input(0, &of, WIDE_LIMIT, 0, spec.in[WIDE_LIMIT].size_bytes);
        send_input(0, &of, WIDE_WEIGHT, 0, spec.in[WIDE_WEIGHT].size_bytes);
        /* The ring sends what it holds of an input when bytes of another one come. */
        send_input(0, &of, WIDE_X, small_last ? half : 0, half + 4);
        for (int i = 0; i < 2000 && bed.stream[0].done == 0; i++) {
            turn();
            usleep(1000);
        }
        assert_true(bed.stream[0].done > 0);
        send_input(0, &of, WIDE_X, half + 4, all);
        finish_and_check(0, &of);
    }
    close_bed();
}

/* All at once, in random steps; more of them than the ring has pieces. */
static void many_at_once_share_the_ring(void **state)
{
    ks_spec specs[STREAMS];
    client clients[STREAMS];
    ks_error error;
    bool done[STREAMS] = {false};
    open_bed(state, 48 << 20, STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        specs[i] = spec_of(i % 3 ? "softmax" : "reduce", 300 + (int64_t)(random_next() % 300), 1024);
        clients[i] = make_client(&specs[i]);
        assert_int_equal(begin(i, &specs[i], ks_now_ns() + LONG_NS, &error), KS_OK);
    }
    for (int left = STREAMS; left > 0;) {
        const int i = (int)(random_next() % STREAMS);
        if (random_next() % 8 == 0) turn();
        if (done[i]) continue;
        if (!clients[i].ended) {
            send_some(i, &clients[i], 1 + random_next() % CHUNK);
        } else if (read_some(i, &clients[i], 1 + random_next() % CHUNK)) {
            done[i] = true;
            left--;
            check_and_leave(i, &clients[i]);
        }
    }
    close_bed();
}

/* Senders and readers that have stopped hold every piece they can; one more request must still go through. */
static void whoever_has_stopped_keeps_nobody_waiting(void **state)
{
    const ks_spec spec = spec_of("softmax", 1024, 1024);
    client stopped[STREAMS - 1];
    ks_error error;
    open_bed(state, 160 << 20, STREAMS);
    for (int i = 0; i < STREAMS - 1; i++) {
        assert_int_equal(begin(i, &spec, ks_now_ns() + LONG_NS, &error), KS_OK);
        stopped[i] = make_client(&spec);
        while (i % 2 && !stopped[i].ended) {
            send_some(i, &stopped[i], CHUNK);
            turn();
        }
        while (i % 2 && stopped[i].read == 0) {
            read_some(i, &stopped[i], 100);
            turn();
        }
    }
    for (int i = 0; i < STREAMS - 1; i += 2) send_some(i, &stopped[i], 100);
    assert_int_equal(begin(STREAMS - 1, &spec, ks_now_ns() + LONG_NS, &error), KS_OK);
    exchange(STREAMS - 1, &spec);
    assert_int_equal(stats().lanes_busy, 0);
    /* And they go on where they stopped. */
    for (int i = 0; i < STREAMS - 1; i++) {
        while (!stopped[i].ended) {
            send_some(i, &stopped[i], CHUNK);
            turn();
        }
        while (!read_some(i, &stopped[i], CHUNK)) turn();
        check_and_leave(i, &stopped[i]);
    }
    close_bed();
}

static void memory_is_given_out_in_order_of_arrival(void **state)
{
    const ks_spec spec = spec_of("softmax", 1024, 1024), small = spec_of("softmax", 64, 1024);
    ks_error error;
    open_bed(state, 18 << 20, 3); /* two of them, not three */
    const int64_t deadline_ns = ks_now_ns() + LONG_NS;
    for (int i = 0; i < 3; i++) assert_int_equal(begin(i, &spec, deadline_ns, &error), KS_OK);
    assert_int_equal(begin(3, &small, deadline_ns, &error), KS_OK);
    assert_int_equal(bed.stream[1].state, KS_LARGE_OPEN);
    assert_int_equal(bed.stream[2].state, KS_LARGE_WAITS);
    assert_int_equal(bed.stream[3].state, KS_LARGE_WAITS); /* there is room, but it is not its turn */
    assert_int_equal(begin(4, &spec, deadline_ns, &error), KS_OK);
    assert_int_equal(begin(5, &spec, deadline_ns, &error), KS_QUEUE_FULL);
    assert_int_equal(bed.stream[5].state, KS_LARGE_SHUT);
    size_t taken = 1;
    assert_int_equal(ks_large_write(&bed.stream[2], 0, "1234", 4, &taken), KS_OK);
    assert_int_equal(taken, 0);
    turn();
    assert_int_equal(bed.stream[2].state, KS_LARGE_WAITS);
    assert_true(ks_large_leave(&bed.stream[0]));
    turn();
    assert_int_equal(bed.stream[2].state, KS_LARGE_OPEN);
    assert_int_equal(bed.stream[3].state, KS_LARGE_OPEN);
    assert_int_equal(bed.stream[4].state, KS_LARGE_WAITS);
    exchange(2, &spec);
    exchange(3, &small);
    turn();
    assert_int_equal(bed.stream[4].state, KS_LARGE_OPEN);
    leave(1);
    leave(4);
    close_bed();
}

static void who_waits_too_long_for_memory_is_told(void **state)
{
    const ks_spec spec = spec_of("softmax", 1024, 1024);
    ks_error error;
    size_t taken;
    open_bed(state, 10 << 20, 4);
    assert_int_equal(begin(0, &spec, ks_now_ns() + LONG_NS, &error), KS_OK);
    assert_int_equal(begin(1, &spec, ks_now_ns() + 20000000, &error), KS_OK);
    assert_int_equal(begin(2, &spec, ks_now_ns() + LONG_NS, &error), KS_OK);
    usleep(25000);
    const ks_large_request *events = ks_large_requests_turn(bed.streams, ks_now_ns());
    assert_ptr_equal(events, &bed.stream[1]);
    assert_null(events->event_next);
    assert_int_equal(bed.stream[1].status, KS_DEADLINE);
    assert_int_equal(ks_large_write(&bed.stream[1], 0, "1234", 4, &taken), KS_DEADLINE);
    assert_true(ks_large_leave(&bed.stream[1]));
    assert_true(ks_large_leave(&bed.stream[2]));
    assert_int_equal(stats().streams_waiting, 0);
    leave(0);
    close_bed();
}

/* Turns of 10 ms, as a test's clock has it, until so much time has passed. */
static void pass(int64_t *now_ns, int64_t ns)
{
    for (const int64_t end_ns = *now_ns + ns; *now_ns < end_ns; ks_large_requests_turn(bed.streams, *now_ns))
        *now_ns += 10000000;
}

/* Memory for one, given on every half second. Its rate is known when four have come out of the line, and then judges it. */
static void a_line_beyond_the_deadline_is_refused(void **state)
{
    const int64_t step_ns = 500000000;
    const ks_spec spec = spec_of("softmax", 1024, 1024);
    ks_error error;
    open_bed(state, 10 << 20, STREAMS);
    int64_t now_ns = ks_now_ns();
    ks_large_requests_turn(bed.streams, now_ns);
    for (int i = 0; i < 5; i++) assert_int_equal(begin(i, &spec, now_ns + LONG_NS, &error), KS_OK);
    for (int i = 5; i < 8; i++) { /* too late for sure, but nobody knows */
        assert_int_equal(begin(i, &spec, now_ns + 1000000, &error), KS_OK);
        assert_true(ks_large_leave(&bed.stream[i]));
    }
    for (int i = 0; i < 4; i++) {
        pass(&now_ns, step_ns);
        assert_true(ks_large_leave(&bed.stream[i]));
        ks_large_requests_turn(bed.streams, now_ns);
        assert_int_equal(bed.stream[i + 1].state, KS_LARGE_OPEN);
    }
    /* Whoever is first waits, however little hope there is. A pause of the process says nothing of the rate. */
    assert_int_equal(begin(5, &spec, now_ns + step_ns / 2, &error), KS_OK);
    assert_true(ks_large_leave(&bed.stream[5]));
    assert_int_equal(begin(5, &spec, now_ns + LONG_NS, &error), KS_OK);
    ks_large_requests_turn(bed.streams, now_ns += 50 * step_ns);
    /* As many wait as their deadline has steps. */
    for (int i = 6; i < 9; i++) assert_int_equal(begin(i, &spec, now_ns + 9 * step_ns / 2, &error), KS_OK);
    assert_int_equal(begin(9, &spec, now_ns + 9 * step_ns / 2, &error), KS_BUDGET);
    assert_non_null(strstr(error.text, "wait for memory"));
    assert_int_equal(bed.stream[9].state, KS_LARGE_SHUT);
    assert_int_equal(begin(9, &spec, now_ns + LONG_NS, &error), KS_OK);
    /* Turns in which none is given tell that it comes more slowly: at twice 1.35 s left it is too late for four, at 0.8 s each, and not for three. */
    pass(&now_ns, 9 * step_ns / 5);
    for (int i = 5; i < 10; i++) assert_int_equal(bed.stream[i].status, i == 8 ? KS_BUDGET : KS_OK);
    for (int i = 5; i < 10; i++) assert_true(ks_large_leave(&bed.stream[i]));
    assert_int_equal(stats().streams_waiting, 0);
    leave(4);
    close_bed();
}

/* Memory for one, which keeps it: nothing has come out of the queue, and its age bounds the wait. */
static void a_line_behind_old_work_is_refused(void **state)
{
    const int64_t second_ns = 1000000000;
    const ks_spec spec = spec_of("softmax", 1024, 1024);
    ks_error error;
    open_bed(state, 10 << 20, STREAMS);
    int64_t now_ns = ks_now_ns();
    ks_large_requests_turn(bed.streams, now_ns);
    for (int i = 0; i < 2; i++) assert_int_equal(begin(i, &spec, now_ns + 10 * LONG_NS, &error), KS_OK);
    assert_int_equal(begin(2, &spec, now_ns + second_ns, &error), KS_OK); /* too late, but nobody knows */
    assert_true(ks_large_leave(&bed.stream[2]));
    assert_true(ks_large_leave(&bed.stream[1]));
    pass(&now_ns, 10 * second_ns);
    /* None has waited since, and the first in the queue waits whatever comes. */
    assert_int_equal(begin(1, &spec, now_ns + second_ns, &error), KS_OK);
    assert_true(ks_large_leave(&bed.stream[1]));
    assert_int_equal(begin(1, &spec, now_ns + 10 * LONG_NS, &error), KS_OK);
    assert_int_equal(begin(2, &spec, now_ns + 21 * second_ns, &error), KS_OK);
    assert_int_equal(begin(3, &spec, now_ns + 25 * second_ns, &error), KS_BUDGET);
    assert_non_null(strstr(error.text, "age of those that have it"));
    assert_int_equal(bed.stream[3].state, KS_LARGE_SHUT);
    ks_large_requests_turn(bed.streams, now_ns += 5 * second_ns); /* a pause of the process is no age */
    assert_int_equal(begin(3, &spec, now_ns + 32 * second_ns, &error), KS_OK);
    assert_int_equal(bed.stream[2].status, KS_OK);
    /* Who waits already hears so when it would be twice too late: two for 19 s in 7 s. */
    pass(&now_ns, 9 * second_ns);
    for (int i = 1; i < 4; i++) assert_int_equal(bed.stream[i].status, i == 2 ? KS_BUDGET : KS_OK);
    for (int i = 0; i < 4; i++) assert_true(ks_large_leave(&bed.stream[i]));
    assert_int_equal(stats().streams_waiting, 0);
    close_bed();
}

static void what_never_fits_is_refused_at_once(void **state)
{
    const ks_spec spec = spec_of("softmax", 4096, 1024);
    ks_error error;
    open_bed(state, 16 << 20, 4);
    const ks_status status = begin(0, &spec, ks_now_ns() + LONG_NS, &error);
    assert_int_equal(status, bed.backend->large ? KS_WORK : KS_BUDGET);
    assert_int_equal(bed.stream[0].state, KS_LARGE_SHUT);
    close_bed();
}

/* --- the ring's own -------------------------------------------------------------------------------------------------- */

static void an_device_buffer_goes_back_when_its_copies_have_ended(void **state)
{
    const ks_spec spec = spec_of("softmax", 1, 1 << 20); /* one block, so that no kernel works on it yet */
    ks_error error;
    open_bed(state, 48 << 20, 4);
    assert_int_equal(begin(0, &spec, ks_now_ns() + LONG_NS, &error), KS_OK);
    client of = make_client(&spec);
    streaming_hold(true);
    while (streaming_read().under_way == 0) send_some(0, &of, CHUNK);
    assert_false(ks_large_leave(&bed.stream[0]));
    assert_false(ks_large_leave(&bed.stream[0]));
    for (int i = 0; i < 10; i++) assert_null(ks_large_requests_turn(bed.streams, ks_now_ns()));
    assert_int_equal(streaming_read().device_buffers, 1);
    streaming_hold(false);
    assert_ptr_equal(ks_large_requests_turn(bed.streams, ks_now_ns()), &bed.stream[0]);
    assert_int_equal(bed.stream[0].state, KS_LARGE_SHUT);
    assert_int_equal(streaming_read().device_buffers, 0);
    free_client(&of);
    close_bed();
}

static void a_full_ring_takes_no_bytes_and_says_when_it_does(void **state)
{
    const ks_spec spec = spec_of("softmax", 8192, 1024);
    ks_error error;
    open_bed(state, 96 << 20, 4);
    assert_int_equal(begin(0, &spec, ks_now_ns() + LONG_NS, &error), KS_OK);
    client of = make_client(&spec);
    streaming_looks(1);
    streaming_hold(true);
    size_t before = 1;
    while (of.sent != before) {
        before = of.sent;
        send_some(0, &of, CHUNK);
    }
    assert_true(of.sent > 0 && of.sent < in_bytes(&spec) / 2);
    assert_int_equal(bed.stream[0].pause, KS_PAUSE_ROOM);
    assert_null(ks_large_requests_turn(bed.streams, ks_now_ns()));
    assert_int_equal(ks_large_requests_wait_ns(bed.streams), 0);
    streaming_hold(false);
    assert_ptr_equal(ks_large_requests_turn(bed.streams, ks_now_ns()), &bed.stream[0]);
    send_some(0, &of, CHUNK);
    assert_true(of.sent > before);
    leave(0);
    free_client(&of);
    close_bed();
}

static void a_lost_device_is_a_fault_of_whoever_copies(void **state)
{
    const ks_spec spec = spec_of("reduce", 4096, 1024);
    ks_error error;
    for (int n = 1; n < 8; n += 3) {
        open_bed(state, 48 << 20, 4);
        streaming_looks(1);
        assert_int_equal(begin(0, &spec, ks_now_ns() + LONG_NS, &error), KS_OK);
        unsigned char *input = random_input(&spec);
        streaming_fail_copy(n);
        ks_status status = KS_OK;
        for (size_t at = 0, taken; at < in_bytes(&spec) && status == KS_OK; at += taken) {
            status = ks_large_write(&bed.stream[0], at, (char *)input + at, CHUNK, &taken);
            ks_large_requests_turn(bed.streams, ks_now_ns());
        }
        assert_int_equal(status, KS_DEVICE);
        while (!ks_large_leave(&bed.stream[0])) ks_large_requests_turn(bed.streams, ks_now_ns());
        free(input);
        close_bed();
    }
}

static void a_copy_that_never_ends_is_a_device_fault(void **state)
{
    const ks_spec spec = spec_of("softmax", 4096, 1024);
    ks_error error;
    bed.stall_ns = 300000000;
    open_bed(state, 48 << 20, 4);
    bed.stall_ns = 0;
    assert_int_equal(begin(0, &spec, ks_now_ns() + LONG_NS, &error), KS_OK);
    client of = make_client(&spec);
    streaming_hold(true);
    ks_large_requests_turn(bed.streams, ks_now_ns());
    while (bed.stream[0].pause != KS_PAUSE_ROOM) send_some(0, &of, CHUNK);
    ks_large_requests_turn(bed.streams, ks_now_ns());
    assert_false(ks_engine_lost(bed.engine));
    usleep(310000);               /* a pause of the process is not the copy's */
    for (int i = 0; i < 3; i++) { /* a piece is looked at more often than its copy needs looks */
        send_some(0, &of, CHUNK);
        ks_large_requests_turn(bed.streams, ks_now_ns());
    }
    assert_false(ks_engine_lost(bed.engine));
    for (int i = 0; i < 2000 && !ks_engine_lost(bed.engine); i++) {
        usleep(1000);
        send_some(0, &of, CHUNK);
        ks_large_requests_turn(bed.streams, ks_now_ns());
    }
    assert_true(ks_engine_lost(bed.engine));
    assert_non_null(strstr(ks_engine_fault(bed.engine), "copy"));
    assert_ptr_equal(ks_engine_collect(bed.engine), &bed.job[0]);
    assert_int_equal(bed.job[0].status, KS_DEVICE);
    /* What a lost device may still write to is not given to anybody. */
    void *kept = bed.stream[0].device_buffer.memory;
    streaming_hold(false);
    while (!ks_large_leave(&bed.stream[0])) ks_large_requests_turn(bed.streams, ks_now_ns());
    assert_int_equal(streaming_read().device_buffers, 1);
    free(kept);
    streaming_reset();
    free_client(&of);
    close_bed();
}

static void closing_waits_for_nobody(void **state)
{
    const ks_spec spec = spec_of("softmax", 1, 1 << 20); /* one block: no kernel works when it closes */
    ks_error error;
    open_bed(state, 24 << 20, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(begin(i, &spec, ks_now_ns() + LONG_NS, &error), KS_OK);
    client of = make_client(&spec);
    streaming_hold(true);
    while (streaming_read().under_way == 0) send_some(0, &of, CHUNK);
    assert_false(ks_large_leave(&bed.stream[0]));
    ks_large_requests_close(&bed.streams);
    for (int i = 0; i < 4; i++) assert_int_equal(bed.stream[i].state, KS_LARGE_SHUT);
    ks_error ignored;
    assert_int_equal(ks_large_requests_open(bed.engine, &bed.streams, &ignored), KS_OK);
    free_client(&of);
    close_bed();
}

/* --- readers -------------------------------------------------------------------------------------------------------- */

enum { READINGS = 64 };
static struct {
    const unsigned char *bytes;
    size_t n;
    _Atomic int *readers;
} readings[READINGS];
static int reading_count;
static size_t read_bytes;

/* ks_large_reader_fn: reads on until the test says otherwise. */
static void read_on(ks_large_request *request, const unsigned char *bytes, size_t n, _Atomic int *readers)
{
    (void)request;
    assert_true(reading_count < READINGS);
    atomic_fetch_add(readers, 1);
    readings[reading_count].bytes = bytes;
    readings[reading_count].n = n;
    readings[reading_count++].readers = readers;
    read_bytes += n;
}

/* The oldest reading ends; its bytes are still those that were written. */
static void end_reading(const unsigned char *body, size_t *checked)
{
    assert_memory_equal(readings[0].bytes, body + *checked, readings[0].n);
    *checked += readings[0].n;
    atomic_fetch_sub(readings[0].readers, 1);
    reading_count--;
    memmove(&readings[0], &readings[1], (size_t)reading_count * sizeof readings[0]);
}

static void begin_transfer(const ks_slot *memory)
{
    reading_count = 0;
    read_bytes = 0;
    bed.fault[0].status = KS_OK;
    ks_large_begin_transfer(bed.streams, &bed.stream[0], memory, 0, &bed.fault[0]);
    ks_large_turn_to(&bed.stream[0], memory, read_on);
}

static void what_is_read_in_the_ring_stays_there(void **state)
{
    enum { BYTES = 31 << 20, RING = 12 << 20 };
    const ks_resident *resident = ((const ks_backend *)*state)->resident;
    ks_error error;
    ks_slot memory;
    size_t sent = 0, checked = 0, taken;
    uint64_t limit;
    open_bed(state, 48 << 20, 8);
    assert_int_equal(resident->reserve(bed.device, 64 << 20, &limit, &error), KS_OK);
    assert_int_equal(resident->take(bed.device, BYTES, &memory, &error), KS_OK);
    unsigned char *body = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++) body[i] = (unsigned char)random_next();
    begin_transfer(&memory);
    while (sent < BYTES) {
        const size_t n = 1 + random_next() % (700 << 10), most = n < BYTES - sent ? n : BYTES - sent;
        assert_int_equal(ks_large_write(&bed.stream[0], sent, (const char *)body + sent, most, &taken), KS_OK);
        sent += taken;
        assert_true(sent - checked <= RING); /* all copies may have ended: bytes that are read stay */
        for (int i = 0; i < 8; i++) ks_large_requests_turn(bed.streams, ks_now_ns());
        if (taken < most) {
            assert_true(ks_large_requests_wait_ns(bed.streams) > 0); /* nothing to spin for */
            end_reading(body, &checked);
        }
    }
    assert_int_equal(ks_large_finish(&bed.stream[0]), KS_OK);
    assert_int_equal(read_bytes, BYTES);
    for (int i = 0; i < 8; i++) ks_large_requests_turn(bed.streams, ks_now_ns());
    assert_false(ks_large_settled(&bed.stream[0]));
    while (reading_count > 0) end_reading(body, &checked);
    int looks = 0;
    while (!ks_large_settled(&bed.stream[0]) && looks++ < 20) ks_large_requests_turn(bed.streams, ks_now_ns());
    assert_true(ks_large_settled(&bed.stream[0]));
    leave(0);
    /* And one that leaves amid its bytes ends with the last reading. */
    begin_transfer(&memory);
    assert_int_equal(ks_large_write(&bed.stream[0], 0, (const char *)body, 5 << 20, &taken), KS_OK);
    for (int i = 0; i < 8; i++) ks_large_requests_turn(bed.streams, ks_now_ns());
    assert_false(ks_large_leave(&bed.stream[0]));
    for (checked = 0; reading_count > 0;) end_reading(body, &checked);
    for (int i = 0; i < 20; i++) ks_large_requests_turn(bed.streams, ks_now_ns());
    assert_int_equal(bed.stream[0].state, KS_LARGE_SHUT);
    resident->give(bed.device, &memory);
    free(body);
    close_bed();
}

static bool works(const ks_backend *backend)
{
    const ks_limits limits = {.device_index = -1, .lanes = 1, .lane_bytes = 1 << 20, .mapped_max = SIDE};
    ks_device *device = NULL;
    ks_error error;
    if (!backend || backend->open(&limits, &device, &error) != KS_OK) return false;
    backend->close(&device);
    return true;
}

#define ON_ALL(test)                                                                                                   \
    {"cpu: " #test, test, NULL, NULL, (void *)(uintptr_t)ks_backend_cpu}, {"ring: " #test, test, NULL, NULL, ring},    \
    {                                                                                                                  \
        "cuda: " #test, test, NULL, NULL, cuda                                                                         \
    }
#define ON_RING(test)                                                                                                  \
    {                                                                                                                  \
#test, test, NULL, NULL, ring                                                                                  \
    }

int main(void)
{
    const char *seed = getenv("KS_SEED");
    const uint64_t chosen = seed ? strtoull(seed, NULL, 10) : (uint64_t)ks_now_ns();
    bed.random = chosen | 1;
    printf("KS_SEED=%llu\n", (unsigned long long)chosen);
    void *ring = (void *)(uintptr_t)streaming_backend();
    void *cuda = works(ks_backend_cuda) ? (void *)(uintptr_t)ks_backend_cuda : NULL;
    const struct CMUnitTest tests[] = {
        ON_ALL(what_goes_in_in_pieces_comes_out_right),
        ON_ALL(rows_are_worked_on_while_the_rest_is_still_to_come),
        ON_ALL(nothing_runs_before_all_that_it_needs_is_there),
        ON_ALL(rows_wait_for_small_inputs_alone),
        ON_ALL(many_at_once_share_the_ring),
        ON_ALL(whoever_has_stopped_keeps_nobody_waiting),
        ON_ALL(memory_is_given_out_in_order_of_arrival),
        ON_ALL(who_waits_too_long_for_memory_is_told),
        ON_ALL(a_line_beyond_the_deadline_is_refused),
        ON_ALL(a_line_behind_old_work_is_refused),
        ON_ALL(what_never_fits_is_refused_at_once),
        ON_RING(an_device_buffer_goes_back_when_its_copies_have_ended),
        ON_RING(a_full_ring_takes_no_bytes_and_says_when_it_does),
        ON_RING(a_lost_device_is_a_fault_of_whoever_copies),
        ON_RING(a_copy_that_never_ends_is_a_device_fault),
        ON_RING(closing_waits_for_nobody),
        ON_RING(what_is_read_in_the_ring_stays_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
