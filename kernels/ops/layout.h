/* What every backend knows of layout: the places of its parameters, and a resolved one as copies of boxes, or as padding. */
#ifndef KS_OPS_LAYOUT_H
#define KS_OPS_LAYOUT_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KS_LAYOUT_OP,
    KS_LAYOUT_AXES,
    KS_LAYOUT_STARTS,
    KS_LAYOUT_SIZES,
    KS_LAYOUT_ENDS,
    KS_LAYOUT_STEPS,
    KS_LAYOUT_BEFORE,
    KS_LAYOUT_AFTER,
    KS_LAYOUT_MODE,
    KS_LAYOUT_VALUE,
    KS_LAYOUT_AXIS,
    KS_LAYOUT_NEW_SHAPE,
    KS_LAYOUT_REPEATS,
    KS_LAYOUT_COUNT,
    KS_LAYOUT_PART,
    KS_LAYOUT_PARAMS
};
typedef enum ks_layout_op {
    KS_LAYOUT_TRANSPOSE,
    KS_LAYOUT_SLICE,
    KS_LAYOUT_PAD,
    KS_LAYOUT_CONCAT,
    KS_LAYOUT_RESHAPE,
    KS_LAYOUT_SPLIT,
    KS_LAYOUT_EXPAND,
    KS_LAYOUT_TILE,
    KS_LAYOUT_OPS
} ks_layout_op;
typedef enum ks_layout_mode { KS_LAYOUT_CONSTANT, KS_LAYOUT_EDGE, KS_LAYOUT_REFLECT } ks_layout_mode;

/* Elements of an input to elements of the output: at index (i, j, ..), 0 <= i < extent[0] and so on, element
 * from_start + i * from[0] + j * from[1] + .. goes to element to_start + i * to[0] + j * to[1] + .. Outer axes first, as the output has
 * them; no axis has extent 1 unless it is the only one, and neighbours that are one axis for both sides are one. */
enum { KS_LAYOUT_AXES_MAX = 2 * KS_RANK_MAX }; /* a repeated axis is two */
typedef struct ks_layout_copy {
    int rank; /* 1 at least */
    int64_t extent[KS_LAYOUT_AXES_MAX], from[KS_LAYOUT_AXES_MAX], to[KS_LAYOUT_AXES_MAX];
    int64_t from_start, to_start;
} ks_layout_copy;

/* The whole input as [extent[0], ..], each axis with elements in front and behind. Neighbours without any are one axis. */
typedef struct ks_layout_pad {
    int rank; /* 1 at least */
    int64_t extent[KS_RANK_MAX], before[KS_RANK_MAX], after[KS_RANK_MAX];
    ks_layout_mode mode;
    uint64_t fill; /* the bits of an element of KS_LAYOUT_CONSTANT */
} ks_layout_pad;

/* The specs are resolved. input: one that is given; of every operation but KS_LAYOUT_PAD. */
ks_layout_copy ks_layout_copy_of(const ks_spec *spec, int input);
ks_layout_pad ks_layout_pad_of(const ks_spec *spec);
/* A concat whose inputs lie whole in the output, one behind the other. */
bool ks_layout_is_stack(const ks_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
