/* What is loaded, by name, and what is to go.
 *
 * Interface table.h: ks_models_unload, ks_models_turn, ks_models_retired; parts.h for loader.c
 * Threads   any; the table's lock. */
#include "models/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/parts.h"

/* --- what is loaded ---------------------------------------------------------------------------------------------------- */

void ks_loaded_free(ks_loaded **pointer)
{
    ks_loaded *loaded = *pointer;
    *pointer = NULL;
    if (!loaded) return;
    for (int i = 0; loaded->content && i < loaded->definition->initializers; i++)
        if (loaded->content[i]) ks_content_release(&loaded->content[i]);
    free(loaded->content);
    free(loaded->uses);
    if (loaded->definition) ks_definition_free(&loaded->definition);
    free(loaded);
}

/* With the lock. No request finds it from now on. */
static void retire(ks_models *models, ks_loaded *loaded)
{
    if (!loaded) return;
    ks_warm_end(models, loaded);
    loaded->shards = models->options.shards < 64 ? (UINT64_C(1) << models->options.shards) - 1 : UINT64_MAX;
    loaded->next = models->retired;
    models->retired = loaded;
    atomic_fetch_add(&models->retired_count, 1);
}

static ks_status reserved(const char *name, ks_error *error)
{
    return ks_fail(error, KS_RESERVED, "'%s' is the name of an operation, or of a document, and no model's to load",
                   name);
}

static bool is_document(const char *name)
{
    return strcmp(name, "stats") == 0;
}

/* With the lock. */
static ks_status check_match(const ks_loaded *now, const char *name, const char *if_match, ks_error *error)
{
    if (!if_match) return KS_OK;
    if (now && (strcmp(if_match, "*") == 0 || strcmp(if_match, now->etag) == 0)) return KS_OK;
    return ks_fail(error, KS_PRECONDITION, "model '%s' is not the one of If-Match: it has %s%s", name,
                   now ? "ETag " : "nothing loaded", now ? now->etag : "");
}

/* With the lock: the place of a name that has one; -1: none has it, -2: it is no model's to load. */
static int place_of(const char *label)
{
    const char *const name = ks_model_bare(label);
    const ks_model *open = ks_model_find(name, strlen(name));
    if (is_document(name) || (open && !ks_model_is_loadable(open->index))) return -2;
    return ks_model_is_known(label, strlen(label)) ? ks_model_place(label) : -1;
}

ks_status ks_models_check_quota(const ks_models *models, const char *label, uint64_t models_max, ks_error *error)
{
    char tenant[KS_MODEL_LABEL_MAX];
    uint64_t has = 0;
    const int own = place_of(label), length = (int)(ks_model_bare(label) - label);
    if (models_max == 0 || length == 0 || (own >= 0 && models->current[own])) return KS_OK;
    snprintf(tenant, sizeof tenant, "%.*s", length - 1, label);
    for (int i = 0; i < ks_model_count(); i++)
        has += models->current[i] && ks_model_is_of(ks_model_at(i)->label, tenant);
    if (has < models_max) return KS_OK;
    return ks_fail(error, KS_QUOTA,
                   "model '%s' is one more than the %" PRIu64 " that its tenant may have: unload one first",
                   ks_model_bare(label), models_max);
}

ks_status ks_models_check(const ks_models *models, const char *label, bool only_new, const char *if_match,
                          ks_error *error)
{
    const char *const name = ks_model_bare(label);
    const int index = place_of(label);
    if (index == -2) return reserved(name, error);
    const ks_loaded *now = index < 0 ? NULL : models->current[index];
    if (only_new && now) return ks_fail(error, KS_PRECONDITION, "model '%s' is loaded already: If-None-Match: *", name);
    return check_match(now, name, if_match, error);
}

ks_status ks_models_may_load(ks_models *models, const ks_load_source *source, ks_error *error)
{
    char label[KS_MODEL_LABEL_MAX];
    ks_model_label(source->tenant->name, source->name, label);
    pthread_mutex_lock(&models->lock);
    ks_status status = ks_models_check(models, label, source->only_new, source->if_match, error);
    if (status == KS_OK) status = ks_models_check_quota(models, label, source->models_max, error);
    pthread_mutex_unlock(&models->lock);
    return status;
}

/* With the lock. */
static ks_status make_place(const char *label, int *index, ks_error *error)
{
    *index = ks_model_place(label);
    if (*index >= 0) return KS_OK;
    return ks_fail(error, KS_QUOTA, "model '%s' is one name more than the %d that this process has places for",
                   ks_model_bare(label), (int)KS_MODELS_MAX);
}

void ks_models_loading_ends(ks_model_load *load)
{
    if (load->loading) ks_model_loading(load->label, -1);
    load->loading = false;
}

