/* Names that are no option's: what is said of them. Three origins ask: the command line, the file, the environment. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config/table.h"
#include "base/text.h"

/* --- the nearest ----------------------------------------------------------------------------------------------------
 */

typedef struct name_search {
    const char *name;
    size_t length;
    const char *nearest; /* or the only one that begins so; NULL: none yet */
    int distance;
    int begin; /* names that begin so */
} name_search;

static void look_at(name_search *search, const char *other)
{
    if (strncmp(search->name, other, search->length) == 0) {
        if (search->begin++ == 0) search->nearest = other;
        return;
    }
    const int distance = ks_name_distance(search->name, search->length, other);
    if (search->begin > 0 || distance >= search->distance) return;
    search->distance = distance;
    search->nearest = other;
}

/* A unique prefix goes before a small distance; NULL: nothing is near. */
static const char *find_nearest(const char *name, size_t length, bool with_commands)
{
    name_search search = {.name = name, .length = length, .distance = KS_NAME_FAR};
    for (int i = 0; i < KS_OPTIONS; i++) look_at(&search, ks_options[i].name);
    for (int i = 0; i < KS_COMMANDS && with_commands; i++) look_at(&search, ks_commands[i].name);
    if (search.begin > 0) return search.begin == 1 ? search.nearest : NULL;
    return ks_name_is_near(length, search.distance) ? search.nearest : NULL;
}

/* --- options of other servers ----------------------------------------------------------------------------------------
 */

/* says: behind "unknown option --port"; a port takes the value that was given. */
static const struct {
    const char *name, *says;
    bool port;
} foreign[] = {
    {"port", "; here it is --listen 127.0.0.1:", true},
    {"p", "; here it is --listen 127.0.0.1:", true},
    {"http-port", "; here it is --listen 127.0.0.1:", true},
    {"metrics-port", "; here it is --admin-listen 127.0.0.1:", true},
    {"grpc-port", "; this server speaks HTTP only", false},
    {"model-store", "; here it is --model-repository", false},
    {"http-thread-count", "; here it is --threads", false},
    {"log-verbose", "; here it is --log-level debug", false},
    {"plans", "; here it is --max-plans", false}, /* our own old name, in files and the environment */
    {"exit-timeout-secs", "; here it is --shutdown-timeout", false},
    {"trace-config", "; see GET /v2/trace", false},
    {"build-info", "; here it is --version", false},
};

static bool is_named(const char *name, size_t length, const char *other)
{
    return strlen(other) == length && memcmp(name, other, length) == 0;
}

/* Digits and dots, or anything with a colon. */
static bool is_address(const char *text)
{
    return *text && (strchr(text, ':') || strspn(text, "0123456789.") == strlen(text));
}

static bool hint_foreign(const char *name, size_t length, const char *value, char out[KS_HINT_MAX])
{
    if (is_named(name, length, "host")) {
        const bool v6 = value && strchr(value, ':') && value[0] != '[';
        if (value && is_address(value))
            snprintf(out, KS_HINT_MAX, "; here it is --listen %s%.64s%s:8000", v6 ? "[" : "", value, v6 ? "]" : "");
        else
            snprintf(out, KS_HINT_MAX, "; here it is --accept-host%s%.64s", value ? " " : "", value ? value : "");
        return true;
    }
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        if (!is_named(name, length, foreign[i].name)) continue;
        const char *port = value && *value ? value : "PORT";
        snprintf(out, KS_HINT_MAX, "%s%.16s", foreign[i].says, foreign[i].port ? port : "");
        return true;
    }
    return false;
}

void ks_hint_option(const char *name, size_t length, const char *value, char out[KS_HINT_MAX])
{
    if (hint_foreign(name, length, value, out)) return;
    const char *nearest = find_nearest(name, length, true);
    const char *no = "";
    if (!nearest && length > 3 && memcmp(name, "no-", 3) == 0) {
        nearest = find_nearest(name + 3, length - 3, false);
        const ks_option *option = nearest ? ks_option_find(nearest, strlen(nearest)) : NULL;
        if (option && option->kind == KS_OPTION_FLAG) no = "no-";
    }
    if (nearest)
        snprintf(out, KS_HINT_MAX, "; the nearest is --%s%s", no, nearest);
    else
        snprintf(out, KS_HINT_MAX, "; see --help");
}

void ks_hint_key(const char *name, char out[KS_HINT_MAX])
{
    if (hint_foreign(name, strlen(name), NULL, out)) return;
    const char *nearest = find_nearest(name, strlen(name), false);
    if (nearest)
        snprintf(out, KS_HINT_MAX, "; the nearest is %s", nearest);
    else
        snprintf(out, KS_HINT_MAX, "; see --dump-config");
}

/* --- the environment -------------------------------------------------------------------------------------------------
 */

/* Kubernetes describes each Service so to every pod beside it: of one named kernserve, or kernserve-something. */
static bool is_of_kubernetes(const char *name, const char *value)
{
    const size_t length = strlen(name);
    if (strncmp(name, "PORT", 4) == 0 || strncmp(name, "SERVICE_", 8) == 0) return true;
    if (strstr(name, "_SERVICE_HOST") || strstr(name, "_SERVICE_PORT") || strstr(name, "_PORT_")) return true;
    return length > 5 && strcmp(name + length - 5, "_PORT") == 0 && strstr(value, "://");
}

/* text: NAME=VALUE of the environment. */
static bool is_unknown(const char *text, char name[KS_VARIABLE_NAME_MAX], char option_name[KS_VARIABLE_NAME_MAX])
{
    static const char begin[] = KS_VARIABLE_PREFIX;
    const size_t prefix = sizeof begin - 1, length = strcspn(text, "=");
    if (strncmp(text, begin, prefix) != 0 || length >= KS_VARIABLE_NAME_MAX) return false;
    memcpy(name, text, length);
    name[length] = 0;
    if (strcmp(name + prefix, "CONFIG") == 0 || is_of_kubernetes(name + prefix, text + length)) return false;
    if (strncmp(name + prefix, "SUPERVISOR_", 11) == 0) return false; /* what --supervise hands on */
    size_t n = 0;
    for (const char *c = name + prefix; *c; c++) option_name[n++] = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
    option_name[n] = 0;
    const ks_option *option = ks_option_find(option_name, n);
    char right[KS_VARIABLE_NAME_MAX];
    if (option) ks_option_write_variable(option, right);
    return !option || strcmp(right, name) != 0;
}

bool ks_config_next_unknown(int *at, ks_unknown_variable *out)
{
    while (environ && environ[*at]) {
        char option_name[KS_VARIABLE_NAME_MAX];
        if (!is_unknown(environ[(*at)++], out->name, option_name)) continue;
        const char *nearest =
            strcmp(option_name, "host") == 0 ? "accept-host" : find_nearest(option_name, strlen(option_name), false);
        out->nearest[0] = 0;
        if (nearest) ks_option_write_variable(ks_option_find(nearest, strlen(nearest)), out->nearest);
        return true;
    }
    return false;
}
