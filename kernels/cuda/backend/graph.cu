/* What is enqueued for a batch, and the graphs made of it: one graph per plan, lane and bucket.
 *
 * ks_cuda_record() is the one place that enqueues copies and kernels; capture is ks_cuda_record() with the tape on, a plan without a
 * graph calls it directly. A graph of mapped slots needs nothing per launch: its kernels read the lane's job table. A graph
 * with copies has its two copy nodes re-pointed to the slot, where that is another one than last time. */
#include "cuda/backend/chain.h"
#include "cuda/backend/internal.h"
#include "cuda/backend/join.h"
#include "cuda/common/nvtx.h"

ks_place ks_cuda_place_of(const ks_lane *lane, const ks_plan *plan)
{
    unsigned char *base = plan->large ? lane->large : lane->arena;
    unsigned char *out = base + KS_ALIGNMENT;
    return (ks_place){
        .completion = out - KS_COMPLETION_BYTES, .out = out, .in = out + ks_align(plan->out_bytes) + KS_PAD};
}

ks_path ks_cuda_path_on_slots(const ks_plan *plan)
{
    return plan->join_rows ? KS_PATH_JOINED : plan->moved ? KS_PATH_MOVED : KS_PATH_MAPPED;
}

ks_site ks_cuda_site_of(ks_lane *lane, const ks_plan *plan, ks_path path)
{
    const ks_place place = ks_cuda_place_of(lane, plan);
    const bool mapped = path == KS_PATH_MAPPED || path == KS_PATH_JOINED || path == KS_PATH_MOVED;
    return (ks_site){
        .job_table = mapped ? &lane->shared_device->job_table : NULL,
        .only = {.in = place.in, .out = place.out},
        .completion = mapped ? &lane->shared_device->completion : (ks_completion *)(void *)place.completion,
        .steps = 0,
        .node = 0,
        .ticket = (uint32_t *)lane->memory,
        .words = lane->words,
        .shown = lane->shared_device->words,
        .counters = lane->counters,
        .workspace = lane->workspace,
        .workspace_stride = plan->workspace_bytes,
        .counters_stride = plan->counters,
        .behind = false,
    };
}

/* Where a library's kernels cannot be launched, our own do the work: the site's workspace and counters are a lane's, and
 * hold whatever one job needs. */
static ks_status record_placed(ks_lane *lane, const ks_plan *plan, const ks_spec *spec, const ks_site *site, int bucket,
                               ks_error *error)
{
    const ks_cuda_op *op = ks_cuda_op_of(spec->op);
    const ks_chip *chip = &lane->device->chip;
    const ks_status status = op->launch(chip, spec, plan->algorithm, *site, bucket, lane->stream, error);
    ks_cuda_plan own;
    if (!status || !plan->unstamped || op->plan(chip, spec, &own, error)) return status;
    return op->launch(chip, spec, own.algorithm, *site, bucket, lane->stream, error);
}

ks_status ks_cuda_record_on(ks_lane *lane, const ks_plan *plan, const ks_spec *spec, const ks_site *site, int bucket,
                            ks_error *error)
{
    ks_spec placed;
    ks_site at = *site;
    if (plan->program) return ks_cuda_chain_record(lane, plan, spec, site, error);
    return record_placed(lane, plan, ks_cuda_place_fixed(spec, &placed, &at.only), &at, bucket, error);
}

/* The plan's spec; of a family's plan with so many rows. */
static const ks_spec *spec_of(const ks_plan *plan, int rows, ks_spec *room)
{
    if (!plan->join_rows) return &plan->spec;
    ks_plan_spec_of(plan, rows, room);
    return room;
}

/* A joined product has two rows at least: the arena has room for them, whatever the second one holds. */
static const ks_spec *work_of(const ks_plan *plan, int rows, ks_spec *room)
{
    if (plan->join_rows && plan->program) {
        ks_cuda_chain_spec_of(plan, rows, room);
        return room;
    }
    return spec_of(plan, rows < 2 ? 2 : rows, room);
}

