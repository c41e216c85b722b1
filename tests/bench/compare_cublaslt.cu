/* Matmul beside cuBLASLt, in one run: our kernels (the one that the model picks, and the best of those that a tuner
 * tries), the library's (its first answer, and the best of all that it offers), and which of them a tuner would
 * choose.
 *
 *   compare_cublaslt [--warm] [TEXT...]     rows in whose label every TEXT stands, such as: BF16 odd
 *
 * Cold, as in measured libraries' tables: a graph of many launches, each on another set of buffers, all sets together
 * beyond the L2 cache. --warm: the same launches on one set, the state in which the daemon tries: operands that a copy
 * has just written lie in the cache. A launch is what a lane launches, stamps and all; the library's has none. Each
 * side holds the tuner's own contest (tune_contest.h), then the four that matter meet in another, alternating. us:
 * medians. ours, chosen: the library's best time over that one's, so above 1 is faster. floor: the time that the bytes
 * of operands and output take at the rate of a long copy in the same run, and share, that over the chosen one's time.
 * copy: the time of a copy that reads and writes as many bytes, launched as the ways are: a launch, its first read and
 * its last write are in it. At the end geometric means by regime, and of low, kheavy, odd and batch together. */
#include "bench_sets.cuh"
#include "cuda/matmul/cublaslt.cuh"
#include "cuda/matmul/plan.h"
#include "engine/tune/contest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double GRAPH_US = 1000; /* of a replay, about */
enum { LAUNCHES_MOST = 48 };

enum regime { LOW, MID, KHEAVY, ODD, BATCH, SMALL, LARGE, REGIMES };
static const char *const regime_names[REGIMES] = {"low", "mid", "kheavy", "odd", "batch", "small", "large"};
static const char *const dtypes[] = {"FP32", "TF32", "BF16"};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* First the shapes of the measured libraries, then thirty more, spread over the regimes. */
static const struct {
    regime kind;
    const char *first, *second;
} shapes[] = {
    {LOW, "1x4096", "4096x4096"},        {LOW, "8x4096", "4096x4096"},          {LOW, "16x4096", "4096x4096"},
    {MID, "64x4096", "4096x4096"},       {SMALL, "128x128", "128x128"},         {SMALL, "256x256", "256x256"},
    {SMALL, "512x512", "512x512"},       {LARGE, "1024x1024", "1024x1024"},     {LARGE, "2048x2048", "2048x2048"},
    {LARGE, "4096x4096", "4096x4096"},   {LARGE, "8192x8192", "8192x8192"},     {KHEAVY, "64x65536", "65536x64"},
    {LARGE, "1000x1000", "1000x1000"},   {ODD, "127x1023", "1023x4095"},

    {LOW, "1x1024", "1024x1024"},        {LOW, "1x768", "768x50257"},           {LOW, "1x4096", "4096x11008"},
    {LOW, "1x11008", "11008x4096"},      {LOW, "2x1024", "1024x8192"},          {LOW, "4x4096", "4096x4096"},
    {LOW, "12x8192", "8192x2048"},       {LOW, "16x1024", "1024x1024"},         {MID, "24x2048", "2048x2048"},
    {MID, "32x4096", "4096x4096"},       {MID, "48x4096", "4096x11008"},        {MID, "64x1024", "1024x1024"},
    {KHEAVY, "16x65536", "65536x64"},    {KHEAVY, "32x32768", "32768x32"},      {KHEAVY, "128x100000", "100000x128"},
    {KHEAVY, "256x16384", "16384x256"},  {ODD, "33x4097", "4097x777"},          {ODD, "64x4097", "4097x4097"},
    {ODD, "77x513", "513x1025"},         {ODD, "255x255", "255x255"},           {ODD, "1001x1003", "1003x999"},
    {ODD, "2047x2050", "2050x2049"},     {BATCH, "4096x16x16", "4096x16x16"},   {BATCH, "4096x32x32", "4096x32x32"},
    {BATCH, "1024x64x64", "1024x64x64"}, {BATCH, "256x128x128", "256x128x128"}, {SMALL, "64x64", "64x64"},
    {SMALL, "200x100", "100x300"},       {LARGE, "65536x256", "256x16"},        {LARGE, "2048x2048", "2048x8192"},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* --- one way -------------------------------------------------------------------------------------------------------- */

static const char *launch_set(const sets *s, int at)
{
    unsigned char *in = s->memory + s->bytes * (size_t)(at % s->count);
    return ops_launch(&s->work, in, in + s->work.in_bytes, stream);
}

static double replay_us(cudaGraphExec_t exec, int launches)
{
    float ms = 0;
    CHECK(cudaGraphLaunch(exec, stream)); /* keeps the device busy until the second is enqueued */
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return (double)ms * 1000 / launches;
}

/* Of each of the launches; `launch` says why it cannot, and then it is 0. */
static double measure(const sets *s, int launches, const char *(*launch)(const sets *s, int at), const char *name)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    const char *why = launch(s, 0);
    if (!why) {
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < launches && !why; i++) why = launch(s, i);
        const cudaError_t code = cudaStreamEndCapture(stream, &graph);
        if (!why && code != cudaSuccess) why = cudaGetErrorString(code);
    }
    double us = 0;
    if (why) {
        fprintf(stderr, "%s is out: %s\n", name, why);
        cudaGetLastError();
    } else {
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphUpload(exec, stream));
        us = replay_us(exec, launches);
        CHECK(cudaGraphExecDestroy(exec));
    }
    if (graph) CHECK(cudaGraphDestroy(graph));
    return us;
}

