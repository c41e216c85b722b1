/* Preloaded into the daemon: the longest turn of any of its loops in CPU time, which other programs do not lengthen.
 *
 * A turn is what a thread does from one epoll_wait or epoll_pwait2 to the next one on the same descriptor, the first that it
 * ever waits for, without the waiting: another one, as the HTTP library's, is not looked at in every turn. At the process's end
 * "longest turn NS" goes to the file that KS_TURNS names. Turns before the first request, when slots are touched and plans
 * made, count too; main has no loop yet while they last. The second listener's thread, which measures the device once after ready, is left out. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

static _Atomic int64_t longest_ns;
enum { NOT_YET = -1, LEFT_OUT = -2 };
static _Thread_local int first = NOT_YET; /* what this thread waited for first */
static _Thread_local int64_t began_ns;

static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

static void turn_ends(int fd)
{
    if (fd != first) return;
    const int64_t ns = cpu_ns() - began_ns;
    int64_t longest = atomic_load(&longest_ns);
    while (ns > longest && !atomic_compare_exchange_weak(&longest_ns, &longest, ns)) continue;
}

static int turn_begins(int fd, int result)
{
    char name[16] = "";
    if (first == NOT_YET) {
        pthread_getname_np(pthread_self(), name, sizeof name);
        first = strcmp(name, "kernserve-admin") == 0 ? LEFT_OUT : fd;
    }
    if (fd == first) began_ns = cpu_ns();
    return result;
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms)
{
    static int (*real)(int, struct epoll_event *, int, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
    turn_ends(fd);
    return turn_begins(fd, real(fd, events, most, timeout_ms));
}

int epoll_pwait2(int fd, struct epoll_event *events, int most, const struct timespec *timeout, const sigset_t *signals)
{
    static int (*real)(int, struct epoll_event *, int, const struct timespec *, const sigset_t *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "epoll_pwait2");
    turn_ends(fd);
    return turn_begins(fd, real(fd, events, most, timeout, signals));
}

static __attribute__((destructor)) void tell(void)
{
    const char *path = getenv("KS_TURNS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "longest turn %lld\n", (long long)atomic_load(&longest_ns));
    fclose(file);
}
