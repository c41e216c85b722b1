#include "daemon/admin.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/board/board.h"
#include "base/clock.h"
#include "http/http.h"
#include "daemon/listen.h"
#include "base/log.h"
#include "daemon/workers/channel.h"

enum { ACCEPTS = 8 }; /* in a turn */
static const int64_t QUIET_WAIT_NS = 30 * KS_S;

struct ks_admin {
    /* fixed after open: */
    ks_daemon *daemon;
    ks_shard_metrics *metrics;
    pthread_t thread;
    int listen_fd, stop_fd;
    int wake_fd; /* an epoll over all: readable while one wants attention, so one turn waits for everything */
    bool loopback;
    ks_addresses *addresses; /* of its clients */
    /* the thread's, until it has started: */
    ks_http *http;
    ks_status status;
    ks_error error;
    int started_fd; /* eventfd: written when status is known */
    _Atomic bool stop;
    ks_log_limit failures; /* the thread's, as what follows: */
    int64_t ready_ns;      /* when it saw the daemon ready; 0: not yet */
    pthread_t prober;      /* while it measures */
    bool measures;
    _Atomic bool measured; /* set by the prober as its last */
    int measured_fd;       /* eventfd: likewise */
};

static void say_failure(ks_admin *admin, int fault)
{
    uint64_t times;
    if (ks_log_due(&admin->failures, ks_now_ns(), &times))
        KS_LOG(KS_LOG_WARN, "cannot accept connections", KS_TEXT("listener", "second"),
               KS_TEXT("error", strerror(fault)), KS_INT("times", times));
}

/* false: all places are taken, and none gives way. */
static bool has_room(ks_admin *admin)
{
    if (ks_http_connections(admin->http) >= KS_ADMIN_CONNECTIONS && ks_http_make_room(admin->http, 1) == 0)
        return false;
    return ks_http_has_place(admin->http);
}

static void take(ks_admin *admin, int fd, const struct sockaddr_storage *from)
{
    bool room = has_room(admin);
    if (!room) { /* what came just before is read first: it may then give way */
        ks_http_turn(admin->http, 0);
        room = has_room(admin);
    }
    if (!room) {
        close(fd);
        return;
    }
    const ks_arrival arrival = {.fd = fd,
                                .loopback = admin->loopback,
                                .tls = admin->daemon->config->admin_tls,
                                .address = ks_addresses_take(admin->addresses, from)};
    ks_http_add(admin->http, &arrival);
}

