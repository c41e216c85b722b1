/* The allocator: the C library's, whose calls fail where the seed says so, and are counted.
 *
 * Owns       a table of the live allocations of the product: open addressing by the address, which decides no order of events.
 * Interface  sim.h, and the wrapped calls.
 * Limits     what the C library allocates within itself (strdup, fopen) is not seen; its free of such memory is passed on. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"

enum { PLACES = 1 << 16, OWNERS = 256 };

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *memory);

static struct {
    void *at[PLACES];
    unsigned char owner[PLACES];
    size_t live, owned[OWNERS];
    int now; /* the owner of the next ones */
    int64_t failures;
    bool counts, fails;
} table;

static size_t place_of(const void *memory)
{
    return (size_t)((uintptr_t)memory >> 4) * 0x9e3779b97f4a7c15u >> 48 & (PLACES - 1);
}

static void *add(void *memory)
{
    if (!memory || !table.counts) return memory;
    if (table.live > PLACES / 2)
        sim_wrong("more allocations live than the table has places for", (int64_t)table.live, 0);
    size_t i = place_of(memory);
    while (table.at[i]) i = (i + 1) & (PLACES - 1);
    table.at[i] = memory;
    table.owner[i] = (unsigned char)table.now;
    table.owned[table.now]++;
    table.live++;
    return memory;
}

/* The entries behind a gap move up where their way goes through it. */
static void drop_at(size_t gap)
{
    table.at[gap] = NULL;
    table.owned[table.owner[gap]]--;
    table.live--;
    for (size_t i = (gap + 1) & (PLACES - 1); table.at[i]; i = (i + 1) & (PLACES - 1)) {
        const size_t home = place_of(table.at[i]);
        if (((i - home) & (PLACES - 1)) < ((i - gap) & (PLACES - 1))) continue;
        table.at[gap] = table.at[i];
        table.owner[gap] = table.owner[i];
        table.at[i] = NULL;
        gap = i;
    }
}

static void drop(const void *memory)
{
    if (!memory) return;
    for (size_t i = place_of(memory); table.at[i]; i = (i + 1) & (PLACES - 1))
        if (table.at[i] == memory) {
            drop_at(i);
            return;
        }
}

static bool refuses(void)
{
    if (!table.fails || !sim_one_in(sim.no_memory)) return false;
    table.failures++;
    sim_event("no memory", table.failures, 0);
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t bytes)
{
    return refuses() ? NULL : add(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return refuses() ? NULL : add(__real_calloc(count, bytes));
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return refuses() ? NULL : add(__real_aligned_alloc(alignment, bytes));
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    if (refuses()) return NULL;
    drop(memory);
    void *moved = __real_realloc(memory, bytes);
    add(moved ? moved : memory);
    return moved;
}

void __wrap_free(void *memory)
{
    drop(memory);
    __real_free(memory);
}

void sim_memory_begin(void)
{
    if (table.live > 0) memset(table.at, 0, sizeof table.at); /* else all places are empty already */
    memset(table.owned, 0, sizeof table.owned);
    table.live = 0;
    table.failures = table.now = 0;
    table.fails = false;
    table.counts = true;
}

void sim_memory_fails(bool on)
{
    table.fails = on;
}

int64_t sim_memory_failures(void)
{
    return table.failures;
}

size_t sim_memory_live(void)
{
    return table.live;
}

void sim_memory_reap(void)
{
    for (size_t i = 0; i < PLACES; i++) __real_free(table.at[i]);
    memset(table.at, 0, sizeof table.at);
    memset(table.owned, 0, sizeof table.owned);
    table.live = 0;
}

void sim_memory_owner(int owner)
{
    table.now = owner;
}

void sim_memory_reap_of(int owner)
{
    for (size_t i = 0; i < PLACES && table.owned[owner] > 0; i++)
        while (table.at[i] && table.owner[i] == owner) {
            __real_free(table.at[i]);
            drop_at(i);
        }
}

void *sim_take(size_t bytes)
{
    void *memory = __real_calloc(1, bytes ? bytes : 1);
    if (!memory) abort();
    return memory;
}

void sim_give(void *memory)
{
    __real_free(memory);
}
