/* Owns  the ring of lines and the thread that writes them to stderr.
 *
 * The ring is a bounded queue with a sequence number per place: a caller takes a place by one compare-and-swap, writes
 * its line there, publishes it, and wakes the writer. No lock, so a caller stopped anywhere holds up only the
 * lines behind its own; a full ring drops the line. The writer alone may block, on a reader that does not read. */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log_line.h"

enum { PLACES = 2048, GATHER = 4096 /* PIPE_BUF: a pipe that poll calls writable takes that much without blocking */ };

typedef struct ring_place {
    _Atomic uint64_t sequence; /* == position: free; == position + 1: holds that position's line */
    size_t length;
    char bytes[KS_LINE_MAX];
} ring_place;

static struct {
    /* fixed by open: */
    ks_line_style style;
    ring_place *places;
    pthread_t writer;
    /* any thread, atomic: */
    _Atomic unsigned levels; /* one bit each */
    _Atomic bool running;    /* the ring takes lines */
    _Atomic bool stopping;   /* the writer ends when the ring is empty, or at stop_ns */
    _Atomic int64_t stop_ns;
    _Atomic uint64_t tail; /* next position to be taken */
    _Atomic uint64_t lines[KS_LEVELS], dropped;
    sem_t published;
    /* the writer's: */
    uint64_t head;
} state = {.levels = (1u << (KS_LOG_INFO + 1)) - 1};

static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat at;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &at) == 0 &&
           at.st_dev == (dev_t)device && at.st_ino == (ino_t)inode;
}

static void drop(uint64_t lines)
{
    atomic_fetch_add_explicit(&state.dropped, lines, memory_order_relaxed);
}

/* Writes lines in full, waiting for the reader as long as the writer may; false: lost. */
static bool write_out(const char *bytes, size_t n, bool wait)
{
    while (n > 0) {
        struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
        const bool overdue = atomic_load(&state.stopping) && ks_now_ns() >= atomic_load(&state.stop_ns);
        const int polled = poll(&ready, 1, wait && !overdue ? 100 : 0);
        if (polled < 0 && errno != EINTR) return false;
        if (polled <= 0 && (!wait || overdue)) return false;
        if (polled <= 0) continue;
        if (ready.revents & POLLNVAL) return false;
        const ssize_t wrote = write(STDERR_FILENO, bytes, n);
        if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (wrote < 0) return false;
        bytes += wrote;
        n -= (size_t)wrote;
    }
    return true;
}

/* The next published line, appended to bytes; false: there is none, or it does not fit. */
static bool take_line(char *bytes, size_t *length, size_t cap)
{
    ring_place *place = &state.places[state.head % PLACES];
    if (atomic_load_explicit(&place->sequence, memory_order_acquire) != state.head + 1) return false;
    if (place->length > cap - *length) return false;
    memcpy(bytes + *length, place->bytes, place->length);
    *length += place->length;
    atomic_store_explicit(&place->sequence, state.head + PLACES, memory_order_release);
    state.head++;
    return true;
}

static void *write_lines(void *unused)
{
    (void)unused;
    static char bytes[GATHER];
    pthread_setname_np(pthread_self(), "kernserve-log");
    for (;;) {
        /* A wake-up may find its line already written, or a line before it not yet published: then another follows. */
        while (sem_wait(&state.published) != 0 && errno == EINTR) continue;
        for (;;) {
            size_t length = 0;
            uint64_t lines = 0;
            while (take_line(bytes, &length, sizeof bytes)) lines++;
            if (lines == 0) break;
            if (!write_out(bytes, length, true)) drop(lines);
        }
        if (atomic_load(&state.stopping)) return NULL;
    }
}

bool ks_log_open(ks_level level, ks_log_format format)
{
    ks_log_set_levels(ks_log_up_to(level));
    state.style.format = format;
    state.style.journal = is_journal();
    if (atomic_load(&state.running)) return true;
    /* Kept from one opening to the next, so that a caller that is late never uses freed memory. */
    if (!state.places) {
        state.places = calloc(PLACES, sizeof *state.places);
        if (!state.places) return false;
        for (uint64_t i = 0; i < PLACES; i++) atomic_init(&state.places[i].sequence, i);
        sem_init(&state.published, 0, 0);
    }
    atomic_store(&state.stopping, false);
    if (pthread_create(&state.writer, NULL, write_lines, NULL) != 0) return false;
    atomic_store(&state.running, true);
    return true;
}

void ks_log_set_worker(int device)
{
    state.style.of_worker = true;
    state.style.worker = device;
}

void ks_log_close(void)
{
    if (!atomic_exchange(&state.running, false)) return;
    atomic_store(&state.stop_ns, ks_now_ns() + 1000000000);
    atomic_store(&state.stopping, true);
    sem_post(&state.published);
    pthread_join(state.writer, NULL);
}

unsigned ks_log_up_to(ks_level level)
{
    return (1u << ((unsigned)level + 1)) - 1;
}

void ks_log_set_levels(unsigned levels)
{
    atomic_store(&state.levels, levels);
}

unsigned ks_log_levels(void)
{
    return atomic_load_explicit(&state.levels, memory_order_relaxed);
}

bool ks_log_enabled(ks_level level)
{
    return ks_log_levels() >> level & 1;
}

/* A free place, or NULL when the ring is full. */
static ring_place *take_place(uint64_t *position)
{
    uint64_t tail = atomic_load_explicit(&state.tail, memory_order_relaxed);
    for (;;) {
        ring_place *place = &state.places[tail % PLACES];
        const uint64_t sequence = atomic_load_explicit(&place->sequence, memory_order_acquire);
        if (sequence == tail) {
            if (atomic_compare_exchange_weak_explicit(&state.tail, &tail, tail + 1, memory_order_relaxed,
                                                      memory_order_relaxed)) {
                *position = tail;
                return place;
            }
        } else if (sequence < tail) {
            return NULL;
        } else {
            tail = atomic_load_explicit(&state.tail, memory_order_relaxed);
        }
    }
}

void ks_log(ks_level level, const char *msg, const ks_field *fields, int count)
{
    if (!ks_log_enabled(level)) return;
    atomic_fetch_add_explicit(&state.lines[level], 1, memory_order_relaxed);
    if (!atomic_load_explicit(&state.running, memory_order_acquire)) {
        char bytes[KS_LINE_MAX];
        const ks_line line = {ks_wall_ns(), level, msg, fields, count};
        const size_t n = ks_line_write(bytes, state.style, &line);
        if (!write_out(bytes, n, false)) drop(1);
        return;
    }
    uint64_t position;
    ring_place *place = take_place(&position);
    if (!place) {
        drop(1);
        return;
    }
    const ks_line line = {ks_wall_ns(), level, msg, fields, count};
    place->length = ks_line_write(place->bytes, state.style, &line);
    atomic_store_explicit(&place->sequence, position + 1, memory_order_release);
    sem_post(&state.published);
}

bool ks_log_due(ks_log_limit *limit, int64_t now_ns, uint64_t *times)
{
    static const int64_t pause_ns = 1000000000;
    int64_t next = atomic_load(&limit->next_ns);
    atomic_fetch_add(&limit->held, 1);
    if (now_ns < next || !atomic_compare_exchange_strong(&limit->next_ns, &next, now_ns + pause_ns)) return false;
    *times = atomic_exchange(&limit->held, 0);
    return *times > 0;
}

uint64_t ks_log_lines(ks_level level)
{
    return atomic_load_explicit(&state.lines[level], memory_order_relaxed);
}

uint64_t ks_log_dropped(void)
{
    return atomic_load_explicit(&state.dropped, memory_order_relaxed);
}
