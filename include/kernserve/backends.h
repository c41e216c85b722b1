/* The backends of the source tree, in the order of preference: X(TITLE, name, gpu) is ks_backend_NAME of kernels/NAME, a choice of
 * --backend behind "auto", a row of daemon/backends.h. gpu: its devices are GPUs, as defaults must know before it is opened. */
#ifndef KERNSERVE_BACKENDS_H
#define KERNSERVE_BACKENDS_H

#define KS_BACKEND_TABLE(X)                                                                                            \
    X(CUDA, cuda, true)                                                                                                \
    X(CPU, cpu, false)

#endif
