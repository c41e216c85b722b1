/* The address of a socket's end, in words. Any thread. */
#ifndef KS_SOCKET_NAME_H
#define KS_SOCKET_NAME_H
#include <stddef.h>

enum { KS_SOCKET_NAME_MAX = 128 };

/* "127.0.0.1:8000", "[::1]:8000" or "unix:PATH"; "": not known. */
void ks_socket_name(int fd, char out[KS_SOCKET_NAME_MAX]);
/* Likewise of its client, of which a UNIX socket knows the user: "unix:1000". */
void ks_socket_peer_name(int fd, char out[KS_SOCKET_NAME_MAX]);
#endif
