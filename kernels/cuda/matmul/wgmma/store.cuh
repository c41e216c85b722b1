/* What becomes of a unit's sums: the epilogue and the store, in rows, pairs, lines or words; before that, where several CTAs share a
 * tile, the reduction of its slices. */
#ifndef KS_MATMUL_WGMMA_STORE_CUH
#define KS_MATMUL_WGMMA_STORE_CUH

#include "cuda/matmul/wgmma/lines.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* The biases of a thread's four sums of a block: `second` is how far the second of the two is, along the rows with swap_ab, else the columns. */
template <typename T>
__device__ __forceinline__ void mm_biases(const mm_args &args, const mm_out<T> &out, int at, int second, float *bias)
{
    const int end = args.swap_ab ? out.rows : out.columns;
    const float first = args.biased && at < end ? mm_widen(out.bias[at]) : 0.0f;
    const float next = args.biased && at + second < end ? mm_widen(out.bias[at + second]) : 0.0f;
    bias[0] = first, bias[3] = next;
    bias[1] = args.swap_ab ? first : next, bias[2] = args.swap_ab ? next : first;
}

/* What is added to the sums of a thread's blocks, which it takes one behind the other: those of COUNT blocks are under way, from before the
 * products on. A block's results are of two rows of the tile, of which it has two neighbours each; of 16 bits they are read as two words
 * of neighbours in memory, as they are stored, and single where rows of the output begin at odd elements. */
template <typename TILE, bool A_K>
struct mm_residuals {
    typedef typename TILE::element T;
    static constexpr int COUNT = TILE::BLOCKS < 4 ? TILE::BLOCKS : 4, WORDS = TILE::WIDE ? 4 : 2;
    static constexpr int SECOND = TILE::WIDE && !A_K ? 1 : 8; /* the second row */
    const T *at;                                              /* of the next block that is read */
    int rows, columns;                                        /* from there to the ends of what is inside */
    uint32_t word[COUNT][WORDS];

    __device__ __forceinline__ void read(const mm_args &args, uint32_t (&to)[WORDS])
    {
        const mm_int row = args.swap_ab ? 1 : args.n, column = args.swap_ab ? args.m : 1; /* to the next one */
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            to[i] = 0;
            if constexpr (TILE::WIDE) {
                if (rows > i / 2 * SECOND && columns > i % 2)
                    to[i] = __float_as_uint(at[i / 2 * SECOND * row + i % 2 * column]);
            } else if (rows > i * SECOND && columns > 0) {
                const uint16_t *from = (const uint16_t *)(at + i * SECOND * row);
                if ((args.swap_ab ? args.m : args.n) % 2 == 0)
                    to[i] = *(const uint32_t *)from;
                else
                    to[i] = from[0];
                if ((args.swap_ab ? args.m : args.n) % 2 && (args.swap_ab ? rows > i * SECOND + 1 : columns > 1))
                    to[i] |= (uint32_t)from[1] << 16;
            }
        }
        at += 8 * column;
        columns -= 8;
    }

    __device__ __forceinline__ void begin(const mm_args &args, const mm_out<T> &out)
    {
        const int lane_id = threadIdx.x % 32, share = TILE::BLOCKS >> args.cluster_log2;
        int row = threadIdx.x / 32 * 16 + (args.swap_ab ? lane_id % 4 * 2 : lane_id / 4),
            column = args.swap_ab ? lane_id / 4 : lane_id % 4 * 2;
        if constexpr (TILE::WIDE) row = threadIdx.x / 128 * 64 + mm_wgmma_row<!A_K>(), column = lane_id % 4 * 2;
        if (args.cluster > 1) column += (int)mm_cluster_rank() * share * 8;
        at = out.residual + (args.swap_ab ? column * args.m + row : row * args.n + column);
        rows = out.rows - row, columns = out.columns - column;
#pragma unroll
        for (int i = 0; i < COUNT; i++) read(args, word[i]);
    }

    /* All of a warp together. */
    __device__ __forceinline__ void take(const mm_args &args, float *to)
    {
        if (!args.residual) return;
        if constexpr (TILE::WIDE) {
#pragma unroll
            for (int i = 0; i < 4; i++) to[i] = __uint_as_float(word[0][i]);
        } else {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t two = args.swap_ab ? mm_transpose_block(word[0][i]) : word[0][i];
                to[i * 2] = mm_widen(((const T *)&two)[0]), to[i * 2 + 1] = mm_widen(((const T *)&two)[1]);
            }
        }
