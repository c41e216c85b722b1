/* systemd's notifications: one datagram to $NOTIFY_SOCKET. Without it nothing happens. Any thread. */
#ifndef KS_NOTIFY_H
#define KS_NOTIFY_H
#include <stdint.h>
void ks_notify(const char *state);   /* "READY=1", "STATUS=...", several lines */
int64_t ks_notify_watchdog_ns(void); /* half of systemd's watchdog interval; 0: none is asked for */
#endif
