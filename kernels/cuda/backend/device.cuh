/* What the parts of backend_cuda.cu share: the device, the lane, and what happens to a CUDA call that fails.
 *
 * The backend_cuda_*.cuh files are parts of one translation unit (one file's worth of static functions, cut by idea):
 * device (this one), clock, memory, slots, graphs, lanes, stream, staged, trial, launch, border, floors. Only backend_cuda.cu
 * includes them. */
#ifndef KS_BACKEND_CUDA_DEVICE_CUH
#define KS_BACKEND_CUDA_DEVICE_CUH

#include "launch.cuh"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const size_t KS_CHUNK_BYTES = 16 << 20;  /* pinned at a time, then carved into slots */
static const size_t KS_PIECE_BYTES = 1 << 20;   /* of a staged request: one is copied by the host within a poll */
static const int64_t KS_LATE_NS = 2000000;      /* a launch without news for so long is asked for its error */
static const int64_t KS_LATE_STEP_NS = 1000000; /* and again after so long: each question takes the driver's lock */
enum { KS_STAGES = 3 };                         /* pieces: one being filled, one on the link, one being emptied */
static_assert(sizeof(ks_line) == KS_LINE_BYTES && (int)KS_LINE_BYTES <= (int)KS_ALIGNMENT,
              "the line fits in front of an out side");

/* Host time = device time + an offset that lies in [low, high] (backend_cuda_clock.cuh). */
typedef struct ks_cuda_clock {
    int64_t low, high, lead, at_ns, tight_ns;
} ks_cuda_clock;

typedef struct ks_chunk {
    unsigned char *host, *device;
    size_t size, used;
    int slots;
    struct ks_chunk *next;
} ks_chunk;

struct ks_area;

struct ks_device {
    /* fixed after open: */
    ks_limits limits;
    unsigned char *pool; /* device memory of streamed requests; NULL: none */
    size_t pool_bytes;
    ks_chip chip;
    ks_device_info info;
    ks_cuda_clock clock;
    /* any thread, atomic: */
    bool failed;       /* sticky: the context is lost */
    bool pageable;     /* a slot that was to be pinned is not */
    size_t large_fits; /* the smallest large arena that a lane could get */
    /* under arena_lock: */
    pthread_mutex_t arena_lock;
    ks_chunk *chunks;
    /* under pool_lock: */
    pthread_mutex_t pool_lock;
    struct ks_area *areas; /* by address */
};

/* Mapped host memory of a lane; the lines are polled, so each has its own cache lines. */
typedef struct ks_lane_shared {
    alignas(256) ks_block block;
    alignas(128) ks_line line;
    alignas(128) ks_line probe;
    alignas(128) ks_line area_line; /* a copy of the area's, behind its kernels */
} ks_lane_shared;

typedef enum ks_path { KS_PATH_MAPPED, KS_PATH_COPIES, KS_PATH_STAGED, KS_PATH_AREA, KS_PATH_TRIAL } ks_path;
typedef enum ks_stage { KS_STAGE_IN, KS_STAGE_OUT, KS_STAGE_LAST } ks_stage;

struct ks_lane {
    /* fixed after open: */
    ks_device *device;
    int index;
    cudaStream_t stream;
    cudaEvent_t event;
    unsigned char *memory; /* the ticket and the counters, the workspace and the arena: one allocation */
    uint32_t *counters;
    unsigned char *workspace, *arena;
    unsigned char *large; /* lane 0 only, NULL where the limits ask for none */
    size_t large_bytes;
    unsigned char *ring; /* lane 0 only: KS_STAGES pinned pieces */
    cudaEvent_t ring_event[KS_STAGES];
    ks_lane_shared *shared, *shared_device;
    /* this shard only: */
    ks_cuda_clock clock;
    uint32_t sequence;
    uint32_t probe_sequence; /* of the last probe */
    int64_t probe_ns;        /* when it was launched; 0: none under way */
    /* the launch under way: */
    ks_batch *batch; /* NULL: free */
    ks_path path;
    int64_t launch_ns, asked_ns;
    ks_stage stage;
    int job;                 /* of a staged batch */
    size_t moved_in;         /* bytes of the job's in side under way to the device */
    size_t asked, moved_out; /* bytes of its line and out side asked for; arrived in the slot */
    cudaGraph_t trial_graph; /* of the trial under way, */
    cudaGraphExec_t trial_exec;
    cudaEvent_t trial_event[2]; /* and what it is timed by; made for the first one */
};

