/* Several of map's functions in one pass on the CPU: a block of elements goes through all of them before the next one is touched, so that
 * what lies between them stays in the caches. Each function computes as map does, block for block.
 *
 * Threads  any; all memory is the caller's. */
#include "cpu/map/map.h"
#include "ops/map/maps.h"

/* The caller's scratch. */
typedef struct work {
    ks_map_wide reg[KS_MAPS_REGISTERS]; /* what inputs were brought together to, and results */
    ks_map_wide scalar[KS_MAPS_MAX];
    ks_map_room room;
} work;

typedef struct job {
    int count;
    ks_maps_function function[KS_MAPS_MAX];
    ks_map_shape shape;
    work *w;
} job;

static void run_block(const job *j, const void *held[KS_MAPS_REGISTERS], void *out, size_t count)
{
    for (int i = 0; i < j->count; i++) {
        const ks_maps_function *f = &j->function[i];
        const void *in[KS_MAP_OPERANDS] = {NULL}, *scalar[KS_MAP_OPERANDS] = {NULL};
        void *to = i + 1 == j->count ? out : j->w->reg[f->to];
        for (int k = 0; k < f->work.operands; k++) {
            if (f->from[k] >= 0)
                in[k] = held[f->from[k]];
            else
                scalar[k] = j->w->scalar[i];
        }
        ks_map_block(&f->work, in, scalar, to, count, &j->w->room);
        held[f->to] = to;
    }
}

/* ks_cpu_fn */
static void maps_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    job j = {.count = ks_maps_count(spec), .shape = ks_maps_shape_of(spec), .w = scratch};
    for (int i = 0; i < j.count; i++) {
        j.function[i] = ks_maps_read(spec, i);
        for (int k = 0; k < j.function[i].work.operands; k++)
            if (j.function[i].from[k] < 0) ks_map_scalar(&j.function[i].work, j.w->scalar[i], &j.w->room.middle);
    }
    const size_t out_size = ks_dtype_size(spec->out[0].dtype);
    for (int64_t at = 0; at < j.shape.count; at += KS_MAP_BLOCK) {
        const int64_t left = j.shape.count - at;
        const ks_map_range range = {at, left < KS_MAP_BLOCK ? left : KS_MAP_BLOCK};
        const void *held[KS_MAPS_REGISTERS] = {NULL};
        for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
            held[i] = ks_map_elements(&j.shape, i, in[i], ks_dtype_size(spec->in[i].dtype), &range, j.w->reg[i]);
        run_block(&j, held, (char *)out[0] + (size_t)at * out_size, (size_t)range.count);
    }
}

static size_t maps_scratch(const ks_spec *spec)
{
    (void)spec;
    return sizeof(work);
}

extern const ks_cpu_op ks_maps_cpu;
const ks_cpu_op ks_maps_cpu = {.reference = maps_reference, .scratch_bytes = maps_scratch};
