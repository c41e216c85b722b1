/* Whole requests in any form. The first line of an input is MODEL QUERY HEADER-LENGTH, each "-" where there is none (a
 * header length of "@" stands for the place behind the body's last brace, "npy" and "safetensors" for these content
 * types); the rest is the body. A request must end
 * alike however it is cut; one that is accepted must lie in the memory that was asked for, and its answer must be JSON
 * where it says so. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "kernserve/backend.h"
#include "codec/decode.h"
#include "codec/scan/scan.h"

typedef struct memory {
    unsigned char *in, *room;
    size_t in_cap, out_cap;
} memory;

/* ks_codec_place_fn */
static ks_status place(void *context, size_t in_bytes, size_t out_bytes, size_t keep, ks_sides *sides, ks_error *error)
{
    memory *m = context;
    if (in_bytes > 1 << 20 || out_bytes > 1 << 20) return ks_fail(error, KS_BUDGET, "too large");
    assert(keep <= m->in_cap && keep <= in_bytes);
    unsigned char *const moved = calloc(1, in_bytes + 1);
    if (keep > 0) memcpy(moved, m->in, keep);
    free(m->in);
    free(m->room);
    m->in = moved;
    m->room = calloc(1, KS_HEAD_ROOM + out_bytes);
    *sides = (ks_sides){moved, m->room + KS_HEAD_ROOM};
    m->in_cap = in_bytes;
    m->out_cap = out_bytes;
    return KS_OK;
}

/* ks_codec_window_fn: a region whose name begins with 'd' is the device's to move, one with 'x' is not there. */
static ks_status window(void *context, int which, const ks_window_name *name, bool *plain, ks_error *error)
{
    (void)context, (void)which;
    *plain = name->region[0] == 'd';
    return name->region[0] == 'x' ? ks_fail(error, KS_REGION, "no such region") : KS_OK;
}

/* Numbers that are converted or printed at once. */
enum { AT_ONCE = 3 };
static size_t slice;

static ks_status never(void *context, int index, const ks_scan_input *input, unsigned char **out, ks_error *error)
{
    (void)context, (void)index, (void)input, (void)out;
    return ks_fail(error, KS_MEMORY, "an answer has no inputs");
}

/* Our own answers obey our own grammar; NaN words apart, which only data may hold. */
static void check_head(const char *text, size_t length)
{
    static const ks_scan_limits limits = {
        .json_head_max = 1 << 22, .string_max = 4096, .members_max = 64, .json_max = 1 << 22};
    ks_scan *scan = NULL;
    ks_error error = {0};
    ks_status status = ks_scan_begin(&limits, never, NULL, &scan, &error);
    if (status == KS_OK) status = ks_scan_feed(scan, text, length, &error);
    if (status == KS_OK) status = ks_scan_end(scan, &error);
    assert(status == KS_OK);
    ks_scan_fini(&scan);
}

static void check_accepted(ks_codec *codec, memory *m)
{
    const ks_infer_request *ask = ks_codec_request(codec);
    const ks_spec *spec = &ask->spec;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        assert(spec->in[i].offset % KS_ALIGNMENT == 0);
        if (ks_in(ask->device_copies, i)) continue;
        assert(spec->in[i].size_bytes == 0 || spec->in[i].offset + spec->in[i].size_bytes <= m->in_cap);
        for (int j = 0; j < i; j++)
            assert(ks_in(ask->device_copies, j) || spec->in[i].size_bytes == 0 || spec->in[j].size_bytes == 0 ||
                   spec->in[j].offset + spec->in[j].size_bytes <= spec->in[i].offset ||
                   spec->in[i].offset + spec->in[i].size_bytes <= spec->in[j].offset);
    }
    if (ks_in(ask->device_copies, KS_WINDOW_OUT)) return;
    assert(spec->out[0].size_bytes <= m->out_cap);
    ks_response_body response;
    ks_error error = {0};
    ks_status status;
    do {
        slice = AT_ONCE;
        status = ks_codec_encode(codec, m->room + KS_HEAD_ROOM, &response, &error);
    } while (status == KS_OK && ks_codec_busy(codec));
    assert(status == KS_OK);
    if (!response.datatype && !ask->response)
        check_head(response.body, response.header_length >= 0 ? (size_t)response.header_length : response.length);
    free(response.owned);
}

static ks_status run(const ks_codec_head *head, const char *body, size_t size, size_t step)
{
    static ks_codec_limits limits = {.unknown_names = KS_NAMES_OWN,
                                     .max_body = 1 << 16,
                                     .max_json = 1 << 15,
                                     .max_output = 1 << 16,
                                     .max_work = 1e7,
                                     .max_skeleton = 4096,
                                     .slice = &slice};
    static ks_codec *codec;
    if (!codec) codec = malloc(ks_codec_size());
    if (!limits.head_cache) limits.head_cache = ks_head_cache_open();
    memory m = {0};
    ks_error error = {0};
    ks_status status = ks_codec_begin(codec, head, &limits, place, &m, &error);
    for (size_t at = 0, n; at < size && status == KS_OK; at += n) {
        n = step < size - at ? step : size - at;
        slice = AT_ONCE;
        status = ks_codec_feed(codec, body + at, &n, &error);
    }
    for (bool over = false; status == KS_OK && !over; over = !ks_codec_busy(codec)) {
        slice = AT_ONCE;
        status = ks_codec_end(codec, &error);
    }
    assert(status == KS_OK || (error.status == status && error.text[0]));
    assert(ks_status_http(status) < 500 || status == KS_BUDGET);
    if (status == KS_OK) check_accepted(codec, &m);
    ks_codec_fini(codec);
    free(m.in);
    free(m.room);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ks_models_init();
    char line[512], model_name[128], query[256], length[64];
    const uint8_t *const end = memchr(data, '\n', size < sizeof line ? size : sizeof line - 1);
    if (!end) return 0;
    memcpy(line, data, (size_t)(end - data));
    line[end - data] = 0;
    if (sscanf(line, "%127s %255s %63s", model_name, query, length) != 3) return 0;
    const char *const body = (const char *)end + 1;
    const size_t body_size = size - (size_t)(end + 1 - data);
    if (strcmp(length, "@") == 0) {
        const char *const brace = memrchr(body, '}', body_size);
        snprintf(length, sizeof length, "%td", brace ? brace + 1 - body : 0);
    }
    ks_codec_head head = {.model = ks_model_find(model_name, strlen(model_name)),
                          .query = strcmp(query, "-") == 0 ? "" : query,
                          .header_length = strcmp(length, "-") == 0 ? NULL : length,
                          .content_length = (int64_t)body_size,
                          .window = window};
    char type[96];
    snprintf(type, sizeof type, "application/x-%s", length);
    head.body = ks_file_of(type);
    if (head.body) head.header_length = NULL;
    if (!head.model) head.model = ks_model_at((int)(strlen(model_name) % (size_t)ks_model_count()));
    const ks_status whole = run(&head, body, body_size, body_size + 1);
    const ks_status bytes = run(&head, body, body_size, 1);
    const ks_status again = run(&head, body, body_size, body_size + 1); /* its head may be known by now */
    assert(whole == bytes && whole == again);
    head.content_length = -1;
    head.accept_json = true;
    run(&head, body, body_size, 5);
    return 0;
}
