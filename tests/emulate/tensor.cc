/* See tensor.h. Sums are exact within an instruction, and rounded once to FP32; a GPU cuts them. */
#include "tensor.h"

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cudaTypedefs.h"
#include "worker.h"

#include "ops/numbers/fp8.h"

#include <algorithm>

static const unsigned char *lane_of(const unsigned char *warp, int lane)
{
    return warp + lane * EMULATE_EACH;
}

static int size_of(emulate_type type)
{
    return type == EMULATE_TF32 ? 4 : type >= EMULATE_INT8 ? 1 : 2;
}

/* Every number of 8 bits, looked up as FP16's are. */
struct bytes_values {
    float of[3][256];

    bytes_values()
    {
        for (int code = 0; code < 256; code++) {
            of[0][code] = (float)(int8_t)code;
            of[1][code] = ks_fp8_to_float(ks_fp8_e4m3, (uint8_t)code);
            of[2][code] = ks_fp8_to_float(ks_fp8_e5m2, (uint8_t)code);
        }
    }
};
static const bytes_values values_of_bytes;

/* `count` elements that lie one behind the other; to: `step` apart. */
static void decode(emulate_type type, const unsigned char *at, int count, float *to, int step)
{
    if (type == EMULATE_TF32) {
        uint32_t word;
        for (int i = 0; i < count; i++) {
            memcpy(&word, at + i * 4, sizeof word);
            to[i * step] = __uint_as_float(word & 0xFFFFE000u); /* the low bits are not looked at */
        }
    } else if (type >= EMULATE_INT8) {
        const float *of = values_of_bytes.of[type - EMULATE_INT8];
        for (int i = 0; i < count; i++) to[i * step] = of[at[i]];
    } else {
        uint16_t bits;
        for (int i = 0; i < count; i++) {
            memcpy(&bits, at + i * 2, sizeof bits);
            to[i * step] = type == EMULATE_FP16 ? __half2float({bits}) : __bfloat162float({bits});
        }
    }
}

/* --- a warp ---------------------------------------------------------------------------------------------------------- */

/* Of a block of 8 x 8, whose row i is at `rows` + i * EMULATE_EACH. */
static uint32_t part(const unsigned char *rows, int lane, bool transposed)
{
    uint16_t two[2];
    for (int i = 0; i < 2; i++) {
        const int row = transposed ? lane % 4 * 2 + i : lane / 4, column = transposed ? lane / 4 : lane % 4 * 2 + i;
        memcpy(&two[i], lane_of(rows, row) + column * 2, 2);
    }
    return two[0] | (uint32_t)two[1] << 16;
}

void emulate_load_blocks(uint32_t *to, uint32_t row, bool transposed)
{
    if (row % 16) emulate_fault("a row of a block that does not start on 16 bytes");
    const unsigned char *rows = emulate_warp(emulate_at(row), 16);
    for (int i = 0; i < 4; i++) to[i] = part(lane_of(rows, i * 8), (int)threadIdx.x % 32, transposed);
}

/* Column or row `row` of the block of which the lanes have their words at `at`. */
static void gather(uint16_t *out, const unsigned char *warp, int at, int row, bool transposed)
{
    for (int column = 0; column < 8; column++) {
        const int lane = transposed ? column * 4 + row / 2 : row * 4 + column / 2;
        memcpy(&out[column], lane_of(warp, lane) + at + (transposed ? row % 2 : column % 2) * 2, 2);
    }
}

void emulate_store_blocks(uint32_t row, uint32_t first, uint32_t second, bool transposed)
{
    const uint32_t words[2] = {first, second};
    const int lane = (int)threadIdx.x % 32;
    uint16_t line[8];
    const unsigned char *warp = emulate_warp(words, sizeof words);
    if (lane >= 16) return;
    if (row % 16) emulate_fault("a row of a block that does not start on 16 bytes");
    gather(line, warp, lane / 8 * 4, lane % 8, transposed);
    memcpy(emulate_at(row), line, sizeof line);
}