ks_status ks_cuda_record_kernels(ks_lane *lane, const ks_plan *plan, ks_path path, int bucket, ks_error *error)
{
    ks_spec room;
    const ks_site site = ks_cuda_site_of(lane, plan, path);
    const ks_spec *spec = work_of(plan, bucket, &room);
    return ks_cuda_record_on(lane, plan, spec, &site, plan->join_rows ? 1 : bucket, error);
}

/* What is copied, or by CTAs that wait for each other, has ended before another launch begins. */
static bool ends_in_product(const ks_program *program)
{
    const ks_step *last = program ? &program->step[program->count - 1] : NULL;
    return !last || (last->spec.op && ks_step_joins(last));
}

static ks_status record_joined(ks_lane *lane, const ks_plan *plan, int bucket, ks_error *error)
{
    ks_spec room;
    const bool early = lane->device->chip.launches_early && ends_in_product(plan->program),
               refuses = ks_decides(&plan->spec);
    const int rows = bucket < plan->join_rows ? bucket : plan->join_rows;
    const ks_place place = ks_cuda_place_of(lane, plan);
    const ks_site slots = ks_cuda_site_of(lane, plan, KS_PATH_JOINED);
    ks_site arena = ks_cuda_site_of(lane, plan, KS_PATH_COPIES);
    const ks_spec *work = work_of(plan, rows, &room);
    arena.behind = true;
    for (int i = ks_next_input(work, -1); i >= 0; i = ks_next_input(work, i)) {
        if (work->in[i].fixed) continue;
        ks_join_side in = ks_cuda_join_in(work, i, place.in, rows);
        if (refuses) in.filled = (int)work->in[i].dims[0];
        KS_TRY_SOFT(error, ks_cuda_join_copy(&slots, &in, early, lane->stream));
    }
    const ks_status status = ks_cuda_record_on(lane, plan, work, &arena, 1, error);
    if (status) return status;
    for (int i = 0; i < work->outputs; i++) {
        ks_join_side out = ks_cuda_join_out(work, i, place.out, rows);
        if (refuses && out.last) out.refusals = (const ks_completion *)(const void *)place.completion;
        KS_TRY_SOFT(error, ks_cuda_join_copy(&slots, &out, early, lane->stream));
    }
    return KS_OK;
}

/* One job of a chain: kernels copy its sides. */
static ks_status record_moved(ks_lane *lane, const ks_plan *plan, ks_error *error)
{
    const bool early = ks_cuda_chain_lets(lane, plan->program);
    const ks_place place = ks_cuda_place_of(lane, plan);
    const ks_site slot = ks_cuda_site_of(lane, plan, KS_PATH_MOVED);
    ks_site arena = ks_cuda_site_of(lane, plan, KS_PATH_COPIES);
    arena.steps = early ? KS_STEP_LETS : 0;
    const ks_join_side in = ks_cuda_join_whole(true, place.in, plan->in_bytes);
    ks_join_side out = ks_cuda_join_whole(false, place.out, plan->out_bytes);
    out.steps = (const ks_completion *)(const void *)place.completion;
    out.stamps = lane->shared_device->device_buffer_completion;
    if (ks_decides(&plan->spec)) out.refusals = out.steps;
    if (plan->in_bytes) KS_TRY_SOFT(error, ks_cuda_join_copy(&slot, &in, false, lane->stream));
    const ks_status status = ks_cuda_record_on(lane, plan, &plan->spec, &arena, 1, error);
    if (status) return status;
    KS_TRY_SOFT(error, ks_cuda_join_copy(&slot, &out, early, lane->stream));
    return KS_OK;
}

