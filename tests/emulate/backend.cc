/* ks_backend_cuda over the emulated GPU, for the op tests: overrides of fake_backend.h whose plans and launches are as kernels/cuda/backend makes them, but at once.
 *
 * Each launch has memory of its own that ends, or begins, where a page begins that cannot be touched; what nobody has
 * written holds noise. Tickets and counters have to be 0 after it, the completion filled, nothing written beside the output. */
#include "cuda_runtime.h"

#include "matmul_ptx.h"

#include "cuda/backend/chain.h"
#include "cuda/backend/internal.h"
#include "cuda/backend/join.h"
#include "cuda/matmul/cublaslt.cuh"
#include "cuda/matmul/table.cuh"
#include "fake/fake_backend.h"
#include "kernserve/backends.h"

#include <stdio.h>
#include <sys/mman.h>

static const size_t WORKSPACE = 64 << 20;
static const unsigned char NOISE = 0xFF;
static bool front_now; /* whether memory begins behind a forbidden page, or ends before one; by turns */

/* --- memory ---------------------------------------------------------------------------------------------------------- */

/* Bytes between two forbidden pages, right beside one of them; on KS_ALIGNMENT, as everything on a device is. */
struct guarded {
    unsigned char *map, *data;
    size_t map_bytes, bytes;

    guarded(size_t size, bool front) : bytes(size)
    {
        const size_t page = 4096, inside = (size + page - 1) / page * page;
        map_bytes = inside + 2 * page;
        map = (unsigned char *)mmap(NULL, map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED || mprotect(map + page, inside, PROT_READ | PROT_WRITE))
            emulate_fault("no memory for a launch");
        memset(map + page, NOISE, inside);
        data = map + page + (front ? 0 : inside - ks_align(size));
    }
    ~guarded()
    {
        munmap(map, map_bytes);
    }
    guarded(const guarded &) = delete;
    guarded &operator=(const guarded &) = delete;
};

struct job_memory {
    guarded in, out; /* out: the head's room, the output, the pad */
    job_memory(const ks_plan *plan, bool front)
        : in(plan->in_bytes + KS_PAD, front), out(KS_HEAD_ROOM + plan->out_bytes + KS_PAD, front)
    {
    }
};

/* --- the border ------------------------------------------------------------------------------------------------------ */

/* What the units of the CUDA backend work on lies within the fake's device and lanes. */
static ks_device *cuda_device(const ks_device *device)
{
    return (ks_device *)fake_device_state(device);
}

static ks_lane *cuda_lane(const ks_lane *lane)
{
    return (ks_lane *)fake_lane_state(lane);
}

/* KS_EMULATED_SMS: of the chip; few, so that small tensors reach every kernel. KS_EMULATED_CAPABILITY: 80 has no clusters.
 * KS_EMULATED_WORKSPACE: bytes that a plan may have. */
static ks_status open_device(const ks_limits *limits, ks_device **out, ks_error *error)
{
    const char *sms = getenv("KS_EMULATED_SMS"), *capability = getenv("KS_EMULATED_CAPABILITY"),
               *workspace = getenv("KS_EMULATED_WORKSPACE");
    ks_status status = fake_base->open(limits, out, error);
    if (status) return status;
    ks_device *device = cuda_device(*out);
    device->limits = *limits;
    device->limits.lane_bytes = SIZE_MAX;
    device->info.mapped_max = limits->mapped_max;
    device->model_fits = limits->model_bytes;
    device->chip = {.capability = capability ? atoi(capability) : 90,
                    .sms = sms ? atoi(sms) : 4,
                    .threads_sm = 2048,
                    .registers_sm = 65536,
                    .ctas_sm = 32,
                    .shared_sm = 228 << 10,
                    .shared_reserved = 1 << 10,
                    .shared_optin = 227 << 10,
                    .l2_bytes = 50 << 20,
                    .workspace_bytes = workspace ? (size_t)atoll(workspace) : WORKSPACE,
                    .clusters = {},
                    .launches_early = false,
                    .encode_tiled = NULL};
    emulate_chip_now = {device->chip.sms, device->chip.shared_sm, device->chip.shared_optin};
    for (int i = 0; !status && ks_cuda_ops[i]; i++) status = ks_cuda_ops[i]->setup(&device->chip, error);
    if (status) fake_base->close(out);
    return status;
}

