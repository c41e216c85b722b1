/* The engine without HTTP, measured: softmax requests through 1, 2, 3, 4 and 8 lanes, as many in flight as keep every
 * lane full. Prints requests/s and GB/s with the ratio to one lane, the phases' sum against the wall clock, the
 * counters, and for copied requests the time in which one lane copies in while another computes and a third copies out,
 * and the share of the busy time with two engines or more, beside what /status counts of the same launches.
 *
 *   bench_engine [--backend cuda|cpu] [--bytes N] [--requests N] [--lanes N]... [--timeline ROWS]
 *
 * Without --bytes: 16 MiB and 4 KiB. In a timeline a phase's start follows from the ones before it, as the backend
 * measured their lengths; compute also holds the launch call and the time until the loop saw the end. */
#include <assert.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "observe/overlap.h"
#include "observe/timeline.h"
#include "kernserve/backends.h"

enum { LANE_COUNTS_MAX = 8, IN_FLIGHT_LARGE = 2, IN_FLIGHT_SMALL = 64, SMALL_BYTES = 65536, KEPT = 1 << 14 };

typedef struct settings {
    const ks_backend *backend;
    size_t bytes;
    int requests, rows;
    int lane_counts[LANE_COUNTS_MAX], lane_counts_used;
} settings;

typedef struct record {
    int lane, batch_count;
    int64_t launched_ns, h2d_ns, compute_ns, d2h_ns;
} record;

typedef struct run {
    const settings *settings;
    int lanes, in_flight, wake_fd;
    ks_device *device;
    ks_budget *budget;
    ks_engine *engine;
    ks_timeline *timeline;
    ks_overlap *overlap; /* since the measurement began */
    ks_spec spec;
    ks_error fault; /* the first one */
    ks_job *jobs;
    record *records; /* one per launch */
    int launches, done;
    int64_t wall_ns;
} run;

static void stop_on(ks_status status, const ks_error *error, const char *doing)
{
    if (status == KS_OK) return;
    fprintf(stderr, "bench_engine: %s: %s\n", doing, error->text);
    exit(1);
}

static void open_run(run *r)
{
    const size_t bytes = r->settings->bytes;
    const ks_limits limits = {.device_index = -1,
                              .lanes = r->lanes,
                              .lane_bytes = 2 * ks_align(bytes),
                              .large_bytes = 2 * ks_align(bytes),
                              .workspace_bytes = 1 << 25,
                              .mapped_max = SIZE_MAX,
                              .pinned_must = true};
    ks_error error;
    stop_on(r->settings->backend->open(&limits, &r->device, &error), &error, "open");
    r->in_flight = r->lanes * (bytes > SMALL_BYTES ? IN_FLIGHT_LARGE : IN_FLIGHT_SMALL);
    r->budget = ks_budget_open(0);
    r->timeline = ks_timeline_open(1, KEPT);
    assert(r->timeline);
    r->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const ks_engine_options options = {.backend = r->settings->backend,
                                       .device = r->device,
                                       .budget = r->budget,
                                       .lanes = r->lanes,
                                       .classes = 1,
                                       .size_class = {{.side_bytes = bytes, .count = r->in_flight + 1}},
                                       .pinned = true,
                                       .plan_bytes = 1 << 26,
                                       .queue_max = r->in_flight + 1,
                                       .stall_ns = 10000000000,
                                       .timeline = ks_timeline_writer(r->timeline, 0),
                                       .wake_fd = r->wake_fd};
    stop_on(ks_engine_open(&options, &r->engine, &error), &error, "engine");
}

static void make_spec(run *r)
{
    const ks_op *op = ks_op_find("softmax", 7);
    assert(op);
    ks_spec_init(&r->spec, op);
    const int64_t count = (int64_t)(r->settings->bytes / sizeof(float)), columns = count < 1024 ? count : 1024;
    r->spec.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {count / columns, columns}};
    ks_error error;
    stop_on(op->resolve(&r->spec, &error), &error, "softmax");
    ks_spec_layout(&r->spec);
}

