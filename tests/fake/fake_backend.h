/* The one fake: a backend made of another one. What a test sets in `overrides` takes the place of the base's functions; the others of
 * the thirteen pass on to the base, whose device and lanes lie within the fake's.
 *
 * Base      an override calls the base's function through fake_base, with the device or lane that it was given itself.
 * State     device_bytes and lane_bytes, cleared, come and go with each device and lane: fake_device_state(), fake_lane_state().
 * Optional  goes_on and the groups are those of the overrides alone; fake_base has goes_on and resident to pass on.
 * Limits    one at a time in a process: ks_backend.open is given no context. Threads as the base's. */
#ifndef KS_FAKE_BACKEND_H
#define KS_FAKE_BACKEND_H
#include "kernserve/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fake_overrides {
    ks_backend calls; /* NULL: the base's, the name, too */
    size_t device_bytes, lane_bytes;
} fake_overrides;

extern const ks_backend *const fake_base;

/* overrides: copied. What it returns lies in this file, until the next call. */
const ks_backend *fake_backend(const ks_backend *base, const fake_overrides *overrides);
void *fake_device_state(const ks_device *device);
void *fake_lane_state(const ks_lane *lane);
ks_device *fake_lane_device(const ks_lane *lane);
int fake_lane_index(const ks_lane *lane); /* within its shard */

#ifdef __cplusplus
}
#endif
#endif
