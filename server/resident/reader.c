/* A shard's own table of the tensors that its requests have named.
 *
 * Owns      entries by name, and one hold of each content that they lead to. Its requests' uses of a content are counted here, so that
 *           requests of several shards share no counter.
 * Interface store.h: ks_reader_*
 * Threads   the shard's, but for what a change of a name does to it under the store's lock: an entry becomes stale, and the hold of a
 *           content without a name goes, at once where uses is 0, else with the last use. Whichever side makes uses KS_GIVEN_UP, once, drops
 *           the hold. Stale entries are freed by the reader, before it makes a new one.
 * Limits    as many entries as the store has names, and stale ones as many as there were when the last one was made. */
#include <stdlib.h>
#include <string.h>

#include "resident/parts.h"

enum { BUCKETS_LEAST = 64 };

/* FNV-1a */
static uint32_t hash_text(uint32_t hash, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}

static uint32_t hash_of(const ks_tenant *tenant, const char *name, size_t length)
{
    return hash_text(hash_text(2166136261u, name, length), tenant->name, strlen(tenant->name));
}

static ks_kept **kept_bucket(const ks_reader *reader, const ks_content_record *record)
{
    return &reader->kept[((uintptr_t)record * 0x9E3779B97F4A7C15u >> 32) & (reader->buckets - 1)];
}

static ks_reader_entry **entry_bucket(const ks_reader *reader, uint32_t hash)
{
    return &reader->entries[hash & (reader->buckets - 1)];
}

/* --- what is kept of a content ------------------------------------------------------------------------------------------- */

/* One whose hold is gone is passed over: another content may lie at its address by now. */
static ks_kept *find_kept(const ks_reader *reader, const ks_content_record *record)
{
    ks_kept *kept = *kept_bucket(reader, record);
    while (kept && (kept->record != record || atomic_load(&kept->uses) == KS_GIVEN_UP)) kept = kept->chain;
    return kept;
}

/* One use more. false: its hold is gone. */
static bool begin_use(ks_kept *kept)
{
    int uses = atomic_load_explicit(&kept->uses, memory_order_relaxed);
    do {
        if (uses == KS_GIVEN_UP) return false;
    } while (!atomic_compare_exchange_weak(&kept->uses, &uses, uses + 1));
    return true;
}

static void free_kept(ks_reader *reader, ks_kept *freed)
{
    ks_kept **link = kept_bucket(reader, freed->record);
    while (*link != freed) link = &(*link)->chain;
    *link = freed->chain;
    free(freed);
}

/* Once for both sides: the store may be about to take the hold itself. */
static bool give_up(ks_kept *kept)
{
    int unused = 0;
    return atomic_compare_exchange_strong(&kept->uses, &unused, KS_GIVEN_UP);
}

static void drop_hold(ks_store *store, ks_kept *kept)
{
    pthread_mutex_lock(&store->lock);
    kept->record->keeps--;
    ks_content_drop(kept->record);
    pthread_mutex_unlock(&store->lock);
}

/* --- entries ---------------------------------------------------------------------------------------------------------------- */

static bool is_named(const ks_reader_entry *entry, const ks_tenant *tenant, const char *name, size_t length)
{
    return entry->name_length == length && strncmp(entry->text, tenant->name, entry->tenant_length) == 0 &&
           tenant->name[entry->tenant_length] == 0 && memcmp(entry->text + entry->tenant_length, name, length) == 0;
}

static ks_reader_entry *find_entry(const ks_reader *reader, uint32_t hash, const ks_tenant *tenant, const char *name,
                                   size_t length)
{
    ks_reader_entry *entry = *entry_bucket(reader, hash);
    while (entry && (entry->hash != hash || atomic_load_explicit(&entry->stale, memory_order_acquire) ||
                     !is_named(entry, tenant, name, length)))
        entry = entry->chain;
    return entry;
}

