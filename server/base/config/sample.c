/* --dump-config=sample: a file to begin with. Every key is commented out, so that a preset that a later version improves
 * arrives.
 * Interface  ks_config_sample. Threads: any, it only prints. */
#include <stdio.h>
#include <string.h>

#include "base/config/table.h"

static void print_key(const ks_option *option)
{
    char preset[KS_VALUE_TEXT_MAX], bounds[KS_BOUNDS_TEXT_MAX];
    if (option->kind == KS_OPTION_TEXT || option->kind == KS_OPTION_LIST)
        snprintf(preset, sizeof preset, "%s", option->text);
    else
        ks_option_write(option, option->preset, preset);
    ks_option_write_bounds(option, bounds);
    const char *range = option->kind == KS_OPTION_CHOICE ? option->text : bounds;
    putchar('\n');
    ks_print_wrapped("# ", option->help, "");
    printf("# %s%s%s%s\n", *preset ? "preset: " : "no preset", preset, *range ? "; " : "", range);
    printf("#%s =%s%s\n", option->name, *preset ? " " : "", preset);
}

static void print_heading(const char *title)
{
    printf("\n\n# --- %s ---\n", title);
}

void ks_config_sample(void)
{
    puts("# A configuration file of kernserve, with every key. Each one is commented out, at\n"
         "# its preset. Lines are key = value; a key of a list may be repeated. Sizes take\n"
         "# k, M, G; times us, ms, s, m. The environment (KERNSERVE_MAX_BODY) and the\n"
         "# command line win over this file; kernserve --check-config reads it as a start\n"
         "# does. More on each key: kernserve.conf(5).");
    print_heading("what most hosts change");
    for (int i = 0; i < KS_OPTIONS; i++)
        if (ks_options[i].rank & KS_RANK_FIRST) print_key(&ks_options[i]);
    for (int group = 0; group < KS_GROUP_COMMANDS; group++) {
        print_heading(ks_group_titles[group]);
        for (int i = 0; i < KS_OPTIONS; i++)
            if ((int)ks_options[i].group == group && !(ks_options[i].rank & KS_RANK_FIRST)) print_key(&ks_options[i]);
    }
}
