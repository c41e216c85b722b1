/* Limits of control groups, read from trees of files as systems show them: both versions, both at once, containers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/cgroup.h"

static char folder[] = "/tmp/ks_cgroup_XXXXXX";

typedef struct made_file {
    const char *path, *text;
} made_file;

typedef struct tree {
    const char *name;
    made_file files[10];
    uint64_t memory, cores; /* 0: no limit */
    const char *source;     /* the end of memory's, NULL: any */
} tree;

#define CGROUP "/proc/self/cgroup"
#define MOUNTS "/proc/self/mountinfo"
#define M (1024 * 1024)

static const tree trees[] = {
    {"nothing is mounted", {{CGROUP, "0::/a\n"}, {MOUNTS, "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"}}, 0, 0, NULL},
    {"there is no proc", {{"/x", "y"}}, 0, 0, NULL},
    {"version 2, the group's own",
     {{CGROUP, "0::/a/b\n"},
      {MOUNTS, "30 22 0:26 / /cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"},
      {"/cg/a/b/memory.max", "314572800\n"},
      {"/cg/a/b/cpu.max", "150000 100000\n"}},
     300 * M,
     2,
     "/cg/a/b/memory.max"},
    {"version 2, an ancestor's",
     {{CGROUP, "0::/a/b/c\n"},
      {MOUNTS, "30 22 0:26 / /cg rw - cgroup2 cgroup2 rw\n"},
      {"/cg/a/b/c/memory.max", "max\n"},
      {"/cg/a/b/memory.max", "629145600\n"},
      {"/cg/a/memory.max", "209715200\n"},
      {"/cg/a/b/c/cpu.max", "max 100000\n"},
      {"/cg/a/cpu.max", "20000 100000\n"}},
     200 * M,
     1,
     "/cg/a/memory.max"},
    {"version 2, throttled from memory.high on",
     {{CGROUP, "0::/a\n"},
      {MOUNTS, "30 22 0:26 / /cg rw - cgroup2 cgroup2 rw\n"},
      {"/cg/a/memory.max", "629145600\n"},
      {"/cg/a/memory.high", "419430400\n"}},
     400 * M,
     0,
     "memory.high"},
    {"version 1 beside an empty version 2",
     {{CGROUP, "4:memory:/a/b\n2:cpu,cpuacct:/c\n1:name=systemd:/z\n0::/\n"},
      {MOUNTS,
       "31 22 0:27 / /v1/cpu rw - cgroup cgroup rw,cpu,cpuacct\n32 22 0:28 / /v1/memory rw - cgroup cgroup rw,memory\n"
       "33 22 0:29 / /v2 rw - cgroup2 cgroup2 rw\n"},
      {"/v1/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"},
      {"/v1/memory/a/memory.limit_in_bytes", "314572800\n"},
      {"/v1/memory/memory.limit_in_bytes", "9223372036854771712\n"},
      {"/v1/cpu/c/cpu.cfs_quota_us", "250000\n"},
      {"/v1/cpu/c/cpu.cfs_period_us", "100000\n"},
      {"/v1/cpu/cpu.cfs_quota_us", "-1\n"}},
     300 * M,
     3,
     "/a/memory.limit_in_bytes"},
    {"version 1, an ancestor that does not bound what is below it",
     {{CGROUP, "4:memory:/a/b\n"},
      {MOUNTS, "32 22 0:28 / /v1 rw - cgroup cgroup rw,memory\n"},
      {"/v1/a/b/memory.limit_in_bytes", "629145600\n"},
      {"/v1/a/memory.limit_in_bytes", "314572800\n"},
      {"/v1/a/memory.use_hierarchy", "0\n"}},
     600 * M,
     0,
     NULL},
    {"version 1, the root's own hierarchy",
     {{CGROUP, "4:memory:/\n"},
      {MOUNTS, "32 22 0:28 / /v1 rw - cgroup cgroup rw,memory\n"},
      {"/v1/memory.limit_in_bytes", "629145600\n"},
      {"/v1/memory.use_hierarchy", "0\n"}},
     600 * M,
     0,
     NULL},
    {"both versions limit: the least",
     {{CGROUP, "4:memory:/a\n0::/u\n"},
      {MOUNTS, "32 22 0:28 / /v1 rw - cgroup cgroup rw,memory\n33 22 0:29 / /v2 rw - cgroup2 cgroup2 rw\n"},
      {"/v1/a/memory.limit_in_bytes", "629145600\n"},
      {"/v2/u/memory.max", "524288000\n"}},
     500 * M,
     0,
     "/v2/u/memory.max"},
    {"a container that sees its group as the tree's root, and its path in full",
     {{CGROUP, "4:memory:/docker/f00d\n"},
      {MOUNTS, "32 22 0:28 /docker/f00d /sys/memory ro master:9 shared:2 - cgroup cgroup rw,memory\n"},
      {"/sys/memory/memory.limit_in_bytes", "314572800\n"},
      {"/sys/memory/docker/f00d/memory.limit_in_bytes", "1048576\n"}},
     300 * M,
     0,
     NULL},
    {"a group below the container's",
     {{CGROUP, "0::/docker/f00d/inner\n"},
      {MOUNTS, "32 22 0:28 /docker/f00d /cg rw - cgroup2 cgroup2 rw\n"},
      {"/cg/inner/memory.max", "629145600\n"},
      {"/cg/memory.max", "314572800\n"}},
     300 * M,
     0,
     NULL},
    {"another group's tree, and one whose name begins alike, are none of ours",
     {{CGROUP, "0::/docker/f00d\n"},
      {MOUNTS, "32 22 0:28 /docker/f00 /cg rw - cgroup2 cgroup2 rw\n33 22 0:28 /other /cg2 rw - cgroup2 cgroup2 rw\n"},
      {"/cg/memory.max", "1048576\n"},
      {"/cg2/memory.max", "1048576\n"}},
     0,
     0,
     NULL},
    {"a mount from above this process's namespace",
     {{CGROUP, "0::/\n"},
      {MOUNTS, "32 22 0:28 /../.. /cg rw - cgroup2 cgroup2 rw\n"},
      {"/cg/memory.max", "314572800\n"}},
     300 * M,
     0,
     NULL},
    {"a mount point with blanks",
     {{CGROUP, "0::/a\n"},
      {MOUNTS, "32 22 0:28 / /my\\040cg rw - cgroup2 cgroup2 rw\n"},
      {"/my cg/a/memory.max", "314572800\n"}},
     300 * M,
     0,
     NULL},
    {"no numbers where numbers should be",
     {{CGROUP, "0::/a\nnonsense\n::\n0:\n"},
      {MOUNTS, "32\n32 22 0:28 / /cg rw -\n\n32 22 0:28 / /cg rw - cgroup2 cgroup2 rw\n"},
      {"/cg/a/memory.max", "many\n"},
      {"/cg/a/memory.high", ""},
      {"/cg/a/cpu.max", "5\n"},
      {"/cg/memory.max", "-5\n"}},
     0,
     0,
     NULL},
};

