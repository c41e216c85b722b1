/* The k first of each row on the CPU: the reference.
 *
 * Owns     nothing; the best of up to COLUMNS rows lie in the caller's scratch, each row's as a heap whose root is the worst of them.
 * Threads  any; all memory is the caller's.
 *
 * Elements become keys, unsigned integers of the same width that order as the elements do, a block at a time and in vector code; a
 * group of them whose largest key does not beat the root is passed over. Of another axis than the last, neighbouring rows are read together. */
#include "cpu/reference.h"
#include "cpu/simd.h"
#include "cpu/topk/heap.h"
#include "ops/topk/topk.h"

extern const ks_cpu_op ks_topk_cpu;

enum {
    BLOCK = 512, /* elements of a row at a time */
    GROUP = 32,  /* of them that are passed over together */
    COLUMNS = 16 /* rows side by side */
};

/* From an element's bits to its key. */
typedef struct rule {
    uint64_t flip;     /* of the key's bits, last */
    uint64_t infinity; /* its bits; 0: integers */
} rule;

/* --- blocks of elements ---------------------------------------------------------------------------------------------- */

/* For elements of so many bits: keys of a block and the largest of each group; a block offered to a heap; a block of neighbouring rows,
 * row by row. */
#define ELEMENTS(bits)                                                                                                 \
    KS_CLONES static void keys_##bits(const uint##bits##_t *x, int count, const rule *r,                               \
                                      uint##bits##_t *restrict keys, uint##bits##_t *restrict most)                    \
    {                                                                                                                  \
        typedef uint##bits##_t word;                                                                                   \
        const word flip = (word)r->flip, infinity = (word)r->infinity, sign = (word)((word)1 << (bits - 1));           \
        if (!infinity) {                                                                                               \
            for (int i = 0; i < count; i++) keys[i] = (word)(x[i] ^ flip);                                             \
        } else {                                                                                                       \
            for (int i = 0; i < count; i++) {                                                                          \
                const word size = (word)(x[i] & (word)~sign), is_nan = (word) - (word)(size > infinity);               \
                const word all = (word) - (word)(size > 0 && x[i] >= sign); /* negative, and not -0 */                 \
                keys[i] = (word)(((((word)(all & x[i]) | (word)(~all & size)) ^ (word)(all | sign)) | is_nan) ^ flip); \
            }                                                                                                          \
        }                                                                                                              \
        for (int i = count; i % GROUP; i++) keys[i] = 0;                                                               \
        for (int g = 0; g * GROUP < count; g++) {                                                                      \
            word best = 0;                                                                                             \
            for (int i = 0; i < GROUP; i++) best = keys[g * GROUP + i] > best ? keys[g * GROUP + i] : best;            \
            most[g] = best;                                                                                            \
        }                                                                                                              \
    }                                                                                                                  \
    static void scan_##bits(const void *x, int count, const rule *r, int64_t first, ks_heap *h)                        \
    {                                                                                                                  \
        uint##bits##_t keys[BLOCK], most[BLOCK / GROUP];                                                               \
        keys_##bits(x, count, r, keys, most);                                                                          \
        for (int i = 0; i < count; i++) {                                                                              \
            if (h->count == h->k && most[i / GROUP] <= h->places[0].key) {                                             \
                i |= GROUP - 1;                                                                                        \
                continue;                                                                                              \
            }                                                                                                          \
            if (h->count < h->k || keys[i] > h->places[0].key) ks_heap_offer(h, keys[i], first + i);                   \
        }                                                                                                              \
    }                                                                                                                  \
    static void gather_##bits(const void *from, int64_t stride, int count, int columns, void *to)                      \
    {                                                                                                                  \
        const uint##bits##_t *x = from;                                                                                \
        uint##bits##_t *y = to;                                                                                        \
        for (int i = 0; i < count; i++)                                                                                \
            for (int c = 0; c < columns; c++) y[c * BLOCK + i] = x[i * stride + c];                                    \
    }

ELEMENTS(8)
ELEMENTS(16)
ELEMENTS(32)
ELEMENTS(64)

typedef struct elements {
    void (*scan)(const void *x, int count, const rule *r, int64_t first, ks_heap *h);
    void (*gather)(const void *from, int64_t stride, int count, int columns, void *to);
} elements;

