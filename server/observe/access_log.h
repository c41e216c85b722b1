/* The access log: one line `request` for each request that is over, whatever became of it.
 * Limits   lines about faults: KS_ACCESS_FAULTS_MAX a second of the whole process, then one line with the number left out.
 * Threads  any. */
#ifndef KS_ACCESS_LOG_H
#define KS_ACCESS_LOG_H
#include "base/request_id.h"
#include "observe/metrics.h"

enum { KS_ACCESS_FAULTS_MAX = 100 };

/* What is NULL, "" or 0, and a phase, shard or lane of -1, is absent: the line leaves it out. */
typedef struct ks_access {
    const ks_identity *identity;
    const char *remote, *token;   /* trusted: the socket's address, the token's name */
    const char *forwarded, *path; /* the client's words: put into printable form, and cut */
    size_t forwarded_length, path_length;
    const char *method, *model, *format, *graph, *reader, *tls;
    const char *aborted; /* the client left amid receive, compute or send */
    ks_handler route;
    int status; /* of HTTP; 0: no response was made */
    ks_status fault;
    uint64_t in_bytes, out_bytes;
    int64_t phase_ns[KS_PHASES];
    int64_t total_ns;
    int batch, shard, lane;
    int tensors, rows; /* resident tensors that it named; rows of a launch whose rows may be joined */
} ks_access;

/* Which lines are written. The counters of what sampling leaves out belong to each writer. */
typedef struct ks_access_rules {
    int64_t least_ns; /* --access-log-min */
    uint64_t sample;  /* one of so many 200s of infer */
    uint64_t seen;    /* of them, so far */
} ks_access_rules;

void ks_access_write(ks_access_rules *rules, const ks_access *access, int64_t now_ns);
/* Now and then, and at the end: the line about those left out, where their second is over. */
void ks_access_look(int64_t now_ns);
/* The label of metrics and of the field `route`. */
const char *ks_handler_name(ks_handler handler);
#endif