static ks_status lane_open(ks_device *device, int index, int wake_fd, ks_lane **out, ks_error *error)
{
    const ks_status status = fake_base->lane_open(device, index, wake_fd, out, error);
    if (!status) cuda_lane(*out)->device = cuda_device(device);
    return status;
}

/* A kernel without maps finds the other arguments where it would without them. */
void emulate_call(const void *kernel, void **arguments)
{
    typedef void function(ks_site, mm_args, mm_maps);
    ((function *)kernel)(*(ks_site *)arguments[0], *(mm_args *)arguments[1], *(mm_maps *)arguments[2]);
}

/* What plan.cu asks of the runtime. */
cudaError_t ks_cuda_use(const ks_device *)
{
    return cudaSuccess;
}
ks_status ks_cuda_fault(ks_device *, cudaError_t, const char *call, ks_error *error)
{
    return ks_fail(error, KS_DEVICE, "%s", call);
}

ks_status ks_cuda_say(cudaError_t, const char *call, ks_error *error)
{
    return ks_fail(error, KS_DEVICE, "%s", call);
}

/* The plan says of its kernel what a launch does, and what an SM holds of it is known. */
static void check_note(const ks_device *device, const ks_plan *plan)
{
    ks_launch_note note;
    ks_error error;
    const ks_kernel_info *info = &plan->kernel_info;
    if (ks_cuda_note(device, plan, &note, &error) || !note.kernel || note.threads != info->threads ||
        note.shared_bytes != info->shared_bytes || info->occupancy.ctas != 2048 / info->threads)
        emulate_fault(info->kernel);
}

static ks_status prepare(ks_device *outer, ks_plan *plan, ks_error *error)
{
    ks_device *device = cuda_device(outer);
    const ks_status status = ks_cuda_prepare(device, plan, error);
    if (!status && !plan->program) check_note(device, plan);
    if (!status && plan->counters > KS_COUNTERS_MAX)
        return ks_fail(error, KS_DEVICE, "%s: %zu counters are planned", plan->kernel_info.kernel, plan->counters);
    if (getenv("KS_EMULATED_PICKS"))
        printf("pick %s grid %lld\n", plan->kernel_info.kernel, (long long)plan->kernel_info.grid);
    return status;
}

/* No library here. */
int ks_cublaslt_version(void)
{
    return 0;
}
int ks_cublaslt_list(const ks_spec *, const ks_matmul_shape *, size_t, ks_cublaslt_algorithm *, int)
{
    return 0;
}
bool ks_cublaslt_check(const ks_spec *, const ks_matmul_shape *, size_t, const ks_cublaslt_algorithm *)
{
    return false;
}
void ks_cublaslt_name(const ks_cublaslt_algorithm *, char *out, size_t)
{
    *out = '\0';
}
ks_status ks_cublaslt_launch(const ks_spec *, const ks_matmul_shape *, const ks_cublaslt_algorithm *,
                             const ks_cublaslt_job *, cudaStream_t, ks_error *error)
{
    return ks_fail(error, KS_DEVICE, "there is no library here");
}

/* A graph is the launch itself. */
static ks_status capture(ks_lane *lane, ks_plan *plan, int bucket, ks_error *)
{
    plan->captured[fake_lane_index(lane)] |= 1u << bucket;
    return KS_OK;
}

static void forget(ks_lane *lane, ks_plan *plan)
{
    plan->captured[fake_lane_index(lane)] = 0;
}

