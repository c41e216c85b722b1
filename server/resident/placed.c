/* Owns      the form of the table: rows, chains of them by a hash, and a list of those that are free.
 * Interface placed.h
 * Threads   any: the lock, but for a chain that is empty, which none ever is whose names stay. A row counts once it is used, which is written
 *           last; so a process that dies amid a change leaves chains that may be wrong, and rows that are right: `torn` says that the chains
 *           are to be made anew. */
#include "resident/placed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "observe/workers/ballot.h"
#include "resident/parts.h"

enum { BUCKETS = KS_PLACED_MAX, ANNOUNCED = 1 << 16 };

typedef struct placed_row {
    _Atomic bool used;
    bool filled, evictable;
    int row, pid;    /* of the worker, and its process */
    uint32_t next;   /* of its chain, or of the free ones: an index + 1; 0: none */
    int64_t lost_ns; /* since when it is known that the process has ended; 0: it is not */
    int64_t ttl_s;
    uint64_t bytes;
    int64_t dims[KS_RANK_MAX];
    int dtype, rank;
    char tenant[KS_TENANT_NAME_MAX + 1], name[KS_TENSOR_NAME_MAX + 1], etag[KS_ETAG_MAX + 1];
} placed_row;

typedef struct placed_table {
    _Atomic bool torn;      /* it is being changed, or a process has died amid that */
    _Atomic uint32_t count; /* used ones */
    uint32_t free;          /* as next: of those that were used before; */
    uint32_t fresh;         /* from here on none was: their pages are not there */
    uint32_t change;        /* whose names are announced: bits by a hash */
    uint64_t announced[ANNOUNCED / 64];
    _Atomic uint32_t chain[BUCKETS]; /* of rows, by a hash; as next */
    placed_row rows[KS_PLACED_MAX];
} placed_table;
_Static_assert(sizeof(placed_table) <= KS_PLACED_BYTES, "the table of workers has room for it");

static placed_table *table_of(const ks_placed *self)
{
    return (placed_table *)(void *)((char *)self->workers + self->workers->placed_at);
}

/* FNV-1a, of the tenant, too. */
static uint32_t hash_of(const char *tenant, const char *name, size_t length)
{
    uint32_t hash = 2166136261u;
    for (; *tenant; tenant++) hash = (hash ^ (unsigned char)*tenant) * 16777619u;
    hash *= 16777619u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return hash ^ hash >> 16;
}

static uint32_t chain_of(const char *tenant, const char *name, size_t length)
{
    return hash_of(tenant, name, length) % BUCKETS;
}

/* --- the lock ----------------------------------------------------------------------------------------------------- */

/* Aside, and then in place of the old ones. */
static void make_chains(placed_table *table)
{
    static uint32_t first[BUCKETS]; /* the lock's */
    uint32_t count = 0;
    table->free = 0;
    memset(first, 0, sizeof first);
    for (uint32_t i = table->fresh; i-- > 0;) {
        placed_row *row = &table->rows[i];
        if (atomic_load(&row->used)) {
            uint32_t *chain = &first[chain_of(row->tenant, row->name, strlen(row->name))];
            row->next = *chain;
            *chain = i + 1;
            count++;
        } else {
            row->next = table->free;
            table->free = i + 1;
        }
    }
    for (int i = 0; i < BUCKETS; i++) atomic_store(&table->chain[i], first[i]);
    atomic_store(&table->count, count);
}

/* The table, locked; NULL: not now. */
static placed_table *lock(const ks_placed *self)
{
    placed_table *table = table_of(self);
    if (!ks_workers_lock(&self->workers->placer, self->pid, KS_PLACED_WAIT_NS)) return NULL;
    if (atomic_exchange(&table->torn, true)) make_chains(table); /* no change comes before it */
    return table;
}

static void unlock(const ks_placed *self, placed_table *table)
{
    atomic_store(&table->torn, false); /* nor behind it */
    ks_workers_unlock(&self->workers->placer, self->pid);
}

static ks_status no_lock(ks_error *error)
{
    return ks_fail(error, KS_UNAVAILABLE, "another worker keeps the table of tensors' places: ask again");
}

/* --- rows; the lock is held ---------------------------------------------------------------------------------------- */

static placed_row *find(placed_table *table, const char *tenant, const char *name, size_t length)
{
    for (uint32_t i = atomic_load(&table->chain[chain_of(tenant, name, length)]); i; i = table->rows[i - 1].next) {
        placed_row *row = &table->rows[i - 1];
        if (strcmp(row->tenant, tenant) == 0 && strncmp(row->name, name, length) == 0 && row->name[length] == '\0')
            return row;
    }
    return NULL;
}

static placed_row *add(placed_table *table, const char *tenant, const char *name)
{
    if (!table->free && table->fresh == KS_PLACED_MAX) return NULL;
    const uint32_t index = table->free ? table->free : ++table->fresh;
    placed_row *row = &table->rows[index - 1];
    _Atomic uint32_t *chain = &table->chain[chain_of(tenant, name, strlen(name))];
    if (table->free) table->free = row->next;
    snprintf(row->tenant, sizeof row->tenant, "%s", tenant);
    snprintf(row->name, sizeof row->name, "%s", name);
    row->next = atomic_load(chain);
    atomic_store(chain, index);
    atomic_fetch_add(&table->count, 1);
    return row;
}

