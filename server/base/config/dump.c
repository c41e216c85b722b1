/* --dump-config: every value, as a file that reads back as the same. */
#include <stdio.h>
#include <string.h>

#include "base/config/table.h"

void ks_option_write_range(const ks_option *option, char out[KS_RANGE_TEXT_MAX])
{
    char preset[KS_VALUE_TEXT_MAX], bounds[KS_BOUNDS_TEXT_MAX];
    out[0] = 0;
    if (option->kind == KS_OPTION_TEXT || option->kind == KS_OPTION_LIST) {
        if (*option->text) snprintf(out, KS_RANGE_TEXT_MAX, " (%s)", option->text);
        return;
    }
    ks_option_write(option, option->preset, preset);
    ks_option_write_bounds(option, bounds);
    snprintf(out, KS_RANGE_TEXT_MAX, " (%s%s%s)", preset, *bounds ? "; " : "", bounds);
}

static void write_origin(const ks_config *config, int at)
{
    const ks_config_owned *owned = config->owned;
    switch (owned->origin[at]) {
    case KS_FROM_PRESET:
        puts("# from: preset");
        break;
    case KS_FROM_FILE:
        printf("# from: %s:%d\n", config->file, owned->line[at]);
        break;
    case KS_FROM_ENVIRONMENT:
        puts("# from: environment");
        break;
    case KS_FROM_COMMAND_LINE:
        puts("# from: command line");
        break;
    }
}

void ks_config_dump(const ks_config *config)
{
    puts("# kernserve " KS_VERSION ", every option; the command line and the environment win over this file.");
    for (int i = 0; i < KS_OPTIONS; i++) {
        const ks_option *option = &ks_options[i];
        char range[KS_RANGE_TEXT_MAX], value[KS_VALUE_TEXT_MAX];
        ks_option_write_range(option, range);
        printf("\n# %s%s%s%s\n", option->help, range, option->kind == KS_OPTION_CHOICE ? ": " : "",
               option->kind == KS_OPTION_CHOICE ? option->text : "");
        write_origin(config, i);
        const void *field = (const char *)config + option->offset;
        if (option->kind == KS_OPTION_TEXT) {
            printf("%s = %s\n", option->name, *(const char *const *)field);
        } else if (option->kind == KS_OPTION_LIST) {
            const ks_list *list = field;
            if (list->count == 0) printf("%s =\n", option->name);
            for (int k = 0; k < list->count; k++) printf("%s = %s\n", option->name, list->item[k]);
        } else {
            ks_option_write(option, ks_option_value(option, config), value);
            printf("%s = %s\n", option->name, value);
        }
    }
}
