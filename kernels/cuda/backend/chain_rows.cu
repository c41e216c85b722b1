/* Joined requests of a chain on the GPU: what its steps do for the rows of several jobs.
 *
 * Rows     A launch has a bucket of rows, a power of two, or the family's. A product of rows has its family's kernels (ks_cuda_op.join), an
 *          element of map's or a slice of gather's follows from its operands alone. Any other step whose rows are apart has one kernel
 *          for each bucket, the same one; where the planner would choose another for fewer rows, the step does all rows of the family
 *          instead, of which those beyond the launch's hold anything: so a row has the bits that it has alone.
 * Limits   A kernel may take a row by vectors of memory, so a row has to start where vectors do, or anywhere for that kernel. A step
 *          whose values decide is not done for all rows: those beyond the launch's would be refused.
 * Memory   The chain's inputs and outputs lie as the family's do, whatever rows a launch has. */
#include "cuda/backend/chain.h"

extern const ks_op ks_op_gather, ks_op_layout, ks_op_map, ks_op_maps, ks_op_topk;

enum {
    LEAST_ROWS = 2,               /* of a launch: a joined product has two at least */
    ALL_ROWS_BYTES_MOST = 4 << 20 /* that a step for all rows reads and writes */
};

int ks_cuda_chain_rows(const ks_plan *plan, int rows)
{
    const int bucket = 1 << ks_bucket(rows < LEAST_ROWS ? (int)LEAST_ROWS : rows);
    return bucket < plan->join_rows ? bucket : plan->join_rows;
}

void ks_cuda_chain_spec_of(const ks_plan *plan, int rows, ks_spec *out)
{
    ks_plan_spec_of(plan, ks_cuda_chain_rows(plan, rows), out);
    for (int i = ks_next_input(out, -1); i >= 0; i = ks_next_input(out, i)) out->in[i].offset = plan->spec.in[i].offset;
    for (int i = 0; i < out->outputs; i++) out->out[i].offset = plan->spec.out[i].offset;
}

static bool moves_or_compares(const ks_op *op)
{
    return op == &ks_op_map || op == &ks_op_maps || op == &ks_op_gather || op == &ks_op_layout || op == &ks_op_topk;
}

/* Whether a row's bits do not follow from where it starts. */
static bool starts_well(const ks_cuda_op *op, const ks_step *step, const ks_cuda_plan *chosen)
{
    const ks_spec *spec = &step->spec;
    if (moves_or_compares(spec->op) || (op->starts_anywhere && op->starts_anywhere(spec, chosen->algorithm)))
        return true;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        if (step->rows_in >> i & 1 && spec->in[i].size_bytes / (size_t)spec->in[i].dims[0] % 16 != 0) return false;
    return true;
}

static void take_more(ks_cuda_plan *most, const ks_cuda_plan *plan)
{
    if (plan->workspace_bytes > most->workspace_bytes) most->workspace_bytes = plan->workspace_bytes;
    if (plan->counters > most->counters) most->counters = plan->counters;
    most->early = most->early && plan->early;
    most->early_fixed |= plan->early_fixed;
}

/* Whether each bucket of rows has the kernel that the family's rows have; chosen gets what the hungriest one needs. */
static bool is_alike(const ks_chip *chip, const ks_cuda_op *op, const ks_step *step, int family_rows,
                     ks_cuda_plan *chosen)
{
    ks_cuda_plan most = *chosen;
    for (int rows = LEAST_ROWS; rows < family_rows; rows *= 2) {
        ks_spec some;
        ks_cuda_plan plan;
        ks_error ignored;
        memset(&plan, 0, sizeof plan);
        ks_step_cut(step, rows, &some);
        if (op->plan(chip, &some, &plan, &ignored) != KS_OK) return false;
        if (step->spec.op != &ks_op_map && memcmp(plan.algorithm, chosen->algorithm, sizeof plan.algorithm) != 0)
            return false;
        take_more(&most, &plan);
    }
    *chosen = most;
    return true;
}

ks_status ks_cuda_chain_join_step(const ks_chip *chip, ks_step *step, int family_rows, ks_cuda_plan *chosen,
                                  ks_error *error)
{
    const ks_spec *spec = &step->spec;
    const ks_cuda_op *op = ks_cuda_op_of(spec->op);
    const bool product = ks_step_joins(step) && op->join;
    const ks_status status = product ? op->join(chip, spec, chosen, error) : op->plan(chip, spec, chosen, error);
    if (status || !step->rows_in) return status;
    if (!ks_step_is_cut_well(step) || (!product && !(ks_step_keeps_rows(step) && starts_well(op, step, chosen))))
        return ks_fail(error, KS_WORK, "%s: its rows are not joined", spec->op->name);
    if (product) return KS_OK;
    step->all_rows = !is_alike(chip, op, step, family_rows, chosen);
    if (step->all_rows &&
        (ks_decides(spec) || ks_spec_read_bytes(spec) + ks_spec_written_bytes(spec) > (size_t)ALL_ROWS_BYTES_MOST))
        return ks_fail(error, KS_WORK, "%s: its kernel follows from the number of rows", spec->op->name);
    return KS_OK;
}

bool ks_cuda_chain_has_products(const ks_program *program)
{
    for (int i = 0; i < program->count; i++)
        if (program->step[i].spec.op && program->step[i].rows_in && ks_step_joins(&program->step[i])) return true;
    return false;
}

const ks_spec *ks_cuda_chain_step_spec(const ks_plan *plan, const ks_step *step, int rows, ks_spec *room)
{
    if (!plan->join_rows || !step->rows_in || step->all_rows) return &step->spec;
    ks_step_cut(step, ks_cuda_chain_rows(plan, rows), room);
    return room;
}
