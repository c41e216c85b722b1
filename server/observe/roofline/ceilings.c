#include "observe/roofline/ceilings.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Value 0 until it is known; source is written before and never again. */
typedef struct cell {
    _Atomic double value;
    char source[KS_SOURCE_MAX];
} cell;

struct ks_ceiling_store {
    /* fixed after open: */
    const ks_backend *backend;
    ks_device *device;
    size_t memory_max;
    /* any thread: */
    cell copy, read, h2d, d2h, launch, tflops[KS_DTYPE_COUNT];
    _Atomic double cache_bytes; /* before copy's value */
    _Atomic uint32_t wanted;    /* KS_DTYPE_BIT of products */
    _Atomic bool limits_wanted;
    /* of the thread that measures: */
    bool memory_tried, limits_tried;
    uint32_t tried;
};

ks_ceiling_store *ks_ceilings_open(const ks_backend *backend, ks_device *device, size_t memory_max)
{
    ks_ceiling_store *store = calloc(1, sizeof *store);
    if (!store) return NULL;
    store->backend = backend;
    store->device = device;
    store->memory_max = memory_max;
    return store;
}

void ks_ceilings_close(ks_ceiling_store **store)
{
    free(*store);
    *store = NULL;
}

static double value_of(const cell *c)
{
    return atomic_load_explicit(&c->value, memory_order_acquire);
}

static ks_ceiling ceiling_of(const cell *c)
{
    const double value = value_of(c);
    return (ks_ceiling){.value = value, .source = value > 0 ? c->source : NULL};
}

static void set(cell *c, double value, const char *source)
{
    snprintf(c->source, sizeof c->source, "%s", source);
    atomic_store_explicit(&c->value, value, memory_order_release);
}

void ks_ceilings_read(ks_ceiling_store *store, ks_dtype dtype, ks_ceilings *out)
{
    *out = (ks_ceilings){.copy_gbs = ceiling_of(&store->copy),
                         .read_gbs = ceiling_of(&store->read),
                         .h2d_gbs = ceiling_of(&store->h2d),
                         .d2h_gbs = ceiling_of(&store->d2h),
                         .launch_us = ceiling_of(&store->launch),
                         .tflops = ceiling_of(&store->tflops[dtype]),
                         .cache_bytes = atomic_load_explicit(&store->cache_bytes, memory_order_relaxed)};
    atomic_fetch_or_explicit(&store->wanted, KS_DTYPE_BIT(dtype), memory_order_relaxed);
    atomic_store_explicit(&store->limits_wanted, true, memory_order_relaxed);
}

double ks_ceilings_tflops(const ks_ceiling_store *store, ks_dtype dtype)
{
    return value_of(&store->tflops[dtype]);
}

double ks_ceilings_copy_gbs(const ks_ceiling_store *store)
{
    return value_of(&store->copy);
}

/* --- measuring ---------------------------------------------------------------------------------------------------- */

static void measure_memory(ks_ceiling_store *store)
{
    ks_memory_rates rates = {0};
    ks_error ignored;
    store->memory_tried = true;
    if (store->backend->probe->memory(store->device, store->memory_max, &rates, &ignored) != KS_OK) return;
    atomic_store_explicit(&store->cache_bytes, (double)rates.cache_bytes, memory_order_relaxed);
    set(&store->read, rates.read_gbs, rates.source);
    set(&store->copy, rates.copy_gbs, rates.source);
}

static void measure_limits(ks_ceiling_store *store)
{
    ks_device_limits limits = {0};
    ks_error ignored;
    store->limits_tried = true;
    if (store->backend->probe->device_limits(store->device, &limits, &ignored) != KS_OK) return;
    set(&store->h2d, limits.h2d_gbs, "pinned memory of 64 MiB, median of 5");
    set(&store->d2h, limits.d2h_gbs, "pinned memory of 64 MiB, median of 5");
    set(&store->launch, limits.graph_flag_us, "a graph of one kernel, median of 1000");
}

static void measure_peak(ks_ceiling_store *store, ks_dtype dtype)
{
    ks_peak peak = {0};
    ks_error ignored;
    store->tried |= KS_DTYPE_BIT(dtype);
    if (store->backend->probe->peak(store->device, dtype, &peak, &ignored) == KS_OK)
        set(&store->tflops[dtype], peak.tflops, peak.source);
}

static bool limits_due(const ks_ceiling_store *store)
{
    return !store->limits_tried && store->backend->probe->device_limits && atomic_load(&store->limits_wanted);
}

static uint32_t peaks_due(const ks_ceiling_store *store)
{
    return atomic_load_explicit(&store->wanted, memory_order_relaxed) & ~store->tried;
}

bool ks_ceilings_due(const ks_ceiling_store *store)
{
    return store->backend->probe && (!store->memory_tried || limits_due(store) || peaks_due(store));
}

bool ks_ceilings_measure(ks_ceiling_store *store)
{
    if (!ks_ceilings_due(store)) return false;
    if (!store->memory_tried)
        measure_memory(store);
    else if (limits_due(store))
        measure_limits(store);
    else
        measure_peak(store, (ks_dtype)__builtin_ctz(peaks_due(store)));
    return true;
}