static int take_next(const ks_admin *admin, struct sockaddr_storage *from)
{
    socklen_t length = sizeof *from;
    uint32_t listener;
    if (!admin->daemon->workers)
        return accept4(admin->listen_fd, (struct sockaddr *)from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    const int fd = ks_channel_take(admin->daemon->admin_fd, &listener);
    if (fd >= 0 && getpeername(fd, (struct sockaddr *)from, &length) != 0) from->ss_family = AF_UNSPEC;
    return fd;
}

/* A few: what they send is read before the next ones come, so that none gives way for a connection that came with it. */
static void accept_some(ks_admin *admin)
{
    for (int taken = 0; taken < ACCEPTS;) {
        struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
        const int fd = take_next(admin, &from);
        if (fd >= 0) {
            take(admin, fd, &from);
            taken++;
            continue;
        }
        if (errno == ECONNABORTED || errno == EINTR) continue;
        /* Out of descriptors or memory: the listening socket stays readable, and a pause keeps that from spinning. */
        if (errno != EAGAIN) {
            say_failure(admin, errno);
            usleep(100000);
        }
        return;
    }
}

static void tell(int fd)
{
    (void)!TEMP_FAILURE_RETRY(write(fd, &(uint64_t){1}, sizeof(uint64_t)));
}

/* A thread of its own: a measurement takes 50 ms, and seconds where the processors are busy, in which health would not be answered. */
static void *measure(void *argument)
{
    ks_admin *admin = argument;
    ks_ceiling_store *store = admin->daemon->ceilings;
    const int64_t begun_ns = ks_now_ns();
    pthread_setname_np(pthread_self(), "kernserve-probe");
    if (ks_ceilings_measure(store))
        KS_LOG(KS_LOG_DEBUG, "device measured", KS_NUMBER("copy_gbs", ks_ceilings_copy_gbs(store)),
               KS_INT("took_us", (ks_now_ns() - begun_ns) / 1000));
    atomic_store(&admin->measured, true);
    tell(admin->measured_fd);
    return NULL;
}

static void end_measurement(ks_admin *admin)
{
    uint64_t count;
    if (!admin->measures) return;
    pthread_join(admin->prober, NULL);
    (void)!read(admin->measured_fd, &count, sizeof count);
    admin->measures = false;
}

/* Once the daemon is ready: what its device can do at best, a thing at a time. Best while nothing runs, so that a busy daemon
 * gets QUIET_WAIT_NS to come to a pause. */
static void look_at_device(ks_admin *admin)
{
    ks_daemon *daemon = admin->daemon;
    if (admin->measures && !atomic_load(&admin->measured)) return;
    end_measurement(admin);
    if (atomic_load(&daemon->row->state) != KS_STATE_READY || !ks_ceilings_due(daemon->ceilings)) return;
    const int64_t now_ns = ks_now_ns();
    if (!admin->ready_ns) admin->ready_ns = now_ns;
    if (ks_metrics_in_flight_now(daemon->metrics) > 0 && now_ns - admin->ready_ns < QUIET_WAIT_NS) return;
    atomic_store(&admin->measured, false);
    admin->measures = pthread_create(&admin->prober, NULL, measure, admin) == 0;
}

static void *serve(void *argument)
{
    ks_admin *admin = argument;
    pthread_setname_np(pthread_self(), "kernserve-admin");
    const ks_http_options options = ks_daemon_http(admin->daemon, NULL, admin->metrics, admin->wake_fd);
    admin->status = ks_http_open(&options, &admin->http, &admin->error);
    tell(admin->started_fd);
    if (admin->status != KS_OK) return NULL;
    while (!atomic_load(&admin->stop)) {
        ks_http_turn(admin->http, ks_board_turn(admin->daemon->api.board));
        accept_some(admin);
        look_at_device(admin);
    }
    end_measurement(admin);
    ks_http_close(&admin->http);
    return NULL;
}

static void free_admin(ks_admin *admin)
{
    ks_listen_close(admin->listen_fd);
    if (admin->stop_fd >= 0) close(admin->stop_fd);
    if (admin->started_fd >= 0) close(admin->started_fd);
    if (admin->measured_fd >= 0) close(admin->measured_fd);
    if (admin->wake_fd >= 0) close(admin->wake_fd);
    ks_addresses_close(&admin->addresses);
    ks_board_close(&admin->daemon->api);
    free(admin);
}

static bool open_descriptors(ks_admin *admin)
{
    struct epoll_event event = {.events = EPOLLIN};
    const int source = admin->daemon->workers ? admin->daemon->admin_fd : admin->listen_fd;
    admin->measured_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    admin->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    admin->started_fd = eventfd(0, EFD_CLOEXEC);
    admin->wake_fd = epoll_create1(EPOLL_CLOEXEC);
    return admin->stop_fd >= 0 && admin->started_fd >= 0 && admin->wake_fd >= 0 && admin->measured_fd >= 0 &&
           epoll_ctl(admin->wake_fd, EPOLL_CTL_ADD, admin->measured_fd, &event) == 0 &&
           epoll_ctl(admin->wake_fd, EPOLL_CTL_ADD, admin->stop_fd, &event) == 0 &&
           epoll_ctl(admin->wake_fd, EPOLL_CTL_ADD, source, &event) == 0;
}

ks_status ks_admin_open(ks_daemon *daemon, ks_shard_metrics *metrics, int fd, bool loopback, ks_admin **out,
                        ks_error *error)
{
    ks_admin *admin = calloc(1, sizeof *admin);
    if (!admin) {
        ks_listen_close(fd);
        return ks_fail(error, KS_MEMORY, "out of memory for the second listener");
    }
    *admin = (ks_admin){.daemon = daemon, .metrics = metrics, .loopback = loopback, .listen_fd = fd};
    admin->stop_fd = admin->started_fd = admin->wake_fd = admin->measured_fd = -1;
    admin->addresses = ks_addresses_open(KS_ADMIN_CONNECTIONS + ACCEPTS);
    if (!admin->addresses || !ks_board_open(&daemon->api) || !open_descriptors(admin) ||
        pthread_create(&admin->thread, NULL, serve, admin) != 0) {
        free_admin(admin);
        return ks_fail(error, KS_SYSTEM, "cannot start the second listener's thread");
    }
    uint64_t started;
    while (read(admin->started_fd, &started, sizeof started) < 0 && errno == EINTR) continue;
    if (admin->status == KS_OK) {
        atomic_store(&daemon->row->admits, true);
        *out = admin;
        return KS_OK;
    }
    pthread_join(admin->thread, NULL);
    const ks_status status = admin->status;
    *error = admin->error;
    free_admin(admin);
    return status;
}

void ks_admin_close(ks_admin **admin)
{
    if (!*admin) return;
    atomic_store(&(*admin)->daemon->row->admits, false);
    atomic_store(&(*admin)->stop, true);
    tell((*admin)->stop_fd);
    pthread_join((*admin)->thread, NULL);
    free_admin(*admin);
    *admin = NULL;
}
