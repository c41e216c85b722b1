/* Part of matmul.c: products of INT8 by the processor's sums of four products (AVX512-VNNI), in 32 bits, so exact as tiles.h makes them.
 *
 * One operand of that instruction is unsigned: B's bytes come with 128 added, and 128 times the sum of A's row is taken away at the end.
 * Sums may wrap meanwhile; the result fits 32 bits, so that it is right. */
#if defined(__x86_64__)
#include <immintrin.h>

#define BYTES_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
enum { BYTES_DEPTH = 512, BYTES_ROWS = 8, BYTES_COLUMNS = 32 };

static bool has_bytes(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

/* Strips of BYTES_ROWS rows: of each the next four values, zeros behind the last; sums: 128 times what a row adds up to. */
BYTES_TARGET static void pack_bytes_a(const product *p, int64_t i0, int64_t l0, int64_t depth, int8_t *to,
                                      uint32_t *sums)
{
    const int64_t whole = up(depth, 4), rows = least(KS_MATMUL_ROWS, p->m - i0);
    for (int64_t i = 0; i < up(rows, BYTES_ROWS); i++) {
        const int8_t *from = (const int8_t *)p->a + (i0 + i) * p->a_row + l0 * p->a_col;
        __attribute__((uninitialized)) int8_t line[BYTES_DEPTH];
        int8_t *strip = to + i / BYTES_ROWS * BYTES_ROWS * whole + i % BYTES_ROWS * 4;
        int32_t sum = 0;
        memset(line, 0, (size_t)whole);
        if (i < rows && p->a_col == 1)
            memcpy(line, from, (size_t)depth);
        else
            for (int64_t l = 0; i < rows && l < depth; l++) line[l] = from[l * p->a_col];
        for (int64_t l = 0; l < whole; l++) sum += line[l];
        for (int64_t l = 0; l < whole; l += 4) memcpy(strip + l * BYTES_ROWS, line + l, 4);
        sums[i] += (uint32_t)sum * 128u;
    }
}

/* Sixteen columns of four rows of B that lie along the columns; of `lines` rows there is memory. */
BYTES_TARGET static __m512i four_lines(const int8_t *from, int64_t row, int64_t lines, __mmask16 columns)
{
    __m512i all = _mm512_setzero_si512();
    for (int l = 0; l < 4 && l < lines; l++) {
        const __m512i x = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(columns, from + l * row));
        all = _mm512_or_si512(all, _mm512_sllv_epi32(x, _mm512_set1_epi32(8 * l)));
    }
    return all;
}

/* Strips of BYTES_COLUMNS columns: of each the next four values, with 128 added. */
BYTES_TARGET static void pack_bytes_b(const product *p, int64_t l0, int64_t j0, int64_t columns, int64_t depth,
                                      uint8_t *to)
{
    const int64_t whole = up(depth, 4);
    const int8_t *from = (const int8_t *)p->b + l0 * p->b_row + j0 * p->b_col;
    const __m512i half = _mm512_set1_epi8((char)0x80);
    for (int64_t j = 0; j < columns; j += 16) {
        const int64_t here = least(16, columns - j);
        uint8_t *strip = to + j / BYTES_COLUMNS * BYTES_COLUMNS * whole + j % BYTES_COLUMNS * 4;
        if (p->b_col == 1) {
            const __mmask16 lanes = (__mmask16)((1u << here) - 1);
            for (int64_t l = 0; l < whole; l += 4)
                _mm512_storeu_si512(
                    strip + l * BYTES_COLUMNS,
                    _mm512_xor_si512(four_lines(from + l * p->b_row + j, p->b_row, depth - l, lanes), half));
            continue;
        }
        for (int64_t c = 0; c < here; c++) {
            const int8_t *column = from + (j + c) * p->b_col;
            int64_t l = 0;
            for (; p->b_row == 1 && l + 4 <= depth; l += 4) {
                uint32_t four;
                memcpy(&four, column + l, sizeof four);
                four ^= 0x80808080u;
                memcpy(strip + l * BYTES_COLUMNS + 4 * c, &four, sizeof four);
            }
            for (; l < depth; l++)
                strip[l / 4 * 4 * BYTES_COLUMNS + 4 * c + l % 4] = (uint8_t)column[l * p->b_row] ^ 0x80u;
        }
    }
}

