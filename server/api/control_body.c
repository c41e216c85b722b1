#include "api/control_body.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/number/number.h"
#include "codec/scan.h"

enum { JSON_MAX = 1 << 20, SKELETON_MAX = 1 << 16, STRING_MAX = 1024, MEMBERS_MAX = 64 };

struct ks_control {
    ks_scan *scan;
    cJSON *top;
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
        .skeleton_max = SKELETON_MAX, .string_max = STRING_MAX, .members_max = MEMBERS_MAX, .json_max = JSON_MAX};
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
    size_t length;
    const ks_status status = ks_scan_end(control->scan, error);
    if (status != KS_OK) return status;
    const char *skeleton = ks_scan_skeleton(control->scan, &length);
    control->top = cJSON_ParseWithLength(skeleton, length);
    /* The scanner has accepted every byte of it, so that only memory can be missing. */
    return control->top ? KS_OK : ks_fail(error, KS_MEMORY, "no memory for the request's JSON");
}

void ks_control_fini(ks_control **control)
{
    if (!*control) return;
    cJSON_Delete((*control)->top);
    ks_scan_fini(&(*control)->scan);
    free(*control);
    *control = NULL;
}

static ks_status wrong_type(const char *name, const char *type, ks_error *error)
{
    return ks_fail(error, KS_FIELD, "Unable to parse '%s': attempt to access JSON non-%s as %s", name, type, type);
}

/* NULL: absent, or null. */
static const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return item && !cJSON_IsNull(item) ? item : NULL;
}

static bool is_number(const cJSON *item)
{
    return cJSON_IsString(item) && (unsigned char)item->valuestring[0] == KS_SCAN_NUMBER;
}

ks_status ks_control_bool(const ks_control *control, const char *name, bool *present, bool *out, ks_error *error)
{
    const cJSON *item = control ? member(control->top, name) : NULL;
    *present = item != NULL;
    if (!item) return KS_OK;
    if (!cJSON_IsBool(item)) return wrong_type(name, "boolean", error);
    *out = cJSON_IsTrue(item);
    return KS_OK;
}

ks_status ks_control_unsigned(const ks_control *control, const char *name, bool *present, uint64_t *out,
                              ks_error *error)
{
    const cJSON *item = control ? member(control->top, name) : NULL;
    *present = item != NULL;
    if (!item) return KS_OK;
    const char *const text = is_number(item) ? item->valuestring + 1 : "";
    if (ks_number_read(text, strlen(text), KS_UINT64, out) != KS_NUMBER_OK)
        return wrong_type(name, "unsigned-integer", error);
    return KS_OK;
}

ks_status ks_control_text(const ks_control *control, const char *outer, const char *name, const char **out,
                          ks_error *error)
{
    const cJSON *object = control ? control->top : NULL;
    *out = NULL;
    if (object && outer) {
        object = member(object, outer);
        if (object && !cJSON_IsObject(object)) return wrong_type(outer, "object", error);
    }
    const cJSON *item = object ? member(object, name) : NULL;
    if (!item) return KS_OK;
    if (!cJSON_IsString(item) || is_number(item)) return wrong_type(name, "string", error);
    *out = item->valuestring;
    return KS_OK;
}