static void remove_row(placed_table *table, placed_row *row)
{
    const uint32_t index = (uint32_t)(row - table->rows) + 1;
    _Atomic uint32_t *chain = &table->chain[chain_of(row->tenant, row->name, strlen(row->name))];
    atomic_store(&row->used, false);
    if (atomic_load(chain) == index) {
        atomic_store(chain, row->next);
    } else {
        placed_row *before = &table->rows[atomic_load(chain) - 1];
        while (before->next != index) before = &table->rows[before->next - 1];
        before->next = row->next;
    }
    row->next = table->free;
    table->free = index;
    atomic_fetch_sub(&table->count, 1);
}

static bool is_lost(const ks_placed *self, const placed_row *row)
{
    return atomic_load(&self->workers->row[row->row].pid) != row->pid;
}

static ks_placing placing_of(const ks_placed *self, const placed_row *row)
{
    if (!row) return KS_PLACED_NOWHERE;
    if (is_lost(self, row)) return KS_PLACED_GONE;
    return row->row == self->row ? KS_PLACED_HERE : KS_PLACED_ELSEWHERE;
}

/* --- interface ----------------------------------------------------------------------------------------------------- */

bool ks_placed_has_any(const ks_placed *self)
{
    return ks_placed_is(self) && atomic_load_explicit(&table_of(self)->count, memory_order_relaxed) > 0;
}

ks_placing ks_placed_find(const ks_placed *self, const char *tenant, const char *name, size_t length, int *row)
{
    if (!ks_placed_is(self) || length > KS_TENSOR_NAME_MAX) return KS_PLACED_NOWHERE;
    if (atomic_load(&table_of(self)->chain[chain_of(tenant, name, length)]) == 0) return KS_PLACED_NOWHERE;
    placed_table *table = lock(self);
    if (!table) return KS_PLACED_UNKNOWN;
    const placed_row *found = find(table, tenant, name, length);
    const ks_placing placing = placing_of(self, found);
    if (found) *row = found->row;
    unlock(self, table);
    return placing;
}

ks_status ks_placed_explain(const ks_placed *self, const char *tenant, const char *text, size_t length, ks_error *error)
{
    int row = 0;
    const ks_placing placing = ks_placed_find(self, tenant, text, length, &row);
    if (placing == KS_PLACED_NOWHERE || placing == KS_PLACED_HERE) return KS_OK;
    if (placing == KS_PLACED_UNKNOWN) return no_lock(error);
    const ks_worker_row *worker = &self->workers->row[row];
    const int device = worker->device, own = self->workers->row[self->row].device;
    const ks_quote name = ks_quoted(text, length);
    if (placing == KS_PLACED_GONE)
        return ks_fail(error, KS_LOST, "tensor '%s' was lost when the worker of device %d ended: put it again",
                       name.text, device);
    if (!ks_worker_serves(worker, ks_now_ns()))
        return ks_fail(error, KS_UNAVAILABLE, "tensor '%s' is on device %d, whose worker does not serve now", name.text,
                       device);
    return ks_fail(error, KS_PLACED,
                   "tensor '%s' is on device %d alone, and this is device %d: a request names tensors of one device; a "
                   "query with device=%d in front leads there, by HTTP/1.1 without TLS",
                   name.text, device, own, device);
}

bool ks_placed_announce(const ks_placed *self, uint32_t change, const char *tenant, const char *name)
{
    placed_table *table = lock(self);
    const uint32_t bit = hash_of(tenant, name, strlen(name)) % ANNOUNCED;
    if (!table) return false;
    if (table->change != change) memset(table->announced, 0, sizeof table->announced);
    table->change = change;
    table->announced[bit / 64] |= UINT64_C(1) << bit % 64;
    unlock(self, table);
    return true;
}

/* A change goes on as long as its process has the lock of changes. */
static bool is_announced(const ks_placed *self, const placed_table *table, const char *tenant, const char *name)
{
    const uint32_t bit = hash_of(tenant, name, strlen(name)) % ANNOUNCED;
    const bool goes_on = atomic_load(&self->workers->changer) != 0 && table->change == ks_ballot_number(self->workers);
    return goes_on && table->announced[bit / 64] >> bit % 64 & 1;
}

