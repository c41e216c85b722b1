/* What the units of the CUDA backend share. From the lowest up, each calling those before it alone:
 *
 *   device.cu  errors                 memory.cu  slots, client memory   lane.cu     streams and their memory
 *   reserve.cu ranges of device memory, mapped when needed         resident.cu  contents that stay
 *   clock.cu   a kernel's stamps      join.cu    copies of joined rows  graph.cu    what is enqueued
 *   large.cu   device buffers, rings
 *   trial.cu   a plan's kernels timed refused.cu values out of bounds   occupancy.cu CTAs on an SM
 *   chain_rows.cu, chain.cu  a chain's steps                     launch.cu   the paths of a batch
 *   plan.cu    prepare, tuning        peak.cu    arithmetic at best     probe.cu     what else is measured
 *   backend.cu open, close, the table */
#ifndef KS_CUDA_BACKEND_INTERNAL_H
#define KS_CUDA_BACKEND_INTERNAL_H

#include "cuda/op.h"
#include "memory/range.h"

#include <assert.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t KS_COPY_CHUNK_BYTES = 1 << 20; /* of a staged request: one is copied by the host within a poll */
static const int64_t KS_LATE_NS = 2000000;         /* a launch without news for so long is asked for its error */
static const int64_t KS_LATE_STEP_NS = 1000000;    /* and again after so long: each question takes the driver's lock */
enum { KS_COPY_CHUNKS = 3 }; /* ring buffers: one being filled, one on the link, one being emptied */
static_assert(KS_COMPLETION_LINE * sizeof(ks_completion) == KS_COMPLETION_BYTES &&
                  (int)KS_COMPLETION_BYTES <= (int)KS_ALIGNMENT,
              "the completion fits in front of an out side");

/* Host time = device time + an offset that lies in [low, high] (clock.cu). */
typedef struct ks_cuda_clock {
    int64_t low, high, lead, at_ns, tight_ns;
} ks_cuda_clock;

typedef struct ks_pinned_block {
    unsigned char *host, *device;
    size_t size, used;
    int slots;
    struct ks_pinned_block *next;
} ks_pinned_block;

/* The driver's, by name. */
typedef struct ks_mapping_calls {
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemAddressFree_v10020 free;
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 set_access;
} ks_mapping_calls;

/* A range of device memory (reserve.cu); all zero: not open. */
typedef struct ks_reserve {
    ks_device *device;
    ks_mapping_calls calls;
    unsigned char *base;
    size_t addresses, page_bytes;
    bool whole; /* one allocation: this driver maps no pages */
    pthread_mutex_t lock;
    int quiet_turns, turns;              /* under lock: looks since the last take; of narrow, */
    size_t recent_bytes;                 /* likewise: and the largest area taken since */
    ks_range *range;                     /* under lock */
    CUmemGenericAllocationHandle *pages; /* likewise: behind mapped ones */
} ks_reserve;

struct ks_device {
    /* fixed after open: */
    ks_limits limits;
    size_t pool_bytes; /* of device memory for large requests; 0: none */
    ks_chip chip;
    ks_device_info info;
    ks_cuda_clock clock;
    double copy_gbs;     /* within device memory, bytes read + written; 0: not known */
    size_t copied_bytes; /* that it was measured with */
    /* any thread, atomic: */
    bool failed;       /* sticky: the context is lost */
    bool pageable;     /* a slot that was to be pinned is not */
    size_t large_fits; /* the smallest large arena that a lane could get */
    size_t model_fits; /* likewise: model arena */
    /* each with a lock of its own: */
    ks_reserve pool;         /* large requests */
    ks_reserve resident;     /* contents that stay */
    uint64_t resident_bytes; /* its limit; fixed */
    /* under arena_lock: */
    pthread_mutex_t arena_lock;
    ks_pinned_block *pinned_blocks;
    /* under pool_lock: */
    pthread_mutex_t pool_lock;
    struct ks_device_buffer *device_buffers;
    struct ks_lane *lanes;
};

/* Mapped host memory of a lane; the lines are polled, so each has its own cache lines. */
typedef struct ks_lane_shared {
    alignas(256) ks_job_table job_table;
    alignas(128) ks_completion completion;
    alignas(128) ks_completion probe;
    alignas(128) ks_completion device_buffer_completion
        [KS_COMPLETION_LINE]; /* copied from there behind its kernels; of moved sides the stamps of the steps */
    alignas(128) uint64_t words[KS_BATCH_MAX]; /* the jobs' status words, where the completion says so */
} ks_lane_shared;

