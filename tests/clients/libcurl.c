/* softmax with libcurl, bytes in and out: cc libcurl.c -lcurl && ./a.out [URL] */
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

typedef struct answer {
    float values[4];
    size_t length;
} answer;

static size_t take(char *bytes, size_t size, size_t n, void *into)
{
    answer *a = into;
    if (size * n > sizeof a->values - a->length) return 0;
    memcpy((char *)a->values + a->length, bytes, size * n);
    a->length += size * n;
    return size * n;
}

int main(int argc, char **argv)
{
    const float x[4] = {1, 2, 3, 4};
    answer y = {.length = 0};
    char url[512];
    struct curl_header *timing;
    snprintf(url, sizeof url, "%s/v2/models/softmax/infer?shape=1,4&datatype=FP32", argc > 1 ? argv[1] : "http://localhost:8000");
    CURL *curl = curl_easy_init();
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)sizeof x);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, (const char *)x);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &y);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    if (curl_easy_perform(curl) != CURLE_OK || curl_easy_header(curl, "Server-Timing", 0, CURLH_HEADER, -1, &timing) != CURLHE_OK) return 1;
    printf("[%g, %g, %g, %g]\n%s\n", y.values[0], y.values[1], y.values[2], y.values[3], timing->value);
    curl_easy_cleanup(curl);
    return 0;
}