ks_status ks_placed_claim(const ks_placed *self, const char *tenant, const char *name, bool *made, ks_error *error)
{
    placed_table *table = lock(self);
    *made = false;
    if (!table) return no_lock(error);
    placed_row *row = find(table, tenant, name, strlen(name));
    const ks_placing placing = placing_of(self, row);
    ks_status status = KS_OK;
    if (placing == KS_PLACED_ELSEWHERE)
        status = ks_fail(error, KS_PLACED, "tensor '%s' is on device %d: DELETE it before it is put on another one",
                         name, self->workers->row[row->row].device);
    const bool is_free = placing == KS_PLACED_GONE || placing == KS_PLACED_NOWHERE;
    if (is_free && is_announced(self, table, tenant, name)) {
        unlock(self, table);
        return ks_fail(error, KS_UNAVAILABLE, "tensor '%s' is being put on all devices: ask again", name);
    }
    if (placing == KS_PLACED_NOWHERE) {
        row = add(table, tenant, name);
        if (!row)
            status = ks_fail(error, KS_RESIDENT_FULL,
                             "%d tensors are each on one device alone, as many as there may be", KS_PLACED_MAX);
    }
    *made = is_free && row;
    if (*made) { /* the row of a lost name stays where it is: no look-up misses it meanwhile */
        row->row = self->row;
        row->pid = self->pid;
        row->filled = false;
        row->lost_ns = 0;
        atomic_store(&row->used, true);
    }
    unlock(self, table);
    return status;
}

void ks_placed_fill(const ks_placed *self, const char *tenant, const ks_tensor_entry *entry)
{
    placed_table *table = lock(self);
    placed_row *row = table ? find(table, tenant, entry->name, strlen(entry->name)) : NULL;
    if (row) {
        row->dtype = (int)entry->tensor.dtype;
        row->rank = entry->tensor.rank;
        memcpy(row->dims, entry->tensor.dims, sizeof row->dims);
        row->bytes = entry->tensor.size_bytes;
        memcpy(row->etag, entry->etag, sizeof row->etag);
        row->ttl_s = entry->ttl_s;
        row->evictable = entry->evictable;
        row->filled = true;
    }
    if (table) unlock(self, table);
}

bool ks_placed_drop(const ks_placed *self, const char *tenant, const char *name)
{
    int ignored;
    const ks_placing seen = ks_placed_find(self, tenant, name, strlen(name), &ignored);
    if (seen == KS_PLACED_NOWHERE || seen == KS_PLACED_ELSEWHERE) return false;
    placed_table *table = lock(self);
    placed_row *row = table ? find(table, tenant, name, strlen(name)) : NULL;
    const ks_placing placing = placing_of(self, row);
    if (placing == KS_PLACED_HERE || placing == KS_PLACED_GONE) remove_row(table, row);
    if (table) unlock(self, table);
    return placing == KS_PLACED_GONE;
}

static void fill(const ks_placed *self, const placed_row *row, ks_tensor_entry *entry)
{
    memset(entry, 0, sizeof *entry);
    memcpy(entry->name, row->name, sizeof entry->name);
    memcpy(entry->etag, row->etag, sizeof entry->etag);
    entry->tensor.dtype = (ks_dtype)row->dtype;
    entry->tensor.rank = row->rank;
    memcpy(entry->tensor.dims, row->dims, sizeof row->dims);
    entry->tensor.size_bytes = row->bytes;
    entry->ttl_s = row->ttl_s;
    entry->evictable = row->evictable;
    entry->lost = is_lost(self, row);
    entry->is_elsewhere = true;
    entry->is_placed = true;
    entry->device = self->workers->row[row->row].device;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ks_tensor_entry *)a)->name, ((const ks_tensor_entry *)b)->name);
}

static bool is_listed(const ks_placed *self, const placed_row *row, const ks_list_part *part)
{
    if (!atomic_load(&row->used) || !row->filled || strcmp(row->tenant, part->tenant->name) != 0) return false;
    if (strncmp(row->name, part->prefix, strlen(part->prefix)) != 0 || strcmp(row->name, part->after) <= 0)
        return false;
    return placing_of(self, row) != KS_PLACED_HERE;
}

int ks_placed_list(const ks_placed *self, const ks_list_part *part, ks_tensor_entry *out, bool *more)
{
    *more = false;
    if (!ks_placed_has_any(self)) return 0;
    placed_table *table = lock(self);
    if (!table) return 0;
    uint32_t left = atomic_load(&table->count);
    ks_tensor_entry *all = malloc((left + 1) * sizeof *all);
    int count = 0;
    for (int i = 0; all && i < KS_PLACED_MAX && left > 0; i++) {
        left -= atomic_load(&table->rows[i].used);
        if (is_listed(self, &table->rows[i], part)) fill(self, &table->rows[i], &all[count++]);
    }
    unlock(self, table);
    if (count > 0) qsort(all, (size_t)count, sizeof *all, by_name);
    *more = count > part->most;
    if (*more) count = part->most;
    if (count > 0) memcpy(out, all, (size_t)count * sizeof *all);
    free(all);
    return count;
}

void ks_placed_turn(const ks_placed *self, int64_t ttl_s)
{
    if (!ks_placed_has_any(self)) return;
    placed_table *table = lock(self);
    if (!table) return;
    const int64_t now_ns = ks_now_ns();
    uint32_t left = atomic_load(&table->count);
    for (int i = 0; i < KS_PLACED_MAX && left > 0; i++) {
        placed_row *row = &table->rows[i];
        if (!atomic_load(&row->used)) continue;
        left--;
        if (!is_lost(self, row)) continue;
        if (row->lost_ns == 0) row->lost_ns = now_ns;
        if (ttl_s > 0 && now_ns - row->lost_ns > ttl_s * KS_SECOND_NS) remove_row(table, row);
    }
    unlock(self, table);
}
