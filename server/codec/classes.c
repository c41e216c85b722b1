/* Classification: the largest elements of an output, each as the text VALUE:INDEX. One pass over the output with a heap
 * of the best so far, whose root is the worst of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec_parts.h"
#include "base/text.h"
#include "ops/numbers/fp8.h"

enum { CLASS_TEXT_MAX = 352 }; /* the largest FP64 with six decimals has 317 bytes */

typedef struct class_place {
    uint64_t key; /* orders like the values */
    uint32_t index;
} class_place;

size_t ks_class_count(const ks_infer_request *request, int output)
{
    const uint64_t all = (uint64_t)ks_tensor_count(&request->spec.out[output]), asked = request->classes[output];
    return (size_t)(asked < all ? asked : all);
}

uint64_t ks_class_bytes(const ks_infer_request *request, int output)
{
    static const uint64_t texts = 3; /* the blob, the response, and what doubling a text leaves empty */
    const uint64_t longest = request->spec.out[output].dtype == KS_FP64 ? CLASS_TEXT_MAX : 64;
    return ks_class_count(request, output) * (texts * longest + sizeof(class_place));
}

static int64_t signed_element(const unsigned char *at, size_t size)
{
    int64_t value = 0;
    memcpy((unsigned char *)&value + sizeof value - size, at, size);
    return value >> (64 - 8 * size);
}

static uint64_t unsigned_element(const unsigned char *at, size_t size)
{
    uint64_t value = 0;
    memcpy(&value, at, size);
    return value;
}

static double float_element(ks_dtype dtype, const unsigned char *at, size_t size)
{
    double wide;
    float narrow;
    if (size == sizeof wide) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    if (ks_is_fp8(dtype)) return (double)ks_fp8_to_float(ks_fp8_layout_of(dtype), *at);
    memcpy(&narrow, at, sizeof narrow);
    return (double)narrow;
}

/* NaN comes last. */
static uint64_t key_of(ks_dtype dtype, const unsigned char *at)
{
    static const uint64_t top = (uint64_t)1 << 63;
    const size_t size = ks_dtype_size(dtype);
    uint64_t bits;
    if (ks_dtype_kind(dtype) == KS_KIND_INT) return (uint64_t)signed_element(at, size) ^ top;
    if (ks_dtype_kind(dtype) != KS_KIND_FLOAT) return unsigned_element(at, size);
    const double value = float_element(dtype, at, size);
    if (value != value) return 0;
    memcpy(&bits, &value, sizeof bits);
    return bits & top ? ~bits : bits | top;
}

static bool is_worse(const class_place *a, const class_place *b)
{
    return a->key != b->key ? a->key < b->key : a->index > b->index;
}

static void sink(class_place *heap, size_t count, size_t at)
{
    const class_place moved = heap[at];
    for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && is_worse(&heap[child + 1], &heap[child])) child++;
        if (!is_worse(&heap[child], &moved)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* best[0 .. count): the largest, in falling order. */
static void find_best(const ks_tensor *tensor, const unsigned char *out, class_place *best, size_t count)
{
    const size_t size = ks_dtype_size(tensor->dtype), all = tensor->size_bytes / size;
    for (size_t i = 0; i < count; i++) best[i] = (class_place){key_of(tensor->dtype, out + i * size), (uint32_t)i};
    for (size_t i = count / 2; i-- > 0;) sink(best, count, i);
    for (size_t i = count; i < all; i++) {
        const class_place next = {key_of(tensor->dtype, out + i * size), (uint32_t)i};
        if (!is_worse(&best[0], &next)) continue;
        best[0] = next;
        sink(best, count, 0);
    }
    for (size_t left = count; left-- > 1;) {
        const class_place worst = best[0];
        best[0] = best[left];
        best[left] = worst;
        sink(best, left, 0);
    }
}

static size_t write_class(const ks_tensor *tensor, const unsigned char *out, uint32_t index, char text[CLASS_TEXT_MAX])
{
    const size_t size = ks_dtype_size(tensor->dtype);
    const unsigned char *at = out + index * size;
    const ks_kind kind = ks_dtype_kind(tensor->dtype);
    int n;
    if (kind == KS_KIND_FLOAT)
        n = snprintf(text, CLASS_TEXT_MAX, "%f:%u", float_element(tensor->dtype, at, size), index);
    else if (kind == KS_KIND_INT)
        n = snprintf(text, CLASS_TEXT_MAX, "%lld.000000:%u", (long long)signed_element(at, size), index);
    else
        n = snprintf(text, CLASS_TEXT_MAX, "%llu.000000:%u", (unsigned long long)unsigned_element(at, size), index);
    return (size_t)n;
}

ks_status ks_class_texts(const ks_infer_request *request, int output, const unsigned char *out, ks_text *text,
                         ks_error *error)
{
    const ks_tensor *tensor = &request->spec.out[output];
    const size_t count = ks_class_count(request, output);
    const bool binary = ks_in(request->binary, output);
    class_place *best = malloc((count + 1) * sizeof *best);
    if (!best) return ks_fail(error, KS_MEMORY, "no memory for %zu classes", count);
    if (count > 0) find_best(tensor, out, best, count);
    for (size_t i = 0; i < count; i++) {
        char one[CLASS_TEXT_MAX];
        const uint32_t length = (uint32_t)write_class(tensor, out, best[i].index, one);
        if (binary)
            ks_text_add(text, (const char *)&length, sizeof length);
        else
            ks_text_puts(text, i > 0 ? ",\"" : "\"");
        ks_text_add(text, one, length);
        if (!binary) ks_text_puts(text, "\"");
    }
    free(best);
    return KS_OK;
}
