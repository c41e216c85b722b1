/* What the command line may ask for instead of serving, each with its exit code. */
#ifndef KS_COMMANDS_H
#define KS_COMMANDS_H
#include "base/config/config.h"
#include "engine/engine.h"

/* What the command line asks for instead of serving. */
int ks_command_run(ks_command command, const ks_config *config);
/* command_check.c: what a start does short of opening a device and serving. All faults are listed, the exit code is that of
 * the first. */
int ks_command_check(const ks_config *config);
int ks_command_list_devices(const ks_config *config);
/* What tuning finds for this device, read from a file ("": none). KS_MEMORY. */
ks_status ks_command_open_tunes(const ks_backend *backend, ks_device *device, const char *path, ks_tunes **out,
                                ks_error *error);
/* Tries the ways of config->tune's plans, prints a table, and fills the tune cache. */
int ks_command_tune(const ks_config *config);
/* The URL that is named, else the first listener of the configuration that answers, the second one of the daemon before those
 * of the data. 0: it answered 2xx within two seconds; else 1. */
int ks_command_healthcheck(const ks_config *config);
#endif
