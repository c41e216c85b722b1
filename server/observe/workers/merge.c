/* Owns       what a family is: a line # HELP, and all up to the next one.
 * Interface  merge.h
 * Limits     FAMILIES_MAX of a part; those behind are left out. */
#include "observe/workers/merge.h"

#include <stdlib.h>
#include <string.h>

enum { FAMILIES_MAX = 512 };

typedef struct span {
    const char *at, *end;
} span;

typedef struct family {
    span name, head, samples; /* head: its lines that begin with # */
} family;

typedef struct index_of {
    int count, device;
    family family[FAMILIES_MAX];
} index_of;

static const char help[] = "# HELP ";

static span line_at(const char *at, const char *end)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    return (span){at, newline ? newline + 1 : end};
}

static bool begins(span line, const char *text, size_t n)
{
    return (size_t)(line.end - line.at) >= n && memcmp(line.at, text, n) == 0;
}

static void read_families(const ks_merge_part *part, index_of *out)
{
    const char *const end = part->text + part->bytes;
    family *now = NULL;
    out->count = 0;
    out->device = part->device;
    for (span line = {part->text, part->text}; line.end < end;) {
        line = line_at(line.end, end);
        if (begins(line, help, sizeof help - 1)) {
            if (out->count == FAMILIES_MAX) return;
            const char *const name = line.at + sizeof help - 1;
            const char *const space = memchr(name, ' ', (size_t)(line.end - name));
            now = &out->family[out->count++];
            *now = (family){{name, space ? space : line.end}, line, {line.end, line.end}};
        } else if (now && *line.at == '#') {
            now->head.end = line.end;
            now->samples = (span){line.end, line.end};
        } else if (now) {
            now->samples.end = line.end;
        }
    }
}

static const family *find(const index_of *in, span name, int hint)
{
    const size_t n = (size_t)(name.end - name.at);
    for (int i = 0; i < in->count; i++) {
        const family *one = &in->family[(hint + i) % in->count]; /* mostly at the same place */
        if ((size_t)(one->name.end - one->name.at) == n && memcmp(one->name.at, name.at, n) == 0) return one;
    }
    return NULL;
}

static void add(ks_text *out, const char *at, const char *end)
{
    ks_text_add(out, at, (size_t)(end - at));
}

/* Names have neither a brace nor a space, so the first of them ends the name. */
static void add_sample(ks_text *out, span line, int device)
{
    static const char label[] = "device=\"";
    const char *name = line.at;
    while (name < line.end && *name != '{' && *name != ' ' && *name != '\n') name++;
    const bool labels = name < line.end && *name == '{';
    if (labels && memmem(name, (size_t)(line.end - name), label, sizeof label - 1)) {
        add(out, line.at, line.end);
        return;
    }
    add(out, line.at, name);
    ks_text_printf(out, "{device=\"%d\"%s", device, labels ? "," : "}");
    add(out, labels ? name + 1 : name, line.end);
}

static void add_samples(ks_text *out, const family *one, int device)
{
    for (span line = {one->samples.at, one->samples.at}; line.end < one->samples.end;) {
        line = line_at(line.end, one->samples.end);
        add_sample(out, line, device);
    }
}

static bool is_known(const index_of *before, int count, const family *one, int hint)
{
    for (int i = 0; i < count; i++)
        if (before[i].count > 0 && find(&before[i], one->name, hint)) return true;
    return false;
}

void ks_merge(const ks_merge_part *parts, int count, ks_text *out)
{
    index_of *in = calloc((size_t)count, sizeof *in);
    if (!in) {
        out->broken = true;
        return;
    }
    for (int i = 0; i < count; i++) read_families(&parts[i], &in[i]);
    for (int i = 0; i < count; i++)
        for (int f = 0; f < in[i].count; f++) {
            const family *one = &in[i].family[f];
            if (is_known(in, i, one, f)) continue;
            add(out, one->head.at, one->head.end);
            for (int j = i; j < count; j++) {
                const family *same = j == i ? one : in[j].count > 0 ? find(&in[j], one->name, f) : NULL;
                if (same) add_samples(out, same, in[j].device);
            }
        }
    free(in);
}
