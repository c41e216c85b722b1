/* What must hold of the supervisor, beside what it does: docs/workers.md and docs/operate.md once more, as a model of connections, of each
 * worker's starts, and of signals.
 *
 * Time       What a supervisor must see by looking is judged LOOK_NS later, of time in which it was not stopped itself.
 * Interface  host.h */
#include <string.h>
#include <sys/wait.h>

#include "observe/metrics.h"
#include "sim/supervisor/host.h"

enum { STARTS = 128, SIGNALS = 32 };
static const int64_t LOOK_NS = 1300 * SIM_MS, LEAVES_NS = 8000 * (int64_t)SIM_MS;

typedef enum place { NOWHERE, BACKLOG, IN_HAND, IN_CHANNEL, TAKEN, OVER } place;

typedef struct link {
    place place;
    int channel, process; /* the last one that held it; whose hand it is in */
} link_t;

typedef struct row {
    bool down, ever; /* reaped; has been ready */
    int failures, pid;
    int64_t may_ns, due_ns; /* of the next start */
    int64_t start_ns[STARTS];
    int starts;
} row_t;

static struct {
    link_t link[HOST_LINKS];
    row_t row[HOST_WORKERS];
    uint32_t owed[HOST_PROCESSES]; /* signals that the supervisor has taken, and this one not */
    int64_t asked_ns[SIGNALS];
    int64_t read_ns, stop_ns; /* the clock, as the supervisor has it; when it began to stop */
    int64_t channel_ns[2 * HOST_WORKERS], backlog_ns[HOST_LISTENERS];
    int64_t looked_ns;            /* when no thread could go on */
    bool good[HOST_WORKERS];      /* a worker was ready then, and not stuck */
    int64_t alone_ns;             /* since when no process but its own is there */
    int64_t bad_ns[HOST_WORKERS]; /* since when a worker is one that gets none; 0: it may get some */
    bool stopping, killed, open_fault;
    int code, descriptors;
} rules;

void rules_begin(void)
{
    memset(&rules, 0, sizeof rules);
    rules.code = -1;
    rules.descriptors = -1;
    for (int i = 0; i < HOST_WORKERS; i++) rules.row[i].down = true;
}

static const ks_worker_row *row_of(int index)
{
    return host_table() ? &host_table()->row[index] : NULL;
}

/* Whether it has lasted since then, while the supervisor could see it. */
static bool is_late(int64_t since_ns, int64_t most_ns)
{
    const int64_t resumed_ns = host_resumed_ns();
    return host_now_ns() - (since_ns > resumed_ns ? since_ns : resumed_ns) > most_ns;
}

static bool faults_may_come(void)
{
    return (host.no_files || host.no_room) && host_now_ns() >= host.faults_ns;
}

static bool is_full(const ks_worker_row *at)
{
    enum { NEARLY = 12 };
    return ks_connections_pending(&at->connections) >= (host.messages < NEARLY ? host.messages : NEARLY);
}

/* --- connections -------------------------------------------------------------------------------------------------- */

void rules_arrived(int link)
{
    rules.link[link] = (link_t){.place = BACKLOG, .channel = -1};
}

void rules_accepted(int link, int process)
{
    link_t *one = &rules.link[link];
    sim_check(one->place == BACKLOG, "a connection is accepted twice", link, one->place);
    sim_check((process == HOST_SUPERVISOR_PID) == (host.workers > 0), "a connection is accepted by the wrong process",
              link, process);
    *one = (link_t){.place = IN_HAND, .channel = -1, .process = process};
}

static bool is_bad(int index)
{
    const ks_worker_row *row = row_of(index);
    return rules.row[index].down || ks_worker_is_stuck(row, rules.read_ns) ||
           atomic_load(&row->state) == KS_STATE_FAILED;
}

