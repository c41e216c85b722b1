#include "cpu/join.h"
#include "cpu/onednn.h"
#include "cpu/reference.h"

#include <assert.h>
#include <string.h>

/* A call under preparation: rows that lie apart are copied together, and their outputs back. */
typedef struct group {
    ks_spec spec; /* the family's, with the rows of one call */
    ks_cpu_join how;
    int outputs;
    size_t in_row, out_row[KS_JOIN_OUTPUTS];
    const void *in[KS_OP_INPUTS_MAX];
    unsigned char *rows_in, *rows_out[KS_JOIN_OUTPUTS]; /* of one call */
    void *scratch;
    unsigned char *to[KS_JOIN_OUTPUTS][KS_JOIN_ROWS_MAX]; /* where each row's outputs belong */
    int count;
} group;

static size_t row_bytes(const ks_tensor *tensor)
{
    return tensor->size_bytes / (size_t)tensor->dims[0];
}

static void set_rows(ks_spec *spec, int rows)
{
    for (int i = -1; i < spec->outputs; i++) {
        ks_tensor *const tensor = i < 0 ? &spec->in[0] : &spec->out[i];
        tensor->size_bytes = row_bytes(tensor) * (size_t)rows;
        tensor->dims[0] = rows;
    }
}

ks_cpu_join ks_cpu_join_reference(const ks_spec *family)
{
    const ks_cpu_op *op = ks_cpu_op_of(family->op);
    return (ks_cpu_join){.rows = op->join_rows ? op->join_rows(family) : 0};
}

ks_cpu_join ks_cpu_join_of(const ks_spec *family)
{
    const int whole = ks_onednn_join_rows(family);
    if (whole) return (ks_cpu_join){.rows = whole, .onednn = true, .whole = true};
    return ks_cpu_join_reference(family);
}

size_t ks_cpu_join_scratch_bytes(const ks_spec *family, ks_cpu_join how)
{
    ks_spec spec;
    ks_spec_copy(&spec, family);
    set_rows(&spec, how.rows);
    size_t bytes = ks_align(spec.in[0].size_bytes + KS_PAD) + ks_cpu_scratch_bytes(&spec);
    for (int i = 0; i < spec.outputs; i++) bytes += ks_align(spec.out[i].size_bytes + KS_PAD);
    return bytes;
}

static void begin(group *g, const ks_spec *family, ks_cpu_join how, unsigned char *scratch)
{
    ks_spec_copy(&g->spec, family);
    set_rows(&g->spec, how.rows);
    g->how = how;
    g->in_row = row_bytes(&family->in[0]);
    assert(family->outputs >= 1 && family->outputs <= KS_JOIN_OUTPUTS);
    g->outputs = family->outputs;
    g->rows_in = scratch;
    scratch += ks_align(g->spec.in[0].size_bytes + KS_PAD);
    for (int i = 0; i < g->outputs; i++) {
        g->out_row[i] = row_bytes(&family->out[i]);
        g->rows_out[i] = scratch;
        scratch += ks_align(g->spec.out[i].size_bytes + KS_PAD);
    }
    g->scratch = scratch;
    g->count = 0;
    memset(g->in, 0, sizeof g->in); /* an op may ask whether it has one */
    for (int i = ks_next_input(family, 0); i >= 0; i = ks_next_input(family, i)) g->in[i] = family->in[i].fixed;
}

static void compute(group *g, const unsigned char *in, unsigned char *const *out)
{
    g->in[0] = in;
    void *outs[KS_OP_OUTPUTS_MAX] = {NULL};
    for (int i = 0; i < g->outputs; i++) outs[i] = out[i];
    if (g->how.onednn && ks_onednn_run(&g->spec, g->in, out[0])) return;
    ks_cpu_reference(&g->spec, g->in, outs, g->scratch);
}

static void compute_copies(group *g)
{
    const int missing = g->how.rows - g->count;
    if (g->count == 0) return;
    if (g->how.whole)
        memset(g->rows_in + (size_t)g->count * g->in_row, 0, (size_t)missing * g->in_row);
    else
        set_rows(&g->spec, g->count);
    compute(g, g->rows_in, g->rows_out);
    for (int o = 0; o < g->outputs; o++)
        for (int i = 0; i < g->count; i++)
            memcpy(g->to[o][i], g->rows_out[o] + (size_t)i * g->out_row[o], g->out_row[o]);
    set_rows(&g->spec, g->how.rows);
    g->count = 0;
}

/* Rows that fill a call are computed where they lie. */
static void add_job(group *g, const unsigned char *in, unsigned char **out, int rows)
{
    while (rows > 0) {
        const bool alone = g->count == 0 && rows >= g->how.rows;
        const int taken = alone ? g->how.rows : 1;
        if (alone) {
            compute(g, in, out);
        } else {
            memcpy(g->rows_in + (size_t)g->count * g->in_row, in, g->in_row);
            for (int i = 0; i < g->outputs; i++) g->to[i][g->count] = out[i];
            g->count++;
        }
        if (g->count == g->how.rows) compute_copies(g);
        in += (size_t)taken * g->in_row;
        for (int i = 0; i < g->outputs; i++) out[i] += (size_t)taken * g->out_row[i];
        rows -= taken;
    }
}

void ks_cpu_join_rows(const ks_spec *family, ks_cpu_join how, const void *const *in, void *const *out, int rows,
                      void *scratch)
{
    __attribute__((uninitialized)) group g; /* begin and add_job set what is read of its 8 KiB */
    unsigned char *to[KS_JOIN_OUTPUTS] = {NULL};
    begin(&g, family, how, scratch);
    for (int i = ks_next_input(family, 0); i >= 0; i = ks_next_input(family, i)) g.in[i] = in[i];
    for (int o = 0; o < g.outputs; o++) to[o] = out[o];
    add_job(&g, in[0], to, rows);
    compute_copies(&g);
}

void ks_cpu_join_run(const ks_batch *batch, ks_cpu_join how, void *scratch)
{
    __attribute__((uninitialized)) group g; /* begin and add_job set what is read of its 8 KiB */
    const ks_spec *family = &batch->plan->spec;
    begin(&g, family, how, scratch);
    for (int i = 0; i < batch->count; i++) {
        const ks_slot *slot = batch->slots[i];
        unsigned char *out[KS_JOIN_OUTPUTS] = {NULL};
        for (int o = 0; o < g.outputs; o++)
            out[o] = slot->out_window[o] ? slot->out_window[o]
                                         : slot->out + ks_plan_job_out_at(batch->plan, o, batch->rows[i]);
        add_job(&g, slot->in + family->in[0].offset, out, batch->rows[i]);
    }
    compute_copies(&g);
}
