/* What a seed of the shard's simulator has, and its run. */
#include "sim/bed.h"
#include "sim/device.h"
#include "sim/sim.h"
#include "sim/sockets.h"
#include "sim/world.h"

const char sim_name[] = "sim";

void sim_once(void)
{
    sim_bed_once();
}

static void draw_faults(void)
{
    sim.eintr = sim_one_in(2) ? (int)sim_skewed(4, 400) : 0;
    sim.no_memory = sim_one_in(4) ? (int)sim_skewed(8, 400) : 0;
    sim.failing = sim_one_in(4) ? (int)sim_skewed(2, 40) : 0;
    sim.jumps = sim_one_in(6);
    if (sim_one_in(5)) {
        sim.dies_ns = sim_skewed(0, 60 * SIM_MS);
        sim.dies_how = (int)sim_draw(SIM_DEATHS);
    }
    if (sim_one_in(6)) sim.drain_ns = sim_skewed(0, 100 * SIM_MS);
    if (sim_one_in(4)) sim.slots = (int)sim_between(1, 4);
    if (sim_one_in(4)) sim.queue_max = (int)sim_between(1, 4);
    if (sim_one_in(4)) sim.resident_bytes = (uint64_t)sim_skewed(1 << 14, 1 << 18);
    if (sim_one_in(4)) sim.budget_bytes = (uint64_t)sim_skewed(1 << 17, 4 << 20);
}

static void draw_seed(uint64_t seed)
{
    sim = (sim_seed){.number = seed,
                     .dies_ns = SIM_NEVER,
                     .drain_ns = SIM_NEVER,
                     .budget_bytes = 64 << 20,
                     .resident_bytes = 8 << 20,
                     .slots = SIM_LINKS,
                     .queue_max = 128};
    sim.calm = sim_one_in(3);
    sim.clients = (int)sim_skewed(1, 12);
    sim.short_writes = sim_one_in(2) ? (int)sim_skewed(1, 20) : 0;
    sim.polled = sim_one_in(2);
    sim.captures = sim_one_in(2);
    sim.work_ns = sim_skewed(5 * SIM_US, sim_one_in(6) ? 50 * SIM_MS : SIM_MS);
    if (!sim.calm) draw_faults();
}

uint64_t sim_run(uint64_t seed)
{
    sim_chance_begin(seed);
    sim_world_begin();
    sim_sockets_begin();
    sim_device_begin();
    sim_events_begin();
    draw_seed(seed);
    sim_memory_begin();
    sim_event(sim.calm ? "a calm seed" : "a seed", (int64_t)seed, sim.clients);
    sim_bed_run();
    sim_sockets_end();
    return sim_events_hash();
}
