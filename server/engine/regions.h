/* Shared memory of clients: regions that they have registered, and the windows of them that requests name. System
 * regions are objects below /dev/shm; CUDA regions another process's device memory.
 *
 * A region outlives its uses: unregistering hides it from new requests at once and ends it when the last one is over.
 * The file of a system region is its client's, which may cut it at any time, and a mapping of what was cut off kills its
 * reader. So nothing here ever reads or writes client memory through a mapping: where the device cannot move the bytes
 * itself (pinned pages stay, whatever becomes of the file), pread and pwrite do, which only come back short.
 * Threads  any; one lock, taken for look-ups by requests that name a region alone. */
#ifndef KS_REGIONS_H
#define KS_REGIONS_H
#include "kernserve/backend.h"
#include "base/text.h"

enum { KS_REGIONS_MAX = 128, KS_REGION_NAME_MAX = 128, KS_REGION_KEY_MAX = 255 };

typedef enum ks_region_kind { KS_REGION_SYSTEM, KS_REGION_CUDA } ks_region_kind;

typedef struct ks_regions ks_regions;

/* A part of a region, held for one request. */
typedef struct ks_window {
    struct ks_region *region; /* NULL: none */
    uint64_t offset;          /* in the region */
    size_t bytes;
} ks_window;

ks_status ks_regions_open(const ks_backend *backend, ks_device *device, ks_regions **out, ks_error *error);
void ks_regions_close(ks_regions **regions); /* no window held */

/* KS_WINDOW: with the protocol's sentences. Names are terminated and printable. */
ks_status ks_regions_add_system(ks_regions *regions, const char *name, const char *key, uint64_t offset, uint64_t bytes,
                                ks_error *error);
/* handle: base64 of KS_HANDLE_BYTES. */
ks_status ks_regions_add_cuda(ks_regions *regions, const char *name, const char *handle, uint64_t device_index,
                              uint64_t bytes, ks_error *error);
/* name NULL: all of the kind. An unknown name, or one of the other kind: nothing happens. */
void ks_regions_remove(ks_regions *regions, ks_region_kind kind, const char *name);
/* The status list of the kind, or of one region: KS_REGION where it is unknown or of the other kind. regions NULL: shared
 * memory is off, the list is empty. */
ks_status ks_regions_list(ks_regions *regions, ks_region_kind kind, const char *name, ks_text *out, ks_error *error);
bool ks_regions_has_cuda(const ks_regions *regions); /* the device takes CUDA regions */

/* KS_REGION, KS_WINDOW. */
ks_status ks_window_hold(ks_regions *regions, const char *name, uint64_t offset, uint64_t bytes, ks_window *out,
                         ks_error *error);
void ks_window_release(ks_regions *regions, ks_window *window);
void *ks_window_device(const ks_window *window); /* for a slot's window; NULL: read and write must do */
/* size <= window->bytes. KS_WINDOW: the client has cut the object; KS_DEVICE. CUDA regions: waits for the device. */
ks_status ks_window_read(const ks_window *window, void *to, size_t size, ks_error *error);
ks_status ks_window_write(const ks_window *window, const void *from, size_t size, ks_error *error);
#endif
