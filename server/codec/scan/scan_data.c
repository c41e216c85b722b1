/* inputs[i].data: lists of numbers, nested evenly or not at all. Plain numbers are read in a row
 * straight into their place, which is where a JSON request's time goes; everything else one token at a time.
 *
 * Limits  KS_SCAN_DATA_DEPTH brackets; limits.string_max bytes for one number; kept text within the JSON limit. */
#include <stdlib.h>
#include <string.h>

#include "base/number/number.h"
#include "codec/scan/scan_parts.h"
#include "base/text.h"

enum { KEPT_AT_ONCE = 1 << 28 };

static const char *input_name(const ks_scan *scan, int index, char out[32])
{
    static const char format[] = "inputs[";
    if (scan->input[index].name[0]) return scan->input[index].name;
    memcpy(out, format, sizeof format - 1);
    size_t n = sizeof format - 1;
    if (index >= 10) out[n++] = (char)('0' + index / 10);
    out[n++] = (char)('0' + index % 10);
    out[n++] = ']';
    out[n] = 0;
    return out;
}

/* Datatype and shape are known: asks for the place. */
static ks_status open_place(ks_scan *scan, int index, ks_error *error)
{
    const ks_scan_input *input = &scan->input[index];
    ks_scan_data *data = &scan->data;
    char unnamed[32];
    const char *name = input_name(scan, index, unnamed);
    if (input->dtype == KS_FP16 || input->dtype == KS_BF16)
        return ks_fail(error, KS_DATATYPE,
                       "receiving %s data via JSON is not supported. Please use the binary data format for input %s",
                       ks_dtype_name(input->dtype), name);
    if (input->dtype == KS_BYTES)
        return ks_fail(error, KS_DATATYPE, "inference input '%s' data-type is 'BYTES', which no model takes", name);
    ks_tensor tensor = {.dtype = input->dtype, .rank = input->rank};
    memcpy(tensor.dims, input->dims, sizeof tensor.dims);
    const ks_status status = ks_tensor_measure(&tensor, name, error);
    if (status != KS_OK) return status;
    data->dtype = input->dtype;
    data->element_bytes = ks_dtype_size(input->dtype);
    data->expected = (uint64_t)ks_tensor_count(&tensor);
    return scan->place(scan->context, index, input, &data->out, error);
}

ks_status ks_scan_data_begin(ks_scan *scan, ks_error *error)
{
    const int index = scan->inputs - 1;
    ks_scan_input *input = &scan->input[index];
    ks_scan_data *data = &scan->data;
    input->has_data = true;
    data->next = KS_DATA_FIRST;
    data->depth = data->deepest = 1;
    data->count[1] = 0;
    data->width[1] = UINT64_MAX;
    data->kind[1] = 0;
    data->keep = !(input->has_dtype && input->has_shape);
    scan->text_length = 0;
    scan->state = KS_SCAN_DATA;
    if (!data->keep) return open_place(scan, index, error);
    scan->kept_of[index].present = true;
    scan->kept_of[index].offset = scan->kept_length;
    return KS_OK;
}

static bool is_literal(const char *token, size_t n)
{
    return (n == 4 && memcmp(token, "true", 4) == 0) || (n == 5 && memcmp(token, "false", 5) == 0) ||
           (n == 4 && memcmp(token, "null", 4) == 0);
}

static ks_status unreadable(const ks_scan *scan, ks_number_result result, const char *token, size_t n, const char *at,
                            ks_error *error)
{
    if (result == KS_NUMBER_RANGE)
        return ks_fail(error, KS_RANGE, "Unable to parse 'data': %.*s is outside the range of %s",
                       (int)(n < 48 ? n : 48), token, ks_dtype_name(scan->data.dtype));
    if (is_literal(token, n))
        return ks_fail(error, KS_FIELD, "Unable to parse 'data': attempt to access JSON non-number as number (%.*s)",
                       (int)n, token);
    return ks_scan_bad(scan, "invalid number", at, error);
}

/* Its text is kept as it came, a comma behind it. It is never longer than the request's, so that its memory is taken at
 * once, but for absurd limits, and never copied to a larger place. */
static ks_status keep_text(ks_scan *scan, const char *text, size_t n, ks_error *error)
{
    if (!scan->kept) {
        scan->kept_cap = scan->limits.json_max < KEPT_AT_ONCE ? scan->limits.json_max : KEPT_AT_ONCE;
        scan->kept = malloc(scan->kept_cap);
    }
    if (!scan->kept || !ks_scan_append(&scan->kept, &scan->kept_length, &scan->kept_cap, text, n) ||
        !ks_scan_append(&scan->kept, &scan->kept_length, &scan->kept_cap, ",", 1))
        return ks_fail(error, KS_MEMORY, "no memory for the text of 'data'");
    return KS_OK;
}