static double measure_algorithm(sets *s, const ks_algorithm *algorithm, int launches)
{
    const char *why = ops_choose(&s->work, algorithm);
    if (!why) return measure(s, launches, launch_set, algorithm->kernel);
    fprintf(stderr, "%s is out: %s\n", algorithm->kernel, why);
    return 0;
}

static __global__ void copy_set(const uint4 *from, uint4 *to, size_t count)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        to[i] = from[i];
}

static const char *launch_copy(const sets *s, int at)
{
    const size_t count = (size_t)s->work.bytes / 2 / sizeof(uint4), blocks = (count + 511) / 512;
    uint4 *from = (uint4 *)(s->memory + s->bytes * (size_t)(at % s->count));
    copy_set<<<(unsigned)(blocks < 1056 ? blocks : 1056), 512, 0, stream>>>(from, from + count, count);
    return cudaPeekAtLastError() == cudaSuccess ? NULL : "the copy is not launched";
}

/* The least of a few: nothing is chosen by it. It overwrites the operands. */
static double measure_copy(const sets *s)
{
    double least = measure(s, LAUNCHES_MOST, launch_copy, "copy");
    for (int i = 0; i < 4; i++) least = fmin(least, measure(s, LAUNCHES_MOST, launch_copy, "copy"));
    return least;
}

static void hold_contest(sets *s, const ks_algorithm *candidates, int count, ks_contest *contest)
{
    int algorithm;
    ks_contest_begin(contest, count);
    while ((algorithm = ks_contest_next(contest)) >= 0) {
        const int64_t first_ns = contest->round ? contest->ns[algorithm][0] : 0;
        const double launches = first_ns ? GRAPH_US * 1000 / (double)first_ns : 4;
        const int n = launches < 2 ? 2 : launches > (double)(int)LAUNCHES_MOST ? (int)LAUNCHES_MOST : (int)launches;
        ks_contest_time(contest, (int64_t)(measure_algorithm(s, &candidates[algorithm], n) * 1000));
    }
}

/* --- the table ------------------------------------------------------------------------------------------------------- */

typedef struct mean {
    double ours, chosen; /* sums of logarithms */
    double least;        /* of chosen */
    int count;
} mean;

enum { PLANNED, OWN, FIRST, BEST, FINALISTS };

static bool is_library(const ks_algorithm *algorithm)
{
    return algorithm->algorithm[0] == KS_MATMUL_LIBRARY;
}

/* The four meet; without the library two. Returns how many. */
static int find_finalists(sets *s, const ks_algorithm *candidates, int count, ks_algorithm *out)
{
    static ks_contest contest;
    int own = 0;
    while (own < count && !is_library(&candidates[own])) own++;
    hold_contest(s, candidates, own, &contest);
    const int best_own = ks_contest_winner(&contest);
    out[PLANNED] = candidates[0];
    out[OWN] = candidates[best_own < 0 ? 0 : best_own];
    if (own == count) return FIRST;
    hold_contest(s, candidates + own, count - own, &contest);
    const int best = ks_contest_winner(&contest);
    out[FIRST] = candidates[own];
    out[BEST] = candidates[own + (best < 0 ? 0 : best)];
    return FINALISTS;
}

static double us_of(const ks_contest *contest, int algorithm)
{
    return (double)ks_contest_ns(contest, algorithm) / 1000;
}

