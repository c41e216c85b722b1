/* Preloaded into the daemon: what its shards' threads ask of the system and of the C library. A table of counters lies in
 * the file that KS_COUNTS names, for http/engine_counts.py to read while the daemon runs.
 *
 * System calls   every one, by number: the kernel hands each to a SIGSYS handler here, which counts it and makes it (syscall
 *                user dispatch, Linux 5.11). Calls that the vDSO answers, such as looks at the clock, are none.
 * Allocations    malloc and its kin, by the object whose code called.
 * Copies         memcpy and memmove of LARGE bytes and more, by the object; memset likewise. A loop of somebody's own is not
 *                seen. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALLS = 512, LARGE = 4096 };
typedef enum owner { OURS, LIBMICROHTTPD, CJSON, OTHERS, OWNERS } owner;

static struct table {
    _Atomic uint64_t dispatched; /* threads whose calls are counted */
    _Atomic uint64_t call[CALLS], allocations[OWNERS], copied_bytes[OWNERS], cleared_bytes[OWNERS];
} nowhere, *table = &nowhere;

static struct {
    uintptr_t from, to;
} code[OTHERS]; /* of the objects that have a name above */

static _Thread_local bool counting __attribute__((tls_model("initial-exec")));

/* --- who called --------------------------------------------------------------------------------------------------- */

static int find_code(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size, (void)context;
    const owner who = strstr(info->dlpi_name, "libmicrohttpd") ? LIBMICROHTTPD
                      : strstr(info->dlpi_name, "libcjson")    ? CJSON
                      : info->dlpi_name[0] == 0                ? OURS
                                                               : OTHERS;
    for (int i = 0; who != OTHERS && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        code[who].from = info->dlpi_addr + part->p_vaddr;
        code[who].to = code[who].from + part->p_memsz;
    }
    return info->dlpi_name[0] == 0 && code[LIBMICROHTTPD].to && code[CJSON].to;
}

static owner owner_of(const void *address)
{
    for (owner who = OURS; who < OTHERS; who++)
        if ((uintptr_t)address >= code[who].from && (uintptr_t)address < code[who].to) return who;
    return OTHERS;
}

/* --- allocations -------------------------------------------------------------------------------------------------- */

extern void *__libc_malloc(size_t size), *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size), *__libc_memalign(size_t alignment, size_t size);

static void allocates(const void *caller)
{
    if (counting) atomic_fetch_add(&table->allocations[owner_of(caller)], 1);
}

void *malloc(size_t size)
{
    allocates(__builtin_return_address(0));
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocates(__builtin_return_address(0));
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    allocates(__builtin_return_address(0));
    return __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    allocates(__builtin_return_address(0));
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    allocates(__builtin_return_address(0));
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}

