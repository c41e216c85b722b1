/* Bearer tokens and their rights, from a file of mode 0600: a line holds a token and, behind spaces, what it may:
 * [NAME:]SECRET tenant=alice bytes=8G tensors=1000 models=16 rights=infer,tensors,models. A token alone is an operator's, with
 * every right; one with fields but without rights= has all but the operator's. Tenant and amounts belong to stored
 * tensors and models: they are checked, and bind nothing while a daemon stores neither.
 *
 * Owner    A table has references: one of the store that publishes it, one of each reader (a shard, the second listener)
 *          that follows the store. It ends, its secrets cleared, with the last one; so SIGHUP leaves at most as many old
 *          tables as there are readers.
 * Threads  Readers load one pointer for each request; the store's lock is taken only when it has changed. */
#ifndef KS_TOKENS_H
#define KS_TOKENS_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernserve/status.h"

enum {
    KS_RIGHT_INFER = 1,
    KS_RIGHT_TENSORS = 2,
    KS_RIGHT_MODELS = 4,
    KS_RIGHT_OPERATOR = 8, /* what all users of the daemon share: its log, its view of the host's memory */
    KS_RIGHTS_ALL = 15
};
enum { KS_TOKEN_NAME_MAX = 32 };

typedef struct ks_token {
    const char *name; /* for the access log; "default" where none is given */
    const char *text;
    size_t length;
    unsigned rights;
    const char *tenant;              /* "": none */
    uint64_t bytes, tensors, models; /* 0: not given */
} ks_token;

typedef struct ks_tokens {
    _Atomic int references;
    int count;
    size_t bytes; /* of the whole allocation */
    ks_token item[];
} ks_tokens;

typedef struct ks_token_store {
    pthread_mutex_t lock;       /* for changes of current and of readers' references to it */
    ks_tokens *_Atomic current; /* NULL: no authentication */
} ks_token_store;

/* 0 or the exit code. One reference, the caller's. */
int ks_tokens_read(const char *file, ks_tokens **out, ks_error *error);
void ks_tokens_release(ks_tokens **tokens);
/* From now on readers get this table, whose reference is taken; NULL: none. */
void ks_tokens_publish_take(ks_token_store *store, ks_tokens *tokens);
/* The store's table. *mine: the reader's own variable, which keeps its reference from one call to the next; ks_tokens_release
 * ends it. */
const ks_tokens *ks_tokens_follow(ks_token_store *store, ks_tokens **mine);
/* "operator", ... of one right, for a sentence. */
const char *ks_right_name(unsigned right);
int ks_tokens_tables(void); /* that are not freed */
#endif
