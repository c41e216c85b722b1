/* In the place of backend.cu where nvcc is missing. */
#include "kernserve/backends.h"

#ifndef KS_HAVE_CUDA
const ks_backend *const ks_backend_cuda = NULL;
#endif