static void check_taker(int link, int channel, bool back)
{
    const int index = host_channel_row(channel);
    sim_check(index >= 0, "a connection is given before its worker has begun", link, channel);
    if (back) return;
    if (rules.row[index].down) sim_wrong("a connection is given to a worker that is down", link, index);
    if (host_channel_is_admin(channel)) return;
    const bool bad = is_bad(index) && rules.bad_ns[index] > 0;
    sim_check(!bad || !is_late(rules.bad_ns[index], SIM_MS),
              "a connection is given to a worker that is stuck, or has no device", link, index);
}

/* Those that it has, on their way included; it has counted some of them, and the others are pending. */
static int really_has(int index, const host_process *process)
{
    int has = host_life_holds(process);
    for (int i = 0; i < HOST_LINKS; i++) {
        const link_t *one = &rules.link[i];
        const bool its =
            one->channel >= 0 && host_channel_row(one->channel) == index && !host_channel_is_admin(one->channel);
        has += its && (one->place == IN_CHANNEL || (one->place == IN_HAND && one->process == process->pid));
    }
    return has + host_channel_sending(index);
}

/* What the supervisor chooses by. */
void rules_counts(void)
{
    for (int i = 0; i < host.workers; i++) {
        const host_process *process = host_of_row(i);
        if (rules.row[i].down || !process || process->state != HOST_RUNS || !process->has_begun) continue;
        const int counted = ks_connections_sum(&row_of(i)->connections), has = really_has(i, process);
        sim_check(counted == has, "a connection is counted twice, or not at all", counted, has);
    }
}

/* To the one with the fewest, as long as little has changed since it was chosen. */
static void check_spread(int link, int index)
{
    enum { CHANGES = 2, MEANWHILE_NS = 10000 };
    const ks_worker_row *to = row_of(index);
    if (host.messages < HOST_LINKS || host_now_ns() - rules.read_ns > MEANWHILE_NS) return;
    if (host_resumed_ns() > rules.looked_ns) return;
    for (int i = 0; i < host.workers; i++) {
        const ks_worker_row *at = row_of(i);
        const bool ready = atomic_load(&at->accepts) && atomic_load(&at->state) == KS_STATE_READY;
        if (i == index || !ready || !rules.good[i] || ks_worker_is_stuck(at, rules.read_ns) || is_full(at)) continue;
        const int more = ks_connections_sum(&to->connections) - 1 - ks_connections_sum(&at->connections);
        sim_check(more <= CHANGES, "a connection is given to a worker that has more than another one", link, more);
    }
}

void rules_sent(int link, int channel)
{
    link_t *one = &rules.link[link];
    const bool own = host_now() == host_processes;
    sim_check(one->place == (own ? IN_HAND : TAKEN), "a connection is given twice", link, one->place);
    if (own) check_taker(link, channel, one->channel == channel);
    if (own && !host_channel_is_admin(channel) && !faults_may_come()) check_spread(link, host_channel_row(channel));
    one->place = IN_CHANNEL;
    one->channel = channel;
    rules_counts();
}

void rules_received(int link, int channel)
{
    link_t *one = &rules.link[link];
    sim_check(one->place == IN_CHANNEL && one->channel == channel, "a connection is taken twice", link, one->place);
    one->place = IN_HAND;
    one->process = host_now()->pid;
}

void rules_taken(int link)
{
    link_t *one = &rules.link[link];
    sim_check(one->place == IN_HAND && one->process == host_now()->pid, "a connection is served twice", link,
              one->place);
    one->place = TAKEN;
}

void rules_lost(int link)
{
    rules.link[link].place = OVER;
}

/* Lost in a hand: by the supervisor never, by a worker where it ends with it. */
void rules_freed(int link)
{
    link_t *one = &rules.link[link];
    const host_process *holder = host_find(one->process);
    const bool lives = holder && holder->state == HOST_RUNS;
    if (!host_supervisor_over() && !host_link_is_gone(link) && !rules.stopping) {
        sim_check(one->place != IN_HAND || !lives, "a connection is dropped", link, one->process);
        sim_check(one->place != IN_CHANNEL, "a connection is dropped with its channel", link, one->channel);
    }
    one->place = OVER;
}

