/* The one clock: CLOCK_MONOTONIC in nanoseconds. Wall time only for log lines and statistics. Any thread. */
#ifndef KS_CLOCK_H
#define KS_CLOCK_H
#include <stdint.h>
int64_t ks_now_ns(void);
int64_t ks_wall_ns(void); /* CLOCK_REALTIME */
/* How long the calling thread has waited for a processor since it began, throttled by a control group included; 0: the kernel does not say. */
int64_t ks_thread_waited_ns(void);
int64_t ks_wall_ms(void); /* the same as of the kernel's last tick: a few milliseconds behind, and cheap */

/* Time as far as its owner's turns went on: of the gap between two looks at most gap_max_ns counts. For judging others by
 * time: a process that was stopped, or had no processor, must not take its own absence for theirs. */
typedef struct ks_turn_clock {
    int64_t seen_ns, counted_ns;
} ks_turn_clock;
static inline void ks_turn_clock_start(ks_turn_clock *clock, int64_t now_ns)
{
    clock->seen_ns = now_ns;
    clock->counted_ns = 0;
}
int64_t ks_turn_clock_look(ks_turn_clock *clock, int64_t now_ns, int64_t gap_max_ns); /* counted_ns up to now */
#endif
