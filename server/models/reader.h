/* What definition.c (the document), nodes.c (its nodes) and value_names.c share: the first calls the others, nodes.c calls value_names.c. */
#ifndef KS_MODELS_READER_H
#define KS_MODELS_READER_H
#include "codec/json_tree.h"
#include "models/definition.h"

/* Names that are given once. */
typedef struct ks_definition_names {
    int count;
    const char *name[KS_CHAIN_VALUES_MAX];
    int16_t order[KS_CHAIN_VALUES_MAX]; /* their numbers, by name */
} ks_definition_names;
_Static_assert(KS_CHAIN_NODES_MAX <= KS_CHAIN_VALUES_MAX && KS_CHAIN_VALUES_MAX <= INT16_MAX, "each has a number");

typedef struct ks_definition_reader {
    ks_definition *definition;
    const ks_json *top;
    ks_error *error;
    ks_definition_names values; /* so far: inputs, constants, what nodes make */
    ks_definition_names nodes;
} ks_definition_reader;

/* --- value_names.c --- */

/* Letters, digits and the bytes of `others` alone, and not empty. */
bool ks_definition_is_name(const char *name, size_t length, const char *others);
/* A copy that is the definition's. NULL: no room, which cannot be while each text of the document is kept once. */
const char *ks_definition_keep(ks_definition *definition, const char *text);
/* Members that an object may have; what: its subject in a sentence. KS_FIELD. */
ks_status ks_definition_members(ks_definition_reader *reader, const ks_json *object, const char *what,
                                const char *const *known);
/* A name of the document, kept. KS_NAME; KS_MEMORY. most: bytes. */
ks_status ks_definition_name(ks_definition_reader *reader, const ks_json *item, const char *what, size_t most,
                             const char **out);
/* The next one is called so. Returns the number of the one that is already; -1: none is. */
int ks_definition_add_name(ks_definition_names *names, const char *name);
/* The next value is called so. KS_NAME: another one is. */
ks_status ks_definition_add_value(ks_definition_reader *reader, const char *name, const char *what);
int ks_definition_value(const ks_definition_reader *reader, const char *name); /* -1: none is called so */

/* --- nodes.c --- */

ks_status ks_definition_read_nodes(ks_definition_reader *reader);
#endif
