/* Opens what a shard needs, is the listener and main for it, and looks at the books when nothing may be left in them.
 *
 * Stages     START: the shard opens and tests itself. SERVE: clients act. QUIET: all have ended; what is under way ends. DRAIN: as on SIGTERM.
 * Interface  bed.h. */
#include "sim/bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/shard.h"
#include "kernserve/op.h"
#include "sim/clients.h"
#include "sim/device.h"
#include "sim/sim.h"
#include "sim/sockets.h"
#include "sim/world.h"

typedef enum stage { SHUT, START, SERVE, QUIET, DRAIN } stage;

static const int64_t quiet_most_ns = 45000000000, look_ns = 20000000;

static struct {
    ks_daemon daemon;
    ks_shard *shard;
    stage stage;
    bool stuck;                   /* the device was at work when the shard ended */
    int64_t quiet_ns, look_at_ns; /* since when; the next look at what is left */
} bed;
static ks_config config;

void sim_bed_once(void)
{
    char *arguments[] = {(char[]){"kernserve"},          (char[]){"--connections=32"},
                         (char[]){"--max-body=1M"},      (char[]){"--max-json=256k"},
                         (char[]){"--max-work=1000000"}, (char[]){"--half-close-wait=20ms"},
                         (char[]){"--threads=1"}};
    ks_command command;
    ks_error error;
    if (ks_config_load(sizeof arguments / sizeof *arguments, arguments, &config, &command, &error) != 0) {
        fprintf(stderr, "sim: the options: %s\n", error.text);
        exit(1);
    }
    ks_models_init();
    ks_log_set_levels(0);
}

bool sim_bed_is_open(void)
{
    return bed.stage != SHUT;
}

static void open_parts(void)
{
    const size_t side = sim_one_in(2) ? 2048 : 16384;
    ks_daemon *daemon = &bed.daemon;
    ks_error error;
    daemon->config = &config;
    daemon->row = &daemon->alone;
    daemon->backend = sim_device_backend();
    daemon->backend->open(NULL, &daemon->device, &error);
    daemon->backend->info(daemon->device, &daemon->device_info);
    daemon->budget = ks_budget_open(sim.budget_bytes);
    daemon->metrics = ks_metrics_open(2);
    daemon->catalogs = ks_catalogs_open(1);
    const ks_store_options store = {.backend = daemon->backend,
                                    .device = daemon->device,
                                    .limit_bytes = sim.resident_bytes,
                                    .uploads_max = sim.calm ? SIM_LINKS : 2,
                                    .generation = 1,
                                    .record_fd = -1};
    if (ks_store_open(&store, &daemon->store, &error) != KS_OK) sim_wrong(error.text, 0, 0);
    daemon->shards = 1;
    daemon->room_fd = sim_eventfd();
    daemon->loopback_only = true;
    daemon->engine = (ks_engine_options){
        .backend = daemon->backend,
        .device = daemon->device,
        .budget = daemon->budget,
        .lanes = 1 + (int)sim_draw(3),
        .classes = 2,
        .size_class = {{.side_bytes = side, .count = sim.slots}, {.side_bytes = 4 * side, .count = 2}},
        .plan_bytes = 1 << 20,
        .plans_max = 4 + sim_draw(20),
        .queue_max = sim.queue_max,
        .stall_ns = SIM_S / 2,
        .scrub = sim_one_in(2),
        .wake_fd = -1,
        .join_rows = sim_one_in(2) ? 16 : 0};
    atomic_store(&daemon->row->state, KS_STATE_WARMING);
    ks_daemon_fill_api(daemon);
}

static void close_parts(bool lost)
{
    ks_daemon *daemon = &bed.daemon;
    sim_close(daemon->room_fd);
    if (!lost) ks_store_close(&daemon->store);
    ks_catalogs_close(&daemon->catalogs);
    ks_metrics_close(&daemon->metrics);
    ks_budget_close(&daemon->budget);
    daemon->backend->close(&daemon->device);
}

/* --- books -------------------------------------------------------------------------------------------------------- */

static const ks_engine *engine_now(void)
{
    return bed.daemon.api.engines[0];
}

typedef struct left {
    const char *what;
    int64_t much;
} left;

static left first_of(const left *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i].much != 0) return rows[i];
    return (left){NULL, 0};
}

/* What a request may hold, while no request is there. A lost device may still write to the memory of its work, which stays. */
static left find_left(void)
{
    ks_engine_stats stats;
    ks_engine_read_stats(engine_now(), &stats);
    const left rows[] = {{"sockets are open", sim_sockets_open()},
                         {"connections are counted", ks_connections_count(&bed.daemon.row->connections)},
                         {"requests are in flight", ks_metrics_in_flight_now(bed.daemon.metrics)},
                         {"jobs are in the queue", (int64_t)stats.queue_depth},
                         {"jobs run", (int64_t)stats.running},
                         {"lanes are busy", (int64_t)stats.lanes_busy},
                         {"bytes of the budget are taken", (int64_t)ks_budget_used(bed.daemon.budget)},
                         {"bytes of slots are used", (int64_t)stats.slot_used_bytes}};
    enum { ROWS = sizeof rows / sizeof *rows, OF_WORK = 3 };
    return first_of(rows, sim_bed_failed() ? ROWS - OF_WORK : ROWS);
}

