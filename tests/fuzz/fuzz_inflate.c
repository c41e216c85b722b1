/* Compressed bodies: inflating ends, stays within its limit, and does not depend on how the body is cut. */
#include <assert.h>
#include <string.h>

#include "fuzz.h"
#include "codec/inflate.h"

enum { MOST = 1 << 16 };

typedef struct sum {
    size_t bite; /* it takes no more at a time; 0: all */
    size_t bytes;
    uint64_t hash;
} sum;

/* ks_inflate_fn */
static ks_status take(void *context, const char *bytes, size_t *n, ks_error *error)
{
    (void)error;
    sum *s = context;
    if (s->bite && *n > s->bite) *n = s->bite;
    s->bytes += *n;
    assert(s->bytes <= MOST);
    for (size_t i = 0; i < *n; i++) s->hash = (s->hash ^ (unsigned char)bytes[i]) * 1099511628211u;
    return KS_OK;
}

static ks_status inflate_all(const char *bytes, size_t size, size_t step, sum *s)
{
    ks_inflate *it = NULL;
    ks_error error = {0};
    size_t slice;
    ks_status status = ks_inflate_begin(MOST, s->bite ? &slice : NULL, &it, &error);
    for (size_t at = 0, n; at < size && status == KS_OK; at += n) {
        n = step < size - at ? step : size - at;
        slice = 1;
        status = ks_inflate_feed(it, bytes + at, &n, take, s, &error);
    }
    if (status == KS_OK) status = ks_inflate_end(it, &error);
    ks_inflate_fini(&it);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sum whole = {0}, cut = {.bite = 1000};
    const ks_status status = inflate_all((const char *)data, size, size + 1, &whole);
    /* Which of two faults is met first may depend on the cut; whether there is one may not. */
    assert((inflate_all((const char *)data, size, 3, &cut) == KS_OK) == (status == KS_OK));
    assert(status != KS_OK || (whole.bytes == cut.bytes && whole.hash == cut.hash));
    return 0;
}
