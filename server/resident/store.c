/* Resident tensors: what a client asks for, as one step.
 *
 * Owns      the store, its lock and its counts.
 * Interface store.h
 * Threads   any; one lock. A change checks everything and takes what it may lack before it touches anything.
 * Limits    KS_TENSORS_MAX names; bytes: room.c. */
#include "resident/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "resident/parts.h"

/* --- open and close ------------------------------------------------------------------------------------------------------ */

static ks_status add_lost(ks_store *store, int slot, const ks_recorded *recorded, ks_error *error)
{
    ks_owner *owner = ks_owner_make(store, recorded->tenant);
    const size_t length = strlen(recorded->name);
    ks_tensor_name *name =
        owner && !ks_name_find(owner, recorded->name, length) ? ks_name_new(recorded->name, length) : NULL;
    if (!name) return ks_fail(error, KS_MEMORY, "no memory for the names of lost tensors");
    ks_name_link(store, owner, name);
    name->slot = slot;
    ks_name_lose(store, name, store->options.ttl_s);
    return KS_OK;
}

/* What a process before this one had stored. */
static ks_status read_record(ks_store *store, ks_error *error)
{
    if (store->options.record_fd < 0) return KS_OK;
    ks_status status = ks_name_record_open(store->options.record_fd, &store->record, error);
    ks_recorded recorded;
    for (int slot = 0; status == KS_OK && slot < ks_name_record_slots(store->record); slot++)
        if (ks_name_record_read(store->record, slot, &recorded)) status = add_lost(store, slot, &recorded, error);
    return status;
}

ks_status ks_store_open(const ks_store_options *options, ks_store **out, ks_error *error)
{
    ks_store *store = calloc(1, sizeof *store);
    if (!store) return ks_fail(error, KS_MEMORY, "no memory for the store of tensors");
    store->options = *options;
    store->labels = (uint64_t)options->placed.row << 48; /* two workers may be of one generation */
    if (!store->options.now_ns) store->options.now_ns = ks_now_ns;
    pthread_mutex_init(&store->lock, NULL);
    store->common = calloc(1, sizeof *store->common);
    ks_status status = store->common ? KS_OK : ks_fail(error, KS_MEMORY, "no memory for the store of tensors");
    if (status == KS_OK)
        status = options->backend->resident->reserve(options->device, options->limit_bytes, &store->limit_bytes, error);
    if (status == KS_OK) status = read_record(store, error);
    if (status == KS_OK)
        *out = store;
    else
        ks_store_close(&store);
    return status;
}

/* In memory of the process: the supervisor's record of names stays as it is. */
static void close_owner(ks_store *store, ks_owner *owner)
{
    for (ks_tensor_name *name; (name = ks_name_behind(owner, "", "")) != NULL;) {
        name->slot = -1;
        ks_name_remove(store, &name);
    }
}

