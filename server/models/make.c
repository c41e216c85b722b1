/* What a load comes to: a definition, its contents, and that it can be planned.
 *
 * Owns      what it makes, until it is given.
 * Interface parts.h: ks_load_make
 * Limits    the arithmetic is not run: a plan of one batch, and of max_batch, is all that the device is asked for.
 * Threads   the loader's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/files.h"
#include "models/parts.h"
#include "resident/hash.h"

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

/* What a load works with. */
typedef struct making {
    ks_models *models;
    ks_model_load *load;
    ks_loaded *loaded;
    ks_model_files files;
} making;

/* Of several workers all have the model, so all are to have the tensor. */
static ks_status hold_resident(making *of, const char *name, ks_content **content, ks_error *error)
{
    ks_tensor_entry entry;
    const ks_status status =
        ks_store_hold(of->models->options.store, &of->load->tenant, name, true, content, &entry, error);
    if (status != KS_OK || !entry.is_placed) return status;
    ks_content_release(content);
    return ks_fail(error, KS_PLACED,
                   "tensor '%s' is on device %d alone, and a model is on all: put it without device=", name,
                   entry.device);
}

static ks_status hold(making *of, int index, ks_error *error)
{
    ks_models *models = of->models;
    ks_model_load *load = of->load;
    ks_loaded *loaded = of->loaded;
    const ks_initializer *from = &loaded->definition->initializer[index];
    ks_content **content = &loaded->content[index];
    ks_status status;
    if (from->file && of->files.count > 0) {
        status = ks_model_files_content(&of->files, from, content, error);
    } else if (from->file) {
        status = hold_part(load, from, content, error);
    } else if (from->resident) {
        status = hold_resident(of, from->resident, content, error);
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

static ks_status hold_all(making *of, ks_error *error)
{
    ks_status status = KS_OK;
    ks_loaded *loaded = of->loaded;
    loaded->content = calloc((size_t)loaded->definition->initializers + 1, sizeof(ks_content *));
    if (!loaded->content) return ks_fail(error, KS_MEMORY, "no memory for a model's initializers");
    for (int i = 0; i < loaded->definition->initializers && status == KS_OK; i++) status = hold(of, i, error);
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
    ks_hash_feed(hash, &definition->model.max_batch, sizeof definition->model.max_batch);
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
    if (status == KS_OK)
        status = ks_program_make(&asked->spec, models->options.backend->chains, &asked->program, error);
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

/* What a device has no room for is a fault of the document. */
static ks_status plan_batch(const ks_models *models, ks_loaded *loaded, int64_t batch, ks_error *error)
{
    ks_error why = {.status = KS_OK};
    const ks_status status = plan(models, loaded, batch, &why);
    if (status == KS_OK) return KS_OK;
    if (status != KS_WORK) return ks_fail(error, status, "%s", why.text);
    return ks_fail(error, KS_DEFINITION, "at a batch of %lld: %s", (long long)batch, why.text);
}

/* The largest batch that there is room for, of those that are half of another one. */
static ks_status plan_preset(const ks_models *models, ks_loaded *loaded, ks_load_result *result, ks_error *error)
{
    ks_definition *definition = loaded->definition;
    for (int64_t batch = definition->chain.max_batch; batch > 1; batch /= 2) {
        ks_error why = {.status = KS_OK};
        const ks_status status = plan_batch(models, loaded, batch, &why);
        if (status == KS_OK) return KS_OK;
        if (status != KS_DEFINITION) return ks_fail(error, status, "%s", why.text);
        ks_definition_lower_batch(definition, batch / 2);
        result->cut = why;
    }
    return KS_OK;
}

/* The largest one first: the answer has the steps of one batch. */
static ks_status plan_all(const ks_models *models, ks_loaded *loaded, ks_load_result *result, ks_error *error)
{
    const ks_definition *definition = loaded->definition;
    const int64_t most = definition->chain.max_batch;
    ks_status status = KS_OK;
    if (most && !definition->names_batch)
        status = plan_preset(models, loaded, result, error);
    else if (most)
        status = plan_batch(models, loaded, most, error);
    return status == KS_OK ? plan_batch(models, loaded, 1, error) : status;
}

/* --- the whole ---------------------------------------------------------------------------------------------------------- */

static ks_status open_files(making *of, ks_error *error)
{
    const ks_models_options *options = &of->models->options;
    const ks_model_load *load = of->load;
    ks_status status = KS_OK;
    of->files.backend = options->backend;
    of->files.device = options->device;
    of->files.store = options->store;
    of->files.tenant = &load->tenant;
    if (load->folder) status = ks_model_files_open(&of->files, load->folder, error);
    for (int i = 0; i < load->files && status == KS_OK; i++)
        status = ks_model_files_add(&of->files, load->file[i].name, load->file[i].bytes, load->file[i].length, error);
    return status;
}

static ks_status read_definition(making *of, ks_error *error)
{
    const ks_model_load *load = of->load;
    const char *text = load->text;
    size_t length = load->length;
    ks_status status = open_files(of, error);
    if (status == KS_OK && !text) status = ks_model_files_definition(&of->files, &text, &length, error);
    if (status == KS_OK) status = ks_definition_read(load->name, text, length, &of->loaded->definition, error);
    return status == KS_OK && load->max_batch ? ks_definition_batch(of->loaded->definition, load->max_batch, error)
                                              : status;
}

static ks_status make(making *of, ks_load_result *result, ks_error *error)
{
    ks_loaded *loaded = of->loaded;
    const size_t counters = (size_t)of->models->options.shards * KS_MODEL_USES_APART;
    ks_status status = read_definition(of, error);
    if (status != KS_OK) return status;
    loaded->uses = calloc(counters, sizeof *loaded->uses);
    if (!loaded->uses) return ks_fail(error, KS_MEMORY, "no memory for a model");
    status = hold_all(of, error);
    if (status == KS_OK) status = ks_definition_infer(loaded->definition, error);
    if (status == KS_OK) status = identify(loaded, error);
    return status == KS_OK ? plan_all(of->models, loaded, result, error) : status;
}

ks_loaded *ks_load_make(ks_models *models, ks_model_load *load, ks_load_result *result)
{
    making *of = calloc(1, sizeof *of);
    ks_loaded *loaded = calloc(1, sizeof *loaded);
    ks_status status = KS_MEMORY;
    if (of && loaded) {
        *of = (making){.models = models, .load = load, .loaded = loaded};
        status = make(of, result, &result->fault);
        ks_model_files_fini(&of->files);
    } else {
        ks_fail(&result->fault, status, "no memory for a model");
    }
    free(of);
    if (status != KS_OK && loaded) ks_loaded_free(&loaded);
    return status == KS_OK ? loaded : NULL;
}
