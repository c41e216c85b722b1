#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t ks_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t ks_thread_waited_ns(void)
{
    char text[96]; /* time on a processor, time in wait for one, turns */
    const int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t n = TEMP_FAILURE_RETRY(read(fd, text, sizeof text - 1));
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *second = strchr(text, ' ');
    return second ? strtoll(second, NULL, 10) : 0;
}

int64_t ks_turn_clock_look(ks_turn_clock *clock, int64_t now_ns, int64_t gap_max_ns)
{
    const int64_t gap_ns = now_ns - clock->seen_ns;
    clock->seen_ns = now_ns;
    clock->counted_ns += gap_ns < gap_max_ns ? gap_ns : gap_max_ns;
    return clock->counted_ns;
}

int64_t ks_wall_ms(void)
{
    return read_clock(CLOCK_REALTIME_COARSE) / 1000000;
}

int64_t ks_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}