uint32_t emulate_transpose_block(uint32_t two)
{
    const unsigned char *warp = emulate_warp(&two, sizeof two);
    const int lane = (int)threadIdx.x % 32;
    uint16_t line[8];
    gather(line, warp, 0, lane / 4, true);
    return line[lane % 4 * 2] | (uint32_t)line[lane % 4 * 2 + 1] << 16;
}

/* A lane's words as numbers: one or two of each, one behind the other. */
struct parts {
    float of[12];
};

static parts parts_of(emulate_type type, const uint32_t *words, int count)
{
    parts p = {};
    decode(type, (const unsigned char *)words, count * 4 / size_of(type), p.of, 1);
    return p;
}

/* What four lanes have of a row: their parts `at` and `next`, of the first and the second half of K. EACH: numbers of a word. */
template <int EACH, typename Number>
static void row_of(Number *out, int step, const unsigned char *warp, int row, int at, int next)
{
    for (int lane = 0; lane < 4; lane++) {
        const parts *p = (const parts *)(const void *)lane_of(warp, row * 4 + lane);
        for (int e = 0; e < EACH; e++) {
            out[(lane * EACH + e) * step] = p->of[at * EACH + e];
            out[((4 + lane) * EACH + e) * step] = p->of[next * EACH + e];
        }
    }
}

/* Each sum is one of doubles, in the order of K, rounded once; sums side by side wait for each other's additions no more. */
template <int EACH>
static void add_products(float *c, const unsigned char *warp, int lane)
{
    typedef double pair __attribute__((vector_size(16)));
    enum { DEPTH = 8 * EACH };
    double x[2][DEPTH], y[DEPTH][2];
    for (int i = 0; i < 2; i++) {
        row_of<EACH>(x[i], 1, warp, lane / 4, i, i + 2);
        row_of<EACH>(&y[0][i], 2, warp, lane % 4 * 2 + i, 4, 5);
    }
    pair low = {c[0], c[1]}, high = {c[2], c[3]};
    for (int k = 0; k < DEPTH; k++) {
        const pair both = {y[k][0], y[k][1]};
        low += x[0][k] * both;
        high += x[1][k] * both;
    }
    for (int i = 0; i < 2; i++) {
        c[i] = (float)low[i];
        c[2 + i] = (float)high[i];
    }
}

void emulate_mma(emulate_type type, float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const int lane = (int)threadIdx.x % 32;
    const parts mine = parts_of(type, words, 6);
    const unsigned char *warp = emulate_warp(&mine, sizeof mine);
    if (type == EMULATE_TF32)
        add_products<1>(c, warp, lane);
    else
        add_products<2>(c, warp, lane);
}

/* --- a warpgroup ----------------------------------------------------------------------------------------------------- */

enum { DEPTH_BYTES = 32 }; /* of K that one instruction takes */

/* Where value k of a row lies, as the descriptor tells. */
struct place {
    uint32_t start, leading, stride, row_bytes;
    CUtensorMapSwizzle swizzle;
    int size;
    bool along;

    place(emulate_operand o, int element_bytes) : size(element_bytes), along(o.along)
    {
        static const CUtensorMapSwizzle swizzles[] = {CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                                      CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_32B};
        start = (uint32_t)(o.descriptor & 0x3FFF) << 4;
        leading = (uint32_t)(o.descriptor >> 16 & 0x3FFF) << 4;
        stride = (uint32_t)(o.descriptor >> 32 & 0x3FFF) << 4;
        swizzle = swizzles[o.descriptor >> 62];
        row_bytes = swizzle ? 256u >> (o.descriptor >> 62) : 16;
    }

    uint32_t operator()(uint32_t row, uint32_t k) const
    {
        const uint32_t bytes = (along ? k : row) * (uint32_t)size;
        uint32_t at = start;
        if (along && !swizzle)
            at += row / 8 * stride + bytes / 16 * leading + row % 8 * 16 + bytes % 16;
        else if (along)
            at += row / 8 * stride + row % 8 * row_bytes + bytes;
        else if (!swizzle)
            at += bytes / 16 * stride + k / 8 * leading + k % 8 * 16 + bytes % 16;
        else
            at += bytes / row_bytes * leading + k / 8 * stride + k % 8 * row_bytes + bytes % row_bytes;
        return emulate_swizzled(at, swizzle);
    }