/* host: where the job's sides lie there (with room for the completion in front of out); unused on mapped slots. */
ks_status ks_cuda_record(ks_lane *lane, const ks_plan *plan, ks_path path, int bucket, ks_job_sides host,
                         ks_error *error)
{
    if (path == KS_PATH_MAPPED) return ks_cuda_record_kernels(lane, plan, path, bucket, error);
    if (path == KS_PATH_JOINED) return record_joined(lane, plan, bucket, error);
    if (path == KS_PATH_MOVED) return record_moved(lane, plan, error);
    const ks_place place = ks_cuda_place_of(lane, plan);
    const size_t in_bytes = ks_plan_job_in(plan, bucket), out_bytes = ks_plan_job_out(plan, bucket);
    if (in_bytes)
        KS_TRY_SOFT(error, cudaMemcpyAsync(place.in, host.in, in_bytes, cudaMemcpyHostToDevice, lane->stream));
    const ks_status status = ks_cuda_record_kernels(lane, plan, path, bucket, error);
    if (status) return status;
    KS_TRY_SOFT(error, cudaMemcpyAsync(host.out - KS_COMPLETION_BYTES, place.completion,
                                       KS_COMPLETION_BYTES + out_bytes, cudaMemcpyDeviceToHost, lane->stream));
    return KS_OK;
}

/* Where values decide, the last row stands again in those that the launch does beside the job's. */
static ks_status fill_rows(ks_lane *lane, const ks_plan *plan, const ks_spec *work, int rows, ks_error *error)
{
    const ks_place place = ks_cuda_place_of(lane, plan);
    if (!plan->join_rows || !ks_decides(&plan->spec)) return KS_OK;
    for (int i = ks_next_input(work, -1); i >= 0; i = ks_next_input(work, i)) {
        const size_t bytes = work->in[i].size_bytes / (size_t)work->in[i].dims[0];
        unsigned char *last = place.in + work->in[i].offset + bytes * (size_t)(rows - 1);
        for (int row = rows; row < (int)work->in[i].dims[0]; row++)
            KS_TRY_SOFT(error, cudaMemcpyAsync(last + bytes * (size_t)(row - rows + 1), last, bytes,
                                               cudaMemcpyDeviceToDevice, lane->stream));
    }
    return KS_OK;
}

/* The same for one job with windows, or of a family whose launch has its tensors elsewhere: each from and to where it lies. The
 * completion comes last, so that what it shows is true of the output too. */
ks_status ks_cuda_record_windows(ks_lane *lane, const ks_plan *plan, const ks_slot *slot, int rows, ks_error *error)
{
    ks_spec room;
    const ks_place place = ks_cuda_place_of(lane, plan);
    ks_spec work_room;
    const ks_spec *spec = spec_of(plan, rows, &room), *work = work_of(plan, rows, &work_room);
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        const ks_tensor *in = &spec->in[i];
        const void *from = slot->in_window[i] ? slot->in_window[i] : slot->in + in->offset;
        if (in->size_bytes && !in->fixed)
            KS_TRY_SOFT(error, cudaMemcpyAsync(place.in + work->in[i].offset, from, in->size_bytes, cudaMemcpyDefault,
                                               lane->stream));
    }
    ks_status status = fill_rows(lane, plan, work, rows, error);
    if (!status) status = ks_cuda_record_kernels(lane, plan, KS_PATH_COPIES, plan->join_rows ? rows : 1, error);
    if (status) return status;
    for (int i = 0; i < spec->outputs; i++) {
        const ks_tensor *out = &spec->out[i];
        void *to = slot->out_window[i] ? slot->out_window[i] : slot->out + out->offset;
        if (out->size_bytes)
            KS_TRY_SOFT(error, cudaMemcpyAsync(to, place.out + work->out[i].offset, out->size_bytes, cudaMemcpyDefault,
                                               lane->stream));
    }
    KS_TRY_SOFT(error, cudaMemcpyAsync(slot->out - KS_COMPLETION_BYTES, place.completion, KS_COMPLETION_BYTES,
                                       cudaMemcpyDeviceToHost, lane->stream));
    return KS_OK;
}

