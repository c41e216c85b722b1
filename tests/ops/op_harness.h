/* Runs one resolved spec through a backend as the engine would (slot, plan, lane, poll), for op tests and benches. */
#ifndef KS_OP_HARNESS_H
#define KS_OP_HARNESS_H
#include "kernserve/backends.h"

typedef struct op_harness op_harness;

/* arena_bytes: the most one spec may need (inputs + output + workspace). NULL: the backend has no device that works,
 * and stderr says why. */
op_harness *op_harness_open(const ks_backend *backend, size_t arena_bytes);
void op_harness_close(op_harness **harness);

typedef enum op_path {
    OP_PATH_PLANNED, /* mapped or copies, as the border says */
    OP_PATH_COPIES,  /* never mapped */
    OP_PATH_MAPPED,  /* mapped slots, where the plan allows; else as planned */
} op_path;

/* inputs[i]: size_bytes of the i-th tensor; output: the outputs at their offsets, ks_spec_out_bytes, poisoned with 0xFF in the slot
 * first; guard bytes behind them are checked (KS_DEVICE when they changed). copies > 1: that many equal jobs in one batch where the plan allows, all
 * outputs must be equal bit by bit. captured: through a captured graph, else plain launches. KS_RANGE: the launch refused the values. */
ks_status op_harness_run(op_harness *harness, const ks_spec *spec, const void *const *inputs, void *output,
                         op_path path, int copies, bool captured, ks_error *error);

/* One job, planned, in a harness that is opened for it: for work that the test's own has no room for. false: there is no such backend (NULL), or
 * no device of it; else *error says what came of it. */
bool op_harness_once(const ks_backend *backend, size_t arena_bytes, const ks_spec *spec, const void *const *inputs,
                     void *output, ks_error *error);

/* The ways to do a spec's work on that path, cuBLASLt's among them where KS_CUBLASLT names the library (auto). 0: one. */
int op_harness_candidates(op_harness *harness, const ks_spec *spec, op_path path);
/* Jobs that a launch of its plan may share. 0: it has no plan. */
int op_harness_batch(op_harness *harness, const ks_spec *spec, op_path path);
/* From now on plans take that one of their ways; -1: the planned one. */
void op_harness_choose(op_harness *harness, int algorithm);
/* From now on those inputs are fixed: they lie in memory of their own, each at another distance from its start, which a run must
 * not change. The ways to choose from stay those of the spec without them. OP_HARNESS_PITCHED: with rows apart, where their operation
 * has that (ks_op.pitch) and the way is the planned one. */
static const unsigned OP_HARNESS_PITCHED = 1u << 31;
void op_harness_fix(op_harness *harness, unsigned inputs);
/* From now on jobs 1, 3, 5 ... of a batch have these inputs, whose values the op refuses, while the others go on as if they were alone; a
 * run fails where that is not so. NULL: all jobs have the same. */
void op_harness_spoil(op_harness *harness, const void *const *inputs);
/* The time of one of so many runs, by a trial. */
ks_status op_harness_trial(op_harness *harness, const ks_spec *spec, op_path path, int runs, int64_t *run_ns,
                           ks_error *error);
#endif
