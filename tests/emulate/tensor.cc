/* See tensor.h. Sums are exact within an instruction, and rounded once to FP32; a GPU cuts them. */
#include "tensor.h"

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cudaTypedefs.h"

#include "ops/numbers/fp8.h"

static const unsigned char *lane_of(const unsigned char *warp, int lane)
{
    return warp + lane * EMULATE_EACH;
}

static int size_of(emulate_type type)
{
    return type == EMULATE_TF32 ? 4 : type >= EMULATE_INT8 ? 1 : 2;
}

/* Element `index` from there on. */
static float element(emulate_type type, const unsigned char *at, int index)
{
    if (type == EMULATE_TF32) {
        uint32_t word;
        memcpy(&word, at + index * 4, sizeof word);
        return __uint_as_float(word & 0xFFFFE000u); /* the low bits are not looked at */
    }
    if (type == EMULATE_INT8) return (float)(int8_t)at[index];
    if (type == EMULATE_E4M3) return ks_fp8_to_float(ks_fp8_e4m3, at[index]);
    if (type == EMULATE_E5M2) return ks_fp8_to_float(ks_fp8_e5m2, at[index]);
    uint16_t bits;
    memcpy(&bits, at + index * 2, sizeof bits);
    return type == EMULATE_FP16 ? __half2float({bits}) : __bfloat162float({bits});
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

/* A lane's words as numbers: one or two of each. */
struct parts {
    float of[6][2];
};

static parts parts_of(emulate_type type, const uint32_t *words, int count)
{
    parts p = {};
    for (int i = 0; i < count; i++)
        for (int e = 0; e < 4 / size_of(type); e++) p.of[i][e] = element(type, (const unsigned char *)&words[i], e);
    return p;
}

/* What four lanes have of a row: their parts `at` and `next`, of the first and the second half of K. */
static void row_of(float *out, emulate_type type, const unsigned char *warp, int row, int at, int next)
{
    const int each = 4 / size_of(type), half = 4 * each;
    for (int lane = 0; lane < 4; lane++) {
        const parts *p = (const parts *)(const void *)lane_of(warp, row * 4 + lane);
        memcpy(&out[lane * each], p->of[at], (size_t)each * sizeof *out);
        memcpy(&out[half + lane * each], p->of[next], (size_t)each * sizeof *out);
    }
}

static float add_products(float sum, const float *a, const float *b, int count)
{
    double all = sum;
    for (int k = 0; k < count; k++) all += (double)a[k] * (double)b[k];
    return (float)all;
}

void emulate_mma(emulate_type type, float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const int lane = (int)threadIdx.x % 32, depth = 32 / size_of(type);
    const parts mine = parts_of(type, words, 6);
    const unsigned char *warp = emulate_warp(&mine, sizeof mine);
    float x[2][16], y[2][16];
    for (int i = 0; i < 2; i++) {
        row_of(x[i], type, warp, lane / 4, i, i + 2);
        row_of(y[i], type, warp, lane % 4 * 2 + i, 4, 5);
    }
    for (int i = 0; i < 4; i++) c[i] = add_products(c[i], x[i / 2], y[i % 2], depth);
}

/* --- a warpgroup ----------------------------------------------------------------------------------------------------- */

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

    /* The 32 bytes of a row that one instruction takes, as numbers. Along K 16 bytes lie together, whatever the swizzle. */
    void read(emulate_type type, const unsigned char *window, uint32_t row, float *to) const
    {
        const uint32_t depth = 32 / (uint32_t)size, together = along ? depth / 2 : 1;
        for (uint32_t k = 0; k < depth; k += together) {
            const unsigned char *at = window + (*this)(row, k);
            for (uint32_t i = 0; i < together; i++) to[k + i] = element(type, at, (int)i);
        }
    }
};

