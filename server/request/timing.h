/* The host clock's view of one request: contiguous phases that add up to its total. Pure; any thread. */
#ifndef KS_TIMING_H
#define KS_TIMING_H
#include "engine/engine.h"
#include "kernserve/chain.h"
#include "base/request_id.h"

typedef struct ks_times {
    int64_t first_ns;    /* the first byte was read */
    int64_t decode_ns;   /* spent on the body's words, part of first .. submitted */
    int64_t answered_ns; /* the response was built */
} ks_times;

/* When the result is wanted at the latest: limit_ns after the first byte, or what the client asked for (0: nothing) if that
 * is sooner. */
int64_t ks_times_deadline(const ks_times *times, int64_t asked_us, int64_t limit_ns);
/* All KS_PHASES; -1: did not happen. send is not known yet. ran: the job is done and has its result. */
void ks_times_phases(const ks_times *times, const ks_job *job, bool ran, int64_t *phase_ns);
/* "receive;dur=0.012, ... total;dur=0.142, graph;desc=hit", and trace;desc=... where the request came with a trace: at
 * most KS_TIMING_MAX bytes with the NUL. Each figure is the difference of two rounded points in time, so that the phases
 * add up to the total to the last digit. */
enum { KS_TIMING_STEPS = 64, KS_TIMING_STEPS_MAX = (KS_TIMING_STEPS + 1) * (KS_CHAIN_NAME_MAX + 40) };
/* ", node;desc=NAME;dur=0.004" for each of a job's timed steps, of those behind KS_TIMING_STEPS rest;dur=... together; then ", view;desc=NAME"
 * for each view, as long as they are so many with the steps: at most
 * KS_TIMING_STEPS_MAX bytes with the NUL. */
void ks_times_steps(const ks_job *job, char *out);
const char *ks_graph_name(ks_graph graph);
void ks_times_text(const ks_times *times, const ks_job *job, const ks_identity *identity, char *out);
#endif
