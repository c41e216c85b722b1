/* How many connections a worker has, open and on their way to it, in one word: a look at it counts each once, also one that is just
 * being taken. Any thread and process: the supervisor and other workers give, the worker takes, documents read. */
#ifndef KS_CONNECTIONS_H
#define KS_CONNECTIONS_H
#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

typedef struct ks_connections {
    _Atomic uint64_t word; /* the low half: open; the high one: given to its channel, and not taken yet */
} ks_connections;

#define KS_CONNECTIONS_PENDING (UINT64_C(1) << 32)

/* Open on data listeners. */
static inline int ks_connections_count(const ks_connections *of)
{
    return (int)(uint32_t)atomic_load(&of->word);
}

static inline int ks_connections_pending(const ks_connections *of)
{
    return (int)(atomic_load(&of->word) >> 32);
}

/* Both. */
static inline int ks_connections_sum(const ks_connections *of)
{
    const uint64_t word = atomic_load(&of->word);
    return (int)(uint32_t)word + (int)(word >> 32);
}

/* One that it has accepted itself. */
static inline void ks_connections_add(ks_connections *of)
{
    atomic_fetch_add(&of->word, 1);
}

static inline void ks_connections_remove(ks_connections *of)
{
    const uint64_t before = atomic_fetch_sub(&of->word, 1);
    assert((uint32_t)before > 0); /* or the other half has lent it one */
}

/* One is on its way; before its channel has it. */
static inline void ks_connections_give(ks_connections *of)
{
    atomic_fetch_add(&of->word, KS_CONNECTIONS_PENDING);
}

/* One that was on its way is open. */
static inline void ks_connections_take(ks_connections *of)
{
    atomic_fetch_sub(&of->word, KS_CONNECTIONS_PENDING - 1);
}

/* One that was on its way will not be open: the channel had no room, it was closed at once, or another worker gets it. */
static inline void ks_connections_give_back(ks_connections *of)
{
    atomic_fetch_sub(&of->word, KS_CONNECTIONS_PENDING);
}

/* Of a worker that is down: none is open, and so many are in its channel. */
static inline void ks_connections_set_down(ks_connections *of, int pending)
{
    atomic_store(&of->word, (uint64_t)pending << 32);
}
#endif
