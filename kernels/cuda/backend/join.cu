/* Joined rows on the GPU: three launches (one more for each more input and output), one graph for each family, lane and bucket of rows.
 *
 *   gather   all jobs' rows come from their mapped slots into the lane's arena, one behind the other: one pass over the link,
 *            where each CTA of the product would read them again.
 *   product  as a copied job's, of the bucket's rows; or a chain's steps. What lies behind the last row is computed and goes nowhere:
 *            where values decide it is the last row once more, whose refusal is that row's.
 *   scatter  each job's rows of the output go to its slot; the last CTA raises the lane's flag. Of two outputs one behind the other.
 *
 * A chain whose jobs go alone has the same two copies around its steps, of a side as one row, where its job is small: by the copy engines
 * one connection waits 18 us longer (H200, 128 KiB each way).
 *
 * A thread moves units of 16 bytes, or of as many as each row's start allows, several of them under way at a time. */
#include "cuda/backend/join.h"

#include "cuda/common/ptx_mma.cuh"

void ks_cuda_join_rows(ks_job_table *table, const ks_batch *batch, int from, int count)
{
    table->first_row[0] = 0;
    for (int i = 0; i < count; i++) table->first_row[i + 1] = table->first_row[i] + (uint32_t)batch->rows[from + i];
}

enum { JOIN_THREADS = 256, JOIN_EACH = 4, JOIN_GRID_MOST = 512 };

/* Rows of the arena, in units. */
typedef struct join_rows {
    unsigned char *rows;
    unsigned row_units, filled, jobs; /* jobs: at most, as each has a row of the bucket's */
    int tensors;
    unsigned before[KS_INPUTS_MAX - 1]; /* bytes, as ks_join_side has them */
    bool first, last;
    volatile const ks_completion *refusals, *steps;
    ks_completion *stamps;
} join_rows;

static size_t row_bytes_of(const ks_tensor *tensor)
{
    return tensor->size_bytes / (size_t)tensor->dims[0];
}

ks_join_side ks_cuda_join_in(const ks_spec *work, int input, unsigned char *memory, int rows)
{
    ks_join_side side = {};
    side.in = true;
    for (int i = ks_next_input(work, -1); i >= 0 && i < input; i = ks_next_input(work, i))
        if (!work->in[i].fixed) side.before[side.tensors++] = row_bytes_of(&work->in[i]);
    side.first = side.tensors == 0;
    side.memory = memory + work->in[input].offset;
    side.row_bytes = row_bytes_of(&work->in[input]);
    side.rows = rows;
    return side;
}

ks_join_side ks_cuda_join_out(const ks_spec *work, int output, unsigned char *memory, int rows)
{
    static_assert((int)KS_JOIN_OUTPUTS < (int)KS_INPUTS_MAX, "outputs in front of another one have room");
    ks_join_side side = {};
    for (int i = 0; i < output; i++) side.before[side.tensors++] = row_bytes_of(&work->out[i]);
    side.last = output + 1 == work->outputs;
    side.memory = memory + work->out[output].offset;
    side.row_bytes = row_bytes_of(&work->out[output]);
    side.rows = rows;
    return side;
}

ks_join_side ks_cuda_join_whole(bool in, unsigned char *memory, size_t bytes)
{
    ks_join_side side = {};
    side.in = in;
    side.first = in;
    side.last = !in;
    side.memory = memory;
    side.row_bytes = bytes;
    side.rows = 1;
    return side;
}

/* Where the rows of a job begin in its slot: on a side's alignment behind those of the tensors in front. */
static __device__ __forceinline__ size_t begin_of(const join_rows &to, unsigned rows)
{
    size_t at = 0;
    for (int i = 0; i < to.tensors; i++)
        at = (at + (size_t)to.before[i] * rows + KS_ALIGNMENT - 1) / KS_ALIGNMENT * KS_ALIGNMENT;
    return at;
}

/* Before the flag: some step has refused a value. Which job's it is, the host finds out. */
static __device__ __forceinline__ void show_refusals(const ks_site &site, const join_rows &to)
{
    static_assert(KS_COMPLETION_LINE == 2, "two status words");
    if (to.refusals && blockIdx.x == 0 && threadIdx.x == 0 && (to.refusals[0].word | to.refusals[1].word))
        site.completion->word = 1;
}

/* Before the flag: by these the steps' time is known from the copies'. */
static __device__ __forceinline__ void show_stamps(const join_rows &to)
{
    if (!to.steps || blockIdx.x != 0 || threadIdx.x != 0) return;
    to.stamps[0].start_ns = to.steps[0].start_ns;
    to.stamps[0].end_ns = to.steps[0].end_ns;
    to.stamps[1].end_ns = to.steps[1].end_ns;
}

