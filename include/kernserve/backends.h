/* The backends of the source tree, in the order of preference: X(TITLE, name, gpu) is ks_backend_NAME of kernels/NAME, a choice of
 * --backend behind "auto", a row of daemon/backends.h. gpu: its devices are GPUs, as defaults must know before it is opened. */
#ifndef KERNSERVE_BACKENDS_H
#define KERNSERVE_BACKENDS_H

#include "kernserve/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KS_BACKEND_TABLE(X)                                                                                            \
    X(CUDA, cuda, true)                                                                                                \
    X(CPU, cpu, false)

/* ks_backend_cuda, ks_backend_cpu; NULL: not in this build. */
#define X(TITLE, name, gpu) extern const ks_backend *const ks_backend_##name;
KS_BACKEND_TABLE(X)
#undef X

#ifdef __cplusplus
}
#endif

#endif
