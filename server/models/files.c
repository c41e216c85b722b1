/* Reads what a model's files hold: from memory, where a request has brought them, or from a folder.
 *
 * Interface files.h
 * Limits    a slice of a file is in host memory at a time, where its bytes do not lie there already.
 * Threads   one at a time. */
#include "models/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "base/util.h"
#include "resident/hash.h"

enum { HEAD_MAX = 4 << 20, SLICE = 4 << 20, FIRST = 8 };

static const char document[] = "model.json", whole[] = "model.safetensors", ending[] = ".safetensors";

/* --- names -------------------------------------------------------------------------------------------------------------- */

static bool is_plain(const char *name)
{
    const size_t length = strlen(name);
    for (size_t i = 0; i < length; i++) {
        const char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("_.-", c))))
            return false;
    }
    return length > 0 && length <= KS_MODEL_FILE_NAME_MAX && *name != '.' && *name != '-';
}

static bool ends_so(const char *name)
{
    const size_t length = strlen(name), end = sizeof ending - 1;
    return length > end && strcmp(name + length - end, ending) == 0;
}

static bool is_model_file(const char *name)
{
    return is_plain(name) && (strcmp(name, document) == 0 || ends_so(name));
}

const char *ks_model_file_name(const char *name, ks_error *error)
{
    const char *const plain = strncmp(name, "1/", 2) == 0 ? name + 2 : name;
    const char *const dot = strrchr(plain, '.');
    if (is_model_file(plain)) return plain;
    if (is_plain(plain) && dot && strcmp(dot, ".onnx") == 0)
        ks_fail(error, KS_DEFINITION, "file '%s': ONNX is not read here; convert it to a definition, %s, and %s",
                ks_quoted(name, strlen(name)).text, document, ks_definition_file);
    else
        ks_fail(error, KS_NAME, "file '%s': a model of version 1 has %s and files of A-Z a-z 0-9 _ . - that end in %s",
                ks_quoted(name, strlen(name)).text, document, ending);
    return NULL;
}

static ks_model_file *find_file(ks_model_files *files, const char *name)
{
    for (int i = 0; i < files->count; i++)
        if (strcmp(files->file[i].name, name) == 0) return &files->file[i];
    return NULL;
}

static ks_status add_file(ks_model_files *files, const char *name, const ks_model_file *about, ks_error *error)
{
    const char *const plain = ks_model_file_name(name, error);
    if (!plain) return error->status;
    if (find_file(files, plain)) return ks_fail(error, KS_NAME, "file '%s' is given twice", plain);
    if (files->count == KS_MODEL_FILES_MAX)
        return ks_fail(error, KS_COUNT, "a model has more than %d files", (int)KS_MODEL_FILES_MAX);
    ks_model_file *file = &files->file[files->count++];
    *file = *about;
    snprintf(file->name, sizeof file->name, "%s", plain);
    return KS_OK;
}

ks_status ks_model_files_add(ks_model_files *files, const char *name, const unsigned char *bytes, size_t length,
                             ks_error *error)
{
    const ks_model_file about = {.bytes = bytes, .fd = -1, .length = length};
    return add_file(files, name, &about, error);
}

/* --- folders ------------------------------------------------------------------------------------------------------------- */

