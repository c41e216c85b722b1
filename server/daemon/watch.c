#include "daemon/watch.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/notify.h"
#include "daemon/workers/process.h"
#include "base/tokens.h"
#include "http/tls/tls.h"

static const int64_t tick_ns = 50 * KS_MS, late_tick_ns = 100 * KS_MS, stuck_ns = 30 * KS_S, response_ns = KS_S,
                     seen_ns = 250 * KS_MS, grace_ns = 2 * KS_S;

/* How often each sender asked to stop. Where the whole group of processes is asked, a supervised daemon gets the signal
 * itself and passed on: that is one request. */
static struct {
    int passed_on, direct;
} stops; /* main's; then the guard's of the drain */

static bool is_stop(int signal)
{
    return signal == SIGTERM || signal == SIGINT;
}

static void count_stop(const siginfo_t *info)
{
    const char *supervisor = getenv(KS_SUPERVISOR_PID);
    if (!is_stop(info->si_signo)) return;
    if (supervisor && info->si_pid == getppid() && atol(supervisor) == (long)getppid())
        stops.passed_on++;
    else
        stops.direct++;
}

bool ks_watch_stop_asked(void)
{
    sigset_t set;
    return sigpending(&set) == 0 && (sigismember(&set, SIGTERM) == 1 || sigismember(&set, SIGINT) == 1);
}

/* 0: none came. Signals are blocked in every thread since before main (early.cc). */
static int wait_signal(int64_t timeout_ns)
{
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    const struct timespec timeout = {.tv_sec = timeout_ns / KS_S, .tv_nsec = timeout_ns % KS_S};
    const int signal = sigtimedwait(&set, &info, &timeout);
    if (signal <= 0) return 0;
    count_stop(&info);
    return signal;
}

/* --- the device -----------------------------------------------------------------------------------------------------
 */

/* A shard that gave work up as stalled says so in the state. */
static bool device_lost(ks_daemon *daemon)
{
    return daemon->backend->failed(daemon->device) || atomic_load(&daemon->row->state) == KS_STATE_FAILED;
}

/* The context is lost for good. The shards answer what is pending with 503; then the process goes without giving
 * anything back, because each call into the driver may block for ever. */
static _Noreturn void leave_lost(ks_daemon *daemon)
{
    if (atomic_exchange(&daemon->row->state, KS_STATE_FAILED) != KS_STATE_FAILED)
        atomic_fetch_add(&daemon->device_faults, 1);
    KS_LOG(KS_LOG_ERROR, "the device is lost; leaving", KS_TEXT("backend", daemon->backend->name),
           KS_INT("exit", KS_EXIT_INTERNAL));
    ks_notify("STOPPING=1\nSTATUS=Device lost");
    const int64_t until = ks_now_ns() + response_ns;
    usleep((useconds_t)(seen_ns / 1000)); /* clients that ask for health now shall see it */
    while (ks_now_ns() < until && ks_metrics_in_flight_now(daemon->metrics) > 0) usleep(10000);
    ks_log_close();
    _exit(KS_EXIT_INTERNAL);
}

/* --- shards ---------------------------------------------------------------------------------------------------------
 */

/* A turn that lasts: time counts only while the watch itself ticks, so that after a pause of the process the shards have
 * their turns before the watch looks at them. */
typedef struct lasting {
    int64_t turned_ns; /* when the shard's last turn ended */
    ks_turn_clock since;
} lasting;

typedef struct shard_watch {
    int reported; /* the stuck shard that the log knows of; -1: none */
    int64_t fed_ns, feed_ns;
    lasting shard[KS_SHARDS_MAX];
} shard_watch;

/* The shard whose turn has lasted longest, and how long; -1: all turn. */
static int stuck_shard(const ks_watched *watched, shard_watch *self, int64_t *late_ns)
{
    const int64_t now = ks_now_ns();
    int stuck = -1;
    *late_ns = stuck_ns;
    for (int i = 0; i < watched->daemon->shards; i++) {
        lasting *one = &self->shard[i];
        const int64_t turned = ks_shard_turned_ns(watched->shards[i]);
        const int64_t lasts_ns = ks_turn_clock_look(&one->since, now, late_tick_ns);
        if (turned != one->turned_ns) ks_turn_clock_start(&one->since, now);
        if (turned == one->turned_ns && turned > 0 && lasts_ns >= *late_ns) {
            *late_ns = lasts_ns;
            stuck = i;
        }
        one->turned_ns = turned;
    }
    return stuck;
}

