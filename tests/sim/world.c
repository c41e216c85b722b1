/* Time passes while the daemon makes calls, a little for each, and while it waits: then clients act and the device works.
 *
 * Owns       the clock.
 * Interface  world.h.
 * Limits     a seed that goes on for longer than SECONDS_MAX of its time or TURNS_MAX waits hangs. */
#include "sim/world.h"

#include <errno.h>
#include <string.h>

#include "sim/bed.h"
#include "sim/clients.h"
#include "sim/device.h"
#include "sim/sim.h"
#include "sim/sockets.h"

enum { SECONDS_MAX = 900, TURNS_MAX = 2000000, STEP_MAX = 200 * SIM_US, START_S = 1000, JUMPS_MAX = 40 };

static struct {
    int64_t now_ns, wall_ns; /* of which the second is added to be the wall's */
    int64_t step_ns;         /* of a wait that does not wait: longer while nothing comes of it */
    int64_t turns;
    int jumps;
} world;

void sim_world_begin(void)
{
    memset(&world, 0, sizeof world);
    world.now_ns = START_S * SIM_S;
    world.wall_ns = 1700000000 * SIM_S;
}

int64_t sim_world_now_ns(void)
{
    return world.now_ns;
}

void sim_world_pass(int64_t ns)
{
    world.now_ns += ns;
}

int64_t sim_world_read_ns(bool wall)
{
    world.now_ns += 40;
    return wall ? world.now_ns + world.wall_ns : world.now_ns;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t next_ns(void)
{
    return least(sim_bed_next_ns(), least(sim_clients_next_ns(), sim_device_next_ns()));
}

static void act(void)
{
    sim_bed_turn();
    sim_device_turn();
    sim_clients_turn();
}

/* The process is stopped for a while, or the wall's clock set. */
static void jump(void)
{
    if (!sim.jumps || world.jumps == JUMPS_MAX || !sim_one_in(60)) return;
    world.jumps++;
    const int64_t pause_ns = sim_one_in(2) ? sim_skewed(SIM_MS, 20 * SIM_S) : 0;
    world.now_ns += pause_ns;
    sim_device_pause(pause_ns);
    world.wall_ns += sim_between(-20000000, 20000000) * (SIM_S / 10);
    sim_event("jump", 0, 0);
}

void sim_world_idle_at(int64_t ns)
{
    for (int64_t next = next_ns(); next <= ns; next = next_ns()) {
        if (next > world.now_ns) world.now_ns = next;
        act();
    }
    if (ns > world.now_ns) world.now_ns = ns;
}

static int look(struct epoll_event *out, int most)
{
    act();
    const int count = sim_epoll_collect(out, most);
    if (count > 0) world.step_ns = 0;
    return count;
}

/* A look that comes up with nothing costs more time the more there have been: a program that spins sees what is due when it is due. */
static void spin(void)
{
    world.step_ns = least(world.step_ns * 3 / 2 + 200, STEP_MAX);
    const int64_t to_ns = world.now_ns + world.step_ns, due_ns = next_ns();
    if (due_ns > world.now_ns) world.now_ns = least(to_ns, due_ns);
}

int sim_world_wait(struct epoll_event *out, int most, int64_t timeout_ns)
{
    world.now_ns += 700;
    sim_bed_waits();
    jump();
    world.turns++;
    sim_check(world.turns < TURNS_MAX, "it goes on and on: turns", world.turns, 0);
    sim_check(world.now_ns < (START_S + SECONDS_MAX) * SIM_S, "it goes on and on: seconds", world.now_ns / SIM_S, 0);
    if (sim_one_in(sim.eintr)) {
        errno = EINTR;
        return -1;
    }
    const int64_t until_ns = timeout_ns < 0 ? SIM_NEVER : world.now_ns + timeout_ns;
    int count = look(out, most);
    if (count == 0 && timeout_ns == 0) spin();
    while (count == 0 && world.now_ns < until_ns) {
        const int64_t next = least(until_ns, next_ns());
        sim_check(next < SIM_NEVER, "it waits for ever", 0, 0);
        if (next > world.now_ns) world.now_ns = next;
        count = look(out, most);
    }
    return count;
}
