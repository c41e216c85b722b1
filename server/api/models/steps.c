/* Interface steps.h
 * Limits    a program is made for the document, and goes with it. */
#include "api/models/steps.h"

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

static void put_step(ks_text *out, const ks_chain *chain, const ks_step *step, const ks_ceilings *ceilings)
{
    const ks_work work = work_of(step);
    const ks_roofline roofline = ks_roofline_of(&work, ceilings);
    ks_text_puts(out, "{\"nodes\":[");
    if (step->node >= 0) ks_text_json(out, chain->node[step->node].name, strlen(chain->node[step->node].name));
    ks_text_printf(out, "],\"op\":\"%s", step->spec.op ? step->spec.op->name : "copy");
    put_outputs(out, &step->spec);
    ks_text_printf(out, "],\"bytes\":%.0f,\"flops\":%.0f,\"roofline_us\":", work.in_bytes + work.out_bytes, work.flops);
    if (roofline.us > 0)
        ks_text_printf(out, "%.6g}", roofline.us);
    else
        ks_text_puts(out, "null}");
}

void ks_model_steps_write(ks_text *out, const ks_spec *spec, const ks_ceilings *ceilings)
{
    ks_error ignored;
    ks_program *program = NULL;
    if (ks_program_make(spec, &program, &ignored) != KS_OK) {
        ks_text_puts(out, ",\"arena_bytes\":null,\"steps\":null");
        return;
    }
    ks_text_printf(out, ",\"arena_bytes\":%zu,\"steps\":[", program->arena_bytes);
    for (int i = 0; i < program->count; i++) {
        if (i > 0) ks_text_puts(out, ",");
        put_step(out, spec->op->chain, &program->step[i], ceilings);
    }
    ks_text_puts(out, "]");
    ks_program_free(&program);
}
