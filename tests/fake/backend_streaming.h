/* Overrides of fake_backend.h for the CPU as a device with memory of its own: device buffers that the host must not touch but through a ring's ring buffers, whose
 * copies take a few looks to end. A ring buffer that is used again too early, a byte read before it came and a device buffer that is
 * never given back show as wrong answers or as an abort at the end. It takes CUDA regions for models without an operation:
 * their handle is the name of an object below /dev/shm. Any number of threads. */
#ifndef KS_BACKEND_STREAMING_H
#define KS_BACKEND_STREAMING_H
#include "kernserve/backend.h"

enum { STREAMING_POOL = 8 << 20 }; /* bytes of all device buffers, where the limits name none */

const ks_backend *streaming_backend(void);                        /* of the CPU; it reports no progress */
#define STREAMING_UUID "GPU-00000000-5eed-4e57-9a5e-57e4a1e50000" /* its info's */

/* The n-th copy begun from now on (1: the next one) loses the device; 0: none. */
void streaming_fail_copy(int n);
/* Copies end only when this is false again. */
void streaming_hold(bool hold);
/* Looks until a copy has ended; 3 to begin with. */
void streaming_looks(int looks);

typedef struct streaming_counts {
    int device_buffers, device_buffers_most, copies_in, copies_out, under_way;
    size_t bytes, bytes_most;
} streaming_counts;
streaming_counts streaming_read(void);
void streaming_reset(void);
#endif
