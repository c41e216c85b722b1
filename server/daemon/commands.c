#include "daemon/commands.h"

#include <stdio.h>

#include "daemon/backends.h"
#include "daemon/client/client.h"
#include "daemon/client/plans.h"
#include "daemon/listen.h"
#include "base/version.h"

static void print_device(const ks_backend *backend, ks_device *device)
{
    ks_device_info info = {0};
    backend->info(device, &info);
    if (info.gpu)
        printf("%s:%d  %s  %s  sm_%d  %zu MiB  driver %s\n", info.backend, info.index, info.name, info.uuid,
               info.capability, info.memory_bytes >> 20, info.driver);
    else
        printf("%s  %s\n", info.backend, info.name);
}

/* A line for each device of a backend: one, but of GPUs as many as there are. */
static ks_status list_devices(const ks_backend_row *row, const ks_config *config, ks_error *error)
{
    ks_limits limits = {.device_index = -1,
                        .lanes = 1,
                        .lane_bytes = 1 << 20,
                        .workspace_bytes = config->workspace,
                        .model_bytes = config->model_arena,
                        .mapped_max = 0};
    const ks_backend *backend = row->backend();
    ks_device *device = NULL;
    if (!backend) printf("%s: not in this build\n", row->name);
    for (int i = 0; backend && i < (row->gpu ? 64 : 1); i++) {
        if (row->gpu) limits.device_index = i;
        const ks_status status = backend->open(&limits, &device, error);
        if (status != KS_OK && !row->gpu) return status;
        if (status != KS_OK && i == 0) printf("%s: none (%s)\n", row->name, error->text);
        if (status != KS_OK) break;
        print_device(backend, device);
        backend->close(&device);
    }
    return KS_OK;
}

int ks_command_list_devices(const ks_config *config)
{
    ks_error error = {0};
    for (const ks_backend_row *row = ks_backends(); row->name; row++) {
        if (list_devices(row, config, &error) == KS_OK) continue;
        fprintf(stderr, "kernserve: %s\n", error.text);
        return KS_EXIT_SYSTEM;
    }
    return KS_EXIT_OK;
}

/* 0: the response's status is 2xx. */
static int ask_health(int fd, const char *host, const char *path)
{
    char text[1024];
    const int status = ks_client_ask(fd, &(ks_client_request){.host = host, .path = path}, text, sizeof text);
    if (status / 100 == 2) return 0;
    fprintf(stderr, "kernserve: not ready: %.12s\n", *text ? text : "no answer");
    return 1;
}

static int ask_url(const char *text)
{
    ks_client_url url;
    if (!ks_client_cut(text, "/", &url)) return 1;
    const int fd = ks_client_connect(&url);
    return fd >= 0 ? ask_health(fd, url.host, url.path) : 1;
}

int ks_command_healthcheck(const ks_config *config)
{
    enum { SECONDS = 2 };
    if (config->url) return ask_url(config->url);
    const char *path = config->health_live ? "/v2/health/live" : "/v2/health/ready", *address = config->admin_listen;
    for (int i = config->admin_tls ? 0 : -1; i < config->listen.count; i++) { /* it speaks no TLS */
        if (i >= 0) address = config->listen.item[i];
        const int fd = *address ? ks_listen_connect(address, SECONDS) : -1;
        if (fd >= 0) return ask_health(fd, "localhost", path);
    }
    fprintf(stderr, "kernserve: nothing listens on %s\n", address);
    return 1;
}

int ks_command_run(ks_command command, const ks_config *config)
{
    switch (command) {
    case KS_COMMAND_HELP:
        ks_config_help(config->help);
        return KS_EXIT_OK;
    case KS_COMMAND_VERSION:
        ks_version_print();
        return KS_EXIT_OK;
    case KS_COMMAND_DUMP_CONFIG:
        if (config->word)
            ks_config_sample();
        else
            ks_config_dump(config);
        return KS_EXIT_OK;
    case KS_COMMAND_MANUAL:
        ks_config_manual(config->word);
        return KS_EXIT_OK;
    case KS_COMMAND_COMPLETION:
        ks_config_completion(config->word);
        return KS_EXIT_OK;
    case KS_COMMAND_CHECK_CONFIG:
        return ks_command_check(config);
    case KS_COMMAND_LIST_DEVICES:
        return ks_command_list_devices(config);
    case KS_COMMAND_TUNE:
        return ks_command_tune(config);
    case KS_COMMAND_PLANS:
        return ks_command_plans(config);
    case KS_COMMAND_HEALTHCHECK:
        return ks_command_healthcheck(config);
    case KS_COMMAND_SERVE:
    case KS_COMMAND_SELF_TEST:
        break;
    }
    return KS_EXIT_INTERNAL;
}
