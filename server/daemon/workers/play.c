/* Owns       the connections and the answers, until ks_play_close.
 * Interface  play.h */
#include "daemon/workers/play.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/workers/channel.h"

enum { ANSWER_STEP = 64 << 10 };

int ks_play_file(const char *head)
{
    const ks_change_tail tail = {.head_bytes = strlen(head) + 2};
    const int fd = memfd_create("kernserve-ask", MFD_CLOEXEC);
    if (fd >= 0 && dprintf(fd, "%s\r\n", head) == (int)tail.head_bytes &&
        write(fd, &tail, sizeof tail) == (ssize_t)sizeof tail)
        return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static bool read_file(ks_play *play)
{
    struct stat about;
    ks_change_tail *tail = &play->tail;
    if (fstat(play->fd, &about) != 0 || about.st_size < (off_t)sizeof *tail) return false;
    const uint64_t bytes = (uint64_t)about.st_size - sizeof *tail;
    if (pread(play->fd, tail, sizeof *tail, (off_t)bytes) != (ssize_t)sizeof *tail) return false;
    if (tail->body_bytes + tail->head_bytes != bytes) return false;
    play->head = malloc(tail->head_bytes + 1);
    return play->head &&
           pread(play->fd, play->head, tail->head_bytes, (off_t)tail->body_bytes) == (ssize_t)tail->head_bytes;
}

static void end_part(ks_play_part *part, bool answered)
{
    if (part->fd >= 0) close(part->fd);
    part->fd = -1;
    part->answered = answered;
    part->gone = !answered;
}

static void open_part(ks_play_part *part, ks_daemon *daemon, int row, uint32_t change)
{
    int ends[2];
    *part = (ks_play_part){.row = row, .fd = -1, .pid = atomic_load(&daemon->workers->row[row].pid)};
    ks_text_init(&part->answer, SIZE_MAX / 2);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
        end_part(part, false);
        return;
    }
    part->fd = ends[0];
    if (!ks_channel_give_counted(daemon->give_fds[2 * row], ends[1], KS_CHANNEL_PEER | change,
                                 &daemon->workers->row[row].connections))
        end_part(part, false);
    close(ends[1]);
}

bool ks_play_open(ks_play *play, ks_daemon *daemon, int fd, uint32_t change, unsigned rows)
{
    *play = (ks_play){.fd = fd, .moved_ns = ks_now_ns()};
    if (!read_file(play)) return false;
    for (int row = 0; row < daemon->workers->count; row++)
        if (rows >> row & 1) open_part(&play->part[play->parts++], daemon, row, change);
    return true;
}

void ks_play_close(ks_play *play)
{
    for (int i = 0; i < play->parts; i++) {
        if (play->part[i].fd >= 0) end_part(&play->part[i], false);
        ks_text_fini(&play->part[i].answer);
    }
    free(play->head);
    play->head = NULL;
}

/* --- moving ------------------------------------------------------------------------------------------------------- */

static bool has_more(const ks_play *play, const ks_play_part *part)
{
    return part->sent < play->tail.head_bytes + play->tail.body_bytes;
}

/* Nothing of an error: one that has answered reads no more, and its answer is there. */
static void send_some(ks_play *play, ks_play_part *part)
{
    while (has_more(play, part)) {
        const uint64_t head = play->tail.head_bytes;
        off_t at = (off_t)(part->sent - head);
        const ssize_t n = part->sent < head ? send(part->fd, play->head + part->sent, head - part->sent, MSG_NOSIGNAL)
                                            : sendfile(part->fd, play->fd, &at, play->tail.body_bytes - (uint64_t)at);
        if (n <= 0) return;
        part->sent += (uint64_t)n;
        play->moved_ns = ks_now_ns();
    }
}

static void look_at_answer(ks_play_part *part)
{
    const char *const bytes = part->answer.bytes;
    if (part->head_bytes == 0) {
        const char *const end = memmem(bytes, part->answer.length, "\r\n\r\n", 4);
        if (!end) return;
        part->head_bytes = (size_t)(end - bytes) + 4;
    }
    char length[24];
    ks_play_field(part, "Content-Length", length, sizeof length);
    if (part->answer.length - part->head_bytes >= strtoull(length, NULL, 10)) end_part(part, true);
}

