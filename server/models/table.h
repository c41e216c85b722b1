/* Models that clients load: one table for the daemon. A load is done by a thread of its own, so that no shard waits for it.
 *
 * Life     ks_models_load (a document) -> the loader: read, hold contents, shapes, a plan -> the name is the new one's from then on, or the
 *          load has a fault and nothing has changed -> ks_model_load_leave. What had the name before serves the requests that began with it;
 *          it goes when each shard has let go: it uses it no longer, and has no plan of it.
 * Limits   KS_LOADS_WAIT_MAX loads wait; names: what KS_MODELS_MAX leaves beside the operations. A name keeps its place (base/model.h).
 * Owner    a loaded model holds its contents; the table owns it.
 * Threads  any, one lock, which no request takes while the table stays as it is. */
#ifndef KS_MODELS_TABLE_H
#define KS_MODELS_TABLE_H
#include "base/config/config.h"
#include "engine/engine.h"
#include "models/definition.h"
#include "resident/store.h"

enum { KS_LOADS_WAIT_MAX = KS_MODEL_LOADS_MAX - 1, KS_MODEL_SHARDS_MAX = 64 };

typedef struct ks_models ks_models;
typedef struct ks_model_load ks_model_load;

typedef struct ks_models_options {
    const ks_backend *backend;
    ks_device *device;
    ks_store *store; /* that initializers lie in */
    int shards;
    const ks_list *folders; /* of the model repository, for loads from it */
} ks_models_options;

ks_status ks_models_open(const ks_models_options *options, ks_models **out, ks_error *error);
void ks_models_close(ks_models **models); /* no shard runs, and no load is held */

/* A tensor of the file that the definition came in. */
typedef struct ks_load_part {
    const char *key;
    ks_content *content;
} ks_load_part;

/* A file that has come with the definition, or is it. */
typedef struct ks_load_file {
    const char *name; /* as ks_model_file_name gives it */
    const unsigned char *bytes;
    size_t length;
} ks_load_file;

/* What a load asks for. Strings need not outlive ks_models_load. */
typedef struct ks_load_source {
    const ks_tenant *tenant; /* whose model it is, and whose resident tensors the document names; name "": of all */
    uint64_t models_max;     /* that the tenant may have; 0: any number */
    const char *name;        /* checked by ks_model_name_check */
    const char *text;        /* NULL: of the files, or of the folder */
    size_t length;
    uint64_t max_batch;   /* 0: as the document says */
    const char *folder;   /* that its files lie in; NULL: none */
    bool from_repository; /* of its name there; where it has none, what is loaded stays so. KS_MODEL: nothing is */
    int files; /* whose names and bytes stay until release(owner), which is called once, on any thread, whatever comes of it */
    const ks_load_file *file;
    void (*release)(void *owner); /* NULL: nothing is to be released */
    void *owner;
    bool has_file; /* initializers of files are parts, whatever file they name */
    int parts;     /* whose contents are taken, whatever comes of it */
    const ks_load_part *part;
    bool only_new;        /* If-None-Match: * */
    const char *if_match; /* ETag without quotes, "*": any; NULL: no condition */
    int wake_fd;          /* an eventfd, written when it is done, or ready */
    bool waits;           /* once it is ready to serve it waits for ks_model_load_decide */
} ks_load_source;

/* What came of it. */
typedef struct ks_load_result {
    ks_error fault; /* status KS_OK: it serves */
    bool created;   /* nothing was loaded by that name */
    char etag[KS_ETAG_MAX + 1];
    int nodes, steps, max_batch;
    int unused;     /* parts that are no initializers */
    ks_error cut;   /* why max_batch is less than the preset one; status KS_OK: it is not */
    uint64_t bytes; /* of initializers */
} ks_load_result;

/* Whether the load could be, as things are, by its name and conditions alone. KS_RESERVED: the name is an operation's. KS_PRECONDITION,
 * KS_QUOTA. */
ks_status ks_models_may_load(ks_models *models, const ks_load_source *source, ks_error *error);
/* The same, and KS_BUDGET: as many loads wait as can. KS_MEMORY. */
ks_status ks_models_load(ks_models *models, const ks_load_source *source, ks_model_load **out, ks_error *error);
const ks_load_result *ks_model_load_result(const ks_model_load *load); /* NULL: not done yet */
/* Of one that waits: it is ready to serve, or done. */
bool ks_model_load_is_ready(const ks_model_load *load);
/* It serves, or not: KS_UNAVAILABLE. Once. */
void ks_model_load_decide(ks_models *models, ks_model_load *load, bool serves);
/* One that is not done goes on by itself; one that waits yet does not serve. */
void ks_model_load_leave(ks_models *models, ks_model_load **load);

/* Of that label (base/model.h). KS_RESERVED, KS_MODEL (nothing is loaded by that name), KS_PRECONDITION. */
ks_status ks_models_unload(ks_models *models, const char *label, const char *if_match, ks_error *error);
ks_status ks_models_may_unload(ks_models *models, const char *label, const char *if_match,
                               ks_error *error); /* as things are */

/* Why a model of the repository is not loaded; NULL: it is, or is none of it. Names of operations have none. */
enum { KS_MODEL_NOTE_MAX = 256 };
void ks_models_note(ks_models *models, const char *name, const char *reason);
/* Of the name; false: there is none, and reason is "". */
bool ks_models_reason(ks_models *models, const char *name, char reason[KS_MODEL_NOTE_MAX]);
/* The names of notes, in any order; false: past the last one. */
bool ks_models_note_at(ks_models *models, int index, char name[KS_MODEL_NAME_MAX]);

/* A shard opens: plans and graphs of what is loaded already and wants them. KS_WORK, KS_MEMORY, KS_DEVICE. */
ks_status ks_models_warm(ks_models *models, ks_engine *engine, ks_error *error);
/* Once a turn of each shard: what it uses no longer may go, and what a load waits for is made. true: another turn is wanted at once. */
bool ks_models_turn(ks_models *models, int shard, ks_engine *engine);
int ks_models_retired(const ks_models *models); /* replaced or unloaded, and not gone yet */
#endif
