#include "base/request_id.h"

#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

/* SplitMix64: each call another number, none twice in 2^64. */
static uint64_t next_number(uint64_t *numbers)
{
    uint64_t z = *numbers += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t ks_identity_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed) seed = (uint64_t)ks_wall_ns();
    return seed;
}

static void write_hex(char out[17], uint64_t value)
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) out[i] = digits[value >> (60 - 4 * i) & 15];
    out[16] = '\0';
}

static bool may_be_echoed(const char *id, size_t length)
{
    if (id == NULL || length == 0 || length > KS_REQUEST_ID_MAX) return false;
    for (size_t i = 0; i < length; i++)
        if (id[i] <= ' ' || id[i] > '~') return false;
    return true;
}

static bool lower_hex(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f'))) return false;
    return true;
}

static bool all_zero(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] != '0') return false;
    return true;
}

/* 00-TRACE-PARENT-FLAGS; a later version may have more behind a further dash. Anything else is ignored, not refused. */
static bool read_parent(ks_identity *identity, const char *text, size_t length)
{
    enum { TRACE = 3, TRACE_DIGITS = 32, PARENT = 36, PARENT_DIGITS = 16, FLAGS = 53, LENGTH = 55 };
    if (text == NULL || length < LENGTH || text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
    if (!lower_hex(text, 2) || !lower_hex(text + TRACE, TRACE_DIGITS) || !lower_hex(text + PARENT, PARENT_DIGITS) ||
        !lower_hex(text + FLAGS, 2))
        return false;
    const bool first_version = memcmp(text, "00", 2) == 0;
    if (memcmp(text, "ff", 2) == 0 || (first_version ? length != LENGTH : length > LENGTH && text[LENGTH] != '-'))
        return false;
    if (all_zero(text + TRACE, TRACE_DIGITS) || all_zero(text + PARENT, PARENT_DIGITS)) return false;
    memcpy(identity->trace_id, text + TRACE, TRACE_DIGITS);
    identity->trace_id[TRACE_DIGITS] = '\0';
    memcpy(identity->parent_id, text + PARENT, PARENT_DIGITS);
    identity->parent_id[PARENT_DIGITS] = '\0';
    const char low = text[FLAGS + 1];
    identity->sampled = (low <= '9' ? low - '0' : low - 'a' + 10) & 1;
    return true;
}

void ks_identity_read(ks_identity *identity, const ks_head *head, uint64_t *numbers)
{
    const char *id = head->known[KS_KNOWN_REQUEST_ID];
    identity->request_id = id;
    if (!may_be_echoed(id, head->known_length[KS_KNOWN_REQUEST_ID])) {
        write_hex(identity->made, next_number(numbers));
        identity->request_id = identity->made;
    }
    identity->trace_id[0] = identity->span_id[0] = '\0';
    if (read_parent(identity, head->known[KS_KNOWN_TRACEPARENT], head->known_length[KS_KNOWN_TRACEPARENT]))
        write_hex(identity->span_id, next_number(numbers));
}
