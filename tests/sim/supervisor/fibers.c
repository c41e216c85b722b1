/* Threads of the simulated processes: stacks that one thread of the simulator goes from and to.
 *
 * Interface  host.h
 * Limits     FIBERS at a time, STACK_BYTES each. */
#include <sys/mman.h>
#include <unistd.h>

#include "sim/supervisor/host.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifdef SANITIZED
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { FIBERS = 40, STACK_BYTES = 512 << 10 };

typedef struct fiber {
    bool used, done;
    int process;
    void *(*main)(void *);
    void *context;
    char *stack; /* kept for the next one */
    void *at;    /* its top while another one runs */
    host_wait wait;
    uint32_t what;
    int64_t until_ns;
} fiber;

static fiber fibers[FIBERS];
static int now = -1, most; /* which runs; behind the last one that is used */
static void *home;         /* the scheduler's stack */
#ifdef SANITIZED
static const void *home_bottom;
static size_t home_bytes;
#endif

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);

/* As tests/emulate/fibers.cc: what a callee keeps (System V ABI) stays on the stack that is left, whose top goes to *from. */
void sim_switch(void **from, void *to);
__asm__(".text\n"
        ".globl sim_switch\n"
        ".type sim_switch, @function\n"
        "sim_switch:\n"
        "pushq %rbp\n"
        "pushq %rbx\n"
        "pushq %r12\n"
        "pushq %r13\n"
        "pushq %r14\n"
        "pushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq %rsi, %rsp\n"
        "popq %r15\n"
        "popq %r14\n"
        "popq %r13\n"
        "popq %r12\n"
        "popq %rbx\n"
        "popq %rbp\n"
        "ret\n"
        ".size sim_switch, . - sim_switch\n");

/* --- from one to another ------------------------------------------------------------------------------------------ */

static void arrived(void)
{
#ifdef SANITIZED
    __sanitizer_finish_switch_fiber(NULL, &home_bottom, &home_bytes);
#endif
}

static void go_home(void)
{
    fiber *self = &fibers[now];
#ifdef SANITIZED
    void *fake = NULL;
    __sanitizer_start_switch_fiber(self->done ? NULL : &fake, home_bottom, home_bytes);
#endif
    sim_switch(&self->at, home);
#ifdef SANITIZED
    __sanitizer_finish_switch_fiber(fake, &home_bottom, &home_bytes);
#endif
}

static void begin(void)
{
    arrived();
    fibers[now].main(fibers[now].context);
    host_fiber_ends();
}

static void resume(int at)
{
    now = at;
    host_set_now(&host_processes[fibers[at].process]);
#ifdef SANITIZED
    void *fake = NULL;
    __sanitizer_start_switch_fiber(&fake, fibers[at].stack, STACK_BYTES);
#endif
    sim_switch(&home, fibers[at].at);
#ifdef SANITIZED
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
    host_set_now(NULL);
    now = -1;
}

/* --- their lives -------------------------------------------------------------------------------------------------- */

void host_fibers_begin(void)
{
    for (int i = 0; i < FIBERS; i++) fibers[i].used = false;
    now = -1;
    most = 0;
}

int host_fiber_make(int process, void *(*main)(void *), void *context)
{
    int at = 0;
    while (at < FIBERS && fibers[at].used) at++;
    if (at == FIBERS) sim_wrong("more threads than the simulator has", FIBERS, 0);
    fiber *made = &fibers[at];
    char *stack = made->stack;
    if (at >= most) most = at + 1;
    if (!stack)
        stack =
            __real_mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) sim_wrong("no memory for a stack", 0, 0);
#ifdef SANITIZED
    __asan_unpoison_memory_region(stack, STACK_BYTES);
#endif
    *made = (fiber){.used = true, .process = process, .main = main, .context = context, .stack = stack};
    /* As if it had been called from address 0, and had switched in its first instruction. */
    void **top = (void **)(void *)(stack + STACK_BYTES) - 1;
    *top = NULL;
    *--top = (void *)(uintptr_t)begin;
    made->at = top - 6;
    return at;
}

bool host_fiber_wait(host_wait wait, uint32_t what, int64_t until_ns)
{
    fiber *self = &fibers[now];
    self->wait = wait;
    self->what = what;
    self->until_ns = until_ns;
    go_home();
    const bool came = self->wait != HOST_UNTIL; /* as is_ready has left it */
    self->wait = HOST_READY;
    return came;
}

void host_fiber_gives_way(void)
{
    fibers[now].wait = HOST_READY;
    go_home();
}

_Noreturn void host_fiber_ends(void)
{
    fibers[now].done = true;
    fibers[now].wait = HOST_FOR_EVER;
    fibers[now].until_ns = SIM_NEVER;
    go_home();
    sim_wrong("a thread that has ended goes on", now, 0);
}

void host_fibers_kill(int process)
{
    for (int i = 0; i < FIBERS; i++)
        if (fibers[i].used && fibers[i].process == process) fibers[i].used = false;
}

void host_fiber_join(int at)
{
    while (!fibers[at].done) host_fiber_wait(HOST_FIBER, (uint32_t)at, SIM_NEVER);
    fibers[at].used = false;
}

/* --- which goes on ------------------------------------------------------------------------------------------------ */

static bool has_come(const fiber *one, const host_process *process)
{
    switch (one->wait) {
    case HOST_READY:
        return true;
    case HOST_EPOLL:
        return host_epoll_is_ready((int)one->what, process);
    case HOST_SIGNALS:
        return host_has_signal(process, one->what);
    case HOST_FIBER:
        return fibers[one->what].done;
    case HOST_UNTIL:
    case HOST_FOR_EVER:
        break;
    }
    return false;
}

bool host_fibers_turn(int64_t *next_ns)
{
    int ready[FIBERS], count = 0;
    bool came[FIBERS];
    const int64_t now_ns = host_now_ns();
    *next_ns = SIM_NEVER;
    for (int i = 0; i < most; i++) {
        const fiber *one = &fibers[i];
        if (!one->used || one->done) continue;
        const host_process *process = &host_processes[one->process];
        const int64_t stopped_ns = process->stopped_ns;
        const bool has = has_come(one, process);
        int64_t at_ns = has ? now_ns : one->wait == HOST_FOR_EVER ? SIM_NEVER : one->until_ns;
        if (at_ns < stopped_ns) at_ns = stopped_ns;
        if (at_ns <= now_ns) {
            came[count] = has;
            ready[count++] = i;
        } else if (at_ns < *next_ns) {
            *next_ns = at_ns;
        }
    }
    if (count == 0) return false;
    const int chosen = (int)sim_draw((uint64_t)count), at = ready[chosen];
    fibers[at].wait = came[chosen] ? HOST_READY : HOST_UNTIL;
    resume(at);
    return true;
}
