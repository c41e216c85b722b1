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

enum { KS_INPUTS_MAX = 16, KS_OUTPUTS_MAX = 16, KS_PARAMS_MAX = 16, KS_LISTS_MAX = 9 };
enum { KS_OP_INPUTS_MAX = 8, KS_OP_OUTPUTS_MAX = 4 }; /* of an op that is no chain */

typedef enum ks_param_kind {
    KS_PARAM_INT,    /* value.i */
    KS_PARAM_BOOL,   /* value.i, 0 or 1 */
    KS_PARAM_NUMBER, /* value.d; an integer token is accepted */
    KS_PARAM_CHOICE, /* value.i: index into choices */
    KS_PARAM_AXES,   /* value.axes: an integer, a text "0,2" or the text "all" */
    KS_PARAM_LIST    /* lists[value.list]: a list of integers, or a text "2,0,1" */
} ks_param_kind;

typedef struct ks_axes {
    int8_t count; /* 1 .. KS_RANK_MAX; -1: all */
    int8_t axis[KS_RANK_MAX];
} ks_axes;

typedef struct ks_integers {
    int64_t count; /* 0 .. KS_RANK_MAX; -1: the request does not say */
    int64_t value[KS_RANK_MAX];
} ks_integers;

typedef union ks_value {
    int64_t i;
    double d;
    ks_axes axes;
    int64_t list;     /* which of the lists beside the values: as the descriptor's preset has it */
    uint64_t bits[2]; /* zeroed before use, so that values compare by their bytes */
} ks_value;

typedef struct ks_param {
    const char *name;
    ks_param_kind kind;
    ks_value preset;            /* when the request does not say */
    const char *const *choices; /* KS_PARAM_CHOICE: NULL-terminated */
    ks_status status;           /* what a bad value is: KS_PARAMETER, or KS_AXIS */
    bool infinite;              /* KS_PARAM_NUMBER: takes the texts "inf" and "-inf", too */
} ks_param;

/* A parameter, by its index into params, at the one value that a model has. */
typedef struct ks_fixed {
    int param;
    ks_value value;
    const ks_integers *list; /* of a KS_PARAM_LIST, in place of the value */
} ks_fixed;

enum { KS_FIXED_MAX = 4 };

/* One more model of the protocol: NAME_SUFFIX, with parameters fixed, more declared inputs, or another declared rank. */
typedef struct ks_preset {
    const char *suffix;
    int param; /* index into params, or -1 */
    ks_value value;
    const ks_integers *list; /* of a KS_PARAM_LIST, in place of the value */
    int in_rank, out_rank;   /* declared in the metadata; 0: as the op; out_rank -1: a scalar, shown as [1] */
    const ks_fixed *more;    /* further parameters that are fixed; with the first one KS_FIXED_MAX at most */
    int more_count;
    uint16_t inputs; /* optional ones that the metadata declares as well, as bits */
    bool narrow;     /* also as NAME_SUFFIX_fp16 and NAME_SUFFIX_bf16, of which INPUT0 is declared */
    uint32_t
        first; /* KS_DTYPE_BIT of what is declared for INPUT0, where others are the model's; 0: the model's as well */
} ks_preset;

/* What an op says of one input. */
typedef struct ks_input {
    const char *name, *role; /* "INPUT2", "bias": sentences, documents */
    uint32_t dtypes;         /* KS_DTYPE_BIT of each that it takes; 0: the datatype of INPUT0, which resolve checks */
    int rank_min, rank_max;  /* accepted; checked by resolve */
    int rank;                /* declared in the metadata; 0: the op's in_rank, or the nearest that the input takes */
    bool optional;           /* may be left out, wherever it stands */
    bool positive;           /* takes finite numbers of at least 2^-126: what is run without a request has such */
    bool small;    /* lies in front of the others in the slot's side, so that rows run while INPUT0 still comes */
    bool as_it_is; /* read as it lies, and never with rows apart (ks_op.pitch) */
} ks_input;

typedef struct ks_op ks_op;

/* One piece of work: what a plan is made for and found by (ks_spec_same). The parts in use are zeroed before they are filled,
 * so that equal ones are equal bytes. Inputs lie in a slot's `in` side, outputs in its `out` side, at offsets that are multiples
 * of KS_ALIGNMENT. */
