/* Lists of tensors: this worker's, and with those that other ones have alone.
 *
 * Owns      nothing.
 * Interface store.h: ks_store_list, ks_store_list_all
 * Threads   any: the store's lock. */
#include <stdlib.h>
#include <string.h>

#include "resident/parts.h"

/* The next one of the tenant's and of those that all may read, in one order. */
static ks_tensor_name *next_of_both(const ks_store *store, const ks_owner *owner, const char *prefix, const char *after)
{
    ks_tensor_name *own = ks_name_behind(owner, prefix, after);
    ks_tensor_name *common = ks_name_behind(store->common, prefix, after);
    if (!own || !common) return own ? own : common;
    return strcmp(own->text, common->text) <= 0 ? own : common;
}

int ks_store_list(ks_store *store, const ks_tenant *tenant, const char *prefix, const char *after, int most,
                  ks_tensor_entry *out, bool *more)
{
    int count = 0;
    pthread_mutex_lock(&store->lock);
    const ks_owner *owner = ks_owner_find(store, tenant->name);
    const ks_tensor_name *name = next_of_both(store, owner, prefix, after);
    for (; name && count < most; count++) {
        ks_name_fill(store, name, &out[count]);
        name = next_of_both(store, owner, prefix, name->text);
    }
    *more = name != NULL;
    pthread_mutex_unlock(&store->lock);
    return count;
}

typedef struct listed {
    ks_tensor_entry *entry;
    int count;
} listed;

/* Both lists in one order. A name that is lost here, as one of all workers, may be another one's since. */
static int merge(const listed *own, const listed *others, int most, ks_tensor_entry *out)
{
    int count = 0, i = 0, k = 0;
    while (count < most && (i < own->count || k < others->count)) {
        const int order = i == own->count      ? 1
                          : k == others->count ? -1
                                               : strcmp(own->entry[i].name, others->entry[k].name);
        const bool takes_own = order < 0 || (order == 0 && !own->entry[i].lost);
        out[count++] = takes_own ? own->entry[i] : others->entry[k];
        i += order <= 0;
        k += order >= 0;
    }
    return count;
}

int ks_store_list_all(ks_store *store, const ks_list_part *part, ks_tensor_entry *out, bool *more)
{
    const size_t room = (size_t)part->most * sizeof *out;
    listed own = {.count = ks_store_list(store, part->tenant, part->prefix, part->after, part->most, out, more)},
           others = {0};
    bool more_others = false;
    if (!ks_placed_has_any(&store->options.placed)) return own.count;
    own.entry = malloc(room);
    others.entry = own.entry ? malloc(room) : NULL;
    if (others.entry) others.count = ks_placed_list(&store->options.placed, part, others.entry, &more_others);
    int count = own.count;
    if (others.count > 0) {
        memcpy(own.entry, out, (size_t)own.count * sizeof *out);
        count = merge(&own, &others, part->most, out);
        *more = *more || more_others || (count == part->most && count < own.count + others.count);
    }
    free(own.entry);
    free(others.entry);
    return count;
}
