/* The simulator: a shard of the daemon, its real code from shard.c down, in one thread against sockets, a clock, a device and an allocator
 * that are drawn from one seed. What the parts share, also with the supervisor's simulator (supervisor/host.h).
 *
 * How       wraps.c stands in for the system's calls (-Wl,--wrap: the product's code is as it is shipped). The shard's thread is a call:
 *           pthread_create runs it, and the world goes on while it waits for events (world.c).
 * Words     world = clock, events and faults of a seed; socket = the daemon's end of a connection; client = the other end.
 * Same      a seed and a commit give the same events: nothing here reads a real clock, an address or an order of the system's.
 * Threads   one; all state is the seed's, cleared by sim_run. */
#ifndef KS_SIM_H
#define KS_SIM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SIM_US = 1000, SIM_MS = 1000000 };
static const int64_t SIM_S = 1000000000, SIM_NEVER = INT64_MAX;

/* What a seed has, drawn before its start. */
typedef struct sim_seed {
    uint64_t number;
    bool calm; /* no fault of any kind: each request gets the response that it would get alone */
    int clients;
    int eintr, short_writes; /* one call in so many; 0: none */
    int no_memory;           /* one allocation in so many fails while the shard serves */
    bool polled;             /* the device's lanes are looked at, as a GPU's; else they wake the shard, as the CPU's */
    bool captures;           /* the device has graphs */
    int64_t work_ns;         /* that most of the device's work takes, at most */
    int failing;             /* one launch in so many fails by itself */
    int64_t dies_ns;         /* when a sticky fault comes, from the first wait on; SIM_NEVER: none does */
    int dies_how;            /* sim_death of device.h */
    bool jumps;              /* the clock jumps: pauses of the process, wall time by years */
    int slots, queue_max;    /* slots of the smallest class; jobs that wait */
    uint64_t budget_bytes, resident_bytes;
    int64_t drain_ns; /* when the drain begins; SIM_NEVER: when all clients have ended */
} sim_seed;

extern sim_seed sim;
extern bool sim_verbose;

/* --- program.c: the main of a simulator, which has these --- */
extern const char sim_name[];
void sim_once(void); /* of the process, before the first seed */
/* One seed from its start to its end. What does not hold ends the process with the seed's number. Returns a hash of all its events. */
uint64_t sim_run(uint64_t seed);

/* --- chance.c: everything drawn --- */
void sim_chance_begin(uint64_t seed);
uint64_t sim_draw(uint64_t below); /* 0 .. below-1 */
int64_t sim_between(int64_t least, int64_t most);
bool sim_one_in(int n); /* n 0: never */
/* Small ones most often, as times and sizes are. */
int64_t sim_skewed(int64_t least, int64_t most);

/* --- events.c: the log of a seed and its hash --- */
extern FILE *sim_report; /* stderr; a simulator may silence that of the product */
void sim_events_begin(void);
void sim_event(const char *what, int64_t a, int64_t b);
void sim_event_text(const char *what, const char *text, size_t n); /* printed with escapes */
uint64_t sim_events_hash(void);
/* A promise is broken. */
_Noreturn void sim_wrong(const char *what, int64_t a, int64_t b);
static inline void sim_check(bool right, const char *what, int64_t a, int64_t b)
{
    if (!right) sim_wrong(what, a, b);
}

/* --- memory.c: the allocator --- */
void sim_memory_begin(void);
void sim_memory_fails(bool on);    /* allocations of the product may fail from now on */
int64_t sim_memory_failures(void); /* so far in this seed */
size_t sim_memory_live(void);      /* allocations not freed since sim_memory_begin */
void sim_memory_reap(void);        /* frees them: of a device that is lost, whose memory stays by design */
void sim_memory_owner(int owner);  /* whose allocations the next ones are; 0 at first */
void sim_memory_reap_of(int owner);
void *sim_take(size_t bytes); /* the simulator's own: never fails, not counted */
void sim_give(void *memory);
#endif
