/* Owns      the memory of each lane's arena.
 * Interface arena.h
 * Threads   one lock for each arena, which launches of chains alone take, and hold while they run; the list has another.
 * Limits    ks_limits.model_bytes: prepare refuses chains that need more. */
#include "cpu/arena.h"

#include <stdlib.h>

#include "memory/range.h"

void ks_cpu_arena_open(ks_cpu_arenas *arenas, ks_cpu_arena *arena)
{
    pthread_mutex_init(&arena->lock, NULL);
    pthread_mutex_lock(&arenas->lock);
    arena->next = arenas->first;
    arenas->first = arena;
    pthread_mutex_unlock(&arenas->lock);
}

void ks_cpu_arena_close(ks_cpu_arenas *arenas, ks_cpu_arena *arena)
{
    ks_cpu_arena_give(arena);
    pthread_mutex_lock(&arenas->lock);
    ks_cpu_arena **link = &arenas->first;
    while (*link != arena) link = &(*link)->next;
    *link = arena->next;
    pthread_mutex_unlock(&arenas->lock);
    pthread_mutex_destroy(&arena->lock);
    free(arena->memory);
}

/* What was there is of no use to a launch, so it is not kept while it grows. */
static bool grow(ks_cpu_arena *arena, size_t bytes)
{
    free(arena->memory);
    arena->memory = aligned_alloc(KS_ALIGNMENT, bytes);
    arena->bytes = arena->memory ? bytes : 0;
    return arena->memory != NULL;
}

ks_status ks_cpu_arena_take(ks_cpu_arena *arena, size_t bytes, ks_error *error)
{
    pthread_mutex_lock(&arena->lock);
    arena->taken = bytes <= arena->bytes || grow(arena, bytes);
    if (arena->taken) {
        if (bytes > arena->recent_bytes) arena->recent_bytes = bytes;
        return KS_OK;
    }
    pthread_mutex_unlock(&arena->lock);
    return ks_fail(error, KS_MEMORY, "no memory for %zu bytes of values between a model's nodes", bytes);
}

unsigned char *ks_cpu_arena_memory(const ks_cpu_arena *arena)
{
    return arena->taken ? arena->memory : NULL;
}

void ks_cpu_arena_give(ks_cpu_arena *arena)
{
    if (!arena->taken) return;
    arena->taken = false;
    pthread_mutex_unlock(&arena->lock);
}

/* One that a launch has is looked at in the next turn. */
static void rest(ks_cpu_arena *arena)
{
    if (pthread_mutex_trylock(&arena->lock) != 0) return;
    if (++arena->turns >= KS_RANGE_QUIET_TURNS) {
        if (arena->recent_bytes < arena->bytes) {
            free(arena->memory);
            arena->memory = NULL;
            arena->bytes = 0;
        }
        arena->turns = 0;
        arena->recent_bytes = 0;
    }
    pthread_mutex_unlock(&arena->lock);
}

void ks_cpu_arenas_rest(ks_cpu_arenas *arenas)
{
    pthread_mutex_lock(&arenas->lock);
    for (ks_cpu_arena *arena = arenas->first; arena; arena = arena->next) rest(arena);
    pthread_mutex_unlock(&arenas->lock);
}
