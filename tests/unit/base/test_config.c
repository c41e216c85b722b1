/* Configuration: precedence, lists, units, ranges, sentences, exit codes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/config/config.h"

static char file_name[64];

static void write_file(const char *text)
{
    FILE *file = fopen(file_name, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static int make_file(void **state)
{
    (void)state;
    strcpy(file_name, "/tmp/kernserve-config-XXXXXX");
    const int fd = mkstemp(file_name);
    if (fd >= 0) close(fd);
    return fd < 0;
}

static int remove_file(void **state)
{
    (void)state;
    unsetenv("KERNSERVE_QUEUE");
    unsetenv("KERNSERVE_LISTEN");
    unsetenv("KERNSERVE_CONFIG");
    return unlink(file_name);
}

static ks_config config;
static ks_command command;
static ks_error error;

/* Arguments end with NULL. */
static int load(const char *first, ...)
{
    char *argv[16] = {"kernserve"};
    int argc = 1;
    va_list more;
    va_start(more, first);
    for (const char *at = first; at; at = va_arg(more, const char *)) argv[argc++] = (char *)at;
    va_end(more);
    ks_config_free(&config);
    error.text[0] = 0;
    return ks_config_load(argc, argv, &config, &command, &error);
}

static void presets_hold_without_any_origin(void **state)
{
    (void)state;
    assert_int_equal(load(NULL), 0);
    assert_int_equal(command, KS_COMMAND_SERVE);
    assert_int_equal(config.listen.count, 1);
    assert_string_equal(config.listen.item[0], "127.0.0.1:8000");
    assert_string_equal(config.admin_listen, "127.0.0.1:8002");
    assert_int_equal(config.max_body, 256 << 20);
    assert_int_equal(config.request_timeout, 30000000000);
    assert_true(config.scrub);
    assert_int_equal(config.accept_host.count, 0);
}

static void flags_have_their_words(void **state)
{
    static const struct {
        const char *text;
        int on; /* -1: none of them */
    } rows[] = {{"on", 1}, {"off", 0}, {"true", 1}, {"false", 0}, {"yes", 1},   {"no", 0},  {"1", 1},
                {"0", 0},  {"", -1},   {"On", -1},  {"2", -1},    {"offf", -1}, {"of", -1}, {"on ", -1}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char argument[32];
        snprintf(argument, sizeof argument, "--scrub=%s", rows[i].text);
        assert_int_equal(load(argument, NULL) == 0, rows[i].on >= 0);
        if (rows[i].on >= 0) assert_int_equal(config.scrub, rows[i].on);
    }
}

/* Each word is the constant that the daemon compares with. */
static void choices_are_their_constants(void **state)
{
    static const struct {
        const char *argument;
        size_t offset;
        int value;
    } rows[] = {{"--backend=auto", offsetof(ks_config, backend), KS_BACKEND_AUTO},
                {"--backend=cuda", offsetof(ks_config, backend), KS_BACKEND_CUDA},
                {"--backend=cpu", offsetof(ks_config, backend), KS_BACKEND_CPU},
                {"--pinned=must", offsetof(ks_config, pinned), KS_PINNED_MUST},
                {"--pinned=try", offsetof(ks_config, pinned), KS_PINNED_TRY},
                {"--autotune=off", offsetof(ks_config, autotune), KS_AUTOTUNE_OFF},
                {"--autotune=start", offsetof(ks_config, autotune), KS_AUTOTUNE_START},
                {"--autotune=background", offsetof(ks_config, autotune), KS_AUTOTUNE_BACKGROUND},
                {"--json-non-finite=words", offsetof(ks_config, json_non_finite), KS_JSON_NON_FINITE_WORDS},
                {"--json-non-finite=error", offsetof(ks_config, json_non_finite), KS_JSON_NON_FINITE_ERROR},
                {"--log-level=error", offsetof(ks_config, log_level), KS_LOG_ERROR},
                {"--log-level=warn", offsetof(ks_config, log_level), KS_LOG_WARN},
                {"--log-level=info", offsetof(ks_config, log_level), KS_LOG_INFO},
                {"--log-level=debug", offsetof(ks_config, log_level), KS_LOG_DEBUG},
                {"--log-format=text", offsetof(ks_config, log_format), KS_LOG_TEXT},
                {"--log-format=json", offsetof(ks_config, log_format), KS_LOG_JSON},
                {"--access-log=off", offsetof(ks_config, access_log), KS_ACCESS_LOG_OFF},
                {"--access-log=on", offsetof(ks_config, access_log), KS_ACCESS_LOG_ON}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int value = -1;
        assert_int_equal(load(rows[i].argument, NULL), 0);
        memcpy(&value, (const char *)&config + rows[i].offset, sizeof value);
        if (value != rows[i].value) fail_msg("%s is %d, not %d", rows[i].argument, value, rows[i].value);
    }
    assert_int_equal(load("--autotune=startx", NULL), KS_EXIT_USAGE);
    assert_string_equal(error.text, "--autotune: 'startx' is none of off|start|background");
    assert_int_equal(load("--autotune=", NULL), KS_EXIT_USAGE);
}

