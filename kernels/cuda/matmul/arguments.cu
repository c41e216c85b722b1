/* A candidate's kernel and what it is launched with: operands as rows, tiles, slices of K, packed copies, grid and workspace. */
#include "cuda/matmul/candidates.h"

const mm_table *const mm_tables[MM_TABLES] = {[MM_FP16] = &mm_table_fp16,
                                              [MM_BF16] = &mm_table_bf16,
                                              [MM_TF32] = &mm_table_tf32,
                                              [MM_FP32] = &mm_table_fp32,
                                              [MM_FP64] = &mm_table_fp64};

mm_problem mm_problem_of(const ks_chip *chip, const ks_spec *spec)
{
    mm_problem p;
    p.chip = chip;
    p.spec = spec;
    p.element_bytes = (int)ks_dtype_size(spec->out[0].dtype);
    ks_matmul_shape_of(spec, &p.shape);
    return p;
}

/* --- operands -------------------------------------------------------------------------------------------------------- */

/* An operand's extents and strides, in elements: across K and along it, one of the strides 1. */
typedef struct mm_strides {
    mm_int across, along, wide;
    const int64_t *steps;
} mm_strides;

/* *along_k: rows lie along K. A single row has no pitch. */
static mm_operand operand_of(const mm_problem *p, size_t at, const mm_strides *by, bool *along_k)
{
    const mm_int k = p->shape.k;
    mm_operand o = {};
    o.at = at;
    *along_k = by->along == 1 && (by->wide == 1 || k > 1 || by->across != 1);
    o.pitch = *along_k ? (by->wide == 1 ? 0 : by->across) : k == 1 ? 0 : by->along;
    mm_int together = o.pitch;
    for (int d = 0; d < p->shape.batch_rank; d++) {
        o.step[d] = by->steps[d];
        together |= by->steps[d];
    }
    /* A single row may end within 16 bytes. */
    if (by->wide == 1) together |= k;
    if (k == 1) together |= by->wide;
    o.shifted = together * p->element_bytes % 16 != 0;
    return o;
}

static void set_arguments(const mm_problem *p, bool swap_ab, mm_args *args, mm_layout *layout)
{
    const ks_matmul_shape *s = &p->shape;
    args->c_at = p->spec->out[0].offset;
    args->biased = s->biased;
    args->bias_at = p->spec->in[KS_MATMUL_BIAS].offset;
    args->activation = s->activation;
    args->residual = s->residual;
    args->residual_at = p->spec->in[KS_MATMUL_RESIDUAL].offset;
    args->alpha = s->alpha;
    args->plain = s->alpha == 1.0 && !s->biased && s->activation == KS_MATMUL_NONE && !s->residual;
    args->k = s->k;
    args->batch_rank = (uint8_t)s->batch_rank;
    for (int d = 0; d < s->batch_rank; d++) args->batch_dims[d] = s->batch_dims[d];
    const mm_strides a_by = {s->a_row, s->a_col, s->m, s->a_step}, b_by = {s->b_col, s->b_row, s->n, s->b_step};
    bool a_k, b_k;
    const mm_operand a = operand_of(p, p->spec->in[0].offset, &a_by, &a_k),
                     b = operand_of(p, p->spec->in[1].offset, &b_by, &b_k);
    args->swap_ab = swap_ab;
    args->m = swap_ab ? s->n : s->m;
    args->n = swap_ab ? s->m : s->n;
    args->a = swap_ab ? b : a;
    args->b = swap_ab ? a : b;
    layout->a_k = swap_ab ? b_k : a_k;
    layout->b_k = swap_ab ? a_k : b_k;
}

/* Input `in` as it lies once it is packed, where it has to be. */
static void pack_operand(const ks_tensor *in, mm_operand *o, mm_pack_part *part, size_t *packed_bytes)
{
    if (!o->shifted || o->pitch == 0) return;
    const mm_int size = (mm_int)ks_dtype_size(in->dtype), rows = ks_tensor_count(in) / o->pitch;
    const mm_int pitch = mm_tiles(o->pitch * size, MM_PACK_PITCH) * MM_PACK_PITCH;
    part->at = o->at;
    part->to = *packed_bytes;
    part->row_chunks = (unsigned)mm_tiles(o->pitch * size, 16);
    part->chunks = (unsigned)rows * part->row_chunks;
    part->row_bytes = (unsigned)(o->pitch * size);
    part->pitch = (unsigned)pitch;
    *packed_bytes += ks_align((size_t)rows * (size_t)pitch);
    for (int d = 0; d < KS_MATMUL_BATCH_RANK; d++) o->step[d] = o->step[d] / o->pitch * (pitch / size);
    o->pitch = pitch / size;
    o->shifted = false;
}

