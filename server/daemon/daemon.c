/* What each folder below gets of the daemon: options with the few fields that it needs, never the whole. */
#include "daemon/daemon.h"

ks_http_options ks_daemon_http(ks_daemon *daemon, ks_engine *engine, ks_shard_metrics *metrics, int wake_fd)
{
    return (ks_http_options){.request = {.config = daemon->config,
                                         .engine = engine,
                                         .metrics = metrics,
                                         .budget = daemon->budget,
                                         .regions = daemon->regions,
                                         .store = daemon->store,
                                         .hashers = daemon->hashers,
                                         .wake_fd = wake_fd,
                                         .state = &daemon->row->state,
                                         .work_max = daemon->device_info.work_max},
                             .api = &daemon->api,
                             .tokens = &daemon->tokens,
                             .connections = &daemon->row->connections,
                             .wake_fd = wake_fd,
                             .shard = -1,
                             .tls = engine ? daemon->tls : daemon->config->admin_tls};
}

void ks_daemon_fill_api(ks_daemon *daemon)
{
    ks_api_view *api = &daemon->api;
    api->config = daemon->config;
    api->device_info = &daemon->device_info;
    api->budget = daemon->budget;
    api->regions = daemon->regions;
    api->store = daemon->store;
    api->models = daemon->models;
    api->metrics = daemon->metrics;
    api->timeline = daemon->timeline;
    api->catalogs = daemon->catalogs;
    api->ceilings = daemon->ceilings;
    api->otlp = daemon->otlp;
    api->shards = daemon->shards;
    api->state = &daemon->row->state;
    api->workers = daemon->workers;
    api->worker = daemon->worker;
    api->hand_over = daemon->hand_over;
    api->device_faults = &daemon->device_faults;
    api->connections = &daemon->row->connections;
    api->device_used_bytes = api->device_free_bytes = -1;
    api->tls_expiry_s = &daemon->tls_expiry_s;
}