typedef struct ks_spec {
    const ks_op *op;
    double flops;    /* estimate of the arithmetic, for the work limit and the roofline */
    uint16_t given;  /* bit i: INPUTi is there */
    uint8_t outputs; /* set by resolve: the first ones of out[] */
    ks_value params[KS_PARAMS_MAX];
    ks_integers lists[KS_LISTS_MAX];
    ks_tensor in[KS_INPUTS_MAX];
    ks_tensor out[KS_OUTPUTS_MAX]; /* last: a plan's spec ends with the outputs that it has */
} ks_spec;

/* The rows of a resolved spec: indices of INPUT0's first `dims` dimensions, such that what lies at one index depends on nothing
 * at another. Work may be cut there. */
typedef struct ks_rows {
    int dims;
    uint16_t cut; /* bit i: INPUTi has these rows as well; the others are needed whole */
    uint8_t out;  /* bit i: so has OUTPUTi */
} ks_rows;

/* Where a launch finds its tensors, from the start of the slot's sides: the spec's offsets, or those of some of its rows. */
typedef struct ks_places {
    size_t in[KS_INPUTS_MAX], out[KS_OUTPUTS_MAX];
} ks_places;

/* Checks datatypes, ranks, shapes and parameters of spec->in and spec->params; fills spec->outputs, as many of spec->out (dtype,
 * rank, dims, size_bytes) and spec->flops. Negative axes are resolved to [0, rank) in spec->params, lists sorted, "all"
 * spelled out, so that equal work has equal keys.
 * Errors: KS_DATATYPE, KS_SHAPE, KS_AXIS, KS_EMPTY, KS_PARAMETER; the sentence names the input and both numbers. */
typedef ks_status ks_resolve_fn(ks_spec *spec, ks_error *error);

/* A small, representative piece of work (unresolved), which start-up and health checks run on the device and compare with
 * the reference. */
typedef void ks_sample_fn(ks_spec *spec);

/* A value of an input that decides (an index, an offset, a length), and that is out of its bounds. */
typedef struct ks_bad_value {
    int input; /* INPUT1 at least */
    /* Its number among the input's values; from their count on the op's other fault, with the value that many places before. */
    int64_t place;
    int64_t value;
    int node; /* of a chain, whose input it is */
} ks_bad_value;

struct ks_op {
    const char *name;
    int inputs_count;
    ks_input inputs[KS_INPUTS_MAX];
    int in_rank, out_rank; /* declared in the metadata, for INPUT0 and inputs that take the rank, and for OUTPUT0 */
    int outputs_max;       /* that a parameter may ask for; 0: as many as the metadata declares */
    int params_count;
    ks_param params[KS_PARAMS_MAX];
    int lists_count; /* parameters that are lists; their presets number them, and say no list */
    int presets_count;
    const ks_preset *presets;
    ks_resolve_fn *resolve;
    ks_rows (*rows)(const ks_spec *spec); /* NULL: none */
    /* Whether rows of jobs that agree in all else may be one piece of work: each of each output follows from the row of INPUT0 at the
     * same index of its first dimension, and from the other inputs. NULL: never. */
    bool (*joins)(const ks_spec *spec);
    /* Inputs, as bits, that may have a row for each of INPUT0's: where a step of a chain has them, they go with these. Requests are not joined then. */
    uint16_t joins_with;
    /* Elements from row to row as its kernels would have a tensor of that shape, where it stays and may be put so once; 0: as it is.
     * NULL: always, and so are small inputs. Rows are those of the last dimension; a tensor put so is an input whose `pitch` is set. */
    int64_t (*pitch)(const ks_tensor *tensor);
    /* Of a resolved spec: OUTPUT0 is the only output, and bytes of INPUT0 as they lie, side by side, from *offset on: in a chain it is
     * a view. NULL: never. */
    bool (*is_view)(const ks_spec *spec, size_t *offset);
    ks_sample_fn *sample;
    /* Values that decide; all three unset: none do. Kernels check them as well, read nothing out of bounds for a bad one, and leave the
     * one that check finds: KS_BAD_WORD in backend.h. */
    uint16_t decides; /* inputs, as bits; some may be optional: ks_decides() */
    /* Of a chain: nodes have such inputs, and `refuse` is set alone. Values are looked at where the node runs. */
    bool nodes_decide;
    /* Of a resolved spec that has some, whose tensors lie at in[i] (NULL: passed over): of the last input that has bad values its first one. false: none. */
    bool (*check)(const ks_spec *spec, const void *const *in, ks_bad_value *bad);
    /* KS_RANGE: the sentence names the place, the value and the bounds. Of an op's other fault a status of its own. */
    ks_status (*refuse)(const ks_spec *spec, const ks_bad_value *bad, ks_error *error);
    /* Bytes that memory moves for the inputs, at most once for each use; NULL: each tensor once. */
    size_t (*read_bytes)(const ks_spec *spec);
    const char *const *outputs;   /* names of its outputs; NULL: OUTPUT0 and so on */
    const struct ks_chain *chain; /* the operations that it is made of; NULL: it has kernels of its own */
};