static void higher_origins_win(void **state)
{
    (void)state;
    write_file("# a comment\n\n  queue = 5 \nmax-body=1M\n");
    assert_int_equal(load("--config", file_name, NULL), 0);
    assert_int_equal(config.queue, 5);
    assert_int_equal(config.max_body, 1 << 20);
    setenv("KERNSERVE_QUEUE", "6", 1);
    assert_int_equal(load("--config", file_name, NULL), 0);
    assert_int_equal(config.queue, 6);
    assert_int_equal(load("--queue=7", "--config", file_name, NULL), 0);
    assert_int_equal(config.queue, 7);
    assert_int_equal(config.max_body, 1 << 20);
    setenv("KERNSERVE_CONFIG", file_name, 1);
    unsetenv("KERNSERVE_QUEUE");
    assert_int_equal(load(NULL), 0);
    assert_int_equal(config.queue, 5);
}

static void lists_of_a_higher_origin_replace(void **state)
{
    (void)state;
    write_file("listen = 127.0.0.1:1\nlisten = unix:/tmp/x\n");
    assert_int_equal(load("--config", file_name, NULL), 0);
    assert_int_equal(config.listen.count, 2);
    assert_string_equal(config.listen.item[1], "unix:/tmp/x");
    setenv("KERNSERVE_LISTEN", "127.0.0.1:2  127.0.0.1:3", 1);
    assert_int_equal(load("--config", file_name, NULL), 0);
    assert_int_equal(config.listen.count, 2);
    assert_string_equal(config.listen.item[0], "127.0.0.1:2");
    assert_string_equal(config.listen.item[1], "127.0.0.1:3");
    assert_int_equal(load("--config", file_name, "--listen", "[::1]:4", NULL), 0);
    assert_int_equal(config.listen.count, 1);
    assert_string_equal(config.listen.item[0], "[::1]:4");
    assert_int_equal(load("--config", file_name, "--listen=", NULL), 0);
    assert_int_equal(config.listen.count, 0);
}

static void flags_have_three_forms(void **state)
{
    (void)state;
    assert_int_equal(load("--no-scrub", "--supervise", NULL), 0);
    assert_false(config.scrub);
    assert_true(config.supervise);
    assert_int_equal(load("--scrub", "off", "--supervise=on", NULL), 0);
    assert_false(config.scrub);
    assert_true(config.supervise);
    assert_int_equal(load("--supervise", "--no-supervise", NULL), 0);
    assert_false(config.supervise);
    assert_int_equal(load("--scrub=maybe", NULL), KS_EXIT_USAGE);
    assert_int_equal(load("--no-queue", NULL), KS_EXIT_USAGE);
}