typedef enum ks_path {
    KS_PATH_MAPPED,
    KS_PATH_JOINED,
    KS_PATH_MOVED,
    KS_PATH_COPIES,
    KS_PATH_STAGED,
    KS_PATH_DEVICE_BUFFER,
    KS_PATH_TRIAL
} ks_path;
typedef enum ks_staged_phase { KS_STAGED_IN, KS_STAGED_OUT, KS_STAGED_LAST } ks_staged_phase;

struct ks_lane {
    /* fixed after open: */
    ks_device *device;
    int index;
    cudaStream_t stream;
    cudaEvent_t event;
    unsigned char *memory; /* the ticket, the counters, the status words and the arena: one allocation */
    uint32_t *counters;
    uint64_t *words; /* the jobs' status words, on mapped slots */
    unsigned char *arena;
    /* Memory is there while a launch has taken it: */
    unsigned char *workspace, *model, *large; /* large: lane 0 only, NULL where the limits ask for none */
    size_t large_bytes;
    ks_reserve workspace_reserve, model_reserve, large_reserve;
    struct ks_lane *next; /* of device->lanes, under its pool_lock */
    bool listed;
    unsigned char *ring; /* lane 0 only: KS_COPY_CHUNKS pinned ring buffers */
    cudaEvent_t ring_event[KS_COPY_CHUNKS];
    ks_lane_shared *shared, *shared_device;
    /* this shard only: */
    ks_cuda_clock clock;
    uint32_t sequence;
    uint32_t probe_sequence; /* of the last probe */
    int64_t probe_ns;        /* when it was launched; 0: none under way */
    /* the launch under way: */
    ks_batch *batch;                                  /* NULL: free */
    size_t large_taken, workspace_taken, model_taken; /* bytes of the large arena, the workspace, the model arena */
    ks_path path;
    int64_t launch_ns, asked_ns;
    ks_staged_phase staged;
    int job;                 /* of a staged batch */
    size_t moved_in;         /* bytes of the job's in side under way to the device */
    size_t asked, moved_out; /* bytes of its completion and out side asked for; arrived in the slot */
    cudaGraph_t trial_graph; /* of the trial under way, */
    cudaGraphExec_t trial_exec;
    cudaEvent_t trial_event[2]; /* and what it is timed by; made for the first one */
    cudaEvent_t *step_event;    /* around the steps of a chain that are timed; made for the first one */
    int step_events;
};

static const size_t SLOT_PAD = KS_PAD, SLOT_HEAD_ROOM = KS_HEAD_ROOM, SLOT_ALIGNMENT = KS_ALIGNMENT;
static const size_t SLOT_EXTRA = SLOT_PAD + SLOT_HEAD_ROOM + SLOT_PAD;
static_assert(SLOT_PAD % SLOT_ALIGNMENT == 0 && SLOT_HEAD_ROOM % SLOT_ALIGNMENT == 0, "the sides stay aligned");

/* What is zero between launches: the ticket, the counters, the status words. */
static const size_t COUNTERS_BYTES = KS_COUNTERS_MAX * sizeof(uint32_t);
static const size_t CONTROL_BYTES = KS_ALIGNMENT + COUNTERS_BYTES + KS_BATCH_MAX * sizeof(uint64_t);
static_assert(KS_BATCH_MAX * sizeof(uint64_t) % KS_ALIGNMENT == 0, "the arena stays aligned");

typedef struct ks_device_buffer {
    unsigned char *memory; /* where it begins */
    size_t bytes;
    cudaEvent_t
        filled; /* behind the last copy in; NULL: of a content that stays, which is complete before any launch */
    struct ks_device_buffer *next;
} ks_device_buffer;

typedef struct ks_cuda_graph {
    cudaGraphExec_t exec;              /* NULL: not captured */
    cudaGraph_t graph;                 /* kept: the nodes below are its */
    cudaGraphNode_t in_node, out_node; /* NULL on mapped slots; in_node also where there is nothing to copy in */
    const void *in_at;                 /* what the nodes point to now */
    void *out_at;
} ks_cuda_graph;

/* plan->lane_state[lane->index] */
typedef struct ks_cuda_graphs {
    ks_cuda_graph bucket[KS_BUCKETS];
} ks_cuda_graphs;

/* plan->choice */
static_assert(sizeof(((ks_plan *)0)->algorithm) == sizeof(((ks_cuda_plan *)0)->algorithm),
              "the op's choice is the plan's");

