/* --plans: /v2/plans as CSV, the columns that a terminal has room for. */
#include "daemon/client/plans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/client/client.h"
#include "daemon/listen.h"
#include "base/tokens.h"

enum { RESPONSE_MAX = 4 << 20, FIELDS_MAX = 32, SECONDS = 2 };

/* What is shown of the CSV's columns, by their names there. The first one is that of several workers alone. */
static const struct column {
    const char *name, *title;
    bool number;
} columns[] = {{"device", "device", true},
               {"op", "op", false},
               {"datatype", "type", false},
               {"shapes", "shapes", false},
               {"kernel", "kernel", false},
               {"path", "path", false},
               {"jobs", "jobs", true},
               {"busy_us", "busy us", true},
               {"us", "us", true},
               {"gbs", "GB/s", true},
               {"tflops", "TFLOP/s", true},
               {"bound", "bound", false},
               {"roofline_us", "at best", true},
               {"share", "share", true}};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

/* Cuts a line of CSV into its fields, in place; quotes go. The line's successor, or NULL. */
static char *cut_line(char *line, const char *fields[FIELDS_MAX], int *count)
{
    char *end = strstr(line, "\r\n");
    if (!end) return NULL;
    *end = 0;
    *count = 0;
    for (char *at = line; at && *count < FIELDS_MAX;) {
        const bool quoted = *at == '"';
        at += quoted;
        fields[(*count)++] = at;
        at += strcspn(at, quoted ? "\"" : ",");
        if (quoted && *at) *at++ = 0;
        if (*at)
            *at++ = 0;
        else
            at = NULL;
    }
    return end + 2;
}

/* A column's place in the CSV, by the first line; -1: not there. */
static void find_columns(const char *const names[FIELDS_MAX], int count, int place[COLUMNS])
{
    for (int c = 0; c < COLUMNS; c++) {
        place[c] = -1;
        for (int i = 0; i < count; i++)
            if (strcmp(names[i], columns[c].name) == 0) place[c] = i;
    }
}

typedef struct table {
    const char *(*cell)[COLUMNS];
    int rows, width[COLUMNS];
    bool has_devices;
} table;

static bool read_table(char *csv, table *out)
{
    const char *fields[FIELDS_MAX];
    int place[COLUMNS], count, room = 0;
    char *line = cut_line(csv, fields, &count);
    if (!line) return false;
    find_columns(fields, count, place);
    out->has_devices = place[0] >= 0;
    for (int c = 0; c < COLUMNS; c++) out->width[c] = (int)strlen(columns[c].title);
    while ((line = cut_line(line, fields, &count))) {
        if (out->rows == room) {
            room = room ? 2 * room : 64;
            void *grown = realloc(out->cell, (size_t)room * sizeof *out->cell);
            if (!grown) return false;
            out->cell = grown;
        }
        for (int c = 0; c < COLUMNS; c++) {
            const char *text = place[c] >= 0 && place[c] < count && *fields[place[c]] ? fields[place[c]] : "-";
            out->cell[out->rows][c] = text;
            if ((int)strlen(text) > out->width[c]) out->width[c] = (int)strlen(text);
        }
        out->rows++;
    }
    return true;
}

static void print_row(const table *rows, const char *const cell[COLUMNS])
{
    for (int c = rows->has_devices ? 0 : 1; c < COLUMNS; c++) {
        const int width = columns[c].number ? rows->width[c] : -rows->width[c];
        printf(c + 1 < COLUMNS ? "%*s  " : "%*s\n", width, cell[c]);
    }
}

static int print(char *response)
{
    table rows = {0};
    const char *titles[COLUMNS];
    char *body = strstr(response, "\r\n\r\n");
    const bool read = body && read_table(body + 4, &rows);
    if (read) {
        for (int c = 0; c < COLUMNS; c++) titles[c] = columns[c].title;
        print_row(&rows, titles);
        for (int i = 0; i < rows.rows; i++) print_row(&rows, rows.cell[i]);
    } else {
        fprintf(stderr, "kernserve: the response is no table\n");
    }
    free(rows.cell);
    return read ? KS_EXIT_OK : KS_EXIT_SYSTEM;
}

static int ask(const ks_config *config, const char *token, char *text)
{
    ks_client_url url = {.host = "localhost", .path = "/v2/plans"};
    if (config->url && !ks_client_cut(config->url, "/v2/plans", &url)) return KS_EXIT_USAGE;
    const int fd = config->url             ? ks_client_connect(&url)
                   : *config->admin_listen ? ks_listen_connect(config->admin_listen, SECONDS)
                                           : -1;
    if (fd < 0) {
        if (!config->url) fprintf(stderr, "kernserve: nothing listens on '%s' (admin-listen)\n", config->admin_listen);
        return KS_EXIT_SYSTEM;
    }
    const ks_client_request request = {.host = url.host, .path = url.path, .accept = "text/csv", .token = token};
    const int status = ks_client_ask(fd, &request, text, RESPONSE_MAX);
    if (status == 200) return print(text);
    const char *body = strstr(text, "\r\n\r\n");
    fprintf(stderr, "kernserve: status %d: %.300s\n", status, body ? body + 4 : "no answer");
    return KS_EXIT_SYSTEM;
}

/* The first token of the file is sent, where there is one: the daemon wants it for this route. */
int ks_command_plans(const ks_config *config)
{
    ks_error error = {0};
    ks_tokens *tokens = NULL;
    char token[1024];
    if (*config->token_file) {
        const int code = ks_tokens_read(config->token_file, &tokens, &error);
        if (code != KS_EXIT_OK) {
            fprintf(stderr, "kernserve: %s\n", error.text);
            return code;
        }
        snprintf(token, sizeof token, "%.*s", (int)tokens->item[0].length, tokens->item[0].text);
    }
    char *text = malloc(RESPONSE_MAX);
    const int code = text ? ask(config, tokens ? token : NULL, text) : KS_EXIT_SYSTEM;
    if (!text) fprintf(stderr, "kernserve: out of memory\n");
    free(text);
    if (tokens) {
        explicit_bzero(token, sizeof token);
        ks_tokens_release(&tokens);
    }
    return code;
}