/* One element. at: its end in the chunk, the same wherever chunks were cut, for error texts. */
static ks_status element(ks_scan *scan, const char *token, size_t n, const char *at, ks_error *error)
{
    ks_scan_data *data = &scan->data;
    ks_scan_input *input = &scan->input[scan->inputs - 1];
    if (data->keep) {
        double ignored;
        const ks_number_result result = ks_number_read(token, n, KS_FP64, &ignored);
        if (result == KS_NUMBER_SYNTAX && !(is_literal(token, n) && token[0] != 'n'))
            return unreadable(scan, result, token, n, at, error);
        input->elements++;
        return keep_text(scan, token, n, error);
    }
    if (input->elements >= data->expected)
        return ks_fail(error, KS_COUNT, "Unable to parse 'data': Shape does not match true shape of 'data' field");
    const ks_number_result result = ks_number_read(token, n, data->dtype, data->out);
    if (result != KS_NUMBER_OK) return unreadable(scan, result, token, n, at, error);
    data->out += data->element_bytes;
    input->elements++;
    return KS_OK;
}

static ks_status ragged(ks_error *error)
{
    return ks_fail(error, KS_COUNT, "Unable to parse 'data': lists at one depth differ in length");
}

/* Members of the open list begin: all lists at one level hold the same kind of member. */
static bool members(ks_scan_data *data, char kind, size_t n)
{
    if (data->kind[data->depth] == 0) data->kind[data->depth] = kind;
    if (data->kind[data->depth] != kind) return false;
    data->count[data->depth] += n;
    return true;
}

/* Plain numbers, as many as there are in a row. Leaves *at where it is if the first one is not plain. */
static ks_status plain_numbers(ks_scan *scan, const char **at, const char *end, ks_error *error)
{
    ks_scan_data *data = &scan->data;
    ks_scan_input *input = &scan->input[scan->inputs - 1];
    const char *const first = *at;
    if (data->kind[data->depth] == 'l') return KS_OK; /* ragged, which is said of a number by itself */
    const size_t n = data->keep ? ks_numbers_read(at, end, KS_FP64, KS_SCAN_CHECKED, scan->checked)
                                : ks_numbers_read(at, end, data->dtype, data->expected - input->elements, data->out);
    if (n == 0) return KS_OK;
    members(data, 'e', n);
    input->elements += n;
    data->next = KS_DATA_COMMA;
    if (data->keep) return keep_text(scan, first, (size_t)(*at - first), error);
    data->out += n * data->element_bytes;
    return KS_OK;
}

/* One element of any kind, or as much of it as the chunk has. */
static ks_status any_element(ks_scan *scan, const char **at, const char *end, ks_error *error)
{
    const char *const token = *at;
    const char *p = token;
    while (p < end && ks_scan_token[(unsigned char)*p]) p++;
    *at = p;
    if (p == end) return ks_scan_text_add(scan, token, (size_t)(p - token), error);
    /* Before anything else is said of it, as for a token that a chunk's end has cut. */
    if ((size_t)(p - token) > scan->limits.string_max)
        return ks_fail(error, KS_JSON_LIMIT, "a number is longer than %zu bytes", scan->limits.string_max);
    if (!members(&scan->data, 'e', 1)) return ragged(error);
    scan->data.next = KS_DATA_COMMA;
    return element(scan, token, (size_t)(p - token), p, error);
}

/* A token that the last chunk's end has cut goes on here. */
static ks_status carry_on(ks_scan *scan, const char **at, const char *end, ks_error *error)
{
    const char *p = *at;
    while (p < end && ks_scan_token[(unsigned char)*p]) p++;
    ks_status status = ks_scan_text_add(scan, *at, (size_t)(p - *at), error);
    *at = p;
    if (status != KS_OK || p == end) return status;
    if (!members(&scan->data, 'e', 1)) return ragged(error);
    status = element(scan, scan->text, scan->text_length, p, error);
    scan->text_length = 0;
    scan->data.next = KS_DATA_COMMA;
    return status;
}

static ks_status open_list(ks_scan *scan, const char *at, ks_error *error)
{
    ks_scan_data *data = &scan->data;
    if (data->next == KS_DATA_COMMA) return ks_scan_bad(scan, "missing comma", at, error);
    if (!members(data, 'l', 1)) return ragged(error);
    if (data->depth == KS_SCAN_DATA_DEPTH)
        return ks_fail(error, KS_JSON_LIMIT, "JSON nesting depth exceeds maximum allowed limit (%d)",
                       KS_SCAN_DATA_DEPTH);
    data->depth++;
    data->count[data->depth] = 0;
    data->next = KS_DATA_FIRST;
    if (data->depth > data->deepest) {
        data->deepest = data->depth;
        data->width[data->depth] = UINT64_MAX;
        data->kind[data->depth] = 0;
    }
    return KS_OK;
}

