/* What the system says of a lane's worker: whether it works on. Any thread may ask. */
#ifndef KS_CPU_WORKER_H
#define KS_CPU_WORKER_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Its processor time; -1: not known. It does all of its lane's work itself: onednn.c sees to that. */
int64_t ks_cpu_used_ns(pthread_t worker);

/* Whether a thread that has used no processor time sleeps, for whatever it waits: what else it may be is ready to run but
 * not let (many threads, a control group's quota), or stopped, which says nothing of its work. A thread that falls asleep
 * uses some time for it, so one that sleeps now, and used none, has slept all the while. */
bool ks_cpu_is_asleep(int task);

#endif
