#include "base/clock.h"

#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t ks_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t ks_turn_clock_look(ks_turn_clock *clock, int64_t now_ns, int64_t gap_max_ns)
{
    const int64_t gap_ns = now_ns - clock->seen_ns;
    clock->seen_ns = now_ns;
    clock->counted_ns += gap_ns < gap_max_ns ? gap_ns : gap_max_ns;
    return clock->counted_ns;
}

int64_t ks_wall_ms(void)
{
    return read_clock(CLOCK_REALTIME_COARSE) / 1000000;
}

int64_t ks_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}
