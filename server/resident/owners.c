/* Tenants and their names: where a name leads, when it was last used, when it goes.
 *
 * Owns      owners and names. A name holds its content; a change of it takes the content from the readers that keep it by that name.
 * Interface parts.h
 * Threads   the store's lock. A reader's counts are written by its shard meanwhile.
 * Limits    KS_TENSORS_MAX names (store.c). Times of use in the trees may be older than the true ones, which readers keep for themselves: the
 *           first name of a tree is put where it belongs before it is believed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "resident/parts.h"

/* --- owners -------------------------------------------------------------------------------------------------------------- */

ks_owner *ks_owner_find(const ks_store *store, const char *name)
{
    ks_owner *owner = store->owners;
    while (owner && strcmp(owner->name, name) != 0) owner = owner->next;
    return owner;
}

ks_owner *ks_owner_make(ks_store *store, const char *name)
{
    ks_owner *owner = ks_owner_find(store, name);
    if (owner) return owner;
    owner = calloc(1, sizeof *owner);
    if (!owner) return NULL;
    memcpy(owner->name, name, ks_least_size(strlen(name), KS_TENANT_NAME_MAX));
    owner->next = store->owners;
    store->owners = owner;
    return owner;
}

void ks_owner_sweep(ks_store *store)
{
    for (ks_owner **link = &store->owners; *link;) {
        ks_owner *owner = *link;
        if (owner->things > 0) {
            link = &owner->next;
        } else {
            *link = owner->next;
            free(owner);
        }
    }
}

/* --- names in order ----------------------------------------------------------------------------------------------------- */

typedef struct text_key {
    const char *text;
    size_t length;
    bool behind; /* comes right behind the name of that text */
} text_key;

static int compare_text(const ks_node *node, const void *key)
{
    const ks_tensor_name *name = KS_OF_NODE(ks_tensor_name, by_name, node);
    const text_key *text = key;
    const int order = memcmp(name->text, text->text, ks_least_size(name->length, text->length));
    if (order) return order;
    if (name->length != text->length) return name->length < text->length ? -1 : 1;
    return text->behind ? -1 : 0;
}

ks_tensor_name *ks_name_find(const ks_owner *owner, const char *text, size_t length)
{
    ks_node *node = owner ? ks_tree_find(owner->names, &(text_key){text, length, false}, compare_text) : NULL;
    return node ? KS_OF_NODE(ks_tensor_name, by_name, node) : NULL;
}

ks_tensor_name *ks_name_resolve(const ks_store *store, const ks_tenant *tenant, const char *text, size_t length)
{
    ks_tensor_name *name = ks_name_find(ks_owner_find(store, tenant->name), text, length);
    return name ? name : ks_name_find(store->common, text, length);
}

ks_tensor_name *ks_name_behind(const ks_owner *owner, const char *prefix, const char *after)
{
    if (!owner) return NULL;
    const bool from_prefix = strcmp(after, prefix) < 0;
    const char *from = from_prefix ? prefix : after;
    ks_node *node = ks_tree_from(owner->names, &(text_key){from, strlen(from), !from_prefix && *after}, compare_text);
    if (!node) return NULL;
    ks_tensor_name *name = KS_OF_NODE(ks_tensor_name, by_name, node);
    return strncmp(name->text, prefix, strlen(prefix)) == 0 ? name : NULL;
}

/* --- names by time ------------------------------------------------------------------------------------------------------ */

typedef struct time_key {
    int64_t ns;
    const ks_tensor_name *name; /* for those of one moment */
} time_key;

static int compare_time(int64_t ns, const ks_tensor_name *name, const time_key *key)
{
    if (ns != key->ns) return ns < key->ns ? -1 : 1;
    return (name > key->name) - (name < key->name);
}

static int compare_due(const ks_node *node, const void *key)
{
    const ks_tensor_name *name = KS_OF_NODE(ks_tensor_name, by_due, node);
    return compare_time(name->due_ns, name, key);
}

static int compare_idle(const ks_node *node, const void *key)
{
    const ks_tensor_name *name = KS_OF_NODE(ks_tensor_name, by_idle, node);
    return compare_time(name->idle_ns, name, key);
}

int64_t ks_name_last_ns(const ks_tensor_name *name)
{
    int64_t last_ns = name->last_ns;
    for (const ks_reader_entry *entry = name->entries; entry; entry = entry->next) {
        const int64_t ns = atomic_load_explicit(&entry->last_ns, memory_order_relaxed);
        if (ns > last_ns) last_ns = ns;
    }
    return last_ns;
}

static ks_node **due_tree(ks_store *store, bool placed)
{
    return placed ? &store->due_alone : &store->due;
}

