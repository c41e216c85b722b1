/* The thread that loads models, one after the other, and the requests that wait for it.
 *
 * Owns      the table and its thread; a load from ks_models_load until it is done and has been left. What comes of it is the table's once
 *           the name is its own.
 * Interface table.h: ks_models_open, ks_models_close, ks_models_load, ks_model_load_*
 * Threads   its own; the table's lock for the queue of loads. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "models/parts.h"

/* --- requests for loads -------------------------------------------------------------------------------------------------------------- */

/* What came with the request and is not needed any more. */
static void release_parts(ks_model_load *load)
{
    if (load->release) load->release(load->owner);
    load->release = NULL;
    for (int i = 0; i < load->parts; i++) ks_content_release(&load->part[i].content);
    free(load->part);
    load->part = NULL;
    load->parts = 0;
}

static void free_load(ks_model_load *load)
{
    release_parts(load);
    free(load->text);
    free(load->file);
    free(load->folder);
    free(load);
}

static void take_parts(ks_model_load *load, const ks_load_source *source)
{
    load->files = source->files;
    for (int i = 0; i < source->files; i++) load->file[i] = source->file[i];
    load->release = source->release;
    load->owner = source->owner;
    load->has_file = source->has_file;
    load->parts = source->parts;
    for (int i = 0; i < source->parts; i++) {
        snprintf(load->part[i].key, sizeof load->part[i].key, "%s", source->part[i].key);
        load->part[i].content = source->part[i].content;
    }
}

/* NULL: no memory; the parts are the caller's yet. */
static ks_model_load *new_load(const ks_load_source *source)
{
    ks_model_load *load = calloc(1, sizeof *load);
    if (!load) return NULL;
    load->part = calloc((size_t)source->parts + 1, sizeof *load->part);
    load->file = calloc((size_t)source->files + 1, sizeof *load->file);
    load->folder = source->folder ? strdup(source->folder) : NULL;
    load->text = source->text ? malloc(source->length + 1) : NULL;
    if (!load->part || !load->file || (source->folder && !load->folder) || (source->text && !load->text)) {
        free_load(load);
        return NULL;
    }
    take_parts(load, source);
    if (source->text) memcpy(load->text, source->text, source->length);
    load->length = source->length;
    load->max_batch = source->max_batch;
    load->from_repository = source->from_repository;
    snprintf(load->name, sizeof load->name, "%s", source->name);
    ks_model_label(source->tenant->name, source->name, load->label);
    load->models_max = source->models_max;
    snprintf(load->tenant_name, sizeof load->tenant_name, "%s", source->tenant->name);
    load->tenant = *source->tenant;
    load->tenant.name = load->tenant_name;
    load->only_new = source->only_new;
    load->has_if_match = source->if_match != NULL;
    if (source->if_match) snprintf(load->if_match, sizeof load->if_match, "%s", source->if_match);
    load->wake_fd = source->wake_fd;
    load->waits = source->waits;
    return load;
}

static void refuse_parts(const ks_load_source *source)
{
    for (int i = 0; i < source->parts; i++) {
        ks_content *content = source->part[i].content;
        ks_content_release(&content);
    }
    if (source->release) source->release(source->owner);
}

ks_status ks_models_load(ks_models *models, const ks_load_source *source, ks_model_load **out, ks_error *error)
{
    ks_model_load *load = new_load(source);
    if (!load) refuse_parts(source);
    if (!load) return ks_fail(error, KS_MEMORY, "no memory for a definition of %zu bytes", source->length);
    pthread_mutex_lock(&models->lock);
    ks_status status =
        ks_models_check(models, load->label, source->only_new, source->if_match, error); /* again when it is ready */
    if (status == KS_OK) status = ks_models_check_quota(models, load->label, load->models_max, error);
    if (status == KS_OK && models->waiting == KS_LOADS_WAIT_MAX)
        status = ks_fail(error, KS_BUDGET, "%d loads wait already", KS_LOADS_WAIT_MAX);
    if (status == KS_OK) {
        *models->last = load;
        models->last = &load->next;
        models->waiting++;
        load->loading = true;
        ks_model_loading(load->label, 1);
        pthread_cond_signal(&models->given);
    }
    pthread_mutex_unlock(&models->lock);
    if (status == KS_OK)
        *out = load;
    else
        free_load(load);
    return status;
}

