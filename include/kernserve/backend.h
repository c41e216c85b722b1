/* The border to a device: thirteen functions that each has, and what one may lack: goes_on and four groups. `cuda` and
 * `cpu` implement it; tests/fake/ makes others of either. What sets devices apart stands in ks_device_info: no caller asks for a name.
 *
 * Words   slot = host memory of one request; lane = stream + device memory + graphs; plan = a spec with everything chosen;
 *         batch = jobs of one plan that go out together.
 * Threads a ks_device may be used by any thread; a lane, its plans and slots belong to one shard's thread. */
#ifndef KERNSERVE_BACKEND_H
#define KERNSERVE_BACKEND_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KS_BATCH_MAX = 128,       /* jobs in one launch */
    KS_JOIN_ROWS_MAX = 256,   /* rows of one launch of joined jobs, */
    KS_JOIN_OUTPUTS = 2,      /* and their outputs */
    KS_BUCKETS = 9,           /* batch sizes 1, 2, 4 ... 128, of joined rows ... 256: each its own graph */
    KS_LANES_MAX = 16,        /* per shard */
    KS_ALGORITHM_BYTES = 104, /* what an op's planner may remember in a plan */
    KS_CANDIDATES_MAX = 80,   /* that are tried for one plan */
    KS_KERNEL_NAME = 56,
    KS_SOURCE_MAX = 64,       /* how a ceiling was measured */
    KS_HEAD_ROOM = 1024,      /* writable bytes in front of slot.out, for the response's head */
    KS_COMPLETION_BYTES = 64, /* of them, those right before out: the backend's from launch until poll says KS_DONE */
    KS_PAD = 256              /* readable bytes behind each side of a slot and behind device buffers */
};

typedef struct ks_device ks_device;
typedef struct ks_lane ks_lane;
typedef struct ks_ring ks_ring;
typedef struct ks_program ks_program; /* chain.h */

/* What the daemon fixed at start; bytes unless said otherwise. */
typedef struct ks_limits {
    int device_index; /* -1: the first one that works */
    int lanes;        /* per shard */
    size_t
        lane_bytes; /* device memory of one lane for one request's inputs, output and workspace: the largest slot class */
    size_t large_bytes; /* the same for a request above the slot classes; one such arena per shard, on its lane 0 */
    size_t
        stream_bytes; /* device memory for large requests, all shards; 0: an eighth of what is free of it, at most 8 GiB */
    size_t workspace_bytes; /* of a lane, for a plan's partial results and packed operands */
    size_t model_bytes;     /* of a lane, for the values between a chain's steps */
    size_t mapped_max;      /* largest in + out that works on mapped slots; SIZE_MAX: measured at open */
    bool pinned_must;       /* false: go on with pageable memory where pinning fails */
    const char *cublaslt;   /* the library's file, "auto": where it usually lies; NULL: it stays closed */
} ks_limits;

/* Host memory of one request. Both sides start on KS_ALIGNMENT and are readable KS_PAD bytes beyond their end;
 * KS_HEAD_ROOM bytes in front of out belong to the response's head. A device buffer (ks_large) is a slot whose memory is the
 * device's alone: in and out are NULL. */
typedef struct ks_slot {
    unsigned char *in, *out;
    size_t in_cap, out_cap;
    void *in_device, *out_device; /* the same memory as the device sees it; NULL where it cannot */
    void *memory;                 /* backend's: what slot_fini gives back */
    int size_class;               /* engine's; -1: an overflow slot, ordinary memory */
    bool pinned;
    /* Client memory that takes the place of parts of the sides: addresses from ks_client_memory: pin or import. Such a job
     * goes alone, and the launch copies each tensor from where it lies. */
    bool windows; /* one of these is set */
    void *in_window[KS_INPUTS_MAX], *out_window[KS_OUTPUTS_MAX];
    const ks_places
        *places; /* of the tensors, for some rows of a large request, which go alone; NULL: the spec's offsets */
    struct ks_slot *next; /* engine's free list */
} ks_slot;

