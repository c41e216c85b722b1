/* An ordered set of records that bring their nodes along (a treap: a search tree by key that is a heap by rank, and so as deep as
 * a random one). No allocation. One thread at a time. */
#ifndef KS_TREE_H
#define KS_TREE_H
#include <stdint.h>

typedef struct ks_node {
    struct ks_node *left, *right;
    uint32_t rank;
} ks_node;

/* Below 0: the node comes before the key; 0: they are equal; above 0: it comes behind. */
typedef int ks_node_compare_fn(const ks_node *node, const void *key);

/* The first node that does not come before the key; NULL: there is none. */
ks_node *ks_tree_from(ks_node *root, const void *key, ks_node_compare_fn *compare);
ks_node *ks_tree_find(ks_node *root, const void *key, ks_node_compare_fn *compare);
/* key: the node's own, which is not in the set. */
void ks_tree_add(ks_node **root, ks_node *node, const void *key, ks_node_compare_fn *compare);
void ks_tree_remove(ks_node **root, const ks_node *node, const void *key, ks_node_compare_fn *compare);

#define KS_OF_NODE(type, member, node) ((type *)(void *)((char *)(node)-offsetof(type, member)))
#endif
