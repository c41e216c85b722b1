/* A weight that is uploaded once and used by its name, with libcurl: cc tensor.c -lcurl && ./a.out [URL] */
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

static float y[2];
static size_t got;

static size_t drop(char *bytes, size_t size, size_t n, void *unused)
{
    (void)bytes, (void)unused;
    return size * n;
}

static size_t take(char *bytes, size_t size, size_t n, void *unused)
{
    (void)unused;
    if (size * n > sizeof y - got) return 0;
    memcpy((char *)y + got, bytes, size * n);
    got += size * n;
    return size * n;
}

static int ask(CURL *curl, const char *method, const char *host, const char *target, const float *body, long bytes)
{
    char url[512];
    snprintf(url, sizeof url, "%s%s", host, target);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, bytes);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, (const char *)body);
    return curl_easy_perform(curl) != CURLE_OK;
}

int main(int argc, char **argv)
{
    static const float w[4] = {1, 2, 3, 4}, x[2] = {5, 6};
    const char *host = argc > 1 ? argv[1] : "http://localhost:8000";
    struct curl_header *timing;
    CURL *curl = curl_easy_init(); /* one handle: one kept connection */
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
    if (ask(curl, "PUT", host, "/v2/tensors/W?shape=2,2&datatype=FP32&ttl=600", w, sizeof w)) return 1;
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    if (ask(curl, "POST", host, "/v2/models/matmul/infer?shape=1,2&datatype=FP32&INPUT1=@W", x, sizeof x)) return 1;
    if (curl_easy_header(curl, "Server-Timing", 0, CURLH_HEADER, -1, &timing) != CURLHE_OK) return 1;
    printf("[%g, %g]\n%s\n", y[0], y[1], timing->value);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
    if (ask(curl, "DELETE", host, "/v2/tensors/W", x, 0)) return 1;
    curl_easy_cleanup(curl);
    return 0;
}
