/* Clients that connect, and an operator who sends signals, stops processes, kills some, and pauses the host.
 *
 * Owns       what happens when, drawn at a seed's begin.
 * Interface  host.h */
#include <string.h>

#include "sim/supervisor/host.h"

enum { ORDERS = 12 };

typedef enum order_kind {
    TERM,
    INTERRUPT,
    HANG_UP,
    TERM_WORKER,
    KILL_WORKER,
    STOP_WORKER,
    STOP_SUPERVISOR,
    JUMP,
    KINDS
} order_kind;

typedef struct happening {
    int64_t at_ns; /* SIM_NEVER: it has happened */
    int what, row;
    int64_t lasts_ns;
} happening;

static struct {
    happening link[HOST_LINKS], order[ORDERS];
    int64_t gone_ns[HOST_LINKS];
    int64_t end_ns, last_ns; /* the last stop; and once more */
    int64_t next_ns;         /* of all these the first */
} clients;

/* Of a whole machine, often in bursts. */
static int64_t draw_at(int64_t near_ns)
{
    const int64_t from_ns = HOST_START_S * SIM_S;
    return sim_one_in(2) ? near_ns + sim_skewed(0, 50 * SIM_MS) : from_ns + sim_between(0, host.run_ns);
}

void host_clients_begin(void)
{
    memset(&clients, 0, sizeof clients);
    int64_t near_ns = draw_at(HOST_START_S * SIM_S);
    for (int i = 0; i < host.links; i++) {
        happening *one = &clients.link[i];
        if (sim_one_in(8)) near_ns = draw_at(near_ns);
        one->at_ns = draw_at(near_ns);
        one->what = (int)sim_draw((uint64_t)(host.listeners + (host.admin && sim_one_in(3))));
        clients.gone_ns[i] = sim_one_in(6) ? one->at_ns + sim_skewed(0, 5 * SIM_S) : SIM_NEVER;
    }
    for (int i = 0; i < host.orders; i++) {
        happening *one = &clients.order[i];
        if (sim_one_in(3)) near_ns = draw_at(near_ns);
        one->at_ns = draw_at(near_ns);
        one->what = (int)sim_draw(KINDS);
        if (one->what <= INTERRUPT && sim_one_in(2)) one->what = HANG_UP;
        one->row = (int)sim_draw((uint64_t)(host.workers ? host.workers : 1));
        one->lasts_ns = sim_skewed(SIM_MS, 90 * SIM_S);
    }
    clients.end_ns = HOST_START_S * SIM_S + host.run_ns;
    clients.last_ns = sim_one_in(3) ? clients.end_ns + sim_skewed(0, 10 * SIM_S) : SIM_NEVER;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t find_next_ns(void)
{
    int64_t next_ns = least(clients.end_ns, clients.last_ns);
    for (int i = 0; i < host.links; i++) next_ns = least(next_ns, least(clients.link[i].at_ns, clients.gone_ns[i]));
    for (int i = 0; i < host.orders; i++) next_ns = least(next_ns, clients.order[i].at_ns);
    return next_ns;
}

static void ask(int signal)
{
    rules_asked(signal);
    host_signal(&host_processes[0], signal);
}

static void stop(host_process *process, int64_t until_ns)
{
    sim_event("stopped", process->pid, until_ns);
    if (process->stopped_ns < until_ns) process->stopped_ns = until_ns;
    if (process == host_processes) host_supervisor_stops(until_ns);
}

static void happen(const happening *one)
{
    static const int signals[] = {[TERM] = SIGTERM, [INTERRUPT] = SIGINT, [HANG_UP] = SIGHUP};
    host_process *worker = host_of_row(one->row);
    const int64_t until_ns = host_now_ns() + one->lasts_ns;
    if (one->what <= HANG_UP)
        ask(signals[one->what]);
    else if (one->what == STOP_SUPERVISOR)
        stop(&host_processes[0], until_ns);
    else if (one->what == JUMP)
        host_world_jumps();
    else if (worker && one->what == STOP_WORKER)
        stop(worker, until_ns);
    else if (worker)
        host_signal(worker, one->what == TERM_WORKER ? SIGTERM : SIGKILL);
}

static bool is_due(int64_t *at_ns)
{
    if (*at_ns > host_now_ns()) return false;
    *at_ns = SIM_NEVER;
    return true;
}

int64_t host_clients_next_ns(void)
{
    return clients.next_ns;
}

void host_clients_turn(void)
{
    if (host_now_ns() < clients.next_ns) return;
    for (int i = 0; i < host.links; i++) {
        if (is_due(&clients.link[i].at_ns)) (void)host_arrive(clients.link[i].what, i);
        if (is_due(&clients.gone_ns[i])) host_link_gone(i);
    }
    for (int i = 0; i < host.orders; i++)
        if (is_due(&clients.order[i].at_ns)) happen(&clients.order[i]);
    if (is_due(&clients.end_ns)) ask(sim_one_in(2) ? SIGTERM : SIGINT);
    if (is_due(&clients.last_ns)) ask(SIGTERM);
    clients.next_ns = find_next_ns();
}
