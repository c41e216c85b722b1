/* The body of a load by the repository's protocol, and what it asks for: {"parameters":{"config":"...","file:1/NAME":"BASE64",...}}.
 *
 * Life     ks_load_body_begin -> ks_load_body_feed* -> ks_load_body_end -> its fields -> ks_load_body_fini, or ks_load_body_drop by whom the files
 *          have been given to.
 * Limits   --max-json of all of it; a text has 2 MiB, but for those of files, whose base64 is decoded as it comes, into memory of --inflight-bytes;
 *          KS_MODEL_FILES_MAX files.
 * Owner    the body owns texts and files.  Threads  one at a time, any. */
#ifndef KS_LOAD_BODY_H
#define KS_LOAD_BODY_H
#include "engine/engine.h"
#include "models/table.h"

typedef struct ks_load_body ks_load_body;

/* What it asks for, once it has ended. */
typedef struct ks_load_words {
    bool has_config;
    const char *text; /* of the definition, where config has it; NULL */
    uint64_t max_batch;
    int files;
    const ks_load_file *file;
} ks_load_words;

ks_status ks_load_body_begin(ks_budget *budget, uint64_t json_max, ks_load_body **out, ks_error *error);
/* KS_JSON, KS_JSON_LIMIT, KS_BODY_SIZE, KS_FIELD (no base64), KS_COUNT, KS_BUDGET, KS_MEMORY. */
ks_status ks_load_body_feed(ks_load_body *body, const char *bytes, size_t n, ks_error *error);
/* name: of the model, which a configuration must agree with. An empty body asks for nothing. Also KS_NAME, KS_DEFINITION. */
ks_status ks_load_body_end(ks_load_body *body, const char *name, ks_load_words *out, ks_error *error);
void ks_load_body_fini(ks_load_body **body);
void ks_load_body_drop(void *body); /* the same, for ks_load_source */
#endif