static void make_jobs(run *r)
{
    r->jobs = calloc((size_t)r->in_flight, sizeof *r->jobs);
    r->records = calloc((size_t)r->settings->requests, sizeof *r->records);
    assert(r->jobs && r->records);
    ks_error error;
    for (int i = 0; i < r->in_flight; i++) {
        ks_job *job = &r->jobs[i];
        job->fault = &r->fault;
        stop_on(ks_engine_plan(r->engine, &r->spec, &job->plan, &error), &error, "plan");
        stop_on(ks_engine_slot(r->engine, job->plan->in_bytes, job->plan->out_bytes, &job->slot, &error), &error,
                "slot");
        float *in = (float *)job->slot->in;
        for (size_t k = 0; k < job->plan->in_bytes / sizeof *in; k++) in[k] = (float)((k * 7 + (size_t)i) % 13);
    }
}

/* A measurement of wrong answers is none. */
static void check_answers(const run *r)
{
    const int64_t columns = r->spec.out[0].dims[1];
    for (int i = 0; i < r->in_flight && i < r->done; i++) {
        double sum = 0;
        for (int64_t k = 0; k < columns; k++) sum += (double)((const float *)r->jobs[i].slot->out)[k];
        if (fabs(sum - 1) < 1e-3) continue;
        fprintf(stderr, "bench_engine: the first row of answer %d adds up to %g\n", i, sum);
        exit(1);
    }
}

static void note(run *r, const ks_job *job)
{
    stop_on(job->status, &r->fault, "request");
    for (int i = r->launches - 1; i >= 0 && i >= r->launches - 2 * KS_LANES_MAX; i--)
        if (r->records[i].lane == job->lane && r->records[i].launched_ns == job->launched_ns) return;
    r->records[r->launches++] = (record){.lane = job->lane,
                                         .batch_count = job->batch_count,
                                         .launched_ns = job->launched_ns,
                                         .h2d_ns = job->h2d_ns,
                                         .compute_ns = job->compute_ns,
                                         .d2h_ns = job->d2h_ns};
}

static void wait_for_lane(const run *r)
{
    if (ks_engine_polls(r->engine) || !ks_engine_running(r->engine)) return;
    struct pollfd wake = {.fd = r->wake_fd, .events = POLLIN};
    poll(&wake, 1, 100);
    uint64_t count;
    if (read(r->wake_fd, &count, sizeof count) < 0) return; /* nobody wrote: 100 ms passed */
}

static void measure(run *r)
{
    ks_error error;
    int submitted = 0, looked = 0;
    const int64_t start_ns = ks_now_ns();
    r->overlap = ks_overlap_open(r->timeline, 1, start_ns);
    assert(r->overlap);
    for (; submitted < r->in_flight && submitted < r->settings->requests; submitted++)
        stop_on(ks_engine_submit(r->engine, &r->jobs[submitted], &error), &error, "submit");
    while (r->done < r->settings->requests) {
        ks_engine_launch(r->engine);
        ks_job *job = ks_engine_collect(r->engine);
        if (!job) wait_for_lane(r);
        while (job) {
            ks_job *next = job->next;
            note(r, job);
            r->done++;
            if (submitted < r->settings->requests) {
                stop_on(ks_engine_submit(r->engine, job, &error), &error, "submit");
                submitted++;
            }
            job = next;
        }
        if (r->launches - looked < KEPT / 4) continue;
        ks_overlap_look(r->overlap, ks_now_ns());
        looked = r->launches;
    }
    r->wall_ns = ks_now_ns() - start_ns;
    ks_overlap_look(r->overlap, ks_now_ns());
}

static void close_run(run *r)
{
    for (int i = 0; i < r->in_flight; i++) {
        ks_engine_slot_release(r->engine, &r->jobs[i].slot);
        ks_engine_plan_release(r->engine, &r->jobs[i].plan);
    }
    ks_engine_close(&r->engine);
    r->settings->backend->close(&r->device);
    ks_budget_close(&r->budget);
    ks_overlap_close(&r->overlap);
    ks_timeline_close(&r->timeline);
    close(r->wake_fd);
    free(r->jobs);
    free(r->records);
}

/* --- what is told ------------------------------------------------------------------------------------------------- */

typedef struct edge {
    int64_t at_ns;
    int phase; /* 0 H2D, 1 compute, 2 D2H */
    int step;  /* +1 begins, -1 ends */
} edge;

static int by_time(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    if (x->at_ns != y->at_ns) return x->at_ns < y->at_ns ? -1 : 1;
    return x->step - y->step;
}

