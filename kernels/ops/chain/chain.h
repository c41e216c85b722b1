/* What a chain's shapes (chain.c) and its program (program.c) share. */
#ifndef KS_OPS_CHAIN_H
#define KS_OPS_CHAIN_H
#include "kernserve/chain.h"

/* A value by its number. made: what nodes have made so far, by number. */
const ks_tensor *ks_chain_value(const ks_chain *chain, const ks_spec *spec, const ks_tensor *made, int value);
/* The spec of a node with an op, to be resolved. whole: the chain's. */
void ks_chain_node_spec(const ks_chain *chain, const ks_spec *whole, const ks_chain_node *node, const ks_tensor *made,
                        ks_spec *spec);
ks_status ks_chain_resolve_node(const ks_chain_node *node, ks_spec *spec, ks_error *error);

/* Which nodes read each value of a chain. */
typedef struct ks_chain_readers {
    const ks_chain *chain;
    int *at;       /* by value: where its readers begin in node[]; where those of the next one begin, they end */
    int16_t *node; /* in their order; a node that reads the value twice stands there twice */
} ks_chain_readers;

ks_status ks_chain_readers_init(const ks_chain *chain, ks_chain_readers *out, ks_error *error); /* KS_MEMORY */
void ks_chain_readers_fini(ks_chain_readers *readers);         /* one that holds nothing, too */
int ks_chain_uses(const ks_chain_readers *readers, int value); /* how often nodes read it, and it is an output */
int ks_chain_next_reader(const ks_chain_readers *readers, int value, int behind); /* that node; -1: none */

/* What fuse.c asks of the program under way: tensors that are made so far, and whether a value's is. */
typedef struct ks_fusing {
    const ks_chain *chain;
    const ks_spec *whole;
    const ks_chain_readers *readers;
    const ks_tensor *made;
    const bool *known;
    bool residuals; /* ks_chain_means */
} ks_fusing;

/* Does one more node with this one, the chain's at index, whose spec is resolved: both become those of the fused step. made has what the
 * node makes. Returns the other node's index; -1: there is none. */
int ks_chain_fuse(const ks_fusing *f, int index, ks_chain_node *node, ks_spec *spec);
bool ks_chain_are_known(const ks_fusing *f, const ks_chain_node *node); /* the inputs that it has */

/* The same tensors, to be written. */
typedef struct ks_chain_known {
    ks_tensor *made;
    bool *known;
} ks_chain_known;

/* Does maps behind the step's node, which is one, in the same pass: of those datatypes, as bits. done: nodes that steps do.
 * false: there are none; else node and step are those of all, and the step's nodes are done. */
bool ks_chain_maps(const ks_fusing *f, ks_chain_known *own, bool *done, uint32_t dtypes, ks_chain_node *node,
                   ks_step *step);
/* The shape that a reshape makes. */
ks_status ks_chain_reshape(const ks_chain_node *node, const ks_tensor *in, ks_tensor *out, ks_error *error);
#endif