void ks_store_close(ks_store **closed)
{
    ks_store *store = *closed;
    *closed = NULL;
    if (!store) return;
    store->options.placed.workers = NULL; /* the table of all workers stays as well: its names are lost */
    if (store->common) close_owner(store, store->common);
    for (ks_owner *owner = store->owners; owner; owner = owner->next) close_owner(store, owner);
    ks_owner_sweep(store);
    free(store->common);
    ks_name_record_close(&store->record);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

uint64_t ks_store_generation(const ks_store *store)
{
    return store->options.generation;
}

/* [A-Za-z0-9_.-], 1 to 128 bytes, neither . nor - in front. */
ks_status ks_tensor_name_check(const char *name, size_t length, ks_error *error)
{
    bool good = length > 0 && length <= KS_TENSOR_NAME_MAX && name[0] != '.' && name[0] != '-';
    for (size_t i = 0; good && i < length; i++) {
        const char c = name[i];
        good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
               c == '-';
    }
    if (good) return KS_OK;
    return ks_fail(error, KS_NAME, "a tensor's name has 1 to %d bytes of [A-Za-z0-9_.-], neither . nor - in front",
                   KS_TENSOR_NAME_MAX);
}

/* --- conditions; the lock is held ------------------------------------------------------------------------------------------ */

static ks_status check_match(const ks_tensor_name *found, const char *text, const char *if_match, ks_error *error)
{
    if (!if_match) return KS_OK;
    if (!found || !found->record)
        return ks_fail(error, KS_PRECONDITION, "there is no tensor '%s', which If-Match asks for", text);
    const char *etag = found->record->content.etag;
    if (strcmp(if_match, "*") == 0 || strcmp(if_match, etag) == 0) return KS_OK;
    return ks_fail(error, KS_PRECONDITION, "tensor '%s' has the ETag \"%s\", If-Match asks for \"%s\"", text, etag,
                   ks_quoted(if_match, strlen(if_match)).text);
}

static ks_status check_read_only(const ks_tensor_name *found, ks_error *error)
{
    if (!found || !found->read_only) return KS_OK;
    return ks_fail(error, KS_READ_ONLY, "tensor '%s' was loaded at start, and is read-only", found->text);
}

static ks_tensor_name *resolve(const ks_store *store, const ks_tenant *tenant, const char *text)
{
    return ks_name_resolve(store, tenant, text, strlen(text));
}

/* Of several workers: where a name is does not change by a PUT. That of all of them has one word of them all behind it when it is made
 * (api/changes): what is in its way by then goes. */
static ks_status check_placement(const ks_store *store, const ks_put *put, ks_error *error)
{
    const ks_placed *placed = &store->options.placed;
    int row = placed->row;
    if (!ks_placed_is(placed)) return KS_OK;
    const ks_tensor_name *found = resolve(store, put->tenant, put->name);
    const bool there = found && found->record;
    const ks_placing placing = there && found->placed ? KS_PLACED_HERE
                               : there                ? KS_PLACED_NOWHERE
                                       : ks_placed_find(placed, put->tenant->name, put->name, strlen(put->name), &row);
    if (put->is_placed && there && !found->placed)
        return ks_fail(error, KS_PLACED, "tensor '%s' is on all devices: DELETE it before it is put on one alone",
                       put->name);
    if (placing == KS_PLACED_UNKNOWN)
        return ks_fail(error, KS_UNAVAILABLE, "whether a device has tensor '%s' alone is not known now: ask again",
                       put->name);
    if (placing != KS_PLACED_ELSEWHERE && (placing != KS_PLACED_HERE || put->is_placed)) return KS_OK;
    const int device = placed->workers->row[row].device;
    return ks_fail(error, KS_PLACED,
                   "tensor '%s' is on device %d alone: put it there with device=%d, or DELETE it first", put->name,
                   device, device);
}

/* created: names that the same request makes before this one. */
static ks_status check_put(const ks_store *store, const ks_put *put, uint64_t created, ks_error *error)
{
    const ks_tensor_name *found = resolve(store, put->tenant, put->name);
    const ks_owner *owner = ks_owner_find(store, put->tenant->name);
    ks_status status = check_read_only(found, error);
    if (status == KS_OK) status = check_match(found, put->name, put->if_match, error);
    if (status != KS_OK) return status;
    if (found && found->record) {
        if (put->only_new) return ks_fail(error, KS_PRECONDITION, "there is a tensor '%s' already", put->name);
        return KS_OK;
    }
    const uint64_t quota = put->tenant->tensors, tensors = (owner ? owner->tensors : 0) + created;
    if (quota && tensors >= quota)
        return ks_fail(error, KS_QUOTA, "tenant '%s' has %" PRIu64 " tensors, as many as it may have",
                       put->tenant->name, tensors);
    if (!found && store->names + created >= KS_TENSORS_MAX)
        return ks_fail(error, KS_RESIDENT_FULL, "%d tensors are stored, as many as there may be", KS_TENSORS_MAX);
    return KS_OK;
}

ks_status ks_store_check(ks_store *store, const ks_put *put, ks_error *error)
{
    pthread_mutex_lock(&store->lock);
    ks_status status = check_put(store, put, 0, error);
    if (status == KS_OK) status = check_placement(store, put, error);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* --- publish and link ------------------------------------------------------------------------------------------------------- */

/* With the lock: where the put's name will be. All tenants may read the preloaded ones. NULL: no memory. */
static ks_owner *owner_of(ks_store *store, const ks_put *put)
{
    return put->read_only ? store->common : ks_owner_make(store, put->tenant->name);
}

/* What a change of names takes beforehand, so that nothing can fail afterwards. */
typedef struct made_names {
    ks_tensor_name **name; /* for each put that makes one */
    bool *claims;          /* of the table of names that one worker has alone */
    bool tries;            /* nothing is changed yet */
} made_names;

static bool make_room(made_names *made, int count, bool tries)
{
    *made = (made_names){.tries = tries,
                         .name = calloc((size_t)count + 1, sizeof *made->name),
                         .claims = calloc((size_t)count + 1, sizeof *made->claims)};
    return made->name && made->claims;
}

/* published: what it claims is its own. */
static void end_made(ks_store *store, made_names *made, const ks_put *puts, int count, bool published)
{
    for (int i = 0; i < count; i++) {
        if (made->name) free(made->name[i]);
        if (made->claims && made->claims[i] && !published)
            ks_placed_drop(&store->options.placed, puts[i].tenant->name, puts[i].name);
    }
    free(made->name);
    free(made->claims);
}

/* Of several workers a change of all was tried before, in each: since then one alone could have changed what it has alone, which is not to
 * keep it from what all do. */
static bool is_agreed(const ks_store *store, const ks_put *put, const made_names *made)
{
    return ks_placed_is(&store->options.placed) && !made->tries && !put->is_placed && !put->read_only;
}

/* With the lock. */
static ks_status prepare_one(ks_store *store, const ks_put *put, made_names *made, int i, uint64_t *created,
                             ks_error *error)
{
    ks_status status = is_agreed(store, put, made) ? KS_OK : check_put(store, put, *created, error);
    if (status == KS_OK && put->is_placed) status = check_placement(store, put, error);
    if (status != KS_OK) return status;
    ks_owner *owner = owner_of(store, put);
    if (!owner || !ks_name_find(owner, put->name, strlen(put->name))) {
        made->name[i] = owner ? ks_name_new(put->name, strlen(put->name)) : NULL;
        if (!made->name[i]) return ks_fail(error, KS_MEMORY, "no memory for the name of a tensor");
        ++*created;
    }
    if (!put->is_placed) return KS_OK;
    return ks_placed_claim(&store->options.placed, put->tenant->name, put->name, &made->claims[i], error);
}

static ks_status prepare(ks_store *store, const ks_put *puts, made_names *made, int count, ks_error *error)
{
    uint64_t created = 0;
    ks_status status = KS_OK;
    for (int i = 0; i < count && status == KS_OK; i++) status = prepare_one(store, &puts[i], made, i, &created, error);
    return status;
}

/* With the lock: what the table of all workers says of the name. */
static void place_name(const ks_store *store, const ks_tensor_name *name)
{
    const ks_placed *placed = &store->options.placed;
    ks_tensor_entry entry;
    if (!name->placed) {
        ks_placed_drop(placed, name->owner->name, name->text);
        return;
    }
    ks_name_fill(store, name, &entry);
    ks_placed_fill(placed, name->owner->name, &entry);
}

/* With the lock: the name for the record, which holds it from now on, too. *held: the caller's hold of it, if it has one; let go. */
static ks_put_outcome put_name(ks_store *store, const ks_put *put, ks_content_record *record, ks_tensor_name **made,
                               ks_content **held, ks_tensor_entry *entry)
{
    ks_owner *owner = owner_of(store, put);
    ks_tensor_name *name = ks_name_find(owner, put->name, strlen(put->name));
    if (!name) {
        name = *made;
        *made = NULL;
        ks_name_link(store, owner, name);
    }
    const ks_content_record *before = name->record;
    const ks_put_outcome outcome = !before ? KS_PUT_CREATED : before == record ? KS_PUT_UNCHANGED : KS_PUT_REPLACED;
    const bool was_placed = name->placed;
    ks_name_set(store, name, record, put);
    if (outcome == KS_PUT_REPLACED) store->gone[KS_GONE_REPLACED]++;
    if (put->is_placed || was_placed || !before) place_name(store, name);
    if (*held == &record->content) {
        atomic_fetch_sub(&record->content.holders, 1);
        *held = NULL;
    }
    if (entry) ks_name_fill(store, name, entry);
    return outcome;
}

/* With the lock: the record that stays of this one and an equal one that was there. */
static ks_content_record *publish(ks_content_record *record)
{
    ks_content_record *same = ks_content_find(record->owner, record->content.etag);
    if (same) {
        ks_content_learn_body(same, &record->content);
        ks_content_learn_form(same, &record->content);
    } else {
        ks_content_publish(record);
    }
    return same ? same : record;
}

ks_status ks_store_publish_take(ks_store *store, const ks_put *puts, ks_content **contents, int count,
                                ks_put_outcome *outcomes, ks_tensor_entry *entries, ks_error *error)
{
    made_names made;
    const bool has_room = make_room(&made, count, false);
    pthread_mutex_lock(&store->lock);
    ks_status status = has_room ? prepare(store, puts, &made, count, error)
                                : ks_fail(error, KS_MEMORY, "no memory for the names of %d tensors", count);
    for (int i = 0; i < count && status == KS_OK; i++) {
        ks_content_record *record = publish((ks_content_record *)(void *)contents[i]);
        store->put_bytes += contents[i]->tensor.size_bytes;
        outcomes[i] = put_name(store, &puts[i], record, &made.name[i], &contents[i], &entries[i]);
        store->puts[outcomes[i]]++;
    }
    end_made(store, &made, puts, count, status == KS_OK);
    pthread_mutex_unlock(&store->lock);
    for (int i = 0; i < count; i++)
        if (contents[i]) ks_content_release(&contents[i]);
    return status;
}

static ks_status no_content(const char *etag, ks_error *error)
{
    return ks_fail(error, KS_CONTENT, "no content with the etag %s is here: send it",
                   ks_quoted(etag, strlen(etag)).text);
}

ks_status ks_store_link(ks_store *store, const ks_put *put, const char *etag, ks_put_outcome *outcome,
                        ks_tensor_entry *entry, ks_error *error)
{
    made_names made;
    const bool has_room = make_room(&made, 1, false);
    pthread_mutex_lock(&store->lock);
    ks_status status = has_room ? prepare(store, put, &made, 1, error)
                                : ks_fail(error, KS_MEMORY, "no memory for the name of a tensor");
    ks_content_record *record = ks_content_find(ks_owner_find(store, put->tenant->name), etag);
    if (status == KS_OK && !record) status = no_content(etag, error);
    if (status == KS_OK) {
        ks_content *none = NULL;
        *outcome = put_name(store, put, record, &made.name[0], &none, entry);
        store->puts[KS_PUTS_LINKED]++;
    }
    end_made(store, &made, put, 1, status == KS_OK);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* With the lock, of a change of all that is tried: announced first, so that none has the name alone from then on. */
static ks_status check_announced(ks_store *store, const ks_put *put, ks_error *error)
{
    const ks_placed *placed = &store->options.placed;
    if (ks_placed_is(placed) && put->change && !ks_placed_announce(placed, put->change, put->tenant->name, put->name))
        return ks_fail(error, KS_UNAVAILABLE, "another worker keeps the table of tensors' places: ask again");
    return check_placement(store, put, error);
}

ks_status ks_store_may_publish(ks_store *store, const ks_put *puts, int count, ks_error *error)
{
    made_names made;
    const bool has_room = make_room(&made, count, true);
    pthread_mutex_lock(&store->lock);
    ks_status status = has_room ? prepare(store, puts, &made, count, error)
                                : ks_fail(error, KS_MEMORY, "no memory for the names of %d tensors", count);
    for (int i = 0; i < count && status == KS_OK; i++) status = check_announced(store, &puts[i], error);
    end_made(store, &made, puts, count, false);
    pthread_mutex_unlock(&store->lock);
    return status;
}

ks_status ks_store_may_link(ks_store *store, const ks_put *put, const char *etag, ks_content **out, ks_error *error)
{
    pthread_mutex_lock(&store->lock);
    ks_content_record *record = ks_content_find(ks_owner_find(store, put->tenant->name), etag);
    ks_status status = check_put(store, put, 0, error);
    if (status == KS_OK) status = check_announced(store, put, error);
    if (status == KS_OK && !record) status = no_content(etag, error);
    if (status == KS_OK) *out = ks_content_hold(&record->content);
    pthread_mutex_unlock(&store->lock);
    return status;
}

bool ks_store_has_body(ks_store *store, const ks_tenant *tenant, const unsigned char digest[KS_DIGEST_BYTES],
                       const ks_tensor *tensor, char etag[KS_ETAG_MAX + 1])
{
    pthread_mutex_lock(&store->lock);
    const ks_content_record *record = ks_content_find_body(ks_owner_find(store, tenant->name), digest, tensor);
    if (record) memcpy(etag, record->content.etag, sizeof record->content.etag);
    pthread_mutex_unlock(&store->lock);
    return record != NULL;
}

/* --- look-ups --------------------------------------------------------------------------------------------------------------- */

ks_status ks_store_hold(ks_store *store, const ks_tenant *tenant, const char *text, bool uses, ks_content **out,
                        ks_tensor_entry *entry, ks_error *error)
{
    pthread_mutex_lock(&store->lock);
    ks_tensor_name *name = resolve(store, tenant, text);
    const ks_status status = ks_name_check(store, name, tenant, text, strlen(text), error);
    store->lookups[status == KS_OK ? KS_LOOKUP_HIT : status == KS_LOST ? KS_LOOKUP_LOST : KS_LOOKUP_UNKNOWN]++;
    if (status == KS_OK) {
        if (uses) ks_name_use(store, name);
        if (entry) ks_name_fill(store, name, entry);
        *out = &name->record->content;
        atomic_fetch_add(&(*out)->holders, 1);
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* With the lock. */
static ks_status check_delete(const ks_store *store, const ks_tenant *tenant, const char *text, const char *if_match,
                              ks_error *error)
{
    const ks_tensor_name *name = resolve(store, tenant, text);
    ks_status status = name ? KS_OK : ks_name_check(store, NULL, tenant, text, strlen(text), error);
    if (status == KS_OK) status = check_read_only(name, error);
    if (status == KS_OK) status = check_match(name, text, if_match, error);
    return status;
}

ks_status ks_store_may_delete(ks_store *store, const ks_tenant *tenant, const char *text, const char *if_match,
                              ks_error *error)
{
    pthread_mutex_lock(&store->lock);
    const ks_tensor_name *name = resolve(store, tenant, text);
    ks_status status = check_delete(store, tenant, text, if_match, error);
    if (status == KS_OK && name->placed) /* which may go before all do it, and come again elsewhere */
        status = ks_fail(error, KS_PLACED, "tensor '%s' is on one device alone since: ask again", text);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* alone: what this worker has alone, or nothing. */
static ks_status delete_name(ks_store *store, const ks_tenant *tenant, const char *text, const char *if_match,
                             bool alone, ks_error *error)
{
    pthread_mutex_lock(&store->lock);
    ks_tensor_name *name = resolve(store, tenant, text);
    ks_status status = check_delete(store, tenant, text, if_match, error);
    if (status == KS_OK && alone && name->record && !name->placed)
        status = ks_fail(error, KS_UNAVAILABLE, "tensor '%s' is on all devices since: ask again", text);
    if (status == KS_OK) {
        store->gone[KS_GONE_DELETE]++;
        ks_name_remove(store, &name);
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}

ks_status ks_store_delete(ks_store *store, const ks_tenant *tenant, const char *text, const char *if_match,
                          ks_error *error)
{
    return delete_name(store, tenant, text, if_match, false, error);
}

ks_status ks_store_delete_placed(ks_store *store, const ks_tenant *tenant, const char *text, const char *if_match,
                                 ks_error *error)
{
    const ks_status status = delete_name(store, tenant, text, if_match, true, error);
    if (status != KS_OK && (status != KS_LOST || if_match)) return status;
    const bool forgets =
        ks_placed_drop(&store->options.placed, tenant->name, text); /* it was lost with another worker */
    if (status == KS_OK || !forgets) return status;
    error->status = KS_OK;
    return KS_OK;
}

bool ks_store_has_placed(const ks_store *store)
{
    return ks_placed_has_any(&store->options.placed);
}

int ks_store_placing(const ks_store *store, const char *tenant, const char *name, size_t length, int *row)
{
    return (int)ks_placed_find(&store->options.placed, tenant, name, length, row);
}

/* --- time and counts -------------------------------------------------------------------------------------------------------- */

void ks_store_turn(ks_store *store, int64_t now_ns)
{
    pthread_mutex_lock(&store->lock);
    for (int placed = 0; placed <= 1; placed++)
        for (ks_tensor_name *name; (name = ks_name_first_due(store, placed)) != NULL && name->due_ns <= now_ns;) {
            if (name->record && !placed && store->options.goes_together) break;
            if (name->record) store->gone[KS_GONE_TTL]++;
            ks_name_remove(store, &name);
        }
    ks_owner_sweep(store);
    pthread_mutex_unlock(&store->lock);
    ks_placed_turn(&store->options.placed, store->options.ttl_s);
}

/* --- for other workers ------------------------------------------------------------------------------------------------------ */

bool ks_store_first_due(ks_store *store, char tenant[KS_TENANT_NAME_MAX + 1], char text[KS_TENSOR_NAME_MAX + 1])
{
    pthread_mutex_lock(&store->lock);
    const ks_tensor_name *name = ks_name_first_due(store, false);
    const bool is_due = name && name->record && name->due_ns <= store->options.now_ns();
    if (is_due) {
        memcpy(tenant, name->owner->name, strlen(name->owner->name) + 1);
        memcpy(text, name->text, (size_t)name->length + 1);
    }
    pthread_mutex_unlock(&store->lock);
    return is_due;
}

void ks_store_prolong(ks_store *store, const char *tenant, const char *text, int64_t expires_in_s)
{
    pthread_mutex_lock(&store->lock);
    const ks_owner *owner = ks_owner_find(store, tenant);
    ks_tensor_name *name = owner ? ks_name_find(owner, text, strlen(text)) : NULL;
    const int64_t now_ns = store->options.now_ns();
    if (name && name->ttl_s > 0) name->last_ns = now_ns - (name->ttl_s - expires_in_s) * KS_SECOND_NS;
    pthread_mutex_unlock(&store->lock);
}

bool ks_store_tenant_at(ks_store *store, int index, char tenant[KS_TENANT_NAME_MAX + 1])
{
    pthread_mutex_lock(&store->lock);
    const ks_owner *owner = store->owners;
    for (; owner && index > 0; index--) owner = owner->next;
    if (owner) memcpy(tenant, owner->name, strlen(owner->name) + 1);
    pthread_mutex_unlock(&store->lock);
    return owner != NULL;
}

void ks_store_count_put(ks_store *store, bool aborted)
{
    atomic_fetch_add(aborted ? &store->puts_aborted : &store->puts_refused, 1);
}

void ks_store_time_put(ks_store *store, int64_t ns)
{
    pthread_mutex_lock(&store->lock);
    store->put_bucket[ks_metrics_bucket(ns)]++;
    store->put_ns += (uint64_t)ns;
    pthread_mutex_unlock(&store->lock);
}

void ks_store_read_stats(ks_store *store, ks_store_stats *out)
{
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&store->lock);
    out->tensors = store->tensors;
    out->bytes = store->bytes - store->form_bytes;
    out->form_bytes = store->form_bytes;
    out->limit_bytes = store->limit_bytes;
    out->generation = store->options.generation;
    out->put_bytes = store->put_bytes;
    memcpy(out->puts, store->puts, sizeof store->puts);
    memcpy(out->put_bucket, store->put_bucket, sizeof out->put_bucket);
    out->put_ns = store->put_ns;
    memcpy(out->gone, store->gone, sizeof out->gone);
    memcpy(out->lookups, store->lookups, sizeof out->lookups);
    for (const ks_reader *reader = store->readers; reader; reader = reader->next)
        out->lookups[KS_LOOKUP_HIT] += atomic_load_explicit(&reader->hits, memory_order_relaxed);
    pthread_mutex_unlock(&store->lock);
    out->puts[4] = atomic_load(&store->puts_refused);
    out->puts[5] = atomic_load(&store->puts_aborted);
    out->held_bytes = store->options.backend->resident->held(store->options.device);
}
