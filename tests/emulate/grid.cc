/* See grid.h. A worker is a thread of the CPU with fibers for a CTA; workers stay for the next grid. */
#include "cuda_runtime.h"

#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#include <algorithm>
#include <map>
#include <vector>

thread_local uint3 threadIdx, blockIdx;
thread_local dim3 blockDim, gridDim;
alignas(1024) thread_local uint4 ks_dynamic[(227 << 10) / sizeof(uint4)];
/* The same memory by the names that the kernels of matmul have for it. */
#define THE_SAME(name) extern thread_local unsigned char name[sizeof ks_dynamic] __attribute__((alias("ks_dynamic")))
THE_SAME(mm_shared);
THE_SAME(mm_batch_shared);
THE_SAME(mm_wgmma_shared);
THE_SAME(mm_strip_shared);
emulate_chip emulate_chip_now;

void emulate_fault(const char *what)
{
    fprintf(stderr, "emulated GPU: %s\n", what);
    abort();
}

bool emulate_all(const void *memory, int value, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)memory;
    return bytes == 0 || (*at == value && memcmp(at, at + 1, bytes - 1) == 0);
}

/* --- the fibers of a CTA --------------------------------------------------------------------------------------------- */

enum { WARP = 32, THREADS_MOST = 1024, STACK_BYTES = 128 << 10 };
static const double WAIT_MOST_S = 60;
static const uint64_t STACK_END = 0x9E3779B97F4A7C15;

struct worker;
/* TURNS: lets others go first; UNTIL: so does it, as long as the word is what it was. */
enum fiber_state : char { READY, WAITS, TURNS, UNTIL, DONE };

struct fiber {
    const uint32_t *word;
    uint32_t mask, other;
    jmp_buf at;
    ucontext_t first;
    char *stack; /* NULL: it never ran */
    struct copy {
        void *to;
        const void *from;
        size_t bytes;
        int group;
    };
    std::vector<copy> copies;
    int groups; /* that have ended */
    struct product {
        std::function<void()> work;
        int group;
    };
    std::vector<product> products;
    int product_groups;
    uint32_t cluster_phase; /* of the cluster's barrier, when this thread arrived there */
};

struct warp {
    int arrived, side;
    alignas(16) unsigned char value[2][WARP][EMULATE_EACH]; /* in turn, so that a fast lane spoils nothing */
    size_t bytes;
};

/* Workers that run the CTAs of a cluster. */
struct team {
    worker *members[16];
    int size;
    uint32_t met, meetings;  /* of the workers */
    uint32_t arrived, phase; /* of the threads, at the cluster's barrier */
    bool live[16];           /* the CTA has begun and has not ended */
};

enum { MEETINGS = 16 };

struct worker {
    fiber_state states[THREADS_MOST];
    fiber fibers[THREADS_MOST];
    warp warps[THREADS_MOST / WARP];
    int threads, done, now, step; /* step: from one thread to the next in turn */
    int arrived, side, any[2];    /* at the barrier */
    struct {
        int arrived;
        uint32_t phase;
    } meetings[MEETINGS];
    struct task {
        int rank;
        std::function<void()> work;
    };
    std::vector<task> later;
    double waits_since; /* nobody but threads that take turns has gone on */
    bool at_once;       /* what the chip does by itself */
    team *cluster;
    int rank;
    unsigned char *dynamic, *rest; /* where shared memory lies */
    jmp_buf home;
    const std::function<void()> *kernel;
};
thread_local worker *self; /* not static: spoil_shared() writes over it */

static void fiber_main()
{
    for (;;) {
        (*self->kernel)();
        worker *w = self;
        fiber *f = &w->fibers[w->now];
        if (w->arrived) emulate_fault("a thread has returned, and others wait at a barrier");
        if (w->warps[w->now / WARP].arrived) emulate_fault("a thread has returned, and its warp waits at a shuffle");
        if (!f->copies.empty()) emulate_fault("a thread has returned before its copies have arrived");
        if (!f->products.empty()) emulate_fault("a thread has returned before its products are there");
        if (*(uint64_t *)(void *)f->stack != STACK_END) emulate_fault("a thread's stack is too small");
        w->states[w->now] = DONE;
        w->done++;
        emulate_turn();
    }
}