extern const ks_op *const ks_ops[]; /* all of ops.def, in its order; NULL-terminated */
const ks_op *ks_op_find(const char *name, size_t length);

/* Of OUTPUT0 to OUTPUT3, those of an op that is no chain; of an op's outputs. */
const char *ks_output_name(int output);
const char *ks_op_output(const ks_op *op, int output);
/* Inputs that may not be left out, as bits. */
uint16_t ks_op_required(const ks_op *op);
/* The index of the input of that name; -1: the op has none. name need not be terminated. */
int ks_op_input(const ks_op *op, const char *name, size_t length);
/* What an input takes, as bits of KS_DTYPE_BIT. */
uint32_t ks_op_dtypes(const ks_op *op, int input);

/* The op's inputs zeroed, no optional ones, every parameter at its preset; outputs are resolve's, and what the op does not have
 * is left as it is. */
void ks_spec_init(ks_spec *spec, const ks_op *op);
/* Parameters alone, of the op: each at its preset; each as in `from`. */
void ks_params_init(const ks_op *op, ks_value *params, ks_integers *lists);
void ks_params_copy(const ks_op *op, ks_value *params, ks_integers *lists, const ks_value *from,
                    const ks_integers *from_lists);
/* Inputs on aligned offsets one after the other, small ones first, and outputs likewise (size_bytes must be set); fixed ones take
 * no part of the side. Returns the bytes of the `in` side. */
size_t ks_spec_layout(ks_spec *spec);
/* The bytes of a side, up to the end of the last tensor that is not fixed. */
size_t ks_spec_in_bytes(const ks_spec *spec);
size_t ks_spec_out_bytes(const ks_spec *spec);
/* The inputs that are fixed, as bits; and the same work with every input in the slot's side, whose bytes are returned. */
unsigned ks_spec_fixed(const ks_spec *spec);
size_t ks_spec_unfix(ks_spec *spec);
/* What any kernel has to read and to write at least: each tensor once, unless the op says otherwise. With spec->flops the op's work. */
size_t ks_spec_read_bytes(const ks_spec *spec);
size_t ks_spec_written_bytes(const ks_spec *spec);
/* Copies what is in use, and compares it: the same work, at the same places. Outputs but for their places follow from the rest. */
void ks_spec_copy(ks_spec *to, const ks_spec *from);
bool ks_spec_same(const ks_spec *a, const ks_spec *b);
/* "matmul FP16 [64,128] [128,256]": operation, datatype, inputs' dimensions; terminated, a longer text is cut. */
enum { KS_SPEC_TEXT_MAX = 112 };
void ks_spec_text(const ks_spec *spec, char out[KS_SPEC_TEXT_MAX]);

/* A parameter that is a list: to be set; to be read. */
static inline ks_integers *ks_spec_list(ks_spec *spec, int param)
{
    return &spec->lists[spec->params[param].list];
}

static inline const ks_integers *ks_list_of(const ks_spec *spec, int param)
{
    return &spec->lists[spec->params[param].list];
}

/* Whether an input is there; the next one that is, behind `after` (-1 at first); -1: none. */
static inline bool ks_has_input(const ks_spec *spec, int input)
{
    return (spec->given >> input & 1) != 0;
}

static inline int ks_next_input(const ks_spec *spec, int after)
{
    const unsigned left = (unsigned)spec->given >> (after + 1);
    return left ? after + 1 + __builtin_ctz(left) : -1;
}

/* Whether there are inputs whose values decide. */
static inline bool ks_decides(const ks_spec *spec)
{
    return spec->op->nodes_decide || (spec->op->decides & spec->given) != 0;
}

#ifdef __cplusplus
}
#endif
#endif
