/* In place of server/daemon/backends.c in kernserve_streaming: large requests go through a ring and device buffers, as on a GPU.
 * KS_FAIL_COPY=N loses the device at the N-th copy. */
#include <stdlib.h>
#include <string.h>

#include "fake/backend_streaming.h"
#include "daemon/backends.h"

static const ks_backend *cpu(void)
{
    const char *fail = getenv("KS_FAIL_COPY");
    if (fail) streaming_fail_copy(atoi(fail));
    return streaming_backend();
}

static const ks_backend *none(void)
{
    return NULL;
}

const ks_backend_row *ks_backends(void)
{
#define ROW(TITLE, name, gpu) {#name, #TITLE, strcmp(#name, "cpu") == 0 ? cpu : none, gpu},
    static const ks_backend_row rows[] = {KS_BACKEND_TABLE(ROW){.name = NULL}};
    return rows;
}
