/* Large requests of one shard: the body goes on while it arrives, rows are worked on as soon as they are there,
 * the answer comes back while it is sent.
 *
 * Words    device buffer = the memory of one such request, in the backend's own (ks_large) or, where kernels work on ordinary
 *          memory, an overflow slot; ring = the shard's pinned ring buffers between the sockets and the device buffers; block = rows that
 *          are one launch.
 * Waiting  nothing here blocks. A large request without memory, or without a ring buffer, takes fewer bytes than it is offered or gives
 *          none; it then comes back from ks_large_requests_turn when it can go on. Memory is given out in order of arrival.
 *          A request that would wait beyond its deadline at the rate at which memory comes free (memory_rate.h) is refused at once, and
 *          one that waits already as soon as that is plain; while there is no rate yet, by the age of what holds the memory.
 * Blocks   of equal size, one after the other, so that one plan serves them all. They are chosen such that a row's bits are
 *          those that it has in one launch of the whole.
 * Ring     only a cache: a ring buffer that fills slowly is sent as it is, one that is read slowly is dropped and fetched again.
 *          So a slow client never keeps a ring buffer that another one needs.
 * Owner    ks_large_request lies in its request's record; it must not move until it is SHUT.  Threads  the shard's own. */
#ifndef KS_LARGE_H
#define KS_LARGE_H
#include <stdatomic.h>

#include "engine/engine.h"

typedef struct ks_large_requests ks_large_requests;

typedef enum ks_large_state {
    KS_LARGE_SHUT,
    KS_LARGE_WAITS, /* for memory */
    KS_LARGE_OPEN,
    KS_LARGE_LEAVES /* given up; copies are still under way */
} ks_large_state;

typedef enum ks_large_pause {
    KS_PAUSE_NONE,
    KS_PAUSE_MEMORY,
    KS_PAUSE_ROOM,
    KS_PAUSE_DATA,
    KS_PAUSE_QUEUE,
    KS_PAUSE_COPIES, /* of a transfer, until all that it has written is there */
    KS_PAUSES
} ks_large_pause;

struct ks_large_request;
/* Bytes that a transfer has written, in order, where they lie in the ring: they stay until *readers has fallen to what it was. */
typedef void ks_large_reader_fn(struct ks_large_request *request, const unsigned char *bytes, size_t n,
                                _Atomic int *readers);

typedef struct ks_large_request {
    ks_large_requests *requests;
    ks_large_state state;
    ks_large_pause pause;
    ks_status status;    /* of a fault since it began */
    ks_error *fault;     /* its request's: says which, unless an earlier one stands there */
    int64_t deadline_ns; /* for its memory */
    struct ks_large_request *next, *previous, *event_next;
    bool happened;
    bool transfers; /* to or from memory that stays, and no work is done */
    ks_large_reader_fn *reader;
    /* memory: */
    size_t in_bytes, out_bytes;
    int64_t held_from_ns;  /* memory_rate.h's clock */
    ks_slot device_buffer; /* the backend's own */
    ks_slot *slot;         /* or an overflow slot */
    /* copies: */
    int filling;                /* ring buffer that takes the body's bytes; -1: none */
    int under_way;              /* ring buffers on the link, or read */
    size_t came[KS_INPUTS_MAX]; /* bytes of each input, from its start, that are on their way or there */
    size_t reading;             /* the out side's bytes from here on are wanted */
    /* blocks: */
    ks_plan *plan;     /* of each block */
    ks_plan *whole;    /* whose rows the blocks are; NULL: plan itself */
    int64_t kernel_ns; /* of the blocks that are done; -1: not known */
    int64_t blocks, launched, done;
    size_t block_in, block_out;   /* bytes of a block's INPUT0 and OUTPUT0 */
    size_t stride_in, stride_out; /* from one block's start to the next */
    ks_slot view;                 /* the block under way */
    ks_places places;             /* of its tensors */
    unsigned char head[KS_HEAD_ROOM];
} ks_large_request;

/* Takes the ring. KS_MEMORY. */
ks_status ks_large_requests_open(ks_engine *engine, ks_large_requests **out, ks_error *error);
/* Waits for the copies under way and gives back what large requests still hold; no launch may be under way. */
void ks_large_requests_close(ks_large_requests **requests);
/* Whether a request of that size goes through here: one that no slot class holds. */
bool ks_large_requests_takes(const ks_large_requests *requests, size_t in_bytes, size_t out_bytes);

/* OPEN or WAITS. large request: SHUT, of any content otherwise. KS_QUEUE_FULL: too many wait already; KS_BUDGET: those that do want
 * more than the deadline allows; KS_WORK, KS_BUDGET: such a request never fits; KS_MEMORY. */
ks_status ks_large_begin(ks_large_requests *requests, ks_large_request *request, const ks_spec *spec,
                         int64_t deadline_ns, ks_error *fault);
/* A transfer: OPEN at once, and device buffer is the memory of a content that is resident, which outlives it. What is written goes
 * there, or, out_bytes > 0, so many bytes are read from there. Beside streaming requests it takes no more than a share of the ring. */
void ks_large_begin_transfer(ks_large_requests *requests, ks_large_request *request, const ks_slot *memory,
                             size_t out_bytes, ks_error *fault);
/* Behind ks_large_finish, or the begin: what is written from now on goes to this memory, and to the reader, if there is one. */
void ks_large_turn_to(ks_large_request *request, const ks_slot *memory, ks_large_reader_fn *reader);
/* Behind ks_large_finish: all that was written is there, and is read; false: paused until it is. */
bool ks_large_settled(ks_large_request *request);
/* Bytes of the in side; *taken < n: paused. */
ks_status ks_large_write(ks_large_request *request, size_t offset, const char *bytes, size_t n, size_t *taken);
ks_status ks_large_finish(ks_large_request *request); /* the in side is complete */
/* The next block, if its rows are there: plan and slot of a job that must have ended before the next call. */
bool ks_large_next(ks_large_request *request, ks_job *job);
/* That job cannot be submitted now: the turn brings the large request back. */
void ks_large_later(ks_large_request *request);
void ks_large_launched(ks_large_request *request);
/* That job was done well. true: it was the last one. */
bool ks_large_done(ks_large_request *request, const ks_job *job);
bool ks_large_is_done(const ks_large_request *request); /* that was so */
/* Where an answer's head is written: the last KS_HEAD_ROOM bytes in front. */
unsigned char *ks_large_out(ks_large_request *request);
/* true: the out side comes by ks_large_view, else it lies at ks_large_out. */
bool ks_large_is_remote(const ks_large_request *request);
/* How many bytes of the out side from offset on, which never goes back, lie at *bytes until the next call; 0: paused, or a
 * fault (status). */
size_t ks_large_view(ks_large_request *request, size_t offset, const char **bytes);
/* So many of those just viewed are no longer needed. n >= 1. */
void ks_large_used(ks_large_request *request, size_t n);
/* Gives everything back, at once or when its copies have ended; true: SHUT. No job under way. */
bool ks_large_leave(ks_large_request *request);

/* Looks at copies and memory. A list by ->event_next of the large requests that can go on, have met a fault, or are SHUT now. */
ks_large_request *ks_large_requests_turn(ks_large_requests *requests, int64_t now_ns);
/* How long until a turn may bring something without an event of a descriptor; INT64_MAX: nothing to come. */
int64_t ks_large_requests_wait_ns(const ks_large_requests *requests);
#endif
