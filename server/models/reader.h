/* What definition.c (the document), nodes.c (its nodes) and value_names.c share: the first calls the others, nodes.c calls value_names.c. */
#ifndef KS_MODELS_READER_H
#define KS_MODELS_READER_H
#include "codec/json_tree.h"
#include "models/definition.h"

typedef struct ks_definition_reader {
    ks_definition *definition;
    const ks_json *top;
    ks_error *error;
    int values; /* so far: inputs, constants, what nodes make */
    const char *name[KS_INPUTS_MAX + KS_CHAIN_CONSTANTS_MAX + KS_CHAIN_MADE_MAX];
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
/* The next value is called so. KS_NAME: another one is. */
ks_status ks_definition_add_value(ks_definition_reader *reader, const char *name, const char *what);
int ks_definition_value(const ks_definition_reader *reader, const char *name); /* -1: none is called so */

/* --- nodes.c --- */

ks_status ks_definition_read_nodes(ks_definition_reader *reader);
#endif
