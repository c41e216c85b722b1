/* A number as the bits of an element of any datatype but BYTES. Any thread. */
#ifndef KS_OPS_ELEMENT_H
#define KS_OPS_ELEMENT_H

#include "kernserve/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether v is within the datatype: no float beyond the largest finite one, but infinities where there are any; of integers whole numbers that
 * it has, of 64 bits up to 2^53. NaN is never. */
bool ks_element_holds(ks_dtype dtype, double v);
/* Of one that it holds; floats are rounded to nearest even. */
uint64_t ks_element_bits(ks_dtype dtype, double v);

#ifdef __cplusplus
}
#endif
#endif
