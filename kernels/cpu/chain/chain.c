#include "cpu/chain/chain.h"
#include "cpu/onednn.h"
#include "cpu/reference.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

const ks_chain_means ks_cpu_chain_means = {.alignment = 64, .maps = KS_DTYPE_BIT(KS_BYTES) - 1};

size_t ks_cpu_chain_arena_bytes(const ks_program *program)
{
    return program->arena_bytes ? ks_align(program->arena_bytes + KS_PAD) : 0;
}

size_t ks_cpu_chain_prepare(ks_program *program)
{
    size_t scratch = 0;
    for (int i = 0; i < program->count; i++) {
        ks_step *step = &program->step[i];
        if (!step->spec.op) {
            snprintf(step->kernel, sizeof step->kernel, "memcpy");
            continue;
        }
        step->algorithm[0] = ks_onednn_takes(&step->spec);
        snprintf(step->kernel, sizeof step->kernel, "%s", step->algorithm[0] ? "onednn" : "reference");
        step->workspace_bytes = ks_cpu_scratch_bytes(&step->spec);
        if (step->workspace_bytes > scratch) scratch = step->workspace_bytes;
    }
    return scratch;
}

static const void *read_at(const ks_cpu_chain_tensors *m, const ks_step_place *at)
{
    switch (at->kind) {
    case KS_PLACE_INPUT:
        return (const unsigned char *)m->in[at->which] + at->offset;
    case KS_PLACE_OUTPUT:
        return (const unsigned char *)m->out[at->which] + at->offset;
    case KS_PLACE_FIXED:
        return at->fixed;
    case KS_PLACE_ARENA:
        return m->arena + at->offset;
    default:
        return NULL;
    }
}

static void *write_at(const ks_cpu_chain_tensors *m, const ks_step_place *at)
{
    return (at->kind == KS_PLACE_OUTPUT ? (unsigned char *)m->out[at->which] : m->arena) + at->offset;
}

void ks_cpu_step_tensors(const ks_step *step, const ks_cpu_chain_tensors *m, const void **in, void **out)
{
    const bool copy = !step->spec.op;
    for (int i = copy ? 0 : ks_next_input(&step->spec, -1); i >= 0; i = ks_next_input(&step->spec, i))
        in[i] = read_at(m, &step->in[i]);
    for (int i = 0; i < (copy ? 1 : step->spec.outputs); i++) out[i] = write_at(m, &step->out[i]);
}

/* Of one job. */
typedef struct chain_run {
    ks_cpu_chain_tensors tensors;
    void *scratch;
    ks_bad_value *bad;
} chain_run;

/* ks_cpu_step_fn */
static bool run_step(void *context, const ks_step *step)
{
    const chain_run *run = context;
    const void *in[KS_OP_INPUTS_MAX] = {NULL};
    void *out[KS_OP_OUTPUTS_MAX] = {NULL};
    ks_cpu_step_tensors(step, &run->tensors, in, out);
    if (!step->spec.op) {
        memcpy(out[0], in[0], step->spec.in[0].size_bytes);
        return true;
    }
    if (ks_decides(&step->spec) && step->spec.op->check(&step->spec, in, run->bad)) {
        run->bad->node = step->node[0];
        return false;
    }
    if (!step->algorithm[0] || !ks_onednn_run(&step->spec, in, out[0]))
        ks_cpu_reference(&step->spec, in, out, run->scratch);
    return true;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool ks_cpu_chain_walk(const ks_program *program, ks_cpu_step_fn *run, void *context, int64_t *step_ns)
{
    int64_t begun_ns = step_ns ? now_ns() : 0;
    for (int i = 0; i < program->count; i++) {
        const bool done = run(context, &program->step[i]);
        if (!done && step_ns) step_ns[i] = -1;
        if (!done) return false;
        if (!step_ns) continue;
        const int64_t ended_ns = now_ns();
        step_ns[i] = ended_ns - begun_ns;
        begun_ns = ended_ns;
    }
    return true;
}

bool ks_cpu_chain_run(const ks_program *program, const void *const *in, void *const *out,
                      const ks_cpu_chain_memory *own, const ks_cpu_chain_note *note)
{
    chain_run run = {.tensors = {.in = in, .out = out, .arena = own->arena}, .scratch = own->scratch, .bad = note->bad};
    return ks_cpu_chain_walk(program, run_step, &run, note->step_ns);
}
