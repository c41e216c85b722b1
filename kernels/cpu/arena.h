/* A lane's model arena: memory for the values between a chain's steps, of the size that the largest chain of late has needed.
 *
 * Life     ks_cpu_arena_open -> take and give around each launch of a chain -> ks_cpu_arena_close.
 * Threads  take and give: the lane's shard; memory: that one, or the lane's while a batch runs there. ks_cpu_arenas_rest: any;
 *          it leaves an arena alone that a launch has taken. */
#ifndef KS_CPU_ARENA_H
#define KS_CPU_ARENA_H
#include <pthread.h>
#include <stdbool.h>

#include "kernserve/backend.h"

typedef struct ks_cpu_arena {
    pthread_mutex_t lock; /* held from take to give */
    bool taken;           /* the shard's; its lane's to read while a batch runs there */
    /* under lock: */
    unsigned char *memory; /* NULL: none */
    size_t bytes;
    size_t recent_bytes; /* the most that was taken in these turns */
    int turns;
    struct ks_cpu_arena *next; /* of the list, under its lock */
} ks_cpu_arena;

/* The arenas of a device. */
typedef struct ks_cpu_arenas {
    pthread_mutex_t lock;
    ks_cpu_arena *first; /* under lock */
} ks_cpu_arenas;

void ks_cpu_arena_open(ks_cpu_arenas *arenas, ks_cpu_arena *arena);
void ks_cpu_arena_close(ks_cpu_arenas *arenas, ks_cpu_arena *arena); /* nothing runs there */
/* Until give. KS_MEMORY: there is none, and nothing is taken. */
ks_status ks_cpu_arena_take(ks_cpu_arena *arena, size_t bytes, ks_error *error);
/* What is taken; NULL where nothing is: a chain that needs no arena takes none, and rest may free it meanwhile. */
unsigned char *ks_cpu_arena_memory(const ks_cpu_arena *arena);
void ks_cpu_arena_give(ks_cpu_arena *arena); /* also where nothing is taken */
/* Once a second: what no launch of the last KS_RANGE_QUIET_TURNS has needed goes back to the system. */
void ks_cpu_arenas_rest(ks_cpu_arenas *arenas);

#endif