/* Where a copied job lies in device memory: the completion, the out side, a pad, the in side. The completion comes first because its
 * end stamp only grows: no other plan's bytes may ever lie there. */
typedef struct ks_place {
    unsigned char *completion, *out, *in;
} ks_place;

/* --- device.cu --- */

/* Both return from the calling function when the call fails. KS_TRY looks for a lost device; KS_TRY_SOFT is for calls whose failure does
 * not tell about the context (open, capture): their callers ask the stream afterwards. */
#define KS_TRY(device, error, call)                                                                                    \
    do {                                                                                                               \
        const cudaError_t code_ = (call);                                                                              \
        if (__builtin_expect(code_ != cudaSuccess, 0)) return ks_cuda_fault(device, code_, #call, error);              \
    } while (0)
#define KS_TRY_SOFT(error, call)                                                                                       \
    do {                                                                                                               \
        const cudaError_t code_ = (call);                                                                              \
        if (__builtin_expect(code_ != cudaSuccess, 0)) return ks_cuda_say(code_, #call, error);                        \
    } while (0)

int64_t ks_cuda_now_ns();
cudaError_t ks_cuda_use(const ks_device *device);
bool ks_cuda_recoverable(cudaError_t code);
ks_status ks_cuda_say(cudaError_t code, const char *call, ks_error *error);
ks_status ks_cuda_fault(ks_device *device, cudaError_t code, const char *call, ks_error *error);
bool ks_cuda_failed(const ks_device *device);
cudaError_t ks_cuda_quiet(cudaError_t code);
void ks_cuda_ask_stream(ks_lane *lane);

/* --- memory.cu --- */

ks_status ks_cuda_stand_in(ks_device *device, size_t bytes, void **out, ks_error *error);
ks_status ks_cuda_slot_init(ks_device *device, size_t in_bytes, size_t out_bytes, bool pinned, ks_slot *slot,
                            ks_error *error);
void ks_cuda_slot_fini(ks_device *device, ks_slot *slot);
void ks_cuda_slots_close(ks_device *device);
extern const ks_client_memory ks_cuda_client_memory;

/* --- reserve.cu --- */

/* The driver takes as long for a page of 2 MiB as for one of 32: some 50 us to map, 50 to unmap (H200, driver 580). */
static const size_t KS_RESERVE_PAGE_BYTES = 32 << 20;
/* *limit: bytes wanted, and what it comes to. Pages of page_bytes, a multiple of KS_RANGE_PAGE_BYTES. */
ks_status ks_cuda_reserve_open(ks_device *device, uint64_t *limit, size_t page_bytes, ks_reserve *reserve,
                               ks_error *error);
void ks_cuda_reserve_close(ks_reserve *reserve);
/* NULL: there is no room. *fresh: it is all zero. */
unsigned char *ks_cuda_reserve_take(ks_reserve *reserve, size_t bytes, bool *fresh);
void ks_cuda_reserve_give(ks_reserve *reserve, const unsigned char *memory, size_t bytes);
/* Gives pages back that are not in use, but for that much. Once a second. */
void ks_cuda_reserve_trim(ks_reserve *reserve, uint64_t kept_bytes);
void ks_cuda_reserve_rest(ks_reserve *reserve);     /* all of them, where none was taken for KS_RANGE_QUIET_TURNS */
void ks_cuda_reserve_narrow(ks_reserve *reserve);   /* each so many turns: those beyond the largest area of late */
uint64_t ks_cuda_reserve_held(ks_reserve *reserve); /* mapped now */
ks_status ks_cuda_clear(ks_device *device, void *memory, size_t bytes, ks_error *error); /* when it returns */

/* --- resident.cu --- */

extern const ks_resident ks_cuda_resident;

/* --- lane.cu --- */

void ks_cuda_lane_close(ks_lane **taken);
/* The large arena's memory, for the launch under way; until give. */
ks_status ks_cuda_large_take(ks_lane *lane, const ks_plan *plan, ks_error *error);
void ks_cuda_large_give(ks_lane *lane);
/* The same of the workspace that the plan needs for so many jobs, and of a chain's model arena. */
ks_status ks_cuda_workspace_take(ks_lane *lane, const ks_plan *plan, int jobs, ks_error *error);
void ks_cuda_workspace_give(ks_lane *lane);
/* All go back to the system, of lanes that have not used them for KS_RANGE_QUIET_TURNS. Once a second. */
void ks_cuda_lanes_rest(ks_device *device);
ks_status ks_cuda_lane_open(ks_device *device, int index, int wake_fd, ks_lane **out, ks_error *error);

/* --- clock.cu --- */

void ks_cuda_clock_sample(ks_cuda_clock *clock, int64_t now, int64_t low, int64_t high);
ks_status ks_cuda_clock_start(ks_device *device, ks_lane *lane, ks_error *error);
void ks_cuda_clock_probe_later(ks_lane *lane, int64_t now);
void ks_cuda_clock_probe_read(ks_lane *lane);
void ks_cuda_clock_phases(ks_lane *lane, const ks_completion *completion, int64_t done, ks_batch *batch);

/* --- graph.cu --- */

ks_place ks_cuda_place_of(const ks_lane *lane, const ks_plan *plan);
/* How jobs of a mapped plan go. */
ks_path ks_cuda_path_on_slots(const ks_plan *plan);
ks_site ks_cuda_site_of(ks_lane *lane, const ks_plan *plan, ks_path path);
/* spec: the plan's, or the same with its tensors elsewhere; fixed ones lie where they are. */
ks_status ks_cuda_record_on(ks_lane *lane, const ks_plan *plan, const ks_spec *spec, const ks_site *site, int bucket,
                            ks_error *error);
/* bucket: of a family's plan the rows, here and in what follows. */
ks_status ks_cuda_record_kernels(ks_lane *lane, const ks_plan *plan, ks_path path, int bucket, ks_error *error);
ks_status ks_cuda_record(ks_lane *lane, const ks_plan *plan, ks_path path, int bucket, ks_job_sides host,
                         ks_error *error);
ks_status ks_cuda_record_windows(ks_lane *lane, const ks_plan *plan, const ks_slot *slot, int rows, ks_error *error);
/* The lane's job table: so many jobs of the batch, from that one on. */
void ks_cuda_write_table(ks_lane *lane, const ks_batch *batch, int first, int count);
void ks_cuda_graph_drop(ks_cuda_graph *graph);
ks_status ks_cuda_capture(ks_lane *lane, ks_plan *plan, int bucket, ks_error *error);
void ks_cuda_forget(ks_lane *lane, ks_plan *plan);
ks_status ks_cuda_graph_launch(ks_lane *lane, const ks_plan *plan, ks_cuda_graph *graph, ks_slot *slot,
                               ks_error *error);

/* --- large.cu --- */

ks_status ks_cuda_pool_open(ks_device *device, ks_error *error);
void ks_cuda_pool_close(ks_device *device);
ks_completion *ks_cuda_buffer_completion(const ks_slot *slot);
extern const ks_large ks_cuda_large;

/* --- trial.cu --- */

void ks_cuda_trial_drop(ks_lane *lane);
ks_status ks_cuda_trial_launch(ks_lane *lane, const ks_batch *batch, ks_error *error);
void ks_cuda_trial_finish(ks_lane *lane, ks_batch *batch);

/* --- refused.cu --- */

/* Job i of the lane's batch is done, on the device's own memory with this copy of its completion: what its status word says goes to
 * the batch, and the word is 0 again. Waits for the stream where there is one. KS_DEVICE. */
ks_status ks_cuda_read_word(ks_lane *lane, int i, const ks_completion *completion, ks_error *error);
/* The lane's batch on mapped slots is done: likewise, of all jobs. */
ks_status ks_cuda_read_words(ks_lane *lane, ks_error *error);
/* What a failed launch may have left. */
void ks_cuda_clear_word(ks_lane *lane);

/* --- launch.cu --- */

ks_status ks_cuda_launch(ks_lane *lane, ks_batch *batch, ks_error *error);
ks_poll ks_cuda_poll(ks_lane *lane, ks_error *error);

/* --- occupancy.cu --- */

/* The kernel of a prepared plan, which is not launched. */
ks_status ks_cuda_note(const ks_device *device, const ks_plan *plan, ks_launch_note *note, ks_error *error);
void ks_cuda_find_occupancy(ks_device *device, ks_plan *plan);

/* --- plan.cu --- */

ks_status ks_cuda_prepare(ks_device *device, ks_plan *plan, ks_error *error);
extern const ks_tuning ks_cuda_tuning;

/* --- peak.cu --- */

ks_status ks_cuda_peak(ks_device *device, ks_dtype dtype, ks_peak *out, ks_error *error); /* probe.peak */

/* --- probe.cu --- */

ks_status ks_cuda_border_find(ks_device *device, ks_lane *lane, ks_error *error);
void ks_cuda_measure_copy(ks_device *device, ks_lane *lane);
extern const ks_probe ks_cuda_probe;

#endif
