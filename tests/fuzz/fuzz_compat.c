/* Requests to the compatibility models. The first line of an input is MODEL HEADER-LENGTH, the latter as in fuzz_codec.c;
 * the rest is the body. A request must end alike however it is cut, never by a fault of ours, and its answer must be
 * JSON. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/compat.h"
#include "fuzz.h"
#include "codec/scan/scan.h"

/* Our own answers obey our own grammar. */
static void check_head(const char *text, size_t length)
{
    static const ks_scan_limits limits = {
        .json_head_max = 1 << 26, .string_max = 1 << 22, .members_max = 64, .json_max = 1 << 26};
    ks_scan *scan = NULL;
    ks_error error = {0};
    ks_status status = ks_scan_begin(&limits, NULL, NULL, &scan, &error);
    if (status == KS_OK) status = ks_scan_feed(scan, text, length, &error);
    if (status == KS_OK) status = ks_scan_end(scan, &error);
    assert(status == KS_OK);
    ks_scan_fini(&scan);
}

static ks_status run(const ks_model *model, const char *length, const char *body, size_t size, size_t step)
{
    ks_compat_job *job = NULL;
    ks_error error = {0};
    ks_text response;
    int64_t json_length = -1;
    ks_text_init(&response, 64 << 20);
    ks_status status = ks_compat_begin(model, length, KS_BODY_PLAIN, true, &job, &error);
    for (size_t at = 0, n; at < size && status == KS_OK; at += n) {
        n = step < size - at ? step : size - at;
        status = ks_compat_feed(job, body + at, n, &error);
    }
    if (status == KS_OK) status = ks_compat_respond(job, NULL, &response, &json_length, &error);
    assert(status == KS_OK || (error.status == status && error.text[0]));
    assert(ks_status_http(status) < 500 || status == KS_UNSUPPORTED);
    if (status == KS_OK) check_head(response.bytes, json_length >= 0 ? (size_t)json_length : response.length);
    ks_text_fini(&response);
    ks_compat_fini(&job);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready) {
        ks_models_init();
        ks_models_add_compat();
        ready = true;
    }
    char line[256], name[128], length[64];
    const uint8_t *const end = memchr(data, '\n', size < sizeof line ? size : sizeof line - 1);
    if (!end) return 0;
    memcpy(line, data, (size_t)(end - data));
    line[end - data] = 0;
    if (sscanf(line, "%127s %63s", name, length) != 2) return 0;
    const ks_model *model = ks_model_find(name, strlen(name));
    if (!model || !model->compat) return 0;
    const char *const body = (const char *)end + 1;
    const size_t body_size = size - (size_t)(end + 1 - data);
    if (strcmp(length, "@") == 0) {
        const char *const brace = memrchr(body, '}', body_size);
        snprintf(length, sizeof length, "%td", brace ? brace + 1 - body : 0);
    }
    const char *const given = strcmp(length, "-") == 0 ? NULL : length;
    const ks_status whole = run(model, given, body, body_size, body_size + 1);
    assert(whole == run(model, given, body, body_size, 1));
    return 0;
}
