#include "daemon/backends.h"

static const ks_backend *cuda(void)
{
    return ks_backend_cuda;
}

static const ks_backend *cpu(void)
{
    return &ks_backend_cpu;
}

const ks_backend_row *ks_backends(void)
{
    static const ks_backend_row rows[] = {{"cuda", "CUDA", cuda, true}, {"cpu", "CPU", cpu, false}, {.name = NULL}};
    return rows;
}
