/* What the control routes do: the repository's list, the log's settings. Any thread; knows no sockets. */
#ifndef KS_CONTROL_H
#define KS_CONTROL_H
#include "daemon.h"
#include "oip_control.h"
#include "text.h"

/* words NULL: none came. */
ks_status ks_control_repository(ks_daemon *daemon, const ks_control *words, ks_text *out, ks_error *error);
/* Changes what the words name, then writes all settings. */
ks_status ks_control_logging(ks_daemon *daemon, const ks_control *words, ks_text *out, ks_error *error);
#endif
