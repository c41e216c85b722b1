/* Interface  responses.h. */
#include "sim/responses.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/sim.h"

static const char *field(const char *head, const char *end, const char *name)
{
    const size_t length = strlen(name);
    for (const char *line = head; line && line < end; line = memmem(line, (size_t)(end - line), "\r\n", 2)) {
        if (line != head) line += 2;
        if ((size_t)(end - line) > length && strncasecmp(line, name, length) == 0) {
            line += length;
            while (*line == ' ') line++;
            return line;
        }
    }
    return NULL;
}

bool sim_response_read(const char *bytes, size_t n, sim_response *out)
{
    static const char version[] = "HTTP/1.1 ";
    const size_t most = sizeof version - 1;
    sim_check(memcmp(bytes, version, n < most ? n : most) == 0, "what comes is no response", (int64_t)n, 0);
    const char *end = memmem(bytes, n, "\r\n\r\n", 4);
    if (!end) return false;
    const char *length = field(bytes, end, "content-length:"), *connection = field(bytes, end, "connection:");
    *out = (sim_response){.status = atoi(bytes + most), .body = end + 4};
    out->closes = connection && strncasecmp(connection, "close", 5) == 0;
    if (out->status >= 200 && out->status != 204) {
        sim_check(length != NULL, "a response without a length", out->status, 0);
        out->length = strtoul(length, NULL, 10);
    }
    out->size = (size_t)(out->body - bytes) + out->length;
    return out->size <= n;
}

static void check_numbers(const sim_response *response, const sim_request *request)
{
    static const char before[] = "\"data\":[";
    const char *at = memmem(response->body, response->length, before, sizeof before - 1);
    const char *const end = response->body + response->length;
    sim_check(at != NULL, "a JSON response without data", (int64_t)response->length, 0);
    at += sizeof before - 1;
    for (size_t i = 0; i < request->count; i++) {
        char text[32];
        size_t n = 0;
        while (at < end && n + 1 < sizeof text && (isdigit((unsigned char)*at) || strchr("+-.eE", *at)))
            text[n++] = *at++;
        text[n] = '\0';
        sim_check(n > 0 && strtof(text, NULL) == request->values[i], "a number of a response is wrong", (int64_t)i, 0);
        sim_check(at < end && *at == (i + 1 < request->count ? ',' : ']'), "numbers are missing, or too many",
                  (int64_t)i, 0);
        at++;
    }
}

void sim_response_check_body(const sim_response *response, const sim_request *request)
{
    const size_t bytes = request->count * sizeof(float);
    if (request->body == SIM_BODY_NUMBERS) check_numbers(response, request);
    if (request->body != SIM_BODY_BYTES && request->body != SIM_BODY_TAIL) return;
    const bool right = request->body == SIM_BODY_BYTES ? response->length == bytes : response->length > bytes;
    sim_check(right, "a response has another length", (int64_t)response->length, (int64_t)bytes);
    const char *tail = response->body + response->length - bytes;
    for (size_t i = 0; i < request->count; i++) {
        float value;
        memcpy(&value, tail + i * sizeof value, sizeof value);
        sim_check(value == request->values[i], "a value of a response is wrong", (int64_t)i,
                  (int64_t)request->values[i]);
    }
}