const ks_load_result *ks_model_load_result(const ks_model_load *load)
{
    return atomic_load_explicit(&load->done, memory_order_acquire) ? &load->result : NULL;
}

bool ks_model_load_is_ready(const ks_model_load *load)
{
    return atomic_load(&load->ready) || atomic_load(&load->done);
}

void ks_model_load_decide(ks_models *models, ks_model_load *load, bool serves)
{
    pthread_mutex_lock(&models->lock);
    load->serves = load->decided ? load->serves : serves;
    load->decided = true;
    pthread_cond_broadcast(&models->decided);
    pthread_mutex_unlock(&models->lock);
}

void ks_model_load_leave(ks_models *models, ks_model_load **pointer)
{
    ks_model_load *load = *pointer;
    *pointer = NULL;
    if (!load) return;
    pthread_mutex_lock(&models->lock);
    const bool done = atomic_load(&load->done);
    load->left = true;
    pthread_cond_broadcast(&models->decided);
    pthread_mutex_unlock(&models->lock);
    if (done) free_load(load);
}

static bool end_load(ks_models *models, ks_model_load *load)
{
    ks_models_loading_ends(load);
    pthread_mutex_lock(&models->lock);
    const bool left = load->left;
    atomic_store_explicit(&load->done, true, memory_order_release);
    pthread_mutex_unlock(&models->lock);
    if (left) free_load(load);
    return !left;
}

/* --- loads ---------------------------------------------------------------------------------------------------------------- */

/* Where the repository has it, whose models all see. */
static ks_status find_folder(const ks_models *models, ks_model_load *load, ks_error *error)
{
    const ks_list *folders = models->options.folders;
    for (int i = 0; folders && !load->tenant_name[0] && i < folders->count; i++) {
        struct stat about;
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", folders->item[i], load->name);
        if (lstat(path, &about) != 0 || !S_ISDIR(about.st_mode)) continue;
        load->folder = strdup(path);
        return load->folder ? KS_OK : ks_fail(error, KS_MEMORY, "no memory for a path");
    }
    return ks_fail(error, KS_MODEL, "failed to load '%s', failed to poll from model repository", load->name);
}

/* What the repository does not have, and is loaded, is as it should be. */
static bool is_there(const ks_models *models, ks_model_load *load)
{
    if (!load->from_repository || find_folder(models, load, &load->result.fault) == KS_OK) return false;
    if (ks_model_find(load->label, strlen(load->label))) load->result.fault = (ks_error){0};
    return true;
}

static void wake(int wake_fd)
{
    const uint64_t one = 1;
    if (wake_fd >= 0 && TEMP_FAILURE_RETRY(write(wake_fd, &one, sizeof one)) < 0) {
        /* The counter is full: the shard has wake-ups enough. */
    }
}

/* Of one that waits for a word. false: it is not to serve, and says so. */
static bool may_serve(ks_models *models, ks_model_load *load)
{
    if (ks_models_may_publish(models, load, &load->result.fault) != KS_OK) return false;
    atomic_store(&load->ready, true);
    wake(load->wake_fd);
    pthread_mutex_lock(&models->lock);
    while (!load->decided && !load->left && !models->stop) pthread_cond_wait(&models->decided, &models->lock);
    const bool serves = load->decided && load->serves;
    pthread_mutex_unlock(&models->lock);
    if (!serves)
        ks_fail(&load->result.fault, KS_UNAVAILABLE, "model '%s' is not wanted any more: nothing has changed",
                load->name);
    return serves;
}

static void load_model(ks_models *models, ks_model_load *load)
{
    ks_load_result *result = &load->result;
    ks_loaded *loaded = ks_load_make(models, load, result);
    for (int i = 0; i < load->parts; i++) result->unused += !load->part[i].used;
    release_parts(load);
    if (!loaded) return;
    memcpy(result->etag, loaded->etag, sizeof result->etag);
    result->nodes = loaded->definition->chain.nodes;
    result->steps = loaded->steps;
    result->max_batch = loaded->definition->model.max_batch;
    result->bytes = loaded->bytes;
    if (result->cut.status != KS_OK)
        KS_LOG(KS_LOG_WARN, "a smaller max_batch than the preset one", KS_TEXT("model", load->label),
               KS_INT("max_batch", result->max_batch), KS_TEXT("why", result->cut.text));
    if (load->waits && !may_serve(models, load)) {
        ks_loaded_free(&loaded);
        return;
    }
    if (ks_models_publish_take(models, load, loaded, &result->created, &result->fault) != KS_OK) return;
    ks_warm_wait(models, load->label);
    KS_LOG(KS_LOG_INFO, "model loaded", KS_TEXT("model", load->label), KS_INT("nodes", result->nodes),
           KS_INT("steps", result->steps), KS_INT("bytes", result->bytes));
}

