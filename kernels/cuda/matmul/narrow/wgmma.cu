/* Products of 8 bits by wgmma: which tile, which operands are packed in front, the launches. */
#include "cuda/matmul/candidates.h"
#include "cuda/matmul/narrow/pack.cuh"
#include "cuda/matmul/narrow/wgmma.cuh"

#include <stdio.h>
#include <string.h>

enum { SPLITS_MOST = 16, PITCH = 128 /* bytes: packed rows start on so many */, BLOCK = 256 /* rows */ };

/* --- kernels --------------------------------------------------------------------------------------------------------- */

typedef void narrow_wgmma_kernel(ks_site, mm_args, mm_maps, narrow_args);

typedef struct narrow_wgmma_row {
    mm_kernel tile;                    /* without an entry */
    narrow_wgmma_kernel *entry = NULL; /* none: behind the last row */
} narrow_wgmma_row;

/* Times are fitted to 846 readings of drawn products on an H200: of all rows of a product the least prediction is 1.003 of the least time. */
template <typename TILE>
static constexpr narrow_wgmma_row row_of(const char *name, mm_cost cost)
{
    mm_kernel tile = {};
    tile.name = name;
    tile.m = TILE::M * TILE::BY_M;
    tile.n = TILE::N * TILE::BY_N;
    tile.depth = TILE::DEPTH;
    tile.threads = TILE::THREADS;
    tile.ctas = 1;
    tile.shared_bytes = TILE::SHARED;
    tile.cost = cost;
    tile.tma = true;
    tile.by_m = TILE::BY_M;
    tile.by_n = TILE::BY_N;
    return {tile, narrow_wgmma<TILE>};
}

template <typename E>
constexpr mm_cost costs[NARROW_WGMMA_ROWS] = {};
template <>
constexpr mm_cost costs<int8_t>[NARROW_WGMMA_ROWS] = {
    {4.90f, 0.769f}, {4.70f, 0.695f}, {3.27f, 0.349f}, {2.82f, 0.249f}, {2.15f, 0.182f}};
template <>
constexpr mm_cost costs<__half>[NARROW_WGMMA_ROWS] = {
    {7.95f, 0.680f}, {7.69f, 0.653f}, {5.51f, 0.290f}, {5.02f, 0.191f}, {3.62f, 0.132f}};

template <typename E>
constexpr narrow_wgmma_row rows[NARROW_WGMMA_ROWS] = {
    row_of<narrow_wgmma_tile<E, 2, 256, 4, 2>>("2x 128x256", costs<E>[0]),
    row_of<narrow_wgmma_tile<E, 2, 256, 4, 1>>("128x256", costs<E>[1]),
    row_of<narrow_wgmma_tile<E, 2, 128, 6, 1>>("128x128", costs<E>[2]),
    row_of<narrow_wgmma_tile<E, 1, 128, 8, 1>>("64x128", costs<E>[3]),
    row_of<narrow_wgmma_tile<E, 1, 64, 10, 1>>("64x64", costs<E>[4]),
};

/* Sums have two sets of registers. */
template <bool A_E5M2, bool B_E5M2>
constexpr narrow_wgmma_row rows<narrow_fp8<A_E5M2, B_E5M2>>[NARROW_WGMMA_ROWS] = {
    row_of<narrow_wgmma_tile<narrow_fp8<A_E5M2, B_E5M2>, 2, 256, 4, 2>>("2x 128x256", {8.19f, 1.045f}),
    row_of<narrow_wgmma_tile<narrow_fp8<A_E5M2, B_E5M2>, 2, 128, 6, 2>>("2x 128x128", {5.96f, 0.493f}),
    row_of<narrow_wgmma_tile<narrow_fp8<A_E5M2, B_E5M2>, 2, 128, 6, 1>>("128x128", {5.72f, 0.483f}),
    row_of<narrow_wgmma_tile<narrow_fp8<A_E5M2, B_E5M2>, 1, 64, 10, 1>>("64x64", {3.44f, 0.267f}),
};

/* What multiplies. */
typedef enum narrow_wgmma_by { BY_INT8, BY_FP16, BY_E4M3, BY_E5M2_E4M3, BY_E4M3_E5M2, BY_KINDS } narrow_wgmma_by;

static const narrow_wgmma_row *const kinds[BY_KINDS] = {rows<int8_t>, rows<__half>, rows<narrow_fp8<false, false>>,
                                                        rows<narrow_fp8<true, false>>, rows<narrow_fp8<false, true>>};

