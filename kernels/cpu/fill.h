/* One element again and again, of any datatype with a size. Any thread. */
#ifndef KS_CPU_FILL_H
#define KS_CPU_FILL_H

#include <stddef.h>
#include <stdint.h>

/* out: aligned to an element of so many bytes, 1, 2, 4 or 8; bits: the element's. */
void ks_cpu_fill(void *out, size_t size_bytes, uint64_t bits, int64_t count);

#endif