#pragma unroll
        for (int i = 1; i < COUNT; i++)
#pragma unroll
            for (int w = 0; w < WORDS; w++) word[i - 1][w] = word[i][w];
        read(args, word[COUNT - 1]); /* behind the tile: outside, so none is read */
    }
};

/* Before the products: the biases of the tile's columns, which the epilogue reads a few at a time, come to the L1 cache meanwhile. */
template <typename TILE>
__device__ __forceinline__ void mm_ask_biases(const mm_args &args, const mm_unit &unit, const ks_job_sides &job)
{
    typedef typename TILE::element T;
    const mm_int column = (mm_int)unit.column * TILE::N + threadIdx.x % 32 * (int)(KS_L1_LINE / sizeof(T));
    if (args.biased && !args.swap_ab && threadIdx.x % 32 * (int)(KS_L1_LINE / sizeof(T)) < TILE::N && column < args.n)
        ks_prefetch((const T *)(job.in + args.bias_at) + column);
}

/* A tile's place in the output, and what is added there: as its epilogue takes it. */
template <typename TILE, bool A_K>
struct mm_wgmma_out : mm_out<typename TILE::element> {
    mm_residuals<TILE, A_K> residuals;
    mm_line_residuals<TILE> lines;

    /* Before the products; they may have been written by the launch in front. */
    __device__ __forceinline__ void begin(const mm_args &args, const mm_unit &unit, const ks_job_sides &job)
    {
        if (!args.residual) return;
        mm_await_packed();
        (mm_out<typename TILE::element> &)*this = mm_out_at<typename TILE::element, TILE>(args, unit, job);
        if (mm_is_lines<TILE>(args))
            lines.begin(args, *this);
        else
            residuals.begin(args, *this);
    }
};

/* 8 columns of a warp's 16 rows, of which a thread has two neighbours of row lane / 4, then two of that + 8. */
template <typename T>
__device__ __forceinline__ void mm_store_block(const mm_args &args, const mm_out<T> &out, int row, int column,
                                               mm_four<float> sum, const float (&residual)[4])
{
    const int lane_id = threadIdx.x % 32;
    if (!args.plain) {
        float bias[4];
        mm_biases(args, out, args.swap_ab ? row + lane_id / 4 : column + lane_id % 4 * 2, args.swap_ab ? 8 : 1, bias);
        mm_finish<T>(args, bias, residual, sum.value);
    }
    uint32_t two[2] = {ks_round_two<T>(sum.value[0], sum.value[1]), ks_round_two<T>(sum.value[2], sum.value[3])};
    if (args.swap_ab) two[0] = mm_transpose_block(two[0]), two[1] = mm_transpose_block(two[1]);
    const mm_int pitch = args.swap_ab ? args.m : args.n;
    const int along_end = args.swap_ab ? out.rows : out.columns, lines_end = args.swap_ab ? out.columns : out.rows;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int along = (args.swap_ab ? row + half * 8 : column) + lane_id % 4 * 2,
                  line = (args.swap_ab ? column : row + half * 8) + lane_id / 4;
        if (line >= lines_end || along >= along_end) continue;
        T *to = out.c + line * pitch + along;
        if (pitch % 2 == 0)
            *(uint32_t *)to = two[half];
        else
            for (int e = 0; e < 2 && along + e < along_end; e++)
                *(uint16_t *)(to + e) = (uint16_t)(two[half] >> e * 16);
    }
}