static narrow_wgmma_by kind_of(const ks_matmul_shape &s)
{
    if (s.a_dtype == KS_INT8) return BY_INT8;
    if (!s.fast) return BY_FP16;
    return s.a_dtype == KS_FP8E5M2 ? BY_E5M2_E4M3 : s.b_dtype == KS_FP8E5M2 ? BY_E4M3_E5M2 : BY_E4M3;
}

static const narrow_wgmma_row *row_at(const ks_matmul_shape &s, int64_t number)
{
    return &kinds[kind_of(s)][number - 1];
}

cudaError_t narrow_wgmma_allow(ks_chip *chip)
{
    cudaError_t code = cudaSuccess;
    for (int kind = 0; kind < BY_KINDS && chip->encode_tiled; kind++)
        for (int i = 0; i < NARROW_WGMMA_ROWS && code == cudaSuccess; i++)
            if (kinds[kind][i].entry)
                code =
                    cudaFuncSetAttribute((const void *)kinds[kind][i].entry,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, kinds[kind][i].tile.shared_bytes);
    return code;
}

/* --- operands -------------------------------------------------------------------------------------------------------- */

static int64_t value_bytes(const ks_matmul_shape &s)
{
    return kind_of(s) == BY_FP16 ? 2 : 1;
}

/* Copies read what lies along K and begins at 16 bytes as it is. */
static bool packs(const ks_matmul_shape &s, const narrow_operand &o)
{
    return o.layout != NARROW_ALONG || value_bytes(s) > 1;
}

static int64_t matrices_of(const ks_matmul_shape &s, const narrow_operand &o)
{
    return s.batch_rank && o.step[0] ? s.batch : 1;
}

static int64_t packed_pitch(const ks_matmul_shape &s)
{
    return mm_tiles(s.k * value_bytes(s), PITCH) * PITCH;
}

/* What has to be packed, behind `at` bytes of the workspace, B first, which stays there for all blocks of its columns; returns where that ends. */
static size_t packing_of(const ks_matmul_shape &s, const narrow_args &args, size_t at, narrow_packing *out)
{
    memset(out, 0, sizeof *out);
    out->k = s.k;
    out->first = true;
    for (int i = 1; i >= 0; i--) {
        const narrow_operand &o = i ? args.b : args.a;
        narrow_pack_part *part = &out->part[i];
        if (!packs(s, o)) continue;
        part->operand = o;
        part->to = at;
        part->pitch = packed_pitch(s);
        part->step = s.batch_rank ? o.step[0] : 0;
        part->tiles_rows = mm_tiles(o.rows, NARROW_PACK_TILE);
        part->tiles_k = mm_tiles(s.k, NARROW_PACK_TILE);
        part->ctas = (unsigned)(part->tiles_rows * part->tiles_k * matrices_of(s, o));
        part->wide = o.along % 16 == 0 && o.rows % 16 == 0 && part->step % 16 == 0;
        part->widens = value_bytes(s) == 2;
        at += ks_align((size_t)(o.rows * matrices_of(s, o) * part->pitch));
    }
    return at;
}

/* A product whose packed operands are more than the workspace is done in blocks of the output: rows of A, columns of B. */
typedef struct narrow_blocks {
    int64_t rows, columns; /* of a block; the last one may have fewer */
    int64_t down, across;  /* how many */
} narrow_blocks;

static narrow_blocks blocks_of(const ks_chip *chip, const ks_matmul_shape &s, const narrow_args &args)
{
    const int64_t room = (int64_t)chip->workspace_bytes / packed_pitch(s) / BLOCK * BLOCK; /* rows, of both */
    const bool a = packs(s, args.a), b = packs(s, args.b);
    const int64_t needed = (a ? s.m * matrices_of(s, args.a) : 0) + (b ? s.n * matrices_of(s, args.b) : 0);
    narrow_blocks blocks = {s.m, s.n, 1, 1};
    if (needed <= room || s.batch > 1) return blocks;
    if (b) {
        const int64_t most = a ? room / 2 / BLOCK * BLOCK : room;
        blocks.across = most > 0 ? mm_tiles(s.n, most) : 0;
        if (blocks.across > 1) blocks.columns = mm_tiles(mm_tiles(s.n, blocks.across), BLOCK) * BLOCK;
    }
    if (a) {
        const int64_t left = b ? room - mm_tiles(blocks.columns, BLOCK) * BLOCK : room;
        blocks.down = left > 0 ? mm_tiles(s.m, left) : 0;
        if (blocks.down > 1) blocks.rows = mm_tiles(mm_tiles(s.m, blocks.down), BLOCK) * BLOCK;
    }
    return blocks;
}

