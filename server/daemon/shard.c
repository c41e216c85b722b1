#include "daemon/shard.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/http.h"
#include "base/log.h"
#include "base/notify.h"
#include "engine/tune/warm.h"

enum { HANDED_MAX = 1024, ROUNDS = 8 };
static const int64_t asleep_ns = 500000000; /* longest sleep: the watchdog wants to see turns */
static const int64_t expire_ns = 50000000;  /* between two looks at deadlines, and at slots that rest */
static const int64_t quiet_ns = 300000000;  /* without a request before a drained shard ends */
static const int64_t recheck_ns = 30000000000;
static const int64_t device_ns = 1000000000; /* for running work, after a drain's deadline */

struct ks_shard {
    /* fixed after start: */
    ks_daemon *daemon;
    int index, wake_fd;
    pthread_t thread;
    sem_t opened;
    ks_engine *engine;
    ks_http *http;
    /* written before `opened` is posted: */
    ks_status status;
    ks_error error;
    /* under lock: */
    pthread_mutex_t lock;
    ks_arrival queue[HANDED_MAX];
    int first, replacing; /* of the queued ones, those that take another's place */
    /* any thread, atomic: */
    _Atomic int queued; /* changed under lock */
    _Atomic bool draining;
    _Atomic int64_t turned_ns, drain_until_ns; /* behind the flag: compilers read several flags below in one load */
    /* this thread only: */
    bool drained, lost, captured, clean;
    bool crowded;     /* more connections than a turn makes room for have come */
    bool nothing_ran; /* since rest_since_ns */
    bool rests_shortly;
    int64_t now_ns, expired_ns, checked_ns, quiet_since_ns, rest_since_ns;
};

/* --- connections in ----------------------------------------------------------------------------------------------- */

static void wake_fd(int fd)
{
    uint64_t one = 1;
    ssize_t wrote = TEMP_FAILURE_RETRY(write(fd, &one, sizeof one));
    (void)wrote; /* a full counter wakes all the same */
}

static void wake(const ks_shard *shard)
{
    wake_fd(shard->wake_fd);
}

bool ks_shard_give(ks_shard *shard, const ks_arrival *arrival)
{
    pthread_mutex_lock(&shard->lock);
    int queued = atomic_load(&shard->queued);
    bool room = queued < HANDED_MAX;
    if (room) {
        shard->queue[(shard->first + queued) % HANDED_MAX] = *arrival;
        shard->replacing += arrival->replaces;
        atomic_store(&shard->queued, queued + 1);
    }
    pthread_mutex_unlock(&shard->lock);
    if (room && (queued == 0 || arrival->replaces)) wake(shard);
    return room;
}

static bool take_one(ks_shard *shard, ks_arrival *out)
{
    if (atomic_load(&shard->queued) == 0) return false;
    pthread_mutex_lock(&shard->lock);
    *out = shard->queue[shard->first];
    pthread_mutex_unlock(&shard->lock);
    return true;
}

/* Only after the connection counts as the shard's own, so that it is counted at all times. */
static void taken_one(ks_shard *shard)
{
    pthread_mutex_lock(&shard->lock);
    shard->replacing -= shard->queue[shard->first].replaces;
    shard->first = (shard->first + 1) % HANDED_MAX;
    atomic_fetch_sub(&shard->queued, 1);
    pthread_mutex_unlock(&shard->lock);
}

/* Of the whole daemon, those on their way included. */
static int above_limit(const ks_shard *shard)
{
    return ks_connections_count(&shard->daemon->row->connections) - (int)shard->daemon->config->connections;
}

/* How many connections gave way for queued ones. */
static int make_room(ks_shard *shard)
{
    pthread_mutex_lock(&shard->lock);
    const int replacing = shard->replacing, above = above_limit(shard);
    pthread_mutex_unlock(&shard->lock);
    const int wanted = replacing < above ? replacing : above, most = ks_http_room_most(shard->http);
    const int made = wanted > 0 ? ks_http_make_room(shard->http, wanted < most ? wanted : most) : 0;
    shard->crowded = made == most;
    return made;
}

static void take_handed(ks_shard *shard)
{
    ks_arrival next;
    shard->crowded = false;
    if (atomic_load(&shard->queued) == 0) return;
    int made = make_room(shard);
    bool replaced = false;
    while (ks_http_has_place(shard->http) && take_one(shard, &next)) {
        if (next.replaces && made == 0 && above_limit(shard) > 0) break; /* until a connection gives way */
        if (next.replaces && made > 0) made--;
        replaced |= next.replaces;
        ks_http_add(shard->http, &next);
        taken_one(shard);
    }
    if (replaced) wake_fd(shard->daemon->room_fd);
}

