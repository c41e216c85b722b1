#include "engine/tune/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/tune/entry.h"

enum { FILE_MAX = 16 << 20, CONTEXT_MAX = 512 };
static const char first_line[] = "kernserve tuned choices 1\n";

typedef struct entry {
    char *key;
    ks_tuned tuned;
} entry;

struct ks_tunes {
    /* fixed after open: */
    char *path; /* "": none */
    char context[CONTEXT_MAX];
    /* under lock: */
    pthread_mutex_t lock;
    entry *entries;
    int count, cap;
    bool claimed;
    /* any thread, atomic: */
    _Atomic uint64_t generation;
    /* main's thread: */
    uint64_t saved;
};

/* --- the table ------------------------------------------------------------------------------------------------------ */

/* With lock. NULL: none. */
static entry *entry_of(ks_tunes *tunes, const char *key)
{
    for (int i = 0; i < tunes->count; i++)
        if (strcmp(tunes->entries[i].key, key) == 0) return &tunes->entries[i];
    return NULL;
}

/* With lock. The key becomes the table's. */
static ks_status set_entry_take(ks_tunes *tunes, char *key, const ks_tuned *tuned, ks_error *error)
{
    entry *old = entry_of(tunes, key);
    if (old) {
        free(key);
        old->tuned = *tuned;
        return KS_OK;
    }
    if (tunes->count == tunes->cap && tunes->cap < KS_TUNES_MAX) {
        const int cap = tunes->cap ? 2 * tunes->cap : 64;
        entry *more = realloc(tunes->entries, (size_t)cap * sizeof *more);
        if (more) {
            tunes->entries = more;
            tunes->cap = cap;
        }
    }
    if (tunes->count == tunes->cap) {
        free(key);
        return ks_fail(error, KS_MEMORY, "no room for one more tuned plan beside %d", tunes->count);
    }
    tunes->entries[tunes->count++] = (entry){.key = key, .tuned = *tuned};
    return KS_OK;
}

bool ks_tunes_find(ks_tunes *tunes, const ks_spec *spec, ks_tuned *out)
{
    char *key = ks_tune_key(spec);
    if (!key) return false;
    pthread_mutex_lock(&tunes->lock);
    const entry *found = entry_of(tunes, key);
    if (found) *out = found->tuned;
    pthread_mutex_unlock(&tunes->lock);
    free(key);
    return found != NULL;
}

ks_status ks_tunes_keep(ks_tunes *tunes, const ks_spec *spec, const ks_tuned *tuned, ks_error *error)
{
    char *key = ks_tune_key(spec);
    if (!key) return ks_fail(error, KS_MEMORY, "no memory for the key of a tuned plan");
    pthread_mutex_lock(&tunes->lock);
    const ks_status status = set_entry_take(tunes, key, tuned, error);
    pthread_mutex_unlock(&tunes->lock);
    if (status == KS_OK) atomic_fetch_add(&tunes->generation, 1);
    return status;
}

uint64_t ks_tunes_generation(const ks_tunes *tunes)
{
    return atomic_load(&tunes->generation);
}

bool ks_tunes_claim(ks_tunes *tunes)
{
    pthread_mutex_lock(&tunes->lock);
    const bool claimed = !tunes->claimed;
    tunes->claimed = true;
    pthread_mutex_unlock(&tunes->lock);
    return claimed;
}

void ks_tunes_release(ks_tunes *tunes)
{
    pthread_mutex_lock(&tunes->lock);
    tunes->claimed = false;
    pthread_mutex_unlock(&tunes->lock);
}

/* --- the file ------------------------------------------------------------------------------------------------------- */

typedef enum file_state { FILE_ABSENT, FILE_GOOD, FILE_DAMAGED, FILE_FOREIGN, FILE_UNREADABLE } file_state;

/* All of it, terminated; free() it. */
static char *read_whole(int fd, size_t bytes)
{
    char *text = malloc(bytes + 1);
    size_t got = 0;
    ssize_t more = 1;
    while (text && got < bytes && more > 0) {
        more = read(fd, text + got, bytes - got);
        if (more < 0 && errno == EINTR)
            more = 1;
        else if (more > 0)
            got += (size_t)more;
    }
    if (text) text[got] = 0;
    return text;
}

/* Also what is no plain file, or far too large: nothing of ours. *out: to be freed, where the file is good or damaged.
 */
