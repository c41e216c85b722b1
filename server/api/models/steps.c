#include "api/models/steps.h"

#include <inttypes.h>
#include <string.h>

/* Bytes that it reads and writes: in a lane's arena, or in the memory of its inputs, constants and outputs. */
static ks_work work_of(const ks_step *step)
{
    if (!step->spec.op)
        return (ks_work){.in_bytes = (double)step->spec.in[0].size_bytes,
                         .out_bytes = (double)step->spec.in[0].size_bytes};
    return (ks_work){.in_bytes = (double)ks_spec_read_bytes(&step->spec),
                     .out_bytes = (double)ks_spec_written_bytes(&step->spec),
                     .flops = step->spec.flops};
}

static void put_tensor(ks_text *out, const ks_tensor *tensor)
{
    char dims[KS_RANK_MAX * 21];
    ks_dims_text(tensor, dims, sizeof dims);
    ks_text_printf(out, "{\"datatype\":\"%s\",\"shape\":[%s]}", ks_dtype_name(tensor->dtype), dims);
}

static void put_outputs(ks_text *out, const ks_spec *spec)
{
    ks_text_puts(out, "\",\"outputs\":[");
    for (int i = 0; i < spec->outputs; i++) {
        if (i > 0) ks_text_puts(out, ",");
        put_tensor(out, &spec->out[i]);
    }
    if (!spec->op) put_tensor(out, &spec->in[0]); /* of a copy */
}

/* What is known: more than 0. */
static void put_known(ks_text *out, const char *name, double value)
{
    ks_text_printf(out, ",\"%s\":", name);
    if (value > 0)
        ks_text_printf(out, "%.6g", value);
    else
        ks_text_puts(out, "null");
}

/* Beside the least time that the work takes, the mean of the runs that were timed step by step. */
static void put_figures(ks_text *out, const ks_step *step, double roofline_us, bool joined)
{
    const double us = step->timed_runs ? (double)step->timed_ns / 1e3 / (double)step->timed_runs : 0;
    put_known(out, "roofline_us", roofline_us);
    ks_text_printf(out, ",\"runs\":%" PRIu64, step->timed_runs);
    put_known(out, "us", us);
    put_known(out, "share",
              us > 0 && !joined ? roofline_us / us : 0); /* a family's runs have fewer rows than its spec */
}

static void put_step(ks_text *out, const ks_plan *plan, const ks_step *step, const ks_ceilings *ceilings)
{
    const ks_chain *chain = plan->spec.op->chain;
    const ks_work work = work_of(step);
    const ks_roofline roofline = ks_roofline_of(&work, ceilings);
    ks_text_puts(out, "{\"nodes\":[");
    for (int i = 0; i < step->nodes; i++) {
        const char *name = chain->node[step->node[i]].name;
        if (i > 0) ks_text_puts(out, ",");
        ks_text_json(out, name, strlen(name));
    }
    ks_text_printf(out, "],\"op\":\"%s", step->spec.op ? step->spec.op->name : "copy");
    put_outputs(out, &step->spec);
    ks_text_puts(out, "],\"kernel\":");
    ks_text_json(out, step->kernel, strlen(step->kernel));
    ks_text_printf(out, ",\"bytes\":%.0f,\"flops\":%.0f", work.in_bytes + work.out_bytes, work.flops);
    put_figures(out, step, roofline.us, plan->join_rows > 0);
    ks_text_puts(out, "}");
}

void ks_model_steps_write(ks_text *out, const ks_plan *plan, const ks_ceilings *ceilings)
{
    const ks_program *program = plan->program;
    ks_text_printf(out, ",\"arena_bytes\":%zu,\"steps\":[", program->arena_bytes);
    for (int i = 0; i < program->count; i++) {
        if (i > 0) ks_text_puts(out, ",");
        put_step(out, plan, &program->step[i], ceilings);
    }
    ks_text_puts(out, "],\"views\":[");
    for (int i = 0; i < program->views; i++) {
        const char *name = plan->spec.op->chain->node[program->view[i]].name;
        if (i > 0) ks_text_puts(out, ",");
        ks_text_json(out, name, strlen(name));
    }
    ks_text_puts(out, "]");
}
