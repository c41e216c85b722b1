/* --manual: kernserve(8) and kernserve.conf(5) as mdoc. Options, commands, exit codes and error codes come from their tables;
 * what no table says stands here.
 * Interface  ks_config_manual. Threads: any, it only prints. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/config/table.h"

#define MANUAL_DATE "November 24, 2026" /* of the last change of a sentence in this file */
enum { WIDTH = 78 };

/* --- words ----------------------------------------------------------------------------------------------------------
 */

/* n bytes of a word, so that mdoc takes none of them for its own. begins: it is the first one of its line. */
static int print_escaped(const char *word, int n, bool begins)
{
    const bool option = strncmp(word, "--", 2) == 0 || strncmp(word, "(--", 3) == 0;
    if (begins && (*word == '.' || *word == '\'')) fputs("\\&", stdout);
    for (int i = 0; i < n; i++) {
        if (word[i] == '\\')
            fputs("\\e", stdout);
        else if (word[i] == '-' && option)
            fputs("\\-", stdout);
        else
            putchar(word[i]);
    }
    return n;
}

/* A word in small letters: no name, such as cuBLASLt. */
static bool may_be_capital(const char *word, int n)
{
    for (int i = 0; i < n; i++)
        if (isupper((unsigned char)word[i])) return false;
    return islower((unsigned char)*word);
}

static bool ends_sentence(const char *word, int n)
{
    return strchr(".?!", word[n - 1]) && !(n >= 4 && memcmp(word + n - 4, "e.g.", 4) == 0);
}

/* Lines of the text's words; a sentence begins a line, as mdoc wants it. A full stop ends the text, a capital begins it. */
static void print_text(const char *text, bool capital)
{
    const size_t length = strlen(text);
    const char *word = text;
    int column = 0;
    if (capital && may_be_capital(text, (int)strcspn(text, " "))) {
        column = printf("%c", toupper((unsigned char)*text));
        word++;
    }
    for (bool within = column > 0; *word; word += strspn(word, " "), within = false) {
        const int n = (int)strcspn(word, " ");
        if (column > 0 && column + 1 + n > WIDTH) {
            putchar('\n');
            column = 0;
        }
        if (column > 0 && !within) column += printf(" ");
        column += print_escaped(word, n, column == 0);
        const bool ends = ends_sentence(word, n);
        word += n;
        if (ends && *word) {
            putchar('\n');
            column = 0;
        }
    }
    puts(length > 0 && text[length - 1] == '.' ? "" : ".");
}

static void print_sentences(const char *text)
{
    print_text(text, true);
}

static void print_title(const char *title, const char *section)
{
    printf(".Dd " MANUAL_DATE "\n.Dt %s %s\n.Os\n", title, section);
}

/* --- kernserve(8) ---------------------------------------------------------------------------------------------------
 */

static const char beginning[] = ".Sh NAME\n"
                                ".Nm kernserve\n"
                                ".Nd CUDA kernels over HTTP\n"
                                ".Sh SYNOPSIS\n"
                                ".Nm\n"
                                ".Op Fl -config Ar FILE\n"
                                ".Op Ar option ...\n"
                                ".Nm\n"
                                ".Ar command\n"
                                ".Op Fl -config Ar FILE\n"
                                ".Op Ar option ...\n"
                                ".Sh DESCRIPTION\n"
                                "The\n"
                                ".Nm\n"
                                "daemon takes tensors as JSON or bytes over HTTP/1.1 and runs softmax, reductions\n"
                                "and matrix products on a GPU, or on the CPU where there is none.\n"
                                "The protocol is the Open Inference Protocol v2, with binary tensors, so that\n"
                                "clients written for Triton work.\n"
                                "Every response has the time of each of its phases in the field Server-Timing.\n"
                                ".Pp\n"
                                "Requests come in on the data listener.\n"
                                "A second listener, with a thread of its own, answers metrics and health\n"
                                "whatever the device does.\n"
                                "Both are on loopback unless told otherwise; beyond it the daemon starts only\n"
                                "with tokens, or with\n"
                                ".Fl -allow-unauthenticated .\n"
                                ".Pp\n"
                                "Every key of\n"
                                ".Xr kernserve.conf 5\n"
                                "is an option and a variable as well.\n"
                                "The command line wins over the environment, the environment over the file,\n"
                                "the file over the preset.\n"
                                "What most hosts need stands here.\n"
                                "This page is of version " KS_VERSION ".\n";

