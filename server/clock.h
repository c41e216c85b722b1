/* The one clock: CLOCK_MONOTONIC in nanoseconds. Wall time only for log lines and statistics. Any thread. */
#ifndef KS_CLOCK_H
#define KS_CLOCK_H
#include <stdint.h>
int64_t ks_now_ns(void);
int64_t ks_wall_ns(void); /* CLOCK_REALTIME */
int64_t ks_wall_ms(void); /* the same as of the kernel's last tick: a few milliseconds behind, and cheap */
#endif
