/* A document to a collector, by HTTP: the door to libcurl. One thread at a time, but for cut. */
#ifndef KS_OTLP_SEND_H
#define KS_OTLP_SEND_H
#include <stddef.h>
#include <stdint.h>

#include "kernserve/status.h"

typedef struct ks_otlp_sender ks_otlp_sender;

/* url: of the traces; headers: "key=value,key=value" of the environment. KS_CONFIG: a field, or there is no libcurl. KS_MEMORY. */
ks_status ks_otlp_sender_open(const char *url, const char *headers, ks_otlp_sender **out, ks_error *error);
/* Any thread: from at_ns on (ks_now_ns's) a transfer is broken off, within a second. */
void ks_otlp_sender_cut(ks_otlp_sender *sender, int64_t at_ns);
void ks_otlp_sender_close(ks_otlp_sender **sender);
/* Blocks for at most timeout_ms. KS_SYSTEM, with the reason: the collector did not take it. */
ks_status ks_otlp_send(ks_otlp_sender *sender, const char *document, size_t length, long timeout_ms, ks_error *error);
#endif
