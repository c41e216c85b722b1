/* Kernels alone, on device memory: what the planner picks for each row of ops_rows.h, its time, and that against the
 * floor: the bytes of inputs and output, each counted once, at the rate of a device copy measured in the same run.
 *
 *   bench_ops [--list | --once] [TEXT...]    rows in whose label every TEXT stands, such as: softmax BF16
 *   bench_ops [--list | --once] --from FILE  rows whose label is a line of it
 *   bench_ops [--once] --rows FILE           a row of any shapes for each line: the words of a label
 *
 * --list names the rows; --once launches each of them once and times nothing, for a profiler. Cold: a graph of many
 * launches, each on another set of buffers, all sets together beyond three times the L2 cache (but at most SETS_MOST,
 * so that small rows stay in it). Warm: the same launches on one set. A launch is what a lane launches for a copied
 * request, stamps and all. TFLOP/s is 2MNK. Medians of the replays, by events. Data: uniform in [-1, 1). Results are
 * checked by the op tests and by compare_torch.py, not here. */
#include "bench_sets.cuh"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAUNCHES_MOST = 48, REPLAYS_MOST = 15, REPLAYS_LEAST = 5 };

static int compare(const void *left, const void *right)
{
    const float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static float elapsed_us()
{
    float ms = 0;
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return ms * 1000;
}

static void launch_set(const sets *s, int at)
{
    unsigned char *in = s->memory + s->bytes * (size_t)at;
    const char *why = ops_launch(&s->work, in, in + s->work.in_bytes, stream);
    if (why) die("launch", why);
}

/* The median time of one launch within a graph of many. */
static double measure(const sets *s, int count)
{
    launch_set(s, 0); /* the first one warms */
    CHECK(cudaEventRecord(begin, stream));
    for (int at = 0; at < s->count; at++) launch_set(s, at);
    CHECK(cudaEventRecord(end, stream));
    const float guess = elapsed_us() / (float)s->count;
    const int launches = guess > 5000 ? 4 : guess > 1000 ? 12 : LAUNCHES_MOST;
    const int replays = guess > 1000 ? REPLAYS_LEAST : REPLAYS_MOST;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; i++) launch_set(s, i % count);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphUpload(exec, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    float times[REPLAYS_MOST];
    for (int i = 0; i < replays; i++) {
        CHECK(cudaEventRecord(begin, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(end, stream));
        times[i] = elapsed_us() / (float)launches;
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    qsort(times, (size_t)replays, sizeof times[0], compare);
    return times[replays / 2];
}

static void run_row(const ops_row *row, bool once)
{
    sets s;
    memset(&s, 0, sizeof s);
    const char *refused = ops_plan(row, &s.work);
    printf("%-42s ", row->label);
    if (refused) {
        printf("refused: %s\n", refused);
        return;
    }
    open_sets(&s, once ? 1 : SETS_MOST);
    if (once) {
        launch_set(&s, 0);
        CHECK(cudaStreamSynchronize(stream));
    } else {
        const double cold = measure(&s, s.count), warm = measure(&s, 1), gbs = s.work.bytes / cold / 1e3;
        printf("%10.2f %10.2f %8.0f %10.2f %7.1f%% ", cold, warm, gbs, s.work.bytes / ops_copy_gbs() / 1e3,
               100 * gbs / ops_copy_gbs());
        if (*row->second)
            printf("%8.2f  ", s.work.flops / cold / 1e6);
        else
            printf("%8s  ", "");
    }
    printf("%s\n", s.work.kernel_info.kernel);
    fflush(stdout);
    CHECK(cudaFree(s.memory));
}

static void open_device()
{
    struct cudaDeviceProp has;
    CHECK(cudaGetDeviceProperties(&has, 0));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    const char *why = ops_open();
    if (why) die("open", why);
    printf("%s, %d SMs, L2 %d MB; device copy %.0f GB/s (read + write)\n", has.name, has.multiProcessorCount,
           has.l2CacheSize >> 20, ops_copy_gbs());
}

/* Each text begins some word of the label: max is not softmax. */
static bool wanted(const ops_row *row, char **texts)
{
    for (; *texts; texts++) {
        const char *at = strstr(row->label, *texts);
        while (at && at != row->label && at[-1] != ' ') at = strstr(at + 1, *texts);
        if (!at) return false;
    }
    return true;
}

/* The label is a line of the file. */
static bool named(const ops_row *row, FILE *from)
{
    char line[OPS_LABEL + 2];
    rewind(from);
    while (fgets(line, sizeof line, from)) {
        line[strcspn(line, "\n")] = 0;
        if (strcmp(line, row->label) == 0) return true;
    }
    return false;
}

/* The words of a label: OP DATATYPE SHAPE, and * SHAPE or axis AXES. */
static void read_row(const char *line, ops_row *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->label, sizeof out->label, "%.*s", (int)strcspn(line, "\n"), line);
    if (sscanf(line, "%15s %7s %31s * %31s", out->op, out->dtype, out->first, out->second) == 4) return;
    if (sscanf(line, "%15s %7s %31s axis %15s", out->op, out->dtype, out->first, out->axis) != 4)
        die(out->label, "is no row");
}

static void run_lines(FILE *rows, bool once)
{
    char line[OPS_LABEL];
    ops_row row;
    while (fgets(line, sizeof line, rows)) {
        read_row(line, &row);
        run_row(&row, once);
    }
}

int main(int argc, char **argv)
{
    const bool list = argc > 1 && strcmp(argv[1], "--list") == 0, once = argc > 1 && strcmp(argv[1], "--once") == 0;
    char **texts = argv + 1 + (list || once);
    FILE *from = NULL;
    const bool lines = *texts && strcmp(*texts, "--rows") == 0;
    if (lines || (*texts && strcmp(*texts, "--from") == 0)) {
        from = texts[1] ? fopen(texts[1], "r") : NULL;
        if (!from) die(*texts, texts[1] ? strerror(errno) : "needs a file");
    }
    int devices = 0;
    if (!list && (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)) {
        fprintf(stderr, "bench_ops: no CUDA device: skipped\n");
        return 77;
    }
    if (!list) open_device();
    if (!list && !once)
        printf("%-42s %10s %10s %8s %10s %8s %8s  %s\n", "", "cold us", "warm us", "GB/s", "floor us", "of copy",
               "TFLOP/s", "kernel");
    if (lines) run_lines(from, once);
    ops_row row;
    for (int i = 0; !lines && ops_row_at(i, &row); i++) {
        if (!(from ? named(&row, from) : wanted(&row, texts))) continue;
        if (list)
            printf("%s\n", row.label);
        else
            run_row(&row, once);
    }
    return 0;
}