/* Takes the name out of the trees of times, and puts it where its attributes and its last use say. */
static void unplace(ks_store *store, ks_tensor_name *name)
{
    if (name->has_due)
        ks_tree_remove(due_tree(store, name->placed), &name->by_due, &(time_key){name->due_ns, name}, compare_due);
    if (name->has_idle) ks_tree_remove(&store->idle, &name->by_idle, &(time_key){name->idle_ns, name}, compare_idle);
    name->has_due = name->has_idle = false;
}

static void place(ks_store *store, ks_tensor_name *name)
{
    const int64_t last_ns = ks_name_last_ns(name);
    unplace(store, name);
    name->has_due = name->ttl_s > 0;
    name->has_idle = name->evictable;
    if (name->has_due) {
        name->due_ns = last_ns + name->ttl_s * KS_SECOND_NS;
        ks_tree_add(due_tree(store, name->placed), &name->by_due, &(time_key){name->due_ns, name}, compare_due);
    }
    if (name->has_idle) {
        name->idle_ns = last_ns;
        ks_tree_add(&store->idle, &name->by_idle, &(time_key){name->idle_ns, name}, compare_idle);
    }
}

static const time_key FIRST = {INT64_MIN, NULL};

ks_tensor_name *ks_name_first_due(ks_store *store, bool placed)
{
    for (;;) {
        ks_node *node = ks_tree_from(*due_tree(store, placed), &FIRST, compare_due);
        if (!node) return NULL;
        ks_tensor_name *name = KS_OF_NODE(ks_tensor_name, by_due, node);
        if (name->due_ns == ks_name_last_ns(name) + name->ttl_s * KS_SECOND_NS) return name;
        place(store, name);
    }
}

ks_tensor_name *ks_name_first_idle(ks_store *store)
{
    for (;;) {
        ks_node *node = ks_tree_from(store->idle, &FIRST, compare_idle);
        if (!node) return NULL;
        ks_tensor_name *name = KS_OF_NODE(ks_tensor_name, by_idle, node);
        if (name->idle_ns == ks_name_last_ns(name)) return name;
        place(store, name);
    }
}

ks_status ks_name_check(const ks_store *store, const ks_tensor_name *name, const ks_tenant *tenant, const char *text,
                        size_t length, ks_error *error)
{
    ks_recorded recorded = {.generation = store->options.generation};
    const ks_status placed =
        name ? KS_OK : ks_placed_explain(&store->options.placed, tenant->name, text, length, error);
    if (placed != KS_OK) return placed;
    if (!name) return ks_fail(error, KS_TENSOR, "there is no tensor '%s'", ks_quoted(text, length).text);
    if (name->record) return KS_OK;
    (void)ks_name_record_read(store->record, name->slot, &recorded);
    return ks_fail(error, KS_LOST,
                   "tensor '%s' was lost when the worker was restarted (generation %" PRIu64 ", now %" PRIu64
                   "): put it again",
                   name->text, recorded.generation, store->options.generation);
}

void ks_name_use(ks_store *store, ks_tensor_name *name)
{
    name->last_ns = store->options.now_ns();
    name->uses++;
}

/* --- what readers keep -------------------------------------------------------------------------------------------------- */

/* No name leads the reader to the content any more: its hold goes now, or with its last use. */
static void orphan(ks_kept *kept)
{
    int unused = 0;
    atomic_store(&kept->orphaned, true);
    if (!atomic_compare_exchange_strong(&kept->uses, &unused, KS_GIVEN_UP)) return;
    kept->record->keeps--;
    ks_content_drop(kept->record);
}

void ks_name_forget_entry(ks_reader_entry *entry)
{
    ks_tensor_name *name = entry->name;
    const int64_t last_ns = atomic_load_explicit(&entry->last_ns, memory_order_relaxed);
    if (last_ns > name->last_ns) name->last_ns = last_ns;
    name->uses += atomic_load_explicit(&entry->uses, memory_order_relaxed);
    ks_reader_entry **link = &name->entries;
    while (*link != entry) link = &(*link)->next;
    *link = entry->next;
    entry->name = NULL;
    entry->next = entry->reader->stale;
    entry->reader->stale = entry;
    atomic_store(&entry->stale, true);
    if (--entry->kept->entries == 0) orphan(entry->kept);
}

/* --- the life of a name --------------------------------------------------------------------------------------------------- */

ks_tensor_name *ks_name_new(const char *text, size_t length)
{
    ks_tensor_name *name = calloc(1, sizeof *name + length + 1);
    if (!name) return NULL;
    memcpy(name->text, text, length);
    name->length = (uint16_t)length;
    name->slot = -1;
    return name;
}