/* The block's own arguments: it begins at (row, column), and refuses scales for all of them if it is the first. */
static narrow_args block_args(const ks_spec *spec, const narrow_args &args, const narrow_blocks &blocks, int64_t row,
                              int64_t column)
{
    const int64_t bytes = (int64_t)ks_dtype_size(spec->out[0].dtype);
    narrow_args block = args;
    block.a.rows = args.a.rows - row < blocks.rows ? args.a.rows - row : blocks.rows;
    block.b.rows = args.b.rows - column < blocks.columns ? args.b.rows - column : blocks.columns;
    block.a.at += (uint64_t)(row * args.a.row);
    block.b.at += (uint64_t)(column * args.b.row);
    if (args.a.each) block.a.scales += (uint64_t)row * sizeof(float);
    if (args.b.each) block.b.scales += (uint64_t)column * sizeof(float);
    block.bias += (uint64_t)column * sizeof(float);
    block.c += (uint64_t)((row * args.line + column) * bytes);
    block.first = row == 0 && column == 0;
    block.same_b = row > 0;
    if (!block.first) block.counts[0] = block.counts[1] = 0;
    return block;
}

static ks_matmul_shape block_shape(const ks_matmul_shape &s, const narrow_args &block)
{
    ks_matmul_shape of = s;
    of.m = block.a.rows;
    of.n = block.b.rows;
    return of;
}

static size_t sums_bytes(const ks_matmul_shape &s, int64_t splits)
{
    return splits > 1 ? ks_align((size_t)(s.m * s.n * s.batch) * 4 * (size_t)splits) : 0;
}

/* --- plans ----------------------------------------------------------------------------------------------------------- */

/* Beside the tiles, from the same readings: a launch, one in front that packs, one behind that adds slices, and their bytes. */
static double beside_us(const narrow_packing &packing, size_t packed, size_t sums)
{
    const bool packs = packing.part[0].ctas || packing.part[1].ctas;
    return 1.2 + (packs ? 2.3 + 0.69e-6 * (double)packed : 0) + (sums ? 1.5 + 0.42e-6 * (double)sums : 0);
}

/* Tensor maps need something to map, and at most one dimension of the batch. */
static bool can(const ks_chip *chip, const ks_matmul_shape &s)
{
    return chip->capability == 90 && chip->encode_tiled && s.m > 0 && s.n > 0 && s.k > 0 && s.batch > 0 &&
           s.batch_rank <= 1 && s.k <= MM_SLICE_MOST;
}

double narrow_wgmma_choose(const ks_chip *chip, const ks_spec *spec, const narrow_args &args, int row,
                           narrow_algorithm *out)
{
    enum { UNITS_MOST = 1 << 30 };
    ks_matmul_shape s;
    narrow_packing packing;
    double best = 0;
    ks_matmul_shape_of(spec, &s);
    const mm_kernel *tile = &kinds[kind_of(s)][row].tile;
    if (!can(chip, s) || !kinds[kind_of(s)][row].entry || (size_t)tile->shared_bytes > chip->shared_optin) return 0;
    const narrow_blocks blocks = blocks_of(chip, s, args);
    const double count = (double)blocks.down * (double)blocks.across;
    if (count < 1) return 0;
    const narrow_args block = block_args(spec, args, blocks, 0, 0);
    const ks_matmul_shape part = block_shape(s, block);
    const double tiles = (double)mm_tiles(part.m, tile->m) * (double)mm_tiles(part.n, tile->n) * (double)s.batch;
    const int64_t steps = mm_tiles(s.k, tile->depth), peers = tile->by_m * tile->by_n;
    const int64_t slots = mm_clusters(chip, (unsigned)peers);
    for (int64_t splits = 1; splits <= SPLITS_MOST && splits <= steps; splits *= 2) {
        const int64_t each = mm_tiles(steps, splits), slices = mm_tiles(steps, each);
        const double units = tiles * (double)slices;
        const size_t sums = sums_bytes(s, slices), bytes = packing_of(part, block, sums, &packing);
        if (units > (double)UNITS_MOST || bytes > chip->workspace_bytes) break;
        if (splits > 1 && (units > 4.0 * (double)slots || count > 1)) break;
        const double waves = (double)mm_tiles((int64_t)units, slots);
        const double us = waves * (tile->cost.fixed_us + (double)each * tile->cost.us_per_stage) +
                          beside_us(packing, bytes - sums, sums);
        if (best > 0 && us * count >= best) continue;
        best = us * count;
        memset(out, 0, sizeof *out);
        out->mark = KS_MATMUL_NARROW_MARK;
        out->splits = (int16_t)slices;
        out->grid = (int32_t)((units < (double)slots ? (int64_t)units : slots) * peers);
        out->slice = slices > 1 ? each * tile->depth : s.k;
        out->wgmma = row + 1;
    }
    return best;
}

