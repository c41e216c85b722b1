/* Where the lines of the output are not those of the input: tiles of both go through shared memory, so that each side is read and written
 * along its own lines. Elements of less than 4 bytes are put together to words before they are stored there: 4 / size neighbours of a line
 * of the output. */
#ifndef KS_LAYOUT_TILES_CUH
#define KS_LAYOUT_TILES_CUH

#include "cuda/layout/common.cuh"

enum { LAYOUT_TILE_BYTES = 16 << 10 }; /* of the largest tile */

/* Of the box's axes the last two: one along which the input's elements are neighbours, and the output's last one. */
struct layout_tiles {
    int64_t rows, columns;       /* their extents */
    int64_t row_to, column_from; /* elements to the next index, on the side where they are none's neighbours */
    ks_divider down, across;     /* tiles along the rows, and along the columns */
    int64_t tiles;
    int rows_log2,
        words_log2; /* of a tile: its lines in the output, and their words; a line begins a bank further on */
};

template <int SIZE>
struct layout_word_of {
    typedef uint32_t type;
};
template <>
struct layout_word_of<8> {
    typedef unsigned long long type;
};

/* Elements of a word, and elements of 16 bytes. */
__host__ __device__ constexpr int layout_word_length(int size)
{
    return size < 4 ? 4 / size : 1;
}

__host__ __device__ constexpr int layout_log2(int64_t value) /* rounded up */
{
    int log2 = 0;
    while (((int64_t)1 << log2) < value) log2++;
    return log2;
}

/* Of 16 bytes of each of a word's columns the words, one for each row. */
__device__ __forceinline__ void layout_turn(const uint4 (&v)[1], unsigned long long (&word)[2])
{
    word[0] = (unsigned long long)v[0].y << 32 | v[0].x;
    word[1] = (unsigned long long)v[0].w << 32 | v[0].z;
}
__device__ __forceinline__ void layout_turn(const uint4 (&v)[1], uint32_t (&word)[4])
{
    word[0] = v[0].x;
    word[1] = v[0].y;
    word[2] = v[0].z;
    word[3] = v[0].w;
}
__device__ __forceinline__ void layout_turn(const uint4 (&v)[2], uint32_t (&word)[8])
{
    const uint32_t a[4] = {v[0].x, v[0].y, v[0].z, v[0].w}, b[4] = {v[1].x, v[1].y, v[1].z, v[1].w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        word[2 * i] = __byte_perm(a[i], b[i], 0x5410);
        word[2 * i + 1] = __byte_perm(a[i], b[i], 0x7632);
    }
}
__device__ __forceinline__ void layout_turn(const uint4 (&v)[4], uint32_t (&word)[16])
{
    const uint32_t c[4][4] = {{v[0].x, v[0].y, v[0].z, v[0].w},
                              {v[1].x, v[1].y, v[1].z, v[1].w},
                              {v[2].x, v[2].y, v[2].z, v[2].w},
                              {v[3].x, v[3].y, v[3].z, v[3].w}};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t low01 = __byte_perm(c[0][i], c[1][i], 0x5140), high01 = __byte_perm(c[0][i], c[1][i], 0x7362);
        const uint32_t low23 = __byte_perm(c[2][i], c[3][i], 0x5140), high23 = __byte_perm(c[2][i], c[3][i], 0x7362);
        word[4 * i] = __byte_perm(low01, low23, 0x5410);
        word[4 * i + 1] = __byte_perm(low01, low23, 0x7632);
        word[4 * i + 2] = __byte_perm(high01, high23, 0x5410);
        word[4 * i + 3] = __byte_perm(high01, high23, 0x7632);
    }
}

/* What a thread reads of a tile at a time: ROWS rows, each a word of LENGTH columns. EACH: of the largest tile; those of a batch are under way
 * together. */
template <class W, bool VECTORS>
struct layout_unit {
    typedef typename layout_word_of<(int)sizeof(W)>::type word_type;
    static constexpr int LENGTH = layout_word_length((int)sizeof(W)), ROWS = VECTORS ? 16 / (int)sizeof(W) : 1;
    static constexpr int EACH = LAYOUT_TILE_BYTES / (int)sizeof(word_type) / ROWS / LAYOUT_THREADS;
    static constexpr int BATCH = EACH < 4 ? EACH : 4;

    int row, at; /* first row, and the word in its line */
    bool there;
    uint4 vector[VECTORS ? LENGTH : 1];
    word_type word; /* of one row */