/* FP32: of the thread's two rows, the second the next one or 8 further, two neighbours each. */
template <bool FED>
__device__ __forceinline__ void mm_store_wide(const mm_args &args, const mm_out<float> &out, int row, int column,
                                              mm_four<float> sum, const float (&residual)[4])
{
    constexpr int SECOND = FED ? 1 : 8;
    if (!args.plain) {
        float bias[4];
        mm_biases(args, out, args.swap_ab ? row : column, args.swap_ab ? SECOND : 1, bias);
        mm_finish<float>(args, bias, residual, sum.value);
    }
    const mm_int pitch = args.swap_ab ? args.m : args.n;
    const int along = args.swap_ab ? row : column, line = args.swap_ab ? column : row,
              along_end = args.swap_ab ? out.rows : out.columns, lines_end = args.swap_ab ? out.columns : out.rows;
    /* [line][along] of the four, and how far apart they are. */
    const float four[2][2] = {{sum.value[0], args.swap_ab ? sum.value[2] : sum.value[1]},
                              {args.swap_ab ? sum.value[1] : sum.value[2], sum.value[3]}};
    const int lines_step = args.swap_ab ? 1 : SECOND, along_step = args.swap_ab ? SECOND : 1;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (line + i * lines_step >= lines_end || along >= along_end) continue;
        float *to = out.c + (line + i * lines_step) * pitch + along;
        if (along_step == 1 && pitch % 2 == 0) {
            *(float2 *)to = make_float2(four[i][0], four[i][1]);
        } else {
            to[0] = four[i][0];
            if (along + along_step < along_end) to[along_step] = four[i][1];
        }
    }
}

/* Columns 8 * block and up: four sums of a thread. */
template <typename TILE, bool A_K>
__device__ __forceinline__ void mm_wgmma_store_block(const mm_args &args, mm_wgmma_out<TILE, A_K> &out, int block,
                                                     mm_four<float> sum)
{
    float residual[4] = {};
    out.residuals.take(args, residual);
    if constexpr (TILE::WIDE)
        mm_store_wide<!A_K>(args, out, threadIdx.x / 128 * 64 + mm_wgmma_row<!A_K>(), block * 8 + threadIdx.x % 4 * 2,
                            sum, residual);
    else
        mm_store_block<typename TILE::element>(args, out, threadIdx.x / 32 * 16, block * 8, sum, residual);
}

/* FP32: a tile that is inside whole, two neighbours at a time: with swap_ab, of two rows, else of two columns. */
template <typename TILE, bool FED, bool SWAP_AB>
__device__ __forceinline__ void mm_wgmma_store_pairs(const mm_args &args, const mm_out<float> &out,
                                                     const float (&sum)[TILE::SUMS])
{
    const int row = threadIdx.x / 128 * 64 + mm_wgmma_row<FED>(), column = threadIdx.x % 4 * 2;
    const mm_int pitch = SWAP_AB ? args.m : args.n, second = SWAP_AB || FED ? pitch : pitch * 8;
    float *to = out.c + (SWAP_AB ? column * pitch + row : row * pitch + column);
#pragma unroll
    for (int i = 0; i < TILE::SUMS; i += 4, to += SWAP_AB ? pitch * 8 : 8) {
        *(float2 *)to = make_float2(sum[i], sum[i + (SWAP_AB ? 2 : 1)]);
        *(float2 *)(to + second) = make_float2(sum[i + (SWAP_AB ? 1 : 2)], sum[i + 3]);
    }
}

/* Up to 64 columns of a warpgroup at a time where lines of the output start anywhere: in words, with one element in front of
 * them or behind; `scratch` is the warpgroup's own. */
