/* The scanner's life and its loop over a chunk, which hands each byte to the part it belongs to: scan_string.c,
 * scan_data.c, scan_values.c.
 *
 * Limits  KS_SCAN_DEPTH levels, KS_SCAN_DATA_DEPTH within data, limits.members_max members per object, limits.string_max bytes per string,
 *         KS_SCAN_INPUTS_MAX inputs, limits.json_head_max bytes of JSON head, limits.json_max bytes in all. */
#include "codec/scan/scan.h"

#include <stdlib.h>
#include <string.h>

#include "codec/scan/scan_parts.h"

static ks_status string_step(ks_scan *scan, const char **at, const char *end, ks_error *error)
{
    bool over;
    const ks_status status = ks_scan_string_step(scan, at, end, &over, error);
    if (status != KS_OK || !over) return status;
    return ks_scan_string_over(scan, *at - 1, error);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

ks_status ks_scan_feed(ks_scan *scan, const char *bytes, size_t n, ks_error *error)
{
    if (n > scan->limits.json_max - scan->offset)
        return ks_fail(error, KS_BODY_SIZE,
                       "request JSON size exceeds the maximum allowed input size of %zu bytes. Use --max-json to "
                       "increase the limit.",
                       scan->limits.json_max);
    const char *p = bytes, *const end = bytes + n;
    ks_status status = KS_OK;
    scan->chunk = bytes;
    while (p < end && status == KS_OK) {
        switch (scan->state) {
        case KS_SCAN_DATA:
            status = ks_scan_data_step(scan, &p, end, error);
            break;
        case KS_SCAN_STRING:
            status = string_step(scan, &p, end, error);
            break;
        case KS_SCAN_TOKEN:
            status = ks_scan_token_step(scan, &p, end, error);
            break;
        default:
            if (!is_space(*p)) status = ks_scan_structure(scan, p, error);
            p++;
        }
    }
    scan->offset += n;
    scan->chunk = NULL;
    return status;
}

ks_status ks_scan_end(ks_scan *scan, ks_error *error)
{
    if (scan->state != KS_SCAN_OVER) return ks_scan_bad(scan, "the document is not complete", scan->chunk, error);
    for (; scan->converting < scan->inputs; scan->converting++) {
        const int i = scan->converting;
        if (!scan->kept_of[i].present || !scan->input[i].has_dtype || !scan->input[i].has_shape) continue;
        const ks_status status = ks_scan_data_convert_kept(scan, i, error);
        if (status != KS_OK || ks_scan_busy(scan)) return status;
    }
    return KS_OK;
}

bool ks_scan_busy(const ks_scan *scan)
{
    return scan->kept_at != NULL;
}

/* --- life ------------------------------------------------------------------------------------------------------------
 */

static size_t keys_bytes(const ks_scan_limits *limits)
{
    return (size_t)limits->members_max * KS_SCAN_DEPTH * sizeof(ks_scan_key);
}

size_t ks_scan_bytes(const ks_scan_limits *limits)
{
    return sizeof(ks_scan) + keys_bytes(limits) + limits->string_max;
}

ks_status ks_scan_begin(const ks_scan_limits *limits, ks_scan_place_fn *place, void *context, ks_scan **out,
                        ks_error *error)
{
    ks_scan *scan = limits->memory ? limits->memory : malloc(ks_scan_bytes(limits));
    *out = scan;
    if (!scan) return ks_fail(error, KS_MEMORY, "no memory for the request's JSON");
    memset(scan, 0, offsetof(ks_scan, first));
    scan->keys = (ks_scan_key *)(void *)(scan + 1);
    scan->text = (char *)scan->keys + keys_bytes(limits);
    scan->json_head = scan->first;
    scan->json_head_cap = sizeof scan->first;
    scan->limits = *limits;
    scan->place = place;
    scan->context = context;
    scan->state = KS_SCAN_VALUE;
    scan->role = KS_ROLE_TOP;
    return KS_OK;
}

const char *ks_scan_json_head(const ks_scan *scan, size_t *length)
{
    *length = scan->json_head_length;
    return scan->json_head;
}

int ks_scan_inputs(const ks_scan *scan)
{
    return scan->inputs;
}

const ks_scan_input *ks_scan_input_at(const ks_scan *scan, int index)
{
    return &scan->input[index];
}

void ks_scan_fini(ks_scan **scan)
{
    ks_scan *const it = *scan;
    *scan = NULL;
    if (!it) return;
    if (it->json_head != it->first) free(it->json_head);
    free(it->kept);
    if (!it->limits.memory) free(it);
}
