/* What an operation promises, and one piece of work for it (ks_spec), without addresses.
 *
 * An op is one descriptor (kernels/ops/NAME.c), one reference on the CPU (kernels/cpu/NAME/NAME.c), one set of CUDA kernels
 * (kernels/cuda/NAME/NAME.cu) and one line in kernels/ops/ops.def. Models of the protocol, their presets, parameters and metrics labels all follow from the
 * descriptor. Descriptors are constant; everything here may be used by any thread. */
#ifndef KERNSERVE_OP_H
#define KERNSERVE_OP_H

#include "kernserve/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_INPUTS_MAX = 3, KS_PARAMS_MAX = 6 };

typedef enum ks_param_kind {
    KS_PARAM_INT,    /* value.i */
    KS_PARAM_BOOL,   /* value.i, 0 or 1 */
    KS_PARAM_NUMBER, /* value.d; an integer token is accepted */
    KS_PARAM_CHOICE, /* value.i: index into choices */
    KS_PARAM_AXES    /* value.axes: an integer, a text "0,2" or the text "all" */
} ks_param_kind;

typedef struct ks_axes {
    int8_t count; /* 1 .. KS_RANK_MAX; -1: all */
    int8_t axis[KS_RANK_MAX];
} ks_axes;

typedef union ks_value {
    int64_t i;
    double d;
    ks_axes axes;
    uint64_t bits[2]; /* zeroed before use, so that values compare by their bytes */
} ks_value;

typedef struct ks_param {
    const char *name;
    ks_param_kind kind;
    ks_value preset;            /* when the request does not say */
    const char *const *choices; /* KS_PARAM_CHOICE: NULL-terminated */
    ks_status status;           /* what a bad value is: KS_PARAMETER, or KS_AXIS */
} ks_param;

/* One more model of the protocol: NAME_SUFFIX, with one parameter fixed, or another declared rank. */
typedef struct ks_preset {
    const char *suffix;
    int param; /* index into params, or -1 */
    ks_value value;
    int in_rank, out_rank; /* declared in the metadata; 0: as the op; out_rank -1: a scalar, shown as [1] */
} ks_preset;

typedef struct ks_op ks_op;

/* One piece of work: what a plan is made for and found by. Zeroed before it is filled, so that two equal ones are equal
 * bytes. Inputs lie in a slot's `in` side, the output in its `out` side, at offsets that are multiples of KS_ALIGNMENT. */
typedef struct ks_spec {
    const ks_op *op;
    ks_value params[KS_PARAMS_MAX];
    int inputs;                  /* given: op->inputs_least .. op->inputs, the first ones */
    ks_tensor in[KS_INPUTS_MAX]; /* `inputs` of them */
    ks_tensor out;
    double flops; /* estimate of the arithmetic, for the work limit */
} ks_spec;

/* Checks datatypes, ranks, shapes and parameters of spec->in and spec->params; fills spec->out (dtype, rank, dims,
 * size_bytes, offset 0) and spec->flops. Negative axes are resolved to [0, rank) in spec->params, lists sorted, "all"
 * spelled out, so that equal work has equal keys.
 * Errors: KS_DATATYPE, KS_SHAPE, KS_AXIS, KS_EMPTY, KS_PARAMETER; the sentence names the input and both numbers. */
typedef ks_status ks_resolve_fn(ks_spec *spec, ks_error *error);

/* A small, representative piece of work (unresolved), which start-up and health checks run on the device and compare with
 * the reference. */
typedef void ks_sample_fn(ks_spec *spec);

struct ks_op {
    const char *name;
    int inputs;             /* at most; named INPUT0, INPUT1, ... */
    int inputs_least;       /* those behind it may be left out */
    int in_rank, out_rank;  /* declared in the metadata */
    int rank_min, rank_max; /* accepted; checked by resolve */
    uint32_t dtypes;        /* KS_DTYPE_BIT of each accepted input datatype */
    int params_count;
    ks_param params[KS_PARAMS_MAX];
    int presets_count;
    const ks_preset *presets;
    ks_resolve_fn *resolve;
    /* Of a resolved spec: how many of INPUT0's leading dimensions the output has as well, such that what lies at one index
     * of them depends on nothing at another. Work may be cut there. NULL: none. */
    int (*free_dims)(const ks_spec *spec);
    ks_sample_fn *sample;
};

extern const ks_op *const ks_ops[]; /* all of ops.def, in its order; NULL-terminated */
const ks_op *ks_op_find(const char *name, size_t length);

/* spec zeroed, its op set, no optional inputs, every parameter at its preset. */
void ks_spec_init(ks_spec *spec, const ks_op *op);
/* Lays the inputs out one after the other on aligned offsets (size_bytes must be set); returns the bytes of the side. */
size_t ks_spec_layout(ks_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
