/* The process_* families, as every Prometheus client names them, read from /proc/self. */
#include <dirent.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "observe/metrics_sheet.h"

typedef struct process_stat {
    uint64_t cpu_ticks, threads, start_ticks, virtual_bytes, resident_pages;
} process_stat;

static bool read_stat(process_stat *out)
{
    FILE *file = fopen("/proc/self/stat", "re");
    if (!file) return false;
    char line[1024];
    const bool got = fgets(line, sizeof line, file);
    fclose(file);
    /* The second field is the program's name in parentheses, and may hold anything. */
    const char *rest = got ? strrchr(line, ')') : NULL;
    uint64_t user, system;
    if (!rest ||
        sscanf(rest + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64 " %*d %*d %*d %*d %" SCNu64
               " %*d %" SCNu64 " %" SCNu64 " %" SCNu64,
               &user, &system, &out->threads, &out->start_ticks, &out->virtual_bytes, &out->resident_pages) != 6)
        return false;
    out->cpu_ticks = user + system;
    return true;
}

static uint64_t ticks_ns(uint64_t ticks)
{
    return ticks * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
}

static uint64_t count_fds(void)
{
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) return 0;
    uint64_t count = 0;
    while (readdir(folder)) count++;
    closedir(folder);
    return count > 3 ? count - 3 : 0; /* ".", ".." and the folder's own */
}

/* Read off two clocks, which are set and drift: once, because a count of its changes is a count of restarts. */
static uint64_t started_ns(uint64_t start_ticks)
{
    static _Atomic uint64_t first;
    uint64_t known = atomic_load(&first);
    if (known) return known;
    struct timespec up;
    clock_gettime(CLOCK_BOOTTIME, &up);
    const int64_t boot_ns = ks_wall_ns() - ((int64_t)up.tv_sec * 1000000000 + up.tv_nsec);
    const uint64_t now = (uint64_t)boot_ns + ticks_ns(start_ticks);
    return atomic_compare_exchange_strong(&first, &known, now) ? now : known;
}

void ks_sheet_process(ks_sheet *sheet)
{
    struct rlimit limit;
    ks_sheet_single(sheet, F_open_fds, count_fds());
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) ks_sheet_single(sheet, F_max_fds, limit.rlim_cur);
    process_stat stat;
    if (!read_stat(&stat)) return;
    ks_sheet_begin(sheet, F_cpu);
    ks_sheet_seconds(sheet, ticks_ns(stat.cpu_ticks));
    ks_sheet_single(sheet, F_virtual_memory, stat.virtual_bytes);
    ks_sheet_single(sheet, F_resident_memory, stat.resident_pages * (uint64_t)sysconf(_SC_PAGESIZE));
    ks_sheet_single(sheet, F_threads, stat.threads);
    ks_sheet_begin(sheet, F_start_time);
    ks_sheet_seconds(sheet, started_ns(stat.start_ticks));
}