static void resume(worker *w, int thread)
{
    fiber *f = &w->fibers[thread];
    w->now = thread;
    threadIdx = {(uint32_t)thread, 0, 0};
    if (f->stack) _longjmp(f->at, 1);
    f->stack =
        (char *)mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED) emulate_fault("no memory for a stack");
    *(uint64_t *)(void *)f->stack = STACK_END;
    getcontext(&f->first);
    f->first.uc_stack.ss_sp = f->stack;
    f->first.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->first, fiber_main, 0);
    setcontext(&f->first);
    abort();
}

static double seconds()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The next thread that is ready, behind this one in turn; -1: none is. */
static int next_ready(const worker *w)
{
    const char *const states = (const char *)w->states, *const here = states + w->now;
    const void *found;
    if (w->step == 1) {
        found = memchr(here + 1, READY, (size_t)(w->threads - w->now - 1));
        if (!found) found = memchr(states, READY, (size_t)w->now + 1);
    } else {
        found = memrchr(states, READY, (size_t)w->now);
        if (!found) found = memrchr(here, READY, (size_t)(w->threads - w->now));
    }
    return found ? (int)((const char *)found - states) : -1;
}

static bool changed(const fiber *f)
{
    return (__atomic_load_n(f->word, __ATOMIC_SEQ_CST) & f->mask) != f->other;
}

/* Goes over to the next thread that can run. */
static void go_on()
{
    worker *w = self;
    if (_setjmp(w->fibers[w->now].at)) return;
    if (w->done == w->threads) _longjmp(w->home, 1);
    for (;;) {
        const int next = next_ready(w);
        if (next >= 0) resume(w, next);
        bool waits = false, goes = false;
        for (int t = 0; t < w->threads; t++) {
            if (w->states[t] == TURNS || w->states[t] == UNTIL) waits = true;
            if (w->states[t] != UNTIL || !changed(&w->fibers[t])) continue;
            w->states[t] = READY;
            goes = true;
        }
        if (!waits) emulate_fault("all threads of a CTA wait");
        if (!goes && !w->later.empty()) {
            const worker::task task = w->later.front();
            w->later.erase(w->later.begin());
            task.work();
            goes = true;
        }
        if (goes) {
            w->waits_since = 0;
            continue;
        }
        if (!w->waits_since) w->waits_since = seconds();
        if (seconds() > w->waits_since + WAIT_MOST_S) emulate_fault("a CTA waits for what no other one writes");
        sched_yield();
        for (int t = 0; t < w->threads; t++)
            if (w->states[t] == TURNS) w->states[t] = READY;
    }
}

void emulate_turn()
{
    fiber_state &state = self->states[self->now];
    if (state != DONE) state = TURNS;
    go_on();
}

void emulate_until(const uint32_t *word, uint32_t mask, uint32_t other)
{
    worker *w = self;
    fiber *f = &w->fibers[w->now];
    f->word = word;
    f->mask = mask;
    f->other = other;
    if (changed(f)) return;
    w->states[w->now] = UNTIL;
    go_on();
}

int emulate_barrier(bool mine)
{
    worker *w = self;
    const int side = w->side;
    w->any[side] |= mine;
    if (w->done) emulate_fault("a barrier, and some threads have returned");
    if (++w->arrived < w->threads) {
        w->states[w->now] = WAITS;
        go_on();
        return w->any[side];
    }
    for (int t = 0; t < w->threads; t++) {
        if (t != w->now && w->states[t] != WAITS) emulate_fault("a barrier that not all threads reach");
        w->states[t] = READY;
    }
    w->waits_since = 0;
    w->arrived = 0;
    w->side = !side;
    w->any[w->side] = 0;
    return w->any[side];
}

const unsigned char *emulate_warp(const void *mine, size_t bytes)
{
    worker *w = self;
    warp *p = &w->warps[w->now / WARP];
    const int side = p->side, first = w->now / WARP * WARP;
    if (bytes > sizeof p->value[0][0]) emulate_fault("a shuffle of more bytes than there is room for");
    if (p->arrived && p->bytes != bytes) emulate_fault("lanes of a warp at different shuffles");
    p->bytes = bytes;
    memcpy(p->value[side][w->now - first], mine, bytes);
    if (++p->arrived < WARP) {
        w->states[w->now] = WAITS;
        go_on();
    } else {
        w->waits_since = 0;
        p->arrived = 0;
        p->side = !side;
        for (int t = first; t < first + WARP; t++) w->states[t] = READY;
    }
    return p->value[side][0];
}

