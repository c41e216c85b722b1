/* What the files of map share: map.c brings blocks of elements, floats.c, doubles.c and integers.c compute them, cast.c changes their
 * datatype. Blocks lie in the first- and second-level caches; no block of one overlaps another. */
#ifndef KS_MAP_CPU_H
#define KS_MAP_CPU_H

#include "cpu/reference.h"
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
/* `count` elements of 16 bits as they lie in memory, to elements of the same datatype; false: there is no such loop, or in[k] is NULL. */
bool ks_map_halves(const ks_map_work *work, const void *const in[KS_MAP_OPERANDS], void *out, size_t count);

/* Memory of ks_map_block: elements of any datatype. */
typedef unsigned char ks_map_wide[KS_MAP_BLOCK * 8];
typedef struct ks_map_room {
    ks_map_wide converted[KS_MAP_OPERANDS], result;
    ks_map_middle middle;
} ks_map_room;

/* `count` elements of one function, KS_MAP_BLOCK at most: in[k] are the operand's as they lie in memory, side by side; NULL: it is the
 * scalar, which ks_map_scalar has put into scalar[k]. Of out they become those of the work's datatype. */
void ks_map_block(const ks_map_work *work, const void *const in[KS_MAP_OPERANDS],
                  const void *const scalar[KS_MAP_OPERANDS], void *out, size_t count, ks_map_room *room);
/* The scalar as ks_map_block takes it, as often as a block has elements. */
void ks_map_scalar(const ks_map_work *work, void *out, ks_map_middle *middle);
/* Elements of the output. */
typedef struct ks_map_range {
    int64_t at, count;
} ks_map_range;
/* Those of an operand, of `size` bytes each, side by side: where they lie, or brought to `to`. */
const void *ks_map_elements(const ks_map_shape *shape, int k, const void *in, size_t size, const ks_map_range *range,
                            void *to);

/* where: of elements of `size` bytes, in[0] decides. */
void ks_map_select(size_t size, const void *const in[KS_MAP_OPERANDS], void *out, size_t count);

/* As ops/map.c says; the same datatype is copied, BOOL as 0 and 1. */
void ks_map_cast(ks_dtype from, ks_dtype to, const void *in, void *out, size_t count, ks_map_middle *middle);

#endif