static void run_row(const ops_row *row, bool warm, mean *sum)
{
    static ks_algorithm candidates[KS_CANDIDATES_MAX];
    static ks_contest last;
    ks_algorithm finalists[FINALISTS];
    sets s;
    memset(&s, 0, sizeof s);
    const char *refused = ops_plan(row, &s.work);
    printf("%-44s ", row->label);
    if (refused) {
        printf("refused: %s\n", refused);
        return;
    }
    open_sets(&s, warm ? 1 : SETS_MOST);
    const int found = find_finalists(&s, candidates, ops_candidates(&s.work, candidates, KS_CANDIDATES_MAX), finalists);
    hold_contest(&s, finalists, found, &last);
    const int winner = ks_contest_winner(&last);
    const double own = fmin(us_of(&last, PLANNED), us_of(&last, OWN)), chosen = us_of(&last, winner < 0 ? 0 : winner);
    const double first = found > FIRST ? us_of(&last, FIRST) : 0;
    const double best = found > FIRST ? fmin(first, us_of(&last, BEST)) : 0;
    const double floor_us = s.work.bytes / ops_copy_gbs() / 1e3;
    printf("%9.2f %9.2f %9.2f %9.2f %9.2f %6.2f %6.2f %9.2f %6.1f%% %9.2f  %s\n", us_of(&last, PLANNED), own, first,
           best, chosen, best / own, best / chosen, floor_us, 100 * floor_us / chosen, measure_copy(&s),
           finalists[winner < 0 ? 0 : winner].kernel);
    fflush(stdout);
    if (best > 0 && own > 0 && chosen > 0) {
        sum->ours += log(best / own);
        sum->chosen += log(best / chosen);
        if (sum->count++ == 0 || best / chosen < sum->least) sum->least = best / chosen;
    }
    CHECK(cudaFree(s.memory));
}

static bool wanted(const char *label, char **texts)
{
    for (; *texts; texts++)
        if (!strstr(label, *texts)) return false;
    return true;
}

static void open_device(bool warm)
{
    char library[160];
    struct cudaDeviceProp has;
    CHECK(cudaGetDeviceProperties(&has, 0));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    const char *why = ops_open();
    if (why) die("open", why);
    ks_cublaslt_open("auto", library, sizeof library);
    printf("%s, %d SMs, L2 %d MB, %s; device copy %.0f GB/s (read + write); %s buffers\n%-44s %9s %9s %9s %9s %9s %6s "
           "%6s %9s %7s %9s  %s\n",
           has.name, has.multiProcessorCount, has.l2CacheSize >> 20, library, ops_copy_gbs(), warm ? "warm" : "cold",
           "us", "picked", "own best", "lt first", "lt best", "chosen", "ours", "chosen", "floor us", "share",
           "copy us", "chosen");
}

static void join_mean(mean *to, const mean *m)
{
    if (m->count == 0) return;
    to->least = to->count && to->least < m->least ? to->least : m->least;
    to->ours += m->ours;
    to->chosen += m->chosen;
    to->count += m->count;
}

static void say_mean(const char *dtype, const char *regime, const mean *m)
{
    if (m->count)
        printf("%-6s %-10s %3d shapes %18.3f %12.3f %16.2f\n", dtype, regime, m->count, exp(m->ours / m->count),
               exp(m->chosen / m->count), m->least);
}

int main(int argc, char **argv)
{
    static mean means[DTYPES][REGIMES];
    const bool warm = argc > 1 && strcmp(argv[1], "--warm") == 0;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        fprintf(stderr, "compare_cublaslt: no CUDA device: skipped\n");
        return 77;
    }
    open_device(warm);
    for (int d = 0; d < DTYPES; d++)
        for (int i = 0; i < SHAPES; i++) {
            ops_row row;
            memset(&row, 0, sizeof row);
            snprintf(row.op, sizeof row.op, "matmul");
            snprintf(row.dtype, sizeof row.dtype, "%s", dtypes[d]);
            snprintf(row.first, sizeof row.first, "%s", shapes[i].first);
            snprintf(row.second, sizeof row.second, "%s", shapes[i].second);
            snprintf(row.label, sizeof row.label, "%s %s %s * %s", dtypes[d], regime_names[shapes[i].kind], row.first,
                     row.second);
            if (wanted(row.label, argv + 1 + warm)) run_row(&row, warm, &means[d][shapes[i].kind]);
        }
    static mean services; /* few rows, long K, odd and batched: where services live */
    printf("\ngeometric means of lt best over: %12s %12s %16s\n", "own best", "chosen", "least, chosen");
    for (int d = 0; d < DTYPES; d++)
        for (int kind = 0; kind < REGIMES; kind++) {
            const mean *m = &means[d][kind];
            say_mean(dtypes[d], regime_names[kind], m);
            if (kind == LOW || kind == KHEAVY || kind == ODD || kind == BATCH) join_mean(&services, m);
        }
    say_mean("all", "four", &services);
    return 0;
}