static void units_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {{"1024", 1024}, {"3k", 3072}, {"3K", 3072}, {"5M", 5 << 20}, {"16G", 16ull << 30}};
    static const struct {
        const char *text;
        int64_t ns;
    } times[] = {{"1000us", 1000000}, {"250ms", 250000000}, {"2s", 2000000000}, {"3m", 180000000000}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(load("--max-body", sizes[i].text, NULL), 0);
        assert_int_equal(config.max_body, sizes[i].bytes);
    }
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        assert_int_equal(load("--request-timeout", times[i].text, NULL), 0);
        assert_int_equal(config.request_timeout, times[i].ns);
    }
    assert_int_equal(load("--drain-delay", "0", NULL), 0);
    assert_int_equal(config.drain_delay, 0);
}

static void bad_values_name_option_value_and_range(void **state)
{
    (void)state;
    static const struct {
        const char *option, *value, *says;
    } cases[] = {{"--queue", "0", "--queue: 0 is out of range: 1 to 65536"},
                 {"--queue", "-4", "--queue: -4 is out of range: 1 to 65536"},
                 {"--queue", "65537", "--queue: 65537 is out of range: 1 to 65536"},
                 {"--max-body", "99999999999999999999999", "is out of range: 1k to 16G"},
                 {"--max-body", "9007199254740992G", "is out of range: 1k to 16G"},
                 {"--max-body", "17179869185G", "is out of range: 1k to 16G"}, /* 2^64 and a gibibyte */
                 {"--max-body", "18446744073709552640", "is out of range: 1k to 16G"},
                 {"--max-body", "12q", "--max-body: '12q' is not bytes, or a number with k, M or G"},
                 {"--max-body", "", "--max-body: '' is not bytes"},
                 {"--queue", "1k", "--queue: '1k' is not a whole number"},
                 {"--queue", "1.5", "--queue: '1.5' is not a whole number"},
                 {"--idle-timeout", "5", "--idle-timeout: '5' is not a number with us, ms, s or m"},
                 {"--backend", "gpu", "--backend: 'gpu' is none of auto|cuda|cpu"},
                 {"--backend", "auto|cuda", "is none of"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(load(cases[i].option, cases[i].value, NULL), KS_EXIT_USAGE);
        if (!strstr(error.text, cases[i].says)) fail_msg("%s %s: %s", cases[i].option, cases[i].value, error.text);
    }
}

static void wrong_names_get_the_nearest_right_one(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"--quue=3", "--queue"},           {"--max-bdoy=3", "--max-body"},
        {"--no-scrubb", "--no-scrub"},     {"--hepl", "--help"},
        {"--healthchek", "--healthcheck"}, {"-queue", "--queue"},
        {"--max-b=3", "--max-body"},       {"--connections-p=3", "--connections-per-address"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char nearest[64];
        snprintf(nearest, sizeof nearest, "the nearest is %s", cases[i][1]);
        assert_int_equal(load(cases[i][0], NULL), KS_EXIT_USAGE);
        if (!strstr(error.text, nearest)) fail_msg("%s: %s", cases[i][0], error.text);
    }
    static const char *const none[] = {"--max-", "--colour=red", "-x", "--q"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        const bool begins = strcmp(none[i], "--q") == 0; /* of one name */
        assert_int_equal(load(none[i], NULL), KS_EXIT_USAGE);
        if (!strstr(error.text, begins ? "the nearest is --queue" : "; see --help"))
            fail_msg("%s: %s", none[i], error.text);
    }
    assert_int_equal(load("serve", NULL), KS_EXIT_USAGE);
    assert_int_equal(load("--", NULL), KS_EXIT_USAGE);
    assert_int_equal(load("--queue", NULL), KS_EXIT_USAGE);
    assert_int_equal(load("--config", NULL), KS_EXIT_USAGE);
}

