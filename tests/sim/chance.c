/* Owns       the one sequence of numbers that a seed is made of (splitmix64).
 * Interface  sim.h. */
#include "sim/sim.h"

static uint64_t state;

void sim_chance_begin(uint64_t seed)
{
    state = seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
}

static uint64_t next(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t sim_draw(uint64_t below)
{
    return below > 1 ? next() % below : 0;
}

int64_t sim_between(int64_t least, int64_t most)
{
    return most > least ? least + (int64_t)sim_draw((uint64_t)(most - least) + 1) : least;
}

bool sim_one_in(int n)
{
    return n > 0 && sim_draw((uint64_t)n) == 0;
}

int64_t sim_skewed(int64_t least, int64_t most)
{
    int64_t span = most - least;
    for (int halvings = (int)sim_draw(12); halvings > 0 && span > 1; halvings--) span /= 2;
    return sim_between(least, least + span);
}
