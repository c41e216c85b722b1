#include "base/config/table.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ks_option ks_options[KS_OPTIONS] = {
#define AT(field) offsetof(ks_config, field)
#define SHOWN(group, rank, placeholder, ...)                                                                           \
    KS_GROUP_##group, KS_RANK_##rank, placeholder, HELP_AND_PARAGRAPH(__VA_ARGS__, "", "")
#define HELP_AND_PARAGRAPH(help, paragraph, ...) help, paragraph
#define TEXT(field, name, preset, ...) {KS_OPTION_TEXT, name, AT(field), preset, 0, 0, 0, SHOWN(__VA_ARGS__)},
#define LIST(field, name, preset, ...) {KS_OPTION_LIST, name, AT(field), preset, 0, 0, 0, SHOWN(__VA_ARGS__)},
#define NUMBER(kind, field, name, preset, least, most, ...)                                                            \
    {kind, name, AT(field), NULL, preset, least, most, SHOWN(__VA_ARGS__)},
#define SIZE(...) NUMBER(KS_OPTION_SIZE, __VA_ARGS__)
#define TIME(...) NUMBER(KS_OPTION_TIME, __VA_ARGS__)
#define COUNT(...) NUMBER(KS_OPTION_COUNT, __VA_ARGS__)
#define OCTAL(...) NUMBER(KS_OPTION_OCTAL, __VA_ARGS__)
#define FLAG(field, name, preset, ...) {KS_OPTION_FLAG, name, AT(field), NULL, preset, 0, 1, SHOWN(__VA_ARGS__)},
#define CHOICE(field, name, preset, values, ...)                                                                       \
    {KS_OPTION_CHOICE, name, AT(field), &(values)[1], preset, 0, 0, SHOWN(__VA_ARGS__)},
#define V(constant, word) "|" word
#include "base/config/options.def"
};

const ks_command_row ks_commands[KS_COMMANDS] = {
    {"check-config", "", "", KS_COMMAND_CHECK_CONFIG, KS_GROUP_COMMANDS, KS_RANK_BASIC,
     "print what is wrong with the configuration; all that a start would meet, short of the device: addresses, tokens, "
     "plans to warm, files, memory"},
    {"dump-config", "[=sample]", "sample", KS_COMMAND_DUMP_CONFIG, KS_GROUP_COMMANDS, KS_RANK_BASIC,
     "print every value with its origin; as a file that reads back as the same; =sample: every key at its preset, "
     "commented out, to begin a file with"},
    {"list-devices", "", "", KS_COMMAND_LIST_DEVICES, KS_GROUP_COMMANDS, KS_RANK_BASIC,
     "print what --backend and --device can choose"},
    {"self-test", "[=table|json]", "table|json", KS_COMMAND_SELF_TEST, KS_GROUP_COMMANDS, KS_RANK_BASIC,
     "measure this host and the daemon on it; the limits of the host, and what the daemon reaches beside them"},
    {"tune", " SHAPES...", "", KS_COMMAND_TUNE, KS_GROUP_COMMANDS, KS_RANK_BASIC,
     "time the kernels of each shape; e.g. 64,4096:4096,4096:FP16; fills --tune-cache"},
    {"healthcheck", "[=live]", "live|ready", KS_COMMAND_HEALTHCHECK, KS_GROUP_COMMANDS, KS_RANK_BASIC,
     "ask a running daemon whether it is ready; or live; =ready is the preset; the daemon of this configuration, or "
     "that of a URL that follows; the exit code is 0 or 1"},
    {"manual", "=8|5", "8|5", KS_COMMAND_MANUAL, KS_GROUP_COMMANDS, KS_RANK_REST,
     "print the manual page kernserve(8) or kernserve.conf(5), as mdoc"},
    {"completion", "=bash|zsh", "bash|zsh", KS_COMMAND_COMPLETION, KS_GROUP_COMMANDS, KS_RANK_REST,
     "print a shell's completion of this command line"},
    {"version", ", -V", "", KS_COMMAND_VERSION, KS_GROUP_COMMANDS, KS_RANK_BASIC,
     "print the version and what was built in"},
    {"help", "[=all|NAME], -h", "", KS_COMMAND_HELP, KS_GROUP_COMMANDS, KS_RANK_REST,
     "print what most hosts need, all options, or one"},
    {"config", " FILE", "", KS_COMMAND_SERVE, KS_GROUP_LIFE, KS_RANK_BASIC,
     "key = value lines; # begins a comment, keys of lists are repeated"}};

const ks_command_row *ks_command_find(const char *name, size_t length)
{
    for (int i = 0; i < KS_COMMANDS; i++)
        if (strlen(ks_commands[i].name) == length && memcmp(ks_commands[i].name, name, length) == 0)
            return &ks_commands[i];
    return NULL;
}

typedef struct value_unit {
    const char *name;
    int64_t factor;
} value_unit;

static const value_unit size_units[] = {{"G", 1 << 30}, {"M", 1 << 20}, {"k", 1 << 10},
                                        {"K", 1 << 10}, {"", 1},        {NULL, 0}};
