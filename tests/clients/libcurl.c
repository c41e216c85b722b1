/* softmax with libcurl, bytes in and out: cc libcurl.c -lcurl && ./a.out [URL] */
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

static float y[4];
static size_t got;

static size_t take(char *bytes, size_t size, size_t n, void *unused)
{
    (void)unused;
    if (size * n > sizeof y - got) return 0;
    memcpy((char *)y + got, bytes, size * n);
    got += size * n;
    return size * n;
}

int main(int argc, char **argv)
{
    static const float x[4] = {1, 2, 3, 4};
    const char *host = argc > 1 ? argv[1] : "http://localhost:8000";
    char url[512];
    struct curl_header *timing;
    snprintf(url, sizeof url, "%s/v2/models/softmax/infer?shape=1,4&datatype=FP32", host);
    CURL *curl = curl_easy_init();
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)sizeof x);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, (const char *)x);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    if (curl_easy_perform(curl) != CURLE_OK) return 1;
    if (curl_easy_header(curl, "Server-Timing", 0, CURLH_HEADER, -1, &timing) != CURLHE_OK) return 1;
    printf("[%g, %g, %g, %g]\n%s\n", y[0], y[1], y[2], y[3], timing->value);
    curl_easy_cleanup(curl);
    return 0;
}