void ks_cuda_write_table(ks_lane *lane, const ks_batch *batch, int first, int count)
{
    ks_job_table *job_table = &lane->shared->job_table;
    job_table->turn = {lane->sequence, (uint32_t)count};
    if (batch->plan->join_rows) ks_cuda_join_rows(job_table, batch, first, count);
    if (batch->plan->moved) job_table->first_row[1] = 1; /* a side is a row */
    /* On mapped slots the one input there is. */
    const void *fixed = batch->plan->program ? NULL : batch->plan->spec.in[0].fixed;
    for (int i = 0; i < count; i++)
        job_table->job[i] =
            (ks_job_sides){.in = (const unsigned char *)(fixed ? fixed : batch->slots[first + i]->in_device),
                           .out = (unsigned char *)batch->slots[first + i]->out_device};
}

/* The copy nodes are known by their device side: an op may have copies of its own. */
static ks_status look_for_copies(ks_cuda_graph *made, cudaGraphNode_t *nodes, size_t count, const ks_place *place,
                                 ks_error *error)
{
    KS_TRY_SOFT(error, cudaGraphGetNodes(made->graph, nodes, &count));
    for (size_t i = 0; i < count; i++) {
        enum cudaGraphNodeType type;
        struct cudaMemcpy3DParms copy;
        memset(&copy, 0, sizeof copy);
        KS_TRY_SOFT(error, cudaGraphNodeGetType(nodes[i], &type));
        if (type != cudaGraphNodeTypeMemcpy) continue;
        KS_TRY_SOFT(error, cudaGraphMemcpyNodeGetParams(nodes[i], &copy));
        if (copy.dstPtr.ptr == place->in) made->in_node = nodes[i];
        if (copy.srcPtr.ptr == place->completion) made->out_node = nodes[i];
    }
    return KS_OK;
}

/* Of a chain each step has one to three kernels. */
static ks_status graph_find_copies(ks_cuda_graph *made, const ks_place *place, ks_error *error)
{
    size_t count = 0;
    KS_TRY_SOFT(error, cudaGraphGetNodes(made->graph, NULL, &count));
    cudaGraphNode_t *nodes = (cudaGraphNode_t *)malloc(count * sizeof *nodes + 1);
    if (!nodes) return ks_fail(error, KS_MEMORY, "no memory to look through %zu nodes of a graph", count);
    const ks_status status = look_for_copies(made, nodes, count, place, error);
    free(nodes);
    return status;
}

void ks_cuda_graph_drop(ks_cuda_graph *graph)
{
    if (graph->exec) cudaGraphExecDestroy(graph->exec);
    if (graph->graph) cudaGraphDestroy(graph->graph);
    memset(graph, 0, sizeof *graph);
}

/* Tape on, record, tape off: whatever happens between, the capture is ended. */
static ks_status graph_tape(ks_lane *lane, const ks_plan *plan, int bucket, unsigned char *host, cudaGraph_t *out,
                            ks_error *error)
{
    KS_TRY_SOFT(error, cudaStreamBeginCapture(lane->stream, cudaStreamCaptureModeThreadLocal));
    const ks_path path = plan->mapped ? ks_cuda_path_on_slots(plan) : KS_PATH_COPIES;
    const ks_status status = ks_cuda_record(lane, plan, path, 1 << bucket, {host, host}, error);
    const cudaError_t code = cudaStreamEndCapture(lane->stream, out);
    if (status) {
        cudaGetLastError();
        return status;
    }
    return code == cudaSuccess ? KS_OK : ks_cuda_say(code, "cudaStreamEndCapture", error);
}

static ks_status graph_make(ks_lane *lane, const ks_plan *plan, int bucket, ks_cuda_graph *made, ks_error *error)
{
    void *host = NULL;
    if (!plan->mapped) {
        const size_t more = plan->in_bytes > plan->out_bytes ? plan->in_bytes : plan->out_bytes;
        const ks_status status = ks_cuda_stand_in(lane->device, KS_COMPLETION_BYTES + more, &host, error);
        if (status) return status;
        made->in_at = made->out_at = host = (unsigned char *)host + KS_COMPLETION_BYTES;
    }
    const ks_status status = graph_tape(lane, plan, bucket, (unsigned char *)host, &made->graph, error);
    if (status) return status;
    if (!plan->mapped) {
        const ks_place place = ks_cuda_place_of(lane, plan);
        const ks_status found = graph_find_copies(made, &place, error);
        if (found) return found;
        if ((plan->in_bytes && !made->in_node) || !made->out_node)
            return ks_fail(error, KS_DEVICE, "the captured graph lacks a copy node");
    }
    KS_TRY_SOFT(error, cudaGraphInstantiate(&made->exec, made->graph, 0));
    KS_TRY_SOFT(error, cudaGraphUpload(made->exec, lane->stream));
    return KS_OK;
}

