/* What the table (table.c) and its loader (loader.c) share. */
#ifndef KS_MODELS_PARTS_H
#define KS_MODELS_PARTS_H
#include <pthread.h>
#include <stdatomic.h>

#include "models/table.h"

/* A definition with all that it needs. */
typedef struct ks_loaded {
    ks_definition *definition;
    ks_content **content; /* of each initializer, held */
    int *uses;            /* model.uses */
    char etag[KS_ETAG_MAX + 1];
    uint64_t bytes;
    int steps;
    uint64_t cold;   /* under the table's lock: bit i: shard i has not made what the definition's `warm` lists */
    uint64_t shards; /* under the table's lock, once retired: bit i: shard i has not let go */
    struct ks_loaded *next;
} ks_loaded;

/* A tensor of the definition's file, held by the load. */
typedef struct ks_held_part {
    char key[KS_CHAIN_NAME_MAX + 1];
    ks_content *content;
    bool used;
} ks_held_part;

struct ks_model_load {
    char name[KS_MODEL_NAME_MAX], label[KS_MODEL_LABEL_MAX];
    uint64_t models_max;
    char tenant_name[KS_TENANT_NAME_MAX + 1], if_match[KS_ETAG_MAX + 1];
    ks_tenant tenant;
    bool only_new, has_if_match;
    char *text;
    size_t length;
    uint64_t max_batch;
    char *folder;
    bool from_repository;
    int files;
    ks_load_file *file;
    void (*release)(void *owner); /* NULL: it has been called, or there is none */
    void *owner;
    bool has_file;
    int parts;
    ks_held_part *part;
    int wake_fd;
    ks_load_result result; /* complete once it is done */
    _Atomic bool done;
    bool waits;           /* for a word, once it is ready: */
    _Atomic bool ready;   /* it is */
    bool decided, serves; /* under the table's lock */
    bool loading;         /* its name is said to be loading */
    bool left;            /* under the table's lock: no request waits for it */
    ks_model_load *next;
};

typedef struct ks_model_note {
    char name[KS_MODEL_NAME_MAX], reason[KS_MODEL_NOTE_MAX];
    struct ks_model_note *next;
} ks_model_note;

struct ks_models {
    ks_models_options options; /* fixed after open */
    pthread_t loader;
    pthread_cond_t given, warmed; /* warmed: by CLOCK_MONOTONIC */
    pthread_cond_t decided;       /* about a load that waits */
    /* under lock: */
    pthread_mutex_t lock;
    ks_model_load *first, **last; /* that wait */
    int waiting;
    bool stop;
    bool serves;                       /* there are shards */
    ks_loaded *current[KS_MODELS_MAX]; /* by the model's index */
    ks_loaded *retired;
    ks_model_note *notes;
    /* any thread, atomic: */
    _Atomic int retired_count, cold_count;
};

/* --- table.c, for loader.c, which calls it --- */

void ks_loaded_free(ks_loaded **loaded);
/* With the lock: whether a load of that label could be, as things are. KS_PRECONDITION, KS_RESERVED. */
ks_status ks_models_check(const ks_models *models, const char *label, bool only_new, const char *if_match,
                          ks_error *error);
/* Likewise, by what its tenant has already; models_max 0: as many as there are places. KS_QUOTA. */
ks_status ks_models_check_quota(const ks_models *models, const char *label, uint64_t models_max, ks_error *error);
/* Once: the name is no longer said to be loading on behalf of this load. */
void ks_models_loading_ends(ks_model_load *load);
/* Whether it could be published, as things are: its name has a place then, which it keeps. The same errors. */
ks_status ks_models_may_publish(ks_models *models, const ks_model_load *load, ks_error *error);
/* The name is its own from now on; takes it, whatever comes of it. KS_PRECONDITION, KS_QUOTA, KS_RESERVED. */
ks_status ks_models_publish_take(ks_models *models, ks_model_load *load, ks_loaded *loaded, bool *created,
                                 ks_error *error);

/* --- warm.c --- */

/* With the lock. It is current from now on; it is it no longer, or all shards are done with it. */
void ks_warm_begin(ks_models *models, ks_loaded *loaded);
void ks_warm_end(ks_models *models, ks_loaded *loaded);
/* Until each shard has made what the model of that label wants, or the time is over. */
void ks_warm_wait(ks_models *models, const char *label);
/* Once a turn of each shard. true: there is more to be done. */
bool ks_warm_turn(ks_models *models, int shard, ks_engine *engine);

/* --- make.c, for loader.c --- */

/* All that the load asks for, but its name. NULL: result has the fault. */
ks_loaded *ks_load_make(ks_models *models, ks_model_load *load, ks_load_result *result);
#endif