/* What status words say of values, and what stands at the places: the batch's, as refused.cu has it. */
static ks_status read_words(const ks_lane *lane, const ks_site *site, job_memory *const *jobs, const uint64_t *words,
                            ks_batch *batch, ks_error *error)
{
    const ks_plan *plan = batch->plan;
    for (int i = 0; i < batch->count; i++) {
        ks_bad_value &bad = batch->bad[i];
        bad = ks_bad_of_word(words[i]);
        if (!words[i]) bad.input = 0;
        if (!words[i]) continue;
        const ks_step *step = plan->program ? ks_program_step(plan->program, bad.node) : NULL;
        const ks_spec &spec = step ? step->spec : plan->spec;
        if ((plan->program && !step) || !ks_has_input(&spec, bad.input) ||
            bad.place >= 2 * ks_tensor_count(&spec.in[bad.input]))
            return ks_fail(error, KS_DEVICE, "%s: a status word that is none", plan->kernel_info.kernel);
        const ks_tensor &in = spec.in[bad.input];
        const unsigned char *at = step       ? ks_cuda_chain_input(lane, &plan->spec, site, step, bad.input)
                                  : in.fixed ? (const unsigned char *)in.fixed
                                             : jobs[i]->in.data + in.offset;
        const int64_t place = bad.place % ks_tensor_count(&in);
        bad.value = ks_dtype_size(in.dtype) == 4 ? (int64_t)((const int32_t *)(const void *)at)[place]
                                                 : ((const int64_t *)(const void *)at)[place];
        batch->refused = true;
    }
    return KS_OK;
}

/* The jobs' memory and what a launch finds there; then the launch, and a look at what it has left. */
static ks_status launch_jobs(ks_lane *lane, ks_batch *batch, job_memory *const *jobs, int count, ks_error *error)
{
    const ks_plan *plan = batch->plan;
    const bool mapped = plan->mapped && !plan->moved; /* here a chain's sides are where its steps read and write them */
    const int bucket = mapped ? 1 << ks_bucket(count) : 1;
    guarded workspace(plan->workspace_bytes * (size_t)bucket, front_now);
    guarded model(plan->program ? ks_cuda_chain_arena_bytes(plan->program) : 0, front_now);
    lane->model = model.data;
    guarded counters(plan->counters * sizeof(uint32_t) * (size_t)bucket, front_now);
    guarded control(sizeof(ks_job_table), front_now);
    ks_job_table *job_table = (ks_job_table *)(void *)control.data;
    ks_completion line[KS_COMPLETION_LINE] = {}, &completion = line[0],
                  &last = line[plan->program && plan->program->count > 1];
    uint32_t ticket = 0;
    uint64_t words[KS_BATCH_MAX] = {}, shown[KS_BATCH_MAX] = {};
    memset(counters.data, 0, counters.bytes);
    job_table->turn = {++lane->sequence, (uint32_t)count};
    const void *fixed = mapped ? plan->spec.in[0].fixed : NULL;
    for (int i = 0; i < count; i++)
        job_table->job[i] = {fixed ? (const unsigned char *)fixed : jobs[i]->in.data, jobs[i]->out.data + KS_HEAD_ROOM};
    ks_site site = {};
    site.completion = &completion;
    site.ticket = &ticket;
    site.words = words;
    site.shown = shown;
    site.counters = (uint32_t *)(void *)counters.data;
    site.workspace = workspace.data;
    site.workspace_stride = plan->workspace_bytes;
    site.counters_stride = plan->counters;
    if (mapped)
        site.job_table = job_table;
    else
        site.only = job_table->job[0];
    ks_spec placed;
    const ks_spec *const spec = ks_cuda_place_fixed(&plan->spec, &placed, &site.only);
    const emulate_shared steps(
        {{model.data, model.bytes},
         {workspace.data, workspace.bytes},
         {counters.data, counters.bytes},
         {plan->program ? jobs[0]->out.data + KS_HEAD_ROOM : NULL, plan->program ? plan->out_bytes : 0}});
    const ks_status status = plan->program
                                 ? ks_cuda_chain_record(lane, plan, &plan->spec, &site, error)
                                 : ks_cuda_op_of(plan->spec.op)
                                       ->launch(&lane->device->chip, spec, plan->algorithm, site, bucket, NULL, error);
    if (status) return status;
    const char *kernel = plan->kernel_info.kernel;
    if (!plan->unstamped && (!completion.start_ns || !last.end_ns))
        return ks_fail(error, KS_DEVICE, "%s: no stamps", kernel);
    if (mapped && completion.sequence != job_table->turn.sequence)
        return ks_fail(error, KS_DEVICE, "%s: no flag", kernel);
    if (ticket) return ks_fail(error, KS_DEVICE, "%s: the ticket is left at %u", kernel, ticket);
    if (!emulate_all(counters.data, 0, counters.bytes))
        return ks_fail(error, KS_DEVICE, "%s: counters are left", kernel);
    for (int i = 0; i < count; i++) {
        const unsigned char *out = jobs[i]->out.data + KS_HEAD_ROOM;
        if (!emulate_all(out - KS_HEAD_ROOM, NOISE, KS_HEAD_ROOM) || !emulate_all(out + plan->out_bytes, NOISE, KS_PAD))
            return ks_fail(error, KS_DEVICE, "%s: job %d is written beside its output", kernel, i);
    }
    if (!emulate_all((const unsigned char *)words, 0, sizeof words))
        return ks_fail(error, KS_DEVICE, "%s: status words are left", kernel);
    const uint64_t word = completion.word > last.word ? completion.word : last.word;
    if (batch->trial || !(mapped ? completion.word : word != 0)) return KS_OK;
    return read_words(lane, &site, jobs, mapped ? shown : &word, batch, error);
}

