/* Hands accepted sockets from the supervisor to a worker: a pair of sockets that keeps messages apart, each with one descriptor
 * and the number of the listener that it came from. The supervisor keeps both ends, so that what a worker has not taken
 * outlives the worker. Any thread; the caller owns the ends. */
#ifndef KS_CHANNEL_H
#define KS_CHANNEL_H
#include <stdbool.h>
#include <stdint.h>

typedef struct ks_channel {
    int give, take; /* its ends; -1: none */
} ks_channel;

bool ks_channel_open(ks_channel *out); /* errno */
void ks_channel_close(ks_channel *channel);
/* Sends fd, which stays the caller's to close. false: the channel is full, or errno. */
bool ks_channel_give(int end, int fd, uint32_t listener);
/* The next socket, non-blocking; -1: none is there (EAGAIN), it is lost for want of a descriptor (ECONNABORTED), or errno. */
int ks_channel_take(int end, uint32_t *listener);
/* How many it holds, as the end that takes sees it. */
int ks_channel_holds(int end);
#endif