    /* The 32 bytes that one instruction takes of a row, or of two rows: the second is behind the first, and lies beside it
     * where rows do not lie along K. Along K 16 bytes lie together, whatever the swizzle. */
    void read(const unsigned char *window, uint32_t row, int rows, unsigned char (*to)[DEPTH_BYTES]) const
    {
        if (along) {
            for (int i = 0; i < rows; i++)
                for (uint32_t half = 0; half < 2; half++)
                    memcpy(to[i] + half * 16, window + (*this)(row + (uint32_t)i, half * 16 / (uint32_t)size), 16);
            return;
        }
        for (uint32_t k = 0; k < DEPTH_BYTES / (uint32_t)size; k++) {
            const unsigned char *at = window + (*this)(row, k);
            for (int i = 0; i < rows; i++) memcpy(to[i] + k * (uint32_t)size, at + i * size, (size_t)size);
        }
    }
};

/* Four columns of an operand: as they lie in shared memory, and as numbers. */
struct emulate_columns {
    emulate_type type;
    unsigned char bytes[4][DEPTH_BYTES];
    float of[DEPTH_BYTES][4];
};
enum {
    COLUMNS_KEPT = 1024
}; /* more than a warpgroup's threads look at in turn: 256 columns of 128 bytes, by four lanes */

/* The threads of a warpgroup look at the same columns, each when it waits for its products: the numbers of those whose bytes are
 * still the same are kept. With the worker, because noise is written over all that is a thread's own. */
static const emulate_columns *numbers_of(emulate_type type, const unsigned char (*bytes)[DEPTH_BYTES], uint32_t at)
{
    worker *w = self;
    if (!w->columns) w->columns = (emulate_columns *)calloc(COLUMNS_KEPT, sizeof *w->columns);
    if (!w->columns) emulate_fault("no memory for columns");
    emulate_columns *kept = &w->columns[(at * 0x9E3779B1u) >> 22];
    static_assert(COLUMNS_KEPT == 1 << (32 - 22), "the hash has an index's bits");
    if (kept->type == type && memcmp(kept->bytes, bytes, sizeof kept->bytes) == 0) return kept;
    kept->type = type;
    memcpy(kept->bytes, bytes, sizeof kept->bytes);
    for (int i = 0; i < 4; i++) decode(type, bytes[i], DEPTH_BYTES / size_of(type), &kept->of[0][i], 4);
    return kept;
}

/* What a thread multiplies: two rows, 8 apart, by two columns of each eight. */
struct emulate_product_of {
    emulate_type a, b;
    float x[2][DEPTH_BYTES];
    int lane, columns; /* columns: of the warpgroup's product */
};

/* Sums of two rows by four columns, in the order of K, as add_products has them. */
static void add_four(double (*sums)[4], const emulate_product_of &p, const emulate_columns *y)
{
    typedef double pair __attribute__((vector_size(16)));
    const int depth = DEPTH_BYTES / size_of(p.b);
    pair sum[2][2];
    memcpy(sum, sums, sizeof sum);
    for (int k = 0; k < depth; k++) {
        const float *at = y->of[k];
        const pair first = {at[0], at[1]}, second = {at[2], at[3]};
        for (int i = 0; i < 2; i++) {
            const double x = p.x[i][k];
            sum[i][0] += x * first;
            sum[i][1] += x * second;
        }
    }
    memcpy(sums, sum, sizeof sum);
}

