/* Owns      nothing: nodes are their records'.
 * Interface tree.h
 * Threads   the caller's lock
 * Limits    depth: some 2 log2 of the nodes, whatever the order in which keys come. */
#include "resident/tree.h"

#include <stddef.h>

/* As good as random: the address, stirred (the finaliser of MurmurHash3). */
static uint32_t rank_of(const ks_node *node)
{
    uint64_t x = (uint64_t)(uintptr_t)node;
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCDu;
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53u;
    return (uint32_t)(x ^ x >> 33);
}

ks_node *ks_tree_from(ks_node *root, const void *key, ks_node_compare_fn *compare)
{
    ks_node *best = NULL;
    while (root) {
        if (compare(root, key) < 0) {
            root = root->right;
        } else {
            best = root;
            root = root->left;
        }
    }
    return best;
}

ks_node *ks_tree_find(ks_node *root, const void *key, ks_node_compare_fn *compare)
{
    while (root) {
        const int order = compare(root, key);
        if (order == 0) return root;
        root = order < 0 ? root->right : root->left;
    }
    return NULL;
}

void ks_tree_add(ks_node **root, ks_node *node, const void *key, ks_node_compare_fn *compare)
{
    node->rank = rank_of(node);
    while (*root && (*root)->rank >= node->rank) root = compare(*root, key) < 0 ? &(*root)->right : &(*root)->left;
    ks_node *rest = *root, **before = &node->left, **behind = &node->right;
    while (rest) { /* what stood here is cut in two at the key */
        if (compare(rest, key) < 0) {
            *before = rest;
            before = &rest->right;
            rest = rest->right;
        } else {
            *behind = rest;
            behind = &rest->left;
            rest = rest->left;
        }
    }
    *before = *behind = NULL;
    *root = node;
}

void ks_tree_remove(ks_node **root, const ks_node *node, const void *key, ks_node_compare_fn *compare)
{
    while (*root != node) root = compare(*root, key) < 0 ? &(*root)->right : &(*root)->left;
    ks_node *left = node->left, *right = node->right;
    while (left && right) { /* its two sides become one */
        if (left->rank >= right->rank) {
            *root = left;
            root = &left->right;
            left = left->right;
        } else {
            *root = right;
            root = &right->left;
            right = right->left;
        }
    }
    *root = left ? left : right;
}
