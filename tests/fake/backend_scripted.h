/* Overrides of fake_backend.h for a device that does what a test says: lanes hold their batch until it is released, graphs can be made or
 * refused, and every launch is written down. Slots are the CPU's; released work is done by the op's reference. One thread. */
#ifndef KS_BACKEND_SCRIPTED_H
#define KS_BACKEND_SCRIPTED_H
#include <string.h>

#include "kernserve/backend.h"

enum { SCRIPT_LOG = 256 };

typedef struct script_state {
    int batch_max;
    bool hold;         /* lanes wait for script_release; else work is done by the next poll */
    size_t large_from; /* in_bytes at which a plan is large */
    bool refuse_capture;
    bool mapped, joins; /* joins: families' plans stay such */
    int chain_rows;     /* as ks_device_info has it */
    bool blind;         /* blind: the device does not see the slots */
    bool lost;
    bool fails, loses; /* the next poll says that the work failed, or finds the device lost; neither says why */
    int64_t slow_ns;   /* of the copies' times: a clock that runs ahead */
    bool untimed;      /* the kernels' time is not known */
    int captures, forgets, launches;
    struct {
        const ks_plan *plan;
        int lane, count, rows;
        ks_graph graph;
    } log[SCRIPT_LOG];
    ks_lane *lanes[KS_LANES_MAX];
} script_state;

extern script_state script; /* the test's: cleared before a device opens */

const ks_backend *scripted_backend(void);
void script_release(int lane);
#endif