static file_state read_file(const char *path, char **out)
{
    struct stat is;
    *out = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT ? FILE_ABSENT : FILE_UNREADABLE;
    if (fstat(fd, &is) != 0 || !S_ISREG(is.st_mode) || is.st_size > FILE_MAX) {
        close(fd);
        return FILE_FOREIGN;
    }
    char *text = read_whole(fd, (size_t)is.st_size);
    close(fd);
    if (!text) return FILE_UNREADABLE;
    if (strncmp(text, first_line, strlen(first_line)) != 0) {
        const bool empty = !*text && is.st_size == 0; /* as mktemp makes one */
        free(text);
        return empty ? FILE_ABSENT : FILE_FOREIGN;
    }
    *out = text;
    return strlen(text) == (size_t)is.st_size ? FILE_GOOD : FILE_DAMAGED;
}

/* One line after the other, cut. false: a damaged one; *line says which. *done: behind the last. */
static bool next_line(char **at, int *line, ks_tune_entry *fields, char *copy, bool *done)
{
    *done = !**at;
    if (*done) return true;
    ++*line;
    const size_t length = strcspn(*at, "\n");
    if ((*at)[length] != '\n' || length >= KS_TUNE_ENTRY_MAX) return false;
    memcpy(copy, *at, length);
    copy[length] = 0;
    *at += length + 1;
    return ks_tune_entry_cut(copy, fields);
}

typedef void line_fn(void *user, const ks_tune_entry *fields, const char *line, size_t length);

/* Calls back for each line behind the first. false: one is damaged. */
static bool walk_lines(char *text, line_fn *each, void *user, int *line)
{
    char copy[KS_TUNE_ENTRY_MAX];
    ks_tune_entry fields;
    bool done;
    char *at = text + strlen(first_line);
    for (*line = 1;;) {
        const char *begin = at;
        if (!next_line(&at, line, &fields, copy, &done)) return false;
        if (done) return true;
        each(user, &fields, begin, (size_t)(at - begin));
    }
}

/* line_fn */
static void take_line(void *user, const ks_tune_entry *fields, const char *line, size_t length)
{
    (void)line, (void)length;
    ks_tunes *tunes = user;
    ks_tuned tuned;
    ks_error ignored;
    if (strcmp(fields->context, tunes->context) != 0 || !ks_tune_entry_read(fields, &tuned)) return;
    char *key = strdup(fields->key);
    if (key) (void)set_entry_take(tunes, key, &tuned, &ignored);
}

/* line_fn: damaged lines are found before a single one is believed. */
static void skip_line(void *user, const ks_tune_entry *fields, const char *line, size_t length)
{
    (void)user, (void)fields, (void)line, (void)length;
}

static void load(ks_tunes *tunes)
{
    char *text;
    int line = 0;
    char where[64] = "no file of tuned choices";
    file_state state = read_file(tunes->path, &text);
    if (state == FILE_DAMAGED) {
        snprintf(where, sizeof where, "it is cut, or not all text");
    } else if (state == FILE_GOOD && !walk_lines(text, skip_line, NULL, &line)) {
        state = FILE_DAMAGED;
        snprintf(where, sizeof where, "line %d is damaged", line);
    } else if (state == FILE_GOOD) {
        walk_lines(text, take_line, tunes, &line);
    } else if (state == FILE_UNREADABLE) {
        snprintf(where, sizeof where, "%s", strerror(errno));
    }
    free(text);
    if (state != FILE_GOOD && state != FILE_ABSENT)
        KS_LOG(KS_LOG_WARN, "the tune cache is ignored", KS_TEXT("file", tunes->path), KS_TEXT("reason", where));
}

