/* Any set of axes as lines of one axis. */
#include "ops/reduce.h"

unsigned ks_reduce_axes(const ks_spec *spec)
{
    const ks_axes *axes = &spec->params[AXIS].axes;
    unsigned set = axes->count < 0 ? (1u << spec->in[0].rank) - 1 : 0;
    for (int i = 0; i < axes->count; i++) set |= 1u << axes->axis[i];
    return set;
}

/* Neighbouring axes of one sort are one dimension; axes of extent 1 are none. Outermost first. */
static void merge_axes(const ks_tensor *in, unsigned set, ks_dimensions *kept, ks_dimensions *reduced)
{
    int64_t stride = ks_tensor_count(in);
    ks_dimensions *last = NULL;
    *kept = *reduced = (ks_dimensions){0};
    for (int i = 0; i < in->rank; i++) {
        const int64_t extent = in->dims[i];
        if (extent == 1) continue;
        stride = extent ? stride / extent : 0;
        ks_dimensions *list = set >> i & 1 ? reduced : kept;
        if (list != last) list->at[list->count++] = (ks_dimension){.extent = 1};
        ks_dimension *merged = &list->at[list->count - 1];
        *merged = (ks_dimension){merged->extent * extent, stride};
        last = list;
    }
}

static ks_dimension take_last(ks_dimensions *list, ks_dimension otherwise)
{
    return list->count ? list->at[--list->count] : otherwise;
}

ks_walk ks_walk_plan(const ks_spec *spec, int64_t short_row)
{
    ks_walk w;
    merge_axes(&spec->in[0], ks_reduce_axes(spec), &w.kept, &w.rest);
    w.depth = take_last(&w.rest, (ks_dimension){1, 1});
    w.lanes = (ks_dimension){1, 1};
    const ks_dimension *inner = w.kept.count ? &w.kept.at[w.kept.count - 1] : NULL;
    const bool columns = inner && inner->stride == 1;
    if (columns || (inner && w.depth.extent < short_row)) w.lanes = take_last(&w.kept, w.lanes);
    return w;
}

/* The offset of the n-th combination. */
int64_t ks_walk_offset(const ks_dimensions *list, int64_t n)
{
    int64_t offset = 0;
    for (int i = list->count - 1; i >= 0; i--) {
        offset += n % list->at[i].extent * list->at[i].stride;
        n /= list->at[i].extent;
    }
    return offset;
}

int64_t ks_walk_combinations(const ks_dimensions *list)
{
    int64_t n = 1;
    for (int i = 0; i < list->count; i++) n *= list->at[i].extent;
    return n;
}
