/* A GPU's grids on a CPU: the threads of a CTA are fibers of one thread of the CPU, which goes over from one to the next
 * where they wait for each other.
 *
 * CTAs that wait for each other have a CPU thread each; others share a few. Shared memory is the thread-local memory of
 * the program, and is filled with noise before each CTA; so is an order of threads and CTAs drawn for each.
 * Faults end the program with a sentence on stderr: waits that nobody ends, a barrier or shuffle that not all reach,
 * dynamic shared memory written beyond its end, launches that a GPU would refuse. */
#ifndef KS_EMULATE_GRID_H
#define KS_EMULATE_GRID_H

#include <functional>

struct emulate_grid {
    const void *kernel;
    dim3 grid, block;
    size_t shared_bytes;
    bool together;
};

/* What a launch may have: CTAs of one that wait for each other at most so many times what an SM holds. */
struct emulate_chip {
    int sms;
    size_t shared_sm, shared_optin;
};
extern emulate_chip emulate_chip_now;

/* A kernel's dynamic shared memory beyond 48 KiB. */
void emulate_allow(const void *kernel, size_t bytes);
/* false: a launch that the chip does not take. */
bool emulate_run(const emulate_grid &grid, const std::function<void()> &kernel);
[[noreturn]] void emulate_fault(const char *what);
bool emulate_all(const void *memory, int value, size_t bytes); /* each byte is the value */

/* Of the thread that calls: */
int emulate_barrier(bool mine); /* true of one of them? */
void emulate_exchange(const void *mine, void *other, size_t bytes, int lane);
void emulate_turn(); /* waits for another CTA: lets the others go on */
void emulate_copy(void *shared, const void *global, size_t bytes);
void emulate_copy_wait();
void emulate_copy_group(); /* the copies so far, since the last one */
void emulate_copy_wait_but(int groups);
void emulate_at_once(void *to, const void *from, size_t bytes);

#endif
