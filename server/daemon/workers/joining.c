/* What a worker that is started is given by another one, and tensors whose time is over.
 *
 * Owns       nothing.
 * Interface  changes_parts.h, changes.h
 * Threads    the thread of changes; ks_changes_forget: main's.
 * Limits     a tensor that is given to a worker lies in this process's memory meanwhile, once, and twice while it is copied there. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/workers/changes_parts.h"
#include "daemon/workers/channel.h"
#include "daemon/workers/play.h"
#include "observe/workers/ballot.h"

enum { TARGET_MAX = 4 * (KS_TENANT_NAME_MAX + KS_TENSOR_NAME_MAX) + 512, BATCH = 64, PAUSE_US = 2000 };
static const int64_t step_ns = 10 * KS_MS, stall_ns = 10 * KS_S, join_ns = KS_S;

/* --- requests of our own ------------------------------------------------------------------------------------------ */

static void put_escaped(char *out, size_t size, const char *text)
{
    size_t n = 0;
    for (; *text && n + 4 < size; text++)
        n += (size_t)snprintf(out + n, size - n, isalnum((unsigned char)*text) ? "%c" : "%%%02X", (unsigned char)*text);
    out[n] = '\0';
}

/* Of one that joins, too, which is stuck to no one else: its main thread waits for that, and says so each 2 ms. */
static bool has_turns(const ks_worker_row *row)
{
    return ks_now_ns() - atomic_load(&row->beat_ns) <= KS_WORKER_STUCK_NS;
}

/* One request to one worker; true: it is answered, with a code up to 299. play: the caller closes it. All changes wait meanwhile,
 * so for one that is stopped no longer than for any. */
static bool ask(ks_changes *self, ks_play *play, int row, int fd)
{
    const int64_t longest_ns = stall_ns + self->daemon->config->load_timeout;
    *play = (ks_play){.fd = -1};
    if (!ks_play_open(play, self->daemon, fd, 0, 1u << row)) return false;
    while (!ks_play_is_over(play) && ks_now_ns() - play->moved_ns < longest_ns &&
           has_turns(&self->daemon->workers->row[row]))
        ks_play_step(play, self->daemon, step_ns);
    return play->parts == 1 && play->part[0].answered && ks_play_code(&play->part[0]) <= 299;
}

static bool ask_head(ks_changes *self, ks_play *play, int row, const char *head)
{
    *play = (ks_play){.fd = -1};
    const int fd = ks_play_file(head);
    if (fd < 0) return false;
    const bool good = ask(self, play, row, fd);
    close(fd);
    return good;
}

static const char *text_of(const ks_play *play, char out[KS_ERROR_TEXT])
{
    ks_error error;
    const bool told = play->parts == 1 && play->part[0].answered;
    if (told) ks_play_fault(&play->part[0], &error);
    snprintf(out, KS_ERROR_TEXT, "%s", told ? error.text : "no answer");
    return out;
}

/* --- what a worker is given --------------------------------------------------------------------------------------- */

/* A PUT of the bytes that a GET has answered. -1: no memory. */
static int make_put(const ks_tensor_entry *entry, const char *tenant, const ks_play_part *got)
{
    char shape[KS_RANK_MAX * 21 + 1], whose[3 * KS_TENANT_NAME_MAX + 1], head[TARGET_MAX + 256];
    size_t bytes;
    const char *const body = ks_play_body(got, &bytes);
    put_escaped(whose, sizeof whose, tenant);
    ks_dims_text(&entry->tensor, shape, sizeof shape);
    ks_change_tail tail = {.body_bytes = bytes};
    tail.head_bytes = (uint64_t)snprintf(
        head, sizeof head,
        "PUT /v2/tensors/%s?shape=%s&datatype=%s&ttl=%" PRId64 "&tenant=%s%s%s HTTP/1.1\r\nHost: localhost\r\n"
        "Connection: close\r\nContent-Length: %zu\r\n\r\n",
        entry->name, shape, ks_dtype_name(entry->tensor.dtype), entry->ttl_s, whose, entry->form_op ? "&for=" : "",
        entry->form_op ? entry->form_op->name : "", bytes);
    const int fd = memfd_create("kernserve-copy", MFD_CLOEXEC);
    bool good = fd >= 0;
    for (size_t at = 0; good && at < bytes;) {
        const ssize_t n = TEMP_FAILURE_RETRY(write(fd, body + at, bytes - at));
        good = n > 0;
        at += good ? (size_t)n : 0;
    }
    good = good && write(fd, head, tail.head_bytes) == (ssize_t)tail.head_bytes &&
           write(fd, &tail, sizeof tail) == (ssize_t)sizeof tail;
    if (good || fd < 0) return fd;
    close(fd);
    return -1;
}

