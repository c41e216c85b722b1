/* What stands in the document:
 *
 *   process 0   the host: a track a shard with its launch calls ("X"), and a request each as an asynchronous slice ("b", "e") with
 *               its phases nested in it. Requests overlap, so that each has an id of its own.
 *   process 1   the device: a track for each engine of each lane (h2d, compute, d2h) with what a launch did there ("X"), and in
 *               compute the steps of one that has timed them
 *               of several workers that of device N has the processes 2 N and 2 N + 1, and N in front of its launches' and slices' ids
 *   flows       from a launch call to the first engine that it kept busy; a request names its launch in its arguments
 *
 * Times are CLOCK_MONOTONIC in microseconds with three decimals, written from integers: a child that ended a rounding after its
 * parent would break the nesting. The newest come first; the format wants no order but that of events at one time. */
#include "api/trace.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/model.h"
#include "observe/metrics.h"
#include "request/timing.h"

enum { MS_MAX = 10000, HOST = 0, DEVICE = 1, ENGINES = 3 };
static const char *const engine_names[ENGINES] = {"h2d", "compute", "d2h"};

/* Of what was written; in front of a worker's part. */
typedef struct trace_sums {
    int64_t from_ns, to_ns;
    uint64_t launches, requests;
    bool truncated;
} trace_sums;

typedef struct trace {
    ks_text *out;
    const ks_timeline *timeline;
    int64_t since_ns; /* what ended before is left out */
    int device;       /* of several workers; -1: it needs no name */
    trace_sums sums;
    size_t limit;            /* of out's bytes, for the part under way */
    unsigned lanes[ENGINES]; /* bits: of the shard under way, on which lanes each engine worked */
    bool first;
} trace;

enum { ID_BYTES = 48 };

/* Track numbers: shards of the host from 1 on; of the device by shard, lane and engine. */
static int engine_track(int shard, int lane, int engine)
{
    return 1 + (shard * KS_LANES_MAX + lane) * ENGINES + engine;
}

static void begin_event(trace *t, const char *ph, int pid, int tid)
{
    ks_text_puts(t->out, t->first ? "\n" : ",\n");
    t->first = false;
    const int number = t->device < 0 ? pid : 2 * t->device + pid;
    ks_text_printf(t->out, "{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", ph, number, tid);
}

static void make_id(const trace *t, int shard, uint64_t number, char out[ID_BYTES])
{
    if (t->device < 0)
        snprintf(out, ID_BYTES, "%d.%" PRIu64, shard, number);
    else
        snprintf(out, ID_BYTES, "%d.%d.%" PRIu64, t->device, shard, number);
}

static void put_us(trace *t, const char *name, int64_t ns)
{
    ks_text_printf(t->out, ",\"%s\":%" PRId64 ".%03d", name, ns / 1000, (int)(ns % 1000));
}

static void name_track(trace *t, int pid, int tid, const char *kind, const char *name)
{
    begin_event(t, "M", pid, tid);
    ks_text_printf(t->out, ",\"name\":\"%s\",\"args\":{\"name\":", kind);
    ks_text_json(t->out, name, strlen(name));
    ks_text_puts(t->out, "}}");
    if (strcmp(kind, "thread_name") != 0) return;
    begin_event(t, "M", pid, tid);
    ks_text_printf(t->out, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}", tid);
}

static void note_span(trace *t, int64_t from_ns, int64_t to_ns)
{
    if (t->sums.from_ns == 0 || from_ns < t->sums.from_ns) t->sums.from_ns = from_ns;
    if (to_ns > t->sums.to_ns) t->sums.to_ns = to_ns;
}

/* --- launches ------------------------------------------------------------------------------------------------------- */

static void put_flow(trace *t, const char *ph, int pid, int tid, int64_t at_ns, const char *id)
{
    begin_event(t, ph, pid, tid);
    put_us(t, "ts", at_ns);
    ks_text_printf(t->out, ",\"cat\":\"launch\",\"name\":\"launch\",\"id\":\"%s\"%s}", id,
                   ph[0] == 'f' ? ",\"bp\":\"e\"" : "");
}

