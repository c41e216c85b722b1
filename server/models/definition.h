/* A model's definition: a JSON document, and the chain of operations that it comes to.
 *
 * Life     ks_definition_read (the document) -> ks_definition_bind for each initializer -> ks_definition_infer (shapes; the chain's op and
 *          the model are complete) -> ks_definition_free.
 * Limits   KS_DEFINITION_BYTES_MAX of text, depth 16; KS_INPUTS_MAX inputs, KS_OUTPUTS_MAX outputs, and those of chain.h.
 * Owner    the definition owns its names and inline data; addresses that initializers are bound to are the caller's.
 * Threads  one at a time; nothing changes behind ks_definition_infer. */
#ifndef KS_DEFINITION_H
#define KS_DEFINITION_H
#include "base/model.h"
#include "kernserve/chain.h"

enum {
    KS_DEFINITION_BYTES_MAX = 1 << 20,
    KS_DEFINITION_DATA_MAX = 65536, /* inline elements of all initializers */
    KS_DEFINITION_IO_NAME_MAX = 40, /* of inputs and outputs: responses have room for so much in front of their bytes */
    KS_DEFINITION_BATCH_MAX = 4096,
    KS_DEFINITION_BATCH_PRESET = 64,
    KS_DEFINITION_WARM_MAX = 16
};

typedef struct ks_initializer {
    const char *name;
    const char *resident;   /* the resident tensor that it is; NULL: another source */
    const char *file, *key; /* the tensor of a file that it is; NULL: its elements stand in the document */
    ks_tensor tensor;       /* of these: datatype and shape */
    const void *data;
} ks_initializer;

typedef struct ks_definition {
    ks_chain chain; /* chain.op is the model's */
    ks_model model; /* without index and uses */
    int initializers;
    ks_initializer *initializer;
    ks_tensor *constant; /* chain.constant */
    ks_chain_node *node; /* chain.node */
    char *text;          /* the document */
    size_t text_length;
    char *names; /* all of them */
    size_t names_length, names_cap;
    const char *word[KS_CHAIN_WORDS_MAX]; /* chain.word */
    const char *output_name[KS_OUTPUTS_MAX];
    unsigned char *data; /* of inline initializers */
    size_t data_length;
    int64_t in_dims[KS_INPUTS_MAX][KS_RANK_MAX], out_dims[KS_OUTPUTS_MAX][KS_RANK_MAX];
    bool names_batch; /* max_batch is the document's, or its loader's; else it may be what there is room for */
    int warm;         /* shapes of all inputs, that are to work */
    int64_t (*warm_dims)[KS_INPUTS_MAX][KS_RANK_MAX];
} ks_definition;

/* name: of the model. KS_JSON, KS_JSON_LIMIT, KS_BODY_SIZE, KS_FIELD, KS_NAME, KS_COUNT, KS_PARAMETER, KS_DATATYPE, KS_SHAPE, KS_RANGE,
 * KS_DEFINITION, KS_MEMORY: the sentence names the node, or the member. */
ks_status ks_definition_read(const char *name, const char *text, size_t length, ks_definition **out, ks_error *error);
/* Another largest batch than the document's. KS_DEFINITION. In front of ks_definition_infer. */
ks_status ks_definition_batch(ks_definition *definition, uint64_t most, ks_error *error);
/* A smaller one, of a definition that names none. */
void ks_definition_lower_batch(ks_definition *definition, int64_t most);
/* Where an initializer lies for kernels, and what it is. */
void ks_definition_bind(ks_definition *definition, int initializer, const ks_tensor *tensor);
/* Runs the chain's rules on shapes that its inputs may have: a node that cannot be refuses the document, with the request's sentence.
 * Without a max_batch of its own it gets the preset one, where every input has a batch and more, and no node mixes its rows. */
ks_status ks_definition_infer(ks_definition *definition, ks_error *error);
/* rows.c. Of resolved work, where it has max_batch: which values are batched, and that no node mixes their rows. KS_DEFINITION. */
ks_status ks_definition_find_rows(ks_definition *definition, const ks_spec *spec, ks_error *error);
/* A resolved piece of its work, at a batch of so many where it has one, for a plan that is asked for. */
ks_status ks_definition_sample(const ks_definition *definition, int64_t batch, ks_spec *out, ks_error *error);
/* Likewise, of the shapes at that place of `warm`. */
ks_status ks_definition_warm(const ks_definition *definition, int index, ks_spec *out, ks_error *error);
void ks_definition_free(ks_definition **definition);

/* The file of an initializer that is a name alone, and of a model that is one file. */
extern const char ks_definition_file[];

/* [A-Za-z0-9_.-], 1 to KS_MODEL_NAME_MAX - 1 bytes, neither . nor - in front. KS_NAME. */
ks_status ks_model_name_check(const char *name, size_t length, ks_error *error);
#endif