template <typename TILE>
__device__ __forceinline__ void mm_wgmma_store_words(const mm_args &args, const mm_out<typename TILE::element> &out,
                                                     const float (&sum)[TILE::SUMS], unsigned char *scratch)
{
    typedef typename TILE::element T;
    constexpr int SOME = mm_blocks_at_once<TILE>;
    const int lane_id = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, row = threadIdx.x / 128 * 64;
    const mm_int pitch = args.swap_ab ? args.m : args.n;
    const int along_end = args.swap_ab ? out.rows : out.columns, lines_end = args.swap_ab ? out.columns : out.rows;
    const int chunks = args.swap_ab ? 8 : SOME, lines = args.swap_ab ? SOME * 8 : 64, words = chunks * 4;
    /* Of a line, the 16 bytes `at`; swizzled, for the banks. */
    auto place = [&](int line, int at) { return (line * chunks + ((at ^ line) & (chunks - 1))) * 16; };
#pragma unroll
    for (int first = 0; first < TILE::BLOCKS; first += SOME) {
        mm_consumers_sync<TILE>();
#pragma unroll
        for (int i = 0; i < SOME; i++) {
            const float *four = sum + (first + i) * 4;
            const uint32_t high = ks_round_two<T>(four[0], four[1]), low = ks_round_two<T>(four[2], four[3]);
            const unsigned to =
                mm_shared_address(scratch) + (args.swap_ab ? place(i * 8 + lane_id % 8, warp * 2 + lane_id / 8 % 2)
                                                           : place(warp * 16 + lane_id % 16, i));
            if (args.swap_ab)
                mm_stmatrix<true>(to, high, low);
            else
                mm_stmatrix<false>(to, high, low);
        }
        mm_consumers_sync<TILE>();
        const int line_first = args.swap_ab ? first * 8 : row,
                  along = (args.swap_ab ? row : first * 8) + lane_id % words * 2;
#pragma unroll 4
        for (int line = (warp * 32 + lane_id) / words; line < lines; line += 128 / words) {
            if (line_first + line >= lines_end) break;
            T *to = out.c + (line_first + line) * pitch + along;
            const int at = lane_id % words, odd = (int)((uintptr_t)to >> 1 & 1);
            uint32_t word = *(const uint32_t *)(scratch + place(line, at / 4) + at % 4 * 4);
            if (odd) {
                if (at == 0 && along < along_end) *(uint16_t *)to = (uint16_t)word;
                const int next = at + 1 < words ? at + 1 : at;
                word = word >> 16 | *(const uint32_t *)(scratch + place(line, next / 4) + next % 4 * 4) << 16;
            }
            if (along + odd + 1 < along_end && at + odd < words)
                *(uint32_t *)(to + odd) = word;
            else if (along + odd < along_end)
                *(uint16_t *)(to + odd) = (uint16_t)word;
        }
    }
}

/* 16 bits, where lines of the output start anywhere: alpha, bias, activation and residual of a thread's sums, which are then stored as a plain
 * product's. Some blocks at a time through memory that is the thread's own, so that the code of two blocks is there once for each of them; their biases are under way during the two before. */
template <typename TILE, bool A_K>
__device__ __forceinline__ void mm_wgmma_finish(const mm_args &args, mm_wgmma_out<TILE, A_K> &out,
                                                float (&sum)[TILE::SUMS], mm_four<float> *held)
{
    constexpr int SOME = TILE::BLOCKS < TILE::HELD ? TILE::BLOCKS : TILE::HELD, FEW = SOME % 2 ? 1 : 2,
                  GROUPS = TILE::BLOCKS / SOME;
    static_assert(TILE::BLOCKS % SOME == 0, "groups are whole");
    const int lane_id = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane_id / 4;
    float next[FEW * 4] = {};
    auto biases = [&](int block) {
        if (!args.biased || block >= TILE::BLOCKS || (args.swap_ab && block > 0)) return;
#pragma unroll
        for (int f = 0; f < FEW; f++)
            mm_biases(args, out, args.swap_ab ? row : (block + f) * 8 + lane_id % 4 * 2, args.swap_ab ? 8 : 1,
                      next + f * 4);
    };
    biases(0);
    held += threadIdx.x / 32 * 32 * TILE::HELD + lane_id;
#pragma unroll 1
    for (int group = 0; group < GROUPS; group++) {
#pragma unroll
        for (int g = 0; g < GROUPS; g++) { /* a register has no address: to move the sums is code of each group's own */
            if (g != group) continue;
#pragma unroll
            for (int i = g * SOME; i < (g + 1) * SOME; i++)
                held[i % SOME * 32] = {sum[i * 4], sum[i * 4 + 1], sum[i * 4 + 2], sum[i * 4 + 3]};
        }
#pragma unroll 1
        for (int i = 0; i < SOME; i += FEW) {
            float bias[FEW * 4], residual[FEW * 4] = {}, few[FEW * 4];
#pragma unroll
            for (int e = 0; e < FEW * 4; e++) bias[e] = next[e], few[e] = held[(i + e / 4) * 32].value[e % 4];
            biases(group * SOME + i + FEW);
#pragma unroll
            for (int f = 0; f < FEW; f++) out.residuals.take(args, residual + f * 4);
            mm_finish<typename TILE::element>(args, bias, residual, few);
#pragma unroll
            for (int f = 0; f < FEW; f++)
                held[(i + f) * 32] = {few[f * 4], few[f * 4 + 1], few[f * 4 + 2], few[f * 4 + 3]};
        }
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            if (g != group) continue;
#pragma unroll
            for (int i = g * SOME; i < (g + 1) * SOME; i++) {
                const mm_four<float> four = held[i % SOME * 32];
#pragma unroll
                for (int e = 0; e < 4; e++) sum[i * 4 + e] = four.value[e];
            }
        }
    }
}