static void put_launch(trace *t, int shard, uint64_t number, const ks_launch_record *r, const char *plan)
{
    const int64_t ns[ENGINES] = {r->h2d_ns, r->compute_ns, r->d2h_ns};
    char id[ID_BYTES];
    make_id(t, shard, number, id);
    begin_event(t, "X", HOST, 1 + shard);
    put_us(t, "ts", r->launched_ns);
    put_us(t, "dur", r->issue_ns);
    ks_text_printf(t->out, ",\"cat\":\"host\",\"name\":\"%s\",\"args\":{\"launch\":\"%s\",\"jobs\":%d}}",
                   r->jobs > 0 ? "launch" : "trial", id, r->jobs);
    int64_t at_ns = r->launched_ns;
    bool tied = false;
    for (int e = 0; e < ENGINES; at_ns += ns[e], e++) {
        if (ns[e] <= 0) continue;
        t->lanes[e] |= 1u << r->lane;
        begin_event(t, "X", DEVICE, engine_track(shard, r->lane, e));
        put_us(t, "ts", at_ns);
        put_us(t, "dur", ns[e]);
        ks_text_printf(t->out, ",\"cat\":\"%s\",\"name\":", engine_names[e]);
        ks_text_json(t->out, plan, strlen(plan));
        ks_text_printf(t->out, ",\"args\":{\"launch\":\"%s\",\"plan\":%" PRIu64 ",\"jobs\":%d,\"graph\":\"%s\"}}", id,
                       r->plan, r->jobs, ks_graph_name((ks_graph)r->graph));
        if (tied) continue;
        put_flow(t, "s", HOST, 1 + shard, r->launched_ns, id);
        put_flow(t, "f", DEVICE, engine_track(shard, r->lane, e), at_ns, id);
        tied = true;
    }
    note_span(t, r->launched_ns, at_ns);
    t->sums.launches++;
}

/* Newest first, until the time, the bytes or the records end. */
static void put_launches(trace *t, int shard)
{
    for (uint64_t number = ks_timeline_launches(t->timeline, shard); number > 0; number--) {
        ks_launch_record r;
        ks_plan_record plan;
        if (!ks_timeline_launch(t->timeline, shard, number, &r)) return;
        if (r.launched_ns + r.h2d_ns + r.compute_ns + r.d2h_ns < t->since_ns) return;
        t->sums.truncated |= t->out->length >= t->limit;
        if (t->out->length >= t->limit) return;
        if (!ks_timeline_plan(t->timeline, shard, r.plan, &plan)) memcpy(plan.text, "plan", sizeof "plan");
        put_launch(t, shard, number, &r, plan.text);
    }
}

/* Within the compute of their launches. */
static void put_step(trace *t, int shard, const ks_step_record *r)
{
    char id[ID_BYTES];
    make_id(t, shard, r->launch, id);
    begin_event(t, "X", DEVICE, engine_track(shard, r->lane, 1));
    put_us(t, "ts", r->begun_ns);
    put_us(t, "dur", r->ns);
    ks_text_puts(t->out, ",\"cat\":\"node\",\"name\":");
    ks_text_json(t->out, r->name, strlen(r->name));
    ks_text_printf(t->out, ",\"args\":{\"launch\":\"%s\",\"step\":%d}}", id, (int)r->step);
}

static void put_steps(trace *t, int shard)
{
    for (uint64_t number = ks_timeline_steps(t->timeline, shard); number > 0; number--) {
        ks_step_record r;
        if (!ks_timeline_step(t->timeline, shard, number, &r) || r.begun_ns + r.ns < t->since_ns) return;
        t->sums.truncated |= t->out->length >= t->limit;
        if (t->out->length >= t->limit) return;
        put_step(t, shard, &r);
    }
}

/* --- requests ------------------------------------------------------------------------------------------------------- */

static void put_async(trace *t, const char *ph, int shard, int64_t at_ns, const char *name, const char *id)
{
    begin_event(t, ph, HOST, 1 + shard);
    put_us(t, "ts", at_ns);
    ks_text_printf(t->out, ",\"cat\":\"request\",\"name\":\"%s\",\"id\":\"%s\"", name, id);
}

static void put_phase(trace *t, int shard, const char *id, ks_phase phase, int64_t from_ns, int64_t to_ns)
{
    const char *name = ks_phase_name(phase);
    if (to_ns <= from_ns) return;
    put_async(t, "b", shard, from_ns, name, id);
    ks_text_puts(t->out, "}");
    put_async(t, "e", shard, to_ns, name, id);
    ks_text_puts(t->out, "}");
}

