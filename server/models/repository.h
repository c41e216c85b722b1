/* The model repository: folders on disk, each of whose own folders is a model (files.h).
 *
 * Modes    explicit: what is wanted is loaded at start; the rest by requests. all: everything is, and no request loads. poll: everything is, and
 *          again where a folder has changed and was the same in two looks; what has gone in two looks is unloaded.
 * Limits   KS_REPOSITORY_MODELS_MAX models. Links are not followed.
 * Owner    the caller keeps folders and names as long as the repository is open.
 * Threads  open and close: main's; with poll one of its own. */
#ifndef KS_MODEL_REPOSITORY_H
#define KS_MODEL_REPOSITORY_H
#include "base/config/config.h"
#include "models/table.h"

enum { KS_REPOSITORY_MODELS_MAX = 1024 };

typedef struct ks_repository ks_repository;

typedef struct ks_repository_options {
    ks_models *models;
    const ks_list *folders;
    const ks_list *wanted; /* names, or "*"; NULL: all */
    int64_t poll_ns;       /* 0: it is looked at once */
    bool strict;           /* a model that cannot be loaded is a fault of the start */
} ks_repository_options;

/* Loads what is wanted, one after the other. KS_CONFIG: a folder cannot be read, or strict. KS_MEMORY, KS_SYSTEM. */
ks_status ks_repository_open(const ks_repository_options *options, ks_repository **out, ks_error *error);
void ks_repository_close(ks_repository **repository);

/* Each fault of what a start with these options would find, without a device: of folders, definitions, and heads of files. A definition
 * that names resident tensors is read, but not its shapes. model: NULL: of a folder, or of a name that is wanted. options.models is not
 * looked at. */
typedef void ks_repository_fault_fn(void *context, const char *model, const ks_error *fault);
void ks_repository_check(const ks_repository_options *options, ks_repository_fault_fn *tell, void *context);
#endif
