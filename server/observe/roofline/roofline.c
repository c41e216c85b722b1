#include "observe/roofline/roofline.h"

const char *ks_bound_name(ks_bound bound)
{
    static const char *const names[] = {
#define X(name, word) [KS_BOUND_##name] = (word),
        KS_BOUND_TABLE(X)
#undef X
    };
    return names[bound];
}

/* Bytes at 1e9 a second, in us; 0: the rate is not known. */
static double time_of(double bytes, double gbs)
{
    return gbs > 0 ? bytes / gbs / 1e3 : 0;
}

/* A copy of n bytes reads and writes n each: a byte written takes what is left of a copy's time beside a byte read. Of the bytes
 * read first those that caches may hold do not count, then of those written. */
static double memory_us(const ks_work *work, const ks_ceilings *ceilings)
{
    const double copy = ceilings->copy_gbs.value, cache = ceilings->cache_bytes;
    const double read = ceilings->read_gbs.value > copy ? ceilings->read_gbs.value : copy;
    if (copy <= 0) return 0;
    const double in = work->in_bytes > cache ? work->in_bytes - cache : 0;
    const double left = work->in_bytes > cache ? 0 : cache - work->in_bytes;
    const double out = work->out_bytes > left ? work->out_bytes - left : 0;
    return time_of(in, read) + out * (2 / copy - 1 / read) / 1e3;
}

/* Both directions at once. */
static double link_us(const ks_work *work, const ks_ceilings *ceilings)
{
    const double in = time_of(work->in_bytes, ceilings->h2d_gbs.value);
    const double out = time_of(work->out_bytes, ceilings->d2h_gbs.value);
    return !work->link ? 0 : in > out ? in : out;
}

static void raise(ks_roofline *roofline, double us, ks_bound bound)
{
    if (us > roofline->us) *roofline = (ks_roofline){.us = us, .bound = bound};
}

ks_roofline ks_roofline_of(const ks_work *work, const ks_ceilings *ceilings)
{
    ks_roofline roofline = {0};
    raise(&roofline, memory_us(work, ceilings), KS_BOUND_MEMORY);
    raise(&roofline, link_us(work, ceilings), KS_BOUND_LINK);
    if (ceilings->tflops.value > 0) raise(&roofline, work->flops / ceilings->tflops.value / 1e6, KS_BOUND_COMPUTE);
    if (ceilings->launch_us.value > roofline.us) roofline.bound = KS_BOUND_LAUNCH;
    return roofline;
}
