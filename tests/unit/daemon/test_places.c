/* Where workers run, and how one is started: devices as NVML has them (tests/fake/nvml_fake.c), what is wrong with --devices, channels, and
 * the descriptors and the environment of a process that is started. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/workers/channel.h"
#include "daemon/workers/process.h"

static ks_place places[KS_WORKERS_MAX];
static int count;
static ks_error error;

static ks_status find(const char *devices, ks_choice_backend backend)
{
    const ks_config config = {.devices = devices, .device = "auto", .backend = backend};
    count = 0;
    error = (ks_error){0};
    return ks_places_find(&config, places, &count, &error);
}

static void refuses(const char *devices, ks_choice_backend backend, ks_status status, const char *says)
{
    assert_int_equal(find(devices, backend), status);
    if (!strstr(error.text, says)) fail_msg("'%s': %s", devices, error.text);
}

static int set_gpus(void **state)
{
    (void)state;
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("KS_NVML_FAILS");
    unsetenv("KS_NVML_RECOVERY");
    return setenv("KS_NVML_GPUS", "3", 1) || setenv("KS_NVML_MIG", "99", 1);
}

static void all_are_those_of_nvml(void **state)
{
    (void)state;
    assert_int_equal(find("all", KS_BACKEND_AUTO), KS_OK);
    assert_int_equal(count, 3);
    for (int i = 0; i < count; i++) {
        char uuid[32], bus[32];
        snprintf(uuid, sizeof uuid, "GPU-%d", i);
        snprintf(bus, sizeof bus, "0000:a%d:00.0", i);
        assert_int_equal(places[i].device, i);
        assert_string_equal(places[i].uuid, uuid);
        assert_string_equal(places[i].bus, bus);
        assert_int_equal(places[i].sharing, 3); /* no such device on the bus: no node */
    }
}

static void named_ones_come_in_their_order(void **state)
{
    (void)state;
    assert_int_equal(find("2,0", KS_BACKEND_AUTO), KS_OK);
    assert_int_equal(count, 2);
    assert_int_equal(places[0].device, 2);
    assert_string_equal(places[0].uuid, "GPU-2");
    assert_string_equal(places[1].uuid, "GPU-0");
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    refuses("0,0", KS_BACKEND_AUTO, KS_CONFIG, "0 is named twice");
    refuses("0,3", KS_BACKEND_AUTO, KS_CONFIG, "no GPU 3; this host has 0 to 2");
    refuses("1,", KS_BACKEND_AUTO, KS_CONFIG, "'' is no index");
    refuses("-1", KS_BACKEND_AUTO, KS_CONFIG, "'-1' is no index");
    refuses("1 ", KS_BACKEND_AUTO, KS_CONFIG, "'1 ' is no index");
    refuses("9999", KS_BACKEND_AUTO, KS_CONFIG, "'9999' is no index");
    refuses("MIG-2f1c", KS_BACKEND_AUTO, KS_CONFIG, "'MIG-2f1c' is a MIG instance");
    refuses("0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16", KS_BACKEND_CPU, KS_CONFIG, "more than 16 workers");
    refuses("16", KS_BACKEND_CPU, KS_CONFIG, "no CPU worker 16; right is 0 to 15");
    setenv("KS_NVML_MIG", "1", 1);
    refuses("all", KS_BACKEND_AUTO, KS_CONFIG, "GPU 1 is divided");
    assert_int_equal(find("0,2", KS_BACKEND_AUTO), KS_OK);
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    refuses("0", KS_BACKEND_AUTO, KS_CONFIG, "CUDA_VISIBLE_DEVICES is set");
    assert_int_equal(find("0", KS_BACKEND_CPU), KS_OK);
}

static void without_nvml_the_driver_is_read(void **state)
{
    (void)state;
    static const char *const fails[] = {"init", "count", "at", "uuid", "pci"};
    if (access("/proc/driver/nvidia/gpus", F_OK) == 0) return; /* this host has some */
    for (size_t i = 0; i < sizeof fails / sizeof fails[0]; i++) {
        setenv("KS_NVML_FAILS", fails[i], 1);
        refuses("all", KS_BACKEND_AUTO, KS_DEVICE, "this host has no GPU");
    }
    setenv("KS_NVML_FAILS", "mig", 1); /* an older one */
    assert_int_equal(find("all", KS_BACKEND_AUTO), KS_OK);
}

