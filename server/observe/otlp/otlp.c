#include "observe/otlp/otlp.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "observe/otlp/send.h"
#include "observe/otlp/text.h"

enum { TURN_MS = 500, BATCH = 512, DOCUMENT_MAX = 4 << 20, TIMEOUT_MS = 10000, LAST_MS = 2000, URL_MAX = 1024 };

struct ks_otlp {
    /* fixed after open: */
    ks_spans *spans;
    ks_otlp_sender *sender;
    ks_otlp_resource resource;
    char url[URL_MAX];
    long timeout_ms;
    pthread_t thread;
    /* the thread's: */
    ks_span batch[BATCH];
    ks_log_limit failures;
    /* any thread: */
    _Atomic uint64_t exported, lost, failed;
    pthread_mutex_t mutex; /* for stop */
    pthread_cond_t wake;
    bool stop;
};

/* --- the environment ------------------------------------------------------------------------------------------------ */

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static bool is_http(const char *url)
{
    return strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
}

/* The traces' own endpoint is used as it stands, the common one with the path of traces behind it. *url stays empty: none is named. */
static ks_status read_url(char url[URL_MAX], ks_error *error)
{
    const char *own = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), *common = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
    const char *disabled = variable("OTEL_SDK_DISABLED");
    *url = '\0';
    if ((!own && !common) || (disabled && strcasecmp(disabled, "true") == 0)) return KS_OK;
    const bool slash = common && common[strlen(common) - 1] == '/';
    const int n =
        own ? snprintf(url, URL_MAX, "%s", own) : snprintf(url, URL_MAX, "%s%sv1/traces", common, slash ? "" : "/");
    if (n < URL_MAX && is_http(url)) return KS_OK;
    return ks_fail(error, KS_CONFIG, "OTEL_EXPORTER_OTLP%s_ENDPOINT: '%s' is no URL of http or https",
                   own ? "_TRACES" : "", ks_quoted(own ? own : common, strlen(own ? own : common)).text);
}

static ks_status read_timeout(long *ms, ks_error *error)
{
    const char *text = variable("OTEL_EXPORTER_OTLP_TIMEOUT");
    char *end = NULL;
    *ms = TIMEOUT_MS;
    if (!text) return KS_OK;
    errno = 0;
    *ms = strtol(text, &end, 10);
    if (!*end && errno == 0 && *ms >= 1 && *ms <= 600000) return KS_OK;
    return ks_fail(error, KS_CONFIG, "OTEL_EXPORTER_OTLP_TIMEOUT: '%s' is none of 1 to 600000 milliseconds",
                   ks_quoted(text, strlen(text)).text);
}

static ks_status check_protocol(ks_error *error)
{
    const char *text = variable("OTEL_EXPORTER_OTLP_PROTOCOL");
    if (!text || strcmp(text, "http/json") == 0) return KS_OK;
    return ks_fail(error, KS_CONFIG, "OTEL_EXPORTER_OTLP_PROTOCOL: '%s' is not http/json, which is all there is",
                   ks_quoted(text, strlen(text)).text);
}

static void warn_of_others(void)
{
    static const char *const known[] = {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                                        "OTEL_EXPORTER_OTLP_HEADERS",  "OTEL_EXPORTER_OTLP_TIMEOUT",
                                        "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_SERVICE_NAME",
                                        "OTEL_RESOURCE_ATTRIBUTES",    "OTEL_SDK_DISABLED"};
    for (char **entry = environ; *entry; entry++) {
        const size_t n = strcspn(*entry, "=");
        bool found = strncmp(*entry, "OTEL_", 5) != 0;
        for (size_t i = 0; i < sizeof known / sizeof known[0] && !found; i++)
            found = strlen(known[i]) == n && strncmp(*entry, known[i], n) == 0;
        if (!found)
            KS_LOG(KS_LOG_WARN, "this variable of OpenTelemetry has no effect here",
                   KS_TEXT("variable", ks_quoted(*entry, n).text));
    }
}

/* --- the thread ------------------------------------------------------------------------------------------------------ */

static void say_failure(ks_otlp *otlp, const char *reason)
{
    uint64_t times;
    if (ks_log_due(&otlp->failures, ks_now_ns(), &times))
        KS_LOG(KS_LOG_WARN, "spans cannot be exported", KS_TEXT("endpoint", otlp->url), KS_TEXT("error", reason),
               KS_INT("times", times));
}

static void send_batch(ks_otlp *otlp, int count)
{
    ks_text text;
    ks_error error = {.status = KS_MEMORY, .text = "no memory for the document"};
    ks_text_init(&text, DOCUMENT_MAX);
    ks_otlp_text(&otlp->resource, otlp->batch, count, ks_wall_ns() - ks_now_ns(), &text);
    const bool sent =
        !text.broken && ks_otlp_send(otlp->sender, text.bytes, text.length, otlp->timeout_ms, &error) == KS_OK;
    ks_text_fini(&text);
    atomic_fetch_add_explicit(sent ? &otlp->exported : &otlp->failed, (uint64_t)count, memory_order_relaxed);
    if (!sent) say_failure(otlp, error.text);
}

