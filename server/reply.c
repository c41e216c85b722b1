#include "reply.h"

#include "oip.h"

const char *ks_reply_sentence(ks_status status)
{
    return status == KS_DEVICE ? "the device has failed; the server restarts" : "Server not ready";
}

const char *ks_reply_number(char out[24], int64_t value)
{
    char *end = out + 23;
    *end = '\0';
    do {
        *--end = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return end;
}

/* Of the few statuses that come amid a body. */
static const char *reason_of(int code)
{
    switch (code) {
    case 408:
        return "Request Timeout";
    case 413:
        return "Content Too Large";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    default:
        return "Bad Request";
    }
}

void ks_reply_raw(ks_text *out, ks_status status, const char *sentence)
{
    ks_text body;
    ks_text_init(&body, KS_ERROR_TEXT * 8);
    ks_oip_error(&body, sentence);
    ks_text_printf(out,
                   "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                   "Kernserve-Error: %s\r\n%s\r\n",
                   ks_status_http(status), reason_of(ks_status_http(status)), body.broken ? (size_t)0 : body.length,
                   ks_status_code(status), ks_status_retries(status) ? "Retry-After: 1\r\n" : "");
    if (!body.broken) ks_text_add(out, body.bytes, body.length);
    ks_text_fini(&body);
}

void ks_reply_count(ks_shard_metrics *metrics, const ks_route *route, ks_status status, int64_t total_ns)
{
    ks_record record = {.model = route->model ? route->model->index : -1, .status = status, .total_ns = total_ns};
    for (int i = 0; i < KS_PHASES; i++) record.phase_ns[i] = -1;
    ks_metrics_inference(metrics, &record);
}
