/* Names of a definition: their bytes, their memory, and which value each one is.
 *
 * Owns      nothing. Interface reader.h; ks_model_name_check of definition.h
 * Threads   one at a time; ks_model_name_check any. */
#include <string.h>

#include "base/text.h"
#include "models/reader.h"

static bool is_name_byte(char c, const char *others)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr(others, c);
}

bool ks_definition_is_name(const char *name, size_t length, const char *others)
{
    for (size_t i = 0; i < length; i++)
        if (!name[i] || !is_name_byte(name[i], others)) return false;
    return length > 0;
}

ks_status ks_model_name_check(const char *name, size_t length, ks_error *error)
{
    if (length > 0 && length < KS_MODEL_NAME_MAX && ks_definition_is_name(name, length, "_.-") && *name != '.' &&
        *name != '-')
        return KS_OK;
    return ks_fail(error, KS_NAME,
                   "a model's name has 1 to %d bytes of A-Z a-z 0-9 _ . - and begins with neither . nor -, got '%s'",
                   KS_MODEL_NAME_MAX - 1, ks_quoted(name, length).text);
}

/* A copy; all that a document names fits into as many bytes as it has. */
const char *ks_definition_keep(ks_definition *definition, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *const kept = definition->names + definition->names_length;
    if (bytes > definition->names_cap - definition->names_length) return NULL;
    memcpy(kept, text, bytes);
    definition->names_length += bytes;
    return kept;
}

ks_status ks_definition_name(ks_definition_reader *r, const ks_json *item, const char *what, size_t most,
                             const char **out)
{
    const char *const text = ks_json_text(item);
    const size_t length = strlen(text);
    if (!ks_json_is_text(item)) return ks_fail(r->error, KS_NAME, "%s: it has no name", what);
    if (length == 0 || length > most || !ks_definition_is_name(text, length, "_.:/-"))
        return ks_fail(r->error, KS_NAME, "%s: a name has 1 to %zu bytes of A-Z a-z 0-9 _ . : / -, got '%s'", what,
                       most, ks_quoted(text, length).text);
    *out = ks_definition_keep(r->definition, text);
    return *out ? KS_OK : ks_fail(r->error, KS_MEMORY, "no memory for a definition's names");
}

/* Its place in order[], or where it would have one. */
static int place_of(const ks_definition_names *names, const char *name, bool *is_there)
{
    int low = 0, high = names->count;
    *is_there = false;
    while (low < high && !*is_there) {
        const int middle = low + (high - low) / 2, sign = strcmp(names->name[names->order[middle]], name);
        *is_there = sign == 0;
        if (sign < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return high;
}

int ks_definition_value(const ks_definition_reader *r, const char *name)
{
    bool is_there;
    const int place = place_of(&r->values, name, &is_there);
    return is_there ? r->values.order[place] : -1;
}

int ks_definition_add_name(ks_definition_names *names, const char *name)
{
    bool is_there;
    const int place = place_of(names, name, &is_there);
    if (is_there) return names->order[place];
    memmove(&names->order[place + 1], &names->order[place], (size_t)(names->count - place) * sizeof names->order[0]);
    names->order[place] = (int16_t)names->count;
    names->name[names->count++] = name;
    return -1;
}

ks_status ks_definition_add_value(ks_definition_reader *r, const char *name, const char *what)
{
    if (ks_definition_add_name(&r->values, name) < 0) return KS_OK;
    return ks_fail(r->error, KS_NAME, "%s: '%s' is given twice", what, name);
}

ks_status ks_definition_members(ks_definition_reader *r, const ks_json *object, const char *what,
                                const char *const *known)
{
    for (const ks_json *item = ks_json_first(object); item; item = ks_json_next(item)) {
        const char *const key = ks_json_key(item);
        int i = 0;
        while (known[i] && strcmp(known[i], key) != 0) i++;
        if (!known[i])
            return ks_fail(r->error, KS_FIELD, "%s has an unknown member '%s'", what, ks_quoted(key, strlen(key)).text);
    }
    return KS_OK;
}
