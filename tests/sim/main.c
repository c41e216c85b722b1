/* sim [--seed N] [--seeds COUNT] [--from N] [--verbose] [--twice]: runs seeds, ends with 1 at the first that breaks a promise.
 * KS_CASES: how many seeds, where the command does not say. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim/bed.h"
#include "sim/device.h"
#include "sim/sim.h"
#include "sim/sockets.h"
#include "sim/world.h"

enum { PRESET = 2000, HANGS_AFTER_S = 20 };

sim_seed sim;
bool sim_verbose;

/* --- a seed ------------------------------------------------------------------------------------------------------- */

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

/* --- the program -------------------------------------------------------------------------------------------------- */

/* An assertion of the product's, a bad address, or a loop that makes no call. */
static void on_signal(int number)
{
    char text[128];
    const int n = snprintf(text, sizeof text, "sim: seed %" PRIu64 " ends with signal %d%s\n", sim.number, number,
                           number == SIGALRM ? ": it hangs" : "");
    if (n > 0 && write(2, text, (size_t)n) < 0) _exit(2);
    _exit(1);
}

typedef struct command {
    uint64_t first, count;
    bool twice;
} command;

static command read_command(int count, char **words)
{
    const char *cases = getenv("KS_CASES");
    command out = {.first = 1, .count = cases ? strtoull(cases, NULL, 10) : PRESET};
    for (int i = 1; i < count; i++) {
        const uint64_t value = i + 1 < count ? strtoull(words[i + 1], NULL, 10) : 0;
        if (strcmp(words[i], "--verbose") == 0)
            sim_verbose = true;
        else if (strcmp(words[i], "--twice") == 0)
            out.twice = true;
        else if (strcmp(words[i], "--seed") == 0 && ++i < count)
            out.first = value, out.count = 1;
        else if (strcmp(words[i], "--from") == 0 && ++i < count)
            out.first = value;
        else if (strcmp(words[i], "--seeds") == 0 && ++i < count)
            out.count = value;
        else
            exit(fprintf(stderr, "sim [--seed N] [--from N] [--seeds COUNT] [--verbose] [--twice]\n") > 0 ? 64 : 1);
    }
    return out;
}

int main(int count, char **words)
{
    const command asked = read_command(count, words);
    uint64_t all = 0;
    sim_bed_once();
    signal(SIGABRT, on_signal);
    signal(SIGALRM, on_signal);
    const clock_t begun = clock();
    for (uint64_t seed = asked.first; seed < asked.first + asked.count; seed++) {
        alarm(HANGS_AFTER_S);
        const uint64_t hash = sim_run(seed);
        if (asked.twice) sim_check(sim_run(seed) == hash, "a second run has other events", (int64_t)seed, 0);
        all = all * 31 + hash;
    }
    const double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    printf("sim: %" PRIu64 " seeds from %" PRIu64 ", events %016" PRIx64 "\n", asked.count, asked.first, all);
    fprintf(stderr, "sim: %.0f seeds a second of processor time\n", seconds > 0 ? (double)asked.count / seconds : 0);
    return 0;
}