void emulate_exchange(const void *mine, void *other, size_t bytes, int lane)
{
    memcpy(other, emulate_warp(mine, bytes) + lane * EMULATE_EACH, bytes);
}

void emulate_copy(void *shared, const void *global, size_t bytes)
{
    if (bytes != 4 && bytes != 8 && bytes != 16) emulate_fault("a copy of neither 4, 8 nor 16 bytes");
    if (((uintptr_t)shared | (uintptr_t)global) % bytes) emulate_fault("a copy to or from an odd address");
    self->fibers[self->now].copies.push_back({shared, global, bytes, self->fibers[self->now].groups});
}

void emulate_copy_group()
{
    self->fibers[self->now].groups++;
}

static void arrive(const fiber::copy &c)
{
    if (c.from)
        memcpy(c.to, c.from, c.bytes);
    else
        memset(c.to, 0, c.bytes);
}

/* Of the groups below this one. */
static void arrive(int group)
{
    std::vector<fiber::copy> &copies = self->fibers[self->now].copies;
    size_t arrived = 0;
    for (; arrived < copies.size() && copies[arrived].group < group; arrived++) arrive(copies[arrived]);
    copies.erase(copies.begin(), copies.begin() + (long)arrived);
}

void emulate_copy_wait_but(int groups)
{
    arrive(self->fibers[self->now].groups - groups);
}

void emulate_copy_wait()
{
    arrive(INT_MAX);
}

void emulate_at_once(void *to, const void *from, size_t bytes)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    memcpy(to, from, bytes);
    pthread_mutex_unlock(&lock);
}

/* --- what sm_90 has -------------------------------------------------------------------------------------------------- */

/* Dynamic shared memory lies where descriptors of operands can tell of it; the bits of PEER say whose it is, plus 1. */
static const uint32_t DYNAMIC = 1024, REST = 1 << 22, PEER = 1 << 24;

uint32_t emulate_address(const void *shared)
{
    const worker *w = self;
    const unsigned char *at = (const unsigned char *)shared;
    if (at >= w->dynamic && at < w->dynamic + sizeof ks_dynamic) return DYNAMIC + (uint32_t)(at - w->dynamic);
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
    if (at < DYNAMIC || at >= DYNAMIC + sizeof ks_dynamic) emulate_fault("an address beyond shared memory");
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

struct gate {                 /* of a word and its neighbour; the first word's highest bit is the parity */
    uint16_t missing, opened; /* opened: for so many arrivals */
    int32_t bytes;
};
static_assert(sizeof(gate) == 8, "a gate is a word");
static pthread_mutex_t gates = PTHREAD_MUTEX_INITIALIZER;

void emulate_gate_open(uint32_t at, int arrivals)
{
    const gate g = {(uint16_t)arrivals, (uint16_t)arrivals, 0};
    memcpy(emulate_at(at), &g, sizeof g);
}

static void change(uint32_t at, int arrivals, int bytes)
{
    gate *g = (gate *)(void *)emulate_at(at);
    pthread_mutex_lock(&gates);
    if (g->missing < arrivals) emulate_fault("more arrivals at a gate than it was opened for");
    g->missing = (uint16_t)(g->missing - arrivals);
    g->bytes += bytes;
    if (g->missing == 0 && g->bytes == 0) {
        g->missing = g->opened & 0x7FFF;
        g->opened = (uint16_t)(g->opened ^ 0x8000);
    }
    pthread_mutex_unlock(&gates);
}

void emulate_gate_arrive(uint32_t at, int bytes_to_come)
{
    change(at, 1, bytes_to_come);
}

void emulate_gate_bytes(uint32_t at, int came)
{
    change(at, 0, -came);
}

void emulate_gate_wait(uint32_t at, uint32_t parity)
{
    emulate_until((const uint32_t *)(const void *)emulate_at(at), 1u << 31, parity << 31);
}

void emulate_product(const std::function<void()> &product)
{
    fiber *f = &self->fibers[self->now];
    f->products.push_back({product, f->product_groups});
}

void emulate_product_group()
{
    self->fibers[self->now].product_groups++;
}

void emulate_product_wait_but(int groups)
{
    fiber *f = &self->fibers[self->now];
    size_t done = 0;
    for (; done < f->products.size() && f->products[done].group < f->product_groups - groups; done++)
        f->products[done].work();
    f->products.erase(f->products.begin(), f->products.begin() + (long)done);
    const char mine = 0;
    emulate_warp(&mine, sizeof mine); /* a warp waits as one: all its lanes' operands have been read */
}

/* --- a CTA ----------------------------------------------------------------------------------------------------------- */

struct span {
    void *begin;
    size_t bytes;
};

/* This thread's part of the program's thread-local memory: all shared memory lies there. */
static int find_shared(dl_phdr_info *info, size_t, void *out)
{
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data)
            *(span *)out = {info->dlpi_tls_data, info->dlpi_phdr[i].p_memsz};
    return 1; /* the program comes first: no other */
}

