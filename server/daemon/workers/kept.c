/* Which workers take part, and what is kept of models for those that are started.
 *
 * Owns       the files of models' last changes (ks_changes.kept).
 * Interface  changes_parts.h, changes.h
 * Threads    any: the lock is for the files. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/workers/changes_parts.h"
#include "daemon/workers/channel.h"

static bool is_in(const ks_worker_row *row)
{
    return atomic_load(&row->joined) && atomic_load(&row->pid) > 0;
}

unsigned ks_changes_joined(const ks_changes *self)
{
    const ks_workers *workers = self->daemon->workers;
    unsigned rows = 0;
    for (int i = 0; i < workers->count; i++)
        if (is_in(&workers->row[i])) rows |= 1u << i;
    return rows;
}

/* --- what is kept of models --------------------------------------------------------------------------------------- */

/* With the lock. */
static void forget(ks_changes *self, const char *label)
{
    for (ks_kept_change **link = &self->kept; *link;) {
        ks_kept_change *kept = *link;
        if (strcmp(kept->tail.label, label) != 0) {
            link = &kept->next;
            continue;
        }
        *link = kept->next;
        close(kept->fd);
        free(kept);
    }
}

/* fd is its own then. What is gone is nothing to a worker that is started, but where its start loads models from a folder. */
static void keep_take(ks_changes *self, int fd, const ks_change_tail *tail)
{
    const bool is_gone = tail->undoes && self->daemon->config->model_repository.count == 0;
    ks_kept_change *kept = is_gone ? NULL : malloc(sizeof *kept);
    pthread_mutex_lock(&self->lock);
    forget(self, tail->label);
    if (kept) {
        ks_kept_change **link = &self->kept;
        while (*link) link = &(*link)->next;
        *kept = (ks_kept_change){.fd = fd, .tail = *tail};
        *link = kept;
    }
    pthread_mutex_unlock(&self->lock);
    if (!kept) close(fd);
}

void ks_changes_give_kept(const ks_changes *self, int row, int fd)
{
    if (!ks_channel_give_counted(self->daemon->give_fds[2 * row], fd, KS_CHANNEL_KEEP,
                                 &self->daemon->workers->row[row].connections))
        KS_LOG(KS_LOG_WARN, "a model's file is not kept by another worker", KS_INT("row", row));
}

void ks_changes_keep(ks_changes *self, int fd, const ks_change_tail *tail)
{
    const unsigned rows = ks_changes_joined(self);
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    for (int row = 0; row < self->daemon->workers->count; row++)
        if (rows >> row & 1 && row != self->daemon->worker) ks_changes_give_kept(self, row, fd);
    if (own >= 0) keep_take(self, own, tail);
}

void ks_changes_keep_take(ks_changes *self, int fd)
{
    struct stat about;
    ks_change_tail tail;
    const off_t size = fstat(fd, &about) == 0 ? about.st_size - (off_t)sizeof tail : -1;
    if (self && size >= 0 && pread(fd, &tail, sizeof tail, size) == (ssize_t)sizeof tail)
        keep_take(self, fd, &tail);
    else
        close(fd);
}

void ks_changes_drop_kept(ks_changes *self)
{
    while (self->kept) forget(self, self->kept->tail.label);
}