void narrow_wgmma_plan(const ks_chip *chip, const ks_spec *spec, const narrow_args &args, const narrow_algorithm &c,
                       ks_cuda_plan *out)
{
    ks_matmul_shape s;
    narrow_packing packing;
    ks_matmul_shape_of(spec, &s);
    const mm_kernel *tile = &row_at(s, c.wgmma)->tile;
    out->batch_max = 1; /* maps hold addresses */
    const narrow_args block = block_args(spec, args, blocks_of(chip, s, args), 0, 0);
    out->workspace_bytes = packing_of(block_shape(s, block), block, sums_bytes(s, c.splits), &packing);
    out->kernel_info.grid = c.grid;
    out->kernel_info.threads = tile->threads;
    out->kernel_info.cluster = tile->by_m * tile->by_n;
    out->kernel_info.shared_bytes = (size_t)tile->shared_bytes;
    char slices[16] = "";
    if (c.splits > 1) snprintf(slices, sizeof slices, ", %d slices", c.splits);
    const char *dtype = ks_dtype_name(s.a_dtype);
    if (kind_of(s) == BY_FP16)
        dtype = "FP8 as FP16"; /* which is always packed */
    else if (kind_of(s) != BY_INT8)
        dtype += strlen("FP8");
    const bool packed = kind_of(s) != BY_FP16 && (packing.part[0].ctas || packing.part[1].ctas);
    snprintf(out->kernel_info.kernel, sizeof out->kernel_info.kernel, "matmul_8_bits<%s, wgmma %s%s%s>", dtype,
             tile->name, packed ? " packed" : "", slices);
}

/* --- launches -------------------------------------------------------------------------------------------------------- */

/* An operand as copies see it: boxes of 128 bytes of K by `rows`, a CTA's part of the tile. */
typedef struct narrow_mapped {
    const narrow_operand *operand;
    const narrow_pack_part *part;
    int rows;
} narrow_mapped;