/* A whole tile's. */
template <typename TILE, bool A_K>
__device__ __forceinline__ void mm_wgmma_store(const mm_args &args, mm_wgmma_out<TILE, A_K> &out,
                                               float (&sum)[TILE::SUMS], mm_four<float> *held)
{
    if constexpr (TILE::WIDE) {
        if (args.plain && (args.swap_ab ? args.m : args.n) % 2 == 0 && out.rows == TILE::M && out.columns == TILE::N &&
            !(A_K && args.swap_ab)) {
            if (args.swap_ab)
                mm_wgmma_store_pairs<TILE, !A_K, true>(args, out, sum);
            else
                mm_wgmma_store_pairs<TILE, !A_K, false>(args, out, sum);
            return;
        }
        /* Through memory that is a thread's own, so that the code of a block is there once. */
        constexpr int SOME = TILE::BLOCKS < TILE::HELD ? TILE::BLOCKS : TILE::HELD;
        held += threadIdx.x;
#pragma unroll
        for (int first = 0; first < TILE::BLOCKS; first += SOME) {
#pragma unroll
            for (int i = 0; i < SOME; i++) {
                const float *four = sum + (first + i) * 4;
                held[i * TILE::CONSUMERS] = {four[0], four[1], four[2], four[3]};
            }
#pragma unroll 1
            for (int i = 0; i < SOME; i++)
                mm_wgmma_store_block<TILE, A_K>(args, out, first + i, held[i * TILE::CONSUMERS]);
        }
    } else {
        mm_four<float> *const scratch = held + threadIdx.x / 32 * 32 * TILE::HELD;
        if (mm_is_lines<TILE>(args)) {
            if (args.plain)
                mm_wgmma_store_lines<TILE>(args, out, sum, (unsigned char *)scratch);
            else
                mm_wgmma_finish_lines<TILE>(args, out, sum, (float *)scratch, out.lines);
            return;
        }
        if (!args.plain) {
            mm_consumers_sync<TILE>(); /* words of the tile before are read there by other warps */
            mm_wgmma_finish<TILE, A_K>(args, out, sum, held);
        }
        mm_wgmma_store_words<TILE>(args, out, sum, (unsigned char *)(held + threadIdx.x / 128 * 128 * TILE::HELD));
    }
}

/* A CTA's share of a tile, the rank-th of the cluster's, through the workspace: `put` stores this split's sums, and the last of the
 * splits' warps that have the same part reduces it, in the order of the splits. */
template <typename TILE, bool A_K, typename PUT>
__device__ __forceinline__ void mm_wgmma_reduce_splits(const ks_site &site, const mm_args &args, const mm_unit &unit,
                                                       mm_wgmma_out<TILE, A_K> &out, unsigned rank, PUT put)
{
    enum { FEW = 8, SOME = 2, WARPS = TILE::CONSUMERS / 32 }; /* under way at a time: parts, of so many blocks */
    const int share = TILE::BLOCKS >> args.cluster_log2;
    const size_t split_fours = (size_t)TILE::BLOCKS * TILE::CONSUMERS;
    const unsigned warp = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    mm_four<float> *partial = (mm_four<float> *)ks_workspace(site) + unit.tile * args.splits * split_fours +
                              rank * share * TILE::CONSUMERS + threadIdx.x;
    uint32_t *counter = ks_counters(site) + (((size_t)unit.tile << args.cluster_log2) + rank) * WARPS + warp;
    put(partial + unit.split * split_fours);
    __syncwarp();
    const int last = __any_sync(~0u, lane_id == 0 && mm_draw(counter) + 1 == args.splits);
    __syncwarp();
    mm_consumers_end<TILE>();
    if (!last) return;
    if (lane_id == 0) *counter = 0;
#pragma unroll 1
    for (int i = 0; i < share; i += SOME) {
        mm_four<float> sums[SOME];
        const int some = min((int)SOME, share - i);
        mm_workspace_reduce<FEW>(sums, some, TILE::CONSUMERS, partial + i * TILE::CONSUMERS, split_fours, args.splits);
#pragma unroll 1
        for (int at = 0; at < some; at++) {
            mm_wgmma_store_block<TILE, A_K>(args, out, (int)rank * share + i + at, sums[0]);
            sums[0] = sums[1];
        }
    }
}

