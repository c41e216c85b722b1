/* Descriptors and what they stand for; memory.
 *
 * Like Linux  an object lives as long as a descriptor of any process, or a message, refers to it; the lowest free number is the next one's.
 * Interface   host.h, objects.h; the calls, as the linker names them. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "sim/supervisor/objects.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the linker's names */

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);

static struct ks_workers *table;
static size_t table_bytes;
host_object host_objects[HOST_OBJECTS];

int host_fail(int code)
{
    errno = code;
    return -1;
}

/* --- objects ------------------------------------------------------------------------------------------------------ */

void host_descriptors_begin(void)
{
    memset(host_objects, 0, sizeof host_objects);
    host_sockets_begin();
    host_epoll_begin();
    if (table) __real_munmap(table, table_bytes);
    table = NULL;
}

int host_make(host_kind kind, int index)
{
    int at = 1;
    while (at < HOST_OBJECTS && host_objects[at].kind != HOST_NONE) at++;
    if (at == HOST_OBJECTS) sim_wrong("more objects than the host has", at, kind);
    host_objects[at] = (host_object){.kind = kind, .index = index};
    return at;
}

void host_drop(int at)
{
    if (--host_objects[at].refs > 0) return;
    const host_object was = host_objects[at];
    host_objects[at] = (host_object){.kind = HOST_NONE};
    host_epoll_forget(at);
    host_epoll_freed(&was);
    host_socket_freed(&was);
}

host_kind host_kind_of(int at)
{
    return host_objects[at].kind;
}

int host_index_of(int at)
{
    return host_objects[at].index;
}

/* --- descriptors -------------------------------------------------------------------------------------------------- */

int host_object_of(const host_process *process, int fd)
{
    return fd >= 0 && fd < HOST_FDS ? process->fd[fd].object : 0;
}

int host_descriptors_count(const host_process *process)
{
    int count = 0;
    for (int i = 0; i < HOST_FDS; i++) count += process->fd[i].object != 0;
    return count;
}

static void set(host_process *process, int fd, int at, bool closes)
{
    const int was = process->fd[fd].object;
    host_objects[at].refs++;
    process->fd[fd] = (host_descriptor){at, closes};
    if (was) host_drop(was);
}

int host_place(host_process *process, int at, int from, bool closes)
{
    while (from < HOST_FDS && process->fd[from].object) from++;
    if (from == HOST_FDS) sim_wrong("more descriptors than a process has", from, process->pid);
    set(process, from, at, closes);
    return from;
}

/* A new descriptor of the process that runs; -1: there is none. */
int host_open(host_kind kind, int index)
{
    host_process *self = host_now();
    if (host_fault(host.no_files)) {
        if (self == host_processes) rules_open_fault();
        return host_fail(EMFILE);
    }
    return host_place(self, host_make(kind, index), HOST_FIRST_FREE, true);
}

host_object *host_named(int fd, host_kind kind)
{
    const int at = host_object_of(host_now(), fd);
    if (!at) sim_wrong("a call names a descriptor that is not open", fd, host_now()->pid);
    sim_check(kind == HOST_NONE || host_objects[at].kind == kind, "a call names a descriptor of another kind", fd,
              host_objects[at].kind);
    return &host_objects[at];
}

static void close_of(host_process *process, int fd)
{
    const int at = process->fd[fd].object;
    process->fd[fd].object = 0;
    if (at) host_drop(at);
}

void host_close_all(host_process *process)
{
    for (int i = 0; i < HOST_FDS; i++) close_of(process, i);
}

void host_copy_descriptors(const host_process *from, host_process *to)
{
    for (int i = 0; i < HOST_FDS; i++)
        if (from->fd[i].object) set(to, i, from->fd[i].object, from->fd[i].closes);
}

void host_close_at_exec(host_process *process)
{
    for (int i = 0; i < HOST_FDS; i++)
        if (process->fd[i].closes) close_of(process, i);
}

int host_close(int fd)
{
    (void)host_named(fd, HOST_NONE);
    close_of(host_now(), fd);
    return 0;
}

int __wrap_close(int fd)
{
    host_enter(300);
    return host_close(fd);
}

int __wrap_fcntl(int fd, int command, ...)
{
    va_list more;
    va_start(more, command);
    const int value = command == F_GETFL || command == F_GETFD ? 0 : va_arg(more, int);
    va_end(more);
    host_process *self = host_now();
    (void)host_named(fd, HOST_NONE);
    if (command == F_SETFD) self->fd[fd].closes = value & FD_CLOEXEC;
    if (command != F_DUPFD_CLOEXEC) return 0;
    if (host_fault(8 * host.no_files)) return host_fail(EMFILE);
    return host_place(self, self->fd[fd].object, value, true);
}

int __wrap_dup2(int from, int to)
{
    (void)host_named(from, HOST_NONE);
    set(host_now(), to, host_now()->fd[from].object, false);
    return to;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

int __wrap_memfd_create(const char *name, unsigned flags)
{
    (void)name, (void)flags;
    host_enter(SIM_US);
    return host_open(HOST_MEMORY, 0);
}

int __wrap_ftruncate(int fd, off_t bytes)
{
    host_named(fd, HOST_MEMORY)->count = (uint64_t)bytes;
    if (host_fault(4 * host.no_room)) {
        rules_open_fault();
        return host_fail(ENOMEM);
    }
    return 0;
}

int __wrap_fstat(int fd, struct stat *out)
{
    memset(out, 0, sizeof *out);
    out->st_size = (off_t)host_named(fd, HOST_MEMORY)->count;
    return 0;
}

/* The table of workers is all that is mapped; each process has it at the same address. */
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (!host_now()) return __real_mmap(at, bytes, protection, flags, fd, offset);
    sim_check(host_named(fd, HOST_MEMORY)->count == bytes, "a mapping is not that of its memory", fd, (int64_t)bytes);
    if (host_fault(8 * host.no_room)) {
        if (host_now() == host_processes) rules_open_fault();
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (!table) {
        table = __real_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        table_bytes = bytes;
    }
    return table;
}

int __wrap_munmap(void *at, size_t bytes)
{
    return host_now() ? 0 : __real_munmap(at, bytes);
}

struct ks_workers *host_table(void)
{
    return table;
}
