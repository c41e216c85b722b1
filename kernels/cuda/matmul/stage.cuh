/* One operand's part of a stage: from rows in memory to rows in shared memory, whatever their alignment.
 *
 * All copies are asynchronous. mm_feed keeps the rows and copies 16 bytes at a time. A row that does not start on 16 bytes is
 * copied with the bytes in front of it and behind it (buffers start on KS_ALIGNMENT and end in KS_PAD, so those are there)
 * into a row that has 16 bytes to spare, and once it has arrived a warp moves it to the row's start, in place.
 * mm_feed_across transposes rows along K into rows across it, an element at a time. */
#ifndef KS_MATMUL_STAGE_CUH
#define KS_MATMUL_STAGE_CUH

#include "cuda/matmul/common.cuh"

#include <limits.h>

enum { MM_SPARE = 16 }; /* bytes behind each row in shared memory: room to shift, and fewer bank conflicts */

/* ROWS rows of COLUMNS elements, PITCH bytes apart in shared memory. */
template <typename T, int ROWS_, int COLUMNS_, int SPARE>
struct mm_stage {
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, ROW_BYTES = COLUMNS * (int)sizeof(T),
                         PITCH = ROW_BYTES + SPARE;
    static constexpr int BYTES = ROWS * PITCH, CHUNKS = ROW_BYTES / 16, WORDS = ROW_BYTES / 4;
    static_assert(ROW_BYTES % 16 == 0 && SPARE >= MM_SPARE, "rows are whole vectors and have room to shift");
};

/* One thread's share of an operand's stages: which chunk of which rows it copies, and how many bytes and rows of the matrix
 * are left from there on. */
template <typename STAGE, int THREADS, bool K_CONTIGUOUS, typename T>
struct mm_feed {
    static constexpr int STEP = THREADS / STAGE::CHUNKS, COPIES = (STAGE::ROWS + STEP - 1) / STEP;
    static constexpr int DEPTH = K_CONTIGUOUS ? STAGE::COLUMNS : STAGE::ROWS;
    static_assert(THREADS % STAGE::CHUNKS == 0, "a thread stays in its column of chunks");
    const unsigned char *corner; /* of the stage */
    mm_int pitch;                /* bytes */
    int rows, bytes;             /* of the matrix from the corner on */
    bool shifted;

    __device__ __forceinline__ mm_feed(const T *matrix, const mm_operand &o, mm_int across, mm_int across_end, mm_int k,
                                       mm_int k_end)
    {
        const int wide = (int)min((mm_int)(K_CONTIGUOUS ? STAGE::ROWS : STAGE::COLUMNS), across_end - across);
        const int deep = (int)min((mm_int)(INT_MAX / 8), k_end - k);
        corner = (const unsigned char *)(matrix + (K_CONTIGUOUS ? across * o.pitch + k : k * o.pitch + across));
        pitch = o.pitch * (int)sizeof(T);
        rows = K_CONTIGUOUS ? wide : deep;
        bytes = (K_CONTIGUOUS ? deep : wide) * (int)sizeof(T);
        shifted = o.shifted;
    }

    /* To the next stage. */
    __device__ __forceinline__ void move()
    {
        corner += K_CONTIGUOUS ? STAGE::ROW_BYTES : DEPTH * pitch;
        (K_CONTIGUOUS ? bytes : rows) -= K_CONTIGUOUS ? STAGE::ROW_BYTES : DEPTH;
    }

    __device__ __forceinline__ void load(unsigned to) const
    {
        const int row = threadIdx.x / STAGE::CHUNKS, at = threadIdx.x % STAGE::CHUNKS * 16;
        to += row * STAGE::PITCH + at;
        const unsigned char *from = corner + row * pitch;
        const mm_int stride = STEP * pitch;
        if (!shifted) {
            from += at;
            const int inside = at < bytes ? rows - row : 0;
#pragma unroll
            for (int i = 0; i < COPIES; i++) {
                if (STAGE::ROWS % STEP == 0 || row + i * STEP < STAGE::ROWS)
                    mm_copy_async(to + i * STEP * STAGE::PITCH, from, i * STEP < inside);
                from += stride;
            }
            return;
        }
        const int inside = rows - row;
#pragma unroll 2
        for (int i = 0; i < COPIES; i++) {
            if (STAGE::ROWS % STEP == 0 || row + i * STEP < STAGE::ROWS) {
                const int shift = (int)((uintptr_t)from & 15);
                mm_copy_async(to + i * STEP * STAGE::PITCH, from - shift + at, i * STEP < inside && at < shift + bytes);
            }
            from += stride;
        }
        /* The chunk behind: what shifting leaves of a row. */
        for (int last = threadIdx.x; last < STAGE::ROWS; last += THREADS) {
            const unsigned char *start = corner + last * pitch;
            const int shift = (int)((uintptr_t)start & 15);
            mm_copy_async(to - row * STAGE::PITCH - at + last * STAGE::PITCH + STAGE::ROW_BYTES,
                          start - shift + STAGE::ROW_BYTES, last < rows && STAGE::ROW_BYTES < shift + bytes);
        }
    }
};