/* A unit of several that share a tile: the cluster's sums of what this CTA finishes come to `held`, and the mbarrier `reduced`
 * counts their bytes. Every sum is taken in the order of the slices. */
template <typename TILE, bool A_K>
__device__ __forceinline__ void mm_wgmma_reduce(const ks_site &site, const mm_args &args, const mm_unit &unit,
                                                mm_wgmma_out<TILE, A_K> &out, const float (&sum)[TILE::SUMS],
                                                mm_four<float> *held, unsigned reduced)
{
    enum { FEW = 8 }; /* a cluster's parts are read at once */
    const int share = TILE::BLOCKS >> args.cluster_log2;
    unsigned rank = 0;
    if (args.cluster > 1) {
        rank = mm_cluster_rank();
        mm_cluster_wait(); /* all barriers are ready */
    }
    held += threadIdx.x;
    const unsigned at = mm_shared_address(held + rank * share * TILE::CONSUMERS);
#pragma unroll
    for (int i = 0; i < TILE::BLOCKS; i++) {
        const unsigned to = (unsigned)i >> (TILE::BLOCKS_LOG2 - args.cluster_log2);
        mm_send(mm_peer_address(at + (i - to * share) * TILE::CONSUMERS * 16, to), mm_peer_address(reduced, to),
                sum + i * 4);
    }
    mm_mbarrier_wait_peers(reduced, 0);
    auto reduced_of = [&](int i) {
        mm_four<float> part[FEW];
        static_assert((int)FEW >= (int)KS_MATMUL_CLUSTER_MAX, "all of a cluster's parts");
#pragma unroll
        for (unsigned r = 0; r < FEW; r++)
            if (r < args.cluster) part[r] = held[(r * share + i) * TILE::CONSUMERS];
#pragma unroll
        for (unsigned r = 1; r < FEW; r++)
            if (r < args.cluster) mm_add(part[0], part[r]);
        return part[0];
    };
    if (args.splits == 1) {
        mm_consumers_end<TILE>();
#pragma unroll 1
        for (int i = 0; i < share; i++)
            mm_wgmma_store_block<TILE, A_K>(args, out, (int)rank * share + i, reduced_of(i));
        return;
    }
    mm_wgmma_reduce_splits<TILE, A_K>(site, args, unit, out, rank, [&](mm_four<float> *to) {
#pragma unroll 2
        for (int i = 0; i < share; i++) to[i * TILE::CONSUMERS] = reduced_of(i);
    });
}

/* A unit of CTAs that share copies: each finishes the tile of its own, whose slices meet in the workspace alone. */
template <typename TILE, bool A_K>
__device__ __forceinline__ void mm_wgmma_reduce_peers(const ks_site &site, const mm_args &args, const mm_unit &unit,
                                                      mm_wgmma_out<TILE, A_K> &out, const float (&sum)[TILE::SUMS],
                                                      const mm_wgmma_pipeline &pipeline)
{
    mm_unit mine = unit;
    mine.tile = unit.tile * TILE::PEERS + pipeline.column * TILE::BY_M + pipeline.row;
    mm_wgmma_reduce_splits<TILE, A_K>(site, args, mine, out, 0, [&](mm_four<float> *to) {
#pragma unroll
        for (int i = 0; i < TILE::BLOCKS; i++)
            to[i * TILE::CONSUMERS] = {sum[i * 4], sum[i * 4 + 1], sum[i * 4 + 2], sum[i * 4 + 3]};
    });
}
#endif
#endif
