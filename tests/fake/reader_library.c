/* In place of server/http_reader.c in kernserve_library: libmicrohttpd is given every request whose head is judged well, so that
 * tests can compare it with the plain reader. Never installed. */
#include "http/http_parts.h"

const bool ks_http_prefers_library = true;