/* The largest power of two, up to `most`, of which `count` is a multiple. */
static constexpr int mm_lanes(int count, int most)
{
    int lanes = 1;
    while (lanes < most && count % (lanes * 2) == 0) lanes *= 2;
    return lanes;
}

/* Of a stage's row l whose elements LANES lanes copy one by one from a row along K: by how many elements its vectors of W are
 * rotated. Rows of a stage are 16 bytes more than a multiple of all banks: 8 rows go to all banks, the next 8 beside them. */
static __host__ __device__ constexpr int mm_rotation(int l, int w, int lanes)
{
    return l / 8 * (8 * w / lanes) % w;
}

/* A thread's share of a stage goes in passes. */
enum mm_pass {
    MM_PASS_TRANSPOSE, /* LANES neighbouring threads copy neighbouring elements of a row along K */
    MM_PASS_SINGLES,   /* elements of rows across K that do not start on 16 bytes */
    MM_PASS_VECTORS,   /* of rows across K that do */
};

/* The same for a stage whose rows lie across K, whatever the operand's do. Where they lie along it, and where they do not start
 * on 16 bytes, each element is a copy of its own: there is nothing to shift. Passes go on from a running address, and each
 * serves several copies: each instruction here is one that multiplies nothing. What lies beyond the operand across K is not
 * copied, as its sums are not stored; beyond the end of K come zeros. */
template <typename STAGE, int THREADS, bool K_CONTIGUOUS, int LANES, typename T>
struct mm_feed_across {
    static constexpr int DEPTH = STAGE::ROWS, ACROSS = STAGE::COLUMNS, SIZE = (int)sizeof(T), W = 16 / SIZE;
    static constexpr int TRANSPOSED_ROWS = THREADS / LANES; /* rows along K of a pass */
    /* A pass over rows of K, by so many threads a row, of elements or of vectors. */
    static constexpr int VECTORS = ACROSS / W;
    static constexpr int SINGLES = mm_lanes(ACROSS, 32), VECTOR_LANES = mm_lanes(VECTORS, 32);
    static constexpr int SINGLE_ROWS = THREADS / SINGLES;
    static constexpr int VECTOR_ROWS = THREADS / VECTOR_LANES < DEPTH ? THREADS / VECTOR_LANES : DEPTH;
    static_assert(TRANSPOSED_ROWS % W == 0, "an element lies as far in its vector in each pass");
    static_assert(DEPTH % LANES == 0 && SINGLE_ROWS <= DEPTH && DEPTH % SINGLE_ROWS == 0, "passes are whole");
    const unsigned char *from; /* this thread's next element */
    unsigned mine;             /* its place in a stage */
    mm_int pitch, stride;      /* bytes; of a pass */
    int wide, deep;            /* elements of the matrix: from there on; from the stage's first row on */
    bool shifted;

    __device__ __forceinline__ int row() const
    {
        return K_CONTIGUOUS ? threadIdx.x % LANES : threadIdx.x / (shifted ? SINGLES : VECTOR_LANES);
    }

    __device__ __forceinline__ mm_feed_across(const T *matrix, const mm_operand &o, mm_int across, mm_int across_end,
                                              mm_int k, mm_int k_end)
    {
        shifted = o.shifted;
        pitch = o.pitch * SIZE;
        const int lanes = shifted ? SINGLES : VECTOR_LANES, thread = threadIdx.x;
        const int l = row(), j = K_CONTIGUOUS ? thread / LANES : thread % lanes * (shifted ? 1 : W);
        from = (const unsigned char *)matrix +
               (K_CONTIGUOUS ? (across + j) * pitch + (k + l) * SIZE : (k + l) * pitch + (across + j) * SIZE);
        stride = pitch * (K_CONTIGUOUS ? TRANSPOSED_ROWS : shifted ? SINGLE_ROWS : VECTOR_ROWS);
        mine = l * STAGE::PITCH + (K_CONTIGUOUS ? j / W * W + (j + mm_rotation(l, W, LANES)) % W : j) * SIZE;
        wide = (int)min((mm_int)ACROSS, across_end - across) - j;
        deep = (int)min((mm_int)(INT_MAX / 8), k_end - k);
    }