static void make_folders(char *path)
{
    for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
}

static void make(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", folder, name);
    make_folders(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void remove_all(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static void begin(void)
{
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    assert_non_null(mkdtemp(folder));
}

static void trees_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        const tree *t = &trees[i];
        begin();
        for (int k = 0; k < 10 && t->files[k].path; k++) make(t->files[k].path, t->files[k].text);
        ks_cgroup_limit memory, cores;
        ks_cgroup_memory(folder, &memory);
        ks_cgroup_cores(folder, &cores);
        remove_all();
        if (memory.value != (t->memory ? t->memory : UINT64_MAX))
            fail_msg("%s: memory %llu", t->name, (unsigned long long)memory.value);
        if (cores.value != (t->cores ? t->cores : UINT64_MAX))
            fail_msg("%s: cores %llu", t->name, (unsigned long long)cores.value);
        const size_t n = t->source ? strlen(t->source) : 0, length = strlen(memory.source);
        if (n > length || (n && strcmp(memory.source + length - n, t->source) != 0))
            fail_msg("%s: %s", t->name, memory.source);
    }
}

/* Hosts of many containers have lines and files of many KiB: ours may stand behind all of them. */
static void long_lines_are_passed_over(void **state)
{
    enum { LONG = 20000, LINES = 300 };
    (void)state;
    begin();
    char *text = malloc(LONG + LINES * 128);
    assert_non_null(text);
    size_t n = LONG;
    memset(text, 'x', LONG);
    text[n++] = '\n';
    for (int i = 0; i < LINES; i++)
        n += (size_t)sprintf(text + n, "%d 22 0:1 / /overlay/number/%d rw - overlay overlay rw,lowerdir=/l\n", i, i);
    sprintf(text + n, "32 22 0:28 / /cg rw - cgroup2 cgroup2 rw\n");
    make(MOUNTS, text);
    make(CGROUP, "0::/a\n");
    make("/cg/a/memory.max", "314572800\n");
    free(text);
    ks_cgroup_limit memory;
    ks_cgroup_memory(folder, &memory);
    remove_all();
    assert_int_equal(memory.value, 300 * M);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_are_read),
        cmocka_unit_test(long_lines_are_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
