/* Owns       the mapping of the table.
 * Interface  workers.h
 * Limits     a reader tries a text that changes READS times. */
#include "observe/workers/workers.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "observe/metrics.h"

const char *const ks_recovery_words[KS_RECOVERIES] = {
    [KS_RECOVERY_RESET] = "reset", [KS_RECOVERY_REBOOT] = "reboot", [KS_RECOVERY_DRAIN_AND_RESET] = "drain_and_reset"};

enum { READS = 8, TEXT_ALIGNMENT = 4096 };

static ks_workers *map(int fd, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* A part is the last of a worker's texts, and the largest. */
static size_t text_max(ks_worker_text which)
{
    return which == KS_WORKER_PART ? KS_WORKER_PART_MAX : KS_WORKER_TEXT_MAX;
}

static size_t text_at(ks_worker_text which)
{
    size_t at = 0;
    for (int i = 0; i < (int)which; i++) at += text_max((ks_worker_text)i);
    return at;
}

ks_workers *ks_workers_open(int count, int *fd)
{
    const size_t rows = sizeof(ks_workers) + (size_t)count * sizeof(ks_worker_row);
    const size_t texts = (rows + TEXT_ALIGNMENT - 1) / TEXT_ALIGNMENT * TEXT_ALIGNMENT;
    const size_t each = text_at(KS_WORKER_TEXTS), placed = texts + (size_t)count * each,
                 bytes = placed + KS_PLACED_BYTES; /* pages that nothing has touched cost nothing */
    ks_workers *workers = NULL;
    *fd = memfd_create("kernserve-workers", MFD_CLOEXEC);
    if (*fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0) workers = map(*fd, bytes);
    if (!workers) {
        if (*fd >= 0) close(*fd);
        return NULL;
    }
    workers->bytes = bytes;
    workers->count = count;
    workers->placed_at = placed;
    for (int i = 0; i < count; i++) {
        atomic_init(&workers->row[i].exit_code, -1);
        for (int t = 0; t < KS_WORKER_TEXTS; t++)
            workers->row[i].text[t].at = texts + (size_t)i * each + text_at((ks_worker_text)t);
    }
    return workers;
}

ks_workers *ks_workers_join(int fd)
{
    struct stat at;
    if (fstat(fd, &at) != 0 || (size_t)at.st_size < sizeof(ks_workers)) return NULL;
    ks_workers *workers = map(fd, (size_t)at.st_size);
    if (workers && workers->bytes != (size_t)at.st_size) ks_workers_close(&workers);
    return workers;
}

void ks_workers_close(ks_workers **workers)
{
    if (*workers) munmap(*workers, (*workers)->bytes);
    *workers = NULL;
}

/* --- locks -------------------------------------------------------------------------------------------------------- */

/* Linux has process ids up to 2^22. */
enum { WAITED = 1 << 30 };
static const int64_t look_ns = 50000000; /* a futex of a process that was killed wakes no one else */

bool ks_workers_lock(_Atomic uint32_t *lock, int pid, int64_t timeout_ns)
{
    const struct timespec look = {.tv_nsec = look_ns};
    const int64_t until_ns = ks_now_ns() + timeout_ns;
    uint32_t mine = (uint32_t)pid;
    for (;;) {
        uint32_t holder = 0;
        if (atomic_compare_exchange_strong(lock, &holder, mine)) return true;
        if (ks_now_ns() >= until_ns) return false;
        if (!(holder & WAITED) && !atomic_compare_exchange_strong(lock, &holder, holder | WAITED)) continue;
        mine |= WAITED; /* there may be others that wait */
        syscall(SYS_futex, lock, FUTEX_WAIT, holder | WAITED, &look, NULL, 0);
    }
}

void ks_workers_unlock(_Atomic uint32_t *lock, int pid)
{
    uint32_t holder = atomic_load(lock);
    while (pid > 0 && (holder & ~(uint32_t)WAITED) == (uint32_t)pid) {
        if (!atomic_compare_exchange_weak(lock, &holder, 0)) continue;
        if (holder & WAITED) syscall(SYS_futex, lock, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        return;
    }
}

void ks_workers_let_go(ks_workers *workers, int pid)
{
    ks_workers_unlock(&workers->changer, pid);
    ks_workers_unlock(&workers->placer, pid);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

int ks_workers_find(const ks_workers *workers, int device)
{
    for (int i = 0; i < workers->count; i++)
        if (workers->row[i].device == device) return i;
    return -1;
}

bool ks_worker_is_up(const ks_worker_row *row)
{
    return atomic_load(&row->pid) != 0;
}

bool ks_worker_is_stuck(const ks_worker_row *row, int64_t now_ns)
{
    return atomic_load(&row->accepts) && now_ns - atomic_load(&row->beat_ns) > KS_WORKER_STUCK_NS;
}

bool ks_worker_serves(const ks_worker_row *row, int64_t now_ns)
{
    return ks_worker_is_up(row) && atomic_load(&row->accepts) && !ks_worker_is_stuck(row, now_ns);
}

const char *ks_worker_word(const ks_worker_row *row, const char *const *states)
{
    if (!ks_worker_is_up(row)) return "down";
    if (ks_worker_is_stuck(row, ks_now_ns())) return "stuck";
    const int state = atomic_load(&row->state);
    return states[state == KS_STATE_READY && !atomic_load(&row->accepts) ? KS_STATE_STARTING : state];
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

/* Between processes, so not a private one. */
static void wait_while(const _Atomic uint32_t *word, uint32_t value, int64_t timeout_ns)
{
    static const int64_t second_ns = 1000000000;
    const struct timespec timeout = {.tv_sec = timeout_ns / second_ns, .tv_nsec = timeout_ns % second_ns};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

static void wake(const _Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void ks_worker_publish(ks_workers *workers, int index, ks_worker_text which, const char *text, size_t bytes)
{
    ks_worker_row *row = &workers->row[index];
    if (bytes > text_max(which)) bytes = 0;
    const uint64_t sequence =
        atomic_load(&row->text[which].sequence) | 1;             /* odd: also where one that was killed left it so */
    (void)atomic_exchange(&row->text[which].sequence, sequence); /* no byte is written before it */
    memcpy((char *)workers + row->text[which].at, text, bytes);
    atomic_store(&row->text[which].bytes, bytes);
    atomic_store(&row->text[which].sequence, sequence + 1);
}

void ks_worker_published(ks_worker_row *row)
{
    atomic_fetch_add(&row->made, 1);
    wake(&row->made);
}

void ks_worker_wait_wanted(ks_worker_row *row, uint32_t seen, int64_t timeout_ns)
{
    wait_while(&row->wanted, seen, timeout_ns);
}

void ks_worker_want(ks_worker_row *row)
{
    atomic_fetch_add(&row->wanted, 1);
    wake(&row->wanted);
}

void ks_worker_wait_made(const ks_worker_row *row, uint32_t seen, int64_t timeout_ns)
{
    wait_while(&row->made, seen, timeout_ns);
}

void ks_workers_refresh(ks_workers *workers, int self, int64_t timeout_ns)
{
    uint32_t made[KS_WORKERS_MAX];
    const int64_t until_ns = ks_now_ns() + timeout_ns;
    for (int i = 0; i < workers->count; i++) {
        if (i == self) continue;
        made[i] = atomic_load(&workers->row[i].made);
        ks_worker_want(&workers->row[i]);
    }
    for (int i = 0; i < workers->count; i++) {
        const ks_worker_row *row = &workers->row[i];
        for (int64_t now_ns; i != self && ks_worker_is_up(row) && atomic_load(&row->made) == made[i] &&
                             (now_ns = ks_now_ns()) < until_ns;)
            wait_while(&row->made, made[i], until_ns - now_ns);
    }
}

bool ks_worker_read(ks_workers *workers, int index, ks_worker_text which, ks_text *out)
{
    ks_worker_row *row = &workers->row[index];
    if (!ks_worker_is_up(row)) return false;
    for (int i = 0; i < READS; i++) {
        const uint64_t sequence = atomic_load(&row->text[which].sequence);
        const size_t bytes = atomic_load(&row->text[which].bytes);
        if (sequence & 1 || bytes == 0 || bytes > text_max(which)) continue;
        char *room = ks_text_room(out, bytes);
        if (!room) return false;
        memcpy(room, (const char *)workers + row->text[which].at, bytes);
        if (atomic_fetch_add(&row->text[which].sequence, 0) != sequence) continue; /* no byte is read behind it */
        out->length += bytes;
        return true;
    }
    return false;
}
