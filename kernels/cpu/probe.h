/* What this host's memory and one of its cores can do at best (ks_probe). */
#ifndef KS_CPU_PROBE_H
#define KS_CPU_PROBE_H
#include "kernserve/backend.h"

/* Once, before any other call: asks the system for what may not be had later, when no descriptor is left. */
void ks_cpu_probe_open(void);
/* The processor's, cut to cap. */
void ks_cpu_probe_name(char *out, size_t cap);
extern const ks_probe ks_cpu_probe;
#endif