static ks_status close_list(ks_scan *scan, const char *at, ks_error *error)
{
    ks_scan_data *data = &scan->data;
    if (data->next == KS_DATA_VALUE) return ks_scan_bad(scan, "value expected", at, error);
    if (data->width[data->depth] == UINT64_MAX) data->width[data->depth] = data->count[data->depth];
    if (data->width[data->depth] != data->count[data->depth]) return ragged(error);
    data->next = KS_DATA_COMMA;
    if (--data->depth > 0) return KS_OK;
    const int index = scan->inputs - 1;
    if (data->keep)
        scan->kept_of[index].length = scan->kept_length - scan->kept_of[index].offset;
    else if (scan->input[index].elements != data->expected)
        return ks_fail(error, KS_COUNT, "Failed to parse 'data' field: shape does not match true shape");
    ks_scan_value_over(scan);
    return KS_OK;
}

/* Brackets, commas, white space, and what does not belong here. */
static ks_status structure(ks_scan *scan, const char *at, ks_error *error)
{
    switch (*at) {
    case ' ':
    case '\t':
    case '\n':
    case '\r':
        return KS_OK;
    case ',':
        if (scan->data.next != KS_DATA_COMMA) return ks_scan_bad(scan, "value expected", at, error);
        scan->data.next = KS_DATA_VALUE;
        return KS_OK;
    case '[':
        return open_list(scan, at, error);
    case ']':
        return close_list(scan, at, error);
    case '"':
    case '{':
        break;
    default:
        return ks_scan_bad(scan, "value expected", at, error);
    }
    if (scan->data.next == KS_DATA_COMMA) return ks_scan_bad(scan, "missing comma", at, error);
    if (*at == '"' && !scan->input[scan->inputs - 1].has_dtype)
        return ks_fail(error, KS_DATATYPE, "Unable to parse 'data': strings (BYTES), which no model takes");
    return ks_fail(error, KS_FIELD, "Unable to parse 'data': attempt to access JSON non-number as number");
}

ks_status ks_scan_data_step(ks_scan *scan, const char **at, const char *end, ks_error *error)
{
    ks_status status = KS_OK;
    while (*at < end && status == KS_OK && scan->state == KS_SCAN_DATA) {
        if (scan->text_length > 0) {
            status = carry_on(scan, at, end, error);
        } else if (ks_scan_token[(unsigned char)**at]) {
            if (scan->data.next == KS_DATA_COMMA) return ks_scan_bad(scan, "missing comma", *at, error);
            const char *const first = *at;
            status = plain_numbers(scan, at, end, error);
            if (status == KS_OK && *at == first) status = any_element(scan, at, end, error);
        } else {
            status = structure(scan, *at, error);
            ++*at;
        }
    }
    return status;
}

/* Some plain numbers of the kept text, or one of any kind. */
static ks_status convert_some(ks_scan *scan, const char *end, ks_error *error)
{
    ks_scan_data *data = &scan->data;
    const char *p = scan->kept_at;
    while (*p == ' ') p++;
    size_t n = ks_numbers_read(&p, end, data->dtype, scan->limits.slice ? *scan->limits.slice : SIZE_MAX, data->out);
    if (n == 0) {
        const char *const token = p;
        p = memchr(p, ',', (size_t)(end - p));
        const ks_number_result result = ks_number_read(token, (size_t)(p - token), data->dtype, data->out);
        if (result != KS_NUMBER_OK) return unreadable(scan, result, token, (size_t)(p - token), scan->chunk, error);
        n = 1;
    }
    data->out += n * data->element_bytes;
    if (scan->limits.slice) *scan->limits.slice -= n;
    scan->kept_at = p + 1;
    ks_text_give_back(scan->kept, (size_t)(p + 1 - scan->kept), &scan->kept_given);
    return KS_OK;
}

ks_status ks_scan_data_convert_kept(ks_scan *scan, int index, ks_error *error)
{
    const ks_scan_kept *kept = &scan->kept_of[index];
    if (!scan->kept_at) {
        const ks_status status = open_place(scan, index, error);
        if (status != KS_OK) return status;
        if (scan->input[index].elements != scan->data.expected)
            return ks_fail(error, KS_COUNT, "Failed to parse 'data' field: shape does not match true shape");
        if (kept->length == 0) return KS_OK; /* scan->kept may be NULL */
        scan->kept_at = scan->kept + kept->offset;
    }
    const char *const end = scan->kept + kept->offset + kept->length;
    while (scan->kept_at < end) {
        if (scan->limits.slice && *scan->limits.slice == 0) return KS_OK;
        const ks_status status = convert_some(scan, end, error);
        if (status != KS_OK) return status;
    }
    scan->kept_at = NULL;
    return KS_OK;
}