/* How a kernel fills the processors (SMs) of a device; all 0: not known. */
typedef struct ks_occupancy {
    int registers;               /* of a thread */
    size_t static_shared_bytes;  /* of a CTA */
    int ctas;                    /* on an SM at a time */
    int by_registers, by_shared; /* that each limit alone would let there be; 0: it does not limit */
    int by_threads, by_ctas;
    int warps, warps_max; /* on an SM: of these CTAs, and at most */
    int sms;
} ks_occupancy;

/* The kernel that was chosen for a plan, for the plan document. */
typedef struct ks_kernel_info {
    char kernel[KS_KERNEL_NAME]; /* "softmax_held<BF16, 4 vectors>", "reference"; "" where nothing is picked */
    int64_t grid;                /* CTAs of one job; 0: not known, a library's kernel */
    int threads, cluster;
    size_t shared_bytes; /* dynamic shared memory of a CTA */
    ks_occupancy occupancy;
} ks_kernel_info;

/* One way to do a plan's work. The bytes of choice may be kept, and are read by the backend that gave them alone. */
typedef struct ks_algorithm {
    char kernel[KS_KERNEL_NAME]; /* as in ks_kernel_info */
    unsigned char algorithm[KS_ALGORITHM_BYTES];
} ks_algorithm;

/* What trials found for a plan; all zero: none were made. */
typedef struct ks_trials {
    int candidates;                 /* that were tried */
    double us, heuristic_us;        /* of the one that is used now, of the one that prepare picks */
    char heuristic[KS_KERNEL_NAME]; /* that one's name */
} ks_trials;

/* A spec with everything chosen. Made by the engine's plan cache; `algorithm` is the backend's, filled by prepare.
 * The memory of a plan of the cache ends behind the last output of its spec: copy that one by ks_plan_copy. */
typedef struct ks_plan {
    uint64_t id;                /* unique in its shard, never 0 */
    size_t in_bytes, out_bytes; /* of the slot's sides that the spec uses */
    size_t bytes;               /* the cache's: that any kernel has to read and to write at least */
    size_t workspace_bytes;     /* per job, set by prepare */
    size_t counters;            /* words per job, likewise */
    ks_kernel_info kernel_info; /* likewise */
    bool mapped;                /* set by prepare: kernels work on the slots themselves, batches allowed */
    bool moved;    /* set by prepare: mapped, but kernels copy the sides: its path and counters are those of copies */
    bool large;    /* set by prepare: needs the large arena (lane 0) and ring buffers */
    bool graphs;   /* set by prepare: capture makes sense */
    bool at_once;  /* set by prepare, kept by poll: a launch of one job has done it when it returns */
    int batch_max; /* set by prepare: 1 .. KS_BATCH_MAX */
    uint64_t rows_like; /* set by prepare: two plans that differ in the length of a free dimension alone, and agree
                                 * in this, give a row the same bits */
    int join_rows; /* set by the engine: a family's plan. The spec's INPUT0, and all other inputs that are not fixed, have so many rows, each job some of them (ks_batch.rows),
                    * and the rows of a launch are one product. prepare sets 0 where the device cannot: then it is a plan of the
                    * spec as it stands. A row's bits follow from the row, whatever else is in the launch. 0: none */
    ks_program *program; /* set by the engine, in front of prepare: the steps of a chain; NULL: the work of one op */
    bool unstamped;      /* set by prepare: a library's kernel or a copy at an end: no stamps, all time is compute */
    bool untunable;      /* engine's: there is nothing to try, or trying failed */
    ks_trials trials;    /* engine's */
    bool uncapturable;   /* engine's: capture failed; retried after uncapturable_until_ns */
    int64_t uncapturable_until_ns;
    unsigned char algorithm[KS_ALGORITHM_BYTES];
    void *lane_state[KS_LANES_MAX];  /* this plan's graphs on each lane of the shard; the backend's, freed by forget */
    uint32_t captured[KS_LANES_MAX]; /* bit b: bucket b is captured on the lane; kept by capture and forget */
    uint32_t wanted[KS_LANES_MAX];   /* bit b: a launch missed that bucket; the engine's */
    int users;                       /* engine's: jobs that hold the plan */
    int64_t made_ns;                 /* engine's: when */
    int64_t measured_ns;             /* engine's: running mean of launch .. done; 0: never ran */
    uint64_t timed_jobs;             /* engine's: jobs whose kernels were timed, */
    int64_t timed_ns;                /* and their time in all */
    struct ks_plan_place *place;     /* engine's: where other threads read of it; NULL: nowhere */
    struct ks_plan *newer, *older, *chain; /* the cache's */
    ks_spec spec;
} ks_plan;

