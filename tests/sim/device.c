/* A batch runs from its launch to a time drawn then; until then its outputs hold other bytes. Graphs are bits. One shard.
 *
 * Owns       lanes and slots, in memory of the simulator's own: where a device is lost they stay, and are reaped.
 * Interface  device.h. */
#include "sim/device.h"

#include <string.h>
#include <sys/epoll.h>

#include "cpu/reference.h"
#include "sim/bed.h"
#include "sim/sim.h"
#include "sim/sockets.h"
#include "sim/world.h"

enum { POISON = 0xA5, SLOTS_MAX = 256 };

/* After which a device without progress must be known to be lost: the limit is half a second of turns. */
static const int64_t found_ns = 5000000000;

struct ks_lane {
    ks_batch *batch;
    int64_t done_ns;
    int pauses; /* amid the work */
    bool told, silent, fails;
    int index, wake_fd;
};

struct ks_device {
    ks_lane *lanes[KS_LANES_MAX];
    unsigned char *slots[SLOTS_MAX], *contents[SLOTS_MAX];
    int open_slots, open_contents;
    bool lost; /* as the daemon may know */
};

static ks_device device;

void sim_device_begin(void)
{
    memset(&device, 0, sizeof device);
}

static bool is_dead(void)
{
    return sim_bed_serves() && sim_world_now_ns() >= sim.dies_ns;
}

/* Not while the shard opens: it would not. */
static bool chance(int n)
{
    return sim_bed_serves() && sim_one_in(n);
}

static void lose(const char *how)
{
    if (!device.lost) sim_event(how, 0, 0);
    device.lost = true;
}

bool sim_device_is_lost(void)
{
    return device.lost;
}

static ks_status open(const ks_limits *limits, ks_device **out, ks_error *error)
{
    (void)limits, (void)error;
    *out = &device;
    return KS_OK;
}

static void close_device(ks_device **out)
{
    *out = NULL;
}

static void info(const ks_device *one, ks_device_info *out)
{
    (void)one;
    *out = (ks_device_info){
        .backend = "sim", .name = "simulated", .polled = sim.polled, .work_max = 1e9, .mapped_max = SIZE_MAX};
}

/* --- slots -------------------------------------------------------------------------------------------------------- */

static ks_status slot_init(ks_device *one, size_t in_bytes, size_t out_bytes, bool pinned, ks_slot *slot,
                           ks_error *error)
{
    const size_t in_room = ks_align(in_bytes + KS_PAD), out_room = ks_align(out_bytes + KS_PAD);
    int at = 0;
    (void)pinned;
    while (at < SLOTS_MAX && one->slots[at]) at++;
    if (at == SLOTS_MAX || chance(sim.no_memory)) return ks_fail(error, KS_MEMORY, "no memory for a slot");
    unsigned char *memory = sim_take(in_room + KS_HEAD_ROOM + out_room + KS_ALIGNMENT);
    memset(memory, POISON, in_room + KS_HEAD_ROOM + out_room + KS_ALIGNMENT);
    one->slots[at] = memory;
    one->open_slots++;
    memset(slot, 0, sizeof *slot);
    slot->memory = memory;
    slot->in = (unsigned char *)ks_align((uintptr_t)memory);
    slot->out = slot->in + in_room + KS_HEAD_ROOM;
    slot->in_cap = in_bytes;
    slot->out_cap = out_bytes;
    slot->in_device = slot->in;
    slot->out_device = slot->out;
    return KS_OK;
}

static void slot_fini(ks_device *one, ks_slot *slot)
{
    for (int i = 0; i < SLOTS_MAX && slot->memory; i++)
        if (one->slots[i] == slot->memory) {
            one->slots[i] = NULL;
            one->open_slots--;
            sim_give(slot->memory);
            break;
        }
    memset(slot, 0, sizeof *slot);
}

int sim_device_slots(void)
{
    return device.open_slots;
}

/* --- lanes -------------------------------------------------------------------------------------------------------- */

static ks_status lane_open(ks_device *one, int index, int wake_fd, ks_lane **out, ks_error *error)
{
    (void)error;
    ks_lane *lane = sim_take(sizeof *lane);
    *lane = (ks_lane){.index = index, .wake_fd = wake_fd};
    one->lanes[index] = lane;
    *out = lane;
    return KS_OK;
}

static void lane_close(ks_lane **lane)
{
    sim_check((*lane)->batch == NULL, "a lane is closed at work", (*lane)->index, 0);
    device.lanes[(*lane)->index] = NULL;
    sim_give(*lane);
    *lane = NULL;
}