static ks_status open_file(ks_model_files *files, int folder, const char *name, ks_error *error)
{
    struct stat about;
    ks_model_file file = {.fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
    if (file.fd < 0)
        return ks_fail(error, KS_DEFINITION, "file '%s': %s", name,
                       errno == ELOOP ? "it is a link, and not followed" : strerror(errno));
    ks_status status = KS_OK;
    if (fstat(file.fd, &about) != 0 || !S_ISREG(about.st_mode))
        status = ks_fail(error, KS_DEFINITION, "file '%s': it is no ordinary file", name);
    file.length = status == KS_OK ? (uint64_t)about.st_size : 0;
    if (status == KS_OK) status = add_file(files, name, &file, error);
    if (status != KS_OK) close(file.fd);
    return status;
}

/* Files with other names are none of a model's. */
static ks_status open_all(ks_model_files *files, DIR *folder, ks_error *error)
{
    ks_status status = KS_OK;
    for (const struct dirent *entry; status == KS_OK && (entry = readdir(folder)) != NULL;)
        if (is_model_file(entry->d_name)) status = open_file(files, dirfd(folder), entry->d_name, error);
    return status;
}

static ks_status open_folder(ks_model_files *files, int above, const char *path, ks_error *error)
{
    const int fd = openat(above, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        const int cause = errno;
        if (fd >= 0) close(fd);
        return ks_fail(error, KS_MODEL, "%s", strerror(cause));
    }
    ks_status status = open_all(files, folder, error);
    if (status == KS_OK && files->count == 0 && above == AT_FDCWD) status = open_folder(files, fd, "1", error);
    closedir(folder);
    return status;
}

ks_status ks_model_files_open(ks_model_files *files, const char *folder, ks_error *error)
{
    ks_error cause = {0};
    const ks_status status = open_folder(files, AT_FDCWD, folder, &cause);
    if (status == KS_OK && files->count > 0) return KS_OK;
    if (status == KS_OK || status == KS_MODEL)
        return ks_fail(error, KS_DEFINITION, "its folder has neither %s nor %s", document, whole);
    return ks_fail(error, status, "%s", cause.text);
}

static void print_bytes(uint64_t *print, const void *bytes, size_t n)
{
    const unsigned char *const byte = bytes;
    for (size_t i = 0; i < n; i++) *print = (*print ^ byte[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
}

static uint64_t print_file(int folder, const char *name)
{
    struct stat about;
    uint64_t print = UINT64_C(0xcbf29ce484222325);
    if (fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) != 0) return 0;
    const uint64_t words[] = {(uint64_t)about.st_size, (uint64_t)about.st_mtim.tv_sec, (uint64_t)about.st_mtim.tv_nsec,
                              (uint64_t)about.st_ino, about.st_mode};
    print_bytes(&print, name, strlen(name));
    print_bytes(&print, words, sizeof words);
    return print;
}

/* A sum: a folder has its files in any order. */
uint64_t ks_model_files_print(int above, const char *path)
{
    const int fd = openat(above, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    uint64_t print = 1;
    if (!folder && fd >= 0) close(fd);
    if (!folder) return print;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (is_model_file(entry->d_name)) print += print_file(fd, entry->d_name);
    if (strcmp(path, "1") != 0) print += 3 * ks_model_files_print(fd, "1");
    closedir(folder);
    return print ? print : 1;
}

/* --- bytes --------------------------------------------------------------------------------------------------------------- */

static ks_status read_at(const ks_model_file *file, uint64_t at, void *out, size_t n, ks_error *error)
{
    if (at > file->length || n > file->length - at)
        return ks_fail(error, KS_BINARY_SIZE, "file '%s' ends too early", file->name);
    if (file->bytes) {
        memcpy(out, file->bytes + at, n);
        return KS_OK;
    }
    for (unsigned char *to = out; n > 0;) {
        const ssize_t got = TEMP_FAILURE_RETRY(pread(file->fd, to, n, (off_t)at));
        if (got <= 0)
            return ks_fail(error, KS_BINARY_SIZE, "file '%s': %s", file->name,
                           got < 0 ? strerror(errno) : "it ends too early");
        to += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return KS_OK;
}

static ks_status check_length(const ks_model_file *file, ks_error *error)
{
    uint64_t sum = file->head_bytes;
    for (int i = 0; i < file->tensors.count; i++)
        if (__builtin_add_overflow(sum, (uint64_t)file->tensors.item[i].tensor.size_bytes, &sum)) sum = UINT64_MAX;
    if (sum == file->length) return KS_OK;
    return ks_fail(error, KS_BINARY_SIZE, "file '%s': its header calls for %" PRIu64 " bytes, %" PRIu64 " are there",
                   file->name, sum, file->length);
}

static ks_status read_head(ks_model_file *file, ks_error *error)
{
    const ks_format *const format = &ks_format_safetensors;
    unsigned char first[FIRST];
    ks_status status = read_at(file, 0, first, FIRST, error);
    if (status == KS_OK) status = format->begin(first, &file->head_bytes, error);
    if (status != KS_OK) return status;
    if (file->head_bytes > file->length || file->head_bytes > HEAD_MAX)
        return ks_fail(error, KS_BINARY_SIZE, "file '%s': its header is too long, or it ends too early", file->name);
    char *head = malloc(file->head_bytes + 1);
    if (!head) return ks_fail(error, KS_MEMORY, "no memory for the header of file '%s'", file->name);
    status = read_at(file, 0, head, file->head_bytes, error);
    file->tensors.wants_definition = true;
    if (status == KS_OK) status = format->tensors(head, file->head_bytes, &file->tensors, error);
    free(head);
    return status == KS_OK ? check_length(file, error) : status;
}

static ks_status know_head(ks_model_file *file, ks_error *error)
{
    if (file->known) return KS_OK;
    const ks_status status = read_head(file, error);
    file->known = status == KS_OK;
    return status;
}

/* --- the definition ------------------------------------------------------------------------------------------------------ */

static ks_status read_document(ks_model_files *files, const ks_model_file *file, ks_error *error)
{
    if (file->length > KS_DEFINITION_BYTES_MAX)
        return ks_fail(error, KS_BODY_SIZE,
                       "a definition of %" PRIu64 " bytes exceeds the maximum allowed size of %d bytes", file->length,
                       (int)KS_DEFINITION_BYTES_MAX);
    files->text = malloc((size_t)file->length + 1);
    if (!files->text) return ks_fail(error, KS_MEMORY, "no memory for a definition");
    files->text[file->length] = '\0';
    return read_at(file, 0, files->text, (size_t)file->length, error);
}

ks_status ks_model_files_definition(ks_model_files *files, const char **text, size_t *length, ks_error *error)
{
    ks_model_file *file = find_file(files, document);
    if (file) {
        const ks_status status = read_document(files, file, error);
        *text = files->text;
        *length = (size_t)file->length;
        return status;
    }
    file = find_file(files, whole);
    const ks_status status = file ? know_head(file, error) : KS_OK;
    if (status != KS_OK) return status;
    if (!file || !file->tensors.definition)
        return ks_fail(error, KS_DEFINITION,
                       "there is no definition: neither %s, nor a %s that has one in its __metadata__", document,
                       whole);
    files->whole = file;
    *text = file->tensors.definition;
    *length = strlen(*text);
    return KS_OK;
}

/* --- contents ------------------------------------------------------------------------------------------------------------- */

static ks_status put_slice(const ks_model_files *files, const ks_content *content, size_t at, const void *bytes,
                           size_t n, ks_error *error)
{
    if (content->memory.in) {
        memcpy(content->memory.in + at, bytes, n);
        return KS_OK;
    }
    if (!files->backend->client_memory)
        return ks_fail(error, KS_UNSUPPORTED, "this device takes no elements of a file: make them resident tensors");
    return files->backend->client_memory->copy(files->device, (unsigned char *)content->memory.in_device + at, bytes, n,
                                               error);
}

static bool is_bool(const unsigned char *bytes, size_t n)
{
    unsigned char seen = 0;
    for (size_t i = 0; i < n; i++) seen |= bytes[i];
    return seen <= 1;
}

static ks_status read_slices(const ks_model_files *files, const ks_model_file *file, const ks_file_tensor *item,
                             ks_content *content, ks_hash *hash, ks_error *error)
{
    const size_t bytes = item->tensor.size_bytes;
    unsigned char *slice = calloc(1, ks_least_size(bytes, SLICE) + 1);
    ks_status status = slice ? KS_OK : ks_fail(error, KS_MEMORY, "no memory to read file '%s'", file->name);
    for (size_t at = 0; at < bytes && status == KS_OK; at += SLICE) {
        const size_t n = ks_least_size(SLICE, bytes - at);
        status = read_at(file, file->head_bytes + item->begin + at, slice, n, error);
        if (status == KS_OK && item->tensor.dtype == KS_BOOL && !is_bool(slice, n))
            status = ks_fail(error, KS_RANGE, "tensor '%s' has datatype BOOL and a byte that is neither 0 nor 1",
                             ks_quoted(item->name, strlen(item->name)).text);
        if (status == KS_OK) status = put_slice(files, content, at, slice, n, error);
        if (status == KS_OK) ks_hash_feed(hash, slice, n);
    }
    free(slice);
    return status;
}

static ks_status read_content(const ks_model_files *files, const ks_model_file *file, const ks_file_tensor *item,
                              ks_content *content, ks_error *error)
{
    ks_hash *hash = ks_hash_open(false);
    if (!hash) return ks_fail(error, KS_MEMORY, "no memory for a hash");
    const ks_status status = read_slices(files, file, item, content, hash, error);
    if (status == KS_OK) ks_hash_end(hash, content);
    ks_hash_close(&hash);
    return status;
}

static const ks_file_tensor *find_key(const ks_model_file *file, const char *key)
{
    for (int i = 0; i < file->tensors.count; i++)
        if (strcmp(file->tensors.item[i].name, key) == 0) return &file->tensors.item[i];
    return NULL;
}

static ks_status find_tensor(ks_model_files *files, const ks_initializer *from, ks_model_file **out,
                             const ks_file_tensor **item, ks_error *error)
{
    ks_model_file *file = files->whole ? files->whole : find_file(files, from->file);
    if (!file) return ks_fail(error, KS_NAME, "initializer '%s': there is no file '%s'", from->name, from->file);
    const ks_status status = know_head(file, error);
    if (status != KS_OK) return status;
    *out = file;
    *item = find_key(file, from->key);
    if (*item) return KS_OK;
    return ks_fail(error, KS_NAME, "initializer '%s': file '%s' has no tensor '%s'", from->name, file->name, from->key);
}

ks_status ks_model_files_tensor(ks_model_files *files, const ks_initializer *from, ks_tensor *out, ks_error *error)
{
    ks_model_file *file = NULL;
    const ks_file_tensor *item = NULL;
    const ks_status status = find_tensor(files, from, &file, &item, error);
    if (status == KS_OK) *out = item->tensor;
    return status;
}

ks_status ks_model_files_content(ks_model_files *files, const ks_initializer *from, ks_content **out, ks_error *error)
{
    char what[KS_CHAIN_NAME_MAX + 24];
    ks_model_file *file = NULL;
    const ks_file_tensor *item = NULL;
    ks_status status = find_tensor(files, from, &file, &item, error);
    if (status != KS_OK) return status;
    snprintf(what, sizeof what, "initializer '%s'", from->name);
    status = ks_store_reserve(files->store, files->tenant, what, &item->tensor, out, error);
    return status == KS_OK ? read_content(files, file, item, *out, error) : status;
}

void ks_model_files_fini(ks_model_files *files)
{
    for (int i = 0; i < files->count; i++) {
        ks_model_file *file = &files->file[i];
        if (file->fd >= 0) close(file->fd);
        free(file->tensors.item);
        free(file->tensors.definition);
    }
    free(files->text);
    *files = (ks_model_files){0};
}