typedef enum ks_graph { KS_GRAPH_NONE, KS_GRAPH_MISS, KS_GRAPH_HIT } ks_graph;

/* Jobs of one plan that go out together: the slots in; what happened out. Or, with trial > 0, no job but a trial: the
 * plan's kernels run so many times, one behind the other, on memory of the lane that holds uneven values just written.
 */
typedef struct ks_batch {
    ks_plan *plan;
    int count; /* 1 .. plan->batch_max; 0: a trial */
    int trial; /* only where the backend has tuning */
    ks_slot *slots[KS_BATCH_MAX];
    int rows[KS_BATCH_MAX], rows_sum; /* of a family's plan: INPUT0's rows of each job, and of all */
    ks_graph graph;                   /* set by launch */
    int64_t h2d_ns, compute_ns,
        d2h_ns;        /* set by a poll that says KS_DONE; 0: did not happen. They add up to launch .. done */
    int64_t kernel_ns; /* likewise: start of the first kernel .. end of the last, all jobs; -1: not known. Of a trial:
                                * the time of one run */
    /* Of a chain's job that goes alone, without a graph: what each step took, set likewise; -1: not known. NULL: not asked for. */
    int64_t *step_ns;
    bool refused; /* likewise: of some jobs values that decide are out of bounds; false before launch */
    ks_bad_value bad[KS_BATCH_MAX]; /* where refused is set: of each job; input 0: it has none */
} ks_batch;

/* A job's status word, 0 before its launch: kernels keep the greatest. So it is of a chain's first node that has bad values, whose values
 * follow from no other's, and of its last such input the first one, whatever came first. */
enum {
    KS_BAD_INPUT_BITS = 4,
    KS_BAD_NODE_BITS = 12,
    KS_BAD_INPUT_AT = 64 - KS_BAD_NODE_BITS - KS_BAD_INPUT_BITS,
    KS_BAD_NODE_AT = 64 - KS_BAD_NODE_BITS,
    KS_BAD_INPUT_LAST = (1 << KS_BAD_INPUT_BITS) - 1,
    KS_BAD_NODE_LAST = (1 << KS_BAD_NODE_BITS) - 1
};
static const uint64_t KS_BAD_PLACES = ((uint64_t)1 << KS_BAD_INPUT_AT) - 1;
#define KS_BAD_WORD(node, input, place)                                                                                \
    ((uint64_t)(KS_BAD_NODE_LAST - (node)) << KS_BAD_NODE_AT | (uint64_t)(input) << KS_BAD_INPUT_AT |                  \
     (KS_BAD_PLACES - (uint64_t)(place)))

/* What a word says; the value is another matter. */
static inline ks_bad_value ks_bad_of_word(uint64_t word)
{
    ks_bad_value bad;
    bad.input = (int)(word >> KS_BAD_INPUT_AT & KS_BAD_INPUT_LAST);
    bad.place = (int64_t)(KS_BAD_PLACES - (word & KS_BAD_PLACES));
    bad.value = 0;
    bad.node = KS_BAD_NODE_LAST - (int)(word >> KS_BAD_NODE_AT);
    return bad;
}

enum { KS_HANDLE_BYTES = 64 };

typedef enum ks_poll { KS_RUNNING, KS_DONE, KS_FAILED } ks_poll;