/* What /status would say of the run. */
static double ratio_of_status(const run *r)
{
    ks_overlap_sums sums;
    ks_overlap_read(r->overlap, &sums);
    if (sums.overruns) fprintf(stderr, "bench_engine: %llu records lost\n", (unsigned long long)sums.overruns);
    return sums.busy_any ? (double)sums.two / (double)sums.busy_any : 0;
}

/* Sweeps over all phases' begins and ends: how long some were under way, and how long two or three at once. */
static void tell_overlap(const run *r)
{
    edge *edges = calloc((size_t)r->launches * 6, sizeof *edges);
    assert(edges);
    size_t count = 0;
    for (int i = 0; i < r->launches; i++) {
        const record *l = &r->records[i];
        const int64_t at[4] = {l->launched_ns, l->launched_ns + l->h2d_ns, l->launched_ns + l->h2d_ns + l->compute_ns,
                               l->launched_ns + l->h2d_ns + l->compute_ns + l->d2h_ns};
        for (int phase = 0; phase < 3; phase++) {
            if (at[phase] == at[phase + 1]) continue;
            edges[count++] = (edge){at[phase], phase, 1};
            edges[count++] = (edge){at[phase + 1], phase, -1};
        }
    }
    qsort(edges, count, sizeof *edges, by_time);
    int active[3] = {0};
    int64_t all_ns = 0, both_ns = 0, two_ns = 0, any_ns = 0, last_ns = 0;
    for (size_t i = 0; i < count; i++) {
        const int64_t passed_ns = edges[i].at_ns - last_ns;
        const int engines = !!active[0] + !!active[1] + !!active[2];
        if (engines > 0) any_ns += passed_ns;
        if (engines > 1) two_ns += passed_ns;
        if (active[0] && active[2]) both_ns += passed_ns;
        if (engines == 3) all_ns += passed_ns;
        active[edges[i].phase] += edges[i].step;
        last_ns = edges[i].at_ns;
    }
    free(edges);
    printf("    H2D of one lane beside D2H of another: %.0f us, and compute of a third as well: %.0f us, of %.0f us\n",
           (double)both_ns / 1e3, (double)all_ns / 1e3, (double)r->wall_ns / 1e3);
    printf("    two engines or more: %.4f of the busy time; as /status counts: %.4f\n",
           any_ns ? (double)two_ns / (double)any_ns : 0, ratio_of_status(r));
}

static void tell_timeline(const run *r)
{
    const int first = r->launches / 2, rows = r->settings->rows;
    printf("    timeline from the middle, us:\n    %4s %5s %9s  %17s  %17s  %17s\n", "lane", "jobs", "launch", "H2D",
           "compute", "D2H");
    const int64_t zero_ns = r->records[first].launched_ns;
    for (int i = first; i < r->launches && i < first + rows; i++) {
        const record *l = &r->records[i];
        const double start = (double)(l->launched_ns - zero_ns) / 1e3, h2d = start + (double)l->h2d_ns / 1e3,
                     compute = h2d + (double)l->compute_ns / 1e3, d2h = compute + (double)l->d2h_ns / 1e3;
        printf("    %4d %5d %9.1f  %8.1f %8.1f  %8.1f %8.1f  %8.1f %8.1f\n", l->lane, l->batch_count, start, start, h2d,
               h2d, compute, compute, d2h);
    }
}

