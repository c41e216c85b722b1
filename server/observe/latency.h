/* Times by steps of a sixteenth: each octave from 128 ns to 550 s has 16 steps, so that a quantile is known to 6 %. What is less counts
 * in the first octave, what is more in the last step. Pure; any thread. */
#ifndef KS_LATENCY_H
#define KS_LATENCY_H
#include <stdint.h>

enum { KS_LATENCY_OCTAVES = 32, KS_LATENCY_STEPS = 16 * KS_LATENCY_OCTAVES, KS_LATENCY_FIRST_BIT = 7 };

static inline int ks_latency_step(int64_t ns)
{
    const uint64_t most = (UINT64_C(1) << (KS_LATENCY_FIRST_BIT + KS_LATENCY_OCTAVES)) - 1;
    uint64_t n = ns > 0 ? (uint64_t)ns : 0;
    if (n > most) n = most;
    const int bit = 63 - __builtin_clzll(n | (1u << KS_LATENCY_FIRST_BIT));
    return 16 * (bit - KS_LATENCY_FIRST_BIT) + (int)(n >> (bit - 4) & 15);
}

/* Every time of a step is less. */
static inline int64_t ks_latency_bound(int step)
{
    return (int64_t)(17 + step % 16) << (KS_LATENCY_FIRST_BIT - 4 + step / 16);
}
#endif