/* --- starts ------------------------------------------------------------------------------------------------------- */

void rules_forked(host_process *child)
{
    row_t *one = &rules.row[child->row];
    const int64_t now_ns = rules.read_ns;
    if (rules.stopping) sim_wrong("a worker is started amid the end", child->row, child->pid);
    sim_check(one->down, "a worker is started beside itself", child->row, child->pid);
    sim_check(now_ns >= one->may_ns, "a worker is started too early", child->row, one->may_ns - now_ns);
    sim_check(one->starts < STARTS, "more starts than the model has", one->starts, 0);
    one->start_ns[one->starts++] = now_ns;
    int lately = 0;
    for (int i = 0; i < one->starts; i++) lately += now_ns - one->start_ns[i] < KS_STARTS_WINDOW_S * SIM_S;
    sim_check(lately <= KS_STARTS_MAX, "a worker is started too often", child->row, lately);
    one->down = false;
    one->pid = child->pid;
    one->due_ns = SIM_NEVER;
}

static void ends(int code)
{
    if (rules.stopping) return;
    rules.stopping = true;
    rules.code = code;
    rules.stop_ns = host_now_ns();
    for (int i = 1; i < HOST_PROCESSES && host.workers; i++)
        if (host_processes[i].state == HOST_RUNS) rules.owed[i] |= 1u << SIGTERM;
}

static bool another_serves(int index)
{
    for (int i = 0; i < host.workers; i++)
        if (i != index && atomic_load(&row_of(i)->accepts)) return true;
    return false;
}

/* It counts as a start. */
void rules_refused_fork(int index)
{
    row_t *one = &rules.row[index];
    one->start_ns[one->starts++] = rules.read_ns;
    one->may_ns = host_now_ns() + SIM_S;
    one->due_ns = SIM_NEVER;
    if (!host.workers || !another_serves(index)) ends(KS_EXIT_SYSTEM);
}

/* --supervise alone. */
static void plan_one(row_t *one, int code)
{
    const int64_t window_ns = KS_STARTS_WINDOW_S * SIM_S;
    const bool often =
        one->starts >= KS_STARTS_MAX && host_now_ns() - one->start_ns[one->starts - KS_STARTS_MAX] < window_ns;
    if (!ks_process_is_worth_a_retry(code) || often) {
        rules.stopping = true;
        rules.code = code;
        rules.stop_ns = host_now_ns();
    }
    one->may_ns = host_now_ns() + SIM_S;
    one->due_ns = one->may_ns;
}

static void plan_worker(int index, int code)
{
    row_t *one = &rules.row[index];
    if (!one->ever && code != KS_EXIT_OK && !ks_process_is_worth_a_retry(code)) {
        ends(code);
        return;
    }
    const bool fails = one->failures >= 3;
    if (fails && !(one->ever && another_serves(index))) {
        ends(KS_EXIT_INTERNAL);
        return;
    }
    const int64_t now_ns = host_now_ns(), minute_ns = KS_STARTS_WINDOW_S * SIM_S;
    const bool waits = fails || (one->ever && atomic_load(&row_of(index)->needs) != KS_RECOVERY_NONE);
    one->may_ns = now_ns + (waits ? minute_ns : SIM_S);
    const int64_t fifth_ns = one->starts >= KS_STARTS_MAX ? one->start_ns[one->starts - KS_STARTS_MAX] + minute_ns : 0;
    one->due_ns = one->may_ns > fifth_ns ? one->may_ns : fifth_ns;
}

void rules_ended(const host_process *process)
{
    rules.owed[process - host_processes] = 0;
}

