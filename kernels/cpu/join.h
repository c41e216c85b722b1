/* Joined rows on the CPU: a launch's rows, whatever job they belong to, are computed a few at a time.
 *
 * Bits     The rows of a call are as many whatever there is to do, or its code is one whose rows do not know each other: so a row
 *          has the same bits in any company and at any place.
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
size_t ks_cpu_join_scratch_bytes(const ks_spec *family, ks_cpu_join how);
void ks_cpu_join_run(const ks_batch *batch, ks_cpu_join how, void *scratch);

#endif
