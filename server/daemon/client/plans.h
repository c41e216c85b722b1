#ifndef KS_CLIENT_PLANS_H
#define KS_CLIENT_PLANS_H
#include "base/config/config.h"

/* --plans: what has run on the daemon of this configuration, or of a URL, as a table. Returns the exit code. */
int ks_command_plans(const ks_config *config);
#endif
