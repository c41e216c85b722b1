/* Preloaded into the daemon: lets allocations fail, for http/engine_starve.py and http/engine_torture.py. KS_STARVE=N: the N-th one
 * fails; N+: that one and all behind it; with KS_STARVE_OWN of those alone that the program itself asks for. KS_STARVE_COUNT names a
 * file of 64-bit numbers: how many were asked for so far by any object, and by the program; how many of all are not free yet;
 * and N, which the test may write at any time.
 *
 * Counted is what an object asks the C library for: malloc and its kin, which operator new calls too, and anonymous
 * mappings. What the dynamic loader takes before it knows this library is none of them, nor are the stacks of threads,
 * which the C library maps for itself. The program asks from main on, where the code that called is its own or that of a
 * library which is linked into it: not what the C library takes for an fopen(). (CUDA's runtime is such a library. It
 * registers each kernel before main, and looks at nothing that it gets.)
 *
 * A segmentation fault says on stderr in which object it happened: oneDNN 2.6.3 looks at nothing for two of its 79,000. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size), *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size), *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

static struct counts {
    _Atomic uint64_t all, own, held, first;
} nowhere, *count = &nowhere;
static bool all_behind, own_alone, main_runs;
static uintptr_t program, program_end; /* where its code is */

static void find_program(void)
{
    const ElfW(Phdr) *const part = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    const unsigned long parts = getauxval(AT_PHNUM);
    uintptr_t moved = 0;
    for (unsigned long i = 0; i < parts; i++)
        if (part[i].p_type == PT_PHDR) moved = (uintptr_t)part - part[i].p_vaddr;
    for (unsigned long i = 0; i < parts; i++) {
        if (part[i].p_type != PT_LOAD || !(part[i].p_flags & PF_X)) continue;
        program = moved + part[i].p_vaddr;
        program_end = program + part[i].p_memsz;
    }
}

/* The default action follows: the instruction is made once more. */
static void say_where(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    const ucontext_t *const at = context;
#ifdef __x86_64__
    void *const code = (void *)(uintptr_t)at->uc_mcontext.gregs[REG_RIP];
#else
    void *const code = (void *)(uintptr_t)at->uc_mcontext.pc;
#endif
    Dl_info where;
    const char *const name = dladdr(code, &where) ? where.dli_fname : "nowhere";
    const struct iovec parts[] = {{"starve: SIGSEGV in ", 19}, {(void *)name, strlen(name)}, {"\n", 1}};
    if (writev(STDERR_FILENO, parts, 3) < 0) return;
}

/* The first allocations come from constructors that run before any of this library would: so it begins with the first. */
static void begin(void)
{
    static bool begun;
    if (begun) return;
    begun = true;
    const char *text = getenv("KS_STARVE"), *path = getenv("KS_STARVE_COUNT");
    const struct sigaction action = {.sa_sigaction = say_where, .sa_flags = SA_SIGINFO | SA_RESETHAND};
    sigaction(SIGSEGV, &action, NULL);
    find_program();
    own_alone = getenv("KS_STARVE_OWN");
    all_behind = text && strchr(text, '+');
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) {
        if (text) count->first = strtoull(text, NULL, 10);
        return;
    }
    void *memory = (void *)syscall(SYS_mmap, NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) count = memory;
    close(fd);
    if (text) count->first = strtoull(text, NULL, 10);
}

static bool fails(const void *caller)
{
    begin();
    const bool own = main_runs && (uintptr_t)caller >= program && (uintptr_t)caller < program_end;
    const uint64_t of_all = atomic_fetch_add(&count->all, 1) + 1;
    const uint64_t of_own = own ? atomic_fetch_add(&count->own, 1) + 1 : 0;
    const uint64_t now = own_alone ? of_own : of_all, first = count->first;
    if (first == 0 || now < first || (now > first && !all_behind)) return false;
    errno = ENOMEM;
    return true;
}

static void *hold(void *memory)
{
    if (memory) atomic_fetch_add(&count->held, 1);
    return memory;
}

void *malloc(size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : hold(__libc_malloc(size));
}

void *calloc(size_t number, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : hold(__libc_calloc(number, size));
}

void *realloc(void *memory, size_t size)
{
    if (fails(__builtin_return_address(0))) return NULL;
    if (!memory) return hold(__libc_realloc(memory, size));
    if (size == 0) atomic_fetch_sub(&count->held, 1);
    return __libc_realloc(memory, size);
}

void *memalign(size_t alignment, size_t size);
void *memalign(size_t alignment, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : hold(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : hold(__libc_memalign(alignment, size));
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    void *memory = fails(__builtin_return_address(0)) ? NULL : hold(__libc_memalign(alignment, size));
    if (!memory) return ENOMEM;
    *out = memory;
    return 0;
}

void free(void *memory)
{
    if (memory) atomic_fetch_sub(&count->held, 1);
    __libc_free(memory);
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    if ((flags & MAP_ANONYMOUS) && fails(__builtin_return_address(0))) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

typedef int main_fn(int count, char **words, char **environment);
typedef int start_fn(main_fn *function, int count, char **words, void (*init)(void), void (*fini)(void),
                     void (*loader)(void), void *stack);

static main_fn *own_main;

static int begin_main(int words_count, char **words, char **environment)
{
    main_runs = true;
    return own_main(words_count, words, environment);
}

start_fn __libc_start_main;
int __libc_start_main(main_fn *function, int words_count, char **words, void (*init)(void), void (*fini)(void),
                      void (*loader)(void), void *stack)
{
    own_main = function;
    start_fn *const start = (start_fn *)dlsym(RTLD_NEXT, "__libc_start_main");
    return start(begin_main, words_count, words, init, fini, loader, stack);
}
