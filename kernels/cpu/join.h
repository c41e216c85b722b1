/* Joined rows on the CPU: a launch's rows, whatever job they belong to, are computed a few at a time.
 *
 * Bits     A row has the same ones at any place and beside any others: each call has the same number of rows, or code that sums
 *          each row by itself.
 * Threads  a lane's; all memory is the caller's. */
#ifndef KS_CPU_JOIN_H
#define KS_CPU_JOIN_H

#include "kernserve/backend.h"

/* How a family's rows are computed: `rows` a call, fewer at the end, or zeros in their place where calls are `whole`. rows 0:
 * they are not joined. */
typedef struct ks_cpu_join {
    int rows;
    bool onednn, whole;
} ks_cpu_join;

ks_cpu_join ks_cpu_join_of(const ks_spec *family);
/* Without oneDNN, whose calls take as long for one row as for all of theirs. */
ks_cpu_join ks_cpu_join_reference(const ks_spec *family);
size_t ks_cpu_join_scratch_bytes(const ks_spec *family, ks_cpu_join how);
/* Rows that lie one behind the other; in, out: addresses of the tensors. */
void ks_cpu_join_rows(const ks_spec *family, ks_cpu_join how, const void *const *in, void *const *out, int rows,
                      void *scratch);
void ks_cpu_join_run(const ks_batch *batch, ks_cpu_join how, void *scratch);

#endif
