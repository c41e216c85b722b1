/* Addresses in shared memory, the CTAs of a cluster, barriers of some warps, mbarriers, and what the chip does by itself. */
#include "worker.h"

#include <pthread.h>

/* Dynamic shared memory lies where descriptors of operands can tell of it; the bits of PEER say whose it is, plus 1. */
static const uint32_t DYNAMIC = 1024, REST = 1 << 22, PEER = 1 << 24;

uint32_t emulate_address(const void *shared)
{
    const worker *w = self;
    const unsigned char *at = (const unsigned char *)shared;
    if (at >= w->dynamic && at < w->dynamic + DYNAMIC_MOST) return DYNAMIC + (uint32_t)(at - w->dynamic);
    if (at < w->rest || at >= w->rest + (PEER - REST)) emulate_fault("an address that is not in shared memory");
    return REST + (uint32_t)(at - w->rest);
}

unsigned char *emulate_at(uint32_t address)
{
    const worker *w = self;
    const uint32_t peer = address / PEER, at = address % PEER;
    if (peer) {
        const team *t = w->cluster;
        if (peer > (uint32_t)t->size || !__atomic_load_n(&t->live[peer - 1], __ATOMIC_SEQ_CST))
            emulate_fault("shared memory of a CTA that is not there");
        w = t->members[peer - 1];
    }
    if (at >= REST) return w->rest + (at - REST);
    if (at < DYNAMIC || at >= DYNAMIC + DYNAMIC_MOST) emulate_fault("an address beyond shared memory");
    return w->dynamic + (at - DYNAMIC);
}

uint32_t emulate_peer_address(uint32_t address, uint32_t rank)
{
    return address % PEER + (rank + 1) * PEER;
}

uint32_t emulate_rank()
{
    return (uint32_t)self->rank;
}

uint32_t emulate_rank_of(uint32_t address)
{
    return address / PEER ? address / PEER - 1 : emulate_rank();
}

void emulate_cluster_arrive()
{
    worker *w = self;
    team *t = w->cluster;
    w->fibers[w->now].cluster_phase = __atomic_load_n(&t->phase, __ATOMIC_SEQ_CST);
    if (__atomic_add_fetch(&t->arrived, 1, __ATOMIC_SEQ_CST) < (uint32_t)(w->threads * t->size)) return;
    __atomic_store_n(&t->arrived, 0, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&t->phase, 1, __ATOMIC_SEQ_CST);
}

void emulate_cluster_wait()
{
    emulate_until(&self->cluster->phase, ~0u, self->fibers[self->now].cluster_phase);
}

void emulate_meet(int barrier, int threads, bool wait)
{
    auto &m = self->meetings[barrier];
    const uint32_t phase = m.phase;
    if (++m.arrived == threads) {
        m.arrived = 0;
        m.phase++;
    }
    if (wait) emulate_until(&m.phase, ~0u, phase);
}

void emulate_later(uint32_t rank, const std::function<void()> &work)
{
    if (self->at_once)
        work();
    else
        self->later.push_back({(int)rank, work});
}

void emulate_behind_copies(const std::function<void()> &work)
{
    std::vector<fiber::copy> copies;
    copies.swap(self->fibers[self->now].copies);
    emulate_later(emulate_rank(), [copies, work] {
        for (const fiber::copy &c : copies) arrive(c);
        work();
    });
}

struct mbarrier {             /* of a word and its neighbour; the first word's highest bit is the parity */
    uint16_t missing, opened; /* opened: for so many arrivals */
    int32_t bytes;
};
static_assert(sizeof(mbarrier) == 8, "an mbarrier is a word");
static pthread_mutex_t gates = PTHREAD_MUTEX_INITIALIZER;

void emulate_mbarrier_init(uint32_t at, int arrivals)
{
    const mbarrier g = {(uint16_t)arrivals, (uint16_t)arrivals, 0};
    memcpy(emulate_at(at), &g, sizeof g);
}

static void change(uint32_t at, int arrivals, int bytes)
{
    mbarrier *g = (mbarrier *)(void *)emulate_at(at);
    pthread_mutex_lock(&gates);
    if (g->missing < arrivals) emulate_fault("more arrivals at an mbarrier than it was opened for");
    g->missing = (uint16_t)(g->missing - arrivals);
    g->bytes += bytes;
    if (g->missing == 0 && g->bytes == 0) {
        g->missing = g->opened & 0x7FFF;
        g->opened = (uint16_t)(g->opened ^ 0x8000);
    }
    pthread_mutex_unlock(&gates);
}

void emulate_mbarrier_arrive(uint32_t at, int bytes_to_come)
{
    change(at, 1, bytes_to_come);
}

void emulate_mbarrier_bytes(uint32_t at, int came)
{
    change(at, 0, -came);
}

void emulate_mbarrier_wait(uint32_t at, uint32_t parity)
{
    emulate_until((const uint32_t *)(const void *)emulate_at(at), 1u << 31, parity << 31);
}
