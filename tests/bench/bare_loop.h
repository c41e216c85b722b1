/* The HTTP half of the bare servers that bench_http.sh measures kernserve against: what a hand-written epoll loop for
 * POST bodies of one size reaches on this machine. It parses nothing but the end of the header and trusts the client.
 *
 * Threads  the caller accepts and hands connections out in turn; each of the others has its share, as a shard has.
 * Limits   a header of 4 KiB; one request at a time for each connection; BARE_SLOTS connections for each thread */
#ifndef KS_BARE_LOOP_H
#define KS_BARE_LOOP_H
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BARE_SLOTS = 1024, BARE_BATCH = 256 /* requests that one turn takes at most */ };

/* What is done with the requests of a turn. A slot is a connection's number within its thread. */
typedef struct bare_work {
    void *(*open)(size_t body);                                  /* once for each thread, before anything listens */
    void (*take)(void *state, unsigned slot, const char *bytes); /* a whole body, which the caller needs back */
    void (*go)(void *state);                                     /* the turn's end, if it took anything */
    const char *(*done)(void *state, unsigned slot);             /* the answer's bytes, or NULL: not yet */
} bare_work;

/* Listens on a loopback port and serves for ever; returns an exit code when it cannot. Every answer has answer <= body
 * bytes. Without work it is an echo, which sends the body's own first bytes back from where they lie. */
int bare_serve(unsigned short port, unsigned threads, size_t body, size_t answer, const bare_work *work);

#ifdef __cplusplus
}
#endif
#endif