/* As Server-Timing has them: they follow each other without a gap. */
static void put_phases(trace *t, int shard, const char *id, const ks_request_record *r)
{
    const int64_t received_ns = r->submitted_ns - r->decode_ns;
    put_phase(t, shard, id, KS_PHASE_receive, r->first_ns, received_ns);
    put_phase(t, shard, id, KS_PHASE_decode, received_ns, r->submitted_ns);
    put_phase(t, shard, id, KS_PHASE_queue, r->submitted_ns, r->launched_ns);
    put_phase(t, shard, id, KS_PHASE_h2d, r->launched_ns, r->launched_ns + r->h2d_ns);
    put_phase(t, shard, id, KS_PHASE_compute, r->launched_ns + r->h2d_ns, r->done_ns - r->d2h_ns);
    put_phase(t, shard, id, KS_PHASE_d2h, r->done_ns - r->d2h_ns, r->done_ns);
    put_phase(t, shard, id, KS_PHASE_encode, r->done_ns, r->answered_ns);
}

static void put_request(trace *t, int shard, uint64_t number, const ks_request_record *r)
{
    const int index = (int)r->model;
    const char *model = index < ks_model_count() ? ks_model_at(index)->label : "unknown";
    char id[ID_BYTES], launch[ID_BYTES];
    make_id(t, shard, number, id);
    put_async(t, "b", shard, r->first_ns, model, id);
    ks_text_puts(t->out, ",\"args\":{\"request_id\":");
    ks_text_json(t->out, r->request_id, strlen(r->request_id));
    if (r->trace[0] || r->trace[1])
        ks_text_printf(t->out, ",\"trace_id\":\"%016" PRIx64 "%016" PRIx64 "\"", r->trace[0], r->trace[1]);
    ks_text_printf(t->out, ",\"status\":%d,\"in_bytes\":%" PRIu64 ",\"out_bytes\":%" PRIu64,
                   ks_status_http((ks_status)r->status), r->in_bytes, r->out_bytes);
    if (r->status != KS_OK) ks_text_printf(t->out, ",\"code\":\"%s\"", ks_status_code((ks_status)r->status));
    if (r->launch) {
        make_id(t, shard, r->launch, launch);
        ks_text_printf(t->out, ",\"launch\":\"%s\"", launch);
    }
    ks_text_puts(t->out, "}}");
    if (r->ran) put_phases(t, shard, id, r);
    put_async(t, "e", shard, r->answered_ns, model, id);
    ks_text_puts(t->out, "}");
    note_span(t, r->first_ns, r->answered_ns);
    t->sums.requests++;
}

static void put_requests(trace *t, int shard)
{
    for (uint64_t number = ks_timeline_requests(t->timeline, shard); number > 0; number--) {
        ks_request_record r;
        if (!ks_timeline_request(t->timeline, shard, number, &r) || r.answered_ns < t->since_ns) return;
        t->sums.truncated |= t->out->length >= t->limit;
        if (t->out->length >= t->limit) return;
        put_request(t, shard, number, &r);
    }
}

/* --- the document ------------------------------------------------------------------------------------------------- */

static ks_status read_query(const char *query, int64_t *ms, ks_error *error)
{
    *ms = 0;
    if (query[0] == '\0') return KS_OK;
    char *end = NULL;
    const bool known = strncmp(query, "ms=", 3) == 0 && query[3] >= '0' && query[3] <= '9';
    if (known) *ms = strtoll(query + 3, &end, 10);
    if (!known || *end != '\0' || *ms < 1 || *ms > MS_MAX)
        return ks_fail(error, KS_PARAMETER, "a trace has one parameter, ms: the last 1 to %d milliseconds", MS_MAX);
    return KS_OK;
}

static void name_lanes(trace *t, int shard)
{
    char name[64];
    snprintf(name, sizeof name, "shard %d", shard);
    name_track(t, HOST, 1 + shard, "thread_name", name);
    for (int lane = 0; lane < KS_LANES_MAX; lane++)
        for (int e = 0; e < ENGINES; e++) {
            if (!(t->lanes[e] >> lane & 1)) continue;
            snprintf(name, sizeof name, "shard %d lane %d %s", shard, lane, engine_names[e]);
            name_track(t, DEVICE, engine_track(shard, lane, e), "thread_name", name);
        }
}

