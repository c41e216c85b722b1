/* Elements that are all alike.
 *
 * Owns     nothing.
 * Threads  any; all memory is the caller's. */
#include "cpu/fill.h"

#include <string.h>

#define FILL(name, type)                                                                                               \
    static void fill_##name(void *out, uint64_t bits, int64_t count)                                                   \
    {                                                                                                                  \
        for (int64_t i = 0; i < count; i++) ((type *)out)[i] = (type)bits;                                             \
    }
FILL(2, uint16_t)
FILL(4, uint32_t)
FILL(8, uint64_t)

void ks_cpu_fill(void *out, size_t size_bytes, uint64_t bits, int64_t count)
{
    switch (size_bytes) {
    case 1:
        memset(out, (int)bits, (size_t)count);
        break;
    case 2:
        fill_2(out, bits, count);
        break;
    case 4:
        fill_4(out, bits, count);
        break;
    default:
        fill_8(out, bits, count);
        break;
    }
}