/* The job of a row: the last one that begins at it or before. */
static __device__ __forceinline__ unsigned job_of(const uint32_t *first, unsigned count, unsigned row)
{
    unsigned low = 0;
    for (unsigned high = count; high - low > 1;) {
        const unsigned middle = (low + high) / 2;
        if (first[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

template <typename UNIT, bool IN>
static __global__ void __launch_bounds__(JOIN_THREADS) join_copy(ks_site site, const __grid_constant__ join_rows to)
{
    static_assert((int)JOIN_THREADS > (int)KS_BATCH_MAX, "a thread reads a job");
    __shared__ uint32_t first[KS_BATCH_MAX + 1];
    __shared__ const unsigned char *sides[KS_BATCH_MAX];
    const ks_job_table *table = site.job_table;
    const ks_turn turn = table->turn;
    const unsigned count = turn.count;
    if (IN && to.first) ks_start(site);
    if (threadIdx.x <= to.jobs) first[threadIdx.x] = table->first_row[threadIdx.x]; /* before the count is known */
    if (threadIdx.x < to.jobs) {
        const ks_job_sides *job = &table->job[threadIdx.x];
        sides[threadIdx.x] = IN ? job->in : job->out;
    }
    __syncthreads();
    if (IN)
        ks_launch_next();
    else
        ks_launch_wait();
    UNIT *rows = (UNIT *)(void *)to.rows;
    const unsigned taken = first[count], all = IN && to.filled > taken ? to.filled : taken;
    const unsigned units = all * to.row_units, step = gridDim.x * JOIN_THREADS * JOIN_EACH;
    for (unsigned from = blockIdx.x * JOIN_THREADS * JOIN_EACH + threadIdx.x; from < units; from += step) {
        UNIT *places[JOIN_EACH], values[JOIN_EACH];
#pragma unroll
        for (int i = 0; i < JOIN_EACH; i++) {
            const unsigned at = from + i * JOIN_THREADS;
            if (at >= units) continue;
            const unsigned row = at / to.row_units, surplus = IN && row >= taken ? row - taken + 1 : 0;
            const unsigned job = job_of(first, count, row - surplus);
            const size_t begin = begin_of(to, first[job + 1] - first[job]);
            places[i] = (UNIT *)(void *)(sides[job] + begin) + (at - (first[job] + surplus) * to.row_units);
            values[i] = IN ? *places[i] : rows[at];
        }
#pragma unroll
        for (int i = 0; i < JOIN_EACH; i++) {
            const unsigned at = from + i * JOIN_THREADS;
            if (at < units) *(IN ? &rows[at] : places[i]) = values[i];
        }
    }
    if (IN) return;
    show_refusals(site, to);
    show_stamps(to);
    if (to.last)
        ks_raise(site, gridDim.x, {turn.sequence, 1});
    else
        __threadfence_system(); /* before the flag of the launch behind */
}

template <typename UNIT>
static cudaError_t launch_units(const ks_site *site, const ks_join_side *side, bool early, cudaStream_t stream)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    const int most = side->rows < side->filled ? side->filled : side->rows;
    const size_t units = side->row_bytes / sizeof(UNIT) * (size_t)most, each = JOIN_THREADS * JOIN_EACH;
    const size_t ctas = (units + each - 1) / each;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    /* A side without bytes has a flag to raise all the same. */
    config.gridDim = dim3((unsigned)(ctas < 1 ? 1 : ctas < JOIN_GRID_MOST ? ctas : (size_t)JOIN_GRID_MOST));
    config.blockDim = dim3(JOIN_THREADS);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = early && !side->in;
    join_rows rows = {};
    rows.rows = side->memory;
    rows.row_units = (unsigned)(side->row_bytes / sizeof(UNIT));
    rows.filled = (unsigned)side->filled;
    rows.jobs = (unsigned)(side->rows < KS_BATCH_MAX ? side->rows : KS_BATCH_MAX);
    rows.tensors = side->tensors;
    for (int i = 0; i < side->tensors; i++) rows.before[i] = (unsigned)side->before[i];
    rows.first = side->first;
    rows.last = side->last;
    rows.refusals = side->refusals;
    rows.steps = side->steps;
    rows.stamps = side->stamps;
    return cudaLaunchKernelEx(&config, side->in ? join_copy<UNIT, true> : join_copy<UNIT, false>, *site, rows);
}

cudaError_t ks_cuda_join_copy(const ks_site *site, const ks_join_side *side, bool early, cudaStream_t stream)
{
    switch (side->row_bytes % 16) {
    case 0:
        return launch_units<uint4>(site, side, early, stream);
    case 8:
        return launch_units<uint2>(site, side, early, stream);
    case 4:
    case 12:
        return launch_units<uint32_t>(site, side, early, stream);
    default:
        return side->row_bytes % 2 ? launch_units<uint8_t>(site, side, early, stream)
                                   : launch_units<uint16_t>(site, side, early, stream);
    }
}