static void other_servers_options_name_ours(void **state)
{
    (void)state;
    static const struct {
        const char *option, *value, *says;
    } cases[] = {{"--port", "80", "unknown option --port; here it is --listen 127.0.0.1:80"},
                 {"--port=80", NULL, "--listen 127.0.0.1:80"},
                 {"--port", NULL, "--listen 127.0.0.1:PORT"},
                 {"--port", "--queue=3", "--listen 127.0.0.1:PORT"},
                 {"-p", "80", "unknown option -p; here it is --listen 127.0.0.1:80"},
                 {"--http-port=80", NULL, "--listen 127.0.0.1:80"},
                 {"--metrics-port", "81", "--admin-listen 127.0.0.1:81"},
                 {"--grpc-port", "81", "HTTP only"},
                 {"--model-store", "/models", "--model-repository"},
                 {"--http-thread-count=4", NULL, "--threads"},
                 {"--log-verbose=1", NULL, "--log-level debug"},
                 {"--exit-timeout-secs=1", NULL, "--shutdown-timeout"},
                 {"--trace-config=a", NULL, "GET /v2/trace"},
                 {"--build-info", NULL, "--version"},
                 {"--host", "0.0.0.0", "unknown option --host; here it is --listen 0.0.0.0:8000"},
                 {"--host=::", NULL, "--listen [::]:8000"},
                 {"--host", "models.example", "--accept-host models.example"},
                 {"--host", NULL, "--accept-host"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(load(cases[i].option, cases[i].value, NULL), KS_EXIT_USAGE);
        if (!strstr(error.text, cases[i].says)) fail_msg("%s: %s", cases[i].option, error.text);
    }
}

/* What Kubernetes sets beside a Service is none of ours. */
static void unknown_variables_are_found(void **state)
{
    (void)state;
    static const char *const rows[][3] = {{"KERNSERVE_MAX_BODYY", "1", "KERNSERVE_MAX_BODY"},
                                          {"KERNSERVE_HOST", "0.0.0.0", "KERNSERVE_ACCEPT_HOST"},
                                          {"KERNSERVE_Queue", "1", "KERNSERVE_QUEUE"},
                                          {"KERNSERVE_COLOUR", "red", ""},
                                          {"KERNSERVE_PORT", "tcp://10.0.0.1:8000", NULL},
                                          {"KERNSERVE_PORT_8000_TCP_PROTO", "tcp", NULL},
                                          {"KERNSERVE_SERVICE_HOST", "10.0.0.1", NULL},
                                          {"KERNSERVE_ADMIN_SERVICE_PORT", "8002", NULL},
                                          {"KERNSERVE_ADMIN_PORT", "tcp://10.0.0.1:8002", NULL},
                                          {"KERNSERVE_CONFIG", "", NULL},
                                          {"KERNSERVE_QUEUE", "6", NULL}};
    ks_unknown_variable variable;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int at = 0;
        setenv(rows[i][0], rows[i][1], 1);
        const bool found = ks_config_next_unknown(&at, &variable);
        if (found != (rows[i][2] != NULL)) fail_msg("%s: %s", rows[i][0], found ? "unknown" : "known");
        if (found) {
            assert_string_equal(variable.name, rows[i][0]);
            assert_string_equal(variable.nearest, rows[i][2]);
            assert_false(ks_config_next_unknown(&at, &variable));
        }
        unsetenv(rows[i][0]);
    }
}

