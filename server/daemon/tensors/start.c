/* Interface start.h
 * Threads   main's */
#include "daemon/tensors/start.h"

#include <fcntl.h>
#include <unistd.h>

#include "daemon/defaults.h"
#include "daemon/workers/process.h"

/* Automatic: half of the cores. Shards have the other half, and clients of this host, too. */
static int hash_threads(const ks_config *config)
{
    enum { PRESET_MAX = 8 };
    const int half = ks_cores() / 2, preset = half < 1 ? 1 : half;
    if (config->hash_threads > 0) return (int)config->hash_threads;
    return preset < PRESET_MAX ? preset : PRESET_MAX;
}

static ks_status open_store(ks_daemon *daemon, ks_error *error)
{
    const ks_config *config = daemon->config;
    ks_store_options options = {.backend = daemon->backend,
                                .device = daemon->device,
                                .limit_bytes = (uint64_t)config->resident_bytes,
                                .ttl_s = config->tensor_ttl / KS_S,
                                .uploads_max = (int)config->tensor_uploads,
                                .generation = (uint64_t)ks_process_said(KS_SUPERVISOR_STARTS, 1),
                                .goes_together = daemon->workers && daemon->workers->count > 1,
                                .record_fd = (int)ks_process_said(KS_SUPERVISOR_RECORD, -1)};
    if (daemon->workers) options.placed = (ks_placed){daemon->workers, daemon->worker, getpid()};
    if (options.record_fd >= 0) fcntl(options.record_fd, F_SETFD, FD_CLOEXEC);
    ks_status status = ks_store_open(&options, &daemon->store, error);
    if (status == KS_OK) status = ks_hashers_open(hash_threads(config), &daemon->hashers, error);
    const ks_models_options models = {.backend = daemon->backend,
                                      .device = daemon->device,
                                      .store = daemon->store,
                                      .shards = daemon->shards,
                                      .folders = &config->model_repository};
    return status == KS_OK ? ks_models_open(&models, &daemon->models, error) : status;
}

ks_repository_options ks_repository_options_of(const ks_config *config)
{
    const bool is_explicit = config->model_control_mode == KS_MODEL_CONTROL_EXPLICIT,
               polls = config->model_control_mode == KS_MODEL_CONTROL_POLL;
    return (ks_repository_options){.folders = &config->model_repository,
                                   .wanted = is_explicit ? &config->load_model : NULL,
                                   .poll_ns = polls ? config->repository_poll_secs * KS_S : 0,
                                   .strict = config->exit_on_error};
}

ks_status ks_repository_start(ks_daemon *daemon, ks_error *error)
{
    ks_repository_options options = ks_repository_options_of(daemon->config);
    options.models = daemon->models;
    if (options.folders->count == 0) return KS_OK;
    if (!daemon->models)
        return ks_fail(error, KS_CONFIG,
                       "model-repository: no models are loaded here (--no-resident, or the backend "
                       "cannot)");
    return ks_repository_open(&options, &daemon->repository, error);
}

ks_status ks_tensors_open(ks_daemon *daemon, ks_keeper **keeper, ks_error *error)
{
    if (!daemon->backend->resident) return KS_OK;
    const ks_status status = daemon->config->resident ? open_store(daemon, error) : KS_OK;
    if (status != KS_OK) return status;
    return ks_keeper_open(daemon->backend, daemon->device, daemon->store, keeper, error);
}

void ks_tensors_close(ks_daemon *daemon, ks_keeper **keeper)
{
    ks_repository_close(&daemon->repository);
    ks_keeper_close(keeper);
    ks_models_close(&daemon->models);
    ks_hashers_close(&daemon->hashers);
    ks_store_close(&daemon->store);
}
