#include "large/memory_rate.h"

static const double KEPT = 7.0 / 8;
static const int64_t GAP_MAX_NS = 100000000; /* between two turns while a request waits: more of it was a pause */

void ks_memory_rate_begin(ks_memory_rate *rate, int64_t now_ns)
{
    ks_turn_clock_start(&rate->clock, now_ns);
}

void ks_memory_rate_turn(ks_memory_rate *rate, int64_t now_ns)
{
    rate->open_ns += ks_turn_clock_look(&rate->clock, now_ns, GAP_MAX_NS);
    ks_turn_clock_start(&rate->clock, now_ns);
}

void ks_memory_rate_give(ks_memory_rate *rate, double bytes)
{
    rate->bytes = KEPT * rate->bytes + bytes;
    rate->ns = KEPT * rate->ns + (double)rate->open_ns;
    rate->open_ns = 0;
    if (rate->given < KS_MEMORY_RATE_LEAST) rate->given++;
}

double ks_memory_rate_wait_ns(const ks_memory_rate *rate, double bytes)
{
    if (rate->given < KS_MEMORY_RATE_LEAST || rate->bytes <= 0) return 0;
    return bytes * (rate->ns + (double)rate->open_ns) / rate->bytes;
}
