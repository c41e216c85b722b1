/* --check-config: what a start does short of opening the device and serving, all faults listed. What is there only while the
 * check runs is no fault: an address in use, perhaps by the daemon whose next configuration this is, is a note. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/model.h"
#include "base/tokens.h"
#include "daemon/backends.h"
#include "daemon/commands.h"
#include "daemon/defaults.h"
#include "daemon/listen.h"
#include "daemon/workers/places.h"
#include "daemon/tensors/start.h"
#include "engine/tune/warm.h"
#include "http/tls/tls.h"

typedef struct config_check {
    const ks_config *config;
    int code; /* of the first fault */
    ks_error error;
} config_check;

/* The sentence is in check->error. */
static void add_fault(config_check *check, int code)
{
    if (code == KS_EXIT_OK) return;
    fprintf(stderr, "kernserve: %s\n", check->error.text);
    if (check->code == KS_EXIT_OK) check->code = code;
}

static void check_variables(void)
{
    ks_unknown_variable variable;
    for (int at = 0; ks_config_next_unknown(&at, &variable);)
        fprintf(stderr, "kernserve: warning: no option has the variable %s%s%s\n", variable.name,
                *variable.nearest ? "; the nearest is " : "", variable.nearest);
}

/* beyond: set where it is more than loopback. */
static void check_address(config_check *check, const char *address, bool *beyond)
{
    bool loopback, in_use = false;
    if (ks_listen_parse(address, &loopback, &check->error) != KS_OK) {
        add_fault(check, KS_EXIT_CONFIG);
        return;
    }
    *beyond = *beyond || !loopback;
    if (ks_listen_inherited() > 0) return; /* the sockets that are passed take their place */
    add_fault(check, ks_listen_try(address, &in_use, &check->error));
    if (in_use) fprintf(stderr, "kernserve: note: %s is in use now\n", address);
}

static void check_access(config_check *check)
{
    const ks_config *config = check->config;
    bool clear = false, secret = false;
    for (int i = 0; i < config->listen.count; i++) check_address(check, config->listen.item[i], &clear);
    for (int i = 0; i < config->tls_listen.count; i++) check_address(check, config->tls_listen.item[i], &secret);
    if (*config->admin_listen) check_address(check, config->admin_listen, config->admin_tls ? &secret : &clear);
    const bool beyond = clear || secret;
    if (clear && *config->token_file)
        fputs("kernserve: warning: tokens cross the network in clear text: a listener beyond loopback has no TLS\n",
              stderr);
    if (config->listen.count + config->tls_listen.count == 0 && ks_listen_inherited() == 0) {
        ks_fail(&check->error, KS_CONFIG, "listen: no address to listen on");
        add_fault(check, KS_EXIT_CONFIG);
    }
    if (beyond && !*config->token_file && !config->allow_unauthenticated) {
        ks_fail(&check->error, KS_CONFIG,
                "listen: an address beyond loopback needs --token-file, or --allow-unauthenticated");
        add_fault(check, KS_EXIT_CONFIG);
    }
    if (*config->token_file) {
        ks_tokens *tokens = NULL;
        add_fault(check, ks_tokens_read(config->token_file, &tokens, &check->error));
        ks_tokens_release(&tokens);
    }
}

static void check_tls(config_check *check)
{
    const ks_config *config = check->config;
    ks_tls *tls = NULL;
    if (config->tls_listen.count == 0 && !config->admin_tls && !*config->tls_cert && !*config->tls_key) return;
    add_fault(check, ks_tls_read(config, &tls, &check->error));
    ks_tls_free(&tls);
}

static void check_limits(config_check *check)
{
    ks_config settled = *check->config;
    ks_engine_options engine;
    ks_limits limits;
    ks_memory memory;
    ks_defaults_memory(&memory);
    if (ks_defaults_config(&settled, &memory, false, &check->error) != KS_OK) {
        add_fault(check, KS_EXIT_CONFIG);
        return;
    }
    ks_defaults_files(&settled); /* which says itself where fewer connections are taken */
    ks_defaults_engine(&settled, &engine);
    if (ks_defaults_limits(&settled, &engine, &limits, &check->error) != KS_OK) add_fault(check, KS_EXIT_CONFIG);
}