static const value_unit time_units[] = {{"m", 60 * KS_S}, {"s", KS_S}, {"ms", KS_MS}, {"us", 1000}, {NULL, 0}};
static const value_unit no_units[] = {{"", 1}, {NULL, 0}};

static const value_unit *units_of(const ks_option *option)
{
    return option->kind == KS_OPTION_SIZE ? size_units : option->kind == KS_OPTION_TIME ? time_units : no_units;
}

const ks_option *ks_option_find(const char *name, size_t length)
{
    for (int i = 0; i < KS_OPTIONS; i++)
        if (strlen(ks_options[i].name) == length && memcmp(ks_options[i].name, name, length) == 0)
            return &ks_options[i];
    return NULL;
}

void ks_option_write_variable(const ks_option *option, char out[KS_VARIABLE_NAME_MAX])
{
    size_t n = sizeof KS_VARIABLE_PREFIX - 1;
    memcpy(out, KS_VARIABLE_PREFIX, n);
    for (const char *c = option->name; *c && n + 1 < KS_VARIABLE_NAME_MAX; c++)
        out[n++] = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    out[n] = 0;
}

const char *ks_config_keep(ks_config *config, const char *bytes, size_t n)
{
    ks_config_owned *owned = config->owned;
    ks_owned_text *text = malloc(sizeof *text + n + 1);
    if (!text) return NULL;
    memcpy(text->bytes, bytes, n);
    text->bytes[n] = 0;
    text->next = owned->texts;
    owned->texts = text;
    return text->bytes;
}

static void *field_of(const ks_option *option, ks_config *config)
{
    return (char *)config + option->offset;
}

int64_t ks_option_value(const ks_option *option, const ks_config *config)
{
    const void *field = (const char *)config + option->offset;
    switch (option->kind) {
    case KS_OPTION_SIZE:
        return (int64_t) * (const uint64_t *)field;
    case KS_OPTION_FLAG:
        return *(const bool *)field;
    case KS_OPTION_CHOICE:
        return *(const int *)field;
    default:
        return *(const int64_t *)field;
    }
}

static bool is_same(const ks_option *option, const ks_config *a, const ks_config *b)
{
    const void *x = (const char *)a + option->offset, *y = (const char *)b + option->offset;
    if (option->kind == KS_OPTION_TEXT) return strcmp(*(const char *const *)x, *(const char *const *)y) == 0;
    if (option->kind != KS_OPTION_LIST) return ks_option_value(option, a) == ks_option_value(option, b);
    const ks_list *left = x, *right = y;
    int i = 0;
    while (i < left->count && i < right->count && strcmp(left->item[i], right->item[i]) == 0) i++;
    return left->count == right->count && i == left->count;
}

const char *ks_config_next_change(const ks_config *a, const ks_config *b, int *at)
{
    while (*at < KS_OPTIONS) {
        const ks_option *option = &ks_options[(*at)++];
        if (!is_same(option, a, b)) return option->name;
    }
    return NULL;
}

static void store(const ks_option *option, ks_config *config, int64_t value)
{
    void *field = field_of(option, config);
    switch (option->kind) {
    case KS_OPTION_SIZE:
        *(uint64_t *)field = (uint64_t)value;
        break;
    case KS_OPTION_FLAG:
        *(bool *)field = value != 0;
        break;
    case KS_OPTION_CHOICE:
        *(int *)field = (int)value;
        break;
    default:
        *(int64_t *)field = value;
    }
}

size_t ks_word_at(const char *words, int at, const char **out)
{
    while (at-- > 0) {
        words = strchr(words, '|');
        if (!words) return 0;
        words++;
    }
    *out = words;
    return strcspn(words, "|");
}

bool ks_word_is_in(const char *words, const char *word)
{
    const char *one;
    size_t n;
    for (int at = 0; (n = ks_word_at(words, at, &one)) > 0; at++)
        if (strlen(word) == n && memcmp(word, one, n) == 0) return true;
    return false;
}

void ks_option_write(const ks_option *option, int64_t value, char out[KS_VALUE_TEXT_MAX])
{
    const char *choice = "";
    if (option->kind == KS_OPTION_FLAG) {
        snprintf(out, KS_VALUE_TEXT_MAX, "%s", value ? "on" : "off");
    } else if (option->kind == KS_OPTION_CHOICE) {
        const size_t n = ks_word_at(option->text, (int)value, &choice);
        snprintf(out, KS_VALUE_TEXT_MAX, "%.*s", (int)n, choice);
    } else if (option->kind == KS_OPTION_OCTAL) {
        snprintf(out, KS_VALUE_TEXT_MAX, value ? "0%" PRIo64 : "0", value);
    } else {
        const value_unit *unit = units_of(option);
        while (unit[1].name && (value == 0 || value % unit->factor != 0)) unit++;
        snprintf(out, KS_VALUE_TEXT_MAX, "%" PRId64 "%s", value / unit->factor, value ? unit->name : "");
    }
}