typedef struct ks_device_info {
    const char *backend; /* "cuda", "cpu" */
    char name[128], uuid[48];
    char driver[32];
    int capability; /* 90 for sm_90; 0 on the CPU */
    int index;
    size_t memory_bytes;
    size_t mapped_max; /* measured border between mapped slots and copies */
    char library[160]; /* the matmul library that is open, or why none is; "" where the device has none */
    /* What the device is like: */
    bool gpu;         /* one of several, with memory of its own: its index is its label */
    bool polled;      /* lanes are looked at; else they write wake_fd */
    bool pins_memory; /* slots are pinned */
    bool linked;      /* kernels reach mapped slots over a link */
    int chain_rows;   /* a chain's jobs of at most so many rows may be joined; 0: none are */
    double work_max;  /* flops of a request, unless --max-work says */
} ks_device_info;

/* What the device's link and launches can do at best; 0: not known. Times are medians, launched .. seen by the host; rates
 * count the bytes of one direction, both_gbs while the other is as busy. */
typedef struct ks_device_limits {
    double graph_empty_us, graph_flag_us; /* a graph that does nothing; one kernel on mapped memory that sets a flag */
    double h2d_gbs, d2h_gbs, both_gbs;    /* pinned memory, 64 MiB */
} ks_device_limits;

/* Large requests where kernels work on memory that the host does not see: device buffers of a pool on the device, filled and
 * emptied through a shard's ring of pinned ring buffers. A launch may name any part of a device buffer as its slot (memory copied from
 * the device buffer, in_device and out_device moved on by multiples of KS_ALIGNMENT). */
typedef struct ks_large {
    /* KS_BUDGET: the pool has no room now; KS_WORK: it never has. Any thread. */
    ks_status (*buffer_init)(ks_device *device, size_t in_bytes, size_t out_bytes, ks_slot *device_buffer,
                             ks_error *error);
    void (*buffer_fini)(ks_device *device, ks_slot *device_buffer); /* no copy and no launch under way */
    /* A ring is one thread's. *memory: its ring buffers, one behind the other. KS_MEMORY. */
    ks_status (*ring_open)(ks_device *device, int buffers, size_t buffer_bytes, ks_ring **out, unsigned char **memory,
                           ks_error *error);
    void (*ring_close)(ks_ring **ring); /* waits for the copies under way */
    /* Begins a copy between a ring buffer and a device buffer's side; never blocks. A launch waits for the copies in begun before it; a
     * copy out is begun when the launches that write there are done. */
    ks_status (*copy_in)(ks_ring *ring, int buffer, const ks_slot *device_buffer, size_t offset, size_t bytes,
                         ks_error *error);
    ks_status (*copy_out)(ks_ring *ring, int buffer, const ks_slot *device_buffer, size_t offset, size_t bytes,
                          ks_error *error);
    ks_poll (*copy_poll)(ks_ring *ring, int buffer, ks_error *error); /* of the last copy begun */
} ks_large;

/* Rows that are put apart; the bytes between them are left. */
typedef struct ks_row_copy {
    size_t row_bytes, pitch_bytes;
    int64_t first, count; /* of the rows */
} ks_row_copy;

/* Memory of the kernels' own that stays: contents of resident tensors, and what is derived from them. */
typedef struct ks_resident {
    /* Takes `bytes` for contents, of what is free; taken from the system when needed, and given back when idle. bytes 0: an eighth of
     * what is free. Once, before any take. *limit: what it comes to. KS_MEMORY, KS_CONFIG. */
    ks_status (*reserve)(ks_device *device, uint64_t bytes, uint64_t *limit, ks_error *error);
    /* Memory of at least `bytes`, on KS_ALIGNMENT and readable KS_PAD bytes beyond; what another owner left there is cleared:
     * in_device and out_device are its start, in and out are NULL where the host does not see it, in_cap is bytes. A ring of ks_large
     * copies to it and from it as to a device buffer. Any thread; may take milliseconds. KS_RESIDENT_FULL: no piece is free that
     * holds it, or the device has no memory left. */
    ks_status (*take)(ks_device *device, size_t bytes, ks_slot *out, ks_error *error);
    void (*give)(ks_device *device, ks_slot *memory); /* no launch and no copy of it under way; never blocks */
    /* Copies rows from one memory to another, where they have a pitch; done when it returns. Behind all copies to `from`. */
    ks_status (*pack)(ks_device *device, const ks_slot *from, const ks_slot *to, const ks_row_copy *rows,
                      ks_error *error);
    /* Gives back to the system what is not in use, but for a sixteenth of the limit at most; all of it after ten turns without a take.
     * Memory of large requests, too. Once a second, with and without a reserve, off the path of requests: it takes milliseconds. */
    void (*trim)(ks_device *device);
    /* Bytes taken from the system now, in use or kept for the next take. Any thread. */
    uint64_t (*held)(ks_device *device);
} ks_resident;

