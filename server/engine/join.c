#include "engine/join.h"
#include "kernserve/chain.h"

/* Of a side, where there are no slot classes. */
enum { SIDE_BYTES = 1 << 20 };

/* Of an op's all inputs but the rows; a chain's, whose other operands are its constants, are all rows. */
static bool others_are_fixed(const ks_spec *spec)
{
    int fixed = 0, others = 0;
    for (int i = ks_next_input(spec, 0); i >= 0; i = ks_next_input(spec, i), others++)
        fixed += spec->in[i].fixed != NULL;
    if (!ks_has_input(spec, 0) || spec->in[0].fixed) return false;
    return spec->op->chain ? fixed == 0 : others > 0 && fixed == others;
}

/* As many rows as slots hold of each side: so do lanes, which are made for the largest slots. */
static int64_t most_rows(const ks_engine_options *options, const ks_spec *spec)
{
    const int64_t rows = spec->in[0].dims[0];
    const size_t side = options->classes > 0 ? options->size_class[options->classes - 1].side_bytes : SIDE_BYTES;
    size_t in_row = 0, out_row = 0, in_gaps = 0;
    int64_t most = options->join_rows < KS_JOIN_ROWS_MAX ? options->join_rows : KS_JOIN_ROWS_MAX;
    if (spec->op->chain && most > spec->op->chain->max_batch) most = spec->op->chain->max_batch;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        if (spec->in[i].fixed) continue;
        in_row += spec->in[i].size_bytes / (size_t)rows;
        in_gaps += i > 0 ? KS_ALIGNMENT : 0;
    }
    for (int i = 0; i < spec->outputs; i++) out_row += spec->out[i].size_bytes / (size_t)rows;
    if (in_row == 0 || out_row == 0) return 0;
    const size_t out_gaps = (size_t)(spec->outputs - 1) * KS_ALIGNMENT;
    while (most > 1 && (in_row > (side - in_gaps) / (size_t)most || out_row > (side - out_gaps) / (size_t)most))
        most /= 2;
    return most;
}

static void set_rows(ks_tensor *tensor, int64_t rows)
{
    tensor->size_bytes = tensor->size_bytes / (size_t)tensor->dims[0] * (size_t)rows;
    tensor->dims[0] = rows;
}

bool ks_join_family(const ks_engine_options *options, const ks_spec *spec, ks_spec *family)
{
    if (!ks_join_may(options, spec) || !others_are_fixed(spec)) return false;
    const int64_t rows = spec->in[0].dims[0];
    if ((!spec->op->chain && spec->in[0].rank != 2) || spec->outputs > KS_JOIN_OUTPUTS || rows < 1 ||
        (spec->given & spec->op->joins_with) || !spec->op->joins(spec))
        return false;
    const int64_t most = most_rows(options, spec);
    if (most < 2 || rows > most || (spec->op->chain && rows > options->chain_rows)) return false;
    ks_spec_copy(family, spec);
    family->flops = spec->flops / (double)rows * (double)most;
    for (int i = ks_next_input(family, -1); i >= 0; i = ks_next_input(family, i))
        if (!family->in[i].fixed) set_rows(&family->in[i], most);
    for (int i = 0; i < family->outputs; i++) set_rows(&family->out[i], most);
    ks_spec_layout(family);
    return true;
}

bool ks_join_add(ks_batch *batch, const ks_job *job)
{
    const int most = batch->plan->join_rows;
    if (most && batch->rows_sum + job->rows > most) return false;
    batch->slots[batch->count] = job->slot;
    batch->rows[batch->count++] = job->rows;
    batch->rows_sum += job->rows;
    return true;
}

/* The other inputs are read once a launch: each job's share of them is an equal one. */
ks_job_work ks_job_work_of(const ks_job *job)
{
    const ks_plan *plan = job->plan;
    const int jobs = job->batch_count > 1 ? job->batch_count : 1;
    if (!plan->join_rows) return (ks_job_work){job->kernel_ns / jobs, plan->bytes, (uint64_t)plan->spec.flops};
    const size_t shared = plan->bytes - plan->in_bytes - plan->out_bytes;
    return (ks_job_work){.ns = job->kernel_ns * job->rows / job->batch_rows,
                         .bytes =
                             shared / (size_t)jobs + ks_plan_job_in(plan, job->rows) + ks_plan_job_out(plan, job->rows),
                         .flops = (uint64_t)(plan->spec.flops / plan->join_rows * job->rows)};
}
