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
    const char *word;      /* of --manual, --completion, --dump-config, as table.h has their words; NULL: none */
    const char *url;       /* of --healthcheck, or NULL */
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
    KS_COMMAND_MANUAL,
    KS_COMMAND_COMPLETION,
    KS_COMMAND_LIST_DEVICES,
    KS_COMMAND_TUNE,
    KS_COMMAND_SELF_TEST,
    KS_COMMAND_HEALTHCHECK
} ks_command;

/* Exit codes, as sysexits.h; systemd prints them by name. X(NAME, code, whether a restart may help, "meaning") */
#define KS_EXIT_TABLE(X)                                                                                               \
    X(OK, 0, false, "ended as asked")                                                                                  \
    X(USAGE, 64, false, "usage: an unknown option or a wrong value on the command line")                               \
    X(NO_FILE, 66, false, "the configuration or token file is not there")                                              \
    X(NO_DEVICE, 69, true, "no usable device (--backend cuda)")                                                        \
    X(INTERNAL, 70, true, "the device was lost, or an internal fault")                                                 \
    X(SYSTEM, 71, true, "memory or another service of the system")                                                     \
    X(AGAIN, 75, true, "the port is in use, the address is not there yet, or the drain was cut")                       \
    X(PERMISSION, 77, false, "no permission, also for a port below 1024, or the token file is open to others")         \
    X(CONFIG, 78, false,                                                                                               \
      "configuration: a wrong value in the environment or the file, an address beyond loopback without a token, a "    \
      "unix socket in a folder that is not there, memory options that exceed the memory limit")
enum {
#define X(name, code, ...) KS_EXIT_##name = code,
    KS_EXIT_TABLE(X)
#undef X
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
void ks_config_sample(void);                /* to stdout: a config file with every key, commented out, at its preset */
void ks_config_manual(const char *section); /* to stdout, as mdoc: kernserve(8), or kernserve.conf(5) */
void ks_config_completion(const char *shell); /* to stdout, for bash or zsh */
#endif