static elements elements_of(size_t size)
{
    switch (size) {
    case 1:
        return (elements){scan_8, gather_8};
    case 2:
        return (elements){scan_16, gather_16};
    case 4:
        return (elements){scan_32, gather_32};
    default:
        return (elements){scan_64, gather_64};
    }
}

static rule rule_of(ks_dtype dtype, bool largest)
{
    static const uint64_t infinities[KS_DTYPE_COUNT] = {
        [KS_FP16] = 0x7C00, [KS_BF16] = 0x7F80, [KS_FP32] = 0x7F800000, [KS_FP64] = 0x7FF0000000000000};
    rule r = {.flip = largest ? 0 : UINT64_MAX, .infinity = infinities[dtype]};
    if (ks_dtype_kind(dtype) == KS_KIND_INT) r.flip ^= (uint64_t)1 << (8 * ks_dtype_size(dtype) - 1);
    return r;
}

/* --- rows ------------------------------------------------------------------------------------------------------------ */

typedef struct task {
    ks_topk_shape s;
    size_t size;
    elements each;
    rule rule;
    const unsigned char *in;
    unsigned char *values, *indices;
    ks_heap_place *places; /* of COLUMNS rows, k each */
    unsigned char *blocks; /* of COLUMNS rows, BLOCK elements each */
} task;

/* The answer of the row at that column of an outer index. */
static void write_row(const task *t, const ks_heap *h, int64_t outer, int64_t column)
{
    const ks_topk_shape *s = &t->s;
    const int64_t in = outer * s->length * s->inner + column, out = outer * s->k * s->inner + column;
    for (int j = 0; j < s->k; j++) {
        const int64_t index = h->places[j].index, to = out + j * s->inner;
        memcpy(t->values + to * (int64_t)t->size, t->in + (in + index * s->inner) * (int64_t)t->size, t->size);
        if (s->index_dtype == KS_INT64)
            ((int64_t *)t->indices)[to] = index;
        else
            ((int32_t *)t->indices)[to] = (int32_t)index;
    }
}

static void do_columns(const task *t, int64_t outer, int64_t first, int columns)
{
    const ks_topk_shape *s = &t->s;
    ks_heap heaps[COLUMNS];
    for (int c = 0; c < columns; c++) heaps[c] = (ks_heap){.places = t->places + (int64_t)c * s->k, .k = s->k};
    for (int64_t i = 0; i < s->length; i += BLOCK) {
        const int count = s->length - i < BLOCK ? (int)(s->length - i) : BLOCK;
        const unsigned char *x = t->in + ((outer * s->length + i) * s->inner + first) * (int64_t)t->size;
        if (s->inner > 1) t->each.gather(x, s->inner, count, columns, t->blocks);
        for (int c = 0; c < columns; c++)
            t->each.scan(s->inner > 1 ? t->blocks + (size_t)c * BLOCK * t->size : x, count, &t->rule, i, &heaps[c]);
    }
    for (int c = 0; c < columns; c++) {
        ks_heap_sort(&heaps[c]);
        write_row(t, &heaps[c], outer, first + c);
    }
}

static int columns_of(const ks_topk_shape *s)
{
    return s->inner < COLUMNS ? (int)s->inner : COLUMNS;
}

/* ks_cpu_fn */
static void topk_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    task t = {.s = ks_topk_shape_of(spec), .in = in[0], .values = out[0], .indices = out[1], .places = scratch};
    if (t.s.rows == 0) return;
    t.size = ks_dtype_size(t.s.dtype);
    t.each = elements_of(t.size);
    t.rule = rule_of(t.s.dtype, t.s.largest);
    t.blocks = (unsigned char *)(t.places + (int64_t)columns_of(&t.s) * t.s.k);
    for (int64_t outer = 0; outer < t.s.rows / t.s.inner; outer++)
        for (int64_t c = 0; c < t.s.inner; c += COLUMNS)
            do_columns(&t, outer, c, t.s.inner - c < COLUMNS ? (int)(t.s.inner - c) : COLUMNS);
}

static size_t topk_scratch(const ks_spec *spec)
{
    const ks_topk_shape s = ks_topk_shape_of(spec);
    return (size_t)columns_of(&s) * ((size_t)s.k * sizeof(ks_heap_place) + BLOCK * ks_dtype_size(s.dtype));
}

const ks_cpu_op ks_topk_cpu = {.reference = topk_reference, .scratch_bytes = topk_scratch};