    __device__ __forceinline__ void read(const layout_tiles &t, const W *in, int64_t rows, int64_t columns, int unit)
    {
        const int groups_log2 = t.rows_log2 - layout_log2(ROWS);
        row = (unit & ((1 << groups_log2) - 1)) * ROWS;
        at = unit >> groups_log2;
        there = at < 1 << t.words_log2 && row < rows && at * LENGTH < columns;
        const W *from = in + row + (int64_t)at * LENGTH * t.column_from;
        if constexpr (!VECTORS) word = 0;
#pragma unroll
        for (int i = 0; i < LENGTH; i++) {
            const bool inside = there && at * LENGTH + i < columns;
            if constexpr (VECTORS)
                vector[i] =
                    inside ? __ldg((const uint4 *)(const void *)(from + i * t.column_from)) : make_uint4(0, 0, 0, 0);
            else if (inside)
                word |= (word_type)__ldg(from + i * t.column_from) << (8 * (int)sizeof(W) * i);
        }
    }
    __device__ __forceinline__ void keep(word_type *tile, int pitch) const
    {
        word_type words[ROWS];
        if (!there) return;
        if constexpr (VECTORS)
            layout_turn(vector, words);
        else
            words[0] = word;
#pragma unroll
        for (int i = 0; i < ROWS; i++) tile[(row + i) * pitch + at] = words[i];
    }
};

/* VECTORS: columns of the input begin on 16 bytes, and a thread reads so many of each column of a word; else an element of each. in, out: the
 * tile's first element. rows, columns: what the box has from there on. */
template <class W, bool VECTORS>
__device__ __forceinline__ void layout_read_tile(const layout_tiles &t, const W *in, int64_t rows, int64_t columns,
                                                 typename layout_word_of<(int)sizeof(W)>::type *tile)
{
    typedef layout_unit<W, VECTORS> unit;
    const int pitch = (1 << t.words_log2) + 1, all = 1 << (t.rows_log2 - layout_log2(unit::ROWS) + t.words_log2);
#pragma unroll 1
    for (int first = (int)threadIdx.x; first < all; first += unit::BATCH * LAYOUT_THREADS) {
        unit units[unit::BATCH];
#pragma unroll
        for (int i = 0; i < unit::BATCH; i++) units[i].read(t, in, rows, columns, first + i * LAYOUT_THREADS);
#pragma unroll
        for (int i = 0; i < unit::BATCH; i++) units[i].keep(tile, pitch);
    }
}

/* WORDS: lines of the output begin on a word. */
template <class W, bool WORDS>
__device__ __forceinline__ void layout_write_tile(const layout_tiles &t, W *out, int64_t rows, int64_t columns,
                                                  const typename layout_word_of<(int)sizeof(W)>::type *tile)
{
    typedef typename layout_word_of<(int)sizeof(W)>::type word_type;
    constexpr int LENGTH = layout_word_length((int)sizeof(W));
    const int pitch = (1 << t.words_log2) + 1;
#pragma unroll 4
    for (int unit = (int)threadIdx.x; unit < 1 << (t.rows_log2 + t.words_log2); unit += LAYOUT_THREADS) {
        const int at = unit & ((1 << t.words_log2) - 1), row = unit >> t.words_log2;
        if (row >= rows || at * LENGTH >= columns) continue;
        const word_type word = tile[row * pitch + at];
        W *to = out + row * t.row_to + at * LENGTH;
        if (WORDS && (at + 1) * LENGTH <= columns) {
            *(word_type *)(void *)to = word;
            continue;
        }
#pragma unroll
        for (int i = 0; i < LENGTH; i++)
            if (at * LENGTH + i < columns) to[i] = (W)(word >> (8 * (int)sizeof(W) * i));
    }
}

template <class W, bool VECTORS, bool WORDS>
__global__ void __launch_bounds__(LAYOUT_THREADS) layout_tile(ks_site site, layout_args<ks_divider> a, layout_tiles t)
{
    typedef typename layout_word_of<(int)sizeof(W)>::type word_type;
    word_type *tile = (word_type *)ks_dynamic; /* [row][word] */
    ks_job_sides job;
    if (!layout_enter(site, a, &job)) return;
    const W *in = (const W *)(job.in + a.in);
    W *out = (W *)(job.out + a.out);
    for (int64_t at = blockIdx.x; at < t.tiles; at += gridDim.x) {
        int64_t item = t.across.of(at);
        const int64_t column = ((at - item * t.across.by) << t.words_log2) * layout_word_length((int)sizeof(W));
        const int64_t above = t.down.of(item), row = (item - above * t.down.by) << t.rows_log2;
        int64_t from = a.from_start + row + column * t.column_from, to = a.to_start + row * t.row_to + column;
        item = above;
        for (int d = a.rank - 3; d >= 0; d--) {
            const layout_axis<ks_divider> &axis = a.axis[d];
            const int64_t left = axis.per.of(item), i = item - left * axis.per.by;
            item = left;
            from += i * axis.from;
            to += i * axis.to;
        }
        layout_read_tile<W, VECTORS>(t, in + from, t.rows - row, t.columns - column, tile);
        __syncthreads();
        layout_write_tile<W, WORDS>(t, out + to, t.rows - row, t.columns - column, tile);
        __syncthreads();
    }
    if (a.last) ks_leave(site);
}

#endif