static void files_say_where(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {{"queue = 3\nqueu = 4\n", ":2: unknown key 'queu'; the nearest is queue"},
                 {"# x\nqueue 3\n", ":2: 'queue 3' is not key = value"},
                 {"queue = 0\n", ":1: queue: 0 is out of range: 1 to 65536"},
                 {"queue = 3\nqueue = 4\n", ":2: queue: given before, in line 1"},
                 {"help = yes\n", ":1: unknown key 'help'"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file(cases[i].text);
        assert_int_equal(load("--config", file_name, NULL), KS_EXIT_CONFIG);
        if (!strstr(error.text, cases[i].says)) fail_msg("%s", error.text);
    }
    assert_int_equal(load("--config", "/nowhere/at/all", NULL), KS_EXIT_NO_FILE);
    setenv("KERNSERVE_QUEUE", "many", 1);
    assert_int_equal(load(NULL), KS_EXIT_CONFIG);
    assert_non_null(strstr(error.text, "KERNSERVE_QUEUE: 'many' is not a whole number"));
}

static void commands_are_told_apart(void **state)
{
    (void)state;
    setenv("KERNSERVE_QUEUE", "many", 1);
    assert_int_equal(load("--help", NULL), 0); /* whatever else is wrong */
    assert_int_equal(command, KS_COMMAND_HELP);
    assert_int_equal(load("--dump-config=sample", NULL), 0);
    assert_int_equal(command, KS_COMMAND_DUMP_CONFIG);
    assert_int_equal(load("--version", NULL), 0);
    assert_int_equal(command, KS_COMMAND_VERSION);
    assert_int_equal(load("--check-config", NULL), KS_EXIT_CONFIG);
    unsetenv("KERNSERVE_QUEUE");
    assert_int_equal(load("--check-config", NULL), 0);
    assert_int_equal(command, KS_COMMAND_CHECK_CONFIG);
    assert_int_equal(load("--healthcheck", "http://[::1]:1/x", NULL), 0);
    assert_string_equal(config.url, "http://[::1]:1/x");
    assert_int_equal(load("--healthcheck", NULL), 0);
    assert_null(config.url);
    assert_int_equal(load("--tune", "4,4:4,4", "softmax:4", "--queue", "5", NULL), 0);
    assert_int_equal(command, KS_COMMAND_TUNE);
    assert_int_equal(config.tune.count, 2);
    assert_string_equal(config.tune.item[1], "softmax:4");
    assert_int_equal(config.queue, 5);
    assert_int_equal(load("--tune=4,4:4,4", "5,5:5,5", NULL), 0);
    assert_int_equal(config.tune.count, 2);
    assert_int_equal(load("--tune", "--queue", "5", NULL), KS_EXIT_USAGE);
    assert_int_equal(load("--manual=5", NULL), 0);
    assert_int_equal(command, KS_COMMAND_MANUAL);
    assert_string_equal(config.word, "5");
    assert_int_equal(load("--manual", NULL), KS_EXIT_USAGE);
    assert_int_equal(load("--completion=fish", NULL), KS_EXIT_USAGE);
    assert_string_equal(error.text, "--completion: 'fish' is none of bash|zsh");
    assert_int_equal(load("--dump-config", NULL), 0);
    assert_null(config.word);
    assert_int_equal(load("-h", NULL), 0);
    assert_int_equal(command, KS_COMMAND_HELP);
    assert_null(config.help);
    assert_int_equal(load("-V", NULL), 0);
    assert_int_equal(command, KS_COMMAND_VERSION);
    assert_int_equal(load("--help=queue", NULL), 0);
    assert_string_equal(config.help, "queue");
    assert_int_equal(load("--help=all", NULL), 0);
    assert_int_equal(load("--help=quue", NULL), KS_EXIT_USAGE);
    assert_string_equal(error.text, "--help: no option --quue; the nearest is --queue");
}

/* Runs print with stdout in the file. */
static void capture_stdout(void (*print)(void))
{
    fflush(stdout);
    const int kept = dup(1);
    assert_non_null(freopen(file_name, "w", stdout));
    print();
    fflush(stdout);
    dup2(kept, 1);
    close(kept);
    clearerr(stdout);
}

static void dump_config(void)
{
    ks_config_dump(&config);
}

static void a_dump_reads_back_as_the_same(void **state)
{
    (void)state;
    assert_int_equal(load("--queue=9", "--no-scrub", "--listen=127.0.0.1:1", "--listen=127.0.0.1:2", "--max-body=3M",
                          "--idle-timeout=90s", "--backend=cpu", "--warm=softmax:64,1024:FP32",
                          "--admin-listen=", NULL),
                     0);
    capture_stdout(dump_config);
    assert_int_equal(load("--config", file_name, NULL), 0);
    assert_int_equal(config.queue, 9);
    assert_false(config.scrub);
    assert_int_equal(config.listen.count, 2);
    assert_string_equal(config.listen.item[1], "127.0.0.1:2");
    assert_int_equal(config.max_body, 3 << 20);
    assert_int_equal(config.idle_timeout, 90000000000);
    assert_int_equal(config.backend, KS_BACKEND_CPU);
    assert_string_equal(config.warm.item[0], "softmax:64,1024:FP32");
    assert_string_equal(config.admin_listen, "");
    assert_int_equal(config.accept_host.count, 0);
}

static const char *help_of;
static void print_help(void)
{
    ks_config_help(help_of);
}

static char help_text[1 << 16];

/* Returns its lines; each has at most 80 columns. */
static int read_help(const char *what)
{
    help_of = what;
    capture_stdout(print_help);
    FILE *file = fopen(file_name, "r");
    assert_non_null(file);
    help_text[fread(help_text, 1, sizeof help_text - 1, file)] = 0;
    fclose(file);
    int lines = 0;
    for (const char *line = help_text, *end; (end = strchr(line, '\n')); line = end + 1, lines++)
        if (end - line > 80) fail_msg("%d columns: %.*s", (int)(end - line), (int)(end - line), line);
    return lines;
}

static void help_is_one_screen(void **state)
{
    (void)state;
    assert_in_range(read_help(NULL), 30, 45);
    static const char *const says[] = {"\nListen\n",
                                       "\nDevice\n",
                                       "\nLimits\n",
                                       "\nLife\n",
                                       "\nCommands\n",
                                       "\nExamples\n",
                                       "--listen ADDR:PORT ...",
                                       "(127.0.0.1:8000)",
                                       "--max-body SIZE",
                                       "(256M)",
                                       "(automatic)",
                                       "--backend auto|cuda|cpu",
                                       "--config FILE",
                                       "--check-config",
                                       "--self-test",
                                       "--help=all"};
    for (size_t i = 0; i < sizeof says / sizeof says[0]; i++)
        if (!strstr(help_text, says[i])) fail_msg("--help does not say %s", says[i]);
    assert_null(strstr(help_text, "--max-uri"));
}

static void help_names_every_option(void **state)
{
    (void)state;
    read_help("all");
    static const char *const names[] = {
#define OPTION(field, name, ...) name,
#include "base/config/options.def"
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strstr(help_text, names[i])) fail_msg("--help=all does not name %s", names[i]);
    assert_non_null(strstr(help_text, "Examples\n"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_in_range(read_help(names[i]), 4, 20);
        assert_int_equal(strncmp(help_text, "--", 2), 0);
        if (!strstr(help_text, names[i])) fail_msg("--help=%s does not name it", names[i]);
    }
    read_help("max-body");
    static const char *const says[] = {"--max-body SIZE\n",
                                       "largest request body",
                                       "preset       256M\n",
                                       "range        1k to 16G\n",
                                       "environment  KERNSERVE_MAX_BODY=256M\n",
                                       "file         max-body = 256M\n"};
    for (size_t i = 0; i < sizeof says / sizeof says[0]; i++)
        if (!strstr(help_text, says[i])) fail_msg("--help=max-body does not say %s", says[i]);
    assert_non_null(strstr(help_text, "413")); /* of its paragraph */
    read_help("scrub");
    assert_non_null(strstr(help_text, "--[no-]scrub\n"));
    read_help("tune");
    assert_non_null(strstr(help_text, "--tune SHAPES...\n"));
}

/* What the shell that runs the tests has is not what they are about. */
static void clear_environment(void)
{
    for (char **at = environ; *at;) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*at, "="), *at);
        if (strncmp(name, "KERNSERVE_", 10) == 0 && unsetenv(name) == 0)
            at = environ;
        else
            at++;
    }
}

int main(void)
{
    clear_environment();
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_file, remove_file)
    const struct CMUnitTest tests[] = {
        TEST(presets_hold_without_any_origin),
        TEST(higher_origins_win),
        TEST(flags_have_their_words),
        TEST(choices_are_their_constants),
        TEST(lists_of_a_higher_origin_replace),
        TEST(flags_have_three_forms),
        TEST(units_are_read),
        TEST(bad_values_name_option_value_and_range),
        TEST(wrong_names_get_the_nearest_right_one),
        TEST(other_servers_options_name_ours),
        TEST(unknown_variables_are_found),
        TEST(files_say_where),
        TEST(commands_are_told_apart),
        TEST(a_dump_reads_back_as_the_same),
        TEST(help_is_one_screen),
        TEST(help_names_every_option),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ks_config_free(&config);
    return failed;
}
