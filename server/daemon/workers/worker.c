/* Owns       the mapping of the table; the publisher's thread.
 * Interface  worker.h
 * Threads    main's; the publisher */
#include "daemon/workers/worker.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>

#include "api/documents.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/defaults.h"
#include "daemon/workers/channel.h"
#include "daemon/workers/process.h"
#include "observe/workers/ask.h"

static const int64_t period_ns = KS_S;

struct ks_publisher {
    ks_daemon *daemon;
    pthread_t thread;
    _Atomic bool stop;
};

static int inherit(const char *variable)
{
    const int fd = (int)ks_process_said(variable, -1);
    if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

/* ks_hand_over.give */
static bool give(void *context, int row, int fd, bool second, bool loopback)
{
    ks_daemon *daemon = context;
    const int number = second ? daemon->second_number : daemon->data_number[loopback];
    if (number < 0) return false;
    if (second) return ks_channel_give(daemon->give_fds[2 * row + 1], fd, (uint32_t)number);
    return ks_channel_give_counted(daemon->give_fds[2 * row], fd, (uint32_t)number,
                                   &daemon->workers->row[row].connections);
}

void ks_worker_open_hand_over(ks_daemon *daemon, const ks_listen_sockets *sockets)
{
    if (!daemon->workers) return;
    daemon->second_number = daemon->data_number[false] = daemon->data_number[true] = -1;
    for (int i = 0; i < ks_listen_inherited(); i++)
        if (ks_listen_inherited_as(i, KS_LISTEN_ADMIN)) daemon->second_number = i;
    for (int i = 0; i < sockets->count; i++)
        if (!sockets->tls[i]) daemon->data_number[sockets->loopback[i]] = sockets->number[i];
    daemon->hand_over = (ks_hand_over){.give = give, .context = daemon};
}

static void inherit_gives(ks_daemon *daemon)
{
    const int first = inherit(KS_SUPERVISOR_GIVE);
    for (int i = 0; i < 2 * daemon->workers->count; i++) {
        daemon->give_fds[i] = first + i;
        if (first >= 0) fcntl(first + i, F_SETFD, FD_CLOEXEC);
    }
}

bool ks_worker_join(ks_daemon *daemon, ks_config *config)
{
    const int fd = inherit(KS_SUPERVISOR_TABLE), row = (int)ks_process_said(KS_SUPERVISOR_WORKER, -1);
    daemon->row = &daemon->alone;
    if (fd < 0) return true;
    daemon->workers = ks_workers_join(fd);
    daemon->data_fd = inherit(KS_SUPERVISOR_DATA);
    daemon->admin_fd = inherit(KS_SUPERVISOR_ADMIN);
    if (!daemon->workers || row < 0 || row >= daemon->workers->count || daemon->data_fd < 0 || daemon->admin_fd < 0)
        return false;
    inherit_gives(daemon);
    daemon->worker = row;
    daemon->row = &daemon->workers->row[row];
    const int count = daemon->workers->count;
    ks_defaults_share(count, daemon->row->sharing);
    config->connections = (config->connections + count - 1) / count;
    ks_log_set_worker(daemon->row->device);
    return true;
}

void ks_worker_leave(ks_daemon *daemon)
{
    ks_workers_close(&daemon->workers);
    daemon->row = &daemon->alone;
}

/* --- the publisher ------------------------------------------------------------------------------------------------ */

/* What another worker has asked for since. */
static void publish_part(ks_daemon *daemon, uint64_t *answered)
{
    ks_part_ask ask;
    ks_text text;
    const uint64_t number = ks_worker_asked(daemon->row, &ask);
    if (number == *answered) return;
    *answered = number;
    ks_text_init(&text, KS_WORKER_PART_MAX);
    ks_part_begin(&text, number);
    ks_document_part(&daemon->api, &ask, &text);
    if (!text.broken) ks_worker_publish(daemon->workers, daemon->worker, KS_WORKER_PART, text.bytes, text.length);
    ks_text_fini(&text);
}

static void publish(ks_daemon *daemon, ks_nvml *nvml)
{
    ks_text text;
    ks_text_init(&text, KS_WORKER_TEXT_MAX);
    ks_document_own_metrics(&daemon->api, nvml, &text);
    if (!text.broken) ks_worker_publish(daemon->workers, daemon->worker, KS_WORKER_METRICS, text.bytes, text.length);
    text.length = 0;
    ks_document_own_stats(&daemon->api, &text);
    if (!text.broken) ks_worker_publish(daemon->workers, daemon->worker, KS_WORKER_STATS, text.bytes, text.length);
    ks_text_fini(&text);
    ks_worker_published(daemon->row);
}

static void *publish_all(void *argument)
{
    ks_publisher *self = argument;
    ks_daemon *daemon = self->daemon;
    const char *reason;
    uint64_t answered = 0;
    pthread_setname_np(pthread_self(), "ks-publish");
    /* A handle of its own: the second listener's thread has another. */
    ks_nvml *nvml = daemon->config->triton_metrics && *daemon->device_info.uuid
                        ? ks_nvml_open(daemon->device_info.uuid, &reason)
                        : NULL;
    while (!atomic_load(&self->stop)) {
        const uint32_t seen = atomic_load(&daemon->row->wanted);
        publish_part(daemon, &answered);
        publish(daemon, nvml);
        ks_worker_wait_wanted(daemon->row, seen, period_ns);
    }
    ks_nvml_close(&nvml);
    return NULL;
}

ks_status ks_publisher_open(ks_daemon *daemon, ks_publisher **out, ks_error *error)
{
    if (!daemon->workers) return KS_OK;
    ks_publisher *self = calloc(1, sizeof *self);
    if (self) self->daemon = daemon;
    if (self && pthread_create(&self->thread, NULL, publish_all, self) == 0) {
        *out = self;
        return KS_OK;
    }
    free(self);
    return ks_fail(error, KS_SYSTEM, "cannot start the thread that publishes metrics");
}

void ks_publisher_close(ks_publisher **publisher)
{
    ks_publisher *self = *publisher;
    if (!self) return;
    *publisher = NULL;
    atomic_store(&self->stop, true);
    ks_worker_want(self->daemon->row);
    pthread_join(self->thread, NULL);
    free(self);
}
