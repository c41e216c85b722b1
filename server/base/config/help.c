/* --help: one screen of what most operators need, all options, or one; all from the tables. Lines have at most 80 columns. */
#include <stdio.h>
#include <string.h>

#include "base/config/table.h"

enum { WIDTH = 80, FORM_WIDTH = 24 };
#define INDENT "      "

const char *const ks_group_titles[KS_GROUPS] = {[KS_GROUP_LISTEN] = "Listen",
                                                [KS_GROUP_DEVICE] = "Device",
                                                [KS_GROUP_LIMITS] = "Limits",
                                                [KS_GROUP_LIFE] = "Life",
                                                [KS_GROUP_COMMANDS] = "Commands"};

typedef char help_form[128];

const char *ks_option_placeholder(const ks_option *option)
{
    static const char *const kinds[] = {
        [KS_OPTION_TEXT] = "TEXT", [KS_OPTION_LIST] = "TEXT",  [KS_OPTION_SIZE] = "SIZE", [KS_OPTION_TIME] = "TIME",
        [KS_OPTION_COUNT] = "N",   [KS_OPTION_OCTAL] = "MODE", [KS_OPTION_FLAG] = "",     [KS_OPTION_CHOICE] = ""};
    if (*option->placeholder) return option->placeholder;
    return option->kind == KS_OPTION_CHOICE ? option->text : kinds[option->kind];
}

/* full: with the other form of a flag, and the choices that a placeholder stands for. */
static void write_form(const ks_option *option, bool full, help_form out)
{
    const bool flag = option->kind == KS_OPTION_FLAG;
    const char *value = full && option->kind == KS_OPTION_CHOICE ? option->text : ks_option_placeholder(option);
    snprintf(out, sizeof(help_form), "--%s%s%s%s%s", flag && full ? "[no-]" : "", option->name, *value ? " " : "",
             value, option->kind == KS_OPTION_LIST ? " ..." : "");
}

/* Words, as many to a line as it takes. */
void ks_print_wrapped(const char *prefix, const char *text, const char *end)
{
    int column = 0;
    for (const char *both[] = {text, end}, **at = both; at < both + 2; at++) {
        for (const char *word = *at + strspn(*at, " "); *word; word += strspn(word, " ")) {
            const int n = (int)strcspn(word, " ");
            if (column > 0 && column + 1 + n > WIDTH) {
                putchar('\n');
                column = 0;
            }
            if (column == 0)
                column = printf("%s%.*s", prefix, n, word);
            else
                column += printf(" %.*s", n, word);
            word += n;
        }
    }
    putchar('\n');
}

/* What stands before the help's first semicolon. */
static void print_basic(const char *form, const char *help, const char *preset)
{
    printf("  %-*s %.*s", FORM_WIDTH, form, (int)strcspn(help, ";"), help);
    if (*preset) printf(" (%s)", preset);
    putchar('\n');
}

static void print_group(ks_group group, bool all)
{
    help_form form;
    printf("\n%s\n", ks_group_titles[group]);
    for (int i = 0; i < KS_COMMANDS; i++) {
        if (ks_commands[i].group != group) continue;
        snprintf(form, sizeof form, "--%s%s", ks_commands[i].name, ks_commands[i].form);
        if (!all && !(ks_commands[i].rank & KS_RANK_BASIC)) continue;
        if (!all) print_basic(form, ks_commands[i].help, "");
        if (all) printf("  %s\n", form);
        if (all) ks_print_wrapped(INDENT, ks_commands[i].help, "");
    }
    for (int i = 0; i < KS_OPTIONS; i++) {
        const ks_option *option = &ks_options[i];
        char text[KS_RANGE_TEXT_MAX];
        if (option->group != group || (!all && !(option->rank & KS_RANK_BASIC))) continue;
        write_form(option, all, form);
        if (all) {
            ks_option_write_range(option, text);
            printf("  %s\n", form);
            ks_print_wrapped(INDENT, option->help, text);
        } else {
            ks_option_write_preset(option, text);
            print_basic(form, option->help, text);
        }
    }
}

static void print_screen(bool all)
{
    puts("kernserve " KS_VERSION ": CUDA kernels over HTTP; in parentheses: presets\n"
         "  kernserve [--config FILE] [OPTION ...]; in a file: max-body = 64M");
    for (int group = 0; group < KS_GROUPS; group++) print_group((ks_group)group, all);
    puts("\nExamples\n"
         "  kernserve --backend cuda --device 1 --warm softmax:64,1024:FP32\n"
         "  kernserve --listen 0.0.0.0:8000 --token-file /etc/kernserve/tokens --supervise\n"
         "  KERNSERVE_MAX_BODY=64M kernserve --config /etc/kernserve.conf --check-config");
    if (!all) puts("All options: --help=all; one: --help=NAME");
}

static void print_option(const ks_option *option)
{
    help_form form;
    char preset[KS_VALUE_TEXT_MAX], bounds[KS_BOUNDS_TEXT_MAX], variable[KS_VARIABLE_NAME_MAX];
    write_form(option, true, form);
    ks_option_write_preset(option, preset);
    printf("%s\n", form);
    ks_print_wrapped(INDENT, option->help, "");
    if (*option->paragraph) putchar('\n');
    if (*option->paragraph) ks_print_wrapped(INDENT, option->paragraph, "");
    printf("\npreset       %s\n", *preset ? preset : "none");
    ks_option_write_bounds(option, bounds);
    if (*bounds) printf("range        %s\n", bounds);
    ks_option_write_variable(option, variable);
    if (!*preset || strcmp(preset, "automatic") == 0)
        snprintf(preset, sizeof preset, "%s", ks_option_placeholder(option));
    printf("environment  %s=%s\nfile         %s = %s\n", variable, preset, option->name, preset);
}

void ks_config_help(const char *what)
{
    const ks_option *option = what ? ks_option_find(what, strlen(what)) : NULL;
    const ks_command_row *row = what ? ks_command_find(what, strlen(what)) : NULL;
    if (option) {
        print_option(option);
    } else if (row) {
        printf("--%s%s\n", row->name, row->form);
        ks_print_wrapped(INDENT, row->help, "");
    } else {
        print_screen(what != NULL);
    }
}
