/* Joined rows: jobs that differ in the number of INPUT0's rows alone share one plan, their family's, and go out as one product.
 *
 * A family is a spec whose INPUT0 has as many rows as one launch may have. Jobs belong to it when they agree in operation,
 * parameters, datatypes and all other dimensions, and when every other input is a resident tensor of the same content: then
 * their addresses agree, and with them their specs. A chain's other operands are its constants: its jobs join by all of its inputs, which have
 * equally many rows, and as many as max_batch. One job alone is served by the family's plan as well, so its bits do not
 * depend on what else is in the launch.
 * Threads  the shard's own. */
#ifndef KS_JOIN_H
#define KS_JOIN_H
#include "engine/engine.h"

/* false: of no family. The first look, since a family's spec is room that is cleared. */
static inline bool ks_join_may(const ks_engine_options *options, const ks_spec *spec)
{
    return options->join_rows >= 2 && spec->op->joins && (spec->op->chain ? options->chain_rows > 0 : spec->given != 1);
}
/* The spec of a resolved spec's family. false: its rows are not joined. */
bool ks_join_family(const ks_engine_options *options, const ks_spec *spec, ks_spec *family);

/* Puts a job into a batch of its plan, as job `count`. false: the launch has no room for its rows. */
bool ks_join_add(ks_batch *batch, const ks_job *job);

/* A job's part of its launch's kernels, and the work that its rows are. */
typedef struct ks_job_work {
    int64_t ns;
    uint64_t bytes, flops;
} ks_job_work;
ks_job_work ks_job_work_of(const ks_job *job);
#endif
