/* What a descriptor stands for, to the files that make some: descriptors.c, sockets.c, epoll.c. */
#ifndef KS_SIM_OBJECTS_H
#define KS_SIM_OBJECTS_H
#include "sim/supervisor/host.h"

enum { HOST_OBJECTS = 256, HOST_FIRST_FREE = 3 };

typedef struct host_object {
    host_kind kind;
    int refs, index; /* its place among those of its kind */
    bool takes;      /* of a channel: the end that takes */
    uint32_t mask;   /* a signalfd's */
    uint64_t count;  /* an eventfd's, bytes of a memory */
    int port;        /* of a socket that is bound */
} host_object;
extern host_object host_objects[HOST_OBJECTS]; /* 0 is none */

int host_fail(int code); /* as a call of the system's */
int host_make(host_kind kind, int index);
void host_drop(int at);                   /* one that refers to it less */
int host_open(host_kind kind, int index); /* a new descriptor of the process that runs; -1: there is none */
int host_place(host_process *process, int at, int from, bool closes); /* the lowest free number from there on */
host_object *host_named(int fd, host_kind kind); /* of the process that runs; HOST_NONE: of any kind */

/* --- sockets.c --- */
void host_sockets_begin(void);
void host_socket_freed(const host_object *was);
bool host_socket_is_readable(const host_object *one);
/* --- epoll.c --- */
void host_epoll_begin(void);
void host_epoll_freed(const host_object *was);
void host_epoll_forget(int at); /* an object that is no more */
#endif