/* backend.capture */
ks_status ks_cuda_capture(ks_lane *lane, ks_plan *plan, int bucket, ks_error *error)
{
    assert(!lane->batch && bucket >= 0 && bucket < KS_BUCKETS);
    const uint32_t bit = 1u << bucket;
    if (plan->captured[lane->index] & bit) return KS_OK;
    if (!plan->graphs || plan->large) return ks_fail(error, KS_DEVICE, "this plan runs without graphs");
    if (!plan->mapped && bucket > 0)
        return ks_fail(error, KS_DEVICE, "a plan with copies has one job in a graph, not %d", 1 << bucket);
    KS_TRY(lane->device, error, ks_cuda_use(lane->device));
    ks_cuda_graphs *graphs = (ks_cuda_graphs *)plan->lane_state[lane->index];
    if (!graphs) {
        graphs = (ks_cuda_graphs *)calloc(1, sizeof *graphs);
        if (!graphs) return ks_fail(error, KS_MEMORY, "no memory for the record of a plan's graphs");
        plan->lane_state[lane->index] = graphs;
    }
    ks_nvtx_push(KS_NVTX_CAPTURE);
    ks_status status = ks_cuda_workspace_take(lane, plan, 1 << bucket, error);
    if (!status) status = graph_make(lane, plan, bucket, &graphs->bucket[bucket], error);
    ks_cuda_workspace_give(lane);
    ks_nvtx_pop();
    if (status) {
        ks_cuda_graph_drop(&graphs->bucket[bucket]);
        cudaGetLastError();
        ks_cuda_ask_stream(lane);
        return status;
    }
    plan->captured[lane->index] |= bit;
    return KS_OK;
}

/* backend.forget */
void ks_cuda_forget(ks_lane *lane, ks_plan *plan)
{
    ks_cuda_graphs *graphs = (ks_cuda_graphs *)plan->lane_state[lane->index];
    if (!graphs) return;
    if (!ks_cuda_failed(lane->device) && ks_cuda_use(lane->device) == cudaSuccess)
        for (int i = 0; i < KS_BUCKETS; i++) ks_cuda_graph_drop(&graphs->bucket[i]);
    free(graphs);
    plan->lane_state[lane->index] = NULL;
    plan->captured[lane->index] = 0;
}

/* Launches a captured graph; for a copied job its nodes are re-pointed to the slot first. */
ks_status ks_cuda_graph_launch(ks_lane *lane, const ks_plan *plan, ks_cuda_graph *graph, ks_slot *slot, ks_error *error)
{
    ks_device *device = lane->device;
    if (graph->out_node) {
        const ks_place place = ks_cuda_place_of(lane, plan);
        if (graph->in_node && graph->in_at != slot->in)
            KS_TRY(device, error,
                   cudaGraphExecMemcpyNodeSetParams1D(graph->exec, graph->in_node, place.in, slot->in, plan->in_bytes,
                                                      cudaMemcpyHostToDevice));
        graph->in_at = slot->in;
        if (graph->out_at != slot->out)
            KS_TRY(device, error,
                   cudaGraphExecMemcpyNodeSetParams1D(graph->exec, graph->out_node, slot->out - KS_COMPLETION_BYTES,
                                                      place.completion, KS_COMPLETION_BYTES + plan->out_bytes,
                                                      cudaMemcpyDeviceToHost));
        graph->out_at = slot->out;
    }
    KS_TRY(device, error, cudaGraphLaunch(graph->exec, lane->stream));
    return KS_OK;
}
