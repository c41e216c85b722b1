/* The daemon of a seed: its parts opened and closed as main.c does, its shard, and its books. */
#ifndef KS_SIM_BED_H
#define KS_SIM_BED_H
#include <stdbool.h>
#include <stdint.h>

void sim_bed_once(void); /* of the process: models, options */
void sim_bed_run(void);  /* a seed: opens, serves until all clients have ended, drains, closes */
bool sim_bed_is_open(void);
void sim_bed_shard(void *(*main)(void *), void *shard); /* in the place of its thread */
void sim_bed_waits(void);                               /* the shard has opened and tested itself, and waits */
void sim_bed_accept(int fd);                            /* as the listener does */
bool sim_bed_serves(void);                              /* or drains: it has opened */
bool sim_bed_accepts(void);
bool sim_bed_failed(void); /* a sticky fault is known: not ready any more */
bool sim_bed_drains(void);
int64_t sim_bed_next_ns(void);
void sim_bed_turn(void);
#endif