/* The spec of so many rows, whose fixed inputs are found from the arena as ks_cuda_record_on has it; of a chain as graph.cu has it. */
static ks_spec joined_spec(const ks_plan *plan, int rows, const unsigned char *in)
{
    ks_spec spec;
    if (plan->program) {
        ks_cuda_chain_spec_of(plan, rows, &spec);
        return spec;
    }
    ks_plan_spec_of(plan, rows, &spec);
    for (int i = ks_next_input(&spec, 0); i >= 0; i = ks_next_input(&spec, i))
        spec.in[i].offset = (size_t)((uintptr_t)spec.in[i].fixed - (uintptr_t)in);
    return spec;
}

/* What the status word says of the one job of a launch, whose chain's memory is still there. */
static ks_status read_joined(const ks_lane *lane, const ks_site *arena, uint64_t word, ks_batch *batch, int job,
                             ks_error *error)
{
    const ks_plan *plan = batch->plan;
    ks_spec room;
    ks_bad_value &bad = batch->bad[job] = ks_bad_of_word(word);
    const ks_step *step = ks_program_step(plan->program, bad.node);
    if (!step) return ks_fail(error, KS_DEVICE, "%s: a status word that is none", plan->kernel_info.kernel);
    const ks_tensor &in = ks_cuda_chain_step_spec(plan, step, batch->rows[job], &room)->in[bad.input];
    const unsigned char *at = ks_cuda_chain_input(lane, &plan->spec, arena, step, bad.input);
    const int64_t place = bad.place % ks_tensor_count(&in);
    bad.value = ks_dtype_size(in.dtype) == 4 ? (int64_t)((const int32_t *)(const void *)at)[place]
                                             : ((const int64_t *)(const void *)at)[place];
    batch->refused = true;
    return KS_OK;
}

