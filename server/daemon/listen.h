/* Owns the listening sockets of the data side: opens them (or takes them from systemd or the supervisor: LISTEN_FDS), accepts
 * on its own thread, hands each connection to the shard with the fewest. While --connections are taken, it hands one to the
 * shard whose longest resting connection gives way for it (eviction.h); while none would, new ones wait in the backlog. Closing them is the drain's first step. */
#ifndef KS_LISTEN_H
#define KS_LISTEN_H
#include <sys/types.h>

#include "daemon/shard.h"

enum {
    KS_LISTENERS_MAX = 34,
    KS_ARRIVALS_MOST = 32 /* connections above --connections, for which others are giving way */
};

typedef struct ks_listener ks_listener;

/* The listening sockets of the data side. */
typedef struct ks_listen_sockets {
    int fds[KS_LISTENERS_MAX];
    bool loopback[KS_LISTENERS_MAX]; /* only this machine can reach it */
    bool tls[KS_LISTENERS_MAX];
    int number[KS_LISTENERS_MAX]; /* among all that were passed to this process */
    int count;
} ks_listen_sockets;

/* A bound, listening, non-blocking socket for ADDR:PORT, [ADDR6]:PORT, or unix:PATH (a stale path is replaced). *loopback: only
 * this machine can reach it. socket_mode: of a unix socket's file; 0: as the umask leaves it. 0 or the exit code: malformed, or a
 * path's folder that is not there (78), no permission (77), in use or no address of this host's (75), else the system (71). */
int ks_listen_socket(const char *address, mode_t socket_mode, int *fd, bool *loopback, ks_error *error);
/* Whether it could be: bound, and closed again. The same codes; *in_use is no fault. */
int ks_listen_try(const char *address, bool *in_use, ks_error *error);
/* A blocking socket to the listener of this address, by loopback where it listens on all; -1: nothing answers. */
int ks_listen_connect(const char *address, int seconds);
/* A unix socket's path goes with it, unless the socket was passed to this process: then its opener keeps it. */
void ks_listen_close(int fd);
/* Parses only: is it well formed, is it loopback. */
ks_status ks_listen_parse(const char *address, bool *loopback, ks_error *error);
/* Starts accepting; takes the sockets. */
ks_status ks_listener_open(ks_daemon *daemon, ks_shard **shards, const ks_listen_sockets *sockets, ks_listener **out,
                           ks_error *error);
void ks_listener_close(
    ks_listener **listener); /* sockets closed: connects are refused from now on; unix paths removed */

/* Sockets passed by systemd or --supervise: their number, fds from 3 on. */
int ks_listen_inherited(void);
/* Whether the one at index was passed under this name (FileDescriptorName=): for the second listener, or for TLS; any other name
 * is a data listener's. */
#define KS_LISTEN_ADMIN "admin"
#define KS_LISTEN_TLS "tls"
#define KS_LISTEN_DATA "data"
bool ks_listen_inherited_as(int index, const char *name);
#endif
