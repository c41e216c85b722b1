/* oneDNN's FP32 products behind onednn.h: the one file that knows the library.
 *
 * Way      dnnl_sgemm, one call for each matrix, and not a matmul primitive: a primitive is 46 KiB of code and 0.3 ms of
 *          work for each shape (version 2.6, AVX-512), stays in a cache of the library's, and a failed allocation while
 *          it is made ends the process (operator new that returns NULL; std::bad_alloc through a C function). dnnl_sgemm
 *          makes its code for all shapes at once, at its first calls, and answers dnnl_out_of_memory afterwards.
 * Start    Those first calls are made by ks_onednn_open(), before anything is served, and before that in a child: a
 *          failure ends the child only.
 * Memory   Afterwards the library holds some 8 MiB of code for all shapes, and nothing for one of them. A call allocates
 *          what its packed operands take, 72 KiB to some MiB, and gives it back.
 * Threads  The library asks OpenMP for the size of the calling thread's team, and runs a team of 1 without OpenMP. Here it
 *          is this file that answers, so a lane never spawns a team. To set the size in OpenMP instead takes memory in each
 *          thread that calls, and where there is none OpenMP ends the process.
 * Limits   alpha must be a float exactly, as the library multiplies in FP32, and not 0, where it skips the product and
 *          with it every NaN. Bias and activation follow as a pass of ours over the output. */
#include "cpu/onednn.h"

#ifdef KS_HAVE_ONEDNN

#include "cpu/matmul/finish.h"

#include <errno.h>
#include <fcntl.h>
#include <oneapi/dnnl/dnnl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern const ks_op ks_op_matmul;

/* SIDE: of the products that make the library's code; with WIDE both kinds of them are met, for small and for packed
 * operands. */
enum { ROWS_MIN = 5, SIDE = 8, WIDE = 64, REHEARSAL_SECONDS = 60 };

/* Products of few rows by a transposed operand are 1.2 to 2.3 times as fast with the operands exchanged (AVX2 and AVX-512,
 * version 2.6); then EXCHANGED floats of the transposed output at a time pass through the stack. */
enum { EXCHANGE_ROWS_MIN = 16, EXCHANGE_ROWS_MAX = 32, EXCHANGE_DEPTH_MIN = 256, EXCHANGED = 8192 };

static bool ready;    /* fixed after ks_onednn_open() */
static int join_rows; /* likewise: of joined products; 0: their bits differ by place */

/* OpenMP's function, for the whole process: the program's own comes before that of a library. */
int omp_get_max_threads(void);
int omp_get_max_threads(void)
{
    return 1;
}

/* --- one product ------------------------------------------------------------------------------------------------------- */

typedef struct operand {
    const float *data;
    char transposed; /* 'N', 'T' */
    int64_t stride;  /* between its rows as they lie in memory */
} operand;

/* Of a row or column of 1 the step does not matter, but the library wants one that holds a row. */
static operand operand_of(const float *data, int64_t rows, int64_t columns, int64_t row, int64_t column)
{
    const bool transposed = column != 1;
    const int64_t stride = transposed ? column : row, least = transposed ? rows : columns;
    return (operand){data, transposed ? 'T' : 'N', stride < least ? least : stride};
}

static operand turned(const operand *from)
{
    operand out = *from;
    out.transposed = from->transposed == 'T' ? 'N' : 'T';
    return out;
}

static bool exchanges(const ks_matmul_shape *s, const operand *a, const operand *b)
{
    return a->transposed == 'N' && b->transposed == 'T' && s->m >= EXCHANGE_ROWS_MIN && s->m <= EXCHANGE_ROWS_MAX &&
           s->k >= EXCHANGE_DEPTH_MIN;
}

