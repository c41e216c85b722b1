/* What the control routes do: the repository's list, the log's settings, clients' shared memory. Any thread; knows no
 * sockets. */
#ifndef KS_CONTROL_H
#define KS_CONTROL_H
#include "api/control_body.h"
#include "api/metadata.h"
#include "api/routes.h"
#include "api/view.h"
#include "base/text.h"

/* words NULL: none came. */
ks_status ks_control_repository(ks_api_view *view, const ks_control *words, const ks_listing *whose, ks_text *out,
                                ks_error *error);
/* Changes what the words name, then writes all settings. */
ks_status ks_control_logging(ks_api_view *view, const ks_control *words, ks_text *out, ks_error *error);
/* Of the route's kind, and of its region where it names one. */
ks_status ks_control_regions(ks_api_view *view, const ks_route *route, ks_text *out, ks_error *error);
ks_status ks_control_register(ks_api_view *view, const ks_route *route, const ks_control *words, ks_error *error);
ks_status ks_control_unregister(ks_api_view *view, const ks_route *route, ks_error *error);
#endif
