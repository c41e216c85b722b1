/* Entries of resident tensors as JSON. Pure; any thread. Inner header of this folder. */
#ifndef KS_TENSOR_ENTRY_H
#define KS_TENSOR_ENTRY_H
#include "base/text.h"
#include "resident/store.h"

void ks_tensor_entry_write(ks_text *out, const ks_tensor_entry *entry);
/* {"generation":3,"tensors":[entry,...] without what may follow and the closing brace. */
void ks_tensor_entries_write(ks_text *out, const ks_store *store, const ks_tensor_entry *entries, int count);
#endif
