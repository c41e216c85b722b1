/* Values that decide where others are read: looked at before the launch where the host has few bytes of them, and what a launch said.
 *
 * Interface  engine_core.h.
 * Threads    the shard's own. */
#include "engine/engine_core.h"

/* Where the host sees input i of a job; NULL: it does not, or clients may still write there. */
static const void *host_place(const ks_job *job, int input)
{
    const ks_spec *spec = &job->plan->spec;
    const ks_slot *slot = job->slot;
    if (!slot || !slot->in || spec->in[input].fixed || slot->in_window[input]) return NULL;
    return slot->in + (slot->places ? slot->places->in[input] : spec->in[input].offset);
}

ks_status ks_values_check(const ks_job *job, ks_error *error)
{
    const ks_spec *spec = &job->plan->spec;
    const ks_op *op = spec->op;
    if (!ks_decides(spec) || !op->check) return KS_OK;
    const void *in[KS_INPUTS_MAX] = {NULL};
    size_t bytes = 0;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        if (!(op->decides >> i & 1)) continue;
        in[i] = host_place(job, i);
        bytes += in[i] ? spec->in[i].size_bytes : 0;
    }
    ks_bad_value bad;
    if (bytes == 0 || bytes > KS_CHECKED_MAX_BYTES || !op->check(spec, in, &bad)) return KS_OK;
    return op->refuse(spec, &bad, error);
}

bool ks_values_refused(const ks_batch *batch, int i, ks_error *error)
{
    if (batch->bad[i].input == 0) return false;
    ks_spec own; /* the job's, whose rows a place counts in */
    if (batch->plan->join_rows)
        ks_plan_spec_of(batch->plan, batch->rows[i], &own);
    else
        ks_spec_copy(&own, &batch->plan->spec);
    return own.op->refuse(&own, &batch->bad[i], error) != KS_OK;
}
