/* Entries as JSON: owns nothing; interface entry.h; any thread; names and ETags need no escapes. */
#include "api/tensors/entry.h"

#include <inttypes.h>

void ks_tensor_entry_write(ks_text *out, const ks_tensor_entry *entry)
{
    char dims[KS_RANK_MAX * 21 + 1];
    ks_text_printf(out, "{\"name\":\"%s\"", entry->name);
    if (!entry->lost) {
        ks_dims_text(&entry->tensor, dims, sizeof dims);
        ks_text_printf(out, ",\"datatype\":\"%s\",\"shape\":[%s],\"bytes\":%zu", ks_dtype_name(entry->tensor.dtype),
                       dims, entry->tensor.size_bytes);
    }
    ks_text_printf(out, ",\"etag\":\"%s\"", entry->etag);
    if (entry->is_placed) ks_text_printf(out, ",\"device\":%d", entry->device);
    if (entry->lost)
        ks_text_puts(out, ",\"lost\":true}");
    else if (entry->is_elsewhere)
        ks_text_printf(out, ",\"ttl\":%" PRId64 ",\"evictable\":%s,\"read_only\":false}", entry->ttl_s,
                       entry->evictable ? "true" : "false");
    else
        ks_text_printf(out,
                       ",\"ttl\":%" PRId64 ",\"expires_in\":%" PRId64
                       ",\"evictable\":%s,\"read_only\":%s,\"uses\":%" PRIu64 ",\"held\":%d,\"forms\":[",
                       entry->ttl_s, entry->expires_in_s, entry->evictable ? "true" : "false",
                       entry->read_only ? "true" : "false", entry->uses, entry->held);
    if (entry->lost || entry->is_elsewhere) return;
    if (entry->form_op) ks_text_printf(out, "\"%s\"", entry->form_op->name);
    ks_text_puts(out, "]}");
}

void ks_tensor_entries_write(ks_text *out, const ks_store *store, const ks_tensor_entry *entries, int count)
{
    ks_text_printf(out, "{\"generation\":%" PRIu64 ",\"tensors\":[", ks_store_generation(store));
    for (int i = 0; i < count; i++) {
        if (i > 0) ks_text_puts(out, ",");
        ks_tensor_entry_write(out, &entries[i]);
    }
    ks_text_puts(out, "]");
}
