/* Elements in Fortran's order, each to where C's order has it. */
#include <string.h>

#include "codec/codec_parts.h"

void ks_fortran_begin(ks_fortran *walk, const ks_tensor *tensor)
{
    memset(walk, 0, sizeof *walk);
    walk->element = ks_dtype_size(tensor->dtype);
    walk->rank = tensor->rank;
    walk->left = (uint64_t)ks_tensor_count(tensor);
    size_t stride = walk->element;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        walk->dims[i] = tensor->dims[i];
        walk->stride[i] = stride;
        stride *= (size_t)tensor->dims[i];
    }
}

/* To the next element in Fortran's order, in which the first index runs fastest. */
static void step(ks_fortran *walk)
{
    walk->left--;
    for (int i = 0; i < walk->rank; i++) {
        walk->offset += walk->stride[i];
        if (++walk->at[i] < walk->dims[i]) return;
        walk->offset -= walk->stride[i] * (size_t)walk->dims[i];
        walk->at[i] = 0;
    }
}

void ks_fortran_put(ks_fortran *walk, unsigned char *to, const char *bytes, size_t n)
{
    const char *const end = bytes + n;
    const size_t element = walk->element;
    while (walk->left > 0 && bytes < end) {
        if (walk->part_length == 0 && (size_t)(end - bytes) >= element) {
            memcpy(to + walk->offset, bytes, element);
            bytes += element;
            step(walk);
            continue;
        }
        /* One that a chunk's end has cut. */
        walk->part[walk->part_length++] = *bytes++;
        if (walk->part_length < element) continue;
        memcpy(to + walk->offset, walk->part, element);
        walk->part_length = 0;
        step(walk);
    }
}