thread_local span shared_memory; /* not static, likewise */

static void spoil_shared(int noise)
{
    if (!shared_memory.begin) dl_iterate_phdr(find_shared, &shared_memory);
    const span kept = shared_memory;
    worker *w = self;
    memset(kept.begin, noise, kept.bytes);
    shared_memory = kept;
    self = w;
}

struct work {
    const emulate_grid *grid;
    const std::function<void()> *kernel;
    uint32_t first, step; /* CTAs in an order of this grid's own */
    uint32_t noise;
    uint32_t drawn; /* CTAs, atomic */
    team *teams;
    int teams_count;
    int joined; /* workers */
};

static void run_cta(worker *w, const work &job, uint32_t index)
{
    /* All ones are NaN and -1; the others a number that is large, and finite in every datatype. */
    const int noise = job.noise >> index % 32 & 1 ? 0xFF : 0x7B;
    const emulate_grid &g = *job.grid;
    const uint64_t clusters = (uint64_t)g.grid.x * g.grid.y / g.cluster;
    const uint32_t cta =
        (uint32_t)((job.first + (uint64_t)(index / g.cluster) * job.step) % clusters * g.cluster + index % g.cluster);
    spoil_shared(noise);
    w->dynamic = (unsigned char *)ks_dynamic;
    w->rest = (unsigned char *)shared_memory.begin;
    blockIdx = {cta % g.grid.x, cta / g.grid.x, 0};
    blockDim = g.block;
    gridDim = g.grid;
    w->kernel = job.kernel;
    w->threads = (int)g.block.x;
    w->done = w->arrived = w->side = w->any[0] = w->any[1] = 0;
    w->step = job.noise >> index % 31 & 1 ? 1 : w->threads - 1;
    w->at_once = job.noise >> index % 29 & 1;
    for (int t = 0; t < w->threads; t++) w->states[t] = READY;
    for (int i = 0; i < w->threads / WARP; i++) w->warps[i].arrived = w->warps[i].side = 0;
    memset(w->meetings, 0, sizeof w->meetings);
    w->waits_since = 0;
    __atomic_store_n(&w->cluster->live[w->rank], true, __ATOMIC_SEQ_CST);
    if (!_setjmp(w->home)) resume(w, (int)(job.noise % g.block.x));
    for (const worker::task &t : w->later) {
        if (t.rank == w->rank) emulate_fault("a CTA has ended before its bulk copies have arrived");
        t.work();
    }
    w->later.clear();
    __atomic_store_n(&w->cluster->live[w->rank], false, __ATOMIC_SEQ_CST);
    if (!emulate_all((unsigned char *)ks_dynamic + g.shared_bytes, noise, sizeof ks_dynamic - g.shared_bytes))
        emulate_fault("dynamic shared memory is written beyond its end");
}

/* --- a grid ---------------------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static int workers, wanted, busy; /* wanted: workers that the grid has yet to get */
static work *current;
static std::map<const void *, size_t> allowed;