    /* Pass p. WHOLE: the stage has no rows behind the end of K. */
    template <mm_pass PASS, bool WHOLE>
    __device__ __forceinline__ void pass(unsigned to, int p)
    {
        const int inside = deep - row(); /* rows from this thread's on */
        if constexpr (PASS == MM_PASS_TRANSPOSE) {
            if (p * TRANSPOSED_ROWS < wide) {
#pragma unroll
                for (int l = 0; l < DEPTH; l += LANES)
                    mm_copy_element<SIZE>(to + p * TRANSPOSED_ROWS * SIZE + l * STAGE::PITCH, from + l * SIZE,
                                          WHOLE || l < inside);
            }
        } else if constexpr (PASS == MM_PASS_SINGLES) {
#pragma unroll
            for (int j = 0; j < ACROSS; j += SINGLES)
                if (j < wide)
                    mm_copy_element<SIZE>(to + p * SINGLE_ROWS * STAGE::PITCH + j * SIZE, from + j * SIZE,
                                          WHOLE || p * SINGLE_ROWS < inside);
        } else if (THREADS <= DEPTH * VECTOR_LANES || threadIdx.x < DEPTH * VECTOR_LANES) {
#pragma unroll
            for (int j = 0; j < ACROSS; j += VECTOR_LANES * W)
                if (j < wide)
                    mm_copy_async(to + p * VECTOR_ROWS * STAGE::PITCH + j * SIZE, from + j * SIZE,
                                  WHOLE || p * VECTOR_ROWS < inside);
        }
        from += stride;
        mm_keep(from);
    }

    /* Part i of PARTS of the next stage. */
    template <mm_pass PASS, bool WHOLE, int PARTS>
    __device__ __forceinline__ void part(unsigned to, int i)
    {
        constexpr int PASSES = PASS == MM_PASS_TRANSPOSE ? (ACROSS + TRANSPOSED_ROWS - 1) / TRANSPOSED_ROWS
                               : PASS == MM_PASS_SINGLES ? DEPTH / SINGLE_ROWS
                                                         : (DEPTH + VECTOR_ROWS - 1) / VECTOR_ROWS;
#pragma unroll
        for (int p = 0; p < PASSES; p++)
            if (p * PARTS / PASSES == i) pass<PASS, WHOLE>(to + mine, p);
        if (i < PARTS - 1) return;
        if (PASS == MM_PASS_TRANSPOSE) from += DEPTH * SIZE - PASSES * stride;
        deep -= DEPTH;
    }

    template <bool WHOLE>
    __device__ __forceinline__ void copy(unsigned to)
    {
        if constexpr (K_CONTIGUOUS)
            part<MM_PASS_TRANSPOSE, WHOLE, 1>(to, 0);
        else if (shifted)
            part<MM_PASS_SINGLES, WHOLE, 1>(to, 0);
        else
            part<MM_PASS_VECTORS, WHOLE, 1>(to, 0);
    }

    /* The next stage, if there is one. */
    __device__ __forceinline__ void load(unsigned to)
    {
        if (deep >= DEPTH)
            copy<true>(to);
        else if (deep > 0)
            copy<false>(to);
    }
};

/* Moves each row of a shifted stage to its start, zeros behind `bytes`. A row belongs to one warp, which reads several
 * before it writes them. `first`: the address of the stage's first byte, as far as 16 bytes go. */
template <typename T, typename STAGE, int THREADS>
__device__ __forceinline__ void mm_realign(unsigned char *stage, unsigned first, unsigned pitch, int bytes)
{
    constexpr int LANES = STAGE::WORDS < 32 ? STAGE::WORDS : 32, EACH = STAGE::WORDS / LANES;
    constexpr int STEP = THREADS / LANES, ROUNDS = (STAGE::ROWS + STEP - 1) / STEP;
    constexpr int AT_ONCE = ROUNDS * EACH <= 8 ? ROUNDS : EACH < 8 ? 8 / EACH : 1;
    static_assert(32 % LANES == 0 && STAGE::WORDS % LANES == 0, "a warp's lanes cover whole rows");
    const int lane_id = threadIdx.x % LANES, row0 = threadIdx.x / LANES;
#pragma unroll 1
    for (int round = 0; round < ROUNDS; round += AT_ONCE) {
        uint32_t moved[AT_ONCE][EACH];
        uint32_t *const words = (uint32_t *)(stage + (row0 + round * STEP) * STAGE::PITCH) + lane_id;
        const unsigned from = first + (row0 + round * STEP) * pitch;
        const auto live = [&](int i) {
            return (ROUNDS % AT_ONCE == 0 && STAGE::ROWS % STEP == 0) || row0 + (round + i) * STEP < STAGE::ROWS;
        };
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (!live(i)) continue;
            const unsigned shift = (from + i * STEP * pitch) & 15;
            const uint32_t *at = words + i * STEP * (STAGE::PITCH / 4) + shift / 4;
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                const int end = (lane_id + e * LANES) * 4;
                moved[i][e] =
                    sizeof(T) == 2 ? __funnelshift_r(at[e * LANES], at[e * LANES + 1], shift % 4 * 8) : at[e * LANES];
                if (end >= bytes) moved[i][e] = 0;
                if (sizeof(T) == 2 && end + 2 == bytes) moved[i][e] &= 0xFFFF;
            }
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (!live(i)) continue;
#pragma unroll
            for (int e = 0; e < EACH; e++) words[i * STEP * (STAGE::PITCH / 4) + e * LANES] = moved[i][e];
        }
    }
}

#endif
