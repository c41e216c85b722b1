/* The thread that loads models, one after the other, and the requests that wait for it.
 *
 * Owns      the table and its thread; a load from ks_models_load until it is done and has been left. What comes of it is the table's once
 *           the name is its own.
 * Interface table.h: ks_models_open, ks_models_close, ks_models_load, ks_model_load_*
 * Limits    the arithmetic is not run: a plan of one batch, and of max_batch, is all that the device is asked for.
 * Threads   its own; the table's lock for the queue of loads. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "models/parts.h"
#include "resident/hash.h"

/* --- requests for loads -------------------------------------------------------------------------------------------------------------- */

static void release_parts(ks_model_load *load)
{
    for (int i = 0; i < load->parts; i++) ks_content_release(&load->part[i].content);
    free(load->part);
    load->part = NULL;
    load->parts = 0;
}

static void free_load(ks_model_load *load)
{
    release_parts(load);
    free(load->text);
    free(load);
}

static void take_parts(ks_model_load *load, const ks_load_source *source)
{
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
    load->text = malloc(source->length + 1);
    load->part = calloc((size_t)source->parts + 1, sizeof *load->part);
    if (!load->text || !load->part) {
        free_load(load);
        return NULL;
    }
    take_parts(load, source);
    memcpy(load->text, source->text, source->length);
    load->length = source->length;
    snprintf(load->name, sizeof load->name, "%s", source->name);
    snprintf(load->tenant_name, sizeof load->tenant_name, "%s", source->tenant->name);
    load->tenant = *source->tenant;
    load->tenant.name = load->tenant_name;
    load->only_new = source->only_new;
    load->has_if_match = source->if_match != NULL;
    if (source->if_match) snprintf(load->if_match, sizeof load->if_match, "%s", source->if_match);
    load->wake_fd = source->wake_fd;
    return load;
}