ks_status ks_tunes_open(const char *path, const char *context, ks_tunes **out, ks_error *error)
{
    ks_tunes *tunes = calloc(1, sizeof *tunes);
    char *copy = strdup(path);
    if (!tunes || !copy) {
        free(tunes);
        free(copy);
        return ks_fail(error, KS_MEMORY, "no memory for the tuned choices");
    }
    tunes->path = copy;
    snprintf(tunes->context, sizeof tunes->context, "%s", context);
    for (char *c = tunes->context; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    pthread_mutex_init(&tunes->lock, NULL);
    if (*path) load(tunes);
    *out = tunes;
    return KS_OK;
}

void ks_tunes_close(ks_tunes **tunes)
{
    ks_tunes *closing = *tunes;
    if (!closing) return;
    *tunes = NULL;
    for (int i = 0; i < closing->count; i++) free(closing->entries[i].key);
    free(closing->entries);
    pthread_mutex_destroy(&closing->lock);
    free(closing->path);
    free(closing);
}

/* --- saving --------------------------------------------------------------------------------------------------------- */

typedef struct merge {
    ks_tunes *tunes;
    ks_text text;
} merge;

/* line_fn: what others found stays; what is ours is written from the table. */
static void keep_line(void *user, const ks_tune_entry *fields, const char *line, size_t length)
{
    merge *merged = user;
    const bool ours = strcmp(fields->context, merged->tunes->context) == 0 && entry_of(merged->tunes, fields->key);
    if (!ours) ks_text_add(&merged->text, line, length);
}

/* The new content. */
static ks_status merge_file(ks_tunes *tunes, ks_text *out, ks_error *error)
{
    char *text;
    int line;
    const file_state state = read_file(tunes->path, &text);
    if (state == FILE_FOREIGN) return ks_fail(error, KS_SYSTEM, "it is no file of tuned choices");
    if (state == FILE_UNREADABLE) return ks_fail(error, KS_SYSTEM, "%s", strerror(errno));
    const bool good = state == FILE_GOOD && walk_lines(text, skip_line, NULL, &line);
    merge merged = {.tunes = tunes};
    ks_text_init(&merged.text, FILE_MAX);
    ks_text_puts(&merged.text, first_line);
    pthread_mutex_lock(&tunes->lock);
    if (good) walk_lines(text, keep_line, &merged, &line);
    for (int i = 0; i < tunes->count; i++)
        ks_tune_entry_put(&merged.text, tunes->context, tunes->entries[i].key, &tunes->entries[i].tuned);
    pthread_mutex_unlock(&tunes->lock);
    free(text);
    *out = merged.text;
    return out->broken ? ks_fail(error, KS_SYSTEM, "more than %d bytes", FILE_MAX) : KS_OK;
}

static bool write_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        const ssize_t wrote = write(fd, bytes, length);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        bytes += wrote;
        length -= (size_t)wrote;
    }
    return true;
}

/* A reader meanwhile sees the old file or the new one. */
static ks_status replace_file(const char *path, const ks_text *text, ks_error *error)
{
    char beside[PATH_MAX];
    if (snprintf(beside, sizeof beside, "%s.XXXXXX", path) >= (int)sizeof beside)
        return ks_fail(error, KS_SYSTEM, "the name is too long");
    const int fd = mkostemp(beside, O_CLOEXEC);
    if (fd < 0) return ks_fail(error, KS_SYSTEM, "%s", strerror(errno));
    const bool written = write_all(fd, text->bytes, text->length) && fchmod(fd, 0644) == 0;
    const int why = errno;
    const bool closed = close(fd) == 0;
    if (written && closed && rename(beside, path) == 0) return KS_OK;
    const int code = written ? errno : why;
    unlink(beside);
    return ks_fail(error, KS_SYSTEM, "%s", strerror(code));
}

/* -1: without a lock; a file system that knows none is no reason to lose what was found. false: another has it. */
static bool lock_folder(const char *path, int64_t wait_ns, int *fd)
{
    char copy[PATH_MAX];
    const int64_t until_ns = ks_now_ns() + wait_ns;
    snprintf(copy, sizeof copy, "%s", path);
    *fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (*fd >= 0 && flock(*fd, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
        if (ks_now_ns() >= until_ns) {
            close(*fd);
            return false;
        }
        usleep(5000);
    }
    return true;
}

ks_status ks_tunes_save(ks_tunes *tunes, int64_t wait_ns, ks_error *error)
{
    const uint64_t generation = ks_tunes_generation(tunes);
    int folder;
    if (!*tunes->path || generation == tunes->saved || !lock_folder(tunes->path, wait_ns, &folder)) return KS_OK;
    tunes->saved = generation;
    ks_text text = {0};
    ks_status status = merge_file(tunes, &text, error);
    if (status == KS_OK) status = replace_file(tunes->path, &text, error);
    ks_text_fini(&text);
    if (folder >= 0) close(folder);
    return status;
}