/* Connections that no shard will serve. */
static void close_handed(ks_shard *shard)
{
    ks_arrival next;
    while (take_one(shard, &next)) {
        close(next.fd);
        ks_address_give(&next.address);
        ks_connections_remove(&shard->daemon->row->connections);
        taken_one(shard);
    }
}

int64_t ks_shard_yields(const ks_shard *shard)
{
    return ks_http_yields(shard->http);
}

int ks_shard_connections(const ks_shard *shard)
{
    return atomic_load(&shard->queued) + ks_http_connections(shard->http);
}

int64_t ks_shard_turned_ns(const ks_shard *shard)
{
    return atomic_load(&shard->turned_ns);
}

/* --- a turn ------------------------------------------------------------------------------------------------------- */

/* The next request of a client that waits for each response comes within microseconds: to fall asleep and to be woken would take as long.
 * A shard whose last rest was longer sleeps at once, so that seldom requests cost no more. On the CPU the client may need the core. */
static bool is_short(const ks_shard *shard)
{
    return shard->daemon->device_info.polled && shard->now_ns - shard->rest_since_ns < shard->daemon->config->busy_poll;
}

static bool rests_awake(const ks_shard *shard)
{
    return shard->rests_shortly && is_short(shard);
}

/* What ends while jobs run is no rest: else the end of each seldom request's job would say that it came quickly. */
static void note_rest(ks_shard *shard, bool happened)
{
    const bool runs = ks_engine_running(shard->engine);
    if (happened && shard->nothing_ran) shard->rests_shortly = is_short(shard);
    if (happened || runs) shard->rest_since_ns = shard->now_ns;
    shard->nothing_ran = !runs;
}

/* How long nothing can happen without an event of a descriptor. */
static int64_t may_sleep_ns(const ks_shard *shard)
{
    if (shard->captured || shard->crowded) return 0;
    if (ks_engine_running(shard->engine) && ks_engine_polls(shard->engine)) {
        /* Short work is spun for; of long work the first half is slept through. */
        int64_t expected_ns = ks_engine_expected_ns(shard->engine);
        return expected_ns > 200000 ? (expected_ns < 2000000 ? expected_ns / 2 : 1000000) : 0;
    }
    if (ks_engine_ready(shard->engine)) return ks_engine_running(shard->engine) ? expire_ns : 0;
    if (ks_engine_running(shard->engine) || shard->drained) return expire_ns;
    if (rests_awake(shard)) return 0;
    const int64_t tune_ns = ks_engine_tune_wait_ns(shard->engine);
    const int64_t most_ns = ks_engine_dirty(shard->engine) ? expire_ns : asleep_ns;
    return tune_ns < most_ns ? tune_ns : most_ns;
}

/* reason: NULL where another shard found the fault, and logs it. */
static void lose_device(ks_shard *shard, const char *reason)
{
    if (shard->lost) return;
    shard->lost = true;
    /* One fault of the device, however many shards meet it; the state is known before the first response says so. The watch may
     * have seen the fault first, which does not know the reason. */
    if (atomic_exchange(&shard->daemon->row->state, KS_STATE_FAILED) != KS_STATE_FAILED)
        atomic_fetch_add(&shard->daemon->device_faults, 1);
    if (reason && !atomic_exchange(&shard->daemon->fault_told, true))
        KS_LOG(KS_LOG_ERROR, "device failed", KS_INT("shard", shard->index), KS_TEXT("reason", reason));
    ks_engine_fail_all(shard->engine);
    ks_http_fail(shard->http, KS_DEVICE);
    ks_http_resume(shard->http, ks_engine_collect(shard->engine));
}

/* Whichever found the fault: the backend, this shard's engine (which also gives up on work that stalls), another shard. */
static void look_at_device(ks_shard *shard)
{
    if (shard->lost) return;
    if (ks_engine_lost(shard->engine))
        lose_device(shard, ks_engine_fault(shard->engine));
    else if (shard->daemon->backend->failed(shard->daemon->device))
        lose_device(shard, "the device's context is lost");
    else if (atomic_load_explicit(&shard->daemon->row->state, memory_order_acquire) == KS_STATE_FAILED)
        lose_device(shard, NULL);
}

/* Launches what is ready and answers what is done, until neither is left or the descriptors want a look. */
static bool work(ks_shard *shard)
{
    bool any = false;
    for (int i = 0; i < ROUNDS; i++) {
        ks_engine_launch(shard->engine);
        ks_job *done = ks_engine_collect(shard->engine);
        look_at_device(shard);
        if (done == NULL) return any;
        any = true;
        ks_http_resume(shard->http, done);
        look_at_device(shard); /* what the library has read meanwhile is launched in the next round */
    }
    return any;
}

