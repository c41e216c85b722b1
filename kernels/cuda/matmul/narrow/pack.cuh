/* Operands of 8 bits as wgmma's products take them: in the workspace, along K, by a launch in front of the product's. What lies across K is
 * transposed, and FP8 may be widened to FP16 (narrow.h). A launch, and not the product's own threads: tiles read an operand as often as the
 * other one has tiles, and would transpose it as often.
 *
 * Shapes   any: 16 rows at a time of what lies across K in whole vectors, else 4; words along K, else single bytes. A CTA has 128 rows by 128
 *          values of K, which come to shared memory as they are written. */
#ifndef KS_MATMUL_NARROW_PACK_CUH
#define KS_MATMUL_NARROW_PACK_CUH

#include "cuda/matmul/narrow/tile.cuh"

enum { NARROW_PACK_THREADS = 256, NARROW_PACK_TILE = 128 /* rows; values of K */ };

/* 16 rows at four values of K, a word of four rows in w[value of K][word]; zeros where K has ended, anything in rows beyond the operand. */
__device__ __forceinline__ void narrow_pack_read(const narrow_pack_part &part, const unsigned char *matrix, int64_t row,
                                                 int64_t k, int64_t end, uint32_t (&w)[4][4])
{
    const narrow_operand &o = part.operand;
    const unsigned char *const at = matrix + row + k * o.along;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (part.wide) {
            uint4 x = make_uint4(0, 0, 0, 0);
            if (row < o.rows && k + i < end) x = *(const uint4 *)(const void *)(at + i * o.along);
            w[i][0] = x.x, w[i][1] = x.y, w[i][2] = x.z, w[i][3] = x.w;
        } else {
            const uint4 x = narrow_read_at(o, matrix, row + 4 * i, k, end); /* of four rows */
            w[0][i] = x.x, w[1][i] = x.y, w[2][i] = x.z, w[3][i] = x.w;
        }
    }
}

/* Where 16 values of K of a row of the tile lie in shared memory, for the banks. */
__device__ __forceinline__ int narrow_pack_place(int row, int chunk)
{
    return row * NARROW_PACK_TILE + ((chunk ^ row / 16) & 7) * 16;
}

__device__ __forceinline__ void narrow_pack_write(const narrow_pack_part &part, unsigned char *to, uint4 x)
{
    if (!part.widens) {
        *(uint4 *)(void *)to = x;
        return;
    }
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint4 halves;
        narrow_halves(words[i], part.operand.e5m2, halves.x, halves.y);
        narrow_halves(words[i + 1], part.operand.e5m2, halves.z, halves.w);
        ((uint4 *)(void *)to)[i / 2] = halves;
    }
}

static __global__ void __launch_bounds__(NARROW_PACK_THREADS)
    narrow_pack(ks_site site, const __grid_constant__ narrow_packing packing)
{
    __shared__ __align__(16) unsigned char tile[NARROW_PACK_TILE * NARROW_PACK_TILE];
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    if (packing.first) ks_start(site);
    ks_launch_next();
    const bool second = blockIdx.x >= packing.part[0].ctas;
    const narrow_pack_part &part = packing.part[second];
    const narrow_operand &o = part.operand;
    const int64_t index = blockIdx.x - (second ? packing.part[0].ctas : 0), tiles = part.tiles_rows * part.tiles_k;
    const int64_t matrix = index / tiles, at = index - matrix * tiles;
    const int64_t row0 = at / part.tiles_k * NARROW_PACK_TILE, k0 = at % part.tiles_k * NARROW_PACK_TILE;
    const unsigned char *const from = job.in + o.at + matrix * part.step;
    unsigned char *const to = ks_workspace(site) + part.to + matrix * o.rows * part.pitch;
    const int thread = threadIdx.x;
    if (o.layout == NARROW_ACROSS) {
        uint32_t w[4][4];
        const int row = thread % 8 * 16, k = thread / 8 * 4;
        narrow_pack_read(part, from, row0 + row, k0 + k, packing.k, w);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint4 x = make_uint4(w[0][j], w[1][j], w[2][j], w[3][j]);
            narrow_transpose(x);
            const uint32_t rows[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
                *(uint32_t *)(void *)(tile + narrow_pack_place(row + 4 * j + i, k / 16) + k % 16) = rows[i];
        }
        __syncthreads();
    }
#pragma unroll
    for (int unit = thread; unit < NARROW_PACK_TILE * 8; unit += NARROW_PACK_THREADS) {
        const int row = unit / 8, chunk = unit % 8;
        const int64_t i = row0 + row, k = k0 + chunk * 16;
        if (i >= o.rows || k >= packing.k) continue;
        const uint4 x = o.layout == NARROW_ACROSS ? *(const uint4 *)(const void *)(tile + narrow_pack_place(row, chunk))
                                                  : narrow_read_at(o, from, i, k, packing.k);
        narrow_pack_write(part, to + i * part.pitch + (k << part.widens), x);
    }
}

#endif