/* C^T = B^T A^T, a block of B^T's rows at a time. */
static bool multiply_exchanged(const ks_matmul_shape *s, const operand *a, const operand *b, float *out)
{
    float block[EXCHANGED];
    const operand left = turned(b), right = turned(a);
    const int64_t rows = EXCHANGED / s->m;
    for (int64_t from = 0; from < s->n; from += rows) {
        const int64_t count = s->n - from < rows ? s->n - from : rows;
        if (dnnl_sgemm(left.transposed, right.transposed, count, s->m, s->k, (float)s->alpha,
                       left.data + from * left.stride, left.stride, right.data, right.stride, 0, block,
                       s->m) != dnnl_success)
            return false;
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < count; j++) out[i * s->n + from + j] = block[j * s->m + i];
    }
    return true;
}

static bool multiply(const ks_matmul_shape *s, const float *a, const float *b, float *out)
{
    const operand left = operand_of(a, s->m, s->k, s->a_row, s->a_col);
    const operand right = operand_of(b, s->k, s->n, s->b_row, s->b_col);
    if (exchanges(s, &left, &right)) return multiply_exchanged(s, &left, &right, out);
    return dnnl_sgemm(left.transposed, right.transposed, s->m, s->n, s->k, (float)s->alpha, left.data, left.stride,
                      right.data, right.stride, 0, out, s->n) == dnnl_success;
}

/* --- start ------------------------------------------------------------------------------------------------------------- */

/* Small and packed operands, transposed in all four ways: all the code that the library has for such products. */
static bool make_code(void)
{
    static float a[WIDE * WIDE], b[WIDE * WIDE], out[WIDE * WIDE];
    bool made = true;
    for (int i = 0; made && i < 8; i++) {
        const int64_t side = i & 4 ? WIDE : SIDE;
        made = dnnl_sgemm(i & 1 ? 'T' : 'N', i & 2 ? 'T' : 'N', side, side, side, 1, a, side, b, side, 0, out, side) ==
               dnnl_success;
    }
    return made;
}

/* The library's last words are dropped, as a core file is; and a child that hangs is not waited for. */
static void rehearse(void)
{
    const struct rlimit none = {0, 0};
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGALRM);
    signal(SIGALRM, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &end, NULL);
    alarm(REHEARSAL_SECONDS);
    setrlimit(RLIMIT_CORE, &none);
    const int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (sink >= 0) dup2(sink, STDERR_FILENO);
    _exit(make_code() ? 0 : 1);
}

/* true: a child has made the code with the memory that this process has left. Not in sanitizer builds, whose allocator may be
 * locked by another thread at the moment of a fork, for ever in the child. */
static bool rehearsed(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#endif
    sigset_t all, old; /* a signal to all processes of a service is not for the child */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const pid_t child = fork();
    if (child != 0) pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (child < 0) return false;
    if (child == 0) rehearse();
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* --- joined rows ----------------------------------------------------------------------------------------------------------
 *
 * The library divides the rows of a product into tiles and takes other code for those of the last tile, whose sums may have
 * another order: bits of a row follow from the number of rows (seen with version 2.6 and AVX2). So joined rows are computed
 * by calls of one tile's rows each, and whether places in a tile have equal bits is tried at start. */

enum { JOIN_WIDE_MOST = 96, JOIN_DEEP_MOST = 1200, JOIN_ROWS_MOST = 8 };

typedef struct join_trial {
    float a[JOIN_ROWS_MOST * JOIN_DEEP_MOST], b[JOIN_DEEP_MOST * JOIN_WIDE_MOST];
    float all[JOIN_ROWS_MOST * JOIN_WIDE_MOST], one[JOIN_ROWS_MOST * JOIN_WIDE_MOST];
} join_trial;

static void fill_uneven(float *to, size_t count, uint32_t word)
{
    for (size_t i = 0; i < count; i++) {
        word = word * 1664525u + 1013904223u;
        to[i] = (float)(int32_t)word / 2147483648.0f;
    }
}

/* Each row at each other place, beside the others: is it as it was? */
static bool rows_agree(join_trial *t, int rows, int64_t k, int64_t n, char transposed)
{
    const int64_t stride = transposed == 'T' ? k : n;
    const size_t row_bytes = (size_t)n * sizeof(float);
    fill_uneven(t->a, (size_t)(rows * k), 1);
    if (dnnl_sgemm('N', transposed, rows, n, k, 1, t->a, k, t->b, stride, 0, t->all, n) != dnnl_success) return false;
    for (int turn = 1; turn < rows; turn++) {
        float first[JOIN_DEEP_MOST];
        memcpy(first, t->a, (size_t)k * sizeof *first);
        memmove(t->a, t->a + k, (size_t)((rows - 1) * k) * sizeof *first);
        memcpy(t->a + (rows - 1) * k, first, (size_t)k * sizeof *first);
        if (dnnl_sgemm('N', transposed, rows, n, k, 1, t->a, k, t->b, stride, 0, t->one, n) != dnnl_success)
            return false;
        for (int i = 0; i < rows; i++)
            if (memcmp(t->one + i * n, t->all + (i + turn) % rows * n, row_bytes) != 0) return false;
    }
    return true;
}

static int find_join_rows(void)
{
    static const int64_t shapes[][2] = {{64, 10}, {100, 37}, {17, 96}, {1200, 64}, {513, 33}};
    join_trial *trial = malloc(sizeof *trial);
    if (!trial) return 0;
    int rows = 6;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) rows = 8;
#endif
    bool agree = true;
    fill_uneven(trial->b, sizeof trial->b / sizeof *trial->b, 2);
    for (size_t i = 0; agree && i < sizeof shapes / sizeof *shapes; i++)
        agree = rows_agree(trial, rows, shapes[i][0], shapes[i][1], 'N') &&
                rows_agree(trial, rows, shapes[i][0], shapes[i][1], 'T');
    free(trial);
    return agree ? rows : 0;
}

