/* A device whose work takes the time that the seed draws, computes by the references, and fails as the seed says. */
#ifndef KS_SIM_DEVICE_H
#define KS_SIM_DEVICE_H
#include "kernserve/backend.h"

typedef enum sim_death {
    SIM_DIES_SEEN,   /* the device says that it has failed */
    SIM_DIES_LAUNCH, /* the next launch finds it */
    SIM_DIES_POLL,   /* the next look at work under way finds it */
    SIM_DIES_SILENT, /* work does not end any more */
    SIM_DEATHS
} sim_death;

const ks_backend *sim_device_backend(void);
void sim_device_begin(void);
int64_t sim_device_next_ns(void);  /* when work ends that a lane reports by itself */
void sim_device_turn(void);        /* reports it */
void sim_device_pause(int64_t ns); /* the process was stopped, and lanes that are threads of its own with it */
bool sim_device_is_lost(void);     /* the daemon has been told */
bool sim_device_is_silent(void);   /* it has work that does not end */
void sim_device_reap(void);        /* gives back what a lost device has kept */
int sim_device_contents(void);     /* of tensors, that are there */
int sim_device_slots(void);        /* that are open */
#endif
