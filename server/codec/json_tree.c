/* The one door to cJSON. In a JSON head a number is a text with a mark in front (scan.h), so that integers are read exactly.
 *
 * Owns     a tree's memory: chunks that its items are cut from, one behind the other, and that go together. To allocate and to free each
 *          of the forty items of a small head takes more than to parse it.
 * Threads  a tree is one thread's; several trees may be open in one. */
#include "codec/json_tree.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/number/number.h"

enum { FIRST_CHUNK_BYTES = 1000, CHUNK_BYTES_MAX = 64 << 10 };

typedef struct chunk {
    struct chunk *older;
    size_t size, used; /* of bytes */
    _Alignas(max_align_t) unsigned char bytes[];
} chunk;

static _Thread_local chunk *filling; /* by the parse that runs; its newest one */

static void free_chunks(chunk *newest)
{
    for (chunk *older; newest; newest = older) {
        older = newest->older;
        free(newest);
    }
}

/* Twice as large as the one before, as far as that is no waste. */
static bool add_chunk(size_t size)
{
    size_t room = filling ? 2 * (sizeof(chunk) + filling->size) : FIRST_CHUNK_BYTES;
    if (room > CHUNK_BYTES_MAX) room = CHUNK_BYTES_MAX;
    if (room < sizeof(chunk) + size) room = sizeof(chunk) + size;
    chunk *added = malloc(room);
    if (!added) return false;
    *added = (chunk){.older = filling, .size = room - sizeof(chunk)};
    filling = added;
    return true;
}

/* malloc_fn and free_fn of cJSON. */
static void *cut_item(size_t size)
{
    enum { UNIT = _Alignof(max_align_t) };
    if (size > SIZE_MAX / 2) return NULL;
    size = (size + UNIT - 1) / UNIT * UNIT;
    if ((!filling || filling->size - filling->used < size) && !add_chunk(size)) return NULL;
    void *const item = filling->bytes + filling->used;
    filling->used += size;
    return item;
}

static void keep_item(void *item)
{
    (void)item;
}

static void set_hooks(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = cut_item, .free_fn = keep_item});
}

ks_status ks_json_open(const ks_scan *scan, const char *what, ks_json **out, ks_error *error)
{
    size_t length;
    const char *const json_head = ks_scan_json_head(scan, &length);
    static pthread_once_t hooks = PTHREAD_ONCE_INIT;
    pthread_once(&hooks, set_hooks);
    filling = NULL;
    *out = cJSON_ParseWithLength(json_head, length);
    chunk *const chunks = filling;
    filling = NULL;
    if (*out) {
        assert(!(*out)->prev); /* the top is in no list: there it keeps its tree's memory */
        (*out)->prev = (cJSON *)(void *)chunks;
        return KS_OK;
    }
    /* The scanner has accepted every byte of it, so that only memory can be missing. */
    free_chunks(chunks);
    return ks_fail(error, KS_MEMORY, "no memory for %s", what);
}

void ks_json_close(ks_json **top)
{
    if (*top) free_chunks((chunk *)(void *)(*top)->prev);
    *top = NULL;
}

const ks_json *ks_json_member(const ks_json *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

const ks_json *ks_json_first(const ks_json *list)
{
    return list ? list->child : NULL;
}

const ks_json *ks_json_next(const ks_json *item)
{
    return item->next;
}

const char *ks_json_key(const ks_json *item)
{
    return item->string;
}

bool ks_json_is_null(const ks_json *item)
{
    return cJSON_IsNull(item);
}

bool ks_json_is_bool(const ks_json *item)
{
    return cJSON_IsBool(item);
}

bool ks_json_is_true(const ks_json *item)
{
    return cJSON_IsTrue(item);
}

bool ks_json_is_number(const ks_json *item)
{
    return cJSON_IsString(item) && (unsigned char)item->valuestring[0] == KS_SCAN_NUMBER;
}

bool ks_json_is_text(const ks_json *item)
{
    return cJSON_IsString(item) && (unsigned char)item->valuestring[0] != KS_SCAN_NUMBER;
}

bool ks_json_is_list(const ks_json *item)
{
    return cJSON_IsArray(item);
}

bool ks_json_is_object(const ks_json *item)
{
    return cJSON_IsObject(item);
}

const char *ks_json_text(const ks_json *item)
{
    if (!cJSON_IsString(item)) return "";
    return item->valuestring + (ks_json_is_number(item) ? 1 : 0);
}

bool ks_json_read_unsigned(const ks_json *item, uint64_t *out)
{
    if (!ks_json_is_number(item)) return false;
    const char *const text = ks_json_text(item);
    return ks_number_read(text, strlen(text), KS_UINT64, out) == KS_NUMBER_OK;
}

ks_status ks_json_wrong_type(const char *name, const char *type, ks_error *error)
{
    return ks_fail(error, KS_FIELD, "Unable to parse '%s': attempt to access JSON non-%s as %s", name, type, type);
}

ks_status ks_json_missing(const char *name, ks_error *error)
{
    return ks_fail(error, KS_FIELD, "Unable to parse '%s': attempt to access non-existing object member '%s'", name,
                   name);
}

ks_status ks_json_get_text(const ks_json *object, const char *name, const char **out, ks_error *error)
{
    const ks_json *item = ks_json_member(object, name);
    if (!item) return ks_json_missing(name, error);
    if (!ks_json_is_text(item)) return ks_json_wrong_type(name, "string", error);
    *out = item->valuestring;
    return KS_OK;
}

ks_status ks_json_get_unsigned(const ks_json *object, const char *name, uint64_t *out, ks_error *error)
{
    const ks_json *item = ks_json_member(object, name);
    if (!item) return ks_json_missing(name, error);
    return ks_json_read_unsigned(item, out) ? KS_OK : ks_json_wrong_type(name, "unsigned-integer", error);
}

ks_status ks_json_find_object(const ks_json *object, const char *name, const ks_json **out, ks_error *error)
{
    *out = ks_json_member(object, name);
    return !*out || ks_json_is_object(*out) ? KS_OK : ks_json_wrong_type(name, "object", error);
}

ks_status ks_json_find_list(const ks_json *object, const char *name, const ks_json **out, ks_error *error)
{
    *out = ks_json_member(object, name);
    return !*out || ks_json_is_list(*out) ? KS_OK : ks_json_wrong_type(name, "array", error);
}

ks_status ks_json_find_bool(const ks_json *object, const char *name, bool *out, ks_error *error)
{
    const ks_json *item = ks_json_member(object, name);
    if (!item) return KS_OK;
    if (!ks_json_is_bool(item)) return ks_json_wrong_type(name, "boolean", error);
    *out = ks_json_is_true(item);
    return KS_OK;
}
