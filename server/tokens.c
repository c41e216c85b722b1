#include "tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

enum { FILE_MAX = 65536, TOKENS_MAX = 256 };

/* The file's bytes behind room for the table; *n: how many. NULL: error and *code are set. */
static char *read_bytes(const char *file, size_t *n, int *code, ks_error *error)
{
    const int fd = open(file, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) {
        *code = errno == EACCES || errno == EPERM ? KS_EXIT_PERMISSION : KS_EXIT_NO_FILE;
        ks_fail(error, KS_CONFIG, "token-file: %.120s: %s", file, strerror(errno));
        if (fd >= 0) close(fd);
        return NULL;
    }
    char *bytes = NULL;
    if ((about.st_mode & 077) != 0) {
        *code = KS_EXIT_PERMISSION;
        ks_fail(error, KS_CONFIG, "token-file: %.120s has mode %04o, must be 0600: others may read it", file,
                (unsigned)(about.st_mode & 07777));
    } else if (!S_ISREG(about.st_mode) || about.st_size > FILE_MAX) {
        *code = KS_EXIT_CONFIG;
        ks_fail(error, KS_CONFIG, "token-file: %.120s is not a file of at most %d bytes", file, FILE_MAX);
    } else if (!(bytes = calloc(1, (TOKENS_MAX + 1) * sizeof(char *) + FILE_MAX + 1))) {
        *code = KS_EXIT_SYSTEM;
        ks_fail(error, KS_MEMORY, "token-file: out of memory");
    } else {
        char *at = bytes + (TOKENS_MAX + 1) * sizeof(char *);
        ssize_t got;
        *n = 0;
        while (*n < FILE_MAX && (got = read(fd, at + *n, FILE_MAX - *n)) > 0) *n += (size_t)got;
    }
    close(fd);
    return bytes;
}

/* A zero byte ends no line: it would make two shorter secrets of one. */
static size_t line_length(const char *at, const char *end)
{
    const char *p = at;
    while (p < end && *p != '\r' && *p != '\n') p++;
    return (size_t)(p - at);
}

int ks_tokens_read(const char *file, const char *const **out, ks_error *error)
{
    int code = KS_EXIT_OK;
    size_t n = 0;
    char *bytes = read_bytes(file, &n, &code, error);
    if (!bytes) return code;
    const char **table = (const char **)bytes;
    char *at = bytes + (TOKENS_MAX + 1) * sizeof(char *);
    int count = 0;
    for (char *end = at + n; at < end;) {
        const size_t length = line_length(at, end);
        char *line = at;
        at += length + 1;
        line[length] = 0; /* there is room for it behind the last byte read */
        if (length == 0 || line[0] == '#') continue;
        bool visible = true;
        for (size_t i = 0; i < length; i++) visible = visible && line[i] > 0x20 && line[i] < 0x7f;
        if (!visible || count == TOKENS_MAX) {
            free(bytes);
            ks_fail(error, KS_CONFIG, "token-file: %.120s: %s", file,
                    visible ? "too many tokens, 256 are taken" : "a token is one line of visible ASCII");
            return KS_EXIT_CONFIG;
        }
        table[count++] = line;
    }
    if (count == 0) {
        free(bytes);
        ks_fail(error, KS_CONFIG, "token-file: %.120s holds no token", file);
        return KS_EXIT_CONFIG;
    }
    *out = table;
    return KS_EXIT_OK;
}
