/* A chain: operations one behind the other that are one piece of work, with a name and inputs of its own. Its ks_op is made when a client
 * loads a model, and is served, planned and launched like any other.
 *
 * Words    value = a tensor of the chain: an input, a constant (content that stays), or what a node makes; node = an operation on values,
 *          or a reshape; view = a value that lies where another one does, or in a part of it, or whose inputs lie there one behind the
 *          other: its node takes no step; program = a chain with shapes: steps with places;
 *          step = a node's spec, resolved, or that of several nodes, or a copy;
 *          fused = done by the same step as another node.
 * Order    a node's values are made by nodes in front of it: nodes are listed as they run.
 * Threads  a chain is constant once its op is in use; a program is its plan's. */
#ifndef KERNSERVE_CHAIN_H
#define KERNSERVE_CHAIN_H

#include "kernserve/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KS_CHAIN_NODES_MAX = 1024, /* a status word of a device has KS_BAD_NODE_BITS for a node's number */
    KS_CHAIN_CONSTANTS_MAX = 1024,
    KS_CHAIN_MADE_MAX = 2 * KS_CHAIN_NODES_MAX, /* values that nodes make, whether they have names or not */
    KS_CHAIN_VALUES_MAX = KS_INPUTS_MAX + KS_CHAIN_CONSTANTS_MAX + KS_CHAIN_MADE_MAX,
    KS_CHAIN_FREE_MAX = 4,                      /* lengths of the inputs that may be any */
    KS_CHAIN_WORDS_MAX = KS_CHAIN_FREE_MAX + 1, /* with the batch, which has no word */
    KS_CHAIN_NAME_MAX = 128,
    KS_STEP_NODES_MAX = 8,                                   /* that one step does */
    KS_CHAIN_STEPS_MAX = KS_CHAIN_NODES_MAX + KS_OUTPUTS_MAX /* of a program */
};

/* A dimension as a definition declares it: 1 and more is that length. */
enum { KS_DIM_ANY = -1, KS_DIM_WORD = -2 }; /* any length; KS_DIM_WORD - i: any, and the same wherever word i stands */

typedef struct ks_chain_tensor {
    const char *name;
    ks_dtype dtype;
    int rank; /* -1: an output whose datatype and shape are not declared */
    int64_t dims[KS_RANK_MAX];
} ks_chain_tensor;

typedef struct ks_chain_node {
    const char *name;
    const ks_op *op;                /* NULL: a reshape of in[0] to out[0] */
    int16_t in[KS_OP_INPUTS_MAX];   /* values; -1: not given */
    int16_t out[KS_OP_OUTPUTS_MAX]; /* values; -1: of no use to others */
    int inputs, outputs;            /* that the definition lists */
    ks_value params[KS_PARAMS_MAX];
    ks_integers lists[KS_LISTS_MAX]; /* of the parameters, as in ks_spec */
    int rank; /* of a reshape; 0 keeps the dimension at its place, one -1 takes the rest, -2 - k: in's k */
    int64_t dims[KS_RANK_MAX];
} ks_chain_node;

typedef struct ks_chain {
    ks_op op; /* what it is to others; op.chain is this chain */
    int constants, nodes, made;
    ks_chain_tensor in[KS_INPUTS_MAX], out[KS_OUTPUTS_MAX];
    int outputs;
    int16_t output[KS_OUTPUTS_MAX]; /* the value that each one is */
    bool unfused;                   /* each node is a step of its own */
    int64_t max_batch;              /* the first dimension of inputs that begin with word 0, at most; 0: any */
    /* Where there is a max_batch: values that begin with the batch, each row of which follows from the same row of the inputs. */
    bool batched[KS_CHAIN_VALUES_MAX];
    int words; /* of dimensions; word 0: the batch, -1 in front of a shape */
    const char *const *word;
    const ks_tensor *constant; /* each with its address in `fixed` */
    const ks_chain_node *node;
} ks_chain;

/* Values are numbered: inputs, then constants, then what nodes make, in their order. */
static inline int ks_chain_constant(const ks_chain *chain, int value)
{
    const int constant = value - chain->op.inputs_count;
    return constant >= 0 && constant < chain->constants ? constant : -1;
}

