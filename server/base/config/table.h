/* The options as a table, for the files of this folder: what options.def says, and how one value is read and written. */
#ifndef KS_CONFIG_TABLE_H
#define KS_CONFIG_TABLE_H
#include "base/config/config.h"

typedef enum ks_option_kind {
    KS_OPTION_TEXT,
    KS_OPTION_LIST,
    KS_OPTION_SIZE,
    KS_OPTION_TIME,
    KS_OPTION_COUNT,
    KS_OPTION_OCTAL,
    KS_OPTION_FLAG,
    KS_OPTION_CHOICE
} ks_option_kind;

/* A heading of --help. */
typedef enum ks_group { KS_GROUP_LISTEN, KS_GROUP_DEVICE, KS_GROUP_LIMITS, KS_GROUP_LIFE, KS_GROUP_COMMANDS } ks_group;
enum { KS_GROUPS = KS_GROUP_COMMANDS + 1 };

/* BASIC: on the screen of -h; FIRST: of the few that most hosts change, first in the sample file; TOP: both. */
typedef enum ks_rank { KS_RANK_REST, KS_RANK_BASIC = 1, KS_RANK_FIRST = 2, KS_RANK_TOP = 3 } ks_rank;

typedef struct ks_option {
    ks_option_kind kind;
    const char *name;
    size_t offset;    /* in ks_config */
    const char *text; /* TEXT, LIST: the preset; CHOICE: "a|b|c" */
    int64_t preset, least, most;
    ks_group group;
    ks_rank rank;
    const char *placeholder; /* "": that of the kind */
    const char *help;
    const char *paragraph; /* for the manual, behind the help; "": none */
} ks_option;

/* Later ones win. */
typedef enum ks_origin { KS_FROM_PRESET, KS_FROM_FILE, KS_FROM_ENVIRONMENT, KS_FROM_COMMAND_LINE } ks_origin;

enum {
#define OPTION(field, ...) KS_OPTION_AT_##field,
#include "base/config/options.def"
    KS_OPTIONS
};

extern const ks_option ks_options[KS_OPTIONS];

/* What a command line may ask for instead of serving, and --config. */
typedef struct ks_command_row {
    const char *name, *form; /* form: what stands behind the name in --help */
    const char *words;       /* "a|b": what may stand behind =; "": nothing, or what it likes */
    ks_command command;      /* KS_COMMAND_SERVE: --config */
    ks_group group;
    ks_rank rank;
    const char *help;
} ks_command_row;
enum { KS_COMMANDS = 12 };
extern const ks_command_row ks_commands[KS_COMMANDS];

typedef struct ks_owned_text {
    struct ks_owned_text *next;
    char bytes[];
} ks_owned_text;

/* What ks_config.owned points to. */
typedef struct ks_config_owned {
    ks_origin origin[KS_OPTIONS];
    int line[KS_OPTIONS]; /* of the file */
    ks_owned_text *texts;
} ks_config_owned;

enum { KS_VALUE_TEXT_MAX = 64 };

/* Reads one value into its field. where: how the operator wrote the option ("--queue", "KERNSERVE_QUEUE", "queue"), for
 * the sentence. A LIST gets one more item. */
ks_status ks_option_read(const ks_option *option, ks_config *config, const char *value, const char *where,
                         ks_error *error);
/* The text of a number-like value, e.g. 256M; reads back as the same. */
void ks_option_write(const ks_option *option, int64_t value, char out[KS_VALUE_TEXT_MAX]);
int64_t ks_option_value(const ks_option *option, const ks_config *config); /* of all kinds but TEXT and LIST */
/* A copy that lives as long as the config; NULL: memory. */
const char *ks_config_keep(ks_config *config, const char *bytes, size_t n);
const ks_option *ks_option_find(const char *name, size_t length);
const ks_command_row *ks_command_find(const char *name, size_t length);

/* "|"-separated words: the at-th one's length, and where it begins; 0: there are not so many. */
size_t ks_word_at(const char *words, int at, const char **out);
bool ks_word_is_in(const char *words, const char *word);

extern const char *const ks_group_titles[KS_GROUPS];
/* "SIZE", "ADDR:PORT", "a|b", or "" for a flag. */
const char *ks_option_placeholder(const ks_option *option);
/* "256M", "automatic", or "" where there is none. */
void ks_option_write_preset(const ks_option *option, char out[KS_VALUE_TEXT_MAX]);
/* "1k to 16G", or "" where the kind has no range. */
enum { KS_BOUNDS_TEXT_MAX = 2 * KS_VALUE_TEXT_MAX + 4 };
void ks_option_write_bounds(const ks_option *option, char out[KS_BOUNDS_TEXT_MAX]);
/* To stdout: lines of at most 80 columns, each behind the prefix, with the words of the text and of the end. */
void ks_print_wrapped(const char *prefix, const char *text, const char *end);

/* "(256M; 1k to 16G)" behind a blank, or "". */
enum { KS_RANGE_TEXT_MAX = 224 };
void ks_option_write_range(const ks_option *option, char out[KS_RANGE_TEXT_MAX]);
/* "KERNSERVE_MAX_BODY" */
#define KS_VARIABLE_PREFIX "KERNSERVE_"
void ks_option_write_variable(const ks_option *option, char out[KS_VARIABLE_NAME_MAX]);

/* The sentence for a name that nothing has: what another server's option is here, the only name that begins so, or the
 * nearest. value: what was given with it, or NULL. */
enum { KS_HINT_MAX = 160 };
void ks_hint_option(const char *name, size_t length, const char *value, char out[KS_HINT_MAX]);
void ks_hint_key(const char *name, char out[KS_HINT_MAX]); /* of a file */
#endif
