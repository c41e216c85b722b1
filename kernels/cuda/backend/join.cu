/* Joined rows on the GPU: three launches (of two outputs four), one graph for each family, lane and bucket of rows.
 *
 *   gather   all jobs' rows come from their mapped slots into the lane's arena, one behind the other: one pass over the link,
 *            where each CTA of the product would read them again.
 *   product  as a copied job's, of the bucket's rows. What lies behind the last row is computed and goes nowhere.
 *   scatter  each job's rows of the output go to its slot; the last CTA raises the lane's flag. Of two outputs one behind the other.
 *
 * A thread moves units of 16 bytes, or of as many as each row's start allows, several of them under way at a time. */
#include "cuda/backend/join.h"

#include "cuda/common/ptx_mma.cuh"

void ks_cuda_join_rows(ks_job_table *table, const ks_batch *batch)
{
    table->first_row[0] = 0;
    for (int i = 0; i < batch->count; i++) table->first_row[i + 1] = table->first_row[i] + (uint32_t)batch->rows[i];
}

enum { JOIN_THREADS = 256, JOIN_EACH = 4, JOIN_GRID_MOST = 512 };

/* Rows of the arena, in units. */
typedef struct join_rows {
    unsigned char *rows;
    unsigned row_units, before; /* before: bytes, as ks_join_side has it */
    bool last;
} join_rows;

static size_t row_bytes_of(const ks_tensor *tensor)
{
    return tensor->size_bytes / (size_t)tensor->dims[0];
}

ks_join_side ks_cuda_join_in(const ks_spec *work, unsigned char *memory, int rows)
{
    return {true, false, memory, row_bytes_of(&work->in[0]), 0, rows};
}

ks_join_side ks_cuda_join_out(const ks_spec *work, int output, unsigned char *memory, int rows)
{
    static_assert(KS_JOIN_OUTPUTS == 2, "one output stands in front of another one");
    const ks_tensor *out = &work->out[output];
    return {false,
            output + 1 == work->outputs,
            memory + out->offset,
            row_bytes_of(out),
            output ? row_bytes_of(&work->out[output - 1]) : 0,
            rows};
}

/* Where the rows of a job begin in its slot: on a side's alignment behind those of the output in front. */
static __device__ __forceinline__ size_t begin_of(unsigned before, unsigned rows)
{
    return ((size_t)before * rows + KS_ALIGNMENT - 1) / KS_ALIGNMENT * KS_ALIGNMENT;
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

static __device__ __forceinline__ const unsigned char *side_of(const ks_job_sides &job, bool in)
{
    return in ? job.in : job.out;
}

template <typename UNIT, bool IN>
static __global__ void __launch_bounds__(JOIN_THREADS) join_copy(ks_site site, join_rows to)
{
    __shared__ uint32_t first[KS_BATCH_MAX + 1];
    const ks_job_table *table = site.job_table;
    const unsigned count = table->count;
    if (IN) ks_start(site);
    for (unsigned i = threadIdx.x; i <= count; i += JOIN_THREADS) first[i] = table->first_row[i];
    __syncthreads();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (IN)
        mm_launch_next();
    else
        mm_launch_wait();
#endif
    UNIT *rows = (UNIT *)(void *)to.rows;
    const unsigned units = first[count] * to.row_units, step = gridDim.x * JOIN_THREADS * JOIN_EACH;
    for (unsigned from = blockIdx.x * JOIN_THREADS * JOIN_EACH + threadIdx.x; from < units; from += step) {
        UNIT *places[JOIN_EACH], values[JOIN_EACH];
#pragma unroll
        for (int i = 0; i < JOIN_EACH; i++) {
            const unsigned at = from + i * JOIN_THREADS;
            if (at >= units) continue;
            const unsigned job = job_of(first, count, at / to.row_units);
            const size_t begin = begin_of(to.before, first[job + 1] - first[job]);
            places[i] = (UNIT *)(void *)(side_of(table->job[job], IN) + begin) + (at - first[job] * to.row_units);
            values[i] = IN ? *places[i] : rows[at];
        }
#pragma unroll
        for (int i = 0; i < JOIN_EACH; i++) {
            const unsigned at = from + i * JOIN_THREADS;
            if (at < units) *(IN ? &rows[at] : places[i]) = values[i];
        }
    }
    if (IN) return;
    if (to.last)
        ks_raise(site, gridDim.x);
    else
        __threadfence_system(); /* before the flag of the launch behind */
}

template <typename UNIT>
static cudaError_t launch_units(const ks_site *site, const ks_join_side *side, bool early, cudaStream_t stream)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    const size_t units = side->row_bytes / sizeof(UNIT) * (size_t)side->rows, each = JOIN_THREADS * JOIN_EACH;
    const size_t ctas = (units + each - 1) / each;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)(ctas < JOIN_GRID_MOST ? ctas : (size_t)JOIN_GRID_MOST));
    config.blockDim = dim3(JOIN_THREADS);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = early && !side->in;
    const join_rows rows = {side->memory, (unsigned)(side->row_bytes / sizeof(UNIT)), (unsigned)side->before,
                            side->last};
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
