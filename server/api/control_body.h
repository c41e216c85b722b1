/* The words of a control request: one small JSON object, checked by the same scanner as an inference request's. One
 * thread at a time. */
#ifndef KS_CONTROL_BODY_H
#define KS_CONTROL_BODY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernserve/status.h"

typedef struct ks_control ks_control;

ks_status ks_control_begin(ks_control **out, ks_error *error);
/* KS_JSON, KS_JSON_LIMIT, KS_BODY_SIZE, KS_MEMORY. */
ks_status ks_control_feed(ks_control *control, const char *bytes, size_t n, ks_error *error);
ks_status ks_control_end(ks_control *control, ks_error *error);
void ks_control_fini(ks_control **control);

/* A member; outer: the object that holds it, or NULL. control may be NULL: no member is there. Absent and null are one:
 * *present is false and *out stays as it is, but for a text, which is then NULL. KS_FIELD: another type. */
ks_status ks_control_bool(const ks_control *control, const char *name, bool *present, bool *out, ks_error *error);
ks_status ks_control_unsigned(const ks_control *control, const char *name, bool *present, uint64_t *out,
                              ks_error *error);
ks_status ks_control_text(const ks_control *control, const char *outer, const char *name, const char **out,
                          ks_error *error);
#endif
