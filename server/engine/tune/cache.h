/* What tuning has found, of all plans, for all shards, and the file that keeps it (--tune-cache).
 *
 * The file     lines of text; each has a checksum, what it depends on (context: device, driver, libraries, kernels), a
 *              plan's key, an algorithm's bytes, and what the trials said. A file that is not one of these, or is damaged,
 *              counts as empty, with one line in the log; a foreign one is never written to, a damaged one is
 *              replaced.
 * Writers      read the file again, put what they found into it, write a file beside it and rename that; a lock on the
 *              folder keeps two of them apart, so that neither's lines are lost. Lines of other contexts are kept.
 * Threads      any; one lock, never held across the file, and never taken on the way of a request whose plan exists. */
#ifndef KS_TUNE_CACHE_H
#define KS_TUNE_CACHE_H
#include "kernserve/backend.h"

typedef struct ks_tunes ks_tunes;

typedef struct ks_tuned {
    ks_algorithm algorithm;
    ks_trials trials;
} ks_tuned;

/* path "": no file. context: one line. A file that cannot be read is no error. KS_MEMORY. */
ks_status ks_tunes_open(const char *path, const char *context, ks_tunes **out, ks_error *error);
void ks_tunes_close(ks_tunes **tunes); /* writes nothing */

bool ks_tunes_find(ks_tunes *tunes, const ks_spec *spec, ks_tuned *out);
/* KS_MEMORY: also where KS_TUNES_MAX plans are kept. */
ks_status ks_tunes_keep(ks_tunes *tunes, const ks_spec *spec, const ks_tuned *tuned, ks_error *error);
enum { KS_TUNES_MAX = 4096 };
/* Grows with each keep. */
uint64_t ks_tunes_generation(const ks_tunes *tunes);

/* One tunes at a time, that trials do not disturb each other. false: another does. */
bool ks_tunes_claim(ks_tunes *tunes);
void ks_tunes_release(ks_tunes *tunes);

/* Writes what was kept since the last time, if anything was and there is a file. Where another writer is at it, waits
 * so long, and leaves it for the next time. Main's thread. KS_SYSTEM: the file cannot be written, or is foreign; it is
 * not tried again until more is kept. */
ks_status ks_tunes_save(ks_tunes *tunes, int64_t wait_ns, ks_error *error);
#endif
