#include "base/version.h"

#include <stdio.h>

void ks_version_print(void)
{
    puts("kernserve " KS_VERSION "\n"
         "revision " KS_REVISION "\n"
         "CUDA " KS_CUDA_VERSION "\n"
         "oneDNN " KS_ONEDNN_VERSION "\n"
         "libmicrohttpd " KS_MICROHTTPD_VERSION);
}

const char *ks_version_revision(void)
{
    return KS_REVISION;
}
