/* inputs[i].data: lists of numbers, nested evenly or not at all. The loop in run() is where a JSON request's time goes:
 * find a token's end, read it into its place, count.
 *
 * Limits  KS_SCAN_DATA_DEPTH brackets; limits.string_max bytes for one number; kept text within the JSON limit. */
#include <stdlib.h>
#include <string.h>

#include "number.h"
#include "scan_parts.h"

static const char *input_name(const ks_scan *scan, int index, char out[32])
{
    static const char form[] = "inputs[";
    if (scan->input[index].name[0]) return scan->input[index].name;
    memcpy(out, form, sizeof form - 1);
    size_t n = sizeof form - 1;
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

static ks_status unreadable(const ks_scan *scan, ks_number_result result, ks_dtype dtype, const char *token, size_t n,
                            const char *at, ks_error *error)
{
    if (result == KS_NUMBER_RANGE)
        return ks_fail(error, KS_RANGE, "Unable to parse 'data': %.*s is outside the range of %s",
                       (int)(n < 48 ? n : 48), token, ks_dtype_name(dtype));
    if (is_literal(token, n))
        return ks_fail(error, KS_FIELD, "Unable to parse 'data': attempt to access JSON non-number as number (%.*s)",
                       (int)n, token);
    return ks_scan_bad(scan, "invalid number", at, error);
}

/* One element. at: its end in the chunk, the same wherever chunks were cut, for error texts. */
static inline ks_status element(ks_scan *scan, const char *token, size_t n, const char *at, ks_error *error)
{
    ks_scan_data *data = &scan->data;
    ks_scan_input *input = &scan->input[scan->inputs - 1];
    if (data->keep) {
        double ignored;
        const ks_number_result result = ks_number_read(token, n, KS_FP64, &ignored);
        if (result == KS_NUMBER_SYNTAX && !(is_literal(token, n) && token[0] != 'n'))
            return unreadable(scan, result, KS_FP64, token, n, at, error);
        if (!ks_scan_append(&scan->kept, &scan->kept_length, &scan->kept_cap, token, n) ||
            !ks_scan_append(&scan->kept, &scan->kept_length, &scan->kept_cap, ",", 1))
            return ks_fail(error, KS_MEMORY, "no memory for the text of 'data'");
        input->elements++;
        return KS_OK;
    }
    if (input->elements >= data->expected)
        return ks_fail(error, KS_COUNT, "Unable to parse 'data': Shape does not match true shape of 'data' field");
    const ks_number_result result = ks_number_read(token, n, data->dtype, data->out);
    if (result != KS_NUMBER_OK) return unreadable(scan, result, data->dtype, token, n, at, error);
    data->out += data->element_bytes;
    input->elements++;
    return KS_OK;
}

static ks_status ragged(ks_error *error)
{
    return ks_fail(error, KS_COUNT, "Unable to parse 'data': lists at one depth differ in length");
}

/* A member of the open list begins: all lists at one level hold the same kind of member. */
static bool member(ks_scan_data *data, char kind)
{
    if (data->kind[data->depth] == 0) data->kind[data->depth] = kind;
    if (data->kind[data->depth] != kind) return false;
    data->count[data->depth]++;
    return true;
}

/* Elements separated by commas, until something else comes or the chunk ends. */
static ks_status run(ks_scan *scan, const char **at, const char *end, ks_error *error)
{
    const char *p = *at;
    while (p < end && ks_scan_token[(unsigned char)*p]) {
        const char *const token = p;
        do p++;
        while (p < end && ks_scan_token[(unsigned char)*p]);
        *at = p;
        if (p == end) return ks_scan_text_add(scan, token, (size_t)(p - token), error);
        /* Before anything else is said of it, as for a token that a chunk's end has cut. */
        if ((size_t)(p - token) > scan->limits.string_max)
            return ks_fail(error, KS_JSON_LIMIT, "a number is longer than %zu bytes", scan->limits.string_max);
        if (!member(&scan->data, 'e')) return ragged(error);
        const ks_status status = element(scan, token, (size_t)(p - token), p, error);
        if (status != KS_OK) return status;
        scan->data.next = KS_DATA_COMMA;
        if (*p != ',') break;
        p++;
        if (p < end && *p == ' ') p++;
        scan->data.next = KS_DATA_VALUE;
        *at = p;
    }
    return KS_OK;
}

/* A token that the last chunk's end has cut goes on here. */
static ks_status carry_on(ks_scan *scan, const char **at, const char *end, ks_error *error)
{
    const char *p = *at;
    while (p < end && ks_scan_token[(unsigned char)*p]) p++;
    ks_status status = ks_scan_text_add(scan, *at, (size_t)(p - *at), error);
    *at = p;
    if (status != KS_OK || p == end) return status;
    if (!member(&scan->data, 'e')) return ragged(error);
    status = element(scan, scan->text, scan->text_length, p, error);
    scan->text_length = 0;
    scan->data.next = KS_DATA_COMMA;
    return status;
}

static ks_status open_list(ks_scan *scan, const char *at, ks_error *error)
{
    ks_scan_data *data = &scan->data;
    if (data->next == KS_DATA_COMMA) return ks_scan_bad(scan, "missing comma", at, error);
    if (!member(data, 'l')) return ragged(error);
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
            status = run(scan, at, end, error);
        } else {
            status = structure(scan, *at, error);
            ++*at;
        }
    }
    return status;
}

ks_status ks_scan_data_convert_kept(ks_scan *scan, int index, ks_error *error)
{
    const ks_scan_kept *kept = &scan->kept_of[index];
    ks_scan_data *data = &scan->data;
    const ks_status status = open_place(scan, index, error);
    if (status != KS_OK) return status;
    if (scan->input[index].elements != data->expected)
        return ks_fail(error, KS_COUNT, "Failed to parse 'data' field: shape does not match true shape");
    if (kept->length == 0) return KS_OK; /* scan->kept may be NULL */
    const char *p = scan->kept + kept->offset, *const end = p + kept->length;
    while (p < end) {
        const char *const comma = memchr(p, ',', (size_t)(end - p));
        const ks_number_result result = ks_number_read(p, (size_t)(comma - p), data->dtype, data->out);
        if (result != KS_NUMBER_OK)
            return unreadable(scan, result, data->dtype, p, (size_t)(comma - p), scan->chunk, error);
        data->out += data->element_bytes;
        p = comma + 1;
    }
    return KS_OK;
}
