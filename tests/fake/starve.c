/* Preloaded into the daemon: lets allocations fail, for http/starve.py. KS_STARVE=N: the N-th one fails; N+: that one
 * and all behind it. KS_STARVE_COUNT names a file that holds how many were asked for so far, as a 64-bit number.
 *
 * Counted is what any object asks the C library for: malloc and its kin, which operator new calls too, and anonymous
 * mappings. What the dynamic loader takes before it knows this library is none of them, nor are the stacks of threads,
 * which the C library maps for itself. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size), *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size), *__libc_memalign(size_t alignment, size_t size);

static _Atomic uint64_t nowhere, *count = &nowhere;
static uint64_t first;
static bool all_behind;

/* The first allocations come from constructors that run before any of this library would: so it begins with the first. */
static void begin(void)
{
    static bool begun;
    if (begun) return;
    begun = true;
    const char *text = getenv("KS_STARVE"), *path = getenv("KS_STARVE_COUNT");
    if (text) first = strtoull(text, NULL, 10);
    all_behind = text && strchr(text, '+');
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *memory = (void *)syscall(SYS_mmap, NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) count = memory;
    close(fd);
}

static bool fails(void)
{
    begin();
    const uint64_t now = atomic_fetch_add(count, 1) + 1;
    if (first == 0 || now < first || (now > first && !all_behind)) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
    return fails() ? NULL : __libc_calloc(number, size);
}

void *realloc(void *memory, size_t size)
{
    return fails() ? NULL : __libc_realloc(memory, size);
}

void *memalign(size_t alignment, size_t size);
void *memalign(size_t alignment, size_t size)
{
    return fails() ? NULL : __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    void *memory = fails() ? NULL : __libc_memalign(alignment, size);
    if (!memory) return ENOMEM;
    *out = memory;
    return 0;
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    if ((flags & MAP_ANONYMOUS) && fails()) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}