static bool give_tensor(ks_changes *self, int row, const char *tenant, const ks_tensor_entry *entry)
{
    char whose[3 * KS_TENANT_NAME_MAX + 1], head[TARGET_MAX], why[KS_ERROR_TEXT];
    ks_play got, put = {.fd = -1};
    put_escaped(whose, sizeof whose, tenant);
    snprintf(head, sizeof head, "GET /v2/tensors/%s?tenant=%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
             entry->name, whose);
    bool good = ask_head(self, &got, self->daemon->worker, head);
    const int fd = good ? make_put(entry, tenant, &got.part[0]) : -1;
    if (fd >= 0) ks_play_close(&got); /* it is long, and the other worker may take a while */
    good = fd >= 0 && ask(self, &put, row, fd);
    if (!good)
        KS_LOG(KS_LOG_ERROR, "a tensor cannot be given to a worker that is started; it waits",
               KS_INT("of", self->daemon->workers->row[row].device), KS_TEXT("tensor", entry->name),
               KS_TEXT("why", text_of(fd >= 0 ? &put : &got, why)));
    if (fd >= 0) close(fd);
    ks_play_close(&got);
    ks_play_close(&put);
    return good;
}

static bool give_tensors(ks_changes *self, int row, const char *name)
{
    char after[KS_TENSOR_NAME_MAX + 1] = "";
    const ks_tenant tenant = {.name = name, .is_operator = true};
    ks_tensor_entry *entries = malloc(BATCH * sizeof *entries);
    bool more = entries != NULL, good = more;
    while (more && good) {
        const int count = ks_store_list(self->daemon->store, &tenant, "", after, BATCH, entries, &more);
        for (int i = 0; i < count && good; i++) {
            memcpy(after, entries[i].name, sizeof after);
            const bool stays = entries[i].read_only || entries[i].lost || entries[i].is_placed;
            good = stays || give_tensor(self, row, name, &entries[i]);
        }
    }
    free(entries);
    return good;
}

/* One that cannot load it does without: clients see that it has none. false: it does not answer. */
static bool give_models(ks_changes *self, int row)
{
    bool answers = true;
    for (int i = 0; answers; i++) {
        char why[KS_ERROR_TEXT];
        ks_play play;
        pthread_mutex_lock(&self->lock);
        const ks_kept_change *kept = self->kept;
        for (int skip = i; kept && skip > 0; skip--) kept = kept->next;
        const int fd = kept ? fcntl(kept->fd, F_DUPFD_CLOEXEC, 0) : -1;
        const bool undoes = kept && kept->tail.undoes;
        pthread_mutex_unlock(&self->lock);
        if (!kept) break;
        const bool good = ask(self, &play, row, fd);
        answers = play.parts == 0 || play.part[0].answered;
        if (!good && !undoes)
            KS_LOG(KS_LOG_ERROR, "a model cannot be given to a worker that is started",
                   KS_INT("of", self->daemon->workers->row[row].device), KS_TEXT("model", play.tail.label),
                   KS_TEXT("why", text_of(&play, why)));
        ks_play_close(&play);
        if (fd >= 0) ks_changes_give_kept(self, row, fd);
        if (fd >= 0) close(fd);
    }
    return answers;
}

