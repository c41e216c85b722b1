/* JSON heads that were read lately, and what they say. A client with binary tensors sends the same head with each request,
 * or one of a few; to read one takes longer than all the rest of a small request.
 *
 * Limits   KS_HEAD_CACHE_ENTRIES heads of at most KS_HEAD_CACHE_TEXT_MAX bytes, complete in the segment of the body that they begin; none with
 *          elements in the JSON, and none with shared memory, which must be held anew each time. Resident tensors are, too: the
 *          head says their names alone.
 * Key      every byte of the head, and all that its reader asks of the request beside it.
 * Threads  the shard's own. */
#include <stdlib.h>
#include <string.h>

#include "codec/codec_parts.h"

enum { KS_HEAD_CACHE_ENTRIES = 16, KS_HEAD_CACHE_TEXT_MAX = 512 };

typedef struct entry {
    /* the key */
    size_t length; /* 0: free */
    char text[KS_HEAD_CACHE_TEXT_MAX];
    int64_t content_length;
    const ks_model *model;
    const ks_format *asked; /* request.response, before the head was read */
    /* what it says */
    ks_infer_request request;
    ks_input_source source[KS_INPUTS_MAX];
    ks_segment segment[KS_INPUTS_MAX];
    int segments;
    bool all_binary;
    size_t in_bytes;
} entry;

struct ks_head_cache {
    entry entry[KS_HEAD_CACHE_ENTRIES];
};

ks_head_cache *ks_head_cache_open(void)
{
    return calloc(1, sizeof(ks_head_cache));
}

void ks_head_cache_close(ks_head_cache **head_cache)
{
    free(*head_cache);
    *head_cache = NULL;
}

void ks_head_cache_forget(ks_head_cache *head_cache)
{
    for (int i = 0; i < KS_HEAD_CACHE_ENTRIES; i++) head_cache->entry[i].length = 0;
}

/* Where a head of this text is, or goes. */
static entry *place_of(const ks_codec *codec, const char *text, size_t length)
{
    uint64_t hash = length;
    for (size_t i = 0; i + 8 <= length; i += 8) {
        uint64_t word;
        memcpy(&word, text + i, 8);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return &codec->limits.head_cache->entry[hash % KS_HEAD_CACHE_ENTRIES];
}

static void copy_request(ks_infer_request *to, const ks_infer_request *from)
{
    memcpy(to, from, offsetof(ks_infer_request, spec));
    ks_spec_copy(&to->spec, &from->spec);
    memcpy(to->id, from->id, from->id_length);
    for (unsigned left = from->resident | (unsigned)from->stored << KS_WINDOW_OUT; left; left &= left - 1)
        memcpy(to->tensor[__builtin_ctz(left)], from->tensor[__builtin_ctz(left)], sizeof *to->tensor);
    if (from->classified) memcpy(to->classes, from->classes, sizeof to->classes);
    if (from->stored) memcpy(to->ttl_s, from->ttl_s, sizeof to->ttl_s);
    if (from->warned) memcpy(to->warning, from->warning, sizeof to->warning);
}

bool ks_head_cache_find(ks_codec *codec, const char *text, size_t length, size_t *in_bytes)
{
    if (!codec->limits.head_cache || length > KS_HEAD_CACHE_TEXT_MAX || codec->query_warned) return false;
    const entry *const it = place_of(codec, text, length);
    if (it->length != length || memcmp(it->text, text, length) != 0 || it->content_length != codec->content_length ||
        it->model != codec->request.model || it->asked != codec->request.response)
        return false;
    const void *fixed[KS_INPUTS_MAX];
    if (it->request.resident && !ks_codec_hold_again(codec, &it->request, fixed)) return false;
    copy_request(&codec->request, &it->request);
    for (unsigned left = it->request.resident; left; left &= left - 1)
        codec->request.spec.in[__builtin_ctz(left)].fixed = fixed[__builtin_ctz(left)];
    memcpy(codec->source, it->source, (size_t)it->model->op->inputs_count * sizeof *codec->source);
    memcpy(codec->segment, it->segment, (size_t)it->segments * sizeof *codec->segment);
    codec->segments = it->segments;
    codec->all_binary = it->all_binary;
    *in_bytes = it->in_bytes;
    return true;
}

void ks_head_cache_put(const ks_codec *codec, const char *text, size_t length, const ks_format *asked, size_t in_bytes)
{
    if (!codec->limits.head_cache || length > KS_HEAD_CACHE_TEXT_MAX || codec->in_used > 0) return;
    const unsigned stored = (unsigned)codec->request.stored << KS_WINDOW_OUT;
    if ((codec->request.windows & ~stored) || codec->query_warned) return;
    entry *const it = place_of(codec, text, length);
    it->length = length;
    memcpy(it->text, text, length);
    it->content_length = codec->content_length;
    it->model = codec->request.model;
    it->asked = asked;
    copy_request(&it->request, &codec->request);
    memcpy(it->source, codec->source, sizeof it->source);
    memcpy(it->segment, codec->segment, sizeof it->segment);
    it->segments = codec->segments;
    it->all_binary = codec->all_binary;
    it->in_bytes = in_bytes;
}