static void what_a_gpu_needs_is_nvmls(void **state)
{
    (void)state;
    assert_int_equal(find("1", KS_BACKEND_AUTO), KS_OK);
    static const ks_recovery expected[] = {KS_RECOVERY_NONE,
                                           KS_RECOVERY_RESET,
                                           KS_RECOVERY_REBOOT,
                                           KS_RECOVERY_NONE /* peers alone */,
                                           KS_RECOVERY_DRAIN_AND_RESET,
                                           KS_RECOVERY_NONE /* not known yet */};
    for (int i = 0; i < (int)(sizeof expected / sizeof expected[0]); i++) {
        char text[8];
        snprintf(text, sizeof text, "%d", i);
        setenv("KS_NVML_RECOVERY", text, 1);
        assert_int_equal(ks_place_recovery(&places[0]), expected[i]);
    }
    setenv("KS_NVML_RECOVERY", "1", 1);
    setenv("KS_NVML_FAILS", "field", 1);
    assert_int_equal(ks_place_recovery(&places[0]), KS_RECOVERY_NONE);
    setenv("KS_NVML_FAILS", "by_uuid", 1);
    assert_int_equal(ks_place_recovery(&places[0]), KS_RECOVERY_NONE);
    assert_int_equal(ks_place_recovery(&(ks_place){.uuid = ""}), KS_RECOVERY_NONE);
}

/* --- channels ----------------------------------------------------------------------------------------------------- */

static void a_channel_gives_in_order_and_is_bounded(void **state)
{
    (void)state;
    enum { MOST = 4096 };
    ks_channel channel;
    int given = 0;
    uint32_t listener;
    assert_true(ks_channel_open(&channel));
    assert_int_equal(ks_channel_take(channel.take, &listener), -1);
    assert_int_equal(errno, EAGAIN);
    while (given < MOST && ks_channel_give(channel.give, STDERR_FILENO, (uint32_t)given)) given++;
    assert_true(given >= 64 && given < MOST);
    for (int i = 0; i < given; i++) {
        const int fd = ks_channel_take(channel.take, &listener);
        assert_true(fd > STDERR_FILENO);
        assert_int_equal(listener, i);
        assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        close(fd);
    }
    assert_int_equal(ks_channel_take(channel.take, &listener), -1);
    ks_channel_close(&channel);
    assert_int_equal(channel.give, -1);
}

static void a_message_without_a_socket_is_passed_over(void **state)
{
    (void)state;
    ks_channel channel;
    uint32_t listener = 0;
    assert_true(ks_channel_open(&channel));
    assert_int_equal(send(channel.give, &listener, sizeof listener, 0), sizeof listener);
    assert_int_equal(ks_channel_take(channel.take, &listener), -1);
    assert_int_equal(errno, ECONNABORTED);
    ks_channel_close(&channel);
}

/* --- a process ---------------------------------------------------------------------------------------------------- */

/* What the started process, which is this program, says of itself: each word of its arguments is a variable. */
static int show(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) printf("%s=%s\n", argv[i], getenv(argv[i]) ? getenv(argv[i]) : "-");
    for (int fd = 3; fd < 9; fd++) printf("%d", fcntl(fd, F_GETFD) == 0); /* open, and it stays so */
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    printf("\ncpus=%d\n", CPU_COUNT(&set));
    return fflush(stdout) == 0 ? 7 : 1;
}

static void run(ks_process *process, char out[4096])
{
    int status;
    const int file = memfd_create("out", MFD_CLOEXEC), stdout_kept = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    assert_true(file >= 0 && stdout_kept >= 0);
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    const bool started = ks_process_start(process);
    dup2(stdout_kept, STDOUT_FILENO);
    close(stdout_kept);
    assert_true(started);
    assert_int_equal(waitpid(process->pid, &status, 0), process->pid);
    assert_int_equal(ks_process_code(status), 7);
    const ssize_t n = pread(file, out, 4095, 0);
    assert_true(n > 0);
    out[n] = 0;
    close(file);
}

static void a_worker_gets_its_descriptors_and_its_gpu(void **state)
{
    (void)state;
    char *argv[] = {"test",
                    "show",
                    "LISTEN_FDS",
                    "LISTEN_FDNAMES",
                    "CUDA_VISIBLE_DEVICES",
                    "NOTIFY_SOCKET",
                    KS_SUPERVISOR_TABLE,
                    KS_SUPERVISOR_DATA,
                    KS_SUPERVISOR_GIVE,
                    KS_SUPERVISOR_WORKER,
                    KS_SUPERVISOR_STARTS,
                    NULL};
    const ks_sockets sockets = {.fds = {STDIN_FILENO, STDERR_FILENO}, .names = {"data", "admin"}, .count = 2};
    const ks_place place = {.device = 5, .uuid = "GPU-5", .node = 0, .sharing = 1};
    _Atomic int needs = KS_RECOVERY_NONE;
    ks_process process = {
        .sockets = &sockets,
        .argv = argv,
        .place = &place,
        .row = 1,
        .needs = &needs,
        .other = {{KS_SUPERVISOR_TABLE, 0}, {KS_SUPERVISOR_DATA, -1}, {KS_SUPERVISOR_GIVE, 1}, {NULL, 2}},
        .others = 4};
    char said[4096];
    setenv("NOTIFY_SOCKET", "/nowhere", 1);
    run(&process, said);
    unsetenv("NOTIFY_SOCKET");
    const char *const expected =
        "LISTEN_FDS=2\nLISTEN_FDNAMES=data:admin\nCUDA_VISIBLE_DEVICES=GPU-5\nNOTIFY_SOCKET=-\n" //
        KS_SUPERVISOR_TABLE "=5\n" KS_SUPERVISOR_DATA "=-1\n" KS_SUPERVISOR_GIVE "=6\n" KS_SUPERVISOR_WORKER
        "=1\n" KS_SUPERVISOR_STARTS "=1\n111110\ncpus=";
    said[strlen(expected)] = 0;
    assert_string_equal(said, expected);
}

