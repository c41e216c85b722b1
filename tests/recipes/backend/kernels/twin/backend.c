/* Twin: a toy backend (tests/recipes/backend.py), the CPU's under a name of its own, which says what it runs.
 * Threads  as the CPU's; `runs` is any lane's. */
#include "kernserve/backends.h"

#include <stdatomic.h>
#include <stdio.h>

static _Atomic long runs;

static ks_status twin_launch(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    atomic_fetch_add(&runs, 1);
    return ks_backend_cpu->launch(lane, batch, error);
}

static void twin_close(ks_device **device)
{
    fprintf(stderr, "twin: %ld launches\n", atomic_load(&runs));
    ks_backend_cpu->close(device);
}

static ks_backend twin;

/* No constant: the CPU's functions are its own file's. */
__attribute__((constructor)) static void make_twin(void)
{
    twin = *ks_backend_cpu;
    twin.name = "twin";
    twin.launch = twin_launch;
    twin.close = twin_close;
}

const ks_backend *const ks_backend_twin = &twin;
