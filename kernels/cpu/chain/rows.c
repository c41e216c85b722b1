#include "cpu/chain/rows.h"
#include "cpu/join.h"
#include "cpu/onednn.h"
#include "cpu/reference.h"

#include <stdio.h>
#include <string.h>

/* Of a step, in its algorithm. */
typedef struct step_way {
    ks_cpu_join join; /* rows 0: all of them are one call */
    bool onednn;      /* of what has no rows */
} step_way;
_Static_assert(sizeof(step_way) <= KS_ALGORITHM_BYTES, "a step has no room for its way");

static step_way way_of(const ks_step *step)
{
    step_way way;
    memcpy(&way, step->algorithm, sizeof way);
    return way;
}

/* --- a family's plan --------------------------------------------------------------------------------------------------- */

/* false: its rows are none of a launch's. */
static bool choose_way(const ks_step *step, step_way *way)
{
    const ks_spec *spec = &step->spec;
    *way = (step_way){.onednn = false};
    if (!spec->op) return true;
    if (!step->rows_in) {
        way->onednn = ks_onednn_takes(spec);
        return true;
    }
    if (ks_step_joins(step)) way->join = ks_cpu_join_reference(spec);
    return (way->join.rows > 0 || ks_step_keeps_rows(step)) && ks_step_is_cut_well(step);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Scratch grows with the rows, where it knows them. */
static size_t scratch_of(const ks_step *step, const step_way *way)
{
    ks_spec one;
    if (!step->spec.op) return 0;
    if (way->join.rows) return ks_cpu_join_scratch_bytes(&step->spec, way->join);
    ks_step_cut(step, 1, &one);
    return larger(ks_cpu_scratch_bytes(&one), ks_cpu_scratch_bytes(&step->spec));
}

static void set_way(ks_step *step, const step_way *way)
{
    memcpy(step->algorithm, way, sizeof *way);
    step->workspace_bytes = scratch_of(step, way);
    snprintf(step->kernel, sizeof step->kernel, "%s", !step->spec.op ? "memcpy" : way->onednn ? "onednn" : "reference");
}

static size_t side_bytes(const ks_spec *spec)
{
    size_t bytes = 0;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        bytes += ks_align(spec->in[i].size_bytes + KS_PAD);
    for (int i = 0; i < spec->outputs; i++) bytes += ks_align(spec->out[i].size_bytes + KS_PAD);
    return bytes;
}

bool ks_cpu_chain_rows_prepare(ks_plan *plan, ks_cpu_chain_rows *out)
{
    int joined = 0;
    size_t hungriest = 0;
    *out = (ks_cpu_chain_rows){0};
    for (int i = 0; i < plan->program->count; i++) {
        ks_step *step = &plan->program->step[i];
        step_way way;
        if (!choose_way(step, &way)) return false;
        set_way(step, &way);
        hungriest = larger(hungriest, step->workspace_bytes);
        joined += way.join.rows > 0;
        if (way.join.rows || !step->spec.op) continue;
        out->flops += step->spec.flops / plan->join_rows;
        out->bytes += (double)(ks_spec_read_bytes(&step->spec) + ks_spec_written_bytes(&step->spec)) / plan->join_rows;
    }
    out->scratch_bytes = side_bytes(&plan->spec) + hungriest;
    return joined > 0;
}

/* --- a launch ------------------------------------------------------------------------------------------------------------- */

/* Of some jobs' rows, which lie together. */
typedef struct rows_run {
    ks_cpu_chain_tensors tensors;
    int rows, family_rows;
    void *scratch;
    ks_bad_value *bad;
} rows_run;

/* ks_cpu_step_fn */
static bool run_rows(void *context, const ks_step *step)
{
    const rows_run *run = context;
    const void *in[KS_OP_INPUTS_MAX] = {NULL};
    void *out[KS_OP_OUTPUTS_MAX] = {NULL};
    const step_way way = way_of(step);
    ks_spec spec;
    ks_cpu_step_tensors(step, &run->tensors, in, out);
    if (!step->spec.op) {
        const size_t row_bytes = step->spec.in[0].size_bytes / (size_t)run->family_rows;
        memcpy(out[0], in[0], row_bytes * (size_t)run->rows);
        return true;
    }
    ks_step_cut(step, run->rows, &spec);
    if (ks_decides(&spec) && spec.op->check(&spec, in, run->bad)) {
        run->bad->node = step->node[0];
        return false;
    }
    if (way.join.rows)
        ks_cpu_join_rows(&step->spec, way.join, in, out, run->rows, run->scratch);
    else if (!way.onednn || !ks_onednn_run(&spec, in, out[0]))
        ks_cpu_reference(&spec, in, out, run->scratch);
    return true;
}

static unsigned char *job_out(const ks_batch *batch, int job, int output)
{
    const ks_slot *slot = batch->slots[job];
    return slot->out_window[output] ? slot->out_window[output]
                                    : slot->out + ks_plan_job_out_at(batch->plan, output, batch->rows[job]);
}

static unsigned char *job_in(const ks_batch *batch, int job, int input)
{
    return batch->slots[job]->in + ks_plan_job_in_at(batch->plan, input, batch->rows[job]);
}

static bool walk(const ks_batch *batch, rows_run *run, unsigned char *arena, const void *const *in, void *const *out)
{
    run->tensors = (ks_cpu_chain_tensors){.in = in, .out = out, .arena = arena};
    return ks_cpu_chain_walk(batch->plan->program, run_rows, run, batch->step_ns);
}

/* Where it lies. */
static bool run_one(const ks_batch *batch, int job, const ks_cpu_chain_memory *own, ks_bad_value *bad)
{
    const ks_spec *spec = &batch->plan->spec;
    const void *in[KS_INPUTS_MAX];
    void *out[KS_JOIN_OUTPUTS] = {NULL};
    rows_run run = {.rows = batch->rows[job],
                    .family_rows = batch->plan->join_rows,
                    .scratch = (unsigned char *)own->scratch + side_bytes(spec),
                    .bad = bad};
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) in[i] = job_in(batch, job, i);
    for (int i = 0; i < spec->outputs; i++) out[i] = job_out(batch, job, i);
    return walk(batch, &run, own->arena, in, out);
}

