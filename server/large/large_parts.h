/* What the files of this folder share: large.c (memory, waiting, turns), row_blocks.c (rows) and ring.c (ring buffers).
 * Nothing outside of these includes it. */
#ifndef KS_LARGE_PARTS_H
#define KS_LARGE_PARTS_H
#include "engine/engine_core.h"
#include "large/memory_rate.h"
#include "large/large.h"

enum {
    KS_RING_BUFFERS = 6,
    KS_RING_TRANSFERS_MAX = 4,     /* that transfers hold while other requests stream */
    KS_RING_STEP = 256 << 10,      /* bytes that readers are given at a time */
    KS_RING_BUFFER_BYTES = 2 << 20 /* some 40 us on the link, 400 us of a socket, three or four calls of the driver */
};

typedef enum ks_ring_buffer_state {
    KS_RING_BUFFER_FREE,
    KS_RING_BUFFER_FILLING,
    KS_RING_BUFFER_GOING,  /* to the device */
    KS_RING_BUFFER_READ,   /* by others alone */
    KS_RING_BUFFER_COMING, /* from it */
    KS_RING_BUFFER_READY
} ks_ring_buffer_state;

typedef struct ks_ring_buffer {
    ks_ring_buffer_state state;
    ks_large_request *owner; /* but of a free one */
    size_t offset, bytes;
    int64_t touched_ns;
    ks_turn_clock still; /* of a copy under way */
    bool read;           /* in part */
    size_t told;         /* bytes that the owner's reader knows of */
    _Atomic int readers; /* that it has let read them now; any thread takes away */
} ks_ring_buffer;

struct ks_large_requests {
    ks_engine *engine;
    const ks_large *large; /* NULL: device buffers are overflow slots, and there is no ring */
    ks_ring *ring;
    unsigned char *memory;
    size_t largest; /* side of the largest slot class */
    int64_t now_ns;
    ks_large_request *first, *last; /* all that are not shut, in order of arrival */
    int waiting, open, transfers;   /* open: but for transfers */
    size_t waiting_bytes;           /* that waiting requests want */
    ks_memory_rate rate;
    int paused[KS_PAUSES], leaving;
    int under_way, copies; /* ring buffers on the link or read; on the link */
    ks_large_request *events;
    ks_ring_buffer ring_buffers[KS_RING_BUFFERS];
};

static inline bool ks_large_has_buffer(const ks_large_request *request)
{
    return request->device_buffer.memory != NULL || request->transfers;
}

/* The next turn names it. */
static inline void ks_large_happen(ks_large_request *request)
{
    if (request->happened) return;
    request->happened = true;
    request->event_next = request->requests->events;
    request->requests->events = request;
}

/* The first fault counts; returns status. */
static inline ks_status ks_large_fail(ks_large_request *request, const ks_error *error, ks_status status)
{
    if (request->status == KS_OK) {
        request->status = status;
        if (request->fault->status == KS_OK) *request->fault = *error;
    }
    ks_large_happen(request);
    return status;
}

void ks_large_pause_at(ks_large_request *request, ks_large_pause pause);

/* --- row_blocks.c --- */

/* Sizes, blocks and their plan. */
ks_status ks_large_plan(ks_large_request *request, const ks_spec *spec, ks_error *error);
/* So many bytes of the in side are there, or on their way in front of any launch. */
void ks_large_came(ks_large_request *request, size_t offset, size_t bytes);

/* --- ring.c --- */

/* As ks_large_write, to a device buffer. */
ks_status ks_ring_write(ks_large_request *request, size_t offset, const char *bytes, size_t n, size_t *taken);
void ks_ring_finish(ks_large_request *request); /* sends what has been written so far */
void ks_ring_look(ks_large_requests *requests); /* at the copies under way */
bool ks_ring_serves(ks_large_request *request); /* what it is paused for is there now: room, or data */
void ks_ring_leave(ks_large_request *request);  /* its ring buffers but for those under way are free */
#endif
