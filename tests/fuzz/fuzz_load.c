/* The body of a load by the repository's protocol, and a model's file, of any bytes: the reader ends, with a sentence or with what is asked for,
 * which is the same wherever the body is cut; files that it gives can be read, or are refused with a sentence; memory is given back. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "api/models/load_body.h"
#include "fuzz.h"
#include "models/files.h"

enum { JSON_MAX = 1 << 20, BUDGET = 4 << 20 };

static void check_files(const ks_load_words *words)
{
    ks_model_files files = {0};
    ks_error error = {0};
    const char *text = NULL;
    size_t length = 0;
    ks_status status = KS_OK;
    for (int i = 0; i < words->files && status == KS_OK; i++)
        status = ks_model_files_add(&files, words->file[i].name, words->file[i].bytes, words->file[i].length, &error);
    if (status == KS_OK) status = ks_model_files_definition(&files, &text, &length, &error);
    assert(status == KS_OK || (error.status == status && error.text[0] && ks_status_http(status) < 500));
    if (status == KS_OK) assert(text && length <= KS_DEFINITION_BYTES_MAX);
    ks_model_files_fini(&files);
}

/* A number for what came of it. */
static uint64_t run(const char *bytes, size_t size, size_t step, bool reads)
{
    ks_load_body *body = NULL;
    ks_load_words words = {0};
    ks_error error = {0};
    ks_budget *budget = ks_budget_open(BUDGET);
    uint64_t sum = 0;
    ks_status status = ks_load_body_begin(budget, JSON_MAX, &body, &error);
    for (size_t at = 0, n; at < size && status == KS_OK; at += n) {
        n = step < size - at ? step : size - at;
        status = ks_load_body_feed(body, bytes + at, n, &error);
    }
    if (status == KS_OK) status = ks_load_body_end(body, "name", &words, &error);
    assert(status == KS_OK || (error.status == status && error.text[0]));
    assert(ks_status_http(status) < 500 || status == KS_BUDGET);
    if (status == KS_OK) {
        sum = words.max_batch * 31 + words.has_config + (words.text ? strlen(words.text) : 7);
        for (int i = 0; i < words.files; i++) {
            sum = sum * 31 + words.file[i].length + strlen(words.file[i].name);
            for (size_t k = 0; k < words.file[i].length; k++) sum = sum * 31 + words.file[i].bytes[k];
        }
        if (reads) check_files(&words);
    } else {
        sum = UINT64_MAX; /* which fault is found first hangs on the cuts */
    }
    ks_load_body_fini(&body);
    assert(ks_budget_used(budget) == 0);
    ks_budget_close(&budget);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *const bytes = (const char *)data;
    if (size == 0) return 0;
    if (bytes[0] != '{') { /* a file */
        const ks_load_file file = {.name = "model.safetensors", .bytes = data, .length = size};
        check_files(&(ks_load_words){.files = 1, .file = &file});
        return 0;
    }
    const uint64_t whole = run(bytes, size, size, true);
    assert(whole == run(bytes, size, 1, false));
    assert(whole == run(bytes, size, 7, false));
    return 0;
}