/* sum[BYTES_ROWS][BYTES_COLUMNS of pitch] += one strip of A times one strip of B. */
BYTES_TARGET static void tile_bytes(int64_t depth, const int8_t *a, const uint8_t *b, int32_t *sum, int64_t pitch)
{
    __m512i c[BYTES_ROWS][2];
    for (int r = 0; r < BYTES_ROWS; r++)
        for (int v = 0; v < 2; v++) c[r][v] = _mm512_loadu_si512(sum + r * pitch + 16 * v);
    for (int64_t l = 0; l < depth; l += 4, a += 4 * BYTES_ROWS, b += 4 * BYTES_COLUMNS) {
        const __m512i left = _mm512_loadu_si512(b), right = _mm512_loadu_si512(b + 64);
        for (int r = 0; r < BYTES_ROWS; r++) {
            int32_t four;
            memcpy(&four, a + 4 * r, sizeof four);
            const __m512i row = _mm512_set1_epi32(four);
            c[r][0] = _mm512_dpbusd_epi32(c[r][0], left, row);
            c[r][1] = _mm512_dpbusd_epi32(c[r][1], right, row);
        }
    }
    for (int r = 0; r < BYTES_ROWS; r++)
        for (int v = 0; v < 2; v++) _mm512_storeu_si512(sum + r * pitch + 16 * v, c[r][v]);
}

BYTES_TARGET static void store_bytes(const product *p, int64_t row, int64_t column, const int32_t *sum, uint32_t less,
                                     int64_t count)
{
    __attribute__((uninitialized)) double line[KS_MATMUL_COLUMNS];
    const bool plain = p->dtype == KS_INT32 && p->c_col == 1 && p->alpha == 1.0 && !p->a_scale && !p->b_scale &&
                       !p->bias && p->activation == KS_MATMUL_NONE;
    if (plain) {
        int32_t *out = (int32_t *)p->c + row * p->c_row + column;
        for (int64_t j = 0; j < count; j++) out[j] = (int32_t)((uint32_t)sum[j] - less);
        return;
    }
    for (int64_t j = 0; j < count; j++) line[j] = (double)(int32_t)((uint32_t)sum[j] - less);
    store_run(p, row, column, line, count);
}

BYTES_TARGET static void block_bytes(const product *p, int64_t i0, int64_t j0, unsigned char *scratch)
{
    const int64_t rows = least(KS_MATMUL_ROWS, p->m - i0), columns = least(KS_MATMUL_COLUMNS, p->n - j0);
    const int64_t pitch = up(columns, BYTES_COLUMNS), lines = up(rows, BYTES_ROWS);
    int32_t *sum = (int32_t *)scratch;
    uint8_t *b = (uint8_t *)(sum + lines * pitch);
    int8_t *a = (int8_t *)b + pitch * BYTES_DEPTH;
    uint32_t less[KS_MATMUL_ROWS] = {0};
    memset(sum, 0, (size_t)(lines * pitch) * sizeof *sum);
    for (int64_t l0 = 0; l0 < p->k; l0 += BYTES_DEPTH) {
        const int64_t depth = least(BYTES_DEPTH, p->k - l0), whole = up(depth, 4);
        pack_bytes_a(p, i0, l0, depth, a, less);
        memset(b, 0, (size_t)(pitch * whole));
        pack_bytes_b(p, l0, j0, columns, depth, b);
        for (int64_t j = 0; j < columns; j += BYTES_COLUMNS)
            for (int64_t i = 0; i < rows; i += BYTES_ROWS)
                tile_bytes(whole, a + i * whole, b + j * whole, sum + i * pitch + j, pitch);
    }
    for (int64_t i = 0; i < rows; i++) store_bytes(p, i0 + i, j0, sum + i * pitch, less[i], columns);
}

/* run_fn */
static void run_bytes(const product *p, unsigned char *scratch)
{
    for (int64_t i0 = 0; i0 < p->m; i0 += KS_MATMUL_ROWS)
        for (int64_t j0 = 0; j0 < p->n; j0 += KS_MATMUL_COLUMNS) block_bytes(p, i0, j0, scratch);
}

#undef BYTES_TARGET
#endif