/* Says it once per stuck shard; systemd's watchdog is fed only while none is stuck. */
static void check_shards(const ks_watched *watched, shard_watch *self)
{
    int64_t late_ns;
    const int stuck = stuck_shard(watched, self, &late_ns);
    if (stuck >= 0 && stuck != self->reported)
        KS_LOG(KS_LOG_ERROR, "a shard's turn does not end", KS_INT("shard", stuck), KS_INT("seconds", late_ns / KS_S));
    self->reported = stuck;
    const int64_t now = ks_now_ns();
    if (stuck >= 0 || self->feed_ns == 0 || now - self->fed_ns < self->feed_ns) return;
    self->fed_ns = now;
    ks_notify("WATCHDOG=1");
}

/* --- SIGHUP ---------------------------------------------------------------------------------------------------------
 */

enum { CHANGES_MAX = 256 };

/* Names of options that are not what they were, and that are not applied. */
static void name_changes(const ks_config *given, const ks_config *fresh, char out[CHANGES_MAX])
{
    static const char *const applied[] = {"log-level", "token-file", "tls-cert", "tls-key", "tls-client-ca"};
    const char *name;
    out[0] = 0;
    for (int at = 0; (name = ks_config_next_change(given, fresh, &at));) {
        size_t i = 0;
        const size_t n = strlen(out);
        while (i < sizeof applied / sizeof applied[0] && strcmp(applied[i], name) != 0) i++;
        if (i == sizeof applied / sizeof applied[0]) snprintf(out + n, CHANGES_MAX - n, "%s%s", n ? ", " : "", name);
    }
}

/* The files of TLS are read again where there is a listener with it. */
static bool read_tls(ks_daemon *daemon, const ks_config *fresh, ks_tls **tls, ks_error *error)
{
    return atomic_load(&daemon->tls_expiry_s) == 0 || ks_tls_read(fresh, tls, error) == KS_EXIT_OK;
}

/* All or nothing: the log level, the tokens, the certificate. */
static bool reload(const ks_watched *watched, char changes[CHANGES_MAX], ks_error *error)
{
    ks_config fresh;
    ks_command command;
    if (ks_config_load(watched->argc, watched->argv, &fresh, &command, error) != KS_EXIT_OK) return false;
    ks_tokens *tokens = NULL;
    ks_tls *tls = NULL;
    bool good = true;
    if (watched->tokens_wanted != (*fresh.token_file != 0)) {
        ks_fail(error, KS_CONFIG, "token-file: to begin or end with tokens needs a restart");
        good = false;
    } else if (watched->tokens_wanted) {
        good = ks_tokens_read(fresh.token_file, &tokens, error) == KS_EXIT_OK;
    }
    good = good && read_tls(watched->daemon, &fresh, &tls, error);
    if (good) {
        ks_log_set_levels(ks_log_up_to(fresh.log_level));
        if (tokens) ks_tokens_publish_take(&watched->daemon->tokens, tokens);
        if (tls) atomic_store(&watched->daemon->tls_expiry_s, ks_tls_expires_s(tls));
        if (tls) ks_tls_publish_take(tls);
        name_changes(watched->given, &fresh, changes);
    }
    if (!good) ks_tokens_release(&tokens);
    ks_config_free(&fresh);
    return good;
}

static void on_hang_up(const ks_watched *watched)
{
    char text[64], changes[CHANGES_MAX] = "";
    ks_error error = {0};
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%" PRId64, ks_now_ns() / 1000);
    ks_notify(text);
    const bool good = reload(watched, changes, &error);
    ks_metrics_reloaded(watched->daemon->metrics, good);
    if (good)
        KS_LOG(KS_LOG_INFO, "configuration read again",
               KS_TEXT("applied", "log-level, token-file, tls-cert, tls-key, tls-client-ca"),
               KS_TEXT("need_restart", *changes ? changes : "none"), KS_INT("token_tables", ks_tokens_tables()));
    else
        KS_LOG(KS_LOG_ERROR, "configuration refused, nothing has changed", KS_TEXT("error", error.text));
    ks_notify("READY=1");
}

