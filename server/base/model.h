/* The models of the protocol: each op, and each op's presets, made once from the descriptors; and those that clients load. Leaf service:
 * any room may ask. Any thread.
 *
 * A model of a tenant's is its own: another tenant's of that name is another one. Its label is TENANT/NAME, that of a model which all see
 * is its name; no name has a slash.
 *
 * A loaded model has a place here, by its label, for as long as the process lives, and there what is loaded now (ks_model_publish), or
 * nothing. What was loaded before stays as long as a shard uses it (models/table.h). */
#ifndef KS_MODEL_H
#define KS_MODEL_H
#include "kernserve/op.h"

enum { KS_MODELS_MAX = 256, KS_MODEL_NAME_MAX = 64, KS_MODEL_LABEL_MAX = 200 };

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
    char label[KS_MODEL_LABEL_MAX];
    char series[KS_MODEL_NAME_MAX]; /* in metrics, which each token reads: its name, or nothing of a tenant's */
    int index;                      /* 0 .. ks_model_count()-1: for counters */
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
    /* of a loaded one: */
    int *uses;              /* a counter for each shard, which it alone changes; NULL: the model stays for good */
    int max_batch;          /* 0: no batching */
    const char *definition; /* its document, of definition_length bytes; etag: 64 hexadecimal digits */
    size_t definition_length;
    const char *etag;
    /* dimensions in the metadata, -1: any; NULL: any */
    int64_t (*in_dims)[KS_RANK_MAX], (*out_dims)[KS_RANK_MAX];
} ks_model;

enum { KS_MODEL_USES_APART = 16 }; /* counters of two shards share no cache line */

/* Declared for an input: the model's, or the first datatype that the input takes. */
ks_dtype ks_model_dtype(const ks_model *model, int input);

/* The model's value of a parameter; NULL: the request chooses. */
const ks_fixed *ks_model_fixed(const ks_model *model, int param);
/* The fixed parameters become the spec's. */
void ks_model_fix(const ks_model *model, ks_spec *spec);

void ks_models_init(void);           /* <op>, <op>_fp16, <op>_bf16, <op>_fp64, then <op>_<suffix> of its presets */
void ks_models_add(const ks_op *op); /* those of one op; at start, or an op of tests */
void ks_models_add_compat(void);     /* at start */
int ks_model_count(void);
/* Name and index; of a model of a client's no more than these: op is one that resolves nothing. */
const ks_model *ks_model_at(int index);
/* tenant "": of models that all see. */
void ks_model_label(const char *tenant, const char *name, char out[KS_MODEL_LABEL_MAX]);
const char *ks_model_bare(const char *label); /* the name in it */
bool ks_model_is_of(const char *label, const char *tenant);
/* The tenant's own of that name; NULL: none is loaded. tenant "": of those that all see, as below. */
const ks_model *ks_model_find_own(const char *tenant, const char *name, size_t length);
/* Of those that all see. NULL: unknown, or not loaded now. What is loaded may be used until the shard's next ks_models_turn, or while it has counted a use. */
const ks_model *ks_model_find(const char *name, size_t length);
bool ks_model_is_loadable(int index);        /* a place of a loaded model, whether or not it is loaded now */
const ks_model *ks_model_current(int index); /* what is loaded at that place; NULL: nothing */
/* A load by that name waits or is under way. What has no version meanwhile is not unknown. */
bool ks_model_is_loading(const char *label, size_t length);
bool ks_model_is_known(const char *label, size_t length); /* it has a place, or is there for good */

/* A shard uses a loaded model, or does no longer; nothing of another one. */
static inline void ks_model_use(const ks_model *model, int shard, int more)
{
    if (model->uses) model->uses[shard * KS_MODEL_USES_APART] += more;
}

/* --- for the table of loaded models (models/table.h), under its lock --- */

/* The place of that label, made where there is none: -1: the table is full, -2: a model that is there for good has its name. */
int ks_model_place(const char *label);
/* What is at the place from now on: NULL: nothing. Returns what was there. Routes and heads that were found before are looked up again. */
const ks_model *ks_model_publish(int index, const ks_model *model);
/* A load begins to wait (more = 1), or has ended (-1). At most KS_MODEL_LOADS_MAX at a time. */
enum { KS_MODEL_LOADS_MAX = 17 };
void ks_model_loading(const char *label, int more);
/* Rises with each ks_model_publish, before and after it. */
uint64_t ks_model_epoch(void);
#endif