/* Gather, product or steps, scatter, of so many jobs from that one on. The arena's surplus rows hold noise. */
static ks_status launch_jobs_joined(ks_lane *lane, ks_batch *batch, int from, int count, bool *refused, ks_error *error)
{
    const ks_plan *plan = batch->plan;
    const ks_chip *chip = &lane->device->chip;
    int sum = 0;
    for (int i = 0; i < count; i++) sum += batch->rows[from + i];
    const int rows = 1 << ks_bucket(sum), least = rows < 2 ? 2 : rows,
              computed = plan->program ? ks_cuda_chain_rows(plan, sum) : least;
    guarded in((plan->program ? plan->in_bytes : ks_plan_job_in(plan, computed)) + KS_PAD, front_now),
        out(plan->program ? plan->out_bytes : ks_plan_job_out(plan, computed), front_now),
        model(plan->program ? ks_cuda_chain_arena_bytes(plan->program) : 0, front_now);
    guarded workspace(plan->workspace_bytes, front_now), counters(plan->counters * sizeof(uint32_t), front_now);
    guarded control(sizeof(ks_job_table), front_now);
    ks_job_table *job_table = (ks_job_table *)(void *)control.data;
    ks_completion completion = {}, line[KS_COMPLETION_LINE] = {};
    uint32_t ticket = 0;
    memset(counters.data, 0, counters.bytes);
    lane->model = model.data;
    job_table->turn = {++lane->sequence, (uint32_t)count};
    ks_cuda_join_rows(job_table, batch, from, count);
    for (int i = 0; i < count; i++) job_table->job[i] = {batch->slots[from + i]->in, batch->slots[from + i]->out};
    ks_site slots = {}, arena = {};
    slots.job_table = job_table;
    slots.completion = &completion;
    slots.ticket = &ticket;
    arena.only = {in.data, out.data};
    arena.completion = line;
    arena.workspace = workspace.data;
    arena.counters = (uint32_t *)(void *)counters.data;
    arena.behind = true;
    const bool refuses = ks_decides(&plan->spec);
    if (refuses) memset(in.data, 0x7F, in.bytes); /* noise that is no index of anything */
    const ks_spec spec = joined_spec(plan, computed, in.data);
    const emulate_shared steps({{in.data, in.bytes},
                                {out.data, out.bytes},
                                {model.data, model.bytes},
                                {workspace.data, workspace.bytes},
                                {counters.data, counters.bytes}});
    for (int i = ks_next_input(&spec, -1); i >= 0; i = ks_next_input(&spec, i)) {
        if (spec.in[i].fixed) continue;
        ks_join_side side = ks_cuda_join_in(&spec, i, in.data, rows);
        side.filled = refuses ? computed : 0;
        if (ks_cuda_join_copy(&slots, &side, false, NULL))
            return ks_fail(error, KS_DEVICE, "the gathering launch failed");
    }
    const ks_status status = plan->program
                                 ? ks_cuda_chain_record(lane, plan, &spec, &arena, error)
                                 : ks_cuda_op_of(spec.op)->launch(chip, &spec, plan->algorithm, arena, 1, NULL, error);
    if (status) return status;
    for (int i = 0; i < spec.outputs; i++) {
        ks_join_side to = ks_cuda_join_out(&spec, i, out.data, rows);
        if (refuses && to.last) to.refusals = line;
        if (ks_cuda_join_copy(&slots, &to, false, NULL))
            return ks_fail(error, KS_DEVICE, "the scattering launch failed");
    }
    if (!completion.start_ns || !completion.end_ns || completion.sequence != job_table->turn.sequence || ticket)
        return ks_fail(error, KS_DEVICE, "%s: no stamps or no flag", plan->kernel_info.kernel);
    if (!emulate_all(counters.data, 0, counters.bytes))
        return ks_fail(error, KS_DEVICE, "%s: counters are left", plan->kernel_info.kernel);
    const uint64_t word = line[0].word > line[1].word ? line[0].word : line[1].word;
    if ((word != 0) != (completion.word != 0))
        return ks_fail(error, KS_DEVICE, "%s: a refusal is not shown", plan->kernel_info.kernel);
    *refused = word != 0;
    return word && count == 1 ? read_joined(lane, &arena, word, batch, from, error) : KS_OK;
}

