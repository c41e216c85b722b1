/* JSON heads that were read lately, and what they say. A client with binary tensors sends the same head with each request,
 * or one of a few; to read one takes longer than all the rest of a small request.
 *
 * Limits   KS_MEMOS heads of at most KS_MEMO_TEXT bytes, complete in the piece of the body that they begin; none with
 *          elements in the JSON, and none with shared memory, which must be held anew each time.
 * Key      every byte of the head, and all that its reader asks of the request beside it.
 * Threads  the shard's own. */
#include <stdlib.h>
#include <string.h>

#include "codec/codec_parts.h"

enum { KS_MEMOS = 16, KS_MEMO_TEXT = 512 };

typedef struct memo {
    /* the key */
    size_t length; /* 0: free */
    char text[KS_MEMO_TEXT];
    int64_t content_length;
    const ks_model *model;
    const ks_format *asked; /* ask.answer, before the head was read */
    /* what it says */
    ks_ask ask;
    ks_oip_source source[KS_INPUTS_MAX];
    ks_oip_piece piece[KS_INPUTS_MAX];
    int pieces;
    bool all_binary;
    size_t in_bytes;
} memo;

struct ks_oip_memos {
    memo memo[KS_MEMOS];
};

ks_oip_memos *ks_oip_memos_open(void)
{
    return calloc(1, sizeof(ks_oip_memos));
}

void ks_oip_memos_close(ks_oip_memos **memos)
{
    free(*memos);
    *memos = NULL;
}

/* Where a head of this text is, or goes. */
static memo *place_of(const ks_oip *oip, const char *text, size_t length)
{
    uint64_t hash = length;
    for (size_t i = 0; i + 8 <= length; i += 8) {
        uint64_t word;
        memcpy(&word, text + i, 8);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return &oip->limits.memos->memo[hash % KS_MEMOS];
}

static void copy_ask(ks_ask *to, const ks_ask *from)
{
    memcpy(to, from, offsetof(ks_ask, spec));
    ks_spec_copy(&to->spec, &from->spec);
    memcpy(to->id, from->id, from->id_length);
}

bool ks_oip_recall(ks_oip *oip, const char *text, size_t length, size_t *in_bytes)
{
    if (!oip->limits.memos || length > KS_MEMO_TEXT) return false;
    const memo *const it = place_of(oip, text, length);
    if (it->length != length || memcmp(it->text, text, length) != 0 || it->content_length != oip->content_length ||
        it->model != oip->ask.model || it->asked != oip->ask.answer)
        return false;
    copy_ask(&oip->ask, &it->ask);
    memcpy(oip->source, it->source, (size_t)it->model->op->inputs_count * sizeof *oip->source);
    memcpy(oip->piece, it->piece, (size_t)it->pieces * sizeof *oip->piece);
    oip->pieces = it->pieces;
    oip->all_binary = it->all_binary;
    *in_bytes = it->in_bytes;
    return true;
}

void ks_oip_remember(const ks_oip *oip, const char *text, size_t length, const ks_format *asked, size_t in_bytes)
{
    if (!oip->limits.memos || length > KS_MEMO_TEXT || oip->in_used > 0) return;
    if (oip->ask.windows) return;
    memo *const it = place_of(oip, text, length);
    it->length = length;
    memcpy(it->text, text, length);
    it->content_length = oip->content_length;
    it->model = oip->ask.model;
    it->asked = asked;
    copy_ask(&it->ask, &oip->ask);
    memcpy(it->source, oip->source, sizeof it->source);
    memcpy(it->piece, oip->piece, sizeof it->piece);
    it->pieces = oip->pieces;
    it->all_binary = oip->all_binary;
    it->in_bytes = in_bytes;
}
