/* In the place of backend_cuda.cu where nvcc is missing. */
#include "kernserve/backend.h"

const ks_backend *const ks_backend_cuda = NULL;