/* Where a value is refused, each job runs by itself, as refused.cu has it. */
static ks_status launch_joined(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    bool refused = false, ignored;
    for (int i = 0; i < batch->count; i++) batch->bad[i].input = 0;
    lane->batch = batch;
    ks_status status = launch_jobs_joined(lane, batch, 0, batch->count, &refused, error);
    for (int i = 0; !status && refused && batch->count > 1 && i < batch->count; i++)
        status = launch_jobs_joined(lane, batch, i, 1, &ignored, error);
    lane->batch = NULL;
    if (!status && batch->plan->program) ks_cuda_chain_times(lane, batch);
    return status;
}

static ks_status launch(ks_lane *outer, ks_batch *batch, ks_error *error)
{
    const ks_plan *plan = batch->plan;
    ks_lane *lane = cuda_lane(outer);
    job_memory *jobs[KS_BATCH_MAX];
    const bool captured = plan->captured[fake_lane_index(outer)] >> ks_batch_bucket(batch) & 1;
    batch->graph = captured ? KS_GRAPH_HIT : KS_GRAPH_MISS;
    batch->kernel_ns = 1;
    front_now = !front_now;
    if (plan->join_rows) return launch_joined(lane, batch, error);
    if (batch->trial) {
        job_memory noise(plan, front_now);
        jobs[0] = &noise;
        return launch_jobs(lane, batch, jobs, 1, error);
    }
    for (int i = 0; i < batch->count; i++) {
        jobs[i] = new job_memory(plan, front_now);
        memcpy(jobs[i]->in.data, batch->slots[i]->in, plan->in_bytes);
    }
    lane->batch = batch;
    const ks_status status = launch_jobs(lane, batch, jobs, batch->count, error);
    lane->batch = NULL;
    if (!status && plan->program) ks_cuda_chain_times(lane, batch);
    batch->compute_ns = INT64_MAX;
    for (int i = 0; i < batch->count; i++) {
        memcpy(batch->slots[i]->out, jobs[i]->out.data + KS_HEAD_ROOM, plan->out_bytes);
        delete jobs[i];
    }
    return status;
}

static ks_poll poll_lane(ks_lane *, ks_error *)
{
    return KS_DONE;
}

static void revision(const ks_device *device, char *out, size_t cap)
{
    ks_cuda_tuning.revision(cuda_device(device), out, cap);
}

static int list(ks_device *device, const ks_plan *plan, ks_algorithm *out, int most)
{
    return ks_cuda_tuning.list(cuda_device(device), plan, out, most);
}

static ks_status adopt(ks_device *device, ks_plan *plan, const ks_algorithm *algorithm, ks_error *error)
{
    return ks_cuda_tuning.adopt(cuda_device(device), plan, algorithm, error);
}

static const ks_tuning tuning = {.revision = revision, .list = list, .adopt = adopt};

/* Maps are fused whether or not they are on a GPU. */
static const ks_chain_means emulated_means = {
    .alignment = KS_ALIGNMENT, .maps = KS_CUDA_MAPS_DTYPES, .residuals = true};

static const ks_backend *emulated() /* slots are the CPU's */
{
    fake_overrides overrides = {};
    ks_backend *calls = &overrides.calls;
    calls->name = "emulated";
    calls->open = open_device;
    calls->lane_open = lane_open;
    calls->prepare = prepare;
    calls->capture = capture;
    calls->forget = forget;
    calls->launch = launch;
    calls->poll = poll_lane;
    calls->tuning = &tuning;
    calls->chains = &emulated_means;
    overrides.device_bytes = sizeof(ks_device);
    overrides.lane_bytes = sizeof(ks_lane);
    return fake_backend(ks_backend_cpu, &overrides);
}

extern "C" const ks_backend *const ks_backend_cuda;
const ks_backend *const ks_backend_cuda = emulated();
