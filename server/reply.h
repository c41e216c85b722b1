/* Small pieces of answers that need no library: texts, numbers, the raw form. Any thread. */
#ifndef KS_REPLY_H
#define KS_REPLY_H
#include "gate.h"
#include "metrics.h"
#include "routes.h"
#include "text.h"

const char *ks_reply_sentence(ks_status status);          /* why the server as a whole refuses */
const char *ks_reply_number(char out[24], int64_t value); /* value >= 0 */
/* A whole answer, with its status line, that closes the connection: 400, 408 or 413. */
void ks_reply_raw(ks_text *out, ks_status status, const char *sentence);
/* An inference request without a record: refused before it had one, or to a compatibility model. */
void ks_reply_count(ks_shard_metrics *metrics, const ks_route *route, ks_status status, int64_t total_ns);
#endif