void rules_reaped(const host_process *process)
{
    row_t *one = &rules.row[process->row];
    const int code = WIFEXITED(process->status) ? WEXITSTATUS(process->status) : 128 + WTERMSIG(process->status);
    const bool served = host_life_served(process);
    one->down = true;
    one->ever |= served;
    one->failures = served ? 0 : one->failures + 1;
    if (rules.stopping) {
        const bool asked = code == 0 || code == 128 + SIGTERM || code == 128 + SIGINT;
        if (!asked && rules.code == 0) rules.code = code;
        if (!host.workers) rules.code = rules.killed ? KS_EXIT_AGAIN : asked ? 0 : code;
    } else if (host.workers) {
        plan_worker(process->row, code);
    } else {
        plan_one(one, code);
    }
}

/* Its descriptors and what says which they are, right after its exec. */
void rules_begun(const host_process *process)
{
    static const char *const names[] = {KS_SUPERVISOR_TABLE, KS_SUPERVISOR_DATA, KS_SUPERVISOR_ADMIN};
    const int listeners = host.listeners + (host.admin ? 1 : 0);
    const int others = host.workers ? (int)(sizeof names / sizeof names[0]) + 2 * host.workers : 0;
    const int count = host_descriptors_count(process);
    const int record = host_number(process, KS_SUPERVISOR_RECORD, -1) >= 0;
    sim_check(count == listeners + others + record, "descriptors of a worker", count, listeners + others + record);
    sim_check(process->at_end == SIGTERM, "a supervisor that is killed leaves a worker behind", process->pid,
              process->at_end);
    sim_check(host_number(process, "LISTEN_FDS", -1) == listeners, "LISTEN_FDS", listeners, process->pid);
    sim_check(host_number(process, "LISTEN_PID", -1) == process->pid, "LISTEN_PID", process->pid, 0);
    for (int i = 0; i < listeners; i++)
        sim_check(host_kind_of(host_object_of(process, 3 + i)) == HOST_LISTENER, "a listener is not passed", i,
                  process->pid);
    if (!host.workers) return;
    sim_check(host_number(process, KS_SUPERVISOR_WORKER, -1) == process->row, "its row", process->row, process->pid);
    sim_check(!host_variable_of(process, "NOTIFY_SOCKET"), "a worker speaks to systemd", process->row, process->pid);
    for (int i = 0; i < 3; i++) {
        const int at = host_object_of(process, (int)host_number(process, names[i], -1));
        sim_check(host_kind_of(at) == (i ? HOST_CHANNEL : HOST_MEMORY), names[i], at, process->pid);
        if (i) host_channel_name(host_index_of(at), process->row, i == 2);
    }
}

/* --- signals ------------------------------------------------------------------------------------------------------ */

void rules_asked(int signal)
{
    if (host_supervisor_over() || rules.asked_ns[signal]) return;
    rules.asked_ns[signal] = host_now_ns();
}

void rules_heard(int signal)
{
    const bool stops = signal == SIGTERM || signal == SIGINT;
    rules.asked_ns[signal] = 0;
    if (signal == SIGCHLD) return;
    sim_event("takes signal", signal, 0);
    if (stops && !rules.stopping) {
        rules.stopping = true;
        rules.code = 0;
        rules.stop_ns = host_now_ns();
    }
    for (int i = 1; i < HOST_PROCESSES; i++)
        if (host_processes[i].state == HOST_RUNS) rules.owed[i] |= 1u << signal;
}

void rules_passed_on(host_process *to, int signal)
{
    rules.owed[to - host_processes] &= ~(1u << signal);
    if (signal != SIGKILL) return;
    sim_check(rules.stopping && host_now_ns() - rules.stop_ns > 900 * SIM_MS,
              "a worker is killed that was not asked, or just now", to->pid, 0);
    rules.killed = true;
    if (rules.code == 0) rules.code = KS_EXIT_AGAIN;
}

/* --- looks -------------------------------------------------------------------------------------------------------- */

void rules_clock_read(int64_t now_ns)
{
    rules.read_ns = now_ns;
}