void sim_device_reap(void)
{
    for (int i = 0; i < KS_LANES_MAX; i++) sim_give(device.lanes[i]);
    for (int i = 0; i < SLOTS_MAX; i++) sim_give(device.slots[i]), sim_give(device.contents[i]);
    memset(&device, 0, sizeof device);
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

static ks_status prepare(ks_device *one, ks_plan *plan, ks_error *error)
{
    (void)one, (void)error;
    plan->mapped = true;
    plan->graphs = sim.captures;
    plan->at_once = !sim.polled && sim_one_in(4);
    plan->batch_max = (int)sim_skewed(1, KS_BATCH_MAX);
    if (plan->join_rows && !sim_one_in(2)) plan->join_rows = 0;
    return KS_OK;
}

static ks_status capture(ks_lane *lane, ks_plan *plan, int bucket, ks_error *error)
{
    sim_world_pass(15 * SIM_US);
    if (!sim.calm && sim_one_in(16)) return ks_fail(error, KS_MEMORY, "no memory for a graph");
    plan->captured[lane->index] |= 1u << bucket;
    return KS_OK;
}

static void forget(ks_lane *lane, ks_plan *plan)
{
    plan->captured[lane->index] = 0;
}

/* --- work --------------------------------------------------------------------------------------------------------- */

static void run_job(const ks_batch *batch, int job)
{
    ks_spec spec;
    const ks_slot *slot = batch->slots[job];
    const void *in[KS_INPUTS_MAX] = {NULL};
    void *out[KS_OUTPUTS_MAX] = {NULL};
    if (batch->plan->join_rows)
        ks_plan_spec_of(batch->plan, batch->rows[job], &spec);
    else
        ks_spec_copy(&spec, &batch->plan->spec);
    for (int k = ks_next_input(&spec, -1); k >= 0; k = ks_next_input(&spec, k))
        in[k] = spec.in[k].fixed ? spec.in[k].fixed : slot->in + spec.in[k].offset;
    for (int k = 0; k < spec.outputs; k++) out[k] = slot->out + spec.out[k].offset;
    void *scratch = sim_take(ks_cpu_scratch_bytes(&spec) + 1);
    ks_cpu_reference(&spec, in, out, scratch);
    sim_give(scratch);
}

static ks_status launch(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    sim_world_pass(2 * SIM_US);
    if (is_dead() && sim.dies_how == SIM_DIES_LAUNCH) lose("a launch finds the device lost");
    if (device.lost) return ks_fail(error, KS_DEVICE, "the device is lost");
    if (chance(sim.failing)) return ks_fail(error, KS_DEVICE, "the launch failed");
    const int64_t work_ns = batch->plan->at_once ? 0 : sim_skewed(SIM_US, sim.work_ns);
    *lane = (ks_lane){.batch = batch,
                      .done_ns = sim_world_now_ns() + work_ns,
                      .told = batch->plan->at_once,
                      .silent = is_dead() && sim.dies_how == SIM_DIES_SILENT,
                      .fails = chance(sim.failing),
                      .index = lane->index,
                      .wake_fd = lane->wake_fd};
    batch->graph = !batch->plan->graphs                                               ? KS_GRAPH_NONE
                   : batch->plan->captured[lane->index] >> ks_batch_bucket(batch) & 1 ? KS_GRAPH_HIT
                                                                                      : KS_GRAPH_MISS;
    for (int i = 0; i < batch->count; i++)
        memset(batch->slots[i]->out, POISON, ks_plan_job_out(batch->plan, batch->rows[i]));
    sim_event("launch", lane->index, batch->count);
    return KS_OK;
}

static ks_poll end(ks_lane *lane, bool good)
{
    ks_batch *batch = lane->batch;
    lane->batch = NULL;
    if (!good) return KS_FAILED;
    /* A device that has failed without a word leaves what it likes. */
    const bool garbage = is_dead() && sim.dies_how == SIM_DIES_SEEN;
    for (int i = 0; i < batch->count && !garbage; i++) run_job(batch, i);
    batch->compute_ns = 1000;
    batch->kernel_ns = 500;
    sim_event("done", lane->index, batch->count);
    return KS_DONE;
}

static ks_poll poll_lane(ks_lane *lane, ks_error *error)
{
    if (is_dead() && sim.dies_how == SIM_DIES_POLL) lose("a look at work finds the device lost");
    if (device.lost || lane->fails) {
        ks_fail(error, KS_DEVICE, "the work failed");
        return end(lane, false);
    }
    if (lane->silent && !sim.jumps)
        sim_check(sim_world_now_ns() - lane->done_ns < found_ns, "work that does not end is not found", lane->index, 0);
    if (lane->silent || sim_world_now_ns() < lane->done_ns) return KS_RUNNING;
    return end(lane, true);
}

static bool failed(const ks_device *one)
{
    if (is_dead() && sim.dies_how == SIM_DIES_SEEN) lose("the device is lost");
    return one->lost;
}

bool sim_device_is_silent(void)
{
    for (int i = 0; i < KS_LANES_MAX; i++)
        if (device.lanes[i] && device.lanes[i]->batch && device.lanes[i]->silent) return true;
    return false;
}

/* --- tensors that stay -------------------------------------------------------------------------------------------- */

static ks_status reserve(ks_device *one, uint64_t bytes, uint64_t *limit, ks_error *error)
{
    (void)one, (void)error;
    *limit = bytes;
    return KS_OK;
}

static ks_status take(ks_device *one, size_t bytes, ks_slot *out, ks_error *error)
{
    int at = 0;
    while (at < SLOTS_MAX && one->contents[at]) at++;
    if (at == SLOTS_MAX || chance(sim.no_memory)) return ks_fail(error, KS_RESIDENT_FULL, "no memory for a content");
    unsigned char *memory = sim_take(ks_align(bytes) + KS_PAD + KS_ALIGNMENT);
    memset(out, 0, sizeof *out);
    out->memory = memory;
    out->in = (unsigned char *)ks_align((uintptr_t)memory);
    out->in_device = out->out_device = out->in;
    out->in_cap = bytes;
    one->contents[at] = memory;
    one->open_contents++;
    return KS_OK;
}

static void give(ks_device *one, ks_slot *memory)
{
    for (int i = 0; i < SLOTS_MAX; i++)
        if (one->contents[i] == memory->memory) one->contents[i] = NULL;
    sim_give(memory->memory);
    memset(memory, 0, sizeof *memory);
    one->open_contents--;
}

static ks_status pack(ks_device *one, const ks_slot *from, const ks_slot *to, const ks_row_copy *rows, ks_error *error)
{
    (void)one, (void)from, (void)to, (void)rows;
    return ks_fail(error, KS_DEVICE, "no request asks for a form");
}

static void trim(ks_device *one)
{
    (void)one;
}

static uint64_t held(ks_device *one)
{
    return (uint64_t)one->open_contents;
}

int sim_device_contents(void)
{
    return device.open_contents;
}

/* Of each pause the daemon counts a tenth of a second, for it looks rarely meanwhile: five of them amid one work are its limit here. */
void sim_device_pause(int64_t ns)
{
    enum { PAUSES_MAX = 3 };
    for (int i = 0; i < KS_LANES_MAX && !sim.polled; i++)
        if (device.lanes[i] && (ns == 0 || device.lanes[i]->pauses++ < PAUSES_MAX)) device.lanes[i]->done_ns += ns;
}

int64_t sim_device_next_ns(void)
{
    int64_t next_ns = SIM_NEVER;
    for (int i = 0; i < KS_LANES_MAX && !sim.polled; i++) {
        const ks_lane *lane = device.lanes[i];
        if (lane && lane->batch && !lane->told && !lane->silent && lane->done_ns < next_ns) next_ns = lane->done_ns;
    }
    return next_ns;
}

void sim_device_turn(void)
{
    for (int i = 0; i < KS_LANES_MAX && !sim.polled; i++) {
        ks_lane *lane = device.lanes[i];
        if (!lane || !lane->batch || lane->told || lane->silent || lane->done_ns > sim_world_now_ns()) continue;
        lane->told = true;
        while (sim_eventfd_write(lane->wake_fd, 1) < 0) continue;
    }
}

const ks_backend *sim_device_backend(void)
{
    static const ks_resident resident = {
        .reserve = reserve, .take = take, .give = give, .pack = pack, .trim = trim, .held = held};
    static const ks_backend backend = {.resident = &resident,
                                       .name = "sim",
                                       .open = open,
                                       .close = close_device,
                                       .info = info,
                                       .slot_init = slot_init,
                                       .slot_fini = slot_fini,
                                       .lane_open = lane_open,
                                       .lane_close = lane_close,
                                       .prepare = prepare,
                                       .capture = capture,
                                       .forget = forget,
                                       .launch = launch,
                                       .poll = poll_lane,
                                       .failed = failed};
    return &backend;
}