static void receive_some(ks_play *play, ks_play_part *part)
{
    while (part->fd >= 0) {
        char *const room = ks_text_room(&part->answer, ANSWER_STEP);
        const ssize_t n = room ? recv(part->fd, room, ANSWER_STEP, 0) : 0;
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            end_part(part, false);
            return;
        }
        part->answer.length += (size_t)n;
        play->moved_ns = ks_now_ns();
        look_at_answer(part);
    }
}

void ks_play_step(ks_play *play, ks_daemon *daemon, int64_t wait_ns)
{
    struct pollfd polled[KS_WORKERS_MAX];
    const struct timespec wait = {.tv_sec = wait_ns / KS_S, .tv_nsec = wait_ns % KS_S};
    for (int i = 0; i < play->parts; i++) {
        ks_play_part *part = &play->part[i];
        if (part->fd >= 0 && atomic_load(&daemon->workers->row[part->row].pid) != part->pid) {
            receive_some(play, part);
            if (part->fd >= 0) end_part(part, false);
        }
        polled[i] = (struct pollfd){.fd = part->fd, .events = (short)(POLLIN | (has_more(play, part) ? POLLOUT : 0))};
    }
    if (ppoll(polled, (nfds_t)play->parts, &wait, NULL) <= 0) return;
    for (int i = 0; i < play->parts; i++) {
        ks_play_part *part = &play->part[i];
        if (part->fd >= 0 && polled[i].revents & POLLOUT) send_some(play, part);
        if (part->fd >= 0 && polled[i].revents & (POLLIN | POLLHUP | POLLERR)) receive_some(play, part);
    }
}

void ks_play_give_up(ks_play_part *part)
{
    end_part(part, false);
}

bool ks_play_is_over(const ks_play *play)
{
    for (int i = 0; i < play->parts; i++)
        if (play->part[i].fd >= 0) return false;
    return true;
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

int ks_play_code(const ks_play_part *part)
{
    static const size_t at = sizeof "HTTP/1.1 " - 1;
    return part->head_bytes > at + 3 ? atoi(part->answer.bytes + at) : 0;
}

void ks_play_field(const ks_play_part *part, const char *name, char *out, size_t size)
{
    const size_t length = strlen(name);
    const char *line = part->answer.bytes, *const end = line + part->head_bytes;
    out[0] = '\0';
    while (line < end) {
        const char *const behind = memchr(line, '\r', (size_t)(end - line));
        if (!behind) return;
        if ((size_t)(behind - line) > length + 2 && strncasecmp(line, name, length) == 0 && line[length] == ':') {
            snprintf(out, size, "%.*s", (int)(behind - line - (ptrdiff_t)length - 2), line + length + 2);
            return;
        }
        line = behind + 2;
    }
}

const char *ks_play_body(const ks_play_part *part, size_t *bytes)
{
    *bytes = part->answer.length - part->head_bytes;
    return part->answer.bytes + part->head_bytes;
}

/* {"error":"..."}: its sentence, without the escapes of what it may quote. */
static void read_sentence(const ks_play_part *part, char out[KS_ERROR_TEXT])
{
    static const char before[] = "{\"error\":\"";
    size_t bytes, n = 0;
    const char *at = ks_play_body(part, &bytes), *const end = at + bytes;
    if (bytes > sizeof before - 1 && memcmp(at, before, sizeof before - 1) == 0) at += sizeof before - 1;
    while (at < end && *at != '"' && n < KS_ERROR_TEXT - 1) {
        if (*at == '\\' && at + 1 < end) at++;
        out[n++] = *at++;
    }
    out[n] = '\0';
}

ks_status ks_play_fault(const ks_play_part *part, ks_error *error)
{
    char code[32], sentence[KS_ERROR_TEXT];
    const int http = ks_play_code(part);
    ks_play_field(part, "Kernserve-Error", code, sizeof code);
    read_sentence(part, sentence);
    int status = 0;
    while (status < KS_STATUS_COUNT &&
           (ks_status_http((ks_status)status) != http || strcmp(ks_status_code((ks_status)status), code) != 0))
        status++;
    return ks_fail(error, status < KS_STATUS_COUNT ? (ks_status)status : KS_UNAVAILABLE, "%s", sentence);
}
