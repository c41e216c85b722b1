/* The models of the protocol: each op, and each op's presets, made once from the descriptors. Leaf service: any room may
 * ask. Fixed after ks_models_init; any thread. */
#ifndef KS_MODEL_H
#define KS_MODEL_H
#include "kernserve/op.h"

enum { KS_MODELS_MAX = 256, KS_MODEL_NAME_MAX = 64 };

/* A model without an operation (--compat-models): as many outputs as inputs, all alike. Two inputs give sum and
 * difference, one gives itself. */
typedef struct ks_compat {
    const char *name;
    int tensors, max_batch; /* max_batch > 0: shapes have one more dimension in front */
    ks_dtype dtype;
    int64_t dim; /* -1: any */
} ks_compat;

typedef struct ks_model {
    char name[KS_MODEL_NAME_MAX];
    int index; /* 0 .. ks_model_count()-1: for counters */
    const ks_op *op;
    ks_dtype dtype; /* declared in the metadata; FP32 unless a preset says otherwise. The request's datatype decides */
    uint32_t first; /* KS_DTYPE_BIT of another one for INPUT0; 0: none */
    int outputs, outputs_max; /* declared; that a request may name: parameters may ask for more */
    ks_dtype
        out_dtype[KS_OUTPUTS_MAX]; /* declared for the outputs: as resolve gives it for declared inputs and preset */
    int in_rank[KS_INPUTS_MAX], out_rank[KS_OUTPUTS_MAX];
    uint16_t declared; /* the inputs of the metadata, as bits */
    int fixed_count;   /* parameters that the preset fixes */
    ks_fixed fixed[KS_FIXED_MAX];
    const ks_compat *compat; /* NULL: an operation; else op is one that resolves nothing */
} ks_model;

/* Declared for an input: the model's, or the first datatype that the input takes. */
ks_dtype ks_model_dtype(const ks_model *model, int input);

/* The model's value of a parameter; NULL: the request chooses. */
const ks_value *ks_model_fixed(const ks_model *model, int param);
/* The fixed parameters become the spec's. */
void ks_model_fix(const ks_model *model, ks_spec *spec);

void ks_models_init(void);           /* <op>, <op>_fp16, <op>_bf16, <op>_fp64, then <op>_<suffix> of its presets */
void ks_models_add(const ks_op *op); /* those of one op; at start, or an op of tests */
void ks_models_add_compat(void);     /* at start */
int ks_model_count(void);
const ks_model *ks_model_at(int index);
const ks_model *ks_model_find(const char *name, size_t length); /* NULL: unknown */
#endif