/* The events of this process, those behind ms, in bytes_max of out, or a little more. */
static trace_sums write_events(const ks_api_view *view, int64_t ms, size_t bytes_max, ks_text *out)
{
    static_assert(KS_LANES_MAX <= 32, "a bit for each lane");
    const ks_device_info *device = view->device_info;
    const size_t end = out->length + bytes_max;
    char name[sizeof device->name + 32] = "kernserve";
    trace t = {.out = out,
               .timeline = view->timeline,
               .device = ks_view_device(view),
               .first = true,
               .since_ns = ms ? ks_now_ns() - ms * 1000000 : 0};
    if (t.device >= 0) snprintf(name, sizeof name, "kernserve, worker of device %d", t.device);
    name_track(&t, HOST, 0, "process_name", name);
    snprintf(name, sizeof name, "%s %d: %s", device->backend, t.device < 0 ? device->index : t.device, device->name);
    name_track(&t, DEVICE, 0, "process_name", name);
    /* Each half of a shard gets its part of what is left, so that no shard's records take another one's place. */
    for (int shard = 0; shard < view->shards; shard++) {
        const size_t left = out->length < end ? end - out->length : 0;
        t.limit = out->length + left / (size_t)(2 * (view->shards - shard));
        put_launches(&t, shard);
        put_steps(&t, shard);
        t.limit = out->length + left / (size_t)(2 * (view->shards - shard));
        put_requests(&t, shard);
        name_lanes(&t, shard);
        memset(t.lanes, 0, sizeof t.lanes);
    }
    return t.sums;
}

/* Each worker has its part of the document's bytes, however much the others fill. */
static size_t part_bytes(const ks_api_view *view)
{
    return KS_TRACE_BYTES_MAX / (size_t)view->workers->count;
}

void ks_trace_part(const ks_api_view *view, const ks_part_ask *ask, ks_text *out)
{
    trace_sums sums = {0};
    const size_t at = out->length;
    ks_text_add(out, (const char *)&sums, sizeof sums);
    if (!view->timeline || out->broken) return;
    sums = write_events(view, ask->number, part_bytes(view), out);
    if (!out->broken) memcpy(out->bytes + at, &sums, sizeof sums);
}

static void add_part(const ks_text *part, trace_sums *all, ks_text *out)
{
    trace_sums sums;
    if (part->length <= sizeof sums) return;
    memcpy(&sums, part->bytes, sizeof sums);
    if (sums.from_ns && (all->from_ns == 0 || sums.from_ns < all->from_ns)) all->from_ns = sums.from_ns;
    if (sums.to_ns > all->to_ns) all->to_ns = sums.to_ns;
    all->launches += sums.launches;
    all->requests += sums.requests;
    all->truncated |= sums.truncated;
    ks_text_puts(out, ",");
    ks_text_add(out, part->bytes + sizeof sums, part->length - sizeof sums);
}

/* All have one clock: CLOCK_MONOTONIC is the host's. Returns the rows that have answered. */
static unsigned write_parts(const ks_api_view *view, int64_t ms, trace_sums *all, ks_text *out)
{
    ks_text parts[KS_WORKERS_MAX];
    const ks_part_ask ask = {.kind = KS_ASK_TRACE, .number = (uint16_t)ms};
    const unsigned answered = ks_workers_ask(view->workers, view->worker, &ask, KS_ASK_WAIT_NS, parts);
    for (int i = 0; i < view->workers->count; i++) {
        if (answered >> i & 1) add_part(&parts[i], all, out);
        ks_text_fini(&parts[i]);
    }
    return answered | 1u << view->worker;
}

ks_status ks_trace_write(const ks_api_view *view, const char *query, bool of_all, ks_text *out, ks_error *error)
{
    int64_t ms;
    unsigned answered = 0;
    if (!view->timeline) return ks_fail(error, KS_UNAVAILABLE, "the daemon keeps no timeline: --timeline is 0");
    const ks_status status = read_query(query, &ms, error);
    if (status != KS_OK) return status;
    ks_text_puts(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    trace_sums sums = write_events(view, ms, of_all ? part_bytes(view) : KS_TRACE_BYTES_MAX, out);
    if (of_all) answered = write_parts(view, ms, &sums, out);
    ks_text_printf(out,
                   "\n],\"otherData\":{\"clock\":\"CLOCK_MONOTONIC\",\"from_ns\":%" PRId64 ",\"to_ns\":%" PRId64
                   ",\"launches\":%" PRIu64 ",\"requests\":%" PRIu64 ",\"truncated\":%s",
                   sums.from_ns, sums.to_ns, sums.launches, sums.requests, sums.truncated ? "true" : "false");
    if (of_all) ks_view_missing(view, answered, out);
    ks_text_puts(out, "}}\n");
    return KS_OK;
}
