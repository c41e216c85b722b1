#include "engine/regions.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum region_state {
    REGION_FREE,
    REGION_BUSY, /* being opened or taken down by one thread, outside of the lock; its name is taken */
    REGION_OPEN,
    REGION_LEAVING /* unregistered, in use */
} region_state;

typedef struct ks_region {
    /* under the lock: */
    region_state state;
    int users;
    /* fixed while open: */
    const ks_regions *regions; /* its table */
    ks_region_kind kind;
    char name[KS_REGION_NAME_MAX + 1], key[KS_REGION_KEY_MAX + 1];
    uint64_t offset, bytes, device_index;
    int fd;
    void *mapping; /* of a pinned one; never read or written by the host */
    size_t mapped_bytes;
    unsigned char *memory; /* as the device sees it; NULL: it does not */
} ks_region;

struct ks_regions {
    const ks_backend *backend;
    ks_device *device;
    pthread_mutex_t lock;
    ks_region all[KS_REGIONS_MAX];
};

static const char *kind_name(ks_region_kind kind)
{
    return kind == KS_REGION_SYSTEM ? "system" : "cuda";
}

static ks_quote quoted(const char *text)
{
    return ks_quoted(text, strlen(text));
}

ks_status ks_regions_open(const ks_backend *backend, ks_device *device, ks_regions **out, ks_error *error)
{
    ks_regions *regions = calloc(1, sizeof *regions);
    if (!regions) return ks_fail(error, KS_MEMORY, "no memory for the table of shared memory regions");
    regions->backend = backend;
    regions->device = device;
    pthread_mutex_init(&regions->lock, NULL);
    *out = regions;
    return KS_OK;
}

/* A lost device may still move bytes, and its calls may block for ever: its pages stay pinned until the process ends. */
static void end_memory(ks_regions *regions, ks_region *region)
{
    const bool alive = !regions->backend->failed(regions->device);
    if (region->kind == KS_REGION_CUDA) {
        if (region->memory && alive) regions->backend->client_memory->leave(regions->device, region->memory);
        return;
    }
    if (region->memory && alive) regions->backend->client_memory->unpin(regions->device, region->mapping);
    if (region->mapping && alive) munmap(region->mapping, region->mapped_bytes);
    close(region->fd);
}

void ks_regions_close(ks_regions **regions)
{
    ks_regions *closing = *regions;
    *regions = NULL;
    if (!closing) return;
    for (int i = 0; i < KS_REGIONS_MAX; i++)
        if (closing->all[i].state != REGION_FREE) end_memory(closing, &closing->all[i]);
    pthread_mutex_destroy(&closing->lock);
    free(closing);
}

/* With the lock. */
static ks_region *find(ks_regions *regions, const char *name)
{
    for (int i = 0; i < KS_REGIONS_MAX; i++)
        if (regions->all[i].state != REGION_FREE && strcmp(regions->all[i].name, name) == 0) return &regions->all[i];
    return NULL;
}

/* --- register ------------------------------------------------------------------------------------------------------- */

static ks_status take_name(ks_regions *regions, const char *name, ks_region_kind kind, ks_region **out, ks_error *error)
{
    ks_status status = KS_OK;
    ks_region *region = NULL;
    pthread_mutex_lock(&regions->lock);
    if (find(regions, name))
        status = ks_fail(error, KS_WINDOW, "shared memory region '%s' already in manager", quoted(name).text);
    for (int i = 0; i < KS_REGIONS_MAX && !region && status == KS_OK; i++)
        if (regions->all[i].state == REGION_FREE) region = &regions->all[i];
    if (!region && status == KS_OK)
        status = ks_fail(error, KS_BUDGET, "all %d shared memory regions are in use", KS_REGIONS_MAX);
    if (status == KS_OK) {
        memset(region, 0, sizeof *region);
        region->regions = regions;
        region->state = REGION_BUSY;
        region->kind = kind;
        region->fd = -1;
        memcpy(region->name, name, strlen(name) + 1);
        *out = region;
    }
    pthread_mutex_unlock(&regions->lock);
    return status;
}

