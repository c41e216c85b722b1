/* What a seed of the supervisor's simulator has, and its run. */
#include <string.h>

#include "daemon/supervise.h"
#include "kernserve/op.h"
#include "base/log.h"
#include "sim/supervisor/host.h"

const char sim_name[] = "sim_supervisor";
host_seed host;
static ks_config config;

FILE *__real_fopen(const char *path, const char *mode);
void __wrap_ks_early_end(void);

void __wrap_ks_early_end(void)
{
}

void sim_once(void)
{
    ks_log_set_levels(0);
    if (!sim_verbose) stderr = __real_fopen("/dev/null", "w"); /* the product's; the simulator's goes to sim_report */
}

static void draw_faults(void)
{
    sim.eintr = sim_one_in(2) ? (int)sim_skewed(4, 400) : 0;
    sim.no_memory = sim_one_in(16) ? 2 : 0;
    host.no_files = sim_one_in(4) ? (int)sim_skewed(4, 200) : 0;
    host.no_room = sim_one_in(4) ? (int)sim_skewed(4, 200) : 0;
    if (!sim_one_in(8)) host.faults_ns = HOST_START_S * SIM_S + sim_skewed(SIM_S, 20 * SIM_S);
    if (!sim_one_in(3)) host.sick = (int)sim_between(1, 5);
    host.orders = (int)sim_draw(10);
}

static void draw_seed(uint64_t seed)
{
    sim = (sim_seed){.number = seed};
    host = (host_seed){.listeners = 1 + sim_one_in(3), .messages = 270};
    sim.calm = sim_one_in(6);
    host.workers = sim_one_in(5) ? 0 : (int)sim_between(1, HOST_WORKERS);
    host.gpus = host.workers && sim_one_in(2);
    host.admin = !sim_one_in(4);
    host.systemd = sim_one_in(4);
    host.watchdog = sim_one_in(4);
    if (sim_one_in(4)) host.messages = (int)sim_between(1, 20);
    host.gives_way = (int)sim_skewed(2, 60);
    host.run_ns = sim_one_in(3) ? sim_between(SIM_S, 100 * SIM_S) : sim_skewed(SIM_S, 40 * SIM_S);
    host.drain_delay_ns = sim_one_in(4) ? sim_skewed(0, 5 * SIM_S) : 0;
    host.shutdown_timeout_ns = sim_skewed(SIM_S / 10, 30 * SIM_S);
    host.connections = sim_one_in(3) ? (int)sim_between(1, 8) : HOST_LINKS;
    host.links = (int)sim_skewed(1, HOST_LINKS);
    if (!sim.calm) draw_faults();
}

/* --- the supervisor's process ------------------------------------------------------------------------------------- */

static void set(const char *name, const char *value)
{
    host_process *self = &host_processes[0];
    int at = 0;
    while (self->variable[at].name[0]) at++;
    strcpy(self->variable[at].name, name);
    strcpy(self->variable[at].value, value);
}

/* Its descriptors and its environment, as a service has them. */
static void prepare(void)
{
    char names[64] = "", number[24];
    if (sim_one_in(2)) set("NOTIFY_SOCKET", "/run/systemd/notify");
    if (host.watchdog) set("WATCHDOG_USEC", "4000000");
    if (!host.systemd) return;
    for (int i = 0; i < host.listeners + host.admin; i++) {
        (void)host_give_listener(&host_processes[0], i);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ":" : "",
                 i < host.listeners ? "data" : "admin");
    }
    snprintf(number, sizeof number, "%d", HOST_SUPERVISOR_PID);
    set("LISTEN_PID", number);
    snprintf(number, sizeof number, "%d", host.listeners + host.admin);
    set("LISTEN_FDS", number);
    set("LISTEN_FDNAMES", names);
}

static void *supervisor_main(void *context)
{
    static const char *const addresses[] = {"127.0.0.1:8000", "127.0.0.1:8001", "127.0.0.1:8002"};
    static const char *const devices[] = {"", "0", "0,1", "2,0,1", "0,1,2,3"};
    char *words[] = {(char[]){"kernserve"}, NULL};
    (void)context;
    config = (ks_config){.devices = devices[host.workers],
                         .device = "auto",
                         .backend = host.gpus ? KS_BACKEND_CUDA : KS_BACKEND_CPU,
                         .admin_listen = host.admin ? addresses[host.listeners] : "",
                         .resident = sim_one_in(2),
                         .drain_delay = host.drain_delay_ns,
                         .shutdown_timeout = host.shutdown_timeout_ns};
    for (int i = 0; i < host.listeners; i++) config.listen.item[config.listen.count++] = addresses[i];
    const int code = ks_supervise(&config, 1, words);
    host_supervisor_returned(code);
    return NULL;
}

uint64_t sim_run(uint64_t seed)
{
    sim_chance_begin(seed);
    host_world_begin();
    host_fibers_begin();
    host_processes_begin();
    host_descriptors_begin();
    sim_events_begin();
    draw_seed(seed);
    sim_memory_begin();
    rules_begin();
    host_lives_begin();
    host_devices_begin();
    host_clients_begin();
    sim_event(sim.calm ? "a calm seed" : "a seed", (int64_t)seed, host.workers);
    prepare();
    (void)host_fiber_make(0, supervisor_main, NULL);
    host_run();
    host_processes_end();
    return sim_events_hash();
}
