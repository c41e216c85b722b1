#include "kernserve/status.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *name, *code;
    int http, closes;
} statuses[KS_STATUS_COUNT] = {
#define X(name, http, code, close) {#name, code, http, close},
    KS_STATUS_TABLE(X)
#undef X
};

ks_status ks_fail(ks_error *error, ks_status status, const char *format, ...)
{
    if (!error) return status;
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    /* Client text reaches these sentences: nothing in them may act on a terminal or a log. */
    for (unsigned char *c = (unsigned char *)error->text; *c; c++)
        if (*c < 0x20 || *c == 0x7f) *c = '?';
    return status;
}

int ks_status_http(ks_status status)
{
    return statuses[status].http;
}

const char *ks_status_code(ks_status status)
{
    return statuses[status].code;
}

const char *ks_status_name(ks_status status)
{
    return statuses[status].name;
}

int ks_status_closes(ks_status status)
{
    return statuses[status].closes;
}

int ks_status_retries(ks_status status)
{
    return statuses[status].http == 503;
}