static size_t job_bytes(const ks_batch *batch, int job, const ks_tensor *tensor)
{
    return tensor->size_bytes / (size_t)batch->plan->join_rows * (size_t)batch->rows[job];
}

/* Rows of all jobs together, at the first one's place. */
static void copy_in(const ks_batch *batch, int input, unsigned char *at)
{
    for (int i = 0; i < batch->count; i++) {
        const size_t bytes = job_bytes(batch, i, &batch->plan->spec.in[input]);
        memcpy(at, job_in(batch, i, input), bytes);
        at += bytes;
    }
}

/* Each job's apart again. */
static void copy_out(const ks_batch *batch, int output, const unsigned char *at)
{
    for (int i = 0; i < batch->count; i++) {
        const size_t bytes = job_bytes(batch, i, &batch->plan->spec.out[output]);
        memcpy(job_out(batch, i, output), at, bytes);
        at += bytes;
    }
}

static bool run_all(const ks_batch *batch, const ks_cpu_chain_memory *own)
{
    const ks_spec *spec = &batch->plan->spec;
    unsigned char *at = own->scratch;
    const void *in[KS_INPUTS_MAX];
    void *out[KS_JOIN_OUTPUTS] = {NULL};
    ks_bad_value ignored;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        in[i] = at;
        copy_in(batch, i, at);
        at += ks_align(spec->in[i].size_bytes + KS_PAD);
    }
    for (int i = 0; i < spec->outputs; i++) {
        out[i] = at;
        at += ks_align(spec->out[i].size_bytes + KS_PAD);
    }
    rows_run run = {.rows = batch->rows_sum, .family_rows = batch->plan->join_rows, .scratch = at, .bad = &ignored};
    if (!walk(batch, &run, own->arena, in, out)) return false;
    for (int i = 0; i < spec->outputs; i++) copy_out(batch, i, out[i]);
    return true;
}

void ks_cpu_chain_rows_run(ks_batch *batch, const ks_cpu_chain_memory *own)
{
    for (int i = 0; i < batch->count; i++) batch->bad[i].input = 0;
    if (batch->count > 1 && run_all(batch, own)) return;
    for (int i = 0; i < batch->count; i++)
        if (!run_one(batch, i, own, &batch->bad[i])) batch->refused = true;
}
