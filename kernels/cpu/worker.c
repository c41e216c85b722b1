#include "cpu/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t ks_cpu_used_ns(pthread_t worker)
{
    clockid_t clock;
    struct timespec used;
    if (pthread_getcpuclockid(worker, &clock) != 0 || clock_gettime(clock, &used) != 0) return -1;
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

bool ks_cpu_is_asleep(int task)
{
    char path[64], text[256];
    if (task == 0) return false;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", task);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT || errno == EACCES; /* no /proc to ask: the time alone decides */
    const ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    const char *name_end = strrchr(text, ')'); /* "12 (ks-lane-0) S ..." */
    return name_end && name_end[1] == ' ' && (name_end[2] == 'S' || name_end[2] == 'D');
}
