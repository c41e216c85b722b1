/* What the operator reads: --help and --dump-config, both from the table. */
#include <stdio.h>
#include <string.h>

#include "base/config/table.h"

static void write_form(const ks_option *option, char out[96])
{
    static const char *const values[] = {
        [KS_OPTION_TEXT] = "TEXT", [KS_OPTION_LIST] = "TEXT",  [KS_OPTION_SIZE] = "SIZE", [KS_OPTION_TIME] = "TIME",
        [KS_OPTION_COUNT] = "N",   [KS_OPTION_OCTAL] = "MODE", [KS_OPTION_FLAG] = "",     [KS_OPTION_CHOICE] = ""};
    if (option->kind == KS_OPTION_FLAG)
        snprintf(out, 96, "--[no-]%s", option->name);
    else if (option->kind == KS_OPTION_CHOICE)
        snprintf(out, 96, "--%s %s", option->name, option->text);
    else
        snprintf(out, 96, "--%s %s%s", option->name, values[option->kind],
                 option->kind == KS_OPTION_LIST ? " ..." : "");
}

/* "(256M; 1k to 16G)" */
static void write_range(const ks_option *option, char out[224])
{
    char preset[KS_VALUE_TEXT_MAX], least[KS_VALUE_TEXT_MAX], most[KS_VALUE_TEXT_MAX];
    out[0] = 0;
    if (option->kind == KS_OPTION_TEXT || option->kind == KS_OPTION_LIST) {
        if (*option->text) snprintf(out, 224, " (%s)", option->text);
        return;
    }
    ks_option_write(option, option->preset, preset);
    if (option->kind == KS_OPTION_FLAG || option->kind == KS_OPTION_CHOICE) {
        snprintf(out, 224, " (%s)", preset);
        return;
    }
    ks_option_write(option, option->least, least);
    ks_option_write(option, option->most, most);
    snprintf(out, 224, " (%s; %s to %s)", preset, least, most);
}

void ks_config_help(void)
{
    puts("kernserve " KS_VERSION ": CUDA kernels over HTTP\n\n"
         "  kernserve [--config FILE] [OPTION ...]\n\n"
         "Every option may also stand in the environment (KERNSERVE_MAX_BODY=64M) or in the file (max-body = 64M);\n"
         "the command line wins over the environment, that over the file. In parentheses: the preset and the range.\n\n"
         "  --config FILE                 key = value lines, # comments, repeated keys for lists\n"
         "  --check-config                checks the configuration, prints what is wrong, and ends\n"
         "  --dump-config                 prints every value with its origin, as a config file\n"
         "  --list-devices                prints the devices that --backend and --device can choose\n"
         "  --tune SHAPES...              times the kernels for each, e.g. 64,4096:4096,4096:FP16; fills --tune-cache\n"
         "  --self-test[=table|json]      measures the limits of this host and the daemon beside them, and ends\n"
         "  --healthcheck [URL]           asks a running daemon whether it is ready\n"
         "  --version, --help\n");
    for (int i = 0; i < KS_OPTIONS; i++) {
        char form[96], range[224];
        write_form(&ks_options[i], form);
        write_range(&ks_options[i], range);
        printf("  %-29s %s%s\n", form, ks_options[i].help, range);
    }
    puts("\nExamples\n"
         "  kernserve\n"
         "      serves on 127.0.0.1:8000, on the GPU if one works, else on the CPU\n"
         "  kernserve --listen 0.0.0.0:8000 --token-file /etc/kernserve/tokens --supervise\n"
         "      serves a network, with bearer tokens, and starts again after a fault\n"
         "  kernserve --backend cuda --device 1 --warm softmax:64,1024:FP32 --max-body 64M\n"
         "      insists on the second GPU and captures one graph before it is ready");
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
        char range[224], value[KS_VALUE_TEXT_MAX];
        write_range(option, range);
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
