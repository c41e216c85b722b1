/* --completion: what bash and zsh complete on kernserve's command line, from the tables of options and commands.
 * Interface  ks_config_completion. Threads: any, it only prints. */
#include <stdio.h>
#include <string.h>

#include "base/config/table.h"

/* What a value may be, beside the words of a choice. */
static bool takes_file(const ks_option *option)
{
    return strstr(ks_option_placeholder(option), "FILE") != NULL;
}

/* "a|b|FILE": the words but those that stand for a value, each behind a blank. */
static void print_words(const char *words)
{
    const char *word;
    size_t n;
    for (int at = 0; (n = ks_word_at(words, at, &word)) > 0; at++)
        if (*word < 'A' || *word > 'Z') printf(" %.*s", (int)n, word);
}

static const char *words_of(const ks_option *option)
{
    const bool spelled = option->kind == KS_OPTION_TEXT && strchr(option->placeholder, '|');
    return option->kind == KS_OPTION_CHOICE ? option->text : spelled ? option->placeholder : "";
}

/* --- bash ------------------------------------------------------------------------------------------------------------
 */

static void print_bash_names(void)
{
    for (int i = 0; i < KS_OPTIONS; i++) printf(" --%s", ks_options[i].name);
    for (int i = 0; i < KS_OPTIONS; i++)
        if (ks_options[i].kind == KS_OPTION_FLAG) printf(" --no-%s", ks_options[i].name);
    for (int i = 0; i < KS_COMMANDS; i++) printf(" --%s", ks_commands[i].name);
}

static void print_bash_option(const ks_option *option)
{
    if (option->kind == KS_OPTION_FLAG) return;
    printf("    --%s | --%s=)\n        words=\"", option->name, option->name);
    print_words(words_of(option));
    puts(takes_file(option) ? "\" files=yes ;;" : "\" ;;");
}

static void print_bash(void)
{
    puts("# shellcheck shell=bash\n"
         "# Completion of kernserve's command line: kernserve --completion=bash\n"
         "_kernserve() {\n"
         "    local current=${COMP_WORDS[COMP_CWORD]} key=${COMP_WORDS[COMP_CWORD - 1]} words files=''\n"
         "    COMPREPLY=()\n"
         "    # bash takes = for a word of its own\n"
         "    if [[ $current == = ]]; then\n"
         "        key+='=' current=''\n"
         "    elif [[ $key == = ]]; then\n"
         "        key=${COMP_WORDS[COMP_CWORD - 2]}=\n"
         "    fi\n"
         "    case $key in");
    for (int i = 0; i < KS_OPTIONS; i++) print_bash_option(&ks_options[i]);
    for (int i = 0; i < KS_COMMANDS; i++) {
        if (!*ks_commands[i].words) continue;
        printf("    --%s=)\n        words=\"", ks_commands[i].name);
        print_words(ks_commands[i].words);
        puts("\" ;;");
    }
    fputs("    --config | --config=)\n        words='' files=yes ;;\n    --help=)\n        words=\"all", stdout);
    for (int i = 0; i < KS_OPTIONS; i++) printf(" %s", ks_options[i].name);
    fputs("\" ;;\n    *)\n        words=\"", stdout);
    print_bash_names();
    puts("\" ;;\n"
         "    esac\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
         "    [[ -z $files ]] || mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$current\")\n"
         "    [[ -z $files ]] || compopt -o filenames 2>/dev/null\n"
         "} && complete -F _kernserve kernserve");
}

/* --- zsh -------------------------------------------------------------------------------------------------------------
 */

/* Up to the first semicolon, within a quoted word and brackets. */
static void print_zsh_help(const char *help)
{
    putchar('[');
    for (const char *c = help; *c && *c != ';'; c++) {
        if (*c == '\'')
            fputs("'\\'", stdout);
        else if (*c == '[' || *c == ']' || *c == ':' || *c == '\\')
            putchar('\\');
        putchar(*c);
    }
    putchar(']');
}

static void print_zsh_action(const char *placeholder, const char *words, bool files)
{
    putchar(':');
    for (const char *c = placeholder; *c; c++) printf(*c == ':' ? "\\%c" : "%c", *c);
    putchar(':');
    if (*words && files)
        fputs("_alternative \"words\\:word\\:((", stdout);
    else if (*words)
        putchar('(');
    print_words(words);
    if (*words && files)
        fputs("))\" \"files\\:file\\:_files\"", stdout);
    else if (*words)
        putchar(')');
    else if (files)
        fputs("_files", stdout);
}

static void print_zsh_option(const ks_option *option)
{
    const bool flag = option->kind == KS_OPTION_FLAG;
    printf("    '%s--%s%s", option->kind == KS_OPTION_LIST ? "*" : "", option->name, flag ? "" : "=");
    print_zsh_help(option->help);
    if (!flag) print_zsh_action(ks_option_placeholder(option), words_of(option), takes_file(option));
    puts("'");
    if (!flag) return;
    printf("    '--no-%s", option->name);
    print_zsh_help(option->help);
    puts("'");
}

/* =-: the value stands in the same word. */
static void print_zsh_command(const ks_command_row *row)
{
    const bool file = row->command == KS_COMMAND_SERVE, needed = row->form[0] == '=';
    printf("    '--%s%s", row->name, file ? "=" : *row->words ? "=-" : "");
    print_zsh_help(row->help);
    if (*row->words && !needed) putchar(':');
    if (file || *row->words) print_zsh_action(file ? "FILE" : "word", row->words, file);
    puts("'");
}

static void print_zsh(void)
{
    puts("#compdef kernserve\n"
         "# Completion of kernserve's command line: kernserve --completion=zsh\n"
         "local specs=(");
    for (int i = 0; i < KS_OPTIONS; i++) print_zsh_option(&ks_options[i]);
    for (int i = 0; i < KS_COMMANDS; i++) print_zsh_command(&ks_commands[i]);
    puts(")\n_arguments $specs");
}

void ks_config_completion(const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        print_bash();
    else
        print_zsh();
}
