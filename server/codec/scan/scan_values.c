/* What stands between strings and tensor data: objects, arrays, numbers, literals, keys. A stack of what is open says
 * what may come next and what a value means by its path. All of it goes to the JSON head. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number/number.h"
#include "codec/scan/scan_parts.h"

/* Doubles until n more bytes, which are below json_head_max, have room. */
static bool grow_json_head(ks_scan *scan, size_t n)
{
    size_t cap = scan->json_head_cap;
    while (cap - scan->json_head_length < n) cap *= 2;
    char *const own = scan->json_head == scan->first ? NULL : scan->json_head, *const grown = realloc(own, cap);
    if (!grown) return false;
    if (!own) memcpy(grown, scan->first, scan->json_head_length);
    scan->json_head = grown;
    scan->json_head_cap = cap;
    return true;
}

static ks_status copy(ks_scan *scan, const char *bytes, size_t n, ks_error *error)
{
    if (n > scan->limits.json_head_max - scan->json_head_length)
        return ks_fail(
            error, KS_BODY_SIZE,
            "request JSON without tensor data exceeds the maximum allowed size of %zu bytes. Use --max-skeleton to "
            "increase the limit.",
            scan->limits.json_head_max);
    if (n > scan->json_head_cap - scan->json_head_length && !grow_json_head(scan, n))
        return ks_fail(error, KS_MEMORY, "no memory for the request's JSON");
    memcpy(scan->json_head + scan->json_head_length, bytes, n);
    scan->json_head_length += n;
    return KS_OK;
}

