/* A chain's steps on one stream, one behind the other: capture makes one graph of them, with the copies in front and behind.
 *
 * Memory   values between steps lie in the lane's model arena. Its workspace is what the hungriest step needs: steps use it, and the
 *          counters, in turn: the stream orders them, and each launch leaves its counters at zero.
 * Stamps   the first step's start and the last one's end: the steps behind the first have a completion of their own, next to the launch's.
 *          Where one of the two is a copy or a library's, there are none, and all of a chain's time is compute. Where the times of steps
 *          are asked for, events stand around them: such a launch goes without a graph.
 * Threads  the lane's. */
#include "cuda/backend/chain.h"

const ks_chain_means ks_cuda_chain_means = {
    .alignment = KS_ALIGNMENT, .maps = KS_CUDA_FUSES_MAPS ? KS_CUDA_MAPS_DTYPES : 0, .residuals = true};

size_t ks_cuda_chain_arena_bytes(const ks_program *program)
{
    return program->arena_bytes ? ks_align(program->arena_bytes + KS_PAD) : 0;
}

/* Whether all of these inputs, a bit each, are constants. */
static bool are_fixed(const ks_step *step, unsigned inputs)
{
    for (int i = 0; inputs >> i; i++)
        if (inputs >> i & 1 && step->in[i].kind != KS_PLACE_FIXED) return false;
    return true;
}

static ks_status plan_step(const ks_chip *chip, ks_step *step, int join_rows, ks_cuda_plan *whole, ks_error *error)
{
    const ks_cuda_op *op = ks_cuda_op_of(step->spec.op);
    ks_cuda_plan chosen;
    memset(&chosen, 0, sizeof chosen);
    if (!op) return ks_fail(error, KS_WORK, "%s has no kernels", step->spec.op->name);
    step->all_rows = false;
    const ks_status status = join_rows ? ks_cuda_chain_join_step(chip, step, join_rows, &chosen, error)
                                       : op->plan(chip, &step->spec, &chosen, error);
    if (status) return status;
    step->workspace_bytes = ks_align(chosen.workspace_bytes);
    step->unstamped = chosen.unstamped;
    step->waits = chip->launches_early && chosen.early && are_fixed(step, chosen.early_fixed);
    memcpy(step->kernel, chosen.kernel_info.kernel, sizeof step->kernel);
    memcpy(step->algorithm, chosen.algorithm, sizeof step->algorithm);
    /* Where a library's kernels cannot be launched, our own need as much as there is. */
    const size_t need = chosen.unstamped ? chip->workspace_bytes : step->workspace_bytes;
    if (need > whole->workspace_bytes) whole->workspace_bytes = need;
    if (chosen.counters > whole->counters) whole->counters = chosen.counters;
    return KS_OK;
}

static bool is_stamped(const ks_step *step)
{
    return step->spec.op && !step->unstamped;
}

ks_status ks_cuda_chain_plan(ks_device *device, ks_plan *plan, ks_cuda_plan *out, ks_error *error)
{
    ks_program *program = plan->program;
    const size_t arena = ks_cuda_chain_arena_bytes(program),
                 fits = __atomic_load_n(&device->model_fits, __ATOMIC_ACQUIRE);
    memset(out, 0, sizeof *out);
    if (arena > fits)
        return ks_fail(error, KS_WORK,
                       "%s: the values between its nodes take %zu bytes, a lane has %zu for them (--model-arena)",
                       plan->spec.op->name, arena, fits);
    if (plan->join_rows && !ks_cuda_chain_has_products(program))
        return ks_fail(error, KS_WORK, "%s: it has no product of rows", plan->spec.op->name);
    for (int i = 0; i < program->count; i++) {
        if (!program->step[i].spec.op) {
            program->step[i].waits = false;
            snprintf(program->step[i].kernel, sizeof program->step[i].kernel, "memcpy");
            continue;
        }
        const ks_status status = plan_step(&device->chip, &program->step[i], plan->join_rows, out, error);
        if (status) return status;
    }
    out->batch_max = 1;
    out->unstamped = !is_stamped(&program->step[0]) || !is_stamped(&program->step[program->count - 1]);
    out->kernel_info.grid = 0;
    snprintf(out->kernel_info.kernel, sizeof out->kernel_info.kernel, "chain<%d steps>", program->count);
    return KS_OK;
}

