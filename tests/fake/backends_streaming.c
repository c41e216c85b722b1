/* In place of server/backends.c in kernserve_streaming: large requests go through a ring and areas, as on a GPU.
 * KS_FAIL_COPY=N loses the device at the N-th copy. */
#include <stdlib.h>

#include "fake/backend_streaming.h"
#include "daemon/backends.h"

const ks_backend *ks_backends_cpu(void)
{
    const char *fail = getenv("KS_FAIL_COPY");
    if (fail) streaming_fail_copy(atoi(fail));
    return &backend_streaming;
}

const ks_backend *ks_backends_cuda(void)
{
    return NULL;
}
