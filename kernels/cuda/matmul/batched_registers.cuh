/* Batches of matrices of exactly 16 or 32 each way, by mma.sync: a warp computes one, and reads the operands straight into the
 * registers that multiply them.
 *
 * Which value of K is which of an instruction's may be chosen, if only A and B get the same; so may the order of B's
 * columns. A lane takes neighbours along the rows of both operands, as vectors: of A values of K that no other lane needs, of
 * B as many rows and a few columns. All of a warp's loads are on their way before its first product, nothing goes through
 * shared memory, and no warp waits for another. */
#ifndef KS_MATMUL_BATCHED_REGISTERS_CUH
#define KS_MATMUL_BATCHED_REGISTERS_CUH

#include "cuda/matmul/batched.cuh"

/* A CTA has a warp for each of MATRICES, and CTAS of them fit an SM. */
template <typename T, int SIZE_, int MATRICES_, int CTAS_>
struct mm_straight_tile {
    typedef T element;
    static constexpr int SIZE = SIZE_, MATRICES = MATRICES_, CTAS = CTAS_, THREADS = 32 * MATRICES;
    static constexpr int BYTES = (int)sizeof(T), PITCH = SIZE * BYTES;
    /* A lane's vectors, in bytes: of A's rows, four lanes side by side have DEPTH values of K; of B's, eight have all. */
    static constexpr int A_VECTOR = PITCH / 4 < 16 ? PITCH / 4 : 16, B_VECTOR = PITCH / 8;
    static constexpr int ALONG = A_VECTOR / BYTES, BESIDE = B_VECTOR / BYTES;            /* the same in elements */
    static constexpr int DEPTH = 4 * ALONG, DEPTHS = SIZE / DEPTH, STEPS = A_VECTOR / 8; /* instructions of a DEPTH */
    static_assert(SIZE == 16 || SIZE == 32, "vectors are whole");
};

template <int BYTES>
struct alignas(BYTES) mm_straight_vector {
    uint32_t word[BYTES / 4];
};

/* What the instruction calls A, of B's columns 2 * pair and the next one of each lane: they are its rows lane / 4 and that
 * + 8. Of 16 bits, two rows' elements of a column make a word. rows: of the instruction's values of K, ALONG / STEPS. */
template <typename TILE>
__device__ __forceinline__ void mm_straight_fragment(uint32_t (&to)[4], const mm_straight_vector<TILE::B_VECTOR> *rows,
                                                     int pair)
{
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const int half = r / 2, column = 2 * pair + r % 2;
        if constexpr (TILE::BYTES == 4)
            to[r] = mm_round_tf32(__uint_as_float(rows[half].word[column]));
        else
            to[r] = __byte_perm(rows[2 * half].word[column / 2], rows[2 * half + 1].word[column / 2],
                                column % 2 ? 0x7632 : 0x5410);
    }
}

/* Neighbours of a row of the output. */
template <typename TILE>
__device__ __forceinline__ void mm_straight_store(typename TILE::element *to, const float (&sum)[TILE::BESIDE])
{
    mm_straight_vector<TILE::B_VECTOR> line;
#pragma unroll
    for (int w = 0; w < TILE::B_VECTOR / 4; w++)
        if constexpr (TILE::BYTES == 4)
            line.word[w] = __float_as_uint(sum[w]);
        else
            line.word[w] = ks_round_two<typename TILE::element>(sum[2 * w], sum[2 * w + 1]);
    mm_batch_stream(to, line);
}

/* One warp's matrix. The product that is computed is the transposed one: what the instruction calls A is B, whose
 * elements have to be put in order anyway, and rows of A are its columns as they were loaded. */