/* The tensors of a launch. */
typedef struct chain_memory {
    const ks_plan *plan;
    const ks_spec *spec;
    const ks_site *site;
    unsigned char *arena;
} chain_memory;

static unsigned char *output_at(const chain_memory *m, int output)
{
    return m->site->only.out + (m->spec->outputs == 1 ? 0 : m->spec->out[output].offset);
}

static const unsigned char *input_at(const chain_memory *m, int input)
{
    const ks_tensor *in = &m->spec->in[input];
    if (in->fixed) return (const unsigned char *)in->fixed;
    return m->site->only.in + (m->spec->given == 1 ? 0 : in->offset);
}

static const unsigned char *read_at(const chain_memory *m, const ks_step_place *at)
{
    switch (at->kind) {
    case KS_PLACE_INPUT:
        return input_at(m, at->which) + at->offset;
    case KS_PLACE_OUTPUT:
        return output_at(m, at->which) + at->offset;
    case KS_PLACE_FIXED:
        return (const unsigned char *)at->fixed;
    default:
        return m->arena + at->offset;
    }
}

static unsigned char *write_at(const chain_memory *m, const ks_step_place *at)
{
    return (at->kind == KS_PLACE_OUTPUT ? output_at(m, at->which) : m->arena) + at->offset;
}

/* Of a family's launch: its inputs are the jobs' rows, all of them. */
static int rows_of(const chain_memory *m)
{
    return m->plan->join_rows ? (int)m->spec->in[ks_next_input(m->spec, -1)].dims[0] : 0;
}

/* The step's spec as a launch takes it: each tensor at an offset from its side, which may wrap; one that is alone there is the side.
 * early: the launch begins while one in front may run; then it is given its constants, for which it need not wait. */
static void place_step(const chain_memory *m, const ks_step *step, bool early, ks_spec *placed, ks_job_sides *sides)
{
    ks_spec room;
    ks_spec_copy(placed, ks_cuda_chain_step_spec(m->plan, step, rows_of(m), &room));
    const int first = ks_next_input(placed, -1);
    sides->in = read_at(m, &step->in[first]);
    sides->out = write_at(m, &step->out[0]);
    for (int i = first; i >= 0; i = ks_next_input(placed, i)) {
        if (!early || step->in[i].kind != KS_PLACE_FIXED) placed->in[i].fixed = NULL;
        placed->in[i].offset = (size_t)((uintptr_t)read_at(m, &step->in[i]) - (uintptr_t)sides->in);
    }
    for (int i = 0; i < placed->outputs; i++)
        placed->out[i].offset = (size_t)((uintptr_t)write_at(m, &step->out[i]) - (uintptr_t)sides->out);
}

const unsigned char *ks_cuda_chain_input(const ks_lane *lane, const ks_spec *spec, const ks_site *site,
                                         const ks_step *step, int input)
{
    const chain_memory m = {NULL, spec, site, lane->model};
    return read_at(&m, &step->in[input]);
}

static bool is_timed(const ks_lane *lane)
{
    return lane->batch && lane->batch->step_ns;
}

/* Whether the step's launch begins while that of the step in front ends: both can. Around a copy, a library's kernels, several launches and
 * kernels that do not wait the edges are whole, and events between steps order them whole. */
static bool begins_early(const ks_lane *lane, const ks_program *program, int number)
{
    return number > 0 && program->step[number].waits && program->step[number - 1].waits && !is_timed(lane);
}

/* Whether the launch behind the step's begins while that one ends: the next step's, or the one behind the chain. */
static bool lets_next(const ks_lane *lane, const chain_memory *m, const ks_program *program, int number)
{
    const bool last = number + 1 == program->count;
    return last ? m->site->steps & KS_STEP_LETS : begins_early(lane, program, number + 1);
}

