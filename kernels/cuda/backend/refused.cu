/* Values that decide and are out of bounds: what the kernels left in status words goes to the batch.
 *
 * Rare, so it may wait for the stream: the value that stands at the place is fetched from where the kernels read it, which is
 * not always memory that the host sees, or that no client has written to since. */
#include "cuda/backend/chain.h"
#include "cuda/backend/internal.h"

/* Where the kernels of job i read an input of the plan's. */
static const unsigned char *seen_at(const ks_lane *lane, int i, int input)
{
    const ks_batch *batch = lane->batch;
    const ks_slot *slot = batch->slots[i];
    const ks_tensor *in = &batch->plan->spec.in[input];
    if (in->fixed) return (const unsigned char *)in->fixed;
    if (lane->path == KS_PATH_DEVICE_BUFFER || lane->path == KS_PATH_MAPPED)
        return (const unsigned char *)slot->in_device + (slot->places ? slot->places->in[input] : in->offset);
    return ks_cuda_place_of(lane, batch->plan).in + in->offset;
}

/* Where a chain's step reads one: values that decide stay in the arena to the program's end. */
static const unsigned char *step_seen_at(ks_lane *lane, int i, const ks_step *step, int input)
{
    const ks_plan *plan = lane->batch->plan;
    const ks_slot *slot = lane->batch->slots[i];
    const ks_step_place *at = &step->in[input];
    if (at->kind == KS_PLACE_INPUT) return seen_at(lane, i, at->which) + at->offset;
    ks_site site = ks_cuda_site_of(lane, plan, lane->path);
    if (lane->path == KS_PATH_DEVICE_BUFFER) site.only.out = (unsigned char *)slot->out_device;
    return ks_cuda_chain_input(lane, &plan->spec, &site, step, input);
}

/* spec: that of the values, the plan's or its step's. */
static ks_status read_value(ks_lane *lane, int i, const ks_spec *spec, const ks_step *step, ks_error *error)
{
    ks_bad_value *bad = &lane->batch->bad[i];
    const ks_dtype dtype = spec->in[bad->input].dtype;
    const size_t size = ks_dtype_size(dtype);
    const int64_t place = bad->place % ks_tensor_count(&spec->in[bad->input]);
    const unsigned char *at = step ? step_seen_at(lane, i, step, bad->input) : seen_at(lane, i, bad->input);
    int64_t value = 0;
    KS_TRY(lane->device, error,
           cudaMemcpyAsync(&value, at + (size_t)place * size, size, cudaMemcpyDefault, lane->stream));
    KS_TRY(lane->device, error, cudaStreamSynchronize(lane->stream));
    bad->value = dtype == KS_INT32 ? (int64_t)(int32_t)value : value;
    return KS_OK;
}

/* A word that names no place of the spec's is none of a kernel's. */
static ks_status take(ks_lane *lane, int i, uint64_t word, ks_error *error)
{
    ks_spec room;
    ks_batch *batch = lane->batch;
    const ks_bad_value bad = ks_bad_of_word(word);
    const ks_program *program = batch->plan->program;
    const ks_step *step = program ? ks_program_step(program, bad.node) : NULL;
    const ks_spec *spec = step ? ks_cuda_chain_step_spec(batch->plan, step, batch->rows[i], &room) : &batch->plan->spec;
    batch->bad[i] = bad;
    if ((program && !step) || bad.input >= KS_INPUTS_MAX || !ks_has_input(spec, bad.input) ||
        bad.place >= 2 * ks_tensor_count(&spec->in[bad.input]))
        return ks_fail(error, KS_DEVICE, "%s: the kernels left a status word that is none", spec->op->name);
    batch->refused = true;
    return read_value(lane, i, spec, step, error);
}

void ks_cuda_clear_word(ks_lane *lane)
{
    lane->shared->completion.word = 0; /* of mapped slots, whose words are the lane's */
    if (lane->path == KS_PATH_DEVICE_BUFFER || lane->path == KS_PATH_TRIAL)
        return; /* one is new each time, one reads none */
    ks_completion *line = (ks_completion *)(void *)ks_cuda_place_of(lane, lane->batch->plan).completion;
    for (int i = 0; i < KS_COMPLETION_LINE; i++) cudaMemsetAsync(&line[i].word, 0, sizeof line[i].word, lane->stream);
}

ks_status ks_cuda_read_word(ks_lane *lane, int i, const ks_completion *completion, ks_error *error)
{
    if (!ks_decides(&lane->batch->plan->spec)) return KS_OK;
    lane->batch->bad[i].input = 0;
    const uint64_t first = completion[0].word, later = completion[1].word, word = first > later ? first : later;
    if (word == 0) return KS_OK;
    ks_cuda_clear_word(lane);
    return take(lane, i, word, error); /* waits, so that the arena's memory may go */
}

/* The job's rows once more, alone. */
static ks_status run_alone(ks_lane *lane, int i, ks_error *error)
{
    ks_batch *batch = lane->batch;
    ks_cuda_write_table(lane, batch, i, 1);
    const ks_status status = ks_cuda_record(lane, batch->plan, KS_PATH_JOINED, batch->rows[i], {}, error);
    if (status) return status;
    KS_TRY(lane->device, error, cudaStreamSynchronize(lane->stream));
    return KS_OK;
}

/* Some job of a joined launch, or the one whose sides are moved, has values that are refused, and of others that have no word is left: so each job runs by itself, one behind
 * the other. */
static ks_status read_joined(ks_lane *lane, ks_error *error)
{
    ks_completion *own = (ks_completion *)(void *)ks_cuda_place_of(lane, lane->batch->plan).completion;
    ks_completion line[KS_COMPLETION_LINE];
    for (int i = 0; i < lane->batch->count; i++) {
        ks_status status = KS_OK;
        if (lane->batch->count > 1) {
            ks_cuda_clear_word(lane);
            status = run_alone(lane, i, error);
        }
        if (status) return status;
        KS_TRY(lane->device, error, cudaMemcpyAsync(line, own, sizeof line, cudaMemcpyDeviceToHost, lane->stream));
        KS_TRY(lane->device, error, cudaStreamSynchronize(lane->stream));
        status = ks_cuda_read_word(lane, i, line, error);
        if (status) return status;
    }
    lane->shared->completion.word = 0; /* which these launches have raised again */
    return KS_OK;
}

ks_status ks_cuda_read_words(ks_lane *lane, ks_error *error)
{
    ks_lane_shared *shared = lane->shared;
    if (!ks_decides(&lane->batch->plan->spec) || !shared->completion.word) return KS_OK;
    shared->completion.word = 0;
    if (lane->path == KS_PATH_JOINED || lane->path == KS_PATH_MOVED) return read_joined(lane, error);
    for (int i = 0; i < lane->batch->count; i++) {
        lane->batch->bad[i].input = 0;
        if (shared->words[i] == 0) continue;
        const ks_status status = take(lane, i, shared->words[i], error);
        if (status) return status;
    }
    return KS_OK;
}