static void load_one(ks_models *models, ks_model_load *load)
{
    if (is_there(models, load)) return;
    load_model(models, load);
    const ks_error *fault = &load->result.fault;
    if (atomic_load(&load->ready) && fault->status == KS_UNAVAILABLE) return; /* what it is does not change */
    if (load->folder || (fault->status == KS_OK && !load->tenant_name[0]))
        ks_models_note(models, load->name, fault->status == KS_OK ? NULL : fault->text);
}

/* NULL: asked to stop. */
static ks_model_load *next_load(ks_models *models)
{
    pthread_mutex_lock(&models->lock);
    while (!models->stop && !models->first) pthread_cond_wait(&models->given, &models->lock);
    ks_model_load *load = models->stop ? NULL : models->first;
    if (load) {
        models->first = load->next;
        if (!models->first) models->last = &models->first;
        models->waiting--;
    }
    pthread_mutex_unlock(&models->lock);
    return load;
}

static void *work(void *context)
{
    ks_models *models = context;
    for (ks_model_load *load; (load = next_load(models)) != NULL;) {
        const int wake_fd = load->wake_fd;
        load_one(models, load);
        if (end_load(models, load)) wake(wake_fd);
    }
    return NULL;
}

/* --- open and close ------------------------------------------------------------------------------------------------------- */

static void init_warmed(pthread_cond_t *warmed)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(warmed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

ks_status ks_models_open(const ks_models_options *options, ks_models **out, ks_error *error)
{
    ks_models *models = calloc(1, sizeof *models);
    if (!models) return ks_fail(error, KS_MEMORY, "no memory for the table of models");
    models->options = *options;
    models->last = &models->first;
    pthread_mutex_init(&models->lock, NULL);
    pthread_cond_init(&models->given, NULL);
    pthread_cond_init(&models->decided, NULL);
    init_warmed(&models->warmed);
    const int failure = pthread_create(&models->loader, NULL, work, models);
    if (failure) {
        pthread_cond_destroy(&models->given);
        pthread_cond_destroy(&models->decided);
        pthread_cond_destroy(&models->warmed);
        pthread_mutex_destroy(&models->lock);
        free(models);
        return ks_fail(error, KS_SYSTEM, "cannot start the thread that loads models: %s", strerror(failure));
    }
    pthread_setname_np(models->loader, "ks-loader");
    *out = models;
    return KS_OK;
}

void ks_models_close(ks_models **pointer)
{
    ks_models *models = *pointer;
    *pointer = NULL;
    if (!models) return;
    pthread_mutex_lock(&models->lock);
    models->stop = true;
    pthread_cond_signal(&models->given);
    pthread_cond_broadcast(&models->decided);
    pthread_cond_broadcast(&models->warmed);
    pthread_mutex_unlock(&models->lock);
    pthread_join(models->loader, NULL);
    while (models->first) {
        ks_model_load *load = models->first;
        models->first = load->next;
        ks_models_loading_ends(load);
        free_load(load);
    }
    for (int i = 0; i < KS_MODELS_MAX; i++)
        if (models->current[i]) {
            ks_model_publish(i, NULL);
            ks_loaded_free(&models->current[i]);
        }
    while (models->notes) {
        ks_model_note *note = models->notes;
        models->notes = note->next;
        free(note);
    }
    while (models->retired) {
        ks_loaded *loaded = models->retired;
        models->retired = loaded->next;
        ks_loaded_free(&loaded);
    }
    pthread_cond_destroy(&models->given);
    pthread_cond_destroy(&models->decided);
    pthread_cond_destroy(&models->warmed);
    pthread_mutex_destroy(&models->lock);
    free(models);
}
