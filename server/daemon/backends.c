#include "daemon/backends.h"

#define ROW(TITLE, name, gpu)                                                                                          \
    static const ks_backend *name(void)                                                                                \
    {                                                                                                                  \
        return ks_backend_##name;                                                                                      \
    }
KS_BACKEND_TABLE(ROW)
#undef ROW

const ks_backend_row *ks_backends(void)
{
#define ROW(TITLE, name, gpu) {#name, #TITLE, name, gpu},
    static const ks_backend_row rows[] = {KS_BACKEND_TABLE(ROW){.name = NULL}};
    return rows;
}
