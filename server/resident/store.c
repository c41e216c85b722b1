#include "resident/store.h"

/* [A-Za-z0-9_.-], 1 to 128 bytes, neither . nor - in front. */
ks_status ks_tensor_name_check(const char *name, size_t length, ks_error *error)
{
    bool good = length > 0 && length <= KS_TENSOR_NAME_MAX && name[0] != '.' && name[0] != '-';
    for (size_t i = 0; good && i < length; i++) {
        const char c = name[i];
        good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
               c == '-';
    }
    if (good) return KS_OK;
    return ks_fail(error, KS_NAME, "a tensor's name has 1 to %d bytes of [A-Za-z0-9_.-], neither . nor - in front",
                   KS_TENSOR_NAME_MAX);
}