/* d: as PTX lays it out. A sum of INT8's products is exact, and is added as a whole number. */
template <typename Sum>
static void multiply(const emulate_product_of &p, const place &b_at, Sum *d, bool first)
{
    const unsigned char *window = emulate_at(1024) - 1024;
    const bool is_whole = std::is_same_v<Sum, int32_t>;
    for (int eight = 0; eight < p.columns / 8; eight += 2) {
        unsigned char bytes[4][DEPTH_BYTES] = {};
        const uint32_t column = (uint32_t)(eight * 8 + p.lane % 4 * 2);
        const int count = p.columns / 8 - eight > 1 ? 4 : 2;
        for (int i = 0; i < count; i += 2) b_at.read(window, column + (uint32_t)i * 4, 2, bytes + i);
        double sums[2][4] = {};
        for (int i = 0; i < 2 && !first && !is_whole; i++)
            for (int j = 0; j < count; j++) sums[i][j] = (double)d[(eight + j / 2) * 4 + i * 2 + j % 2];
        add_four(sums, p, numbers_of(p.b, bytes, b_at(column, 0)));
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < count; j++) {
                Sum *sum = &d[(eight + j / 2) * 4 + i * 2 + j % 2];
                *sum = (is_whole && !first ? *sum : 0) + (Sum)sums[i][j];
            }
    }
}

static emulate_product_of product_of(emulate_type a, emulate_type b, int columns)
{
    emulate_product_of p = {};
    p.a = a;
    p.b = b;
    p.lane = (int)threadIdx.x % 32;
    p.columns = columns;
    return p;
}

/* This thread's rows, from shared memory. */
static void read_rows(emulate_product_of *p, const place &a_at)
{
    unsigned char bytes[2][DEPTH_BYTES];
    const unsigned char *window = emulate_at(1024) - 1024;
    const int row = (int)threadIdx.x / 32 % 4 * 16 + p->lane / 4;
    for (int i = 0; i < 2; i++) {
        a_at.read(window, (uint32_t)(row + i * 8), 1, bytes + i);
        decode(p->a, bytes[i], DEPTH_BYTES / size_of(p->a), p->x[i], 1);
    }
}

void emulate_wgmma(emulate_type type, float *d, int n, emulate_operand a, const uint32_t *fed, emulate_operand b)
{
    emulate_product_of given = product_of(type, type, n);
    if (fed) {
        const parts mine = parts_of(type, fed, 4);
        const unsigned char *warp = emulate_warp(&mine, sizeof mine);
        for (int i = 0; i < 2; i++)
            if (type == EMULATE_TF32)
                row_of<1>(given.x[i], 1, warp, given.lane / 4, i, i + 2);
            else
                row_of<2>(given.x[i], 1, warp, given.lane / 4, i, i + 2);
    }
    const bool held = fed;
    emulate_product([=] {
        emulate_product_of p = given;
        if (!held) read_rows(&p, place(a, size_of(type)));
        multiply(p, place(b, size_of(type)), d, false);
    });
}

void emulate_wgmma_8_bits(emulate_types types, void *d, int n, uint64_t a, uint64_t b, bool first)
{
    emulate_product([=] {
        emulate_product_of p = product_of(types.a, types.b, n);
        read_rows(&p, place({a, true}, 1));
        const place b_at({b, true}, 1);
        if (types.a == EMULATE_INT8)
            multiply(p, b_at, (int32_t *)d, first);
        else
            multiply(p, b_at, (float *)d, first);
    });
}

/* --- bulk copies ----------------------------------------------------------------------------------------------------- */

/* FP32 to the nearest TF32, ties to even. */
static uint32_t round_tf32(uint32_t word)
{
    if ((word & 0x7F800000u) == 0x7F800000u) return word;
    return (word + 0xFFF + (word >> 13 & 1)) & 0xFFFFE000u;
}

/* 16 bytes of a row, of which as many as lie inside the tensor; the rest are zeros. from, first: of the row's element 0 and of this one. */
static void copy_chunk(unsigned char *at, const CUtensorMap &map, const unsigned char *from, int64_t first)
{
    const int64_t size = map.element_bytes, last = first + 16 / size;
    const int64_t begin = std::max<int64_t>(first, 0), end = std::min(last, (int64_t)map.dims[0]);
    memset(at, 0, 16);
    if (begin >= end) return;
    memcpy(at + (begin - first) * size, from + begin * size, (size_t)((end - begin) * size));
    if (map.type != CU_TENSOR_MAP_DATA_TYPE_TFLOAT32) return;
    uint32_t words[4];
    memcpy(words, at, sizeof words);
    for (uint32_t &word : words) word = round_tf32(word);
    memcpy(at, words, sizeof words);
}