static void publish(ks_regions *regions, ks_region *region, ks_status status)
{
    if (status != KS_OK && region->fd >= 0) close(region->fd);
    pthread_mutex_lock(&regions->lock);
    region->state = status == KS_OK ? REGION_OPEN : REGION_FREE;
    pthread_mutex_unlock(&regions->lock);
}

static ks_status invalid_args(const ks_region *region, ks_error *error)
{
    return ks_fail(error, KS_WINDOW, "failed to register shared memory region '%s': invalid args",
                   quoted(region->name).text);
}

/* Pins the pages where the device takes them; where it does not, copies do the work. mmap wants whole pages: what lies
 * in front of the region in its first one is not ours and is never touched. */
static void pin(ks_regions *regions, ks_region *region)
{
    ks_error ignored;
    if (!regions->backend->client_memory || !regions->backend->client_memory->pin) return;
    const uint64_t rest = region->offset % (uint64_t)sysconf(_SC_PAGESIZE);
    region->mapped_bytes = (size_t)(region->bytes + rest);
    void *mapping = mmap(NULL, region->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd,
                         (off_t)(region->offset - rest));
    if (mapping == MAP_FAILED) return;
    if (regions->backend->client_memory->pin(regions->device, mapping, region->mapped_bytes, &ignored) != KS_OK) {
        munmap(mapping, region->mapped_bytes);
        return;
    }
    region->mapping = mapping;
    region->memory = (unsigned char *)mapping + rest;
}

static ks_status open_system(ks_regions *regions, ks_region *region, ks_error *error)
{
    struct stat object;
    uint64_t end;
    region->fd = shm_open(region->key, O_RDWR | O_CLOEXEC | O_NONBLOCK, 0);
    if (region->fd < 0)
        return ks_fail(error, KS_WINDOW, "Unable to open shared memory region: '%s'", quoted(region->key).text);
    if (fstat(region->fd, &object) != 0 || !S_ISREG(object.st_mode) || region->bytes == 0 ||
        __builtin_add_overflow(region->offset, region->bytes, &end) || end > (uint64_t)object.st_size)
        return invalid_args(region, error);
    pin(regions, region);
    return KS_OK;
}

ks_status ks_regions_add_system(ks_regions *regions, const char *name, const char *key, uint64_t offset, uint64_t bytes,
                                ks_error *error)
{
    static const char reserved[] = "triton_python_backend_shm_region_";
    const char *word = key + strspn(key, "/");
    if (!*word || strlen(key) > KS_REGION_KEY_MAX)
        return ks_fail(error, KS_WINDOW, "cannot register shared memory region '%s' - invalid shm key '%s'",
                       quoted(name).text, quoted(key).text);
    if (strncmp(word, reserved, sizeof reserved - 1) == 0)
        return ks_fail(
            error, KS_WINDOW,
            "cannot register shared memory region '%s' with key '%s' as the key contains the reserved prefix "
            "'%s'",
            quoted(name).text, quoted(key).text, reserved);
    ks_region *region;
    ks_status status = take_name(regions, name, KS_REGION_SYSTEM, &region, error);
    if (status != KS_OK) return status;
    memcpy(region->key, key, strlen(key) + 1);
    region->offset = offset;
    region->bytes = bytes;
    status = open_system(regions, region, error);
    publish(regions, region, status);
    return status;
}

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* 64 bytes are 86 digits and "==". The C++ client breaks lines within and behind them. */
static bool read_handle(const char *text, unsigned char out[KS_HANDLE_BYTES])
{
    enum { DIGITS = 86 };
    unsigned bits = 0;
    int digits = 0, have = 0, n = 0, padding = 0;
    for (; *text; text++) {
        if (*text == '\n' || *text == '\r') continue;
        const int digit = base64_digit(*text);
        if (digits == DIGITS && *text == '=') {
            padding++;
            continue;
        }
        if (digit < 0 || digits++ == DIGITS) return false;
        bits = bits << 6 | (unsigned)digit;
        have += 6;
        if (have < 8) continue;
        have -= 8;
        out[n++] = (unsigned char)(bits >> have);
    }
    return digits == DIGITS && padding == 2;
}

