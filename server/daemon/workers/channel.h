/* Hands accepted sockets from the supervisor to a worker: a pair of sockets that keeps messages apart, each with one descriptor
 * and the number of the listener that it came from. The supervisor keeps both ends, so that what a worker has not taken
 * outlives the worker. Workers give to each other, too, and then the number is no listener's. Any thread; the caller owns the ends. */
#ifndef KS_CHANNEL_H
#define KS_CHANNEL_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "observe/workers/connections.h"

/* In the place of a listener's number: */
enum {
    KS_CHANNEL_PEER =
        1 << 30, /* a connection of another worker, or its own; the lower bits: the change that it is about, 0: none */
    KS_CHANNEL_KEEP = 1 << 29 /* the file of a change (api/changes/change.h), for workers that come back */
};

typedef struct ks_channel {
    int give, take; /* its ends; -1: none */
} ks_channel;

bool ks_channel_open(ks_channel *out); /* errno */
void ks_channel_close(ks_channel *channel);
/* Sends fd, which stays the caller's to close. false: the channel is full, or errno. */
bool ks_channel_give(int end, int fd, uint32_t listener);
/* The same, counted among the connections of the worker whose channel it is, where it could be sent. */
bool ks_channel_give_counted(int end, int fd, uint32_t listener, ks_connections *of);
/* The next socket, non-blocking; -1: none is there (EAGAIN), it is lost for want of a descriptor (ECONNABORTED), or errno. */
int ks_channel_take(int end, uint32_t *listener);
/* How many it holds, as the end that takes sees it. */
int ks_channel_holds(int end);
#endif