/* With the lock of all. One that failed copied tensors for nothing, and held up all changes: the next is a while later. */
static void give_all(ks_changes *self, int row)
{
    char tenant[KS_TENANT_NAME_MAX + 1];
    ks_worker_row *to = &self->daemon->workers->row[row];
    const int pid = atomic_load(&to->pid);
    bool good = true;
    for (int i = 0; good && ks_store_tenant_at(self->daemon->store, i, tenant); i++)
        good = give_tensors(self, row, tenant);
    good = good && give_models(self, row);
    if (!good) self->join_due_ns = ks_now_ns() + join_ns;
    if (good && atomic_load(&to->pid) == pid && atomic_load(&to->asks)) atomic_store(&to->joined, true);
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

static void found(ks_changes *self)
{
    if (!ks_changes_begin(self, step_ns)) return;
    if (ks_changes_joined(self) == 0) {
        atomic_store(&self->founds, true);
        atomic_store(&self->daemon->row->joined, true);
    }
    ks_changes_end(self);
}

/* The one that has joined with the lowest row does what one does for all. */
static bool is_first(const ks_changes *self, unsigned joined)
{
    return joined && __builtin_ctz(joined) == self->daemon->worker;
}

void ks_changes_join(ks_changes *self)
{
    ks_workers *workers = self->daemon->workers;
    const unsigned joined = ks_changes_joined(self);
    if (joined == 0 && atomic_load(&self->daemon->row->asks)) found(self);
    for (int row = 0; row < workers->count; row++) {
        const ks_worker_row *to = &workers->row[row];
        if (!atomic_load(&to->asks) || atomic_load(&to->joined) || row == self->daemon->worker) continue;
        if (!has_turns(to) || ks_now_ns() < self->join_due_ns) continue;
        if (!is_first(self, joined)) usleep(PAUSE_US); /* so that the one whose task it is has the lock soon */
        if (!is_first(self, joined) || !ks_changes_begin(self, join_ns)) continue;
        if (is_first(self, ks_changes_joined(self))) give_all(self, row);
        ks_changes_end(self);
    }
}

/* --- time --------------------------------------------------------------------------------------------------------- */

/* Whether another worker knows the name. *seconds: until the tensor goes there; 0: for ever, it is over, or lost. */
static bool knows(ks_changes *self, int row, const char *whose, const char *name, int64_t *seconds)
{
    char head[TARGET_MAX], first[KS_TENSOR_NAME_MAX + 16];
    static const char member[] = "\"expires_in\":";
    size_t bytes;
    bool there = false;
    ks_play play;
    *seconds = 0;
    snprintf(head, sizeof head,
             "GET /v2/tensors?prefix=%s&limit=1&tenant=%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", name,
             whose);
    if (ask_head(self, &play, row, head)) {
        const char *const body = ks_play_body(&play.part[0], &bytes);
        snprintf(first, sizeof first, "{\"name\":\"%s\"", name);
        const char *at = memmem(body, bytes, first, strlen(first));
        there = at != NULL;
        at = at ? memmem(at, bytes - (size_t)(at - body), member, sizeof member - 1) : NULL;
        *seconds = at ? strtoll(at + sizeof member - 1, NULL, 10) : 0;
    }
    ks_play_close(&play);
    return there;
}

static void forget_lost_of(ks_changes *self, const char *name, int row)
{
    char after[KS_TENSOR_NAME_MAX + 1] = "", whose[3 * KS_TENANT_NAME_MAX + 1];
    const ks_tenant tenant = {.name = name, .is_operator = true};
    bool more = true;
    put_escaped(whose, sizeof whose, name);
    while (more) {
        ks_tensor_entry entry;
        ks_error ignored;
        int64_t seconds;
        if (ks_store_list(self->daemon->store, &tenant, "", after, 1, &entry, &more) == 0) return;
        memcpy(after, entry.name, sizeof after);
        if (entry.lost && !knows(self, row, whose, entry.name, &seconds))
            ks_store_delete(self->daemon->store, &tenant, entry.name, NULL, &ignored);
    }
}

void ks_changes_forget(ks_changes *self)
{
    char tenant[KS_TENANT_NAME_MAX + 1];
    const unsigned others = ks_changes_joined(self) & ~(1u << self->daemon->worker);
    for (int i = 0; others && ks_store_tenant_at(self->daemon->store, i, tenant); i++)
        forget_lost_of(self, tenant, __builtin_ctz(others));
}

/* With the lock of all: it goes in all of them, or lives as long as the one that used it last says. */
static bool expire(ks_changes *self, const char *tenant, const char *name)
{
    char whose[3 * KS_TENANT_NAME_MAX + 1], head[TARGET_MAX];
    const unsigned rows = ks_changes_joined(self);
    int64_t longest_s = 0;
    put_escaped(whose, sizeof whose, tenant);
    for (int row = 0; row < self->daemon->workers->count; row++) {
        if (!(rows >> row & 1) || row == self->daemon->worker) continue;
        int64_t seconds;
        knows(self, row, whose, name, &seconds);
        longest_s = seconds > longest_s ? seconds : longest_s;
    }
    if (longest_s > 0) {
        ks_store_prolong(self->daemon->store, tenant, name, longest_s);
        return true;
    }
    ks_error error;
    snprintf(head, sizeof head, "DELETE /v2/tensors/%s?tenant=%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
             name, whose);
    const int fd = ks_play_file(head);
    const bool good = fd >= 0 && ks_changes_make(self, fd, NULL, &error) == KS_OK;
    if (fd >= 0) close(fd);
    return good;
}

void ks_changes_expire(ks_changes *self)
{
    char tenant[KS_TENANT_NAME_MAX + 1], name[KS_TENSOR_NAME_MAX + 1];
    bool good = is_first(self, ks_changes_joined(self));
    while (good && ks_store_first_due(self->daemon->store, tenant, name)) {
        if (!ks_changes_begin(self, step_ns)) return;
        good = !ks_store_first_due(self->daemon->store, tenant, name) || expire(self, tenant, name);
        ks_changes_end(self);
    }
}
