/* --tune: the ways of named plans tried on the device by hand, as at a daemon's start, with a table. */
#include "daemon/commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/backends.h"
#include "base/log.h"
#include "base/model.h"
#include "daemon/defaults.h"
#include "engine/tune/warm.h"

enum { SHAPE_MAX = 256 };
static const int64_t save_ns = 5000000000; /* for another daemon that writes the same file */

ks_status ks_command_open_tunes(const ks_backend *backend, ks_device *device, const char *path, ks_tunes **out,
                                ks_error *error)
{
    char context[512], revision[256];
    ks_device_info info = {0};
    if (!backend->tuning) return ks_fail(error, KS_DEVICE, "%s has nothing to choose from", backend->name);
    backend->info(device, &info);
    backend->tuning->revision(device, revision, sizeof revision);
    snprintf(context, sizeof context, "%s; driver %s; %s; kernserve " KS_VERSION, info.name, info.driver, revision);
    return ks_tunes_open(path, context, out, error);
}

typedef struct bench {
    const ks_config *config;
    const ks_backend *backend;
    ks_device *device;
    ks_budget *budget;
    ks_tunes *tunes;
    ks_engine *engine;
    int done; /* shapes */
} bench;

/* ks_tune_progress_fn: on a terminal one line that changes. */
static void tell(void *context, int trials, int most)
{
    const bench *b = context;
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[K%d of %d: %s, trial %d of at most %d", b->done + 1, b->config->tune.count,
            b->config->tune.item[b->done], trials, most);
}

/* Matmul where no model is named: nothing else has much to choose from. */
static ks_status read_shape(const char *text, ks_spec *spec, ks_error *error)
{
    char named[SHAPE_MAX];
    const bool bare = *text >= '0' && *text <= '9';
    if (snprintf(named, sizeof named, "%s%s", bare ? "matmul:" : "", text) >= (int)sizeof named)
        return ks_fail(error, KS_CONFIG, "--tune %.64s...: too long", text);
    return ks_warm_spec("--tune", named, spec, error);
}

static ks_status open_bench(bench *b, ks_config *config, ks_error *error)
{
    ks_engine_options options;
    ks_limits limits;
    const ks_backend_row *row = ks_backends();
    while (!ks_backend_is_chosen(row, config->backend)) row++; /* auto: the first one */
    b->backend = row->backend();
    if (!b->backend)
        return ks_fail(error, KS_DEVICE, "no CUDA in this build; --backend cpu tunes what the CPU can choose from");
    config->threads = 1;
    ks_memory memory;
    ks_defaults_memory(&memory);
    ks_status status = ks_defaults_config(config, &memory, row->gpu, error);
    if (status != KS_OK) return status;
    config->lanes = 1;
    ks_defaults_engine(config, &options);
    options.classes = 1; /* trials need no slots */
    options.size_class[0].count = 1;
    status = ks_defaults_limits(config, &options, &limits, error);
    limits.lane_bytes = limits.large_bytes; /* one lane, which holds whatever a request may */
    limits.large_bytes = 0;
    if (status == KS_OK) status = b->backend->open(&limits, &b->device, error);
    if (status == KS_DEVICE && config->backend == KS_BACKEND_AUTO) {
        const ks_error why = *error;
        return ks_fail(error, KS_DEVICE, "no GPU that works (%.300s); --backend cpu tunes what the CPU can choose from",
                       why.text);
    }
    if (status != KS_OK) return status;
    b->budget = ks_budget_open(config->inflight_bytes);
    if (!b->budget) return ks_fail(error, KS_MEMORY, "no memory for a budget");
    status = ks_command_open_tunes(b->backend, b->device, config->tune_cache, &b->tunes, error);
    if (status != KS_OK) return status;
    options.backend = b->backend;
    options.device = b->device;
    options.budget = b->budget;
    options.tunes = b->tunes;
    return ks_engine_open(&options, &b->engine, error);
}

static void close_bench(bench *b)
{
    ks_engine_close(&b->engine);
    ks_tunes_close(&b->tunes);
    if (b->budget) ks_budget_close(&b->budget);
    if (b->device) b->backend->close(&b->device);
}

static ks_status tune_one(bench *b, const char *text, ks_error *error)
{
    ks_spec spec;
    ks_tuned tuned;
    ks_status status = read_shape(text, &spec, error);
    const bool known = status == KS_OK && ks_tunes_find(b->tunes, &spec, &tuned);
    if (!isatty(STDERR_FILENO)) fprintf(stderr, "%d of %d: %s\n", b->done + 1, b->config->tune.count, text);
    if (status == KS_OK) status = ks_engine_tune(b->engine, &spec, tell, b, error);
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
    if (status != KS_OK) return status;
    if (!ks_tunes_find(b->tunes, &spec, &tuned))
        printf("%-44s %10s %12s %10s %6s  nothing to choose from\n", text, "-", "-", "-", "-");
    else
        printf("%-44s %10d %12.2f %10.2f %6.2f  %s%s\n", text, tuned.trials.candidates, tuned.trials.heuristic_us,
               tuned.trials.us, tuned.trials.us > 0 ? tuned.trials.heuristic_us / tuned.trials.us : 0,
               tuned.algorithm.kernel, known ? " (known)" : "");
    fflush(stdout);
    b->done++;
    return ks_tunes_save(b->tunes, save_ns, error);
}

static int code_of(ks_status status)
{
    return status == KS_DEVICE                          ? KS_EXIT_NO_DEVICE
           : status == KS_MEMORY || status == KS_SYSTEM ? KS_EXIT_SYSTEM
                                                        : KS_EXIT_CONFIG;
}

int ks_command_tune(const ks_config *config)
{
    ks_config settled = *config;
    ks_error error = {0};
    bench b = {.config = config};
    ks_spec ignored;
    ks_status status = KS_OK;
    ks_models_init();
    ks_log_set_levels(ks_log_up_to(KS_LOG_WARN)); /* the table says the rest */
    for (int i = 0; i < config->tune.count && status == KS_OK; i++)
        status = read_shape(config->tune.item[i], &ignored, &error);
    if (status == KS_OK) status = open_bench(&b, &settled, &error);
    if (status == KS_OK) {
        ks_device_info info = {0};
        b.backend->info(b.device, &info);
        printf("%s%s%s\n%-44s %10s %12s %10s %6s  %s\n", info.name, *info.library ? ", " : "", info.library, "",
               "candidates", "heuristic us", "us", "gain", "kernel");
        for (int i = 0; i < config->tune.count && status == KS_OK; i++)
            status = tune_one(&b, config->tune.item[i], &error);
    }
    close_bench(&b);
    if (status == KS_OK) return KS_EXIT_OK;
    fprintf(stderr, "kernserve: %s\n", error.text);
    return code_of(status);
}
