/* Memory for contents: the daemon's limit, tenants' quotas, and what goes to make room.
 *
 * Interface store.h: ks_store_reserve, ks_store_*_form, ks_store_begin_upload, ks_store_end_upload
 * Threads   any: the store's lock for the counts; the backend is asked without it, for that takes milliseconds.
 * Limits    bytes of tensors are counted, not what the backend needs around them. */
#include <inttypes.h>

#include "base/util.h"
#include "resident/parts.h"

enum { FORM_SLICE = 1 << 20 }; /* bytes of rows that are put at a time: 0.1 ms of a core */

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

/* --- forms -------------------------------------------------------------------------------------------------------- */

/* With the lock: whether there is room without others having to go; then it is the content's. */
static bool count_form(ks_store *store, const ks_tenant *tenant, ks_content_record *record, size_t bytes)
{
    ks_owner *owner = record->owner;
    const bool quota = tenant->bytes && (bytes > tenant->bytes || owner->bytes > tenant->bytes - bytes);
    if (quota || bytes > store->limit_bytes || store->bytes > store->limit_bytes - bytes) return false;
    owner->bytes += bytes;
    store->bytes += bytes;
    store->form_bytes += bytes;
    record->content.form_bytes = bytes;
    return true;
}

static void uncount_form(ks_store *store, ks_content_record *record)
{
    const size_t bytes = record->content.form_bytes;
    record->owner->bytes -= bytes;
    store->bytes -= bytes;
    store->form_bytes -= bytes;
    record->content.form_bytes = 0;
}

void ks_store_reserve_form(ks_store *store, const ks_tenant *tenant, ks_content *content, const ks_op *op)
{
    ks_content_record *record = (ks_content_record *)(void *)content;
    const ks_resident *resident = store->options.backend->resident;
    const int64_t pitch = op->pitch && resident->pack ? op->pitch(&content->tensor) : 0;
    if (pitch == 0) return;
    const int64_t rows = ks_tensor_count(&content->tensor) / content->tensor.dims[content->tensor.rank - 1];
    const size_t bytes = (size_t)rows * (size_t)pitch * ks_dtype_size(content->tensor.dtype);
    ks_error ignored;
    pthread_mutex_lock(&store->lock);
    bool taken = count_form(store, tenant, record, bytes);
    pthread_mutex_unlock(&store->lock);
    if (!taken) return;
    taken = resident->take(store->options.device, bytes, &content->form_memory, &ignored) == KS_OK;
    if (!taken) {
        pthread_mutex_lock(&store->lock);
        uncount_form(store, record);
        pthread_mutex_unlock(&store->lock);
        return;
    }
    content->form_op = op;
    content->form = content->tensor;
    content->form.fixed = content->form_memory.in_device;
    content->form.pitch = pitch;
}

ks_status ks_store_make_form(ks_store *store, ks_content *content, int64_t *row, bool *over, ks_error *error)
{
    const size_t size = ks_dtype_size(content->tensor.dtype);
    const int64_t columns = content->form_bytes ? content->tensor.dims[content->tensor.rank - 1] : 1;
    const int64_t rows = content->form_bytes ? ks_tensor_count(&content->tensor) / columns : 0;
    const ks_row_copy pack = {.row_bytes = (size_t)columns * size,
                              .pitch_bytes = (size_t)content->form.pitch * size,
                              .first = *row,
                              .count = ks_least(rows - *row, (int64_t)(FORM_SLICE / ((size_t)columns * size)) + 1)};
    ks_status status = KS_OK;
    if (*row < rows)
        status = store->options.backend->resident->pack(store->options.device, &content->memory, &content->form_memory,
                                                        &pack, error);
    *row += pack.count;
    *over = *row >= rows;
    if (status == KS_OK && *over && rows > 0) atomic_store(&content->has_form, true);
    return status;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

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
