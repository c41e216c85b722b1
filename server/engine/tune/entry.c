#include "engine/tune/entry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_MAX = 512, SUM_DIGITS = 16 };

/* Tabs and entry ends part fields and lines. */
static void put_field(ks_text *out, const char *text)
{
    for (; *text; text++) ks_text_add(out, (unsigned char)*text < ' ' ? " " : text, 1);
}

static void put_value(ks_text *out, const ks_spec *spec, int index)
{
    const ks_param *param = &spec->op->params[index];
    const ks_value *value = &spec->params[index];
    ks_text_printf(out, " %s=", param->name);
    if (param->kind == KS_PARAM_NUMBER) {
        ks_text_printf(out, "%a", value->d);
    } else if (param->kind == KS_PARAM_AXES) {
        ks_text_printf(out, "%d", value->axes.count);
        for (int i = 0; i < value->axes.count; i++) ks_text_printf(out, ",%d", value->axes.axis[i]);
    } else if (param->kind == KS_PARAM_LIST) {
        const ks_integers *list = ks_list_of(spec, index);
        ks_text_printf(out, "%" PRId64, list->count);
        for (int i = 0; i < list->count; i++) ks_text_printf(out, ",%" PRId64, list->value[i]);
    } else {
        ks_text_printf(out, "%" PRId64, value->i);
    }
}

char *ks_tune_key(const ks_spec *spec)
{
    ks_text out;
    ks_text_init(&out, KEY_MAX);
    ks_text_puts(&out, spec->op->name);
    for (int i = 0; i < spec->op->params_count; i++) put_value(&out, spec, i);
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        if (i > 0 && !ks_has_input(spec, i - 1)) ks_text_printf(&out, " %s", spec->op->inputs[i].name);
        ks_text_printf(&out, " %s", ks_dtype_name(spec->in[i].dtype));
        for (int d = 0; d < spec->in[i].rank; d++)
            ks_text_printf(&out, "%c%" PRId64, d ? ',' : ':', spec->in[i].dims[d]);
        if (spec->in[i].fixed) ks_text_puts(&out, "@"); /* wherever that is: its plan takes another path */
    }
    ks_text_add(&out, "", 1);
    size_t length;
    char *key = ks_text_take(&out, &length);
    ks_text_fini(&out);
    return key;
}

/* FNV-1a. */
static uint64_t sum_of(const char *bytes, size_t length)
{
    uint64_t sum = 0xCBF29CE484222325u;
    for (size_t i = 0; i < length; i++) sum = (sum ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    return sum;
}

void ks_tune_entry_put(ks_text *out, const char *context, const char *key, const ks_tuned *tuned)
{
    const ks_trials *trials = &tuned->trials;
    const size_t begin = out->length;
    ks_text_printf(out, "%*s\t", SUM_DIGITS, "");
    put_field(out, context);
    ks_text_printf(out, "\t%s\t", key);
    for (int i = 0; i < KS_ALGORITHM_BYTES; i++) ks_text_printf(out, "%02x", tuned->algorithm.algorithm[i]);
    ks_text_puts(out, "\t");
    put_field(out, tuned->algorithm.kernel);
    ks_text_printf(out, "\t%.3f\t", trials->us);
    put_field(out, trials->heuristic);
    ks_text_printf(out, "\t%.3f\t%d", trials->heuristic_us, trials->candidates);
    if (out->broken) return;
    char sum[SUM_DIGITS + 1];
    const size_t from = begin + SUM_DIGITS;
    snprintf(sum, sizeof sum, "%016" PRIx64, sum_of(out->bytes + from, out->length - from));
    memcpy(out->bytes + begin, sum, SUM_DIGITS);
    ks_text_puts(out, "\n");
}

bool ks_tune_entry_cut(char *entry, ks_tune_entry *out)
{
    char **const fields[] = {&out->context, &out->key,       &out->algorithm,    &out->kernel,
                             &out->us,      &out->heuristic, &out->heuristic_us, &out->candidates};
    enum { FIELDS = sizeof fields / sizeof *fields };
    char sum[SUM_DIGITS + 1];
    if (strlen(entry) <= SUM_DIGITS || entry[SUM_DIGITS] != '\t') return false;
    snprintf(sum, sizeof sum, "%016" PRIx64, sum_of(entry + SUM_DIGITS, strlen(entry + SUM_DIGITS)));
    if (memcmp(sum, entry, SUM_DIGITS) != 0) return false;
    char *at = entry + SUM_DIGITS;
    for (int i = 0; i < FIELDS; i++) {
        if (!at) return false;
        *at++ = 0;
        *fields[i] = at;
        at = strchr(at, '\t');
    }
    return !at;
}

static bool read_algorithm(const char *hex, unsigned char *algorithm)
{
    if (strlen(hex) != 2 * KS_ALGORITHM_BYTES || strspn(hex, "0123456789abcdef") != 2 * KS_ALGORITHM_BYTES)
        return false;
    for (int i = 0; i < KS_ALGORITHM_BYTES; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) return false;
        algorithm[i] = (unsigned char)byte;
    }
    return true;
}

bool ks_tune_entry_read(const ks_tune_entry *fields, ks_tuned *out)
{
    memset(out, 0, sizeof *out);
    ks_trials *trials = &out->trials;
    snprintf(out->algorithm.kernel, sizeof out->algorithm.kernel, "%s", fields->kernel);
    snprintf(trials->heuristic, sizeof trials->heuristic, "%s", fields->heuristic);
    trials->us = strtod(fields->us, NULL);
    trials->heuristic_us = strtod(fields->heuristic_us, NULL);
    trials->candidates = (int)strtol(fields->candidates, NULL, 10);
    return read_algorithm(fields->algorithm, out->algorithm.algorithm) && trials->candidates > 0;
}