static int64_t now_ns()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The runtime's current device is per thread; any thread may come here first. */
static cudaError_t use_device(const ks_device *device)
{
    static __thread int current = -1;
    if (current == device->info.index) return cudaSuccess;
    const cudaError_t code = cudaSetDevice(device->info.index);
    if (code == cudaSuccess) current = device->info.index;
    return code;
}

/* Codes that leave the context whole. Whatever is not named here is fatal. */
static bool is_recoverable(cudaError_t code)
{
    if (code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread) return true;
    switch (code) {
    case cudaSuccess:
    case cudaErrorNotReady:
    case cudaErrorInvalidValue:
    case cudaErrorMemoryAllocation:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidSymbol:
    case cudaErrorInvalidHostPointer:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorCooperativeLaunchTooLarge:
    case cudaErrorNotSupported:
    case cudaErrorGraphExecUpdateFailure:
    case cudaErrorInvalidClusterSize:
        return true;
    default:
        return false;
    }
}

/* Says which call failed and how. Takes the runtime's pending error with it: an op's launcher reads that afterwards,
 * and must not find ours there. (A lost context reports again by itself.) */
static ks_status say(cudaError_t code, const char *call, ks_error *error)
{
    cudaGetLastError();
    return ks_fail(error, code == cudaErrorMemoryAllocation ? KS_MEMORY : KS_DEVICE, "%.*s: %s (CUDA error %d)",
                   (int)strcspn(call, "("), call, cudaGetErrorString(code), (int)code);
}

/* The same, and a fatal code marks the device as lost. */
static ks_status judge(ks_device *device, cudaError_t code, const char *call, ks_error *error)
{
    if (!is_recoverable(code)) __atomic_store_n(&device->failed, true, __ATOMIC_RELEASE);
    return say(code, call, error);
}

/* Both return from the calling function when the call fails. KS_TRY judges; KS_TRY_SOFT is for calls whose failure does
 * not tell about the context (open, capture): their callers ask the stream afterwards. */
#define KS_TRY(device, error, call)                                                                                    \
    do {                                                                                                               \
        const cudaError_t code_ = (call);                                                                              \
        if (__builtin_expect(code_ != cudaSuccess, 0)) return judge(device, code_, #call, error);                      \
    } while (0)
#define KS_TRY_SOFT(error, call)                                                                                       \
    do {                                                                                                               \
        const cudaError_t code_ = (call);                                                                              \
        if (__builtin_expect(code_ != cudaSuccess, 0)) return say(code_, #call, error);                                \
    } while (0)

static bool device_failed(const ks_device *device)
{
    return __atomic_load_n(&device->failed, __ATOMIC_ACQUIRE);
}

/* Not ready is no error, yet the runtime remembers it as one: dropped here, for the same reason as in say(). */
static cudaError_t quiet(cudaError_t code)
{
    if (code == cudaErrorNotReady) cudaGetLastError();
    return code;
}

/* After a failure that does not tell by itself (an op's launcher, a capture): has the context gone? */
static void ask_stream(ks_lane *lane)
{
    const cudaError_t code = quiet(cudaStreamQuery(lane->stream));
    if (!is_recoverable(code)) __atomic_store_n(&lane->device->failed, true, __ATOMIC_RELEASE);
}

#endif
