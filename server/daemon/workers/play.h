/* Sends one request, which lies in a file (api/changes/change.h), to several workers at once, and takes their answers: each by a connection of
 * its own, a pair of sockets whose other end goes to the worker by its channel. A request about a change that all make is answered once that
 * change has its verdict.
 *
 * Life     ks_play_open -> ks_play_step, until it is over, or what the caller waits for has come -> ks_play_close.
 * Limits   an answer lies in memory.  Threads  one at a time. */
#ifndef KS_PLAY_H
#define KS_PLAY_H
#include "api/changes/change.h"
#include "daemon/daemon.h"

/* One worker's part. */
typedef struct ks_play_part {
    int row, pid, fd; /* fd -1: it is over */
    uint64_t sent;    /* of head and body */
    ks_text answer;
    size_t head_bytes;   /* of the answer; 0: it is not complete yet */
    bool answered, gone; /* gone: it ended, or its connection, before its answer */
} ks_play_part;

typedef struct ks_play {
    int fd;
    ks_change_tail tail;
    char *head;
    int parts;
    ks_play_part part[KS_WORKERS_MAX];
    int64_t moved_ns; /* when bytes were moved for the last time */
} ks_play;

/* A file of a request without a body, as its head is, with all but the last line. -1: no memory. */
int ks_play_file(const char *head);
/* change: that the request is about; 0: none. rows: of the workers, as bits. false: no memory, or no request. */
bool ks_play_open(ks_play *play, ks_daemon *daemon, int fd, uint32_t change, unsigned rows);
/* Moves what can be moved, and waits for that at most so long. */
void ks_play_step(ks_play *play, ks_daemon *daemon, int64_t wait_ns);
bool ks_play_is_over(const ks_play *play);
void ks_play_give_up(ks_play_part *part); /* of one worker: it has gone */
void ks_play_close(ks_play *play);

int ks_play_code(const ks_play_part *part); /* of one that has answered */
/* A field's value, "": it has none. out: cut. */
void ks_play_field(const ks_play_part *part, const char *name, char *out, size_t size);
const char *ks_play_body(const ks_play_part *part, size_t *bytes);
/* Of an answer above 299: its fault. */
ks_status ks_play_fault(const ks_play_part *part, ks_error *error);
#endif
