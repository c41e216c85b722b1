/* Which backends the daemon is made of: a row for each of kernserve/backends.h, in its order. A file of its own, because tests build the daemon with another one,
 * whose backends fail on demand: nothing of that exists in the binary that is installed. */
#ifndef KS_BACKENDS_H
#define KS_BACKENDS_H
#include "base/config/config.h"
#include "kernserve/backend.h"

typedef struct ks_backend_row {
    const char *name, *title;           /* "cuda", "CUDA"; NULL: behind the last one */
    const ks_backend *(*backend)(void); /* NULL: not in this build */
    bool gpu;                           /* for defaults, which are settled before it is opened */
} ks_backend_row;

/* As the choices of --backend behind "auto". */
const ks_backend_row *ks_backends(void);

static inline bool ks_backend_is_chosen(const ks_backend_row *row, ks_choice_backend choice)
{
    return choice == KS_BACKEND_AUTO || row - ks_backends() + 1 == (ptrdiff_t)choice;
}
#endif
