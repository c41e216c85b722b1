/* --devices: the supervisor of a worker process for each device. It accepts the connections of every listener and hands each over: of
 * the data listeners to the worker with the fewest, of the second one to the first worker that takes them. So they are spread evenly
 * however few they are, a worker that is down gets none, and what a worker that ends has not taken yet goes to another one. A worker
 * that ends is started again, a second later, at most KS_STARTS_MAX times in KS_STARTS_WINDOW_S; the others serve on.
 * One thread; never touches CUDA. */
#ifndef KS_FLEET_H
#define KS_FLEET_H
#include "daemon/workers/process.h"

/* Until SIGTERM or SIGINT, which workers get too: 0, or 75 where one was cut. 70: a worker ended three times before it was ready, and
 * never had been, or no other one serves; or the exit code of one that a new start does not help. argv: the workers'. SIGCHLD and the
 * signals above must be blocked. */
int ks_fleet_run(const ks_config *config, const ks_sockets *sockets, char **argv);
#endif
