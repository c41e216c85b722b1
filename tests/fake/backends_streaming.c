/* In place of server/daemon/backends.c in kernserve_streaming: large requests go through a ring and device buffers, as on a GPU.
 * KS_FAIL_COPY=N loses the device at the N-th copy. */
#include <stdlib.h>

#include "fake/backend_streaming.h"
#include "daemon/backends.h"

static const ks_backend *cpu(void)
{
    const char *fail = getenv("KS_FAIL_COPY");
    if (fail) streaming_fail_copy(atoi(fail));
    return &backend_streaming;
}

static const ks_backend *cuda(void)
{
    return NULL;
}

const ks_backend_row *ks_backends(void)
{
    static const ks_backend_row rows[] = {{"cuda", "CUDA", cuda, true}, {"cpu", "CPU", cpu, false}, {.name = NULL}};
    return rows;
}
