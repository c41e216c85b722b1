/* One entry of the tune cache: a checksum, then fields parted by tabs. Pure; any thread. */
#ifndef KS_TUNE_ENTRY_H
#define KS_TUNE_ENTRY_H
#include "base/text.h"
#include "engine/tune/cache.h"

enum { KS_TUNE_ENTRY_MAX = 2048 };

/* An entry, cut into its fields in place. */
typedef struct ks_tune_entry {
    char *context, *key, *algorithm, *kernel, *us, *heuristic, *heuristic_us, *candidates;
} ks_tune_entry;

/* What a plan is made for, as text. NULL: memory, or a plan that no entry has room for. free() it. */
char *ks_tune_key(const ks_spec *spec);
void ks_tune_entry_put(ks_text *out, const char *context, const char *key, const ks_tuned *tuned);
/* entry: terminated, without its end. false: damaged. */
bool ks_tune_entry_cut(char *entry, ks_tune_entry *out);
bool ks_tune_entry_read(const ks_tune_entry *entry, ks_tuned *out);
#endif