static bool make_map(const ks_chip *chip, const ks_matmul_shape &s, const ks_site &site, const narrow_mapped &m,
                     CUtensorMap *map)
{
    const narrow_operand &o = *m.operand;
    const int64_t size = value_bytes(s), matrices = matrices_of(s, o);
    const bool packed = m.part->pitch > 0;
    const int64_t row_bytes = packed ? m.part->pitch : o.rows > 1 ? o.row : mm_tiles(s.k, 16) * 16;
    const uintptr_t at = packed ? (uintptr_t)site.workspace + m.part->to : (uintptr_t)site.only.in + o.at;
    const cuuint64_t pitch = (cuuint64_t)row_bytes, step = (cuuint64_t)(packed ? o.rows * row_bytes : o.step[0]);
    const cuuint64_t dims[3] = {(cuuint64_t)s.k, (cuuint64_t)o.rows, (cuuint64_t)matrices};
    const cuuint64_t strides[2] = {pitch, matrices > 1 ? step : pitch};
    const cuuint32_t box[3] = {(cuuint32_t)(128 / size), (cuuint32_t)m.rows, 1}, steps[3] = {1, 1, 1};
    const CUtensorMapDataType type = size == 2 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8;
    const CUtensorMapL2promotion promotion = pitch % 256 == 0   ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
                                             : pitch % 128 == 0 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                                                                : CU_TENSOR_MAP_L2_PROMOTION_NONE;
    return chip->encode_tiled(map, type, 3, (void *)at, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                              CU_TENSOR_MAP_SWIZZLE_128B, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* How the CTAs walk over tiles and slices. */
static mm_args walk_of(const ks_matmul_shape &s, const narrow_algorithm &c, const mm_kernel *tile, bool packed)
{
    mm_args walk = {};
    walk.k = s.k;
    walk.k_slice = c.slice;
    walk.m = s.m;
    walk.n = s.n;
    mm_count_tiles(tile, &walk);
    walk.splits = (unsigned)c.splits;
    if (walk.splits > 1) walk.splits_reciprocal = (unsigned)(((1ull << 32) + walk.splits - 1) / walk.splits);
    walk.cluster = 1;
    walk.matrices = (unsigned)s.batch;
    walk.batch_rank = (uint8_t)s.batch_rank;
    walk.batch_dims[0] = s.batch_dims[0];
    walk.a.step[0] = s.batch_rank ? s.a_step[0] : 0;
    walk.b.step[0] = s.batch_rank ? s.b_step[0] : 0;
    walk.many = (uint8_t)((walk.a.step[0] != 0) | (walk.b.step[0] != 0) << 1);
    walk.packed = packed ? MM_PACKED : MM_PACKED_NOT;
    return walk;
}

/* A block's launches. */
static cudaError_t launch_block(const ks_chip *chip, const ks_matmul_shape &s, const narrow_args &args,
                                const narrow_algorithm &c, const ks_site &site, cudaStream_t stream)
{
    narrow_packing packing;
    mm_maps maps = {};
    const narrow_wgmma_row *row = row_at(s, c.wgmma);
    const mm_kernel *tile = &row->tile;
    packing_of(s, args, sums_bytes(s, c.splits), &packing);
    packing.first = args.first;
    if (args.same_b) packing.part[1].ctas = 0;
    const unsigned packers = packing.part[0].ctas + packing.part[1].ctas;
    cudaError_t code = cudaSuccess;
    if (packers) code = ks_launch(narrow_pack, dim3(packers), NARROW_PACK_THREADS, 0, false, stream, site, packing);
    if (code != cudaSuccess) return code;
    const int peers = tile->by_m * tile->by_n;
    const narrow_mapped a = {&args.a, &packing.part[0], tile->m / peers},
                        b = {&args.b, &packing.part[1], tile->n / peers};
    if (!make_map(chip, s, site, a, &maps.a) || !make_map(chip, s, site, b, &maps.b)) return cudaErrorInvalidValue;
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    if (peers > 1) {
        cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
        attribute->id = cudaLaunchAttributeClusterDimension;
        attribute->val.clusterDim.x = (unsigned)peers;
        attribute->val.clusterDim.y = attribute->val.clusterDim.z = 1;
    }
    if (packers && chip->launches_early) {
        cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
        attribute->id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute->val.programmaticStreamSerializationAllowed = 1;
    }
    const int64_t units = mm_tiles(s.m, tile->m) * mm_tiles(s.n, tile->n) * s.batch * c.splits * peers;
    config.gridDim = dim3((unsigned)(units < c.grid ? units : c.grid));
    config.blockDim = dim3((unsigned)tile->threads);
    config.dynamicSmemBytes = (size_t)tile->shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    return cudaLaunchKernelEx(&config, row->entry, site, walk_of(s, c, tile, packers > 0), maps, args);
}

cudaError_t narrow_wgmma_launch(const ks_chip *chip, const ks_spec *spec, const narrow_args &args,
                                const narrow_algorithm &c, const ks_site &site, cudaStream_t stream)
{
    ks_matmul_shape s;
    ks_matmul_shape_of(spec, &s);
    const narrow_wgmma_row *row = row_at(s, c.wgmma);
    if (ks_noting) {
        *ks_noting = {(const void *)row->entry, row->tile.threads, (size_t)row->tile.shared_bytes};
        return cudaSuccess;
    }
    const narrow_blocks blocks = blocks_of(chip, s, args);
    cudaError_t code = cudaSuccess;
    for (int64_t across = 0; across < blocks.across; across++)
        for (int64_t down = 0; down < blocks.down && code == cudaSuccess; down++) {
            const int64_t i = down * blocks.rows, j = across * blocks.columns;
            if (i >= s.m || j >= s.n) continue; /* the others' rows were rounded up */
            const narrow_args block = block_args(spec, args, blocks, i, j);
            code = launch_block(chip, block_shape(s, block), block, c, site, stream);
        }
    return code;
}
