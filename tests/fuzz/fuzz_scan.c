/* The scanner over any bytes: it ends, it writes within the place that it was given, its verdict does not depend on how
 * the text is cut, and its JSON head, scanned again, is itself good JSON. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "codec/scan/scan.h"

enum { PLACE_MAX = 1 << 16 };

typedef struct places {
    unsigned char *memory[KS_SCAN_INPUTS_MAX];
} places;

/* ks_scan_place_fn */
static ks_status place(void *context, int index, const ks_scan_input *input, unsigned char **out, ks_error *error)
{
    places *all = context;
    ks_tensor tensor = {.dtype = input->dtype, .rank = input->rank};
    memcpy(tensor.dims, input->dims, sizeof tensor.dims);
    const ks_status status = ks_tensor_measure(&tensor, "input", error);
    assert(status == KS_OK && index >= 0 && index < KS_SCAN_INPUTS_MAX && !all->memory[index]);
    if (tensor.size_bytes > PLACE_MAX) return ks_fail(error, KS_BUDGET, "too large");
    all->memory[index] = *out = malloc(tensor.size_bytes + 1);
    return KS_OK;
}

static ks_status scan_all(const char *text, size_t size, size_t step, ks_error *error, char **json_head, size_t *length)
{
    static const ks_scan_limits limits = {
        .json_head_max = 4096, .string_max = 64, .members_max = 8, .json_max = 1 << 16};
    places all = {{NULL}};
    ks_scan *scan = NULL;
    ks_status status = ks_scan_begin(&limits, place, &all, &scan, error);
    for (size_t at = 0; at < size && status == KS_OK; at += step)
        status = ks_scan_feed(scan, text + at, step < size - at ? step : size - at, error);
    if (status == KS_OK) status = ks_scan_end(scan, error);
    if (status == KS_OK && json_head) {
        const char *const from = ks_scan_json_head(scan, length);
        *json_head = malloc(*length);
        memcpy(*json_head, from, *length);
    }
    for (int i = 0; i < KS_SCAN_INPUTS_MAX; i++) free(all.memory[i]);
    ks_scan_fini(&scan);
    return status;
}

/* The two marks of the JSON head are not UTF-8; anything else in it must be JSON. */
static void check_json_head(char *json_head, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)json_head[i] == KS_SCAN_NUMBER || (unsigned char)json_head[i] == 0xC0 ||
            (i > 0 && (unsigned char)json_head[i] == 0x80 && json_head[i - 1] == '#'))
            json_head[i] = '#';
    ks_error error = {0};
    char *again = NULL;
    size_t again_length;
    const ks_status status = scan_all(json_head, length, length, &error, &again, &again_length);
    /* Marked numbers are strings here: their shapes are none, and data was cut out. Keys that held U+0000 may now be
     * equal. */
    assert(status == KS_OK || status == KS_BODY_SIZE || status == KS_JSON_LIMIT || strstr(error.text, "duplicate key"));
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t steps[] = {1, 3, 7, 64};
    if (size > 1 << 16) return 0; /* the text limit, which is judged by the chunk */
    ks_error whole = {0};
    char *json_head = NULL;
    size_t length = 0;
    const ks_status status = scan_all((const char *)data, size, size + 1, &whole, &json_head, &length);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        ks_error cut = {0};
        assert(scan_all((const char *)data, size, steps[i], &cut, NULL, NULL) == status);
        assert(strcmp(cut.text, whole.text) == 0 || status == KS_BODY_SIZE || status == KS_JSON_LIMIT);
    }
    if (status == KS_OK) check_json_head(json_head, length);
    free(json_head);
    return 0;
}