/* Ready means that real work succeeded lately; a shard without work makes some. */
static void check_idle(ks_shard *shard)
{
    ks_error error = {0};
    if (shard->now_ns - shard->checked_ns < recheck_ns || shard->lost || ks_http_in_flight(shard->http) > 0 ||
        ks_engine_running(shard->engine))
        return;
    shard->checked_ns = shard->now_ns;
    const ks_status status = ks_engine_check(shard->engine, &error);
    if (status == KS_OK)
        atomic_store(&shard->daemon->checked_ns, ks_now_ns());
    else if (status == KS_DEVICE)
        lose_device(shard, error.text);
    else /* the host's, no memory for instance: no verdict on the device, and the next test is due as ever */
        KS_LOG(KS_LOG_WARN, "known-answer test not made", KS_INT("shard", shard->index), KS_TEXT("reason", error.text));
}

static void turn(ks_shard *shard)
{
    take_handed(shard);
    bool happened = ks_http_turn(shard->http, may_sleep_ns(shard));
    look_at_device(shard); /* before what was just read is launched: nothing is computed once a client knows */
    happened |= work(shard);
    /* Nothing to launch and nothing to answer: time for what makes later requests faster. */
    shard->captured = !ks_engine_ready(shard->engine) && !shard->lost && ks_engine_capture(shard->engine);
    shard->now_ns = ks_now_ns();
    if (shard->now_ns - shard->expired_ns >= expire_ns) {
        shard->expired_ns = shard->now_ns;
        ks_engine_expire(shard->engine, shard->now_ns);
        ks_http_resume(shard->http, ks_engine_collect(shard->engine));
    }
    if (shard->daemon->models) shard->captured |= ks_models_turn(shard->daemon->models, shard->index, shard->engine);
    note_rest(shard, happened);
    const bool rests = !happened && !rests_awake(shard);
    if (rests) check_idle(shard);
    if (rests && !shard->captured && !shard->lost) ks_engine_tune_step(shard->engine);
    atomic_store_explicit(&shard->turned_ns, shard->now_ns, memory_order_relaxed);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

void ks_shard_drain(ks_shard *shard, int64_t deadline_ns)
{
    atomic_store(&shard->drain_until_ns, deadline_ns);
    atomic_store(&shard->draining, true);
    wake(shard);
}

/* true: no request is left, and none has come for a while or can come; or the time is over. */
static bool is_drained(ks_shard *shard)
{
    if (!atomic_load(&shard->draining)) return false;
    if (!shard->drained) {
        shard->drained = true;
        shard->quiet_since_ns = shard->now_ns;
        ks_http_drain(shard->http);
    }
    if (ks_shard_connections(shard) == 0 && ks_http_in_flight(shard->http) == 0)
        return true; /* the listener is closed */
    if (ks_http_in_flight(shard->http) > 0 || atomic_load(&shard->queued) > 0) shard->quiet_since_ns = shard->now_ns;
    return shard->now_ns - shard->quiet_since_ns >= quiet_ns || shard->now_ns >= atomic_load(&shard->drain_until_ns);
}

/* What still waits gets that response: the library must not be stopped with a suspended connection, nor the engine closed
 * while the device works. false: the device did not come back. */
static bool cut_rest(ks_shard *shard)
{
    int64_t until_ns = ks_now_ns() + device_ns;
    ks_http_fail(shard->http, KS_DRAINING);
    while (ks_engine_running(shard->engine) || ks_engine_ready(shard->engine)) {
        if (ks_now_ns() > until_ns) return false;
        ks_http_turn(shard->http, 1000000);
        work(shard);
    }
    return true;
}

static void close_parts(ks_shard *shard)
{
    bool idle = true;
    shard->clean = shard->http == NULL || ks_http_in_flight(shard->http) == 0;
    if (shard->http && shard->engine) idle = cut_rest(shard);
    if (!idle) {
        /* The device still writes into this memory; the process is about to end. */
        shard->clean = false;
        return;
    }
    close_handed(shard);
    ks_http_close(&shard->http);
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

static ks_status open_engine(ks_shard *shard, ks_error *error)
{
    ks_engine_options options = shard->daemon->engine;
    options.wake_fd = shard->wake_fd;
    if (shard->daemon->timeline) options.timeline = ks_timeline_writer(shard->daemon->timeline, shard->index);
    options.catalog = ks_catalogs_writer(shard->daemon->catalogs, shard->index);
    ks_status status = ks_engine_open(&options, &shard->engine, error);
    if (status == KS_OK) ks_view_engine(&shard->daemon->api, shard->index, shard->engine);
    return status;
}

/* Trials of one plan may take seconds: each asks for as much time again. */
static void say_warmed(int done, int total)
{
    char text[96];
    snprintf(text, sizeof text, "STATUS=Warming up %d of %d\nEXTEND_TIMEOUT_USEC=60000000", done, total);
    ks_notify(text);
}

static ks_status warm(ks_shard *shard, ks_error *error)
{
    const ks_list *list = &shard->daemon->config->warm;
    if (shard->index == 0) atomic_store(&shard->daemon->api.warm_total, list->count * shard->daemon->shards);
    for (int i = 0; i < list->count; i++) {
        ks_spec spec;
        ks_status status = ks_warm_spec("--warm", list->item[i], &spec, error);
        if (status == KS_OK) status = ks_engine_tune(shard->engine, &spec, NULL, NULL, error);
        if (status == KS_OK) status = ks_engine_warm(shard->engine, &spec, error);
        if (status != KS_OK) return status;
        say_warmed(atomic_fetch_add(&shard->daemon->api.warm_done, 1) + 1, atomic_load(&shard->daemon->api.warm_total));
    }
    return shard->daemon->models ? ks_models_warm(shard->daemon->models, shard->engine, error) : KS_OK;
}

static ks_status start(ks_shard *shard)
{
    ks_daemon *daemon = shard->daemon;
    ks_status status = open_engine(shard, &shard->error);
    if (status == KS_OK) status = ks_engine_check(shard->engine, &shard->error);
    if (status == KS_OK) {
        shard->checked_ns = ks_now_ns();
        atomic_store(&daemon->checked_ns, shard->checked_ns);
        status = warm(shard, &shard->error);
    }
    if (status != KS_OK) return status;
    ks_shard_metrics *metrics = ks_metrics_writer(daemon->metrics, shard->index);
    ks_http_options options = ks_daemon_http(daemon, shard->engine, metrics, shard->wake_fd);
    if (daemon->otlp) options.request.spans = ks_otlp_writer(daemon->otlp, shard->index);
    options.shard = options.request.shard = shard->index;
    return ks_http_open(&options, &shard->http, &shard->error);
}

static void *shard_main(void *context)
{
    ks_shard *shard = context;
    char name[16] = "ks-shard-";
    name[9] = (char)('0' + shard->index / 10 % 10);
    name[10] = (char)('0' + shard->index % 10);
    pthread_setname_np(pthread_self(), name);
    shard->status = start(shard);
    bool good = shard->status == KS_OK;
    shard->now_ns = ks_now_ns();
    atomic_store(&shard->turned_ns, shard->now_ns);
    sem_post(&shard->opened);
    while (good && !is_drained(shard)) turn(shard);
    close_parts(shard);
    return NULL;
}

static void destroy(ks_shard *shard)
{
    /* A document may be read until main has ended the second listener. */
    ks_view_engine(&shard->daemon->api, shard->index, NULL);
    /* A lost device's memory and lanes stay: giving them back may block for ever, and the process is about to end. */
    if (shard->engine && shard->http == NULL && !shard->lost) ks_engine_close(&shard->engine);
    if (shard->wake_fd >= 0) close(shard->wake_fd);
    sem_destroy(&shard->opened);
    pthread_mutex_destroy(&shard->lock);
    free(shard);
}

ks_status ks_shard_open(ks_daemon *daemon, int index, ks_shard **out, ks_error *error)
{
    ks_shard *shard = calloc(1, sizeof *shard);
    if (shard == NULL) return ks_fail(error, KS_MEMORY, "no memory for a shard");
    shard->daemon = daemon;
    shard->index = index;
    pthread_mutex_init(&shard->lock, NULL);
    sem_init(&shard->opened, 0, 0);
    shard->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (shard->wake_fd < 0 || pthread_create(&shard->thread, NULL, shard_main, shard) != 0) {
        destroy(shard);
        return ks_fail(error, KS_SYSTEM, "cannot start the thread of shard %d", index);
    }
    while (sem_wait(&shard->opened) != 0) continue;
    if (shard->status != KS_OK) {
        ks_status status = shard->status;
        *error = shard->error;
        pthread_join(shard->thread, NULL);
        destroy(shard);
        return status;
    }
    *out = shard;
    return KS_OK;
}

bool ks_shard_join(ks_shard **pointer)
{
    ks_shard *shard = *pointer;
    *pointer = NULL;
    pthread_join(shard->thread, NULL);
    bool clean = shard->clean;
    destroy(shard);
    return clean;
}