static void free_entry(ks_reader *reader, ks_reader_entry *freed)
{
    ks_reader_entry **link = entry_bucket(reader, freed->hash);
    while (*link != freed) link = &(*link)->chain;
    *link = freed->chain;
    reader->count--;
    ks_kept *kept = freed->kept;
    if (--kept->leads == 0 && atomic_load(&kept->uses) == KS_GIVEN_UP) free_kept(reader, kept);
    free(freed);
}

/* With the lock. */
static void free_stale(ks_reader *reader)
{
    while (reader->stale) {
        ks_reader_entry *entry = reader->stale;
        reader->stale = entry->next;
        free_entry(reader, entry);
    }
}

static ks_reader_entry *new_entry(ks_reader *reader, const ks_tenant *tenant, const char *name, size_t length)
{
    const size_t tenant_length = strlen(tenant->name);
    ks_reader_entry *entry = calloc(1, sizeof *entry + tenant_length + length);
    if (!entry) return NULL;
    entry->reader = reader;
    entry->tenant_length = (uint16_t)tenant_length;
    entry->name_length = (uint16_t)length;
    memcpy(entry->text, tenant->name, tenant_length);
    memcpy(entry->text + tenant_length, name, length);
    return entry;
}

/* With the lock: the reader's hold of a content, got where it has none. NULL: no memory. */
static ks_kept *keep(ks_reader *reader, ks_content_record *record)
{
    ks_kept *kept = find_kept(reader, record);
    if (kept) return kept;
    kept = calloc(1, sizeof *kept);
    if (!kept) return NULL;
    kept->record = record;
    atomic_fetch_add(&record->content.holders, 1);
    record->keeps++;
    ks_kept **bucket = kept_bucket(reader, record);
    kept->chain = *bucket;
    *bucket = kept;
    return kept;
}

/* --- the table ---------------------------------------------------------------------------------------------------------------- */

static bool open_buckets(ks_reader *reader, size_t buckets)
{
    ks_reader_entry **entries = calloc(buckets, sizeof *entries);
    ks_kept **kept = calloc(buckets, sizeof *kept);
    if (!entries || !kept) {
        free(entries);
        free(kept);
        return false;
    }
    reader->entries = entries;
    reader->kept = kept;
    reader->buckets = buckets;
    return true;
}

/* Twice as many buckets; without memory for them the chains grow. */
static void grow(ks_reader *reader)
{
    const ks_reader old = {.entries = reader->entries, .kept = reader->kept, .buckets = reader->buckets};
    if (!open_buckets(reader, 2 * old.buckets)) return;
    for (size_t i = 0; i < old.buckets; i++) {
        for (ks_reader_entry *entry = old.entries[i], *next; entry; entry = next) {
            ks_reader_entry **bucket = entry_bucket(reader, entry->hash);
            next = entry->chain;
            entry->chain = *bucket;
            *bucket = entry;
        }
        for (ks_kept *kept = old.kept[i], *next; kept; kept = next) {
            ks_kept **bucket = kept_bucket(reader, kept->record);
            next = kept->chain;
            kept->chain = *bucket;
            *bucket = kept;
        }
    }
    free(old.entries);
    free(old.kept);
}

ks_reader *ks_reader_open(ks_store *store)
{
    ks_reader *reader = calloc(1, sizeof *reader);
    if (!reader || !open_buckets(reader, BUCKETS_LEAST)) {
        free(reader);
        return NULL;
    }
    reader->store = store;
    pthread_mutex_lock(&store->lock);
    reader->next = store->readers;
    store->readers = reader;
    pthread_mutex_unlock(&store->lock);
    return reader;
}

/* With the lock: the counts of the reader become the store's, and its entries those of no name. */
static void detach(ks_reader *reader)
{
    ks_store *store = reader->store;
    ks_reader **link = &store->readers;
    while (*link != reader) link = &(*link)->next;
    *link = reader->next;
    store->lookups[KS_LOOKUP_HIT] += atomic_load(&reader->hits);
    for (size_t i = 0; i < reader->buckets; i++)
        for (ks_reader_entry *entry = reader->entries[i]; entry; entry = entry->chain)
            if (entry->name) ks_name_forget_entry(entry);
    free_stale(reader);
}