void emulate_wgmma(emulate_type type, float *d, int n, emulate_operand a, const uint32_t *fed, emulate_operand b)
{
    struct rows {
        float of[2][16];
    } given = {};
    const int lane = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32 % 4 * 16 + lane / 4, column = lane % 4 * 2;
    if (fed) {
        const parts mine = parts_of(type, fed, 4);
        const unsigned char *warp = emulate_warp(&mine, sizeof mine);
        for (int i = 0; i < 2; i++) row_of(given.of[i], type, warp, lane / 4, i, i + 2);
    }
    const bool held = fed;
    emulate_product([=] {
        const int size = size_of(type), depth = 32 / size;
        const place a_at(a, size), b_at(b, size);
        const unsigned char *window = emulate_at(1024) - 1024;
        rows x = given;
        for (int i = 0; i < 2 && !held; i++) a_at.read(type, window, (uint32_t)(first + i * 8), x.of[i]);
        for (int j = 0; j < n / 4; j++) {
            float y[16];
            b_at.read(type, window, (uint32_t)(j / 2 * 8 + column + j % 2), y);
            for (int i = 0; i < 2; i++) {
                float *sum = &d[j / 2 * 4 + i * 2 + j % 2];
                *sum = add_products(*sum, x.of[i], y, depth);
            }
        }
    });
}

void emulate_wgmma_8_bits(emulate_types types, void *d, int n, uint64_t a, uint64_t b, bool first)
{
    enum { DEPTH = 32 };
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 % 4 * 16 + lane / 4, column = lane % 4 * 2;
    emulate_product([=] {
        const place a_at({a, true}, 1), b_at({b, true}, 1);
        const unsigned char *window = emulate_at(1024) - 1024;
        float x[2][DEPTH], y[DEPTH];
        for (int i = 0; i < 2; i++) a_at.read(types.a, window, (uint32_t)(row + i * 8), x[i]);
        for (int j = 0; j < n / 4; j++) {
            b_at.read(types.b, window, (uint32_t)(j / 2 * 8 + column + j % 2), y);
            for (int i = 0; i < 2; i++) {
                const int at = j / 2 * 4 + i * 2 + j % 2;
                if (types.a == EMULATE_INT8) {
                    int32_t *sum = (int32_t *)d + at;
                    *sum = (first ? 0 : *sum) + (int32_t)add_products(0, x[i], y, DEPTH);
                } else {
                    float *sum = (float *)d + at;
                    *sum = add_products(first ? 0 : *sum, x[i], y, DEPTH);
                }
            }
        }
    });
}

/* --- bulk copies ----------------------------------------------------------------------------------------------------- */

/* FP32 to the nearest TF32, ties to even. */
static uint32_t round_tf32(uint32_t word)
{
    if ((word & 0x7F800000u) == 0x7F800000u) return word;
    return (word + 0xFFF + (word >> 13 & 1)) & 0xFFFFE000u;
}

static void copy_box(uint32_t to, const CUtensorMap &map, emulate_corner from)
{
    const int64_t size = map.element_bytes;
    const int first[4] = {from.x, from.y, from.z, from.w};
    const uint32_t count = map.box[0] * map.box[1] * map.box[2] * map.box[3];
    for (uint32_t n = 0; n < count; n++, to += (uint32_t)size) {
        unsigned char *at = emulate_at(emulate_swizzled(to, map.swizzle));
        const unsigned char *source = map.base;
        uint32_t left = n;
        bool inside = true;
        for (int axis = 0; axis < 4; left /= map.box[axis++]) {
            const int64_t place = (int64_t)first[axis] + left % map.box[axis];
            inside = inside && place >= 0 && place < (int64_t)map.dims[axis];
            source += place * (axis ? (int64_t)map.strides[axis - 1] : size);
        }
        memset(at, 0, (size_t)size);
        if (!inside) continue;
        memcpy(at, source, (size_t)size);
        if (map.type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32) {
            uint32_t word;
            memcpy(&word, at, sizeof word);
            word = round_tf32(word);
            memcpy(at, &word, sizeof word);
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
