/* A GPU's grids on a CPU: the threads of a CTA are fibers of one thread of the CPU, which goes over from one to the next
 * where they wait for each other.
 *
 * CTAs that wait for each other, and those of a cluster, have a CPU thread each; others share a few. Shared memory is the
 * thread-local memory of the program, and is filled with noise before each CTA; so is an order of threads and CTAs drawn for
 * each. What the chip does by itself it does as late as it may: copies when they are waited for, bulk copies when nobody of
 * the CTA can go on (in half of the CTAs at once, which is as early as they may), products of tensor cores when their sums
 * are waited for. A launch that may begin before the one in front of it has ended does so: until a thread waits for that end, the
 * memory that launches share is what it was in front of both, and what is written there till then is lost.
 * Faults end the program with a sentence on stderr: waits that nobody ends, a barrier or shuffle that not all reach,
 * dynamic shared memory written beyond its end, memory of a CTA that is not there, launches that a GPU would refuse, CTAs that
 * begin early and do not wait. */
#ifndef KS_EMULATE_GRID_H
#define KS_EMULATE_GRID_H

#include <functional>
#include <initializer_list>
#include <utility>

struct emulate_grid {
    const void *kernel;
    dim3 grid, block;
    size_t shared_bytes;
    bool together;
    uint32_t cluster; /* CTAs, side by side along x */
    bool early;       /* it may begin before the launch in front has ended */
};

/* Memory that launches share, from here to the end of this object; it has to stay as long. */
struct emulate_shared {
    emulate_shared(std::initializer_list<std::pair<void *, size_t>> memory);
    ~emulate_shared();
    emulate_shared(const emulate_shared &) = delete;
    emulate_shared &operator=(const emulate_shared &) = delete;
};
/* Launches that began early, since the program began. */
extern unsigned emulate_early_launches;

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

enum { EMULATE_EACH = 48 }; /* bytes of a lane, at most, that a warp exchanges */

/* Of the thread that calls: */
int emulate_barrier(bool mine); /* true of one of them? */
void emulate_exchange(const void *mine, void *other, size_t bytes, int lane);
void emulate_launch_wait(); /* for the launch in front */
void emulate_turn();        /* waits for another CTA: lets the others go on */
/* Until those bits of a word of shared memory, or of the emulator's, are something else. */
void emulate_until(const uint32_t *word, uint32_t mask, uint32_t other);
const unsigned char *emulate_warp(const void *mine,
                                  size_t bytes); /* all lanes', EMULATE_EACH apart; until the next one */
void emulate_copy(void *shared, const void *global, size_t bytes); /* NULL: zeros */
void emulate_copy_wait();
void emulate_copy_group(); /* the copies so far, since the last one */
void emulate_copy_wait_but(int groups);
void emulate_at_once(void *to, const void *from, size_t bytes);

/* --- what sm_90 has --------------------------------------------------------------------------------------------------- */

/* Addresses in shared memory are numbers: of this CTA, or of another one of its cluster. */
uint32_t emulate_address(const void *shared);
unsigned char *emulate_at(uint32_t address);
uint32_t emulate_peer_address(uint32_t address, uint32_t rank);
uint32_t emulate_rank(); /* of this CTA */
uint32_t emulate_rank_of(uint32_t address);
void emulate_cluster_arrive();
void emulate_cluster_wait();
/* A barrier of some warps: threads in all; those that do not wait go on. */
void emulate_meet(int barrier, int threads, bool wait);
/* The chip does it by itself, in a while: writes to shared memory of CTA `rank` of the cluster, which is there until then,
 * and to mbarriers there. */
void emulate_later(uint32_t rank, const std::function<void()> &work);
/* The copies so far, since the last wait, and then `work`, likewise. */
void emulate_behind_copies(const std::function<void()> &work);
/* mbarriers count arrivals and bytes. */
void emulate_mbarrier_init(uint32_t mbarrier, int arrivals);
void emulate_mbarrier_arrive(uint32_t mbarrier, int bytes_to_come);
void emulate_mbarrier_bytes(uint32_t mbarrier, int came);
void emulate_mbarrier_wait(uint32_t mbarrier, uint32_t parity);
/* Products, by groups as copies are. */
void emulate_product(const std::function<void()> &product);
void emulate_product_group();
void emulate_product_wait_but(int groups);

#endif