static const char signals[] = ".Sh SIGNALS\n"
                              ".Bl -tag -width Ds\n"
                              ".It Dv SIGTERM , Dv SIGINT\n"
                              "Readiness answers 503 while the daemon serves on for\n"
                              ".Fl -drain-delay .\n"
                              "Then the listeners close, running requests finish within\n"
                              ".Fl -shutdown-timeout ,\n"
                              "and the daemon ends with 0.\n"
                              "A second signal ends it at once, with 75.\n"
                              ".It Dv SIGHUP\n"
                              "The configuration is read again.\n"
                              "The log level and the tokens are applied, all or nothing.\n"
                              "Other keys need a restart; the log line\n"
                              ".Dq configuration read again\n"
                              "names those that have changed.\n"
                              ".El\n"
                              ".Sh ENVIRONMENT\n"
                              ".Bl -tag -width Ds\n"
                              ".It Ev KERNSERVE_CONFIG\n"
                              "The configuration file, where\n"
                              ".Fl -config\n"
                              "names none.\n"
                              ".It Ev KERNSERVE_NAME\n"
                              "The value of a key, in capitals and with _ for -: KERNSERVE_MAX_BODY=64M.\n"
                              "Several items of a list have blanks between them.\n"
                              "An unknown variable of this form is a warning.\n"
                              ".It Ev LISTEN_FDS , LISTEN_FDNAMES , LISTEN_PID\n"
                              "Listening sockets that are passed, as by\n"
                              ".Xr systemd.socket 5 .\n"
                              "One named admin is the second listener, all others are data listeners.\n"
                              "Keys that would open a listener of that kind are not used then.\n"
                              ".It Ev NOTIFY_SOCKET , WATCHDOG_USEC\n"
                              "Where the state and signs of life go, as of a\n"
                              ".Xr systemd.service 5\n"
                              "of the type notify.\n"
                              ".El\n"
                              ".Sh FILES\n"
                              ".Bl -tag -width Ds\n"
                              ".It Pa /etc/kernserve/kernserve.conf\n"
                              "The configuration that the service reads.\n"
                              ".It Pa /etc/kernserve/tokens\n"
                              "A customary place of the token file, which must have mode 0600.\n"
                              ".It Pa /var/cache/kernserve\n"
                              "What the CUDA driver has compiled for the service.\n"
                              ".El\n";

static const char examples[] = ".Sh EXAMPLES\n"
                               "Serve on the second GPU, with the kernels of a shape ready before the first\n"
                               "request:\n"
                               ".Pp\n"
                               ".Dl kernserve --device 1 --warm softmax:64,1024:FP32\n"
                               ".Pp\n"
                               "Beyond loopback, with tokens, started again after a fault:\n"
                               ".Pp\n"
                               ".Dl kernserve --listen 0.0.0.0:8000 --token-file tokens --supervise\n"
                               ".Pp\n"
                               "A configuration file to begin with, and what is wrong with it:\n"
                               ".Bd -literal -offset indent\n"
                               "kernserve --dump-config=sample > kernserve.conf\n"
                               "kernserve --check-config --config kernserve.conf\n"
                               ".Ed\n"
                               ".Pp\n"
                               "A request: two rows of four numbers, as bytes, and the softmax of each row:\n"
                               ".Bd -literal -offset indent\n"
                               "curl --data-binary @x.f32 -o y.f32 \\e\n"
                               "  'localhost:8000/v2/models/softmax/infer?shape=2,4&datatype=FP32'\n"
                               ".Ed\n"
                               ".Pp\n"
                               "Whether the daemon of a configuration is ready, for a probe:\n"
                               ".Pp\n"
                               ".Dl kernserve --healthcheck --config /etc/kernserve/kernserve.conf\n"
                               ".Sh SEE ALSO\n"
                               ".Xr curl 1 ,\n"
                               ".Xr kernserve.conf 5 ,\n"
                               ".Xr systemd.service 5\n"
                               ".Pp\n"
                               "GET / of each listener lists its routes, GET /openapi.json describes them.\n";

static void print_commands(void)
{
    puts(".Sh COMMANDS\n.Bl -tag -width Ds");
    for (int i = 0; i < KS_COMMANDS; i++) {
        const ks_command_row *row = &ks_commands[i];
        if (row->command == KS_COMMAND_SERVE) continue;
        const int form = (int)strcspn(row->form, ",");
        const char *letter = strchr(row->form, '-'); /* ", -V" */
        printf(".It Fl -%s%.*s%s%s\n", row->name, form, row->form, letter ? " , Fl " : "", letter ? letter + 1 : "");
        print_sentences(row->help);
    }
    puts(".El");
}

static void print_basic_options(void)
{
    puts(".Sh OPTIONS\n.Bl -tag -width Ds\n.It Fl -config Ar FILE");
    print_sentences(ks_command_find("config", strlen("config"))->help);
    for (int i = 0; i < KS_OPTIONS; i++) {
        const ks_option *option = &ks_options[i];
        const char *value = ks_option_placeholder(option);
        if (!(option->rank & KS_RANK_BASIC)) continue;
        printf(".It Fl -%s%s%s\n", option->name, *value ? " Ar " : "", value);
        print_sentences(option->help);
    }
    puts(".El");
}