int ks_onednn_join_rows(const ks_spec *spec)
{
    return ks_onednn_takes(spec) ? join_rows : 0;
}

ks_status ks_onednn_open(ks_error *error)
{
    if (ready) return KS_OK;
    if (!rehearsed() || !make_code()) return ks_fail(error, KS_MEMORY, "no memory for oneDNN's code");
    join_rows = find_join_rows();
    ready = true;
    return KS_OK;
}

/* --- a plan ------------------------------------------------------------------------------------------------------------ */

bool ks_onednn_takes(const ks_spec *spec)
{
    if (!ready || spec->op != &ks_op_matmul || spec->in[0].dtype != KS_FP32) return false;
    ks_matmul_shape s;
    ks_matmul_shape_of(spec, &s);
    return s.batch > 0 && s.m >= ROWS_MIN && s.n >= ROWS_MIN && s.k > 0 && s.alpha != 0 &&
           (double)(float)s.alpha == s.alpha && (s.a_row == 1 || s.a_col == 1) && (s.b_row == 1 || s.b_col == 1);
}

bool ks_onednn_run(const ks_spec *spec, const void *const *in, void *out)
{
    ks_matmul_shape s;
    ks_matmul_shape_of(spec, &s);
    for (int64_t i = 0; i < s.batch; i++) {
        int64_t a, b;
        ks_matmul_offsets(&s, i, &a, &b);
        if (!multiply(&s, (const float *)in[0] + a, (const float *)in[1] + b, (float *)out + i * s.m * s.n))
            return false;
    }
    ks_matmul_finish(&s, s.biased ? in[KS_MATMUL_BIAS] : NULL, s.residual ? in[KS_MATMUL_RESIDUAL] : NULL, out);
    return true;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *ks_onednn_version(void)
{
    return "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH);
}

#else

const char *ks_onednn_version(void)
{
    return "no oneDNN";
}

ks_status ks_onednn_open(ks_error *error)
{
    (void)error;
    return KS_OK;
}

bool ks_onednn_takes(const ks_spec *spec)
{
    (void)spec;
    return false;
}

int ks_onednn_join_rows(const ks_spec *spec)
{
    (void)spec;
    return 0;
}

bool ks_onednn_run(const ks_spec *spec, const void *const *in, void *out)
{
    (void)spec, (void)in, (void)out;
    return false;
}

#endif
