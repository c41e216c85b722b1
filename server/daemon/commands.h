/* What the command line may ask for instead of serving, each with its exit code. */
#ifndef KS_COMMANDS_H
#define KS_COMMANDS_H
#include "base/config/config.h"
#include "engine/engine.h"

/* What a start would find wrong without opening anything: addresses, token file, device's form. */
int ks_command_check(const ks_config *config);
int ks_command_list_devices(const ks_config *config);
/* What tuning finds for this device, read from a file ("": none). KS_MEMORY. */
ks_status ks_command_open_tunes(const ks_backend *backend, ks_device *device, const char *path, ks_tunes **out,
                                ks_error *error);
/* Tries the ways of config->tune's plans, prints a table, and fills the tune cache. */
int ks_command_tune(const ks_config *config);
/* url NULL: http://127.0.0.1:8000/v2/health/ready. 0: it answered 2xx within two seconds; else 1. */
int ks_command_healthcheck(const char *url);
#endif
