#include "http/addresses.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

typedef struct key {
    uint64_t high, low;
} key;

struct ks_address {
    ks_addresses *all;
    _Atomic int connections; /* changed under the lock */
    /* under the lock: */
    key is;
    ks_address *next; /* of its bucket, or of the free ones */
};

struct ks_addresses {
    /* fixed after open: */
    uint64_t seed, mask;
    ks_address *entries;
    /* under the lock: */
    pthread_mutex_t lock;
    ks_address *free;
    ks_address **buckets;
};

ks_addresses *ks_addresses_open(int capacity)
{
    ks_addresses *all = calloc(1, sizeof *all);
    size_t buckets = 64;
    while (buckets < (size_t)capacity) buckets *= 2;
    if (all) all->entries = calloc((size_t)capacity, sizeof *all->entries);
    if (all) all->buckets = calloc(buckets, sizeof *all->buckets);
    if (!all || !all->entries || !all->buckets) {
        ks_addresses_close(&all);
        return NULL;
    }
    all->mask = buckets - 1;
    if (getrandom(&all->seed, sizeof all->seed, GRND_NONBLOCK) < 0) all->seed = (uintptr_t)all;
    pthread_mutex_init(&all->lock, NULL);
    for (int i = capacity - 1; i >= 0; i--) {
        all->entries[i].all = all;
        all->entries[i].next = all->free;
        all->free = &all->entries[i];
    }
    return all;
}

void ks_addresses_close(ks_addresses **addresses)
{
    if (*addresses == NULL) return;
    if ((*addresses)->mask) pthread_mutex_destroy(&(*addresses)->lock);
    free((*addresses)->entries);
    free((*addresses)->buckets);
    free(*addresses);
    *addresses = NULL;
}

/* false: no client's address. */
static bool read_key(const struct sockaddr_storage *from, key *out)
{
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)from;
        *out = (key){.high = UINT64_MAX, .low = v4->sin_addr.s_addr};
        return true;
    }
    if (from->ss_family != AF_INET6) return false;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)from;
    uint32_t last;
    memcpy(&last, v6->sin6_addr.s6_addr + 12, sizeof last);
    *out = (key){.high = UINT64_MAX, .low = last};
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) return true;
    memcpy(&out->high, v6->sin6_addr.s6_addr, sizeof out->high);
    out->low = 0;
    return true;
}

/* Seeded: clients choose their addresses, but not which bucket they fall into. */
static ks_address **bucket_of(ks_addresses *all, key is)
{
    uint64_t hash = (is.high ^ all->seed) * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 29 ^ is.low) * UINT64_C(0xbf58476d1ce4e5b9);
    return &all->buckets[(hash ^ hash >> 32) & all->mask];
}

static ks_address *find_or_add(ks_addresses *all, key is)
{
    ks_address **bucket = bucket_of(all, is);
    for (ks_address *one = *bucket; one; one = one->next)
        if (one->is.high == is.high && one->is.low == is.low) return one;
    ks_address *added = all->free;
    if (added == NULL) return NULL;
    all->free = added->next;
    added->is = is;
    added->next = *bucket;
    *bucket = added;
    return added;
}

ks_address *ks_addresses_take(ks_addresses *all, const struct sockaddr_storage *from)
{
    key is;
    if (!read_key(from, &is)) return NULL;
    pthread_mutex_lock(&all->lock);
    ks_address *address = find_or_add(all, is);
    if (address) atomic_fetch_add_explicit(&address->connections, 1, memory_order_relaxed);
    pthread_mutex_unlock(&all->lock);
    return address;
}

void ks_address_give(ks_address **pointer)
{
    ks_address *address = *pointer;
    *pointer = NULL;
    if (address == NULL) return;
    ks_addresses *all = address->all;
    pthread_mutex_lock(&all->lock);
    if (atomic_fetch_sub_explicit(&address->connections, 1, memory_order_relaxed) == 1) {
        ks_address **at = bucket_of(all, address->is);
        while (*at != address) at = &(*at)->next;
        *at = address->next;
        address->next = all->free;
        all->free = address;
    }
    pthread_mutex_unlock(&all->lock);
}

int ks_address_connections(const ks_address *address)
{
    return address ? atomic_load_explicit(&address->connections, memory_order_relaxed) : 0;
}
