/* The border between mapped slots and copies, measured at open through the real thing: a lane, a slot, a plan, its
 * graph. One size after the other, from small to large, both ways; the border is the largest size at which mapped slots
 * are not slower. One request at a time: under load batches move the border up, so this errs towards copies. About 50
 * ms. */
#ifndef KS_BACKEND_CUDA_BORDER_CUH
#define KS_BACKEND_CUDA_BORDER_CUH

#include "backend_cuda_launch.cuh"

enum { KS_BORDER_RUNS = 31, KS_BORDER_WARM = 4, KS_BORDER_COLS = 1024 };
static const size_t KS_BORDER_LEAST = 8 << 10, KS_BORDER_MOST = 2 << 20; /* bytes, in + out */
static const size_t KS_BORDER_GUESS = 64 << 10;     /* where the op does not work on mapped slots */
static const int64_t BORDER_TIME_NS = 400000000;    /* then the border found so far holds */
static const int64_t BORDER_STALL_NS = 30000000000; /* a first launch under a checking tool takes seconds */
static const int64_t BORDER_GAP_NS = 100000000;     /* between two looks: more of it was a pause of the process */

static ks_status prepare(ks_device *device, ks_plan *plan, ks_error *error);

/* A wait by looks. Only time in which the looks went on is the device's. */
typedef struct border_wait {
    int64_t seen_ns, waited_ns;
} border_wait;

static bool border_stalls(border_wait *wait)
{
    const int64_t now = now_ns(), gap_ns = now - wait->seen_ns;
    wait->seen_ns = now;
    wait->waited_ns += gap_ns < BORDER_GAP_NS ? gap_ns : BORDER_GAP_NS;
    return wait->waited_ns > BORDER_STALL_NS;
}

static int compare_times(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Softmax over rows of KS_BORDER_COLS FP32 values that moves `bytes` in all. */
static ks_status border_spec(size_t bytes, ks_spec *spec, ks_error *error)
{
    const ks_op *op = ks_op_find("softmax", strlen("softmax"));
    if (!op) return ks_fail(error, KS_CONFIG, "no operation softmax to measure with");
    ks_spec_init(spec, op);
    spec->in[0].dtype = KS_FP32;
    spec->in[0].rank = 2;
    spec->in[0].dims[0] = (int64_t)(bytes / 2 / sizeof(float) / KS_BORDER_COLS);
    spec->in[0].dims[1] = KS_BORDER_COLS;
    const ks_status status = ks_tensor_measure(&spec->in[0], "INPUT0", error);
    if (status) return status;
    ks_spec_layout(spec);
    return op->resolve(spec, error);
}

static ks_status border_run(ks_lane *lane, ks_plan *plan, ks_slot *slot, int64_t *out_ns, ks_error *error)
{
    ks_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.plan = plan;
    batch.count = 1;
    batch.slots[0] = slot;
    const int64_t begin = now_ns();
    const ks_status status = launch(lane, &batch, error);
    if (status) return status;
    ks_poll poll;
    border_wait wait = {begin, 0};
    while ((poll = poll_lane(lane, error)) == KS_RUNNING)
        if (border_stalls(&wait)) return ks_fail(error, KS_DEVICE, "a launch did not end in 30 s");
    *out_ns = now_ns() - begin;
    return poll == KS_DONE ? KS_OK : KS_DEVICE;
}

/* The median of one way, as a captured graph. */
static ks_status border_time(ks_lane *lane, ks_plan *plan, ks_slot *slot, bool mapped, int64_t *out_ns, ks_error *error)
{
    int64_t times[KS_BORDER_RUNS];
    plan->mapped = mapped;
    ks_status status = border_run(lane, plan, slot, &times[0], error); /* kernels may come late, but not in a capture */
    if (!status) status = capture(lane, plan, 0, error);
    for (int i = -KS_BORDER_WARM; !status && i < KS_BORDER_RUNS; i++)
        status = border_run(lane, plan, slot, &times[i < 0 ? 0 : i], error);
    forget(lane, plan);
    if (status) return status;
    qsort(times, KS_BORDER_RUNS, sizeof times[0], compare_times);
    *out_ns = times[KS_BORDER_RUNS / 2];
    return KS_OK;
}

/* *able: the op may work on mapped slots at this size, and the lane's memory holds it for copies. */
static ks_status border_size(ks_device *device, ks_lane *lane, ks_slot *slot, size_t bytes, bool *able,
                             int64_t *mapped_ns, int64_t *copies_ns, ks_error *error)
{
    ks_plan plan;
    memset(&plan, 0, sizeof plan);
    ks_status status = border_spec(bytes, &plan.spec, error);
    if (status) return status;
    status = prepare(device, &plan, error);
    if (status == KS_WORK) return KS_OK; /* limits too tight for this size: the border lies below it */
    if (status) return status;
    *able = plan.mapped && !plan.large;
    if (!*able) return KS_OK;
    status = border_time(lane, &plan, slot, true, mapped_ns, error);
    if (!status) status = border_time(lane, &plan, slot, false, copies_ns, error);
    return status;
}

static ks_status border_measure(ks_device *device, ks_lane *lane, ks_slot *slot, ks_error *error)
{
    const int64_t begin = now_ns();
    size_t border = 0;
    int slower = 0;
    bool any = false;
    for (size_t bytes = KS_BORDER_LEAST; bytes <= KS_BORDER_MOST && slower < 2; bytes *= 2) {
        bool able = false;
        int64_t mapped_ns = 0, copies_ns = 0;
        device->info.mapped_max = SIZE_MAX;
        const ks_status status = border_size(device, lane, slot, bytes, &able, &mapped_ns, &copies_ns, error);
        if (status) return status;
        if (!able || now_ns() - begin > BORDER_TIME_NS) break;
        any = true;
        if (mapped_ns <= copies_ns) border = bytes;
        slower = mapped_ns <= copies_ns ? 0 : slower + 1; /* one slower size may be noise, two are not */
    }
    device->info.mapped_max = any ? border : KS_BORDER_GUESS;
    return KS_OK;
}

/* device->info.mapped_max from the limits, or measured. Without pinned memory nothing is mapped. */
static ks_status border_find(ks_device *device, ks_lane *lane, ks_error *error)
{
    device->info.mapped_max = device->limits.mapped_max;
    if (device->limits.mapped_max != SIZE_MAX) return KS_OK;
    ks_slot slot;
    memset(&slot, 0, sizeof slot);
    ks_status status = slot_init(device, KS_BORDER_MOST / 2, KS_BORDER_MOST / 2, true, &slot, error);
    if (status) return status;
    if (slot.pinned)
        status = border_measure(device, lane, &slot, error);
    else
        device->info.mapped_max = 0;
    slot_fini(device, &slot);
    return status;
}

#endif