void rules_open_fault(void)
{
    if (rules.descriptors < 0) rules.open_fault = true;
}

static void check_words(void)
{
    for (int i = 0; i < host.workers; i++) {
        const host_process *process = host_of_row(i);
        const ks_worker_row *at = row_of(i);
        const char *word = ks_worker_word(at, ks_state_names);
        const bool says_down = word && strcmp(word, "down") == 0;
        sim_check(says_down == rules.row[i].down, "readiness says of a worker that it is down", i, says_down);
        if (process && process->state == HOST_RUNS && host_life_served(process))
            sim_check(atomic_load(&at->needs) == KS_RECOVERY_NONE, "a worker that serves needs something", i,
                      atomic_load(&at->needs));
        if (rules.row[i].down && rules.row[i].starts)
            sim_check(atomic_load(&at->needs) == KS_RECOVERY_NONE || atomic_load(&at->needs) == host_device_needs(i),
                      "what a GPU needs is not what NVML has said", i, atomic_load(&at->needs));
    }
}

/* The supervisor has done what it had to do, and waits. */
void rules_waits(void)
{
    const int have = host_descriptors_count(host_processes);
    if (rules.descriptors < 0) rules.descriptors = have;
    int hand = 0; /* a connection that no channel has taken yet */
    for (int i = 0; i < HOST_LINKS; i++)
        hand += rules.link[i].place == IN_HAND && rules.link[i].process == HOST_SUPERVISOR_PID;
    sim_check(have == rules.descriptors + hand && hand <= 1, "descriptors of the supervisor", have, rules.descriptors);
    for (int i = 1; i < HOST_PROCESSES; i++)
        sim_check(rules.owed[i] == 0, "a signal is not passed on", host_processes[i].pid, rules.owed[i]);
    if (host_table()) check_words();
}

/* As far as the supervisor can know by looking at the table. */
static bool takes(int index)
{
    const ks_worker_row *at = row_of(index);
    const host_process *process = host_of_row(index);
    return process && process->state == HOST_RUNS && process->stopped_ns <= host_now_ns() &&
           atomic_load(&at->accepts) && atomic_load(&at->state) == KS_STATE_READY &&
           !ks_worker_is_stuck(at, host_now_ns()) && !is_full(at);
}

static bool another_takes(int index)
{
    for (int i = 0; i < host.workers; i++)
        if (i != index && takes(i)) return true;
    return false;
}

static bool another_admits(int index)
{
    for (int i = 0; i < host.workers; i++) {
        const ks_worker_row *at = row_of(i);
        if (i != index && atomic_load(&at->admits) && !ks_worker_is_stuck(at, host_now_ns())) return true;
    }
    return false;
}

/* Keeps since when something has been so. true: for too long. */
static bool lasts(int64_t *since_ns, bool is)
{
    if (!is) *since_ns = 0;
    if (is && *since_ns == 0) *since_ns = host_now_ns();
    return is && is_late(*since_ns, LOOK_NS);
}

static void look_at_channels(void)
{
    for (int i = 0; i < host_channels(); i++) {
        const int index = host_channel_row(i);
        if (index < 0) continue;
        const bool second = host_channel_is_admin(i);
        const bool bad =
            second ? rules.row[index].down || ks_worker_is_stuck(row_of(index), rules.read_ns) : is_bad(index);
        const bool waits = host_channel_held(i) > 0 && bad && (second ? another_admits(index) : another_takes(index));
        sim_check(!lasts(&rules.channel_ns[i], waits && !faults_may_come()),
                  "a connection waits for a worker that is down or stuck, while another one takes some", i, index);
    }
    for (int i = 0; i < host.listeners; i++)
        sim_check(!lasts(&rules.backlog_ns[i], host_backlog(i) > 0 && another_takes(-1) && !faults_may_come()),
                  "a connection waits in the backlog, while a worker takes some", i, host_backlog(i));
}

