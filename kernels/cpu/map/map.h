/* What the files of map share: map.c brings blocks of elements, floats.c, doubles.c and integers.c compute them, cast.c changes their
 * datatype. Blocks lie in the first- and second-level caches; no block of one overlaps another. */
#ifndef KS_MAP_CPU_H
#define KS_MAP_CPU_H

#include "ops/map.h"

enum { KS_MAP_BLOCK = 1024 };

/* Casts of at most KS_MAP_BLOCK elements take the middle: 8 bytes for each. */
typedef struct ks_map_middle {
    double number[KS_MAP_BLOCK];
} ks_map_middle;

/* Each takes `count` elements of each operand: in[k], of floats, doubles or the datatype of the work; out is of the same, or bytes of 0
 * and 1 where the function gives truths. */
typedef void ks_map_apply_fn(const ks_map_work *work, const void *const in[KS_MAP_OPERANDS], void *out, size_t count);
ks_map_apply_fn ks_map_floats, ks_map_doubles, ks_map_integers;

/* where: of elements of `size` bytes, in[0] decides. */
void ks_map_select(size_t size, const void *const in[KS_MAP_OPERANDS], void *out, size_t count);

/* As ops/map.c says; the same datatype is copied, BOOL as 0 and 1. */
void ks_map_cast(ks_dtype from, ks_dtype to, const void *in, void *out, size_t count, ks_map_middle *middle);

#endif
