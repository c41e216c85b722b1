#include "daemon/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 8192, GROUP_MAX = 1024, WORDS = 48 };
enum { V1, V2, VERSIONS };

/* What both limits have in common: a controller's name, and how its files are read. */
typedef struct controller {
    const char *name; /* in /proc/self/cgroup and among a mount's options, of v1 */
    const char *files[VERSIONS][2];
    bool quota;
} controller;

static const controller memory = {
    .name = "memory",
    .files = {[V1] = {"memory.limit_in_bytes"}, [V2] = {"memory.max", "memory.high"}},
};
static const controller cores = {
    .name = "cpu", .files = {[V1] = {"cpu.cfs_quota_us"}, [V2] = {"cpu.max"}}, .quota = true};

typedef struct search {
    const char *root;
    const controller *what;
    char group[VERSIONS][GROUP_MAX]; /* "": this process has none */
    ks_cgroup_limit *out;
} search;

/* --- small files -------------------------------------------------------------------------------------------------- */

typedef struct line_reader {
    int fd;
    size_t begin, end;
    char bytes[LINE_MAX_BYTES];
} line_reader;

/* The next line, terminated, without its end; one that is longer than the buffer is left out. NULL: the end. */
static char *next_line(line_reader *in)
{
    bool whole = true;
    for (;;) {
        char *line = in->bytes + in->begin;
        char *stop = memchr(line, '\n', in->end - in->begin);
        if (stop) {
            *stop = 0;
            in->begin = (size_t)(stop - in->bytes) + 1;
            if (whole) return line;
            whole = true;
            continue;
        }
        memmove(in->bytes, line, in->end - in->begin);
        in->end -= in->begin;
        in->begin = 0;
        if (in->end == sizeof in->bytes) {
            whole = false;
            in->end = 0;
        }
        ssize_t got;
        do got = read(in->fd, in->bytes + in->end, sizeof in->bytes - in->end);
        while (got < 0 && errno == EINTR);
        if (got <= 0) return NULL;
        in->end += (size_t)got;
    }
}

static bool open_lines(const char *root, const char *file, line_reader *in)
{
    char path[PATH_MAX];
    in->begin = in->end = 0;
    if (snprintf(path, sizeof path, "%s%s", root, file) >= (int)sizeof path) return false;
    in->fd = open(path, O_RDONLY | O_CLOEXEC);
    return in->fd >= 0;
}

/* The first line of a file; false: it is not there, or empty. */
static bool read_first(const char *path, char *out, size_t cap)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t got = read(fd, out, cap - 1);
    close(fd);
    if (got <= 0) return false;
    out[got] = 0;
    out[strcspn(out, "\n")] = 0;
    return true;
}

/* Whether the word is one of a list with commas. */
static bool lists(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list;; at++) {
        const size_t n = strcspn(at, ",");
        if (n == length && memcmp(at, word, n) == 0) return true;
        at += n;
        if (!*at) return false;
    }
}

/* --- limits ------------------------------------------------------------------------------------------------------- */

static void note(search *self, uint64_t value, const char *path)
{
    if (value >= self->out->value) return;
    self->out->value = value;
    const size_t length = strlen(path), most = sizeof self->out->source - 1;
    const size_t kept = length < most ? length : most;
    memcpy(self->out->source, path + length - kept, kept + 1);
}

/* v1 keeps the period in a file of its own. */
static unsigned long long period_of(const char *folder)
{
    char path[PATH_MAX], text[64];
    if (snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder) >= (int)sizeof path ||
        !read_first(path, text, sizeof text))
        return 0;
    return strtoull(text, NULL, 10);
}

