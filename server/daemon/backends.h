/* Which backends the daemon is made of. A file of its own, because tests build the daemon with another one, whose
 * backends fail on demand: nothing of that exists in the binary that is installed. */
#ifndef KS_BACKENDS_H
#define KS_BACKENDS_H
#include "kernserve/backend.h"

const ks_backend *ks_backends_cpu(void);
const ks_backend *ks_backends_cuda(void); /* NULL: not in this build */
#endif