template <typename TILE>
__device__ __forceinline__ void mm_straight_matrix(const ks_site &site, const mm_args &args, const ks_job_sides &job,
                                                   unsigned matrix)
{
    typedef typename TILE::element T;
    typedef mm_straight_vector<TILE::A_VECTOR> a_vector;
    typedef mm_straight_vector<TILE::B_VECTOR> b_vector;
    constexpr int EIGHTS = TILE::SIZE / 8, PAIRS = TILE::BESIDE / 2;
    const int lane_id = threadIdx.x % 32, eighth = lane_id / 4, fourth = lane_id % 4;
    mm_int a, b;
    mm_operands_at(args, matrix, &a, &b);
    /* Columns 2 i and 2 i + 1 of the instruction are rows i and i + 4 of eight: what four lanes store lies together. */
    const unsigned char *const a_from =
        job.in + args.a.at + a * TILE::BYTES + (eighth % 2 * 4 + eighth / 2) * TILE::PITCH + fourth * TILE::A_VECTOR;
    const unsigned char *const b_from =
        job.in + args.b.at + b * TILE::BYTES + fourth * TILE::ALONG * TILE::PITCH + eighth * TILE::B_VECTOR;
    a_vector x[EIGHTS][TILE::DEPTHS];
    b_vector y[TILE::DEPTHS][TILE::ALONG];
#pragma unroll
    for (int k = 0; k < TILE::DEPTHS; k++) {
        x[0][k] = mm_load_near<a_vector>(a_from + k * 4 * TILE::A_VECTOR);
#pragma unroll
        for (int l = 0; l < TILE::ALONG; l++)
            y[k][l] = mm_load_near<b_vector>(b_from + (k * TILE::DEPTH + l) * TILE::PITCH);
    }
#pragma unroll
    for (int i = 1; i < EIGHTS; i++)
#pragma unroll
        for (int k = 0; k < TILE::DEPTHS; k++)
            x[i][k] = mm_load_near<a_vector>(a_from + i * 8 * TILE::PITCH + k * 4 * TILE::A_VECTOR);
    ks_start(site);

    uint32_t fragment[TILE::DEPTHS][TILE::STEPS][PAIRS][4];
#pragma unroll
    for (int k = 0; k < TILE::DEPTHS; k++)
#pragma unroll
        for (int s = 0; s < TILE::STEPS; s++)
#pragma unroll
            for (int p = 0; p < PAIRS; p++)
                mm_straight_fragment<TILE>(fragment[k][s][p], y[k] + s * TILE::ALONG / TILE::STEPS, p);
    T *const to = (T *)(job.out + args.c_at) + (size_t)matrix * (TILE::SIZE * TILE::SIZE) + fourth * TILE::SIZE +
                  eighth * TILE::BESIDE;
    float left[TILE::SIZE / 4][TILE::BESIDE]; /* sums with which more is to be done than to round, in local memory */
#pragma unroll
    for (int i = 0; i < EIGHTS; i++) {
        float sum[PAIRS][4] = {};
#pragma unroll
        for (int k = 0; k < TILE::DEPTHS; k++)
#pragma unroll
            for (int s = 0; s < TILE::STEPS; s++) {
                uint32_t low = x[i][k].word[2 * s], high = x[i][k].word[2 * s + 1];
                if constexpr (TILE::BYTES == 4)
                    low = mm_round_tf32(__uint_as_float(low)), high = mm_round_tf32(__uint_as_float(high));
#pragma unroll
                for (int p = 0; p < PAIRS; p++) mm_mma(T(), sum[p], fragment[k][s][p], low, high);
            }
        if (i == EIGHTS - 1 && threadIdx.x == 0) mm_stamp(site);
#pragma unroll
        for (int four = 2 * i; four < 2 * i + 2; four++) {
            float run[TILE::BESIDE];
#pragma unroll
            for (int c = 0; c < TILE::BESIDE; c++) run[c] = sum[c / 2][c % 2 * 2 + four % 2];
            if (args.plain) {
                mm_straight_store<TILE>(to + four * 4 * TILE::SIZE, run);
            } else {
#pragma unroll
                for (int c = 0; c < TILE::BESIDE; c++) left[four][c] = run[c];
            }
        }
    }
    if (args.plain) return;
    const T *const bias = (const T *)(job.in + args.bias_at) + eighth * TILE::BESIDE;
    const T *const residual = (const T *)(job.in + args.residual_at) + (to - (T *)(job.out + args.c_at));
#pragma unroll 1
    for (int four = 0; four < TILE::SIZE / 4; four++) {
#pragma unroll 1
        for (int c = 0; c < TILE::BESIDE; c++)
            left[four][c] = mm_epilogue(args, left[four][c], args.biased ? mm_widen(bias[c]) : 0.0f,
                                        args.residual ? mm_widen(residual[four * 4 * TILE::SIZE + c]) : 0.0f);
        mm_straight_store<TILE>(to + four * 4 * TILE::SIZE, left[four]);
    }
}

template <typename TILE>
__global__ void __launch_bounds__(TILE::THREADS, TILE::CTAS)
    mm_straight_kernel(ks_site site, const __grid_constant__ mm_args args)
{
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    const unsigned matrix = blockIdx.x * TILE::MATRICES + threadIdx.x / 32;
    if (matrix < args.matrices) mm_straight_matrix<TILE>(site, args, job, matrix);
    mm_leave(site);
}

/* A along K, B across it. */
template <typename TILE>
static constexpr mm_row mm_straight(const char *name, mm_cost cost)
{
    const mm_kernel kernel = {.name = name,
                              .entry = mm_straight_kernel<TILE>,
                              .m = TILE::SIZE,
                              .n = TILE::SIZE,
                              .depth = TILE::SIZE,
                              .threads = TILE::THREADS,
                              .ctas = TILE::CTAS,
                              .cost = cost,
                              .exact = true,
                              .matrices = TILE::MATRICES};
    const mm_kernel none = mm_without_entry(kernel);
    return {{{none, none}, {kernel, none}}};
}

#endif
