/* Reads the origins in rising precedence: presets, file, environment, command line. The command line is walked twice:
 * first for what it asks (and the file's name), at the end for its options. */
#include "base/config/config.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config/table.h"

enum { FILE_MAX = 1 << 20 };

typedef struct config_loader {
    ks_config *config;
    ks_error *error;
    ks_command command;
} config_loader;

static ks_config_owned *owned_of(config_loader *loader)
{
    return loader->config->owned;
}

/* One value of one option from one origin. */
static ks_status set(config_loader *loader, const ks_option *option, const char *value, ks_origin origin, int line,
                     const char *where)
{
    ks_config_owned *owned = owned_of(loader);
    const size_t at = (size_t)(option - ks_options);
    if (option->kind == KS_OPTION_LIST) {
        ks_list *list = (ks_list *)((char *)loader->config + option->offset);
        if (owned->origin[at] != origin || !*value) list->count = 0; /* a higher origin replaces the list */
        if (!*value) {
            owned->origin[at] = origin;
            owned->line[at] = line;
            return KS_OK;
        }
    } else if (origin == KS_FROM_FILE && owned->origin[at] == KS_FROM_FILE) {
        return ks_fail(loader->error, KS_CONFIG, "%s: given before, in line %d", where, owned->line[at]);
    }
    owned->origin[at] = origin;
    owned->line[at] = line;
    return ks_option_read(option, loader->config, value, where, loader->error);
}