bool ks_cuda_chain_lets(const ks_lane *lane, const ks_program *program)
{
    return program->step[program->count - 1].waits && !is_timed(lane);
}

static ks_status record_step(ks_lane *lane, const chain_memory *m, const ks_program *program, int number,
                             ks_error *error)
{
    const ks_step *step = &program->step[number];
    const ks_cuda_op *op = ks_cuda_op_of(step->spec.op);
    const ks_chip *chip = &lane->device->chip;
    ks_site site = *m->site;
    ks_spec placed;
    site.behind = site.behind && number == 0;
    site.steps = (begins_early(lane, program, number) ? KS_STEP_WAITS : 0) |
                 (lets_next(lane, m, program, number) ? KS_STEP_LETS : 0);
    place_step(m, step, site.behind || site.steps & KS_STEP_WAITS, &placed, &site.only);
    site.workspace_stride = step->workspace_bytes;
    site.completion += number > 0;
    site.node = (uint32_t)step->node[0];
    const ks_status status = op->launch(chip, &placed, step->algorithm, site, 1, lane->stream, error);
    ks_cuda_plan own;
    if (!status || !step->unstamped || op->plan(chip, &placed, &own, error)) return status;
    return op->launch(chip, &placed, own.algorithm, site, 1, lane->stream, error);
}

/* One more than steps: each ends where the next one begins. */
static ks_status make_events(ks_lane *lane, int events, ks_error *error)
{
    if (events <= lane->step_events) return KS_OK; /* of a longer chain before */
    cudaEvent_t *grown = (cudaEvent_t *)realloc(lane->step_event, (size_t)events * sizeof *grown);
    if (!grown) return ks_fail(error, KS_MEMORY, "no memory for the events of %d steps", events - 1);
    lane->step_event = grown;
    while (lane->step_events < events) {
        KS_TRY_SOFT(error, cudaEventCreate(&grown[lane->step_events]));
        lane->step_events++;
    }
    return KS_OK;
}

static ks_status mark(ks_lane *lane, int event, ks_error *error)
{
    if (is_timed(lane)) KS_TRY_SOFT(error, cudaEventRecord(lane->step_event[event], lane->stream));
    return KS_OK;
}

void ks_cuda_chain_times(const ks_lane *lane, ks_batch *batch)
{
    for (int i = 0; batch->step_ns && i < batch->plan->program->count; i++) {
        float ms = 0;
        const cudaError_t code = cudaEventElapsedTime(&ms, lane->step_event[i], lane->step_event[i + 1]);
        batch->step_ns[i] = code == cudaSuccess ? (int64_t)((double)ms * 1e6) : -1;
        if (code != cudaSuccess) cudaGetLastError();
    }
}

static ks_status record_copy(ks_lane *lane, const chain_memory *m, const ks_step *step, ks_error *error)
{
    KS_TRY_SOFT(error, cudaMemcpyAsync(write_at(m, &step->out[0]), read_at(m, &step->in[0]),
                                       step->spec.in[0].size_bytes, cudaMemcpyDeviceToDevice, lane->stream));
    return KS_OK;
}

ks_status ks_cuda_chain_record(ks_lane *lane, const ks_plan *plan, const ks_spec *spec, const ks_site *site,
                               ks_error *error)
{
    const ks_program *program = plan->program;
    const chain_memory m = {plan, spec, site, lane->model};
    ks_status status = is_timed(lane) ? make_events(lane, program->count + 1, error) : KS_OK;
    if (!status) status = mark(lane, 0, error);
    for (int i = 0; i < program->count && !status; i++) {
        const ks_step *step = &program->step[i];
        status = step->spec.op ? record_step(lane, &m, program, i, error) : record_copy(lane, &m, step, error);
        if (!status) status = mark(lane, i + 1, error);
    }
    return status;
}
