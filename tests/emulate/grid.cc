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
thread_local uint4 ks_dynamic[(227 << 10) / sizeof(uint4)];
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

enum fiber_state { READY, WAITS, TURNS, DONE }; /* TURNS: lets others go first */

struct fiber {
    fiber_state state;
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
};

struct warp {
    int arrived, side;
    alignas(16) unsigned char value[2][WARP][16]; /* in turn, so that a fast lane spoils nothing */
    size_t bytes;
};

struct worker {
    fiber fibers[THREADS_MOST];
    warp warps[THREADS_MOST / WARP];
    int threads, done, now, step; /* step: from one thread to the next in turn */
    int arrived, side, any[2];    /* at the barrier */
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
        if (*(uint64_t *)(void *)f->stack != STACK_END) emulate_fault("a thread's stack is too small");
        f->state = DONE;
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

/* Goes over to the next thread that can run. */
static void go_on()
{
    worker *w = self;
    if (_setjmp(w->fibers[w->now].at)) return;
    if (w->done == w->threads) _longjmp(w->home, 1);
    for (double begin = 0;;) {
        int turning = 0;
        for (int i = 0, t = w->now; i < w->threads; i++) {
            t = (t + w->step) % w->threads;
            if (w->fibers[t].state == READY) resume(w, t);
            turning += w->fibers[t].state == TURNS;
        }
        if (!turning) emulate_fault("all threads of a CTA wait");
        if (!begin) begin = seconds();
        if (seconds() > begin + WAIT_MOST_S) emulate_fault("a CTA waits for what no other one writes");
        sched_yield();
        for (int t = 0; t < w->threads; t++)
            if (w->fibers[t].state == TURNS) w->fibers[t].state = READY;
    }
}

void emulate_turn()
{
    fiber *f = &self->fibers[self->now];
    if (f->state != DONE) f->state = TURNS;
    go_on();
}

int emulate_barrier(bool mine)
{
    worker *w = self;
    const int side = w->side;
    w->any[side] |= mine;
    if (w->done) emulate_fault("a barrier, and some threads have returned");
    if (++w->arrived < w->threads) {
        w->fibers[w->now].state = WAITS;
        go_on();
        return w->any[side];
    }
    for (int t = 0; t < w->threads; t++) {
        if (t != w->now && w->fibers[t].state != WAITS) emulate_fault("a barrier that not all threads reach");
        w->fibers[t].state = READY;
    }
    w->arrived = 0;
    w->side = !side;
    w->any[w->side] = 0;
    return w->any[side];
}

void emulate_exchange(const void *mine, void *other, size_t bytes, int lane)
{
    worker *w = self;
    warp *p = &w->warps[w->now / WARP];
    const int side = p->side, first = w->now / WARP * WARP;
    if (bytes > sizeof p->value[0][0]) emulate_fault("a shuffle of more than 16 bytes");
    if (p->arrived && p->bytes != bytes) emulate_fault("lanes of a warp at different shuffles");
    p->bytes = bytes;
    memcpy(p->value[side][w->now - first], mine, bytes);
    if (++p->arrived < WARP) {
        w->fibers[w->now].state = WAITS;
        go_on();
    } else {
        p->arrived = 0;
        p->side = !side;
        for (int t = first; t < first + WARP; t++) w->fibers[t].state = READY;
    }
    memcpy(other, p->value[side][lane], bytes);
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

/* Of the groups below this one. */
static void arrive(int group)
{
    std::vector<fiber::copy> &copies = self->fibers[self->now].copies;
    size_t arrived = 0;
    for (; arrived < copies.size() && copies[arrived].group < group; arrived++)
        memcpy(copies[arrived].to, copies[arrived].from, copies[arrived].bytes);
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
};

static void run_cta(worker *w, const work &job, uint32_t index)
{
    /* All ones are NaN and -1; the others a number that is large, and finite in every datatype. */
    const int noise = job.noise >> index % 32 & 1 ? 0xFF : 0x7B;
    const emulate_grid &g = *job.grid;
    const uint64_t count = (uint64_t)g.grid.x * g.grid.y;
    const uint32_t cta = (uint32_t)((job.first + (uint64_t)index * job.step) % count);
    spoil_shared(noise);
    blockIdx = {cta % g.grid.x, cta / g.grid.x, 0};
    blockDim = g.block;
    gridDim = g.grid;
    w->kernel = job.kernel;
    w->threads = (int)g.block.x;
    w->done = w->arrived = w->side = w->any[0] = w->any[1] = 0;
    w->step = job.noise >> index % 31 & 1 ? 1 : w->threads - 1;
    for (int t = 0; t < w->threads; t++) w->fibers[t].state = READY;
    for (int i = 0; i < w->threads / WARP; i++) w->warps[i].arrived = w->warps[i].side = 0;
    if (!_setjmp(w->home)) resume(w, (int)(job.noise % g.block.x));
    if (!emulate_all((unsigned char *)ks_dynamic + g.shared_bytes, noise, sizeof ks_dynamic - g.shared_bytes))
        emulate_fault("dynamic shared memory is written beyond its end");
}

/* --- a grid ---------------------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static int workers, wanted, busy; /* wanted: workers that the grid has yet to get */
static work *current;
static std::map<const void *, size_t> allowed;

static void *worker_main(void *)
{
    self = new worker();
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!wanted) pthread_cond_wait(&begun, &lock);
        wanted--;
        work *job = current;
        pthread_mutex_unlock(&lock);
        const uint64_t count = (uint64_t)job->grid->grid.x * job->grid->grid.y;
        for (uint32_t i; (i = __atomic_fetch_add(&job->drawn, 1, __ATOMIC_RELAXED)) < count;) run_cta(self, *job, i);
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
    if (count % step == 0) step = 1;
    work job = {&grid, &kernel, draw() % (uint32_t)count, step, draw(), 0};
    const int need = grid.together ? (int)count : (int)std::min<uint64_t>(count, 2);
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
