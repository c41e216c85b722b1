/* The reference's loops, included by matmul.c once per vector width and precision (REAL, ISA): no include guard.
 *
 * Two ways. Blocks: both operands are packed into strips that one tile of registers walks through. Skinny, up to
 * KS_MATMUL_SKINNY rows: B is streamed once, unpacked. Both sum KS_MATMUL_DEPTH values in REAL, then go on in FP64. */
#define N(name) JOIN3(name, REAL, ISA)
#define LANES ((int64_t)(64 / sizeof(REAL)))
#define TILE_COLUMNS (TILE_VECTORS * LANES)
#define READ_RUN_(real) read_run_##real
#define READ_RUN(real) READ_RUN_(real)

typedef REAL N(vector) __attribute__((vector_size(64), aligned(sizeof(REAL)), may_alias));

/* Packs the matrix X(w, l), w < count, l < depth, into strips of `width` along w, zeros behind the last: a strip holds
 * its `width` values of l = 0, then of l = 1, ... One of both strides is 1, or the extent along it is. */
ISA_TARGET static void N(pack)(ks_dtype dtype, const unsigned char *from, int64_t at, int64_t w_stride,
                               int64_t l_stride, int64_t count, int64_t depth, int64_t width, REAL *to)
{
    for (int64_t w0 = 0; w0 < count; w0 += width, to += width * depth) {
        const int64_t here = least(width, count - w0);
        if (w_stride == 1) {
            for (int64_t l = 0; l < depth; l++) {
                READ_RUN(REAL)(dtype, from, at + w0 + l * l_stride, here, to + l * width);
                for (int64_t w = here; w < width; w++) to[l * width + w] = 0;
            }
            continue;
        }
        for (int64_t w = 0; w < width; w++) {
            REAL run[KS_MATMUL_DEPTH];
            if (w >= here)
                memset(run, 0, sizeof run);
            else if (l_stride == 1)
                READ_RUN(REAL)(dtype, from, at + (w0 + w) * w_stride, depth, run);
            else
                for (int64_t l = 0; l < depth; l++)
                    READ_RUN(REAL)(dtype, from, at + (w0 + w) * w_stride + l * l_stride, 1, run + l);
            for (int64_t l = 0; l < depth; l++) to[l * width + w] = run[l];
        }
    }
}

/* sum[TILE_ROWS][TILE_COLUMNS of pitch] += one strip of A times one strip of B. */
ISA_TARGET static void N(tile)(int64_t depth, const REAL *a, const REAL *b, double *sum, int64_t pitch)
{
    N(vector) c[TILE_ROWS][TILE_VECTORS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < TILE_VECTORS; v++) c[r][v] = (N(vector)){0};
    for (int64_t l = 0; l < depth; l++, a += TILE_ROWS, b += TILE_COLUMNS) {
        N(vector) line[TILE_VECTORS];
        for (int v = 0; v < TILE_VECTORS; v++) line[v] = *(const N(vector) *)(b + v * LANES);
        for (int r = 0; r < TILE_ROWS; r++)
            for (int v = 0; v < TILE_VECTORS; v++) c[r][v] += a[r] * line[v];
    }
    REAL leaf[TILE_ROWS][TILE_COLUMNS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < TILE_VECTORS; v++) *(N(vector) *)(leaf[r] + v * LANES) = c[r][v];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int64_t j = 0; j < TILE_COLUMNS; j++) sum[r * pitch + j] += (double)leaf[r][j];
}

ISA_TARGET static void N(block)(const product *p, int64_t i0, int64_t j0, double *sum, REAL *a, REAL *b)
{
    const int64_t rows = least(KS_MATMUL_ROWS, p->m - i0), columns = least(KS_MATMUL_COLUMNS, p->n - j0);
    const int64_t pitch = up(columns, TILE_COLUMNS);
    memset(sum, 0, (size_t)(up(rows, TILE_ROWS) * pitch) * sizeof *sum);
    for (int64_t l0 = 0; l0 < p->k; l0 += KS_MATMUL_DEPTH) {
        const int64_t depth = least(KS_MATMUL_DEPTH, p->k - l0);
        N(pack)(p->a_dtype, p->a, i0 * p->a_row + l0 * p->a_col, p->a_row, p->a_col, rows, depth, TILE_ROWS, a);
        N(pack)(p->b_dtype, p->b, l0 * p->b_row + j0 * p->b_col, p->b_col, p->b_row, columns, depth, TILE_COLUMNS, b);
        for (int64_t j = 0; j < columns; j += TILE_COLUMNS)
            for (int64_t i = 0; i < rows; i += TILE_ROWS)
                N(tile)(depth, a + i * depth, b + j * depth, sum + i * pitch + j, pitch);
    }
    for (int64_t i = 0; i < rows; i++) store_run(p, i0 + i, j0, sum + i * pitch, columns);
}

/* B's rows are contiguous: a strip of columns, four rows of B at a time. */
ISA_TARGET static void N(add_rows)(const product *p, int64_t l, int64_t rows, int64_t j0, int64_t columns,
                                   const REAL *a, REAL *leaf, REAL *lines)
{
    for (int64_t r = 0; r < rows; r++)
        READ_RUN(REAL)(p->b_dtype, p->b, (l + r) * p->b_row + j0, columns, lines + r * KS_MATMUL_STRIP);
    for (int64_t i = 0; i < p->m; i++) {
        REAL *c = leaf + i * KS_MATMUL_STRIP;
        if (rows == 4) {
            const REAL a0 = a[i], a1 = a[KS_MATMUL_SKINNY + i], a2 = a[2 * KS_MATMUL_SKINNY + i],
                       a3 = a[3 * KS_MATMUL_SKINNY + i];
            for (int64_t j = 0; j < columns; j++)
                c[j] += (a0 * lines[j] + a1 * lines[KS_MATMUL_STRIP + j]) +
                        (a2 * lines[2 * KS_MATMUL_STRIP + j] + a3 * lines[3 * KS_MATMUL_STRIP + j]);
            continue;
        }
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < columns; j++) c[j] += a[r * KS_MATMUL_SKINNY + i] * lines[r * KS_MATMUL_STRIP + j];
    }
}

