/* Joined rows of a chain on the CPU: the rows of a launch's jobs go through each step together, as many as there are.
 *
 * Bits     A row has the ones that it has alone: products are the reference's, a few rows a call (join.h), other steps have code for
 *          which the number of rows is an outer loop (ks_plan.rows_like). A chain with a step that promises neither is not joined.
 * Memory   scratch: rows of several jobs, which are copied together in front of the first step and apart behind the last, and what the
 *          hungriest step needs.
 * Threads  a lane's; all memory is the caller's. */
#ifndef KS_CPU_CHAIN_ROWS_H
#define KS_CPU_CHAIN_ROWS_H

#include "cpu/chain/chain.h"

typedef struct ks_cpu_chain_rows {
    size_t scratch_bytes;
    double flops, bytes; /* of a row, in the steps that are no faster for many */
} ks_cpu_chain_rows;

/* Chooses for each step of a family's plan. false: there is no product of rows, or a step has no rows of its own. */
bool ks_cpu_chain_rows_prepare(ks_plan *plan, ks_cpu_chain_rows *out);
/* A launch of the plan. Where values that decide are out of bounds, each job is run by itself: refused and bad of the batch are set. */
void ks_cpu_chain_rows_run(ks_batch *batch, const ks_cpu_chain_memory *own);

#endif
