/* Owns      one file at a time, and the contents that it becomes. Hashers read slices of it while the next ones are read from the disk.
 * Interface preload.h
 * Threads   main's, before there are shards.
 * Limits    a file's header has at most HEAD_MAX bytes; the bytes are bounded by --resident-bytes. */
#include "daemon/tensors/preload.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/notify.h"
#include "base/util.h"
#include "codec/format.h"
#include "resident/hash.h"

enum { HEAD_MAX = 4 << 20, SLICE = 4 << 20, FIRST_MAX = 64 };
static const ks_tenant operators = {.name = "", .is_operator = true};

typedef struct source {
    const ks_daemon *daemon;
    const ks_format *format;
    const char *path, *prefix; /* prefix: of the names; of an npy the whole name */
    int fd;
    uint64_t bytes, head_bytes;
    ks_file_tensors tensors;
    ks_content **contents;
    ks_put *puts;
    char (*names)[KS_TENSOR_NAME_MAX + 1];
} source;

/* --- bytes ------------------------------------------------------------------------------------------------------------------ */

static ks_status read_at(const source *file, uint64_t at, void *out, size_t n, ks_error *error)
{
    for (unsigned char *to = out; n > 0;) {
        const ssize_t got = TEMP_FAILURE_RETRY(pread(file->fd, to, n, (off_t)at));
        if (got <= 0) return ks_fail(error, KS_CONFIG, "%s", got < 0 ? strerror(errno) : "it ends too early");
        to += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return KS_OK;
}

/* Where a content's bytes go. Two slices are on their way at a time. */
typedef struct sink {
    ks_content *content;
    ks_hash *hash;
    bool shared; /* by hashers */
    _Atomic int readers[2];
} sink;

/* What is read of the memory that the slice at that place lies in, or lay in. */
static _Atomic int *readers_of(sink *to, size_t at)
{
    return &to->readers[at / SLICE % 2];
}

/* A slice that has been read: to where kernels see it, and to its hash. */
static ks_status put_slice(const source *file, sink *to, size_t at, const void *bytes, size_t n, ks_error *error)
{
    const ks_backend *backend = file->daemon->backend;
    const ks_slot *memory = &to->content->memory;
    ks_hash_wait(to->hash, readers_of(to, at));
    if (to->shared)
        ks_hash_give(to->hash, bytes, n, readers_of(to, at));
    else
        ks_hash_feed(to->hash, bytes, n);
    if (!memory->in)
        return backend->client_memory->copy(file->daemon->device, (unsigned char *)memory->in_device + at, bytes, n,
                                            error);
    memcpy(memory->in + at, bytes, n);
    return KS_OK;
}

static ks_status read_slices(const source *file, const ks_file_tensor *item, sink *to, char *slices, ks_error *error)
{
    ks_status status = KS_OK;
    for (size_t at = 0; at < item->tensor.size_bytes && status == KS_OK; at += SLICE) {
        char *slice = slices + at / SLICE % 2 * SLICE;
        const size_t n = ks_least_size(SLICE, item->tensor.size_bytes - at);
        ks_hash_wait(to->hash, readers_of(to, at));
        status = read_at(file, file->head_bytes + item->begin + at, slice, n, error);
        if (status == KS_OK) status = put_slice(file, to, at, slice, n, error);
    }
    return status;
}

/* Elements of Fortran's order are put in C's in memory, all of them. */
static ks_status read_fortran(const source *file, const ks_file_tensor *item, sink *to, char *slice, ks_error *error)
{
    ks_fortran walk;
    const size_t bytes = item->tensor.size_bytes;
    unsigned char *whole = malloc(bytes);
    if (!whole) return ks_fail(error, KS_MEMORY, "no memory for %zu bytes", bytes);
    ks_status status = KS_OK;
    ks_fortran_begin(&walk, &item->tensor);
    for (size_t at = 0; at < bytes && status == KS_OK; at += SLICE) {
        const size_t n = ks_least_size(SLICE, bytes - at);
        status = read_at(file, file->head_bytes + at, slice, n, error);
        if (status == KS_OK) ks_fortran_put(&walk, whole, slice, n);
    }
    for (size_t at = 0; at < bytes && status == KS_OK; at += SLICE)
        status = put_slice(file, to, at, whole + at, ks_least_size(SLICE, bytes - at), error);
    for (int i = 0; i < 2; i++) ks_hash_wait(to->hash, &to->readers[i]);
    free(whole);
    return status;
}

static ks_status read_content(const source *file, const ks_file_tensor *item, ks_content *content, ks_error *error)
{
    ks_hashers *hashers = file->daemon->hashers;
    const size_t bytes = item->tensor.size_bytes;
    sink to = {.content = content, .shared = hashers && bytes >= KS_HASH_STEP};
    to.hash = to.shared ? ks_hash_open_shared(hashers, NULL, bytes, false) : ks_hash_open(false);
    char *slices = malloc(2 * SLICE);
    ks_status status = to.hash && slices ? KS_OK : ks_fail(error, KS_MEMORY, "no memory to read it");
    if (status == KS_OK) status = (item->fortran ? read_fortran : read_slices)(file, item, &to, slices, error);
    for (int i = 0; to.hash && i < 2; i++) ks_hash_wait(to.hash, &to.readers[i]);
    if (status == KS_OK) ks_hash_end(to.hash, content);
    ks_hash_close(&to.hash);
    free(slices);
    return status;
}

/* --- a file ----------------------------------------------------------------------------------------------------------------- */

static ks_status read_head(source *file, ks_error *error)
{
    unsigned char first[FIRST_MAX];
    uint64_t sum = 0;
    if (file->bytes < file->format->first) return ks_fail(error, KS_CONFIG, "it ends too early");
    ks_status status = read_at(file, 0, first, file->format->first, error);
    if (status == KS_OK) status = file->format->begin(first, &file->head_bytes, error);
    if (status != KS_OK) return status;
    if (file->head_bytes > file->bytes || file->head_bytes > HEAD_MAX)
        return ks_fail(error, KS_CONFIG, "its header is too long, or it ends too early");
    char *head = malloc(file->head_bytes + 1);
    if (!head) return ks_fail(error, KS_MEMORY, "no memory for its header");
    status = read_at(file, 0, head, file->head_bytes, error);
    if (status == KS_OK) status = file->format->tensors(head, file->head_bytes, &file->tensors, error);
    free(head);
    for (int i = 0; status == KS_OK && i < file->tensors.count; i++) sum += file->tensors.item[i].tensor.size_bytes;
    if (status == KS_OK && sum != file->bytes - file->head_bytes)
        status = ks_fail(error, KS_CONFIG, "its header calls for %llu bytes of tensors, %llu are there",
                         (unsigned long long)sum, (unsigned long long)(file->bytes - file->head_bytes));
    return status;
}

static ks_status name_tensor(source *file, int i, ks_error *error)
{
    char name[4 * KS_TENSOR_NAME_MAX];
    const int length = snprintf(name, sizeof name, "%s%s", file->prefix, file->tensors.item[i].name);
    const ks_status status = ks_tensor_name_check(name, (size_t)length, error);
    if (status != KS_OK) return ks_fail(error, status, "'%.*s' is no name of a tensor", 160, name);
    memcpy(file->names[i], name, (size_t)length + 1);
    file->puts[i] = (ks_put){.tenant = &operators, .name = file->names[i], .ttl_s = 0, .read_only = true};
    return KS_OK;
}

static ks_status load_tensor(source *file, int i, ks_error *error)
{
    char what[KS_TENSOR_NAME_MAX + 16];
    ks_status status = name_tensor(file, i, error);
    if (status != KS_OK) return status;
    snprintf(what, sizeof what, "tensor '%s'", file->names[i]);
    status = ks_store_reserve(file->daemon->store, &operators, what, &file->tensors.item[i].tensor, &file->contents[i],
                              error);
    return status == KS_OK ? read_content(file, &file->tensors.item[i], file->contents[i], error) : status;
}

static ks_status publish(source *file, ks_error *error)
{
    const size_t count = (size_t)file->tensors.count;
    ks_put_outcome *outcomes = calloc(count + 1, sizeof *outcomes);
    ks_tensor_entry *entries = calloc(count + 1, sizeof *entries);
    ks_status status = KS_MEMORY;
    if (outcomes && entries)
        status = ks_store_publish_take(file->daemon->store, file->puts, file->contents, (int)count, outcomes, entries,
                                       error);
    else
        ks_fail(error, status, "no memory for the names of its tensors");
    free(outcomes);
    free(entries);
    return status;
}

static ks_status load_tensors(source *file, ks_error *error)
{
    const size_t count = (size_t)file->tensors.count;
    file->contents = calloc(count + 1, sizeof *file->contents);
    file->puts = calloc(count + 1, sizeof *file->puts);
    file->names = calloc(count + 1, sizeof *file->names);
    if (!file->contents || !file->puts || !file->names) return ks_fail(error, KS_MEMORY, "no memory for its tensors");
    ks_status status = KS_OK;
    for (size_t i = 0; i < count && status == KS_OK; i++) status = load_tensor(file, (int)i, error);
    return status == KS_OK ? publish(file, error) : status;
}

static ks_status load_open(source *file, ks_error *error)
{
    struct stat about;
    if (file->fd < 0 || fstat(file->fd, &about) != 0) return ks_fail(error, KS_CONFIG, "%s", strerror(errno));
    if (!S_ISREG(about.st_mode)) return ks_fail(error, KS_CONFIG, "it is no ordinary file");
    file->bytes = (uint64_t)about.st_size;
    const ks_status status = read_head(file, error);
    return status == KS_OK ? load_tensors(file, error) : status;
}

static ks_status load_file(const ks_daemon *daemon, const ks_format *format, const char *path, const char *prefix,
                           ks_error *error)
{
    source file = {.daemon = daemon, .format = format, .path = path, .prefix = prefix};
    ks_error fault = {0};
    char text[640];
    snprintf(text, sizeof text, "STATUS=Loading %.500s\nEXTEND_TIMEOUT_USEC=60000000", path);
    ks_notify(text);
    file.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ks_status status = load_open(&file, &fault);
    if (file.fd >= 0) close(file.fd);
    for (int i = 0; file.contents && i < file.tensors.count; i++) ks_content_release(&file.contents[i]);
    if (status == KS_OK)
        KS_LOG(KS_LOG_INFO, "tensors loaded", KS_TEXT("file", path), KS_INT("tensors", file.tensors.count),
               KS_INT("bytes", file.bytes));
    free(file.contents);
    free(file.puts);
    free(file.names);
    free(file.tensors.item);
    return status == KS_OK ? KS_OK : ks_fail(error, KS_CONFIG, "tensors: %.120s: %s", path, fault.text);
}

/* --- paths ------------------------------------------------------------------------------------------------------------------ */

/* By its name's end; NULL: none. */
static const ks_format *format_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    for (const ks_format *const *format = ks_formats; dot && *format; format++)
        if ((*format)->tensors && strcmp(dot + 1, (*format)->name) == 0) return *format;
    return NULL;
}

