/* The threads of a CTA: how they take turns, wait, exchange, and what each of them has asked for: copies and products. */
#include "worker.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

static const size_t STACK_BYTES = 132 << 10; /* no power of two: see make_stack() */
static const double WAIT_MOST_S = 60;
static const uint64_t STACK_END = 0x9E3779B97F4A7C15;

thread_local worker *self;

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

/* From one stack to another: what a callee keeps (System V ABI) stays on the one that is left, whose top goes to *from. setjmp and
 * longjmp did the same in three times the time, and switches are most of what an emulated kernel does. */
extern "C" void emulate_switch(void **from, void *to);
asm(R"(
    .text
    .globl emulate_switch
    .type emulate_switch, @function
emulate_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulate_switch, . - emulate_switch
)");

/* Each lane's stack begins at another cache line of a page, and each stack in other pages of a cache's: where all began alike, the few
 * lines that a switch needs of each were in the same sets of the caches, which hold some of them only. */
static void make_stack(fiber *f, int thread)
{
    f->stack =
        (char *)mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED) emulate_fault("no memory for a stack");
    *(uint64_t *)(void *)f->stack = STACK_END;
    /* As if fiber_main had been called from address 0, and had switched in its first instruction. */
    void **top = (void **)(void *)(f->stack + STACK_BYTES - thread % WARP * 128) - 1;
    *--top = (void *)fiber_main;
    f->at = top - 6;
}

void resume(worker *w, int thread, void **from)
{
    fiber *f = &w->fibers[thread];
    w->now = thread;
    threadIdx = {(uint32_t)thread, 0, 0};
    if (!f->stack) make_stack(f, thread);
    if (from != &f->at) emulate_switch(from, f->at);
}

static double seconds()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The sizes that there are, each of them known to the compiler: a call took longer than the copy. */
static inline void copy_few(void *to, const void *from, size_t bytes)
{
    switch (bytes) {
    case 1:
        memcpy(to, from, 1);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    case 8:
        memcpy(to, from, 8);
        break;
    case 16:
        memcpy(to, from, 16);
        break;
    case EMULATE_EACH:
        memcpy(to, from, EMULATE_EACH);
        break;
    default:
        memcpy(to, from, bytes);
        break;
    }
}

/* The next thread that is ready, behind this one in turn; -1: none is. */
static int next_ready(const worker *w)
{
    const char *const states = (const char *)w->states, *const here = states + w->now;
    const void *found;
    const int beside = w->step == 1 ? w->now + 1 : w->now - 1; /* in nearly all cases, without a search */
    if (beside >= 0 && beside < w->threads && states[beside] == READY) return beside;
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
    void **const mine = &w->fibers[w->now].at;
    if (w->done == w->threads) return emulate_switch(mine, w->home);
    for (;;) {
        const int next = next_ready(w);
        if (next >= 0) return resume(w, next, mine);
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
    copy_few(p->value[side][w->now - first], mine, bytes);
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
    copy_few(other, emulate_warp(mine, bytes) + lane * EMULATE_EACH, bytes);
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

void arrive(const fiber::copy &c)
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