void ks_watch_save_tunes(ks_daemon *daemon, int64_t wait_ns)
{
    ks_error error = {0};
    if (!daemon->engine.tunes || ks_tunes_save(daemon->engine.tunes, wait_ns, &error) == KS_OK) return;
    KS_LOG(KS_LOG_WARN, "the tune cache is not written", KS_TEXT("file", daemon->config->tune_cache),
           KS_TEXT("reason", error.text));
}

/* A supervisor of workers gives no connection to one that is stopped. */
static void beat(ks_daemon *daemon)
{
    atomic_store(&daemon->row->beat_ns, ks_now_ns());
}

void ks_watch(const ks_watched *watched)
{
    shard_watch shards = {.reported = -1, .feed_ns = ks_notify_watchdog_ns()};
    for (;;) {
        const int signal = wait_signal(tick_ns);
        beat(watched->daemon);
        if (is_stop(signal)) return;
        if (signal == SIGHUP) on_hang_up(watched);
        if (device_lost(watched->daemon)) leave_lost(watched->daemon);
        check_shards(watched, &shards);
        ks_watch_save_tunes(watched->daemon, 0);
    }
}

/* --- drain ----------------------------------------------------------------------------------------------------------
 */

static _Noreturn void leave_at_once(const char *why)
{
    KS_LOG(KS_LOG_WARN, "stopped at once; what ran is cut", KS_TEXT("why", why), KS_INT("exit", KS_EXIT_AGAIN));
    ks_log_close();
    _exit(KS_EXIT_AGAIN);
}

/* Watches over the drain, whose waits cannot be interrupted. */
typedef struct guard {
    int64_t until_ns;
    _Atomic bool drained;
    pthread_t thread;
    bool started;
} guard;

static void *watch_over(void *argument)
{
    guard *self = argument;
    for (int64_t now; (now = ks_now_ns()) < self->until_ns;) {
        wait_signal(self->until_ns - now);
        if (atomic_load(&self->drained)) return NULL;
        if (stops.direct > 1 || stops.passed_on > 1) leave_at_once("a second signal");
    }
    leave_at_once("the shards did not end in time");
}

/* SIGHUP wakes it; where it leaves the process meanwhile, this does not return. */
static void end_guard(guard *self)
{
    if (!self->started) return;
    atomic_store(&self->drained, true);
    pthread_kill(self->thread, SIGHUP);
    pthread_join(self->thread, NULL);
}

int ks_watch_drain(const ks_watched *watched)
{
    ks_daemon *daemon = watched->daemon;
    const int64_t delay_ns = daemon->config->drain_delay, timeout_ns = daemon->config->shutdown_timeout;
    atomic_store(&daemon->row->state, KS_STATE_DRAINING);
    KS_LOG(KS_LOG_INFO, "draining", KS_INT("delay_ms", delay_ns / KS_MS), KS_INT("timeout_ms", timeout_ns / KS_MS));
    ks_notify("STOPPING=1\nSTATUS=Draining");
    const int64_t begun_ns = ks_now_ns();
    guard over = {.until_ns = begun_ns + delay_ns + timeout_ns + grace_ns};
    over.started = pthread_create(&over.thread, NULL, watch_over, &over) == 0;
    while (ks_now_ns() - begun_ns < delay_ns) {
        usleep(10000);
        beat(daemon);
    }
    ks_listener_close(watched->listener);
    const int64_t deadline_ns = ks_now_ns() + timeout_ns;
    for (int i = 0; i < daemon->shards; i++) ks_shard_drain(watched->shards[i], deadline_ns);
    bool whole = true;
    for (int i = 0; i < daemon->shards; i++) whole = ks_shard_join(&watched->shards[i]) && whole;
    if (device_lost(daemon)) leave_lost(daemon);
    end_guard(&over);
    KS_LOG(KS_LOG_INFO, "drained", KS_INT("cut", !whole), KS_INT("took_ms", (ks_now_ns() - begun_ns) / KS_MS));
    return whole ? KS_EXIT_OK : KS_EXIT_AGAIN;
}
