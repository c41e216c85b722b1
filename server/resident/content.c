/* Contents and their references.
 *
 * Owns      the records of contents and, through the backend, their memory: both go with the last holder.
 * Interface store.h: ks_content_*; parts.h
 * Threads   the store's lock; a holder that is not the last one goes without it.
 * Limits    none of its own: room.c counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resident/parts.h"

static int compare_etag(const ks_node *node, const void *key)
{
    return strcmp(KS_OF_NODE(ks_content_record, by_etag, node)->content.etag, key);
}

/* A digest, and the record among those with the same one: shapes and datatypes may differ. */
typedef struct body_key {
    const unsigned char *digest;
    const ks_content_record *record; /* NULL: before all of them */
} body_key;

static int compare_body(const ks_node *node, const void *key)
{
    const ks_content_record *record = KS_OF_NODE(ks_content_record, by_body, node);
    const body_key *body = key;
    const int order = memcmp(record->content.body_digest, body->digest, KS_DIGEST_BYTES);
    return order ? order : (record > body->record) - (record < body->record);
}

ks_content_record *ks_content_new(ks_store *store, ks_owner *owner, const ks_tensor *tensor)
{
    ks_content_record *record = calloc(1, sizeof *record);
    if (!record) return NULL;
    record->content.tensor = *tensor;
    record->content.tensor.offset = 0;
    record->content.tensor.fixed = NULL;
    record->content.store = store;
    record->content.holders = 1;
    record->owner = owner;
    owner->things++;
    owner->bytes += tensor->size_bytes;
    store->bytes += tensor->size_bytes;
    return record;
}

/* That it takes of the limits. */
static size_t bytes_of(const ks_content *content)
{
    return content->tensor.size_bytes + content->form_bytes;
}

void ks_content_publish(ks_content_record *record)
{
    ks_content *content = &record->content;
    record->published = true;
    ks_tree_add(&record->owner->contents, &record->by_etag, content->etag, compare_etag);
    if (content->has_body_digest)
        ks_tree_add(&record->owner->bodies, &record->by_body, &(body_key){content->body_digest, record}, compare_body);
}

void ks_content_learn_body(ks_content_record *record, const ks_content *equal)
{
    ks_content *content = &record->content;
    if (content->has_body_digest || !equal->has_body_digest) return;
    memcpy(content->body_digest, equal->body_digest, KS_DIGEST_BYTES);
    content->has_body_digest = true;
    ks_tree_add(&record->owner->bodies, &record->by_body, &(body_key){content->body_digest, record}, compare_body);
}

ks_content_record *ks_content_find(const ks_owner *owner, const char *etag)
{
    ks_node *node = owner ? ks_tree_find(owner->contents, etag, compare_etag) : NULL;
    return node ? KS_OF_NODE(ks_content_record, by_etag, node) : NULL;
}

static bool is_alike(const ks_tensor *a, const ks_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

ks_content_record *ks_content_find_body(const ks_owner *owner, const unsigned char digest[KS_DIGEST_BYTES],
                                        const ks_tensor *tensor)
{
    body_key key = {digest, NULL};
    for (ks_node *node; owner && (node = ks_tree_from(owner->bodies, &key, compare_body)) != NULL;) {
        ks_content_record *record = KS_OF_NODE(ks_content_record, by_body, node);
        if (memcmp(record->content.body_digest, digest, KS_DIGEST_BYTES) != 0) break;
        if (is_alike(&record->content.tensor, tensor)) return record;
        key.record = (const ks_content_record *)((const char *)record + 1); /* the next of that digest */
    }
    return NULL;
}

static bool is_loose(const ks_content_record *record)
{
    return record->names > 0 && record->names_firm == 0;
}

void ks_content_learn_form(ks_content_record *record, ks_content *equal)
{
    ks_content *content = &record->content;
    const bool loose = is_loose(record);
    if (content->form_bytes > 0 || !atomic_load(&equal->has_form)) return;
    content->form_op = equal->form_op;
    content->form = equal->form;
    content->form_memory = equal->form_memory;
    content->form_bytes = equal->form_bytes;
    if (loose) content->store->loose_bytes += content->form_bytes;
    atomic_store(&equal->has_form, false);
    memset(&equal->form_memory, 0, sizeof equal->form_memory);
    equal->form_bytes = 0;
    atomic_store(&content->has_form, true);
}

void ks_content_count_name(ks_content_record *record, int names, int firm)
{
    ks_store *store = record->content.store;
    if (is_loose(record)) store->loose_bytes -= bytes_of(&record->content);
    record->names += names;
    record->names_firm += firm;
    if (is_loose(record)) store->loose_bytes += bytes_of(&record->content);
}

/* The last holder is gone. */
static void end_content(ks_content_record *record)
{
    ks_content *content = &record->content;
    ks_store *store = content->store;
    ks_owner *owner = record->owner;
    if (record->published) ks_tree_remove(&owner->contents, &record->by_etag, content->etag, compare_etag);
    if (record->published && content->has_body_digest)
        ks_tree_remove(&owner->bodies, &record->by_body, &(body_key){content->body_digest, record}, compare_body);
    owner->things--;
    owner->bytes -= bytes_of(content);
    store->bytes -= bytes_of(content);
    store->form_bytes -= content->form_bytes;
    if (content->form_memory.in_device)
        store->options.backend->resident->give(store->options.device, &content->form_memory);
    if (content->memory.in_device) store->options.backend->resident->give(store->options.device, &content->memory);
    free(record);
}

void ks_content_drop(ks_content_record *record)
{
    if (atomic_fetch_sub(&record->content.holders, 1) == 1) end_content(record);
}

void ks_content_release(ks_content **content)
{
    ks_content *released = *content;
    *content = NULL;
    if (!released) return;
    int holders = atomic_load(&released->holders);
    while (holders > 1)
        if (atomic_compare_exchange_weak(&released->holders, &holders, holders - 1)) return;
    ks_store *store = released->store;
    pthread_mutex_lock(&store->lock);
    ks_content_drop((ks_content_record *)(void *)released);
    pthread_mutex_unlock(&store->lock);
}

void ks_content_label(ks_content *content)
{
    ks_store *store = content->store;
    snprintf(content->etag, sizeof content->etag, "g%llu-%llx", (unsigned long long)store->options.generation,
             (unsigned long long)atomic_fetch_add(&store->labels, 1) + 1);
    content->has_body_digest = false;
}