void ks_name_link(ks_store *store, ks_owner *owner, ks_tensor_name *name)
{
    name->owner = owner;
    ks_tree_add(&owner->names, &name->by_name, &(text_key){name->text, name->length, false}, compare_text);
    owner->things++;
    store->names++;
}

/* The name leads nowhere; what it held is let go. */
static void clear(ks_store *store, ks_tensor_name *name)
{
    while (name->entries) ks_name_forget_entry(name->entries);
    unplace(store, name);
    ks_name_record_remove(store->record, name->slot);
    name->slot = -1;
    ks_content_record *record = name->record;
    if (!record) return;
    name->record = NULL;
    name->owner->tensors--;
    store->tensors--;
    ks_content_count_name(record, -1, -!name->evictable);
    ks_content_drop(record);
}

void ks_name_set(ks_store *store, ks_tensor_name *name, ks_content_record *record, const ks_put *put)
{
    atomic_fetch_add(&record->content.holders, 1); /* before the old one goes, which may be the same */
    clear(store, name);
    name->placed = put->is_placed;
    name->record = record;
    name->owner->tensors++;
    store->tensors++;
    name->ttl_s = put->read_only ? 0 : put->ttl_s < 0 ? store->options.ttl_s : put->ttl_s;
    name->evictable = put->evictable;
    name->read_only = put->read_only;
    name->last_ns = store->options.now_ns();
    ks_content_count_name(record, 1, !name->evictable);
    place(store, name);
    if (!put->read_only && !put->is_placed)
        name->slot = ks_name_record_add(store->record, &(ks_recorded){name->owner->name, name->text,
                                                                      record->content.etag, store->options.generation});
}

void ks_name_lose(ks_store *store, ks_tensor_name *name, int64_t ttl_s)
{
    name->ttl_s = ttl_s;
    name->last_ns = store->options.now_ns();
    place(store, name);
}

void ks_name_remove(ks_store *store, ks_tensor_name **name)
{
    ks_tensor_name *removed = *name;
    *name = NULL;
    clear(store, removed);
    if (removed->placed) ks_placed_drop(&store->options.placed, removed->owner->name, removed->text);
    ks_owner *owner = removed->owner;
    ks_tree_remove(&owner->names, &removed->by_name, &(text_key){removed->text, removed->length, false}, compare_text);
    owner->things--;
    store->names--;
    free(removed);
}

/* --- documents ------------------------------------------------------------------------------------------------------------ */

/* Uses of the content under way: by holders that are neither names nor readers, and by readers' requests. */
static int held(const ks_tensor_name *name)
{
    const ks_content_record *record = name->record;
    int count = atomic_load(&record->content.holders) - record->names - record->keeps;
    for (const ks_reader_entry *entry = name->entries; entry; entry = entry->next) {
        const int uses = atomic_load(&entry->kept->uses);
        if (uses > 0) count += uses;
    }
    return count;
}

static void fill_content(const ks_tensor_name *name, ks_tensor_entry *entry)
{
    const ks_tensor *tensor = &name->record->content.tensor;
    entry->tensor.dtype = tensor->dtype;
    entry->tensor.rank = tensor->rank;
    memcpy(entry->tensor.dims, tensor->dims, sizeof tensor->dims);
    entry->tensor.size_bytes = tensor->size_bytes;
    entry->form_op = atomic_load(&name->record->content.has_form) ? name->record->content.form_op : NULL;
    memcpy(entry->etag, name->record->content.etag, sizeof entry->etag);
    entry->held = held(name);
}

void ks_name_fill(const ks_store *store, const ks_tensor_name *name, ks_tensor_entry *entry)
{
    ks_recorded recorded;
    memset(entry, 0, sizeof *entry);
    memcpy(entry->name, name->text, name->length);
    entry->lost = !name->record;
    if (name->record)
        fill_content(name, entry);
    else if (ks_name_record_read(store->record, name->slot, &recorded))
        memcpy(entry->etag, recorded.etag, strlen(recorded.etag) + 1);
    entry->ttl_s = name->ttl_s;
    const int64_t left_ns = ks_name_last_ns(name) + name->ttl_s * KS_SECOND_NS - store->options.now_ns();
    if (name->ttl_s > 0) entry->expires_in_s = left_ns > 0 ? (left_ns + KS_SECOND_NS - 1) / KS_SECOND_NS : 0;
    entry->evictable = name->evictable;
    entry->is_placed = name->placed;
    if (name->placed) entry->device = store->options.placed.workers->row[store->options.placed.row].device;
    entry->read_only = name->read_only;
    entry->uses = name->uses;
    for (const ks_reader_entry *read = name->entries; read; read = read->next)
        entry->uses += atomic_load_explicit(&read->uses, memory_order_relaxed);
}