static void pack_operands(const ks_spec *spec, const ks_matmul_candidate *c, mm_fit *fit)
{
    for (int i = 0; i < 2 && c->packed; i++)
        if (!fit->kernel.odd || i != c->swap_ab)
            pack_operand(&spec->in[i], i == c->swap_ab ? &fit->args.a : &fit->args.b, &fit->layout.pack.part[i],
                         &fit->layout.packed_bytes);
}

/* --- the fit --------------------------------------------------------------------------------------------------------- */

/* Shared memory of a kernel that holds A's slice: the outputs' slots, then A or, later, the sums. */
static int held_bytes(const mm_kernel *kernel, mm_int slice_bytes)
{
    const mm_int most = MM_SLICE_MOST, slots = (mm_int)kernel->m * kernel->n * (mm_int)sizeof(float);
    const mm_int held = slots + kernel->m * (mm_int)mm_held_pitch((int)(slice_bytes < most ? slice_bytes : most));
    return held < kernel->shared_bytes ? kernel->shared_bytes : (int)(held < most ? held : most);
}

void mm_count_tiles(const mm_kernel *kernel, mm_args *args)
{
    args->tiles_m = (unsigned)mm_tiles(args->m, kernel->m);
    args->tiles_n = (unsigned)mm_tiles(args->n, kernel->n);
    if (args->tiles_m > 1) args->reciprocal = (unsigned)(((1ull << 32) + args->tiles_m - 1) / args->tiles_m);
    args->tiles = args->tiles_m * args->tiles_n;
    while (1ull << args->tiles_shift < args->tiles) args->tiles_shift++;
    if (args->tiles > 0)
        args->tiles_factor = (unsigned)(((1ull << 31 << args->tiles_shift) + args->tiles - 1) / args->tiles);
}

mm_fit mm_fit_to(const mm_problem *p, const ks_matmul_candidate *c)
{
    mm_fit fit = {};
    mm_args *args = &fit.args;
    set_arguments(p, c->swap_ab, args, &fit.layout);
    fit.kernel = mm_tables[c->table]->rows[c->kernel].layout[fit.layout.a_k][fit.layout.b_k];
    args->packed = c->packed;
    pack_operands(p->spec, c, &fit);
    mm_count_tiles(&fit.kernel, args);
    args->cluster = c->cluster;
    args->splits = (unsigned)c->splits;
    if (args->splits > 1) args->splits_reciprocal = (unsigned)(((1ull << 32) + args->splits - 1) / args->splits);
    for (args->cluster_log2 = 0; 1u << args->cluster_log2 < args->cluster; args->cluster_log2++) continue;
    args->matrices = (unsigned)p->shape.batch;
    args->many = (uint8_t)((args->a.step[0] != 0) | (args->b.step[0] != 0) << 1);
    args->k_slice = c->k_slice;
    if (fit.kernel.skinny == MM_SKINNY_HELD || fit.kernel.skinny == MM_SKINNY_ODD)
        fit.kernel.shared_bytes = held_bytes(&fit.kernel, c->k_slice * (mm_int)p->element_bytes);
    return fit;
}

/* --- what it needs --------------------------------------------------------------------------------------------------- */

size_t mm_partial_bytes(const mm_problem *p, const mm_fit *fit)
{
    const mm_args *args = &fit->args;
    const size_t sum_bytes = p->spec->out[0].dtype == KS_FP64 ? sizeof(double) : sizeof(float);
    if (args->splits == 1) return 0;
    return ks_align((size_t)p->shape.batch * args->tiles_m * args->tiles_n * args->splits * (size_t)fit->kernel.m *
                    (size_t)fit->kernel.n * sum_bytes);
}

size_t mm_workspace_bytes(const mm_problem *p, const mm_fit *fit)
{
    return mm_partial_bytes(p, fit) + fit->layout.packed_bytes;
}

size_t mm_counters(const mm_problem *p, const mm_fit *fit)
{
    const mm_args *args = &fit->args;
    if (args->splits == 1) return 0;
    return (size_t)p->shape.batch * args->tiles_m * args->tiles_n * args->cluster * mm_peers(&fit->kernel) *
           (size_t)(fit->kernel.tma ? fit->kernel.threads / 32 : 1);
}

/* A unit is a CTA, or a cluster, but for kernels that walk over whole tiles, or take several matrices at a time. */
mm_int mm_grid(const mm_problem *p, const mm_fit *fit)
{
    const mm_args *args = &fit->args;
    const mm_kernel *kernel = &fit->kernel;
    if (kernel->matrices) return mm_tiles(args->matrices, kernel->matrices);
    const mm_int units = (mm_int)args->matrices * args->tiles_m * args->tiles_n * args->cluster * args->splits;
    const unsigned peers = mm_peers(kernel);
    const mm_int most = (mm_int)mm_clusters(p->chip, peers) * kernel->ctas;
    const bool walks = kernel->tma && !kernel->skinny && args->cluster * args->splits == 1;
    return (walks && units > most ? most : units) * peers;
}
