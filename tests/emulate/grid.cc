/* See grid.h: a CTA from its noise to its end, and the workers of a grid. */
#include "worker.h"

#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include <algorithm>
#include <map>
#include <vector>

thread_local uint3 threadIdx, blockIdx;
thread_local dim3 blockDim, gridDim;
alignas(1024) thread_local uint4 ks_dynamic[DYNAMIC_MOST / sizeof(uint4)];
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

/* --- launches that begin early ---------------------------------------------------------------------------------------- */

typedef std::vector<std::vector<unsigned char>> contents;
static std::vector<std::pair<unsigned char *, size_t>> shared_now;
static contents before, behind; /* that memory, in front of the launch in front, and as that one has left it */
static uint32_t turned = 1;     /* atomic: it is `behind` */
unsigned emulate_early_launches;

emulate_shared::emulate_shared(std::initializer_list<std::pair<void *, size_t>> memory)
{
    for (const auto &[data, bytes] : memory)
        if (bytes) shared_now.emplace_back((unsigned char *)data, bytes);
}

emulate_shared::~emulate_shared()
{
    shared_now.clear();
    before.clear();
}

static contents read_shared()
{
    contents now;
    for (const auto &[data, bytes] : shared_now) now.emplace_back(data, data + bytes);
    return now;
}

static void write_shared(const contents &from)
{
    for (size_t i = 0; i < from.size(); i++) memcpy(shared_now[i].first, from[i].data(), from[i].size());
}

/* The launch in front ends. */
static void turn()
{
    static pthread_mutex_t turning = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&turning);
    if (!__atomic_load_n(&turned, __ATOMIC_SEQ_CST)) write_shared(behind);
    __atomic_store_n(&turned, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&turning);
}

void emulate_launch_wait()
{
    static const uint32_t NOBODY = ~0u;
    const bool first = !self->awaited;
    self->awaited = true;
    if (__atomic_load_n(&turned, __ATOMIC_SEQ_CST)) return;
    if (first) emulate_later(NOBODY, turn);
    emulate_until(&turned, ~0u, 0);
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
    w->awaited = false;
    __atomic_store_n(&w->cluster->live[w->rank], true, __ATOMIC_SEQ_CST);
    resume(w, (int)(job.noise % g.block.x), &w->home);
    for (const worker::task &t : w->later) {
        if (t.rank == w->rank) emulate_fault("a CTA has ended before its bulk copies have arrived");
        t.work();
    }
    w->later.clear();
    if (g.early && !w->awaited)
        emulate_fault("a CTA that began early has ended, and has not waited for the launch in front");
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
    /* 64 registers a thread, as kernels have whose CTAs wait for each other */
    const uint64_t on_sm = std::min<uint64_t>(1024 / g.block.x, chip.shared_sm / (g.shared_bytes + (1 << 10)));
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
    contents now = read_shared();
    if (grid.early) {
        emulate_early_launches++;
        behind = now;
        write_shared(before);
        turned = before.empty();
    }
    work job = {&grid, &kernel, draw() % (uint32_t)count, step, draw(), 0, teams.data(), (int)teams.size(), 0};
    pthread_mutex_lock(&lock);
    for (pthread_t thread; workers < need; workers++)
        if (pthread_create(&thread, NULL, worker_main, NULL)) emulate_fault("no thread for a CTA");
    current = &job;
    wanted = busy = need;
    pthread_cond_broadcast(&begun);
    while (busy) pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
    before = std::move(now);
    return true;
}
