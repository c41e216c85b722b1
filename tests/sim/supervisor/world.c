/* Time passes with each call of the system, a little; and where no thread can go on, up to the next that can, or the next thing that a
 * client or the operator does.
 *
 * Owns       the clock.
 * Interface  host.h, sim/world.h (events.c reads the clock)
 * Limits     a seed that goes on for longer than SECONDS_MAX of its time or TURNS_MAX turns hangs. */
#include <string.h>
#include <time.h>

#include "sim/supervisor/host.h"
#include "sim/world.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the linker's names */

enum { SECONDS_MAX = 4000, TURNS_MAX = 3000000 };

static struct {
    int64_t now_ns, wall_ns, resumed_ns;
    int64_t turns;
    bool over;
} world;

void host_world_begin(void)
{
    memset(&world, 0, sizeof world);
    world.now_ns = world.resumed_ns = HOST_START_S * SIM_S;
    world.wall_ns = 1700000000 * SIM_S;
}

int64_t host_now_ns(void)
{
    return world.now_ns;
}

int64_t sim_world_now_ns(void)
{
    return world.now_ns;
}

void host_pass(int64_t ns)
{
    world.now_ns += ns;
}

void host_enter(int ns)
{
    host_process *self = host_now();
    world.now_ns += ns;
    if (!self) return;
    if (self->stopped_ns > world.now_ns || sim_one_in(host.gives_way)) host_fiber_gives_way();
}

bool host_fault(int one_in)
{
    return one_in && world.now_ns >= host.faults_ns && sim_one_in(one_in);
}

bool host_supervisor_over(void)
{
    return world.over;
}

void host_supervisor_returned(int code)
{
    sim_event("supervisor returns", code, 0);
    world.over = true;
    rules_end(code);
}

int64_t host_resumed_ns(void)
{
    return world.resumed_ns;
}

void host_supervisor_stops(int64_t until_ns)
{
    if (until_ns > world.resumed_ns) world.resumed_ns = until_ns;
}

/* The whole host is stopped for a while, or its wall's clock set. */
void host_world_jumps(void)
{
    const int64_t pause_ns = sim_one_in(2) ? sim_skewed(SIM_MS, 100 * SIM_S) : 0;
    world.now_ns += pause_ns;
    world.wall_ns += sim_between(-20000000, 20000000) * (SIM_S / 10);
    host_supervisor_stops(world.now_ns);
    sim_event("jump", pause_ns, 0);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void host_run(void)
{
    while (!world.over) {
        int64_t next_ns;
        world.turns++;
        sim_check(world.turns < TURNS_MAX, "it goes on and on: turns", world.turns, 0);
        sim_check(world.now_ns < (HOST_START_S + SECONDS_MAX) * SIM_S, "it goes on and on: seconds",
                  world.now_ns / SIM_S, 0);
        host_clients_turn();
        if (host_fibers_turn(&next_ns)) continue;
        rules_looked();
        next_ns = least(next_ns, host_clients_next_ns());
        sim_check(next_ns < SIM_NEVER, "it waits for ever", 0, 0);
        if (next_ns > world.now_ns) world.now_ns = next_ns;
    }
}

/* --- the calls ---------------------------------------------------------------------------------------------------- */

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    world.now_ns += 40;
    const int64_t ns = id == CLOCK_MONOTONIC ? world.now_ns : world.now_ns + world.wall_ns;
    if (id == CLOCK_MONOTONIC && host_now() == &host_processes[0]) rules_clock_read(ns);
    *out = (struct timespec){.tv_sec = ns / SIM_S, .tv_nsec = ns % SIM_S};
    return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)left;
    host_fiber_wait(HOST_UNTIL, 0, world.now_ns + (int64_t)time->tv_sec * SIM_S + time->tv_nsec);
    return 0;
}
