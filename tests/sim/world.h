/* The clock, and what happens next. */
#ifndef KS_SIM_WORLD_H
#define KS_SIM_WORLD_H
#include <stdbool.h>
#include <stdint.h>

struct epoll_event;

int64_t sim_world_now_ns(void);
int64_t sim_world_read_ns(bool wall); /* as a program reads it: a little later each time */
void sim_world_pass(int64_t ns);
void sim_world_begin(void);
void sim_world_idle_at(int64_t ns); /* a program sleeps until then: what is due before happens */
/* A wait for events: clients act, the device works, until an event has come or the time is over. */
int sim_world_wait(struct epoll_event *out, int most, int64_t timeout_ns);
#endif
