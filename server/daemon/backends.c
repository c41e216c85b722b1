#include "daemon/backends.h"

const ks_backend *ks_backends_cpu(void)
{
    return &ks_backend_cpu;
}

const ks_backend *ks_backends_cuda(void)
{
    return ks_backend_cuda;
}