/* The last part of a path without its ending. */
static void write_stem(const char *path, char out[KS_TENSOR_NAME_MAX + 2])
{
    const char *slash = strrchr(path, '/'), *begin = slash ? slash + 1 : path;
    const size_t length = (size_t)(strrchr(begin, '.') - begin);
    snprintf(out, KS_TENSOR_NAME_MAX + 2, "%.*s", (int)length, begin);
}

/* A file of a folder has its stem in front of its keys; one that is named itself has not, where it has keys. */
static ks_status load_path(const ks_daemon *daemon, const char *path, const char *prefix, bool of_folder,
                           ks_error *error)
{
    char stem[KS_TENSOR_NAME_MAX + 2], names[3 * KS_TENSOR_NAME_MAX];
    const ks_format *format = format_of(path);
    if (!format) return ks_fail(error, KS_CONFIG, "tensors: %.200s: neither .safetensors nor .npy", path);
    const bool keyed = format->inputs_max > 1;
    write_stem(path, stem);
    snprintf(names, sizeof names, "%s%s%s", prefix, keyed && !of_folder ? "" : stem, keyed && of_folder ? "." : "");
    return load_file(daemon, format, path, names, error);
}

static int is_tensors(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && format_of(entry->d_name) != NULL;
}

static ks_status load_folder(const ks_daemon *daemon, const char *path, const char *prefix, ks_error *error)
{
    struct dirent **found = NULL;
    const int count = scandir(path, &found, is_tensors, alphasort);
    if (count < 0) return ks_fail(error, KS_CONFIG, "tensors: %.200s: %s", path, strerror(errno));
    ks_status status = KS_OK;
    for (int i = 0; i < count; i++) {
        char name[PATH_MAX];
        snprintf(name, sizeof name, "%s/%s", path, found[i]->d_name);
        if (status == KS_OK) status = load_path(daemon, name, prefix, true, error);
        free(found[i]);
    }
    free(found);
    return status;
}

/* PREFIX= in front of a path, where all of it may stand in names. */
static const char *split_prefix(const char *item, char out[KS_TENSOR_NAME_MAX + 1])
{
    const char *equals = strchr(item, '=');
    const size_t length = equals ? (size_t)(equals - item) : 0;
    out[0] = 0;
    if (!equals || length > KS_TENSOR_NAME_MAX || ks_tensor_name_check(item, length, NULL) != KS_OK) return item;
    memcpy(out, item, length);
    out[length] = 0;
    return equals + 1;
}

ks_status ks_preload(const ks_daemon *daemon, const ks_list *paths, ks_error *error)
{
    ks_status status = KS_OK;
    if (!daemon->store && paths->count > 0)
        return ks_fail(error, KS_CONFIG, "tensors: none are kept here (--no-resident, or the backend cannot)");
    for (int i = 0; i < paths->count && status == KS_OK; i++) {
        char prefix[KS_TENSOR_NAME_MAX + 1];
        struct stat about;
        const char *path = split_prefix(paths->item[i], prefix);
        const bool folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
        status = folder ? load_folder(daemon, path, prefix, error) : load_path(daemon, path, prefix, false, error);
    }
    return status;
}
