#include "cpu/join.h"
#include "cpu/onednn.h"
#include "cpu/reference.h"

#include <string.h>

/* A call under preparation: rows that lie apart are copied together, and their outputs back. */
typedef struct group {
    ks_spec spec; /* the family's, with the rows of one call */
    ks_cpu_join how;
    size_t in_row, out_row;
    const void *in[KS_INPUTS_MAX];
    unsigned char *rows_in, *rows_out; /* of one call */
    void *scratch;
    unsigned char *to[KS_JOIN_ROWS_MAX]; /* where each row's output belongs */
    int count;
} group;

static void set_rows(ks_spec *spec, int rows)
{
    ks_tensor *sides[] = {&spec->in[0], &spec->out[0]};
    for (int i = 0; i < 2; i++) {
        sides[i]->size_bytes = sides[i]->size_bytes / (size_t)sides[i]->dims[0] * (size_t)rows;
        sides[i]->dims[0] = rows;
    }
}

ks_cpu_join ks_cpu_join_of(const ks_spec *family)
{
    const int whole = ks_onednn_join_rows(family);
    if (whole) return (ks_cpu_join){.rows = whole, .onednn = true, .whole = true};
    const ks_cpu_op *op = ks_cpu_op_of(family->op);
    return (ks_cpu_join){.rows = op->join_rows ? op->join_rows(family) : 0};
}

size_t ks_cpu_join_scratch_bytes(const ks_spec *family, ks_cpu_join how)
{
    ks_spec spec;
    ks_spec_copy(&spec, family);
    set_rows(&spec, how.rows);
    return ks_align(spec.in[0].size_bytes + KS_PAD) + ks_align(spec.out[0].size_bytes + KS_PAD) +
           ks_cpu_scratch_bytes(&spec);
}

static void begin(group *g, const ks_spec *family, ks_cpu_join how, unsigned char *scratch)
{
    ks_spec_copy(&g->spec, family);
    set_rows(&g->spec, how.rows);
    g->how = how;
    g->in_row = family->in[0].size_bytes / (size_t)family->in[0].dims[0];
    g->out_row = family->out[0].size_bytes / (size_t)family->out[0].dims[0];
    g->rows_in = scratch;
    g->rows_out = g->rows_in + ks_align(g->spec.in[0].size_bytes + KS_PAD);
    g->scratch = g->rows_out + ks_align(g->spec.out[0].size_bytes + KS_PAD);
    g->count = 0;
    for (int i = ks_next_input(family, 0); i >= 0; i = ks_next_input(family, i)) g->in[i] = family->in[i].fixed;
}

static void compute(group *g, const unsigned char *in, unsigned char *out)
{
    g->in[0] = in;
    void *outs[KS_OUTPUTS_MAX] = {out};
    if (g->how.onednn && ks_onednn_run(&g->spec, g->in, out)) return;
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
    for (int i = 0; i < g->count; i++) memcpy(g->to[i], g->rows_out + (size_t)i * g->out_row, g->out_row);
    set_rows(&g->spec, g->how.rows);
    g->count = 0;
}

/* Rows that fill a call are computed where they lie. */
static void add_job(group *g, const unsigned char *in, unsigned char *out, int rows)
{
    while (rows > 0) {
        const bool alone = g->count == 0 && rows >= g->how.rows;
        const int taken = alone ? g->how.rows : 1;
        if (alone) {
            compute(g, in, out);
        } else {
            memcpy(g->rows_in + (size_t)g->count * g->in_row, in, g->in_row);
            g->to[g->count++] = out;
        }
        if (g->count == g->how.rows) compute_copies(g);
        in += (size_t)taken * g->in_row;
        out += (size_t)taken * g->out_row;
        rows -= taken;
    }
}

void ks_cpu_join_run(const ks_batch *batch, ks_cpu_join how, void *scratch)
{
    group g;
    const ks_spec *family = &batch->plan->spec;
    begin(&g, family, how, scratch);
    for (int i = 0; i < batch->count; i++) {
        const ks_slot *slot = batch->slots[i];
        unsigned char *out = slot->out_window[0] ? slot->out_window[0] : slot->out + family->out[0].offset;
        add_job(&g, slot->in + family->in[0].offset, out, batch->rows[i]);
    }
    compute_copies(&g);
}
