#include "ops_library.h"
#include "cpu/onednn.h"
#include "cpu/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const size_t COPY_BYTES = (size_t)64 << 20;
enum { COPIES = 9 };

static struct {
    double copy_gbs;
    ks_error error;
} library;

/* A thread's, kept for its next launch. */
static _Thread_local struct {
    void *memory;
    size_t bytes;
} scratch;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The best of all copies, by one thread. */
static const char *measure_copy(void)
{
    unsigned char *volatile memory = malloc(2 * COPY_BYTES); /* volatile: the copies are made */
    if (!memory) return "no memory";
    memset(memory, 1, 2 * COPY_BYTES);
    for (int i = 0; i < COPIES; i++) {
        const double begin = now_s();
        memcpy(memory + COPY_BYTES, memory, COPY_BYTES);
        const double gbs = 2.0 * (double)COPY_BYTES / (now_s() - begin) / 1e9;
        if (gbs > library.copy_gbs) library.copy_gbs = gbs;
    }
    free(memory);
    return NULL;
}

const char *ops_open(void)
{
    return ks_onednn_open(&library.error) == KS_OK ? measure_copy() : library.error.text;
}

double ops_copy_gbs(void)
{
    return library.copy_gbs;
}

const char *ops_plan_spec(const ks_spec *spec, ops_work *out)
{
    memset(out, 0, sizeof *out);
    ks_spec_copy(&out->spec, spec);
    ops_measure(out);
    out->workspace_bytes = ks_cpu_scratch_bytes(&out->spec);
    snprintf(out->kernel_info.kernel, sizeof out->kernel_info.kernel, "%s",
             ks_onednn_takes(&out->spec) ? "onednn" : "reference");
    return NULL;
}

const char *ops_plan(const ops_row *row, ops_work *out)
{
    ks_spec spec;
    return ops_spec_of(row, &spec, &library.error) == KS_OK ? ops_plan_spec(&spec, out) : library.error.text;
}

static void *need_scratch(size_t bytes)
{
    if (bytes > scratch.bytes) {
        free(scratch.memory);
        scratch.memory = aligned_alloc(KS_ALIGNMENT, ks_align(bytes));
        scratch.bytes = scratch.memory ? ks_align(bytes) : 0;
    }
    return scratch.memory;
}

const char *ops_launch(const ops_work *work, const void *in, void *out, void *stream)
{
    const ks_spec *spec = &work->spec;
    const void *inputs[KS_OP_INPUTS_MAX] = {NULL};
    void *outputs[KS_OP_OUTPUTS_MAX] = {NULL};
    ks_bad_value bad;
    (void)stream;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        inputs[i] = (const unsigned char *)in + spec->in[i].offset;
    for (int i = 0; i < spec->outputs; i++) outputs[i] = (unsigned char *)out + spec->out[i].offset;
    if (ks_decides(spec) && spec->op->check && spec->op->check(spec, inputs, &bad)) return "values out of bounds";
    if (ks_onednn_takes(spec) && ks_onednn_run(spec, inputs, outputs[0])) return NULL;
    void *memory = need_scratch(work->workspace_bytes);
    if (work->workspace_bytes && !memory) return "no memory for the scratch";
    ks_cpu_reference(spec, inputs, outputs, memory);
    return NULL;
}