static void a_daemon_alone_keeps_what_it_had(void **state)
{
    (void)state;
    char *argv[] = {"test", "show", "CUDA_VISIBLE_DEVICES", "NOTIFY_SOCKET", KS_SUPERVISOR_WORKER, NULL};
    const ks_sockets sockets = {.fds = {STDERR_FILENO}, .names = {"data"}, .count = 1};
    ks_process process = {.sockets = &sockets, .argv = argv};
    char said[4096];
    setenv("NOTIFY_SOCKET", "/nowhere", 1);
    run(&process, said);
    unsetenv("NOTIFY_SOCKET");
    static const char expected[] =
        "CUDA_VISIBLE_DEVICES=-\nNOTIFY_SOCKET=/nowhere\n" KS_SUPERVISOR_WORKER "=-\n100000\n";
    said[strlen(expected)] = 0;
    assert_string_equal(said, expected);
}

/* A GPU that needs a reset gets no worker until it has had one. */
static void a_sick_gpu_is_not_started_again(void **state)
{
    (void)state;
    char *argv[] = {"test", "show", NULL};
    int status;
    const ks_sockets sockets = {.count = 0};
    const ks_place place = {.uuid = "GPU-1", .node = -1, .sharing = 1};
    _Atomic int *needs = mmap(NULL, sizeof *needs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ks_process process = {.sockets = &sockets, .argv = argv, .place = &place, .needs = needs, .starts = 1};
    setenv("KS_NVML_RECOVERY", "1", 1);
    assert_true(ks_process_start(&process));
    assert_int_equal(waitpid(process.pid, &status, 0), process.pid);
    assert_int_equal(ks_process_code(status), KS_EXIT_NO_DEVICE);
    assert_int_equal(atomic_load(needs), KS_RECOVERY_RESET);
    setenv("KS_NVML_RECOVERY", "0", 1);
    char said[4096];
    run(&process, said);
    assert_int_equal(atomic_load(needs), KS_RECOVERY_NONE);
    munmap(needs, sizeof *needs);
}

static void starts_are_bounded(void **state)
{
    (void)state;
    char *argv[] = {"test", "show", NULL};
    const ks_sockets sockets = {.count = 0};
    ks_process process = {.sockets = &sockets, .argv = argv};
    char said[4096];
    for (int i = 0; i < KS_STARTS_MAX; i++) {
        assert_int_equal(ks_process_may_start_ns(&process), 0);
        run(&process, said);
    }
    assert_int_equal(ks_process_may_start_ns(&process),
                     process.started_ns[0] + KS_STARTS_WINDOW_S * INT64_C(1000000000));
    assert_true(ks_process_is_worth_a_retry(70) && ks_process_is_worth_a_retry(137) &&
                !ks_process_is_worth_a_retry(78));
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "show") == 0) return show(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_are_those_of_nvml, set_gpus),
        cmocka_unit_test_setup(named_ones_come_in_their_order, set_gpus),
        cmocka_unit_test_setup(what_is_wrong_is_said, set_gpus),
        cmocka_unit_test_setup(without_nvml_the_driver_is_read, set_gpus),
        cmocka_unit_test_setup(what_a_gpu_needs_is_nvmls, set_gpus),
        cmocka_unit_test(a_channel_gives_in_order_and_is_bounded),
        cmocka_unit_test(a_message_without_a_socket_is_passed_over),
        cmocka_unit_test_setup(a_worker_gets_its_descriptors_and_its_gpu, set_gpus),
        cmocka_unit_test_setup(a_daemon_alone_keeps_what_it_had, set_gpus),
        cmocka_unit_test_setup(a_sick_gpu_is_not_started_again, set_gpus),
        cmocka_unit_test(starts_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
