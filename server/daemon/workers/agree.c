/* One change of all workers, from the lock to the answer.
 *
 * Owns       nothing beyond it. Interface changes_parts.h
 * Threads    the thread of changes. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/workers/changes_parts.h"
#include "daemon/workers/play.h"
#include "observe/workers/ballot.h"

static const int64_t look_ns = 300000, stall_ns = 10 * KS_S;

static ks_play_part *find_refusal(ks_play *play)
{
    for (int i = 0; i < play->parts; i++)
        if (play->part[i].answered && ks_play_code(&play->part[i]) > 299) return &play->part[i];
    return NULL;
}

static ks_play_part *find_gone(ks_play *play)
{
    for (int i = 0; i < play->parts; i++)
        if (play->part[i].gone) return &play->part[i];
    return NULL;
}

static ks_play_part *find_late(const ks_changes *self, ks_play *play)
{
    const int64_t now_ns = ks_now_ns();
    ks_play_part *late = NULL;
    for (int i = 0; i < play->parts; i++) {
        ks_play_part *part = &play->part[i];
        if (part->fd < 0) continue;
        if (ks_worker_is_stuck(&self->daemon->workers->row[part->row], now_ns)) return part;
        late = late ? late : part;
    }
    return now_ns - play->moved_ns > stall_ns + self->daemon->config->load_timeout ? late : NULL;
}

/* Until all are ready, which is OK, or one is not: why. */
static ks_status wait_ready(ks_changes *self, ks_play *play, uint32_t change, unsigned rows, ks_error *error)
{
    const ks_workers *workers = self->daemon->workers;
    for (;;) {
        ks_play_step(play, self->daemon, look_ns);
        const ks_play_part *part = find_refusal(play);
        if (part) {
            ks_error told;
            const ks_status status = ks_play_fault(part, &told);
            if (part->row != self->daemon->worker && status == KS_DRAINING)
                return ks_fail(error, KS_UNAVAILABLE, "the worker of device %d ends: nothing has changed",
                               workers->row[part->row].device);
            if (part->row == self->daemon->worker) return ks_fail(error, status, "%s", told.text);
            return ks_fail(error, status, "device %d: %s", workers->row[part->row].device, told.text);
        }
        if ((part = find_gone(play)) != NULL)
            return ks_fail(error, KS_UNAVAILABLE, "the worker of device %d ended meanwhile: nothing has changed",
                           workers->row[part->row].device);
        if ((part = find_late(self, play)) != NULL)
            return ks_fail(error, KS_UNAVAILABLE, "the worker of device %d does not go on: nothing has changed",
                           workers->row[part->row].device);
        if ((ks_ballot_votes(self->daemon->workers, change) & rows) == rows) return KS_OK;
    }
}

static void end_worker(const ks_changes *self, const ks_play_part *part, int signal, const char *why)
{
    KS_LOG(KS_LOG_ERROR, "a worker did not make a change that all had agreed on; it is started anew",
           KS_INT("of", self->daemon->workers->row[part->row].device), KS_TEXT("why", why));
    if (part->pid > 0 && atomic_load(&self->daemon->workers->row[part->row].pid) == part->pid) kill(part->pid, signal);
}

/* Behind the verdict: each does it now. One that does not is not as the others are; they go on, and the answer may be theirs. */
static void wait_done(ks_changes *self, ks_play *play)
{
    play->moved_ns = ks_now_ns();
    while (!ks_play_is_over(play)) {
        ks_play_step(play, self->daemon, KS_MS);
        ks_play_part *late = find_late(self, play);
        if (!late) continue;
        end_worker(self, late, SIGKILL, "it does not go on");
        ks_play_give_up(late);
    }
    for (int i = 0; i < play->parts; i++) {
        ks_error error;
        if (!play->part[i].answered || ks_play_code(&play->part[i]) <= 299) continue;
        ks_play_fault(&play->part[i], &error);
        end_worker(self, &play->part[i], SIGTERM, error.text);
    }
}

static void take_answer(ks_change *change, const ks_play_part *part)
{
    size_t bytes;
    char tag[sizeof change->etag];
    change->code = ks_play_code(part);
    if (change->code > 299) {
        ks_play_fault(part, &change->fault);
        return;
    }
    const char *const body = ks_play_body(part, &bytes);
    ks_text_add(&change->text, body, bytes);
    ks_play_field(part, "Content-Type", change->content_type, sizeof change->content_type);
    ks_play_field(part, "ETag", tag, sizeof tag);
    memcpy(change->etag, tag, sizeof tag);
    ks_play_field(part, "Location", change->location, sizeof change->location);
    ks_play_field(part, "Kernserve-Generation", change->generation, sizeof change->generation);
}

static void take_answers(ks_changes *self, ks_change *change, const ks_play *play)
{
    for (int i = 0; i < play->parts; i++)
        if (play->part[i].row == self->daemon->worker && play->part[i].answered) {
            take_answer(change, &play->part[i]);
            return;
        }
    ks_fail(&change->fault, KS_UNAVAILABLE, "this worker ends: the others have done it");
}

/* A load of what is there already changes nothing: it must not take the place of the change that a worker needs. */
static bool is_worth_keeping(const ks_play *play)
{
    char tag[KS_ETAG_MAX + 3] = "";
    for (int i = 0; i < play->parts && !tag[0]; i++)
        if (play->part[i].answered) ks_play_field(&play->part[i], "ETag", tag, sizeof tag);
    return play->tail.label[0] && (play->tail.undoes || tag[0]);
}

ks_status ks_changes_make(ks_changes *self, int fd, ks_change *change, ks_error *error)
{
    const unsigned rows = ks_changes_joined(self);
    ks_play play;
    if (!(rows >> self->daemon->worker & 1)) return ks_fail(error, KS_DRAINING, "this worker ends: ask again");
    const uint32_t number = ks_ballot_open(self->daemon->workers);
    if (!ks_play_open(&play, self->daemon, fd, number, rows)) {
        ks_play_close(&play);
        return ks_fail(error, KS_MEMORY, "no memory for a request of all workers");
    }
    ks_status status = wait_ready(self, &play, number, rows, error);
    const ks_verdict verdict = ks_ballot_decide(self->daemon->workers, number, status == KS_OK ? rows : ~0u);
    if (status == KS_OK && verdict != KS_VERDICT_DONE)
        status = ks_fail(error, KS_UNAVAILABLE, "a worker gave up: nothing has changed");
    if (status == KS_OK) {
        wait_done(self, &play);
        if (change) take_answers(self, change, &play);
        if (is_worth_keeping(&play)) ks_changes_keep(self, fd, &play.tail);
    }
    ks_play_close(&play);
    return status;
}

bool ks_changes_begin(ks_changes *self, int64_t wait_ns)
{
    return ks_changes_lock(self->daemon->workers, self->pid, wait_ns);
}

void ks_changes_end(ks_changes *self)
{
    ks_changes_unlock(self->daemon->workers, self->pid);
}