ks_status ks_models_load(ks_models *models, const ks_load_source *source, ks_model_load **out, ks_error *error)
{
    ks_model_load *load = new_load(source);
    for (int i = 0; !load && i < source->parts; i++) {
        ks_content *content = source->part[i].content;
        ks_content_release(&content);
    }
    if (!load) return ks_fail(error, KS_MEMORY, "no memory for a definition of %zu bytes", source->length);
    pthread_mutex_lock(&models->lock);
    ks_status status =
        ks_models_check(models, load->name, source->only_new, source->if_match, error); /* again when it is ready */
    if (status == KS_OK && models->waiting == KS_LOADS_WAIT_MAX)
        status = ks_fail(error, KS_BUDGET, "%d loads wait already", KS_LOADS_WAIT_MAX);
    if (status == KS_OK) {
        *models->last = load;
        models->last = &load->next;
        models->waiting++;
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

void ks_model_load_leave(ks_models *models, ks_model_load **pointer)
{
    ks_model_load *load = *pointer;
    *pointer = NULL;
    if (!load) return;
    pthread_mutex_lock(&models->lock);
    const bool done = atomic_load(&load->done);
    load->left = true;
    pthread_mutex_unlock(&models->lock);
    if (done) free_load(load);
}

static bool end_load(ks_models *models, ks_model_load *load)
{
    pthread_mutex_lock(&models->lock);
    const bool left = load->left;
    atomic_store_explicit(&load->done, true, memory_order_release);
    pthread_mutex_unlock(&models->lock);
    if (left) free_load(load);
    return !left;
}

/* --- initializers ------------------------------------------------------------------------------------------------------- */

static ks_status copy_in(const ks_models *models, const ks_content *content, const void *data, ks_error *error)
{
    const ks_backend *backend = models->options.backend;
    const size_t bytes = content->tensor.size_bytes;
    if (content->memory.in) {
        memcpy(content->memory.in, data, bytes);
        return KS_OK;
    }
    if (backend->client_memory)
        return backend->client_memory->copy(models->options.device, content->memory.in_device, data, bytes, error);
    return ks_fail(error, KS_UNSUPPORTED, "this device takes no elements of a document: make them resident tensors");
}

static ks_status hold_part(ks_model_load *load, const ks_initializer *from, ks_content **content, ks_error *error)
{
    int i = 0;
    if (!load->has_file)
        return ks_fail(error, KS_DEFINITION,
                       "initializer '%s' is to come from a file, and there is none: send one safetensors file whose "
                       "__metadata__ has the definition as its member 'kernserve'",
                       from->name);
    while (i < load->parts && strcmp(load->part[i].key, from->key) != 0) i++;
    if (i == load->parts)
        return ks_fail(error, KS_NAME, "initializer '%s': the file has no tensor '%s'", from->name, from->key);
    load->part[i].used = true;
    *content = ks_content_hold(load->part[i].content);
    return KS_OK;
}

static ks_status hold(ks_models *models, ks_model_load *load, ks_loaded *loaded, int index, ks_error *error)
{
    const ks_initializer *from = &loaded->definition->initializer[index];
    ks_content **content = &loaded->content[index];
    ks_status status;
    if (from->file) {
        status = hold_part(load, from, content, error);
    } else if (from->resident) {
        status = ks_store_hold(models->options.store, &load->tenant, from->resident, true, content, NULL, error);
    } else {
        status =
            ks_store_reserve(models->options.store, &load->tenant, "the model's data", &from->tensor, content, error);
        if (status == KS_OK) status = copy_in(models, *content, from->data, error);
        if (status == KS_OK) ks_content_label(*content);
    }
    if (status != KS_OK) return status;
    ks_definition_bind(loaded->definition, index, &(*content)->tensor);
    loaded->bytes += (*content)->tensor.size_bytes;
    return KS_OK;
}

static ks_status hold_all(ks_models *models, ks_model_load *load, ks_loaded *loaded, ks_error *error)
{
    ks_status status = KS_OK;
    loaded->content = calloc((size_t)loaded->definition->initializers + 1, sizeof(ks_content *));
    if (!loaded->content) return ks_fail(error, KS_MEMORY, "no memory for a model's initializers");
    for (int i = 0; i < loaded->definition->initializers && status == KS_OK; i++)
        status = hold(models, load, loaded, i, error);
    return status;
}

/* The document, and the resident contents that it names. */
static ks_status identify(ks_loaded *loaded, ks_error *error)
{
    const ks_definition *definition = loaded->definition;
    ks_content whole = {.tensor = {.dtype = KS_UINT8, .rank = 1, .dims = {(int64_t)definition->text_length}}};
    ks_hash *hash = ks_hash_open(false);
    if (!hash) return ks_fail(error, KS_MEMORY, "no memory for a hash");
    ks_hash_feed(hash, definition->text, definition->text_length);
    for (int i = 0; i < definition->initializers; i++)
        if (definition->initializer[i].resident || definition->initializer[i].file)
            ks_hash_feed(hash, loaded->content[i]->etag, strlen(loaded->content[i]->etag));
    ks_hash_end(hash, &whole);
    ks_hash_close(&hash);
    memcpy(loaded->etag, whole.etag, sizeof loaded->etag);
    return KS_OK;
}

/* --- a plan --------------------------------------------------------------------------------------------------------------- */

static ks_status plan(const ks_models *models, ks_loaded *loaded, int64_t batch, ks_error *error)
{
    ks_plan *asked = calloc(1, sizeof *asked);
    if (!asked) return ks_fail(error, KS_MEMORY, "no memory for a plan of '%s'", loaded->definition->model.name);
    asked->batch_max = 1;
    ks_status status = ks_definition_sample(loaded->definition, batch, &asked->spec, error);
    if (status == KS_OK) status = ks_program_make(&asked->spec, &asked->program, error);
    if (status == KS_OK) {
        asked->in_bytes = ks_spec_in_bytes(&asked->spec);
        asked->out_bytes = ks_spec_out_bytes(&asked->spec);
        loaded->steps = asked->program->count;
        status = models->options.backend->prepare(models->options.device, asked, error);
    }
    ks_program_free(&asked->program);
    free(asked);
    return status;
}

/* The largest one first: the answer has the steps of one batch. */
static ks_status plan_all(const ks_models *models, ks_loaded *loaded, ks_error *error)
{
    const int64_t most = loaded->definition->chain.max_batch;
    const ks_status status = most ? plan(models, loaded, most, error) : KS_OK;
    return status == KS_OK ? plan(models, loaded, 1, error) : status;
}

/* --- loads ---------------------------------------------------------------------------------------------------------------- */

static ks_status make(ks_models *models, ks_model_load *load, ks_loaded *loaded, ks_error *error)
{
    const size_t counters = (size_t)models->options.shards * KS_MODEL_USES_APART;
    ks_status status = ks_definition_read(load->name, load->text, load->length, &loaded->definition, error);
    if (status != KS_OK) return status;
    loaded->uses = calloc(counters, sizeof *loaded->uses);
    if (!loaded->uses) return ks_fail(error, KS_MEMORY, "no memory for a model");
    status = hold_all(models, load, loaded, error);
    if (status == KS_OK) status = ks_definition_infer(loaded->definition, error);
    if (status == KS_OK) status = identify(loaded, error);
    return status == KS_OK ? plan_all(models, loaded, error) : status;
}

static void load_one(ks_models *models, ks_model_load *load)
{
    ks_load_result *result = &load->result;
    ks_loaded *loaded = calloc(1, sizeof *loaded);
    ks_status status = loaded ? make(models, load, loaded, &result->fault)
                              : ks_fail(&result->fault, KS_MEMORY, "no memory for a model");
    for (int i = 0; i < load->parts; i++) result->unused += !load->part[i].used;
    release_parts(load);
    if (status != KS_OK) {
        ks_loaded_free(&loaded);
        return;
    }
    memcpy(result->etag, loaded->etag, sizeof result->etag);
    result->nodes = loaded->definition->chain.nodes;
    result->steps = loaded->steps;
    result->max_batch = loaded->definition->model.max_batch;
    result->bytes = loaded->bytes;
    status = ks_models_publish_take(models, load, loaded, &result->created, &result->fault);
    if (status != KS_OK) return;
    KS_LOG(KS_LOG_INFO, "model loaded", KS_TEXT("model", load->name), KS_INT("nodes", result->nodes),
           KS_INT("steps", result->steps), KS_INT("bytes", result->bytes));
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
        const uint64_t one = 1;
        const int wake_fd = load->wake_fd;
        load_one(models, load);
        if (!end_load(models, load) || wake_fd < 0) continue;
        if (TEMP_FAILURE_RETRY(write(wake_fd, &one, sizeof one)) < 0) {
            /* The counter is full: the shard has wake-ups enough. */
        }
    }
    return NULL;
}

/* --- open and close ------------------------------------------------------------------------------------------------------- */

ks_status ks_models_open(const ks_models_options *options, ks_models **out, ks_error *error)
{
    ks_models *models = calloc(1, sizeof *models);
    if (!models) return ks_fail(error, KS_MEMORY, "no memory for the table of models");
    models->options = *options;
    models->last = &models->first;
    pthread_mutex_init(&models->lock, NULL);
    pthread_cond_init(&models->given, NULL);
    const int failure = pthread_create(&models->loader, NULL, work, models);
    if (failure) {
        pthread_cond_destroy(&models->given);
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
    pthread_mutex_unlock(&models->lock);
    pthread_join(models->loader, NULL);
    while (models->first) {
        ks_model_load *load = models->first;
        models->first = load->next;
        free_load(load);
    }
    for (int i = 0; i < KS_MODELS_MAX; i++)
        if (models->current[i]) {
            ks_model_publish(i, NULL);
            ks_loaded_free(&models->current[i]);
        }
    while (models->retired) {
        ks_loaded *loaded = models->retired;
        models->retired = loaded->next;
        ks_loaded_free(&loaded);
    }
    pthread_cond_destroy(&models->given);
    pthread_mutex_destroy(&models->lock);
    free(models);
}
