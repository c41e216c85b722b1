/* The OpenAPI 3.1 document of the main listener, made from the route table and the models. Any thread. */
#ifndef KS_OPENAPI_H
#define KS_OPENAPI_H
#include "base/text.h"

void ks_openapi_write(ks_text *out, const char *version);
#endif