/* So that it counts as its caller's, not as the C library's. */
char *strdup(const char *text)
{
    allocates(__builtin_return_address(0));
    const size_t n = strlen(text) + 1;
    char *copy = __libc_malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

static void copies(const void *caller, size_t n)
{
    if (counting && n >= LARGE) atomic_fetch_add(&table->copied_bytes[owner_of(caller)], n);
}

/* Plain loops, compiled so that they stay what they are and do not become calls of what they stand for. */
static void *move(void *to, const void *from, size_t n)
{
    char *const out = to;
    const char *const in = from;
    if ((uintptr_t)to - (uintptr_t)from >= n)
        for (size_t i = 0; i < n; i++) out[i] = in[i];
    else
        for (size_t i = n; i > 0; i--) out[i - 1] = in[i - 1];
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    copies(__builtin_return_address(0), n);
    return move(to, from, n);
}

void *memmove(void *to, const void *from, size_t n)
{
    copies(__builtin_return_address(0), n);
    return move(to, from, n);
}

void *__memcpy_chk(void *restrict to, const void *restrict from, size_t n, size_t room);
void *__memcpy_chk(void *restrict to, const void *restrict from, size_t n, size_t room)
{
    if (n > room) abort();
    copies(__builtin_return_address(0), n);
    return move(to, from, n);
}

void *__memmove_chk(void *to, const void *from, size_t n, size_t room);
void *__memmove_chk(void *to, const void *from, size_t n, size_t room)
{
    if (n > room) abort();
    copies(__builtin_return_address(0), n);
    return move(to, from, n);
}

void *memset(void *memory, int byte, size_t n)
{
    if (counting && n >= LARGE) atomic_fetch_add(&table->cleared_bytes[owner_of(__builtin_return_address(0))], n);
    for (size_t i = 0; i < n; i++) ((char *)memory)[i] = (char)byte;
    return memory;
}

/* --- system calls ------------------------------------------------------------------------------------------------- */

#ifdef __x86_64__
#include <sys/ucontext.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#endif

/* The two places from which the kernel takes calls as they are: the handler's own, and its return. */
extern const char ks_own_calls[], ks_own_return[], ks_own_calls_end[];
long ks_own_call(long number, const greg_t *registers);
__asm__(".pushsection .text\n"
        "ks_own_calls:\n"
        ".type ks_own_call, @function\n"
        "ks_own_call:\n" /* rdi: number, rsi: gregs in ucontext's order: r8 r9 r10 .. rdi rsi .. rdx */
        "mov %rdi, %rax\n"
        "mov %rsi, %r11\n"
        "mov 0(%r11), %r8\n"
        "mov 8(%r11), %r9\n"
        "mov 16(%r11), %r10\n"
        "mov 64(%r11), %rdi\n"
        "mov 72(%r11), %rsi\n"
        "mov 96(%r11), %rdx\n"
        "syscall\n"
        "ret\n"
        "ks_own_return:\n"
        "mov $15, %eax\n"
        "syscall\n"
        "ud2\n" /* the kernel looks at the address behind a call */
        "ks_own_calls_end:\n"
        ".popsection\n");

static void on_call(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (info->si_syscall >= 0 && info->si_syscall < CALLS) atomic_fetch_add(&table->call[info->si_syscall], 1);
    registers[REG_RAX] = ks_own_call(info->si_syscall, registers);
}

static void dispatch(void)
{
    struct {
        void (*handler)(int, siginfo_t *, void *);
        unsigned long flags;
        const void *restorer;
        unsigned long mask;
    } action = {on_call, SA_SIGINFO | SA_NODEFER | 0x04000000 /* SA_RESTORER */, ks_own_return, 0};
    sigset_t mine; /* the daemon's threads block what is for its main one */
    sigemptyset(&mine);
    sigaddset(&mine, SIGSYS);
    pthread_sigmask(SIG_UNBLOCK, &mine, NULL);
    if (syscall(SYS_rt_sigaction, SIGSYS, &action, NULL, 8) == 0 &&
        prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, ks_own_calls, ks_own_calls_end - ks_own_calls, NULL) ==
            0)
        atomic_fetch_add(&table->dispatched, 1);
}

#else
static void dispatch(void)
{
}
#endif

/* --- which threads ------------------------------------------------------------------------------------------------ */

/* From its first wait on a shard is counted: before that it makes threads of its own, which cannot be done from a handler. */
static void look_at_thread(void)
{
    static _Thread_local bool known __attribute__((tls_model("initial-exec")));
    char name[16] = "";
    if (known) return;
    known = true;
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (strncmp(name, "ks-shard-", 9) != 0) return;
    counting = true;
    dispatch();
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms)
{
    look_at_thread();
    return epoll_pwait(fd, events, most, timeout_ms, NULL);
}

static __attribute__((constructor)) void begin(void)
{
    const char *path = getenv("KS_COUNTS");
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *memory = MAP_FAILED;
    dl_iterate_phdr(find_code, NULL);
    if (fd >= 0 && ftruncate(fd, sizeof *table) == 0)
        memory = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (memory != MAP_FAILED) table = memory;
}
