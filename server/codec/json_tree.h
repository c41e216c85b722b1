/* The tree that cJSON makes of a scanner's JSON head (scan.h): members by name and type, numbers as their own text. json_tree.c
 * alone knows cJSON. A tree is one thread's; what is read of it lives as long. */
#ifndef KS_JSON_TREE_H
#define KS_JSON_TREE_H
#include "codec/scan/scan.h"

typedef struct cJSON ks_json;

/* Of a scanner that has ended well. KS_MEMORY: "no memory for WHAT". */
ks_status ks_json_open(const ks_scan *scan, const char *what, ks_json **out, ks_error *error);
void ks_json_close(ks_json **top);

const ks_json *ks_json_member(const ks_json *object, const char *name); /* NULL: it has none, or object is none */
/* Of a list or an object. */
const ks_json *ks_json_first(const ks_json *list);
const ks_json *ks_json_next(const ks_json *item);
const char *ks_json_key(const ks_json *item); /* its name in its object */

/* false of NULL */
bool ks_json_is_null(const ks_json *item);
bool ks_json_is_bool(const ks_json *item);
bool ks_json_is_true(const ks_json *item);
bool ks_json_is_number(const ks_json *item);
bool ks_json_is_text(const ks_json *item);
bool ks_json_is_list(const ks_json *item);
bool ks_json_is_object(const ks_json *item);
const char *ks_json_text(const ks_json *item); /* of a text, or of a number; else "" */
bool ks_json_read_unsigned(const ks_json *item, uint64_t *out);

/* The protocol's sentences; KS_FIELD. */
ks_status ks_json_wrong_type(const char *name, const char *type, ks_error *error);
ks_status ks_json_missing(const char *name, ks_error *error);
/* A member that must be there. */
ks_status ks_json_get_text(const ks_json *object, const char *name, const char **out, ks_error *error);
ks_status ks_json_get_unsigned(const ks_json *object, const char *name, uint64_t *out, ks_error *error);
/* A member that may be there: *out stays as it is, or is NULL, where it is not. */
ks_status ks_json_find_object(const ks_json *object, const char *name, const ks_json **out, ks_error *error);
ks_status ks_json_find_list(const ks_json *object, const char *name, const ks_json **out, ks_error *error);
ks_status ks_json_find_bool(const ks_json *object, const char *name, bool *out, ks_error *error);
#endif
