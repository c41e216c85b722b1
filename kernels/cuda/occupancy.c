#include "cuda/occupancy.h"

enum { WARP = 32, REGISTERS_AT_ONCE = 256, PARTS = 4, SHARED_AT_ONCE = 128 };

static int round_up(int value, int unit)
{
    return (value + unit - 1) / unit * unit;
}

void ks_occupancy_limit(const ks_sm_limits *sm, int threads, size_t dynamic_bytes, ks_occupancy *occupancy)
{
    const int warps = (threads + WARP - 1) / WARP;
    const int registers = round_up(occupancy->registers * WARP, REGISTERS_AT_ONCE);
    const size_t asked = occupancy->static_shared_bytes + dynamic_bytes + sm->shared_reserved;
    const size_t shared = (asked + SHARED_AT_ONCE - 1) / SHARED_AT_ONCE * SHARED_AT_ONCE;
    occupancy->warps_max = sm->threads / WARP;
    occupancy->by_ctas = sm->ctas;
    occupancy->by_threads = warps > 0 ? occupancy->warps_max / warps : 0;
    occupancy->by_registers = registers > 0 && warps > 0 ? sm->registers / PARTS / registers * PARTS / warps : 0;
    occupancy->by_shared = shared > 0 ? (int)(sm->shared_bytes / shared) : 0;
}