static void look_at_rows(void)
{
    for (int i = 0; i < (host.workers ? host.workers : 1); i++) {
        const row_t *one = &rules.row[i];
        if (host.workers && host_table()) {
            const bool bad = is_bad(i);
            rules.good[i] =
                !bad && atomic_load(&row_of(i)->accepts) && atomic_load(&row_of(i)->state) == KS_STATE_READY;
            rules.bad_ns[i] = !bad ? 0 : rules.bad_ns[i] ? rules.bad_ns[i] : host_now_ns();
        }
        if (!rules.stopping && one->down && one->starts)
            sim_check(!is_late(one->due_ns, LOOK_NS), "a worker is not started again", i, one->due_ns);
    }
}

static bool is_alone(void)
{
    for (int i = 1; i < HOST_PROCESSES; i++)
        if (host_processes[i].state != HOST_FREE) return false;
    return true;
}

/* What has been given and not taken is what its channel holds, or no connection would come once that is off by enough. */
static void look_at_counts(void)
{
    for (int i = 0; i < HOST_PROCESSES; i++)
        if (host_processes[i].state == HOST_RUNS && host_processes[i].stopped_ns > host_now_ns()) return;
    for (int i = 0; i < host_channels(); i++) {
        const int index = host_channel_row(i);
        if (index < 0 || host_channel_is_admin(i) || rules.row[index].down) continue;
        const ks_worker_row *at = row_of(index);
        const int pending = ks_connections_pending(&at->connections);
        sim_check(pending == host_channel_held(i), "connections on their way are counted wrongly", pending,
                  host_channel_held(i));
    }
}

void rules_looked(void)
{
    if (rules.descriptors < 0) return; /* it opens */
    rules.looked_ns = host_now_ns();
    for (int i = 1; i < SIGNALS; i++)
        sim_check(!rules.asked_ns[i] || !is_late(rules.asked_ns[i], LOOK_NS), "a signal is not taken", i,
                  rules.asked_ns[i]);
    if (rules.stopping) {
        const int64_t most_ns = host.drain_delay_ns + host.shutdown_timeout_ns + LEAVES_NS;
        sim_check(!is_late(rules.stop_ns, most_ns), "it does not end", rules.stop_ns, most_ns);
        sim_check(!lasts(&rules.alone_ns, is_alone()), "it does not end, and no worker is left", rules.stop_ns, 0);
    }
    look_at_rows();
    if (host.workers && host_table() && !rules.stopping) {
        look_at_channels();
        look_at_counts();
    }
}

/* --- systemd ------------------------------------------------------------------------------------------------------ */

void rules_notified(const char *text, size_t n)
{
    sim_event_text("notify", text, n);
    if (!memmem(text, n, "READY=1", 7)) return;
    for (int i = 0; i < host.workers; i++) {
        const host_process *process = host_of_row(i);
        const bool ever = rules.row[i].ever || (process && host_life_served(process));
        sim_check(ever, "systemd is told that all are ready", i, 0);
    }
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

void rules_end(int code)
{
    for (int i = 1; i < HOST_PROCESSES; i++)
        sim_check(host_processes[i].state == HOST_FREE, "a worker is left behind", host_processes[i].pid, code);
    const int have = host_descriptors_count(host_processes);
    if (rules.descriptors < 0 && sim_memory_failures() > 0 && host.systemd)
        return; /* before the passed sockets were its own */
    sim_check(have == 0, "descriptors are left behind", have, code);
    sim_check(sim_memory_live() == 0, "allocations are left behind", (int64_t)sim_memory_live(), code);
    const bool opened = rules.descriptors >= 0;
    if ((rules.open_fault || (!opened && sim_memory_failures() > 0)) && !rules.stopping && code != KS_EXIT_OK) return;
    sim_check(rules.stopping, "it ends unasked", code, 0);
    sim_check(code == rules.code, "its exit code is another one", code, rules.code);
}