ISA_TARGET static void N(strip_by_rows)(const product *p, int64_t j0, int64_t columns, double *sum, REAL *leaf, REAL *a,
                                        REAL *lines)
{
    for (int64_t l0 = 0; l0 < p->k; l0 += KS_MATMUL_DEPTH) {
        const int64_t depth = least(KS_MATMUL_DEPTH, p->k - l0);
        N(pack)(p->a_dtype, p->a, l0 * p->a_col, p->a_row, p->a_col, p->m, depth, KS_MATMUL_SKINNY, a);
        for (int64_t i = 0; i < p->m; i++) memset(leaf + i * KS_MATMUL_STRIP, 0, (size_t)columns * sizeof *leaf);
        for (int64_t l = 0; l < depth; l += 4)
            N(add_rows)(p, l0 + l, least(4, depth - l), j0, columns, a + l * KS_MATMUL_SKINNY, leaf, lines);
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < columns; j++) sum[i * KS_MATMUL_STRIP + j] += (double)leaf[i * KS_MATMUL_STRIP + j];
    }
}

ISA_TARGET static double N(dot)(const REAL *x, const REAL *y, int64_t count)
{
    N(vector) c[2] = {{0}, {0}};
    int64_t l = 0;
    for (; l + 2 * LANES <= count; l += 2 * LANES)
        for (int v = 0; v < 2; v++)
            c[v] += *(const N(vector) *)(x + l + v * LANES) * *(const N(vector) *)(y + l + v * LANES);
    c[0] += c[1];
    double sum = 0;
    for (int64_t v = 0; v < LANES; v++) sum += (double)c[0][v];
    for (; l < count; l++) sum += (double)x[l] * (double)y[l];
    return sum;
}

/* B's columns are contiguous (it was given transposed): a dot product each, KS_MATMUL_STRIP values at a time. */
ISA_TARGET static void N(strip_by_columns)(const product *p, int64_t j0, int64_t columns, double *sum, REAL *a,
                                           REAL *line)
{
    for (int64_t l0 = 0; l0 < p->k; l0 += KS_MATMUL_STRIP) {
        const int64_t depth = least(KS_MATMUL_STRIP, p->k - l0);
        for (int64_t i = 0; i < p->m; i++) {
            if (p->a_col == 1)
                READ_RUN(REAL)(p->a_dtype, p->a, i * p->a_row + l0, depth, a + i * KS_MATMUL_STRIP);
            else
                for (int64_t l = 0; l < depth; l++) READ_RUN(REAL)
            (p->a_dtype, p->a, i * p->a_row + (l0 + l) * p->a_col, 1, a + i * KS_MATMUL_STRIP + l);
        }
        for (int64_t j = 0; j < columns; j++) {
            READ_RUN(REAL)(p->b_dtype, p->b, l0 + (j0 + j) * p->b_col, depth, line);
            for (int64_t i = 0; i < p->m; i++)
                sum[i * KS_MATMUL_STRIP + j] += N(dot)(a + i * KS_MATMUL_STRIP, line, depth);
        }
    }
}

ISA_TARGET static void N(skinny)(const product *p, unsigned char *scratch)
{
    double *sum = (double *)scratch;
    REAL *leaf = (REAL *)(sum + KS_MATMUL_SKINNY * KS_MATMUL_STRIP);
    REAL *lines = leaf + KS_MATMUL_SKINNY * KS_MATMUL_STRIP;
    REAL *a = lines + 4 * KS_MATMUL_STRIP;
    for (int64_t j0 = 0; j0 < p->n; j0 += KS_MATMUL_STRIP) {
        const int64_t columns = least(KS_MATMUL_STRIP, p->n - j0);
        for (int64_t i = 0; i < p->m; i++) memset(sum + i * KS_MATMUL_STRIP, 0, (size_t)columns * sizeof *sum);
        if (p->b_col == 1 && (p->n > 1 || p->b_row > 1)) /* one column that lies together is a dot product */
            N(strip_by_rows)(p, j0, columns, sum, leaf, a, lines);
        else
            N(strip_by_columns)(p, j0, columns, sum, leaf, lines);
        for (int64_t i = 0; i < p->m; i++) store_run(p, i, j0, sum + i * KS_MATMUL_STRIP, columns);
    }
}

/* run_fn */
ISA_TARGET static void N(run)(const product *p, unsigned char *scratch)
{
    if (p->m <= KS_MATMUL_SKINNY) {
        N(skinny)(p, scratch);
        return;
    }
    const int64_t rows = up(least(p->m, KS_MATMUL_ROWS), TILE_ROWS),
                  columns = up(least(p->n, KS_MATMUL_COLUMNS), TILE_COLUMNS);
    double *sum = (double *)scratch;
    REAL *b = (REAL *)(sum + rows * columns);
    REAL *a = b + columns * KS_MATMUL_DEPTH;
    for (int64_t i0 = 0; i0 < p->m; i0 += KS_MATMUL_ROWS)
        for (int64_t j0 = 0; j0 < p->n; j0 += KS_MATMUL_COLUMNS) N(block)(p, i0, j0, sum, a, b);
}

#undef N
#undef LANES
#undef TILE_COLUMNS
#undef READ_RUN
#undef READ_RUN_