static void tell(const run *r, double *one_lane)
{
    const double seconds = (double)r->wall_ns / 1e9, rate = r->done / seconds;
    if (*one_lane == 0) *one_lane = rate;
    int64_t h2d_ns = 0, compute_ns = 0, d2h_ns = 0;
    for (int i = 0; i < r->launches; i++) {
        h2d_ns += r->records[i].h2d_ns;
        compute_ns += r->records[i].compute_ns;
        d2h_ns += r->records[i].d2h_ns;
    }
    ks_engine_stats stats;
    ks_engine_read_stats(r->engine, &stats);
    printf("%zu bytes, %d lane%s: %.0f requests/s, %.3f GB/s each way, ratio %.2f\n", r->settings->bytes, r->lanes,
           r->lanes == 1 ? "" : "s", rate, rate * (double)r->settings->bytes / 1e9, rate / *one_lane);
    printf("    wall %.1f ms; phases h2d %.1f + compute %.1f + d2h %.1f ms = %.2f x wall; two or more lanes busy %.1f "
           "ms\n",
           (double)r->wall_ns / 1e6, (double)h2d_ns / 1e6, (double)compute_ns / 1e6, (double)d2h_ns / 1e6,
           (double)(h2d_ns + compute_ns + d2h_ns) / (double)r->wall_ns, (double)stats.overlap_ns / 1e6);
    printf("    launches %llu, graph hits %llu, misses %llu, captures %llu (%.1f us each), jobs per launch %.1f\n",
           (unsigned long long)stats.launches, (unsigned long long)stats.graph_hits,
           (unsigned long long)stats.graph_misses, (unsigned long long)stats.captures,
           stats.captures ? (double)stats.capture_ns / 1e3 / (double)stats.captures : 0.0,
           (double)r->done / r->launches);
    if (h2d_ns && r->lanes > 1) tell_overlap(r);
    if (r->settings->rows > 0 && r->lanes >= 3 && r->lanes <= 4) tell_timeline(r);
    fflush(stdout);
}

static void bench(const settings *s)
{
    double one_lane = 0;
    for (int i = 0; i < s->lane_counts_used; i++) {
        run r = {.settings = s, .lanes = s->lane_counts[i]};
        make_spec(&r);
        open_run(&r);
        ks_error error;
        stop_on(ks_engine_warm(r.engine, &r.spec, &error), &error, "warm");
        make_jobs(&r);
        measure(&r);
        check_answers(&r);
        tell(&r, &one_lane);
        close_run(&r);
    }
}

/* --- the command line --------------------------------------------------------------------------------------------- */

static long long number(const char *name, const char *text, long long least, long long most)
{
    char *end;
    const long long value = text ? strtoll(text, &end, 10) : -1;
    if (text && *text && !*end && value >= least && value <= most) return value;
    fprintf(stderr, "bench_engine: %s takes a number from %lld to %lld\n", name, least, most);
    exit(64);
}

static const ks_backend *backend_named(const char *name)
{
    if (name && strcmp(name, "cpu") == 0) return ks_backend_cpu;
    if (name && strcmp(name, "cuda") == 0 && ks_backend_cuda) return ks_backend_cuda;
    fprintf(stderr, "bench_engine: --backend takes cpu%s\n", ks_backend_cuda ? " or cuda" : " (built without cuda)");
    exit(64);
}

int main(int argc, char **argv)
{
    settings s = {.backend = ks_backend_cuda ? ks_backend_cuda : ks_backend_cpu, .rows = 16};
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--backend") == 0)
            s.backend = backend_named(value);
        else if (strcmp(name, "--bytes") == 0)
            s.bytes = (size_t)number(name, value, 4, 1 << 30) / 4 * 4;
        else if (strcmp(name, "--requests") == 0)
            s.requests = (int)number(name, value, 1, 100000000);
        else if (strcmp(name, "--timeline") == 0)
            s.rows = (int)number(name, value, 0, 1000);
        else if (strcmp(name, "--lanes") == 0 && s.lane_counts_used < LANE_COUNTS_MAX)
            s.lane_counts[s.lane_counts_used++] = (int)number(name, value, 1, KS_LANES_MAX);
        else {
            fprintf(stderr,
                    "bench_engine: [--backend cuda|cpu] [--bytes N] [--requests N] [--lanes N]... [--timeline N]\n");
            return 64;
        }
    }
    if (s.lane_counts_used == 0) {
        const int usual[] = {1, 2, 3, 4, 8};
        memcpy(s.lane_counts, usual, sizeof usual);
        s.lane_counts_used = sizeof usual / sizeof *usual;
    }
    const bool cpu = s.backend == ks_backend_cpu;
    const struct {
        size_t bytes;
        int requests;
    } usual[] = {{1 << 24, cpu ? 20 : 2000}, {4096, cpu ? 20000 : 400000}};
    printf("backend %s\n", s.backend->name);
    for (int i = 0; i < (s.bytes ? 1 : 2); i++) {
        settings one = s;
        if (!s.bytes) one.bytes = usual[i].bytes;
        if (!s.requests) one.requests = one.bytes > SMALL_BYTES ? usual[0].requests : usual[1].requests;
        bench(&one);
    }
    return 0;
}
