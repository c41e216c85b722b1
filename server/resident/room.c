/* Memory for contents: the daemon's limit, tenants' quotas, and what goes to make room.
 *
 * Interface store.h: ks_store_reserve, ks_store_begin_upload, ks_store_end_upload
 * Threads   any: the store's lock for the counts; the backend is asked without it, for that takes milliseconds.
 * Limits    bytes of tensors are counted, not what the backend needs around them. */
#include <inttypes.h>

#include "resident/parts.h"

/* The name whose last use is longest ago, of those that may go. Its content's memory is free once no request holds it. */
static bool evict_one(ks_store *store)
{
    ks_tensor_name *name = ks_name_first_idle(store);
    if (!name) return false;
    ks_name_remove(store, &name);
    store->gone[KS_GONE_EVICTED]++;
    return true;
}

static ks_status full(const ks_store *store, const char *what, size_t bytes, ks_error *error)
{
    const uint64_t limit = store->limit_bytes, used = store->bytes;
    return ks_fail(error, KS_RESIDENT_FULL,
                   "%s needs %zu bytes, %" PRIu64 " of %" PRIu64 " are free: delete one, put with evictable=1, or "
                   "raise --resident-bytes",
                   what, bytes, used < limit ? limit - used : 0, limit);
}

static ks_status over_quota(const ks_owner *owner, const ks_tenant *tenant, const char *what, size_t bytes,
                            ks_error *error)
{
    const uint64_t used = owner->bytes;
    return ks_fail(error, KS_QUOTA, "%s needs %zu bytes, %" PRIu64 " of the %" PRIu64 " bytes of tenant '%s' are free",
                   what, bytes, used < tenant->bytes ? tenant->bytes - used : 0, tenant->bytes, tenant->name);
}

/* With the lock: the content's record, counted, without memory. */
static ks_status count(ks_store *store, const ks_tenant *tenant, const char *what, const ks_tensor *tensor,
                       ks_content_record **out, ks_error *error)
{
    const size_t bytes = tensor->size_bytes;
    ks_owner *owner = ks_owner_make(store, tenant->name);
    if (!owner) return ks_fail(error, KS_MEMORY, "no memory for the record of a tenant");
    if (tenant->bytes && (bytes > tenant->bytes || owner->bytes > tenant->bytes - bytes))
        return over_quota(owner, tenant, what, bytes, error);
    const uint64_t firm = store->bytes - store->loose_bytes;
    if (bytes > store->limit_bytes || firm > store->limit_bytes - bytes) return full(store, what, bytes, error);
    while (store->bytes > store->limit_bytes - bytes && evict_one(store)) {
    }
    if (store->bytes > store->limit_bytes - bytes) return full(store, what, bytes, error);
    *out = ks_content_new(store, owner, tensor);
    return *out ? KS_OK : ks_fail(error, KS_MEMORY, "no memory for the record of %s", what);
}

/* Without the lock. The backend's own bounds may be narrower: what it keeps around contents, and what others took of the device. */
static ks_status take(ks_store *store, const char *what, ks_content *content, ks_error *error)
{
    const size_t bytes = content->tensor.size_bytes;
    for (bool evicted = true; evicted;) {
        const ks_status status =
            store->options.backend->resident->take(store->options.device, bytes, &content->memory, error);
        if (status != KS_RESIDENT_FULL) return status;
        pthread_mutex_lock(&store->lock);
        evicted = evict_one(store);
        if (!evicted) full(store, what, bytes, error);
        pthread_mutex_unlock(&store->lock);
    }
    return KS_RESIDENT_FULL;
}

ks_status ks_store_reserve(ks_store *store, const ks_tenant *tenant, const char *what, const ks_tensor *tensor,
                           ks_content **out, ks_error *error)
{
    ks_content_record *record = NULL;
    pthread_mutex_lock(&store->lock);
    ks_status status = count(store, tenant, what, tensor, &record, error);
    pthread_mutex_unlock(&store->lock);
    if (status != KS_OK) return status;
    ks_content *content = &record->content;
    status = take(store, what, content, error);
    if (status != KS_OK) {
        ks_content_release(&content);
        return status;
    }
    content->tensor.fixed = content->memory.in_device;
    *out = content;
    return KS_OK;
}

ks_status ks_store_begin_upload(ks_store *store, ks_error *error)
{
    const int most = store->options.uploads_max;
    if (atomic_fetch_add(&store->uploads, 1) < most) return KS_OK;
    atomic_fetch_sub(&store->uploads, 1);
    return ks_fail(error, KS_BUDGET, "%d uploads of tensors are under way, as many as may be (--tensor-uploads)", most);
}

void ks_store_end_upload(ks_store *store)
{
    atomic_fetch_sub(&store->uploads, 1);
}
