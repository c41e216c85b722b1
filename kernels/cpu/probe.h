/* What this host's memory and one of its cores can do at best (ks_probe). */
#ifndef KS_CPU_PROBE_H
#define KS_CPU_PROBE_H
#include "kernserve/backend.h"

extern const ks_probe ks_cpu_probe;
#endif
