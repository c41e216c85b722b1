/* One line per event, logfmt or JSON, to stderr. Lines go through a bounded ring to a thread of its own: a caller never
 * waits for the reader; lines that find the ring full are dropped and counted. Any thread. Leaf service. */
#ifndef KS_LOG_H
#define KS_LOG_H
#include <stdbool.h>
#include <stdint.h>

#include "base/log_words.h"

/* Before open (and after close) lines are written directly. */
bool ks_log_open(ks_level level, ks_log_format format);
/* Of a worker (--devices), which writes to the same stream as others: each of its lines names the index of its device. Before any line. */
void ks_log_set_worker(int device);
void ks_log_close(void); /* writes what the ring holds, at most one second */
bool ks_log_enabled(ks_level level);
/* Which levels are written, one bit each; a level of the configuration stands for itself and all above it. */
void ks_log_set_levels(unsigned levels);
unsigned ks_log_levels(void);
unsigned ks_log_up_to(ks_level level);
/* msg: a constant sentence. The rest: name, kind-and-value pairs through KS_LOG below. */
typedef struct ks_field {
    const char *name;
    enum { KS_FIELD_TEXT, KS_FIELD_INT, KS_FIELD_NUMBER } kind;
    const char *text;
    int64_t integer;
    double number;
} ks_field;
void ks_log(ks_level level, const char *msg, const ks_field *fields, int count);
#define KS_TEXT(n, v) ((ks_field){.name = (n), .kind = KS_FIELD_TEXT, .text = (v)})
#define KS_INT(n, v) ((ks_field){.name = (n), .kind = KS_FIELD_INT, .integer = (int64_t)(v)})
#define KS_NUMBER(n, v) ((ks_field){.name = (n), .kind = KS_FIELD_NUMBER, .number = (v)})
/* KS_LOG(KS_LOG_INFO, "listening", KS_TEXT("address", a), KS_INT("shards", n)); at least one field */
#define KS_LOG(level, msg, ...)                                                                                        \
    do {                                                                                                               \
        if (ks_log_enabled(level)) {                                                                                   \
            const ks_field ks_fields_[] = {__VA_ARGS__};                                                               \
            ks_log(level, msg, ks_fields_, (int)(sizeof ks_fields_ / sizeof ks_fields_[0]));                           \
        }                                                                                                              \
    } while (0)
/* Of a message that may come often: it is written at once and then once a second at most, with how often it came. Any
 * thread. */
typedef struct ks_log_limit {
    _Atomic int64_t next_ns;
    _Atomic uint64_t held; /* came since the last line */
} ks_log_limit;
/* Whether it is written now. *times: for the line, how often it came since the last one, this time included. */
bool ks_log_due(ks_log_limit *limit, int64_t now_ns, uint64_t *times);
uint64_t ks_log_lines(ks_level level);
uint64_t ks_log_dropped(void);
#endif