/* scan->text as a string of the JSON head. One spelling for one string, so that keys can be compared there. */
static ks_status copy_string(ks_scan *scan, ks_error *error)
{
    ks_status status = copy(scan, "\"", 1, error);
    size_t from = 0; /* text[from..i) is copied as it is */
    for (size_t i = 0; i < scan->text_length && status == KS_OK; i++) {
        const unsigned char c = (unsigned char)scan->text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        char escaped[8] = {'\\', (char)c};
        size_t n = 2;
        if (c == 0)
            memcpy(escaped, "\xC0\x80", 2);
        else if (c < 0x20)
            n = (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", c);
        status = copy(scan, scan->text + from, i - from, error);
        if (status == KS_OK) status = copy(scan, escaped, n, error);
        from = i + 1;
    }
    if (status == KS_OK) status = copy(scan, scan->text + from, scan->text_length - from, error);
    return status == KS_OK ? copy(scan, "\"", 1, error) : status;
}

/* --- the stack -------------------------------------------------------------------------------------------------------
 */

static ks_status push(ks_scan *scan, bool object, ks_scan_role role, ks_error *error)
{
    /* The lists of data, where they go to the JSON head, have a limit of their own: nothing but lists lies between them. */
    const int lists = role == KS_ROLE_ELEMENT ? scan->frame[scan->depth].lists + 1 : 0;
    const int limit = lists ? KS_SCAN_DATA_DEPTH : KS_SCAN_DEPTH;
    if (lists ? lists > limit : scan->depth >= limit)
        return ks_fail(error, KS_JSON_LIMIT, "JSON nesting depth exceeds maximum allowed limit (%d)", limit);
    scan->frame[++scan->depth] =
        (ks_scan_frame){.object = object, .role = role, .lists = lists, .first_key = scan->keys_count};
    scan->state = object ? KS_SCAN_FIRST_KEY : KS_SCAN_FIRST_VALUE;
    return copy(scan, object ? "{" : "[", 1, error);
}

static ks_status pop(ks_scan *scan, bool object, const char *at, ks_error *error)
{
    const ks_scan_frame *frame = &scan->frame[scan->depth];
    if (frame->object != object) return ks_scan_bad(scan, "mismatched bracket", at, error);
    if (frame->role == KS_ROLE_SHAPE && scan->input[scan->inputs - 1].rank >= 0)
        scan->input[scan->inputs - 1].has_shape = true;
    scan->keys_count = frame->first_key;
    scan->depth--;
    ks_scan_value_over(scan);
    return copy(scan, object ? "}" : "]", 1, error);
}

/* The role of an array's next element. */
static ks_status next_element(ks_scan *scan, ks_error *error)
{
    const ks_scan_frame *frame = &scan->frame[scan->depth];
    const bool kept = frame->role == KS_ROLE_SHAPE || frame->role == KS_ROLE_ELEMENT;
    scan->role = kept ? frame->role : KS_ROLE_OTHER;
    if (frame->role != KS_ROLE_INPUTS) return KS_OK;
    if (scan->inputs == KS_SCAN_INPUTS_MAX)
        return ks_fail(error, KS_JSON_LIMIT, "'inputs' holds more than %d inputs", KS_SCAN_INPUTS_MAX);
    scan->role = KS_ROLE_INPUT;
    scan->input[scan->inputs] = (ks_scan_input){.has_dtype = false};
    scan->kept_of[scan->inputs].present = false;
    scan->inputs++;
    return KS_OK;
}

/* --- values ----------------------------------------------------------------------------------------------------------
 */

static ks_status not_an_array(ks_error *error)
{
    return ks_fail(error, KS_FIELD, "Unable to parse 'data': attempt to access JSON non-array as array");
}

static ks_status open_array(ks_scan *scan, ks_error *error)
{
    if (scan->role == KS_ROLE_DATA && !scan->place) scan->role = KS_ROLE_ELEMENT;
    if (scan->role == KS_ROLE_DATA) {
        const ks_status status = copy(scan, "[]", 2, error);
        return status == KS_OK ? ks_scan_data_begin(scan, error) : status;
    }
    /* A list inside of a shape is no dimension. */
    const bool in_shape = scan->depth > 0 && scan->frame[scan->depth].role == KS_ROLE_SHAPE;
    if (in_shape) scan->input[scan->inputs - 1].rank = -1;
    const bool known =
        scan->role == KS_ROLE_INPUTS || scan->role == KS_ROLE_ELEMENT || (scan->role == KS_ROLE_SHAPE && !in_shape);
    return push(scan, false, known ? scan->role : KS_ROLE_OTHER, error);
}

static ks_status open_object(ks_scan *scan, ks_error *error)
{
    if (scan->role == KS_ROLE_DATA) return not_an_array(error);
    if (scan->role == KS_ROLE_SHAPE) scan->input[scan->inputs - 1].rank = -1;
    const bool known = scan->role == KS_ROLE_TOP || scan->role == KS_ROLE_INPUT;
    return push(scan, true, known ? scan->role : KS_ROLE_OTHER, error);
}

static ks_status begin_value(ks_scan *scan, const char *at, ks_error *error)
{
    if (scan->state == KS_SCAN_FIRST_VALUE) {
        const ks_status status = next_element(scan, error);
        if (status != KS_OK) return status;
    }
    if (*at != '{' && scan->depth == 0 && (*at == '[' || *at == '"' || ks_scan_token[(unsigned char)*at]))
        return ks_fail(error, KS_FIELD, "Unable to parse the request: its JSON is not an object");
    if (*at == '{') return open_object(scan, error);
    if (*at == '[') return open_array(scan, error);
    if (*at == '"') {
        if (scan->role == KS_ROLE_DATA) return not_an_array(error);
        ks_scan_string_begin(scan, false);
        return KS_OK;
    }
    if (!ks_scan_token[(unsigned char)*at]) return ks_scan_bad(scan, "value expected", at, error);
    scan->state = KS_SCAN_TOKEN;
    scan->text_length = 0;
    return ks_scan_text_add(scan, at, 1, error);
}

/* One dimension, negative where the element is none; rank turns to -1 then, and the JSON head's reader says why. */
static void shape_element(ks_scan *scan, int64_t dim)
{
    ks_scan_input *input = &scan->input[scan->inputs - 1];
    if (input->rank < 0) return;
    if (dim >= 0 && input->rank < KS_RANK_MAX)
        input->dims[input->rank++] = dim;
    else
        input->rank = -1;
}

static ks_status end_token(ks_scan *scan, const char *at, ks_error *error)
{
    const char *const text = scan->text;
    const size_t n = scan->text_length;
    int64_t whole = -1;
    const bool plain = ks_digits_read(text, n, &whole);
    const bool null = n == 4 && memcmp(text, "null", 4) == 0;
    const bool literal = null || (n == 4 && memcmp(text, "true", 4) == 0) || (n == 5 && memcmp(text, "false", 5) == 0);
    double ignored;
    /* An FP64 reader says whether it is a number; the words for NaN and infinity begin with letters only it knows. */
    const bool word = scan->role != KS_ROLE_ELEMENT && (text[n - 1] == 'y' || text[n - 1] == 'f' || text[n - 1] == 'N');
    if (!plain && !literal && (word || ks_number_read(text, n, KS_FP64, &ignored) == KS_NUMBER_SYNTAX))
        return ks_scan_bad(scan, "invalid value", at, error);
    if (scan->role == KS_ROLE_DATA && !null) return not_an_array(error);
    if (scan->role == KS_ROLE_DATA) scan->input[scan->inputs - 1].null_data = true;
    if (scan->depth > 0 && scan->frame[scan->depth].role == KS_ROLE_SHAPE) {
        if (!plain && (*text == '-' || ks_number_read(text, n, KS_INT64, &whole) != KS_NUMBER_OK)) whole = -1;
        shape_element(scan, whole);
    }
    ks_scan_value_over(scan);
    if (literal) return copy(scan, text, n, error);
    const char quoted[2] = {'"', (char)KS_SCAN_NUMBER};
    ks_status status = copy(scan, quoted, 2, error);
    if (status == KS_OK) status = copy(scan, text, n, error);
    return status == KS_OK ? copy(scan, "\"", 1, error) : status;
}

ks_status ks_scan_token_step(ks_scan *scan, const char **at, const char *end, ks_error *error)
{
    const char *p = *at;
    while (p < end && ks_scan_token[(unsigned char)*p]) p++;
    const ks_status status = ks_scan_text_add(scan, *at, (size_t)(p - *at), error);
    *at = p;
    if (status != KS_OK || p == end) return status;
    return end_token(scan, p, error);
}

/* --- strings and keys ------------------------------------------------------------------------------------------------
 */

static bool text_is(const ks_scan *scan, const char *word)
{
    return scan->text_length == strlen(word) && memcmp(scan->text, word, scan->text_length) == 0;
}

static ks_scan_role role_of_key(const ks_scan *scan)
{
    const ks_scan_role parent = scan->frame[scan->depth].role;
    if (parent == KS_ROLE_TOP && text_is(scan, "inputs")) return KS_ROLE_INPUTS;
    if (parent != KS_ROLE_INPUT) return KS_ROLE_OTHER;
    if (text_is(scan, "data")) return KS_ROLE_DATA;
    if (text_is(scan, "shape")) return KS_ROLE_SHAPE;
    if (text_is(scan, "datatype")) return KS_ROLE_DATATYPE;
    if (text_is(scan, "name")) return KS_ROLE_NAME;
    return KS_ROLE_OTHER;
}

static ks_status end_key(ks_scan *scan, const char *at, ks_error *error)
{
    ks_scan_frame *frame = &scan->frame[scan->depth];
    if (++frame->members > scan->limits.members_max)
        return ks_fail(error, KS_JSON_LIMIT, "an object has more than %d members", scan->limits.members_max);
    const size_t offset = scan->json_head_length;
    ks_status status = copy_string(scan, error);
    if (status != KS_OK) return status;
    ks_scan_key key = {.hash = 2166136261u, .length = (uint32_t)(scan->json_head_length - offset), .offset = offset};
    for (size_t i = offset; i < scan->json_head_length; i++)
        key.hash = (key.hash ^ (unsigned char)scan->json_head[i]) * 16777619u;
    for (int i = frame->first_key; i < scan->keys_count; i++) {
        const ks_scan_key *other = &scan->keys[i];
        if (other->hash == key.hash && other->length == key.length &&
            memcmp(scan->json_head + other->offset, scan->json_head + offset, key.length) == 0)
            return ks_scan_bad(scan, "duplicate key", at, error);
    }
    scan->keys[scan->keys_count++] = key;
    scan->role = role_of_key(scan);
    scan->state = KS_SCAN_COLON;
    return KS_OK;
}

static void keep_name(const ks_scan *scan, ks_scan_input *input)
{
    if (scan->text_length > KS_SCAN_NAME_MAX) return;
    for (size_t i = 0; i < scan->text_length; i++)
        if (scan->text[i] < 0x20 || scan->text[i] > 0x7E) return;
    memcpy(input->name, scan->text, scan->text_length);
    input->name[scan->text_length] = 0;
}

ks_status ks_scan_string_over(ks_scan *scan, const char *at, ks_error *error)
{
    if (scan->string.is_key) return end_key(scan, at, error);
    ks_scan_input *input = scan->inputs > 0 ? &scan->input[scan->inputs - 1] : NULL;
    if (scan->role == KS_ROLE_DATATYPE) input->has_dtype = ks_dtype_find(scan->text, scan->text_length, &input->dtype);
    if (scan->role == KS_ROLE_NAME) keep_name(scan, input);
    if (scan->depth > 0 && scan->frame[scan->depth].role == KS_ROLE_SHAPE) shape_element(scan, -1);
    ks_scan_value_over(scan);
    return copy_string(scan, error);
}

/* --- the turn --------------------------------------------------------------------------------------------------------
 */

static ks_status after_comma(ks_scan *scan, ks_error *error)
{
    const bool object = scan->frame[scan->depth].object;
    scan->state = object ? KS_SCAN_KEY : KS_SCAN_VALUE;
    const ks_status status = copy(scan, ",", 1, error);
    return status != KS_OK || object ? status : next_element(scan, error);
}

/* One byte between values that is not white space. */
ks_status ks_scan_structure(ks_scan *scan, const char *at, ks_error *error)
{
    const char c = *at;
    switch (scan->state) {
    case KS_SCAN_FIRST_VALUE:
        if (c == ']') return pop(scan, false, at, error);
        return begin_value(scan, at, error);
    case KS_SCAN_VALUE:
        return begin_value(scan, at, error);
    case KS_SCAN_FIRST_KEY:
        if (c == '}') return pop(scan, true, at, error);
        __attribute__((fallthrough));
    case KS_SCAN_KEY:
        if (c != '"') return ks_scan_bad(scan, "key expected", at, error);
        ks_scan_string_begin(scan, true);
        return KS_OK;
    case KS_SCAN_COLON:
        if (c != ':') return ks_scan_bad(scan, "colon expected", at, error);
        scan->state = KS_SCAN_VALUE;
        return copy(scan, ":", 1, error);
    case KS_SCAN_COMMA:
        if (c == ',') return after_comma(scan, error);
        if (c == '}' || c == ']') return pop(scan, c == '}', at, error);
        return ks_scan_bad(scan, "comma expected", at, error);
    default:
        return ks_scan_bad(scan, "bytes behind the object", at, error);
    }
}
