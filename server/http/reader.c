/* A file of its own, so that a program for tests can be linked with another one. */
#include "http/http_parts.h"

const bool ks_http_prefers_library = false;