/* Choosing by trial among the algorithms of a plan. */
typedef struct ks_tuning {
    /* What choices depend on beside the device's name and its driver: the kernels, the libraries. One line of text. */
    void (*revision)(const ks_device *device, char *out, size_t cap);
    /* The algorithms of a prepared plan on the path that it has: on mapped slots those that can, in batches as large; by copies
     * all, wherever the border is. The one that prepare picks is the first. Any thread; takes up to some milliseconds.
     * Returns how many; 0: nothing to choose from. */
    int (*list)(ks_device *device, const ks_plan *plan, ks_algorithm *out, int most);
    /* Makes an algorithm the plan's, as prepare makes the first one; the plan is prepared and has no graphs. KS_CONFIG: it is no
     * algorithm of this plan here, whatever its bytes are; the plan is as it was. */
    ks_status (*adopt)(ks_device *device, ks_plan *plan, const ks_algorithm *algorithm, ks_error *error);
} ks_tuning;

/* Of the memory that kernels work on, beyond its caches; GB/s. */
typedef struct ks_memory_rates {
    double copy_gbs;    /* a copy, bytes read + written */
    double read_gbs;    /* reading alone; 0: no faster than a copy */
    size_t cache_bytes; /* that may be found in caches when work begins; 0: none */
    char source[KS_SOURCE_MAX];
} ks_memory_rates;

/* Of arithmetic. */
typedef struct ks_peak {
    double tflops; /* 1e12 floating-point operations a second */
    char source[KS_SOURCE_MAX];
} ks_peak;

/* What the device can do at best. Each blocks, on any thread, while the device may serve: what it serves lowers what is found. */
typedef struct ks_probe {
    /* About 0.1 s. most: bytes of host memory that it may use. KS_MEMORY: too few for buffers beyond the caches. */
    ks_status (*memory)(ks_device *device, size_t most, ks_memory_rates *out, ks_error *error);
    /* Some milliseconds: a product of that datatype. KS_DATATYPE: it has none. KS_MEMORY, KS_DEVICE. */
    ks_status (*peak)(ks_device *device, ks_dtype dtype, ks_peak *out, ks_error *error);
    /* About half a second. NULL: kernels work where requests lie, without a launch. KS_MEMORY, KS_DEVICE. */
    ks_status (*device_limits)(ks_device *device, ks_device_limits *out, ks_error *error);
} ks_probe;

/* Client memory, for slots' windows; any thread. KS_WINDOW: it cannot be. */
typedef struct ks_client_memory {
    /* Host memory that is mapped; both NULL: the device reaches none of it. */
    ks_status (*pin)(ks_device *device, void *memory, size_t bytes, ks_error *error);
    void (*unpin)(ks_device *device, void *memory);
    /* Another process's device memory, by the KS_HANDLE_BYTES of its CUDA IPC handle. */
    ks_status (*import)(ks_device *device, const unsigned char *handle, int device_index, size_t bytes, void **out,
                        ks_error *error);
    void (*leave)(ks_device *device, void *memory);
    /* Between imported memory and the host's, either way, outside of any job; done when it returns. */
    ks_status (*copy)(ks_device *device, void *to, const void *from, size_t bytes, ks_error *error);
} ks_client_memory;

/* What programs of chains may count on. */
typedef struct ks_chain_means {
    size_t alignment; /* of addresses that kernels take; a power of two, KS_ALIGNMENT at most */
    uint32_t maps;    /* KS_DTYPE_BIT of what one pass of several maps takes; 0: each is a step */
    bool residuals;   /* a product adds a residual in its epilogue, cheaper than a step does */
} ks_chain_means;