void ks_reader_close(ks_reader **closed)
{
    ks_reader *reader = *closed;
    *closed = NULL;
    if (!reader) return;
    ks_store *store = reader->store;
    pthread_mutex_lock(&store->lock);
    detach(reader);
    pthread_mutex_unlock(&store->lock);
    free(reader->entries);
    free(reader->kept);
    free(reader);
}

/* --- look-ups ----------------------------------------------------------------------------------------------------------------- */

static void count_use(ks_reader *reader, ks_reader_entry *entry)
{
    const uint64_t uses = atomic_load_explicit(&entry->uses, memory_order_relaxed);
    const uint64_t hits = atomic_load_explicit(&reader->hits, memory_order_relaxed);
    atomic_store_explicit(&entry->uses, uses + 1, memory_order_relaxed);
    atomic_store_explicit(&reader->hits, hits + 1, memory_order_relaxed);
    atomic_store_explicit(&entry->last_ns, reader->store->options.now_ns(), memory_order_relaxed);
}

/* With the lock: an entry for a name that has a content, in use once. NULL: no memory. */
static ks_reader_entry *make_entry(ks_reader *reader, uint32_t hash, const ks_tenant *tenant, ks_tensor_name *name)
{
    ks_reader_entry *entry = new_entry(reader, tenant, name->text, name->length);
    ks_kept *kept = entry ? keep(reader, name->record) : NULL;
    if (!kept) {
        free(entry);
        return NULL;
    }
    atomic_fetch_add(&kept->uses, 1);
    atomic_store(&kept->orphaned, false);
    kept->entries++;
    kept->leads++;
    entry->kept = kept;
    entry->name = name;
    entry->next = name->entries;
    name->entries = entry;
    entry->hash = hash;
    ks_reader_entry **bucket = entry_bucket(reader, hash);
    entry->chain = *bucket;
    *bucket = entry;
    if (++reader->count > reader->buckets) grow(reader);
    return entry;
}

static ks_status look_up(ks_reader *reader, uint32_t hash, const ks_tenant *tenant, const char *text, size_t length,
                         ks_reader_entry **out, ks_error *error)
{
    ks_store *store = reader->store;
    pthread_mutex_lock(&store->lock);
    free_stale(reader);
    ks_tensor_name *name = ks_name_resolve(store, tenant, text, length);
    ks_status status = ks_name_check(store, name, tenant, text, length, error);
    if (status == KS_LOST) store->lookups[KS_LOOKUP_LOST]++;
    if (status == KS_TENSOR) store->lookups[KS_LOOKUP_UNKNOWN]++;
    if (status == KS_OK) *out = make_entry(reader, hash, tenant, name);
    if (status == KS_OK && !*out) status = ks_fail(error, KS_MEMORY, "no memory to look tensor '%s' up", name->text);
    pthread_mutex_unlock(&store->lock);
    return status;
}

ks_status ks_reader_hold(ks_reader *reader, const ks_tenant *tenant, const char *name, size_t length, ks_content **out,
                         ks_error *error)
{
    const uint32_t hash = hash_of(tenant, name, length);
    ks_reader_entry *entry = find_entry(reader, hash, tenant, name, length);
    if (!entry || !begin_use(entry->kept)) {
        const ks_status status = look_up(reader, hash, tenant, name, length, &entry, error);
        if (status != KS_OK) return status;
    }
    count_use(reader, entry);
    *out = &entry->kept->record->content;
    return KS_OK;
}

void ks_reader_release(ks_reader *reader, ks_content **content)
{
    ks_kept *kept = find_kept(reader, (ks_content_record *)(void *)*content);
    *content = NULL;
    if (atomic_fetch_sub(&kept->uses, 1) > 1 || !atomic_load(&kept->orphaned) || !give_up(kept)) return;
    drop_hold(reader->store, kept);
    if (kept->leads == 0) free_kept(reader, kept);
}