static void check_plans(void)
{
    for (const ks_op *const *op = ks_ops; *op; op++) {
        const int held = ks_engine_forget_op((ks_engine *)(uintptr_t)engine_now(), *op);
        sim_check(held == 0, "plans are held by no request", held, 0);
    }
}

static void check_tensors(void)
{
    const ks_tenant all = {.name = "", .is_operator = true};
    ks_tensor_entry rows[SIM_LINKS];
    bool more = false;
    const int count = ks_store_list(bed.daemon.store, &all, "", "", SIM_LINKS, rows, &more);
    for (int i = 0; i < count; i++) sim_check(rows[i].held == 0, "a tensor is held by no request", rows[i].held, i);
}

/* --- stages ------------------------------------------------------------------------------------------------------- */

static void drain(int64_t most_ns)
{
    bed.stage = DRAIN;
    atomic_store(&bed.daemon.row->state, sim_bed_failed() ? KS_STATE_FAILED : KS_STATE_DRAINING);
    sim_event("drain", 0, 0);
    ks_shard_drain(bed.shard, sim_world_now_ns() + most_ns);
}

void sim_bed_waits(void)
{
    int expected = KS_STATE_WARMING;
    if (bed.stage != START) return;
    bed.stage = SERVE;
    if (sim.dies_ns != SIM_NEVER) sim.dies_ns += sim_world_now_ns();
    if (sim.drain_ns != SIM_NEVER) sim.drain_ns += sim_world_now_ns();
    sim_memory_fails(true);
    atomic_compare_exchange_strong(&bed.daemon.row->state, &expected, KS_STATE_READY);
    sim_event("serve", 0, 0);
    sim_clients_begin();
}

/* Everything comes back within the longest time that any wait may take. */
static void look_at_quiet(void)
{
    const left rest = find_left();
    bed.look_at_ns = sim_world_now_ns() + look_ns;
    if (rest.what) {
        sim_check(sim_world_now_ns() - bed.quiet_ns < quiet_most_ns, rest.what, rest.much, 0);
        return;
    }
    if (!sim_bed_failed()) {
        check_plans();
        check_tensors();
    }
    drain(5 * SIM_S);
}

void sim_bed_turn(void)
{
    const int64_t now_ns = sim_world_now_ns();
    if (bed.stage == SERVE && now_ns >= sim.drain_ns) drain(sim_between(SIM_MS, 5 * SIM_S));
    if (bed.stage == SERVE && sim_clients_over()) {
        bed.stage = QUIET;
        bed.quiet_ns = bed.look_at_ns = now_ns;
        sim_memory_fails(false);
        sim_event("quiet", 0, 0);
    }
    if (bed.stage == QUIET && now_ns >= bed.look_at_ns) look_at_quiet();
}

int64_t sim_bed_next_ns(void)
{
    return bed.stage == QUIET ? bed.look_at_ns : bed.stage == SERVE ? sim.drain_ns : SIM_NEVER;
}

bool sim_bed_accepts(void)
{
    return bed.stage == SERVE;
}

bool sim_bed_serves(void)
{
    return bed.stage > START;
}

bool sim_bed_failed(void)
{
    return atomic_load(&bed.daemon.row->state) == KS_STATE_FAILED;
}

bool sim_bed_drains(void)
{
    return bed.stage == DRAIN;
}

void sim_bed_accept(int fd)
{
    ks_connections_add(&bed.daemon.row->connections);
    const bool room = ks_shard_give(bed.shard, &(ks_arrival){.fd = fd, .loopback = true});
    sim_check(room, "no room in the shard's queue of connections", fd, 0);
}

void sim_bed_shard(void *(*main)(void *), void *shard)
{
    bed.shard = shard;
    bed.stage = START;
    main(shard);
    sim_event("ended", 0, 0);
    sim_memory_fails(false);
    sim_clients_end();
    const left rest = find_left();
    /* A device that does not come back within the drain's last second keeps everything: the process ends. */
    bed.stuck = rest.what && (sim.jumps || sim_device_is_silent());
    if (rest.what && !bed.stuck) sim_wrong(rest.what, rest.much, 1);
}

void sim_bed_run(void)
{
    ks_shard *shard = NULL;
    ks_error error = {0};
    memset(&bed, 0, sizeof bed);
    open_parts();
    bed.stage = START;
    const ks_status status = ks_shard_open(&bed.daemon, 0, &shard, &error);
    if (status != KS_OK) sim_wrong(error.text, status, 0);
    ks_shard_join(&shard);
    const bool lost = sim_bed_failed() || bed.stuck;
    if (sim_bed_failed())
        sim_check(sim.dies_ns != SIM_NEVER || sim.failing, "a device is given up that has no fault", 0, 0);
    close_parts(lost);
    bed.stage = SHUT;
    if (lost) {
        sim_device_reap();
        sim_memory_reap();
    }
    sim_check(sim_device_slots() == 0, "slots are open behind the end", sim_device_slots(), 0);
    sim_check(sim_device_contents() == 0, "contents are left behind the end", sim_device_contents(), 0);
    sim_check(sim_memory_live() == 0, "allocations are left behind the end", (int64_t)sim_memory_live(), 0);
}