void ks_option_write_preset(const ks_option *option, char out[KS_VALUE_TEXT_MAX])
{
    if (option->kind == KS_OPTION_TEXT || option->kind == KS_OPTION_LIST)
        snprintf(out, KS_VALUE_TEXT_MAX, "%s", option->text);
    else if (option->preset == 0 && strstr(option->help, "automatic"))
        snprintf(out, KS_VALUE_TEXT_MAX, "automatic");
    else
        ks_option_write(option, option->preset, out);
}

void ks_option_write_bounds(const ks_option *option, char out[KS_BOUNDS_TEXT_MAX])
{
    char least[KS_VALUE_TEXT_MAX], most[KS_VALUE_TEXT_MAX];
    out[0] = 0;
    if (option->kind < KS_OPTION_SIZE || option->kind > KS_OPTION_OCTAL) return;
    ks_option_write(option, option->least, least);
    ks_option_write(option, option->most, most);
    snprintf(out, KS_BOUNDS_TEXT_MAX, "%s to %s", least, most);
}

/* A count, size or duration: digits, then one of the units; or octal digits. */
static ks_status read_number(const ks_option *option, const char *value, const char *where, int64_t *out,
                             ks_error *error)
{
    static const char *const forms[] = {[KS_OPTION_SIZE] = "bytes, or a number with k, M or G",
                                        [KS_OPTION_TIME] = "a number with us, ms, s or m",
                                        [KS_OPTION_COUNT] = "a whole number",
                                        [KS_OPTION_OCTAL] = "a number in octal digits"};
    char least[KS_VALUE_TEXT_MAX], most[KS_VALUE_TEXT_MAX];
    ks_option_write(option, option->least, least);
    ks_option_write(option, option->most, most);
    const int base = option->kind == KS_OPTION_OCTAL ? 8 : 10;
    const size_t digits = strspn(value, base == 8 ? "01234567" : "0123456789");
    const value_unit *unit = units_of(option);
    while (unit->name && strcmp(unit->name, value + digits) != 0) unit++;
    const bool zero = digits > 0 && strspn(value, "0") == strlen(value); /* needs no unit */
    const bool negative = value[0] == '-' && strspn(value + 1, "0123456789") > 0;
    if (!negative && (digits == 0 || (!unit->name && !zero)))
        return ks_fail(error, KS_CONFIG, "%s: '%.64s' is not %s", where, value, forms[option->kind]);
    int64_t number = 0;
    bool outside = negative;
    for (size_t i = 0; i < digits; i++)
        outside = outside || __builtin_mul_overflow(number, base, &number) ||
                  __builtin_add_overflow(number, value[i] - '0', &number);
    outside = outside || __builtin_mul_overflow(number, zero ? 1 : unit->factor, &number);
    if (outside || number < option->least || number > option->most)
        return ks_fail(error, KS_CONFIG, "%s: %.64s is out of range: %s to %s", where, value, least, most);
    *out = number;
    return KS_OK;
}

static ks_status read_choice(const ks_option *option, const char *value, const char *where, int64_t *out,
                             ks_error *error)
{
    const char *choices = option->kind == KS_OPTION_FLAG ? "off|on|false|true|no|yes|0|1" : option->text;
    const char *choice;
    size_t n;
    for (int at = 0; (n = ks_word_at(choices, at, &choice)) > 0; at++) {
        if (strlen(value) != n || memcmp(value, choice, n) != 0) continue;
        *out = option->kind == KS_OPTION_FLAG ? at % 2 : at;
        return KS_OK;
    }
    return ks_fail(error, KS_CONFIG, "%s: '%.64s' is none of %s", where, value,
                   option->kind == KS_OPTION_FLAG ? "on|off" : option->text);
}

static ks_status read_text(const ks_option *option, ks_config *config, const char *value, const char *where,
                           ks_error *error)
{
    const char *kept = ks_config_keep(config, value, strlen(value));
    if (!kept) return ks_fail(error, KS_MEMORY, "%s: out of memory", where);
    if (option->kind == KS_OPTION_TEXT) {
        *(const char **)field_of(option, config) = kept;
        return KS_OK;
    }
    ks_list *list = field_of(option, config);
    if (list->count == KS_LIST_MAX) return ks_fail(error, KS_CONFIG, "%s: more than %d of them", where, KS_LIST_MAX);
    list->item[list->count++] = kept;
    return KS_OK;
}

ks_status ks_option_read(const ks_option *option, ks_config *config, const char *value, const char *where,
                         ks_error *error)
{
    if (option->kind == KS_OPTION_TEXT || option->kind == KS_OPTION_LIST)
        return read_text(option, config, value, where, error);
    int64_t number = 0;
    const ks_status status = option->kind == KS_OPTION_FLAG || option->kind == KS_OPTION_CHOICE
                                 ? read_choice(option, value, where, &number, error)
                                 : read_number(option, value, where, &number, error);
    if (status == KS_OK) store(option, config, number);
    return status;
}