bool ks_regions_has_cuda(const ks_regions *regions)
{
    return regions->backend->client_memory != NULL;
}

ks_status ks_regions_add_cuda(ks_regions *regions, const char *name, const char *handle, uint64_t device_index,
                              uint64_t bytes, ks_error *error)
{
    unsigned char read[KS_HANDLE_BYTES];
    ks_region *region;
    if (!ks_regions_has_cuda(regions))
        return ks_fail(error, KS_WINDOW, "failed to register CUDA shared memory region: '%s', GPUs not supported",
                       quoted(name).text);
    if (!read_handle(handle, read))
        return ks_fail(error, KS_WINDOW, "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
    ks_status status = take_name(regions, name, KS_REGION_CUDA, &region, error);
    if (status != KS_OK) return status;
    region->bytes = bytes;
    region->device_index = device_index;
    if (bytes == 0 || bytes > SIZE_MAX / 2 || device_index > INT32_MAX)
        status = invalid_args(region, error);
    else if (regions->backend->client_memory->import(regions->device, read, (int)device_index, (size_t)bytes,
                                                     (void **)&region->memory, error) != KS_OK)
        status = invalid_args(region, error);
    publish(regions, region, status);
    return status;
}

/* --- unregister, status --------------------------------------------------------------------------------------------- */

void ks_regions_remove(ks_regions *regions, ks_region_kind kind, const char *name)
{
    for (int i = 0; i < KS_REGIONS_MAX; i++) {
        ks_region *region = &regions->all[i];
        pthread_mutex_lock(&regions->lock);
        const bool meant =
            region->state == REGION_OPEN && region->kind == kind && (!name || strcmp(region->name, name) == 0);
        const bool ends = meant && region->users == 0;
        if (meant) region->state = ends ? REGION_BUSY : REGION_LEAVING;
        pthread_mutex_unlock(&regions->lock);
        if (!ends) continue;
        end_memory(regions, region);
        region->fd = -1;
        publish(regions, region, KS_WINDOW);
    }
}

static void write_region(const ks_region *region, ks_text *out)
{
    ks_text_puts(out, "{\"name\":");
    ks_text_json(out, region->name, strlen(region->name));
    if (region->kind == KS_REGION_SYSTEM) {
        ks_text_puts(out, ",\"key\":");
        ks_text_json(out, region->key, strlen(region->key));
        ks_text_printf(out, ",\"offset\":%" PRIu64, region->offset);
    } else {
        ks_text_printf(out, ",\"device_id\":%" PRIu64, region->device_index);
    }
    ks_text_printf(out, ",\"byte_size\":%" PRIu64 "}", region->bytes);
}

static ks_status unknown_region(ks_region_kind kind, const char *name, const ks_region *other, ks_error *error)
{
    if (other)
        return ks_fail(error, KS_REGION, "The region named '%s' is registered as %s shared memory, not in %s",
                       quoted(name).text, kind_name(other->kind), kind_name(kind));
    return ks_fail(error, KS_REGION, "Unable to find %s shared memory region: '%s'", kind_name(kind),
                   quoted(name).text);
}

ks_status ks_regions_list(ks_regions *regions, ks_region_kind kind, const char *name, ks_text *out, ks_error *error)
{
    const ks_region *named = NULL;
    bool first = true;
    if (!regions && name) return unknown_region(kind, name, NULL, error);
    ks_text_puts(out, "[");
    if (regions) pthread_mutex_lock(&regions->lock);
    for (int i = 0; regions && i < KS_REGIONS_MAX; i++) {
        const ks_region *region = &regions->all[i];
        if (region->state == REGION_FREE || region->state == REGION_BUSY) continue;
        if (name && strcmp(region->name, name) == 0) named = region;
        if (region->kind != kind || (name && region != named)) continue;
        if (!first) ks_text_puts(out, ",");
        first = false;
        write_region(region, out);
    }
    ks_status status = KS_OK;
    if (name && (!named || named->kind != kind)) status = unknown_region(kind, name, named, error);
    if (regions) pthread_mutex_unlock(&regions->lock);
    ks_text_puts(out, "]");
    return status;
}

/* --- windows -------------------------------------------------------------------------------------------------------- */

static ks_status judge_window(const ks_region *region, const char *name, uint64_t offset, uint64_t bytes,
                              ks_error *error)
{
    if (!region || region->state != REGION_OPEN)
        return ks_fail(error, KS_REGION, "Unable to find shared memory region: '%s'", quoted(name).text);
    if (offset >= region->bytes)
        return ks_fail(error, KS_WINDOW, "Invalid offset for shared memory region: '%s'", quoted(name).text);
    if (bytes > UINT64_MAX - offset)
        return ks_fail(error, KS_WINDOW,
                       "Integer overflow detected: byte_size (%" PRIu64 ") + offset (%" PRIu64 ") exceeds %" PRIu64,
                       bytes, offset, UINT64_MAX);
    if (offset + bytes > region->bytes)
        return ks_fail(error, KS_WINDOW, "Invalid offset + byte size for shared memory region: '%s'",
                       quoted(name).text);
    return KS_OK;
}

ks_status ks_window_hold(ks_regions *regions, const char *name, uint64_t offset, uint64_t bytes, ks_window *out,
                         ks_error *error)
{
    pthread_mutex_lock(&regions->lock);
    ks_region *region = find(regions, name);
    const ks_status status = judge_window(region, name, offset, bytes, error);
    if (status == KS_OK) {
        region->users++;
        *out = (ks_window){.region = region, .offset = offset, .bytes = (size_t)bytes};
    }
    pthread_mutex_unlock(&regions->lock);
    return status;
}

void ks_window_release(ks_regions *regions, ks_window *window)
{
    ks_region *region = window->region;
    if (!region) return;
    window->region = NULL;
    pthread_mutex_lock(&regions->lock);
    const bool ends = --region->users == 0 && region->state == REGION_LEAVING;
    if (ends) region->state = REGION_BUSY;
    pthread_mutex_unlock(&regions->lock);
    if (!ends) return;
    end_memory(regions, region);
    region->fd = -1;
    publish(regions, region, KS_WINDOW);
}

void *ks_window_device(const ks_window *window)
{
    return window->region->memory ? window->region->memory + window->offset : NULL;
}

static ks_status cut_object(const ks_window *window, ks_error *error)
{
    return ks_fail(error, KS_WINDOW, "shared memory region '%s' has become smaller than it was registered",
                   quoted(window->region->name).text);
}

static ks_status copy_memory(const ks_window *window, void *to, const void *from, size_t size, ks_error *error)
{
    const ks_regions *regions = window->region->regions;
    return size == 0 ? KS_OK : regions->backend->client_memory->copy(regions->device, to, from, size, error);
}

ks_status ks_window_read(const ks_window *window, void *to, size_t size, ks_error *error)
{
    if (window->region->kind == KS_REGION_CUDA) return copy_memory(window, to, ks_window_device(window), size, error);
    const off_t from = (off_t)(window->region->offset + window->offset);
    for (size_t done = 0; done < size;) {
        const ssize_t n = pread(window->region->fd, (char *)to + done, size - done, from + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return cut_object(window, error);
        done += (size_t)n;
    }
    return KS_OK;
}

ks_status ks_window_write(const ks_window *window, const void *from, size_t size, ks_error *error)
{
    if (window->region->kind == KS_REGION_CUDA) return copy_memory(window, ks_window_device(window), from, size, error);
    const off_t to = (off_t)(window->region->offset + window->offset);
    struct stat object;
    /* To write behind its end would make the object larger again. */
    if (fstat(window->region->fd, &object) != 0 || object.st_size < to + (off_t)size) return cut_object(window, error);
    for (size_t done = 0; done < size;) {
        const ssize_t n = pwrite(window->region->fd, (const char *)from + done, size - done, to + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return cut_object(window, error);
        done += (size_t)n;
    }
    return KS_OK;
}
