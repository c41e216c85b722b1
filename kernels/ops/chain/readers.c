/* Which nodes read each value of a chain.
 *
 * Owns      the two arrays. Interface chain.h
 * Threads   constant once it is made. */
#include <stdlib.h>

#include "ops/chain/chain.h"

/* Values by number; at[] is moved on by one, so that it counts first and says where a value's readers end next. */
static void fill(const ks_chain *chain, int values, ks_chain_readers *out)
{
    for (int n = 0; n < chain->nodes; n++)
        for (int i = 0; i < KS_OP_INPUTS_MAX; i++)
            if (chain->node[n].in[i] >= 0) out->at[chain->node[n].in[i] + 2]++;
    for (int v = 0; v < values; v++) out->at[v + 2] += out->at[v + 1];
    for (int n = 0; n < chain->nodes; n++)
        for (int i = 0; i < KS_OP_INPUTS_MAX; i++)
            if (chain->node[n].in[i] >= 0) out->node[out->at[chain->node[n].in[i] + 1]++] = (int16_t)n;
}

ks_status ks_chain_readers_init(const ks_chain *chain, ks_chain_readers *out, ks_error *error)
{
    const int values = chain->op.inputs_count + chain->constants + chain->made;
    out->chain = chain;
    out->at = calloc((size_t)values + 2, sizeof *out->at);
    out->node = malloc(((size_t)chain->nodes * KS_OP_INPUTS_MAX + 1) * sizeof *out->node);
    if (out->at && out->node) {
        fill(chain, values, out);
        return KS_OK;
    }
    ks_chain_readers_fini(out);
    return ks_fail(error, KS_MEMORY, "no memory for the readers of %d values", values);
}

void ks_chain_readers_fini(ks_chain_readers *readers)
{
    free(readers->at);
    free(readers->node);
    *readers = (ks_chain_readers){.chain = NULL};
}

int ks_chain_uses(const ks_chain_readers *readers, int value)
{
    int count = readers->at[value + 1] - readers->at[value];
    for (int i = 0; i < readers->chain->outputs; i++) count += readers->chain->output[i] == value;
    return count;
}

int ks_chain_next_reader(const ks_chain_readers *readers, int value, int behind)
{
    int low = readers->at[value], high = readers->at[value + 1];
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (readers->node[middle] > behind)
            high = middle;
        else
            low = middle + 1;
    }
    return low < readers->at[value + 1] ? readers->node[low] : -1;
}
