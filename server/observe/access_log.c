/* Owns       the second of lines about faults, which all writers share.
 * Interface  access_log.h. Threads  any.
 * Limits     a scanner makes faults as fast as it likes: their lines are bounded, and what is left out is counted. */
#include "observe/access_log.h"

#include <stdatomic.h>
#include <string.h>

#include "base/log.h"

static const int64_t second_ns = 1000000000;

static struct {
    _Atomic int64_t since_ns; /* the second began; 0: no line yet */
    _Atomic uint64_t written; /* in it */
    _Atomic uint64_t left_out;
} faults;

const char *ks_handler_name(ks_handler handler)
{
    static const char *const names[KS_HANDLERS] = {
#define X(name) #name,
        KS_HANDLER_TABLE(X)
#undef X
    };
    return names[handler];
}

void ks_access_look(int64_t now_ns)
{
    int64_t since_ns = atomic_load_explicit(&faults.since_ns, memory_order_relaxed);
    if (since_ns == 0 || now_ns - since_ns < second_ns) return;
    if (!atomic_compare_exchange_strong(&faults.since_ns, &since_ns, now_ns)) return;
    atomic_store(&faults.written, 0);
    const uint64_t left_out = atomic_exchange(&faults.left_out, 0);
    if (left_out > 0) KS_LOG(KS_LOG_INFO, "request lines left out", KS_INT("lines", left_out));
}

static bool is_fault(const ks_access *access)
{
    return access->status == 0 || access->status >= 400 || access->aborted;
}

static bool is_wanted(ks_access_rules *rules, const ks_access *access, int64_t now_ns)
{
    if (!is_fault(access)) {
        if (access->total_ns < rules->least_ns) return false;
        return access->route != KS_HANDLER_infer || rules->seen++ % rules->sample == 0;
    }
    int64_t none = 0;
    atomic_compare_exchange_strong(&faults.since_ns, &none, now_ns);
    ks_access_look(now_ns);
    if (atomic_fetch_add(&faults.written, 1) < KS_ACCESS_FAULTS_MAX) return true;
    atomic_fetch_add(&faults.left_out, 1);
    return false;
}

enum { WORDS_MAX = 64, FIELDS_MAX = 40 };

/* The first bytes of a client's text: what is not printable ASCII becomes '?'. */
static const char *printable(const char *text, size_t length, char out[WORDS_MAX + 1])
{
    const size_t n = text == NULL ? 0 : length < WORDS_MAX ? length : WORDS_MAX;
    for (size_t i = 0; i < n; i++) out[i] = text[i];
    for (size_t i = 0; i < n; i++)
        if (out[i] < ' ' || out[i] > '~') out[i] = '?';
    out[n] = '\0';
    return out;
}

typedef struct fields {
    int count;
    ks_field at[FIELDS_MAX];
} fields;

static void add_text(fields *line, const char *name, const char *text)
{
    if (text && *text) line->at[line->count++] = KS_TEXT(name, text);
}

static void add_number(fields *line, const char *name, int64_t number, bool there)
{
    if (there) line->at[line->count++] = KS_INT(name, number);
}

static void add_times(fields *line, const ks_access *access)
{
    static const char *const names[KS_PHASES] = {
#define X(name) #name "_us",
        KS_PHASE_TABLE(X)
#undef X
    };
    for (int i = 0; i < KS_PHASES; i++)
        add_number(line, names[i], (access->phase_ns[i] + 500) / 1000, access->phase_ns[i] >= 0);
    add_number(line, "total_us", (access->total_ns + 500) / 1000, true);
}

void ks_access_write(ks_access_rules *rules, const ks_access *access, int64_t now_ns)
{
    if (!ks_log_enabled(KS_LOG_INFO) || !is_wanted(rules, access, now_ns)) return;
    char forwarded[WORDS_MAX + 1], path[WORDS_MAX + 1], method[WORDS_MAX + 1];
    fields line = {.count = 0};
    add_text(&line, "request_id", access->identity->request_id);
    add_text(&line, "trace_id", access->identity->trace_id);
    add_text(&line, "span_id", access->identity->span_id);
    add_text(&line, "remote", access->remote);
    add_text(&line, "forwarded", printable(access->forwarded, access->forwarded_length, forwarded));
    add_text(&line, "token", access->token);
    add_text(&line, "method", printable(access->method, strlen(access->method), method));
    add_text(&line, "route", ks_handler_name(access->route));
    add_text(&line, "path", printable(access->path, access->path_length, path));
    add_number(&line, "status", access->status, access->status > 0);
    add_text(&line, "code", access->fault != KS_OK ? ks_status_code(access->fault) : NULL);
    add_text(&line, "aborted", access->aborted);
    add_text(&line, "model", access->model);
    add_text(&line, "format", access->format);
    add_number(&line, "in_bytes", (int64_t)access->in_bytes, access->in_bytes > 0);
    add_number(&line, "out_bytes", (int64_t)access->out_bytes, access->out_bytes > 0);
    add_times(&line, access);
    add_number(&line, "batch", access->batch, access->batch > 0);
    add_number(&line, "rows", access->rows, access->rows > 0);
    add_number(&line, "tensors", access->tensors, access->tensors > 0);
    add_number(&line, "shard", access->shard, access->shard >= 0);
    add_number(&line, "lane", access->lane, access->lane >= 0);
    add_text(&line, "graph", access->graph);
    add_text(&line, "reader", access->reader);
    add_text(&line, "tls", access->tls);
    ks_log(KS_LOG_INFO, "request", line.at, line.count);
}
