#include "large/memory_rate.h"

static const double KEPT = 7.0 / 8;
static const int64_t GAP_MAX_NS = 100000000; /* between two turns: more of it was a pause, or nothing was to do */

void ks_memory_rate_init(ks_memory_rate *rate, int64_t now_ns)
{
    *rate = (ks_memory_rate){.given = 0};
    ks_turn_clock_start(&rate->clock, now_ns);
}

void ks_memory_rate_turn(ks_memory_rate *rate, int64_t now_ns, bool waited)
{
    const int64_t before_ns = rate->clock.counted_ns;
    const int64_t passed_ns = ks_turn_clock_look(&rate->clock, now_ns, GAP_MAX_NS) - before_ns;
    if (waited) rate->open_ns += passed_ns;
}

void ks_memory_rate_give(ks_memory_rate *rate, double bytes)
{
    rate->bytes = KEPT * rate->bytes + bytes;
    rate->ns = KEPT * rate->ns + (double)rate->open_ns;
    rate->open_ns = 0;
    if (rate->given < KS_MEMORY_RATE_LEAST) rate->given++;
}

int64_t ks_memory_rate_hold(ks_memory_rate *rate, double bytes)
{
    rate->held += bytes;
    rate->held_from += bytes * (double)rate->clock.counted_ns;
    return rate->clock.counted_ns;
}

void ks_memory_rate_free(ks_memory_rate *rate, double bytes, int64_t from_ns)
{
    rate->held -= bytes;
    rate->held_from -= bytes * (double)from_ns;
    if (rate->held <= 0) rate->held_from = 0; /* and with it what rounding has left there */
}

bool ks_memory_rate_is_known(const ks_memory_rate *rate)
{
    return rate->given >= KS_MEMORY_RATE_LEAST;
}

/* Mean age of what this shard's requests hold. */
static double held_ns(const ks_memory_rate *rate)
{
    return rate->held > 0 ? (double)rate->clock.counted_ns - rate->held_from / rate->held : 0;
}

double ks_memory_rate_wait_ns(const ks_memory_rate *rate, double bytes, double all)
{
    const double waited_ns = rate->ns + (double)rate->open_ns, age_ns = held_ns(rate);
    if (ks_memory_rate_is_known(rate)) return bytes * waited_ns / rate->bytes;
    const double most = rate->bytes + all; /* as if all of it came free now */
    return most > 0 ? bytes * (waited_ns > age_ns ? waited_ns : age_ns) / most : 0;
}