ks_status ks_models_may_publish(ks_models *models, const ks_model_load *load, ks_error *error)
{
    int index;
    pthread_mutex_lock(&models->lock);
    ks_status status =
        ks_models_check(models, load->label, load->only_new, load->has_if_match ? load->if_match : NULL, error);
    if (status == KS_OK) status = ks_models_check_quota(models, load->label, load->models_max, error);
    if (status == KS_OK) status = make_place(load->label, &index, error);
    pthread_mutex_unlock(&models->lock);
    return status;
}

ks_status ks_models_publish_take(ks_models *models, ks_model_load *load, ks_loaded *loaded, bool *created,
                                 ks_error *error)
{
    int index = 0;
    pthread_mutex_lock(&models->lock);
    ks_status status =
        ks_models_check(models, load->label, load->only_new, load->has_if_match ? load->if_match : NULL, error);
    if (status == KS_OK) status = ks_models_check_quota(models, load->label, load->models_max, error);
    if (status == KS_OK) status = make_place(load->label, &index, error);
    if (status == KS_OK) {
        ks_model *model = &loaded->definition->model;
        model->index = index;
        memcpy(model->label, load->label, sizeof model->label);
        model->uses = loaded->uses;
        model->etag = loaded->etag;
        *created = models->current[index] == NULL;
        ks_model_publish(index, model);
        retire(models, models->current[index]);
        models->current[index] = loaded;
        ks_models_loading_ends(load); /* with the lock: what is unloaded next is gone, and not being loaded */
        ks_warm_begin(models, loaded);
    }
    pthread_mutex_unlock(&models->lock);
    if (status != KS_OK) ks_loaded_free(&loaded);
    return status;
}

/* With the lock. */
static ks_status check_unload(const ks_models *models, const char *label, int index, const char *if_match,
                              ks_error *error)
{
    const char *const name = ks_model_bare(label);
    if (index == -2) return reserved(name, error);
    if (index < 0 || !models->current[index])
        return ks_fail(error, KS_MODEL, "Request for unknown model: '%s' has no available versions", name);
    return check_match(models->current[index], name, if_match, error);
}

ks_status ks_models_may_unload(ks_models *models, const char *label, const char *if_match, ks_error *error)
{
    pthread_mutex_lock(&models->lock);
    const ks_status status = check_unload(models, label, place_of(label), if_match, error);
    pthread_mutex_unlock(&models->lock);
    return status;
}

ks_status ks_models_unload(ks_models *models, const char *label, const char *if_match, ks_error *error)
{
    pthread_mutex_lock(&models->lock);
    const int index = place_of(label);
    const ks_status status = check_unload(models, label, index, if_match, error);
    if (status == KS_OK) {
        ks_model_publish(index, NULL);
        retire(models, models->current[index]);
        models->current[index] = NULL;
    }
    pthread_mutex_unlock(&models->lock);
    return status;
}

/* --- what goes ---------------------------------------------------------------------------------------------------------- */

/* With the lock: whether the shard has let go, or does so now. */
static bool lets_go(ks_loaded *loaded, int shard, ks_engine *engine)
{
    const uint64_t bit = UINT64_C(1) << shard;
    if (!(loaded->shards & bit)) return true;
    if (loaded->uses[shard * KS_MODEL_USES_APART] > 0) return false;
    if (ks_engine_forget_op(engine, &loaded->definition->chain.op) > 0) return false;
    loaded->shards &= ~bit;
    return true;
}

static void drop_retired(ks_models *models, int shard, ks_engine *engine)
{
    ks_loaded *gone = NULL;
    if (atomic_load_explicit(&models->retired_count, memory_order_relaxed) == 0) return;
    if (pthread_mutex_trylock(&models->lock) != 0) return; /* another turn will do */
    for (ks_loaded **link = &models->retired; *link;) {
        ks_loaded *loaded = *link;
        if (!lets_go(loaded, shard, engine) || loaded->shards) {
            link = &loaded->next;
            continue;
        }
        *link = loaded->next;
        loaded->next = gone;
        gone = loaded;
        atomic_fetch_sub(&models->retired_count, 1);
    }
    pthread_mutex_unlock(&models->lock);
    while (gone) {
        ks_loaded *freed = gone;
        gone = freed->next;
        ks_loaded_free(&freed);
    }
}

bool ks_models_turn(ks_models *models, int shard, ks_engine *engine)
{
    drop_retired(models, shard, engine);
    return ks_warm_turn(models, shard, engine);
}

int ks_models_retired(const ks_models *models)
{
    return atomic_load(&((ks_models *)(uintptr_t)models)->retired_count);
}