/* All that is there now. A batch that fails is not sent again: what comes meanwhile is worth more. */
static void send_all(ks_otlp *otlp)
{
    for (int count = BATCH; count == BATCH;) {
        uint64_t lost = 0;
        count = ks_spans_take(otlp->spans, otlp->batch, BATCH, &lost);
        atomic_fetch_add_explicit(&otlp->lost, lost, memory_order_relaxed);
        if (count > 0) send_batch(otlp, count);
    }
}

static bool wait_for_turn(ks_otlp *otlp)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += TURN_MS * 1000000L;
    at.tv_sec += at.tv_nsec / 1000000000L;
    at.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&otlp->mutex);
    int code = 0;
    while (!otlp->stop && code == 0) code = pthread_cond_timedwait(&otlp->wake, &otlp->mutex, &at);
    const bool goes_on = !otlp->stop;
    pthread_mutex_unlock(&otlp->mutex);
    return goes_on;
}

static void *export(void *argument)
{
    ks_otlp *otlp = argument;
    pthread_setname_np(pthread_self(), "kernserve-otlp");
    while (wait_for_turn(otlp)) send_all(otlp);
    send_all(otlp);
    return NULL;
}

/* --- open and close -------------------------------------------------------------------------------------------------- */

static void free_otlp(ks_otlp **otlp)
{
    ks_otlp_sender_close(&(*otlp)->sender);
    ks_spans_close(&(*otlp)->spans);
    pthread_cond_destroy(&(*otlp)->wake);
    pthread_mutex_destroy(&(*otlp)->mutex);
    free(*otlp);
    *otlp = NULL;
}

static bool init_condition(ks_otlp *otlp)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0) return false;
    const bool good = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
                      pthread_cond_init(&otlp->wake, &attributes) == 0 && pthread_mutex_init(&otlp->mutex, NULL) == 0;
    pthread_condattr_destroy(&attributes);
    return good;
}

ks_status ks_otlp_open(int writers, ks_otlp **out, ks_error *error)
{
    char url[URL_MAX];
    long timeout_ms;
    const char *service = variable("OTEL_SERVICE_NAME"), *attributes = variable("OTEL_RESOURCE_ATTRIBUTES"),
               *headers = variable("OTEL_EXPORTER_OTLP_HEADERS");
    *out = NULL;
    ks_status status = read_url(url, error);
    if (status != KS_OK || !*url) return status;
    status = read_timeout(&timeout_ms, error);
    if (status == KS_OK) status = check_protocol(error);
    if (status != KS_OK) return status;
    warn_of_others();
    ks_otlp *otlp = calloc(1, sizeof *otlp);
    if (!otlp || !init_condition(otlp)) {
        free(otlp);
        return ks_fail(error, KS_MEMORY, "no memory for the exporter of spans");
    }
    memcpy(otlp->url, url, sizeof url);
    otlp->timeout_ms = timeout_ms;
    otlp->resource =
        (ks_otlp_resource){.service = service ? service : "kernserve", .attributes = attributes ? attributes : ""};
    otlp->spans = ks_spans_open(writers);
    status = otlp->spans ? ks_otlp_sender_open(url, headers ? headers : "", &otlp->sender, error)
                         : ks_fail(error, KS_MEMORY, "no memory for spans");
    if (status == KS_OK && pthread_create(&otlp->thread, NULL, export, otlp) != 0)
        status = ks_fail(error, KS_SYSTEM, "cannot start the exporter's thread");
    if (status != KS_OK) free_otlp(&otlp);
    *out = otlp;
    return status;
}

void ks_otlp_close(ks_otlp **otlp)
{
    if (!*otlp) return;
    ks_otlp_sender_cut((*otlp)->sender, ks_now_ns() + LAST_MS * 1000000LL);
    pthread_mutex_lock(&(*otlp)->mutex);
    (*otlp)->stop = true;
    pthread_cond_signal(&(*otlp)->wake);
    pthread_mutex_unlock(&(*otlp)->mutex);
    pthread_join((*otlp)->thread, NULL);
    free_otlp(otlp);
}

ks_span_ring *ks_otlp_writer(ks_otlp *otlp, int index)
{
    return ks_spans_writer(otlp->spans, index);
}

ks_otlp_counts ks_otlp_read_counts(const ks_otlp *otlp)
{
    if (!otlp) return (ks_otlp_counts){0};
    return (ks_otlp_counts){.exported = atomic_load_explicit(&otlp->exported, memory_order_relaxed),
                            .lost = atomic_load_explicit(&otlp->lost, memory_order_relaxed),
                            .failed = atomic_load_explicit(&otlp->failed, memory_order_relaxed)};
}
