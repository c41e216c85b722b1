/* Sockets, eventfds and epoll as Linux has them, as far as the daemon uses them: what the wrapped calls do, and the clients' ends. */
#ifndef KS_SIM_SOCKETS_H
#define KS_SIM_SOCKETS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct epoll_event;
struct iovec;

enum { SIM_LINKS = 32 };

void sim_sockets_begin(void);
void sim_sockets_end(void);
bool sim_is_ours(int fd);

/* --- the daemon's end; errno as of the system's calls --- */
ssize_t sim_recv(int fd, void *out, size_t most, int flags);
ssize_t sim_sendv(int fd, const struct iovec *parts, size_t count);
int sim_shutdown(int fd, int how);
int sim_close(int fd);
bool sim_tcp_close_wait(int fd, uint64_t *received); /* the peer has ended its side; bytes it has sent */
int sim_unsent(int fd);
int sim_eventfd(void);
ssize_t sim_eventfd_read(int fd, void *out);
ssize_t sim_eventfd_write(int fd, uint64_t n);
int sim_epoll_create(void);
int sim_epoll_control(int op, int fd, const struct epoll_event *event);
int sim_epoll_collect(struct epoll_event *out, int most);
int sim_sockets_open(void); /* that the daemon has not closed */

/* --- the client's end of its one connection --- */
int sim_connect(int client, size_t receive_bytes,
                size_t send_bytes);                           /* the daemon's descriptor; what its buffers hold */
size_t sim_peer_put(int client, const char *bytes, size_t n); /* how many of them found room */
size_t sim_peer_get(int client, char *out, size_t most);      /* of what the daemon has sent */
void sim_peer_fin(int client);
void sim_peer_reset(int client);
bool sim_peer_over(int client); /* all that came has been got, and no more will: the end, or a reset */
bool sim_peer_was_reset(int client);
#endif
