#include "api/control_body.h"

#include <stdlib.h>

#include "codec/json_tree.h"

enum { JSON_MAX = 1 << 20, SKELETON_MAX = 1 << 16, STRING_MAX = 1024, MEMBERS_MAX = 64 };

struct ks_control {
    ks_scan *scan;
    ks_json *top;
};

/* ks_scan_place_fn */
static ks_status no_tensors(void *context, int index, const ks_scan_input *input, unsigned char **out, ks_error *error)
{
    (void)context, (void)index, (void)input, (void)out;
    return ks_fail(error, KS_FIELD, "a control request has no tensors");
}

ks_status ks_control_begin(ks_control **out, ks_error *error)
{
    static const ks_scan_limits limits = {
        .json_head_max = SKELETON_MAX, .string_max = STRING_MAX, .members_max = MEMBERS_MAX, .json_max = JSON_MAX};
    ks_control *control = calloc(1, sizeof *control);
    if (!control) return ks_fail(error, KS_MEMORY, "no memory for the request's JSON");
    const ks_status status = ks_scan_begin(&limits, no_tensors, NULL, &control->scan, error);
    if (status != KS_OK) free(control);
    if (status == KS_OK) *out = control;
    return status;
}

ks_status ks_control_feed(ks_control *control, const char *bytes, size_t n, ks_error *error)
{
    return ks_scan_feed(control->scan, bytes, n, error);
}

ks_status ks_control_end(ks_control *control, ks_error *error)
{
    const ks_status status = ks_scan_end(control->scan, error);
    return status == KS_OK ? ks_json_open(control->scan, "the request's JSON", &control->top, error) : status;
}

void ks_control_fini(ks_control **control)
{
    if (!*control) return;
    ks_json_close(&(*control)->top);
    ks_scan_fini(&(*control)->scan);
    free(*control);
    *control = NULL;
}

/* NULL: absent, or null. */
static const ks_json *member(const ks_json *object, const char *name)
{
    const ks_json *item = ks_json_member(object, name);
    return ks_json_is_null(item) ? NULL : item;
}

ks_status ks_control_bool(const ks_control *control, const char *name, bool *present, bool *out, ks_error *error)
{
    const ks_json *item = control ? member(control->top, name) : NULL;
    *present = item != NULL;
    if (!item) return KS_OK;
    if (!ks_json_is_bool(item)) return ks_json_wrong_type(name, "boolean", error);
    *out = ks_json_is_true(item);
    return KS_OK;
}

ks_status ks_control_unsigned(const ks_control *control, const char *name, bool *present, uint64_t *out,
                              ks_error *error)
{
    const ks_json *item = control ? member(control->top, name) : NULL;
    *present = item != NULL;
    if (!item) return KS_OK;
    return ks_json_read_unsigned(item, out) ? KS_OK : ks_json_wrong_type(name, "unsigned-integer", error);
}

ks_status ks_control_text(const ks_control *control, const char *outer, const char *name, const char **out,
                          ks_error *error)
{
    const ks_json *object = control ? control->top : NULL;
    *out = NULL;
    if (object && outer) {
        object = member(object, outer);
        if (object && !ks_json_is_object(object)) return ks_json_wrong_type(outer, "object", error);
    }
    const ks_json *item = object ? member(object, name) : NULL;
    if (!item) return KS_OK;
    if (!ks_json_is_text(item)) return ks_json_wrong_type(name, "string", error);
    *out = ks_json_text(item);
    return KS_OK;
}