/* By 16 bytes, which a box's rows are made of and swizzles keep together. */
static void copy_box(uint32_t to, const CUtensorMap &map, emulate_corner from)
{
    const int64_t size = map.element_bytes;
    const int first[4] = {from.x, from.y, from.z, from.w};
    const uint32_t rows = map.box[1] * map.box[2] * map.box[3];
    for (uint32_t row = 0; row < rows; row++) {
        const unsigned char *source = map.base;
        uint32_t left = row;
        bool inside = true;
        for (int axis = 1; axis < 4; left /= map.box[axis++]) {
            const int64_t place = (int64_t)first[axis] + left % map.box[axis];
            inside = inside && place >= 0 && place < (int64_t)map.dims[axis];
            source += place * (int64_t)map.strides[axis - 1];
        }
        for (int64_t x = 0; x < map.box[0]; x += 16 / size, to += 16) {
            unsigned char *at = emulate_at(emulate_swizzled(to, map.swizzle));
            if (inside)
                copy_chunk(at, map, source, from.x + x);
            else
                memset(at, 0, 16);
        }
    }
}

void emulate_tma_load(uint32_t to, const CUtensorMap *map, uint32_t mbarrier, emulate_corner from, uint32_t peers)
{
    const uint32_t bytes = map->box[0] * map->box[1] * map->box[2] * map->box[3] * (uint32_t)map->element_bytes;
    if (to % 128) emulate_fault("a bulk copy to where no 128 bytes begin");
    const CUtensorMap copied = *map;
    if (!peers) peers = 1u << emulate_rank();
    for (uint32_t rank = 0; rank < 16; rank++) {
        if (!(peers >> rank & 1)) continue;
        emulate_later(rank, [=] {
            copy_box(emulate_peer_address(to, rank), copied, from);
            emulate_mbarrier_bytes(emulate_peer_address(mbarrier, rank), (int)bytes);
        });
    }
}

void emulate_send(uint32_t to, uint32_t mbarrier, const float *four)
{
    const float4 values = {four[0], four[1], four[2], four[3]};
    emulate_later(emulate_rank_of(to), [=] {
        memcpy(emulate_at(to), &values, sizeof values);
        emulate_mbarrier_bytes(mbarrier, sizeof values);
    });
}

/* As the driver: what a GPU could not do with is refused. */
static CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base, const cuuint64_t *dims,
                       const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    static const uint32_t most[] = {1 << 20, 32, 64, 128}; /* bytes of a row that is swizzled */
    const bool narrow = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    const int size = type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : narrow ? 2 : 4;
    *map = {(const unsigned char *)base, {1, 1, 1, 1}, {}, {1, 1, 1, 1}, size, type, swizzle};
    if (rank < 3 || rank > 4 || (uintptr_t)base % 16) return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t i = 0; i < rank; i++) {
        map->dims[i] = dims[i];
        map->box[i] = box[i];
        if (!dims[i] || dims[i] > UINT32_MAX || !box[i] || box[i] > 256 || steps[i] != 1)
            return CUDA_ERROR_INVALID_VALUE;
        if (i + 1 == rank) break;
        map->strides[i] = strides[i];
        if (strides[i] % 16 || strides[i] >> 40) return CUDA_ERROR_INVALID_VALUE;
    }
    const uint32_t row = box[0] * (uint32_t)map->element_bytes;
    return row % 16 || row > most[swizzle] ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

extern "C" void *emulate_driver(const char *name)
{
    PFN_cuTensorMapEncodeTiled_v12000 function = strcmp(name, "cuTensorMapEncodeTiled") == 0 ? encode : NULL;
    return (void *)function;
}