static ks_status set_presets(config_loader *loader)
{
    for (int i = 0; i < KS_OPTIONS; i++) {
        const ks_option *option = &ks_options[i];
        char text[KS_VALUE_TEXT_MAX];
        const char *value = option->text;
        if (option->kind != KS_OPTION_TEXT && option->kind != KS_OPTION_LIST) {
            ks_option_write(option, option->preset, text);
            value = text;
        }
        if (option->kind == KS_OPTION_LIST && !*value) continue;
        const ks_status status = ks_option_read(option, loader->config, value, option->name, loader->error);
        assert(status == KS_OK || status == KS_MEMORY); /* a preset outside its range is a mistake in options.def */
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

/* --- the command line -----------------------------------------------------------------------------------------------
 */

/* One argument, cut: --NAME[=VALUE]. */
typedef struct cli_argument {
    const char *name;
    size_t length;
    const char *value; /* NULL: none behind '=' */
} cli_argument;

static bool cut_argument(const char *text, cli_argument *out)
{
    if (strcmp(text, "-h") == 0) text = "--help";
    if (strcmp(text, "-V") == 0) text = "--version";
    if (strncmp(text, "--", 2) != 0 || !text[2]) return false;
    out->name = text + 2;
    out->length = strcspn(out->name, "=");
    out->value = out->name[out->length] ? out->name + out->length + 1 : NULL;
    return true;
}

/* All arguments up to the next option. */
static ks_status take_shapes(config_loader *loader, const char *value, int argc, char **argv, int *i)
{
    ks_list *list = &loader->config->tune;
    list->count = 0;
    for (;;) {
        if (!value && (*i + 1 == argc || strncmp(argv[*i + 1], "--", 2) == 0)) break;
        if (list->count == KS_LIST_MAX)
            return ks_fail(loader->error, KS_CONFIG, "--tune takes at most %d shapes", KS_LIST_MAX);
        list->item[list->count++] = value ? value : argv[++*i];
        value = NULL;
    }
    if (list->count) return KS_OK;
    return ks_fail(loader->error, KS_CONFIG, "--tune needs shapes, e.g. 64,4096:4096,4096:FP16");
}

/* What --help may name. */
static ks_status check_topic(config_loader *loader, const char *topic)
{
    char hint[KS_HINT_MAX];
    const size_t length = strlen(topic);
    if (strcmp(topic, "all") == 0 || ks_option_find(topic, length) || ks_command_find(topic, length)) return KS_OK;
    ks_hint_option(topic, length, NULL, hint);
    return ks_fail(loader->error, KS_CONFIG, "--help: no option --%.64s%s", topic, hint);
}

/* value NULL: none was given. */
static ks_status take_word(config_loader *loader, const ks_command_row *row, const char *value, const char **out)
{
    if (value && !ks_word_is_in(row->words, value))
        return ks_fail(loader->error, KS_CONFIG, "--%s: '%.64s' is none of %s", row->name, value, row->words);
    *out = value;
    return KS_OK;
}

/* value NULL: none was given. */
static ks_status take_value(config_loader *loader, const ks_command_row *row, const char *value)
{
    switch (row->command) {
    case KS_COMMAND_SERVE:
        if (!value || !*value) return ks_fail(loader->error, KS_CONFIG, "--config needs the name of a file");
        loader->config->file = value;
        return KS_OK;
    case KS_COMMAND_HELP:
        loader->config->help = value;
        return value ? check_topic(loader, value) : KS_OK;
    case KS_COMMAND_HEALTHCHECK:
        loader->config->url = value;
        return KS_OK;
    case KS_COMMAND_MANUAL:
    case KS_COMMAND_COMPLETION:
        if (!value) return ks_fail(loader->error, KS_CONFIG, "--%s needs one of %s behind =", row->name, row->words);
        return take_word(loader, row, value, &loader->config->word);
    case KS_COMMAND_DUMP_CONFIG:
        return take_word(loader, row, value, &loader->config->word);
    case KS_COMMAND_SELF_TEST:
        return take_word(loader, row, value ? value : "table", &loader->config->self_test);
    default:
        return value ? ks_fail(loader->error, KS_CONFIG, "--%s takes no value", row->name) : KS_OK;
    }
}

/* --healthcheck=live, --healthcheck=ready: a URL may follow. Returns the value that is left. */
static const char *take_question(ks_config *config, const char *value)
{
    config->health_live = value && strcmp(value, "live") == 0;
    return config->health_live || (value && strcmp(value, "ready") == 0) ? NULL : value;
}

/* 1: it was a command, --config or the like and is dealt with; 0: an option; -1: failed. */
static int take_command(config_loader *loader, const cli_argument *argument, int argc, char **argv, int *i)
{
    const ks_command_row *row = ks_command_find(argument->name, argument->length);
    const char *value = argument->value;
    if (!row) return 0;
    const bool is_file = row->command == KS_COMMAND_SERVE, is_url = row->command == KS_COMMAND_HEALTHCHECK;
    if (!is_file) loader->command = row->command;
    if (is_url) value = take_question(loader->config, value);
    if (row->command == KS_COMMAND_TUNE) return take_shapes(loader, value, argc, argv, i) == KS_OK ? 1 : -1;
    if (!value && *i + 1 < argc && (is_file || (is_url && argv[*i + 1][0] != '-'))) value = argv[++*i];
    return take_value(loader, row, value) == KS_OK ? 1 : -1;
}

/* dashes: as they were typed. */
static ks_status unknown_option(config_loader *loader, const char *dashes, const cli_argument *argument,
                                const char *next)
{
    char hint[KS_HINT_MAX];
    const char *value = argument->value ? argument->value : next && next[0] != '-' ? next : NULL;
    ks_hint_option(argument->name, argument->length, value, hint);
    return ks_fail(loader->error, KS_CONFIG, "unknown option %s%.*s%s", dashes,
                   argument->length < 64 ? (int)argument->length : 64, argument->name, hint);
}

static ks_status take_option(config_loader *loader, const cli_argument *argument, int argc, char **argv, int *i,
                             bool dry)
{
    const ks_option *option = ks_option_find(argument->name, argument->length);
    const char *value = argument->value;
    if (!option && argument->length > 3 && memcmp(argument->name, "no-", 3) == 0) {
        option = ks_option_find(argument->name + 3, argument->length - 3);
        if (option && option->kind != KS_OPTION_FLAG) option = NULL;
        if (option && value) return ks_fail(loader->error, KS_CONFIG, "--no-%s takes no value", option->name);
        value = "off";
    }
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    if (!option) return unknown_option(loader, "--", argument, next);
    if (!value && option->kind == KS_OPTION_FLAG) {
        const bool spelled = next && (strcmp(next, "on") == 0 || strcmp(next, "off") == 0);
        value = spelled ? argv[++*i] : "on";
    } else if (!value) {
        if (!next) return ks_fail(loader->error, KS_CONFIG, "--%s needs a value", option->name);
        value = argv[++*i];
    }
    char where[72];
    snprintf(where, sizeof where, "--%s", option->name);
    return dry ? KS_OK : set(loader, option, value, KS_FROM_COMMAND_LINE, 0, where);
}

/* dry: commands and --config only. */
static ks_status walk(config_loader *loader, int argc, char **argv, bool dry)
{
    for (int i = 1; i < argc; i++) {
        cli_argument argument;
        const bool is_option = cut_argument(argv[i], &argument);
        if (!is_option && argv[i][0] == '-' && argv[i][1] && argv[i][1] != '-') {
            argument = (cli_argument){.name = argv[i] + 1, .length = strlen(argv[i] + 1)};
            return unknown_option(loader, "-", &argument, i + 1 < argc ? argv[i + 1] : NULL);
        }
        if (!is_option)
            return ks_fail(loader->error, KS_CONFIG, "unexpected argument '%.64s'; options begin with --", argv[i]);
        const int took = take_command(loader, &argument, argc, argv, &i);
        if (took < 0) return KS_CONFIG;
        if (took == 0 && take_option(loader, &argument, argc, argv, &i, dry) != KS_OK) return loader->error->status;
    }
    return KS_OK;
}

/* --- environment and file -------------------------------------------------------------------------------------------
 */

static ks_status set_from_environment(config_loader *loader, const ks_option *option)
{
    char name[KS_VARIABLE_NAME_MAX];
    ks_option_write_variable(option, name);
    const char *value = getenv(name);
    if (!value) return KS_OK;
    if (option->kind != KS_OPTION_LIST || !*value) return set(loader, option, value, KS_FROM_ENVIRONMENT, 0, name);
    for (const char *at = value + strspn(value, " "); *at;) {
        const size_t length = strcspn(at, " ");
        const char *item = ks_config_keep(loader->config, at, length);
        if (!item) return ks_fail(loader->error, KS_MEMORY, "%s: out of memory", name);
        if (set(loader, option, item, KS_FROM_ENVIRONMENT, 0, name) != KS_OK) return loader->error->status;
        at += length;
        at += strspn(at, " ");
    }
    return KS_OK;
}

/* Cuts white space off both ends, in place. */
static char *trim(char *text)
{
    text += strspn(text, " \t\r\n");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\n", text[n - 1])) n--;
    text[n] = 0;
    return text;
}

static ks_status read_line(config_loader *loader, char *text, int line)
{
    char *key = trim(text);
    if (!*key || *key == '#') return KS_OK;
    char *equals = strchr(key, '=');
    if (!equals)
        return ks_fail(loader->error, KS_CONFIG, "%.120s:%d: '%.64s' is not key = value", loader->config->file, line,
                       key);
    *equals = 0;
    key = trim(key);
    const ks_option *option = ks_option_find(key, strlen(key));
    if (!option) {
        char hint[KS_HINT_MAX];
        ks_hint_key(key, hint);
        return ks_fail(loader->error, KS_CONFIG, "%.120s:%d: unknown key '%.64s'%s", loader->config->file, line, key,
                       hint);
    }
    char where[220];
    snprintf(where, sizeof where, "%.120s:%d: %s", loader->config->file, line, option->name);
    return set(loader, option, trim(equals + 1), KS_FROM_FILE, line, where);
}

/* What is wrong with an option is its origin's fault, for want of memory it is none's. */
static int code_of(ks_status status, int otherwise)
{
    return status == KS_OK ? KS_EXIT_OK : status == KS_MEMORY ? KS_EXIT_SYSTEM : otherwise;
}

/* The exit code. */
static int read_file(config_loader *loader)
{
    const char *name = loader->config->file;
    FILE *file = fopen(name, "re");
    if (!file) {
        const int code = errno == EACCES || errno == EPERM ? KS_EXIT_PERMISSION
                         : errno == ENOMEM                 ? KS_EXIT_SYSTEM
                                                           : KS_EXIT_NO_FILE;
        ks_fail(loader->error, KS_CONFIG, "%.120s: %s", name, strerror(errno));
        return code;
    }
    char *line = NULL;
    size_t cap = 0, total = 0;
    ssize_t n;
    ks_status status = KS_OK;
    errno = 0;
    for (int number = 1; status == KS_OK && (n = getline(&line, &cap, file)) >= 0; number++) {
        total += (size_t)n;
        if (strlen(line) != (size_t)n || total > FILE_MAX)
            status = ks_fail(loader->error, KS_CONFIG, "%.120s:%d: not a text file of at most 1 MiB", name, number);
        else
            status = read_line(loader, line, number);
    }
    if (status == KS_OK && !feof(file)) /* getline also stops without an error of the file, for want of memory */
        status = ks_fail(loader->error, errno == ENOMEM ? KS_MEMORY : KS_CONFIG, "%.120s: %s", name, strerror(errno));
    free(line);
    fclose(file);
    return code_of(status, KS_EXIT_CONFIG);
}

/* Answers whatever else is wrong. */
static bool needs_no_values(const config_loader *loader)
{
    const ks_config *config = loader->config;
    return loader->command == KS_COMMAND_HELP || loader->command == KS_COMMAND_VERSION ||
           (loader->command == KS_COMMAND_HEALTHCHECK && config->url) || config->word;
}

static int load(config_loader *loader, int argc, char **argv)
{
    if (walk(loader, argc, argv, true) != KS_OK) return KS_EXIT_USAGE;
    if (set_presets(loader) != KS_OK) return KS_EXIT_SYSTEM;
    if (needs_no_values(loader)) return KS_EXIT_OK;
    if (!loader->config->file) loader->config->file = getenv("KERNSERVE_CONFIG");
    if (loader->config->file && !*loader->config->file) loader->config->file = NULL;
    if (loader->config->file) {
        const int code = read_file(loader);
        if (code != KS_EXIT_OK) return code;
    }
    for (int i = 0; i < KS_OPTIONS; i++) {
        const ks_status status = set_from_environment(loader, &ks_options[i]);
        if (status != KS_OK) return code_of(status, KS_EXIT_CONFIG);
    }
    return code_of(walk(loader, argc, argv, false), KS_EXIT_USAGE);
}

int ks_config_load(int argc, char **argv, ks_config *out, ks_command *command, ks_error *error)
{
    memset(out, 0, sizeof *out);
    out->owned = calloc(1, sizeof(ks_config_owned));
    if (!out->owned) {
        ks_fail(error, KS_MEMORY, "out of memory");
        return KS_EXIT_SYSTEM;
    }
    config_loader loader = {.config = out, .error = error, .command = KS_COMMAND_SERVE};
    const int code = load(&loader, argc, argv);
    *command = loader.command;
    if (code != KS_EXIT_OK) ks_config_free(out);
    return code;
}

void ks_config_free(ks_config *config)
{
    ks_config_owned *owned = config->owned;
    if (!owned) return;
    for (ks_owned_text *text = owned->texts, *next; text; text = next) {
        next = text->next;
        free(text);
    }
    free(owned);
    memset(config, 0, sizeof *config);
}