static void print_exits(void)
{
    puts(".Sh EXIT STATUS\n.Bl -tag -width Ds");
#define X(name, code, helps, meaning)                                                                                  \
    puts(".It " #code);                                                                                                \
    print_sentences(meaning);                                                                                          \
    if (helps) puts("A supervisor may start the daemon again.");
    KS_EXIT_TABLE(X)
#undef X
    puts(".El");
}

/* Codes of an HTTP status, in the table's order. */
static void print_codes(int http)
{
    char text[1024] = "";
    for (int status = KS_OK + 1; status < KS_CANCELLED; status++) {
        if (ks_status_http((ks_status)status) != http) continue;
        const size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%s%s", n ? ", " : "", ks_status_code((ks_status)status),
                 ks_status_closes((ks_status)status) ? " (closes)" : "");
    }
    if (!*text) return;
    printf(".It %d\n", http);
    print_text(text, false);
}

static void print_statuses(void)
{
    puts(".Sh RESPONSES\n"
         "A rejected request gets {\"error\":\"sentence\"} and one of these codes in the field\n"
         "Kernserve-Error, after which some connections close.\n"
         "A 503 has Retry-After.\n"
         ".Bl -tag -width Ds");
    for (int http = 400; http < 600; http++) print_codes(http);
    puts(".El");
}

static void print_daemon(void)
{
    print_title("KERNSERVE", "8");
    fputs(beginning, stdout);
    print_basic_options();
    print_commands();
    fputs(signals, stdout);
    print_exits();
    print_statuses();
    fputs(examples, stdout);
}

/* --- kernserve.conf(5) ----------------------------------------------------------------------------------------------
 */

static const char conf_beginning[] = ".Sh NAME\n"
                                     ".Nm kernserve.conf\n"
                                     ".Nd configuration of kernserve\n"
                                     ".Sh DESCRIPTION\n"
                                     "The file that\n"
                                     ".Xr kernserve 8\n"
                                     "reads with\n"
                                     ".Fl -config\n"
                                     "has a key and its value in each line.\n"
                                     "White space around both is cut off.\n"
                                     "A line that begins with # is a comment.\n"
                                     "A key of a list may stand in several lines; any other key stands once.\n"
                                     "An unknown key is a fault, whose message names the nearest one.\n"
                                     ".Pp\n"
                                     "Sizes are bytes, or numbers with k, M or G (1024 times each).\n"
                                     "Times are numbers with us, ms, s or m.\n"
                                     "Flags are on or off.\n"
                                     "A preset that is called automatic is chosen at start from the machine.\n"
                                     ".Pp\n"
                                     "Every key is also an option (max-body: \\-\\-max\\-body) and a variable\n"
                                     "(KERNSERVE_MAX_BODY), which both win over the file.\n"
                                     "A flag's option stands alone, or with no- before its name.\n";

static const char conf_end[] = ".Sh FILES\n"
                               ".Bl -tag -width Ds\n"
                               ".It Pa /etc/kernserve/kernserve.conf\n"
                               "The file of the service.\n"
                               ".El\n"
                               ".Sh EXAMPLES\n"
                               ".Bd -literal\n"
                               "listen = 0.0.0.0:8000\n"
                               "listen = unix:/run/kernserve/data\n"
                               "token-file = /etc/kernserve/tokens\n"
                               "warm = softmax:64,1024:FP32\n"
                               "max-body = 64M\n"
                               "access-log = on\n"
                               ".Ed\n"
                               ".Sh SEE ALSO\n"
                               ".Xr kernserve 8\n";

static void print_key(const ks_option *option)
{
    char preset[KS_VALUE_TEXT_MAX], bounds[KS_BOUNDS_TEXT_MAX], facts[KS_VALUE_TEXT_MAX + sizeof bounds + 32];
    const char *value = option->kind == KS_OPTION_FLAG     ? "on|off"
                        : option->kind == KS_OPTION_CHOICE ? option->text
                                                           : ks_option_placeholder(option);
    ks_option_write_preset(option, preset);
    ks_option_write_bounds(option, bounds);
    snprintf(facts, sizeof facts, "%s%s%s%s.", *preset ? "Preset: " : "No preset", preset, *bounds ? "; range: " : "",
             bounds);
    printf(".It Ic %s No = Ar %s%s\n", option->name, value, option->kind == KS_OPTION_LIST ? " (repeatable)" : "");
    print_sentences(option->help);
    if (*option->paragraph) print_sentences(option->paragraph);
    print_sentences(facts);
}

static void print_configuration(void)
{
    print_title("KERNSERVE.CONF", "5");
    fputs(conf_beginning, stdout);
    puts(".Sh KEYS");
    for (int group = 0; group < KS_GROUP_COMMANDS; group++) {
        printf(".Ss %s\n.Bl -tag -width Ds\n", ks_group_titles[group]);
        for (int i = 0; i < KS_OPTIONS; i++)
            if ((int)ks_options[i].group == group) print_key(&ks_options[i]);
        puts(".El");
    }
    fputs(conf_end, stdout);
}

void ks_config_manual(const char *section)
{
    if (strcmp(section, "8") == 0)
        print_daemon();
    else
        print_configuration();
}