/* "max", -1 and v1's largest number are no limit. */
static void read_limit(search *self, int version, const char *folder, const char *file)
{
    char path[PATH_MAX], text[64], *end;
    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path ||
        !read_first(path, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return;
    unsigned long long value = strtoull(text, &end, 10);
    if (self->what->quota) {
        const unsigned long long period = version == V2 ? strtoull(end, NULL, 10) : period_of(folder);
        if (period == 0 || value == 0) return;
        value = value / period + (value % period > 0);
    }
    if (value < 1ull << 62) note(self, value, path);
}

/* v1 had groups whose limit does not bound those below them. */
static bool bounds_below(const char *folder, int version)
{
    char path[PATH_MAX], text[8];
    if (version == V2 || snprintf(path, sizeof path, "%s/memory.use_hierarchy", folder) >= (int)sizeof path)
        return true;
    return !read_first(path, text, sizeof text) || strcmp(text, "0") != 0;
}

/* From the process's group up to where the tree is mounted. */
static void walk_up(search *self, int version, const char *mount_point, const char *below)
{
    char folder[PATH_MAX];
    const int n = snprintf(folder, sizeof folder, "%s%s%s", self->root, mount_point, below);
    if (n >= (int)sizeof folder) return;
    const size_t top = strlen(self->root) + strlen(mount_point);
    for (size_t length = (size_t)n;;) {
        while (length > top && folder[length - 1] == '/') length--;
        folder[length] = 0;
        for (int i = 0; i < 2 && self->what->files[version][i]; i++)
            read_limit(self, version, folder, self->what->files[version][i]);
        if (length <= top) return;
        while (length > top && folder[length - 1] != '/') length--;
        folder[length > top ? length - 1 : top] = 0;
        if (!bounds_below(folder, version)) return;
    }
}

/* --- where the groups are ----------------------------------------------------------------------------------------- */

/* "4:memory:/a/b" of v1, "0::/a/b" of v2. */
static void find_groups(search *self)
{
    line_reader in;
    if (!open_lines(self->root, "/proc/self/cgroup", &in)) return;
    for (char *line; (line = next_line(&in)) != NULL;) {
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path || strlen(path + 1) >= GROUP_MAX) continue;
        *names++ = 0;
        *path++ = 0;
        if (strcmp(line, "0") == 0 && !*names) snprintf(self->group[V2], GROUP_MAX, "%s", path);
        if (lists(names, self->what->name)) snprintf(self->group[V1], GROUP_MAX, "%s", path);
    }
    close(in.fd);
}

/* mountinfo writes a blank, a tab, a line's end and a backslash as \ and three octal digits. In place. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        const bool escaped = from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' &&
                             from[3] >= '0' && from[3] <= '7';
        *to = escaped ? (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + from[3] - '0') : *from;
        from += escaped ? 4 : 1;
    }
    *to = 0;
}

/* The group's path below the mounted one; NULL: it cannot be seen there. */
static const char *path_below(const char *group, const char *mounted)
{
    const size_t length = strcmp(mounted, "/") == 0 ? 0 : strlen(mounted);
    if (strncmp(group, mounted, length) == 0 && (group[length] == '/' || !group[length])) return group + length;
    /* A mount from outside of this process's namespace begins above it. */
    return strncmp(mounted, "/..", 3) == 0 ? "" : NULL;
}

/* ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG ...] - TYPE SOURCE OPTIONS */
static void look_at_mount(search *self, char *line)
{
    char *word[WORDS], *rest = NULL;
    int count = 0, dash = 6;
    for (char *at = strtok_r(line, " ", &rest); at && count < WORDS; at = strtok_r(NULL, " ", &rest))
        word[count++] = at;
    while (dash < count && strcmp(word[dash], "-") != 0) dash++;
    if (dash + 3 >= count) return;
    const int version = strcmp(word[dash + 1], "cgroup2") == 0 ? V2 : V1;
    if (version == V1 && (strcmp(word[dash + 1], "cgroup") != 0 || !lists(word[dash + 3], self->what->name))) return;
    if (!self->group[version][0]) return;
    unescape(word[3]);
    unescape(word[4]);
    const char *below = path_below(self->group[version], word[3]);
    if (below) walk_up(self, version, word[4], below);
}

static void find_limit(const char *root, const controller *what, ks_cgroup_limit *out)
{
    search self = {.root = root, .what = what, .out = out};
    *out = (ks_cgroup_limit){.value = UINT64_MAX};
    find_groups(&self);
    line_reader in;
    if (!open_lines(root, "/proc/self/mountinfo", &in)) return;
    for (char *line; (line = next_line(&in)) != NULL;) look_at_mount(&self, line);
    close(in.fd);
}

void ks_cgroup_memory(const char *root, ks_cgroup_limit *out)
{
    find_limit(root, &memory, out);
}

void ks_cgroup_cores(const char *root, ks_cgroup_limit *out)
{
    find_limit(root, &cores, out);
}