static void check_devices(config_check *check)
{
    ks_place places[KS_WORKERS_MAX];
    int count;
    if (!*check->config->devices) return;
    const ks_status status = ks_places_find(check->config, places, &count, &check->error);
    if (status != KS_OK) add_fault(check, status == KS_DEVICE ? KS_EXIT_NO_DEVICE : KS_EXIT_CONFIG);
}

static void check_warm(config_check *check)
{
    const ks_list *warm = &check->config->warm;
    ks_spec spec;
    ks_models_init();
    if (check->config->compat_models) ks_models_add_compat();
    for (int i = 0; i < warm->count; i++)
        if (ks_warm_spec("--warm", warm->item[i], &spec, &check->error) != KS_OK) add_fault(check, KS_EXIT_CONFIG);
}

static void fail_file(config_check *check, const char *option, const char *path, int fault)
{
    ks_fail(&check->error, KS_CONFIG, "%s: %.200s: %s", option, path, strerror(fault));
    add_fault(check, fault == EACCES || fault == EPERM ? KS_EXIT_PERMISSION : KS_EXIT_CONFIG);
}

/* The cache is written beside itself and renamed; a cuBLASLt without a slash is looked for along the library path. */
static void check_files(config_check *check)
{
    const ks_config *config = check->config;
    char copy[PATH_MAX];
    if (*config->tune_cache) {
        snprintf(copy, sizeof copy, "%s", config->tune_cache);
        const char *folder = dirname(copy);
        const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) != 0) fail_file(check, "tune-cache", folder, errno);
        if (fd >= 0) close(fd);
    }
    if (strchr(config->cublaslt, '/')) {
        const int fd = open(config->cublaslt, O_RDONLY | O_CLOEXEC);
        if (fd < 0) fail_file(check, "cublaslt", config->cublaslt, errno);
        if (fd >= 0) close(fd);
    }
}

/* A model that cannot be loaded is no fault of the start, but with --exit-on-error. */
static void tell_repository(void *context, const char *model, const ks_error *fault)
{
    config_check *check = context;
    if (model) ks_fail(&check->error, KS_CONFIG, "model-repository: model '%s': %s", model, fault->text);
    if (!model) check->error = *fault;
    if (!model || check->config->exit_on_error)
        add_fault(check, KS_EXIT_CONFIG);
    else
        fprintf(stderr, "kernserve: warning: %s\n", check->error.text);
}

static void check_repository(config_check *check)
{
    const ks_config *config = check->config;
    const ks_repository_options options = ks_repository_options_of(config);
    if (config->model_repository.count > 0) ks_repository_check(&options, tell_repository, check);
}

/* Of the choice; auto is none of them. */
static const char *backend_name(ks_choice_backend choice)
{
    for (const ks_backend_row *row = ks_backends(); row->name && choice != KS_BACKEND_AUTO; row++)
        if (ks_backend_is_chosen(row, choice)) return row->name;
    return "auto";
}

static void print_accepted(const ks_config *config)
{
    fputs("configuration accepted:", stdout);
    for (int i = 0; i < config->listen.count; i++) {
        const char *address = config->listen.item[i];
        printf("%s %s%s", i ? "," : "", strncmp(address, "unix:", 5) == 0 ? "" : "http://", address);
    }
    for (int i = 0; i < config->tls_listen.count; i++)
        printf("%s https://%s", i + config->listen.count ? "," : "", config->tls_listen.item[i]);
    const char *admin = config->admin_listen, *port = strrchr(admin, ':');
    const char *first = config->listen.count ? config->listen.item[0] : "";
    const bool same = port && strncmp(admin, "unix:", 5) != 0 && strncmp(first, admin, (size_t)(port - admin) + 1) == 0;
    if (*admin) printf(", metrics on %s", same ? port : admin);
    printf(", backend %s\n", backend_name(config->backend));
}

int ks_command_check(const ks_config *config)
{
    config_check check = {.config = config};
    check_variables();
    check_access(&check);
    check_tls(&check);
    check_limits(&check);
    check_devices(&check);
    check_warm(&check);
    check_files(&check);
    check_repository(&check);
    if (check.code == KS_EXIT_OK) print_accepted(config);
    return check.code;
}
