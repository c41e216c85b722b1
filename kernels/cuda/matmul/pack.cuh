/* Rows of operands that do not start on 16 bytes, copied into the workspace so that they do: a launch before the
 * product's, which then runs as any product of aligned rows.
 *
 * An operand's matrices follow each other without a gap, so all its rows are one run of bytes. A thread makes 16 bytes of a
 * row from the one or two vectors that hold them (buffers end in KS_PAD, so those are there); behind a row's end come zeros
 * up to the next 16 bytes. The product's launch may begin while this one runs and waits before it reads what is packed. */
#ifndef KS_MATMUL_PACK_CUH
#define KS_MATMUL_PACK_CUH

#include "cuda/matmul/candidates.h"

enum {
    MM_PACK_THREADS = 256,
    MM_PACK_EACH = 4 /* vectors of a thread, all of them under way before the first is used */
};

typedef struct mm_pack_chunk {
    uint4 low, high;
    unsigned char *to;
    unsigned shift;
    int bytes; /* of the row, from here on; 0: nothing to do */
} mm_pack_chunk;

__device__ __forceinline__ mm_pack_chunk mm_pack_read(const mm_pack_part &part, const unsigned char *in,
                                                      unsigned char *workspace, unsigned index)
{
    const unsigned row = index / part.row_chunks, at = (index - row * part.row_chunks) * 16;
    const unsigned char *from = in + part.at + (size_t)row * part.row_bytes + at;
    mm_pack_chunk chunk = {};
    chunk.to = workspace + part.to + (size_t)row * part.pitch + at;
    chunk.shift = (unsigned)(uintptr_t)from & 15;
    chunk.bytes = (int)(part.row_bytes - at);
    chunk.low = *(const uint4 *)(from - chunk.shift);
    if ((int)chunk.shift + min(chunk.bytes, 16) > 16) chunk.high = *(const uint4 *)(from - chunk.shift + 16);
    return chunk;
}

__device__ __forceinline__ void mm_pack_write(const mm_pack_chunk &chunk)
{
    uint32_t w[8] = {chunk.low.x,  chunk.low.y,  chunk.low.z,  chunk.low.w,
                     chunk.high.x, chunk.high.y, chunk.high.z, chunk.high.w};
#pragma unroll
    for (int i = 0; i < 6; i++) w[i] = chunk.shift & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; i++) w[i] = chunk.shift & 4 ? w[i + 1] : w[i];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        w[i] = __funnelshift_r(w[i], w[i + 1], chunk.shift % 4 * 8);
        if (chunk.bytes <= i * 4) w[i] = 0;
        if (chunk.bytes == i * 4 + 2) w[i] &= 0xFFFF;
    }
    *(uint4 *)chunk.to = make_uint4(w[0], w[1], w[2], w[3]);
}

static __global__ void __launch_bounds__(MM_PACK_THREADS)
    mm_pack_kernel(ks_site site, const __grid_constant__ mm_pack pack)
{
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    ks_launch_next();
    mm_pack_chunk chunks[MM_PACK_EACH];
    const unsigned first = blockIdx.x * (MM_PACK_EACH * MM_PACK_THREADS) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < MM_PACK_EACH; i++) {
        const unsigned index = first + i * MM_PACK_THREADS, second = index - pack.part[0].chunks;
        chunks[i].bytes = 0;
        if (index < pack.part[0].chunks)
            chunks[i] = mm_pack_read(pack.part[0], job.in, ks_workspace(site), index);
        else if (second < pack.part[1].chunks)
            chunks[i] = mm_pack_read(pack.part[1], job.in, ks_workspace(site), second);
    }
#pragma unroll
    for (int i = 0; i < MM_PACK_EACH; i++)
        if (chunks[i].bytes > 0) mm_pack_write(chunks[i]);
}

#endif