static inline int ks_chain_made(const ks_chain *chain, int value)
{
    return value - chain->op.inputs_count - chain->constants;
}

/* ks_resolve_fn of each chain: its inputs are as declared, and each node resolves. Sentences name the node. */
ks_resolve_fn ks_chain_resolve;
/* ks_op.refuse of a chain: the node's sentence behind its name. */
ks_status ks_chain_refuse(const ks_spec *spec, const ks_bad_value *bad, ks_error *error);
/* Whether some node has inputs whose values decide. */
bool ks_chain_decides(const ks_chain *chain);
/* ks_op.joins of a chain whose rows are apart: of its inputs the batch alone is free, and it has so many rows as max_batch at most. */
bool ks_chain_joins(const ks_spec *spec);
/* ks_op.read_bytes of each chain: its inputs, and its constants. */
size_t ks_chain_read_bytes(const ks_spec *spec);

/* Where a step finds a tensor, or puts it. */
typedef enum ks_place_kind {
    KS_PLACE_NONE,
    KS_PLACE_INPUT,  /* that input of the chain */
    KS_PLACE_OUTPUT, /* that output of the chain */
    KS_PLACE_ARENA,  /* at the offset of the program's arena */
    KS_PLACE_FIXED   /* a constant: at its address */
} ks_place_kind;

typedef struct ks_step_place {
    ks_place_kind kind;
    int which;
    size_t offset;     /* of a view from the start of what it lies in, or in the arena */
    const void *fixed; /* where a constant, or a view of one, begins */
} ks_step_place;

typedef struct ks_step {
    int nodes; /* of the chain that it does; 0: a copy */
    int16_t node[KS_STEP_NODES_MAX];
    ks_spec spec; /* resolved; op NULL: a copy of in[0].size_bytes */
    ks_step_place in[KS_OP_INPUTS_MAX], out[KS_OP_OUTPUTS_MAX];
    uint16_t rows_in, rows_out; /* bits: inputs and outputs that are batched */
    /* The backend's, set by prepare: */
    size_t workspace_bytes;
    bool unstamped;
    bool waits;    /* its kernel can wait for the launch in front, and let the one behind begin */
    bool all_rows; /* of a family's plan: a launch does as many rows as the family has, whatever its jobs have */
    char kernel[KS_KERNEL_NAME]; /* as in ks_kernel_info */
    unsigned char algorithm[KS_ALGORITHM_BYTES];
    /* The engine's: runs that were timed step by step, and their time in all. */
    uint64_t timed_runs;
    int64_t timed_ns;
} ks_step;

struct ks_program {
    int count;
    size_t arena_bytes; /* a multiple of KS_ALIGNMENT, and KS_PAD readable bytes belong behind it */
    int views;
    int16_t view[KS_CHAIN_NODES_MAX]; /* nodes whose values are views, in their order */
    ks_step step[];
};

/* The step's spec with so many rows of the batch. */
void ks_step_cut(const ks_step *step, int rows, ks_spec *out);
/* Whether the op's rules make of one row what ks_step_cut does. */
bool ks_step_is_cut_well(const ks_step *step);
/* Whether its rows join as those of its operation alone do (ks_op.joins). */
bool ks_step_joins(const ks_step *step);
/* Whether each row of what it makes follows from the same row of what is batched. */
bool ks_step_keeps_rows(const ks_step *step);
/* The step of a node; NULL: it has none. */
const ks_step *ks_program_step(const ks_program *program, int node);
/* Of a resolved spec whose op is a chain. Steps that make no bytes are left out; views take no step; an output is made where it goes.
 * means: the backend's; NULL: of one that says none. KS_MEMORY. */
ks_status ks_program_make(const ks_spec *spec, const ks_chain_means *means, ks_program **out, ks_error *error);
void ks_program_free(ks_program **program);
/* What stands for it in a line: its first node's name, or "copy". */
const char *ks_step_name(const ks_chain *chain, const ks_step *step);
size_t ks_program_bytes(const ks_program *program);                                      /* of host memory, itself */
ks_status ks_program_copy(const ks_program *program, ks_program **out, ks_error *error); /* KS_MEMORY */

#ifdef __cplusplus
}
#endif
#endif
