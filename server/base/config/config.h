/* Options, from the command line, the environment KERNSERVE_*, a file and presets, in this order of precedence; one
 * table (options.def) makes them all. Fixed after ks_config_load; any thread. Leaf service. */
#ifndef KS_CONFIG_H
#define KS_CONFIG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log_words.h"
#include "kernserve/backends.h"
#include "kernserve/status.h"

enum { KS_LIST_MAX = 32 };
typedef struct ks_list {
    int count;
    const char *item[KS_LIST_MAX]; /* owned by the config */
} ks_list;

/* A choice of --backend: KS_BACKEND_CPU, "cpu". */
#define KS_BACKEND_CHOICE(TITLE, name, gpu) V(KS_BACKEND_##TITLE, #name)

/* An enum for each option with choices, in the order of its words. */
#define CHOICE(field, name, preset, values, ...) typedef enum ks_choice_##field{values} ks_choice_##field;
#define CHOICE_OF(type, ...)
#define V(constant, word) constant,
#include "base/config/options.def"

typedef struct ks_config {
#define TEXT(field, ...) const char *field;
#define LIST(field, ...) ks_list field;
#define SIZE(field, ...) uint64_t field;
#define TIME(field, ...) int64_t field; /* ns */
#define COUNT(field, ...) int64_t field;
#define OCTAL(field, ...) int64_t field;
#define FLAG(field, ...) bool field;
#define CHOICE(field, ...) ks_choice_##field field;
#define CHOICE_OF(type, field, ...) type field;
#include "base/config/options.def"
    const char *file;      /* that was read (--config), or NULL */
    const char *help;      /* of --help: "all" or a name; NULL: what most operators need */
    const char *url;       /* of --healthcheck or --plans, or NULL */
    bool health_live;      /* it asks for live, not ready */
    const char *self_test; /* "table" or "json": what --self-test writes; NULL: it is not asked for */
    ks_list tune;          /* of --tune */
    void *owned;           /* config.c's */
} ks_config;

/* What the command line asks for instead of serving. */
typedef enum ks_command {
    KS_COMMAND_SERVE,
    KS_COMMAND_HELP,
    KS_COMMAND_VERSION,
    KS_COMMAND_CHECK_CONFIG,
    KS_COMMAND_DUMP_CONFIG,
    KS_COMMAND_LIST_DEVICES,
    KS_COMMAND_TUNE,
    KS_COMMAND_SELF_TEST,
    KS_COMMAND_HEALTHCHECK,
    KS_COMMAND_PLANS
} ks_command;

/* Exit codes, as sysexits.h; systemd prints them by name. */
enum {
    KS_EXIT_OK = 0,
    KS_EXIT_USAGE = 64,
    KS_EXIT_NO_FILE = 66,
    KS_EXIT_NO_DEVICE = 69,
    KS_EXIT_INTERNAL = 70,
    KS_EXIT_SYSTEM = 71,
    KS_EXIT_AGAIN = 75,
    KS_EXIT_PERMISSION = 77,
    KS_EXIT_CONFIG = 78
};

/* --listen, KERNSERVE_LISTEN=a (several items of a list: spaces between them), listen = a (repeatable). A list of a
 * higher origin replaces that of a lower one; an empty value clears it. 0, or the exit code with the one line for
 * stderr in error->text (a wrong option names the nearest right one). */
int ks_config_load(int argc, char **argv, ks_config *out, ks_command *command, ks_error *error);
void ks_config_free(ks_config *config);
/* A variable KERNSERVE_* that no option has: it does nothing, and was meant to. Not those that Kubernetes makes from
 * a Service's name (KERNSERVE_PORT, KERNSERVE_SERVICE_HOST ...): no option may ever be called port. */
enum { KS_VARIABLE_NAME_MAX = 80 };
typedef struct ks_unknown_variable {
    char name[KS_VARIABLE_NAME_MAX], nearest[KS_VARIABLE_NAME_MAX]; /* nearest: "" where none is near */
} ks_unknown_variable;
/* The next one of the environment from *at on (0 at first); false: no more. */
bool ks_config_next_unknown(int *at, ks_unknown_variable *out);
/* The name of the next option from *at on (0 at first) that has not the same value in both; NULL: no more. */
const char *ks_config_next_change(const ks_config *a, const ks_config *b, int *at);
void ks_config_help(const char *what); /* to stdout: one screen (NULL), "all", or an option or command by its name */
void ks_config_dump(const ks_config *config); /* to stdout: each value with its origin, readable as a config file */
#endif