/* The team's workers wait for each other. */
static void meet(team *t)
{
    const uint32_t meeting = __atomic_load_n(&t->meetings, __ATOMIC_SEQ_CST);
    if (__atomic_add_fetch(&t->met, 1, __ATOMIC_SEQ_CST) == (uint32_t)t->size) {
        __atomic_store_n(&t->met, 0, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&t->meetings, 1, __ATOMIC_SEQ_CST);
    }
    while (__atomic_load_n(&t->meetings, __ATOMIC_SEQ_CST) == meeting) sched_yield();
}

/* The clusters of a team, one after the other. */
static void run_clusters(worker *w, work *job)
{
    const uint64_t count = (uint64_t)job->grid->grid.x * job->grid->grid.y;
    const uint32_t size = job->grid->cluster;
    for (uint64_t i = (uint64_t)(w->cluster - job->teams) * size; i < count; i += (uint64_t)job->teams_count * size) {
        meet(w->cluster);
        run_cta(w, *job, (uint32_t)i + (uint32_t)w->rank);
    }
}

static void *worker_main(void *)
{
    self = new worker();
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!wanted) pthread_cond_wait(&begun, &lock);
        wanted--;
        work *job = current;
        self->cluster = &job->teams[job->joined / (int)job->grid->cluster];
        self->rank = job->joined++ % (int)job->grid->cluster;
        self->cluster->members[self->rank] = self;
        pthread_mutex_unlock(&lock);
        const uint64_t count = (uint64_t)job->grid->grid.x * job->grid->grid.y;
        if (job->grid->cluster > 1)
            run_clusters(self, job);
        else
            for (uint32_t i; (i = __atomic_fetch_add(&job->drawn, 1, __ATOMIC_RELAXED)) < count;)
                run_cta(self, *job, i);
        pthread_mutex_lock(&lock);
        if (--busy == 0) pthread_cond_signal(&ended);
    }
    return NULL;
}

void emulate_allow(const void *kernel, size_t bytes)
{
    allowed[kernel] = bytes;
}

static bool takes(const emulate_grid &g, uint64_t count)
{
    const emulate_chip &chip = emulate_chip_now;
    const size_t most = allowed.count(g.kernel) ? allowed[g.kernel] : 48 << 10;
    if (!count || count > INT32_MAX || g.grid.y > 65535 || g.grid.z != 1) return false;
    if (!g.cluster || g.cluster > 16 || g.grid.x % g.cluster) return false;
    if (!g.block.x || g.block.x > THREADS_MOST || g.block.x % WARP || g.block.y != 1 || g.block.z != 1) return false;
    if (g.shared_bytes > most || g.shared_bytes > std::min(chip.shared_optin, sizeof ks_dynamic)) return false;
    const uint64_t on_sm = std::min<uint64_t>(2048 / g.block.x, chip.shared_sm / (g.shared_bytes + (1 << 10)));
    return !g.together || count <= on_sm * (uint64_t)chip.sms;
}

static uint32_t draw()
{
    static uint64_t state = 1;
    return (uint32_t)((state = state * 6364136223846793005u + 1442695040888963407u) >> 33);
}

bool emulate_run(const emulate_grid &grid, const std::function<void()> &kernel)
{
    const uint64_t count = (uint64_t)grid.grid.x * grid.grid.y;
    if (!takes(grid, count)) return false;
    static const uint32_t steps[] = {1, 7919, 104729, 15485863}; /* primes */
    uint32_t step = steps[draw() % 4];
    if (count / grid.cluster % step == 0) step = 1;
    const int need = grid.together      ? (int)count
                     : grid.cluster > 1 ? (int)std::min<uint64_t>(count, 2 * grid.cluster)
                                        : (int)std::min<uint64_t>(count, 2);
    std::vector<team> teams((size_t)need / grid.cluster);
    for (team &t : teams) t.size = (int)grid.cluster;
    work job = {&grid, &kernel, draw() % (uint32_t)count, step, draw(), 0, teams.data(), (int)teams.size(), 0};
    pthread_mutex_lock(&lock);
    for (pthread_t thread; workers < need; workers++)
        if (pthread_create(&thread, NULL, worker_main, NULL)) emulate_fault("no thread for a CTA");
    current = &job;
    wanted = busy = need;
    pthread_cond_broadcast(&begun);
    while (busy) pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
    return true;
}
