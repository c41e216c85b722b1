#include "observe/otlp/send.h"

#include "base/clock.h"
#include "observe/otlp/text.h"

#ifdef KS_HAVE_CURL
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Loaded when it is asked for: linked, it would bring every daemon some twenty libraries. */
#define CURL_FUNCTIONS(X)                                                                                              \
    X(CURLcode, curl_global_init, (long))                                                                              \
    X(CURL *, curl_easy_init, (void))                                                                                  \
    X(CURLcode, curl_easy_setopt, (CURL *, CURLoption, ...))                                                           \
    X(CURLcode, curl_easy_perform, (CURL *))                                                                           \
    X(CURLcode, curl_easy_getinfo, (CURL *, CURLINFO, ...))                                                            \
    X(const char *, curl_easy_strerror, (CURLcode))                                                                    \
    X(void, curl_easy_cleanup, (CURL *))                                                                               \
    X(struct curl_slist *, curl_slist_append, (struct curl_slist *, const char *))                                     \
    X(void, curl_slist_free_all, (struct curl_slist *))

typedef struct curl_library {
    void *handle;
#define X(result, name, arguments) result(*name) arguments;
    CURL_FUNCTIONS(X)
#undef X
} curl_library;

static bool load(curl_library *library)
{
    library->handle = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    bool all = library->handle != NULL;
#define X(result, name, arguments)                                                                                     \
    if (all) all = (*(void **)&library->name = dlsym(library->handle, #name)) != NULL;
    CURL_FUNCTIONS(X)
#undef X
    return all;
}

struct ks_otlp_sender {
    curl_library library;
    CURL *curl;
    struct curl_slist *fields;
    _Atomic int64_t cut_ns;
    char fault[CURL_ERROR_SIZE];
};

static size_t drop(char *bytes, size_t size, size_t count, void *context)
{
    (void)bytes;
    (void)context;
    return size * count;
}

static int is_cut(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const ks_otlp_sender *sender = context;
    (void)a, (void)b, (void)c, (void)d;
    return ks_now_ns() > sender->cut_ns;
}

static bool add_field(ks_otlp_sender *sender, const char *name, const char *value)
{
    char line[1024];
    if (snprintf(line, sizeof line, "%s: %s", name, value) >= (int)sizeof line || strpbrk(line, "\r\n")) return false;
    struct curl_slist *const longer = sender->library.curl_slist_append(sender->fields, line);
    if (longer) sender->fields = longer;
    return longer != NULL;
}

static bool add_fields(ks_otlp_sender *sender, const char *headers)
{
    char *const copy = strdup(headers), *list = copy, *key, *value;
    bool good = copy && add_field(sender, "Content-Type", "application/json") && add_field(sender, "Expect", "");
    while (good && ks_otlp_next_pair(&list, &key, &value)) good = add_field(sender, key, value);
    free(copy);
    return good;
}

static void set_options(ks_otlp_sender *sender, const char *url)
{
    CURLcode (*const set)(CURL *, CURLoption, ...) = sender->library.curl_easy_setopt;
    set(sender->curl, CURLOPT_URL, url);
    set(sender->curl, CURLOPT_HTTPHEADER, sender->fields);
    set(sender->curl, CURLOPT_POST, 1L);
    set(sender->curl, CURLOPT_NOSIGNAL, 1L); /* it is one thread among others */
    set(sender->curl, CURLOPT_WRITEFUNCTION, drop);
    set(sender->curl, CURLOPT_XFERINFOFUNCTION, is_cut);
    set(sender->curl, CURLOPT_XFERINFODATA, sender);
    set(sender->curl, CURLOPT_NOPROGRESS, 0L);
    set(sender->curl, CURLOPT_ERRORBUFFER, sender->fault);
}

ks_status ks_otlp_sender_open(const char *url, const char *headers, ks_otlp_sender **out, ks_error *error)
{
    ks_otlp_sender *sender = calloc(1, sizeof *sender);
    if (!sender) return ks_fail(error, KS_MEMORY, "no memory for the exporter of spans");
    sender->cut_ns = INT64_MAX;
    *out = sender;
    if (!load(&sender->library)) {
        ks_fail(error, KS_CONFIG,
                "OTEL_EXPORTER_OTLP_ENDPOINT: spans go out by libcurl.so.4, which cannot be loaded: %s", dlerror());
    } else if (sender->library.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
               !(sender->curl = sender->library.curl_easy_init())) {
        ks_fail(error, KS_MEMORY, "no memory for the exporter of spans");
    } else if (!add_fields(sender, headers)) {
        ks_fail(error, KS_CONFIG, "OTEL_EXPORTER_OTLP_HEADERS: a field is too long, or holds a line break");
    } else {
        set_options(sender, url);
        return KS_OK;
    }
    ks_otlp_sender_close(out);
    return error->status;
}

void ks_otlp_sender_cut(ks_otlp_sender *sender, int64_t at_ns)
{
    sender->cut_ns = at_ns;
}

/* The library stays loaded: its threads and handlers may outlive us. */
void ks_otlp_sender_close(ks_otlp_sender **sender)
{
    if (!*sender) return;
    if ((*sender)->curl) (*sender)->library.curl_easy_cleanup((*sender)->curl);
    if ((*sender)->fields) (*sender)->library.curl_slist_free_all((*sender)->fields);
    free(*sender);
    *sender = NULL;
}

ks_status ks_otlp_send(ks_otlp_sender *sender, const char *document, size_t length, long timeout_ms, ks_error *error)
{
    const curl_library *library = &sender->library;
    long http = 0;
    sender->fault[0] = '\0';
    library->curl_easy_setopt(sender->curl, CURLOPT_POSTFIELDS, document);
    library->curl_easy_setopt(sender->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length);
    library->curl_easy_setopt(sender->curl, CURLOPT_TIMEOUT_MS, timeout_ms);
    const CURLcode code = library->curl_easy_perform(sender->curl);
    if (code != CURLE_OK)
        return ks_fail(error, KS_SYSTEM, "%s", *sender->fault ? sender->fault : library->curl_easy_strerror(code));
    library->curl_easy_getinfo(sender->curl, CURLINFO_RESPONSE_CODE, &http);
    return http >= 200 && http < 300 ? KS_OK : ks_fail(error, KS_SYSTEM, "the collector answered %ld", http);
}
#else
ks_status ks_otlp_sender_open(const char *url, const char *headers, ks_otlp_sender **out, ks_error *error)
{
    (void)headers;
    *out = NULL;
    return ks_fail(error, KS_CONFIG, "this build exports no spans to %s: it was made without libcurl", url);
}

void ks_otlp_sender_cut(ks_otlp_sender *sender, int64_t at_ns)
{
    (void)sender, (void)at_ns;
}

void ks_otlp_sender_close(ks_otlp_sender **sender)
{
    *sender = NULL;
}

ks_status ks_otlp_send(ks_otlp_sender *sender, const char *document, size_t length, long timeout_ms, ks_error *error)
{
    (void)sender, (void)document, (void)length, (void)timeout_ms;
    return ks_fail(error, KS_CONFIG, "no exporter");
}
#endif