typedef struct ks_backend {
    const char *name;
    /* KS_DEVICE: none that works. Opens, measures the border, runs nothing afterwards. */
    ks_status (*open)(const ks_limits *limits, ks_device **out, ks_error *error);
    void (*close)(ks_device **device);
    void (*info)(const ks_device *device, ks_device_info *out);
    /* Pinned (if in_bytes > 0 and pinned is asked for) and touched. Called at start only, or for overflow slots with
     * pinned == false. KS_MEMORY. */
    ks_status (*slot_init)(ks_device *device, size_t in_bytes, size_t out_bytes, bool pinned, ks_slot *slot,
                           ks_error *error);
    void (*slot_fini)(ks_device *device, ks_slot *slot);
    /* wake_fd: an eventfd written when work finishes on another thread (CPU lanes); the shard sleeps on it. index: of this
     * lane within its shard, 0 .. lanes-1. */
    ks_status (*lane_open)(ks_device *device, int index, int wake_fd, ks_lane **out, ks_error *error);
    void (*lane_close)(ks_lane **lane);
    /* Fills the plan's choice and the fields marked so. Choosing only: no tuning, no device work. KS_WORK: does not fit the device. */
    ks_status (*prepare)(ks_device *device, ks_plan *plan, ks_error *error);
    /* On a free lane, at a turn's end: makes the graph of one bucket. */
    ks_status (*capture)(ks_lane *lane, ks_plan *plan, int bucket, ks_error *error);
    void (*forget)(ks_lane *lane, ks_plan *plan);
    /* On a free lane; returns at once (the CPU may finish small work before it returns). The batch stays the caller's and
     * valid until poll says KS_DONE or KS_FAILED. KS_DEVICE with device_failed(): fatal; else only this batch failed. */
    ks_status (*launch)(ks_lane *lane, ks_batch *batch, ks_error *error);
    ks_poll (*poll)(ks_lane *lane, ks_error *error); /* never blocks longer than one copied chunk (1 MiB) */
    /* Asked now and then of a batch under way, which poll has just said to be KS_RUNNING. true: since it was last asked, work
     * was done, or could not be for want of a processor; also when it is asked for the first time. stall_ns: what may pass
     * without progress; work that goes on far beyond what it should take, and so long besides, counts as none. NULL: the
     * device reports nothing before work is done. */
    bool (*goes_on)(ks_lane *lane, int64_t stall_ns);
    /* true once the device is lost for good (sticky error). Any thread. */
    bool (*failed)(const ks_device *device);
    const ks_probe *probe;                 /* NULL: nothing is known of what it can do at best */
    const ks_tuning *tuning;               /* NULL: there is one algorithm for each plan */
    const ks_large *large;                 /* NULL: kernels work on ordinary memory, large requests on slots of it */
    const ks_client_memory *client_memory; /* NULL: this device has no way of its own to it */
    const ks_resident *resident;           /* NULL: nothing stays on this device */
    const ks_chain_means *chains;          /* NULL: tensors lie on KS_ALIGNMENT, each map is a step */
} ks_backend;

/* bucket b holds up to 1 << b jobs, or joined rows */
int ks_bucket(int count);
int ks_batch_bucket(const ks_batch *batch);
/* Bytes of a side of a job with so many rows; of a plan that is no family's, rows do not matter. */
size_t ks_plan_job_in(const ks_plan *plan, int rows);
size_t ks_plan_job_out(const ks_plan *plan, int rows);
/* Of a family's plan: where an input or an output of a job with so many rows begins in its side, and the spec with so many rows. */
size_t ks_plan_job_in_at(const ks_plan *plan, int input, int rows);
size_t ks_plan_job_out_at(const ks_plan *plan, int output, int rows);
void ks_plan_spec_of(const ks_plan *plan, int rows, ks_spec *out);
void ks_plan_copy(ks_plan *to, const ks_plan *from); /* one of the cache, whose memory ends with its spec's outputs */

#ifdef __cplusplus
}
#endif
#endif
