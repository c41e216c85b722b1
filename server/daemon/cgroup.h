/* What control groups allow this process: memory and cores, of version 2 and of version 1, whichever of both the system has
 * mounted. Start-up; any thread. Leaf service.
 *
 * The process's groups come from /proc/self/cgroup, where they can be seen from /proc/self/mountinfo: within containers the
 * mounted tree begins at a group of its own. Every group from there up to the tree's root counts, as each bounds all below
 * it. No allocation. */
#ifndef KS_CGROUP_H
#define KS_CGROUP_H
#include <stdint.h>

enum { KS_CGROUP_SOURCE_MAX = 96 };

typedef struct ks_cgroup_limit {
    uint64_t value;                    /* UINT64_MAX: none */
    char source[KS_CGROUP_SOURCE_MAX]; /* the file that says so; its end, where it is longer */
} ks_cgroup_limit;

/* root: "" for this system; a folder that holds proc/self and what mountinfo names for a test. */
void ks_cgroup_memory(const char *root,
                      ks_cgroup_limit *out);                  /* bytes: the least of memory.max, memory.high and v1's */
void ks_cgroup_cores(const char *root, ks_cgroup_limit *out); /* quota over period, rounded up */
#endif
